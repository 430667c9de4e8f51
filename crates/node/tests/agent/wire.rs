//! What goes over the wire.

use mini_ork_node::agent::{AgentEvent, EndReason};
use mini_ork_testkit::{Act, Dialect, Script, Trouble, Turn};
use serde_json::Value;

use super::support::Desk;

#[test]
fn the_vendor_is_told_what_to_keep() {
    let turns = (0..4).map(|number| Turn::run(format!("echo {number}")));
    let desk = Desk::turns(turns.chain([Turn::text("Done.")]));
    desk.work(Dialect::Messages);
    for body in desk.bodies() {
        let marks = body.to_string().matches("cache_control").count();
        assert!((3..=4).contains(&marks), "{marks}");
        assert!(body["system"][0].get("cache_control").is_some());
        let last = |value: &Value| value.as_array().unwrap().last().unwrap().clone();
        assert!(last(&body["tools"]).get("cache_control").is_some());
        let content = &last(&body["messages"])["content"];
        assert!(last(content).get("cache_control").is_some());
    }
    // What was sent stays as it was, so that the vendor finds it again.
    let bodies = desk.bodies();
    let plain = |body: &Value, count: usize| {
        let messages = &body["messages"].as_array().unwrap()[..count];
        let text = Value::from(messages).to_string();
        text.replace(",\"cache_control\":{\"type\":\"ephemeral\"}", "")
    };
    for pair in bodies.windows(2) {
        let count = pair[0]["messages"].as_array().unwrap().len();
        assert_eq!(plain(&pair[0], count), plain(&pair[1], count));
    }
}

#[test]
fn a_vendor_that_knows_the_old_name_of_the_limit_gets_it() {
    let desk = Desk::new(Script::each(|request| {
        if request.contains("max_completion_tokens") {
            let message = "Unrecognized request argument: max_completion_tokens";
            Turn::trouble(Trouble::Request(message.to_owned()))
        } else if request.answers() == 0 {
            Turn::run("true")
        } else {
            Turn::text("Done.")
        }
    }));
    let done = desk.work(Dialect::Chat);
    done.assert_ended(EndReason::Answered, "done");
    let limits: Vec<_> = desk
        .bodies()
        .iter()
        .map(|body| body["max_tokens"].clone())
        .collect();
    assert_eq!(limits, [Value::Null, 8192.into(), 8192.into()]);
    // One that goes on refusing is not asked for ever.
    let desk = Desk::new(Script::each(|_| {
        Turn::trouble(Trouble::Request(
            "max_completion_tokens, encrypted".to_owned(),
        ))
    }));
    for (dialect, requests) in [
        (Dialect::Chat, 2),
        (Dialect::Responses, 4),
        (Dialect::Messages, 5),
    ] {
        desk.work(dialect)
            .assert_ended(EndReason::Api, "max_completion_tokens");
        assert_eq!(desk.server.requests().len(), requests);
    }
}

#[test]
fn thoughts_go_back_to_whoever_had_them() {
    let desk = Desk::turns([
        Turn::run("true").thinking("a deep thought"),
        Turn::text("Done."),
    ]);
    desk.work(Dialect::Messages)
        .assert_ended(EndReason::Answered, "done");
    let body = desk.bodies().pop().unwrap();
    let thought = &body["messages"][1]["content"][0];
    assert_eq!(thought["thinking"], "a deep thought");
    assert!(thought["signature"].is_string());
}

#[test]
fn a_long_conversation_stays_within_the_window() {
    for dialect in Dialect::ALL {
        let count = 30;
        let mut turns: Vec<Turn> = (0..count)
            .map(|number| {
                Turn::acts([
                    Act::Write {
                        path: format!("big{number}"),
                        content: "w".repeat(4000),
                    },
                    Act::Run(format!("seq {number} 3000")),
                ])
                .pieces(1 << 16)
            })
            .collect();
        turns.push(Turn::text("Done."));
        let mut desk = Desk::turns(turns);
        desk.limits.context_tokens = 24_000;
        desk.limits.max_output_tokens = 4000;
        let done = desk.work(dialect);
        done.assert_ended(EndReason::Answered, "done");
        assert_eq!(done.end.turns, count + 1);
        let shortened = |event: &&AgentEvent| matches!(event, AgentEvent::Note { .. });
        let times = done.events.iter().filter(shortened).count();
        // Not for each turn: what the vendor keeps has to serve for some.
        assert!((1..20).contains(&times), "{times}");
        for body in desk.bodies() {
            // The server counts 100 tokens a request, so the least that is believed holds.
            assert!(
                body.to_string().len() < 20_000 * 7,
                "{}",
                body.to_string().len()
            );
        }
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_not_sent() {
    let mut desk = Desk::turns([]);
    desk.limits.context_tokens = 1000;
    desk.limits.max_output_tokens = 400;
    desk.work(Dialect::Chat)
        .assert_ended(EndReason::Window, "window of 1000 tokens");
    assert_eq!(desk.server.requests().len(), 0);
}
