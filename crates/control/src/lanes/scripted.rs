use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_node::replay::Step;

use super::config::lane_name;
use crate::yaml::{Document, Mistakes, Value};

const LONGEST_SLEEP_MS: i64 = 24 * 60 * 60 * 1000;
const MOST_DOLLARS: f64 = 1_000_000.0;

/// What a scripted lane does: its steps in the order of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    steps: Vec<ScriptedStep>,
}

/// A step, and when it is done.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ScriptedStep {
    /// Only for the node of this name.
    pub node: Option<String>,
    /// Only for a node of this role or kind.
    pub role: Option<String>,
    /// Only in this round of the retry loop, from 1.
    pub round: Option<u32>,
    /// What is done.
    pub step: Step,
    /// What the step is said to have cost, in US dollars.
    pub cost_usd: f64,
}

/// When a scripted lane is called.
#[derive(Debug, Clone, Copy)]
pub struct Occasion<'o> {
    /// Name of the node.
    pub node: &'o str,
    /// Its role.
    pub role: &'o str,
    /// Its kind, as in `workflow.yaml`.
    pub kind: &'o str,
    /// Round of the retry loop, from 1.
    pub round: u32,
}

/// Why a scripted lane has nothing to do.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The script could not be read.
    #[error("cannot read the script `{}`", path.display())]
    Read {
        /// The script.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The script has mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
    /// No step suits the occasion.
    #[error(
        "no step of `{}` suits the node `{node}` (role `{role}`, type `{kind}`) in round {round}",
        path.display()
    )]
    NoStep {
        /// The script.
        path: PathBuf,
        /// Name of the node.
        node: String,
        /// Its role.
        role: String,
        /// Its kind.
        kind: String,
        /// Round of the retry loop.
        round: u32,
    },
}

impl Script {
    /// The step of the script in `file` that suits the occasion.
    pub fn step(file: &Path, occasion: Occasion<'_>) -> Result<ScriptedStep, ScriptError> {
        let bytes = fs_err::read(file).map_err(|source| ScriptError::Read {
            path: file.to_owned(),
            source,
        })?;
        let script = Self::parse(&file.display().to_string(), &bytes)?;
        let found = script.select(occasion).cloned();
        found.ok_or_else(|| ScriptError::NoStep {
            path: file.to_owned(),
            node: occasion.node.to_owned(),
            role: occasion.role.to_owned(),
            kind: occasion.kind.to_owned(),
            round: occasion.round,
        })
    }

    /// Reads a script file; `file` is its name in mistakes.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Mistakes> {
        let document = Document::parse(file, bytes)?;
        let root = document.root();
        root.required("version")
            .and_then(|value| value.integer(1, 1));
        let list = root
            .required("steps")
            .map(|value| value.list())
            .unwrap_or_default();
        let steps = list.iter().filter_map(step).collect();
        root.finish();
        document.check()?;
        Ok(Self { steps })
    }

    /// The first step that suits the occasion.
    pub fn select(&self, occasion: Occasion<'_>) -> Option<&ScriptedStep> {
        self.steps.iter().find(|step| {
            step.node
                .as_deref()
                .is_none_or(|node| node == occasion.node)
                && step
                    .role
                    .as_deref()
                    .is_none_or(|role| role == occasion.role || role == occasion.kind)
                && step.round.is_none_or(|round| round == occasion.round)
        })
    }
}

fn step(item: &Value<'_>) -> Option<ScriptedStep> {
    let map = item.map()?;
    let small = |key, most| {
        map.optional(key)
            .and_then(|value| value.integer(i64::from(key == "round"), most))
            .and_then(|number| u32::try_from(number).ok())
    };
    let text = |key| {
        map.optional(key)
            .and_then(|value| value.string())
            .unwrap_or_default()
    };
    let sleep_ms = map
        .optional("sleep_ms")
        .and_then(|value| value.integer(0, LONGEST_SLEEP_MS));
    let run = map.optional("run").and_then(|value| {
        let argv: Vec<String> = value.list().iter().filter_map(Value::text).collect();
        if argv.is_empty() {
            value.mistake("names no program", "write `[program, argument, …]`");
        }
        Some(argv).filter(|argv| !argv.is_empty())
    });
    let step = ScriptedStep {
        node: map.optional("node").and_then(|value| value.filled_string()),
        role: map.optional("role").and_then(|value| lane_name(&value)),
        round: small("round", 1000),
        step: Step {
            sleep: Duration::from_millis(
                sleep_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0),
            ),
            delete: map
                .optional("delete")
                .map(|value| paths(&value))
                .unwrap_or_default(),
            write: map
                .optional("write")
                .map(|value| contents(&value))
                .unwrap_or_default(),
            append: map
                .optional("append")
                .map(|value| contents(&value))
                .unwrap_or_default(),
            run,
            stdout: text("stdout"),
            stderr: text("stderr"),
            exit: small("exit", 255).and_then(|code| u8::try_from(code).ok()),
        },
        cost_usd: map
            .optional("cost_usd")
            .and_then(|value| value.not_negative(MOST_DOLLARS))
            .unwrap_or(0.0),
    };
    map.finish();
    Some(step)
}

