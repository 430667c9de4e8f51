//! Several writers at once: what comes of their work depends on what they did and on the graph,
//! never on who was first.

use mini_ork_control::run::RunEvent;
use mini_ork_testkit::{Lane, Repo, TestEnv, full};
use serde_json::Value;

use crate::support::{
    CHECK, PROJECT, agent, attempt_directory, fan_recipe, journal, new_env, node, text,
};

const WRITERS: [&str; 3] = ["implementer_a", "implementer_b", "implementer_c"];
const ORDERS: [[usize; 3]; 6] = [
    [0, 1, 2],
    [0, 2, 1],
    [1, 0, 2],
    [1, 2, 0],
    [2, 0, 1],
    [2, 1, 0],
];

/// What is compared between orders.
#[derive(Debug, PartialEq, Eq)]
struct Result {
    status: String,
    reason: Value,
    detail: String,
    tree: Value,
    conflicts: Value,
    kept: Vec<String>,
}

/// Runs `recipe` on `files`, with a writer for each of `works` (shell) that end in `order`.
fn run_in_order(
    recipe: &str,
    files: &[(&str, &str)],
    works: &[&str; 3],
    others: &str,
    order: [usize; 3],
) -> (TestEnv, Value, Result) {
    let env = new_env();
    let (view, result) = {
        let repo = env.repo("repo", files);
        env.kickoff("The answer is wrong", &[CHECK]);
        if recipe == "fan" {
            fan_recipe(&env, &WRITERS, "");
        }
        // A writer goes on when the end of the one before it is on record.
        let mut lane = "case $MO_NODE_ID in\n".to_owned();
        for (position, &writer) in order.iter().enumerate() {
            let wait = match position {
                0 => String::new(),
                _ => format!(
                    "until ls \"$MINI_ORK_RUN_DIR\"/nodes/{}-*/1.1/result.json > /dev/null 2>&1; \
                     do sleep 0.01; done; sleep 0.02",
                    WRITERS[order[position - 1]].replace('_', "-")
                ),
            };
            lane.push_str(&format!(
                "{}) cat > /dev/null\n{wait}\n{}\nexit ;;\n",
                WRITERS[writer], works[writer]
            ));
        }
        lane.push_str("esac\n");
        lane.push_str(&agent(others));
        env.lanes(&[("default", Lane::Shell(&lane))]);
        let output = env
            .mini_ork(["run", recipe, "--json", "--repo", "repo", "kickoff.md"])
            .run();
        let view = output.json();
        let run = text(&view, "run");
        let ended: Vec<String> = journal(&env, run)
            .iter()
            .filter_map(|event| match event {
                RunEvent::NodeEnded { node, .. } => Some(node.to_string()),
                _ => None,
            })
            .filter(|node| WRITERS.contains(&node.as_str()))
            .collect();
        let wanted: Vec<String> = order.iter().map(|&at| WRITERS[at].to_owned()).collect();
        assert_eq!(ended, wanted, "{}", output.transcript());
        let conflicts = env
            .mini_ork(["conflicts", run, "--json"])
            .run()
            .expect(0)
            .json();
        let kept = repo
            .refs("refs/mo")
            .iter()
            .map(|name| {
                let tree = repo.git(["rev-parse", &format!("{name}^{{tree}}")]);
                format!("{} {tree}", name.rsplit('/').next().unwrap())
            })
            .collect();
        let result = Result {
            status: text(&view, "status").to_owned(),
            reason: view["reason"].clone(),
            detail: text(&view, "detail").replace(run, "RUN"),
            tree: view["result_tree"].clone(),
            conflicts: conflicts["conflicts"].clone(),
            kept,
        };
        (view, result)
    };
    (env, view, result)
}

