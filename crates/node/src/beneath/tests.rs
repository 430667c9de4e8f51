use std::cell::Cell;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fs_err::os::unix::fs::symlink;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, RenameFlags, mknodat, renameat_with};

use super::*;

thread_local! {
    /// Makes this thread go without `openat2`.
    pub(super) static STEPWISE: Cell<bool> = const { Cell::new(false) };
}

/// Does `test` in both ways of opening.
pub(crate) fn both_ways(test: impl Fn()) {
    for stepwise in [false, true] {
        STEPWISE.set(stepwise);
        test();
    }
    STEPWISE.set(false);
}

fn replace(root: &Path, relative: &str) -> io::Result<()> {
    Directory::open(root)?.replace(Path::new(relative), |file| file.write_all(b"new"))
}

#[test]
fn what_is_written_stays_below_and_takes_the_place_of_a_link() {
    both_ways(|| {
        let world = tempfile::tempdir().unwrap();
        let (root, outside) = (world.path().join("root"), world.path().join("outside"));
        fs_err::create_dir(&root).unwrap();
        fs_err::create_dir(&outside).unwrap();
        let precious = outside.join("precious");
        fs_err::write(&precious, "old").unwrap();

        replace(&root, "deep/down/file").unwrap();
        let made = root.join("deep/down/file");
        assert_eq!(fs_err::read(&made).unwrap(), b"new");
        let mode = fs_err::metadata(&made).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        symlink(&precious, root.join("link")).unwrap();
        fs_err::hard_link(&precious, root.join("twin")).unwrap();
        for name in ["link", "twin"] {
            replace(&root, name).unwrap();
            let found = fs_err::symlink_metadata(root.join(name)).unwrap();
            assert!(found.is_file());
        }
        symlink(&outside, root.join("way")).unwrap();
        for path in ["way/precious", "way/fresh", "../outside/precious", "deep"] {
            assert!(replace(&root, path).is_err(), "{path}");
        }
        assert_eq!(fs_err::read(&precious).unwrap(), b"old");
        let left = |directory: &Path| fs_err::read_dir(directory).unwrap().count();
        assert_eq!((left(&outside), left(&root)), (1, 4), "no draft is left");
    });
}

#[test]
fn a_straight_way_has_no_link() {
    both_ways(|| {
        let world = tempfile::tempdir().unwrap();
        let world = fs_err::canonicalize(world.path()).unwrap();
        fs_err::create_dir_all(world.join("a/b")).unwrap();
        symlink("a", world.join("link")).unwrap();
        for good in ["a/b", "a/b/", "a/../a/./b", "a//b"] {
            Directory::open_strictly(&world.join(good)).unwrap();
        }
        Directory::open_strictly(Path::new("/..")).unwrap();
        for bad in ["link", "link/", "link/b", "a/none", "link/../a"] {
            assert!(Directory::open_strictly(&world.join(bad)).is_err(), "{bad}");
        }
    });
}

/// The tree of a random test, made twice: opening may make files.
struct Twice {
    _place: tempfile::TempDir,
    roots: [PathBuf; 2],
}

#[derive(Debug, Clone)]
enum Entry {
    Directory,
    File,
    Fifo,
    Link(String),
}

impl Twice {
    fn new(entries: &[(String, Entry)]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let roots = ["one", "two"].map(|name| place.path().join(name).join("root"));
        for root in &roots {
            fs_err::create_dir_all(root).unwrap();
            fs_err::write(root.join("../a"), "outside").unwrap();
            let root = fs_err::canonicalize(root).unwrap();
            for (path, entry) in entries {
                let path = root.join(path);
                let parent = path
                    .parent()
                    .and_then(|parent| fs_err::canonicalize(parent).ok());
                let (Some(parent), Some(name)) = (parent, path.file_name()) else {
                    continue;
                };
                if !parent.starts_with(&root) {
                    continue;
                }
                let path = parent.join(name);
                // Some are there already.
                let _ = match entry {
                    Entry::Directory => fs_err::create_dir(path),
                    // One that is there may be a FIFO, which waits for a reader.
                    Entry::File => fs_err::File::create_new(path).map(drop),
                    Entry::Link(text) => symlink(text, path),
                    Entry::Fifo => {
                        let mode = Mode::from_raw_mode(0o600);
                        mknodat(CWD, &path, FileType::Fifo, mode, 0).map_err(Into::into)
                    }
                };
            }
        }
        Self {
            _place: place,
            roots,
        }
    }
}

/// Where `opened` leads, from `root`.
fn place_of(root: &Path, opened: Result<OwnedFd, Errno>) -> Result<PathBuf, Errno> {
    opened.map(|descriptor| {
        let link = format!("/proc/self/fd/{}", descriptor.as_raw_fd());
        let path = fs_err::read_link(link).unwrap();
        let root = fs_err::canonicalize(root).unwrap();
        path.strip_prefix(root).unwrap().to_owned()
    })
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just("a"), 4 => Just("b"), 1 => Just("c"), 2 => Just(".."), 1 => Just("."), 1 => Just("")]
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..6).prop_map(|names| names.join("/"))
}

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        3 => Just(Entry::Directory),
        2 => Just(Entry::File),
        1 => Just(Entry::Fifo),
        4 => path().prop_map(Entry::Link),
    ]
}

