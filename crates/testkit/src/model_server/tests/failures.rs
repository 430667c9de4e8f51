use std::io::Read as _;
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::super::{Dialect, Ending, ModelServer, Script, Stop, Tokens, Trouble, Turn};
use super::client::{ask, connect, exchange, last, question};

#[test]
fn the_key_has_to_be_right_and_in_its_place() {
    let server = ModelServer::start(Script::each(|_| Turn::text("x")));
    let key = server.key().to_owned();
    let bearer = format!("Bearer {key}");
    let version = ("anthropic-version", "2023-06-01");
    let wrong: [(Dialect, &[(&str, &str)]); 6] = [
        (Dialect::Messages, &[version]),
        (
            Dialect::Messages,
            &[
                version,
                ("x-api-key", &key),
                ("authorization", "Bearer other"),
            ],
        ),
        (Dialect::Messages, &[version, ("x-api-key", "other")]),
        (Dialect::Chat, &[("x-api-key", &key)]),
        (Dialect::Chat, &[("authorization", &key)]),
        (Dialect::Responses, &[("authorization", "Bearer other")]),
    ];
    for (dialect, headers) in wrong {
        let body = question(dialect, false).to_string();
        let answer = exchange(&server, dialect.path(), headers, &body).unwrap();
        assert_eq!(answer.status, 401, "{dialect:?} {headers:?}");
        let error = &answer.json()["error"];
        match dialect {
            Dialect::Messages => assert_eq!(error["type"], "authentication_error"),
            Dialect::Chat | Dialect::Responses => assert_eq!(error["code"], "invalid_api_key"),
        }
    }
    assert_eq!(server.dealt(), Tokens::default());
    let body = question(Dialect::Messages, false).to_string();
    let headers = [version, ("authorization", bearer.as_str())];
    let answer = exchange(&server, "/v1/messages", &headers, &body).unwrap();
    assert_eq!(answer.status, 200);
}

#[test]
fn requests_that_a_vendor_refuses_are_refused() {
    let server = ModelServer::start(Script::each(|_| Turn::text("x")));
    let calls = json!([{"role": "assistant", "content": [
        {"type": "tool_use", "id": "t1", "name": "bash", "input": {}},
    ]}]);
    let user = json!({"role": "user", "content": "x"});
    let with = |dialect: Dialect, field: &str, value: Value| {
        let mut body = question(dialect, false);
        body[field] = value;
        (dialect, body)
    };
    let mut wrong = vec![
        with(Dialect::Messages, "model", Value::Null),
        with(Dialect::Messages, "max_tokens", Value::Null),
        with(Dialect::Messages, "messages", json!([])),
        with(Dialect::Messages, "messages", calls.clone()),
        with(Dialect::Messages, "messages", json!([user, calls[0], user])),
        with(Dialect::Messages, "messages", json!([user, calls[0]])),
        with(
            Dialect::Messages,
            "messages",
            json!([{"role": "robot", "content": "x"}]),
        ),
        with(
            Dialect::Messages,
            "messages",
            json!([{"role": "user", "content": ""}]),
        ),
        with(
            Dialect::Messages,
            "messages",
            json!([user, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "x"},
            ]}]),
        ),
        with(
            Dialect::Chat,
            "messages",
            json!([user, {"role": "tool", "tool_call_id": "c", "content": "x"}]),
        ),
        with(
            Dialect::Chat,
            "messages",
            json!([{"role": "assistant", "tool_calls": [{"id": "c"}]}, user]),
        ),
        with(
            Dialect::Chat,
            "stream_options",
            json!({"include_usage": true}),
        ),
        with(Dialect::Responses, "input", Value::Null),
        with(
            Dialect::Responses,
            "input",
            json!([{"type": "function_call", "call_id": "c"}]),
        ),
        with(
            Dialect::Responses,
            "input",
            json!([{"type": "function_call_output", "call_id": "c"}]),
        ),
    ];
    let block = json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}});
    let content = json!([block, block, block, block, block]);
    wrong.push(with(
        Dialect::Messages,
        "messages",
        json!([{"role": "user", "content": content}]),
    ));
    for (dialect, body) in wrong {
        let answer = ask(&server, dialect, &body).unwrap();
        assert_eq!(answer.status, 400, "{dialect:?} {body}");
        assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
    }
    let key = [("x-api-key", server.key())];
    let body = question(Dialect::Messages, false).to_string();
    let answer = exchange(&server, "/v1/messages", &key, &body).unwrap();
    assert!(answer.body.contains("anthropic-version"), "{}", answer.body);
    let answer = exchange(&server, "/v1/other", &key, "{}").unwrap();
    assert_eq!(answer.status, 404);
}

