use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

/// Where the first process of a container finds the socket.
pub(super) const INSIDE: &str = "/opt/mini-ork/door/outside";
/// The directory that is mounted for it.
pub(super) const DIRECTORY_INSIDE: &str = "/opt/mini-ork/door";
/// Its names in the private directory of a drive.
const DIRECTORY: &str = "door";
const SOCKET: &str = "outside";
/// How long the first process may take to come. It comes at once or, where the engine is on another
/// machine or the runtime has a kernel of its own, never.
const PATIENCE: Duration = Duration::from_millis(100);

/// A socket of this machine to which the first process of a new container connects, before anything
/// else runs there: it saves a process that the engine would have to start. It lets one in and is
/// gone.
#[derive(Debug)]
pub(super) struct Door {
    socket: PathBuf,
    listener: UnixListener,
}

impl Door {
    /// The directory to be mounted, made when it is not there.
    pub(super) fn directory(private: &Path) -> io::Result<PathBuf> {
        let directory = private.join(DIRECTORY);
        fs_err::create_dir_all(&directory)?;
        Ok(directory)
    }

    /// Begins to listen in `directory`.
    pub(super) fn open(directory: &Path) -> io::Result<Self> {
        let socket = directory.join(SOCKET);
        match fs_err::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The path may be longer than an address of a socket can be.
        let opened = fs_err::File::open(directory)?;
        let short = format!("/proc/self/fd/{}/{SOCKET}", opened.as_raw_fd());
        let listener = UnixListener::bind(short)?;
        Ok(Self { socket, listener })
    }

    /// Who came, if anybody did.
    pub(super) async fn wait(self) -> Option<UnixStream> {
        let came = timeout(PATIENCE, self.listener.accept()).await;
        let (stream, _) = came.ok()?.ok()?;
        Some(stream)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        // Nobody listens there any more; what is left of it does no harm.
        let _ = fs_err::remove_file(&self.socket);
    }
}
