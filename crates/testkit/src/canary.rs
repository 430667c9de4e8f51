use std::path::Path;

use crate::processes::{contains, process_directories};

/// Everywhere that `secret` can be read: files below `directories` (names and contents), command
/// lines and environments of processes. The test's own process is left out.
pub fn places_with(secret: &str, directories: &[&Path]) -> Vec<String> {
    let secret = secret.as_bytes();
    let mut found = Vec::new();
    for directory in directories {
        search(directory, secret, &mut found);
    }
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    for (pid, directory) in process_directories() {
        for name in ["cmdline", "environ"] {
            let bytes = fs_err::read(directory.join(name)).unwrap_or_default();
            if pid != own && contains(&bytes, secret) {
                found.push(directory.join(name).display().to_string());
            }
        }
    }
    found
}

/// Panics when `secret` can be read somewhere below `directories` or in a process.
#[track_caller]
pub fn assert_no_secret(secret: &str, directories: &[&Path]) {
    let found = places_with(secret, directories);
    assert!(found.is_empty(), "the secret is in {found:#?}");
}

fn search(path: &Path, secret: &[u8], found: &mut Vec<String>) {
    if contains(path.as_os_str().as_encoded_bytes(), secret) {
        found.push(format!("the name {}", path.display()));
    }
    let Ok(metadata) = fs_err::symlink_metadata(path) else {
        return;
    };
    if metadata.is_dir() {
        for entry in fs_err::read_dir(path).unwrap() {
            search(&entry.unwrap().path(), secret, found);
        }
    } else if metadata.is_file() && contains(&fs_err::read(path).unwrap(), secret) {
        found.push(path.display().to_string());
    }
}
