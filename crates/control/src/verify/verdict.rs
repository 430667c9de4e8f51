use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::json;

/// Only this much of the end of an output is searched for the answer.
const SEARCHED: usize = 1 << 20;
/// Longest piece of an output that is quoted in an error.
const QUOTED: usize = 80;

/// What a reviewer decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The work is accepted.
    Approve,
    /// The work goes back with the findings.
    RequestChanges,
    /// The work is refused.
    Reject,
}

/// The answer of a reviewer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// The decision.
    pub verdict: Verdict,
    /// What the reviewer says about the whole; may be empty.
    pub summary: String,
    /// Single findings; one that is not plain text is given as JSON.
    pub findings: Vec<String>,
}

/// Why an output is not the answer of a reviewer. It is never a pass.
#[derive(Debug, thiserror::Error)]
pub enum VerdictError {
    /// The reviewer wrote nothing.
    #[error("the reviewer wrote nothing")]
    Empty,
    /// What stands at the end is something else.
    #[error("the reviewer's output does not end with a JSON object but with `{found}`")]
    NoObject {
        /// The last line that is not blank, shortened.
        found: String,
    },
    /// An object that contradicts itself or is broken.
    #[error("the JSON object at the end of the reviewer's output is not well formed")]
    Malformed {
        /// Where and why.
        #[source]
        source: serde_json::Error,
    },
    /// The object has another shape.
    #[error("in the reviewer's answer `{key}` is {found}, expected {expected}")]
    Value {
        /// Key of the object.
        key: &'static str,
        /// What is there, shortened.
        found: String,
        /// What should be.
        expected: &'static str,
    },
    /// Two answers follow each other and disagree.
    #[error("the reviewer's output ends with two verdicts, {first:?} and {last:?}")]
    Contradiction {
        /// The one before.
        first: Verdict,
        /// The one at the end.
        last: Verdict,
    },
}

/// Reads the answer at the end of a reviewer's output: a JSON object with the key `verdict`.
///
/// It begins on a line of its own and is the last thing written, as it is or as a fenced block.
/// What stands further up is never taken for the answer: it may be quoted from the work.
pub fn read_review(output: &[u8]) -> Result<Review, VerdictError> {
    let text = &output[output.len().saturating_sub(SEARCHED)..];
    let end = text.trim_ascii_end();
    if end.trim_ascii_start().is_empty() {
        return Err(VerdictError::Empty);
    }
    let (object, before) = last_object(end)?;
    let review = review(&object)?;
    if let Ok((object, _)) = last_object(before.trim_ascii_end())
        && let Some(first) = object.get("verdict").and_then(verdict)
        && first != review.verdict
    {
        return Err(VerdictError::Contradiction {
            first,
            last: review.verdict,
        });
    }
    Ok(review)
}

/// The object that `text` ends with, and the text in front of it.
fn last_object(text: &[u8]) -> Result<(Map<String, Value>, &[u8]), VerdictError> {
    let starts = line_starts(text);
    let last_line = starts.last().map_or(text, |&start| &text[start..]);
    if last_line.trim_ascii() == b"```" {
        let fences = starts.iter().rev().skip(1);
        let opening = fences
            .copied()
            .find(|&start| text[start..].trim_ascii_start().starts_with(b"```"));
        let Some(opening) = opening else {
            return Err(no_object(last_line));
        };
        let block = &text[opening..text.len() - last_line.len()];
        let line_end = block
            .iter()
            .position(|&byte| byte == b'\n')
            .unwrap_or(block.len());
        let (info, content) = block.split_at(line_end);
        if !matches!(info.trim_ascii(), b"```" | b"```json" | b"```JSON") {
            return Err(no_object(info));
        }
        let object = json::object(content).map_err(|source| VerdictError::Malformed { source })?;
        return Ok((object, &text[..opening]));
    }
    if !text.ends_with(b"}") {
        return Err(no_object(last_line));
    }
    // From the end upwards the first line where an object begins that reaches to the end: one that
    // begins inside of another ends before it, so there is no second candidate.
    let mut nearest = None;
    for &start in starts.iter().rev() {
        if !text[start..].trim_ascii_start().starts_with(b"{") {
            continue;
        }
        match json::object(&text[start..]) {
            Ok(object) => return Ok((object, &text[..start])),
            Err(source) => {
                // A whole object with a key that occurs twice is the answer, and it is broken.
                if serde_json::from_slice::<Map<String, Value>>(&text[start..]).is_ok() {
                    return Err(VerdictError::Malformed { source });
                }
                nearest.get_or_insert(source);
            }
        }
    }
    match nearest {
        Some(source) => Err(VerdictError::Malformed { source }),
        None => Err(no_object(last_line)),
    }
}

