//! What a request asks for.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::model::{Api, PlannedCall};

/// Longest name of a model. It goes into records.
const LONGEST_MODEL: usize = 256;
/// Longest options of a stream. Only they are read into values, which take many times as much
/// memory as their text.
const LONGEST_OPTIONS: usize = 4 << 10;

/// A request whose body was read.
#[derive(Debug)]
pub(super) struct ModelRequest {
    pub(super) planned: PlannedCall,
    pub(super) body: Bytes,
}

/// Why a body is not sent on. The client is told.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("the body is not a JSON object")]
    NoObject,
    #[error("the body is not a JSON object with a model: {0}")]
    Form(#[source] serde_json::Error),
    #[error("the body has to name a model with 1 to {LONGEST_MODEL} printable characters")]
    Model,
    #[error("a call in the background could not be counted, so it is not made")]
    Background,
    #[error("`stream_options` has to be an object of at most {LONGEST_OPTIONS} bytes")]
    Options,
}

/// A key that is there twice is an error: the vendor could read the other one.
#[derive(Deserialize)]
struct Facts<'a> {
    model: String,
    #[serde(borrow)]
    max_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    max_output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    n: Option<&'a RawValue>,
    #[serde(borrow)]
    stream: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    stream_options: Option<&'a RawValue>,
    #[serde(borrow)]
    background: Option<&'a RawValue>,
}

/// Reads what has to be known before the call. The body stays as it is, byte for byte, except that
/// a stream of chat completions is made to end with its usage when the client did not ask for that.
pub(super) fn read(api: Api, body: Bytes) -> Result<ModelRequest, BodyError> {
    // A list of the fields would be read as well.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(BodyError::NoObject);
    }
    let facts: Facts<'_> = serde_json::from_slice(&body).map_err(BodyError::Form)?;
    let is_model = (1..=LONGEST_MODEL).contains(&facts.model.len())
        && !facts.model.chars().any(char::is_control);
    if !is_model {
        return Err(BodyError::Model);
    }
    if is_asked(facts.background) {
        return Err(BodyError::Background);
    }
    let limits: &[Option<&RawValue>] = match api {
        Api::AnthropicMessages => &[facts.max_tokens],
        Api::OpenaiChat => &[facts.max_tokens, facts.max_completion_tokens],
        Api::OpenaiResponses => &[facts.max_output_tokens],
    };
    let most = limits.iter().filter_map(|limit| number(*limit)).max();
    let answers = match api {
        Api::OpenaiChat => number(facts.n).unwrap_or(1).max(1),
        _ => 1,
    };
    let metered = if api == Api::OpenaiChat && is_asked(facts.stream) {
        with_usage(&body, facts.stream_options)?
    } else {
        None
    };
    let planned = PlannedCall {
        model: facts.model,
        body_bytes: metered.as_ref().unwrap_or(&body).len() as u64,
        max_output_tokens: most.map(|most| most.saturating_mul(answers)),
    };
    Ok(ModelRequest {
        planned,
        body: metered.unwrap_or(body),
    })
}

/// Tells one that is `null` from one that is not there.
fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(from).map(Some)
}

fn number(value: Option<&RawValue>) -> Option<u64> {
    value?.get().parse().ok()
}

/// Anything but `false` and `null`: vendors differ in what else they take for true.
fn is_asked(value: Option<&RawValue>) -> bool {
    value.is_some_and(|value| !matches!(value.get(), "null" | "false"))
}

