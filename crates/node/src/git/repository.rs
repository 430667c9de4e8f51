//! The user's repository: where it is, and what a run needs to know about it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use mini_ork_protocol::ByteString;

use super::command::{Git, GitCommand};
use super::error::GitError;
use super::id::{CommitId, FileMode, ObjectFormat, RepoPath, TreeId};
use super::lfs::LARGEST as LARGEST_LFS_POINTER;
use super::objects::{parse_tree_listing, records};

const LFS_MARK: &[u8] = b"version https://git-lfs.github.com/spec/";

/// A repository of the user's, as it was when it was looked at.
///
/// Looking changes nothing in it, and no program runs that its configuration names. It may belong
/// to another user: it is named to git by its path and never discovered by git, so no
/// `safe.directory` is needed, and none is written.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Repository {
    /// The program that reads it.
    pub git: Git,
    /// The checkout, absolute; none when the repository is bare.
    pub toplevel: Option<PathBuf>,
    /// The git directory of this checkout, absolute.
    pub git_dir: PathBuf,
    /// The git directory that all its checkouts share, absolute.
    pub common_dir: PathBuf,
    /// Where its objects are, absolute.
    pub object_directory: PathBuf,
    /// How its objects are named.
    pub object_format: ObjectFormat,
    /// The commit that is checked out.
    pub head: CommitId,
    /// The tree of `head`.
    pub head_tree: TreeId,
    /// The branch that is checked out, without `refs/heads/`; none when HEAD is detached.
    pub branch: Option<ByteString>,
    /// Whether its history was cut off when it was cloned.
    pub shallow: bool,
    pub(super) settings: Settings,
    /// Whether its configuration is not believed about where its checkout is.
    alone: bool,
}

/// Settings of the repository that decide how file content maps to blobs, and who may write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) line_endings: Vec<String>,
    pub(super) ignores_executable_bit: bool,
    pub(super) shared: Option<String>,
    lfs_storage: Option<PathBuf>,
}

