use std::io::{Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use mini_ork_node::session::{Mux, Side};
use mini_ork_protocol::{GENERATION, Hello, SecretBytes, SessionRequest};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::{Attempt, judge};

const NAME: &str = "mini-ork-session";
const PROGRAM: &str = "/opt/mini-ork/mini-ork-node";
/// Whoever is not let in is told nothing within this time.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Speaks to the server with tokens that it may have found.
pub(crate) fn speak(token: &str) -> Attempt {
    let mut open = Vec::new();
    let mut tried = 0;
    for secret in candidates(token) {
        tried += 1;
        let Ok(stream) = connect() else {
            continue;
        };
        if let Some(said) = greet(stream, &secret) {
            open.push(format!("{secret:02x?}: {said}"));
        }
    }
    // Whatever listens on loopback may be the server of somebody else.
    for port in 1..=u16::MAX {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let Ok(stream) = std::net::TcpStream::connect_timeout(&address, PATIENCE) else {
            continue;
        };
        tried += 1;
        if let Some(said) = greet_tcp(stream) {
            open.push(format!("port {port}: {said}"));
        }
    }
    judge(tried, &open, "not a word in answer")
}

fn candidates(token: &str) -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        vec![0; 16],
        token.as_bytes().to_vec(),
        vec![255; 16],
    ]
}

fn connect() -> std::io::Result<UnixStream> {
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(NAME)?)
}

fn hello(secret: &[u8]) -> Vec<u8> {
    let hello = SessionRequest::Hello(Hello {
        generation: GENERATION,
        token: SecretBytes::from(secret),
        proof: None,
        only_asks: false,
    });
    let json = serde_json::to_vec(&hello).unwrap();
    let mut frame = u32::try_from(json.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(json);
    frame
}

/// What is answered to a greeting, when anything is.
fn greet(stream: UnixStream, secret: &[u8]) -> Option<String> {
    stream.set_nonblocking(true).unwrap();
    runtime().block_on(async {
        let stream = tokio::net::UnixStream::from_std(stream).unwrap();
        exchange(stream, secret).await
    })
}

fn greet_tcp(stream: std::net::TcpStream) -> Option<String> {
    stream.set_nonblocking(true).unwrap();
    runtime().block_on(async {
        let stream = tokio::net::TcpStream::from_std(stream).unwrap();
        exchange(stream, &[]).await
    })
}

async fn exchange<T>(stream: T, secret: &[u8]) -> Option<String>
where
    T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (mux, _calls) = Mux::start(stream, Side::Outside);
    let talk = async {
        let mut stream = mux.open().await.ok()?;
        stream.write_all(&hello(secret)).await.ok()?;
        let mut answer = vec![0; 4096];
        let count = stream.read(&mut answer).await.ok()?;
        let said = String::from_utf8_lossy(&answer[..count]).into_owned();
        is_answer(&said).then_some(said)
    };
    tokio::time::timeout(PATIENCE, talk).await.ok().flatten()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Starts the bridge that the outside uses, and speaks through it.
pub(crate) fn speak_by_bridge(_token: &str) -> Attempt {
    if !Path::new(PROGRAM).exists() {
        return Ok("there is no bridge".to_owned());
    }
    let mut command = Command::new(PROGRAM);
    command.args(["bridge", &format!("@{NAME}")]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut bridge = command.spawn().unwrap();
    let mut input = bridge.stdin.take().unwrap();
    // A stream of the outside with its first words, as they are on the wire.
    let words = hello(&[]);
    let mut frame = vec![0, 0, 0, 1, 0, 0, 0, 1];
    frame.extend(u32::try_from(words.len()).unwrap().to_be_bytes());
    frame.extend(words);
    let _ = input.write_all(&frame);
    let mut output = bridge.stdout.take().unwrap();
    let reading = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = output.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let began = Instant::now();
    while began.elapsed() < PATIENCE && !reading.is_finished() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let held = began.elapsed().as_millis();
    let _ = bridge.kill();
    let _ = bridge.wait();
    let said = reading.join().unwrap();
    if is_answer(&said) {
        return Err(format!("{said:?}"));
    }
    Ok(format!("nothing came of it in {held} ms"))
}

/// Whether `said` is more than that the token is another one, which is all that is ever said where
/// a kernel does not tell who it is that asks.
fn is_answer(said: &str) -> bool {
    said.contains('{') && !said.contains("unauthorised")
}

/// Looks for the token wherever something can be read: the test says what it is, in two halves, so
/// that it is in this program's own arguments and memory in pieces only.
pub(crate) fn find_token(_token: &str) -> Attempt {
    let halves = std::env::var("SECRET_HALVES").unwrap_or_default();
    let Some((first, second)) = halves.split_once(' ') else {
        return Ok("there is no token to be found".to_owned());
    };
    let bytes = |text: &str| -> Vec<u8> {
        (0..text.len() / 2)
            .map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap())
            .collect()
    };
    let raw = [bytes(first), bytes(second)].concat();
    let wanted = [
        raw.clone(),
        format!("{first}{second}").into_bytes(),
        base64(&raw),
    ];
    let mut open = Vec::new();
    let mut tried = 0;
    let mut pending: Vec<std::path::PathBuf> = [
        "/workspace",
        "/tmp",
        "/var/tmp",
        "/dev/shm",
        "/run",
        "/opt",
        "/etc",
    ]
    .iter()
    .map(Into::into)
    .collect();
    pending.push(std::env::current_dir().unwrap());
    while let Some(path) = pending.pop() {
        let Ok(found) = fs_err::symlink_metadata(&path) else {
            continue;
        };
        if found.is_dir() {
            let entries = fs_err::read_dir(&path).into_iter().flatten().flatten();
            pending.extend(entries.map(|entry| entry.path()));
        } else if found.is_file() && found.len() < 1 << 20 {
            tried += 1;
            let content = fs_err::read(&path).unwrap_or_default();
            if wanted.iter().any(|wanted| contains(&content, wanted)) {
                open.push(path.display().to_string());
            }
        }
    }
    for entry in fs_err::read_dir("/proc").unwrap().flatten() {
        for name in ["environ", "cmdline"] {
            tried += 1;
            let content = fs_err::read(entry.path().join(name)).unwrap_or_default();
            if wanted.iter().any(|wanted| contains(&content, wanted)) {
                open.push(entry.path().join(name).display().to_string());
            }
        }
    }
    judge(tried, &open, "it is nowhere")
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = Vec::new();
    for group in bytes.chunks_exact(3) {
        let number = group
            .iter()
            .fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
        text.extend([18, 12, 6, 0].map(|shift| DIGITS[(number >> shift) & 63]));
    }
    text
}

/// Takes all the connections that can be had and says nothing on them.
pub(crate) fn hold(seconds: u64) -> ExitCode {
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut held = Vec::new();
    let mut made = 0_u32;
    while Instant::now() < until {
        if let Ok(stream) = connect() {
            made += 1;
            held.push(stream);
        }
        if held.len() > 500 {
            held.clear();
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("made {made}");
    ExitCode::SUCCESS
}
