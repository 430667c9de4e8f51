use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Instant;

use mini_ork_node::text::with_sources;

use super::*;

const SENTINEL: &str = "sentinel-3f9a-value";

struct World {
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self {
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn vault(&self) -> Vault {
        Vault::new(&self.home(), Keyring::none(), Redactor::new())
    }

    /// A vault with the value of the sentinel under `KEY`.
    fn filled() -> (Self, Vault) {
        let world = Self::new();
        let vault = world.vault();
        assert!(!vault.set(&name("KEY"), value(SENTINEL)).unwrap());
        (world, vault)
    }
}

fn name(text: &str) -> SecretName {
    SecretName::parse(text).unwrap()
}

fn value(text: &str) -> NewEntry {
    NewEntry::Value(Secret::new(text.as_bytes().to_vec()).unwrap())
}

fn shell(script: &str) -> NewEntry {
    NewEntry::Command(vec!["sh".to_owned(), "-c".to_owned(), script.to_owned()])
}

fn nothing_exported(_: &str) -> Option<OsString> {
    None
}

fn resolve(vault: &Vault, key: &str) -> Result<String, MissingSecret> {
    let secret = vault.resolve(&name(key), &nothing_exported)?;
    Ok(secret.expose().to_owned())
}

fn mode(path: &Path) -> u32 {
    fs_err::metadata(path).unwrap().permissions().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// The error of reading, which must also keep `set` from changing anything.
fn refused(vault: &Vault) -> String {
    let before = fs_err::read(vault.file()).ok();
    let error = vault.list().unwrap_err();
    assert!(vault.set(&name("OTHER"), value("another-value")).is_err());
    assert_eq!(fs_err::read(vault.file()).ok(), before);
    assert!(!error.remedy().is_empty());
    let missing = vault.resolve(&name("KEY"), &nothing_exported).unwrap_err();
    assert!(matches!(missing.why, WhyMissing::Vault(_)));
    with_sources(&error)
}

#[test]
fn a_value_is_kept_replaced_listed_and_removed() {
    let (_world, vault) = World::filled();
    assert_eq!(resolve(&vault, "KEY").unwrap(), SENTINEL);
    assert!(vault.set(&name("KEY"), value("a-later-value")).unwrap());
    assert!(!vault.set(&name("A_COMMAND"), shell("echo x")).unwrap());
    assert_eq!(resolve(&vault, "KEY").unwrap(), "a-later-value");
    let listed = vault.list().unwrap();
    let names: Vec<(&str, EntryKind)> = listed
        .iter()
        .map(|entry| (entry.name.as_str(), entry.kind))
        .collect();
    assert_eq!(
        names,
        [("A_COMMAND", EntryKind::Command), ("KEY", EntryKind::Value)]
    );
    assert!(
        listed
            .iter()
            .all(|entry| now_ms() - entry.set_at_ms < 600_000)
    );
    assert!(vault.remove(&name("KEY")).unwrap());
    assert!(!vault.remove(&name("KEY")).unwrap());
    assert!(resolve(&vault, "KEY").is_err());
}

#[test]
fn looking_and_removing_make_nothing() {
    let world = World::new();
    let vault = world.vault();
    assert!(vault.list().unwrap().is_empty());
    assert!(!vault.remove(&name("KEY")).unwrap());
    assert!(resolve(&vault, "KEY").is_err());
    assert!(!world.home().exists());
}

#[test]
fn bc_42_the_files_are_for_their_owner_alone_and_hold_no_value() {
    let (world, vault) = World::filled();
    assert_eq!(mode(&vault.file()), 0o600);
    assert_eq!(mode(&vault.key_file()), 0o600);
    assert_eq!(mode(&world.home()), 0o700);
    assert_eq!(mode(&world.home().join("config")), 0o700);
    let mut names = Vec::new();
    for directory in [world.home(), world.home().join("config")] {
        for entry in fs_err::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                let bytes = fs_err::read(&path).unwrap();
                let found = bytes
                    .windows(SENTINEL.len())
                    .any(|window| window == SENTINEL.as_bytes());
                assert!(!found, "{}", path.display());
                names.push(path.file_name().unwrap().to_owned());
            }
        }
    }
    names.sort();
    assert_eq!(names, ["vault.age", "vault.key", "vault.lock"]);
}

