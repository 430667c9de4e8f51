//! The conversation is kept under the model's window.

use serde_json::Value;

use super::conversation::{Part, Turn};
use super::excerpt::shorten;

/// Tokens for each byte until the vendor has counted some: more than any text that people read.
const FIRST_GUESS: f64 = 0.4;
/// What a vendor's count is believed to be at most and at least, in tokens for each byte.
const BELIEVED: (f64, f64) = (0.15, 1.0);
/// When it has to be shortened it is shortened to this part of the window, so that the vendor's
/// cache serves for some turns again.
const AIM: f64 = 0.6;
/// Turns at the end that are spared as long as that is possible: what the model works with.
const SPARED: usize = 4;
/// What long results are shortened to, and long arguments: first the old ones, then the last.
const SHORT: usize = 1000;
const SHORT_LAST: usize = 4000;
/// When nothing but a note about it is left.
const NOTHING: usize = 0;

/// How many tokens the conversation takes.
#[derive(Debug)]
pub(super) struct Window {
    tokens: u64,
    tokens_for_byte: f64,
}

/// A request that fits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fitted {
    pub(super) request: String,
    /// Whether something had to be left out.
    pub(super) shortened: bool,
}

impl Window {
    /// A window of `context_tokens` of which an answer may take `max_output_tokens`.
    pub(super) fn new(context_tokens: u64, max_output_tokens: u64) -> Self {
        let rest = context_tokens.saturating_sub(max_output_tokens);
        Self {
            // The guess may be wrong a little.
            tokens: rest - rest / 20,
            tokens_for_byte: FIRST_GUESS,
        }
    }

    /// Learns from the vendor how many tokens a request of `bytes` bytes had.
    pub(super) fn learn(&mut self, bytes: usize, tokens: u64) {
        if bytes > 0 && tokens > 0 {
            let (least, most) = BELIEVED;
            self.tokens_for_byte = (tokens as f64 / bytes as f64).clamp(least, most);
        }
    }

    /// The request as `render` writes it, after `turns` were shortened when it did not fit. Calls
    /// and their results stay in pairs, and nothing of the user's is touched. None when it is too
    /// long however it is shortened.
    pub(super) fn fit(
        &self,
        turns: &mut [Turn],
        render: impl Fn(&[Turn]) -> String,
    ) -> Option<Fitted> {
        let most = (self.tokens as f64 / self.tokens_for_byte) as usize;
        let mut request = render(turns);
        if request.len() <= most {
            return Some(Fitted {
                request,
                shortened: false,
            });
        }
        let aim = (most as f64 * AIM) as usize;
        let old = turns.len().saturating_sub(SPARED);
        let all = turns.len();
        for (count, longest) in [
            (old, SHORT),
            (old, NOTHING),
            (all, SHORT_LAST),
            (all, SHORT),
        ] {
            let mut left = request.len().saturating_sub(aim);
            for turn in &mut turns[..count] {
                if left == 0 {
                    break;
                }
                left = left.saturating_sub(shorten_turn(turn, longest));
            }
            request = render(turns);
            if request.len() <= aim {
                break;
            }
        }
        (request.len() <= most).then_some(Fitted {
            request,
            shortened: true,
        })
    }
}

/// Returns how many bytes less there are.
fn shorten_turn(turn: &mut Turn, longest: usize) -> usize {
    match turn {
        Turn::User(_) => 0,
        Turn::Results(results, _) => results
            .iter_mut()
            .map(|result| shorten_text(&mut result.content, longest))
            .sum(),
        Turn::Assistant(parts) => {
            let mut less = 0;
            parts.retain_mut(|part| match part {
                Part::Text(_) => true,
                Part::Call(call) => {
                    let values = call.input.values_mut();
                    less += values
                        .map(|value| shorten_value(value, longest))
                        .sum::<usize>();
                    true
                }
                // Reasoning in plain text is wanted back, in whatever words.
                Part::Opaque(Value::String(text)) => {
                    less += shorten_text(text, longest.max(SHORT));
                    true
                }
                // What is signed or encrypted is whole or not there.
                Part::Opaque(value) if longest == NOTHING => {
                    less += value.to_string().len();
                    false
                }
                Part::Opaque(_) => true,
            });
            less
        }
    }
}

/// Arguments can be long as well: the content of a file that was written.
fn shorten_value(value: &mut Value, longest: usize) -> usize {
    match value {
        Value::String(text) => shorten_text(text, longest),
        Value::Array(_) | Value::Object(_) => {
            let mut text = value.to_string();
            let less = shorten_text(&mut text, longest);
            if less > 0 {
                *value = text.into();
            }
            less
        }
        _ => 0,
    }
}

/// Does nothing when the note would be as long as what it is for.
fn shorten_text(text: &mut String, longest: usize) -> usize {
    let short = shorten(text, longest);
    let less = text.len().saturating_sub(short.len());
    if less > 0 {
        *text = short;
    }
    less
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