fn line_starts(text: &[u8]) -> Vec<usize> {
    let breaks = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    std::iter::once(0)
        .chain(breaks.map(|(position, _)| position + 1))
        .collect()
}

fn review(object: &Map<String, Value>) -> Result<Review, VerdictError> {
    const VERDICTS: &str = "\"approve\", \"request_changes\" or \"reject\"";
    let found = object.get("verdict");
    let verdict = found
        .and_then(verdict)
        .ok_or_else(|| wrong("verdict", found, VERDICTS))?;
    let summary = match object.get("summary") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(summary)) => summary.clone(),
        other => return Err(wrong("summary", other, "a text")),
    };
    let findings = match object.get("findings") {
        None => Vec::new(),
        Some(value @ (Value::Null | Value::String(_) | Value::Array(_))) => json::texts(value),
        other => return Err(wrong("findings", other, "a list")),
    };
    Ok(Review {
        verdict,
        summary,
        findings,
    })
}

fn verdict(value: &Value) -> Option<Verdict> {
    Some(match value.as_str()?.to_ascii_lowercase().as_str() {
        "pass" | "approve" | "approved" => Verdict::Approve,
        "revise" | "needs_revision" | "request_changes" => Verdict::RequestChanges,
        "fail" | "reject" | "rejected" => Verdict::Reject,
        _ => return None,
    })
}

fn wrong(key: &'static str, found: Option<&Value>, expected: &'static str) -> VerdictError {
    let found = found.map_or("missing".to_owned(), |value| {
        quote(value.to_string().as_bytes())
    });
    VerdictError::Value {
        key,
        found,
        expected,
    }
}

fn no_object(found: &[u8]) -> VerdictError {
    VerdictError::NoObject {
        found: quote(found),
    }
}

