use std::path::PathBuf;

use mini_ork_testkit::{
    Act, Call, Dialect, Ending, ModelServer, Output, Repo, Script, TestEnv, Tokens, Turn, agent_cli,
};
use serde_json::{Value, json};

const WRONG: &str = "def add(a, b):\n    return a - b\n";
const RIGHT: &str = "def add(a, b):\n    return a + b\n";

/// Reads, edits, runs a command, says that it is done.
fn conversation() -> Script {
    Script::conversation([
        Turn::acts([Act::Read("calc.py".to_owned())])
            .saying("I look.")
            .tokens(Tokens::new(1_000, 10).cached(200, 30)),
        Turn::acts([Act::Edit {
            path: "calc.py".to_owned(),
            old: "    return a - b".to_owned(),
            new: "    return a + b".to_owned(),
        }])
        .tokens(Tokens::new(2_000, 20)),
        Turn::run("echo \"it runs\" > ran.txt").tokens(Tokens::new(3_000, 30)),
        Turn::text("All is well.").tokens(Tokens::new(4_000, 40)),
    ])
}

/// A clean world with one agent in it.
struct Agent {
    env: TestEnv,
    cli: PathBuf,
    server: ModelServer,
}

impl Agent {
    fn new(cli: PathBuf) -> Self {
        Self {
            env: TestEnv::new("no program of ours"),
            cli,
            server: ModelServer::start(conversation()),
        }
    }

    fn repository(&self) -> Repo<'_> {
        self.env.repo("work", &[("calc.py", WRONG)])
    }

    fn call<'a>(&'a self, repository: &Repo<'_>, arguments: &[&str]) -> Call<'a> {
        self.env.call(&self.cli, arguments).cwd(repository.path())
    }

    /// The work is done, and each of its requests was answered to the end.
    #[track_caller]
    fn assert_done(&self, repository: &Repo<'_>, output: &Output) {
        let said = output.transcript();
        let content =
            |path: &str| fs_err::read_to_string(repository.path().join(path)).unwrap_or_default();
        assert_eq!(content("calc.py"), RIGHT, "{said}");
        assert_eq!(content("ran.txt"), "it runs\n", "{said}");
        let requests = self.server.requests();
        let calls: Vec<_> = requests
            .iter()
            .filter(|request| request.dialect.is_some())
            .collect();
        assert_eq!(calls.len(), 4, "{said}\n{requests:#?}");
        for request in calls {
            assert_eq!(request.status, Some(200));
            assert_eq!(request.ending, Ending::Complete);
            assert!(request.contains(self.server.key()));
        }
        let dealt = self.server.dealt();
        assert_eq!((dealt.output, dealt.cache_read), (100, 200));
    }

    #[track_caller]
    fn assert_version(&self, version: &str) {
        let output = self.env.call(&self.cli, ["--version"]).run().expect(0);
        assert!(output.text().contains(version), "{}", output.transcript());
    }
}

fn lines(output: &Output) -> Vec<Value> {
    output
        .text()
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect()
}

#[test]
fn claude_does_a_scripted_piece_of_work() {
    let Some(cli) = agent_cli("claude") else {
        return;
    };
    let agent = Agent::new(cli);
    agent.assert_version("2.1.197");
    let repository = agent.repository();
    let arguments = [
        "-p",
        "Repair calc.py.",
        "--output-format",
        "stream-json",
        "--verbose",
        "--dangerously-skip-permissions",
        "--model",
        "claude-sonnet-4-5",
    ];
    let output = agent
        .call(&repository, &arguments)
        .env("IS_SANDBOX", "1")
        .env(
            "ANTHROPIC_BASE_URL",
            agent.server.base_url(Dialect::Messages),
        )
        .env("ANTHROPIC_API_KEY", agent.server.key())
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("CLAUDE_CODE_MAX_RETRIES", "0")
        .run()
        .expect(0);
    agent.assert_done(&repository, &output);
    let lines = lines(&output);
    let result = lines.last().unwrap();
    assert_eq!(result["is_error"], false, "{}", output.transcript());
    assert_eq!(result["result"], "All is well.");
    assert_eq!(result["usage"]["input_tokens"], 10_000);
    assert_eq!(result["usage"]["cache_creation_input_tokens"], 30);
    assert_eq!(result["usage"]["output_tokens"], 100);
    assert_eq!(agent.server.dealt().input, 10_000);
}

