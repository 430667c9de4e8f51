use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use async_trait::async_trait;
use mini_ork_protocol::{GENERATION, RefusalKind, SecretBytes, SessionRefusal, Welcome};
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::super::client::{Channel, DialError, Dialer};
use super::super::frame::write_frame;
use super::super::mux::Side;
use super::*;
use crate::egress::{AllowList, Answer, HostName, Resolve};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let limit = Duration::from_secs(60);
    runtime.block_on(async { timeout(limit, future).await.unwrap() })
}

/// Connections to an inside that is played, one after the other.
#[derive(Debug)]
struct Line(Mutex<VecDeque<DuplexStream>>);

#[async_trait]
impl Dialer for Line {
    async fn dial(&self) -> Result<Box<dyn Channel>, DialError> {
        match self.0.lock().unwrap().pop_front() {
            Some(stream) => Ok(Box::new(stream)),
            None => Err(DialError::Gone {
                reason: "there is no other".to_owned(),
                out_of_memory: false,
            }),
        }
    }
}

/// A client of as many insides as there are `answers` to a port that is to be led out.
fn client_of(
    answers: &[fn(u16) -> SessionAnswer],
    proxy: Option<Arc<PolicyProxy>>,
) -> (Arc<Client>, Vec<Inside>) {
    let (near, insides) = answers
        .iter()
        .map(|answer| {
            let (near, far) = tokio::io::duplex(1 << 16);
            (near, Inside::play(far, *answer))
        })
        .unzip();
    let line = Arc::new(Line(Mutex::new(near)));
    let token = SecretBytes::from(b"token".as_slice());
    (Arc::new(Client::new(line, token, proxy)), insides)
}

