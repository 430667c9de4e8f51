use std::collections::{BTreeSet, HashMap};

use aho_corasick::automaton::{Automaton as _, StateID};
use aho_corasick::nfa::contiguous::NFA;
use aho_corasick::{Anchored, BuildError, MatchKind};

/// Finds every occurrence of every form in one pass, byte by byte: the time for a stream is linear
/// in its length, whatever the forms and wherever it is cut.
pub(super) struct Matcher {
    automaton: NFA,
    /// How many bytes of a form each state has seen: the length of the longest end of the input
    /// that is the beginning of a form. The start has seen none and is not in here.
    depths: HashMap<StateID, usize>,
    start: StateID,
}

impl Matcher {
    pub(super) fn new(forms: &BTreeSet<Vec<u8>>) -> Result<Self, BuildError> {
        let automaton = NFA::builder()
            // All occurrences, also those inside and across others.
            .match_kind(MatchKind::Standard)
            // It would jump over bytes that this steps through.
            .prefilter(false)
            .build(forms)?;
        // An automaton of this kind can be started without an anchor; it could not be built else.
        let start = automaton.start_state(Anchored::No).unwrap_or(StateID::ZERO);
        let mut depths = HashMap::new();
        for form in forms {
            let mut state = start;
            for (index, byte) in form.iter().enumerate() {
                state = automaton.next_state(Anchored::No, state, *byte);
                depths.insert(state, index + 1);
            }
        }
        Ok(Self {
            automaton,
            depths,
            start,
        })
    }

    pub(super) fn start(&self) -> StateID {
        self.start
    }

    pub(super) fn next(&self, state: StateID, byte: u8) -> StateID {
        self.automaton.next_state(Anchored::No, state, byte)
    }

    /// Length of the longest form that ends where `state` was reached.
    pub(super) fn longest_match(&self, state: StateID) -> Option<usize> {
        if !self.automaton.is_match(state) {
            return None;
        }
        (0..self.automaton.match_len(state))
            .map(|index| self.automaton.match_pattern(state, index))
            .map(|pattern| self.automaton.pattern_len(pattern))
            .max()
    }

    /// How many of the last bytes may be the beginning of a form.
    pub(super) fn depth(&self, state: StateID) -> usize {
        self.depths.get(&state).copied().unwrap_or(0)
    }
}
