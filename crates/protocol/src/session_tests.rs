use std::fmt::Debug;

use serde::de::DeserializeOwned;

use super::*;
use crate::GENERATION;

/// The text may only change with a new generation: the server in a sandbox may be older or later
/// than the outside.
fn frozen<T: Serialize + DeserializeOwned + Debug>(text: &str) -> T {
    let value: T = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&value).unwrap(), text);
    value
}

#[test]
fn generation_2_requests_are_frozen() {
    let hello: SessionRequest =
        frozen(r#"{"ask":"hello","generation":2,"token":"dG9rZW4=","proof":{"directory":"L3c="}}"#);
    assert!(
        matches!(&hello, SessionRequest::Hello(hello) if hello.token.expose() == b"token"),
        "{hello:?}"
    );
    frozen::<SessionRequest>(
        r#"{"ask":"hello","generation":2,"token":"dG9rZW4=","proof":null,"only_asks":true}"#,
    );
    let spec = r#"{"generation":2,"argv":["dHJ1ZQ=="],"cwd":"Lw==","env":[],"stdin":"null","marker":"m","timeout_ms":null,"grace_ms":2000,"output_limit":1}"#;
    frozen::<SessionRequest>(&format!(
        r#"{{"ask":"spawn","directory":"L3I=","spec":{spec}}}"#
    ));
    for text in [
        r#"{"ask":"attach","directory":"L3I="}"#,
        r#"{"ask":"wait","directory":"L3I="}"#,
        r#"{"ask":"stop","directory":"L3I=","now":true}"#,
        r#"{"ask":"get","root":"L3c=","path":"YQ==","limit":7}"#,
        r#"{"ask":"put","root":"L3c=","path":"YQ==","length":7}"#,
        r#"{"ask":"list","root":"L3c=","path":"YQ==","levels":2,"most":10,"not_entered":[".git"]}"#,
        r#"{"ask":"forward","port":0,"service":"gateway:1"}"#,
        r#"{"ask":"unforward","service":"gateway:1"}"#,
    ] {
        frozen::<SessionRequest>(text);
    }
    frozen::<SessionCall>(r#"{"service":"gateway:1"}"#);
}

#[test]
fn generation_2_answers_are_frozen() {
    for text in [
        r#"{"answer":"welcome","generation":2,"kernel":"6.1.0","uid":1000,"gid":1000,"interfaces":["lo"],"processors":2}"#,
        r#"{"answer":"started","record":null}"#,
        r#"{"answer":"found","state":"never_started"}"#,
        r#"{"answer":"found","state":"running","record":null}"#,
        r#"{"answer":"found","state":"ended","exit":{"generation":1,"outcome":{"kind":"exited","code":7},"started_at_ms":1,"ended_at_ms":2,"stragglers":0}}"#,
        r#"{"answer":"found","state":"lost"}"#,
        r#"{"answer":"done"}"#,
        r#"{"answer":"content","length":3}"#,
        r#"{"answer":"listing","entries":[{"path":"YQ==","kind":"file","size":1},{"path":"Yg==","kind":"special","size":0}],"complete":false}"#,
        r#"{"answer":"listening","port":4000}"#,
        r#"{"answer":"refused","kind":"not_found","message":"no"}"#,
    ] {
        frozen::<SessionAnswer>(text);
    }
}

#[test]
fn the_generation_is_the_one_that_is_frozen() {
    assert_eq!(GENERATION, 2);
}

#[test]
fn a_token_is_not_shown() {
    let hello = Hello {
        generation: GENERATION,
        token: SecretBytes::from(b"SENTINEL".as_slice()),
        proof: None,
        only_asks: false,
    };
    let shown = format!("{:?}", SessionRequest::Hello(hello));
    assert!(!shown.contains("SENTINEL"), "{shown}");
}
