//! What calls cost, and budgets that they may not pass.

use mini_ork_testkit::{ModelServer, Script, Tokens, Trouble, Turn};
use serde_json::Value;

use super::{
    ANTHROPIC, CHAT, CLAUDE, CODEX, Kind, OPENCODE, RESPONSES, World, code_fix, right_answer, world,
};
use crate::support::{lines_of, node, only_row, text};

/// A cent for a thousand tokens in, and ten for a thousand out.
const PRICES: &str = "models:
  my-model: {input: 10, output: 100}
  claude-sonnet-4-5: {input: 10, output: 100}
";

/// A world with [`PRICES`], whose one lane is of `kind`.
fn priced(kind: Kind, server: &ModelServer) -> Option<World> {
    let world = world(kind, server)?;
    world.config("pricing.yaml", PRICES);
    Some(world)
}

fn cents(usd: &Value) -> i64 {
    (usd.as_f64().unwrap_or_else(|| panic!("no money in {usd}")) * 100.0).round() as i64
}

#[track_caller]
fn costs_what_was_dealt(kind: Kind) {
    let work = right_answer()
        .into_iter()
        .map(|turn| turn.tokens(Tokens::new(20_000, 3000)));
    let server = ModelServer::start_tls(code_fix(work));
    let Some(world) = priced(kind, &server) else {
        return;
    };
    let view = world.run(&server, "code-fix").run().expect(0).json();
    // Two calls of 20 + 30 cents.
    assert_eq!(cents(&node(&view, "implementer")["cost_usd"]), 100);
    assert_eq!(view["cost_unknown"], false);
    let dealt = server.dealt();
    let total = (dealt.input + 10 * dealt.output) as f64 / 1000.0;
    assert_eq!(cents(&view["cost_usd"]), total.round() as i64);
    assert_eq!(world.recorded(), dealt);
}

#[test]
fn claude_costs_what_was_dealt() {
    costs_what_was_dealt(CLAUDE);
}

#[test]
fn codex_costs_what_was_dealt() {
    costs_what_was_dealt(CODEX);
}

#[test]
fn opencode_costs_what_was_dealt() {
    costs_what_was_dealt(OPENCODE);
}

#[test]
fn a_run_without_money_makes_no_call_and_goes_on_when_there_is_some() {
    for kind in [CLAUDE, CODEX, OPENCODE, ANTHROPIC, CHAT, RESPONSES] {
        let server = ModelServer::start_tls(code_fix(right_answer()));
        let Some(world) = priced(kind, &server) else {
            continue;
        };
        let output = world
            .run(&server, "code-fix")
            .arg("--budget")
            .arg("0.01")
            .run()
            .expect(75);
        let view = output.json();
        assert_eq!(text(&view, "reason"), "budget_exhausted", "{view:#}");
        let detail = text(&view, "detail");
        assert!(
            detail.contains("$0.01") && detail.contains("the next call may cost"),
            "{detail}"
        );
        assert!(
            server
                .requests()
                .iter()
                .all(|request| request.dialect.is_none()),
            "{}",
            kind.yaml
        );

        let run = only_row(&world.env).run;
        let output = world
            .mini_ork(&server, &["recover", &run, "--budget", "20", "--json"])
            .run()
            .expect(0);
        assert_eq!(text(&output.json(), "status"), "published");
        assert_eq!(world.recorded(), server.dealt());
    }
}

#[test]
fn work_is_kept_when_the_money_ends_in_its_middle() {
    let work = [
        Turn::run("echo half > answer").tokens(Tokens::new(300_000, 0)),
        Turn::run("echo 42 > answer").tokens(Tokens::new(300_000, 0)),
        Turn::text("The answer is 42 now."),
    ];
    let server = ModelServer::start_tls(code_fix(work));
    let world = priced(ANTHROPIC, &server).unwrap();
    // Enough for the plan, and for one call of the work.
    let output = world
        .run(&server, "code-fix")
        .arg("--budget")
        .arg("5")
        .run()
        .expect(75);
    let view = output.json();
    assert_eq!(text(&view, "reason"), "budget_exhausted", "{view:#}");
    let asked = server.requests().len();
    assert_eq!(asked, 2, "the plan and one step of the work");
    let kept = text(&view["kept"][0], "reference");
    assert_eq!(world.repo().show(kept, "answer"), "half\n");
    assert_eq!(cents(&node(&view, "implementer")["cost_usd"]), 300);
}