fn quote(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes.trim_ascii());
    let printable = text.chars().filter(|character| !character.is_control());
    let quoted: String = printable.clone().take(QUOTED).collect();
    if printable.count() > QUOTED {
        quoted + "…"
    } else {
        quoted
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use proptest::prelude::*;

    use super::*;

    fn verdict_of(output: &str) -> Result<Verdict, String> {
        read_review(output.as_bytes())
            .map(|review| review.verdict)
            .map_err(|error| {
                let source = error
                    .source()
                    .map(|source| format!(": {source}"))
                    .unwrap_or_default();
                format!("{error}{source}")
            })
    }

    #[test]
    fn every_spelling_has_one_meaning() {
        for (words, expected) in [
            (["pass", "approve", "APPROVED"], Verdict::Approve),
            (
                ["revise", "needs_revision", "request_changes"],
                Verdict::RequestChanges,
            ),
            (["fail", "reject", "rejected"], Verdict::Reject),
        ] {
            for word in words {
                assert_eq!(
                    verdict_of(&format!("{{\"verdict\": \"{word}\"}}\n")),
                    Ok(expected)
                );
            }
        }
    }

    #[test]
    fn an_answer_is_the_last_thing_written() {
        let accepted = [
            "{\"verdict\":\"approve\"}",
            "Looks fine.\n\n  {\"verdict\":\"approve\"}  \n\n",
            "Fine {so far}.\n{\n  \"verdict\": \"approve\",\n  \"findings\": [\n    {\n      \"a\": 1\n    }\n  ]\n}\n",
            "Prose.\n```json\n{\"verdict\":\"approve\"}\n```\n",
            "```\n{\"verdict\":\"approve\"}\n```",
            "{\"verdict\":\"reject\"}\nOn second thought:\n{\"verdict\":\"approve\"}",
            "{\"verdict\":\"approve\"}\n{\"verdict\":\"pass\"}",
        ];
        for output in accepted {
            assert_eq!(verdict_of(output), Ok(Verdict::Approve), "{output}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_was_found() {
        let table = [
            ("", "the reviewer wrote nothing"),
            (" \n\t", "the reviewer wrote nothing"),
            (
                "I approve.",
                "the reviewer's output does not end with a JSON object but with `I approve.`",
            ),
            (
                "{\"verdict\":\"approve\"}\nThanks!",
                "the reviewer's output does not end with a JSON object but with `Thanks!`",
            ),
            (
                "My answer: {\"verdict\":\"approve\"}",
                "the reviewer's output does not end with a JSON object but with `My answer: {\"verdict\":\"approve\"}`",
            ),
            (
                "```json\n{\"verdict\":\"approve\"}\n```\nDone.",
                "the reviewer's output does not end with a JSON object but with `Done.`",
            ),
            (
                "```diff\n{\"verdict\":\"approve\"}\n```",
                "the reviewer's output does not end with a JSON object but with ````diff`",
            ),
            (
                "```",
                "the reviewer's output does not end with a JSON object but with `````",
            ),
            (
                "{\"verdict\":\"maybe\"}",
                "in the reviewer's answer `verdict` is \"maybe\", expected \"approve\", \"request_changes\" or \"reject\"",
            ),
            (
                "{\"verdict\":true}",
                "in the reviewer's answer `verdict` is true, expected \"approve\", \"request_changes\" or \"reject\"",
            ),
            (
                "{\"result\":\"approve\"}",
                "in the reviewer's answer `verdict` is missing, expected \"approve\", \"request_changes\" or \"reject\"",
            ),
            (
                "{\"verdict\":\"approve\",\"summary\":1}",
                "in the reviewer's answer `summary` is 1, expected a text",
            ),
            (
                "{\"verdict\":\"approve\",\"findings\":{}}",
                "in the reviewer's answer `findings` is {}, expected a list",
            ),
            (
                "{\"verdict\":\"reject\"}\n{\"verdict\":\"approve\"}",
                "the reviewer's output ends with two verdicts, Reject and Approve",
            ),
            (
                "```json\n{\"verdict\":\"fail\"}\n```\n\n```json\n{\"verdict\":\"pass\"}\n```",
                "the reviewer's output ends with two verdicts, Reject and Approve",
            ),
            (
                "{\"verdict\":\"reject\",\"verdict\":\"approve\"}",
                "the JSON object at the end of the reviewer's output is not well formed: the key `verdict` occurs twice at line 1 column 29",
            ),
            (
                "[{\"verdict\":\"approve\"}]",
                "the reviewer's output does not end with a JSON object but with `[{\"verdict\":\"approve\"}]`",
            ),
            (
                "[\n{\"verdict\":\"approve\"}\n]",
                "the reviewer's output does not end with a JSON object but with `]`",
            ),
        ];
        for (output, expected) in table {
            assert_eq!(verdict_of(output), Err(expected.to_owned()), "{output}");
        }
        assert!(verdict_of("{\"verdict\":\"approve\"").is_err());
        assert!(
            verdict_of("{'verdict':'approve'}")
                .unwrap_err()
                .contains("not well formed: ")
        );
    }

    #[test]
    fn findings_are_texts() {
        let output =
            r#"{"verdict":"revise","summary":"No test","findings":["a", {"file":"x"}, " "]}"#;
        let review = read_review(output.as_bytes()).unwrap();
        assert_eq!(review.summary, "No test");
        assert_eq!(review.findings, ["a", r#"{"file":"x"}"#]);
    }

    #[test]
    fn a_long_output_is_searched_at_its_end_in_bounded_time() {
        let mut output = "{\"a\":\n".repeat(400_000);
        output.push_str("{\"verdict\":\"approve\"}");
        assert_eq!(verdict_of(&output), Ok(Verdict::Approve));
        assert!(verdict_of(&("{\n".repeat(500_000) + "}")).is_err());
    }

    /// Whether some line of `output` begins an object that says so and nothing follows it.
    fn approves(output: &str) -> bool {
        let body = output.trim_ascii_end();
        let body = body.strip_suffix("```").unwrap_or(body).trim_ascii_end();
        let lines = std::iter::once(0).chain(body.match_indices('\n').map(|(at, _)| at + 1));
        lines.into_iter().any(|start| {
            let value: Result<Value, _> = serde_json::from_str(&body[start..]);
            let word = value
                .ok()
                .and_then(|value| Some(value.get("verdict")?.as_str()?.to_lowercase()));
            word.is_some_and(|word| ["pass", "approve", "approved"].contains(&word.as_str()))
        })
    }

    proptest! {
        #[test]
        fn no_bytes_approve(bytes: Vec<u8>) {
            let approved = read_review(&bytes).is_ok_and(|review| review.verdict == Verdict::Approve);
            prop_assert!(!approved || approves(&String::from_utf8_lossy(&bytes)));
        }

        #[test]
        fn only_a_whole_object_at_the_end_approves(
            output in "(\\{|\\}|\"verdict\"|:|\"approve\"|\"reject\"|,|\n|```|json| |x|\\{\"verdict\":\"approve\"\\}|\\[|\\]){0,14}"
        ) {
            let approved =
                read_review(output.as_bytes()).is_ok_and(|review| review.verdict == Verdict::Approve);
            prop_assert!(!approved || approves(&output), "{output}");
        }
    }
}
