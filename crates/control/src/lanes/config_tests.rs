use std::collections::BTreeMap;
use std::path::PathBuf;

use super::config::{BUILT_IN, LaneConfig, LaneError, ResolveError};
use super::model::{Agent, Lane};

struct World {
    _temporary: tempfile::TempDir,
    home: PathBuf,
    repository: PathBuf,
}

impl World {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let (home, repository) = (temporary.path().join("h"), temporary.path().join("r"));
        for directory in [home.join("config"), repository.join(".mini-ork/config")] {
            fs_err::create_dir_all(directory).unwrap();
        }
        Self {
            _temporary: temporary,
            home,
            repository,
        }
    }

    fn home(self, file: &str, text: &str) -> Self {
        fs_err::write(self.home.join("config").join(file), text).unwrap();
        self
    }

    fn repository(self, file: &str, text: &str) -> Self {
        fs_err::write(self.repository.join(".mini-ork/config").join(file), text).unwrap();
        self
    }

    fn load(&self) -> Result<LaneConfig, LaneError> {
        LaneConfig::load(&self.home, Some(&self.repository))
    }

    fn mistakes(&self) -> Vec<String> {
        let error = self.load().unwrap_err().to_string();
        let prefixes = [(&self.home, "H"), (&self.repository, "R")];
        let short = prefixes.iter().fold(error, |text, (path, name)| {
            text.replace(&path.display().to_string(), name)
        });
        short.lines().map(str::to_owned).collect()
    }
}

fn lane_of(config: &LaneConfig, node: &str, role: &str, overrides: &[(&str, &str)]) -> String {
    let overrides: BTreeMap<String, String> = overrides
        .iter()
        .map(|(key, lane)| ((*key).to_owned(), (*lane).to_owned()))
        .collect();
    match config.resolve(node, role, &overrides) {
        Ok(lanes) => {
            let names: Vec<&str> = lanes.iter().map(|lane| lane.name.as_str()).collect();
            names.join(",")
        }
        Err(error) => error.to_string(),
    }
}

/// The names of the lanes that files describe.
fn described(config: &LaneConfig) -> Vec<&str> {
    let names = config.lanes().map(|lane| lane.name.as_str());
    names
        .filter(|name| config.lane_file(name) != Some(BUILT_IN))
        .collect()
}

fn lane<'config>(config: &'config LaneConfig, name: &str) -> &'config Lane {
    config.resolve("n", name, &BTreeMap::new()).unwrap()[0]
}

const FAKE: &str = "{kind: executable, command: [true]}";

#[test]
fn lanes_of_both_places_are_merged_key_by_key() {
    let world = World::new()
        .home(
            "providers.yaml",
            &format!("providers:\n  one: {FAKE}\n  two: {FAKE}\n"),
        )
        .home("agents.yaml", "lanes: {worker: one, judge: two}\n")
        .repository(
            "providers.yaml",
            "providers:\n  two: {kind: scripted, file: s/x.yaml}\n",
        )
        .repository("agents.yaml", "lanes: {judge: one}\n");
    let config = world.load().unwrap();
    assert_eq!(described(&config), ["one", "two"]);
    assert_eq!(lane_of(&config, "n", "worker", &[]), "one");
    assert_eq!(lane_of(&config, "n", "judge", &[]), "one");
    let file = world.repository.join(".mini-ork/s/x.yaml");
    assert_eq!(lane(&config, "two").agent, Agent::Scripted { file });
}

#[test]
fn without_a_file_there_are_lanes_that_nobody_plays_with_unasked() {
    let world = World::new();
    let config = world.load().unwrap();
    assert_eq!(
        lane_of(&config, "n", "worker", &[]),
        "no lane plays the role `worker` of the node `n` (add `worker: LANE` to `lanes` of `config/agents.yaml`; lanes: `anthropic`, `claude`, `codex`, `openai`, `opencode`)"
    );
    assert_eq!(config.roles().count(), 0);
    assert_eq!(lane_of(&config, "n", "worker", &[("n", "codex")]), "codex");
    let nowhere = LaneConfig::load(&world.home.join("x"), None).unwrap();
    assert_eq!(described(&nowhere), [""; 0]);
    let alone = World::new().home("agents.yaml", "lanes: {default: claude}\n");
    assert_eq!(
        lane_of(&alone.load().unwrap(), "n", "worker", &[]),
        "claude"
    );
}

