use serde::{Deserialize, Serialize};

use super::Runner;

/// What npm writes into a new package: it fails and tests nothing.
const NPM_PLACEHOLDER: &str = "no test specified";

/// The commands that check a tree, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestPlan {
    /// Never empty; each is run, also when one before it failed.
    pub commands: Vec<TestCommand>,
    /// Where the commands come from: `the kickoff`, or the file that showed them.
    pub found_by: String,
}

/// One command, run at the top of the tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCommand {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// How its output is read.
    pub runner: Runner,
}

/// The commands that test a tree: those of the kickoff, else what the files at its top show; none
/// when nothing is known about it.
///
/// `paths` are all files of the tree, relative to its top, and `read` gives the content of one.
pub fn detect_tests<P: AsRef<[u8]>>(
    verification: &[String],
    paths: &[P],
    read: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Option<TestPlan> {
    if !verification.is_empty() {
        let commands = verification.iter().map(|command| TestCommand {
            argv: ["sh", "-c", command].map(str::to_owned).to_vec(),
            runner: Runner::of_shell(command),
        });
        return Some(TestPlan {
            commands: commands.collect(),
            found_by: "the kickoff".to_owned(),
        });
    }
    let tree = Tree { paths, read };
    tree.cargo_tests()
        .or_else(|| tree.pytest())
        .or_else(|| tree.package_script())
        .or_else(|| tree.find("go.mod", &["go", "test", "-v", "./..."], Runner::Go))
        .or_else(|| tree.make_target())
}

/// The command that shows whether a tree compiles; none when its language has no such check.
pub fn detect_typecheck<P: AsRef<[u8]>>(
    paths: &[P],
    read: &dyn Fn(&str) -> Option<Vec<u8>>,
) -> Option<TestPlan> {
    let tree = Tree { paths, read };
    let find = |file, argv: &[&str]| tree.find(file, argv, Runner::Unknown);
    let python = ["python3", "-m", "compileall", "-q", "."];
    find("Cargo.toml", &["cargo", "check", "--all-targets"])
        .or_else(|| find("tsconfig.json", &["npx", "--no-install", "tsc", "--noEmit"]))
        .or_else(|| find("go.mod", &["go", "vet", "./..."]))
        .or_else(|| {
            let projects = [
                "pyproject.toml",
                "setup.py",
                "setup.cfg",
                "requirements.txt",
            ];
            projects.into_iter().find_map(|file| find(file, &python))
        })
        .or_else(|| {
            let is_python = |path: &[u8]| path.ends_with(b".py") && !path.contains(&b'/');
            tree.any(is_python)
                .then(|| plan("*.py", &python, Runner::Unknown))
        })
}

struct Tree<'a, P> {
    paths: &'a [P],
    read: &'a dyn Fn(&str) -> Option<Vec<u8>>,
}

