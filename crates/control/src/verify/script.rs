use mini_ork_protocol::ExitOutcome;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::json;

/// What a verifier script concluded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptAnswer {
    /// Whether the work passes.
    pub pass: bool,
    /// The script said that it passes and gave no evidence, which is why it does not.
    pub vacuous: bool,
    /// One line for a report.
    pub summary: String,
    /// What the script gave as evidence.
    pub evidence: Vec<String>,
}

/// Why a verifier script concluded nothing. It is never a pass.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// It was stopped or never ran.
    #[error("the verifier gave no answer: it {ended}")]
    NotEnded {
        /// How it ended, such as `ran out of time`.
        ended: String,
    },
    /// It ended well without an answer.
    #[error(
        "the verifier printed nothing, expected a last line like {{\"pass\": true, \"evidence\": \"…\"}}"
    )]
    Empty,
    /// Its last line is something else.
    #[error("the verifier's last line is no answer like {{\"pass\": true, \"evidence\": \"…\"}}")]
    Malformed {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// `pass` is missing or no boolean.
    #[error("the verifier's answer has no `pass` that is true or false")]
    NoPass,
}

/// Reads the answer of a verifier script: its last line that is not blank, a JSON object with
/// `pass` and `evidence`.
///
/// It passes only with `pass: true`, evidence that says something, and exit code 0. A script that
/// ends with another exit code and without an answer has failed the work, as `set -e` makes it.
pub fn read_script(outcome: &ExitOutcome, stdout: &[u8]) -> Result<ScriptAnswer, ScriptError> {
    let code = match outcome {
        ExitOutcome::Exited { code } => *code,
        other => {
            return Err(ScriptError::NotEnded {
                ended: how_it_ended(other),
            });
        }
    };
    let answer = answer(stdout);
    let (pass, evidence) = match answer {
        Ok(answer) => answer,
        Err(_) if code != 0 => {
            return Ok(ScriptAnswer {
                pass: false,
                vacuous: false,
                summary: format!("the verifier ended with exit code {code} and without an answer"),
                evidence: Vec::new(),
            });
        }
        Err(error) => return Err(error),
    };
    let vacuous = pass && evidence.is_empty();
    let summary = match (pass, code, vacuous) {
        (true, 0, false) => evidence
            .first()
            .map_or("", |text| first_line(text))
            .to_owned(),
        (true, 0, true) => "the verifier says that it passes and gives no evidence".to_owned(),
        (true, ..) => format!("the verifier says that it passes and ended with exit code {code}"),
        (false, ..) => match evidence.first() {
            Some(text) => first_line(text).to_owned(),
            None => "the verifier says that it does not pass".to_owned(),
        },
    };
    Ok(ScriptAnswer {
        pass: pass && code == 0 && !vacuous,
        vacuous,
        summary,
        evidence,
    })
}

/// How a program ended that did not come to its own end.
pub(super) fn how_it_ended(outcome: &ExitOutcome) -> String {
    match outcome {
        ExitOutcome::Exited { code } => format!("ended with exit code {code}"),
        ExitOutcome::Signaled { signal } => format!("was killed by signal {signal}"),
        ExitOutcome::TimedOut => "ran out of time".to_owned(),
        ExitOutcome::Stopped => "was stopped".to_owned(),
        ExitOutcome::OutputLimit => "took too much of the disk".to_owned(),
        ExitOutcome::SpawnFailed { message } => format!("could not be started ({message})"),
    }
}

fn answer(stdout: &[u8]) -> Result<(bool, Vec<String>), ScriptError> {
    let lines = stdout.split(|&byte| byte == b'\n');
    let last = lines.map(<[u8]>::trim_ascii).rfind(|line| !line.is_empty());
    let last = last.ok_or(ScriptError::Empty)?;
    let object = json::object(last).map_err(|source| ScriptError::Malformed { source })?;
    let pass = object
        .get("pass")
        .and_then(Value::as_bool)
        .ok_or(ScriptError::NoPass)?;
    let evidence = object.get("evidence").map(json::texts).unwrap_or_default();
    let says_something = |text: &String| !matches!(text.trim(), "true" | "false" | "{}");
    Ok((pass, evidence.into_iter().filter(says_something).collect()))
}

