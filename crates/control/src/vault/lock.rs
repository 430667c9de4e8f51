use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::error::VaultError;
use super::guard::{Directory, failed};

const NAME: &str = "vault.lock";
/// A change takes milliseconds; whoever holds the lock this long is stuck.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// Keeps other writers away until it is dropped. The system frees it with the process.
pub(super) struct Lock {
    _file: File,
}

/// Waits until no other process changes the vault, for 10 seconds at most.
pub(super) fn take(home: &Path) -> Result<Lock, VaultError> {
    let path = home.join(NAME);
    let file = Directory::existing(home)?
        .create(NAME, OFlags::RDWR)
        .map_err(|source| failed("open", &path, source))?;
    let until = Instant::now() + PATIENCE;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(VaultError::Locked {
                    path,
                    waited: PATIENCE,
                });
            }
            Err(errno) => return Err(failed("lock", &path, errno.into())),
        }
    }
}
