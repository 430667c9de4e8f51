use std::path::Path;

use bollard::Docker;

use super::DockerError;
use super::container::ContainerRecord;
use super::engine::{self, Seen};
use crate::workspace::{Ledger, SandboxRecord};

/// Removes the container of `record`; says whether there was one.
pub(in crate::workspace) async fn remove(
    record: &SandboxRecord,
    container: &ContainerRecord,
) -> Result<bool, DockerError> {
    let client = engine::connect(&container.endpoint).await?;
    remove_own(&client, record, container).await
}

/// Containers on the engine at `endpoint` whose private directory is below `home` and that `ledger`
/// does not know, by their ids and with the runs that they were made for. One whose record cannot
/// be read is known.
pub async fn strays(
    endpoint: &str,
    home: &Path,
    ledger: &Ledger,
) -> Result<Vec<(String, String)>, DockerError> {
    let client = engine::connect(endpoint).await?;
    let mut strays = Vec::new();
    for one in engine::labelled(&client).await? {
        if !one.private.starts_with(home) {
            continue;
        }
        // Read after the list was made: a container is on record before it exists.
        let known = ledger.read(&one.run);
        if known.is_ok_and(|record| !record.is_some_and(|record| record.is_open())) {
            strays.push((one.id, one.run));
        }
    }
    Ok(strays)
}

/// Removes the container `id` of the engine at `endpoint`.
pub async fn remove_stray(endpoint: &str, id: &str) -> Result<(), DockerError> {
    let client = engine::connect(endpoint).await?;
    engine::remove(&client, id).await
}

/// The container of `record`. Another one of its name is not it.
pub(super) async fn own(
    client: &Docker,
    record: &SandboxRecord,
    container: &ContainerRecord,
) -> Result<Option<Seen>, DockerError> {
    let found = engine::look(client, &container.name)
        .await
        .map_err(DockerError::engine("look for the container"))?;
    Ok(found.filter(|seen| {
        seen.run.as_deref() == Some(&record.run)
            && seen.private.as_deref() == Some(record.private())
    }))
}

/// Removes the container of `record`, and no other one of its name.
pub(super) async fn remove_own(
    client: &Docker,
    record: &SandboxRecord,
    container: &ContainerRecord,
) -> Result<bool, DockerError> {
    let Some(seen) = own(client, record, container).await? else {
        return Ok(false);
    };
    engine::remove(client, &seen.id).await?;
    Ok(true)
}