#[test]
fn bc_43_what_is_resolved_is_known_to_the_redactor() {
    let (world, vault) = World::filled();
    vault
        .set(&name("ASKED"), shell("echo from-a-command"))
        .unwrap();
    let redactor = Redactor::new();
    let vault = Vault::new(&world.home(), Keyring::none(), redactor.clone());
    let text = format!("{SENTINEL} from-a-command exported-value");
    assert_eq!(redactor.redact_text(&text), text);
    resolve(&vault, "KEY").unwrap();
    assert_eq!(
        redactor.redact_text(&text),
        "*** from-a-command exported-value"
    );
    resolve(&vault, "ASKED").unwrap();
    let exported = |_: &str| Some(OsString::from("exported-value"));
    vault.resolve(&name("ELSEWHERE"), &exported).unwrap();
    assert_eq!(redactor.redact_text(&text), "*** *** ***");
}

#[test]
fn an_exported_variable_wins_unless_it_is_blank() {
    let (_world, vault) = World::filled();
    let resolve_with = |exported: &str| {
        let exported = OsString::from(exported);
        vault
            .resolve(&name("KEY"), &|asked| {
                (asked == "KEY").then(|| exported.clone())
            })
            .map(|secret| secret.expose().to_owned())
    };
    assert_eq!(resolve_with("exported-value\n").unwrap(), "exported-value");
    assert_eq!(resolve_with("").unwrap(), SENTINEL);
    assert_eq!(resolve_with(" \n").unwrap(), SENTINEL);
    // One that is there and cannot be used is told, not passed over.
    let error = resolve_with("abc").unwrap_err();
    assert!(matches!(error.why, WhyMissing::BadVariable(_)), "{error:?}");
    // It also works where the vault does not.
    fs_err::write(vault.file(), "damaged").unwrap();
    assert_eq!(resolve_with("exported-value").unwrap(), "exported-value");
}

#[test]
fn bc_44_every_way_to_be_missing_names_the_secret_and_the_remedy() {
    let (_world, vault) = World::filled();
    vault.set(&name("EMPTY"), shell("true")).unwrap();
    vault
        .set(&name("NEWLINE"), shell("echo; echo second-line"))
        .unwrap();
    vault.set(&name("BLANK"), shell("echo '   '")).unwrap();
    vault
        .set(&name("BINARY"), shell("printf '\\377\\376\\375\\374'"))
        .unwrap();
    vault
        .set(
            &name("FAILS"),
            shell(&format!("echo {SENTINEL}; echo {SENTINEL} >&2; exit 3")),
        )
        .unwrap();
    vault
        .set(
            &name("ABSENT"),
            NewEntry::Command(vec!["/nonexistent/program".to_owned()]),
        )
        .unwrap();
    for (key, reason) in [
        ("UNSET", "neither exported nor in the vault"),
        ("EMPTY", "it is empty"),
        ("NEWLINE", "it is empty"),
        ("BLANK", "it is empty"),
        ("BINARY", "not Unicode"),
        ("FAILS", "exit code 3"),
        ("ABSENT", "cannot be started"),
    ] {
        let error = resolve(&vault, key).unwrap_err();
        let text = with_sources(&error);
        assert!(
            text.starts_with(&format!("the secret {key} is missing: ")),
            "{text}"
        );
        assert!(text.contains(reason), "{key}: {text}");
        assert!(!error.remedy().is_empty());
        let shown = format!("{text} {error:?} {}", error.remedy());
        assert!(!shown.contains("sentinel"), "{shown}");
    }
    let blank = |_: &str| Some(OsString::from("\n"));
    let error = vault.resolve(&name("UNSET"), &blank).unwrap_err();
    assert!(
        with_sources(&error).contains("exported but empty"),
        "{error:?}"
    );
}

#[test]
fn a_command_gets_its_arguments_as_they_are_and_gives_its_first_line() {
    let (_world, vault) = World::filled();
    let argv = ["printf", "%s\\n", "a $HOME `id`;*", "second line"];
    let argv = argv.map(str::to_owned).to_vec();
    vault.set(&name("ASKED"), NewEntry::Command(argv)).unwrap();
    assert_eq!(resolve(&vault, "ASKED").unwrap(), "a $HOME `id`;*");
    // Nothing is on its input, and more output than a pipe holds does not stop it.
    let script = "cat; echo the-value; head -c 300000 /dev/zero";
    vault.set(&name("ASKED"), shell(script)).unwrap();
    assert_eq!(resolve(&vault, "ASKED").unwrap(), "the-value");
    for argv in [vec![], vec![String::new()], vec!["./here".to_owned()]] {
        let error = vault
            .set(&name("ASKED"), NewEntry::Command(argv))
            .unwrap_err();
        assert!(matches!(error, VaultError::RelativeProgram));
    }
    let argv = vec!["x".to_owned(), "y".repeat(10_000)];
    assert!(vault.set(&name("ASKED"), NewEntry::Command(argv)).is_err());
}

