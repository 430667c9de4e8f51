//! From what was typed, the environment and files to plain values. After this nobody reads the
//! environment or the home directory again.

mod environment;
mod limits;
mod models;
mod network;
mod profile;
mod run;
mod sandbox;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use mini_ork_control::run::SettingRecord;

pub(crate) use environment::Environment;
pub(crate) use limits::{parse_duration, parse_money, parse_size};
pub(crate) use network::Network;
pub(crate) use profile::{Profile, Surroundings};
pub(crate) use run::{RunSettings, boundaries, daily_budget};

use crate::cli::GlobalArgs;
use crate::env_vars;
use crate::error::CommandError;

/// A value with where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Setting<T> {
    pub(crate) name: &'static str,
    pub(crate) value: T,
    pub(crate) source: Source,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// A flag.
    Flag(&'static str),
    /// An environment variable.
    Variable(&'static str),
    /// A file of configuration, at the place that is named.
    File(String),
    /// Neither was given.
    Default,
    /// It follows from something else, as said.
    Derived(&'static str),
}

impl<T> Setting<T> {
    pub(crate) fn new(name: &'static str, value: T, source: Source) -> Self {
        Self {
            name,
            value,
            source,
        }
    }

    /// The setting for a run's record, with its value as `shown`.
    pub(crate) fn record(&self, shown: impl Into<String>) -> SettingRecord {
        SettingRecord {
            name: self.name.to_owned(),
            value: shown.into(),
            source: self.source.to_string(),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Flag(flag) => write!(formatter, "flag {flag}"),
            Self::Variable(name) => write!(formatter, "variable {name}"),
            Self::File(place) => write!(formatter, "file {place}"),
            Self::Default => formatter.write_str("default"),
            Self::Derived(why) => formatter.write_str(why),
        }
    }
}

/// What every command needs.
#[derive(Debug)]
pub(crate) struct GlobalSettings {
    pub(crate) environment: Environment,
    pub(crate) home: Setting<PathBuf>,
    pub(crate) current_directory: PathBuf,
    /// This program, as it can be started again.
    pub(crate) program: PathBuf,
}

impl GlobalSettings {
    /// Resolves what every command needs.
    pub(crate) fn resolve(
        args: &GlobalArgs,
        environment: Environment,
    ) -> Result<Self, CommandError> {
        let current_directory = std::env::current_dir().map_err(|error| {
            CommandError::failure("the current directory cannot be used").caused_by(&error)
        })?;
        let home = resolve_home(args, &environment, &current_directory)?;
        let program = std::env::current_exe().map_err(|error| {
            CommandError::failure("mini-ork cannot find its own program").caused_by(&error)
        })?;
        Ok(Self {
            environment,
            home,
            current_directory,
            program,
        })
    }

    /// The repository that a flag or a variable names.
    pub(crate) fn repository_choice(&self, flag: Option<&Path>) -> Option<Setting<PathBuf>> {
        const NAME: &str = "repository";
        if let Some(path) = flag {
            let path = self.current_directory.join(path);
            return Some(Setting::new(NAME, path, Source::Flag("--repo")));
        }
        let path = self.environment.path(env_vars::MO_TARGET_CWD)?;
        let path = self.current_directory.join(path);
        Some(Setting::new(
            NAME,
            path,
            Source::Variable(env_vars::MO_TARGET_CWD),
        ))
    }
}

fn resolve_home(
    args: &GlobalArgs,
    environment: &Environment,
    current_directory: &Path,
) -> Result<Setting<PathBuf>, CommandError> {
    const NAME: &str = "home";
    if let Some(home) = &args.home {
        return Ok(Setting::new(
            NAME,
            current_directory.join(home),
            Source::Flag("--home"),
        ));
    }
    if let Some(home) = environment.path(env_vars::MINI_ORK_HOME) {
        let home = current_directory.join(home);
        return Ok(Setting::new(
            NAME,
            home,
            Source::Variable(env_vars::MINI_ORK_HOME),
        ));
    }
    // The specification of XDG says that a relative path is to be ignored.
    if let Some(state) = environment
        .path("XDG_STATE_HOME")
        .filter(|path| path.is_absolute())
    {
        let home = state.join("mini-ork");
        return Ok(Setting::new(NAME, home, Source::Variable("XDG_STATE_HOME")));
    }
    if let Some(user_home) = environment.path("HOME").filter(|path| path.is_absolute()) {
        let home = user_home.join(".local/state/mini-ork");
        return Ok(Setting::new(NAME, home, Source::Default));
    }
    Err(
        CommandError::usage("there is no home for mini-ork: neither MINI_ORK_HOME nor HOME is set")
            .hint("set MINI_ORK_HOME or use --home DIR"),
    )
}

/// `value` as text, or an error that names the variable.
pub(crate) fn utf8(name: &str, value: &OsStr) -> Result<String, CommandError> {
    value
        .to_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| CommandError::usage(format!("the value of {name} is not Unicode text")))
}

/// The name and the value of `NAME=VALUE`.
pub(crate) fn assignment(flag: &str, text: &str) -> Result<(String, String), CommandError> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(
            CommandError::usage(format!("{flag} `{text}` is not of the form NAME=VALUE"))
                .hint(format!("write {flag} NAME=VALUE")),
        ),
    }
}

/// Names and values as a run's programs get them.
pub(crate) type Variables = Vec<(OsString, OsString)>;
