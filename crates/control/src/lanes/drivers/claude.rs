use mini_ork_protocol::ByteString;

use super::{ANSWER_TIMEOUT_MS, Launch, LaunchContext, variable};
use crate::lanes::model::{Inject, ModelAgent};

/// Its tools for work in other directories or at other times, which a node would not see.
const NOT_HERE_AND_NOW: &str = "--disallowedTools=EnterWorktree,CronCreate,ScheduleWakeup";

pub(super) fn launch(agent: &ModelAgent, context: &LaunchContext<'_>, token: &str) -> Launch {
    let mut argv: Vec<ByteString> = vec![
        "claude".into(),
        "--print".into(),
        "--output-format".into(),
        "stream-json".into(),
        // Without it there is no stream.
        "--verbose".into(),
        // Nobody is there to be asked.
        "--dangerously-skip-permissions".into(),
        "--model".into(),
        agent.model.as_str().into(),
    ];
    if let Some(turns) = agent.limits.max_turns {
        argv.extend(["--max-turns".into(), turns.to_string().as_str().into()]);
    }
    if let Some(session) = context.resume {
        argv.extend(["--resume".into(), session.into()]);
    }
    argv.push(if context.writes {
        NOT_HERE_AND_NOW.into()
    } else {
        // A hint for the model; what it changes in another way is undone by the run.
        format!("{NOT_HERE_AND_NOW},Edit,Write,NotebookEdit").into()
    });
    let limits = &agent.limits;
    let mut environment = vec![
        variable("ANTHROPIC_BASE_URL", context.base_url),
        variable(token_variable(agent), token),
        variable("API_TIMEOUT_MS", ANSWER_TIMEOUT_MS.to_string()),
        variable("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
        variable("CLAUDE_CODE_MAX_RETRIES", agent.retries().to_string()),
        // Settings, sessions and logs of the user's own claude stay apart.
        variable("CLAUDE_CONFIG_DIR", context.home.join("claude")),
        // As root it refuses to work unasked without this.
        variable("IS_SANDBOX", "1"),
    ];
    if let Some(tokens) = limits.max_output_tokens {
        let name = "CLAUDE_CODE_MAX_OUTPUT_TOKENS";
        environment.push(variable(name, tokens.to_string()));
    }
    if let Some(tokens) = limits.context_tokens {
        let name = "CLAUDE_CODE_AUTO_COMPACT_WINDOW";
        environment.push(variable(name, tokens.to_string()));
    }
    Launch {
        argv,
        environment,
        files: Vec::new(),
    }
}

/// A key is shown in another way than a token, and a subscription in a third; the names tell.
fn token_variable(agent: &ModelAgent) -> &str {
    match (agent.inject, agent.key.as_str()) {
        (Inject::Env, name @ ("ANTHROPIC_API_KEY" | "CLAUDE_CODE_OAUTH_TOKEN")) => name,
        _ => "ANTHROPIC_AUTH_TOKEN",
    }
}
