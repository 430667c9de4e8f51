//! Putting a directory right again.

use rustix::fs::FileType;

use super::beneath::Root;
use super::place::{TreeError, WorktreePlace};
use super::survey::{Survey, Tracked, survey};
use super::walk::Found;
use crate::git::{ControlGit, TreeId};

impl ControlGit {
    /// Makes the directory of `place` hold exactly `tree` again: changed files are put back, added
    /// ones removed, and so are pipes, sockets, empty directories and the `.git` of repositories
    /// inside. Ignored files stay (build caches), as does the `.git` at the top.
    ///
    /// Nothing else may work in the directory meanwhile. No link is followed out of it.
    pub fn reset(&self, place: &WorktreePlace, tree: &TreeId) -> Result<(), TreeError> {
        let _lock = place.lock()?;
        let root = Root::open(&place.path)?;
        let tracked = self.tracked(place)?;
        let found = self.open_up(place, &root, &tracked)?;
        self.remove_foreign(place, &root, &found)?;
        self.place_command("read-tree", place)
            .args(["-u", "--reset"])
            .arg(self.expanded(tree)?)
            .run()?;
        self.remove_empty(place, &root)
    }

    /// Gives us back the right to work in directories that are not ignored.
    pub(super) fn open_up(
        &self,
        place: &WorktreePlace,
        root: &Root,
        tracked: &Tracked,
    ) -> Result<Survey, TreeError> {
        loop {
            let mut locked = Vec::new();
            let found = survey(root, &tracked.submodules, &mut |found| {
                if let Found::Entry {
                    path,
                    kind: FileType::Directory,
                    ..
                } = found
                    && found
                        .stat()?
                        .is_some_and(|stat| stat.st_mode & 0o700 != 0o700)
                {
                    locked.push(path.to_vec());
                }
                Ok(true)
            })?;
            let ignored = self.ignored(place, &locked)?;
            let mut opened = false;
            for path in locked.iter().filter(|path| !ignored.contains(*path)) {
                root.open_up(path)?;
                opened = true;
            }
            // Behind one that could not be listed there may be more.
            if !opened || found.closed.is_empty() {
                return Ok(found);
            }
        }
    }

    fn remove_foreign(
        &self,
        place: &WorktreePlace,
        root: &Root,
        found: &Survey,
    ) -> Result<(), TreeError> {
        // Git takes no path that is too long; the directory that holds it decides.
        let long = found
            .too_long
            .iter()
            .map(|path| (parent(path).to_vec(), path.clone()));
        let nested = found.nested.iter().map(|path| {
            let mut inner = path.clone();
            inner.extend_from_slice(b"/.git");
            (path.clone(), inner)
        });
        let special = found.special.iter().map(|(path, _)| path);
        let others = found
            .forbidden
            .iter()
            .chain(special)
            .map(|path| (path.clone(), path.clone()));
        let candidates: Vec<(Vec<u8>, Vec<u8>)> = long.chain(nested).chain(others).collect();
        let ignored = self.ignored(place, candidates.iter().map(|(asked, _)| asked))?;
        for (_, path) in candidates
            .iter()
            .filter(|(asked, _)| !ignored.contains(asked))
        {
            root.remove(path)?;
        }
        for path in &found.filled_submodules {
            root.remove(path)?;
        }
        let listing = self
            .place_command("ls-files", place)
            .args(["--others", "--exclude-standard", "-z"])
            .run()?;
        for path in listing
            .split(|byte| *byte == 0)
            .filter(|path| !path.is_empty())
        {
            let path = path.strip_suffix(b"/").unwrap_or(path);
            root.remove(path)?;
        }
        Ok(())
    }

    fn remove_empty(&self, place: &WorktreePlace, root: &Root) -> Result<(), TreeError> {
        let submodules = self.tracked(place)?.submodules;
        let found = survey(root, &submodules, &mut |_| Ok(true))?;
        let ignored = self.ignored(place, &found.empty)?;
        for path in found.empty.iter().filter(|path| !ignored.contains(*path)) {
            root.remove_empty(path)?;
        }
        Ok(())
    }
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter()
        .rposition(|byte| *byte == b'/')
        .map_or(path, |end| &path[..end])
}
