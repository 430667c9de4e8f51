use std::process::{Command, Stdio};

use mini_ork_node::workspace::docker::DockerSettings;

use super::super::lab::{Lab, check, failed, finish, time};
use crate::error::CommandError;

/// The docker program, on the engine and with the image that sandboxes are made with.
pub(super) struct Docker<'a> {
    lab: &'a Lab,
    endpoint: String,
    image: String,
    runtime: Option<String>,
}

/// A container that docker made, removed when dropped.
pub(super) struct Container<'a> {
    docker: &'a Docker<'a>,
    name: String,
}

impl<'a> Docker<'a> {
    pub(super) fn new(lab: &'a Lab, settings: &DockerSettings) -> Self {
        Self {
            lab,
            endpoint: settings.endpoint.clone(),
            image: settings.image.clone().unwrap_or_default(),
            runtime: settings.runtime.clone(),
        }
    }

    /// Makes a container that does nothing and has no network, as sandboxes have none. It runs when
    /// this returns.
    pub(super) fn run(&self, name: &str) -> Result<Container<'_>, CommandError> {
        let container = Container {
            docker: self,
            name: self.name(name),
        };
        let mut command = self.command();
        command.args(["run", "--detach", "--network=none", "--name"]);
        command.arg(&container.name);
        if let Some(runtime) = &self.runtime {
            command.arg("--runtime").arg(runtime);
        }
        command.args(["--entrypoint", "sleep"]);
        command.arg(&self.image).arg("86400");
        finish(command, "docker run").map_err(|error| {
            error.hint("the image has to have `sleep`, and PATH the docker program")
        })?;
        Ok(container)
    }

    /// Runs a program in the container `name` to a good end; in milliseconds.
    pub(super) fn exec(&self, name: &str, argv: &[&str]) -> Result<f64, CommandError> {
        let mut command = self.command();
        command.arg("exec").arg(self.name(name)).args(argv);
        time(command, "docker exec")
    }

    /// The first process of a container, as this machine numbers it.
    pub(super) fn first_process(&self, container: &str) -> Result<u32, CommandError> {
        let mut command = self.command();
        command.args(["inspect", "--format", "{{.State.Pid}}", container]);
        let output = command.stdout(Stdio::piped()).output();
        let output = output.map_err(|error| failed(&error))?;
        check(Ok(output.status), "docker inspect")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.trim().parse().map_err(|error| failed(&error))
    }

    fn name(&self, name: &str) -> String {
        format!("mini-ork-bench-{}-{name}", std::process::id())
    }

    fn command(&self) -> Command {
        let mut command = self.lab.command("docker");
        command.arg("--host").arg(&self.endpoint);
        command
    }
}

impl Container<'_> {
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let mut command = self.docker.command();
        command.args(["rm", "--force", &self.name]);
        // One that was never made is gone as well.
        let _ = command.status();
    }
}
