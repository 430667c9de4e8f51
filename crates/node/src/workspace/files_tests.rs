use std::os::unix::fs::PermissionsExt as _;

use fs_err::os::unix::fs::symlink;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;
use crate::beneath::tests::both_ways;

const ALL: ListRequest = ListRequest {
    levels: usize::MAX,
    most: usize::MAX,
    not_entered: &[],
};

fn listed(place: &Place, path: &str, request: ListRequest) -> Result<Listing, FileError> {
    let bounds = (request.levels, request.most);
    list(&place.root, &place.path(path), bounds, request.not_entered)
}

struct Place {
    outer: tempfile::TempDir,
    root: PathBuf,
}

impl Place {
    /// `root` with a file, and beside it a secret that nothing in here may reach or change.
    fn new() -> Self {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs_err::create_dir_all(root.join("src")).unwrap();
        fs_err::write(root.join("src/a.txt"), "inside").unwrap();
        fs_err::write(outer.path().join("secret"), "outside").unwrap();
        Self { outer, root }
    }

    fn path(&self, text: &str) -> InnerPath {
        InnerPath::parse(&self.root, text).unwrap()
    }

    fn get(&self, text: &str) -> Result<Vec<u8>, FileError> {
        get(&self.root, &self.path(text), 1000)
    }

    fn put(&self, text: &str) -> Result<(), FileError> {
        put(&self.root, &self.path(text), b"new")
    }

    fn fifo(&self, name: &str) {
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, self.root.join(name), FileType::Fifo, mode, 0).unwrap();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let secret = fs_err::read(self.outer.path().join("secret")).unwrap();
        assert_eq!(secret, b"outside");
        let beside: Vec<_> = fs_err::read_dir(self.outer.path()).unwrap().collect();
        assert_eq!(beside.len(), 2);
    }
}

#[test]
fn paths_begin_at_the_root() {
    let root = Path::new("/place/tree");
    let parse = |text| InnerPath::parse(root, text).map(|path| path.as_path().to_owned());
    for (text, path) in [
        ("src/a", "src/a"),
        ("./src//a/", "src/a"),
        ("/place/tree/src/a", "src/a"),
        ("", "."),
        (".", "."),
        ("/place/tree", "."),
        ("a..b/...", "a..b/..."),
    ] {
        assert_eq!(parse(text).unwrap(), Path::new(path), "{text:?}");
    }
    for text in [
        "..",
        "../x",
        "src/../x",
        "/",
        "/etc/passwd",
        "/place/tree2/a",
        "/place/tree/../x",
        "/place/../place/tree/x",
        "/proc/self/root",
    ] {
        let error = parse(text).unwrap_err();
        assert!(
            matches!(error, InnerPathError::Outside { .. }),
            "{text:?}: {error}"
        );
    }
    for text in ["a\0b", "x".repeat(LONGEST_PATH + 1).as_str()] {
        assert_eq!(parse(text).unwrap_err(), InnerPathError::Malformed);
    }
}

#[test]
fn files_are_read_and_replaced() {
    both_ways(|| {
        let place = Place::new();
        assert_eq!(place.get("src/a.txt").unwrap(), b"inside");
        assert!(get(&place.root, &place.path("src/a.txt"), 5).is_err());
        let mode = std::fs::Permissions::from_mode(0o751);
        fs_err::set_permissions(place.root.join("src/a.txt"), mode).unwrap();
        fs_err::hard_link(place.outer.path().join("secret"), place.root.join("hard")).unwrap();
        for path in ["src/a.txt", "new", "x/y/z/new", "hard"] {
            place.put(path).unwrap();
            assert_eq!(place.get(path).unwrap(), b"new", "{path}");
        }
        let metadata = fs_err::metadata(place.root.join("src/a.txt")).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o751);
        let names = names_in(&Directory::open(&place.root.join("src")).unwrap(), 9).unwrap();
        assert_eq!(names, (vec!["a.txt".into()], true));
    });
}

#[test]
fn links_lead_nowhere_outside() {
    both_ways(|| {
        let place = Place::new();
        let outer = place.outer.path();
        symlink("/etc", place.root.join("etc")).unwrap();
        symlink("/proc/self/root", place.root.join("magic")).unwrap();
        symlink("..", place.root.join("up")).unwrap();
        symlink("../../secret", place.root.join("src/secret")).unwrap();
        symlink(outer.join("secret"), place.root.join("absolute")).unwrap();
        symlink("../made", place.root.join("dangling")).unwrap();
        let secret = format!("magic{}", outer.join("secret").display());
        for path in [
            "etc/passwd",
            "up/secret",
            "src/secret",
            "absolute",
            "dangling",
            secret.as_str(),
            "up/new/file",
            "etc",
        ] {
            place.get(path).unwrap_err();
            place.put(path).unwrap_err();
            listed(&place, path, ALL).unwrap_err();
        }
        // A listing shows links and does not enter them.
        let listing = listed(&place, "", ALL).unwrap();
        assert!(listing.complete);
        assert_eq!(listing.entries.len(), 8);
        let links = listing
            .entries
            .iter()
            .filter(|entry| entry.kind == EntryKind::Link);
        assert_eq!(links.count(), 6);
    });
}

