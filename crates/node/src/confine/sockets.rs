//! Sockets in the file system.
//!
//! They lead out of any network namespace, and a read-only mount does not keep a program from
//! connecting. The system lists only the paths at which they were bound, and nothing of what becomes
//! of these: OpenSSH, for one, binds its shared connection under another name and then renames it.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags as Flags, mount};

use super::enter::failed;
use super::files::{Trouble, hide, open, open_directory, put};

/// Most sockets that are covered.
const MOST: usize = 4096;

/// Sockets that may lead to a program outside and that can be seen inside: all that lie in a
/// directory in which one was bound. It is an error when there are too many to cover them all.
pub(super) fn find(is_seen: impl Fn(&Path) -> bool) -> Result<BTreeSet<PathBuf>, String> {
    let table = fs_err::read("/proc/net/unix").map_err(|error| error.to_string())?;
    beside(&table, is_seen, MOST)
}

fn beside(
    table: &[u8],
    is_seen: impl Fn(&Path) -> bool,
    most: usize,
) -> Result<BTreeSet<PathBuf>, String> {
    // A server has a line for each connection that it took; a directory is looked at once.
    let directories: BTreeSet<PathBuf> = bound(table)
        .filter_map(|path| fs_err::canonicalize(path.parent()?).ok())
        .collect();
    let entries = directories
        .iter()
        .filter_map(|directory| fs_err::read_dir(directory).ok())
        .flatten()
        .flatten();
    let sockets = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()));
    let seen = sockets
        .map(|entry| entry.path())
        .filter(|path| is_seen(path));
    // One more than is allowed shows that there are too many.
    let seen: BTreeSet<PathBuf> = seen.take(most + 1).collect();
    if seen.len() > most {
        let example = seen.last().and_then(|path| path.parent());
        let example = example.unwrap_or(Path::new("/")).display();
        return Err(format!(
            "more than {most} sockets in the file system would have to be covered, such as those in `{example}`"
        ));
    }
    Ok(seen)
}

/// The absolute paths of a table of sockets.
fn bound(table: &[u8]) -> impl Iterator<Item = &Path> {
    table.split(|byte| *byte == b'\n').filter_map(|line| {
        let start = line.windows(2).position(|pair| pair == b" /")? + 1;
        Some(Path::new(OsStr::from_bytes(&line[start..])))
    })
}

/// Lets the sockets at these paths lead nowhere.
pub(super) fn cover(sockets: &BTreeSet<PathBuf>) -> Result<(), Trouble> {
    for socket in sockets {
        let is_socket =
            fs_err::symlink_metadata(socket).is_ok_and(|found| found.file_type().is_socket());
        if is_socket {
            put(&open(Path::new("/dev/null"), true, true)?, socket)?;
        }
    }
    Ok(())
}

/// Lets every socket below `path` lead nowhere, also one that is made later. `empty` is a directory
/// with nothing in it.
///
/// A socket is found by its inode, and those of an overlay are its own. Where the system makes no
/// overlay of it, the directory is empty.
pub(super) fn quiet(path: &Path, empty: &Path) -> Result<(), Trouble> {
    if !fs_err::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
        // What is not there is hidden with what is around it.
        return Ok(());
    }
    let directory = open_directory(path)?;
    // The number has nothing in it that would have to be escaped.
    let layers = format!(
        "lowerdir=/proc/self/fd/{}:{}",
        directory.as_raw_fd(),
        empty.display()
    );
    let layers = std::ffi::CString::new(layers).map_err(failed("cover sockets"))?;
    let flags = Flags::RDONLY | Flags::NOSUID | Flags::NODEV;
    match mount("overlay", path, "overlay", flags, layers.as_c_str()) {
        Ok(()) => Ok(()),
        Err(_) => hide(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_are_taken_from_the_table_as_they_are() {
        let table = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0: 00000002 00000000 00010000 0001 01 11 /var/a b\xff\n\
            0: 00000003 00000000 00000000 0001 03 12\n\
            0: 00000002 00000000 00010000 0001 01 13 @abstract\n\
            0: 00000002 00000000 00010000 0001 01 14 relative/x\n";
        let found: Vec<&Path> = bound(table).collect();
        assert_eq!(found, [Path::new(OsStr::from_bytes(b"/var/a b\xff"))]);
    }

    #[test]
    fn connections_of_a_server_do_not_count_and_too_many_sockets_are_an_error() {
        let place = tempfile::tempdir().unwrap();
        let root = fs_err::canonicalize(place.path()).unwrap();
        let at = |name: &str| root.join(name);
        let _held = ["a", "b", "c"].map(|name| UnixListener::bind(at(name)).unwrap());
        fs_err::write(at("file"), "").unwrap();
        let line = format!("0: 2 0 0 1 1 11 {}\n", at("a").display());
        let table = line.repeat(100);
        let found = beside(table.as_bytes(), |_| true, 3).unwrap();
        assert_eq!(found, ["a", "b", "c"].map(at).into());
        let error = beside(table.as_bytes(), |_| true, 2).unwrap_err();
        assert!(error.contains("more than 2 sockets"), "{error}");
        let hidden = beside(table.as_bytes(), |path| path != at("b"), 2).unwrap();
        assert_eq!(hidden.len(), 2);
    }

    proptest! {
        #[test]
        fn no_table_is_too_strange(table: Vec<u8>) {
            prop_assert!(bound(&table).all(Path::is_absolute));
        }
    }
}
