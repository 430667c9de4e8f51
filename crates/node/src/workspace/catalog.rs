use std::sync::Arc;

use super::{LocalWorkspace, Workspace};
use crate::supervise::Supervisor;

type Constructor = fn(&Supervisor) -> Arc<dyn Workspace>;

/// All backends, in the order in which they are listed. A new one is a line here.
const BACKENDS: &[(&str, Constructor)] = &[("local", |supervisor| {
    Arc::new(LocalWorkspace::new(supervisor.clone()))
})];

/// No backend has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no workspace backend `{name}`; known: {}", backend_names().join(", "))]
pub struct UnknownBackend {
    name: String,
}

/// Makes a workspace of the backend with this name.
pub fn open(name: &str, supervisor: &Supervisor) -> Result<Arc<dyn Workspace>, UnknownBackend> {
    let found = BACKENDS.iter().find(|(known, _)| *known == name);
    let (_, construct) = found.ok_or_else(|| UnknownBackend {
        name: name.to_owned(),
    })?;
    Ok(construct(supervisor))
}

/// The names of all backends.
pub fn backend_names() -> Vec<&'static str> {
    BACKENDS.iter().map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_backend_has_the_name_that_it_is_listed_by() {
        let supervisor = Supervisor::new("/nowhere/mini-ork".into());
        for name in backend_names() {
            assert_eq!(open(name, &supervisor).unwrap().backend(), name);
        }
        let error = open("dokcer", &supervisor).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no workspace backend `dokcer`; known: local"
        );
    }
}
