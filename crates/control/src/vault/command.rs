//! Asking a password manager.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use zeroize::Zeroizing;

use super::error::CommandFailure;
use mini_ork_node::secret::{LONGEST_SECRET, Secret};

const PAUSE: Duration = Duration::from_millis(5);

/// The first line that a program prints, which must end with exit code 0 within `limit`.
///
/// It is run without a shell, with the user's environment, since it has to find the user's session,
/// and with nothing on its standard input. What it prints otherwise is dropped: it may be a secret.
pub(super) fn run(
    argv: &[String],
    directory: &Path,
    limit: Duration,
) -> Result<Secret, CommandFailure> {
    let program = argv.first().cloned().unwrap_or_default();
    let until = Instant::now() + limit;
    let mut child = command(argv, directory)
        .spawn()
        .map_err(|source| CommandFailure::Start {
            program: program.clone(),
            source,
        })?;
    let line = child.stdout.take().map(first_line);
    let status = match wait(&mut child, until) {
        Ok(Some(status)) => status,
        Ok(None) => {
            kill(&mut child);
            return Err(CommandFailure::TimedOut { program, limit });
        }
        Err(source) => {
            kill(&mut child);
            return Err(CommandFailure::Start { program, source });
        }
    };
    if !status.success() {
        return Err(CommandFailure::Failed {
            program,
            ending: ending(status),
        });
    }
    // It has ended, so the line is on its way; something that it left behind may hold the pipe.
    let left = until.saturating_duration_since(Instant::now());
    match line.and_then(|line| line.recv_timeout(left.max(PAUSE)).ok()) {
        Some(mut line) => Secret::new(std::mem::take(&mut *line))
            .map_err(|problem| CommandFailure::Output { program, problem }),
        None => Err(CommandFailure::TimedOut { program, limit }),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of the commands of password managers"
)]
fn command(argv: &[String], directory: &Path) -> Command {
    let mut command = Command::new(argv.first().map_or("", String::as_str));
    command
        .args(argv.get(1..).unwrap_or_default())
        // A relative directory on PATH must not mean a repository.
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // So that what it starts ends with it at the limit.
        .process_group(0);
    command
}

/// Reads to the end, so that the program is not stopped by a full pipe, and gives the first line.
fn first_line(stdout: impl io::Read + Send + 'static) -> Receiver<Zeroizing<Vec<u8>>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let most = LONGEST_SECRET as u64 + 3;
        let mut stdout = BufReader::new(stdout);
        let mut line = Zeroizing::new(Vec::with_capacity(LONGEST_SECRET + 3));
        // What could be read before a failure is not enough to be a secret by mistake: the program
        // is judged by its exit code as well.
        let _ = stdout.by_ref().take(most).read_until(b'\n', &mut line);
        let _ = sender.send(line);
        let _ = io::copy(&mut stdout, &mut io::sink());
    });
    receiver
}

/// Waits for the end of the program; none when it does not come in time.
fn wait(child: &mut Child, until: Instant) -> io::Result<Option<ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends the program and what it started. Neither failing matters: they have ended then.
fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}
