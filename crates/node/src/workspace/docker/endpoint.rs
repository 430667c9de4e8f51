use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Where the engine of this machine listens when nobody says otherwise.
const DEFAULT_SOCKET: &str = "/var/run/docker.sock";
/// The context that is no context.
const DEFAULT_CONTEXT: &str = "default";
/// Longest file that is read.
const LONGEST_FILE: u64 = 1 << 20;

/// What says where the container engine is, in the order in which it is asked.
#[derive(Debug, Clone, Default)]
pub struct EndpointSources {
    /// `DOCKER_HOST`.
    pub host: Option<String>,
    /// `DOCKER_CONTEXT`.
    pub context: Option<String>,
    /// The directory of the docker client's configuration.
    pub configuration: Option<PathBuf>,
    /// The directory of this user's sockets, for an engine without a daemon.
    pub sockets: Option<PathBuf>,
    /// The first of `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH` that is set.
    pub tls: Option<&'static str>,
}

/// Why it is not known where the engine is.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// A file of the docker client cannot be read.
    #[error("the configuration of the docker client cannot be read")]
    Unreadable(#[source] io::Error),
    /// A file of the docker client is not what it should be.
    #[error("`{}` is not a configuration of the docker client", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// The chosen context is not there.
    #[error("there is no docker context `{name}`")]
    NoContext {
        /// Its name.
        name: String,
    },
    /// The engine is to be spoken to with TLS. In plain text everybody on the way could have it.
    #[error(
        "the engine at `{endpoint}` is to be spoken to with TLS ({why}), which is not supported"
    )]
    Tls {
        /// Its address.
        endpoint: String,
        /// What says so.
        why: String,
    },
}

#[derive(Deserialize)]
struct ClientConfiguration {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

#[derive(Deserialize)]
struct Context {
    #[serde(rename = "Endpoints")]
    endpoints: Endpoints,
}

#[derive(Deserialize)]
struct Endpoints {
    docker: Option<Endpoint>,
}

#[derive(Deserialize)]
struct Endpoint {
    #[serde(rename = "Host")]
    host: Option<String>,
}

/// The address of the engine that the docker client would use. One that it would use with TLS is
/// refused, and not used without.
pub fn find_endpoint(sources: &EndpointSources) -> Result<String, EndpointError> {
    let endpoint = any_endpoint(sources)?;
    match sources.tls {
        Some(variable) if is_tcp(&endpoint) => Err(EndpointError::Tls {
            endpoint,
            why: format!("{variable} is set"),
        }),
        _ => Ok(endpoint),
    }
}

fn is_tcp(endpoint: &str) -> bool {
    ["tcp://", "http://", "https://"]
        .iter()
        .any(|scheme| endpoint.starts_with(scheme))
}

fn any_endpoint(sources: &EndpointSources) -> Result<String, EndpointError> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(host) = given(&sources.host) {
        return Ok(host);
    }
    let directory = sources.configuration.as_deref();
    let context = match (given(&sources.context), directory) {
        (Some(context), _) => Some(context),
        (None, Some(directory)) => current_context(&directory.join("config.json"))?,
        (None, None) => None,
    };
    match context.filter(|name| name != DEFAULT_CONTEXT) {
        Some(name) => of_context(directory, name),
        None => Ok(default_endpoint(sources)),
    }
}

fn current_context(file: &Path) -> Result<Option<String>, EndpointError> {
    let configuration: Option<ClientConfiguration> = read(file)?;
    Ok(configuration
        .and_then(|configuration| configuration.current_context)
        .filter(|name| !name.is_empty()))
}

fn of_context(directory: Option<&Path>, name: String) -> Result<String, EndpointError> {
    let digest = Sha256::digest(name.as_bytes());
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let contexts = directory.map(|directory| directory.join("contexts"));
    let context: Option<Context> = match &contexts {
        Some(contexts) => read(&contexts.join("meta").join(&digest).join("meta.json"))?,
        None => None,
    };
    let Some(endpoint) = context.and_then(|context| context.endpoints.docker?.host) else {
        return Err(EndpointError::NoContext { name });
    };
    let certificates = contexts.map(|contexts| contexts.join("tls").join(digest).join("docker"));
    if is_tcp(&endpoint) && certificates.is_some_and(|directory| directory.exists()) {
        return Err(EndpointError::Tls {
            endpoint,
            why: format!("the context `{name}` has certificates"),
        });
    }
    Ok(endpoint)
}

