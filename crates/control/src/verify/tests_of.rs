use std::collections::BTreeMap;

use bstr::{BStr, BString, ByteSlice};

use super::rust_tests::{Split, Unsplit};

/// How a path differs between the base and the result. A renamed file is deleted and added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Only in the result.
    Added,
    /// In both, different.
    Modified,
    /// Only in the base.
    Deleted,
}

/// One of the two trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Before the work.
    Base,
    /// After the work.
    Result,
}

/// What makes the base tree into the base with the tests of the result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestOverlay {
    /// Edits of the base tree, by path.
    pub edits: BTreeMap<BString, Edit>,
    /// Files with tests that were added or changed; every one of them has an edit.
    pub changed: Vec<BString>,
    /// Test files that are gone.
    pub removed: Vec<BString>,
    /// New Rust files that hold code together with its tests. The base has neither, so there is
    /// nothing to run them against.
    pub new_sources: Vec<BString>,
    /// What could not be told apart, one sentence for each file.
    pub notes: Vec<String>,
}

/// One edit of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// The file as it is in the result, with its mode.
    FromResult,
    /// This content, with the mode that the file has in the base.
    Content(Vec<u8>),
    /// No file.
    Delete,
}

/// Sorts out which of `changes` are tests, and how they are put on the base.
///
/// A file is a test by its path, see [`is_test_path`]. A Rust file outside of such a path is both:
/// its `#[cfg(test)]` modules are tests and the rest is code. Where that cannot be told apart
/// without guessing, the file is taken as code and a note says so.
///
/// `read` gives the content of a file of one of the trees, and is called for Rust files only; its
/// error ends the work.
pub fn overlay<E>(
    changes: &[(BString, Change)],
    mut read: impl FnMut(Side, &BStr) -> Result<Option<Vec<u8>>, E>,
) -> Result<TestOverlay, E> {
    let mut overlay = TestOverlay::default();
    for (path, change) in changes {
        match (is_test_path(path), change) {
            (true, Change::Deleted) => {
                overlay.edits.insert(path.clone(), Edit::Delete);
                overlay.removed.push(path.clone());
            }
            (true, _) => {
                overlay.edits.insert(path.clone(), Edit::FromResult);
                overlay.changed.push(path.clone());
            }
            (false, Change::Deleted) => {}
            (false, _) if !path.ends_with(b".rs") => {}
            (false, Change::Added) => {
                let result = read(Side::Result, path.as_bstr())?.unwrap_or_default();
                let text = result.to_str_lossy();
                let has_tests = match Split::of(&text) {
                    Ok(split) => !split.tests().is_empty(),
                    Err(reason) => reason != Unsplit::NotRust,
                };
                if has_tests {
                    overlay.new_sources.push(path.clone());
                }
            }
            (false, Change::Modified) => {
                let base = read(Side::Base, path.as_bstr())?.unwrap_or_default();
                let result = read(Side::Result, path.as_bstr())?.unwrap_or_default();
                overlay.add_rust(path, &base, &result);
            }
        }
    }
    Ok(overlay)
}

impl TestOverlay {
    fn add_rust(&mut self, path: &BString, base: &[u8], result: &[u8]) {
        let texts = base.to_str().ok().zip(result.to_str().ok());
        let splits = match texts {
            Some((base, result)) => Split::of(base).and_then(|base| Ok((base, Split::of(result)?))),
            None => Err(Unsplit::NotRust),
        };
        match splits {
            Ok((base, result)) if base.tests() == result.tests() => {}
            Ok((base, result)) => {
                let content = base.with_tests_of(&result).into_bytes();
                self.edits.insert(path.clone(), Edit::Content(content));
                self.changed.push(path.clone());
            }
            Err(reason) => self.notes.push(format!(
                "`{path}` is taken as code: its tests cannot be told from it, {}",
                reason.reason()
            )),
        }
    }
}