#[test]
fn a_described_lane_takes_the_place_of_a_built_in_one() {
    let world = World::new()
        .home("providers.yaml", &format!("providers: {{codex: {FAKE}}}\n"))
        .load()
        .unwrap();
    assert_eq!(described(&world), ["codex"]);
    assert_eq!(lane(&world, "codex").agent.kind(), "executable");
    assert_eq!(lane(&world, "claude").agent.kind(), "claude-code");
}

#[test]
fn a_role_has_one_lane_or_several_that_stand_in() {
    let world = World::new()
        .home(
            "providers.yaml",
            &format!("providers: {{one: {FAKE}, two: {FAKE}, three: {FAKE}}}\n"),
        )
        .home(
            "agents.yaml",
            "lanes:\n  worker: [one, two]\n  judge: three\n  default: [two]\n",
        );
    let config = world.load().unwrap();
    let lanes = |role, overrides: &[(&str, &str)]| lane_of(&config, "n", role, overrides);
    assert_eq!(lanes("worker", &[]), "one,two");
    assert_eq!(lanes("other", &[]), "two");
    assert_eq!(lanes("worker", &[("n", "three, one")]), "three,one");
    assert_eq!(lanes("worker", &[("n", "judge,worker")]), "three,one,two");
    assert_eq!(
        lanes("worker", &[("n", "two,worker")]),
        "the lane `two` is there twice for `n`"
    );
    assert_eq!(
        lanes("worker", &[("worker", "one,")]),
        "there is no lane ``, which was asked for as `worker` (known: `anthropic`, `claude`, `codex`, `one`, `openai`, `opencode`, `three`, `two`)"
    );
    let many: Vec<String> = (0..9).map(|number| format!("l{number}")).collect();
    let entries: Vec<String> = many.iter().map(|name| format!("{name}: {FAKE}")).collect();
    let world = World::new().home(
        "providers.yaml",
        &format!("providers: {{{}}}\n", entries.join(", ")),
    );
    let config = world.load().unwrap();
    assert_eq!(
        lane_of(&config, "n", "x", &[("x", &many.join(","))]),
        "there are more than 8 lanes for `x`"
    );
    assert_eq!(
        lane_of(&config, "n", "x", &[("x", &many[1..].join(","))]),
        many[1..].join(",")
    );
    let lines = world
        .home(
            "agents.yaml",
            &format!(
                "lanes:\n  a: [l1, l1]\n  b: []\n  c: [{}]\n  d: [l1, zz]\n  e: [l1, 5]\n",
                many.join(", ")
            ),
        )
        .mistakes();
    let expected = [
        "H/config/agents.yaml:2  lanes.a[1]: is there already",
        "H/config/agents.yaml:3  lanes.b: is not a list of one to eight lanes",
        "H/config/agents.yaml:4  lanes.c: is not a list of one to eight lanes",
        "H/config/agents.yaml:5  lanes.d: names the lane `zz`, which no `providers.yaml` has",
        "H/config/agents.yaml:6  lanes.e[1]: is the number `5`, not a text",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\nexpected {expected}");
    }
}

#[test]
fn a_lane_is_found_in_the_documented_order() {
    let world = World::new()
        .home(
            "providers.yaml",
            &format!("providers: {{one: {FAKE}, two: {FAKE}, three: {FAKE}, worker: {FAKE}}}\n"),
        )
        .home("agents.yaml", "lanes: {worker: one, default: three}\n");
    let config = world.load().unwrap();
    let lane = |node, role, overrides: &[(&str, &str)]| lane_of(&config, node, role, overrides);
    assert_eq!(
        lane("n", "worker", &[("n", "two"), ("worker", "three")]),
        "two"
    );
    assert_eq!(lane("n", "worker", &[("worker", "three")]), "three");
    assert_eq!(lane("n", "worker", &[("other", "two")]), "one");
    assert_eq!(lane("n", "two", &[]), "two");
    assert_eq!(lane("n", "judge", &[]), "three");
    assert_eq!(lane("n", "judge", &[("n", "worker")]), "one");
    assert_eq!(
        lane("n", "judge", &[("n", "thre")]),
        "there is no lane `thre`, which was asked for as `n` (did you mean `three`?)"
    );
    let without = World::new().home("providers.yaml", &format!("providers: {{one: {FAKE}}}\n"));
    let error = without
        .load()
        .unwrap()
        .resolve("n", "judge", &BTreeMap::new())
        .unwrap_err();
    assert!(matches!(error, ResolveError::NoLane { .. }));
}

