use mini_ork_node::model::FailureClass;
use serde_json::Value;

/// What kind of failure a status and the text of a vendor are.
pub(super) fn class(status: Option<u64>, text: &str) -> Option<FailureClass> {
    let text = text.to_ascii_lowercase();
    let speaks_of = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if speaks_of(&[
        "insufficient_quota",
        "exceeded your current quota",
        "credit balance",
    ]) {
        return Some(FailureClass::Quota);
    }
    Some(match status? {
        401 | 403 => FailureClass::Auth,
        402 => FailureClass::Quota,
        429 | 503 | 529 => FailureClass::Capacity,
        408 => FailureClass::Network,
        400..=499 => FailureClass::Request,
        500..=599 => FailureClass::Server,
        _ => return None,
    })
}

/// The sentence in an error that is JSON, else the text itself.
pub(super) fn sentence_of(text: &str) -> String {
    let value: Option<Value> = serde_json::from_str(text).ok();
    let message = value.as_ref().and_then(|value| {
        let error = value.get("error").unwrap_or(value);
        error.get("message")?.as_str()
    });
    message.unwrap_or(text).to_owned()
}
