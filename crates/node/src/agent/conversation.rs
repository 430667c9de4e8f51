//! What was said, in a form that is none of the APIs'.

use serde_json::{Map, Value};

const LONGEST_NAME: usize = 64;
const LONGEST_ID: usize = 128;

/// One side's contribution.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Turn {
    /// What we say.
    User(String),
    /// What the model said.
    Assistant(Vec<Part>),
    /// What came of the calls of the turn before, each answered once and in their order, and what
    /// we say with it.
    Results(Vec<ToolResult>, Vec<String>),
}

/// A piece of what the model said.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    Text(String),
    Call(ToolCall),
    /// Something of the API's own, such as reasoning, that it wants to see again unchanged.
    Opaque(Value),
}

/// The model wants a tool to be used.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// Empty when the model wrote something else than an object.
    pub(super) input: Map<String, Value>,
    /// Why the arguments cannot be used.
    pub(super) mistake: Option<String>,
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ToolResult {
    /// The id of the call.
    pub(super) id: String,
    pub(super) content: String,
    pub(super) is_error: bool,
}

impl ToolCall {
    /// A call as the model wrote it. Nothing that a vendor refuses to read again stays in it: a
    /// name or an id of another form, or arguments that are no object.
    pub(super) fn new(id: &str, name: &str, arguments: &str) -> Self {
        let (input, mistake) = if arguments.trim().is_empty() {
            (Map::new(), None)
        } else {
            match serde_json::from_str::<Value>(arguments) {
                Ok(Value::Object(input)) => (input, None),
                Ok(_) => (Map::new(), Some("they are no JSON object".to_owned())),
                Err(error) => (Map::new(), Some(format!("they are no JSON: {error}"))),
            }
        };
        let mut name = plain(name, LONGEST_NAME);
        if name.is_empty() {
            name.push_str("unnamed");
        }
        let id = if plain(id, LONGEST_ID) == id {
            id.to_owned()
        } else {
            String::new()
        };
        Self {
            id,
            name,
            input,
            mistake,
        }
    }
}

fn plain(text: &str, longest: usize) -> String {
    let replace = |character: char| {
        if character.is_ascii_alphanumeric() || "_-".contains(character) {
            character
        } else {
            '_'
        }
    };
    text.chars().take(longest).map(replace).collect()
}

/// Gives a new id to each call that has none, or one that was there before: results are matched to
/// calls by it.
pub(super) fn make_ids_unique(turns: &[Turn], parts: &mut [Part]) {
    let earlier = turns.iter().filter_map(|turn| match turn {
        Turn::Assistant(parts) => Some(parts),
        _ => None,
    });
    let mut taken: std::collections::HashSet<String> = earlier
        .flatten()
        .filter_map(|part| match part {
            Part::Call(call) => Some(call.id.clone()),
            _ => None,
        })
        .collect();
    for part in parts {
        if let Part::Call(call) = part {
            let mut number = taken.len();
            while call.id.is_empty() || taken.contains(&call.id) {
                call.id = format!("call_mo_{number}");
                number += 1;
            }
            taken.insert(call.id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_vendor_would_refuse_to_read_again_is_replaced() {
        let call = ToolCall::new("a b", "ru n\"", "[1]");
        assert_eq!((call.id.as_str(), call.name.as_str()), ("", "ru_n_"));
        assert!(call.input.is_empty() && call.mistake.is_some());
        assert_eq!(ToolCall::new("", "", "").name, "unnamed");
        assert_eq!(ToolCall::new("", "x", " ").mistake, None);
        let deep = format!("{}{}", "{\"a\":".repeat(1000), "}".repeat(1000));
        assert!(ToolCall::new("", "x", &deep).mistake.is_some());
    }

    #[test]
    fn each_call_has_an_id_of_its_own() {
        let call = |id| Part::Call(ToolCall::new(id, "x", ""));
        let turns = [Turn::Assistant(vec![call("a"), call("call_mo_2")])];
        let mut parts = [call("a"), call(""), call("b"), call("b")];
        make_ids_unique(&turns, &mut parts);
        let ids = parts.iter().map(|part| match part {
            Part::Call(call) => call.id.as_str(),
            _ => panic!("{part:?}"),
        });
        let ids: Vec<_> = ids.collect();
        assert_eq!(ids, ["call_mo_3", "call_mo_4", "b", "call_mo_5"]);
    }
}