#[test]
fn codex_does_a_scripted_piece_of_work() {
    let Some(cli) = agent_cli("codex") else {
        return;
    };
    let agent = Agent::new(cli);
    agent.assert_version("0.171.0");
    let repository = agent.repository();
    let home = agent.env.fresh("codex");
    fs_err::create_dir(&home).unwrap();
    let config = format!(
        r#"
model = "gpt-5.5"
model_provider = "here"
check_for_update_on_startup = false
[analytics]
enabled = false
[features]
plugins = false
unbounded_connection_retries = false
[model_providers.here]
name = "here"
base_url = "{}"
wire_api = "responses"
env_key = "HERE_KEY"
request_max_retries = 0
stream_max_retries = 0
"#,
        agent.server.base_url(Dialect::Responses)
    );
    fs_err::write(home.join("config.toml"), config).unwrap();
    let arguments = [
        "exec",
        "--json",
        "--dangerously-bypass-approvals-and-sandbox",
        "--skip-git-repo-check",
        "Repair calc.py.",
    ];
    let output = agent
        .call(&repository, &arguments)
        .env("CODEX_HOME", &home)
        .env("HERE_KEY", agent.server.key())
        .run()
        .expect(0);
    agent.assert_done(&repository, &output);
    let lines = lines(&output);
    let end = lines.last().unwrap();
    assert_eq!(end["type"], "turn.completed", "{}", output.transcript());
    assert_eq!(end["usage"]["input_tokens"], 10_230);
    assert_eq!(end["usage"]["cached_input_tokens"], 200);
    assert_eq!(end["usage"]["output_tokens"], 100);
}

#[test]
fn opencode_does_a_scripted_piece_of_work() {
    let Some(cli) = agent_cli("opencode") else {
        return;
    };
    let agent = Agent::new(cli);
    agent.assert_version("1.18.33");
    let repository = agent.repository();
    let config = json!({
        "autoupdate": false,
        "share": "disabled",
        "snapshot": false,
        "model": "here/m1",
        "small_model": "here/m1",
        "enabled_providers": ["here"],
        "permission": {"*": "allow"},
        "provider": {"here": {
            "npm": "@ai-sdk/openai-compatible",
            "name": "here",
            "options": {
                "baseURL": agent.server.base_url(Dialect::Chat),
                "apiKey": "{env:HERE_KEY}",
                "timeout": 60_000,
            },
            "models": {"m1": {
                "name": "m1",
                "tool_call": true,
                "limit": {"context": 200_000, "output": 8_000},
            }},
        }},
    });
    let arguments = [
        "run",
        "--format",
        "json",
        "--title",
        "A title",
        "Repair calc.py.",
    ];
    let output = agent
        .call(&repository, &arguments)
        .env("OPENCODE_CONFIG_CONTENT", config.to_string())
        .env("HERE_KEY", agent.server.key())
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
        .env("OPENCODE_DISABLE_DEFAULT_PLUGINS", "1")
        .run()
        .expect(0);
    agent.assert_done(&repository, &output);
    let steps: Vec<Value> = lines(&output)
        .into_iter()
        .filter(|line| line["type"] == "step_finish")
        .collect();
    let sum = |pointer: &str| -> u64 {
        steps
            .iter()
            .map(|step| step.pointer(pointer).unwrap().as_u64().unwrap())
            .sum()
    };
    assert_eq!(sum("/part/tokens/input"), 10_030);
    assert_eq!(sum("/part/tokens/cache/read"), 200);
    assert_eq!(sum("/part/tokens/output"), 100);
}
