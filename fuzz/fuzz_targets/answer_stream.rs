//! However the streamed answer of a model is cut, what it cost is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mini_ork_node::gateway::StreamMeter;
use mini_ork_node::model::{Api, TokenUsage};

fuzz_target!(|bytes: &[u8]| {
    for api in [
        Api::AnthropicMessages,
        Api::OpenaiChat,
        Api::OpenaiResponses,
    ] {
        let whole = read(api, bytes, bytes.len().max(1));
        for length in [1, 1 + bytes.len() % 13] {
            assert_eq!(
                read(api, bytes, length),
                whole,
                "{api} in pieces of {length} bytes"
            );
        }
    }
});

/// None for what is malformed.
fn read(api: Api, bytes: &[u8], length: usize) -> Option<(bool, Option<TokenUsage>)> {
    let mut meter = StreamMeter::new(api);
    for piece in bytes.chunks(length) {
        meter.push(piece).ok()?;
    }
    Some((meter.is_whole(), meter.usage()))
}
