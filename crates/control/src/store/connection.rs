use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::StoreError;

/// How long one process waits for another's transaction. Transactions here take milliseconds; a
/// minute is only reached when a disk stalls, and then waiting is better than a lost status.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two tries of what SQLite does not wait for.
const PAUSE: Duration = Duration::from_millis(5);

/// Opens the writing connection, making the home directory and the file, both for the user alone.
pub(super) fn open_writer(path: &Path) -> Result<Connection, StoreError> {
    if let Some(home) = path.parent() {
        let home_error = |source| StoreError::Home {
            path: home.to_owned(),
            source,
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(home)
            .map_err(home_error)?;
        // SQLite would make the file with the process's mask, and its -wal and -shm copy its mode.
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
            .map_err(home_error)?;
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(path, flags)?;
    (|| {
        // WAL so that readers never wait for the writer; NORMAL because a commit must survive the
        // death of this process, while after a power cut losing the last moments is acceptable:
        // recovery then finds the processes and trees themselves.
        use_write_ahead_log(&connection)?;
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "foreign_keys", true)
    })()
    .map_err(|source| StoreError::Database {
        path: path.to_owned(),
        source,
    })?;
    Ok(connection)
}

/// Going over to the write-ahead log takes the whole file for a moment. When several processes that
/// share a new home want it together, SQLite tells them at once that it is busy and lets none wait.
fn use_write_ahead_log(connection: &Connection) -> rusqlite::Result<()> {
    let until = Instant::now() + BUSY_TIMEOUT;
    loop {
        match connection.pragma_update(None, "journal_mode", "wal") {
            Err(error) if is_busy(&error) && Instant::now() < until => std::thread::sleep(PAUSE),
            done => return done,
        }
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    let busy = [ErrorCode::DatabaseBusy, ErrorCode::DatabaseLocked];
    error
        .sqlite_error_code()
        .is_some_and(|code| busy.contains(&code))
}

/// Opens a connection that cannot change anything.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // A reader of a WAL database needs write access to the -shm file, so the file is opened for
    // writing where that is possible and the connection is then told to refuse changes.
    let connection = open(path, flags).or_else(|_| {
        open(
            path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
    })?;
    connection
        .pragma_update(None, "query_only", true)
        .map_err(|source| StoreError::Database {
            path: path.to_owned(),
            source,
        })?;
    Ok(connection)
}

fn open(path: &Path, flags: OpenFlags) -> Result<Connection, StoreError> {
    let error = |source| StoreError::Database {
        path: path.to_owned(),
        source,
    };
    let connection = Connection::open_with_flags(path, flags).map_err(error)?;
    connection.busy_timeout(BUSY_TIMEOUT).map_err(error)?;
    Ok(connection)
}
