//! The files of the repository.

use std::path::{Path, PathBuf};

/// The crates that neither print nor read the environment.
pub(crate) const LIBRARIES: [&str; 3] = ["protocol", "node", "control"];

pub(crate) fn library_files() -> Vec<PathBuf> {
    let sources: Vec<String> = LIBRARIES
        .iter()
        .map(|library| format!("crates/{library}/src"))
        .collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    let binaries = Path::new("src/bin");
    files_below(&sources)
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .filter(|file| !file.parent().unwrap().ends_with(binaries))
        .collect()
}

pub(crate) fn rust_files() -> Vec<PathBuf> {
    files_below(&["crates"])
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

pub(crate) fn crate_directories() -> Vec<PathBuf> {
    let mut directories: Vec<PathBuf> = fs_err::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    directories.sort();
    assert!(directories.len() >= LIBRARIES.len());
    directories
}

/// Every file of the repository but what is built.
pub(crate) fn all_files() -> Vec<PathBuf> {
    files_below(&["."])
}

pub(crate) fn files_below(directories: &[&str]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for directory in directories {
        collect(
            &root().join(directory).components().collect::<PathBuf>(),
            &mut files,
        );
    }
    files.sort();
    assert!(!files.is_empty(), "nothing in {directories:?}");
    files
}

pub(crate) fn files_in(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    collect(directory, &mut files);
    files.sort();
    files
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        let name = entry.file_name();
        if kind.is_dir() && name != "target" && name != ".git" {
            collect(&entry.path(), files);
        } else if kind.is_file() && name != ".git" {
            files.push(entry.path());
        }
    }
}

pub(crate) fn numbered(file: &Path) -> Vec<(usize, String)> {
    let text = String::from_utf8_lossy(&fs_err::read(file).unwrap()).into_owned();
    (1..).zip(text.lines().map(str::to_owned)).collect()
}

pub(crate) fn read(file: &Path) -> String {
    fs_err::read_to_string(file).unwrap()
}

pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
}

pub(crate) fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap().display().to_string()
}

pub(crate) fn report(wrong: &[String], what: &str) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}
