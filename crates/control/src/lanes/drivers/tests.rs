use std::collections::BTreeMap;
use std::path::Path;

use mini_ork_node::model::Api;
use mini_ork_node::secret::SecretName;
use serde_json::Value;

use super::{Launch, LaunchContext};
use crate::lanes::model::{Driver, Inject, LaneLimits, ModelAgent};

const TOKEN: &str = "mo-SENTINEL";

fn agent(driver: Driver, api: Api) -> ModelAgent {
    ModelAgent {
        driver,
        api,
        model: "vendor/m-1".to_owned(),
        base_url: "https://host.example/x".to_owned(),
        key: SecretName::parse("SOME_API_KEY").unwrap(),
        inject: Inject::Gateway,
        limits: LaneLimits {
            max_turns: Some(12),
            max_calls: 34,
            max_output_tokens: None,
            context_tokens: None,
        },
    }
}

fn all() -> [ModelAgent; 5] {
    [
        agent(Driver::ClaudeCode, Api::AnthropicMessages),
        agent(Driver::Codex, Api::OpenaiResponses),
        agent(Driver::Opencode, Api::OpenaiChat),
        agent(Driver::Opencode, Api::AnthropicMessages),
        agent(Driver::BuiltIn, Api::OpenaiResponses),
    ]
}

fn context<'a>() -> LaunchContext<'a> {
    LaunchContext {
        program: Path::new("/bin/mini-ork"),
        base_url: "http://127.0.0.1:99",
        home: Path::new("/run/home"),
        resume: None,
        writes: true,
        tools: None,
    }
}

fn arguments(launch: &Launch) -> Vec<String> {
    let arguments = launch.argv.iter();
    arguments
        .map(|argument| String::from_utf8(argument.as_bytes().to_vec()).unwrap())
        .collect()
}

fn environment(launch: &Launch) -> BTreeMap<&str, &str> {
    let variables = launch.environment.iter();
    variables
        .map(|(name, value)| (name.to_str().unwrap(), value.to_str().unwrap()))
        .collect()
}

#[test]
fn bc_42_the_token_is_in_one_variable_and_nowhere_else() {
    for agent in all() {
        for inject in [Inject::Gateway, Inject::Env] {
            let agent = ModelAgent {
                inject,
                ..agent.clone()
            };
            let launch = agent.launch(&context(), TOKEN);
            let holders = launch
                .environment
                .iter()
                .filter(|(_, value)| value.to_str().unwrap().contains(TOKEN));
            assert_eq!(holders.count(), 1, "{launch:?}");
            assert!(!arguments(&launch).concat().contains(TOKEN));
            for (path, content) in &launch.files {
                assert!(path.is_relative());
                assert!(!String::from_utf8_lossy(content).contains(TOKEN));
            }
            assert!(!format!("{launch:?} {launch:#?}").contains(TOKEN));
        }
    }
}

#[test]
fn what_an_agent_keeps_is_below_the_home_of_its_node() {
    for (driver, names) in [
        (Driver::ClaudeCode, &["CLAUDE_CONFIG_DIR"][..]),
        (Driver::Codex, &["CODEX_HOME"]),
        (
            Driver::Opencode,
            &[
                "XDG_CACHE_HOME",
                "XDG_CONFIG_HOME",
                "XDG_DATA_HOME",
                "XDG_STATE_HOME",
            ],
        ),
    ] {
        let launch = agent(driver, Api::OpenaiResponses).launch(&context(), TOKEN);
        let environment = environment(&launch);
        for name in names {
            assert!(environment[name].starts_with("/run/home/"), "{name}");
        }
    }
}

#[test]
fn every_agent_is_told_the_address_and_the_model() {
    for agent in all() {
        let launch = agent.launch(&context(), TOKEN);
        let mut said = arguments(&launch).concat();
        said.extend(environment(&launch).values().copied());
        said.extend(
            launch
                .files
                .iter()
                .map(|(_, content)| String::from_utf8_lossy(content)),
        );
        assert!(said.contains("http://127.0.0.1:99"), "{said}");
        assert!(said.contains("vendor/m-1"), "{said}");
        assert!(!said.contains("host.example"), "{said}");
    }
}

