//! A file of keys is read or refused, and read again it gives the same.
#![no_main]

use std::fmt::Write as _;

use libfuzzer_sys::fuzz_target;
use mini_ork_control::vault::parse_import;

fuzz_target!(|bytes: &[u8]| {
    let lines = bytes.split(|byte| *byte == b'\n').count();
    let found = match parse_import(bytes) {
        Ok(found) => found,
        Err(mistakes) => {
            assert!(!mistakes.is_empty());
            assert!(
                mistakes
                    .iter()
                    .all(|mistake| (1..=lines).contains(&mistake.line))
            );
            return;
        }
    };
    let mut rendered = String::new();
    for (name, secret) in &found {
        let value = secret.expose();
        assert!(!value.trim().is_empty());
        // The one way to write any value of one line for a shell.
        let _ = writeln!(
            rendered,
            "export {name}='{}'",
            value.replace('\'', "'\"'\"'")
        );
    }
    let again = parse_import(rendered.as_bytes()).expect("what was rendered is well-formed");
    assert_eq!(found.len(), again.len());
    for ((name, secret), (again_name, again_secret)) in found.iter().zip(&again) {
        assert_eq!(name, again_name);
        assert_eq!(secret.expose(), again_secret.expose());
    }
});
