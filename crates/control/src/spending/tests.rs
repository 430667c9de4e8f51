use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use mini_ork_node::model::CallFailure;
use mini_ork_protocol::{NodeId, RunId};
use proptest::prelude::*;

use super::*;
use crate::store::NewRun;

/// A dollar for a thousand tokens, of the model `priced` only.
pub(super) fn prices() -> Arc<PriceTable> {
    let table = b"models: {priced: {input: 1000, output: 1000}}";
    Arc::new(PriceTable::parse("pricing.yaml", table).unwrap())
}

pub(super) const WITHOUT_LIMIT: Budgets = Budgets {
    node_usd: None,
    run_usd: None,
    daily_usd: 1e9,
};

pub(super) fn key(run: &str, node: &str) -> AttemptKey {
    AttemptKey {
        run: RunId::parse(run).unwrap(),
        node: NodeId::parse(node).unwrap(),
        round: 1,
        attempt: 1,
    }
}

/// A store that has the run `run`.
pub(super) async fn store(home: &Path, run: &str) -> Store {
    let store = Store::open(home).unwrap();
    let new = NewRun {
        run: RunId::parse(run).unwrap(),
        recipe: "code-fix".to_owned(),
        title: String::new(),
        repository: PathBuf::new(),
        directory: PathBuf::new(),
        backend: "local".to_owned(),
        started_at_ms: 1,
    };
    store.add_run(new).await.unwrap();
    store
}

pub(super) fn ledger(store: &Store, budgets: Budgets) -> Spending {
    Spending::new(
        store.clone(),
        prices(),
        key("abc", "worker"),
        "quick".to_owned(),
        "other".to_owned(),
        budgets,
    )
}

/// A call that may cost a dollar for each thousand of `tokens`.
pub(super) fn planned(model: &str, tokens: u64) -> PlannedCall {
    PlannedCall {
        model: model.to_owned(),
        body_bytes: 0,
        max_output_tokens: Some(tokens),
    }
}

pub(super) fn usage(output: u64) -> TokenUsage {
    TokenUsage {
        output,
        ..TokenUsage::default()
    }
}

pub(super) fn answered(usage: Option<TokenUsage>, complete: bool) -> FinishedCall {
    FinishedCall {
        usage,
        complete,
        failure: None,
        status: Some(200),
        started_at_ms: 1,
        duration_ms: 5,
    }
}

fn failed(class: FailureClass, status: Option<u16>) -> FinishedCall {
    FinishedCall {
        failure: Some(CallFailure {
            class,
            message: "no".to_owned(),
        }),
        status,
        ..answered(None, false)
    }
}

async fn make(ledger: &Spending, model: &str, call: FinishedCall) {
    let ticket = ledger.admit(&planned(model, 3000)).await.unwrap();
    ledger.record(ticket, call).await;
}

pub(super) fn counted(store: &Store) -> f64 {
    store.reader().unwrap().counted_after(0).unwrap()
}

#[track_caller]
pub(super) fn assert_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
}

#[tokio::test]
async fn what_is_not_known_of_a_call_is_never_zero() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let ledger = ledger(&store, WITHOUT_LIMIT);
    let mut expected = CostSum::default();

    make(&ledger, "priced", answered(Some(usage(500)), true)).await;
    (expected.calls, expected.known_usd, expected.usage.output) = (1, 0.5, 500);
    assert_eq!(ledger.totals().await.unwrap(), expected);
    assert_near(counted(&store), 0.5);

    // Cut after 200 tokens: at least that, and budgets count what it may have come to.
    make(&ledger, "priced", answered(Some(usage(200)), false)).await;
    (expected.calls, expected.cut) = (2, 1);
    (expected.known_usd, expected.usage.output) = (0.7, 700);
    assert_eq!(ledger.totals().await.unwrap(), expected);
    assert_near(counted(&store), 3.5);

    // Nothing was said of it.
    make(&ledger, "priced", answered(None, false)).await;
    (expected.calls, expected.unknown, expected.uncounted) = (3, 1, 1);
    assert_eq!(ledger.totals().await.unwrap(), expected);
    assert_near(counted(&store), 6.5);

    // A call that is refused, and one that does not get there, deal nothing.
    for (class, status) in [
        (FailureClass::Capacity, Some(529)),
        (FailureClass::Network, None),
    ] {
        let mut undealt = failed(class, status);
        undealt.complete = true;
        make(&ledger, "priced", undealt).await;
    }
    expected.calls = 5;
    assert_eq!(ledger.totals().await.unwrap(), expected);
    assert_near(counted(&store), 6.5);

    // It may have got there.
    let unanswered = failed(FailureClass::Network, None);
    make(&ledger, "priced", unanswered).await;
    (expected.calls, expected.unknown, expected.uncounted) = (6, 2, 2);
    assert_eq!(ledger.totals().await.unwrap(), expected);
    assert_near(counted(&store), 9.5);

    // Tokens without a price. The dearest call before it is what may be expected.
    make(&ledger, "other", answered(Some(usage(9)), true)).await;
    (expected.calls, expected.unknown, expected.usage.output) = (7, 3, 709);
    assert_eq!(ledger.totals().await.unwrap(), expected);
    assert_near(counted(&store), 10.0);

    assert_eq!(expected.cost_usd(), Some(0.7));
    assert!(expected.is_partly_unknown());
}

