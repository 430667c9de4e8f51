use serde_json::Value;

use super::dialect::Dialect;
use super::tools::Offered;

/// What the messages of a request are to a script.
#[derive(Debug, Clone, Default)]
pub(super) struct Conversation {
    /// Answers of the model.
    pub(super) answers: usize,
    /// Results of tools since the last of them.
    pub(super) results: Vec<String>,
}

impl Conversation {
    pub(super) fn read(dialect: Dialect, body: &Value) -> Self {
        let mut conversation = Self::default();
        let mut within_answer = false;
        for item in items(dialect, body) {
            let of_model = is_of_model(dialect, item);
            if of_model && !within_answer {
                conversation.answers += 1;
                conversation.results.clear();
            }
            within_answer = of_model;
            conversation.results.extend(results(dialect, item));
        }
        conversation
    }
}

/// The messages, or what takes their place.
pub(super) fn items(dialect: Dialect, body: &Value) -> &[Value] {
    let list = match dialect {
        Dialect::Messages | Dialect::Chat => &body["messages"],
        Dialect::Responses => &body["input"],
    };
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The blocks of a message; none when it is plain text.
pub(super) fn blocks(message: &Value) -> &[Value] {
    message["content"].as_array().map_or(&[], Vec::as_slice)
}

fn is_of_model(dialect: Dialect, item: &Value) -> bool {
    match dialect {
        Dialect::Messages | Dialect::Chat => item["role"] == "assistant",
        Dialect::Responses => {
            item["role"] == "assistant"
                || matches!(
                    item["type"].as_str(),
                    Some("function_call" | "custom_tool_call" | "reasoning")
                )
        }
    }
}

fn results(dialect: Dialect, item: &Value) -> Vec<String> {
    match dialect {
        Dialect::Messages => blocks(item)
            .iter()
            .filter(|block| block["type"] == "tool_result")
            .map(|block| text(&block["content"]))
            .collect(),
        Dialect::Chat => (item["role"] == "tool")
            .then(|| text(&item["content"]))
            .into_iter()
            .collect(),
        Dialect::Responses => {
            let kind = item["type"].as_str();
            matches!(
                kind,
                Some("function_call_output" | "custom_tool_call_output")
            )
            .then(|| text(&item["output"]))
            .into_iter()
            .collect()
        }
    }
}

/// Text, or the text of all blocks.
fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => blocks
            .iter()
            .filter_map(|block| block["text"].as_str())
            .collect(),
        other => other.to_string(),
    }
}

/// The tools that a request offers.
pub(super) fn offered(dialect: Dialect, body: &Value) -> Vec<Offered> {
    let tools = body["tools"].as_array().map_or(&[][..], Vec::as_slice);
    tools
        .iter()
        .filter_map(|tool| match dialect {
            Dialect::Messages => function(&tool["name"], &tool["input_schema"]),
            Dialect::Chat => function(&tool["function"]["name"], &tool["function"]["parameters"]),
            Dialect::Responses => match tool["type"].as_str() {
                Some("custom") => Some(Offered {
                    name: tool["name"].as_str()?.to_owned(),
                    arguments: Vec::new(),
                    free: true,
                }),
                _ => function(&tool["name"], &tool["parameters"]),
            },
        })
        .collect()
}

fn function(name: &Value, schema: &Value) -> Option<Offered> {
    let properties = schema["properties"].as_object();
    Some(Offered {
        name: name.as_str()?.to_owned(),
        arguments: properties
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default(),
        free: false,
    })
}
