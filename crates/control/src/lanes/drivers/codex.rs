use std::path::PathBuf;

use mini_ork_protocol::ByteString;
use serde_json::Value;

use super::{ANSWER_TIMEOUT_MS, Launch, LaunchContext, TOKEN_VARIABLE, variable};
use crate::lanes::model::ModelAgent;

const DIRECTORY: &str = "codex";

pub(super) fn launch(agent: &ModelAgent, context: &LaunchContext<'_>, token: &str) -> Launch {
    let mut argv: Vec<ByteString> = vec!["codex".into(), "exec".into()];
    if context.resume.is_some() {
        argv.push("resume".into());
    }
    argv.extend([
        "--json".into(),
        // Nobody is there to be asked, and its own sandbox does not work in every backend.
        "--dangerously-bypass-approvals-and-sandbox".into(),
        "--skip-git-repo-check".into(),
    ]);
    if let Some(session) = context.resume {
        argv.push(session.into());
    }
    // The prompt is on standard input.
    argv.push("-".into());
    Launch {
        argv,
        environment: vec![
            // Settings, sessions and logs of the user's own codex stay apart.
            variable("CODEX_HOME", context.home.join(DIRECTORY)),
            variable(TOKEN_VARIABLE, token),
        ],
        files: vec![(
            PathBuf::from(DIRECTORY).join("config.toml"),
            config(agent, context).into_bytes(),
        )],
    }
}

fn config(agent: &ModelAgent, context: &LaunchContext<'_>) -> String {
    let model = text(&agent.model);
    let base_url = text(context.base_url);
    let retries = agent.retries();
    let window = agent
        .limits
        .context_tokens
        .map(|tokens| format!("model_context_window = {tokens}\n"))
        .unwrap_or_default();
    // A provider of its own, since the built-in one tries a WebSocket first and takes its key from
    // elsewhere. The features that are off look things up on the network or wait for it for ever.
    format!(
        "model = {model}\n\
         {window}\
         model_provider = \"lane\"\n\
         check_for_update_on_startup = false\n\
         [analytics]\n\
         enabled = false\n\
         [features]\n\
         plugins = false\n\
         unbounded_connection_retries = false\n\
         [model_providers.lane]\n\
         name = \"lane\"\n\
         base_url = {base_url}\n\
         wire_api = \"responses\"\n\
         env_key = \"{TOKEN_VARIABLE}\"\n\
         request_max_retries = {retries}\n\
         stream_max_retries = {retries}\n\
         stream_idle_timeout_ms = {ANSWER_TIMEOUT_MS}\n"
    )
}

/// A text of TOML, which for printable ASCII is written as in JSON.
fn text(value: &str) -> String {
    Value::from(value).to_string()
}