/// `body` with an option for the usage; none when it has that already. `options` is what it has
/// for its stream, a part of `body`.
fn with_usage(body: &Bytes, options: Option<&RawValue>) -> Result<Option<Bytes>, BodyError> {
    const WANTED: &str = "include_usage";
    let Some(options) = options else {
        // It is an object, and not empty: it has a model.
        let end = body.trim_ascii_end().len().saturating_sub(1);
        let added = br#","stream_options":{"include_usage":true}}"#;
        return Ok(Some([&body[..end], added].concat().into()));
    };
    let text = options.get();
    if text.len() > LONGEST_OPTIONS {
        return Err(BodyError::Options);
    }
    let mut values: Map<String, Value> = match serde_json::from_str(text) {
        Ok(Value::Object(values)) => values,
        Ok(Value::Null) => Map::new(),
        _ => return Err(BodyError::Options),
    };
    if values.get(WANTED) == Some(&Value::Bool(true)) {
        return Ok(None);
    }
    values.insert(WANTED.to_owned(), Value::Bool(true));
    let start = text.as_ptr().addr().saturating_sub(body.as_ptr().addr());
    let (Some(before), Some(after)) = (body.get(..start), body.get(start + text.len()..)) else {
        return Err(BodyError::Options);
    };
    let values = Value::Object(values).to_string();
    Ok(Some([before, values.as_bytes(), after].concat().into()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn planned(api: Api, body: &str) -> (String, Option<u64>) {
        let request = read(api, Bytes::from(body.to_owned())).unwrap();
        assert_eq!(request.body, body.as_bytes());
        assert_eq!(request.planned.body_bytes, body.len() as u64);
        (request.planned.model, request.planned.max_output_tokens)
    }

    fn model(most: Option<u64>) -> (String, Option<u64>) {
        ("m".to_owned(), most)
    }

    #[test]
    fn the_model_and_its_most_are_read() {
        use Api::{
            AnthropicMessages as Messages, OpenaiChat as Chat, OpenaiResponses as Responses,
        };
        for (api, body, most) in [
            (
                Messages,
                r#"{"model":"m","max_tokens":7,"stream":true}"#,
                Some(7),
            ),
            (Messages, r#" {"model":"m"} "#, None),
            (Messages, r#"{"model":"m","max_tokens":-7}"#, None),
            (Messages, r#"{"model":"m","max_tokens":1e30}"#, None),
            (
                Chat,
                r#"{"model":"m","max_tokens":7,"max_completion_tokens":9}"#,
                Some(9),
            ),
            (Chat, r#"{"model":"m","max_tokens":7,"n":3}"#, Some(21)),
            (
                Chat,
                r#"{"model":"m","max_tokens":18446744073709551615,"n":3}"#,
                Some(u64::MAX),
            ),
            (Chat, r#"{"model":"m","max_tokens":7,"n":0}"#, Some(7)),
            (
                Responses,
                r#"{"model":"m","max_output_tokens":5,"max_tokens":9}"#,
                Some(5),
            ),
            (Responses, r#"{"mod\u0065l":"m"}"#, None),
        ] {
            assert_eq!(planned(api, body), model(most), "{body}");
        }
    }

    #[test]
    fn a_chat_stream_is_made_to_tell_its_usage() {
        let chat = |body: &str| {
            let request = read(Api::OpenaiChat, Bytes::from(body.to_owned())).unwrap();
            String::from_utf8(request.body.to_vec()).unwrap()
        };
        for (body, sent) in [
            (
                r#"{"model":"m", "stream":true, "temperature":0.1}"#,
                r#"{"model":"m", "stream":true, "temperature":0.1,"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#"{"model":"m","stream":true,"stream_options":{"include_usage":false,"x":1}}"#,
                r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"x":1}}"#,
            ),
            (
                r#"{"model":"m","stream":1,"stream_options":null, "x":2}"#,
                r#"{"model":"m","stream":1,"stream_options":{"include_usage":true}, "x":2}"#,
            ),
            (
                "{\"model\":\"m\",\"stream\":\"yes\" } \n",
                r#"{"model":"m","stream":"yes" ,"stream_options":{"include_usage":true}}"#,
            ),
            (
                r#"{"model":"m", "stream":false}"#,
                r#"{"model":"m", "stream":false}"#,
            ),
            (
                r#"{ "stream_options":{"include_usage":true},"model":"m","stream":true}"#,
                r#"{ "stream_options":{"include_usage":true},"model":"m","stream":true}"#,
            ),
        ] {
            assert_eq!(chat(body), sent);
        }
    }

    #[test]
    fn options_of_a_stream_that_are_none_are_refused() {
        for options in [
            "7",
            "[]",
            "\"x\"",
            &format!("{{\"x\":[{}0]}}", "0,".repeat(4096)),
        ] {
            let body = format!(r#"{{"model":"m","stream":true,"stream_options":{options}}}"#);
            assert!(read(Api::OpenaiChat, Bytes::from(body)).is_err());
        }
    }

    #[test]
    fn what_could_not_be_counted_is_refused() {
        let long = format!(r#"{{"model":"{}"}}"#, "m".repeat(LONGEST_MODEL + 1));
        for body in [
            "",
            "[]",
            "null",
            r#"["m",null,null,null,null,null,null,null]"#,
            "{}",
            "\u{feff}{\"model\":\"m\"}",
            r#"{"model":1}"#,
            r#"{"model":""}"#,
            r#"{"model":"a\nb"}"#,
            r#"{"model":"cheap","model":"dear"}"#,
            r#"{"model":"m","max_tokens":1,"max_tokens":9}"#,
            r#"{"model":"m"} {"model":"m"}"#,
            r#"{"model":"m","background":true}"#,
            &long,
        ] {
            let result = read(Api::OpenaiResponses, Bytes::from(body.to_owned()));
            assert!(result.is_err(), "{body}");
        }
        let deep = format!(
            r#"{{"model":"m","x":{}{}}}"#,
            "[".repeat(50_000),
            "]".repeat(50_000)
        );
        let _ = read(Api::OpenaiChat, Bytes::from(deep));
        let deep = format!(r#"{{"model":"m","stream":{}"#, "[".repeat(50_000));
        assert!(read(Api::OpenaiChat, Bytes::from(deep)).is_err());
    }

    proptest! {
        #[test]
        fn any_body_is_read_or_refused(body in r#"[{}\[\]",:a-z0-9\\ ]{0,60}"#) {
            for api in [Api::AnthropicMessages, Api::OpenaiChat, Api::OpenaiResponses] {
                let _ = read(api, Bytes::from(body.clone()));
            }
        }
    }
}