proptest! {
    #[test]
    fn both_ways_come_to_the_same_place(
        entries in prop::collection::vec((path(), entry()), 0..12),
        paths in prop::collection::vec(path(), 1..8),
        rule in prop::sample::select(vec![Rule::Below(Links::Inside), Rule::Below(Links::Refused)]),
        flags in prop::sample::select(vec![
            OFlags::RDONLY,
            OFlags::RDONLY | OFlags::DIRECTORY,
            OFlags::WRONLY | OFlags::TRUNC,
        ]),
        create in prop::sample::select(vec![OFlags::empty(), OFlags::CREATE, OFlags::CREATE | OFlags::EXCL]),
    ) {
        let twice = Twice::new(&entries);
        // Links are not followed where files are made, and no directory is made by opening it.
        let (rule, flags) = if create.is_empty() {
            (rule, flags)
        } else {
            (Rule::Below(Links::Refused), OFlags::WRONLY | create)
        };
        let flags = flags | OFlags::NONBLOCK;
        let [first, second] = &twice.roots;
        let open = |root: &Path, path: &str, way: Way| {
            let directory = Directory::open(root).unwrap();
            let mode = Mode::from_raw_mode(if create.is_empty() { 0 } else { 0o600 });
            place_of(root, way(directory.as_fd(), Path::new(path), flags, mode, rule))
        };
        for path in &paths {
            let (mut kernel, mut steps) = (open(first, path, by_kernel), open(second, path, stepwise::open));
            if !create.is_empty() {
                // The system has several words for a path at which no file can be.
                (kernel, steps) = (kernel.map_err(|_| Errno::INVAL), steps.map_err(|_| Errno::INVAL));
            }
            prop_assert_eq!(steps, kernel, "{}", path);
        }
        for root in &twice.roots {
            prop_assert_eq!(fs_err::read(root.join("../a")).unwrap(), b"outside");
        }
    }
}

type Way = fn(BorrowedFd<'_>, &Path, OFlags, Mode, Rule) -> Result<OwnedFd, Errno>;

#[test]
fn a_long_way_and_a_round_one_end() {
    let place = tempfile::tempdir().unwrap();
    let root = Directory::open(place.path()).unwrap();
    symlink("round", place.path().join("round")).unwrap();
    let open = |path: &str, way: Way| {
        let rule = Rule::Below(Links::Inside);
        way(
            root.as_fd(),
            Path::new(path),
            OFlags::RDONLY,
            Mode::empty(),
            rule,
        )
    };
    fs_err::create_dir_all(place.path().join("d/".repeat(500))).unwrap();
    let long = format!("{}{}d", "d/".repeat(500), "../".repeat(500));
    for way in [by_kernel as Way, stepwise::open] {
        assert_eq!(open("round", way).unwrap_err(), Errno::LOOP);
        open(&"d/".repeat(500), way).unwrap();
        open(&"d/../".repeat(500), way).unwrap();
    }
    open(&long, by_kernel).unwrap();
    // Each `..` goes from the start again, which must not take for ever.
    assert_eq!(open(&long, stepwise::open).unwrap_err(), Errno::LOOP);
}

/// While somebody swaps a directory and a file for links to the outside, all that is read is inside.
#[test]
fn what_is_swapped_meanwhile_leads_nowhere_else() {
    both_ways(|| {
        let place = tempfile::tempdir().unwrap();
        let (root, outside) = (place.path().join("root"), place.path().join("outside"));
        for directory in [&root.join("way"), &outside] {
            fs_err::create_dir_all(directory).unwrap();
        }
        fs_err::write(root.join("way/file"), "inside").unwrap();
        fs_err::write(outside.join("file"), "outside").unwrap();
        symlink(&outside, root.join("other")).unwrap();
        symlink("../../outside/file", root.join("way/link")).unwrap();
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let swap = |one: &str, two: &str| {
                        let (one, two) = (root.join(one), root.join(two));
                        // The directory is not always there.
                        let _ = renameat_with(CWD, one, CWD, two, RenameFlags::EXCHANGE);
                    };
                    swap("way", "other");
                    swap("way", "other");
                    swap("way/file", "way/link");
                }
            });
            let directory = Directory::open(&root).unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            for links in [Links::Inside, Links::Refused] {
                let (mut read, mut refused) = (0, 0);
                while read < 500 || refused < 500 {
                    assert!(Instant::now() < until, "{read} read, {refused} refused");
                    match directory.read(Path::new("way/file"), 100, links) {
                        Ok(bytes) => {
                            assert_eq!(bytes, b"inside");
                            read += 1;
                        }
                        Err(_) => refused += 1,
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    });
}
