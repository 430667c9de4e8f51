//! A workspace of a large tree, beside what git makes of it.

use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use mini_ork_node::git::{ControlGit, Repository};
use mini_ork_node::tree::{PrivateGit, WorktreePlace};

use super::lab::{Lab, check, failed, milliseconds, progress, time};
use super::report::Report;
use super::sample::Samples;
use crate::commands::drive::find_git;
use crate::error::CommandError;
use crate::settings::GlobalSettings;

const PART: &str = "tree";
/// Each takes seconds and hundreds of megabytes, which are freed at the very end: on a file system
/// without a journal, files are made many times slower after others were removed.
const MOST_SAMPLES: u32 = 5;
/// Files in one directory.
const FANOUT: u32 = 20;
const SMALLEST: f64 = 256.0;
/// Sizes are spread evenly by their logarithm: half of the files are below 3 KiB, the mean is 6.6.
const SPREAD: f64 = 128.0;

pub(super) fn measure(
    lab: &Lab,
    global: &GlobalSettings,
    samples: u32,
    files: u32,
    report: &mut Report,
) -> Result<(), CommandError> {
    progress(&format!("tree: making a repository of {files} files"));
    let repository = large_repository(lab, files)?;
    let git = find_git(global)?;
    let found = Repository::discover(&git, &repository).map_err(|error| failed(&error))?;
    let workers = format!("checkout.workers={}", lab.cores());
    let (mut own, mut worktree) = (Samples::default(), Samples::default());
    for turn in 0..=samples.min(MOST_SAMPLES) {
        progress(&format!("tree: workspace {turn}"));
        let target = lab.root().join(format!("git-worktree{turn}"));
        let by_git = || {
            settle(lab)?;
            let mut command = lab.command("git");
            command
                .arg("-C")
                .arg(&repository)
                .args(["-c", &workers, "worktree", "add", "-q", "--detach"])
                .arg(&target);
            time(command, "git worktree add")
        };
        let (own_ms, worktree_ms) = if turn % 2 == 0 {
            let own_ms = workspace(lab, &found, turn)?;
            (own_ms, by_git()?)
        } else {
            let worktree_ms = by_git()?;
            (workspace(lab, &found, turn)?, worktree_ms)
        };
        if turn == 0 {
            require_same_files(&lab.root().join("workspace0"), &target)?;
        } else {
            own.push(own_ms);
            worktree.push(worktree_ms);
        }
    }
    let ratios = own.ratios(&worktree);
    report.row(PART, format!("workspace of {files} files"), "ms", &own);
    let name = format!("git -c {workers} worktree add");
    report.row(PART, name, "ms", &worktree);
    report.row(
        PART,
        "workspace against git, turn by turn",
        "times",
        &ratios,
    );
    let goal = "workspace of a large tree against git worktree add";
    report.goal(goal, 1.0, ratios.median(), "times");
    Ok(())
}

/// What a run does before its first writing node can start.
fn workspace(lab: &Lab, repository: &Repository, turn: u32) -> Result<f64, CommandError> {
    settle(lab)?;
    let control = lab.root().join(format!("control{turn}.git"));
    let place = WorktreePlace {
        path: lab.root().join(format!("workspace{turn}")),
        index_file: control.join("main.index"),
    };
    let private = PrivateGit {
        repository,
        head_branch: "mini-ork/bench",
        head_commit: &repository.head,
    };
    let began = Instant::now();
    let git = ControlGit::create(&control, repository, b"").map_err(|error| failed(&error))?;
    git.materialise(&repository.head_tree, &place, Some(&private))
        .map_err(|error| failed(&error))?;
    Ok(milliseconds(began))
}

/// Waits until what was made before is on the disk: who comes next would find it busy.
fn settle(lab: &Lab) -> Result<(), CommandError> {
    let directory = fs_err::File::open(lab.root()).map_err(|error| failed(&error))?;
    rustix::fs::syncfs(directory.file()).map_err(|error| failed(&error))
}

/// A bare repository with one commit, in one pack as after a clone.
fn large_repository(lab: &Lab, files: u32) -> Result<PathBuf, CommandError> {
    let path = lab.root().join("large.git");
    fs_err::create_dir(&path).map_err(|error| failed(&error))?;
    lab.git(&path, &["init", "-q", "--bare"])?;
    let mut command = lab.command("git");
    command
        .arg("-C")
        .arg(&path)
        .args(["fast-import", "--quiet"])
        .stdin(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let written = child.stdin.take().map_or(Ok(()), |stdin| {
        write_history(&mut BufWriter::new(stdin), files)
    });
    check(child.wait(), "git fast-import")?;
    written.map_err(|error| failed(&error))?;
    lab.git(&path, &["symbolic-ref", "HEAD", "refs/heads/main"])?;
    Ok(path)
}

fn write_history(stream: &mut dyn std::io::Write, files: u32) -> std::io::Result<()> {
    stream.write_all(
        b"commit refs/heads/main\ncommitter bench <bench@localhost> 0 +0000\ndata 5\nlarge\n",
    )?;
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut content = Vec::new();
    for number in 0..files {
        random.text(&mut content);
        let directory = number / FANOUT;
        writeln!(
            stream,
            "M 100644 inline area{}/part{}/file{number}.txt\ndata {}",
            directory / FANOUT,
            directory % FANOUT,
            content.len()
        )?;
        stream.write_all(&content)?;
        stream.write_all(b"\n")?;
    }
    stream.write_all(b"done\n")?;
    stream.flush()
}

/// The same numbers each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Words that compress about as source code does.
    fn text(&mut self, content: &mut Vec<u8>) {
        const WORDS: [&str; 16] = [
            "let ", "mut ", "value ", "= ", "self.", "read(", "path", ")?;\n", "match ", "Ok(",
            "=> ", "{\n", "}\n", "return ", "index", "+ 1 ",
        ];
        content.clear();
        // 53 bits are what a float holds.
        let part = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
        let size = (SMALLEST * SPREAD.powf(part)) as usize;
        while content.len() < size {
            let number = self.next();
            let word = WORDS.get(number as usize % WORDS.len()).copied();
            content.extend_from_slice(word.unwrap_or_default().as_bytes());
            if number >> 60 < 6 {
                content.extend_from_slice(format!("{:x} ", number >> 32 & 0xffff).as_bytes());
            }
        }
        content.truncate(size);
    }
}

/// What is compared has to be the same.
fn require_same_files(own: &Path, other: &Path) -> Result<(), CommandError> {
    let (mut left, mut right) = (listing(own)?, listing(other)?);
    left.sort_unstable();
    right.sort_unstable();
    if left == right {
        return Ok(());
    }
    Err(CommandError::failure(
        "the two working copies of the large tree differ",
    ))
}

fn listing(root: &Path) -> Result<Vec<(PathBuf, u64)>, CommandError> {
    let mut found = Vec::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs_err::read_dir(directory).map_err(|error| failed(&error))? {
            let path = entry.map_err(|error| failed(&error))?.path();
            let metadata = fs_err::symlink_metadata(&path).map_err(|error| failed(&error))?;
            let relative = path.strip_prefix(root).unwrap_or(&path).to_owned();
            if relative == Path::new(".git") {
            } else if metadata.is_dir() {
                pending.push(path);
            } else {
                found.push((relative, metadata.len()));
            }
        }
    }
    Ok(found)
}
