//! SIGKILL of the control plane at every step of a run, and what `recover` makes of it: always one
//! end, one commit, and each node's program run once.

use std::time::{Duration, Instant};

use mini_ork_control::run::{FAULT_POINTS, RunEvent};
use mini_ork_control::store::StoreReader;
use mini_ork_testkit::{Lane, Repo, TestEnv, full};

use crate::support::{CHECK, PROJECT, REPORT, agent, journal, lines_of, new_env, only_row, text};

/// A run of which it is known what it does when nobody disturbs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// `code-fix`; the first attempt is right.
    Straight,
    /// `code-fix`; the first attempt is wrong, the second is right.
    Retried,
    /// `code-fix`; no attempt is right.
    Refused,
    /// `parallel-fix` with three writers that do not meet.
    Parallel,
    /// `research-synthesis`: nothing is written but a report.
    Report,
}

/// Where the control plane is killed: during the run, and perhaps once more during recovery.
type Kill = (Scenario, &'static str, Option<&'static str>);

use Scenario::{Parallel, Refused, Report, Retried, Straight};

const OPENING: &[Kill] = &[
    (Straight, "run-recorded", None),
    (Straight, "opened", None),
    (Straight, "opened", Some("worktree-ready")),
    (Straight, "run-recorded", Some("opened")),
    (Parallel, "opened", Some("worktree-ready")),
    (Report, "opened", None),
];
const BEFORE_THE_PROGRAM: &[Kill] = &[
    (Straight, "worktree-ready:1", None),
    (Straight, "worktree-ready:2", Some("worktree-ready:1")),
    (Straight, "prompt-written:2", None),
    (Straight, "node-started:1", None),
    (Straight, "node-started:2", Some("node-started:2")),
];
const WITH_THE_PROGRAM: &[Kill] = &[
    (Straight, "process-started:2", None),
    (Straight, "process-started:3", Some("process-started:1")),
    (Straight, "process-ended:1", None),
    (Straight, "process-ended:2", Some("process-ended:1")),
    (Straight, "process-ended:4", None),
];
const AFTER_THE_PROGRAM: &[Kill] = &[
    (Straight, "snapshot-taken:2", None),
    (Straight, "snapshot-taken:2", Some("snapshot-taken:1")),
    (Straight, "node-ended:1", None),
    (Straight, "node-ended:4", Some("node-ended:1")),
    (Straight, "node-ended:6", None),
];
const PUBLISHING: &[Kill] = &[
    (Straight, "commit-made", None),
    (Straight, "commit-made", Some("commit-made")),
    (Straight, "branch-made", Some("branch-made")),
    (Straight, "branch-made", Some("published")),
    (Straight, "published", None),
    (Straight, "report-written", Some("report-written")),
];
const ROUNDS: &[Kill] = &[
    (Retried, "round-started", None),
    (Retried, "round-started", Some("snapshot-taken")),
    (Retried, "snapshot-taken:3", None),
    (Retried, "process-started:6", None),
    (Retried, "branch-made", None),
];
const REFUSALS: &[Kill] = &[
    (Refused, "round-started:2", None),
    (Refused, "work-kept", None),
    (Refused, "work-kept", Some("work-kept")),
    (Refused, "report-written", None),
];
const PARALLEL: &[Kill] = &[
    (Parallel, "worktree-ready:3", None),
    (Parallel, "process-started:3", Some("process-ended:2")),
    (Parallel, "snapshot-taken:3", Some("snapshot-taken:2")),
    (Parallel, "node-ended:3", None),
    (Parallel, "published", None),
];
const REPORTS: &[Kill] = &[
    (Report, "prompt-written:3", None),
    (Report, "process-started:2", Some("process-started:2")),
    (Report, "node-ended:5", None),
    (Report, "published", Some("report-written")),
];

const GROUPS: &[&[Kill]] = &[
    OPENING,
    BEFORE_THE_PROGRAM,
    WITH_THE_PROGRAM,
    AFTER_THE_PROGRAM,
    PUBLISHING,
    ROUNDS,
    REFUSALS,
    PARALLEL,
    REPORTS,
];

