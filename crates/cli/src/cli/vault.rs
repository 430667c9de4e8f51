use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

const VAULT_EXAMPLES: &str = "\
Examples:
  mini-ork vault set EXAMPLE_API_KEY                 asks for the value, which is not shown
  mini-ork vault set EXAMPLE_API_KEY < key-file      takes it from standard input
  mini-ork vault set EXAMPLE_API_KEY --command pass show example/key
  mini-ork vault ls
  mini-ork vault import .env
  mini-ork vault check                               can every entry be used?

A variable of the same name that is exported wins over the vault.";

/// `mini-ork vault`.
#[derive(Debug, Args)]
#[command(after_help = VAULT_EXAMPLES)]
pub(crate) struct VaultArgs {
    #[command(subcommand)]
    pub(crate) command: VaultCommand,
}

/// What can be done with the vault.
#[derive(Debug, Subcommand)]
pub(crate) enum VaultCommand {
    /// Keep a secret: its value from standard input or a hidden prompt, never from an argument.
    Set(VaultSetArgs),
    /// List names, kinds and ages; never values.
    Ls(VaultListArgs),
    /// Forget a secret.
    Rm(VaultRemoveArgs),
    /// Take all values of a `.env` file or a `secrets.local.sh`, which is read and never run.
    Import(VaultImportArgs),
    /// Check key, vault and every entry; the exit code tells.
    Check(VaultListArgs),
    /// Show where the key of the vault is, or move it: into the key file or the system keyring.
    Key(VaultKeyArgs),
}

const SET_EXAMPLES: &str = "\
Examples:
  mini-ork vault set EXAMPLE_API_KEY                 asks for the value, which is not shown
  mini-ork vault set EXAMPLE_API_KEY < key-file
  mini-ork vault set EXAMPLE_API_KEY --command op read op://work/example/key";

/// `mini-ork vault set`.
#[derive(Debug, Args)]
#[command(after_help = SET_EXAMPLES)]
pub(crate) struct VaultSetArgs {
    /// Its name, which is that of its variable.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Keep no value but a program that prints it, with its arguments. It is run without a shell
    /// whenever the value is needed; the first line counts. Takes the rest of the line.
    #[arg(long, value_names = ["PROGRAM", "ARGUMENT"], num_args = 1.., allow_hyphen_values = true)]
    pub(crate) command: Vec<String>,
    /// What was typed behind the name. Taken here so that it can be refused without being shown.
    #[arg(hide = true, allow_hyphen_values = true)]
    pub(crate) refused: Vec<String>,
}

/// `mini-ork vault ls` and `check`.
#[derive(Debug, Args)]
pub(crate) struct VaultListArgs {
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const REMOVE_EXAMPLES: &str = "\
Examples:
  mini-ork vault rm EXAMPLE_API_KEY";

/// `mini-ork vault rm`.
#[derive(Debug, Args)]
#[command(after_help = REMOVE_EXAMPLES)]
pub(crate) struct VaultRemoveArgs {
    /// Its name.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

const IMPORT_EXAMPLES: &str = "\
Examples:
  mini-ork vault import .env
  mini-ork vault import ~/.mini-ork/config/secrets.local.sh";

/// `mini-ork vault import`.
#[derive(Debug, Args)]
#[command(after_help = IMPORT_EXAMPLES)]
pub(crate) struct VaultImportArgs {
    /// Lines `NAME=value` or `export NAME=value`, quoted or not, and comments.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `mini-ork vault key`.
#[derive(Debug, Args)]
pub(crate) struct VaultKeyArgs {
    /// Move the key there.
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: Option<KeyPlaceArg>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the key of the vault can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyPlaceArg {
    /// The file `config/vault.key` in the home of mini-ork.
    File,
    /// The keyring of the user's session, such as GNOME Keyring or KWallet.
    Keyring,
}
