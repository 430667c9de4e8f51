//! The agent behind a lane gateway, as in a run.

use std::net::TcpListener;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use mini_ork_node::agent::{AgentEvent, EndReason};
use mini_ork_node::gateway::{
    BaseUrl, Gateway, GatewayLimits, GatewaySettings, Placeholder, RetryPolicy, Roots,
};
use mini_ork_node::model::{
    CallLedger, CallTicket, FailureClass, FinishedCall, PlannedCall, Refusal, TokenUsage,
};
use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::Secret;
use mini_ork_testkit::{Act, Dialect, Script, Trouble, Turn};

use super::support::{Desk, Done, PROMPT};

/// Admits so many calls, and keeps what they were.
#[derive(Debug)]
struct Book {
    most: usize,
    planned: Mutex<Vec<PlannedCall>>,
    finished: Mutex<Vec<FinishedCall>>,
}

#[async_trait]
impl CallLedger for Book {
    async fn admit(&self, call: &PlannedCall) -> Result<CallTicket, Refusal> {
        let mut planned = self.planned.lock().unwrap();
        if planned.len() >= self.most {
            return Err(Refusal {
                class: FailureClass::Budget,
                message: "the budget of this run would be passed".to_owned(),
            });
        }
        planned.push(call.clone());
        Ok(CallTicket(planned.len() as u64))
    }

    async fn record(&self, _ticket: CallTicket, call: FinishedCall) {
        self.finished.lock().unwrap().push(call);
    }
}

/// Lets the agent of `desk` work through a gateway that admits `most` calls.
fn work_behind_a_gateway(desk: &Desk, dialect: Dialect, most: usize) -> (Done, Arc<Book>) {
    let book = Arc::new(Book {
        most,
        planned: Mutex::default(),
        finished: Mutex::default(),
    });
    let mut agent = desk.agent(dialect);
    let placeholder = Placeholder::new().unwrap();
    let settings = GatewaySettings {
        api: agent.spec.api,
        base_url: BaseUrl::parse(&agent.spec.base_url, agent.spec.api).unwrap(),
        key: Secret::new(desk.server.key().as_bytes().to_vec()).unwrap(),
        placeholder: placeholder.clone(),
        redactor: Redactor::new(),
        roots: Roots {
            system: false,
            extra_pem: None,
        },
        limits: GatewayLimits {
            retry: RetryPolicy {
                first_delay: Duration::from_millis(1),
                ..RetryPolicy::default()
            },
            ..GatewayLimits::default()
        },
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut events: Vec<AgentEvent> = Vec::new();
    let ledger = Arc::clone(&book) as Arc<dyn CallLedger>;
    let end = runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gateway = Gateway::open(listener, settings, ledger).await.unwrap();
        agent.spec.base_url = gateway.inside_base_url();
        agent.token = Secret::new(placeholder.expose().as_bytes().to_vec()).unwrap();
        let mut observer = |event| {
            events.push(event);
            ControlFlow::Continue(())
        };
        let end = agent.work(PROMPT, &mut observer).await;
        gateway.close().await;
        end
    });
    (desk.check(events, end), book)
}

#[test]
fn it_works_behind_a_gateway_with_a_placeholder() {
    for dialect in Dialect::ALL {
        let desk = Desk::turns([
            Turn::run("cat calc.py"),
            Turn::acts([Act::Edit {
                path: "calc.py".to_owned(),
                old: "a - b".to_owned(),
                new: "a + b".to_owned(),
            }]),
            Turn::acts([Act::Finish("The sum is right.".to_owned())]),
        ]);
        let (done, book) = work_behind_a_gateway(&desk, dialect, 9);
        done.assert_ended(EndReason::Finished, "done");
        assert!(desk.read("calc.py").contains("a + b"));
        let planned = book.planned.lock().unwrap().clone();
        assert!(planned.iter().all(|call| call.model == "m1"
            && call.max_output_tokens == Some(desk.limits.max_output_tokens)));
        let mut counted = TokenUsage::default();
        for call in book.finished.lock().unwrap().iter() {
            let usage = call.usage.unwrap();
            counted.input += usage.input;
            counted.output += usage.output;
        }
        let dealt = desk.server.dealt();
        assert_eq!((counted.input, counted.output), (dealt.input, dealt.output));
    }
}

#[test]
fn a_budget_that_is_used_up_ends_the_work_in_its_own_words() {
    for dialect in Dialect::ALL {
        let desk = Desk::turns([Turn::run("true"), Turn::run("true")]);
        let (done, _) = work_behind_a_gateway(&desk, dialect, 1);
        done.assert_ended(EndReason::Api, "the budget of this run would be passed");
        assert_eq!(desk.server.requests().len(), 1);
    }
}

#[test]
fn the_gateway_tries_again_and_the_agent_does_not() {
    for dialect in Dialect::ALL {
        let desk = Desk::new(Script::turns([
            Turn::trouble(Trouble::Capacity),
            Turn::text("Done."),
        ]));
        let (done, _) = work_behind_a_gateway(&desk, dialect, 9);
        done.assert_ended(EndReason::Answered, "done");
        assert_eq!(done.end.turns, 1);

        let desk = Desk::new(Script::each(|_| Turn::trouble(Trouble::Capacity)));
        let (done, _) = work_behind_a_gateway(&desk, dialect, 9);
        assert_eq!(done.end.reason, EndReason::Api);
        assert_eq!(desk.server.requests().len(), 3);

        let desk = Desk::turns([Turn::text("I was about to").cut_after(2)]);
        let (done, _) = work_behind_a_gateway(&desk, dialect, 9);
        assert!(!done.end.reason.is_success(), "{:?}", done.end);
    }
}

#[test]
fn what_a_vendor_refuses_is_found_in_the_words_of_the_gateway() {
    let desk = Desk::new(Script::each(|request| {
        if request.contains("max_completion_tokens") {
            let message = "Unrecognized request argument: max_completion_tokens";
            Turn::trouble(Trouble::Request(message.to_owned()))
        } else {
            Turn::text("Done.")
        }
    }));
    let (done, _) = work_behind_a_gateway(&desk, Dialect::Chat, 9);
    done.assert_ended(EndReason::Answered, "done");
}
