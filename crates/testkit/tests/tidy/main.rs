//! What holds for the repository as a whole and no compiler checks.
//!
//! Each test collects everything that is wrong before it fails, with file and line.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail tests")]

mod environment;
mod files;
mod markdown;

use std::path::Path;

use files::{
    all_files, crate_directories, files_in, library_files, numbered, read, report, root,
    rust_files, shown,
};

const LONGEST_FILE: usize = 500;
#[test]
fn no_test_file_is_forgotten() {
    let mut forgotten = Vec::new();
    for file in rust_files() {
        let relative = file.strip_prefix(root().join("crates")).unwrap();
        let parts: Vec<&str> = relative.iter().map(|part| part.to_str().unwrap()).collect();
        let is_root = match parts.as_slice() {
            // Each of these is a program of its own, which cargo finds.
            [_, "src", "lib.rs" | "main.rs"] | [_, "src", "bin", _] => true,
            [_, "build.rs"] | [_, "tests" | "benches" | "examples", _] => true,
            [_, "tests" | "benches" | "examples", _, "main.rs"] => true,
            _ => false,
        };
        if !is_root && !declares(&file) {
            forgotten.push(shown(&file));
        }
    }
    report(
        &forgotten,
        "files that no `mod` declares, so nothing compiles them",
    );
}

#[test]
fn libraries_are_silent_and_finished() {
    const BANNED: [&str; 10] = [
        "print!",
        "println!",
        "eprint!",
        "eprintln!",
        "dbg!",
        "todo!",
        "unimplemented!",
        "env::var",
        "env::home_dir",
        "process::exit",
    ];
    let mut wrong = Vec::new();
    for file in library_files() {
        for (line, text) in numbered(&file) {
            let place = format!("{}:{line}", shown(&file));
            if let Some((_, comment)) = text.split_once("//") {
                for word in ["TODO", "FIXME"] {
                    if comment.contains(word) {
                        wrong.push(format!("{place}: {word}"));
                    }
                }
            }
            if text.trim_start().starts_with("#[ignore") {
                wrong.push(format!("{place}: #[ignore]"));
            }
        }
        for (line, text) in numbered_code(&file) {
            for banned in BANNED {
                if contains_word(&text, banned) {
                    wrong.push(format!("{}:{line}: {banned}", shown(&file)));
                }
            }
        }
    }
    report(&wrong, "things that have no place in a library");
}

#[test]
fn files_are_short() {
    let long: Vec<String> = rust_files()
        .iter()
        .map(|file| (file, read(file).lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(file, lines)| format!("{}: {lines} lines", shown(file)))
        .collect();
    report(&long, "files of more than 500 lines: split them by idea");
}

#[test]
fn migrations_are_dated_and_in_order() {
    let store = root().join("crates/control/src/store");
    let names: Vec<String> = files_in(&store.join("migrations"))
        .iter()
        .map(|file| file.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    assert!(!names.is_empty());
    for name in &names {
        let (date, rest) = name.split_once('_').unwrap_or((name, ""));
        let dated = date.len() == 8 && date.bytes().all(|byte| byte.is_ascii_digit());
        let named = rest
            .strip_suffix(".sql")
            .is_some_and(|rest| !rest.is_empty());
        assert!(dated && named, "{name} is not YYYYMMDD_name.sql");
    }
    let code = read(&store.join("migrations.rs"));
    let used: Vec<String> = code
        .match_indices("migrations/")
        .map(|(at, prefix)| &code[at + prefix.len()..])
        .filter_map(|rest| Some(format!("{}.sql", rest.split_once(".sql")?.0)))
        .collect();
    assert_eq!(used, names, "store/migrations.rs applies all, by date");
}

#[test]
fn bundled_recipes_are_documented() {
    let page = read(&root().join("docs/recipes.md"));
    let directory = root().join("crates/control/recipes");
    let mut wrong = Vec::new();
    for entry in fs_err::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if !page.contains(&format!("`{name}`")) {
            wrong.push(format!("{name}: not in docs/recipes.md"));
        }
        for file in ["README.md", "example-kickoff.md"] {
            if !path.join(file).is_file() {
                wrong.push(format!("{name}: no {file}"));
            }
        }
    }
    report(&wrong, "recipes that users cannot learn about");
}

#[test]
fn commands_are_in_the_readme() {
    let readme = read(&root().join("README.md"));
    let code = read(&root().join("crates/cli/src/cli.rs"));
    let (_, commands) = code.split_once("pub(crate) enum Command {").unwrap();
    let (commands, _) = commands.split_once("\n}\n").unwrap();
    let missing: Vec<String> = commands
        .lines()
        .filter_map(|line| line.trim().split_once('('))
        .map(|(variant, _)| command_name(variant))
        .filter(|name| !readme.contains(&format!("`mini-ork {name}")))
        .collect();
    report(&missing, "commands that README.md does not name");
}

/// `SandboxGc` is typed `sandbox-gc`.
fn command_name(variant: &str) -> String {
    let mut name = String::new();
    for character in variant.chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(character.to_lowercase());
    }
    name
}

