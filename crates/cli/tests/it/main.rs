//! Tests of the real `mini-ork` program, from outside: one module for each subject.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail tests")]

mod agents;
mod attachment;
mod bad_input;
mod bench;
mod built_in_agent;
mod changes;
mod clean;
mod containment;
mod costs;
mod disk_full;
mod ending;
mod engines;
mod escape;
mod hostile_git;
mod images;
mod keyring;
mod kill_points;
mod lanes;
mod large;
mod layouts;
mod limits;
mod looking;
mod metering;
mod names;
mod network;
mod outcome;
mod parallel;
mod profiles;
mod readers;
mod real_crate;
mod rounds;
mod sandbox;
mod sandbox_ends;
mod sandbox_refused;
mod secrets;
mod setup;
mod submodules;
mod support;
mod torture;
mod vault;

/// A file that nobody lists would be compiled by nobody.
#[test]
fn no_module_is_forgotten() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
    let main = fs_err::read_to_string(directory.join("main.rs")).unwrap();
    let mut found = 0;
    for entry in fs_err::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = name.strip_suffix(".rs").unwrap_or(&name);
        if module == "main" {
            continue;
        }
        assert!(
            main.contains(&format!("\nmod {module};\n")),
            "{name} is not listed in main.rs"
        );
        found += 1;
    }
    assert!(found >= 2);
}