fn default_endpoint(sources: &EndpointSources) -> String {
    let own = sources.sockets.iter().flat_map(|directory| {
        ["docker.sock", "podman/podman.sock"].map(|name| directory.join(name))
    });
    let found = std::iter::once(PathBuf::from(DEFAULT_SOCKET))
        .chain(own)
        .find(|socket| socket.exists());
    let socket = found.unwrap_or_else(|| DEFAULT_SOCKET.into());
    format!("unix://{}", socket.display())
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> Result<Option<T>, EndpointError> {
    let bytes = match fs_err::metadata(file) {
        Ok(found) if found.is_file() && found.len() <= LONGEST_FILE => {
            fs_err::read(file).map_err(EndpointError::Unreadable)?
        }
        Ok(_) => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EndpointError::Unreadable(error)),
    };
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|source| EndpointError::Malformed {
            path: file.to_owned(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REMOTE: &str = "tcp://engine.example:2376";

    #[test]
    fn the_engine_is_the_one_of_the_docker_client() {
        let place = tempfile::tempdir().unwrap();
        let mut sources = EndpointSources {
            configuration: Some(place.path().join("docker")),
            ..EndpointSources::default()
        };
        assert_eq!(
            find_endpoint(&sources).unwrap(),
            "unix:///var/run/docker.sock"
        );

        let name = "colima";
        let hashed: String = Sha256::digest(name)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let meta = place.path().join("docker/contexts/meta").join(&hashed);
        fs_err::create_dir_all(&meta).unwrap();
        let text = r#"{"Name":"colima","Endpoints":{"docker":{"Host":"unix:///c.sock"}}}"#;
        fs_err::write(meta.join("meta.json"), text).unwrap();
        let tls = place.path().join("docker/contexts/tls").join(&hashed);
        fs_err::create_dir_all(tls.join("docker")).unwrap();
        let config = place.path().join("docker/config.json");
        fs_err::write(&config, r#"{"auths":{},"currentContext":"colima"}"#).unwrap();
        assert_eq!(find_endpoint(&sources).unwrap(), "unix:///c.sock");

        // Certificates mean nothing where nobody is on the way.
        sources.tls = Some("DOCKER_CERT_PATH");
        assert_eq!(find_endpoint(&sources).unwrap(), "unix:///c.sock");
        fs_err::write(
            meta.join("meta.json"),
            text.replace("unix:///c.sock", REMOTE),
        )
        .unwrap();
        let refused = |sources: &EndpointSources| {
            let error = find_endpoint(sources).unwrap_err();
            assert!(matches!(error, EndpointError::Tls { .. }), "{error}");
            error.to_string()
        };
        let error = refused(&sources);
        assert!(
            error.contains(REMOTE) && error.contains("the context `colima` has certificates"),
            "{error}"
        );
        fs_err::remove_dir_all(&tls).unwrap();
        assert!(refused(&sources).contains("DOCKER_CERT_PATH is set"));
        sources.tls = None;
        assert_eq!(find_endpoint(&sources).unwrap(), REMOTE);

        sources.context = Some("none".to_owned());
        let error = find_endpoint(&sources).unwrap_err();
        assert_eq!(error.to_string(), "there is no docker context `none`");
        sources.context = Some("default".to_owned());
        assert_eq!(
            find_endpoint(&sources).unwrap(),
            "unix:///var/run/docker.sock"
        );
        sources.host = Some("tcp://127.0.0.1:2375".to_owned());
        assert_eq!(find_endpoint(&sources).unwrap(), "tcp://127.0.0.1:2375");

        sources = EndpointSources {
            configuration: sources.configuration,
            ..EndpointSources::default()
        };
        fs_err::write(config, "{").unwrap();
        assert!(matches!(
            find_endpoint(&sources),
            Err(EndpointError::Malformed { .. })
        ));
    }
}