#[test]
fn links_inside_are_followed_and_not_replaced() {
    both_ways(|| {
        let place = Place::new();
        symlink("src", place.root.join("link")).unwrap();
        symlink("a.txt", place.root.join("src/b.txt")).unwrap();
        assert_eq!(place.get("link/b.txt").unwrap(), b"inside");
        place.put("link/a.txt").unwrap();
        assert_eq!(place.get("src/a.txt").unwrap(), b"new");
        let error = place.put("src/b.txt").unwrap_err();
        assert!(error.source.to_string().contains("symbolic link"));
    });
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    both_ways(|| {
        let place = Place::new();
        place.fifo("fifo");
        let _socket = std::os::unix::net::UnixListener::bind(place.root.join("socket")).unwrap();
        for path in ["fifo", "socket", "src", "", "src/a.txt/b"] {
            place.get(path).unwrap_err();
            place.put(path).unwrap_err();
        }
        place.get("none").unwrap_err();
    });
}

#[test]
fn listings_are_bounded_and_begin_at_the_top() {
    let place = Place::new();
    for name in ["b/c/d", "b/deep", "skipped/x", "top"] {
        place.put(name).unwrap();
    }
    let names = |request: ListRequest| {
        let listing = listed(&place, ".", request).unwrap();
        let paths = listing.entries.iter();
        let paths = paths.map(|entry| entry.path.display().to_string());
        (paths.collect::<Vec<_>>().join(" "), listing.complete)
    };
    let request = ListRequest {
        not_entered: &["skipped"],
        ..ALL
    };
    let all = "b skipped src top b/c b/deep src/a.txt b/c/d";
    assert_eq!(names(request), (all.to_owned(), true));
    let one = ListRequest { levels: 1, ..ALL };
    assert_eq!(names(one), ("b skipped src top".to_owned(), true));
    let few = ListRequest { most: 5, ..request };
    let (paths, complete) = names(few);
    assert_eq!((paths.split(' ').count(), complete), (5, false));
    assert!(paths.starts_with("b skipped src top b/"), "{paths}");
}

#[test]
fn a_directory_that_becomes_a_link_leads_nowhere() {
    both_ways(|| {
        let place = Place::new();
        let (plain, link) = (place.root.join("plain"), place.root.join("link"));
        fs_err::create_dir(&plain).unwrap();
        symlink(place.outer.path(), &link).unwrap();
        let root = Directory::open(&place.root).unwrap();
        let swapping = std::sync::atomic::AtomicBool::new(true);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use std::sync::atomic::Ordering;
                while swapping.load(Ordering::Relaxed) {
                    let flags = rustix::fs::RenameFlags::EXCHANGE;
                    rustix::fs::renameat_with(&root, "plain", &root, "link", flags).unwrap();
                }
            });
            let mut outcomes = [0, 0];
            for _ in 0..2000 {
                let written = place.put("plain/secret").is_ok();
                let _ = place.put("link/secret");
                if let Ok(content) = place.get("plain/secret") {
                    assert_eq!(content, b"new");
                }
                outcomes[usize::from(written)] += 1;
            }
            swapping.store(false, std::sync::atomic::Ordering::Relaxed);
            assert!(outcomes.iter().all(|count| *count > 0), "{outcomes:?}");
        });
    });
}

proptest! {
    #[test]
    fn no_text_leads_outside(
        parts in proptest::collection::vec(
            prop_oneof![
                Just("..".to_owned()), Just("/".to_owned()), Just("up".to_owned()),
                Just("secret".to_owned()), Just(".".to_owned()), Just("src".to_owned()),
                "[a-z.]{1,3}",
            ],
            0..7,
        ),
    ) {
        both_ways(|| {
        let place = Place::new();
        symlink("..", place.root.join("up")).unwrap();
        let text = parts.join("/");
        if let Ok(path) = InnerPath::parse(&place.root, &text) {
            if let Ok(content) = get(&place.root, &path, 1000) {
                assert_eq!(content, b"inside");
            }
            let _ = put(&place.root, &path, b"new");
        }
        });
    }
}