#[test]
fn an_earlier_session_goes_on() {
    let resumed = LaunchContext {
        resume: Some("abc-1"),
        ..context()
    };
    let [claude, codex, opencode, ..] =
        all().map(|agent| arguments(&agent.launch(&resumed, TOKEN)).join(" "));
    assert!(claude.contains("--resume abc-1"), "{claude}");
    assert!(
        codex.starts_with("codex exec resume ") && codex.ends_with(" abc-1 -"),
        "{codex}"
    );
    assert!(opencode.ends_with("--session abc-1"), "{opencode}");
}

#[test]
fn claude_gets_its_token_under_the_name_that_fits() {
    for (inject, key, expected) in [
        (Inject::Gateway, "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
        (Inject::Env, "ANTHROPIC_API_KEY", "ANTHROPIC_API_KEY"),
        (Inject::Env, "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_AUTH_TOKEN"),
        (
            Inject::Env,
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
        ),
        (Inject::Env, "MOONSHOT_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    ] {
        let agent = ModelAgent {
            inject,
            key: SecretName::parse(key).unwrap(),
            ..agent(Driver::ClaudeCode, Api::AnthropicMessages)
        };
        let launch = agent.launch(&context(), TOKEN);
        assert_eq!(environment(&launch)[expected], TOKEN);
    }
}

#[test]
fn the_limits_of_claude_are_its_own_options() {
    let mut agent = agent(Driver::ClaudeCode, Api::AnthropicMessages);
    agent.limits.max_output_tokens = Some(8192);
    agent.limits.context_tokens = Some(100_000);
    let launch = agent.launch(&context(), TOKEN);
    assert!(arguments(&launch).join(" ").contains("--max-turns 12"));
    let environment = environment(&launch);
    assert_eq!(environment["CLAUDE_CODE_MAX_OUTPUT_TOKENS"], "8192");
    assert_eq!(environment["CLAUDE_CODE_AUTO_COMPACT_WINDOW"], "100000");
    assert_eq!(environment["CLAUDE_CODE_MAX_RETRIES"], "0");
    let reader = LaunchContext {
        writes: false,
        ..context()
    };
    let reading = arguments(&agent.launch(&reader, TOKEN)).join(" ");
    assert!(reading.ends_with(",Edit,Write,NotebookEdit"), "{reading}");
}

#[test]
fn the_configuration_of_codex_is_toml_that_holds_no_surprise() {
    let mut agent = agent(Driver::Codex, Api::OpenaiResponses);
    agent.limits.context_tokens = Some(9);
    let launch = agent.launch(&context(), TOKEN);
    let (path, content) = &launch.files[0];
    assert_eq!(
        Path::new(environment(&launch)["CODEX_HOME"]).join("config.toml"),
        Path::new("/run/home").join(path)
    );
    let text = String::from_utf8(content.clone()).unwrap();
    for line in [
        r#"model = "vendor/m-1""#,
        "model_context_window = 9",
        r#"base_url = "http://127.0.0.1:99""#,
        "request_max_retries = 0",
        "stream_max_retries = 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
}

#[test]
fn opencode_gets_the_package_and_the_path_of_its_api() {
    for (api, package, url) in [
        (
            Api::OpenaiChat,
            "@ai-sdk/openai-compatible",
            "http://127.0.0.1:99",
        ),
        (
            Api::OpenaiResponses,
            "@ai-sdk/openai",
            "http://127.0.0.1:99",
        ),
        (
            Api::AnthropicMessages,
            "@ai-sdk/anthropic",
            "http://127.0.0.1:99/v1",
        ),
    ] {
        let launch = agent(Driver::Opencode, api).launch(&context(), TOKEN);
        let config: Value =
            serde_json::from_str(environment(&launch)["OPENCODE_CONFIG_CONTENT"]).unwrap();
        let provider = &config["provider"]["lane"];
        assert_eq!(provider["npm"], package);
        assert_eq!(provider["options"]["baseURL"], url);
        assert_eq!(config["model"], "lane/vendor/m-1");
        assert!(provider["models"]["vendor/m-1"].is_object());
        assert_eq!(config["permission"]["edit"], "allow");
    }
}

#[test]
fn the_page_names_the_versions_that_were_tried() {
    let page = include_str!("../../../../../docs/lanes.md");
    for driver in [Driver::ClaudeCode, Driver::Codex, Driver::Opencode] {
        let program = driver.program().unwrap();
        let version = driver.tried_version().unwrap();
        assert!(page.contains(&format!("{program} {version}")), "{program}");
    }
}
