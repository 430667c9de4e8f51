//! What kind of failure an answer is.

use std::time::{Duration, SystemTime};

use hyper::header::{self, HeaderMap};
use serde_json::Value;

use crate::model::FailureClass;

/// What an answer says about why there is none.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Complaint {
    /// Type, code and the like, in small letters.
    kinds: Vec<String>,
    message: Option<String>,
}

impl Complaint {
    /// Reads it from the body of an answer.
    pub(super) fn of_body(body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(value) => Self::of_value(&value),
            Err(_) => Self::default(),
        }
    }

    /// Reads it from an object that has an `error`, or is one.
    pub(super) fn of_value(value: &Value) -> Self {
        // Some vendors put the object into a list.
        let value = value.get(0).unwrap_or(value);
        let error = value.get("error").unwrap_or(value);
        let text = |key: &str| error.get(key).and_then(Value::as_str);
        let kinds = ["type", "code", "status"]
            .iter()
            .filter_map(|key| text(key))
            .map(|kind| kind.chars().take(100).collect::<String>().to_lowercase())
            .collect();
        let message = text("message")
            .or_else(|| error.as_str())
            .or_else(|| value.get("message").and_then(Value::as_str))
            .or_else(|| value.get("detail").and_then(Value::as_str))
            .map(str::to_owned);
        Self { kinds, message }
    }

    /// The vendor's sentence, if it gave one.
    pub(super) fn message(&self) -> Option<&str> {
        self.message.as_deref()
    }

    /// The class that the words alone tell.
    pub(super) fn class(&self) -> Option<FailureClass> {
        self.kinds.iter().find_map(|kind| class_of_kind(kind))
    }

    fn speaks_of_money(&self) -> bool {
        let message = self.message.as_deref().unwrap_or_default().to_lowercase();
        ["quota", "billing", "credit balance", "insufficient balance"]
            .iter()
            .any(|word| message.contains(word))
    }
}

/// The class of an answer that is not a success.
pub(super) fn class_of_status(status: u16, complaint: &Complaint) -> FailureClass {
    let said = complaint.class();
    match (status, said) {
        // What is refused for safety or for money is so with any status.
        (400..500, Some(class @ (FailureClass::Safety | FailureClass::Quota))) => class,
        (402, _) => FailureClass::Quota,
        (429, _) if complaint.speaks_of_money() => FailureClass::Quota,
        (400 | 403, _) if speaks_of_an_empty_account(complaint) => FailureClass::Quota,
        (401 | 403, _) => FailureClass::Auth,
        (408 | 425 | 429 | 503 | 529, _) => FailureClass::Capacity,
        // A gateway of the vendor may wrap one status into another.
        (500.., Some(FailureClass::Capacity)) => FailureClass::Capacity,
        (500.., _) => FailureClass::Server,
        (400..500, _) => FailureClass::Request,
        // Redirects are not followed: the key is for one host.
        (300..400, _) => FailureClass::Request,
        _ => FailureClass::Stream,
    }
}

fn speaks_of_an_empty_account(complaint: &Complaint) -> bool {
    let message = complaint
        .message
        .as_deref()
        .unwrap_or_default()
        .to_lowercase();
    message.contains("credit balance") || message.contains("insufficient balance")
}

fn class_of_kind(kind: &str) -> Option<FailureClass> {
    let has = |words: &[&str]| words.iter().any(|word| kind.contains(word));
    if has(&[
        "insufficient_quota",
        "billing",
        "quota_exceeded",
        "usage_not_included",
    ]) {
        Some(FailureClass::Quota)
    } else if has(&[
        "content_policy",
        "content_filter",
        "safety",
        "refusal",
        "moderation",
        "cyber_policy",
    ]) {
        Some(FailureClass::Safety)
    } else if has(&[
        "authentication",
        "permission",
        "invalid_api_key",
        "unauthorized",
    ]) {
        Some(FailureClass::Auth)
    } else if has(&[
        "overloaded",
        "rate_limit",
        "too_many_requests",
        "slow_down",
        "unavailable",
    ]) {
        Some(FailureClass::Capacity)
    } else if has(&["timeout", "api_error", "server_error", "internal"]) {
        Some(FailureClass::Server)
    } else if has(&[
        "invalid_request",
        "invalid_prompt",
        "not_found",
        "too_large",
        "context_length",
    ]) {
        Some(FailureClass::Request)
    } else {
        None
    }
}

