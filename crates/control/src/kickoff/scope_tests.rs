use super::*;

fn scope(sections: &str) -> Scope {
    Kickoff::parse(format!("# T\n{sections}").as_bytes(), "k")
        .unwrap()
        .scope
}

fn permits(scope: &Scope, path: &str) -> bool {
    scope.violations(&[path]).is_empty()
}

#[test]
fn a_path_covers_itself_and_what_is_below() {
    let table = [
        ("src", "src", true),
        ("src", "src/a/b.rs", true),
        ("src", "src2/a", false),
        ("src/", "src/a", true),
        ("src/", "src", false),
        ("./src//a.rs", "src/a.rs", true),
        ("./", "anything/at all", true),
        ("src/*.rs", "src/a.rs", true),
        ("src/*.rs", "src/a/b.rs", false),
        ("src/**/*.rs", "src/a/b.rs", true),
        ("crates/*/src", "crates/x/src/deep/a", true),
        ("crates/*/src", "crates/x/y/src/a", false),
        ("*.md", "README.md", true),
        ("*.md", "docs/README.md", false),
        ("**/*.md", "docs/README.md", true),
        ("{a,b}/c", "b/c", true),
        ("app/[id]/page.tsx", "app/[id]/page.tsx", true),
        ("app/[id", "app/[id", true),
        ("Src", "src", false),
    ];
    for (pattern, path, expected) in table {
        let scope = scope(&format!("## Scope\n- `{pattern}`\n"));
        assert_eq!(permits(&scope, path), expected, "{pattern} and {path}");
    }
}

#[test]
fn out_of_scope_wins_and_names_its_rule() {
    let scope =
        scope("## Scope\n- src/\n## Forbidden\n- none of the schema: `src/schema.rs`\n- *.lock\n");
    let violations = scope.violations(&["src/a.rs", "src/schema.rs", "docs/x", "a.lock"]);
    let shown: Vec<String> = violations.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            "`src/schema.rs` is out of scope by `src/schema.rs` (kickoff line 5)",
            "`docs/x` is not in scope (kickoff line 3)",
            "`a.lock` is out of scope by `*.lock` (kickoff line 6)",
        ]
    );
}

#[test]
fn without_paths_in_scope_only_the_forbidden_is_refused() {
    let scope = scope("## Out of scope\n- vendor/\n");
    assert!(permits(&scope, "src/a") && !permits(&scope, "vendor/a"));
    assert!(permits(&Scope::default(), "anything"));
}

#[test]
fn a_path_that_is_no_text_is_never_in_scope_but_can_be_forbidden() {
    let bytes: &[u8] = b"src/\xff.rs";
    for pattern in ["src", "**", "./", "src/*"] {
        let scope = scope(&format!("## Scope\n- `{pattern}`\n"));
        let violations = scope.violations(&[bytes]);
        assert_eq!(violations.len(), 1, "{pattern}");
        assert_eq!(violations[0].breach, Breach::OutOfScope);
    }
    for pattern in ["src", "src/*", "src/**", "**/*.rs"] {
        let scope = scope(&format!("## Forbidden\n- `{pattern}`\n"));
        assert_eq!(
            scope.violations(&[bytes])[0].breach,
            Breach::Forbidden(pattern.to_owned())
        );
    }
}

#[test]
fn prose_in_a_scope_allows_nothing() {
    let scope = scope(
        "## Scope\n- `src/a.rs`, src/b.rs and `src/c.rs` (see `src/d.rs`)\n- fix `src/e.rs`\nOnly `src/f.rs` too.\n\n```\nsrc/g.rs\n```\nsrc/h.rs\n\nOut of scope:\n- nothing\n",
    );
    let allowed: Vec<&str> = ["a", "b", "c", "d", "e", "f", "g", "h"]
        .into_iter()
        .filter(|name| permits(&scope, &format!("src/{name}.rs")))
        .collect();
    assert_eq!(allowed, ["a", "b", "c", "g", "h"]);
}

#[test]
fn items_below_a_label_count_for_the_label() {
    let scope = scope("## Scope\n- src/\n\n**Forbidden:**\n- src/x\n\n### In scope\n- docs\n");
    assert!(permits(&scope, "src/y") && permits(&scope, "docs/a") && !permits(&scope, "src/x/a"));
}

#[test]
fn a_scope_is_bounded_and_its_globs_are_checked() {
    let many = "- a\n".repeat(501);
    let error = Kickoff::parse(format!("# T\n## Scope\n{many}").as_bytes(), "k").unwrap_err();
    assert_eq!(error.problem, KickoffProblem::TooManyPaths { limit: 500 });
    assert_eq!(error.line, Some(503));
    let glob = Kickoff::parse(b"# T\n## Scope\n- `src/{a,b`\n", "k").unwrap_err();
    assert!(
        glob.to_string()
            .starts_with("k:3: `src/{a,b` is not a path or glob: "),
        "{glob}"
    );
}
