mod value;

use std::ffi::OsString;
use std::path::Path;

use mini_ork_control::run::now_ms;
use mini_ork_control::vault::{
    EntryKind, ImportError, KeyPlace, ListedEntry, MissingSecret, NewEntry, Vault, VaultError,
};
use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::SecretName;
use mini_ork_node::text::with_sources;
use serde::Serialize;
use serde_json::json;

use crate::cli::{
    KeyPlaceArg, VaultArgs, VaultCommand, VaultImportArgs, VaultKeyArgs, VaultListArgs,
    VaultRemoveArgs, VaultSetArgs,
};
use crate::env_vars;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, Style, paint, plural};
use crate::settings::GlobalSettings;

/// An entry of the vault as it is shown.
#[derive(Debug, Serialize)]
pub(crate) struct ShownSecret {
    pub(crate) name: String,
    pub(crate) kind: EntryKind,
    pub(crate) set_at_ms: u64,
    /// Whether a variable of this name wins over the entry.
    pub(crate) exported: bool,
}

/// An entry that was tried.
#[derive(Debug, Serialize)]
pub(crate) struct CheckedSecret {
    #[serde(flatten)]
    pub(crate) secret: ShownSecret,
    /// Why it cannot be used.
    pub(crate) problem: Option<String>,
    pub(crate) remedy: Option<String>,
}

/// Keeps, lists and checks the keys of agents.
pub(crate) fn vault(args: VaultArgs, global: &GlobalSettings) -> CommandResult {
    let redactor = Redactor::new();
    let vault = Vault::new(&global.home.value, global.keyring(), redactor.clone());
    let result = match args.command {
        VaultCommand::Set(args) => set(args, global, &vault),
        VaultCommand::Ls(args) => list(&args, global, &vault),
        VaultCommand::Rm(args) => remove(&args, &vault),
        VaultCommand::Import(args) => import(&args, global, &vault),
        VaultCommand::Check(args) => check(&args, global, &vault),
        VaultCommand::Key(args) => key(&args, &vault),
    };
    // No message is made from a value; should one ever be, it is not shown.
    result.map_err(|error| error.redacted(&redactor))
}

fn set(args: VaultSetArgs, global: &GlobalSettings, vault: &Vault) -> CommandResult {
    let name = parse_name(&args.name)?;
    if !args.refused.is_empty() {
        return Err(CommandError::usage(
            "the value of a secret is not taken from an argument: other users and the history of \
             the shell can see it",
        )
        .hint(format!(
            "if it was the real one, replace it where it comes from; then: mini-ork vault set {name}"
        )));
    }
    let new = if args.command.is_empty() {
        NewEntry::Value(value::read(&name, global)?)
    } else {
        NewEntry::Command(args.command)
    };
    let replaced = vault.set(&name, new).map_err(|error| {
        let status = match &error {
            VaultError::RelativeProgram | VaultError::BadCommand { .. } => ExitStatus::Usage,
            _ => ExitStatus::Failure,
        };
        vault_error(&format!("cannot keep {name}"), &error, status)
    })?;
    if args.json {
        render::json(&json!({"format": 1, "name": name, "replaced": replaced}))?;
    } else {
        let what = if replaced { "replaced" } else { "kept" };
        render::out(&format!("{} {name}\n", paint(Style::Good, what)))?;
    }
    if is_exported(global, &name) {
        render::err(&format!(
            "{} {name} is exported too, and the exported value wins\n",
            paint(Style::Warn, "note:")
        ));
    }
    Ok(ExitStatus::Success)
}

fn list(args: &VaultListArgs, global: &GlobalSettings, vault: &Vault) -> CommandResult {
    let listed = listed(vault)?;
    let shown: Vec<ShownSecret> = listed.iter().map(|entry| shown(entry, global)).collect();
    if args.json {
        render::json(&json!({"format": 1, "secrets": shown}))?;
        return Ok(ExitStatus::Success);
    }
    if shown.is_empty() {
        render::err(&empty(vault));
        return Ok(ExitStatus::Success);
    }
    render::out(&render::secrets(&shown, now_ms()))?;
    Ok(ExitStatus::Success)
}

fn remove(args: &VaultRemoveArgs, vault: &Vault) -> CommandResult {
    let name = parse_name(&args.name)?;
    let removed = vault.remove(&name).map_err(|error| {
        vault_error(
            &format!("cannot remove {name}"),
            &error,
            ExitStatus::Failure,
        )
    })?;
    if !removed {
        return Err(
            CommandError::failure(format!("the vault has no entry {name}"))
                .hint("`mini-ork vault ls` shows what it has"),
        );
    }
    if args.json {
        render::json(&json!({"format": 1, "name": name, "removed": true}))?;
    } else {
        render::out(&format!("{} {name}\n", paint(Style::Good, "removed")))?;
    }
    Ok(ExitStatus::Success)
}

fn import(args: &VaultImportArgs, global: &GlobalSettings, vault: &Vault) -> CommandResult {
    let path = global.current_directory.join(&args.file);
    let imported = vault
        .import(&path)
        .map_err(|error| import_error(&error, &args.file, &path))?;
    let count = imported.added.len() + imported.replaced.len();
    if args.json {
        render::json(&json!({
            "format": 1,
            "added": imported.added,
            "replaced": imported.replaced,
        }))?;
        return Ok(ExitStatus::Success);
    }
    let mut text = format!(
        "{} {}: {} added, {} replaced\n",
        paint(Style::Good, "imported"),
        plural(count, "secret"),
        imported.added.len(),
        imported.replaced.len()
    );
    if count > 0 {
        text.push_str(&format!(
            "next  remove {}, which holds them readable; mini-ork vault check\n",
            args.file.display()
        ));
    }
    render::out(&text)?;
    Ok(ExitStatus::Success)
}

