use std::path::Path;

use rusqlite::Connection;

use super::StoreError;

/// The steps from an empty database to the current format, oldest first. Names carry a date, so
/// that two branches that each add one do not collide; `user_version` counts the applied ones.
const MIGRATIONS: &[(&str, &str)] = &[
    (
        "20261129_runs",
        include_str!("migrations/20261129_runs.sql"),
    ),
    (
        "20261129_spending",
        include_str!("migrations/20261129_spending.sql"),
    ),
    (
        "20261129_spending_by_call",
        include_str!("migrations/20261129_spending_by_call.sql"),
    ),
];

/// Brings the database to the current format; a later format is refused.
pub(super) fn run(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    if applied(connection, path)? == MIGRATIONS.len() {
        return Ok(());
    }
    let database = |source| StoreError::Database {
        path: path.to_owned(),
        source,
    };
    connection
        .execute_batch("BEGIN IMMEDIATE")
        .map_err(database)?;
    let outcome = (|| {
        // Read again under the lock: another process may have been faster.
        let from = applied(connection, path)?;
        for (_, statements) in MIGRATIONS.iter().skip(from) {
            connection.execute_batch(statements).map_err(database)?;
        }
        connection
            .pragma_update(None, "user_version", MIGRATIONS.len())
            .map_err(database)
    })();
    match outcome {
        Ok(()) => connection.execute_batch("COMMIT").map_err(database),
        Err(error) => {
            // The first error is the one to report; without the transaction nothing was changed.
            let _ = connection.execute_batch("ROLLBACK");
            Err(error)
        }
    }
}

/// Refuses a database of a later format; says whether it has any tables yet.
pub(super) fn check(connection: &Connection, path: &Path) -> Result<bool, StoreError> {
    applied(connection, path).map(|count| count > 0)
}

fn applied(connection: &Connection, path: &Path) -> Result<usize, StoreError> {
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .map_err(|source| StoreError::Database {
            path: path.to_owned(),
            source,
        })?;
    let found = usize::try_from(version).unwrap_or(usize::MAX);
    if found > MIGRATIONS.len() {
        return Err(StoreError::TooNew {
            path: path.to_owned(),
            found,
            known: MIGRATIONS.len(),
        });
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_unique() {
        assert!(MIGRATIONS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
