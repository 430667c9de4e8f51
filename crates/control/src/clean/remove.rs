//! Saving, and then removing.

use std::path::{Path, PathBuf};

use mini_ork_node::git::{CommitId, Repository};
use mini_ork_node::sys;
use mini_ork_node::text::with_sources;
use mini_ork_node::tree::Look;

use super::examine::{Purpose, examine};
use super::ground;
use super::listing::{ListedRun, Processes};
use super::run::{forget_action, refused, whole_work, worktree_items};
use super::{Action, CleanError, CleanItem, CleanRequest, RescuedItem, Subject, trash};
use crate::reason::Reason;
use crate::run::{RunEvent, RunRecord, kept_reference, now_ms, read_json};
use crate::sandboxes;
use crate::store::{RunRow, RunSummaryUpdate, Store};

/// Removes the worktrees of a finished run, and its git directory when none is left. The run can be
/// recovered afterwards as before. The caller holds its lock.
pub(super) async fn strip(
    request: &CleanRequest,
    processes: &Processes,
    store: &Store,
    listed: &ListedRun,
) -> Result<Vec<CleanItem>, CleanError> {
    let look = Look::EverythingOpened;
    let examination = match examine(request, processes, listed, Purpose::Recover, look) {
        Ok(examination) => examination,
        Err(reason) => return Ok(vec![refused(whole_work(listed), reason, false)]),
    };
    let mut items = worktree_items(listed, &examination);
    // All is saved, and on record, before anything goes.
    for item in items.iter_mut().filter(|item| item.goes()) {
        let place = examination
            .places
            .iter()
            .find(|place| place.path == Path::new(&item.path));
        let saved = match place {
            Some(place) => examination.save_place(place),
            None => examination.save_results(),
        };
        match saved {
            Ok(rescued) => {
                record(store, listed, &rescued).await?;
                item.rescued = rescued;
            }
            Err(error) => *item = refused(item.clone(), with_sources(&error), true),
        }
    }
    request.fault.hit("clean-rescued");
    let mut aside = Vec::new();
    for item in items
        .iter_mut()
        .filter(|item| item.what == Subject::Worktree && item.goes())
    {
        let place = examination
            .places
            .iter()
            .find(|place| place.path == Path::new(&item.path));
        let Some(place) = place else { continue };
        // Without its index the worktree counts as one that is still to be made.
        let moved = sys::remove_tree(&place.index)
            .and_then(|()| trash::set_aside(&request.home, &listed.run, &place.path));
        settle(item, moved, &mut aside);
    }
    let all_gone = items
        .iter()
        .all(|item| item.what != Subject::Worktree || item.goes());
    for item in items
        .iter_mut()
        .filter(|item| item.what == Subject::ControlGit)
    {
        if item.goes() && all_gone {
            let path = listed.directory.control_git();
            let moved = trash::set_aside(&request.home, &listed.run, &path);
            settle(item, moved, &mut aside);
        } else if item.goes() {
            let reason = "a worktree that stays needs it".to_owned();
            *item = refused(item.clone(), reason, false);
        }
    }
    // It is in nobody's way when it stays.
    drop(fs_err::remove_dir(
        listed.directory.root().join("worktrees"),
    ));
    request.fault.hit("clean-set-aside");
    // The git directory was needed until here.
    drop(examination);
    for (path, what) in aside {
        if let Err(error) = sys::remove_tree(&path) {
            for item in items.iter_mut().filter(|item| item.path == what) {
                *item = refused(item.clone(), error.to_string(), true);
            }
        }
    }
    Ok(items)
}

