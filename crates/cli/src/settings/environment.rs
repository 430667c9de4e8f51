use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::{Variables, utf8};
use crate::error::CommandError;

/// Variables of the user that programs of a run may see: who and where they are, their language,
/// their network, and where their tools lie. An allowlist: a token in the shell of whoever starts a
/// run must not reach an agent because nobody thought of its name.
const PASSED: &[&str] = &[
    // Who and where.
    "HOME",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    // Language and terminal.
    "LANG",
    "LANGUAGE",
    "TERM",
    "NO_COLOR",
    // Network and certificates.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "CARGO_HTTP_CAINFO",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    // Where tools lie.
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "GOPATH",
    "GOROOT",
    "GOMODCACHE",
    "GOCACHE",
    "GOFLAGS",
    "GOPROXY",
    "JAVA_HOME",
    "NVM_DIR",
    "NPM_CONFIG_PREFIX",
    "NPM_CONFIG_REGISTRY",
    "PNPM_HOME",
    "PYENV_ROOT",
    "PYTHONHOME",
    "PYTHONPATH",
    "PIP_INDEX_URL",
    "VIRTUAL_ENV",
    "UV_CACHE_DIR",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
];
/// Families of such variables.
const PASSED_PREFIXES: &[&str] = &["LC_"];

/// The environment of this process, read once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Environment {
    variables: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// Reads the environment. Called once, from `main`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where the environment is read"
    )]
    pub(crate) fn read() -> Self {
        Self {
            variables: std::env::vars_os().collect(),
        }
    }

    /// All variables as they are.
    pub(crate) fn all(self) -> Vec<(OsString, OsString)> {
        self.variables.into_iter().collect()
    }

    /// The value of `name`; an empty one counts as unset.
    pub(crate) fn raw(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
            .filter(|value| !value.is_empty())
    }

    /// The value of `name` as a path.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.raw(name).map(PathBuf::from)
    }

    /// The value of `name` as text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, CommandError> {
        self.raw(name).map(|value| utf8(name, value)).transpose()
    }

    /// Whether `name` is a switch that is on: `1`, `true`, `yes` or `on`.
    pub(crate) fn switch(&self, name: &str) -> Result<bool, CommandError> {
        match self.text(name)?.as_deref() {
            None | Some("0" | "false" | "no" | "off") => Ok(false),
            Some("1" | "true" | "yes" | "on") => Ok(true),
            Some(other) => Err(CommandError::usage(format!("{name} is `{other}`"))
                .hint(format!("set {name} to 1 or 0"))),
        }
    }

    /// What programs of a run get of the user's environment.
    pub(crate) fn for_programs(&self) -> Variables {
        self.variables
            .iter()
            .filter(|(name, _)| {
                name.to_str().is_some_and(|name| {
                    PASSED.contains(&name)
                        || PASSED_PREFIXES
                            .iter()
                            .any(|prefix| name.starts_with(prefix))
                })
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    #[cfg(test)]
    pub(crate) fn of(pairs: &[(&str, &str)]) -> Self {
        Self {
            variables: pairs
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value)))
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bc_42_a_token_of_the_shell_does_not_reach_programs() {
        let environment = Environment::of(&[
            ("PATH", "/bin"),
            ("LC_ALL", "C"),
            ("ANTHROPIC_API_KEY", "SENTINEL"),
            ("GITHUB_TOKEN", "SENTINEL"),
            ("MINI_ORK_RUN_DIR", "/other"),
            ("CLAUDE_CODE_SESSION_ID", "x"),
        ]);
        let passed = environment.for_programs();
        let names: Vec<&str> = passed
            .iter()
            .filter_map(|(name, _)| name.to_str())
            .collect();
        assert_eq!(names, ["LC_ALL", "PATH"]);
    }

    #[test]
    fn switches_are_not_guessed() {
        let environment = Environment::of(&[("A", "1"), ("B", "0"), ("C", "maybe"), ("D", "")]);
        assert!(environment.switch("A").unwrap());
        assert!(!environment.switch("B").unwrap());
        assert!(environment.switch("C").is_err());
        assert!(!environment.switch("D").unwrap() && !environment.switch("E").unwrap());
    }
}
