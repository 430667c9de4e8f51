use std::path::{Path, PathBuf};

use mini_ork_node::model::Api;

use super::model::{Agent, Driver, Inject, Lane, ModelAgent};
use super::provider::provider;
use crate::yaml::Document;

/// Reads one entry; gives the lane, or the mistakes without file and line.
fn read(entry: &str) -> Result<Lane, Vec<String>> {
    let text = format!("lane: {entry}\n");
    let document = Document::parse("f", text.as_bytes()).unwrap_or_else(|error| panic!("{error}"));
    let value = document.root().required("lane").unwrap();
    let lane = provider("lane", Path::new("/base"), &value);
    let mistakes: Vec<String> = document
        .into_mistakes()
        .iter()
        .map(|mistake| mistake.to_string().replace("f:1  ", ""))
        .collect();
    if mistakes.is_empty() {
        Ok(lane.unwrap())
    } else {
        Err(mistakes)
    }
}

#[track_caller]
fn model(entry: &str) -> ModelAgent {
    read(entry).unwrap().model().unwrap().clone()
}

/// The only mistake of an entry.
#[track_caller]
fn mistake(entry: &str) -> String {
    let mut mistakes = read(entry).unwrap_err();
    assert_eq!(mistakes.len(), 1, "{mistakes:#?}");
    mistakes.remove(0)
}

#[test]
fn every_kind_and_its_older_name() {
    for (kinds, driver, api) in [
        (
            &["claude-code", "anthropic-native"][..],
            Driver::ClaudeCode,
            Api::AnthropicMessages,
        ),
        (
            &["codex", "codex-native"],
            Driver::Codex,
            Api::OpenaiResponses,
        ),
        (
            &["opencode", "opencode-native"],
            Driver::Opencode,
            Api::OpenaiChat,
        ),
        (&["anthropic"], Driver::BuiltIn, Api::AnthropicMessages),
        (
            &["openai", "openai-compat", "openai-chat"],
            Driver::BuiltIn,
            Api::OpenaiChat,
        ),
    ] {
        for kind in kinds {
            let lane = read(&format!("{{kind: {kind}, model: m-1}}")).unwrap();
            assert_eq!(lane.agent.kind(), kinds[0]);
            let agent = lane.model().unwrap();
            assert_eq!((agent.driver, agent.api), (driver, api), "{kind}");
            let (url, key) = match api {
                Api::AnthropicMessages => ("https://api.anthropic.com", "ANTHROPIC_API_KEY"),
                _ => ("https://api.openai.com/v1", "OPENAI_API_KEY"),
            };
            assert_eq!((agent.base_url.as_str(), agent.key.as_str()), (url, key));
            assert_eq!(agent.inject, Inject::Gateway);
        }
    }
    assert!(
        mistake("{kind: anthropic-compat, model: m, api_key_env: K}")
            .contains("base_url: is missing")
    );
    assert!(mistake("{kind: uhp, model: m}").contains("is `uhp`, which is not carried out"));
    assert!(mistake("{kind: claude, model: m}").contains("which is not known"));
}

#[test]
fn everything_can_be_said() {
    let agent = model(
        "{kind: opencode, model: 'vendor/m[1m]', family: x, api: messages, base_url: 'https://host/a/', \
         api_key_env: MOONSHOT_API_KEY, inject: env, \
         limits: {max_calls: 7, max_output_tokens: 8, context_tokens: 9}}",
    );
    assert_eq!(agent.model, "vendor/m[1m]");
    assert_eq!(agent.api, Api::AnthropicMessages);
    assert_eq!(agent.base_url, "https://host/a");
    assert_eq!(agent.key.as_str(), "MOONSHOT_API_KEY");
    assert_eq!(agent.inject, Inject::Env);
    let limits = agent.limits;
    assert_eq!((limits.max_turns, limits.max_calls), (None, 7));
    assert_eq!(
        (limits.max_output_tokens, limits.context_tokens),
        (Some(8), Some(9))
    );
    let limits = model("{kind: claude-code, model: m, limits: {max_turns: 3}}").limits;
    assert_eq!((limits.max_turns, limits.max_calls), (Some(3), 200));
    assert_eq!(
        model("{kind: anthropic, model: m}").limits.max_turns,
        Some(60)
    );
}

#[test]
fn the_switch_of_older_files_is_understood() {
    let inject = |more: &str| model(&format!("{{kind: codex, model: m, {more}}}")).inject;
    assert_eq!(inject("gateway: true"), Inject::Gateway);
    assert_eq!(inject("gateway: false"), Inject::Env);
    assert_eq!(inject("gateway: false, inject: env"), Inject::Env);
    let entry = "{kind: codex, model: m, gateway: true, inject: env}";
    assert!(mistake(entry).contains("gateway: contradicts `inject`"));
}

#[test]
fn the_built_in_agent_never_holds_a_key() {
    for kind in ["anthropic", "openai"] {
        for more in ["inject: env", "gateway: false"] {
            let entry = format!("{{kind: {kind}, model: m, {more}}}");
            assert!(mistake(&entry).contains("does not go with the built-in agent"));
        }
    }
}

