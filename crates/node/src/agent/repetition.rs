//! A model that goes in circles.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::conversation::{ToolCall, ToolResult};

/// Longest circle that is noticed, in turns.
const LONGEST_CIRCLE: usize = 4;
/// After this many times round the model is told.
const TOLD_AFTER: usize = 3;
/// After this many times round it is ended.
const ENDED_AFTER: usize = 6;

/// What the last turns were, by their calls and results.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<u64>);

/// What to do about a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Fine,
    /// It has just gone round for the third time.
    Tell,
    End,
}

impl History {
    /// Takes note of a turn.
    pub(super) fn add(&mut self, calls: &[ToolCall], results: &[ToolResult]) -> Verdict {
        let mut hasher = DefaultHasher::new();
        for call in calls {
            call.name.hash(&mut hasher);
            serde_json::Value::from(call.input.clone())
                .to_string()
                .hash(&mut hasher);
            call.mistake.hash(&mut hasher);
        }
        for result in results {
            result.content.hash(&mut hasher);
            result.is_error.hash(&mut hasher);
        }
        self.add_hash(hasher.finish())
    }

    fn add_hash(&mut self, hash: u64) -> Verdict {
        self.0.push_back(hash);
        if self.0.len() > LONGEST_CIRCLE * ENDED_AFTER {
            self.0.pop_front();
        }
        let verdict = (1..=LONGEST_CIRCLE).map(|length| {
            let steps = self.steps_in_circle(length);
            if steps >= length * ENDED_AFTER {
                Verdict::End
            } else if steps == length * TOLD_AFTER {
                Verdict::Tell
            } else {
                Verdict::Fine
            }
        });
        verdict
            .max_by_key(|verdict| *verdict as u8)
            .unwrap_or(Verdict::Fine)
    }

    /// How many of the last turns are part of a circle of this length.
    fn steps_in_circle(&self, length: usize) -> usize {
        let turns = &self.0;
        let repeated = (length..turns.len())
            .rev()
            .take_while(|at| turns[*at] == turns[*at - length])
            .count();
        if repeated == 0 { 0 } else { repeated + length }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(turns: &str) -> String {
        let mut history = History::default();
        let verdicts = turns
            .bytes()
            .map(|turn| match history.add_hash(turn.into()) {
                Verdict::Fine => '.',
                Verdict::Tell => 't',
                Verdict::End => 'E',
            });
        verdicts.collect()
    }

    #[test]
    fn circles_are_told_once_and_then_ended() {
        assert_eq!(verdicts("abcdefgh"), "........");
        assert_eq!(verdicts("aabaabbc"), "........");
        assert_eq!(verdicts("xaaaaaaa"), "...t..EE");
        assert_eq!(verdicts("ababababababab"), ".....t.....EEE");
        assert_eq!(
            verdicts("abcdabcdabcdabcdabcdabcd"),
            "...........t...........E"
        );
        // Work that goes on is none: the same test between different changes.
        assert_eq!(verdicts("tatbtctdtetf"), "............");
    }
}
