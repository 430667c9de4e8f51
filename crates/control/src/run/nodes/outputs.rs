//! The files that nodes make beside the tree.

use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use mini_ork_node::beneath::{Directory, Links};
use mini_ork_node::supervise::{LogCursor, STDOUT_LOG};

use super::super::context::RunContext;
use super::super::directory::{make_directory, write_atomically_by};
use super::super::event::{Failure, Remedy};
use super::super::failure::ground_failure;
use super::{Ancestor, Job, ancestor_directory};
use crate::reason::Reason;
use crate::recipe::Output;

/// Checks the outputs that the recipe declares for the node that just ended. A node with one
/// output may simply print it.
pub(super) fn check(context: &RunContext, job: &Job, answer: &[u8]) -> Result<(), Failure> {
    let directory = job.output_directory(context);
    for output in &job.planned.node.outputs {
        let path = directory.join(&output.path);
        let present = is_plain_file(&directory, &path).map_err(|error| ground_failure(&error))?;
        if present {
            continue;
        }
        let printed = answer.iter().any(|byte| !byte.is_ascii_whitespace());
        if job.planned.node.outputs.len() == 1 && printed {
            keep_answer(context, job, Path::new(&output.path), answer)
                .map_err(|error| ground_failure(&error))?;
            continue;
        }
        return Err(Failure {
            reason: Reason::ArtifactContract,
            detail: format!("its output `{}` is missing ({})", output.name, output.path),
            remedy: Remedy::Attempt,
        });
    }
    Ok(())
}

/// Makes what the lane answered the output at `path`. The directory of outputs was the node's to
/// write, so no link in it is followed.
fn keep_answer(context: &RunContext, job: &Job, path: &Path, answer: &[u8]) -> io::Result<()> {
    const PIECE: usize = 64 << 10;
    let directory =
        Directory::open(&job.directory(context))?.directory(Path::new("out"), Links::Refused)?;
    if job.lane.as_ref().is_some_and(|lane| lane.model().is_some()) {
        return directory.replace(path, |file| file.write_all(answer));
    }
    // All that it printed, piece by piece: it may be longer than memory.
    let directory_of = &context.directory;
    let process = directory_of.lane_process(job.id(), job.round, job.attempt);
    let log = process.join(STDOUT_LOG);
    let mut cursor = LogCursor::open(&log, 0)?;
    directory.replace(path, |file| {
        loop {
            let piece = cursor.read(PIECE)?;
            if piece.is_empty() {
                return Ok(());
            }
            file.write_all(&piece)?;
        }
    })
}

/// Copies those outputs of `ancestors` that are `wanted` into `directory`, each to its path;
/// returns the paths in the order of the graph.
pub(super) fn gather(
    context: &RunContext,
    ancestors: &[Ancestor],
    directory: &Path,
    wanted: impl Fn(&Output) -> bool,
) -> io::Result<Vec<String>> {
    let mut gathered = Vec::new();
    for ancestor in ancestors {
        let Some(planned) = context.plan.node(&ancestor.id) else {
            continue;
        };
        for output in planned.node.outputs.iter().filter(|output| wanted(output)) {
            let from_directory = ancestor_directory(context, ancestor).join("out");
            let from = from_directory.join(&output.path);
            if !is_plain_file(&from_directory, &from)? {
                continue;
            }
            let (Some(parent), Some(name)) = (from.parent(), from.file_name()) else {
                continue;
            };
            // Looked at above for the sake of the message; this is what holds.
            let source = Directory::open_strictly(parent)?;
            let mut source = source.file(Path::new(name), Links::Refused)?;
            let to = directory.join(&output.path);
            if let Some(parent) = to.parent() {
                make_directory(parent)?;
            }
            write_atomically_by(&to, |file| io::copy(&mut source, file).map(drop))?;
            gathered.push(output.path.clone());
        }
    }
    Ok(gathered)
}

/// Whether `path` is a regular file that is reached without a symbolic link at or below `directory`
/// and has no second name: a link planted there would make the control plane read, or later
/// overwrite, a file elsewhere.
fn is_plain_file(directory: &Path, path: &Path) -> io::Result<bool> {
    let Ok(relative) = path.strip_prefix(directory) else {
        return Ok(false);
    };
    refuse_link(directory)?;
    let mut current = directory.to_owned();
    for part in relative {
        current.push(part);
        match fs_err::symlink_metadata(&current) {
            Ok(found) if found.is_symlink() => return Err(behind_link(&current)),
            Ok(found) if current == path => return Ok(found.is_file() && found.nlink() == 1),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The directory of outputs is the node's to write, so it may be a link by now.
fn refuse_link(directory: &Path) -> io::Result<()> {
    match fs_err::symlink_metadata(directory) {
        Ok(found) if found.is_symlink() => Err(behind_link(directory)),
        _ => Ok(()),
    }
}

fn behind_link(path: &Path) -> io::Error {
    io::Error::other(format!(
        "{}: an output must not lie behind a symbolic link",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_link_is_no_output() {
        let root = tempfile::tempdir().unwrap();
        let out = root.path().join("out");
        fs_err::create_dir_all(out.join("sub")).unwrap();
        fs_err::write(root.path().join("secret"), "x").unwrap();
        fs_err::write(out.join("sub/plain"), "x").unwrap();
        for (target, name) in [
            (root.path().join("secret"), "link"),
            (root.path().into(), "up"),
        ] {
            fs_err::os::unix::fs::symlink(target, out.join(name)).unwrap();
        }
        fs_err::hard_link(root.path().join("secret"), out.join("twin")).unwrap();

        assert!(is_plain_file(&out, &out.join("sub/plain")).unwrap());
        assert!(!is_plain_file(&out, &out.join("absent")).unwrap());
        assert!(!is_plain_file(&out, &out.join("sub")).unwrap());
        assert!(!is_plain_file(&out, &out.join("twin")).unwrap());
        assert!(is_plain_file(&out, &out.join("link")).is_err());
        assert!(is_plain_file(&out, &out.join("up/secret")).is_err());
        assert!(!is_plain_file(&out, &root.path().join("secret")).unwrap());

        let replaced = root.path().join("replaced");
        fs_err::os::unix::fs::symlink(root.path(), &replaced).unwrap();
        assert!(is_plain_file(&replaced, &replaced.join("secret")).is_err());
        assert!(is_plain_file(&replaced, &replaced.join("absent")).is_err());
    }
}
