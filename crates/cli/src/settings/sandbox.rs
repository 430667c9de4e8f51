use std::path::PathBuf;
use std::sync::Arc;

use mini_ork_control::sandboxes::ledger_directory;
use mini_ork_node::certificates::AUTHORITY_VARIABLES;
use mini_ork_node::egress::{NetworkPolicy, SystemResolver};
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::workspace::docker::{
    ContainerLimits, DockerSettings, EndpointError, EndpointSources, Processors, find_endpoint,
};
use mini_ork_node::workspace::{BackendSettings, ConfinedSettings, DOCKER};

use super::limits::{parse_count, parse_memory};
use super::{GlobalSettings, Setting, Source, Surroundings};
use crate::env_vars;
use crate::error::CommandError;

/// Name of the program for sandboxes, beside this one.
const NODE_PROGRAM: &str = "mini-ork-node";
const MOST_PROCESSES: u64 = 1 << 22;

impl GlobalSettings {
    /// What workspaces are made from.
    pub(crate) fn backend_settings(
        &self,
        backend: &str,
        surroundings: &Surroundings,
    ) -> Result<BackendSettings, CommandError> {
        let ledger_directory = ledger_directory(&self.home.value);
        Ok(BackendSettings {
            supervisor: Supervisor::new(self.program.clone()),
            docker: if backend == DOCKER {
                self.docker_settings(surroundings)?
            } else {
                // Nobody asks for it.
                DockerSettings::default()
            },
            confined: ConfinedSettings {
                program: self.program.clone(),
                hidden: vec![self.home.value.clone()],
                home: self.environment.path("HOME"),
                processes: container_limits(surroundings)?.processes,
                ledger: Some(ledger_directory),
                ..ConfinedSettings::default()
            },
            network: surroundings.network.policy.value.clone(),
            resolver: Arc::new(SystemResolver),
            authorities: self.authorities(),
        })
    }

    /// Files with certificates that the user trusts besides those of the system.
    fn authorities(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        for name in AUTHORITY_VARIABLES {
            let named = self.environment.path(name);
            let file = named.map(|path| self.current_directory.join(path));
            files.extend(file.filter(|file| !files.contains(file)));
        }
        files
    }

    /// The address of the container engine.
    pub(crate) fn docker_endpoint(&self) -> Result<String, CommandError> {
        let environment = &self.environment;
        let configuration = environment
            .path("DOCKER_CONFIG")
            .or_else(|| Some(environment.path("HOME")?.join(".docker")));
        find_endpoint(&EndpointSources {
            host: environment.text("DOCKER_HOST")?,
            context: environment.text("DOCKER_CONTEXT")?,
            configuration,
            sockets: environment.path("XDG_RUNTIME_DIR"),
            tls: ["DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"]
                .into_iter()
                .find(|name| environment.path(name).is_some()),
        })
        .map_err(|error| {
            let hint = match error {
                EndpointError::Tls { .. } => {
                    "name its unix socket, or one that ssh leads to it: ssh -N -L /tmp/engine.sock:/var/run/docker.sock HOST, then DOCKER_HOST=unix:///tmp/engine.sock"
                }
                _ => "set DOCKER_HOST, or choose a context with `docker context use`",
            };
            CommandError::usage("the container engine cannot be used")
                .caused_by(&error)
                .hint(hint)
        })
    }

    fn docker_settings(&self, surroundings: &Surroundings) -> Result<DockerSettings, CommandError> {
        let value = |setting: &Option<Setting<String>>| {
            let setting = setting.as_ref();
            setting.map(|setting| setting.value.clone())
        };
        Ok(DockerSettings {
            endpoint: self.docker_endpoint()?,
            image: value(&surroundings.image),
            runtime: value(&surroundings.runtime),
            node_program: self.node_program(),
            limits: container_limits(surroundings)?,
            has_network: surroundings.network.policy.value == NetworkPolicy::Full,
            ledger: Some(ledger_directory(&self.home.value)),
            ..DockerSettings::default()
        })
    }

    fn node_program(&self) -> PathBuf {
        self.environment
            .path(env_vars::MO_NODE_PROGRAM)
            .map_or_else(
                || self.program.with_file_name(NODE_PROGRAM),
                |path| self.current_directory.join(path),
            )
    }
}

fn container_limits(surroundings: &Surroundings) -> Result<ContainerLimits, CommandError> {
    let mut limits = ContainerLimits::default();
    if let Some(size) = &surroundings.memory {
        limits.memory = parse_memory(&label(size), &size.value)?;
    }
    if let Some(limit) = &surroundings.cpus {
        limits.processors = Some(parse_processors(limit)?);
    }
    if let Some(count) = &surroundings.processes {
        let count = parse_count(&label(count), &count.value, MOST_PROCESSES)?;
        limits.processes = u32::try_from(count).unwrap_or(u32::MAX);
    }
    Ok(limits)
}

fn parse_processors(limit: &Setting<String>) -> Result<Processors, CommandError> {
    Processors::parse(limit.value.trim()).ok_or_else(|| {
        CommandError::usage(format!("{} is `{}`", label(limit), limit.value)).hint(format!(
            "set it to a number above 0 and up to {}, such as 2 or 0.5",
            Processors::MOST
        ))
    })
}

/// What a bound is called where it was set.
fn label(bound: &Setting<String>) -> String {
    match &bound.source {
        Source::Variable(name) => (*name).to_owned(),
        other => format!("{} ({other})", bound.name),
    }
}