struct Inside {
    mux: Mux,
    served: JoinHandle<()>,
    /// What was asked about ports.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Inside {
    fn play(far: DuplexStream, forwarded: fn(u16) -> SessionAnswer) -> Self {
        let (mux, mut requests) = Mux::start(far, Side::Inside);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&asked);
        let served = tokio::spawn(async move {
            while let Some(mut stream) = requests.recv().await {
                let answer = match read_frame(&mut stream).await.unwrap() {
                    SessionRequest::Hello(_) => SessionAnswer::Welcome(Welcome {
                        generation: GENERATION,
                        kernel: String::new(),
                        uid: 1,
                        gid: 1,
                        interfaces: Vec::new(),
                        processors: 1,
                    }),
                    SessionRequest::Forward { port, .. } => {
                        notes.lock().unwrap().push(format!("listen {port}"));
                        forwarded(port)
                    }
                    SessionRequest::Unforward { service } => {
                        notes.lock().unwrap().push(format!("free {service}"));
                        SessionAnswer::Done
                    }
                    _ => SessionAnswer::Done,
                };
                write_frame(&mut stream, &answer).await.unwrap();
            }
        });
        Self { mux, served, asked }
    }

    /// Breaks the connection.
    fn end(self) {
        self.served.abort();
    }

    async fn call(&self, service: &str) -> MuxStream {
        let mut stream = self.mux.open().await.unwrap();
        let service = service.to_owned();
        let call = SessionCall { service };
        write_frame(&mut stream, &call).await.unwrap();
        stream
    }

    async fn has_been_asked(&self, expected: &[&str]) {
        while *self.asked.lock().unwrap() != expected {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

fn listens(port: u16) -> SessionAnswer {
    SessionAnswer::Listening { port }
}

fn refuses(_: u16) -> SessionAnswer {
    SessionAnswer::Refused(SessionRefusal {
        kind: RefusalKind::Failed,
        message: "somebody has it".to_owned(),
    })
}

fn listens_elsewhere(port: u16) -> SessionAnswer {
    SessionAnswer::Listening { port: port + 1 }
}

#[test]
fn a_port_that_nobody_uses_is_given_back() {
    block_on(async {
        let (client, insides) = client_of(&[listens], None);
        let first = client.lead(4000).await.unwrap();
        let second = client.lead(4001).await.unwrap();
        drop(first);
        let asked = ["listen 4000", "listen 4001", "free loopback:4000"];
        // The first one is led twice: as the connection is made, and as it was asked.
        let asked: Vec<&str> = std::iter::once("listen 4000").chain(asked).collect();
        insides[0].has_been_asked(&asked).await;
        // Led again at once, it is not taken away by whoever had it before.
        drop(second);
        let again = client.lead(4001).await.unwrap();
        tokio::task::yield_now().await;
        client.give_back().await;
        let last = insides[0].asked.lock().unwrap().last().cloned();
        assert_eq!(last.as_deref(), Some("listen 4001"));
        drop(again);
    });
}

/// Whoever has taken the port of a server that died would be told what is for the service.
#[test]
fn a_port_that_cannot_be_led_out_again_ends_the_connection() {
    for (answer, expected) in [
        (refuses as fn(u16) -> SessionAnswer, "somebody has it"),
        (listens_elsewhere, "something else"),
    ] {
        block_on(async {
            let (client, mut insides) = client_of(&[listens, answer, listens], None);
            let lead = client.lead(4000).await.unwrap();
            insides.remove(0).end();
            let request = SessionRequest::Attach {
                directory: "/x".into(),
            };
            let refused = loop {
                // Until the end of the first connection was seen.
                match client.ask_briefly(&request).await {
                    Err(error) => break error,
                    Ok(_) => tokio::task::yield_now().await,
                }
            };
            assert!(refused.to_string().contains(expected), "{refused}");
            // Where it can be led again, all goes on; and what was let go is not led.
            client.ask_briefly(&request).await.unwrap();
            insides[1].has_been_asked(&["listen 4000"]).await;
            drop(lead);
        });
    }
}

/// Looks for names and never finds them.
#[derive(Debug)]
struct Silent;

#[async_trait]
impl Resolve for Silent {
    async fn resolve(&self, _: &HostName) -> io::Result<Vec<IpAddr>> {
        std::future::pending().await
    }
}

#[test]
fn neither_kind_of_connection_takes_the_room_of_the_other() {
    block_on(async {
        let allowed = AllowList::parse(["example.com"]).unwrap();
        let proxy = Arc::new(PolicyProxy::new(allowed, Arc::new(Silent)));
        let (client, insides) = client_of(&[listens], Some(proxy));
        let mut listeners = Vec::new();
        let mut leads = Vec::new();
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            leads.push(client.lead(port).await.unwrap());
            listeners.push(listener);
        }
        let inside = &insides[0];
        // The answers of those that are not let wait for their name.
        let (told, mut answers) = mpsc::unbounded_channel();
        let download = async || {
            let mut stream = inside.call(SessionCall::EGRESS).await;
            let mut wanted = vec![1, 11, 1, 187];
            wanted.extend_from_slice(b"example.com");
            stream.write_all(&wanted).await.unwrap();
            stream.flush().await.unwrap();
            let told = told.clone();
            tokio::spawn(async move {
                let answer = crate::egress::read_answer(&mut stream).await;
                told.send(answer.ok())
            });
        };
        let mut waiting = 0;
        let busy = loop {
            if waiting <= 256 {
                download().await;
                waiting += 1;
            }
            let answer = if waiting <= 256 {
                answers.try_recv().ok()
            } else {
                answers.recv().await
            };
            match answer {
                Some(Some(answer)) => break answer,
                // One that came faster than it could be taken.
                Some(None) => waiting -= 1,
                None => {}
            }
        };
        assert_eq!((busy, waiting), (Answer::Busy, 257));

        let mut calls = Vec::new();
        for _ in 0..MOST_CONNECTIONS {
            calls.push(inside.call(&leads[0].service).await);
            let (mut service, _) = listeners[0].accept().await.unwrap();
            service.write_all(b"x").await.unwrap();
            calls
                .last_mut()
                .unwrap()
                .read_exact(&mut [0])
                .await
                .unwrap();
            tokio::spawn(async move { service.read(&mut [0]).await });
        }
        // One too many hears nothing; a second service has its own room.
        let mut refused = inside.call(&leads[0].service).await;
        assert!(matches!(refused.read(&mut [0]).await, Ok(0) | Err(_)));
        let _other = inside.call(&leads[1].service).await;
        listeners[1].accept().await.unwrap();
        drop(calls);
    });
}
