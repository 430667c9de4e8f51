use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::place::checkout;
use crate::cli::InitArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, Style, paint};
use crate::settings::GlobalSettings;

/// Below `.mini-ork` of the repository.
const FILES: [(&str, &str); 3] = [
    (
        "config/providers.yaml",
        include_str!("init_files/providers.yaml"),
    ),
    ("config/agents.yaml", include_str!("init_files/agents.yaml")),
    (
        "kickoff.example.md",
        include_str!("init_files/kickoff.example.md"),
    ),
];

/// Sets up a repository: configuration and an example kickoff. What is there stays as it is.
pub(crate) fn init(args: &InitArgs, global: &GlobalSettings) -> CommandResult {
    let checkout = checkout(global, args.repo.as_deref())?.ok_or_else(|| {
        CommandError::usage("there is no checkout of a git repository here to set up")
            .hint("go into one, name one with --repo DIR, or make one with `git init`")
    })?;
    let directory = checkout.join(".mini-ork");
    let (mut made, mut kept) = (Vec::new(), Vec::new());
    for (name, text) in FILES {
        let path = directory.join(name);
        let is_new = write_new(&path, text).map_err(|error| {
            CommandError::failure(format!("cannot write {}", path.display())).caused_by(&error)
        })?;
        if is_new {
            made.push(path);
        } else {
            kept.push(path);
        }
    }
    if args.json {
        let listed = |paths: &[PathBuf]| -> Vec<_> {
            let paths = paths.iter();
            paths
                .map(|path| render::path_json(path.as_os_str()))
                .collect()
        };
        render::json(&json!({
            "format": 1,
            "made": listed(&made),
            "kept": listed(&kept),
        }))?;
        return Ok(ExitStatus::Success);
    }
    let mut text = String::new();
    for path in &made {
        text.push_str(&format!(
            "{} {}\n",
            paint(Style::Good, "made"),
            path.display()
        ));
    }
    for path in &kept {
        text.push_str(&format!(
            "{} {}\n",
            paint(Style::Dim, "kept"),
            path.display()
        ));
    }
    text.push_str(
        "\nnext  describe your agent in .mini-ork/config/providers.yaml (mini-ork help lanes)\n      \
         mini-ork doctor\n      \
         cp .mini-ork/kickoff.example.md kickoff.md, edit it, then: mini-ork run code-fix kickoff.md\n",
    );
    render::out(&text)?;
    Ok(ExitStatus::Success)
}

/// Writes `path` unless something is there; says whether it was written. A symbolic link is
/// something, so that nothing outside the repository is written.
fn write_new(path: &Path, text: &str) -> std::io::Result<bool> {
    if let Some(parent) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
    }
    let opened = fs_err::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path);
    match opened {
        Ok(mut file) => file.write_all(text.as_bytes()).map(|()| true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use mini_ork_control::kickoff::Kickoff;
    use mini_ork_control::lanes::{BUILT_IN, LaneConfig};
    use mini_ork_control::recipe::Catalog;

    use super::*;

    fn described(lanes: &LaneConfig) -> usize {
        let lanes_of_files = lanes
            .lanes()
            .filter(|lane| lanes.lane_file(&lane.name) != Some(BUILT_IN));
        lanes_of_files.count()
    }

    #[test]
    fn what_it_writes_has_no_mistakes() {
        let repository = tempfile::tempdir().unwrap();
        for (name, text) in FILES {
            let path = repository.path().join(".mini-ork").join(name);
            assert!(write_new(&path, text).unwrap());
        }
        let home = Path::new("/nonexistent/home");
        let lanes = LaneConfig::load(home, Some(repository.path())).unwrap();
        assert_eq!(described(&lanes), 0);
        let kickoff = Kickoff::parse(FILES[2].1.as_bytes(), "kickoff.md").unwrap();
        let recipe = Catalog::new(None, home).find("code-fix").unwrap();
        assert!(kickoff.missing(&recipe.task.requires, false).is_empty());
    }

    #[test]
    fn the_examples_work_once_they_are_uncommented() {
        let repository = tempfile::tempdir().unwrap();
        let config = repository.path().join(".mini-ork/config");
        fs_err::create_dir_all(&config).unwrap();
        for (name, text) in &FILES[..2] {
            let example: String = text
                .lines()
                .skip_while(|line| *line != "#")
                .skip(1)
                .take_while(|line| *line != "#")
                .map(|line| format!("{}\n", &line[2..]))
                .collect();
            let example = example.replace("another-agent", "my-agent");
            fs_err::write(repository.path().join(".mini-ork").join(name), example).unwrap();
        }
        let lanes = LaneConfig::load(Path::new("/nonexistent"), Some(repository.path())).unwrap();
        assert_eq!(described(&lanes), 2);
        assert_eq!(lanes.roles().count(), 2);
    }

    #[test]
    fn what_is_there_is_not_overwritten() {
        let repository = tempfile::tempdir().unwrap();
        let path = repository.path().join("a/b");
        assert!(write_new(&path, "one").unwrap());
        assert!(!write_new(&path, "two").unwrap());
        assert_eq!(fs_err::read_to_string(&path).unwrap(), "one");
        let outside = repository.path().join("outside");
        let link = repository.path().join("link");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        assert!(!write_new(&link, "three").unwrap());
        assert!(!outside.exists());
    }
}