#[tokio::test]
async fn calls_in_flight_are_counted_before_they_end() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let budgets = Budgets {
        run_usd: Some(1.0),
        ..WITHOUT_LIMIT
    };
    let ledger = ledger(&store, budgets);
    let call = planned("priced", 300);
    let (first, second, third, fourth) = tokio::join!(
        ledger.admit(&call),
        ledger.admit(&call),
        ledger.admit(&call),
        ledger.admit(&call)
    );
    let mut tickets = Vec::new();
    let mut refusals = Vec::new();
    for admitted in [first, second, third, fourth] {
        match admitted {
            Ok(ticket) => tickets.push(ticket),
            Err(refusal) => refusals.push(refusal.message),
        }
    }
    assert_eq!(tickets.len(), 3);
    assert_eq!(
        refusals,
        ["$0.90 of the budget of the run of $1.00 are spent, and the next call may cost $0.30"]
    );
    // Cheaper than they might have been, so that there is room again.
    for ticket in tickets {
        ledger
            .record(ticket, answered(Some(usage(100)), true))
            .await;
    }
    ledger.admit(&call).await.unwrap();
}

#[tokio::test]
async fn a_model_without_a_price_is_no_way_around_a_budget() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let budgets = Budgets {
        node_usd: Some(1.5),
        ..WITHOUT_LIMIT
    };
    let mut ledger = ledger(&store, budgets);
    "priced".clone_into(&mut ledger.model);
    ledger
        .admit(&planned("never heard of", 1000))
        .await
        .unwrap();
    let refusal = ledger
        .admit(&planned("never heard of", 1000))
        .await
        .unwrap_err();
    assert_eq!(refusal.class, FailureClass::Budget);
}

#[tokio::test]
async fn an_end_is_written_down_once() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let ledger = ledger(&store, WITHOUT_LIMIT);
    let CallTicket(id) = ledger.admit(&planned("priced", 100)).await.unwrap();
    for tokens in [100, 900] {
        ledger
            .record(CallTicket(id), answered(Some(usage(tokens)), true))
            .await;
    }
    ledger
        .record(CallTicket(id + 1), answered(Some(usage(1)), true))
        .await;
    let totals = ledger.totals().await.unwrap();
    assert_eq!((totals.calls, totals.usage.output), (1, 100));
}

#[tokio::test]
async fn numbers_beyond_all_reason_do_no_harm() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let ledger = ledger(&store, WITHOUT_LIMIT);
    for _ in 0..3 {
        let mut call = answered(
            Some(TokenUsage {
                input: u64::MAX,
                ..TokenUsage::default()
            }),
            true,
        );
        call.duration_ms = u64::MAX;
        let name = "\u{1b}[2J".repeat(10_000);
        make(&ledger, &name, call).await;
    }
    let totals = ledger.totals().await.unwrap();
    assert_eq!((totals.calls, totals.unknown), (3, 3));
    assert_eq!(totals.usage.input, 3 << 40);
    assert_eq!(counted(&store), 0.0);
}

#[tokio::test]
async fn the_day_is_that_of_all_runs_also_of_removed_ones() {
    let home = tempfile::tempdir().unwrap();
    let first = store(home.path(), "abc").await;
    let other = store(home.path(), "other").await;
    let budgets = Budgets {
        daily_usd: 1.0,
        run_usd: Some(9.0),
        ..WITHOUT_LIMIT
    };
    let spender = Spending::new(
        other.clone(),
        prices(),
        key("other", "planner"),
        "slow".to_owned(),
        "other".to_owned(),
        WITHOUT_LIMIT,
    );
    make(&spender, "priced", answered(Some(usage(950)), true)).await;
    other
        .remove_run(&RunId::parse("other").unwrap())
        .await
        .unwrap();
    let ledger = ledger(&first, budgets);
    let refusal = ledger.admit(&planned("priced", 100)).await.unwrap_err();
    assert_eq!(
        refusal.message,
        "$0.95 of the daily budget of $1.00 were spent in the last 24 hours, by all runs \
         together, and the next call may cost $0.10"
    );
    // The run that is gone cannot make another.
    let refusal = spender.admit(&planned("priced", 100)).await.unwrap_err();
    assert!(
        refusal.message.contains("could not be written down"),
        "{refusal}"
    );
    assert_eq!(ledger.totals().await.unwrap().calls, 0);
}

