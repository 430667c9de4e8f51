//! A gateway with the ledger of a node: what a vendor dealt is in the database, to the token, and
//! what no budget has room for does not reach the vendor.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mini_ork_control::pricing::PriceTable;
use mini_ork_control::spending::{Budgets, Spending};
use mini_ork_control::store::{AttemptKey, CostSum, NewRun, Store};
use mini_ork_node::gateway::{
    BaseUrl, Gateway, GatewayLimits, GatewaySettings, Placeholder, RetryPolicy, Roots,
};
use mini_ork_node::model::Api;
use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::Secret;
use mini_ork_protocol::{NodeId, RunId};
use mini_ork_testkit::{Dialect, ModelServer, Script, Tokens, Trouble, Turn};
use serde_json::{Value, json};

const APIS: [(Api, Dialect); 3] = [
    (Api::AnthropicMessages, Dialect::Messages),
    (Api::OpenaiChat, Dialect::Chat),
    (Api::OpenaiResponses, Dialect::Responses),
];
const PATIENCE: Duration = Duration::from_secs(60);

/// The lane of one node, from its placeholder to the database.
struct Metered {
    home: tempfile::TempDir,
    api: Api,
    address: SocketAddr,
    placeholder: String,
    gateway: Gateway,
    ledger: Arc<Spending>,
}

impl Metered {
    async fn open(
        (api, dialect): (Api, Dialect),
        server: &ModelServer,
        node_usd: Option<f64>,
    ) -> Self {
        let home = tempfile::tempdir().unwrap();
        let store = Store::open(home.path()).unwrap();
        let run = RunId::parse("abc").unwrap();
        let new = NewRun {
            run: run.clone(),
            recipe: "code-fix".to_owned(),
            title: String::new(),
            repository: PathBuf::new(),
            directory: PathBuf::new(),
            backend: "local".to_owned(),
            started_at_ms: 1,
        };
        store.add_run(new).await.unwrap();
        let attempt = AttemptKey {
            run,
            node: NodeId::parse("worker").unwrap(),
            round: 1,
            attempt: 1,
        };
        // A dollar for a thousand tokens.
        let table = b"models: {m: {input: 1000, output: 1000}}";
        let prices = Arc::new(PriceTable::parse("pricing.yaml", table).unwrap());
        let budgets = Budgets {
            node_usd,
            run_usd: None,
            daily_usd: 1e6,
        };
        let (lane, model) = ("metered".to_owned(), "m".to_owned());
        let ledger = Spending::new(store, prices, attempt, lane, model, budgets);
        let ledger = Arc::new(ledger);
        let placeholder = Placeholder::new().unwrap();
        let settings = GatewaySettings {
            api,
            base_url: BaseUrl::parse(&server.base_url(dialect), api).unwrap(),
            key: Secret::new(server.key().as_bytes().to_vec()).unwrap(),
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
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let gateway = Gateway::open(listener, settings, ledger.clone())
            .await
            .unwrap();
        Self {
            home,
            api,
            address: gateway.address(),
            placeholder: placeholder.expose().to_owned(),
            gateway,
            ledger,
        }
    }

    /// Asks for an answer of at most `most` tokens; returns all that came back.
    async fn ask(&self, stream: bool, most: u64) -> String {
        let (path, limit, said) = match self.api {
            Api::AnthropicMessages => ("/v1/messages", "max_tokens", "messages"),
            Api::OpenaiChat => ("/v1/chat/completions", "max_tokens", "messages"),
            Api::OpenaiResponses => ("/v1/responses", "max_output_tokens", "input"),
        };
        let mut body = json!({"model": "m", "stream": stream});
        body[limit] = most.into();
        body[said] = json!([{"role": "user", "content": "x"}]);
        if stream && self.api == Api::OpenaiChat {
            body["stream_options"] = json!({"include_usage": true});
        }
        let body = body.to_string();
        let request = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\nanthropic-version: 2023-06-01\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            self.placeholder,
            body.len()
        );
        let address = self.address;
        tokio::task::spawn_blocking(move || {
            let mut connection = TcpStream::connect(address).unwrap();
            connection.set_read_timeout(Some(PATIENCE)).unwrap();
            connection.write_all(request.as_bytes()).unwrap();
            let mut answer = Vec::new();
            // A stream that was cut ends in the middle.
            let _ = connection.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        })
        .await
        .unwrap()
    }

