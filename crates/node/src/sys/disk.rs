use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

/// What a file system can still take from this user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFree {
    /// Bytes, without those that are reserved for the system.
    pub bytes: u64,
    /// Files and directories; none on a file system that makes them as needed (btrfs).
    pub inodes: Option<u64>,
    /// Bytes that programs are to leave: a hundredth of the file system, within bounds.
    pub reserve: u64,
}

/// What is free, and what is needed to begin something.
impl fmt::Display for DiskFree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inodes {
            Some(inodes) if inodes < 2 * Self::RESERVED_INODES => {
                let needed = 2 * Self::RESERVED_INODES;
                write!(
                    formatter,
                    "room for {inodes} files, a run needs at least {needed}"
                )
            }
            _ => {
                let (free, needed) = (self.bytes >> 20, (2 * self.reserve) >> 20);
                write!(
                    formatter,
                    "{free} MiB free, a run needs at least {needed} MiB"
                )
            }
        }
    }
}

impl DiskFree {
    /// Least and most of the reserve.
    const RESERVE: (u64, u64) = (16 << 20, 256 << 20);
    /// Files and directories that programs are to leave.
    const RESERVED_INODES: u64 = 500;

    /// Whether so little is left that programs have to end, for the sake of everybody else.
    pub fn is_low(&self) -> bool {
        matches!(self.room(), (0, _) | (_, Some(0)))
    }

    /// Whether next to nothing is left: half of the reserve. It is the same with files, since
    /// nobody counts who makes how many.
    pub(crate) fn is_lowest(&self) -> bool {
        self.bytes <= self.reserve / 2 || self.room().1 == Some(0)
    }

    /// How many bytes are so much that whoever wrote them has a part in it when little is left: less
    /// than there are between that and next to nothing.
    pub(crate) fn much(&self) -> u64 {
        const MOST: u64 = 16 << 20;
        (self.reserve / 4).min(MOST)
    }

    /// Whether there is room to begin something.
    pub fn has_room(&self) -> bool {
        let (bytes, inodes) = self.room();
        bytes >= self.reserve && inodes.is_none_or(|inodes| inodes >= Self::RESERVED_INODES)
    }

    /// How long it takes at least until so little is left, at a speed that no disk has.
    pub(crate) fn lasts(&self) -> Duration {
        const BYTES_A_MILLISECOND: u64 = 4_000_000;
        const INODES_A_MILLISECOND: u64 = 1000;
        let (bytes, inodes) = self.room();
        let inodes = inodes.map_or(u64::MAX, |inodes| inodes / INODES_A_MILLISECOND);
        Duration::from_millis(inodes.min(bytes / BYTES_A_MILLISECOND))
    }

    /// Bytes and inodes beyond the reserve.
    fn room(&self) -> (u64, Option<u64>) {
        let inodes = self.inodes;
        (
            self.bytes.saturating_sub(self.reserve),
            inodes.map(|inodes| inodes.saturating_sub(Self::RESERVED_INODES)),
        )
    }
}

/// Asks the file system that holds `path` what is free on it. Quotas are not seen.
pub fn disk_free(path: &Path) -> io::Result<DiskFree> {
    let status = rustix::fs::statvfs(path)?;
    let (least, most) = DiskFree::RESERVE;
    Ok(DiskFree {
        reserve: (status.f_blocks.saturating_mul(status.f_frsize) / 100).clamp(least, most),
        bytes: status.f_bavail.saturating_mul(status.f_frsize),
        inodes: (status.f_files > 0).then_some(status.f_favail),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fuller_the_disk_the_sooner_it_is_looked_at() {
        let disk = |bytes: u64, inodes| DiskFree {
            bytes,
            inodes,
            reserve: 256 << 20,
        };
        assert!(disk(256 << 20, None).is_low() && disk(1 << 40, Some(500)).is_low());
        assert!(!disk((256 << 20) + 1, Some(501)).is_low());
        assert!(
            !disk(256 << 20, None).is_lowest() && !disk((128 << 20) + 1, Some(501)).is_lowest()
        );
        assert!(disk(128 << 20, None).is_lowest() && disk(1 << 40, Some(500)).is_lowest());
        assert!(!disk(511 << 20, None).has_room() && disk(512 << 20, None).has_room());
        assert!(disk(1 << 40, None).lasts() > Duration::from_secs(60));
        assert!(disk(300 << 20, None).lasts() < Duration::from_millis(20));
        assert!(disk(1 << 40, Some(501)).lasts() < Duration::from_millis(1));
    }

    #[test]
    fn a_writable_directory_has_room_and_a_missing_one_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        assert!(disk_free(directory.path()).unwrap().bytes > 0);
        let missing = disk_free(&directory.path().join("missing")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }
}
