//! The key of the vault in a real keyring, on a session bus of the test's own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mini_ork_testkit::{Call, Output, Running, TestEnv, assert_no_secret, skip, wait_for};
use rustix::process::Signal;

use crate::support::new_env;

const LIMIT: Duration = Duration::from_secs(60);
const SECRETS: &str = "org.freedesktop.secrets";
/// A bus that starts nothing by itself.
const BUS: &str = "<busconfig><type>session</type><auth>EXTERNAL</auth><listen>unix:path=SOCKET</listen>\
    <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
    <allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>";

/// A world with a vault, whose session has a bus and may have a keyring.
struct World {
    env: TestEnv,
    bus: Running,
    keyring: Option<Running>,
}

impl World {
    /// A world without a keyring; none where the programs are missing.
    fn new() -> Option<Self> {
        for program in ["dbus-daemon", "dbus-send", "gnome-keyring-daemon"] {
            if !on_path(program) {
                skip(&format!(
                    "{program} is not installed: `scripts/test` does it, as root"
                ));
                return None;
            }
        }
        let env = new_env();
        let socket = env.root().join("bus");
        env.write("bus.conf", &BUS.replace("SOCKET", socket.to_str().unwrap()));
        let bus = env
            .call("dbus-daemon", ["--nofork", "--nopidfile", "--config-file"])
            .arg(env.root().join("bus.conf"))
            .spawn();
        wait_for("session bus", LIMIT, || socket.exists());
        let world = Self {
            env,
            bus,
            keyring: None,
        };
        world
            .mini_ork(&["vault", "set", "KEY"])
            .stdin("some-value")
            .run()
            .expect(0);
        Some(world)
    }

    /// The same with a keyring that is open.
    fn with_keyring() -> Option<Self> {
        let mut world = Self::new()?;
        let keyring = world
            .in_session(
                "gnome-keyring-daemon",
                &["--foreground", "--unlock", "--components=secrets"],
            )
            .arg(format!(
                "--control-directory={}",
                world.env.root().join("control").display()
            ))
            .stdin("test-password")
            .spawn();
        world.keyring = Some(keyring);
        wait_for("keyring", LIMIT, || {
            let asked = world.send(
                "org.freedesktop.DBus",
                "/",
                "org.freedesktop.DBus.NameHasOwner",
                &format!("string:{SECRETS}"),
            );
            asked.text().contains("true")
        });
        Some(world)
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.env.root().join("bus").display())
    }

    fn in_session(&self, program: &str, arguments: &[&str]) -> Call<'_> {
        self.env
            .call(program, arguments)
            .env("DBUS_SESSION_BUS_ADDRESS", self.address())
    }

    fn mini_ork(&self, arguments: &[&str]) -> Call<'_> {
        self.env
            .mini_ork(arguments)
            .env("DBUS_SESSION_BUS_ADDRESS", self.address())
            .env("RUST_LOG", "trace")
    }

    fn send(&self, service: &str, path: &str, method: &str, argument: &str) -> Output {
        self.in_session("dbus-send", &["--session", "--print-reply"])
            .arg(format!("--dest={service}"))
            .arg(path)
            .arg(method)
            .arg(argument)
            .run()
    }

    fn lock(&self) {
        let collection = "array:objpath:/org/freedesktop/secrets/collection/login";
        self.send(
            SECRETS,
            "/org/freedesktop/secrets",
            "org.freedesktop.Secret.Service.Lock",
            collection,
        )
        .expect(0);
    }

    fn key_file(&self) -> PathBuf {
        self.env.home().join("config/vault.key")
    }

    #[track_caller]
    fn key(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = ["vault", "key"].iter().chain(arguments).copied().collect();
        self.mini_ork(&all).run().expect(0).text().to_owned()
    }

    /// The vault opens.
    #[track_caller]
    fn assert_opens(&self) {
        let output = self.mini_ork(&["vault", "check"]).run().expect(0);
        assert!(output.text().contains("KEY"), "{}", output.text());
    }

    #[track_caller]
    fn refused(&self, arguments: &[&str], reason: &str) {
        let before = fs_err::read(self.key_file()).ok();
        let started = Instant::now();
        let output = self.mini_ork(arguments).run().expect(1);
        assert!(started.elapsed() < Duration::from_secs(40));
        let errors = output.errors();
        assert!(
            errors.contains(reason) && errors.contains("hint"),
            "{errors}"
        );
        assert_eq!(fs_err::read(self.key_file()).ok(), before);
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for program in self.keyring.iter().chain([&self.bus]) {
            program.signal(Signal::KILL);
        }
    }
}

fn on_path(program: &str) -> bool {
    ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .any(|directory| Path::new(directory).join(program).exists())
}

fn secret_of(key_file: &[u8]) -> String {
    let text = String::from_utf8(key_file.to_vec()).unwrap();
    let line = text
        .lines()
        .find(|line| line.starts_with("AGE-SECRET-KEY-1"));
    line.unwrap().to_owned()
}

