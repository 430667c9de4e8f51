//! The server as its clients see it, over a socket.

mod client;
mod failures;

use serde_json::{Value, json};

use super::{Act, Dialect, Ending, ModelServer, Received, Script, Tokens, Turn};
use client::{ask, last, question};

#[test]
fn an_answer_costs_what_the_script_says_in_every_api() {
    let cost = Tokens::new(11, 7).cached(5, 3);
    for dialect in Dialect::ALL {
        for stream in [false, true] {
            let server = ModelServer::start(Script::turns([Turn::text("It is done.")
                .thinking("Hm.")
                .tokens(cost)]));
            let answer = ask(&server, dialect, &question(dialect, stream)).unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
            let request = last(&server);
            assert_eq!(request.ending, Ending::Complete, "{dialect:?} {stream}");
            assert_eq!(request.tokens, Some(cost.as_told_by(dialect)));
            assert_eq!(server.dealt(), cost.as_told_by(dialect));
            let told = if stream {
                let events = answer.events();
                let usage = |event: &Value| match dialect {
                    Dialect::Messages | Dialect::Chat => event["usage"].clone(),
                    Dialect::Responses => event["response"]["usage"].clone(),
                };
                events.iter().map(usage).rfind(Value::is_object).unwrap()
            } else {
                answer.json()["usage"].clone()
            };
            let total = |names: [&str; 2]| names.map(|name| told[name].as_u64().unwrap());
            let (numbers, expected) = match dialect {
                Dialect::Messages => (total(["input_tokens", "output_tokens"]), [11, 7]),
                Dialect::Chat => (total(["prompt_tokens", "completion_tokens"]), [19, 7]),
                Dialect::Responses => (total(["input_tokens", "output_tokens"]), [19, 7]),
            };
            assert_eq!(numbers, expected, "{dialect:?} {stream}");
            let said = if stream { "It is done." } else { &answer.body };
            assert!(said.contains("It is done."), "{}", answer.body);
        }
    }
}

#[test]
fn a_stream_is_the_plain_answer_in_pieces() {
    for dialect in Dialect::ALL {
        let text = "Grüße, \"Welt\"\n".repeat(9);
        let turn = Turn::text(text.clone()).pieces(3);
        let server = ModelServer::start(Script::turns([turn]));
        let answer = ask(&server, dialect, &question(dialect, true)).unwrap();
        let joined: String = answer
            .events()
            .iter()
            .filter_map(|event| {
                let piece = match dialect {
                    Dialect::Messages => &event["delta"]["text"],
                    Dialect::Chat => &event["choices"][0]["delta"]["content"],
                    Dialect::Responses => &event["delta"],
                };
                piece.as_str().map(str::to_owned)
            })
            .collect();
        assert_eq!(joined, text, "{dialect:?}");
    }
}

#[test]
fn a_conversation_goes_on_with_the_results_of_tools() {
    let script = || {
        Script::conversation([
            Turn::run("echo hi"),
            Turn::acts([Act::Run("echo again".to_owned())]).saying("Once more."),
        ])
    };
    let server = ModelServer::start(Script::each(move |request| {
        if request.answers() < 2 {
            return script().turn(request);
        }
        Turn::text(format!("the tool said {}", request.results().join("|")))
    }));
    let tool = json!({"name": "bash", "input_schema": {"properties": {"command": {}}}});
    let mut body = question(Dialect::Messages, false);
    body["tools"] = json!([tool]);
    for said in ["hi", "again"] {
        let answer = ask(&server, Dialect::Messages, &body).unwrap().json();
        assert_eq!(answer["stop_reason"], "tool_use");
        let call = answer["content"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        assert_eq!(call["input"]["command"], format!("echo {said}"));
        let messages = body["messages"].as_array_mut().unwrap();
        messages.push(json!({"role": "assistant", "content": answer["content"]}));
        messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call["id"], "content": said},
        ]}));
    }
    let answer = ask(&server, Dialect::Messages, &body).unwrap().json();
    assert_eq!(answer["content"][0]["text"], "the tool said again");
}