#[test]
fn a_command_that_does_not_end_is_killed_with_what_it_started() {
    let (world, mut vault) = World::filled();
    vault.command_limit = Duration::from_millis(400);
    let pid_file = world.directory.path().join("pid");
    let script = format!(
        "sleep 600 & echo $! > '{0}.new'; mv '{0}.new' '{0}'; wait",
        pid_file.display()
    );
    vault.set(&name("STUCK"), shell(&script)).unwrap();
    let before = Instant::now();
    let error = resolve(&vault, "STUCK").unwrap_err();
    assert!(
        with_sources(&error).contains("did not end within 0.4 s"),
        "{error:?}"
    );
    assert!(before.elapsed() < Duration::from_secs(60));
    // On a slow machine the shell may be killed before it has written anything.
    if let Ok(pid) = fs_err::read_to_string(&pid_file) {
        let stat = PathBuf::from(format!("/proc/{}/stat", pid.trim()));
        let until = Instant::now() + Duration::from_secs(20);
        while fs_err::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < until, "{pid} still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn a_damaged_vault_is_an_error_and_stays_as_it_is() {
    let (world, vault) = World::filled();
    let good = fs_err::read(vault.file()).unwrap();
    let mut flipped = good.clone();
    let last = flipped.len() - 1;
    flipped[last] ^= 1;
    let cases: [&[u8]; 4] = [b"", b"no vault", &good[..good.len() - 3], &flipped];
    for damaged in cases {
        fs_err::write(vault.file(), damaged).unwrap();
        let text = refused(&vault);
        let reason = "vault.age` cannot be decrypted with its key: it is cut or was changed";
        assert!(text.contains(reason), "{text}");
    }
    let (_other_world, other) = World::filled();
    fs_err::copy(other.file(), vault.file()).unwrap();
    assert!(refused(&vault).contains("it belongs to another key"));
    // Encrypted by the right key, but no entries of this version.
    let key = key::read(&world.home()).unwrap().unwrap();
    let write = |plain: &str| {
        let encrypted = age::encrypt(&key.identity().to_public(), plain.as_bytes()).unwrap();
        fs_err::write(vault.file(), encrypted).unwrap();
        refused(&vault)
    };
    let text = write(&format!(r#"{{"format": 1, "{SENTINEL}": "{SENTINEL}"}}"#));
    assert!(
        text.contains("damaged") && !text.contains("sentinel"),
        "{text}"
    );
    assert!(write(r#"{"format": 2, "new": []}"#).contains("format 2"));
    fs_err::write(vault.file(), good).unwrap();
    assert_eq!(resolve(&vault, "KEY").unwrap(), SENTINEL);
}

#[test]
fn a_key_that_is_not_the_owners_alone_is_refused() {
    let (world, vault) = World::filled();
    let key = vault.key_file();
    for bad in [0o640, 0o604, 0o660, 0o666] {
        set_mode(&key, bad);
        let text = refused(&vault);
        assert!(
            text.contains("vault.key") && text.contains("other users"),
            "{text}"
        );
    }
    set_mode(&key, 0o400);
    assert_eq!(resolve(&vault, "KEY").unwrap(), SENTINEL);

    let elsewhere = world.directory.path().join("elsewhere");
    fs_err::rename(&key, &elsewhere).unwrap();
    symlink(&elsewhere, &key).unwrap();
    assert!(refused(&vault).contains("symbolic link"));
    fs_err::remove_file(&key).unwrap();
    fs_err::create_dir(&key).unwrap();
    assert!(refused(&vault).contains("not a regular file"));
    fs_err::remove_dir(&key).unwrap();
    // No new key is made beside an old vault.
    assert!(refused(&vault).contains("its key"));
    assert!(!key.exists());
    for text in ["", "# comment\n", "AGE-SECRET-KEY-1QQQ\n"] {
        fs_err::write(&key, text).unwrap();
        set_mode(&key, 0o600);
        assert!(refused(&vault).contains("not a key file"));
    }
    fs_err::write(&key, fs_err::read(&elsewhere).unwrap()).unwrap();
    for directory in [world.home(), world.home().join("config")] {
        set_mode(&directory, 0o770);
        assert!(refused(&vault).contains("can be changed by other users"));
        set_mode(&directory, 0o755);
        assert_eq!(resolve(&vault, "KEY").unwrap(), SENTINEL);
    }
}

#[test]
fn a_vault_that_others_could_have_written_is_refused() {
    let (world, vault) = World::filled();
    set_mode(&vault.file(), 0o620);
    assert!(refused(&vault).contains("can be changed by other users"));
    set_mode(&vault.file(), 0o600);
    let elsewhere = world.directory.path().join("elsewhere");
    fs_err::rename(vault.file(), &elsewhere).unwrap();
    symlink(&elsewhere, vault.file()).unwrap();
    assert!(refused(&vault).contains("symbolic link"));
}

#[test]
fn files_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIP only root can give a file away");
        return;
    }
    let (_world, vault) = World::filled();
    let other = Some(rustix::fs::Uid::from_raw(12_345));
    for path in [vault.key_file(), vault.file()] {
        rustix::fs::chown(&path, other, None).unwrap();
        assert!(refused(&vault).contains("belongs to another user"));
        rustix::fs::chown(&path, Some(rustix::process::geteuid()), None).unwrap();
    }
}

#[test]
fn what_a_killed_writer_left_is_replaced() {
    let (world, vault) = World::filled();
    let left = world.home().join("vault.age.new");
    fs_err::write(&left, "half").unwrap();
    vault.set(&name("OTHER"), value("another-value")).unwrap();
    assert!(!left.exists());
    assert_eq!(vault.list().unwrap().len(), 2);
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    const WRITERS: usize = 8;
    let world = World::new();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let world = &world;
            scope.spawn(move || {
                for round in 0..3 {
                    let key = name(&format!("KEY_{writer}_{round}"));
                    world.vault().set(&key, value("some-value")).unwrap();
                }
            });
        }
    });
    assert_eq!(world.vault().list().unwrap().len(), WRITERS * 3);
}

