//! However the output of an agent is cut, what is read from it is the same, and bounded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_ork_control::lanes::{Conclusion, Driver, Entry, TranscriptParser};

fuzz_target!(|bytes: &[u8]| {
    for driver in [
        Driver::ClaudeCode,
        Driver::Codex,
        Driver::Opencode,
        Driver::BuiltIn,
    ] {
        let whole = read(driver, bytes, bytes.len().max(1));
        for length in [1, 1 + bytes.len() % 13] {
            assert_eq!(
                read(driver, bytes, length),
                whole,
                "{driver:?} in pieces of {length} bytes"
            );
        }
        let conclusion = whole.1;
        assert!(conclusion.answer.len() <= 256 << 10);
        assert!(
            conclusion
                .cost_usd
                .is_none_or(|cost| cost.is_finite() && cost >= 0.0)
        );
        if let Some(session) = conclusion.session {
            assert!(!session.is_empty() && !session.starts_with('-'));
        }
    }
});

fn read(driver: Driver, bytes: &[u8], length: usize) -> (Vec<Entry>, Conclusion) {
    let mut parser = TranscriptParser::new(driver);
    let mut entries = Vec::new();
    for piece in bytes.chunks(length) {
        entries.extend(parser.push(piece));
    }
    let (last, conclusion) = parser.finish();
    entries.extend(last);
    (entries, conclusion)
}
