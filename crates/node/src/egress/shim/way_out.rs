use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::time::timeout;

use super::super::proxy::BUFFER;
use super::super::stream::ByteStream;
use super::super::wire::{self, Answer, Wanted};

/// Longer than the proxy takes to resolve a name and try its addresses.
const ANSWER_LIMIT: Duration = Duration::from_secs(100);

/// The only way out of a workspace.
#[async_trait]
pub trait WayOut: Send + Sync + 'static {
    /// A new stream to the policy proxy outside. An error while nobody is there.
    async fn open(&self) -> io::Result<Box<dyn ByteStream>>;
}

/// A connection to `host`, or why there is none.
pub(super) async fn connect(
    way_out: &Arc<dyn WayOut>,
    host: &str,
    port: u16,
) -> io::Result<Result<Box<dyn ByteStream>, Answer>> {
    let wanted = Wanted {
        host: host.as_bytes().to_vec(),
        port,
    };
    let asked = async {
        let mut stream = way_out.open().await?;
        wire::write_wanted(&mut stream, &wanted).await?;
        Ok(match wire::read_answer(&mut stream).await? {
            Answer::Connected => Ok(stream),
            answer => Err(answer),
        })
    };
    match timeout(ANSWER_LIMIT, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Carries bytes both ways until both sides have ended.
pub(super) async fn carry(mut left: impl ByteStream, mut right: impl ByteStream) {
    let _ = copy_bidirectional_with_sizes(&mut left, &mut right, BUFFER, BUFFER).await;
}
