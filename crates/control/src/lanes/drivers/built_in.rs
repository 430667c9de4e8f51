use std::path::Path;

use mini_ork_node::agent::{AGENT_ARGUMENT, AGENT_TOKEN_VARIABLE, AgentLimits, AgentSpec};

use super::{Launch, LaunchContext, variable};
use crate::lanes::model::ModelAgent;

pub(super) fn launch(agent: &ModelAgent, context: &LaunchContext<'_>, token: &str) -> Launch {
    let defaults = AgentLimits::default();
    let limits = &agent.limits;
    let specification = AgentSpec {
        api: agent.api,
        base_url: context.base_url.to_owned(),
        model: agent.model.clone(),
        records: context.home.join("commands"),
        tools: context.tools.map(Path::to_owned),
        limits: AgentLimits {
            max_turns: limits.max_turns.unwrap_or(defaults.max_turns),
            max_output_tokens: limits
                .max_output_tokens
                .map_or(defaults.max_output_tokens, u64::from),
            context_tokens: limits
                .context_tokens
                .map_or(defaults.context_tokens, u64::from),
            ..defaults
        },
    };
    let specification = serde_json::to_string(&specification).unwrap_or_default();
    Launch {
        argv: vec![
            context.program.into(),
            AGENT_ARGUMENT.into(),
            specification.as_str().into(),
        ],
        environment: vec![variable(AGENT_TOKEN_VARIABLE, token)],
        files: Vec::new(),
    }
}
