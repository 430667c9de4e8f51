use std::io;
use std::path::Path;

/// What a file system can still take from this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFree {
    /// Bytes, without those that are reserved for the system.
    pub bytes: u64,
    /// Files and directories; none on a file system that makes them as needed (btrfs).
    pub inodes: Option<u64>,
}

/// Asks the file system that holds `path` what is free on it. Quotas are not seen.
pub fn disk_free(path: &Path) -> io::Result<DiskFree> {
    let status = rustix::fs::statvfs(path)?;
    Ok(DiskFree {
        bytes: status.f_bavail.saturating_mul(status.f_frsize),
        inodes: (status.f_files > 0).then_some(status.f_favail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writable_directory_has_room_and_a_missing_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(disk_free(directory.path()).unwrap().bytes > 0);
        let missing = disk_free(&directory.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
