use std::io;
use std::time::Duration;

use mini_ork_protocol::{ByteString, GENERATION, ProcessSpec};

use super::{SpawnRequest, WorkspaceError};
use crate::supervise::{MARKER_SEPARATOR, RUN_MARKER_VARIABLE};
use crate::sys::random_bytes;

/// A program inside of a program inside of a program is as deep as it gets.
const LONGEST_OUTER_MARKER: usize = 256;

/// What a supervisor has to know of `request`, with a marker that no other process has.
pub(crate) fn specification(request: SpawnRequest) -> Result<ProcessSpec, WorkspaceError> {
    let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let marker = new_marker(&request.env).map_err(WorkspaceError::Marker)?;
    Ok(ProcessSpec {
        generation: GENERATION,
        argv: request.argv,
        cwd: ByteString::from(request.cwd.as_path()),
        env: request.env,
        stdin: request.stdin,
        marker,
        timeout_ms: request.timeout.map(milliseconds),
        grace_ms: milliseconds(request.grace),
        output_limit: request.output_limit,
        secrets: request.secrets,
    })
}

/// Text that no other process has: 128 random bits. When the starter is itself a program of a
/// supervisor its own marker comes first, so that the outer supervisor knows what the inner one
/// runs.
fn new_marker(environment: &[(ByteString, ByteString)]) -> io::Result<String> {
    let outer = environment
        .iter()
        .rev()
        .find(|(name, _)| name.as_bytes() == RUN_MARKER_VARIABLE.as_bytes())
        .and_then(|(_, marker)| std::str::from_utf8(marker.as_bytes()).ok())
        .filter(|marker| !marker.is_empty() && marker.len() <= LONGEST_OUTER_MARKER);
    let bytes = random_bytes::<16>()?;
    let mut marker = outer.map_or_else(String::new, |outer| format!("{outer}{MARKER_SEPARATOR}"));
    marker.extend(bytes.iter().map(|byte| format!("{byte:02x}")));
    Ok(marker)
}
