//! SOCKS 5, as far as it is needed: connections, without a password.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::super::stream::ByteStream;
use super::super::wire::Answer;
use super::way_out::{WayOut, carry, connect};

/// The first byte of a client.
pub(super) const VERSION: u8 = 5;

const NO_PASSWORD: u8 = 0;
const CONNECT: u8 = 1;
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

const DONE: u8 = 0;
const FAILED: u8 = 1;
const NOT_ALLOWED: u8 = 2;
const NO_HOST: u8 = 4;
const REFUSED: u8 = 5;
const NO_SUCH_COMMAND: u8 = 7;
const NO_SUCH_ADDRESS: u8 = 8;

pub(super) async fn serve(
    mut client: impl ByteStream,
    way_out: &Arc<dyn WayOut>,
) -> io::Result<()> {
    let [version, count] = read(&mut client).await?;
    let mut methods = vec![0; usize::from(count)];
    client.read_exact(&mut methods).await?;
    if version != VERSION || !methods.contains(&NO_PASSWORD) {
        return client.write_all(&[VERSION, u8::MAX]).await;
    }
    client.write_all(&[VERSION, NO_PASSWORD]).await?;
    let [_, command, _, kind] = read(&mut client).await?;
    let host = match kind {
        IPV4 => Ipv4Addr::from(read::<4>(&mut client).await?).to_string(),
        IPV6 => Ipv6Addr::from(read::<16>(&mut client).await?).to_string(),
        NAME => {
            let [length] = read(&mut client).await?;
            let mut name = vec![0; usize::from(length)];
            client.read_exact(&mut name).await?;
            match String::from_utf8(name) {
                Ok(name) => name,
                Err(_) => return reply(&mut client, NOT_ALLOWED).await,
            }
        }
        _ => return reply(&mut client, NO_SUCH_ADDRESS).await,
    };
    let port = u16::from_be_bytes(read(&mut client).await?);
    if command != CONNECT {
        return reply(&mut client, NO_SUCH_COMMAND).await;
    }
    match connect(way_out, &host, port).await {
        Ok(Ok(outside)) => {
            reply(&mut client, DONE).await?;
            carry(client, outside).await;
            Ok(())
        }
        Ok(Err(answer)) => {
            let code = match answer {
                Answer::NotListed | Answer::Reserved | Answer::Malformed => NOT_ALLOWED,
                Answer::Unknown => NO_HOST,
                Answer::Unreachable => REFUSED,
                Answer::Busy | Answer::Connected => FAILED,
            };
            reply(&mut client, code).await
        }
        Err(_) => reply(&mut client, FAILED).await,
    }
}

async fn read<const N: usize>(client: &mut impl ByteStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// The address in a reply is for commands that are not carried out.
async fn reply(client: &mut impl ByteStream, code: u8) -> io::Result<()> {
    client
        .write_all(&[VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0])
        .await
}
