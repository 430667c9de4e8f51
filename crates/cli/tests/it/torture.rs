//! What a tree of git cannot carry is told, and everything else is carried byte for byte.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use mini_ork_testkit::Lane;

use crate::support::{agent, fan_recipe, new_env, run_json, text};

/// File names that people and programs make.
fn odd_names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = [
        "line\nbreak",
        "tab\tand\rreturn",
        "back\\slash",
        "\"quoted\" 'names' `here` $HOME $(x)",
        "-rf",
        " space at both ends ",
        ":(glob)*",
        "*?[x]",
        "#comment",
        "!negated",
        "é composed",
        "e\u{301} decomposed",
        "\u{202e}reversed",
        "a -> b",
        "\u{7f}\u{1}\u{1b}[31mred",
        "CON",
        "trailing.",
    ]
    .iter()
    .map(|name| name.as_bytes().to_vec())
    .collect();
    names.push(b"not \xff\xfe text \x80".to_vec());
    names.push(vec![b'n'; 255]);
    names
}

fn write(directory: &Path, name: &[u8]) {
    let path = directory.join(std::ffi::OsStr::from_bytes(name));
    fs_err::write(path, content_of(name)).unwrap();
}

fn content_of(name: &[u8]) -> Vec<u8> {
    [b"in ", name, b"\0\r\n\xff"].concat()
}

#[test]
fn bc_57_odd_names_are_published_byte_for_byte() {
    let env = new_env();
    let repo = env.repo("repo", &[("a", "a\n")]);
    env.kickoff("Odd names", &[]);
    fan_recipe(&env, &["edit"], "");
    let gift = env.fresh("gift");
    let deep = gift.join("sub dir\n/deeper");
    fs_err::create_dir_all(&deep).unwrap();
    for name in odd_names() {
        write(&gift, &name);
        write(&deep, &name);
    }
    let work = format!(
        "cp -R '{}/.' . && chmod +x -- -rf && ln -s 'line\nbreak' 'li\nnk'",
        gift.display()
    );
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    let view = run_json(&env, &repo, "fan").expect(0).json();
    let branch = text(&view, "branch");
    let listing = repo.git_bytes(["ls-tree", "-r", "-z", "--full-tree", branch]);
    let entries: Vec<&[u8]> = listing.split(|byte| *byte == 0).collect();
    for name in odd_names() {
        for path in [
            name.clone(),
            [b"sub dir\n/deeper/".as_slice(), &name].concat(),
        ] {
            let entry = entries
                .iter()
                .find(|entry| {
                    entry
                        .split(|byte| *byte == b'\t')
                        .skip(1)
                        .collect::<Vec<_>>()
                        .join(&b'\t')
                        == path
                })
                .unwrap_or_else(|| panic!("`{}` is not there", path.escape_ascii()));
            let text = String::from_utf8_lossy(entry);
            let mode = if path == b"-rf" { "100755" } else { "100644" };
            assert!(text.starts_with(mode), "{text}");
            let id = text.split(['\t', ' ']).nth(2).unwrap();
            assert!(
                repo.git_bytes(["cat-file", "blob", id]) == content_of(&name),
                "`{}` differs",
                path.escape_ascii()
            );
        }
    }
    assert_eq!(
        repo.git_bytes(["cat-file", "blob", &format!("{branch}:li\nnk")]),
        b"line\nbreak"
    );
    // What is shown of them cannot steer a terminal.
    for command in ["status", "runs"] {
        let shown = env.mini_ork([command]).run().expect(0);
        assert!(!shown.stdout.contains(&0x1b), "{}", shown.transcript());
    }
}

const MAKE_WHAT_IS_NOT_CARRIED: &str = "set -e
mkdir -p nested/inside
(cd nested && git init --quiet . && echo x > inside/file && git add . && git -c user.name=n -c user.email=n commit --quiet -m n)
mkdir -p empty/directory
mkfifo pipe
mv \"$GIFT/socket\" socket
echo x > linked-1
ln linked-1 linked-2
echo x > private
chmod 600 private
echo x > special
chmod 4755 special
mkdir -p build/deep
echo x > build/deep/out
echo x > debug.log
printf 'one\\r\\ntwo\\n' > mixed.txt
printf '$Id: something$\\n' > ident.c
mkdir -p .GIT
echo x > .GIT/config
truncate -s 33554432 sparse
echo carried > carried";

#[test]
fn bc_57_what_is_not_carried_is_told() {
    let env = new_env();
    let repo = env.repo(
        "repo",
        &[
            (".gitignore", "/build/\n*.log\n"),
            (".gitattributes", "*.txt text\n*.c ident\n"),
        ],
    );
    env.kickoff("A torture tree", &[]);
    fan_recipe(&env, &["edit"], "");
    let gift = env.fresh("gift");
    fs_err::create_dir(&gift).unwrap();
    let _socket = UnixListener::bind(gift.join("socket")).unwrap();
    let work = format!("GIFT='{}'\n{MAKE_WHAT_IS_NOT_CARRIED}", gift.display());
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    let view = run_json(&env, &repo, "fan").expect(0).json();
    let not_carried: Vec<&str> = view["not_carried"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    let report = env.run_directory(text(&view, "run")).join("report.md");
    let report = fs_err::read_to_string(report).unwrap();
    for (path, what) in [
        ("nested", "nested repository"),
        ("empty/directory", "empty directory"),
        ("pipe", "named pipe"),
        ("socket", "socket"),
        ("linked-1", "hard link"),
        ("linked-2", "hard link"),
        ("private", "600"),
        ("special", "4755"),
        ("build", "ignored"),
        ("debug.log", "ignored"),
        ("mixed.txt", "attributes"),
        ("ident.c", "attributes"),
        (".GIT", "refuses"),
    ] {
        let told = |line: &str| line.contains(path) && line.contains(what);
        assert!(
            not_carried.iter().any(|line| told(line)),
            "{path}: {not_carried:#?}"
        );
        assert!(
            report.lines().any(told),
            "{path} is not in the report: {report}"
        );
    }
    let branch = text(&view, "branch");
    let files = repo.files(branch);
    for path in [
        "nested/inside/file",
        "linked-1",
        "linked-2",
        "private",
        "special",
        "mixed.txt",
        "ident.c",
        "sparse",
        "carried",
    ] {
        assert!(
            files.iter().any(|file| file == path),
            "{path} is not carried: {files:?}"
        );
    }
    for path in [
        "pipe",
        "socket",
        "build/deep/out",
        "debug.log",
        ".GIT/config",
    ] {
        assert!(!files.iter().any(|file| file == path), "{path}");
    }
    assert_eq!(
        repo.git(["cat-file", "-s", &format!("{branch}:sparse")]),
        "33554432"
    );
    repo.git(["fsck", "--strict", "--no-dangling"]);
    env.assert_no_process();
}

#[test]
fn bc_57_what_parallel_writers_leave_behind_is_told() {
    let env = new_env();
    let repo = env.repo("repo", &[(".gitignore", "*.log\n")]);
    env.kickoff("Two writers", &[]);
    fan_recipe(&env, &["one", "two"], "");
    let work = "echo $MO_NODE_ID > new-$MO_NODE_ID; mkfifo pipe-$MO_NODE_ID";
    env.lanes(&[("default", Lane::Shell(&agent(work)))]);
    let view = run_json(&env, &repo, "fan").expect(0).json();
    for node in ["one", "two"] {
        let wanted = format!("{node}: pipe-{node} (named pipe)");
        let told = view["not_carried"].as_array().unwrap();
        assert!(told.iter().any(|entry| *entry == *wanted), "{told:?}");
    }
}
