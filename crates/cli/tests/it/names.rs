//! Names of nodes that become the same when they are cleaned up for a path.

use mini_ork_protocol::{NodeId, NodeSegment};
use mini_ork_testkit::Lane;

use crate::support::{
    PROJECT, agent, attempt_directory, fan_recipe, new_env, node, run_json, text,
};

/// Writers beside each other, whose worktrees, records and refs would meet under any rule that only
/// replaces characters, or adds a digest only where it replaced some.
#[test]
fn bc_74_names_that_look_alike_share_nothing() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[]);
    let segment_of = |name: &str| {
        let id = NodeId::parse(name).unwrap();
        NodeSegment::from(&id).as_str().to_owned()
    };
    let first = segment_of("a_b");
    let long = format!("a{}", "b".repeat(63));
    let names = [
        "a_b",
        "a-b",
        first.as_str(),
        "main",
        "base",
        "worktree",
        "a__b",
        "a--b",
        long.as_str(),
        &long[..63],
    ];
    fan_recipe(&env, &names, "");
    env.lanes(&[(
        "default",
        Lane::Shell(&agent("echo \"$MO_NODE_ID\" > \"made-by-$MO_NODE_ID\"")),
    )]);
    let view = run_json(&env, &repo, "fan").expect(0).json();
    let branch = text(&view, "branch");
    let mut directories = std::collections::BTreeSet::new();
    for name in names {
        assert_eq!(
            repo.show(branch, &format!("made-by-{name}")),
            format!("{name}\n")
        );
        let directory = attempt_directory(&env, &view, name);
        let said = fs_err::read_to_string(directory.join("result.json")).unwrap();
        assert!(said.contains(&format!("made-by-{name}")), "{said}");
        assert!(!said.contains("2 files"), "{said}");
        assert_eq!(node(&view, name)["changed_files"], 1);
        assert!(directories.insert(directory.parent().unwrap().to_owned()));
    }

    // The refs that keep unpublished work are as many.
    env.lanes(&[(
        "default",
        Lane::Shell(&agent(
            "echo x > \"$MO_NODE_ID\"; [ $MO_NODE_ID != base ] || exit 1",
        )),
    )]);
    // All at once, so that none is left out when one has failed.
    env.mini_ork([
        "run",
        "fan",
        "--max-parallel",
        "16",
        "--repo",
        "repo",
        "kickoff.md",
    ])
    .run()
    .expect(1);
    assert_eq!(repo.refs("refs/mo").len(), names.len());
}

/// What no node may be called.
#[test]
fn bc_74_names_that_are_paths_are_refused() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[]);
    env.lanes(&[("default", Lane::Shell(&agent("echo 42 > answer")))]);
    let too_long = "a".repeat(65);
    for name in [
        "'..'",
        "'.'",
        "''",
        "a/b",
        "A",
        "'a b'",
        "'a\u{301}'",
        "'\\0'",
        &too_long,
    ] {
        fan_recipe(&env, &[name], "");
        let output = run_json(&env, &repo, "fan").expect(2);
        assert!(
            output.errors().contains("workflow.yaml:4"),
            "{}",
            output.transcript()
        );
    }
    assert!(env.runs().is_empty());
}