#[test]
fn bc_62_parts_that_do_not_meet_are_joined_the_same_in_any_order() {
    let files: &[(&str, &str)] = &[
        ("answer", "41\n"),
        ("check.sh", "test \"$(cat answer)\" = 42\n"),
        ("long", "1\n2\n3\n4\n5\n6\n7\n8\n9\n"),
    ];
    let works = [
        "sed -i 's/^1$/one/' long; echo a > from-a; echo 42 > answer",
        "sed -i 's/^9$/nine/' long; mkdir d; echo b > d/from-b",
        "sed -i 's/^5$/five/' long; git mv check.sh check.sh 2> /dev/null; chmod +x check.sh",
    ];
    let mut first = None;
    for order in ORDERS {
        let (env, view, result) = run_in_order("parallel-fix", files, &works, "", order);
        assert_eq!(result.status, "published", "{view:#}");
        assert_eq!(text(node(&view, "merge"), "state"), "skipped", "{view:#}");
        let repo = Repo::at(&env, &env.root().join("repo"));
        let branch = text(&view, "branch");
        assert_eq!(
            repo.show(branch, "long"),
            "one\n2\n3\n4\nfive\n6\n7\n8\nnine\n"
        );
        assert_eq!(first.get_or_insert(result.tree.clone()), &result.tree);
    }
}

#[test]
fn bc_62_conflicts_are_the_same_in_any_order_and_stop_the_run() {
    let works = [
        "echo from a > answer; echo a > new",
        "echo from b > answer",
        "rm README.md; echo c > new",
    ];
    let mut first = None;
    for order in ORDERS {
        let (env, view, result) = run_in_order("fan", PROJECT, &works, "", order);
        assert_eq!(result.reason, "merge_conflict", "{view:#}");
        let conflicts = result.conflicts.as_array().unwrap();
        assert_eq!(conflicts.len(), 2, "{:#}", result.conflicts);
        let answer = &conflicts[0];
        assert_eq!(text(answer, "path"), "answer");
        assert_eq!(answer["ours_nodes"], serde_json::json!([WRITERS[0]]));
        assert_eq!(text(answer, "theirs_node"), WRITERS[1]);
        assert_eq!(text(&answer["base"], "content"), "41\n");
        assert_eq!(text(&answer["ours"], "content"), "from a\n");
        assert_eq!(text(&answer["theirs"], "content"), "from b\n");
        assert_eq!(text(&conflicts[1], "theirs_node"), WRITERS[2]);
        assert_eq!(result.kept.len(), 3, "nothing of it is lost");
        env.assert_no_process();
        match &first {
            None => first = Some(result),
            Some(first) => assert_eq!(&result, first),
        }
    }
}

#[test]
fn bc_62_a_merge_node_gets_the_conflicts_and_resolves_them() {
    let works = [
        "echo from a > answer; echo a > from-a",
        "echo from b > answer; echo b > from-b",
        "echo c > from-c",
    ];
    let mut first = None;
    for order in [ORDERS[0], ORDERS[5]] {
        let (env, view, result) = run_in_order(
            "parallel-fix",
            PROJECT,
            &works,
            "cp answer seen; echo 42 > answer",
            order,
        );
        assert_eq!(result.status, "published", "{view:#}");
        let prompt = attempt_directory(&env, &view, "merge").join("prompt.md");
        let prompt = fs_err::read_to_string(prompt).unwrap();
        assert!(
            prompt.contains("answer") && prompt.contains("(implementer_a against implementer_b)"),
            "{prompt}"
        );
        let repo = Repo::at(&env, &env.root().join("repo"));
        let seen = repo.show(text(&view, "branch"), "seen");
        assert!(seen.contains("from a") && seen.contains("from b") && seen.contains("<<<<<<<"));
        assert_eq!(first.get_or_insert(result.tree.clone()), &result.tree);
    }

    // One that leaves the markers has not resolved anything.
    let (_env, view, result) =
        run_in_order("parallel-fix", PROJECT, &works, "echo x > other", ORDERS[0]);
    assert_eq!(result.reason, "merge_conflict", "{view:#}");
    assert!(
        result.detail.contains("markers are left in answer"),
        "{}",
        result.detail
    );
}

/// One deleted what another changed, and the merge node leaves what the merge kept.
#[test]
fn bc_62_a_merge_node_may_leave_a_file_as_it_is() {
    let files: Vec<(&str, &str)> = PROJECT.iter().copied().chain([("spare", "1\n")]).collect();
    let works = [
        "echo 42 > answer; echo 2 > spare",
        "rm spare; echo b > from-b",
        "echo c > from-c",
    ];
    let (env, view, result) = run_in_order("parallel-fix", &files, &works, "true", ORDERS[0]);
    assert_eq!(result.status, "published", "{view:#}");
    let repo = Repo::at(&env, &env.root().join("repo"));
    assert_eq!(repo.show(text(&view, "branch"), "spare"), "2\n");
}