#[test]
fn a_request_after_the_last_turn_is_refused() {
    let server = ModelServer::start(Script::turns([Turn::text("one")]));
    let body = question(Dialect::Chat, false);
    assert_eq!(ask(&server, Dialect::Chat, &body).unwrap().status, 200);
    let answer = ask(&server, Dialect::Chat, &body).unwrap();
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("no turn 2"), "{}", answer.body);
}

#[test]
fn requests_of_clients_on_their_own_account_use_no_turn() {
    let server = ModelServer::start(Script::turns([Turn::text("the answer")]));
    let mut body = question(Dialect::Messages, false);
    body["output_config"] = json!({"format": {"type": "json_schema"}});
    let side = ask(&server, Dialect::Messages, &body).unwrap();
    assert!(side.body.contains("title"), "{}", side.body);
    let body = question(Dialect::Messages, false);
    let answer = ask(&server, Dialect::Messages, &body).unwrap();
    assert!(answer.body.contains("the answer"));
    let sides: Vec<bool> = server
        .requests()
        .iter()
        .map(|request| request.side)
        .collect();
    assert_eq!(sides, [true, false]);
    assert_eq!(server.dealt(), Tokens::new(107, 23));
}

#[test]
fn a_recording_is_played_and_a_stray_conversation_refused() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("talk.json");
    let recording = json!({"turns": [
        {"text": "Look.", "acts": [{"run": "cat x"}], "tokens": {"input": 3, "output": 2}},
        {"after": ["wrong"], "text": "Done."},
    ]});
    fs_err::write(&file, recording.to_string()).unwrap();
    let server = ModelServer::start(Script::recorded(&file));
    let mut body = question(Dialect::Responses, false);
    body["tools"] = json!([
        {"type": "function", "name": "exec_command", "parameters": {"properties": {"cmd": {}}}},
    ]);
    let answer = ask(&server, Dialect::Responses, &body).unwrap().json();
    let call = answer["output"][1].clone();
    assert_eq!(call["arguments"], r#"{"cmd":"cat x"}"#);
    assert_eq!(server.dealt(), Tokens::new(3, 2));
    for (output, status) in [("it is wrong", 200), ("it is right", 400)] {
        let mut body = body.clone();
        body["input"] = json!([
            {"role": "user", "content": "Do it."},
            answer["output"][0],
            call,
            {"type": "function_call_output", "call_id": call["call_id"], "output": output},
        ]);
        let answer = ask(&server, Dialect::Responses, &body).unwrap();
        assert_eq!(answer.status, status, "{}", answer.body);
    }
}

#[test]
fn over_tls_the_authority_vouches_for_it() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::text("in secret")));
    let base = server.base_url(Dialect::Chat);
    assert!(base.starts_with("https://localhost:"), "{base}");
    let answer = client::ask_over_tls(&server, &server.ca_file());
    assert!(answer.contains("in secret"), "{answer}");
    let other = ModelServer::start_tls(Script::each(|_| Turn::text("x")));
    assert_eq!(client::ask_over_tls(&server, &other.ca_file()), "");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn below_a_prefix_is_the_only_place() {
    let server = ModelServer::start_below("/team/a", Script::each(|_| Turn::text("x")));
    let base = server.base_url(Dialect::Responses);
    assert!(base.ends_with("/team/a/v1"), "{base}");
    let bearer = format!("Bearer {}", server.key());
    let headers = [("authorization", bearer.as_str())];
    let body = question(Dialect::Responses, false).to_string();
    for (path, status) in [
        ("/team/a/v1/responses", 200),
        ("/v1/responses", 404),
        ("/team/b/v1/responses", 404),
    ] {
        let answer = client::exchange(&server, path, &headers, &body).unwrap();
        assert_eq!(answer.status, status, "{path}");
    }
}
