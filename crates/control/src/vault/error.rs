use std::io;
use std::path::PathBuf;
use std::time::Duration;

use mini_ork_node::redact::RegisterError;

use super::import::ImportMistake;
use super::keyring::{Keyring, KeyringFailure};
use mini_ork_node::secret::{SecretError, SecretName};

/// Why the vault as a whole cannot be used. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// Somebody else could have written or read what is kept secret here.
    #[error("`{}` {problem}", path.display())]
    Unsafe {
        /// The file or directory.
        path: PathBuf,
        /// What is wrong with it, as the rest of a sentence.
        problem: &'static str,
        /// What its owner can do.
        remedy: String,
    },
    /// The system refused.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Another process did not let go of the lock.
    #[error("another process has been changing the vault for {} s (`{}`)", waited.as_secs(), path.display())]
    Locked {
        /// The lock.
        path: PathBuf,
        /// How long was waited for it.
        waited: Duration,
    },
    /// There is a vault and no key to it.
    #[error("the vault `{}` is here, but its key `{}` is not", path.display(), key.display())]
    NoKey {
        /// The vault.
        path: PathBuf,
        /// Where its key should be.
        key: PathBuf,
        /// Why the key did not come from the keyring either.
        #[source]
        keyring: KeyringFailure,
    },
    /// There is neither a vault nor a key.
    #[error("there is no vault yet, so it has no key")]
    NoVault,
    /// The key could not be put into the keyring or taken out of it.
    #[error("cannot {doing}")]
    Keyring {
        /// What was tried, as a verb with what belongs to it.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: KeyringFailure,
    },
    /// The key file holds no key.
    #[error("`{}` is not a key file: it does not hold exactly one age secret key", path.display())]
    BadKey {
        /// The key file.
        path: PathBuf,
    },
    /// The file is cut, was changed, or belongs to another key.
    #[error("the vault `{}` cannot be decrypted with its key", path.display())]
    Undecryptable {
        /// The vault.
        path: PathBuf,
        /// Why.
        #[source]
        source: Damage,
    },
    /// The file can be decrypted and holds something else.
    #[error("the vault `{}` is damaged: what it holds are no entries", path.display())]
    NoEntries {
        /// The vault.
        path: PathBuf,
    },
    /// A later version of mini-ork wrote the file.
    #[error("the vault `{}` has format {format}; this version knows {known}", path.display())]
    Later {
        /// The vault.
        path: PathBuf,
        /// Its format.
        format: u32,
        /// The latest that can be read.
        known: u32,
    },
    /// The entries cannot be encrypted.
    #[error("the vault cannot be encrypted")]
    Encrypt,
    /// The entries cannot be written as JSON.
    #[error("the entries cannot be written")]
    Serialize(#[source] serde_json::Error),
    /// There are too many entries.
    #[error("a vault holds {most} entries at most")]
    Full {
        /// How many it may hold.
        most: usize,
    },
    /// The program of a command is not to be found from everywhere.
    #[error("the program of a command is a name on PATH or an absolute path")]
    RelativeProgram,
    /// A command cannot be kept.
    #[error("a command has {most} bytes at most, and no NUL")]
    BadCommand {
        /// The most bytes of all arguments together.
        most: usize,
    },
    /// The redactor does not take a value, so nobody may have it.
    #[error("the value cannot be kept out of output")]
    Redactor(#[source] RegisterError),
}

/// Why a file cannot be decrypted. The errors of `age` do not go further than here: their texts come
/// from files of translations, which a debug build looks for where that crate was compiled, and it
/// panics when they are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It was encrypted for somebody else.
    #[error("it belongs to another key")]
    OtherKey,
    /// It is not what was written.
    #[error("it is cut or was changed")]
    Changed,
}

/// Why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// Some lines cannot be taken.
    #[error("`{}` has lines that cannot be imported", path.display())]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All of them, by line.
        mistakes: Vec<ImportMistake>,
    },
    /// The file is not one to take secrets from, or the vault cannot be changed.
    #[error(transparent)]
    Vault(#[from] VaultError),
}

/// A secret that is needed and cannot be had. It says which, why, and what to do; it never holds a
/// value.
#[derive(Debug, thiserror::Error)]
#[error("the secret {name} is missing")]
pub struct MissingSecret {
    /// Which.
    pub name: SecretName,
    /// Why.
    #[source]
    pub why: WhyMissing,
}

