//! Configuration of the home directory and of the repository.

use std::io;
use std::path::{Path, PathBuf};

use crate::beneath::{Directory, Links};

const LARGEST_FILE: u64 = 1024 * 1024;

/// A file of configuration that is there.
pub(crate) struct ConfigFile {
    /// What paths in it are relative to: the directory that holds its `config` directory.
    pub(crate) base: PathBuf,
    /// The file as a person would name it.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// A file that is there and cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read `{}`", path.display())]
pub struct ConfigFileError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub source: io::Error,
}

/// The file `name`, such as `config/pricing.yaml`, below `home` and below `.mini-ork` of
/// `repository`, in this order: what stands in the later one wins. Links out of either are refused.
pub(crate) fn find(
    home: &Path,
    repository: Option<&Path>,
    name: &str,
) -> Result<Vec<ConfigFile>, ConfigFileError> {
    let in_repository = repository.map(|path| (path, Path::new(".mini-ork")));
    let mut found = Vec::new();
    for (root, below) in [(home, Path::new(""))].into_iter().chain(in_repository) {
        let bytes = Directory::open(root)
            .and_then(|directory| directory.read(&below.join(name), LARGEST_FILE, Links::Inside));
        let base = root.join(below);
        let path = base.join(name);
        match bytes {
            Ok(bytes) => found.push(ConfigFile {
                base,
                name: path.display().to_string(),
                bytes,
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(ConfigFileError { path, source }),
        }
    }
    Ok(found)
}