/// Why there is no repository to work with.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// Neither the directory nor one above it belongs to a repository.
    #[error("{} is not in a git repository", start.display())]
    NotARepository {
        /// Where the search began.
        start: PathBuf,
    },
    /// There is nothing to start from.
    #[error("the repository at {} has no commits", git_dir.display())]
    NoCommits {
        /// Its git directory.
        git_dir: PathBuf,
    },
    /// The start of the search cannot be looked at; the message names it.
    #[error(transparent)]
    Files(#[from] io::Error),
    /// Git could not read it.
    #[error(transparent)]
    Git(#[from] GitError),
}

impl Repository {
    /// Finds the repository that the directory `start` belongs to: a checkout or a directory in
    /// one, a linked worktree, a submodule, a bare repository.
    pub fn discover(git: &Git, start: &Path) -> Result<Self, DiscoverError> {
        let start = fs_err::canonicalize(start)?;
        let (git_dir, directory) = locate(&start).ok_or_else(|| DiscoverError::NotARepository {
            start: start.clone(),
        })?;
        Self::look(git, &git_dir, &directory, false)
    }

    /// The repository of a submodule, without its checkout: where that is said to be there may be
    /// nothing, and git would not start.
    pub(super) fn alone(git: &Git, git_dir: &Path) -> Result<Self, DiscoverError> {
        if !is_git_directory(git_dir) {
            return Err(DiscoverError::NotARepository {
                start: git_dir.to_owned(),
            });
        }
        Self::look(git, git_dir, git_dir, true)
    }

    fn look(
        git: &Git,
        git_dir: &Path,
        directory: &Path,
        alone: bool,
    ) -> Result<Self, DiscoverError> {
        let command = |name| {
            let command = git.command(name, directory).git_dir(git_dir);
            match alone {
                true => command.env("GIT_WORK_TREE", git_dir),
                false => command,
            }
        };
        let ask = |arguments: &[&str]| -> Result<Vec<u8>, GitError> {
            let command = command("rev-parse");
            command.arg("--path-format=absolute").args(arguments).run()
        };
        let flags = ask(&[
            "--is-bare-repository",
            "--is-shallow-repository",
            "--show-object-format",
        ])?;
        let flags = String::from_utf8_lossy(&flags).into_owned();
        let mut flags = flags.lines();
        let bare = flags.next() == Some("true");
        let shallow = flags.next() == Some("true");
        let object_format = match flags.next() {
            Some("sha1") => ObjectFormat::Sha1,
            Some("sha256") => ObjectFormat::Sha256,
            other => {
                let what = format!("object format {other:?}");
                return Err(GitError::Unreadable {
                    command: "rev-parse",
                    what,
                }
                .into());
            }
        };
        let inside: [&[&str]; 3] = [
            &["--git-dir"],
            &["--git-common-dir"],
            &["--git-path", "objects"],
        ];
        let [git_dir_found, common_dir, object_directory] = path_answers(ask, inside)?;
        let toplevel = if bare || alone {
            None
        } else {
            let [toplevel] = path_answers(ask, [&["--show-toplevel"]])?;
            Some(toplevel)
        };

        let ids = match ask(&["HEAD^{commit}", "HEAD^{tree}"]) {
            Ok(ids) => ids,
            Err(error) => {
                // Asked alone, git tells a HEAD without a commit from one that cannot be read.
                let (code, _) = command("rev-parse")
                    .args(["--quiet", "--verify", "HEAD^{commit}"])
                    .run_with_codes(&[0, 1])?;
                let no_commits = DiscoverError::NoCommits {
                    git_dir: git_dir_found,
                };
                return Err(if code == 1 { no_commits } else { error.into() });
            }
        };
        let middle = ids.iter().position(|byte| *byte == b'\n');
        let (head, head_tree) = ids.split_at(middle.unwrap_or(ids.len()));
        let head = parse_commit("rev-parse", head)?;
        let head_tree = parse_tree("rev-parse", head_tree.trim_ascii_start())?;
        let (_, name) = command("symbolic-ref")
            .args(["--quiet", "HEAD"])
            .run_with_codes(&[0, 1])?;
        let branch = name
            .strip_suffix(b"\n")
            .and_then(|name| name.strip_prefix(b"refs/heads/"))
            .map(|name| ByteString::from(name.to_vec()));
        let (_, settings) = command("config")
            .args(["--null", "--get-regexp"])
            .arg("^(core\\.(autocrlf|eol|filemode|sharedrepository)|lfs\\.storage)$")
            .run_with_codes(&[0, 1])?;
        Ok(Self {
            git: git.clone(),
            toplevel,
            git_dir: git_dir_found,
            common_dir,
            object_directory,
            object_format,
            head,
            head_tree,
            branch,
            shallow,
            settings: Settings::parse(&settings),
            alone,
        })
    }

    /// The paths of submodules at HEAD, without those inside submodules.
    pub fn submodules(&self) -> Result<Vec<RepoPath>, GitError> {
        let listing = self
            .command("ls-tree")
            .args(["-r", "-z", "--full-tree"])
            .arg(&self.head_tree)
            .run()?;
        let entries = parse_tree_listing("ls-tree", &listing, false)?;
        let submodules = entries
            .into_iter()
            .filter(|entry| entry.mode == FileMode::Submodule);
        Ok(submodules.map(|entry| entry.path).collect())
    }

    /// Where Git LFS keeps files of this repository.
    pub(super) fn lfs_directory(&self) -> PathBuf {
        let chosen = self.settings.lfs_storage.as_deref();
        self.common_dir.join(chosen.unwrap_or(Path::new("lfs")))
    }

    /// The files at HEAD that Git LFS keeps elsewhere, and their pointers.
    pub(super) fn lfs_pointers(&self) -> Result<Vec<(RepoPath, Vec<u8>)>, GitError> {
        let listing = self
            .command("ls-tree")
            .args(["-r", "-z", "--full-tree"])
            .arg(&self.head_tree)
            .run()?;
        let entries = parse_tree_listing("ls-tree", &listing, false)?;
        let attributes: Vec<_> = entries
            .iter()
            .filter(|entry| entry.path.as_path().file_name() == Some(OsStr::new(".gitattributes")))
            .map(|entry| &entry.id)
            .collect();
        let rules = self.blobs(&attributes)?;
        let has_rule =
            |text: &Vec<u8>| bstr::ByteSlice::contains_str(text.as_slice(), b"filter=lfs");
        if !rules.iter().any(has_rule) {
            return Ok(Vec::new());
        }
        // Only now with sizes, for which git opens every object.
        let listing = self
            .command("ls-tree")
            .args(["-r", "-l", "-z", "--full-tree"])
            .arg(&self.head_tree)
            .run()?;
        let candidates: Vec<_> = parse_tree_listing("ls-tree", &listing, true)?
            .into_iter()
            .filter(|entry| matches!(entry.mode, FileMode::Regular | FileMode::Executable))
            .filter(|entry| entry.size.is_some_and(|size| size <= LARGEST_LFS_POINTER))
            .collect();
        let contents = self.blobs(&candidates.iter().map(|entry| &entry.id).collect::<Vec<_>>())?;
        let pointers = candidates.into_iter().zip(contents);
        Ok(pointers
            .filter(|(_, content)| content.starts_with(LFS_MARK))
            .map(|(entry, content)| (entry.path, content))
            .collect())
    }

    /// A command in this repository. Only for commands that no configuration can make run a
    /// program: `rev-parse`, `ls-tree`, `cat-file`, `for-each-ref`, `worktree list`, `update-ref`.
    pub(crate) fn command(&self, command: &'static str) -> GitCommand<'_> {
        let command = self
            .git
            .command(command, &self.git_dir)
            .git_dir(&self.git_dir);
        match self.alone {
            true => command.env("GIT_WORK_TREE", &self.git_dir),
            false => command,
        }
    }

    /// Its references as (id, full name), in the order of their names.
    pub(crate) fn references(&self) -> Result<Vec<(String, ByteString)>, GitError> {
        let listing = self
            .command("for-each-ref")
            .arg("--format=%(objectname) %(refname)")
            .run()?;
        listing
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty())
            .map(|line| {
                let split = line.iter().position(|byte| *byte == b' ');
                let (id, name) =
                    split
                        .map(|at| (&line[..at], &line[at + 1..]))
                        .ok_or_else(|| GitError::Unreadable {
                            command: "for-each-ref",
                            what: format!("line `{}`", line.escape_ascii()),
                        })?;
                Ok((
                    String::from_utf8_lossy(id).into_owned(),
                    ByteString::from(name.to_vec()),
                ))
            })
            .collect()
    }

    /// Contents of blobs, in the order of `ids`.
    fn blobs(&self, ids: &[&super::ObjectId]) -> Result<Vec<Vec<u8>>, GitError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let mut input = Vec::new();
        for id in ids {
            input.extend_from_slice(id.as_str().as_bytes());
            input.push(b'\n');
        }
        let output = self.command("cat-file").arg("--batch").input(input).run()?;
        parse_batch(&output)
    }
}

