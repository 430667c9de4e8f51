//! Opening a path one component at a time: what `openat2` does, for kernels that do not have it.
//!
//! No call here ever follows a link. Each component is opened as what it is and looked at by its
//! descriptor, and the text of a link is walked like any other path. A directory is opened once more
//! by `.` of its descriptor: gVisor follows a link in spite of `NOFOLLOW` where `DIRECTORY` is asked
//! for as well, so a name is never opened with both.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;

use super::{Links, Rule};

/// Most links on a way, as in the kernel.
const MOST_LINKS: usize = 40;
/// Most components that are opened for one path: enough for the longest, and for a hostile one not
/// too many.
const MOST_STEPS: usize = 20_000;

/// Opens `path` from `start`, as `rule` says. `AGAIN` means that somebody changed what was being
/// walked through.
pub(super) fn open(
    start: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    rule: Rule,
) -> Result<OwnedFd, Errno> {
    let text = path.as_os_str().as_bytes();
    let root;
    let start = match rule {
        _ if text.is_empty() => return Err(Errno::NOENT),
        Rule::Below(_) if path.is_absolute() => return Err(Errno::XDEV),
        Rule::Below(_) => start,
        Rule::Straight if !path.is_absolute() => return Err(Errno::INVAL),
        Rule::Straight => {
            root = openat(start, c"/", HANDLE, Mode::empty())?;
            root.as_fd()
        }
    };
    let mut walk = Walk {
        start,
        way: Vec::new(),
        here: None,
        pending: VecDeque::new(),
        steps: 0,
        links: 0,
        rule,
    };
    walk.add(text);
    walk.open(flags | OFlags::CLOEXEC, mode)
}

/// How a component is opened to be looked at. It needs no right to what is opened.
const HANDLE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

struct Walk<'a> {
    start: BorrowedFd<'a>,
    /// The names from the start to here. None of them was a link.
    way: Vec<OsString>,
    /// The directory that the walk has come to; none at its start.
    here: Option<OwnedFd>,
    /// What is to be walked yet.
    pending: VecDeque<OsString>,
    steps: usize,
    links: usize,
    rule: Rule,
}

impl Walk<'_> {
    /// Puts the components of `text` before what is pending. Behind a final slash is `.`, which is
    /// only in a directory.
    fn add(&mut self, text: &[u8]) {
        for name in text.rsplit(|byte| *byte == b'/') {
            let name = if name.is_empty() { b"." } else { name };
            self.pending.push_front(OsString::from_vec(name.to_vec()));
        }
    }

    fn open(mut self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        while let Some(name) = self.pending.pop_front() {
            if name == "." {
                continue;
            }
            if name == ".." {
                self.go_up()?;
                continue;
            }
            let last = self.pending.is_empty();
            let handle = match self.look(&name) {
                Err(Errno::NOENT) if last && flags.contains(OFlags::CREATE) => {
                    // A link that appears there now is not followed either.
                    let made = openat(self.here(), &name, flags | OFlags::NOFOLLOW, mode);
                    return made.map_err(|errno| self.changed(errno));
                }
                handle => handle?,
            };
            let kind = FileType::from_raw_mode(fstat(&handle)?.st_mode);
            if last && flags.contains(OFlags::CREATE | OFlags::EXCL) {
                return Err(Errno::EXIST);
            }
            match kind {
                FileType::Symlink => self.follow(&handle)?,
                FileType::Directory => {
                    self.way.push(name);
                    self.here = Some(handle);
                }
                _ if !last || flags.contains(OFlags::DIRECTORY) => return Err(Errno::NOTDIR),
                _ => {
                    let opened = openat(self.here(), &name, flags | OFlags::NOFOLLOW, mode);
                    return opened.map_err(|errno| self.changed(errno));
                }
            }
        }
        openat(self.here(), c".", flags, mode)
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.here.as_ref().map_or(self.start, |here| here.as_fd())
    }

    fn look(&mut self, name: &OsStr) -> Result<OwnedFd, Errno> {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return Err(Errno::LOOP);
        }
        openat(self.here(), name, HANDLE, Mode::empty())
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), Errno> {
        self.links += 1;
        if self.links > MOST_LINKS || !matches!(self.rule, Rule::Below(Links::Inside)) {
            return Err(Errno::LOOP);
        }
        let text = readlinkat(link, c"", Vec::new())?.into_bytes();
        match text.first() {
            None => Err(Errno::NOENT),
            Some(b'/') => Err(Errno::XDEV),
            Some(_) => {
                self.add(&text);
                Ok(())
            }
        }
    }

    /// Goes to the directory above: by its names from the start, for `..` of a directory that was
    /// moved meanwhile would lead elsewhere.
    fn go_up(&mut self) -> Result<(), Errno> {
        if self.way.pop().is_none() {
            return match self.rule {
                Rule::Below(_) => Err(Errno::XDEV),
                Rule::Straight => Ok(()),
            };
        }
        self.here = None;
        for name in std::mem::take(&mut self.way) {
            let handle = self.look(&name)?;
            if FileType::from_raw_mode(fstat(&handle)?.st_mode) != FileType::Directory {
                return Err(Errno::AGAIN);
            }
            self.here = Some(handle);
            self.way.push(name);
        }
        Ok(())
    }

    /// What a failure means of a component that was no link a moment ago.
    fn changed(&self, errno: Errno) -> Errno {
        match (errno, self.rule) {
            (Errno::LOOP, Rule::Below(Links::Inside)) => Errno::AGAIN,
            _ => errno,
        }
    }
}
