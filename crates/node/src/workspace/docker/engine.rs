use std::collections::HashMap;
use std::path::PathBuf;

use bollard::errors::Error;
use bollard::query_parameters::{
    InspectContainerOptions, ListContainersOptionsBuilder, RemoveContainerOptionsBuilder,
};
use bollard::{ClientVersion, Docker};

use super::DockerError;
use super::kind::EngineKind;

/// How long the engine may take to answer, in seconds. The start of a container is among that.
const ANSWER_SECONDS: u64 = 120;

/// A connection to the engine at `endpoint`, in a version that both know.
pub(super) async fn connect(endpoint: &str) -> Result<Docker, DockerError> {
    let client = open(endpoint, bollard::API_DEFAULT_VERSION)?;
    client
        .negotiate_version()
        .await
        .map_err(|error| unreachable(endpoint, error))
}

/// A connection to an engine that was asked before.
pub(super) fn reconnect(endpoint: &str, kind: &EngineKind) -> Result<Docker, DockerError> {
    let (major_version, minor_version) = kind.api;
    let version = ClientVersion {
        major_version,
        minor_version,
    };
    open(endpoint, &version)
}

/// Only makes the client; nothing is asked.
fn open(endpoint: &str, version: &ClientVersion) -> Result<Docker, DockerError> {
    let opened = if endpoint.starts_with("unix://") {
        Docker::connect_with_unix(endpoint, ANSWER_SECONDS, version)
    } else if endpoint.starts_with("tcp://") || endpoint.starts_with("http://") {
        Docker::connect_with_http(endpoint, ANSWER_SECONDS, version)
    } else {
        return Err(DockerError::Endpoint {
            endpoint: endpoint.to_owned(),
        });
    };
    opened.map_err(|error| unreachable(endpoint, error))
}

fn unreachable(endpoint: &str, error: Error) -> DockerError {
    let endpoint = endpoint.to_owned();
    if says(&error, std::io::ErrorKind::PermissionDenied) {
        return DockerError::NotPermitted { endpoint };
    }
    DockerError::EngineDown {
        endpoint,
        source: Box::new(error),
    }
}

/// Whether an error of the system is behind `error`.
fn says(error: &Error, kind: std::io::ErrorKind) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == kind)
        {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether the engine answered that nothing can have that name.
pub(super) fn is_no_name(error: &Error) -> bool {
    matches!(
        error,
        Error::DockerResponseServerError {
            status_code: 400,
            ..
        }
    )
}

/// Whether the engine answered that there is no such thing.
pub(super) fn is_missing(error: &Error) -> bool {
    matches!(
        error,
        Error::DockerResponseServerError {
            status_code: 404,
            ..
        }
    )
}

/// What the engine knows of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) id: String,
    pub(super) running: bool,
    /// The runtime, as the engine calls it.
    pub(super) runtime: Option<String>,
    /// Value of [`super::container::RUN_LABEL`].
    pub(super) run: Option<String>,
    /// Value of [`super::container::HOME_LABEL`].
    pub(super) private: Option<PathBuf>,
    /// Why it does not run, as half a sentence.
    pub(super) end: String,
    /// Whether the system killed something in it because memory ran out.
    pub(super) out_of_memory: bool,
}

/// Looks a container up by its name or id.
pub(super) async fn look(client: &Docker, name: &str) -> Result<Option<Seen>, Error> {
    let found = match client
        .inspect_container(name, None::<InspectContainerOptions>)
        .await
    {
        Ok(found) => found,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let state = found.state.unwrap_or_default();
    let mut labels = found
        .config
        .and_then(|config| config.labels)
        .unwrap_or_default();
    let host = found.host_config.unwrap_or_default();
    let end = match (state.oom_killed, state.exit_code, state.error) {
        (Some(true), ..) => match host.memory {
            Some(limit @ 1..) => format!("it ran out of its {} MiB of memory", limit >> 20),
            _ => "it ran out of memory".to_owned(),
        },
        (_, _, Some(error)) if !error.is_empty() => error,
        (_, Some(code), _) => format!("its first process ended with {code}"),
        _ => "it does not run".to_owned(),
    };
    Ok(Some(Seen {
        id: found.id.unwrap_or_else(|| name.to_owned()),
        running: state.running == Some(true),
        runtime: host.runtime,
        run: labels.remove(super::container::RUN_LABEL),
        private: labels
            .remove(super::container::HOME_LABEL)
            .map(PathBuf::from),
        end,
        out_of_memory: state.oom_killed == Some(true),
    }))
}

/// A container that mini-ork made.
pub(super) struct Labelled {
    pub(super) id: String,
    pub(super) run: String,
    pub(super) private: PathBuf,
}

/// The containers that mini-ork made, running or not.
pub(super) async fn labelled(client: &Docker) -> Result<Vec<Labelled>, DockerError> {
    let label = super::container::HOME_LABEL;
    let filters = HashMap::from([("label", vec![label])]);
    let options = ListContainersOptionsBuilder::new()
        .all(true)
        .filters(&filters)
        .build();
    let listed = client
        .list_containers(Some(options))
        .await
        .map_err(DockerError::engine("list its containers"))?;
    Ok(listed
        .into_iter()
        .filter_map(|one| {
            let mut labels = one.labels?;
            Some(Labelled {
                id: one.id?,
                run: labels.remove(super::container::RUN_LABEL)?,
                private: labels.remove(label)?.into(),
            })
        })
        .collect())
}

/// Removes a container with everything in it; that there is none is fine.
pub(super) async fn remove(client: &Docker, name: &str) -> Result<(), DockerError> {
    let options = RemoveContainerOptionsBuilder::new()
        .force(true)
        .v(true)
        .build();
    match client.remove_container(name, Some(options)).await {
        Ok(()) => Ok(()),
        Err(error) if is_missing(&error) => Ok(()),
        // Somebody else is just removing it.
        Err(Error::DockerResponseServerError {
            status_code: 409, ..
        }) => gone_soon(client, name).await,
        Err(error) => Err(DockerError::engine("remove a container")(error)),
    }
}

async fn gone_soon(client: &Docker, name: &str) -> Result<(), DockerError> {
    const TRIES: u32 = 100;
    for _ in 0..TRIES {
        let found = look(client, name)
            .await
            .map_err(DockerError::engine("look for a container"))?;
        if found.is_none() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    Err(DockerError::Foreign {
        name: name.to_owned(),
    })
}