impl Settings {
    /// From `config --null --get-regexp`; the last word on a key counts.
    fn parse(output: &[u8]) -> Self {
        let (mut conversion, mut eol) = (None, None);
        let mut settings = Self::default();
        for record in records(output) {
            if let Some(path) = record.strip_prefix(b"lfs.storage\n") {
                settings.lfs_storage = Some(PathBuf::from(OsStr::from_bytes(path)));
                continue;
            }
            let text = String::from_utf8_lossy(record).to_ascii_lowercase();
            // A key without `=` has no line break either, and means true.
            let (key, value) = text.split_once('\n').unwrap_or((&text, "true"));
            match key {
                "core.autocrlf" if value == "input" => conversion = Some("input"),
                "core.autocrlf" => conversion = Some(if truth(value) { "true" } else { "false" }),
                "core.eol" => {
                    eol = ["lf", "crlf", "native"]
                        .into_iter()
                        .find(|known| *known == value);
                }
                "core.filemode" => settings.ignores_executable_bit = !truth(value),
                "core.sharedrepository" => settings.shared = Some(value.to_owned()),
                _ => {}
            }
        }
        settings.line_endings = [("autocrlf", conversion), ("eol", eol)]
            .into_iter()
            .filter_map(|(key, value)| value.map(|value| format!("{key} = {value}")))
            .collect();
        settings
    }
}

/// The git directory and the directory of its checkout (or once more the git directory).
///
/// Git's own search ends at an owner it does not trust, so the search is ours and git is told.
fn locate(start: &Path) -> Option<(PathBuf, PathBuf)> {
    start.ancestors().find_map(|directory| {
        let inner = directory.join(".git");
        if inner.is_file() || is_git_directory(&inner) {
            Some((inner, directory.to_owned()))
        } else if directory.file_name() != Some(OsStr::new(".git")) && is_git_directory(directory) {
            Some((directory.to_owned(), directory.to_owned()))
        } else {
            None
        }
    })
}