#[test]
fn of_a_cut_stream_only_what_went_out_was_dealt() {
    let cost = Tokens::new(11, 7).cached(5, 0);
    let started = Tokens { output: 1, ..cost };
    let turn = || Turn::text("It is done.").pieces(4).tokens(cost);
    for (dialect, turn, events, tokens) in [
        (Dialect::Messages, turn().cut_after(0), 0, None),
        (Dialect::Messages, turn().cut_inside(0), 0, None),
        (Dialect::Messages, turn().cut_after(1), 1, Some(started)),
        (Dialect::Messages, turn().cut_inside(3), 3, Some(started)),
        (Dialect::Messages, turn().ends_after(3), 3, Some(started)),
        (Dialect::Messages, turn().cut_after(8), 8, Some(cost)),
        (Dialect::Chat, turn().cut_after(4), 4, None),
        (Dialect::Responses, turn().cut_after(4), 4, None),
    ] {
        let server = ModelServer::start(Script::turns([turn]));
        let answer = ask(&server, dialect, &question(dialect, true)).unwrap();
        assert_eq!(
            answer.events().len(),
            events,
            "{dialect:?}: {}",
            answer.body
        );
        let request = last(&server);
        assert_eq!(
            (request.tokens, request.ending),
            (tokens, Ending::Cut),
            "{dialect:?}"
        );
    }
}

#[test]
fn a_plain_answer_is_cut_in_its_middle() {
    let turn = Turn::text("x".repeat(100)).cut_after(0);
    let server = ModelServer::start(Script::turns([turn]));
    let answer = ask(&server, Dialect::Chat, &question(Dialect::Chat, false)).unwrap();
    assert!(serde_json::from_str::<Value>(&answer.body).is_err());
    assert_eq!(
        (last(&server).tokens, last(&server).ending),
        (None, Ending::Cut)
    );
}

#[test]
fn failures_are_those_of_the_vendor() {
    let server = ModelServer::start(Script::turns([
        Turn::trouble(Trouble::Capacity).header("retry-after", "3"),
        Turn::html(),
        Turn::redirect("http://127.0.0.1:1/"),
        Turn::close(),
        Turn::text("x").trouble_after(2, Trouble::Capacity),
        Turn::text("x").stopped(Stop::Length),
    ]));
    let next = |stream| {
        ask(
            &server,
            Dialect::Messages,
            &question(Dialect::Messages, stream),
        )
    };
    let answer = next(true).unwrap();
    assert_eq!(answer.status, 529);
    assert!(answer.head.contains("retry-after: 3"), "{}", answer.head);
    assert_eq!(answer.json()["error"]["type"], "overloaded_error");
    assert!(next(true).unwrap().head.contains("text/html"));
    let answer = next(true).unwrap();
    assert!(answer.status == 307 && answer.head.contains("location: http"));
    assert!(next(true).is_none());
    let events = next(true).unwrap().events();
    assert_eq!(events[2]["error"]["type"], "overloaded_error");
    assert_eq!(events.len(), 3);
    assert_eq!(next(false).unwrap().json()["stop_reason"], "max_tokens");
    let statuses: Vec<_> = server
        .requests()
        .iter()
        .map(|request| request.status)
        .collect();
    assert_eq!(statuses[..4], [Some(529), Some(200), Some(307), None]);
}

#[test]
fn a_client_that_goes_away_is_noticed() {
    let server = ModelServer::start(Script::each(|_| Turn::text("x").stall_after(3)));
    let body = question(Dialect::Responses, true).to_string();
    let bearer = format!("Bearer {}", server.key());
    let headers = [("authorization", bearer.as_str())];
    let mut stream = connect(&server, "/v1/responses", &headers, &body);
    stream.read_exact(&mut [0; 200]).unwrap();
    assert_eq!(server.open_connections(), 1);
    assert_eq!(server.requests()[0].ending, Ending::Running);
    drop(stream);
    assert!(last(&server).disconnected());
    crate::wait_for("end of the connection", Duration::from_secs(10), || {
        server.open_connections() == 0
    });
}

#[test]
fn a_server_ends_with_its_value() {
    let server = ModelServer::start(Script::each(|_| Turn::text("x").stall_after(1)));
    let body = question(Dialect::Chat, true).to_string();
    let bearer = format!("Bearer {}", server.key());
    let headers = [("authorization", bearer.as_str())];
    let mut stream = connect(&server, "/v1/chat/completions", &headers, &body);
    server.wait_for_requests(1);
    let address = server.address();
    drop(server);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(TcpStream::connect(address).is_err());
}
