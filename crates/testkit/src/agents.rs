use std::path::PathBuf;

/// The agent CLI `name` (`claude`, `codex` or `opencode`) of the version that the tests are for,
/// where `scripts/test` has installed it: `agents/bin` in the target directory.
///
/// Says that a test is skipped when it is not there.
pub fn agent_cli(name: &str) -> Option<PathBuf> {
    let found = in_target_directory(&format!("agents/bin/{name}"));
    if found.is_none() {
        crate::skip(&format!(
            "{name} is not installed: `scripts/test` does it, with npm"
        ));
    }
    found
}

/// The Python in which the SDKs of the vendors are installed, likewise.
pub(crate) fn sdk_python() -> Option<PathBuf> {
    let found = in_target_directory("sdks/bin/python");
    if found.is_none() {
        crate::skip("the SDKs of the vendors are not installed: `scripts/test` does it, with pip");
    }
    found
}

/// A test is a program somewhere in the target directory.
fn in_target_directory(path: &str) -> Option<PathBuf> {
    let program = std::env::current_exe().unwrap();
    program
        .ancestors()
        .skip(1)
        .map(|directory| directory.join(path))
        .find(|candidate| candidate.exists())
}
