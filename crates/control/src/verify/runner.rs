use serde::{Deserialize, Serialize};

/// The program whose output tells what tests ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Runner {
    /// `cargo test`.
    Cargo,
    /// `cargo nextest run`.
    Nextest,
    /// pytest.
    Pytest,
    /// `go test`.
    Go,
    /// A JavaScript runner behind `npm test` and the like: node's own, Jest, Vitest or Mocha.
    Node,
    /// Anything else: only the exit code counts.
    Unknown,
}

impl Runner {
    /// The runner that a shell command starts. A command with several different runners has an
    /// unknown one, since its output cannot be told apart.
    pub fn of_shell(command: &str) -> Self {
        let mut found = Self::Unknown;
        for part in command.split(['&', '|', ';', '\n', '(', ')']) {
            let runner = Self::of_words(&part.split_whitespace().collect::<Vec<_>>());
            if found != Self::Unknown && runner != Self::Unknown && runner != found {
                return Self::Unknown;
            }
            if runner != Self::Unknown {
                found = runner;
            }
        }
        found
    }

    /// Whether the runner always says what it ran, so that silence means that nothing did.
    pub(super) fn always_counts(self) -> bool {
        matches!(self, Self::Cargo | Self::Nextest | Self::Pytest | Self::Go)
    }

    /// Whether an exit code means that there was no test to run.
    pub(super) fn says_no_tests(self, code: i32) -> bool {
        matches!((self, code), (Self::Pytest, 5) | (Self::Nextest, 4))
    }

    fn of_words(words: &[&str]) -> Self {
        let program = words.iter().position(|word| {
            let assignment = word.contains('=') && !word.starts_with('-');
            !assignment && !matches!(*word, "env" | "time" | "exec" | "command")
        });
        let Some((program, rest)) = program.and_then(|at| words[at..].split_first()) else {
            return Self::Unknown;
        };
        let name = program.rsplit('/').next().unwrap_or(program);
        let first = rest.iter().position(is_argument);
        let behind = first.map_or(&[][..], |at| &rest[at + 1..]);
        match (name, first.map(|at| rest[at])) {
            ("cargo", Some("test" | "t")) => Self::Cargo,
            ("cargo", Some("nextest")) => Self::Nextest,
            ("pytest" | "py.test", _) => Self::Pytest,
            ("uv" | "poetry" | "pipenv" | "hatch", Some("run")) => {
                let start = behind.iter().position(is_argument).unwrap_or(behind.len());
                Self::of_words(&behind[start..])
            }
            ("timeout", _) => Self::of_words(behind),
            // `-json` replaces the output that is understood here.
            ("go", Some("test")) if !rest.contains(&"-json") => Self::Go,
            ("npm" | "pnpm" | "yarn", Some("test" | "t")) => Self::Node,
            ("npm" | "pnpm" | "yarn", Some("run")) if behind.contains(&"test") => Self::Node,
            ("node", _) if rest.contains(&"--test") => Self::Node,
            ("npx", Some("jest" | "vitest" | "mocha")) => Self::Node,
            ("jest" | "vitest" | "mocha", _) => Self::Node,
            (python, _) if python.starts_with("python") => {
                let is_pytest = rest.windows(2).any(|pair| pair == ["-m", "pytest"]);
                if is_pytest {
                    Self::Pytest
                } else {
                    Self::Unknown
                }
            }
            _ => Self::Unknown,
        }
    }
}

fn is_argument(word: &&str) -> bool {
    !word.starts_with(['-', '+'])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_runner_of_a_command_is_recognised() {
        let table = [
            ("cargo test -p x", Runner::Cargo),
            ("RUST_BACKTRACE=1 cargo +nightly -q test", Runner::Cargo),
            (
                "cd sub && ~/.cargo/bin/cargo test 2>&1 | tee log",
                Runner::Cargo,
            ),
            ("cargo fmt --check; cargo test", Runner::Cargo),
            ("cargo nextest run", Runner::Nextest),
            ("cargo clippy --all-targets", Runner::Unknown),
            ("pytest -q", Runner::Pytest),
            ("env A=b python3.12 -m pytest tests", Runner::Pytest),
            ("python3 -m unittest", Runner::Unknown),
            ("uv run --frozen pytest", Runner::Pytest),
            ("timeout -k 5 60 go test ./...", Runner::Unknown),
            ("timeout 60 go test ./...", Runner::Go),
            ("go test -json ./...", Runner::Unknown),
            ("npm test", Runner::Node),
            ("pnpm run test", Runner::Node),
            ("node --test", Runner::Node),
            ("npx vitest run", Runner::Node),
            ("make test", Runner::Unknown),
            ("cargo test && go test ./...", Runner::Unknown),
            ("echo cargo test", Runner::Unknown),
            ("", Runner::Unknown),
        ];
        for (command, expected) in table {
            assert_eq!(Runner::of_shell(command), expected, "{command}");
        }
    }

    proptest! {
        #[test]
        fn any_command_has_a_runner(command in "(cargo|uv|run|timeout|test|-|&|;| |\u{e9}){0,30}") {
            let _ = Runner::of_shell(&command);
        }
    }
}