/// What the vendor asks for before the next try.
pub(super) fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(milliseconds) = text("retry-after-ms").and_then(|text| text.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(milliseconds / 1000.0).ok();
    }
    let text = text(header::RETRY_AFTER.as_str())?.trim();
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statuses_and_words_make_the_class() {
        use FailureClass::{Auth, Capacity, Quota, Request, Safety, Server, Stream};
        for (status, body, class) in [
            (401, "", Auth),
            (403, "<html>", Auth),
            (402, "", Quota),
            (429, "", Capacity),
            (
                429,
                r#"{"error":{"type":"rate_limit_error","message":"slow"}}"#,
                Capacity,
            ),
            (429, r#"{"error":{"code":"insufficient_quota"}}"#, Quota),
            (
                429,
                r#"{"error":{"message":"You exceeded your current quota"}}"#,
                Quota,
            ),
            (
                400,
                r#"{"error":{"message":"Your credit balance is too low"}}"#,
                Quota,
            ),
            (
                400,
                r#"{"error":{"type":"billing_error","message":"m"}}"#,
                Quota,
            ),
            (
                400,
                r#"{"error":{"code":"content_policy_violation"}}"#,
                Safety,
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error"}}"#,
                Request,
            ),
            (404, "", Request),
            (413, "", Request),
            (422, r#"{"detail":"m"}"#, Request),
            (408, "", Capacity),
            (503, "", Capacity),
            (529, r#"{"error":{"type":"overloaded_error"}}"#, Capacity),
            (500, r#"{"error":{"type":"overloaded_error"}}"#, Capacity),
            (500, r#"{"error":{"type":"billing_error"}}"#, Server),
            (502, "<html>", Server),
            (307, "", Request),
            (101, "", Stream),
            (204, "", Stream),
        ] {
            let complaint = Complaint::of_body(body.as_bytes());
            assert_eq!(
                class_of_status(status, &complaint),
                class,
                "{status} {body}"
            );
        }
    }

    #[test]
    fn the_sentence_is_found_where_vendors_put_it() {
        for (body, message) in [
            (r#"{"error":{"message":"m"}}"#, Some("m")),
            (r#"{"error":"m"}"#, Some("m")),
            (r#"{"message":"m"}"#, Some("m")),
            (r#"{"detail":"m"}"#, Some("m")),
            (r#"[{"error":{"message":"m"}}]"#, Some("m")),
            (r#"{"error":{"message":5}}"#, None),
            ("<html>", None),
            ("", None),
            ("null", None),
            (r#""text""#, None),
        ] {
            let complaint = Complaint::of_body(body.as_bytes());
            let found = complaint.message();
            // A bare string is an error that is its own sentence.
            let expected = if body == r#""text""# {
                Some("text")
            } else {
                message
            };
            assert_eq!(found, expected, "{body}");
        }
    }

    #[test]
    fn pauses_are_seconds_milliseconds_or_dates() {
        let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
        let pause = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, header::HeaderValue::from_static(value));
            }
            retry_after(&headers, now)
        };
        let milliseconds = |number| Some(Duration::from_millis(number));
        assert_eq!(pause(&[("retry-after", "3")]), milliseconds(3000));
        assert_eq!(pause(&[("retry-after", " 0.5 ")]), milliseconds(500));
        assert_eq!(
            pause(&[("retry-after", "3"), ("retry-after-ms", "20")]),
            milliseconds(20)
        );
        assert_eq!(
            pause(&[("retry-after", "Sun, 06 Nov 1994 08:49:47 GMT")]),
            milliseconds(10_000)
        );
        assert_eq!(
            pause(&[("retry-after", "Sun, 06 Nov 1994 08:49:07 GMT")]),
            milliseconds(0)
        );
        for nothing in ["", "soon", "-1", "NaN", "inf", "1e300"] {
            assert_eq!(pause(&[("retry-after", nothing)]), None, "{nothing}");
        }
        assert_eq!(pause(&[]), None);
    }

    proptest! {
        #[test]
        fn any_body_has_a_class(status in 0_u16..1000, body in r#"[{}\[\]",:a-z0-9 ]{0,60}"#) {
            let _ = class_of_status(status, &Complaint::of_body(body.as_bytes()));
        }
    }
}
