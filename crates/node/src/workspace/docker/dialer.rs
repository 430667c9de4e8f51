use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bollard::Docker;
use bollard::errors::Error;
use bollard::exec::{CreateExecOptions, StartExecOptions, StartExecResults};

use super::DockerError;
use super::channel::ExecChannel;
use super::container::{ADDRESS, NODE_PROGRAM};
use super::door::Door;
use super::engine;
use crate::session::{BRIDGE_ARGUMENT, Channel, DialError, Dialer, ServerAddress};

/// Reaches the server of a container through processes that the engine starts beside it.
#[derive(Debug)]
pub(super) struct ExecDialer {
    pub(super) client: Docker,
    /// Address of the engine.
    pub(super) engine: String,
    /// Name of the container.
    pub(super) container: String,
    /// User and group of those processes.
    pub(super) user: String,
    /// Where the server of a container that was just made comes by itself.
    pub(super) door: Mutex<Option<Door>>,
}

/// Reaches the server in the container `name` of the engine at `engine`, by processes of `user`.
pub(in crate::workspace) async fn dialer(
    engine: &str,
    name: &str,
    user: &str,
) -> Result<Arc<dyn Dialer>, DockerError> {
    Ok(Arc::new(ExecDialer {
        client: engine::connect(engine).await?,
        engine: engine.to_owned(),
        container: name.to_owned(),
        user: user.to_owned(),
        door: Mutex::default(),
    }))
}

#[async_trait]
impl Dialer for ExecDialer {
    fn address(&self) -> Option<ServerAddress> {
        Some(ServerAddress::Container {
            engine: self.engine.clone(),
            name: self.container.clone(),
            user: self.user.clone(),
        })
    }

    async fn dial(&self) -> Result<Box<dyn Channel>, DialError> {
        let door = self
            .door
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(door) = door
            && let Some(stream) = door.wait().await
        {
            return Ok(Box::new(stream));
        }
        match self.bridge().await {
            Ok(channel) => Ok(channel),
            Err(error) => match engine::look(&self.client, &self.container).await {
                Ok(Some(seen)) if !seen.running => Err(DialError::Gone {
                    reason: seen.end,
                    out_of_memory: seen.out_of_memory,
                }),
                Ok(None) => Err(DialError::Gone {
                    reason: "its container was removed".to_owned(),
                    out_of_memory: false,
                }),
                _ => Err(DialError::Failed(io::Error::other(error))),
            },
        }
    }
}

impl ExecDialer {
    async fn bridge(&self) -> Result<Box<dyn Channel>, Error> {
        let command = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            user: Some(self.user.as_str()),
            cmd: Some(vec![NODE_PROGRAM, BRIDGE_ARGUMENT, ADDRESS]),
            ..CreateExecOptions::default()
        };
        let bridge = self.client.create_exec(&self.container, command).await?;
        let options = StartExecOptions {
            output_capacity: Some(64 << 10),
            ..StartExecOptions::default()
        };
        match self.client.start_exec(&bridge.id, Some(options)).await? {
            StartExecResults::Attached { output, input } => {
                Ok(Box::new(ExecChannel::new(output, input)))
            }
            StartExecResults::Detached => Err(Error::IOError {
                err: io::Error::other("the engine did not attach the bridge"),
            }),
        }
    }
}
