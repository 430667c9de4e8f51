use std::path::PathBuf;
use std::sync::Arc;

use super::docker::{self, DockerBoundary, DockerSettings};
use super::{
    ConfinedBoundary, ConfinedSettings, LocalWorkspace, Workspace, WorkspaceError, confined,
};
use crate::egress::{AllowList, NetworkPolicy, PolicyProxy, Resolve};
use crate::session::{self, ServerAddress, SessionWorkspace, WayIn};
use crate::supervise::Supervisor;

/// The name of the backend that runs programs on this machine.
pub const LOCAL: &str = "local";
/// The name of the backend that runs them in a container.
pub const DOCKER: &str = "docker";

type Constructor = fn(&BackendSettings) -> Arc<dyn Workspace>;

/// All backends, in the order in which they are listed. A new one is a line here.
const BACKENDS: &[(&str, Constructor)] = &[
    (LOCAL, |settings| match settings.network.allowed() {
        None => Arc::new(LocalWorkspace::new(settings.supervisor.clone())),
        Some(allowed) => {
            let boundary = ConfinedBoundary::new(ConfinedSettings {
                allowed: allowed.clone(),
                authorities: settings.authorities.clone(),
                ..settings.confined.clone()
            });
            Arc::new(SessionWorkspace::new(boundary).through(proxy(settings, allowed)))
        }
    }),
    (DOCKER, |settings| {
        let allowed = settings.network.allowed();
        let boundary = DockerBoundary::new(DockerSettings {
            has_network: allowed.is_none(),
            allowed: allowed.clone().unwrap_or_default(),
            authorities: settings.authorities.clone(),
            ..settings.docker.clone()
        });
        let workspace = SessionWorkspace::new(boundary);
        match allowed {
            None => Arc::new(workspace),
            Some(allowed) => Arc::new(workspace.through(proxy(settings, allowed))),
        }
    }),
];

/// What backends are made from; each takes its own part.
#[derive(Debug, Clone)]
pub struct BackendSettings {
    /// Who owns processes on this machine.
    pub supervisor: Supervisor,
    /// For the backend `docker`.
    pub docker: DockerSettings,
    /// For the backend `local` with a network policy.
    pub confined: ConfinedSettings,
    /// What programs reach.
    pub network: NetworkPolicy,
    /// Finds the addresses of the hosts that they reach.
    pub resolver: Arc<dyn Resolve>,
    /// Files with certificates that programs behind a boundary trust besides those of the place
    /// where they run.
    pub authorities: Vec<PathBuf>,
}

fn proxy(settings: &BackendSettings, allowed: AllowList) -> PolicyProxy {
    PolicyProxy::new(allowed, Arc::clone(&settings.resolver))
}

/// No backend has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no workspace backend `{name}`; known: {}", backend_names().join(", "))]
pub struct UnknownBackend {
    name: String,
}

/// Makes a workspace of the backend with this name.
pub fn open(name: &str, settings: &BackendSettings) -> Result<Arc<dyn Workspace>, UnknownBackend> {
    let found = BACKENDS.iter().find(|(known, _)| *known == name);
    let (_, construct) = found.ok_or_else(|| UnknownBackend {
        name: name.to_owned(),
    })?;
    Ok(construct(settings))
}

/// Enters the workspace of a run that another process keeps.
pub async fn enter(way_in: WayIn) -> Result<Arc<dyn Workspace>, WorkspaceError> {
    let dialer = match &way_in.server {
        ServerAddress::Container { engine, name, user } => {
            docker::dialer(engine, name, user).await?
        }
        ServerAddress::Socket { directory, first } => confined::dialer(directory, *first),
    };
    Ok(Arc::new(session::enter(way_in, dialer).await?))
}

/// The names of all backends.
pub fn backend_names() -> Vec<&'static str> {
    BACKENDS.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::SystemResolver;

    #[test]
    fn each_backend_has_the_name_that_it_is_listed_by() {
        let settings = BackendSettings {
            supervisor: Supervisor::new("/nowhere/mini-ork".into()),
            docker: DockerSettings::default(),
            confined: ConfinedSettings::default(),
            network: NetworkPolicy::Full,
            resolver: Arc::new(SystemResolver),
            authorities: Vec::new(),
        };
        for name in backend_names() {
            assert_eq!(open(name, &settings).unwrap().backend(), name);
        }
        let error = open("dokcer", &settings).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no workspace backend `dokcer`; known: local, docker"
        );
    }
}