    /// All calls, once they are on record.
    async fn close(self) -> (CostSum, tempfile::TempDir) {
        self.gateway.close().await;
        let totals = self.ledger.totals().await.unwrap();
        (totals, self.home)
    }
}

fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, test).await.unwrap() });
}

#[track_caller]
fn assert_dealt(totals: &CostSum, server: &ModelServer) {
    let usage = totals.usage;
    let found = Tokens {
        input: usage.input,
        cache_read: usage.cache_read,
        cache_write: usage.cache_write,
        output: usage.output,
    };
    assert_eq!(found, server.dealt());
    let all = found.input + found.cache_read + found.cache_write + found.output;
    let expected = all as f64 / 1000.0;
    assert!((totals.known_usd - expected).abs() < 1e-9, "{totals:?}");
    assert_eq!(totals.calls, server.requests().len() as u64);
}

#[test]
fn costs_are_what_the_vendor_dealt_to_the_token() {
    for kind in APIS {
        for stream in [false, true] {
            let turns = vec![
                Turn::text("one").tokens(Tokens::new(101, 7).cached(1003, 57)),
                Turn::trouble(Trouble::Capacity),
                Turn::trouble(Trouble::Server),
                Turn::text("two").tokens(Tokens::new(23, 11)),
            ];
            let server = ModelServer::start(Script::turns(turns));
            block_on(async {
                let lane = Metered::open(kind, &server, None).await;
                for word in ["one", "two"] {
                    let answer = lane.ask(stream, 100).await;
                    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
                    assert!(stream || answer.contains(word), "{answer}");
                }
                let (totals, _home) = lane.close().await;
                assert_dealt(&totals, &server);
                assert_eq!((totals.calls, totals.unknown, totals.cut), (4, 0, 0));
                assert_eq!(totals.usage.output, 18);
            });
        }
    }
}

#[test]
fn a_cut_stream_costs_at_least_what_its_beginning_told() {
    for kind in APIS {
        let turns = vec![
            Turn::text("whole").tokens(Tokens::new(40, 2)),
            Turn::text("a longer text than that")
                .tokens(Tokens::new(500, 60))
                .pieces(4)
                .cut_after(4),
        ];
        let server = ModelServer::start(Script::turns(turns));
        block_on(async {
            let lane = Metered::open(kind, &server, None).await;
            lane.ask(true, 100).await;
            lane.ask(true, 100).await;
            let (totals, _home) = lane.close().await;
            assert_dealt(&totals, &server);
            assert_eq!((totals.calls, totals.unknown + totals.cut), (2, 1));
            // Only one of the three tells at the beginning what it has read.
            let told = kind.0 == Api::AnthropicMessages;
            assert_eq!(totals.cut == 1, told, "{totals:?}");
            assert_eq!(totals.usage.input, if told { 540 } else { 40 });
        });
    }
}

#[test]
fn a_call_that_a_budget_has_no_room_for_does_not_reach_the_vendor() {
    for kind in APIS {
        let turns = (0..3).map(|_| Turn::text("done").tokens(Tokens::new(300, 100)));
        let server = ModelServer::start(Script::turns(turns));
        block_on(async {
            // Each costs 40 cents; the estimate is a little more than the 10 of what is written.
            let lane = Metered::open(kind, &server, Some(1.0)).await;
            for _ in 0..2 {
                let answer = lane.ask(false, 100).await;
                assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            }
            for stream in [false, true] {
                let answer = lane.ask(stream, 100).await;
                assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
                let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                let body: Value = serde_json::from_str(body).unwrap();
                let message = body["error"]["message"].as_str().unwrap();
                assert!(
                    message.contains("$0.80 of the $1.00 that the node may cost are spent")
                        && message.contains("the next call may cost $0.40"),
                    "{message}"
                );
            }
            let report = lane.gateway.report();
            let (totals, home) = lane.close().await;
            assert_eq!(server.requests().len(), 2);
            assert_dealt(&totals, &server);
            let failure = format!("{report:?}");
            assert!(failure.contains("Budget"), "{failure}");
            // What was refused has left nothing in the database.
            let reader = Store::open(home.path()).unwrap().reader().unwrap();
            let costs = reader.costs_of_run("abc").unwrap();
            assert_eq!(costs.len(), 1);
            assert_eq!(
                (costs[0].sum.calls, costs[0].sum.is_partly_unknown()),
                (2, false)
            );
        });
    }
}
