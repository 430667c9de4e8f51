//! The two files of lanes are refused, or each role has lanes that there are, and none twice.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use mini_ork_control::lanes::{LaneConfig, LaneError};

/// Between the two files of an input; a line of its own.
const BORDER: &str = "\n===\n";

/// The home of this process, with the directory that holds the files.
static HOME: LazyLock<PathBuf> = LazyLock::new(|| {
    let home = std::env::temp_dir().join(format!("mini-ork-fuzz-{}", std::process::id()));
    std::fs::create_dir_all(home.join("config")).expect("a directory for the files");
    home
});

fuzz_target!(|input: &[u8]| {
    let border = input
        .windows(BORDER.len())
        .position(|part| part == BORDER.as_bytes());
    let (providers, agents) = match border {
        Some(at) => (&input[..at], &input[at + BORDER.len()..]),
        None => (input, b"lanes: {}".as_slice()),
    };
    let config = HOME.join("config");
    std::fs::write(config.join("providers.yaml"), providers).expect("a file can be written");
    std::fs::write(config.join("agents.yaml"), agents).expect("a file can be written");
    let config = match LaneConfig::load(&HOME, None) {
        Ok(config) => config,
        Err(LaneError::Mistakes(mistakes)) => {
            assert!(!mistakes.0.is_empty());
            return;
        }
        Err(LaneError::Read(error)) => panic!("{error}"),
    };
    for role in ["default", "worker", "a", ""] {
        if let Ok(chain) = config.resolve("node", role, &BTreeMap::new()) {
            let names: BTreeSet<&str> = chain.iter().map(|lane| lane.name.as_str()).collect();
            assert!(!names.is_empty());
            assert_eq!(names.len(), chain.len());
        }
    }
});