impl<P: AsRef<[u8]>> Tree<'_, P> {
    fn any(&self, matches: impl Fn(&[u8]) -> bool) -> bool {
        self.paths.iter().any(|path| matches(path.as_ref()))
    }

    fn has(&self, file: &str) -> bool {
        self.any(|path| path == file.as_bytes())
    }

    fn find(&self, file: &str, argv: &[&str], runner: Runner) -> Option<TestPlan> {
        self.has(file).then(|| plan(file, argv, runner))
    }

    /// Whether a line of `file` begins with one of `starts`.
    fn has_line(&self, file: &str, starts: &[&str]) -> bool {
        if !self.has(file) {
            return false;
        }
        let bytes = (self.read)(file).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        text.lines()
            .any(|line| starts.iter().any(|start| line.trim().starts_with(start)))
    }

    fn cargo_tests(&self) -> Option<TestPlan> {
        let mut argv = vec!["cargo", "test", "--no-fail-fast"];
        if self.has_line("Cargo.toml", &["[workspace]", "[workspace."]) {
            argv.push("--workspace");
        }
        self.find("Cargo.toml", &argv, Runner::Cargo)
    }

    fn pytest(&self) -> Option<TestPlan> {
        let configured = [
            ("pytest.ini", ""),
            ("pyproject.toml", "[tool.pytest"),
            ("setup.cfg", "[tool:pytest]"),
            ("tox.ini", "[pytest]"),
        ];
        let argv = ["python3", "-m", "pytest", "-rA", "-q"];
        let file = configured.into_iter().find_map(|(file, section)| {
            let found = if section.is_empty() {
                self.has(file)
            } else {
                self.has_line(file, &[section])
            };
            found.then_some(file)
        });
        let is_test = |path: &[u8]| {
            let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
            let in_place =
                path.starts_with(b"tests/") || path.starts_with(b"test/") || name == path;
            in_place
                && name.ends_with(b".py")
                && (name.starts_with(b"test_") || name.ends_with(b"_test.py"))
        };
        let file = file.or_else(|| self.any(is_test).then_some("test_*.py"));
        file.map(|file| plan(file, &argv, Runner::Pytest))
    }

    fn package_script(&self) -> Option<TestPlan> {
        if !self.has("package.json") {
            return None;
        }
        let package: serde_json::Value =
            serde_json::from_slice(&(self.read)("package.json")?).ok()?;
        let script = package.get("scripts")?.get("test")?.as_str()?.trim();
        if script.is_empty() || script.contains(NPM_PLACEHOLDER) {
            return None;
        }
        let manager = if self.has("pnpm-lock.yaml") {
            "pnpm"
        } else {
            "npm"
        };
        Some(plan("package.json", &[manager, "test"], Runner::Node))
    }

    fn make_target(&self) -> Option<TestPlan> {
        for file in ["GNUmakefile", "makefile", "Makefile"] {
            if !self.has(file) {
                continue;
            }
            let bytes = (self.read)(file).unwrap_or_default();
            let text = String::from_utf8_lossy(&bytes);
            for target in ["test", "check"] {
                if text.lines().any(|line| is_rule_for(line, target)) {
                    return Some(plan(file, &["make", target], Runner::Unknown));
                }
            }
            // make reads the first of them and no other.
            return None;
        }
        None
    }
}

fn plan(found_by: &str, argv: &[&str], runner: Runner) -> TestPlan {
    let argv = argv.iter().map(|&word| word.to_owned()).collect();
    TestPlan {
        commands: vec![TestCommand { argv, runner }],
        found_by: found_by.to_owned(),
    }
}