/// Each entry is tried as if nothing were exported: a variable must not hide that the entry cannot
/// be used.
fn check(args: &VaultListArgs, global: &GlobalSettings, vault: &Vault) -> CommandResult {
    let listed = match vault.list() {
        Ok(listed) => listed,
        Err(error) => {
            if args.json {
                render::json(&json!({
                    "format": 1,
                    "ok": false,
                    "problem": with_sources(&error),
                    "remedy": error.remedy(),
                    "secrets": [],
                }))?;
                return Ok(ExitStatus::Failure);
            }
            return Err(CommandError::failure(with_sources(&error)).hint(error.remedy()));
        }
    };
    let checked: Vec<CheckedSecret> = listed
        .iter()
        .map(|entry| {
            let missing = vault.resolve(&entry.name, &nothing_exported).err();
            CheckedSecret {
                secret: shown(entry, global),
                problem: missing.as_ref().map(|missing| with_sources(&missing.why)),
                remedy: missing.as_ref().map(MissingSecret::remedy),
            }
        })
        .collect();
    let good = checked.iter().all(|secret| secret.problem.is_none());
    if args.json {
        render::json(&json!({
            "format": 1,
            "ok": good,
            "problem": null,
            "remedy": null,
            "secrets": checked,
        }))?;
    } else if checked.is_empty() {
        render::err(&empty(vault));
    } else {
        render::out(&render::checked_secrets(&checked))?;
    }
    Ok(if good {
        ExitStatus::Success
    } else {
        ExitStatus::Failure
    })
}

/// Tells where the key is, once it is where it is wanted.
fn key(args: &VaultKeyArgs, vault: &Vault) -> CommandResult {
    let mut moved = false;
    if let Some(to) = args.to {
        let place = match to {
            KeyPlaceArg::File => KeyPlace::File,
            KeyPlaceArg::Keyring => KeyPlace::Keyring,
        };
        moved = vault
            .move_key(place)
            .map_err(|error| vault_error("the key was not moved", &error, ExitStatus::Failure))?;
    }
    let place = vault
        .key_place()
        .map_err(|error| vault_error("cannot find the key", &error, ExitStatus::Failure))?;
    if args.json {
        render::json(&json!({"format": 1, "place": place, "moved": moved}))?;
        return Ok(ExitStatus::Success);
    }
    let place = match place {
        Some(KeyPlace::File) => format!("file {}", vault.key_file().display()),
        Some(KeyPlace::Keyring) => "keyring of your session".to_owned(),
        None => {
            render::err(&empty(vault));
            return Ok(ExitStatus::Success);
        }
    };
    let what = if moved {
        paint(Style::Good, "moved to").to_string()
    } else {
        "the key is in the".to_owned()
    };
    render::out(&format!("{what} {place}\n"))?;
    Ok(ExitStatus::Success)
}

fn listed(vault: &Vault) -> Result<Vec<ListedEntry>, CommandError> {
    vault
        .list()
        .map_err(|error| vault_error("cannot read the vault", &error, ExitStatus::Failure))
}

fn shown(entry: &ListedEntry, global: &GlobalSettings) -> ShownSecret {
    ShownSecret {
        name: entry.name.to_string(),
        kind: entry.kind,
        set_at_ms: entry.set_at_ms,
        exported: is_exported(global, &entry.name),
    }
}

fn is_exported(global: &GlobalSettings, name: &SecretName) -> bool {
    // A blank one does not win.
    let value = global.environment.raw(name.as_str());
    value.is_some_and(|value| !value.to_string_lossy().trim().is_empty())
}

fn nothing_exported(_: &str) -> Option<OsString> {
    None
}

fn empty(vault: &Vault) -> String {
    format!(
        "nothing is in the vault {}\nkeep a secret: mini-ork vault set EXAMPLE_API_KEY\n",
        vault.file().display()
    )
}

/// What was typed is not repeated: it may be `NAME=VALUE`.
fn parse_name(text: &str) -> Result<SecretName, CommandError> {
    SecretName::parse(text).map_err(|error| {
        CommandError::usage(error.to_string())
            .hint("mini-ork vault set NAME asks for the value, or takes it from standard input")
    })
}

fn vault_error(what: &str, error: &VaultError, status: ExitStatus) -> CommandError {
    let mut failure = CommandError::failure(what)
        .caused_by(error)
        .hint(error.remedy());
    failure.status = status;
    failure
}

fn import_error(error: &ImportError, file: &Path, absolute: &Path) -> CommandError {
    match error {
        ImportError::Mistakes { mistakes, .. } => CommandError::usage(format!(
            "nothing was imported: {} has {} that cannot be taken",
            file.display(),
            plural(mistakes.len(), "line")
        ))
        .details(
            mistakes
                .iter()
                .map(|mistake| format!("{}:{}  {}", file.display(), mistake.line, mistake.problem)),
        )
        .hint("correct these lines, or make them comments, and import again"),
        ImportError::Vault(error) => {
            let status = match error {
                VaultError::Io { path, .. } | VaultError::Unsafe { path, .. }
                    if path == absolute =>
                {
                    ExitStatus::Usage
                }
                _ => ExitStatus::Failure,
            };
            vault_error("nothing was imported", error, status)
        }
    }
}

/// Whether nobody may be asked.
fn never_asks(global: &GlobalSettings) -> Result<bool, CommandError> {
    global.environment.switch(env_vars::MINI_ORK_NONINTERACTIVE)
}
