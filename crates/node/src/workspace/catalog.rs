use std::sync::Arc;

use super::docker::{DockerBoundary, DockerSettings};
use super::{ConfinedBoundary, ConfinedSettings, LocalWorkspace, Workspace};
use crate::egress::{AllowList, NetworkPolicy, PolicyProxy, Resolve};
use crate::session::SessionWorkspace;
use crate::supervise::Supervisor;

type Constructor = fn(&BackendSettings) -> Arc<dyn Workspace>;

/// All backends, in the order in which they are listed. A new one is a line here.
const BACKENDS: &[(&str, Constructor)] = &[
    ("local", |settings| match settings.network.allowed() {
        None => Arc::new(LocalWorkspace::new(settings.supervisor.clone())),
        Some(allowed) => {
            let boundary = ConfinedBoundary::new(ConfinedSettings {
                allowed: allowed.clone(),
                ..settings.confined.clone()
            });
            Arc::new(SessionWorkspace::new(boundary).through(proxy(settings, allowed)))
        }
    }),
    ("docker", |settings| {
        let allowed = settings.network.allowed().unwrap_or_default();
        let boundary = DockerBoundary::new(DockerSettings {
            allowed: allowed.clone(),
            ..settings.docker.clone()
        });
        Arc::new(SessionWorkspace::new(boundary).through(proxy(settings, allowed)))
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
    /// What programs reach. A container has no network of its own, so that `full` is `none` there.
    pub network: NetworkPolicy,
    /// Finds the addresses of the hosts that they reach.
    pub resolver: Arc<dyn Resolve>,
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
