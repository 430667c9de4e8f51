//! One JSON value on a stream: its length in four bytes, the highest first, then its text.

use std::io;

use mini_ork_protocol::LONGEST_FRAME;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use zeroize::Zeroizing;

/// Sends `value`.
pub(super) async fn write_frame<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    value: &T,
) -> io::Result<()> {
    // It may hold an environment.
    let json = Zeroizing::new(serde_json::to_vec(value)?);
    let length = u32::try_from(json.len())
        .ok()
        .filter(|length| *length <= LONGEST_FRAME)
        .ok_or_else(|| {
            let message = format!("a message of {} bytes is too long", json.len());
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&json).await?;
    stream.flush().await
}

/// Receives a value. The memory for it grows with what arrives, not with what is announced.
pub(super) async fn read_frame<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length);
    if length > LONGEST_FRAME {
        let message = format!("a message of {length} bytes is announced, which is too long");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let json = Zeroizing::new(read_bytes(stream, u64::from(length)).await?);
    serde_json::from_slice(&json).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Receives exactly `length` bytes.
pub(super) async fn read_bytes(
    stream: &mut (impl AsyncRead + Unpin),
    length: u64,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(length).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 == length {
        Ok(bytes)
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

#[cfg(test)]
mod tests {
    use mini_ork_protocol::{SessionAnswer, SessionRequest};
    use proptest::prelude::*;

    use super::*;

    fn block_on<T>(future: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread();
        { runtime }.build().unwrap().block_on(future)
    }

    #[test]
    fn a_frame_survives_the_way() {
        let sent = SessionAnswer::Content { length: 5 };
        let received: SessionAnswer = block_on(async {
            let mut wire = Vec::new();
            write_frame(&mut wire, &sent).await.unwrap();
            read_frame(&mut wire.as_slice()).await.unwrap()
        });
        assert_eq!(received, sent);
    }

    #[test]
    fn a_length_that_is_announced_takes_no_memory() {
        let error = block_on(read_frame::<SessionAnswer>(&mut [0xff; 8].as_slice()));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::InvalidData);
        let cut_off = [&LONGEST_FRAME.to_be_bytes()[..], b"{}"].concat();
        let error = block_on(read_frame::<SessionAnswer>(&mut cut_off.as_slice()));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(bytes: Vec<u8>, length in 0_u32..64) {
            let wire = [&length.to_be_bytes()[..], &bytes].concat();
            let _ = block_on(read_frame::<SessionAnswer>(&mut wire.as_slice()));
            let _ = block_on(read_frame::<SessionRequest>(&mut bytes.as_slice()));
        }
    }
}
