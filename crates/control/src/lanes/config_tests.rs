use std::collections::BTreeMap;
use std::path::PathBuf;

use super::config::{Agent, LaneConfig, LaneError, ResolveError};

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
        Ok(lane) => lane.name.clone(),
        Err(error) => error.to_string(),
    }
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
    let names: Vec<&str> = config.lanes().map(|lane| lane.name.as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!(lane_of(&config, "n", "worker", &[]), "one");
    assert_eq!(lane_of(&config, "n", "judge", &[]), "one");
    let two = config.resolve("n", "two", &BTreeMap::new()).unwrap();
    let file = world.repository.join(".mini-ork/s/x.yaml");
    assert_eq!(two.agent, Agent::Scripted { file });
}

#[test]
fn no_file_at_all_is_fine_until_a_lane_is_wanted() {
    let world = World::new();
    let config = world.load().unwrap();
    assert_eq!(
        lane_of(&config, "n", "worker", &[]),
        "no lane plays the role `worker` of the node `n` (describe a lane in `config/providers.yaml`)"
    );
    let nowhere = LaneConfig::load(&world.home.join("x"), None).unwrap();
    assert_eq!(nowhere.lanes().count(), 0);
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
    assert!(
        error
            .to_string()
            .ends_with("(add `judge: LANE` to `lanes` of `config/agents.yaml`; lanes: `one`)"),
        "{error}"
    );
}

#[test]
fn commands_are_exact_and_scripts_lie_beside_config() {
    let world = World::new().home(
        "providers.yaml",
        "providers:\n  a: {kind: executable, command: [/bin/agent, --level, 3, ''], extra_env: {PORT: 80, DEBUG: true, NAME: 'x y'}}\n  b: {kind: executable, script: bin/agent.sh}\n  c: {kind: executable, script: /opt/agent.sh}\n",
    );
    let config = world.load().unwrap();
    let argv = |name: &str| match &config.resolve("n", name, &BTreeMap::new()).unwrap().agent {
        Agent::Executable { argv } => argv.clone(),
        Agent::Scripted { .. } => Vec::new(),
    };
    assert_eq!(argv("a"), ["/bin/agent", "--level", "3", ""]);
    let script = world.home.join("bin/agent.sh").display().to_string();
    assert_eq!(
        argv("b"),
        [script.as_str(), "--print", "--output-format", "text"]
    );
    assert_eq!(argv("c")[0], "/opt/agent.sh");
    let lane = config.resolve("n", "a", &BTreeMap::new()).unwrap();
    let env: Vec<(&str, &str)> = lane
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
        "H/config/providers.yaml:2  providers.a.kind: is `codex`, which is not available in this version",
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
fn every_later_kind_says_that_it_is_not_available() {
    for kind in [
        "anthropic-native",
        "anthropic-compat",
        "openai-compat",
        "openai-chat",
        "uhp",
        "codex-native",
        "opencode-native",
        "claude-code",
        "codex",
        "opencode",
        "anthropic",
        "openai",
    ] {
        let text = format!("providers:\n  x: {{kind: {kind}, model: m, base_url: u}}\n");
        let lines = World::new().home("providers.yaml", &text).mistakes();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("not available in this version"),
            "{lines:?}"
        );
    }
}

#[test]
fn a_config_that_links_out_of_the_repository_is_not_read() {
    let world = World::new().home("providers.yaml", "providers: {}\n");
    let link = world.repository.join(".mini-ork/config/providers.yaml");
    fs_err::os::unix::fs::symlink(world.home.join("config/providers.yaml"), link).unwrap();
    let error = world.load().unwrap_err();
    assert!(matches!(error, LaneError::Read { .. }), "{error:?}");
}
