//! What shim and proxy say to each other at the start of a stream: the shim where it wants to go,
//! the proxy one byte. Then the stream is the connection.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

const FORMAT: u8 = 1;

/// Where a connection is to go, as the workspace says it: nothing in it has been checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// At most 255 bytes.
    pub(super) host: Vec<u8>,
    /// 0 when somebody only asked for the address of a name.
    pub(super) port: u16,
}

/// How a request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// The other side is there; the stream is the connection.
    Connected,
    /// The host, or this port of it, is not on the list.
    NotListed,
    /// It is at an address that nobody may reach.
    Reserved,
    /// The name has no address.
    Unknown,
    /// Nobody answers there.
    Unreachable,
    /// There are too many connections already.
    Busy,
    /// The request made no sense.
    Malformed,
}

impl Answer {
    const ALL: [Self; 7] = [
        Self::Connected,
        Self::NotListed,
        Self::Reserved,
        Self::Unknown,
        Self::Unreachable,
        Self::Busy,
        Self::Malformed,
    ];

    /// A sentence for the program in the workspace.
    pub(super) fn sentence(self, host: &str, port: u16) -> String {
        let place = format!("{host}:{port}");
        match self {
            Self::Connected => format!("{place} is connected"),
            Self::NotListed => format!(
                "{place} may not be reached from this workspace: it is not on the list of allowed hosts"
            ),
            Self::Reserved => format!(
                "{place} may not be reached from this workspace: its address is not one of the public internet"
            ),
            Self::Unknown => format!("{host} has no address"),
            Self::Unreachable => format!("{place} does not answer"),
            Self::Busy => format!("{place} has to wait: there are too many connections"),
            Self::Malformed => "the request makes no sense".to_owned(),
        }
    }
}

pub(super) async fn write_wanted(
    stream: &mut (impl AsyncWrite + Unpin),
    wanted: &Wanted,
) -> io::Result<()> {
    let length = u8::try_from(wanted.host.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "the host is too long"))?;
    let mut bytes = vec![FORMAT, length];
    bytes.extend_from_slice(&wanted.port.to_be_bytes());
    bytes.extend_from_slice(&wanted.host);
    stream.write_all(&bytes).await?;
    stream.flush().await
}

pub(super) async fn read_wanted(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Wanted> {
    let [format, length, port @ ..] = {
        let mut header = [0; 4];
        stream.read_exact(&mut header).await?;
        header
    };
    if format != FORMAT {
        let message = format!("a request of format {format}, where {FORMAT} is known");
        return Err(io::Error::new(io::ErrorKind::InvalidData, message));
    }
    let mut host = vec![0; usize::from(length)];
    stream.read_exact(&mut host).await?;
    Ok(Wanted {
        host,
        port: u16::from_be_bytes(port),
    })
}

pub(super) async fn write_answer(
    stream: &mut (impl AsyncWrite + Unpin),
    answer: Answer,
) -> io::Result<()> {
    let number = Answer::ALL.iter().position(|known| *known == answer);
    let number = number.and_then(|number| u8::try_from(number).ok());
    stream.write_all(&[number.unwrap_or(u8::MAX)]).await?;
    stream.flush().await
}

pub(crate) async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Answer> {
    let number = usize::from(stream.read_u8().await?);
    let known = Answer::ALL.get(number).copied();
    known.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer that is not known"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn run<T>(work: impl Future<Output = T>) -> T {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.build().unwrap().block_on(work)
    }

    #[test]
    fn each_answer_is_read_as_it_was_written() {
        for answer in Answer::ALL {
            let mut bytes = Vec::new();
            run(write_answer(&mut bytes, answer)).unwrap();
            assert_eq!(run(read_answer(&mut bytes.as_slice())).unwrap(), answer);
        }
        assert!(run(read_answer(&mut [200].as_slice())).is_err());
    }

    proptest! {
        #[test]
        fn a_request_is_read_as_it_was_written(host in prop::collection::vec(any::<u8>(), 0..=255), port: u16) {
            let wanted = Wanted { host, port };
            let mut bytes = Vec::new();
            run(write_wanted(&mut bytes, &wanted)).unwrap();
            prop_assert_eq!(run(read_wanted(&mut bytes.as_slice())).unwrap(), wanted);
        }

        #[test]
        fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = run(read_wanted(&mut bytes.as_slice()));
        }
    }
}