/// A directory of git's for one linked worktree has no objects, and is no place to start from.
fn is_git_directory(path: &Path) -> bool {
    path.join("HEAD").symlink_metadata().is_ok()
        && path.join("objects").is_dir()
        && path.join("refs").is_dir()
}

/// Asks for several paths at once. One may hold the line break that separates two answers; then
/// each is asked for alone.
fn path_answers<const COUNT: usize>(
    ask: impl Fn(&[&str]) -> Result<Vec<u8>, GitError>,
    questions: [&[&str]; COUNT],
) -> Result<[PathBuf; COUNT], GitError> {
    let together = ask(&questions.concat())?;
    let mut answers: Vec<Vec<u8>> = together
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    if answers.len() != COUNT {
        answers = questions
            .iter()
            .map(|question| ask(question))
            .collect::<Result<_, _>>()?;
    }
    let paths: Vec<PathBuf> = answers.into_iter().map(path_answer).collect();
    paths.try_into().map_err(|_| GitError::Unreadable {
        command: "rev-parse",
        what: "too few answers".to_owned(),
    })
}

fn path_answer(mut output: Vec<u8>) -> PathBuf {
    if output.last() == Some(&b'\n') {
        output.pop();
    }
    PathBuf::from(OsString::from_vec(output))
}

fn truth(value: &str) -> bool {
    matches!(value, "true" | "yes" | "on") || value.parse::<i64>().is_ok_and(|number| number != 0)
}

pub(super) fn parse_commit(command: &'static str, output: &[u8]) -> Result<CommitId, GitError> {
    let text = OsStr::from_bytes(output).to_string_lossy();
    CommitId::parse(text.trim_end()).map_err(|error| GitError::Unreadable {
        command,
        what: error.to_string(),
    })
}

pub(crate) fn parse_tree(command: &'static str, output: &[u8]) -> Result<TreeId, GitError> {
    let text = String::from_utf8_lossy(output);
    TreeId::parse(text.trim_end()).map_err(|error| GitError::Unreadable {
        command,
        what: error.to_string(),
    })
}

/// `<id> blob <size>\n<content>\n`, repeated.
pub(super) fn parse_batch(mut output: &[u8]) -> Result<Vec<Vec<u8>>, GitError> {
    let mut contents = Vec::new();
    let unreadable = |what: String| GitError::Unreadable {
        command: "cat-file",
        what,
    };
    while let Some(end) = output.iter().position(|byte| *byte == b'\n') {
        let header = String::from_utf8_lossy(&output[..end]).into_owned();
        let size: usize = header
            .rsplit(' ')
            .next()
            .and_then(|size| size.parse().ok())
            .ok_or_else(|| unreadable(format!("header `{header}`")))?;
        let start = end + 1;
        let content = start
            .checked_add(size)
            .and_then(|stop| output.get(start..stop))
            .ok_or_else(|| unreadable(format!("`{header}` without its content")))?;
        contents.push(content.to_vec());
        output = output.get(start + size + 1..).unwrap_or_default();
    }
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn settings_are_normalised_and_others_left_out() {
        let output =
            b"core.autocrlf\nInput\0core.eol\nCRLF\0core.filemode\nfalse\0core.autocrlf\nYES\0";
        let settings = Settings::parse(output);
        assert_eq!(settings.line_endings, ["autocrlf = true", "eol = crlf"]);
        assert!(settings.ignores_executable_bit);
        assert_eq!(
            Settings::parse(b"core.filemode\0core.eol\n\"\nx = y\0"),
            Settings::default()
        );
    }

    proptest! {
        #[test]
        fn batches_are_read_back(contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..6)) {
            let mut output = Vec::new();
            for content in &contents {
                output.extend(format!("{} blob {}\n", "a".repeat(40), content.len()).into_bytes());
                output.extend(content);
                output.push(b'\n');
            }
            prop_assert_eq!(parse_batch(&output).unwrap(), contents);
        }

        #[test]
        fn no_output_makes_the_parsers_panic(output in prop::collection::vec(any::<u8>(), 0..200)) {
            drop(parse_batch(&output));
            drop(parse_commit("x", &output));
            drop(parse_tree("x", &output));
            let _ = Settings::parse(&output);
        }
    }
}