fn first_line(text: &str) -> &str {
    text.trim().lines().next().unwrap_or("").trim_end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(code: i32, stdout: &str) -> Result<ScriptAnswer, ScriptError> {
        read_script(&ExitOutcome::Exited { code }, stdout.as_bytes())
    }

    #[test]
    fn an_answer_passes_only_with_evidence_and_exit_code_0() {
        let passes = r#"{"pass": true, "evidence": "3 links checked\nall resolve"}"#;
        let vacuous = "the verifier says that it passes and gives no evidence";
        let table = [
            (0, passes.to_owned(), true, "3 links checked"),
            (0, format!("log\n{passes}\n\n"), true, "3 links checked"),
            (
                0,
                r#"{"pass":true,"evidence":["",{"n":1}]}"#.to_owned(),
                true,
                r#"{"n":1}"#,
            ),
            (
                1,
                passes.to_owned(),
                false,
                "the verifier says that it passes and ended with exit code 1",
            ),
            (0, r#"{"pass":true}"#.to_owned(), false, vacuous),
            (
                0,
                r#"{"pass":true,"evidence":" \n"}"#.to_owned(),
                false,
                vacuous,
            ),
            (
                0,
                r#"{"pass":true,"evidence":null}"#.to_owned(),
                false,
                vacuous,
            ),
            (
                0,
                r#"{"pass":true,"evidence":[[]," "]}"#.to_owned(),
                false,
                vacuous,
            ),
            (
                0,
                r#"{"pass":true,"evidence":{}}"#.to_owned(),
                false,
                vacuous,
            ),
            (
                0,
                r#"{"pass":true,"evidence":true}"#.to_owned(),
                false,
                vacuous,
            ),
            (
                0,
                r#"{"pass":false,"evidence":"a.md: dead link"}"#.to_owned(),
                false,
                "a.md: dead link",
            ),
            (
                1,
                r#"{"pass":false}"#.to_owned(),
                false,
                "the verifier says that it does not pass",
            ),
            (
                2,
                "boom\n".to_owned(),
                false,
                "the verifier ended with exit code 2 and without an answer",
            ),
            (
                127,
                String::new(),
                false,
                "the verifier ended with exit code 127 and without an answer",
            ),
        ];
        for (code, stdout, pass, summary) in table {
            let answer = read(code, &stdout).unwrap();
            assert_eq!(
                (answer.pass, answer.summary.as_str()),
                (pass, summary),
                "{stdout}"
            );
            assert_eq!(answer.vacuous, summary == vacuous, "{stdout}");
        }
    }

    #[test]
    fn no_answer_is_an_error_that_says_what_is_missing() {
        assert!(matches!(read(0, " \n"), Err(ScriptError::Empty)));
        assert!(matches!(
            read(0, "{\"pass\": true}\ndone"),
            Err(ScriptError::Malformed { .. })
        ));
        assert!(matches!(
            read(0, r#"{"pass":false,"pass":true,"evidence":"x"}"#),
            Err(ScriptError::Malformed { .. })
        ));
        assert!(matches!(
            read(0, r#"{"pass":"true","evidence":"x"}"#),
            Err(ScriptError::NoPass)
        ));
        let passes = br#"{"pass": true, "evidence": "x"}"#;
        let spawn = ExitOutcome::SpawnFailed {
            message: "no such file".to_owned(),
        };
        for (outcome, expected) in [
            (
                ExitOutcome::TimedOut,
                "the verifier gave no answer: it ran out of time",
            ),
            (
                ExitOutcome::Stopped,
                "the verifier gave no answer: it was stopped",
            ),
            (
                ExitOutcome::OutputLimit,
                "the verifier gave no answer: it took too much of the disk",
            ),
            (
                ExitOutcome::Signaled { signal: 9 },
                "the verifier gave no answer: it was killed by signal 9",
            ),
            (
                spawn,
                "the verifier gave no answer: it could not be started (no such file)",
            ),
        ] {
            assert_eq!(
                read_script(&outcome, passes).unwrap_err().to_string(),
                expected
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_pass(bytes: Vec<u8>, code in 0..3_i32) {
            let answer = read_script(&ExitOutcome::Exited { code }, &bytes);
            prop_assert!(!answer.is_ok_and(|answer| answer.pass));
        }
    }
}