fn paths(value: &Value<'_>) -> Vec<String> {
    let items = value.list();
    items
        .iter()
        .filter_map(|item| item.filled_string().filter(|path| check_path(path, item)))
        .collect()
}

fn contents(value: &Value<'_>) -> BTreeMap<String, String> {
    let Some(map) = value.map() else {
        return BTreeMap::new();
    };
    map.entries()
        .filter(|(path, value)| check_path(path, value))
        .filter_map(|(path, value)| Some((path.to_owned(), value.string()?)))
        .collect()
}

fn check_path(path: &str, place: &Value<'_>) -> bool {
    let stays = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if !stays {
        place.mistake(
            &format!("`{path}` is not a path below the workspace"),
            "write a relative path without `.` and `..`",
        );
    }
    stays
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script, Mistakes> {
        Script::parse("s.yaml", text.as_bytes())
    }

    #[test]
    fn the_first_step_that_suits_is_taken() {
        let script = parse(
            "version: 1\nsteps:\n\
             - {node: a, round: 2, stdout: second}\n\
             - {node: a, stdout: first}\n\
             - {role: reviewer, stdout: judged}\n\
             - {role: worker, stdout: worked}\n",
        )
        .unwrap();
        let select = |node, role, kind, round| {
            script
                .select(Occasion {
                    node,
                    role,
                    kind,
                    round,
                })
                .map(|found| found.step.stdout.as_str())
        };
        assert_eq!(select("a", "worker", "implementer", 1), Some("first"));
        assert_eq!(select("a", "worker", "implementer", 2), Some("second"));
        assert_eq!(select("b", "worker", "implementer", 2), Some("worked"));
        assert_eq!(select("b", "judge", "reviewer", 1), Some("judged"));
        assert_eq!(select("b", "judge", "eval", 1), None);
    }

    #[test]
    fn every_key_of_a_step_is_read() {
        let script = parse(
            "version: 1\nsteps:\n- sleep_ms: 5\n  write: {a/b.txt: \"x\"}\n  append: {c: ''}\n  \
             delete: [d]\n  run: [sh, -c, 1]\n  stderr: e\n  exit: 3\n  cost_usd: 0.5\n",
        )
        .unwrap();
        let step = script
            .select(Occasion {
                node: "n",
                role: "r",
                kind: "k",
                round: 1,
            })
            .unwrap();
        let one = |path: &str, text: &str| BTreeMap::from([(path.to_owned(), text.to_owned())]);
        let expected = ScriptedStep {
            step: Step {
                sleep: Duration::from_millis(5),
                write: one("a/b.txt", "x"),
                append: one("c", ""),
                delete: vec!["d".to_owned()],
                run: Some(vec!["sh".to_owned(), "-c".to_owned(), "1".to_owned()]),
                stderr: "e".to_owned(),
                exit: Some(3),
                ..Step::default()
            },
            cost_usd: 0.5,
            ..ScriptedStep::default()
        };
        assert_eq!(*step, expected);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let error = parse(
            "version: 2\nsteps:\n- exit: 256\n- exit: -1\n- write: {/etc/x: a}\n- write: {a/../b: a}\n\
             - delete: [\"\"]\n- delete: [a//b]\n- stdot: x\n- round: 0\n- cost_usd: .nan\n- run: []\n\
             - sleep_ms: 1.5\n- append: {a: 1}\n",
        )
        .unwrap_err()
        .to_string();
        let lines: Vec<&str> = error.lines().collect();
        let expected = [
            "s.yaml:1  version: is 2",
            "s.yaml:3  steps[0].exit: is 256",
            "s.yaml:4  steps[1].exit: is -1",
            "s.yaml:5  steps[2].write.`/etc/x`: `/etc/x` is not a path below",
            "s.yaml:6  steps[3].write.`a/../b`: `a/../b` is not",
            "s.yaml:7  steps[4].delete[0]: is blank",
            "s.yaml:8  steps[5].delete[0]: `a//b` is not",
            "s.yaml:9  steps[6].stdot: is not a known key (did you mean `stdout`?)",
            "s.yaml:10  steps[7].round: is 0",
            "s.yaml:11  steps[8].cost_usd: is the number `.nan`, which is out of range",
            "s.yaml:12  steps[9].run: names no program",
            "s.yaml:13  steps[10].sleep_ms: is the number `1.5`, not a whole number",
            "s.yaml:14  steps[11].append.a: is the number `1`, not a text",
        ];
        assert_eq!(lines.len(), expected.len(), "{error}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.starts_with(expected), "{line}");
        }
    }
}