#[test]
fn the_day_has_a_budget_that_all_runs_share() {
    let server = ModelServer::start_tls(code_fix(right_answer()));
    let world = priced(ANTHROPIC, &server).unwrap();
    world
        .run(&server, "code-fix")
        .env("MO_DAILY_BUDGET_USD", "20")
        .run()
        .expect(0);
    let asked = server.requests().len();
    let output = world
        .run(&server, "code-fix")
        .env("MO_DAILY_BUDGET_USD", "0.02")
        .run()
        .expect(75);
    assert!(text(&output.json(), "detail").contains("daily budget"));
    assert_eq!(server.requests().len(), asked);
}

#[test]
fn a_node_has_a_budget_of_its_own() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::text("A plan.")));
    let world = priced(ANTHROPIC, &server).unwrap();
    world.env.recipe(
        "thrifty",
        &[
            (
                "workflow.yaml",
                "version: 1\ntask_class: code_fix\ndescription: A plan for little money.\n\
                 nodes:\n  - {name: planner, type: planner, model_lane: planner, \
                 prompt_ref: prompts/planner.md, max_cost_usd: 0.01}\nedges: []\n",
            ),
            ("prompts/planner.md", "You plan a fix: {{ kickoff }}\n"),
        ],
    );
    let output = world.run(&server, "thrifty").run();
    let view = output.expect(75).json();
    assert!(
        text(&view, "detail").contains("the node may cost"),
        "{view:#}"
    );
    assert!(server.requests().is_empty());
}

/// What is dealt before an answer breaks off is paid, and the record says that it may be more.
#[test]
fn a_cut_answer_costs_what_it_told_and_perhaps_more() {
    let server = ModelServer::start_tls(Script::each(|_| {
        Turn::text("A plan that is never finished, however often it is begun.")
            .tokens(Tokens::new(700, 80))
            .cut_after(4)
    }));
    let world = priced(ANTHROPIC, &server).unwrap();
    let view = world.run(&server, "code-fix").run().expect(1).json();
    assert_eq!(text(&view, "reason"), "provider_error", "{view:#}");
    let requests = server.requests();
    assert!(!requests.is_empty());
    assert_eq!(world.recorded(), server.dealt());
    assert_eq!(server.dealt().input, 700 * requests.len() as u64);
    assert_eq!(view["cost_unknown"], true);
}

#[test]
fn a_price_that_nobody_knows_is_unknown_and_not_zero() {
    let server = ModelServer::start_tls(code_fix(right_answer()));
    let world = world(CHAT, &server).unwrap();
    let view = world.run(&server, "code-fix").run().expect(0).json();
    assert!(view["cost_usd"].is_null(), "{view:#}");
    assert_eq!(view["cost_unknown"], true);
    assert_eq!(world.recorded(), server.dealt());
    let run = text(&view, "run");
    let report = lines_of(&world.env.run_directory(run).join("report.md")).join("\n");
    assert!(report.contains("unknown"), "{report}");
    let shown = world.env.mini_ork(["costs"]).run().expect(0);
    assert!(
        shown.text().contains("unknown") && !shown.text().contains("$0.00"),
        "{}",
        shown.text()
    );
}

#[test]
fn refused_calls_cost_nothing() {
    let server = ModelServer::start_tls(Script::each(|_| Turn::trouble(Trouble::Auth)));
    let world = priced(CHAT, &server).unwrap();
    let view = world.run(&server, "code-fix").run().expect(1).json();
    assert_eq!(cents(&view["cost_usd"]), 0, "{view:#}");
    assert_eq!(view["cost_unknown"], false);
}