#[test]
fn a_key_is_not_sent_to_another_vendor_because_a_line_is_missing() {
    for kind in ["claude-code", "codex", "opencode", "anthropic", "openai"] {
        let entry = format!("{{kind: {kind}, model: m, base_url: 'https://other.example/x'}}");
        assert!(
            mistake(&entry).contains("api_key_env: is missing"),
            "{kind}"
        );
    }
    let entry = "{kind: claude-code, model: m, base_url: 'https://api.anthropic.com'}";
    assert_eq!(model(entry).key.as_str(), "ANTHROPIC_API_KEY");
}

#[test]
fn the_token_of_a_subscription_goes_with_the_program_only() {
    let entry = |more: &str| {
        format!("{{kind: claude-code, model: m, api_key_env: CLAUDE_CODE_OAUTH_TOKEN{more}}}")
    };
    assert!(mistake(&entry("")).contains("inject: is missing"));
    assert!(mistake(&entry(", inject: gateway")).contains("does not go with"));
    assert!(mistake(&entry(", gateway: true")).contains("does not go with"));
    assert_eq!(model(&entry(", inject: env")).inject, Inject::Env);
}

#[test]
fn what_cannot_be_meant_is_a_mistake_without_the_value() {
    for (entry, expected) in [
        ("{kind: codex}", "model: is missing"),
        ("{kind: codex, model: ' '}", "model: is blank"),
        (
            "{kind: codex, model: -m}",
            "model: is not the name of a model",
        ),
        (
            "{kind: codex, model: 'a b'}",
            "model: is not the name of a model",
        ),
        (
            "{kind: codex, model: 'a{env:HOME}'}",
            "model: is not the name of a model",
        ),
        (
            "{kind: codex, model: 'a\"b'}",
            "model: is not the name of a model",
        ),
        (
            "{kind: codex, model: m, api: chat}",
            "api: is `chat`, which is not known",
        ),
        (
            "{kind: openai, model: m, api: messages}",
            "api: is `messages`, which is not known",
        ),
        (
            "{kind: codex, model: m, api_key_env: sk-SENTINEL}",
            "api_key_env: is not the name of a secret",
        ),
        (
            "{kind: codex, model: m, api_key_env: K, base_url: 'https://SENTINEL@h'}",
            "base_url: cannot be used (a base URL has no user",
        ),
        (
            "{kind: claude-code, model: m, api_key_env: K, base_url: 'https://h/v1'}",
            "base_url: cannot be used (the base URL of an Anthropic API ends before `/v1`",
        ),
        (
            "{kind: codex, model: m, api_key_env: K, base_url: 'http://h/v1'}",
            "base_url: cannot be used (a base URL is `https`",
        ),
        (
            "{kind: codex, model: m, inject: both}",
            "inject: is `both`, which is not known",
        ),
        (
            "{kind: codex, model: m, script: x}",
            "script: is not carried out",
        ),
        (
            "{kind: codex, model: m, command: [x]}",
            "command: is not a known key",
        ),
        (
            "{kind: codex, model: m, limits: {max_turns: 3}}",
            "limits.max_turns: is not carried out",
        ),
        (
            "{kind: codex, model: m, limits: {max_output_tokens: 3}}",
            "limits.max_output_tokens: is not carried out",
        ),
        (
            "{kind: codex, model: m, limits: {max_calls: 0}}",
            "limits.max_calls: is 0, which is out of range",
        ),
        (
            "{kind: codex, model: m, limits: {calls: 1}}",
            "limits.calls: is not a known key",
        ),
        (
            "{kind: codex, model: m, extra_env: {CODEX_HOME: /x}}",
            "extra_env.CODEX_HOME: is a variable that mini-ork sets",
        ),
        (
            "{kind: claude-code, model: m, extra_env: {ANTHROPIC_BASE_URL: u}}",
            "extra_env.ANTHROPIC_BASE_URL: is a variable that mini-ork sets",
        ),
        (
            "{kind: opencode, model: m, extra_env: {OPENCODE_CONFIG_CONTENT: u}}",
            "extra_env.OPENCODE_CONFIG_CONTENT: is a variable that mini-ork sets",
        ),
        (
            "{kind: claude-code, model: m, extra_env: {ANTHROPIC_API_KEY: SENTINEL}}",
            "extra_env.ANTHROPIC_API_KEY: looks like a secret",
        ),
    ] {
        let found = mistake(entry);
        assert!(found.contains(expected), "{entry}: {found}");
        assert!(!found.contains("SENTINEL"), "{found}");
    }
}

#[test]
fn a_lane_is_read_back_from_its_record() {
    for entry in [
        "{kind: codex, model: m, extra_env: {A: b}}",
        "{kind: anthropic, model: m, limits: {max_output_tokens: 8}}",
        "{kind: executable, command: [x]}",
        "{kind: scripted, file: x}",
    ] {
        let lane = read(entry).unwrap();
        let record = serde_json::to_string(&lane).unwrap();
        assert_eq!(serde_json::from_str::<Lane>(&record).unwrap(), lane);
    }
    let old = r#"{"name":"a","agent":{"kind":"scripted","file":"/x"},"extra_env":{}}"#;
    let lane: Lane = serde_json::from_str(old).unwrap();
    assert_eq!(
        lane.agent,
        Agent::Scripted {
            file: PathBuf::from("/x")
        }
    );
}
