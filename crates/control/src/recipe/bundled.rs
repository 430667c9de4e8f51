use std::collections::BTreeMap;

use include_dir::{Dir, include_dir};

static RECIPES: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/recipes");

/// The names of the recipes that are part of the program.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    RECIPES
        .dirs()
        .filter_map(|directory| directory.path().to_str())
}

/// The files of one of them by their path in it.
pub(super) fn files(name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let directory = RECIPES
        .dirs()
        .find(|directory| directory.path().to_str() == Some(name))?;
    let mut files = BTreeMap::new();
    collect(directory, name, &mut files);
    Some(files)
}

fn collect(directory: &Dir<'_>, recipe: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for file in directory.files() {
        let path = file
            .path()
            .strip_prefix(recipe)
            .ok()
            .and_then(|path| path.to_str());
        if let Some(path) = path {
            files.insert(path.to_owned(), file.contents().to_vec());
        }
    }
    for inner in directory.dirs() {
        collect(inner, recipe, files);
    }
}
