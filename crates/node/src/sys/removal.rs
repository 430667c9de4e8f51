use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, Dir, Mode, OFlags, RawMode, RenameFlags, ResolveFlags, chmod, fstat, openat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

/// How a directory is opened to work in it: itself, and never what a link leads to.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Removes a directory with everything in it, or a file; nothing happens when there is none.
///
/// A program may have left directories that nobody may read or write: they are opened for their
/// owner first. Symbolic links are removed and never followed. No depth is too deep: few
/// directories are open at a time.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    remove_tree_by(path, ResolveFlags::empty())
}

/// The same without following a link on the way to `path`, which is absolute: whoever may write
/// somewhere on the way cannot have anything else removed.
pub fn remove_tree_strictly(path: &Path) -> io::Result<()> {
    remove_tree_by(
        path,
        ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS,
    )
}

fn remove_tree_by(path: &Path, resolve: ResolveFlags) -> io::Result<()> {
    let named = |error: Errno| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(named(Errno::INVAL));
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = if resolve.is_empty() {
        rustix::fs::open(parent, flags, Mode::empty())
    } else {
        rustix::fs::openat2(CWD, parent, flags, Mode::empty(), resolve)
    };
    match opened {
        Ok(parent) => remove_entry(&parent, name).map_err(named),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        Err(error) => Err(named(error)),
    }
}

/// Removes everything in a directory, which itself stays what it is: a sandbox may have it mounted.
/// Whatever else is in its place is removed.
pub fn empty_tree(path: &Path) -> io::Result<()> {
    let named = |error: Errno| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    let directory = match rustix::fs::open(path, DIRECTORY, Mode::empty()) {
        Ok(directory) => directory,
        // Not a directory, or one that is closed to its owner.
        Err(_) => return remove_tree(path),
    };
    for entry in Dir::read_from(&directory).map_err(named)? {
        let entry = entry.map_err(named)?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            remove_entry(&directory, name).map_err(named)?;
        }
    }
    Ok(())
}

/// How deep to go with a directory held open at each level.
const LEVELS: usize = 50;

/// Removes `name` in `parent` and everything below it, without following a link. A tree that is
/// deeper than we may have directories open is taken apart from the middle.
pub(crate) fn remove_entry(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<()> {
    let mut pending = vec![name.to_owned()];
    let mut moved = 0_u64;
    while let Some(name) = pending.pop() {
        let mut hoist = |directory: &OwnedFd, name: &OsStr| loop {
            let aside = OsString::from(format!(".mini-ork-remove-{}-{moved}", std::process::id()));
            moved += 1;
            match renameat_with(directory, name, parent, &aside, RenameFlags::NOREPLACE) {
                Ok(()) => {
                    pending.push(aside);
                    return Ok(());
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        };
        remove_level(parent, &name, LEVELS, &mut hoist)?;
    }
    Ok(())
}

fn remove_level(
    parent: &OwnedFd,
    name: &OsStr,
    levels: usize,
    hoist: &mut dyn FnMut(&OwnedFd, &OsStr) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let directory = open_fully(parent, name)?;
    if levels == 0 {
        return hoist(parent, name);
    }
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let inner = entry.file_name().to_bytes();
        if inner != b"." && inner != b".." {
            remove_level(&directory, OsStr::from_bytes(inner), levels - 1, hoist)?;
        }
    }
    match unlinkat(parent, name, AtFlags::REMOVEDIR) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Opens a directory and sees to it that its owner may list and change it.
pub(crate) fn open_fully(parent: &OwnedFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let handle = openat(parent, name, flags, Mode::empty())?;
    let mode = fstat(&handle)?.st_mode;
    if mode & 0o700 != 0o700 {
        give_owner_rights(&handle, mode)?;
    }
    openat(&handle, c".", DIRECTORY, Mode::empty())
}

/// `handle` may be opened without any right to the directory.
fn give_owner_rights(handle: &OwnedFd, mode: RawMode) -> rustix::io::Result<()> {
    // Such a handle cannot be changed itself, but what it stands for can.
    let through = format!("/proc/self/fd/{}", handle.as_raw_fd());
    chmod(through, Mode::from_raw_mode(mode) | Mode::RWXU)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn closed_directories_go_and_links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let outside = root.path().join("outside");
        fs_err::create_dir(&outside).unwrap();
        fs_err::write(outside.join("kept"), "x").unwrap();
        let tree = root.path().join("tree");
        fs_err::create_dir_all(tree.join("a/b")).unwrap();
        fs_err::write(tree.join("a/b/file"), "x").unwrap();
        fs_err::os::unix::fs::symlink(&outside, tree.join("a/link")).unwrap();
        for closed in ["a/b", "a"] {
            let nobody = std::fs::Permissions::from_mode(0o000);
            fs_err::set_permissions(tree.join(closed), nobody).unwrap();
        }
        remove_tree(&tree).unwrap();
        assert!(!tree.exists() && outside.join("kept").exists());

        // A link on the way is one that somebody else may have put there.
        fs_err::os::unix::fs::symlink(&outside, &tree).unwrap();
        assert!(remove_tree_strictly(&tree.join("kept")).is_err());
        assert!(outside.join("kept").exists());
        remove_tree_strictly(&outside.join("kept")).unwrap();
        assert!(!outside.join("kept").exists());
        fs_err::write(outside.join("kept"), "x").unwrap();
        remove_tree_strictly(&tree).unwrap();
        assert!(!tree.is_symlink() && outside.join("kept").exists());
        remove_tree(&tree).unwrap();
    }

    #[test]
    fn a_tree_may_be_deeper_than_there_may_be_open_files() {
        use rustix::fs::{Mode, OFlags, mkdirat, openat};
        let root = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let mut directory = rustix::fs::open(root.path(), flags, Mode::empty()).unwrap();
        let open_files = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        let deep = open_files.current.unwrap_or(0).clamp(1024, 30_000) + 200;
        for _ in 0..deep {
            mkdirat(&directory, "d", Mode::from_raw_mode(0o700)).unwrap();
            directory = openat(&directory, "d", flags, Mode::empty()).unwrap();
        }
        remove_tree(&root.path().join("d")).unwrap();
        assert_eq!(fs_err::read_dir(root.path()).unwrap().count(), 0);
    }
}
