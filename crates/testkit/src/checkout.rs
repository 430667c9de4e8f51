use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// Everything about a checkout that a run must leave as it was, by path: contents, kinds, modes,
/// owners and times of its files; of its git directory, and of the one that it shares with other
/// checkouts, everything but the objects (also of Git LFS) and the refs that are mini-ork's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutState {
    entries: BTreeMap<PathBuf, String>,
}

/// The state of the checkout, or the bare repository, at `path`.
pub fn checkout_state(path: &Path) -> CheckoutState {
    let mut entries = BTreeMap::new();
    let bare = is_git_directory(path);
    walk(path, &mut |path, line| {
        if bare {
            return false;
        }
        if path.file_name().is_some_and(|name| name == ".git") && path.is_dir() {
            return false;
        }
        entries.insert(path.to_owned(), line);
        true
    });
    let git = git_directory(path);
    for directory in [common_directory(&git), git] {
        git_state(&directory, &mut entries);
    }
    CheckoutState { entries }
}

/// The state of the files at and below `path`, which need not be there, whatever they are.
pub fn tree_state(path: &Path) -> CheckoutState {
    let mut entries = BTreeMap::new();
    walk(path, &mut |path, line| {
        entries.insert(path.to_owned(), line);
        true
    });
    CheckoutState { entries }
}

impl CheckoutState {
    /// Panics with the differences when `now` is another state.
    #[track_caller]
    pub fn assert_same(&self, now: &Self, when: &str) {
        let mut differences = String::new();
        for (path, line) in &self.entries {
            match now.entries.get(path) {
                Some(other) if other == line => {}
                Some(other) => {
                    let path = path.display();
                    let _ = writeln!(differences, "{path}\n  was {line}\n  is  {other}");
                }
                None => {
                    let _ = writeln!(differences, "{}\n  is gone", path.display());
                }
            }
        }
        for (path, line) in &now.entries {
            if !self.entries.contains_key(path) {
                let _ = writeln!(differences, "{}\n  is new: {line}", path.display());
            }
        }
        assert!(
            differences.is_empty(),
            "the checkout differs {when}:\n{differences}"
        );
    }
}

fn git_state(directory: &Path, entries: &mut BTreeMap<PathBuf, String>) {
    walk(directory, &mut |path, line| {
        let relative = path.strip_prefix(directory).unwrap_or(path);
        if is_ours(relative) {
            return false;
        }
        if path != directory && is_git_directory(path) {
            // The git directory of a submodule.
            git_state(path, entries);
            return false;
        }
        // To git a directory is what is in it.
        if path.is_symlink() || !path.is_dir() {
            entries.insert(path.to_owned(), line);
        }
        true
    });
}

fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").is_file() && path.join("objects").is_dir() && path.join("refs").is_dir()
}

/// Objects are only ever added; the rest is what a run may make.
fn is_ours(relative: &Path) -> bool {
    let is = |prefix: &str| relative.starts_with(prefix);
    let kept_objects = is("objects/info/alternates");
    (is("objects") && relative != Path::new("objects") && !kept_objects)
        || is("lfs/objects")
        || is("refs/heads/mini-ork")
        || is("refs/mo")
        || is("logs/refs/heads/mini-ork")
        || is("logs/refs/mo")
}

/// Calls `see` for `path` and everything below it; what it answers `false` for is not entered.
fn walk(path: &Path, see: &mut dyn FnMut(&Path, String) -> bool) {
    let Ok(metadata) = fs_err::symlink_metadata(path) else {
        return;
    };
    let content = if metadata.is_symlink() {
        let target = fs_err::read_link(path).unwrap();
        format!("-> {}", target.as_os_str().as_bytes().escape_ascii())
    } else if metadata.is_file() {
        digest(&fs_err::read(path).unwrap())
    } else {
        String::new()
    };
    let line = format!(
        "mode {:o} owner {}:{} time {}.{:09} {content}",
        metadata.mode(),
        metadata.uid(),
        metadata.gid(),
        metadata.mtime(),
        metadata.mtime_nsec(),
    );
    if !see(path, line) || !metadata.is_dir() {
        return;
    }
    let mut children: Vec<PathBuf> = fs_err::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    children.sort();
    for child in children {
        walk(&child, see);
    }
}

fn digest(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    let short: String = digest
        .iter()
        .take(12)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{} bytes {short}", bytes.len())
}

/// The git directory of the checkout at `path`; a bare repository is its own.
fn git_directory(path: &Path) -> PathBuf {
    let inner = path.join(".git");
    if inner.is_file() {
        let text = fs_err::read(&inner).unwrap();
        let target = text.strip_prefix(b"gitdir: ").unwrap();
        return path.join(one_line(target));
    }
    if inner.is_dir() {
        inner
    } else {
        path.to_owned()
    }
}

fn common_directory(git: &Path) -> PathBuf {
    match fs_err::read(git.join("commondir")) {
        Ok(text) => git.join(one_line(&text)),
        Err(_) => git.to_owned(),
    }
}

/// The path may itself hold line breaks.
fn one_line(text: &[u8]) -> PathBuf {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    PathBuf::from(OsString::from_vec(text.to_vec()))
}