/// Asserts that the work of two writers conflicts as said, in both orders.
fn assert_kind(kind: &str, path: &str, a: &str, b: &str) {
    let files: &[(&str, &str)] = &[
        ("file", "one\ntwo\nthree\nfour\nfive\nsix\n"),
        ("binary", "\0\u{1}\u{2}\n"),
        ("other", "other\n"),
    ];
    let [first, second] = [[0, 1, 2], [1, 0, 2]].map(|order| {
        let (_env, view, result) = run_in_order("fan", files, &[a, b, "true"], "", order);
        assert_eq!(result.reason, "merge_conflict", "{kind}: {view:#}");
        let conflict = &result.conflicts[0];
        assert_eq!(text(conflict, "kind"), kind, "{:#}", result.conflicts);
        assert_eq!(text(conflict, "path"), path, "{:#}", result.conflicts);
        result
    });
    assert_eq!(first, second, "{kind}");
}

#[test]
fn bc_62_conflicts_of_content() {
    let change = |to: &str| format!("sed -i s/three/{to}/ file");
    assert_kind("content", "file", &change("3"), &change("drei"));
    assert_kind("add_add", "new", "echo a > new", "echo b > new");
    assert_kind(
        "binary",
        "binary",
        "printf '\\000a' > binary",
        "printf '\\000b' > binary",
    );
}

#[test]
fn bc_62_conflicts_of_names() {
    assert_kind("modify_delete", "file", "echo more >> file", "rm file");
    assert_kind("rename_rename", "file", "mv file a", "mv file b");
    assert_kind("rename_delete", "file", "mv file a", "rm file");
}

#[test]
fn bc_62_conflicts_of_types() {
    assert_kind("mode", "new", "echo a > new; chmod +x new", "echo a > new");
    assert_kind(
        "type_change",
        "file",
        "ln -sf other file",
        "echo more >> file",
    );
    assert_kind("type_change", "new", "echo x > new", "ln -s other new");
    assert_kind(
        "directory_file",
        "new",
        "echo a > new",
        "mkdir new; echo b > new/b",
    );
}

/// Edits by three writers, made up from a number.
fn edits(seed: u64) -> [String; 3] {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    WRITERS.map(|writer| {
        let mut work = format!("echo {writer} > mark-{writer}\n");
        for _ in 0..3 {
            let (file, line, other) = (next(3), next(12) + 1, next(3));
            let step = match next(8) {
                0..=3 => format!("sed -i '{line}s/.*/{writer} {line}/' f{file}"),
                4 => format!("rm -f f{file}"),
                5 => format!("echo {writer} > new{other}"),
                6 => format!("mv f{file} moved{other}"),
                _ => format!("rm -f f{file}; ln -s f{other} f{file}"),
            };
            work.push_str(&step);
            work.push_str(" 2> /dev/null\n");
        }
        work.push_str("true");
        work
    })
}

fn assert_order_does_not_matter(seed: u64) {
    let lines: String = (1..=12).map(|line| format!("line {line}\n")).collect();
    let files = [("f0", lines.as_str()), ("f1", &lines), ("f2", "short\n")];
    let works = edits(seed);
    let works = [works[0].as_str(), &works[1], &works[2]];
    let mut first = None;
    for order in ORDERS {
        let (_env, view, result) = run_in_order("fan", &files, &works, "", order);
        assert!(
            result.status == "published" || result.reason == "merge_conflict",
            "seed {seed}: {view:#}"
        );
        match &first {
            None => first = Some(result),
            Some(first) => assert_eq!(&result, first, "seed {seed}"),
        }
    }
}

#[test]
fn bc_62_the_order_of_any_edits_does_not_matter() {
    assert_order_does_not_matter(1);
    assert_order_does_not_matter(4);
}

#[test]
fn full_bc_62_the_order_of_many_edits_does_not_matter() {
    if full() {
        for seed in 100..140 {
            assert_order_does_not_matter(seed);
        }
    }
}
