//! How much room a directory takes.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::beneath::{Root, is_absence};
use super::walk::{Found, walk};

/// Bytes that removing `path` would free: what its files take on disk, each once however many names
/// it has. A file that has names elsewhere counts as well. What cannot be listed counts as nothing,
/// and so does a path that is not there. No link is followed.
pub fn disk_usage(path: &Path) -> io::Result<u64> {
    let itself = match rustix::fs::lstat(path) {
        Ok(stat) => stat,
        Err(error) if is_absence(&error.into()) => return Ok(0),
        Err(error) => return Err(super::beneath::named(error, path)),
    };
    let mut total = blocks(&itself);
    if itself.st_mode & 0o170_000 != 0o040_000 {
        return Ok(total);
    }
    let root = match Root::open(path) {
        Ok(root) => root,
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(total),
        Err(error) => return Err(error),
    };
    let mut counted = HashSet::new();
    walk(&root, &mut |found| {
        if matches!(found, Found::Entry { .. })
            && let Some(stat) = found.stat()?
            && (stat.st_nlink < 2 || counted.insert((stat.st_dev, stat.st_ino)))
        {
            total = total.saturating_add(blocks(&stat));
        }
        Ok(true)
    })?;
    Ok(total)
}

fn blocks(stat: &rustix::fs::Stat) -> u64 {
    u64::try_from(stat.st_blocks)
        .unwrap_or(0)
        .saturating_mul(512)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_file_count_once_and_links_lead_nowhere() {
        let place = tempfile::tempdir().unwrap();
        let tree = place.path().join("tree");
        fs_err::create_dir_all(tree.join("a/b")).unwrap();
        let empty = disk_usage(&tree).unwrap();
        fs_err::write(tree.join("a/b/file"), vec![7; 1 << 20]).unwrap();
        let one = disk_usage(&tree).unwrap();
        assert!(one >= empty + (1 << 20), "{one} {empty}");
        fs_err::hard_link(tree.join("a/b/file"), tree.join("again")).unwrap();
        fs_err::write(place.path().join("outside"), vec![7; 1 << 20]).unwrap();
        fs_err::os::unix::fs::symlink(place.path().join("outside"), tree.join("link")).unwrap();
        assert!(disk_usage(&tree).unwrap() < one + (1 << 20));
        assert_eq!(disk_usage(&place.path().join("missing")).unwrap(), 0);
    }
}
