//! What a hostile git directory points at, read as text.

use std::io::{self, Read as _};

use rustix::fs::FileType;

use super::super::beneath::Root;
use super::super::walk::{Found, walk};
use crate::git::{ObjectFormat, RepoPath};

/// Most bytes of one file. A line of a reflog is about 200 bytes.
const LONGEST_FILE: u64 = 16 << 20;
/// Most bytes of all of them.
const MOST_BYTES: u64 = 64 << 20;
const LONGEST_NAME: usize = 40;

/// A mention of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pointer {
    /// The object.
    pub(super) id: String,
    /// Letters, digits and dashes.
    pub(super) name: String,
    /// Where it stands, as printable ASCII.
    pub(super) source: String,
    /// It is a reference, and not only a line in a file.
    pub(super) is_reference: bool,
}

/// Every object id that a file of the git directory holds, the best name for each; or the sentence
/// that says why they cannot all be read.
///
/// That is more than git would follow, and does no harm: what is no commit of its own is dropped
/// later. So nothing depends on the names that git has for what is in progress.
pub(super) fn read(git: &Root, format: ObjectFormat) -> io::Result<Result<Vec<Pointer>, String>> {
    let mut files: Vec<Vec<u8>> = Vec::new();
    let mut obstacle = None;
    walk(git, &mut |found| {
        match found {
            Found::Closed { path } => {
                obstacle = Some(format!("`.git/{}` cannot be read", path.escape_ascii()));
            }
            Found::Entry {
                path,
                kind: FileType::Directory,
                ..
            } => match *path {
                // Objects come by another way; hooks are programs.
                b"objects" | b"hooks" => return Ok(false),
                // A directory of the new form, with ids that are no text.
                b"reftable" => {
                    obstacle = Some("its `.git` keeps references in a form not known here".into());
                    return Ok(false);
                }
                _ if path.starts_with(b"modules/") => {
                    obstacle = Some("its `.git` holds repositories of submodules".into());
                    return Ok(false);
                }
                _ => return Ok(true),
            },
            Found::Entry {
                path,
                kind: FileType::RegularFile,
                ..
            } if !matches!(*path, b"index" | b"config" | b"description") => {
                files.push(path.to_vec());
            }
            _ => {}
        }
        Ok(false)
    })?;
    if let Some(obstacle) = obstacle {
        return Ok(Err(obstacle));
    }
    files.sort_by_key(|path| (rank(path), path.clone()));
    let mut pointers: Vec<Pointer> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let mut left = MOST_BYTES;
    for path in files {
        let limit = LONGEST_FILE.min(left);
        let Some(bytes) = read_file(git, &path, limit)? else {
            continue;
        };
        if bytes.len() as u64 > limit {
            return Ok(Err(format!("`.git/{}` is too long", path.escape_ascii())));
        }
        left -= bytes.len() as u64;
        for pointer in of_file(&path, &bytes, format) {
            if seen.insert(pointer.id.clone()) {
                pointers.push(pointer);
            }
        }
    }
    Ok(Ok(pointers))
}