/// Whether a path is one at which the usual tools of its language look for tests or what tests
/// read: fixtures and snapshots decide over a result as much as assertions do.
pub fn is_test_path(path: &[u8]) -> bool {
    let Ok(path) = path.to_str() else {
        return false;
    };
    let (directories, name) = path.rsplit_once('/').unwrap_or(("", path));
    let in_test_directory = directories.split('/').any(|part| {
        matches!(
            part,
            "tests" | "test" | "__tests__" | "__snapshots__" | "spec" | "testdata"
        )
    });
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let by_name = match extension {
        "py" => stem.starts_with("test_") || stem.ends_with("_test") || stem == "conftest",
        "go" => stem.ends_with("_test"),
        "rs" => {
            matches!(stem, "test" | "tests") || stem.ends_with("_test") || stem.ends_with("_tests")
        }
        "js" | "jsx" | "ts" | "tsx" | "mjs" | "cjs" | "mts" | "cts" => {
            stem.ends_with(".test") || stem.ends_with(".spec")
        }
        "rb" => stem.ends_with("_spec") || stem.ends_with("_test"),
        "java" | "kt" | "cs" => stem.ends_with("Test") || stem.ends_with("Tests"),
        "snap" | "bats" => true,
        _ => false,
    };
    in_test_directory || by_name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_found_by_the_rules_of_their_language() {
        let tests = [
            "tests/it/main.rs",
            "crates/x/tests/data/a.json",
            "src/foo_tests.rs",
            "src/tests.rs",
            "test_a.py",
            "pkg/a_test.py",
            "pkg/conftest.py",
            "pkg/a_test.go",
            "pkg/testdata/x",
            "web/a.test.ts",
            "web/a.spec.mjs",
            "web/__tests__/a.js",
            "src/snapshots/a.snap",
            "spec/a_spec.rb",
            "src/test/java/ATest.java",
        ];
        for path in tests {
            assert!(is_test_path(path.as_bytes()), "{path}");
        }
        let code = [
            "src/main.rs",
            "src/testing.rs",
            "benches/a.rs",
            "attest.py",
            "src/latest.go",
            "contest/a.py",
            "a.test.md",
            "Cargo.toml",
            "testkit/a.rs",
            "tests",
        ];
        for path in code {
            assert!(!is_test_path(path.as_bytes()), "{path}");
        }
        assert!(!is_test_path(b"tests/\xff"));
    }

    type Tree = BTreeMap<&'static str, &'static str>;

    fn overlay_of(base: &Tree, result: &Tree) -> TestOverlay {
        let mut changes = Vec::new();
        for path in base
            .keys()
            .chain(result.keys().filter(|path| !base.contains_key(*path)))
        {
            let change = match (base.get(path), result.get(path)) {
                (Some(old), Some(new)) if old == new => continue,
                (Some(_), Some(_)) => Change::Modified,
                (Some(_), None) => Change::Deleted,
                _ => Change::Added,
            };
            changes.push((BString::from(*path), change));
        }
        let read = |side: Side, path: &BStr| {
            let tree = if side == Side::Base { base } else { result };
            Ok::<_, ()>(
                tree.get(path.to_str().unwrap())
                    .map(|text| text.as_bytes().to_vec()),
            )
        };
        overlay(&changes, read).unwrap()
    }

    #[test]
    fn the_base_gets_the_tests_and_keeps_its_code() {
        let base = Tree::from([
            ("src/a.rs", "fn a() {}\n#[cfg(test)]\nmod tests { 1 }\n"),
            ("src/b.rs", "fn b() {}\n#[cfg(test)]\nmod tests { 1 }\n"),
            ("src/c.rs", "#[test]\nfn c() {}\n"),
            ("src/d.py", "x"),
            ("tests/gone.rs", ""),
            ("tests/kept.rs", "1"),
        ]);
        let result = Tree::from([
            ("src/a.rs", "fn a2() {}\n#[cfg(test)]\nmod tests { 2 }\n"),
            ("src/b.rs", "fn b2() {}\n#[cfg(test)]\nmod tests { 1 }\n"),
            ("src/c.rs", "#[test]\nfn c2() {}\n"),
            ("src/d.py", "y"),
            ("src/new.rs", "fn n() {}\n#[cfg(test)]\nmod tests { }\n"),
            ("src/plain.rs", "fn p() {}\n"),
            ("tests/kept.rs", "2"),
            ("tests/new.rs", "3"),
        ]);
        let overlay = overlay_of(&base, &result);
        let content = b"fn a() {}\n#[cfg(test)]\nmod tests { 2 }\n".to_vec();
        let edits = [
            ("src/a.rs", Edit::Content(content)),
            ("tests/gone.rs", Edit::Delete),
            ("tests/kept.rs", Edit::FromResult),
            ("tests/new.rs", Edit::FromResult),
        ];
        assert_eq!(
            overlay.edits,
            edits.map(|(path, edit)| (BString::from(path), edit)).into()
        );
        assert_eq!(
            overlay.changed,
            ["src/a.rs", "tests/kept.rs", "tests/new.rs"]
        );
        assert_eq!(overlay.removed, ["tests/gone.rs"]);
        assert_eq!(overlay.new_sources, ["src/new.rs"]);
        assert_eq!(
            overlay.notes,
            [
                "`src/c.rs` is taken as code: its tests cannot be told from it, it has tests outside of a `#[cfg(test)]` module at its top level"
            ]
        );
    }

    #[test]
    fn an_error_of_the_reader_is_passed_on() {
        let changes = [(BString::from("a.rs"), Change::Modified)];
        assert_eq!(overlay(&changes, |_, _| Err("gone")), Err("gone"));
    }
}
