//! Where a command that needs no run works: the checkout around it, if any.

use std::path::{Path, PathBuf};

use mini_ork_node::git::{DiscoverError, Repository};

use super::drive::find_git;
use super::run::discover_error;
use crate::error::CommandError;
use crate::settings::GlobalSettings;

/// The top of the checkout that `flag` or a variable names, else of the one around the current
/// directory. None when nothing was named and there is none; what was named must be one. A
/// repository without commits has a checkout too.
pub(crate) fn checkout(
    global: &GlobalSettings,
    flag: Option<&Path>,
) -> Result<Option<PathBuf>, CommandError> {
    let choice = global.repository_choice(flag);
    let start = choice
        .as_ref()
        .map_or(&global.current_directory, |choice| &choice.value);
    let git = match find_git(global) {
        Ok(git) => git,
        Err(_) if choice.is_none() => return Ok(None),
        Err(error) => return Err(error),
    };
    match Repository::discover(&git, start) {
        Ok(repository) => Ok(repository.toplevel),
        Err(DiscoverError::NoCommits { git_dir }) => Ok(beside(&git_dir)),
        Err(_) if choice.is_none() => Ok(None),
        Err(error) => Err(discover_error(&error)),
    }
}

/// The checkout of a repository that git cannot be asked about before its first commit.
fn beside(git_dir: &Path) -> Option<PathBuf> {
    (git_dir.file_name()? == ".git").then(|| git_dir.parent().map(Path::to_owned))?
}