impl Scenario {
    fn recipe(self) -> &'static str {
        match self {
            Self::Straight | Self::Retried | Self::Refused => "code-fix",
            Self::Parallel => "parallel-fix",
            Self::Report => "research-synthesis",
        }
    }

    fn work(self) -> &'static str {
        match self {
            Self::Straight => "echo 42 > answer",
            Self::Retried => {
                "if [ $MO_NODE_ROUND = 1 ]; then echo 43 > answer; else echo 42 > answer; fi"
            }
            Self::Refused => "echo $MO_NODE_ROUND > answer",
            Self::Parallel => {
                "case $MO_NODE_ID in implementer_a) echo 42 > answer ;; \
                 *) echo x > $MO_NODE_ID ;; esac"
            }
            Self::Report => "",
        }
    }

    fn publishes(self) -> bool {
        self != Self::Refused
    }

    /// A world that is ready for the run.
    pub(crate) fn prepare(self) -> TestEnv {
        let env = new_env();
        env.repo("repo", PROJECT);
        let effects = env.root().join("effects");
        let note = |what: &str| format!("echo \"{what}\" >> '{}'", effects.display());
        let check = format!("{}; {CHECK}", note("check"));
        env.kickoff("The answer is wrong", &[&check]);
        let lane = format!(
            "{}\n\
             if [ $MO_NODE_ID = synthesizer ]; then\n\
             cp '{}' $MO_OUTPUT_DIR/report.md\n\
             fi\n{}",
            note("$MO_NODE_ID $MO_NODE_ROUND.$MO_NODE_ATTEMPT"),
            env.write("report.md", REPORT).display(),
            agent(self.work()),
        );
        env.lanes(&[("default", Lane::Shell(&lane))]);
        env
    }

    pub(crate) fn start(self, env: &TestEnv) -> mini_ork_testkit::Call<'_> {
        env.mini_ork([
            "run",
            self.recipe(),
            "--json",
            "--repo",
            "repo",
            "kickoff.md",
        ])
    }
}

/// What is left of a run that a kill must not change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Traces {
    pub(crate) status: String,
    pub(crate) tree: String,
    pub(crate) commits: String,
    kept: usize,
    /// Which programs ran, sorted: nodes that run beside each other have no order.
    effects: Vec<String>,
}

pub(crate) fn traces(env: &TestEnv) -> Traces {
    let repo = Repo::at(env, &env.root().join("repo"));
    let row = only_row(env);
    let closed = journal(env, &row.run)
        .iter()
        .filter(|event| matches!(event, RunEvent::Closed(_)))
        .count();
    assert_eq!(closed, 1, "one terminal status");
    let branches = repo.refs("refs/heads/mini-ork");
    let (tree, commits) = match branches.as_slice() {
        [] => (String::new(), String::new()),
        [branch] => (
            repo.git(["rev-parse", &format!("{branch}^{{tree}}")]),
            repo.git(["rev-list", "--count", &format!("HEAD..{branch}")]),
        ),
        _ => panic!("several branches: {branches:?}"),
    };
    let mut effects = lines_of(&env.root().join("effects"));
    effects.sort();
    Traces {
        status: row.status.unwrap().to_string(),
        tree,
        commits,
        kept: repo.refs("refs/mo").len(),
        effects,
    }
}

/// What the run of `scenario` leaves when nobody disturbs it.
fn undisturbed(scenario: Scenario) -> Traces {
    let env = scenario.prepare();
    scenario
        .start(&env)
        .run()
        .expect(i32::from(!scenario.publishes()));
    let traces = traces(&env);
    assert_eq!(
        traces.tree.is_empty(),
        scenario == Refused || scenario == Report
    );
    traces
}

/// What `status` and `runs` say of the world's run; both must say the same.
fn shown_status(env: &TestEnv) -> String {
    let status = status(env);
    let listed = env.mini_ork(["runs", "--json"]).run().expect(0).json();
    assert_eq!(listed["runs"].as_array().unwrap().len(), 1);
    assert_eq!(listed["runs"][0]["status"], status.as_str());
    status
}

pub(crate) fn status(env: &TestEnv) -> String {
    let view = env.mini_ork(["status", "--json"]).run().expect(0).json();
    text(&view, "status").to_owned()
}

/// Asserts that the world's run has no end, and that it is told so.
pub(crate) fn assert_interrupted(env: &TestEnv) {
    let row = only_row(env);
    assert!(row.status.is_none(), "{row:?}");
    assert_eq!(shown_status(env), "interrupted");
    let shown = env.mini_ork(["status"]).run().expect(0);
    assert!(
        shown
            .text()
            .contains(&format!("mini-ork recover {}", row.run)),
        "{}",
        shown.transcript()
    );
}

fn assert_all_recover(kills: &[Kill]) {
    let mut expected: Vec<(Scenario, Traces)> = Vec::new();
    for &(scenario, during_run, during_recovery) in kills {
        if !expected.iter().any(|(known, _)| *known == scenario) {
            expected.push((scenario, undisturbed(scenario)));
        }
        let env = scenario.prepare();
        scenario
            .start(&env)
            .env("MO_FAULT", during_run)
            .run()
            .expect_killed();
        assert_interrupted(&env);
        if let Some(point) = during_recovery {
            env.mini_ork(["recover", "--json"])
                .env("MO_FAULT", point)
                .run()
                .expect_killed();
            assert_interrupted(&env);
        }
        let view = env
            .mini_ork(["recover", "--json"])
            .run()
            .expect(i32::from(!scenario.publishes()))
            .json();
        let found = traces(&env);
        let (_, expected) = expected
            .iter()
            .find(|(known, _)| *known == scenario)
            .unwrap();
        assert_eq!(
            &found, expected,
            "{scenario:?} killed at {during_run}, then at {during_recovery:?}: {view:#}"
        );
        env.assert_no_process();
        assert_eq!(shown_status(&env), expected.status);
        if scenario.publishes() {
            let directory = env.run_directory(&only_row(&env).run);
            assert!(!directory.join("worktree").exists(), "no worktree is left");
            assert!(directory.join("report.md").is_file());
        }
    }
}

