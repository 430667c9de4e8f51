use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::process;

/// Longest account of a process that is read.
const LONGEST: usize = 4096;
/// File systems whose pages the kernel puts down to whoever writes them: ext2 to ext4, XFS, btrfs,
/// and overlays, which lie on one of these as a rule.
const ACCOUNTED: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x794c_7630];

/// How much a process and its descendants wrote, as far as the system tells.
///
/// What a process wrote goes to its parent's account when that one waits for it. Not seen is what
/// was set aside without being written (`fallocate`), and what the children of a process wrote that
/// waits for none of them: the account of one that has ended is the system's, not this user's.
#[derive(Debug)]
pub(crate) struct Written {
    /// The account of this process, which only it can read once it is protected; and only by what
    /// was opened before.
    own: Option<File>,
}

impl Written {
    /// To be called before this process is protected.
    pub(crate) fn by_this_process() -> Self {
        let own = fs_err::File::open("/proc/self/io");
        Self {
            own: own.ok().map(fs_err::File::into_file),
        }
    }

    /// Bytes that this process, whatever it waited for, and `others` have written. None when an
    /// account cannot be read, which may be so for a moment while a process ends.
    pub(crate) fn so_far(&self, others: impl Iterator<Item = i32>, path: &Path) -> Option<u64> {
        let accounted = rustix::fs::statfs(path).is_ok_and(|status| {
            u64::try_from(status.f_type).is_ok_and(|kind| ACCOUNTED.contains(&kind))
        });
        let mut total = 0_u64;
        for pid in others {
            let account = fs_err::File::open(format!("/proc/{pid}/io"))
                .and_then(|file| read(file.file()))
                .map(|text| bytes_in(&text, accounted));
            match account {
                Ok(bytes) => total = total.saturating_add(bytes?),
                Err(error) if is_gone(&error) => {}
                Err(_) if process::status(pid).is_none_or(|status| status.ended) => {}
                Err(_) => return None,
            }
        }
        // Last, so that one that was waited for meanwhile is not missed.
        let own = read(self.own.as_ref()?).ok()?;
        Some(total.saturating_add(bytes_in(&own, accounted)?))
    }
}

fn read(file: &File) -> io::Result<String> {
    let mut buffer = [0; LONGEST];
    let length = file.read_at(&mut buffer, 0)?;
    Ok(String::from_utf8_lossy(buffer.get(..length).unwrap_or_default()).into_owned())
}

fn is_gone(error: &io::Error) -> bool {
    let no_process = Some(rustix::io::Errno::SRCH.raw_os_error());
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == no_process
}

/// Where pages are not `accounted`, as in a file system that is in memory, everything counts that
/// was written to anything.
fn bytes_in(account: &str, accounted: bool) -> Option<u64> {
    let field = |name: &str| {
        let mut lines = account.lines();
        lines.find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let pages = field("write_bytes:")?;
    if accounted {
        return Some(pages);
    }
    Some(pages.max(field("wchar:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_read_and_another_text_is_none() {
        let account = "rchar: 1\nwchar: 70\nsyscw: 4\nread_bytes: 9\nwrite_bytes: 50\n\
                       cancelled_write_bytes: 8\n";
        assert_eq!(bytes_in(account, true), Some(50));
        assert_eq!(bytes_in(account, false), Some(70));
        for other in [
            "",
            "wchar: 7",
            "write_bytes: x\nwchar: 1",
            "write_bytes: -1",
        ] {
            assert_eq!(bytes_in(other, true), None, "{other}");
        }
    }

    #[test]
    fn what_children_wrote_to_a_disk_is_counted() {
        assert_children_are_counted(&std::env::temp_dir());
    }

    #[test]
    fn what_children_wrote_to_memory_is_counted() {
        assert_children_are_counted(Path::new("/dev/shm"));
    }

    /// A child that has ended, and has been waited for.
    #[expect(clippy::disallowed_methods, reason = "a program that writes")]
    #[track_caller]
    fn assert_children_are_counted(place: &Path) {
        const BYTES: u64 = 8 << 20;
        let written = Written::by_this_process();
        let directory = tempfile::tempdir_in(place).unwrap();
        let nobody = || std::iter::empty::<i32>();
        let before = written.so_far(nobody(), directory.path()).unwrap();
        let mut shell = std::process::Command::new("sh");
        let status = shell
            .args(["-c", &format!("head -c {BYTES} /dev/zero > filler")])
            .current_dir(directory.path())
            .status();
        assert!(status.unwrap().success());
        let after = written.so_far(nobody(), directory.path()).unwrap();
        assert!(after - before >= BYTES, "{before} {after}");
        let gone = std::iter::once(i32::MAX);
        assert!(written.so_far(gone, directory.path()).is_some());
    }
}