/// One byte more than `limit` when it is longer; none for what is no regular file any more.
fn read_file(git: &Root, path: &[u8], limit: u64) -> io::Result<Option<Vec<u8>>> {
    // No name that git takes for a reference is refused here.
    let Ok(path) = RepoPath::new(path) else {
        return Ok(None);
    };
    let file = match git.open_file(&path) {
        Ok(file) => file,
        Err(error) if super::super::beneath::is_absence(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Of two mentions of one object, the one with the lower number names it.
fn rank(path: &[u8]) -> u8 {
    match path {
        _ if path.starts_with(b"refs/heads/") => 0,
        b"logs/refs/stash" => 1,
        _ if path.starts_with(b"refs/") => 2,
        b"packed-refs" => 3,
        b"HEAD" => 4,
        _ if path.starts_with(b"logs/") => 6,
        _ => 5,
    }
}

fn of_file(path: &[u8], bytes: &[u8], format: ObjectFormat) -> Vec<Pointer> {
    let source = path.escape_ascii().to_string();
    let mut found = Vec::new();
    let lines: Vec<&[u8]> = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .collect();
    for (number, line) in lines.iter().enumerate() {
        let (name, source) = match path {
            b"logs/refs/stash" => {
                let age = lines.len() - 1 - number;
                (format!("stash-{age}"), format!("stash@{{{age}}}"))
            }
            b"packed-refs" => {
                let name = line.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
                (slug(name), name.escape_ascii().to_string())
            }
            _ => (slug(path), source.clone()),
        };
        let is_reference = path.starts_with(b"refs/") || path == b"packed-refs";
        // Of the two ids in a line of a reflog, the second is what the reference came to be.
        let ids = ids(line, format);
        let skipped = usize::from(path.starts_with(b"logs/") && ids.len() > 1);
        found.extend(ids.into_iter().skip(skipped).map(|id| Pointer {
            id,
            name: name.clone(),
            source: source.clone(),
            is_reference,
        }));
    }
    found
}

fn ids(line: &[u8], format: ObjectFormat) -> Vec<String> {
    let length = format.null_id().len();
    line.split(|byte| !matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        .filter(|part| part.len() == length && part.iter().any(|byte| *byte != b'0'))
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect()
}

/// `refs/heads/Feature/x` → `branch-feature-x`. Never empty, and valid inside of a reference.
fn slug(path: &[u8]) -> String {
    let (prefix, rest) = match path {
        _ if path.starts_with(b"refs/heads/") => ("branch", &path[11..]),
        _ if path.starts_with(b"refs/") => ("", &path[5..]),
        _ if path.starts_with(b"logs/") => ("reflog", &path[5..]),
        _ => ("", path),
    };
    let mut name = prefix.to_owned();
    let mut pending = !name.is_empty();
    for byte in rest {
        if name.len() >= LONGEST_NAME {
            break;
        }
        let byte = byte.to_ascii_lowercase();
        if byte.is_ascii_alphanumeric() {
            if pending {
                name.push('-');
            }
            pending = false;
            name.push(char::from(byte));
        } else {
            pending = !name.is_empty();
        }
    }
    if name.is_empty() {
        name.push_str("commit");
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_tell_where_a_commit_was() {
        for (path, name) in [
            (&b"refs/heads/Feature/x"[..], "branch-feature-x"),
            (b"HEAD", "head"),
            (b"rebase-merge/orig-head", "rebase-merge-orig-head"),
            (b"logs/HEAD", "reflog-head"),
            (b"refs/tags/v1.0", "tags-v1-0"),
            (b"refs/heads/\xff\n", "branch"),
            (b"\xff", "commit"),
        ] {
            assert_eq!(slug(path), name);
        }
    }

    #[test]
    fn a_stash_is_named_as_git_names_it() {
        let (old, new) = ("a".repeat(40), "b".repeat(40));
        let zero = "0".repeat(40);
        let log = format!("{zero} {old} X <x> 1 +0000\tone\n{old} {new} X <x> 2 +0000\ttwo\n");
        let found = of_file(b"logs/refs/stash", log.as_bytes(), ObjectFormat::Sha1);
        let names: Vec<(&str, &str)> = found
            .iter()
            .map(|pointer| (pointer.name.as_str(), pointer.id.as_str()))
            .collect();
        assert_eq!(
            names,
            [("stash-1", old.as_str()), ("stash-0", new.as_str())]
        );
    }

    proptest! {
        #[test]
        fn no_file_makes_the_reader_panic(path in prop::collection::vec(any::<u8>(), 0..60), bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            for path in [&path[..], b"packed-refs", b"logs/refs/stash", b"logs/HEAD"] {
                for pointer in of_file(path, &bytes, ObjectFormat::Sha1) {
                    prop_assert!(pointer.name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
                    prop_assert!(pointer.source.is_ascii());
                }
            }
        }
    }
}