#[test]
fn every_point_is_killed_at() {
    let kills: Vec<&Kill> = GROUPS.iter().copied().flatten().collect();
    assert!(kills.len() >= 30, "{}", kills.len());
    let named = |point: &str| {
        // These have tests of their own below.
        ["directory-made", "plan-written", "closed"].contains(&point)
            || kills
                .iter()
                .any(|(_, at, _)| at.split(':').next() == Some(point))
    };
    let missing: Vec<_> = FAULT_POINTS.iter().filter(|point| !named(point)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn killed_while_opening() {
    assert_all_recover(OPENING);
}

#[test]
fn killed_before_the_program_of_a_node() {
    assert_all_recover(BEFORE_THE_PROGRAM);
}

#[test]
fn killed_while_the_program_of_a_node_runs() {
    assert_all_recover(WITH_THE_PROGRAM);
}

#[test]
fn killed_after_the_program_of_a_node() {
    assert_all_recover(AFTER_THE_PROGRAM);
}

#[test]
fn killed_while_publishing() {
    assert_all_recover(PUBLISHING);
}

#[test]
fn killed_between_rounds() {
    assert_all_recover(ROUNDS);
}

#[test]
fn killed_while_refusing() {
    assert_all_recover(REFUSALS);
}

#[test]
fn killed_with_several_writers() {
    assert_all_recover(PARALLEL);
}

#[test]
fn killed_in_a_recipe_that_changes_nothing() {
    assert_all_recover(REPORTS);
}

/// Before the run is on record nothing was done: there is nothing to recover, and nothing in the
/// way of a new run.
#[test]
fn killed_before_the_run_is_on_record() {
    for point in ["directory-made", "plan-written"] {
        let env = Straight.prepare();
        Straight
            .start(&env)
            .env("MO_FAULT", point)
            .run()
            .expect_killed();
        env.mini_ork(["recover"]).run().expect(2);
        assert_eq!(env.runs().len(), 1);
        Straight.start(&env).run().expect(0);
        assert_eq!(traces(&env).status, "published");
    }
}

/// After the terminal status everything is done: recovery says so and changes nothing.
#[test]
fn killed_after_the_end() {
    let expected = undisturbed(Straight);
    let env = Straight.prepare();
    Straight
        .start(&env)
        .env("MO_FAULT", "closed")
        .run()
        .expect_killed();
    assert_eq!(traces(&env), expected);
    let output = env.mini_ork(["recover"]).run().expect(1);
    assert!(
        output.errors().contains("nothing to recover"),
        "{}",
        output.transcript()
    );
    assert_eq!(traces(&env), expected);

    // A refused run is on record as well, and its work is kept.
    let expected = undisturbed(Refused);
    let env = Refused.prepare();
    Refused
        .start(&env)
        .env("MO_FAULT", "closed")
        .run()
        .expect_killed();
    assert_eq!(traces(&env), expected);
}

/// Kills at any time at all, again and again. Long, so only when asked for.
#[test]
fn full_killed_at_random_times() {
    if !full() {
        return;
    }
    let seed = u64::from(std::process::id());
    eprintln!("seed {seed}");
    let mut random = seed;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for scenario in [Straight, Retried, Refused, Parallel, Report] {
        let expected = undisturbed(scenario);
        for _ in 0..12 {
            let env = scenario.prepare();
            let mut call = scenario.start(&env);
            loop {
                let running = call.spawn();
                let until = Instant::now() + Duration::from_millis(next(900));
                let mut running = running;
                while Instant::now() < until && running.is_running() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let ended = !running.is_running();
                if !ended {
                    running.signal(rustix::process::Signal::KILL);
                }
                let output = running.wait();
                let ended = ended || output.signal().is_none();
                let recorded = StoreReader::open(&env.home())
                    .unwrap()
                    .is_some_and(|reader| !reader.runs().unwrap().is_empty());
                if ended && recorded && only_row(&env).status.is_some() {
                    break;
                }
                call = if recorded {
                    if only_row(&env).status.is_some() {
                        break;
                    }
                    env.mini_ork(["recover", "--json"])
                } else {
                    scenario.start(&env)
                };
            }
            assert_eq!(traces(&env), expected, "{scenario:?}, seed {seed}");
            env.assert_no_process();
        }
    }
}
