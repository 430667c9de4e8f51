//! Agents in containers: the key stays outside, and the model is reached through the lane gateway
//! alone.

use mini_ork_testkit::{ContainerEngine, ModelServer, Tokens, agent_cli, static_node_program};

use super::{ANTHROPIC, CLAUDE, CODEX, Kind, OPENCODE, code_fix, right_answer, world};
use crate::sandbox::{TOOLS, in_container};
use crate::support::text;

/// As without a container, and with nothing left on the engine.
fn publishes_inside(kind: Kind) {
    let (Some(node_program), Some(engine)) = (static_node_program(), ContainerEngine::start())
    else {
        return;
    };
    let mut programs = TOOLS.to_vec();
    let cli = kind.program.map(agent_cli);
    let cli = match &cli {
        Some(None) => return,
        Some(Some(path)) => Some(fs_err::canonicalize(path).unwrap()),
        None => None,
    };
    if let Some(cli) = &cli {
        programs.push(cli.to_str().unwrap());
    }
    let image = engine.image_of_this_machine(&programs);
    let work = right_answer()
        .into_iter()
        .enumerate()
        .map(|(index, turn)| turn.tokens(Tokens::new(1000 + index as u64, 17).cached(300, 40)));
    let server = ModelServer::start_tls(code_fix(work));
    let Some(world) = world(kind, &server) else {
        return;
    };
    let run = world.run(&server, "code-fix");
    let output = in_container(run, &engine, &image, &node_program)
        .run()
        .expect(0);
    let view = output.json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let branch = text(&view, "branch");
    assert_eq!(world.repo().show(branch, "answer"), "42\n");
    for request in server.requests() {
        assert!(request.dialect.is_none() || request.contains(server.key()));
    }
    assert_eq!(world.recorded(), server.dealt());
    world.assert_clean(&server, &output);
    assert_eq!(engine.containers(), Vec::<String>::new());
}

#[test]
fn the_built_in_agent_publishes_from_a_container() {
    publishes_inside(ANTHROPIC);
}

#[test]
fn claude_publishes_from_a_container() {
    publishes_inside(CLAUDE);
}

#[test]
fn codex_publishes_from_a_container() {
    publishes_inside(CODEX);
}

#[test]
fn opencode_publishes_from_a_container() {
    publishes_inside(OPENCODE);
}
