//! The vault from outside: nothing ever shows a value, and what is missing is named.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use mini_ork_testkit::{Output, Running, TestEnv, assert_no_secret, wait_for};
use rustix::fs::{CWD, FileType, Mode};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, tcgetattr};

use crate::support::new_env;

const LIMIT: Duration = Duration::from_secs(60);

/// Put together here, so that it is in no file of the build; each test has its own, as another one
/// in the same process may show its own to everybody on purpose.
fn sentinel(test: &str) -> String {
    format!("sentinel-{test}-{}", std::process::id())
}

fn vault(env: &TestEnv, arguments: &[&str], stdin: &str) -> Output {
    let arguments = ["vault"].iter().chain(arguments);
    env.mini_ork(arguments)
        .env("RUST_LOG", "trace")
        .env("RUST_BACKTRACE", "full")
        .stdin(stdin)
        .run()
}

/// `mini-ork vault set KEY` with `input` as its standard input, which is not a file of the world.
fn set_from(env: &TestEnv, input: &Path) -> Running {
    env.call("sh", ["-c", "exec \"$0\" vault set KEY < \"$1\""])
        .arg(env.program())
        .arg(input)
        .env("MINI_ORK_HOME", env.home())
        .env("RUST_LOG", "trace")
        .spawn()
}

/// Nothing that mini-ork wrote or printed, and no process, has the secret.
#[track_caller]
fn assert_clean(env: &TestEnv, secret: &str, output: &Output) {
    let shown = format!("{}{}", output.text(), output.errors());
    assert!(!shown.contains(secret), "{shown}");
    let places = [env.home(), env.root().join("tmp"), env.user_home()];
    let places: Vec<&Path> = places.iter().map(std::path::PathBuf::as_path).collect();
    assert_no_secret(secret, &places);
}

#[test]
fn bc_42_a_value_is_in_no_argument_file_or_output() {
    let env = new_env();
    let secret = sentinel("kept");
    let pipe = env.root().join("pipe");
    let mode = Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, mode, 0).unwrap();
    // Open for both, so that nobody waits for anybody.
    let mut writer = fs_err::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let running = set_from(&env, &pipe);
    writer.write_all(secret.as_bytes()).unwrap();
    let command_line = format!("/proc/{}/cmdline", running.pid());
    wait_for("start of mini-ork", LIMIT, || {
        fs_err::read(&command_line)
            .is_ok_and(|line| line.starts_with(env.program().as_os_str().as_encoded_bytes()))
    });
    assert_no_secret(&secret, &[env.root()]);
    drop(writer);
    let output = running.wait().expect(0);
    assert_eq!(output.text(), "kept KEY\n");
    assert_clean(&env, &secret, &output);

    for arguments in [
        &["ls"][..],
        &["ls", "--json"],
        &["check"],
        &["check", "--json"],
    ] {
        let output = vault(&env, arguments, "").expect(0);
        assert!(output.text().contains("KEY"), "{}", output.transcript());
        assert_clean(&env, &secret, &output);
    }
    let file = env.write(
        "keys.env",
        &format!("# mine\nexport KEY={secret}\nTHIRD='{secret} x'\n"),
    );
    let file = file.to_str().unwrap();
    let output = vault(&env, &["import", file], "").expect(0);
    assert!(
        output.text().contains("2 secrets: 1 added, 1 replaced"),
        "{}",
        output.text()
    );
    assert_clean(&env, &secret, &output);
    vault(&env, &["check"], "").expect(0);
}

