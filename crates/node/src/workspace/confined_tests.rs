use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use super::*;

/// What is started in the place of mini-ork: it leaves `record` behind and does not come to the
/// program.
fn stuck(place: &Path, record: &[u8]) -> (ConfinedBoundary, Drive) {
    let private = place.join("private");
    fs_err::create_dir(&private).unwrap();
    fs_err::write(place.join("record"), record).unwrap();
    let program = place.join("program");
    let script = format!(
        "#!/bin/sh\ncat > '{}'\ncp '{}' '{}'\necho failed it is stuck\n",
        place.join("confinement").display(),
        place.join("record").display(),
        private.join(FIRST).display(),
    );
    fs_err::write(&program, script).unwrap();
    let executable = std::fs::Permissions::from_mode(0o755);
    fs_err::set_permissions(&program, executable).unwrap();
    let settings = ConfinedSettings {
        program,
        home: Some("/h/me".into()),
        ledger: Some(place.join("ledger")),
        ..ConfinedSettings::default()
    };
    let drive = Drive {
        name: "abc".to_owned(),
        proof: private.clone(),
        private,
        shares: Vec::new(),
    };
    (ConfinedBoundary::new(settings), drive)
}

#[expect(clippy::disallowed_methods, reason = "the process that is left")]
fn left_behind() -> (Child, Vec<u8>) {
    let child = Command::new("sleep")
        .arg("1000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let status = process::status(i32::try_from(child.id()).unwrap()).unwrap();
    let record = serde_json::to_vec(&status.identity).unwrap();
    (child, record)
}

/// Whether it was killed; it is, else, and the test fails.
fn was_killed(mut child: Child) -> bool {
    let ended = child.try_wait().unwrap().is_some();
    let _ = child.kill();
    let _ = child.wait();
    ended
}

#[tokio::test]
async fn what_is_stuck_on_its_way_is_removed_before_its_record_is_closed() {
    let place = tempfile::tempdir().unwrap();
    let (child, record) = left_behind();
    let (boundary, drive) = stuck(place.path(), &record);
    let error = boundary.raise(&drive).await.unwrap_err();
    assert!(was_killed(child), "{error}");
    let record = boundary.ledger(&drive).read("abc").unwrap().unwrap();
    assert_eq!(record.state, SandboxState::Released);
    assert!(!drive.private.join(FIRST).exists());
}

#[tokio::test]
async fn what_may_be_left_stays_on_record() {
    let place = tempfile::tempdir().unwrap();
    let (boundary, drive) = stuck(place.path(), b"{");
    assert!(boundary.raise(&drive).await.is_err());
    let record = boundary.ledger(&drive).read("abc").unwrap().unwrap();
    assert!(record.is_open());
}

#[test]
fn a_check_leaves_nothing_when_it_fails() {
    let place = tempfile::tempdir().unwrap();
    let (child, record) = left_behind();
    let (boundary, drive) = stuck(place.path(), &record);
    let error = boundary.check(&drive.private).unwrap_err();
    assert!(was_killed(child), "{error}");
}

#[test]
fn sockets_of_agents_and_engines_in_the_home_of_the_user_lead_nowhere() {
    let place = tempfile::tempdir().unwrap();
    let (boundary, drive) = stuck(place.path(), b"{");
    assert!(boundary.start(&drive).is_err());
    let confinement = fs_err::read(place.path().join("confinement")).unwrap();
    let confinement: Confinement = serde_json::from_slice(&confinement).unwrap();
    for directory in ["/h/me/.ssh", "/h/me/.gnupg", "/h/me/.docker"] {
        let directory = ByteString::from(Path::new(directory));
        assert!(confinement.quiet.contains(&directory), "{directory:?}");
    }
}
