//! What podman says of itself in its own words only, which the client of engines does not know.

use std::io;
use std::time::Duration;

use bollard::errors::Error;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1::handshake;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::DockerError;
use crate::session::Channel;

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);
/// Longest answer that is read.
const LONGEST_ANSWER: usize = 4 << 20;

/// Whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    /// An ordinary user.
    pub(super) rootless: bool,
    /// The numbers of users, and of groups, that there are inside; all where there is no list.
    numbers: [Vec<Numbers>; 2],
}

impl Owner {
    /// Whether there is a user and a group of this number inside.
    pub(super) fn has(&self, number: u32) -> bool {
        self.numbers.iter().all(|known| {
            let within = |some: &Numbers| {
                let after = u64::from(number).checked_sub(some.first);
                after.is_some_and(|after| after < some.count)
            };
            known.is_empty() || known.iter().any(within)
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Numbers {
    #[serde(rename = "container_id")]
    first: u64,
    #[serde(rename = "size")]
    count: u64,
}

#[derive(Deserialize)]
struct Info {
    host: Host,
}

#[derive(Deserialize)]
struct Host {
    security: Security,
    #[serde(rename = "idMappings")]
    mappings: Option<Mappings>,
}

#[derive(Deserialize)]
struct Security {
    rootless: bool,
}

#[derive(Default, Deserialize)]
struct Mappings {
    #[serde(rename = "uidmap")]
    users: Option<Vec<Numbers>>,
    #[serde(rename = "gidmap")]
    groups: Option<Vec<Numbers>>,
}

#[derive(Deserialize)]
struct Container {
    #[serde(rename = "OCIRuntime")]
    runtime: String,
}

/// Asks whose it is.
pub(super) async fn owner(endpoint: &str) -> Result<Owner, DockerError> {
    let info: Info = ask(endpoint, "/v4.0.0/libpod/info", "describe itself").await?;
    let mappings = info.host.mappings.unwrap_or_default();
    Ok(Owner {
        rootless: info.host.security.rootless,
        numbers: [mappings.users, mappings.groups].map(Option::unwrap_or_default),
    })
}

/// The runtime that made the container `name`.
pub(super) async fn runtime_of(endpoint: &str, name: &str) -> Result<String, DockerError> {
    let path = format!("/v4.0.0/libpod/containers/{name}/json");
    let container: Container = ask(endpoint, &path, "describe the container").await?;
    Ok(container.runtime)
}

async fn ask<T: DeserializeOwned>(
    endpoint: &str,
    path: &str,
    action: &'static str,
) -> Result<T, DockerError> {
    let asked = timeout(ANSWER_LIMIT, get(endpoint, path)).await;
    asked
        .unwrap_or_else(|elapsed| Err(elapsed.into()))
        .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
        .map_err(|err| DockerError::engine(action)(Error::IOError { err }))
}

async fn get(endpoint: &str, path: &str) -> io::Result<Bytes> {
    let stream = connect(endpoint).await?;
    let (mut sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(io::Error::other)?;
    let connection = tokio::spawn(connection);
    let request = Request::get(path)
        .header("host", "engine")
        .body(Empty::<Bytes>::new())
        .map_err(io::Error::other)?;
    let answered = async {
        let answer = sender
            .send_request(request)
            .await
            .map_err(io::Error::other)?;
        if answer.status() != StatusCode::OK {
            return Err(io::Error::other(format!("it says {}", answer.status())));
        }
        let body = Limited::new(answer.into_body(), LONGEST_ANSWER).collect();
        Ok(body.await.map_err(io::Error::other)?.to_bytes())
    };
    let answered = answered.await;
    connection.abort();
    answered
}

async fn connect(endpoint: &str) -> io::Result<Box<dyn Channel>> {
    if let Some(path) = endpoint.strip_prefix("unix://") {
        return Ok(Box::new(UnixStream::connect(path).await?));
    }
    let (_, address) = endpoint.split_once("://").unwrap_or(("", endpoint));
    Ok(Box::new(
        TcpStream::connect(address.trim_end_matches('/')).await?,
    ))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// What is made of an answer.
    async fn told(answer: String) -> Result<Owner, DockerError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = [0; 4096];
            let count = stream.read(&mut asked).await.unwrap();
            assert!(asked[..count].starts_with(b"GET /v4.0.0/libpod/info HTTP/1.1\r\n"));
            // Whoever has heard enough leaves.
            let _ = stream.write_all(answer.as_bytes()).await;
        };
        tokio::join!(owner(&endpoint), serve).0
    }

    #[tokio::test]
    async fn only_a_whole_answer_counts() {
        let answer = |status: &str, body: &str| {
            let length = body.len();
            format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}")
        };
        let rooted = r#"{"host":{"security":{"rootless":false},"idMappings":{"uidmap":null}}}"#;
        let owner = told(answer("200 OK", rooted)).await.unwrap();
        assert!(!owner.rootless && owner.has(0) && owner.has(65534));
        let alone = r#"{"host":{"security":{"rootless":true},"idMappings":{
            "uidmap":[{"container_id":0,"host_id":1000,"size":1}],
            "gidmap":[{"container_id":0,"host_id":1000,"size":1}]}},"more":[1]}"#;
        let owner = told(answer("200 OK", alone)).await.unwrap();
        assert!(owner.rootless && owner.has(0) && !owner.has(1));
        let many = alone.replace("\"size\":1", "\"size\":65536");
        let owner = told(answer("200 OK", &many)).await.unwrap();
        assert!(owner.has(65535) && !owner.has(65536));
        for wrong in [
            answer("404 Not Found", alone),
            answer("200 OK", "{}"),
            answer("200 OK", "[]"),
            answer("200 OK", &alone.replace("true", "1")),
            answer("200 OK", &" ".repeat(LONGEST_ANSWER + 1)),
            "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned(),
            "what?\r\n\r\n".to_owned(),
            String::new(),
        ] {
            assert!(told(wrong).await.is_err());
        }
    }
}
