use std::io;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::time::Duration;

use mini_ork_protocol::{
    ByteString, GENERATION, Hello, SecretBytes, SessionAnswer, SessionRequest,
};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::client::exchange;
use super::mux::{Mux, Side};

/// What somebody gets from a session server who does not have its token: with another one, or
/// without. An error is what has to come.
pub(crate) fn knock(
    stream: StdUnixStream,
    token: Option<&[u8]>,
    limit: Duration,
) -> io::Result<&'static str> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build()?.block_on(async {
        stream.set_nonblocking(true)?;
        let (mux, _calls) = Mux::start(UnixStream::from_std(stream)?, Side::Outside);
        let request = match token {
            Some(token) => SessionRequest::Hello(Hello {
                generation: GENERATION,
                token: SecretBytes::from(token),
                proof: None,
                only_asks: false,
            }),
            None => SessionRequest::Get {
                root: ByteString::from("/etc"),
                path: ByteString::from("hosts"),
                limit: 4096,
            },
        };
        match timeout(limit, exchange(&mux, &request, &[])).await?? {
            (SessionAnswer::Refused(refusal), _) => Err(io::Error::other(refusal.message)),
            _ => Ok("it was answered"),
        }
    })
}
