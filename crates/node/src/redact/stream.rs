use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use aho_corasick::automaton::StateID;

use super::matcher::Matcher;
use super::{MASK, Redactor};

/// A stream of bytes that is redacted as it passes.
///
/// However the stream is cut into pieces, the output is the same: each longest run of bytes that
/// belong to occurrences of secrets is one [`MASK`]. Kept back is only what may be the beginning of
/// a secret, so text that has none of it passes at once. The output of a stream that was not
/// [finished](Self::finish) lacks its end.
pub struct RedactingStream {
    redactor: Redactor,
    matcher: Option<Arc<Matcher>>,
    state: StateID,
    /// What was pushed and not given out yet.
    pending: Vec<u8>,
    /// Where `pending` begins in the stream.
    offset: u64,
    /// Parts of the stream that are secret, not before `offset`, apart from each other, in order.
    secret: VecDeque<Span>,
    /// Whether the last thing given out was a mask.
    masking: bool,
}

/// From `start` to before `end`, counted from the beginning of the stream.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: u64,
    end: u64,
}

impl RedactingStream {
    pub(super) fn new(redactor: Redactor) -> Self {
        let matcher = redactor.matcher();
        let state = start(matcher.as_deref());
        Self {
            redactor,
            matcher,
            state,
            pending: Vec::new(),
            offset: 0,
            secret: VecDeque::new(),
            masking: false,
        }
    }

    /// Takes the next piece, and appends to `output` what is certain now.
    pub fn push(&mut self, piece: &[u8], output: &mut Vec<u8>) {
        self.take_new_secrets();
        let from = self.pending.len();
        self.pending.extend_from_slice(piece);
        self.scan(from);
        let kept = match &self.matcher {
            Some(matcher) => matcher.depth(self.state).min(self.pending.len()),
            None => 0,
        };
        self.give_out(self.pending.len() - kept, output);
    }

    /// Appends what was kept back to `output`.
    pub fn finish(mut self, output: &mut Vec<u8>) {
        self.take_new_secrets();
        self.give_out(self.pending.len(), output);
    }

    /// What is kept back is looked at again when there are more secrets than before.
    fn take_new_secrets(&mut self) {
        let current = self.redactor.matcher();
        let same = match (&current, &self.matcher) {
            (Some(current), Some(known)) => Arc::ptr_eq(current, known),
            (None, None) => true,
            _ => false,
        };
        if !same {
            self.state = start(current.as_deref());
            self.matcher = current;
            self.scan(0);
        }
    }

    /// Finds the secrets that end in `pending[from..]`.
    fn scan(&mut self, from: usize) {
        let Some(matcher) = self.matcher.clone() else {
            return;
        };
        for index in from..self.pending.len() {
            self.state = matcher.next(self.state, self.pending[index]);
            if let Some(length) = matcher.longest_match(self.state) {
                let end = self.offset + index as u64 + 1;
                self.mark(Span {
                    start: end.saturating_sub(length as u64),
                    end,
                });
            }
        }
    }

    /// Adds a span; those that it meets become one with it.
    fn mark(&mut self, mut span: Span) {
        while let Some(last) = self.secret.back() {
            if last.end < span.start {
                break;
            }
            span.start = span.start.min(last.start);
            span.end = span.end.max(last.end);
            self.secret.pop_back();
        }
        self.secret.push_back(span);
    }

    /// Gives out the first `count` bytes of what is pending.
    fn give_out(&mut self, count: usize, output: &mut Vec<u8>) {
        let end = self.offset + count as u64;
        let mut position = self.offset;
        while let Some(span) = self.secret.front().copied().filter(|span| span.start < end) {
            if span.start > position {
                output.extend_from_slice(self.between(position, span.start));
                self.masking = false;
            }
            if !self.masking {
                output.extend_from_slice(MASK.as_bytes());
                self.masking = true;
            }
            position = span.end.min(end);
            self.secret.pop_front();
            if span.end > end {
                let start = end;
                self.secret.push_front(Span { start, ..span });
                break;
            }
        }
        if position < end {
            output.extend_from_slice(self.between(position, end));
            self.masking = false;
        }
        self.pending.drain(..count);
        self.offset = end;
    }

    fn between(&self, start: u64, end: u64) -> &[u8] {
        let index = |position: u64| {
            usize::try_from(position.saturating_sub(self.offset)).unwrap_or(usize::MAX)
        };
        self.pending.get(index(start)..index(end)).unwrap_or(&[])
    }
}

impl fmt::Debug for RedactingStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RedactingStream")
            .field("offset", &self.offset)
            .field("kept_back", &self.pending.len())
            .finish_non_exhaustive()
    }
}

fn start(matcher: Option<&Matcher>) -> StateID {
    matcher.map_or(StateID::ZERO, Matcher::start)
}