#[test]
fn bc_42_errors_do_not_repeat_a_value() {
    let env = new_env();
    let secret = sentinel("errors");
    vault(&env, &["set", "KEY"], &secret).expect(0);

    // Typed where it does not belong.
    for arguments in [
        &["set", "KEY", &secret][..],
        &["set", "KEY", &format!("-{secret}")],
        &["set", "KEY", &format!("--{secret}={secret}")],
        &["set", &format!("KEY={secret}")],
        &["rm", &secret],
    ] {
        let output = vault(&env, arguments, "").expect(2);
        assert_clean(&env, &secret, &output);
    }
    // Lines that cannot be imported.
    let file = env.write(
        "keys.env",
        &format!("A={secret}\nB={secret} {secret}\n{secret}\nC=\"{secret}\nD=$({secret})\n"),
    );
    let output = vault(&env, &["import", file.to_str().unwrap()], "").expect(2);
    for line in ["keys.env:2", "keys.env:3", "keys.env:4", "keys.env:5"] {
        assert!(output.errors().contains(line), "{}", output.errors());
    }
    assert_clean(&env, &secret, &output);
    let json = vault(&env, &["ls", "--json"], "").expect(0).json();
    assert_eq!(json["secrets"].as_array().unwrap().len(), 1, "{json}");

    // A password manager that shows it in every way and fails.
    env.program_on_path(
        "manager",
        &format!("#!/bin/sh\necho {secret}\necho {secret} >&2\nexit 7\n"),
    );
    vault(
        &env,
        &["set", "ASKED", "--command", "manager", "--key", "x"],
        "",
    )
    .expect(0);
    for arguments in [&["check"][..], &["check", "--json"]] {
        let output = vault(&env, arguments, "").expect(1);
        assert!(
            output.text().contains("exit code 7"),
            "{}",
            output.transcript()
        );
        assert_clean(&env, &secret, &output);
    }

    // A file that is damaged or unsafe.
    let damaged = env.home().join("vault.age");
    let good = fs_err::read(&damaged).unwrap();
    fs_err::write(&damaged, &good[..good.len() - 1]).unwrap();
    for arguments in [&["ls"][..], &["check"], &["set", "KEY"], &["rm", "KEY"]] {
        let output = vault(&env, arguments, &secret).expect(1);
        assert!(output.errors().contains("vault.age"), "{}", output.errors());
        assert_clean(&env, &secret, &output);
    }
    assert_eq!(fs_err::read(&damaged).unwrap(), good[..good.len() - 1]);
}

#[test]
fn bc_44_a_secret_that_is_missing_is_named_with_a_remedy() {
    let env = new_env();
    for blank in ["", "\n", " \t\r\n\n"] {
        let output = vault(&env, &["set", "KEY"], blank).expect(2);
        assert!(
            output.errors().contains("value of KEY: it is empty"),
            "{}",
            output.errors()
        );
    }
    assert!(!env.home().exists());
    vault(&env, &["check"], "").expect(0);

    env.program_on_path("manager", "#!/bin/sh\nprintf \"$1\"\n");
    vault(
        &env,
        &["set", "GOOD", "--command", "manager", "a-value\\n"],
        "",
    )
    .expect(0);
    vault(&env, &["check"], "").expect(0);
    for (name, printed) in [("EMPTY", ""), ("NEWLINE", "\\n"), ("BLANK", " \\n x")] {
        vault(&env, &["set", name, "--command", "manager", printed], "").expect(0);
    }
    let output = vault(&env, &["check", "--json"], "").expect(1);
    let json = output.json();
    assert_eq!(json["ok"], false);
    for secret in json["secrets"].as_array().unwrap() {
        let name = secret["name"].as_str().unwrap();
        let problem = secret["problem"].as_str().unwrap_or_default();
        assert_eq!(problem.contains("it is empty"), name != "GOOD", "{json:#}");
        let remedy = secret["remedy"].as_str().unwrap_or_default();
        assert_eq!(
            remedy.contains(&format!("vault set {name}")),
            name != "GOOD"
        );
    }

    let key = env.home().join("config/vault.key");
    fs_err::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = vault(&env, &["check"], "").expect(1);
    assert!(output.errors().contains("vault.key"), "{}", output.errors());
    assert!(output.errors().contains("chmod 600"), "{}", output.errors());
    let json = vault(&env, &["check", "--json"], "").expect(1).json();
    assert!(
        json["problem"].as_str().unwrap().contains("vault.key"),
        "{json}"
    );
    fs_err::remove_file(&key).unwrap();
    let output = vault(&env, &["check"], "").expect(1);
    assert!(output.errors().contains("its key"), "{}", output.errors());
}

