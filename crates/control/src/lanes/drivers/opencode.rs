use mini_ork_node::model::Api;
use mini_ork_protocol::ByteString;
use serde_json::{Value, json};

use super::{ANSWER_TIMEOUT_MS, Launch, LaunchContext, TOKEN_VARIABLE, variable};
use crate::lanes::model::ModelAgent;

/// It needs both sizes to know when to shorten its context.
const CONTEXT_TOKENS: u32 = 200_000;
const OUTPUT_TOKENS: u32 = 32_000;

pub(super) fn launch(agent: &ModelAgent, context: &LaunchContext<'_>, token: &str) -> Launch {
    let mut argv: Vec<ByteString> = vec![
        "opencode".into(),
        "run".into(),
        "--format".into(),
        "json".into(),
        // Without a title it asks the model for one.
        "--title".into(),
        "mini-ork".into(),
    ];
    if let Some(session) = context.resume {
        argv.extend(["--session".into(), session.into()]);
    }
    let mut environment = vec![
        // The strongest of its many places for settings: a file of the workspace cannot change
        // where the calls go.
        variable(
            "OPENCODE_CONFIG_CONTENT",
            config(agent, context).to_string(),
        ),
        variable("OPENCODE_DISABLE_AUTOUPDATE", "1"),
        variable("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1"),
        variable("OPENCODE_DISABLE_LSP_DOWNLOAD", "1"),
        variable("OPENCODE_DISABLE_MODELS_FETCH", "1"),
        variable(TOKEN_VARIABLE, token),
    ];
    // Settings, sessions and logs of the user's own opencode stay apart.
    for (name, directory) in [
        ("XDG_CACHE_HOME", "cache"),
        ("XDG_CONFIG_HOME", "config"),
        ("XDG_DATA_HOME", "data"),
        ("XDG_STATE_HOME", "state"),
    ] {
        environment.push(variable(name, context.home.join(directory)));
    }
    Launch {
        argv,
        environment,
        files: Vec::new(),
    }
}

fn config(agent: &ModelAgent, context: &LaunchContext<'_>) -> Value {
    // These packages are part of the program; another one would be fetched from the network.
    let (package, base_url) = match agent.api {
        Api::OpenaiChat => ("@ai-sdk/openai-compatible", context.base_url.to_owned()),
        Api::OpenaiResponses => ("@ai-sdk/openai", context.base_url.to_owned()),
        Api::AnthropicMessages => ("@ai-sdk/anthropic", format!("{}/v1", context.base_url)),
    };
    let model = format!("lane/{}", agent.model);
    let edit = if context.writes { "allow" } else { "deny" };
    json!({
        "autoupdate": false,
        "share": "disabled",
        "snapshot": false,
        "model": model,
        "small_model": model,
        "enabled_providers": ["lane"],
        "permission": {"*": "allow", "edit": edit},
        "provider": {"lane": {
            "npm": package,
            "name": "lane",
            "options": {
                "baseURL": base_url,
                "apiKey": format!("{{env:{TOKEN_VARIABLE}}}"),
                "timeout": ANSWER_TIMEOUT_MS,
            },
            "models": {agent.model.as_str(): {
                "name": agent.model,
                "tool_call": true,
                "limit": {
                    "context": agent.limits.context_tokens.unwrap_or(CONTEXT_TOKENS),
                    "output": agent.limits.max_output_tokens.unwrap_or(OUTPUT_TOKENS),
                },
            }},
        }},
    })
}
