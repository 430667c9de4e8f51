use std::io;
use std::path::{Path, PathBuf};

use super::model::{Origin, Recipe};
use super::{bundled, files, load};
use crate::beneath::{Directory, Links};
use crate::yaml::{Mistake, Mistakes, suggest_or_list};

pub(super) const IN_REPOSITORY: &str = ".mini-ork/recipes";
const LONGEST_NAME: usize = 64;

/// Where recipes are looked for: the target repository first, then the home directory of mini-ork,
/// then the recipes that are part of the program. The first that has the name wins, also when it is
/// broken: running another recipe than the one that was edited would hide the mistake.
#[derive(Debug, Clone)]
pub struct Catalog {
    repository: Option<PathBuf>,
    home: PathBuf,
}

/// One recipe of a [`Catalog`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub origin: Origin,
    /// What it is for; empty when it could not be read.
    pub description: String,
    /// A recipe of the same name is found before it.
    pub shadowed: bool,
    /// What is wrong with it, if anything.
    pub mistakes: Option<Mistakes>,
}

/// Why a recipe could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Its directory could not be read.
    #[error("cannot read the recipe directory `{}`", path.display())]
    Read {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its files have mistakes.
    #[error(transparent)]
    Mistakes(#[from] Mistakes),
}

/// Why a recipe was not found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// The text cannot be the name of a recipe.
    #[error("`{0}` is not the name of a recipe: use letters, digits, `.`, `_` and `-`, at most 64")]
    NotAName(String),
    /// There is none of the name.
    #[error("there is no recipe `{name}` ({remedy})")]
    Unknown {
        /// The name that was asked for.
        name: String,
        /// A likely name, or all that there are.
        remedy: String,
    },
    /// It is there and cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
}

impl Catalog {
    /// `repository` is the top of the target repository's checkout, when there is one; `home` the
    /// home directory of mini-ork.
    pub fn new(repository: Option<&Path>, home: &Path) -> Self {
        Self {
            repository: repository.map(Path::to_owned),
            home: home.to_owned(),
        }
    }

    /// Loads the first recipe of this name.
    pub fn find(&self, name: &str) -> Result<Recipe, FindError> {
        if !is_name(name) {
            return Err(FindError::NotAName(name.escape_debug().to_string()));
        }
        for place in self.places() {
            if let Some(recipe) = place.load(name)? {
                return Ok(recipe);
            }
        }
        let mut names = Vec::new();
        for place in self.places() {
            names.extend(place.names()?);
        }
        names.sort();
        names.dedup();
        let remedy = suggest_or_list(name, names.iter().map(String::as_str));
        Err(FindError::Unknown {
            name: name.to_owned(),
            remedy,
        })
    }

    /// Every recipe, by name and in the order of search. One that is broken is listed with its
    /// mistakes and does not hide others. Fails only when a directory of recipes is there and
    /// cannot be listed.
    pub fn list(&self) -> Result<Vec<Summary>, LoadError> {
        let mut summaries: Vec<Summary> = Vec::new();
        for place in self.places() {
            for name in place.names()? {
                let origin = place.origin(&name);
                let shadowed = summaries.iter().any(|earlier| earlier.name == name);
                let (description, mistakes) = match place.load(&name) {
                    Ok(Some(recipe)) => (recipe.description, None),
                    Ok(None) => continue,
                    Err(LoadError::Mistakes(mistakes)) => (String::new(), Some(mistakes)),
                    Err(error @ LoadError::Read { .. }) => {
                        (String::new(), Some(unreadable(&place.shown(&name), &error)))
                    }
                };
                summaries.push(Summary {
                    name,
                    origin,
                    description,
                    shadowed,
                    mistakes,
                });
            }
        }
        summaries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(summaries)
    }

    /// Every recipe that [`Catalog::find`] would give, by name; broken ones are left out.
    pub fn load_all(&self) -> Result<Vec<Recipe>, LoadError> {
        let usable = self.list()?.into_iter().filter(|summary| !summary.shadowed);
        let usable = usable.filter(|summary| summary.mistakes.is_none());
        Ok(usable
            .filter_map(|summary| self.find(&summary.name).ok())
            .collect())
    }

    fn places(&self) -> Vec<Place<'_>> {
        let repository = self.repository.as_deref().map(Place::Repository);
        repository
            .into_iter()
            .chain([Place::Home(&self.home), Place::Bundled])
            .collect()
    }
}

