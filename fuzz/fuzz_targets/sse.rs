//! However a stream of events is cut, the events are the same, and none is longer than it may be.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_ork_node::model::SseParser;

/// Small, so that inputs of the fuzzer get over it.
const LIMIT: usize = 100;

fuzz_target!(|bytes: &[u8]| {
    let whole = read(bytes, bytes.len().max(1));
    for (_, data) in &whole.0 {
        assert!(data.len() <= LIMIT);
    }
    for length in [1, 2, 1 + bytes.len() % 13] {
        assert_eq!(read(bytes, length), whole, "in pieces of {length} bytes");
    }
});

type Events = Vec<(Vec<u8>, Vec<u8>)>;

/// The events before an error, and whether there was none and the end is one of an event.
fn read(bytes: &[u8], length: usize) -> (Events, Option<bool>) {
    let mut parser = SseParser::new(LIMIT);
    let mut events = Vec::new();
    for piece in bytes.chunks(length) {
        let pushed = parser.push(piece, |event| {
            events.push((event.name.to_vec(), event.data.to_vec()));
        });
        if pushed.is_err() {
            return (events, None);
        }
    }
    (events, Some(parser.is_between_events()))
}
