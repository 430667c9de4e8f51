//! Agents that ask a model: the real command-line programs and the built-in agent, against a model
//! server that says what a test wants, over TLS, with the key in the vault.

mod boundary;
mod built_in;
mod canary;
mod chain;
mod doctor;
mod inside;
mod keys;
mod kill_points;
mod lies;
mod live;
mod money;
mod outside;
mod published;
mod rounds;

use std::os::unix::fs::symlink;
use std::time::Duration;

use crate::support::{APPROVE, CHECK, PROJECT, new_env};
use mini_ork_testkit::{
    Call, Dialect, ModelRequest, ModelServer, Output, Repo, Script, TestEnv, Tokens, Turn,
    agent_cli, assert_no_secret,
};

/// The name of the key in the vault.
const KEY: &str = "TEST_MODEL_KEY";

/// How long a wait takes at most.
const LIMIT: Duration = Duration::from_secs(90);

/// A lane kind with the API that it speaks.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// As in `providers.yaml`, with the keys that belong to it.
    yaml: &'static str,
    /// The program that has to be on `PATH`.
    program: Option<&'static str>,
    dialect: Dialect,
    model: &'static str,
}

const CLAUDE: Kind = Kind {
    yaml: "kind: claude-code",
    program: Some("claude"),
    dialect: Dialect::Messages,
    model: "claude-sonnet-4-5",
};
const CODEX: Kind = Kind {
    yaml: "kind: codex",
    program: Some("codex"),
    dialect: Dialect::Responses,
    model: "my-model",
};
const OPENCODE: Kind = Kind {
    yaml: "kind: opencode",
    program: Some("opencode"),
    dialect: Dialect::Chat,
    model: "my-model",
};
const ANTHROPIC: Kind = Kind {
    yaml: "kind: anthropic",
    program: None,
    dialect: Dialect::Messages,
    model: "claude-sonnet-4-5",
};
const CHAT: Kind = Kind {
    yaml: "kind: openai, api: chat",
    program: None,
    dialect: Dialect::Chat,
    model: "my-model",
};
const RESPONSES: Kind = Kind {
    yaml: "kind: openai, api: responses",
    program: None,
    dialect: Dialect::Responses,
    model: "my-model",
};

/// A world with a small project, a kickoff for it, and lanes that ask model servers.
struct World {
    env: TestEnv,
    lanes: Vec<String>,
}

impl World {
    fn new() -> Self {
        let env = new_env();
        env.repo("repo", PROJECT);
        env.kickoff("The answer is wrong", &[CHECK]);
        Self::around(env)
    }

    /// A world whose `repo` and kickoff are ready.
    fn around(env: TestEnv) -> Self {
        Self {
            env,
            lanes: Vec::new(),
        }
    }

    fn repo(&self) -> Repo<'_> {
        Repo::at(&self.env, &self.env.root().join("repo"))
    }

    /// Adds a lane called `name` that asks `server`, with the key `key_name` in the vault; says
    /// whether the program that it needs is there. `more` is added to it.
    fn add(&mut self, name: &str, kind: Kind, server: &ModelServer, more: &str) -> bool {
        if let Some(program) = kind.program {
            let link = self.env.bin().join(program);
            if !link.exists() {
                let Some(cli) = agent_cli(program) else {
                    return false;
                };
                symlink(cli, link).unwrap();
            }
        }
        let key_name = format!("{KEY}_{}", name.to_uppercase());
        self.env
            .mini_ork(["vault", "set", &key_name])
            .stdin(server.key())
            .run()
            .expect(0);
        self.forget_input();
        self.lanes.push(format!(
            "  {name}: {{{}, model: {}, base_url: \"{}\", api_key_env: {key_name}{more}}}\n",
            kind.yaml,
            kind.model,
            server.base_url(kind.dialect),
        ));
        let text = format!("providers:\n{}", self.lanes.concat());
        self.config("providers.yaml", &text);
        true
    }

    /// What programs of the test read is in files of its world; a key must not stay there.
    fn forget_input(&self) {
        for entry in fs_err::read_dir(self.env.root().join("io")).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "stdin")
            {
                fs_err::remove_file(path).unwrap();
            }
        }
    }

    /// Lets `lanes` play all roles, such as `first` or `[first, second]`.
    fn play(&self, lanes: &str) {
        self.config("agents.yaml", &format!("lanes:\n  default: {lanes}\n"));
    }

    fn config(&self, name: &str, text: &str) {
        let directory = self.env.home().join("config");
        fs_err::create_dir_all(&directory).unwrap();
        fs_err::write(directory.join(name), text).unwrap();
    }

    /// `mini-ork ARGUMENTS` that trusts the certificate of `server`.
    fn mini_ork<'a>(&'a self, server: &ModelServer, arguments: &[&str]) -> Call<'a> {
        self.env
            .mini_ork(arguments)
            .env("SSL_CERT_FILE", server.ca_file())
            .env("RUST_BACKTRACE", "full")
            .env("RUST_LOG", "trace")
    }

    fn run(&self, server: &ModelServer, recipe: &str) -> Call<'_> {
        self.mini_ork(server, &["run", recipe, "--json", "--repo"])
            .arg(self.repo().path())
            .arg(self.env.root().join("kickoff.md"))
    }

    /// The tokens of all calls on record.
    fn recorded(&self) -> Tokens {
        let database = rusqlite::Connection::open(self.env.home().join("state.db")).unwrap();
        let sum = |column: &str| -> u64 {
            let query = format!("SELECT coalesce(sum({column}), 0) FROM costs");
            database.query_row(&query, [], |row| row.get(0)).unwrap()
        };
        Tokens::new(sum("input_tokens"), sum("output_tokens"))
            .cached(sum("cache_read_tokens"), sum("cache_write_tokens"))
    }

    /// Neither what was printed nor anything in the world holds the key of `server`.
    #[track_caller]
    fn assert_clean(&self, server: &ModelServer, output: &Output) {
        let shown = format!("{}{}", output.text(), output.errors());
        assert!(!shown.contains(server.key()), "{shown}");
        assert_no_secret(server.key(), &[self.env.root()]);
    }
}

/// A world whose one lane is of `kind`; none when its program is missing.
fn world(kind: Kind, server: &ModelServer) -> Option<World> {
    let mut world = World::new();
    world.add("only", kind, server, "").then(|| {
        world.play("only");
        world
    })
}

/// Planners plan, judges approve, and the implementer has the conversation `work`.
fn code_fix(work: impl IntoIterator<Item = Turn>) -> Script {
    let work: Vec<Turn> = work.into_iter().collect();
    Script::each(move |request| {
        by_role(request).unwrap_or_else(|| {
            work.get(request.answers())
                .cloned()
                .unwrap_or_else(|| Turn::text("There is nothing left to do."))
        })
    })
}

/// What planners and judges of the bundled recipe `code-fix` are answered; none for who does the
/// work.
fn by_role(request: &ModelRequest) -> Option<Turn> {
    if request.contains("You plan a fix") {
        return Some(Turn::text("The file `answer` has to hold 42."));
    }
    let judges = ["You review a change", "You give a second opinion"];
    judges
        .iter()
        .any(|words| request.contains(words))
        .then(|| Turn::text(APPROVE))
}

/// The implementer's work on [`PROJECT`].
fn right_answer() -> Vec<Turn> {
    vec![
        Turn::run("echo 42 > answer").saying("The answer is 41 and has to be 42."),
        Turn::text("The answer is 42 now."),
    ]
}
