//! Whatever happens, the work ends with one reason that says what it was.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use mini_ork_node::agent::{AgentEvent, EndReason};
use mini_ork_testkit::{Act, Dialect, Script, Stop, Tokens, Trouble, Turn, processes_with};

use super::support::{Desk, Done, PROMPT, nap};

fn work_on(turns: &[Turn]) -> Vec<Done> {
    let desks = Dialect::ALL.map(|dialect| (dialect, Desk::turns(turns.to_vec())));
    desks
        .into_iter()
        .map(|(dialect, desk)| desk.work(dialect))
        .collect()
}

fn steps(count: usize) -> Vec<Turn> {
    (0..count)
        .map(|number| Turn::run(format!("echo {number}")))
        .collect()
}

#[test]
fn a_refusal_is_told_as_one() {
    for done in work_on(&[Turn::text("I will not.").stopped(Stop::Refusal)]) {
        done.assert_ended(EndReason::Refused, "for reasons of safety");
        assert_eq!(done.end.answer, "");
    }
}

#[test]
fn an_empty_answer_gets_a_second_chance_and_no_third() {
    for dialect in Dialect::ALL {
        let turns = [Turn::text(""), Turn::text("Done.")];
        let desk = Desk::new(Script::turns(turns));
        desk.work(dialect).assert_ended(EndReason::Answered, "done");
    }
    for dialect in Dialect::ALL {
        let desk = Desk::new(Script::turns([
            Turn::run("true"),
            Turn::text(""),
            Turn::text(" \n"),
            Turn::text("too late"),
        ]));
        let done = desk.work(dialect);
        done.assert_ended(EndReason::Empty, "answered nothing, twice in a row");
        assert_eq!(desk.server.requests().len(), 3);
    }
}

#[test]
fn answers_that_are_cut_off_are_continued_and_not_for_ever() {
    let cut = || Turn::text("Now I will expl").stopped(Stop::Length);
    for done in work_on(&[cut(), cut(), Turn::text("Done.")]) {
        done.assert_ended(EndReason::Answered, "done");
        assert_eq!(done.end.answer, "Done.");
    }
    for done in work_on(&[cut(), cut(), cut(), Turn::text("Done.")]) {
        done.assert_ended(EndReason::Cut, "3 answers in a row were cut off");
    }
}

#[test]
fn a_call_that_was_cut_off_is_not_carried_out() {
    let half = Act::Call {
        name: "bash".to_owned(),
        arguments: r#"{"command": "rm -rf calc"#.to_owned(),
    };
    let turns = [
        Turn::acts([half]).stopped(Stop::Length),
        Turn::text("Done."),
    ];
    for done in work_on(&turns) {
        done.assert_ended(EndReason::Answered, "done");
        let (ok, output) = done.results()[0];
        assert!(
            !ok && output.contains("nothing was done") && output.contains("write less at once")
        );
    }
}

#[test]
fn turns_and_tokens_are_limited() {
    for dialect in Dialect::ALL {
        let mut desk = Desk::turns(steps(9));
        desk.limits.max_turns = 4;
        let done = desk.work(dialect);
        done.assert_ended(EndReason::Turns, "not done after 4 turns");
        assert_eq!((done.end.turns, desk.server.requests().len()), (4, 4));

        let turns = steps(9).into_iter();
        let mut desk = Desk::turns(turns.map(|turn| turn.tokens(Tokens::new(70, 30))));
        desk.limits.total_tokens = Some(300);
        let done = desk.work(dialect);
        done.assert_ended(
            EndReason::Tokens,
            "not done after 300 tokens; the limit is 300",
        );
        assert_eq!(desk.server.requests().len(), 3);
    }
}

#[test]
fn time_is_limited_while_the_model_thinks() {
    for turn in [
        Turn::text("too late").after(Duration::from_secs(3600)),
        Turn::text("never ready").stall_after(2),
    ] {
        let mut desk = Desk::turns([turn]);
        desk.limits.time_s = Some(1);
        let done = desk.work(Dialect::Messages);
        done.assert_ended(EndReason::Time, "not done after 1 s");
        desk.server
            .wait_until("end of the call", |requests| requests[0].disconnected());
    }
}

#[test]
fn time_is_limited_while_a_command_runs() {
    let nap = nap();
    let mut desk = Desk::turns([Turn::run(format!("{nap} & {nap}"))]);
    desk.limits.time_s = Some(1);
    desk.run(Dialect::Chat)
        .assert_ended(EndReason::Time, "not done after 1 s");
    assert_eq!(
        processes_with(nap.trim_start_matches("sleep ")),
        Vec::<String>::new()
    );
}