/// Why a secret cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum WhyMissing {
    /// It is neither exported nor in the vault.
    #[error("{}", if *was_exported { "the variable is exported but empty, and the vault has no such entry" } else { "it is neither exported nor in the vault" })]
    NoEntry {
        /// Whether there is a variable of this name, which is then blank.
        was_exported: bool,
    },
    /// The exported value cannot be one.
    #[error("the exported variable cannot be used")]
    BadVariable(#[source] SecretError),
    /// The value in the vault cannot be one.
    #[error("its entry in the vault cannot be used")]
    BadEntry(#[source] SecretError),
    /// The command of the entry gave no value.
    #[error(transparent)]
    Command(CommandFailure),
    /// The vault cannot be read.
    #[error("the vault cannot be used")]
    Vault(#[from] VaultError),
}

/// Why a command gave no value. What it printed is not in here.
#[derive(Debug, thiserror::Error)]
pub enum CommandFailure {
    /// It cannot be started.
    #[error("its command `{program}` cannot be started")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It says that it failed.
    #[error("its command `{program}` ended with {ending}")]
    Failed {
        /// The program.
        program: String,
        /// `exit code N` or `signal N`.
        ending: String,
    },
    /// It did not end in time and was killed.
    #[error("its command `{program}` did not end within {} s", limit.as_secs_f32())]
    TimedOut {
        /// The program.
        program: String,
        /// The limit.
        limit: Duration,
    },
    /// The first line of its output is no secret.
    #[error("the first line that its command `{program}` printed cannot be used")]
    Output {
        /// The program.
        program: String,
        /// What is wrong with it.
        #[source]
        problem: SecretError,
    },
}

impl MissingSecret {
    pub(super) fn new(name: SecretName, why: WhyMissing) -> Self {
        Self { name, why }
    }

    /// What the user can do, as one sentence with a command to paste.
    pub fn remedy(&self) -> String {
        let name = &self.name;
        match &self.why {
            WhyMissing::NoEntry { .. } => {
                format!("`mini-ork vault set {name}` asks for it; or export {name}")
            }
            WhyMissing::BadVariable(_) => {
                format!("`unset {name}`, then `mini-ork vault set {name}`; or export another value")
            }
            WhyMissing::BadEntry(_) => format!("`mini-ork vault set {name}` replaces it"),
            WhyMissing::Command(_) => format!(
                "run the command yourself to see what it says; \
                 `mini-ork vault set {name} --command PROGRAM ARGUMENT…` replaces it"
            ),
            WhyMissing::Vault(error) => error.remedy(),
        }
    }
}

impl From<age::DecryptError> for Damage {
    fn from(error: age::DecryptError) -> Self {
        match error {
            age::DecryptError::NoMatchingKeys => Self::OtherKey,
            _ => Self::Changed,
        }
    }
}

impl VaultError {
    /// What the user can do, as one sentence.
    pub fn remedy(&self) -> String {
        match self {
            Self::Unsafe { remedy, .. } => remedy.clone(),
            Self::Io { path, .. } => {
                format!(
                    "see that `{}` is there and that you may use it",
                    path.display()
                )
            }
            Self::Locked { .. } => "end that process, or try again later".to_owned(),
            Self::NoKey { keyring, .. }
                if !matches!(
                    keyring,
                    KeyringFailure::NoSession | KeyringFailure::NoService | KeyringFailure::NoKey
                ) =>
            {
                Keyring::remedy(keyring).to_owned()
            }
            Self::NoVault => "`mini-ork vault set NAME` makes both".to_owned(),
            Self::Keyring { source, .. } => Keyring::remedy(source).to_owned(),
            Self::NoKey { path, key, .. } => format!(
                "put the key back to `{}`; without it the values are lost: remove `{}` and set them anew",
                key.display(),
                path.display()
            ),
            Self::BadKey { path } => format!(
                "put the file back that was at `{}`; it has a line that begins with AGE-SECRET-KEY-1",
                path.display()
            ),
            Self::Undecryptable { path, .. } | Self::NoEntries { path } => format!(
                "put back a copy of `{0}`, or the key that belongs to it; or remove `{0}` and set the values anew",
                path.display()
            ),
            Self::Later { .. } => "use the version of mini-ork that wrote it".to_owned(),
            Self::Full { .. } => "`mini-ork vault rm NAME` makes room".to_owned(),
            Self::RelativeProgram => {
                "write the whole path of the program, beginning with `/`".to_owned()
            }
            Self::BadCommand { .. } => "put a long command into a script".to_owned(),
            Self::Encrypt | Self::Serialize(_) | Self::Redactor(_) => {
                "export the variable instead".to_owned()
            }
        }
    }
}