/// Loads the recipe in `path`, wherever it lies; its name is that of the directory.
pub fn load_directory(path: &Path) -> Result<Recipe, LoadError> {
    let unreadable = |source| LoadError::Read {
        path: path.to_owned(),
        source,
    };
    let resolved = fs_err::canonicalize(path).map_err(unreadable)?;
    let name = resolved
        .file_name()
        .map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let shown = path.display().to_string();
    let shown = shown.trim_end_matches('/');
    if !is_name(&name) {
        return Err(bad_name(shown).into());
    }
    let directory = Directory::open(&resolved).map_err(unreadable)?;
    let read = files::read(&directory, shown).map_err(unreadable)?;
    let origin = Origin::Directory(path.to_owned());
    Ok(load::load(&name, origin, shown, read.files, read.mistakes)?)
}

/// One place of the search order.
enum Place<'c> {
    Repository(&'c Path),
    Home(&'c Path),
    Bundled,
}

impl Place<'_> {
    fn names(&self) -> Result<Vec<String>, LoadError> {
        let Some(directory) = self.directory(None)? else {
            return Ok(if matches!(self, Self::Bundled) {
                bundled::names().map(str::to_owned).collect()
            } else {
                Vec::new()
            });
        };
        let list = || -> io::Result<Vec<String>> {
            let mut names = Vec::new();
            for entry in rustix::fs::Dir::read_from(&directory)? {
                let name = entry?.file_name().to_string_lossy().into_owned();
                // Files beside the recipes, such as a README, are nobody's mistake.
                let is_file = self.path().is_some_and(|path| path.join(&name).is_file());
                if !name.starts_with('.') && !is_file {
                    names.push(name);
                }
            }
            names.sort();
            Ok(names)
        };
        list().map_err(|source| LoadError::Read {
            path: self.path().unwrap_or_default(),
            source,
        })
    }

    fn load(&self, name: &str) -> Result<Option<Recipe>, LoadError> {
        let shown = self.shown(name);
        if !is_name(name) {
            return Err(bad_name(&shown).into());
        }
        let origin = self.origin(name);
        if let Self::Bundled = self {
            let Some(files) = bundled::files(name) else {
                return Ok(None);
            };
            return Ok(Some(load::load(name, origin, &shown, files, Vec::new())?));
        }
        let Some(directory) = self.directory(Some(name))? else {
            return Ok(None);
        };
        let read = files::read(&directory, &shown).map_err(|source| LoadError::Read {
            path: PathBuf::from(&shown),
            source,
        })?;
        Ok(Some(load::load(
            name,
            origin,
            &shown,
            read.files,
            read.mistakes,
        )?))
    }

    /// The directory of one recipe or of all; none when it is not there.
    fn directory(&self, name: Option<&str>) -> Result<Option<Directory>, LoadError> {
        let opened = match self {
            Self::Bundled => return Ok(None),
            // A repository is not trusted: a link in it must not make a recipe of files elsewhere.
            Self::Repository(repository) => Directory::open(repository).and_then(|repository| {
                let path = Path::new(IN_REPOSITORY).join(name.unwrap_or_default());
                repository.directory(&path, Links::Inside)
            }),
            Self::Home(_) => {
                let path = self.path().unwrap_or_default();
                Directory::open(&path.join(name.unwrap_or_default()))
            }
        };
        match opened {
            Ok(directory) => Ok(Some(directory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => {
                let path = self
                    .path()
                    .unwrap_or_default()
                    .join(name.unwrap_or_default());
                Err(LoadError::Read { path, source })
            }
        }
    }

    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Repository(repository) => Some(repository.join(IN_REPOSITORY)),
            Self::Home(home) => Some(home.join("recipes")),
            Self::Bundled => None,
        }
    }

    fn origin(&self, name: &str) -> Origin {
        let path = self.path().unwrap_or_default().join(name);
        match self {
            Self::Repository(_) => Origin::Repository(path),
            Self::Home(_) => Origin::Home(path),
            Self::Bundled => Origin::Bundled,
        }
    }

    fn shown(&self, name: &str) -> String {
        match self.path() {
            Some(path) => path.join(name).display().to_string(),
            None => format!("bundled/{name}"),
        }
    }
}

/// One path segment that needs no escaping anywhere.
fn is_name(name: &str) -> bool {
    name.len() <= LONGEST_NAME
        && name.starts_with(|first: char| first.is_ascii_alphanumeric())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

fn bad_name(shown: &str) -> Mistakes {
    let problem = "the name of the directory is not the name of a recipe";
    let remedy = "use letters, digits, `.`, `_` and `-`, at most 64";
    Mistakes(vec![Mistake::new(shown, 1, "", problem, remedy)])
}

fn unreadable(shown: &str, error: &LoadError) -> Mistakes {
    let source = std::error::Error::source(error)
        .map(ToString::to_string)
        .unwrap_or_default();
    let problem = format!("cannot be read: {source}");
    Mistakes(vec![Mistake::new(
        shown,
        1,
        "",
        &problem,
        "make it readable, or remove it",
    )])
}