#[test]
fn commands_are_exact_and_scripts_lie_beside_config() {
    let world = World::new().home(
        "providers.yaml",
        "providers:\n  a: {kind: executable, command: [/bin/agent, --level, 3, ''], extra_env: {PORT: 80, DEBUG: true, NAME: 'x y'}}\n  b: {kind: executable, script: bin/agent.sh}\n  c: {kind: executable, script: /opt/agent.sh}\n",
    );
    let config = world.load().unwrap();
    let argv = |name: &str| match &lane(&config, name).agent {
        Agent::Executable { argv } => argv.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(argv("a"), ["/bin/agent", "--level", "3", ""]);
    let script = world.home.join("bin/agent.sh").display().to_string();
    assert_eq!(
        argv("b"),
        [script.as_str(), "--print", "--output-format", "text"]
    );
    assert_eq!(argv("c")[0], "/opt/agent.sh");
    let env: Vec<(&str, &str)> = lane(&config, "a")
        .extra_env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(env, [("DEBUG", "true"), ("NAME", "x y"), ("PORT", "80")]);
}

#[test]
fn mistakes_of_all_files_are_shown_with_their_lines() {
    let world = World::new()
        .home("providers.yaml", "providers:\n  a: {kind: codex}\n  b: {kind: exectable}\n  c: {kind: executable}\n  d: {kind: executable, command: [x], script: y}\n  e: {kind: executable, command: []}\n  f: {kind: executable, command: [./x]}\n  g: {kind: scripted}\n  'h h': {kind: scripted, file: x}\n  i: {kind: scripted, file: x, model: y}\n  j: {command: [x]}\n")
        .home("agents.yaml", "lanes:\n  one: a\n  two: zz\n  three: 5\nlane: x\n")
        .repository("providers.yaml", "providers:\n  k:\n    kind: executable\n    command: [x]\n    extra_env:\n      MY_API_KEY: abc\n      token: abc\n      DB_PASSWORD_FILE: x\n      MO_RUN_MARKER: x\n      'a b': x\n      OK: [x]\n");
    let lines = world.mistakes();
    let expected = [
        "H/config/agents.yaml:3  lanes.two: names the lane `zz`, which no `providers.yaml` has",
        "H/config/agents.yaml:4  lanes.three: is the number `5`, not a text",
        "H/config/agents.yaml:5  lane: is not a known key (did you mean `lanes`?)",
        "H/config/providers.yaml:2  providers.a.model: is missing",
        "H/config/providers.yaml:3  providers.b.kind: is `exectable`, which is not known (did you mean `executable`?)",
        "H/config/providers.yaml:4  providers.c: has neither `command` nor `script`",
        "H/config/providers.yaml:5  providers.d.script: stands beside `command`",
        "H/config/providers.yaml:6  providers.e.command: names no program",
        "H/config/providers.yaml:7  providers.f.command: begins with the relative path `./x`",
        "H/config/providers.yaml:8  providers.g.file: is missing",
        "H/config/providers.yaml:9  providers.`h h`: is not the name of a lane or role",
        "H/config/providers.yaml:10  providers.i.model: is not a known key",
        "H/config/providers.yaml:11  providers.j.kind: is missing",
        "R/.mini-ork/config/providers.yaml:6  providers.k.extra_env.MY_API_KEY: looks like a secret",
        "R/.mini-ork/config/providers.yaml:7  providers.k.extra_env.token: looks like a secret",
        "R/.mini-ork/config/providers.yaml:8  providers.k.extra_env.DB_PASSWORD_FILE: looks like a secret",
        "R/.mini-ork/config/providers.yaml:9  providers.k.extra_env.MO_RUN_MARKER: is a variable that mini-ork sets itself",
        "R/.mini-ork/config/providers.yaml:10  providers.k.extra_env.`a b`: is not the name of a variable",
        "R/.mini-ork/config/providers.yaml:11  providers.k.extra_env.OK: is a list, not a text",
    ];
    assert_eq!(lines.len(), expected.len(), "{lines:#?}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line}\nexpected {expected}");
    }
    assert!(!lines.join("\n").contains("abc"), "a secret was shown");
}

#[test]
fn a_config_that_links_out_of_the_repository_is_not_read() {
    let world = World::new().home("providers.yaml", "providers: {}\n");
    let link = world.repository.join(".mini-ork/config/providers.yaml");
    fs_err::os::unix::fs::symlink(world.home.join("config/providers.yaml"), link).unwrap();
    let error = world.load().unwrap_err();
    assert!(matches!(error, LaneError::Read(_)), "{error:?}");
}
