//! The first process of a confined workspace, for the tests: `ENTRIES SCRIPT` starts a shim for the
//! comma-separated entries, runs the script in a shell and ends as it does.
//!
//! Its way out is the socket that it was handed: whoever connects there is a stream to the proxy.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program of the tests"
)]

use std::io;
use std::os::unix::net::UnixListener;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use async_trait::async_trait;
use mini_ork_node::confine::{CONFINE_ARGUMENT, confine_main};
use mini_ork_node::egress::{AllowList, ByteStream, Shim, WayOut};

struct Accepted(tokio::net::UnixListener);

#[async_trait]
impl WayOut for Accepted {
    async fn open(&self) -> io::Result<Box<dyn ByteStream>> {
        Ok(Box::new(self.0.accept().await?.0))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments == [CONFINE_ARGUMENT] {
        return confine_main();
    }
    let [entries, script] = arguments.as_slice() else {
        return ExitCode::from(2);
    };
    let allowed = AllowList::parse(entries.split(',').filter(|entry| !entry.is_empty())).unwrap();
    let (ready, started) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = inherited();
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::UnixListener::from_std(listener).unwrap();
            let way_out = Arc::new(Accepted(listener));
            let _shim = Shim::start(&allowed, way_out).await.unwrap();
            ready.send(()).unwrap();
            std::future::pending::<()>().await;
        });
    });
    started.recv().unwrap();
    let status = Command::new("/bin/sh")
        .args(["-c", script])
        .status()
        .unwrap();
    println!("ended {}", status.code().unwrap_or(-1));
    ExitCode::SUCCESS
}

#[expect(unsafe_code, reason = "a descriptor that is known by its number only")]
fn inherited() -> UnixListener {
    use std::os::fd::{FromRawFd as _, OwnedFd};
    // SAFETY: whoever starts this program hands the socket over with this number.
    let socket = unsafe { OwnedFd::from_raw_fd(mini_ork_node::confine::SOCKET_DESCRIPTOR) };
    UnixListener::from(socket)
}
