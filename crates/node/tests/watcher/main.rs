//! A control plane that the tests can kill, and whose memory they can measure.
//!
//! - `start SUPERVISOR DIRECTORY ARGV…` starts a program, says `started`, waits, and reports.
//! - `attach DIRECTORY` finds a process, waits, reads its whole log, and reports.

use std::error::Error;
use std::io::Write as _;
use std::path::Path;

use mini_ork_node::supervise::{Found, LogCursor, STDOUT_LOG, SupervisedProcess, Supervisor, find};
use mini_ork_protocol::{ByteString, ExitOutcome, GENERATION, ProcessSpec, StdinSource};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match arguments.as_slice() {
            ["start", supervisor, directory, argv @ ..] => {
                let supervisor = Supervisor::new(supervisor.into());
                let process = supervisor.start(Path::new(directory), &spec(argv)).await?;
                say("started")?;
                report(&process, Path::new(directory)).await
            }
            ["attach", directory] => match find(Path::new(directory))? {
                Found::Running(process) => report(&process, Path::new(directory)).await,
                other => say(&format!("{other:?}")),
            },
            _ => Err("usage: start SUPERVISOR DIRECTORY ARGV… | attach DIRECTORY".into()),
        }
    })
}

fn spec(argv: &[&str]) -> ProcessSpec {
    ProcessSpec {
        generation: GENERATION,
        argv: argv.iter().copied().map(ByteString::from).collect(),
        cwd: "/".into(),
        env: vec![("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into())],
        stdin: StdinSource::Null,
        marker: format!("watcher-{}", std::process::id()),
        timeout_ms: None,
        grace_ms: 1000,
        output_limit: 1 << 40,
        secrets: Vec::new(),
    }
}

/// `exit CODE, BYTES bytes, peak KIB KiB`: the log is read through a window of 64 KiB.
async fn report(process: &SupervisedProcess, directory: &Path) -> Result<(), Box<dyn Error>> {
    let outcome = match process.wait().await?.outcome {
        ExitOutcome::Exited { code } => format!("exit {code}"),
        other => format!("{other:?}"),
    };
    let mut cursor = LogCursor::open(&directory.join(STDOUT_LOG), 0)?;
    while !cursor.read(64 * 1024)?.is_empty() {}
    let status = fs_err::read_to_string("/proc/self/status")?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap_or_default();
    say(&format!(
        "{outcome}, {} bytes, peak {}",
        cursor.offset(),
        peak.trim()
    ))
}

fn say(text: &str) -> Result<(), Box<dyn Error>> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}")?;
    Ok(stdout.flush()?)
}