#[test]
fn the_key_moves_to_the_keyring_and_back() {
    let Some(world) = World::with_keyring() else {
        return;
    };
    let in_file = format!("the key is in the file {}\n", world.key_file().display());
    assert_eq!(world.key(&[]), in_file);
    assert_eq!(world.key(&["--to", "file"]), in_file);
    let key = fs_err::read(world.key_file()).unwrap();

    assert_eq!(
        world.key(&["--to", "keyring"]),
        "moved to keyring of your session\n"
    );
    assert!(!world.key_file().exists());
    assert_no_secret(&secret_of(&key), &[&world.env.home()]);
    world.assert_opens();
    assert_eq!(
        world.key(&["--to", "keyring"]),
        "the key is in the keyring of your session\n"
    );
    world
        .mini_ork(&["vault", "set", "OTHER"])
        .stdin("another-value")
        .run()
        .expect(0);
    assert!(!world.key_file().exists());

    let moved = format!("moved to file {}\n", world.key_file().display());
    assert_eq!(world.key(&["--to", "file"]), moved);
    assert_eq!(fs_err::read(world.key_file()).unwrap(), key);
    world.assert_opens();
    // Nothing is left in the keyring.
    fs_err::rename(world.key_file(), world.env.root().join("aside")).unwrap();
    world.refused(&["vault", "ls"], "the keyring has no key of this vault");
}

#[test]
fn a_move_that_was_cut_off_leaves_a_vault_that_opens_and_can_be_ended() {
    let Some(world) = World::with_keyring() else {
        return;
    };
    let key = fs_err::read(world.key_file()).unwrap();
    let both = || {
        use std::os::unix::fs::PermissionsExt as _;
        fs_err::write(world.key_file(), &key).unwrap();
        fs_err::set_permissions(world.key_file(), std::fs::Permissions::from_mode(0o600)).unwrap();
    };
    world.key(&["--to", "keyring"]);
    both();
    world.assert_opens();
    assert_eq!(
        world.key(&["--to", "keyring"]),
        "moved to keyring of your session\n"
    );
    assert!(!world.key_file().exists());
    world.assert_opens();
    both();
    assert!(world.key(&["--to", "file"]).starts_with("moved to file"));
    fs_err::rename(world.key_file(), world.env.root().join("aside")).unwrap();
    world.refused(&["vault", "ls"], "the keyring has no key of this vault");
}

#[test]
fn a_locked_keyring_is_told_and_changes_nothing() {
    let Some(world) = World::with_keyring() else {
        return;
    };
    world.lock();
    world.refused(
        &["vault", "key", "--to", "keyring"],
        "the keyring is locked",
    );
    world.assert_opens();
}

#[test]
fn a_keyring_that_was_locked_after_the_move_is_told() {
    let Some(world) = World::with_keyring() else {
        return;
    };
    world.key(&["--to", "keyring"]);
    world.lock();
    for arguments in [&["vault", "ls"][..], &["vault", "key", "--to", "file"]] {
        world.refused(arguments, "the keyring is locked");
    }
    assert!(!world.key_file().exists());
}

#[test]
fn a_keyring_that_does_not_answer_is_not_waited_for_for_ever() {
    let Some(world) = World::with_keyring() else {
        return;
    };
    world.keyring.as_ref().unwrap().signal(Signal::STOP);
    world.refused(
        &["vault", "key", "--to", "keyring"],
        "did not answer within 5 s",
    );
    // Whoever has a key file does not need it.
    world.assert_opens();
}

#[test]
fn the_key_of_another_vault_of_the_same_home_is_not_overwritten() {
    let Some(world) = World::with_keyring() else {
        return;
    };
    world.key(&["--to", "keyring"]);
    let old = world.env.root().join("old.age");
    fs_err::rename(world.env.home().join("vault.age"), &old).unwrap();
    world
        .mini_ork(&["vault", "set", "KEY"])
        .stdin("new-value")
        .run()
        .expect(0);
    world.refused(
        &["vault", "key", "--to", "keyring"],
        "another key for this vault",
    );
    fs_err::remove_file(world.key_file()).unwrap();
    fs_err::rename(&old, world.env.home().join("vault.age")).unwrap();
    world.assert_opens();
}

#[test]
fn where_there_is_no_keyring_nothing_changes() {
    let Some(world) = World::new() else {
        return;
    };
    world.refused(&["vault", "key", "--to", "keyring"], "no keyring service");
    let output = world
        .env
        .mini_ork(["vault", "key", "--to", "keyring"])
        .run()
        .expect(1);
    assert!(
        output.errors().contains("there is no D-Bus session"),
        "{}",
        output.errors()
    );
    world.assert_opens();
}

#[test]
fn whoever_has_a_key_file_does_not_ask_the_session() {
    let env = new_env();
    let listener = std::os::unix::net::UnixListener::bind(env.root().join("bus")).unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = format!("unix:path={}", env.root().join("bus").display());
    for arguments in [
        &["vault", "set", "KEY"][..],
        &["vault", "ls"],
        &["vault", "check"],
        &["vault", "key"],
    ] {
        env.mini_ork(arguments)
            .env("DBUS_SESSION_BUS_ADDRESS", &address)
            .stdin("some-value")
            .run()
            .expect(0);
    }
    let asked = listener.accept().map(|_| ()).unwrap_err();
    assert_eq!(asked.kind(), std::io::ErrorKind::WouldBlock);
}
