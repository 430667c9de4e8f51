//! What the gateway itself says to a client, in the form of the client's API.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::model::{Api, CallFailure};

/// What the client is told of a failure.
///
/// Some clients read the words whatever the status says, and after one such as "overloaded", or a
/// number such as 429 wherever it stands, they repeat for minutes what the gateway has repeated
/// before. So of what time or another vendor may cure they learn that it was given up, and of the
/// rest not who the vendor is: a port is a number too. The run tells all of it.
pub(super) fn for_client(failure: &CallFailure, host: &str) -> String {
    if failure.class.is_curable_elsewhere() {
        "mini-ork gave this call up; the run tells why".to_owned()
    } else {
        failure.message.replacen(&format!(" at {host}"), "", 1)
    }
}

/// The body of an answer that is an error.
pub(super) fn error_body(api: Api, message: &str) -> Bytes {
    Bytes::from(error(api, message).to_string())
}

/// An event that ends a stream as failed. A client that was in the middle of an event finds its
/// end first.
///
/// The kinds of error are those after which the clients do not try again: the gateway did.
pub(super) fn error_event(api: Api, message: &str) -> Bytes {
    let text = match api {
        Api::AnthropicMessages => format!("\n\nevent: error\ndata: {}\n\n", error(api, message)),
        Api::OpenaiChat => format!("\n\ndata: {}\n\n", error(api, message)),
        Api::OpenaiResponses => {
            let failed = json!({
                "type": "response.failed",
                "response": {
                    "object": "response",
                    "status": "failed",
                    "error": { "code": "invalid_prompt", "message": message },
                },
            });
            // Some clients wait for the first, some for the second; one of them asks again for
            // ever after the second alone.
            let error = json!({
                "type": "error",
                "sequence_number": 1,
                "code": "invalid_prompt",
                "message": message,
                "param": null,
                "error": {
                    "type": "invalid_request_error",
                    "code": "invalid_prompt",
                    "message": message,
                    "param": null,
                },
            });
            format!("\n\nevent: error\ndata: {error}\n\nevent: response.failed\ndata: {failed}\n\n")
        }
    };
    Bytes::from(text)
}

fn error(api: Api, message: &str) -> Value {
    match api {
        Api::AnthropicMessages => json!({
            "type": "error",
            "error": { "type": "invalid_request_error", "message": message },
        }),
        Api::OpenaiChat | Api::OpenaiResponses => json!({
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": null,
                "code": null,
            },
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{FailureClass, SseParser};

    #[test]
    fn an_error_event_is_whole_after_anything() {
        for api in [
            Api::AnthropicMessages,
            Api::OpenaiChat,
            Api::OpenaiResponses,
        ] {
            for before in ["", "data: {}\n\n", "data: {}", "event: x\r\n"] {
                let mut parser = SseParser::new(1000);
                let mut last = String::new();
                let text = [before.as_bytes(), &error_event(api, "line\n\"end\"")].concat();
                parser
                    .push(&text, |event| {
                        last = String::from_utf8(event.data.to_vec()).unwrap();
                    })
                    .unwrap();
                assert!(last.contains(r#""message":"line\n\"end\"""#), "{last}");
                assert!(parser.is_between_events());
            }
        }
    }

    #[test]
    fn no_client_learns_a_number_that_it_would_take_for_a_status() {
        let told = |class| {
            let message = "the model API at host:42917 answered 401: no".to_owned();
            for_client(&CallFailure { class, message }, "host:42917")
        };
        for class in [FailureClass::Auth, FailureClass::Request] {
            assert_eq!(told(class), "the model API answered 401: no");
        }
        for class in [FailureClass::Capacity, FailureClass::Quota] {
            assert!(!told(class).contains(char::is_numeric), "{}", told(class));
        }
    }

    #[test]
    fn bodies_have_the_form_of_the_api() {
        let messages: Value =
            serde_json::from_slice(&error_body(Api::AnthropicMessages, "m")).unwrap();
        assert_eq!(messages["type"], "error");
        assert_eq!(messages["error"]["message"], "m");
        let chat: Value = serde_json::from_slice(&error_body(Api::OpenaiChat, "m")).unwrap();
        assert_eq!(chat["error"]["message"], "m");
        assert!(chat.get("type").is_none());
    }
}
