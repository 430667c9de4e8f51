use std::path::PathBuf;
use std::sync::Arc;

use mini_ork_node::egress::{AllowList, NetworkPolicy, SystemResolver};
use mini_ork_node::supervise::Supervisor;
use mini_ork_node::workspace::docker::{
    ContainerLimits, DockerSettings, EndpointSources, find_endpoint,
};
use mini_ork_node::workspace::{BackendSettings, ConfinedSettings};

use super::GlobalSettings;
use super::limits::{parse_count, parse_size};
use crate::env_vars;
use crate::error::CommandError;

/// Name of the program for sandboxes, beside this one.
const NODE_PROGRAM: &str = "mini-ork-node";
const MOST_PROCESSORS: u64 = 4096;
const MOST_PROCESSES: u64 = 1 << 22;

impl GlobalSettings {
    /// What workspaces are made from.
    pub(crate) fn backend_settings(
        &self,
        backend: &str,
        network: NetworkPolicy,
    ) -> Result<BackendSettings, CommandError> {
        Ok(BackendSettings {
            supervisor: Supervisor::new(self.program.clone()),
            docker: if backend == "docker" {
                self.docker_settings()?
            } else {
                // Nobody asks for it.
                DockerSettings::default()
            },
            confined: ConfinedSettings {
                program: self.program.clone(),
                hidden: vec![self.home.value.clone()],
                home: self.environment.path("HOME"),
                ..ConfinedSettings::default()
            },
            network,
            resolver: Arc::new(SystemResolver),
        })
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
        })
        .map_err(|error| {
            CommandError::usage("the container engine cannot be found")
                .caused_by(&error)
                .hint("set DOCKER_HOST, or choose a context with `docker context use`")
        })
    }

    fn docker_settings(&self) -> Result<DockerSettings, CommandError> {
        let environment = &self.environment;
        Ok(DockerSettings {
            endpoint: self.docker_endpoint()?,
            image: environment.text(env_vars::MO_SANDBOX_IMAGE)?,
            runtime: environment.text(env_vars::MO_SANDBOX_RUNTIME)?,
            node_program: self.node_program(),
            limits: self.container_limits()?,
            allowed: AllowList::default(),
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

    fn container_limits(&self) -> Result<ContainerLimits, CommandError> {
        let text = |name| self.environment.text(name);
        let mut limits = ContainerLimits::default();
        if let Some(size) = text(env_vars::MO_SANDBOX_MEMORY)? {
            limits.memory = parse_size(env_vars::MO_SANDBOX_MEMORY, &size)?;
        }
        if let Some(count) = text(env_vars::MO_SANDBOX_CPUS)? {
            let count = parse_count(env_vars::MO_SANDBOX_CPUS, &count, MOST_PROCESSORS)?;
            limits.processors = u32::try_from(count).ok();
        }
        if let Some(count) = text(env_vars::MO_SANDBOX_PIDS)? {
            let count = parse_count(env_vars::MO_SANDBOX_PIDS, &count, MOST_PROCESSES)?;
            limits.processes = u32::try_from(count).unwrap_or(u32::MAX);
        }
        Ok(limits)
    }
}