#[test]
fn an_import_takes_all_or_nothing_and_runs_nothing() {
    let (world, vault) = World::filled();
    let ran = world.directory.path().join("ran");
    let file = world.directory.path().join("secrets.local.sh");
    let touch = format!("touch {}", ran.display());
    for bad in [
        format!("export A=good-value\nexport B=$({touch})\n"),
        format!("export A=good-value\n{touch}\n"),
        format!("export A=good-value\nexport B=\"`{touch}`\"\n"),
    ] {
        fs_err::write(&file, bad).unwrap();
        let error = vault.import(&file).unwrap_err();
        let ImportError::Mistakes { mistakes, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(mistakes.len(), 1);
        assert_eq!(mistakes[0].line, 2);
        assert_eq!(vault.list().unwrap().len(), 1);
    }
    let literal = format!("'$({touch})'");
    fs_err::write(&file, format!("export A={literal}\nKEY=new-value\n")).unwrap();
    let imported = vault.import(&file).unwrap();
    assert_eq!(imported.added, [name("A")]);
    assert_eq!(imported.replaced, [name("KEY")]);
    assert_eq!(resolve(&vault, "KEY").unwrap(), "new-value");
    assert_eq!(resolve(&vault, "A").unwrap(), literal.trim_matches('\''));
    assert!(!ran.exists());
}

#[test]
fn an_import_takes_only_regular_files() {
    let (world, vault) = World::filled();
    let root = world.directory.path();
    let file = root.join("keys.env");
    fs_err::write(&file, "A=good-value\n").unwrap();
    let link = root.join("link");
    symlink(&file, &link).unwrap();
    let fifo = root.join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    for (path, reason) in [
        (link.as_path(), "symbolic link"),
        (&fifo, "not a regular file"),
        (root, "not a regular file"),
        (&root.join("absent"), "cannot read"),
    ] {
        let text = with_sources(&vault.import(path).unwrap_err());
        assert!(text.contains(reason), "{text}");
    }
    fs_err::write(&file, "# none\n").unwrap();
    assert!(vault.import(&file).unwrap().added.is_empty());
    assert_eq!(vault.list().unwrap().len(), 1);
}

#[test]
fn bc_42_nothing_shows_a_value() {
    let (_world, vault) = World::filled();
    let shown = format!(
        "{vault:?} {:?} {:?}",
        value(SENTINEL),
        vault.list().unwrap()
    );
    assert!(!shown.contains("sentinel"), "{shown}");
}