#[test]
fn entries_are_kept_listed_and_removed() {
    let env = new_env();
    let empty = vault(&env, &["ls"], "").expect(0);
    assert!(
        empty.text().is_empty() && empty.errors().contains("vault set"),
        "{}",
        empty.transcript()
    );
    let json = vault(&env, &["set", "KEY", "--json"], "a-value\n")
        .expect(0)
        .json();
    assert_eq!(json["replaced"], false);
    let json = vault(&env, &["set", "KEY", "--json"], "b-value\n")
        .expect(0)
        .json();
    assert_eq!(json["replaced"], true);
    let output = env
        .mini_ork(["vault", "ls", "--json"])
        .env("KEY", "exported")
        .run()
        .expect(0);
    let json = output.json();
    let listed = json["secrets"].as_array().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["name"], "KEY");
    assert_eq!(listed[0]["kind"], "value");
    assert_eq!(listed[0]["exported"], true);
    assert!(listed[0]["set_at_ms"].as_u64().unwrap() > 1_700_000_000_000);
    let absent = vault(&env, &["import", "absent.env"], "").expect(2);
    assert!(
        absent.errors().contains("absent.env"),
        "{}",
        absent.errors()
    );
    vault(&env, &["set", "REMOTE", "--command", "./manager"], "").expect(2);
    vault(&env, &["rm", "KEY"], "").expect(0);
    let gone = vault(&env, &["rm", "KEY"], "").expect(1);
    assert!(gone.errors().contains("no entry KEY"), "{}", gone.errors());
    let help = vault(&env, &["set", "--help"], "").expect(0);
    assert!(help.text().contains("Examples:"), "{}", help.text());
}

#[test]
fn a_terminal_is_asked_and_shows_nothing() {
    let env = new_env();
    let secret = sentinel("typed");
    let (terminal, path) = terminal();
    let running = set_from(&env, &path);
    type_when_asked(&running, &terminal, &format!("{secret}x\x7f\n"));
    let output = running.wait().expect(0);
    assert!(
        output.errors().contains("value of KEY (not shown)"),
        "{}",
        output.errors()
    );
    assert_clean(&env, &secret, &output);
    let modes = tcgetattr(&terminal).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG));
    assert!(!echoed(terminal).contains("sentinel"));
    vault(&env, &["check"], "").expect(0);

    let (terminal, path) = self::terminal();
    let running = set_from(&env, &path);
    type_when_asked(&running, &terminal, "half\x03");
    running.wait().expect(130);
    assert!(
        tcgetattr(&terminal)
            .unwrap()
            .local_modes
            .contains(LocalModes::ECHO)
    );

    // Nobody is asked where nobody may be.
    let output = env
        .call("sh", ["-c", "exec \"$0\" vault set KEY < \"$1\""])
        .arg(env.program())
        .arg(&path)
        .env("MINI_ORK_HOME", env.home())
        .env("MINI_ORK_NONINTERACTIVE", "1")
        .run()
        .expect(2);
    assert!(
        !output.errors().contains("not shown"),
        "{}",
        output.errors()
    );
}

/// A new terminal: the side of who types, and the path of the other.
fn terminal() -> (OwnedFd, std::path::PathBuf) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let path = ptsname(&terminal, Vec::new()).unwrap();
    (terminal, path.into_string().unwrap().into())
}

fn type_when_asked(running: &Running, terminal: &OwnedFd, text: &str) {
    wait_for("question", LIMIT, || {
        running.stderr_so_far().contains("not shown")
    });
    rustix::io::write(terminal.as_fd(), text.as_bytes()).unwrap();
}

/// What the terminal showed. Its other side is closed, so this ends.
fn echoed(terminal: OwnedFd) -> String {
    let mut shown = Vec::new();
    let mut file = std::fs::File::from(terminal);
    let mut piece = [0; 4096];
    while let Ok(count @ 1..) = file.read(&mut piece) {
        shown.extend_from_slice(&piece[..count]);
    }
    String::from_utf8_lossy(&shown).into_owned()
}
