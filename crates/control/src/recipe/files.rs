use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType};

use crate::beneath::{Directory, Links};
use crate::yaml::Mistake;

const LARGEST_FILE: u64 = 1024 * 1024;
const LARGEST_RECIPE: usize = 8 * 1024 * 1024;
const MOST_FILES: usize = 256;
const DEEPEST_DIRECTORY: usize = 8;

/// The files of a recipe's directory, and what is wrong with some of them.
pub(super) struct RecipeFiles {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pub(super) mistakes: Vec<Mistake>,
}

/// Reads every file below `directory`, except those whose name begins with a dot (editors and
/// version control leave them).
///
/// Nothing outside the directory is read, whatever links it holds. `shown` is the directory as a
/// person knows it. Fails only when the directory itself cannot be listed.
pub(super) fn read(directory: &Directory, shown: &str) -> io::Result<RecipeFiles> {
    let mut reading = Reading {
        root: directory,
        shown,
        total: 0,
        files: BTreeMap::new(),
        mistakes: Vec::new(),
    };
    reading.list(directory, Path::new(""), 0)?;
    Ok(RecipeFiles {
        files: reading.files,
        mistakes: reading.mistakes,
    })
}

struct Reading<'d> {
    root: &'d Directory,
    shown: &'d str,
    total: usize,
    files: BTreeMap<String, Vec<u8>>,
    mistakes: Vec<Mistake>,
}

impl Reading<'_> {
    fn list(&mut self, directory: &Directory, below: &Path, depth: usize) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !name.starts_with(b".") {
                names.push(name);
            }
        }
        names.sort();
        for name in names {
            let Ok(name) = String::from_utf8(name) else {
                self.refuse(below, "holds a file whose name is not UTF-8", "rename it");
                continue;
            };
            let path = below.join(&name);
            let status = rustix::fs::statat(directory, name.as_str(), AtFlags::SYMLINK_NOFOLLOW)?;
            match FileType::from_raw_mode(status.st_mode) {
                FileType::Directory if depth == DEEPEST_DIRECTORY => {
                    self.refuse(
                        &path,
                        "is nested deeper than 8 directories",
                        "make it flatter",
                    );
                }
                FileType::Directory => match self.root.directory(&path, Links::Refused) {
                    Ok(inner) => self.list(&inner, &path, depth + 1)?,
                    Err(error) => self.unreadable(&path, &error),
                },
                FileType::RegularFile | FileType::Symlink => self.read(path),
                _ => self.refuse(&path, "is not a regular file", "remove it"),
            }
        }
        Ok(())
    }

    fn read(&mut self, path: PathBuf) {
        if self.files.len() == MOST_FILES {
            self.refuse(
                &path,
                "is one file more than the 256 that a recipe may have",
                "remove some",
            );
            return;
        }
        match self.root.read(&path, LARGEST_FILE, Links::Inside) {
            Ok(bytes) if self.total + bytes.len() > LARGEST_RECIPE => {
                self.refuse(
                    &path,
                    "makes the recipe larger than 8 MiB",
                    "remove some files",
                );
            }
            Ok(bytes) => {
                self.total += bytes.len();
                if let Ok(path) = path.into_os_string().into_string() {
                    self.files.insert(path, bytes);
                }
            }
            Err(error) => self.unreadable(&path, &error),
        }
    }

    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        let problem = format!("cannot be used: {error}");
        self.refuse(
            path,
            &problem,
            "make it a readable file of at most 1 MiB inside the recipe",
        );
    }

    fn refuse(&mut self, path: &Path, problem: &str, remedy: &str) {
        let file = format!("{}/{}", self.shown, path.display());
        crate::yaml::push(
            &mut self.mistakes,
            Mistake::new(&file, 1, "", problem, remedy),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(path: &Path) -> (Vec<String>, String) {
        let directory = Directory::open(path).unwrap();
        let read = read(&directory, "R").unwrap();
        let mistakes: Vec<String> = read.mistakes.iter().map(ToString::to_string).collect();
        (read.files.into_keys().collect(), mistakes.join("\n"))
    }

    #[test]
    fn files_are_read_with_their_paths_and_hidden_ones_are_not() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        fs_err::create_dir_all(root.join("prompts/deep")).unwrap();
        fs_err::write(root.join("prompts/deep/a.md"), "a").unwrap();
        fs_err::write(root.join(".hidden"), "a").unwrap();
        fs_err::os::unix::fs::symlink("deep/a.md", root.join("prompts/b.md")).unwrap();
        let (files, mistakes) = read_all(root);
        assert_eq!(files, ["prompts/b.md", "prompts/deep/a.md"]);
        assert_eq!(mistakes, "");
    }

    #[test]
    fn what_leaves_the_directory_is_refused_and_never_read() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path().join("recipe");
        fs_err::create_dir(&root).unwrap();
        fs_err::write(temporary.path().join("secret"), "s").unwrap();
        fs_err::create_dir(temporary.path().join("outside")).unwrap();
        let link = |to: &str, name: &str| {
            fs_err::os::unix::fs::symlink(to, root.join(name)).unwrap();
        };
        link("../secret", "a");
        link("/etc/hostname", "b");
        link("../outside", "c");
        link("e", "d");
        link("d", "e");
        link(".", "f");
        link("nowhere", "g");
        link("/proc/self/environ", "h");
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("i"), rustix::fs::Mode::RUSR).unwrap();
        link("i", "j");
        fs_err::write(root.join("k"), vec![b'x'; 1024 * 1024 + 1]).unwrap();
        let (files, mistakes) = read_all(&root);
        assert_eq!(files, [""; 0]);
        let lines: Vec<&str> = mistakes.lines().collect();
        assert_eq!(lines.len(), 11, "{mistakes}");
        for (line, expected) in lines.iter().zip([
            "R/a:1  cannot be used: `",
            "R/b:1  ",
            "R/c:1  ",
            "R/d:1  ",
            "R/e:1  ",
            "R/f:1  ",
            "R/g:1  ",
            "R/h:1  ",
            "R/i:1  is not a regular file",
            "R/j:1  cannot be used",
            "R/k:1  cannot be used",
        ]) {
            assert!(line.starts_with(expected), "{line}");
        }
        assert!(
            lines[0].contains("leads out of its directory"),
            "{}",
            lines[0]
        );
        assert!(lines[10].contains("is larger than"), "{}", lines[10]);
    }

    #[test]
    fn numbers_and_depth_have_limits() {
        let temporary = tempfile::tempdir().unwrap();
        let root = temporary.path();
        for number in 0..300 {
            fs_err::write(root.join(format!("{number:03}")), "").unwrap();
        }
        fs_err::create_dir_all(root.join("a/b/c/d/e/f/g/h/i/j")).unwrap();
        let (files, mistakes) = read_all(root);
        assert_eq!(files.len(), 256);
        assert!(
            mistakes.contains("R/256:1  is one file more than the 256"),
            "{mistakes}"
        );
        let (_, mistakes) = {
            let deep = tempfile::tempdir().unwrap();
            fs_err::create_dir_all(deep.path().join("a/b/c/d/e/f/g/h/i/j")).unwrap();
            read_all(deep.path())
        };
        assert!(
            mistakes.contains("is nested deeper than 8 directories"),
            "{mistakes}"
        );
    }
}
