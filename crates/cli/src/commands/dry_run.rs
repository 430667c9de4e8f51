//! `mini-ork run --dry-run`.

use mini_ork_control::run::{Plan, RunRequest};
use serde::Serialize;

use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, RunSettings};

/// The sandbox that a run would have.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlannedSandbox {
    /// The image of a container, as it was named.
    pub(crate) image: Option<String>,
    /// The runtime that was asked for; the engine's own when absent.
    pub(crate) runtime: Option<String>,
    /// How much of an agent is inside.
    pub(crate) scope: &'static str,
    /// The network policy.
    pub(crate) network: &'static str,
    /// The hosts of an allowlist.
    pub(crate) network_allow: Vec<String>,
}

/// Shows what the run would do.
pub(super) fn dry_run(
    plan: &Plan,
    request: &RunRequest,
    settings: &RunSettings,
    global: &GlobalSettings,
) -> CommandResult {
    let sandbox = planned_sandbox(settings, global)?;
    if settings.json {
        render::json(&serde_json::json!({
            "dry_run": true,
            "plan": plan,
            "questions": request.questions,
            "sandboxes": usize::from(sandbox.is_some()),
            "sandbox": sandbox,
        }))?;
    } else {
        render::out(&render::plan(
            plan,
            &request.repository,
            &request.questions,
            sandbox.as_ref(),
        ))?;
    }
    Ok(if request.questions.is_empty() {
        ExitStatus::Success
    } else {
        ExitStatus::Blocked
    })
}

/// One for all nodes of a run behind a boundary.
fn planned_sandbox(
    settings: &RunSettings,
    global: &GlobalSettings,
) -> Result<Option<PlannedSandbox>, CommandError> {
    if !settings.has_boundary() {
        return Ok(None);
    }
    let made_from = global.backend_settings(&settings.backend.value, &settings.surroundings)?;
    let allowed = made_from.network.allowed().unwrap_or_default();
    Ok(Some(PlannedSandbox {
        // A backend without containers has neither.
        image: made_from.docker.image,
        runtime: made_from.docker.runtime,
        scope: settings.effective_scope().name(),
        network: made_from.network.name(),
        network_allow: allowed.entries().iter().map(ToString::to_string).collect(),
    }))
}