#[test]
fn a_circle_is_told_once_and_then_ended() {
    for dialect in Dialect::ALL {
        let desk = Desk::new(Script::each(|_| Turn::run("echo same")));
        let done = desk.work(dialect);
        done.assert_ended(EndReason::Repeating, "the same again and again");
        assert_eq!(done.end.turns, 6);
        let bodies = desk.bodies();
        let told = |at: usize| {
            let body = bodies[at].to_string();
            body.matches("the result was the same").count()
        };
        assert_eq!([told(2), told(3), told(5)], [0, 1, 1]);
    }
}

#[test]
fn an_error_of_the_vendor_is_the_last_word() {
    let message = "the model API at example.org answered 529 (overloaded) 3 times";
    for turn in [
        Turn::trouble(Trouble::Request(message.to_owned())),
        Turn::text("Half of").trouble_after(2, Trouble::Request(message.to_owned())),
    ] {
        for dialect in Dialect::ALL {
            let desk = Desk::turns([turn.clone()]);
            let done = desk.work(dialect);
            done.assert_ended(EndReason::Api, message);
            assert_eq!(desk.server.requests().len(), 1);
        }
    }
    for trouble in [Trouble::Auth, Trouble::Quota, Trouble::Server] {
        for done in work_on(&[Turn::trouble(trouble)]) {
            assert_eq!(done.end.reason, EndReason::Api);
        }
    }
}

#[test]
fn a_stream_that_broke_off_is_no_answer() {
    let long = || Turn::run("touch made").saying("I say something of some length.");
    for events in 0..6 {
        for turn in [
            long().cut_after(events),
            long().cut_inside(events),
            long().ends_after(events),
        ] {
            for dialect in Dialect::ALL {
                let desk = Desk::turns([turn.clone(), Turn::text("Done.")]);
                let done = desk.work(dialect);
                assert!(!done.end.reason.is_success(), "{dialect:?} {turn:?}");
                assert_eq!(done.end.reason, EndReason::Stream, "{:?}", done.end);
                assert!(!desk.root().join("made").exists());
            }
        }
    }
}

#[test]
fn what_is_no_stream_is_no_answer() {
    for (turn, reason) in [
        (Turn::html(), EndReason::Stream),
        (Turn::close(), EndReason::Stream),
        (Turn::redirect("http://127.0.0.1:1/"), EndReason::Api),
        (
            Turn::raw(200, "{}").header("content-type", "application/json"),
            EndReason::Stream,
        ),
        (
            Turn::raw(200, "data: {nonsense\n\n").header("content-type", "text/event-stream"),
            EndReason::Stream,
        ),
        (Turn::raw(503, "<html>"), EndReason::Api),
    ] {
        for done in work_on(&[turn]) {
            assert_eq!(done.end.reason, reason, "{:?}", done.end);
        }
    }
}

#[test]
fn a_gateway_that_is_gone_is_told() {
    let desk = Desk::turns([]);
    let spec = desk.spec(Dialect::Chat);
    assert!(spec.base_url.ends_with("/v1"));
    let other = Desk::turns([]);
    let mut agent = other.agent(Dialect::Chat);
    agent.spec = spec;
    drop(desk);
    let mut observer = |_| ControlFlow::Continue(());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let end = runtime.block_on(agent.work(PROMPT, &mut observer));
    assert_eq!(end.reason, EndReason::Network, "{end:?}");
    assert!(end.message.starts_with("could not reach the lane gateway"));
}

#[test]
fn whoever_drops_the_work_drops_its_command() {
    let nap = nap();
    let desk = Desk::turns([Turn::run(format!("echo begun > begun; exec {nap}"))]);
    let agent = desk.agent(Dialect::Chat);
    let mut events = Vec::new();
    let mut observer = |event: AgentEvent| {
        events.push(event);
        ControlFlow::Continue(())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let begun = desk.root().join("begun");
    runtime.block_on(async {
        let work = agent.work(PROMPT, &mut observer);
        tokio::select! {
            end = work => panic!("{end:?}"),
            () = until(|| begun.exists()) => {}
        }
        until(|| processes_with(nap.trim_start_matches("sleep ")).is_empty()).await;
    });
}

#[test]
fn work_that_nobody_hears_of_is_ended() {
    let desk = Desk::turns([Turn::run("touch made"), Turn::text("Done.")]);
    let mut observer = |event: AgentEvent| match event {
        AgentEvent::Tool { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let agent = desk.agent(Dialect::Chat);
    let end = runtime.block_on(agent.work(PROMPT, &mut observer));
    assert_eq!(end.reason, EndReason::Unheard, "{end:?}");
    assert!(!desk.root().join("made").exists());
    assert_eq!(desk.server.requests().len(), 1);
}

async fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "it does not happen");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