#[test]
fn no_path_of_somebodys_machine() {
    let mut wrong = Vec::new();
    for file in all_files() {
        // A binary file names no path that somebody typed.
        let Ok(text) = String::from_utf8(fs_err::read(&file).unwrap()) else {
            continue;
        };
        for (line, text) in text.lines().zip(1..).map(|(text, line)| (line, text)) {
            if let Some(path) = private_path(text) {
                wrong.push(format!("{}:{line}: {path}", shown(&file)));
            }
        }
    }
    report(&wrong, "paths that exist on one machine only");
}

#[test]
fn every_crate_keeps_the_rules() {
    let mut wrong = Vec::new();
    for directory in crate_directories() {
        let manifest = directory.join("Cargo.toml");
        let text = read(&manifest);
        for rule in [
            "[lints]\nworkspace = true\n",
            "version.workspace = true\n",
            "edition.workspace = true\n",
            "rust-version.workspace = true\n",
            "license.workspace = true\n",
            "publish.workspace = true\n",
        ] {
            if !text.contains(rule) {
                wrong.push(format!("{}: lacks `{}`", shown(&manifest), rule.trim_end()));
            }
        }
    }
    report(&wrong, "manifests");
}

#[test]
fn the_licence_is_here() {
    let text = read(&root().join("LICENSE"));
    assert!(text.contains("Apache License") && text.contains("Version 2.0, January 2004"));
    assert!(text.contains("END OF TERMS AND CONDITIONS"));
    assert!(read(&root().join("Cargo.toml")).contains("license = \"Apache-2.0\""));
}

/// Whether the module that `file` holds is declared where it has to be, or by its path in a file
/// beside it.
fn declares(file: &Path) -> bool {
    let (directory, name) = (file.parent().unwrap(), file.file_stem().unwrap());
    let (home, name) = if name == "mod" {
        (directory.parent().unwrap(), directory.file_name().unwrap())
    } else {
        (directory, name)
    };
    let declaration = format!("mod {};", name.to_str().unwrap());
    let beside = home.with_extension("rs");
    let in_its_place = ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .map(|parent| home.join(parent))
        .chain([beside])
        .filter(|parent| parent.is_file())
        .any(|parent| has_line(&parent, |line| line.ends_with(&declaration)));
    let file_name = file.file_name().unwrap().to_str().unwrap();
    let path = format!("#[path = \"{file_name}\"]");
    in_its_place
        || files_in(directory)
            .iter()
            .filter(|other| other.parent() == file.parent())
            .any(|other| has_line(other, |line| line == path))
}

fn has_line(file: &Path, wanted: impl Fn(&str) -> bool) -> bool {
    read(file)
        .lines()
        .map(str::trim)
        .any(|line| !line.starts_with("//") && wanted(line))
}

/// A path below somebody's home directory.
fn private_path(line: &str) -> Option<&str> {
    // How many components below make it a place that only one machine has.
    for (root, depth) in [("/home/", 2), ("/Users/", 2), ("/root/", 1)] {
        for (start, _) in line.match_indices(root) {
            let within = line[..start]
                .chars()
                .next_back()
                .is_some_and(|before| before.is_alphanumeric() || "._-~}/*)".contains(before));
            let below = &line[start + root.len()..];
            let path = below
                .split(|part: char| !part.is_alphanumeric() && !"/._-".contains(part))
                .next()
                .unwrap_or_default();
            let components = path.split('/').filter(|part| !part.is_empty()).count();
            if !within && components >= depth {
                return Some(&line[start..start + root.len() + path.len()]);
            }
        }
    }
    None
}

/// Lines of a source file without its tests and comments.
fn numbered_code(file: &Path) -> Vec<(usize, String)> {
    let name = file.file_stem().unwrap().to_str().unwrap();
    if name == "tests" || name.ends_with("_tests") {
        return Vec::new();
    }
    let text = read(file);
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    (1..)
        .zip(code.lines())
        .map(|(line, text)| (line, text.split("//").next().unwrap().to_owned()))
        .collect()
}

/// Whether `word` occurs and is not the end of a longer one.
fn contains_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(at, _)| {
        text[..at]
            .chars()
            .next_back()
            .is_none_or(|before| !before.is_alphanumeric() && before != '_')
    })
}

#[test]
fn private_paths_are_found() {
    // In two parts, so that they are no paths here.
    for (first, second, private) in [
        ("see /ho", "me/ann/x", true),
        ("\"/ro", "ot/x\"", true),
        ("cd /Us", "ers/ann/x", true),
        ("/ho", "me/runs", false),
        ("a/ho", "me/b/c", false),
        ("$HOME/ho", "me/b/c", false),
    ] {
        let line = [first, second].concat();
        assert_eq!(private_path(&line).is_some(), private, "{line}");
    }
    assert!(contains_word("a print!(b)", "print!") && !contains_word("eprint!(b)", "print!"));
}