#[tokio::test]
async fn a_call_that_cannot_be_written_down_is_not_made() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    let ledger = ledger(&store, WITHOUT_LIMIT);
    let ticket = ledger.admit(&planned("priced", 100)).await.unwrap();
    store.fill_up().await.unwrap();
    let mut admitted = 0;
    let refusal = loop {
        match ledger.admit(&planned("priced", 100)).await {
            Ok(_) => admitted += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal.class, FailureClass::Budget);
    let message = refusal.message;
    assert!(
        message.starts_with("the call was not made, because it could not be written down")
            && message.contains("disk is full"),
        "{message}"
    );
    assert_eq!(ledger.totals().await.unwrap().calls, admitted + 1);
    // What is on record can still be brought to its end.
    ledger.record(ticket, answered(Some(usage(1)), true)).await;
}

/// What each call of a random series came to.
#[derive(Debug, Clone)]
enum Fate {
    Answered(TokenUsage, bool),
    Silent,
    Refused,
    NeverRecorded,
}

fn fate() -> impl Strategy<Value = Fate> {
    let tokens = || 0..1_000_000_u64;
    let usage = (tokens(), tokens(), tokens(), tokens()).prop_map(
        |(input, cache_read, cache_write, output)| TokenUsage {
            input,
            cache_read,
            cache_write,
            output,
        },
    );
    prop_oneof![
        4 => (usage, any::<bool>()).prop_map(|(usage, complete)| Fate::Answered(usage, complete)),
        1 => Just(Fate::Silent),
        1 => Just(Fate::Refused),
        1 => Just(Fate::NeverRecorded),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sums_are_what_was_recorded(
        calls in prop::collection::vec((fate(), 0..3_usize, any::<bool>()), 0..40)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let home = tempfile::tempdir().unwrap();
            let store = store(home.path(), "abc").await;
            let lanes = ["a", "b", "c"];
            let prices = prices();
            let mut expected = BTreeMap::new();
            for (fate, lane, priced) in &calls {
                let ledger = Spending::new(
                    store.clone(),
                    Arc::clone(&prices),
                    key("abc", "worker"),
                    lanes[*lane].to_owned(),
                    "other".to_owned(),
                    WITHOUT_LIMIT,
                );
                let model = if *priced { "priced" } else { "other" };
                let ticket = ledger.admit(&planned(model, 0)).await.unwrap();
                let sum: &mut CostSum = expected.entry(lanes[*lane]).or_default();
                let mut one = CostSum { calls: 1, ..CostSum::default() };
                match fate {
                    Fate::Answered(usage, complete) => {
                        one.usage = *usage;
                        match prices.cost(model, usage) {
                            Some(cost) => (one.known_usd, one.cut) = (cost, u64::from(!complete)),
                            None => one.unknown = 1,
                        }
                        ledger.record(ticket, answered(Some(*usage), *complete)).await;
                    }
                    Fate::Silent => {
                        (one.unknown, one.uncounted) = (1, 1);
                        ledger.record(ticket, answered(None, false)).await;
                    }
                    Fate::Refused => {
                        let mut refused = failed(FailureClass::Request, Some(400));
                        refused.complete = true;
                        ledger.record(ticket, refused).await;
                    }
                    Fate::NeverRecorded => (one.unknown, one.uncounted) = (1, 1),
                }
                sum.add(&one);
            }
            let same = |found: &CostSum, expected: &CostSum| {
                (found.known_usd - expected.known_usd).abs() < 1e-6
                    && CostSum { known_usd: expected.known_usd, ..*found } == *expected
            };
            let reader = store.reader().unwrap();
            let found = reader.costs_of_run("abc").unwrap();
            assert_eq!(found.len(), expected.len());
            let mut total = CostSum::default();
            for lane in &found {
                let expected = &expected[lane.lane.as_str()];
                assert!(same(&lane.sum, expected), "{lane:?} {expected:?}");
                total.add(expected);
            }
            let calls_of = reader.calls_of(&key("abc", "worker")).unwrap();
            assert!(same(&calls_of, &total), "{calls_of:?} {total:?}");
            let mut by_time = CostSum::default();
            for row in reader.costs_after(0).unwrap() {
                by_time.add(&row.sum);
            }
            assert!(same(&by_time, &total), "{by_time:?} {total:?}");
        });
    }
}

/// Ten thousand calls in a day are many. Each new one is weighed against all of them.
#[tokio::test]
async fn a_full_day_is_added_up_in_no_time() {
    let home = tempfile::tempdir().unwrap();
    let store = store(home.path(), "abc").await;
    store.add_calls(10_000).await.unwrap();
    let ledger = ledger(&store, WITHOUT_LIMIT);
    let rounds = 20;
    let began = Instant::now();
    for _ in 0..rounds {
        ledger.admit(&planned("priced", 100)).await.unwrap();
    }
    let each = began.elapsed() / rounds;
    println!("admitting a call after 10 000 others of the day: {each:?}");
    // Far above what it takes on a busy machine, far below what an agent would notice.
    assert!(each.as_millis() < 200, "{each:?}");
}
