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

/// The address of the engine that the docker client would use.
pub fn find_endpoint(sources: &EndpointSources) -> Result<String, EndpointError> {
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
    let file = directory.map(|directory| {
        let contexts = directory.join("contexts/meta");
        contexts.join(digest).join("meta.json")
    });
    let context: Option<Context> = match file {
        Some(file) => read(&file)?,
        None => None,
    };
    context
        .and_then(|context| context.endpoints.docker?.host)
        .ok_or(EndpointError::NoContext { name })
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
        let meta = place.path().join("docker/contexts/meta").join(hashed);
        fs_err::create_dir_all(&meta).unwrap();
        let text = r#"{"Name":"colima","Endpoints":{"docker":{"Host":"unix:///c.sock"}}}"#;
        fs_err::write(meta.join("meta.json"), text).unwrap();
        let config = place.path().join("docker/config.json");
        fs_err::write(&config, r#"{"auths":{},"currentContext":"colima"}"#).unwrap();
        assert_eq!(find_endpoint(&sources).unwrap(), "unix:///c.sock");

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