fn is_rule_for(line: &str, target: &str) -> bool {
    let Some((targets, rest)) = line.split_once(':') else {
        return false;
    };
    !line.starts_with([' ', '\t', '#'])
        && !rest.starts_with('=')
        && targets.split_whitespace().any(|word| word == target)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    type Files<'a> = BTreeMap<&'a str, &'a str>;

    fn shown(plan: Option<TestPlan>) -> String {
        let Some(plan) = plan else {
            return "none".to_owned();
        };
        let commands: Vec<String> = plan
            .commands
            .iter()
            .map(|command| format!("{} ({:?})", command.argv.join(" "), command.runner))
            .collect();
        format!("{}: {}", plan.found_by, commands.join(", "))
    }

    fn tests_of(files: &Files<'_>, verification: &[&str]) -> String {
        let paths: Vec<&str> = files.keys().copied().collect();
        let verification: Vec<String> = verification.iter().map(|&text| text.to_owned()).collect();
        let read = |path: &str| files.get(path).map(|text| text.as_bytes().to_vec());
        shown(detect_tests(&verification, &paths, &read))
    }

    fn typecheck_of(files: &Files<'_>) -> String {
        let paths: Vec<&str> = files.keys().copied().collect();
        shown(detect_typecheck(&paths, &|path| {
            files.get(path).map(|text| text.as_bytes().to_vec())
        }))
    }

    #[test]
    fn the_first_ecosystem_that_fits_tests_the_tree() {
        let npm = r#"{"scripts":{"test":"jest"}}"#;
        let empty = r#"{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"}}"#;
        let pytest = "python3 -m pytest -rA -q (Pytest)";
        let table: Vec<(Vec<(&str, &str)>, String)> = vec![
            (
                vec![("Cargo.toml", "[package]\n"), ("package.json", npm)],
                "Cargo.toml: cargo test --no-fail-fast (Cargo)".to_owned(),
            ),
            (
                vec![("Cargo.toml", " [workspace]\r\n")],
                "Cargo.toml: cargo test --no-fail-fast --workspace (Cargo)".to_owned(),
            ),
            (vec![("a/Cargo.toml", "")], "none".to_owned()),
            (vec![("pytest.ini", "")], format!("pytest.ini: {pytest}")),
            (
                vec![("pyproject.toml", "[tool.pytest.ini_options]")],
                format!("pyproject.toml: {pytest}"),
            ),
            (vec![("pyproject.toml", "[project]")], "none".to_owned()),
            (
                vec![("setup.cfg", "[tool:pytest]")],
                format!("setup.cfg: {pytest}"),
            ),
            (vec![("tox.ini", "[pytest]")], format!("tox.ini: {pytest}")),
            (
                vec![("tests/unit/test_a.py", "")],
                format!("test_*.py: {pytest}"),
            ),
            (vec![("test_a.py", "")], format!("test_*.py: {pytest}")),
            (
                vec![("src/test_a.py", ""), ("tests/a.py", "")],
                "none".to_owned(),
            ),
            (
                vec![("package.json", npm)],
                "package.json: npm test (Node)".to_owned(),
            ),
            (
                vec![("package.json", npm), ("pnpm-lock.yaml", "")],
                "package.json: pnpm test (Node)".to_owned(),
            ),
            (
                vec![("package.json", empty), ("go.mod", "")],
                "go.mod: go test -v ./... (Go)".to_owned(),
            ),
            (
                vec![("package.json", "{"), ("Makefile", "all test: x\n")],
                "Makefile: make test (Unknown)".to_owned(),
            ),
            (
                vec![("Makefile", "check:\n\ttest: x\n")],
                "Makefile: make check (Unknown)".to_owned(),
            ),
            (
                vec![("Makefile", "test := 1\n#check: x\n.PHONY: test\n")],
                "none".to_owned(),
            ),
            (
                vec![("makefile", ""), ("Makefile", "test:\n")],
                "none".to_owned(),
            ),
            (vec![], "none".to_owned()),
        ];
        for (files, expected) in table {
            assert_eq!(
                tests_of(&files.iter().copied().collect(), &[]),
                expected,
                "{files:?}"
            );
        }
    }

    #[test]
    fn the_kickoff_comes_first() {
        let files = Files::from([("Cargo.toml", "")]);
        assert_eq!(
            tests_of(&files, &["pytest -x", "./check.sh"]),
            "the kickoff: sh -c pytest -x (Pytest), sh -c ./check.sh (Unknown)"
        );
    }

    #[test]
    fn each_language_has_its_typecheck_or_none() {
        let table = [
            (
                "Cargo.toml",
                "Cargo.toml: cargo check --all-targets (Unknown)",
            ),
            (
                "tsconfig.json",
                "tsconfig.json: npx --no-install tsc --noEmit (Unknown)",
            ),
            ("go.mod", "go.mod: go vet ./... (Unknown)"),
            ("setup.py", "setup.py: python3 -m compileall -q . (Unknown)"),
            ("a.py", "*.py: python3 -m compileall -q . (Unknown)"),
            ("src/a.py", "none"),
            ("package.json", "none"),
        ];
        for (file, expected) in table {
            assert_eq!(typecheck_of(&Files::from([(file, "")])), expected);
        }
    }
}