/// Removes a finished run: directory, record, and the refs that keep nothing of their own. The
/// caller holds its lock.
pub(super) async fn forget(
    request: &CleanRequest,
    processes: &Processes,
    store: &Store,
    listed: &ListedRun,
    item: CleanItem,
) -> Result<CleanItem, CleanError> {
    let look = Look::EverythingOpened;
    let examination = match examine(request, processes, listed, Purpose::Forget, look) {
        Ok(examination) => examination,
        Err(reason) => return Ok(refused(item, reason, false)),
    };
    let mut item = forget_action(item, &examination);
    if !item.goes() {
        return Ok(item);
    }
    let mut saved = examination.save_results();
    for place in &examination.places {
        saved = saved.and_then(|mut all| {
            all.extend(examination.save_place(place)?);
            Ok(all)
        });
    }
    match saved {
        Ok(rescued) => {
            record(store, listed, &rescued).await?;
            item.rescued = rescued;
        }
        Err(error) => return Ok(refused(item, with_sources(&error), true)),
    }
    // One that stays keeps something a second time, which is all.
    drop(remove_redundant_refs(request, listed));
    request.fault.hit("clean-rescued");
    let mut aside = Vec::new();
    let moved = trash::set_aside(&request.home, &listed.run, listed.directory.root());
    settle(&mut item, moved, &mut aside);
    request.fault.hit("clean-set-aside");
    if item.goes() && listed.row.is_some() {
        store
            .remove_run(&listed.run)
            .await
            .map_err(CleanError::Store)?;
    }
    // One that may still be there is left to the next sweep; a record that stays is no harm.
    drop(sandboxes::ledger(&request.home).forget(listed.run.as_str()));
    request.fault.hit("clean-forgotten");
    for (path, _) in aside {
        if let Err(error) = sys::remove_tree(&path) {
            item = refused(item, error.to_string(), true);
        }
    }
    Ok(item)
}

/// Removes those refs of the run that keep nothing of their own: what the user's references lead to
/// anyway, and what is exactly the base or the published tree. Only for a run that is forgotten.
fn remove_redundant_refs(request: &CleanRequest, listed: &ListedRun) -> Result<(), String> {
    let record: RunRecord =
        read_json(&listed.directory.record()).map_err(|error| with_sources(&error))?;
    let Some(base) = record.base.clone() else {
        return Ok(());
    };
    let repository = Repository::discover(&request.git, &record.repository_path())
        .map_err(|error| with_sources(&error))?;
    let own = kept_reference(&listed.run, "");
    let all = repository
        .kept_commits(&own)
        .map_err(|error| with_sources(&error))?;
    if all.is_empty() {
        return Ok(());
    }
    // A branch that the user has deleted keeps nothing.
    let kept_elsewhere = |commit: &CommitId| {
        repository
            .is_kept(commit, &own)
            .map_err(|error| with_sources(&error))
    };
    let branch =
        ground::state(request, listed)?.and_then(|state| state.publication()?.branch.clone());
    let published = match branch {
        Some(branch) if kept_elsewhere(&branch.commit)? => Some(branch.tree),
        _ => None,
    };
    let (control, _temporary) = ground::control(request, listed, &repository)?;
    for kept in all {
        let plain = kept.parents == [base.commit.clone()];
        let known = kept.tree == base.tree || published.as_ref() == Some(&kept.tree);
        let redundant = plain && known || kept_elsewhere(&kept.commit)?;
        if redundant {
            control
                .delete_ref(&repository, &kept.reference, &kept.commit)
                .map_err(|error| with_sources(&error))?;
        }
    }
    Ok(())
}

/// What was set aside is to be removed; what was not stays.
fn settle(
    item: &mut CleanItem,
    moved: std::io::Result<PathBuf>,
    aside: &mut Vec<(PathBuf, String)>,
) {
    match moved {
        Ok(path) => aside.push((path, item.path.clone())),
        Err(error) => {
            item.action = Action::Keep {
                reason: error.to_string(),
                failed: true,
            };
        }
    }
}

/// Notes the refs in the journal of the run, so that `status` shows them.
async fn record(
    store: &Store,
    listed: &ListedRun,
    rescued: &[RescuedItem],
) -> Result<(), CleanError> {
    let Some(row) = &listed.row else {
        return Ok(());
    };
    for one in rescued {
        let Ok(commit) = CommitId::parse(&one.commit) else {
            continue;
        };
        let event = RunEvent::Kept {
            reference: one.reference.clone(),
            commit,
        };
        store
            .append(&listed.run, now_ms(), &event, as_it_is(row))
            .await
            .map_err(CleanError::Store)?;
    }
    Ok(())
}

fn as_it_is(row: &RunRow) -> RunSummaryUpdate {
    RunSummaryUpdate {
        status: row.status,
        reason: Reason::ALL
            .into_iter()
            .find(|reason| row.reason.as_deref() == Some(reason.name())),
        detail: row.detail.clone(),
        branch: row.branch.clone(),
        cost_usd: row.cost_usd,
        cost_unknown: row.cost_unknown,
        ended_at_ms: row.ended_at_ms,
        cost: None,
    }
}
