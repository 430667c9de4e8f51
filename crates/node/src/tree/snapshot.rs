//! Reading a directory back as a tree.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use super::beneath::Root;
use super::place::{TreeError, WorktreePlace};
use super::survey::{Survey, Tracked, survey};
use crate::git::{ControlGit, TreeId, parse_tree, push_index_record};

/// A name that stands in the index for a moment, where nothing else of that directory does.
const SEED: &[u8] = b".mini-ork-seed";

/// The content of a directory at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// As a tree in the run's object store.
    pub tree: TreeId,
}

impl ControlGit {
    /// The content of the directory of `place` as a tree, without what git is told to ignore.
    ///
    /// Files of a repository that was made inside are carried like others, without its `.git`. A
    /// submodule stays as it was. What else a tree cannot carry is told by
    /// [`ControlGit::not_carried`]. A directory or file that cannot be read is an error that names
    /// it. Nothing in the directory is changed, and files that look unchanged by their metadata
    /// are not read again.
    pub fn snapshot(&self, place: &WorktreePlace) -> Result<Snapshot, TreeError> {
        let _lock = place.lock()?;
        let root = Root::open(&place.path)?;
        let tracked = self.tracked(place)?;
        let survey = survey(&root, &tracked.submodules, &mut |_| Ok(true))?;
        self.refuse_unreadable(place, &tracked, &survey)?;
        self.prepare_index(place, &tracked, &survey)?;
        // A submodule is passed over: git would take its commit from a `.git` inside.
        let excluded: Vec<&Vec<u8>> = survey
            .forbidden
            .iter()
            .chain(&survey.filled_submodules)
            .collect();
        let add = self.place_command("add", place).arg("-A");
        if excluded.is_empty() {
            add.run()?;
        } else {
            let mut pathspecs = b":(top)\0".to_vec();
            for path in excluded {
                pathspecs.extend_from_slice(b":(exclude,top,literal)");
                pathspecs.extend_from_slice(path);
                pathspecs.push(0);
            }
            add.args(["--pathspec-from-file=-", "--pathspec-file-nul"])
                .magic_pathspecs()
                .input(pathspecs)
                .run()?;
        }
        let tree = parse_tree(
            "write-tree",
            &self.place_command("write-tree", place).run()?,
        )?;
        Ok(Snapshot { tree })
    }

    /// Git warns about a directory that it cannot list, and goes on as if it were empty.
    fn refuse_unreadable(
        &self,
        place: &WorktreePlace,
        tracked: &Tracked,
        survey: &Survey,
    ) -> Result<(), TreeError> {
        let ignored = self.ignored(place, &survey.closed)?;
        let lost = |path: &&Vec<u8>| !ignored.contains(*path) || tracked.contains_below(path);
        match survey.closed.iter().find(lost) {
            Some(path) => Err(TreeError::Unreadable {
                path: place.path.join(OsStr::from_bytes(path)),
            }),
            None => Ok(()),
        }
    }

    /// Puts into the index what makes git read the directory the way it should.
    fn prepare_index(
        &self,
        place: &WorktreePlace,
        tracked: &Tracked,
        survey: &Survey,
    ) -> Result<(), TreeError> {
        let mut records = Vec::new();
        // Git adds a repository inside as one link to a commit that nobody else has, unless it
        // tracks a file in there already. The file that is named here does not exist, so that
        // adding everything also removes it.
        for path in survey
            .nested
            .iter()
            .filter(|path| !tracked.contains_below(path))
        {
            let mut seed = path.clone();
            seed.push(b'/');
            seed.extend_from_slice(SEED);
            push_index_record(
                &mut records,
                "100644",
                self.object_format().empty_blob(),
                &seed,
            );
        }
        // Git fails on a file that became a pipe.
        for (path, _) in survey
            .special
            .iter()
            .filter(|(path, _)| tracked.contains(path))
        {
            push_index_record(&mut records, "0", &self.object_format().null_id(), path);
        }
        if !records.is_empty() {
            self.place_command("update-index", place)
                .args(["--replace", "-z", "--index-info"])
                .input(records)
                .run()?;
        }
        Ok(())
    }
}
