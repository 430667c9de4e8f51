use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::host::Host;

/// Most places that are told apart. A program that tries more is counted and not listed.
const MOST_PLACES: usize = 256;

/// Why a connection was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DenialKind {
    /// The host, or this port of it, is not on the list.
    NotListed,
    /// Its address is not one of the public internet, and not on the list itself.
    Reserved,
    /// What was sent was for another host than the connection: the name in the TLS hello or the
    /// `Host` of a request is not the one that was asked for, or cannot be read.
    OtherName,
    /// The request made no sense.
    Malformed,
}

/// A place that programs of a workspace tried to reach and did not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// `host:port`; `host` alone when a program only asked for its address. Empty for what has no
    /// name, and for all that came after the list was full.
    pub place: String,
    /// Why.
    pub kind: DenialKind,
    /// How often.
    pub count: u64,
}

/// Counts what was refused.
#[derive(Debug, Default)]
pub(super) struct Denials(Mutex<BTreeMap<(String, DenialKind), u64>>);

impl Denials {
    /// Counts one. `host` is none when what was asked for is no host.
    pub(super) fn count(&self, kind: DenialKind, host: Option<&Host>, port: u16) {
        let place = match host {
            Some(host) if port == 0 => host.to_string(),
            Some(host) => format!("{host}:{port}"),
            None => String::new(),
        };
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (place, kind);
        let key = if counts.len() < MOST_PLACES || counts.contains_key(&key) {
            key
        } else {
            (String::new(), kind)
        };
        let count = counts.entry(key).or_default();
        *count = count.saturating_add(1);
    }

    /// All of them, the most frequent first.
    pub(super) fn list(&self) -> Vec<Denial> {
        let counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut list: Vec<Denial> = counts
            .iter()
            .map(|((place, kind), count)| Denial {
                place: place.clone(),
                kind: *kind,
                count: *count,
            })
            .collect();
        list.sort_by_key(|denial| std::cmp::Reverse(denial.count));
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_and_bounded() {
        let denials = Denials::default();
        let host = Host::parse("pypi.org").unwrap();
        for _ in 0..3 {
            denials.count(DenialKind::NotListed, Some(&host), 443);
        }
        for number in 0..10_000 {
            let host = Host::parse(&format!("h{number}.com")).unwrap();
            denials.count(DenialKind::NotListed, Some(&host), 0);
        }
        let list = denials.list();
        assert!(list.len() <= MOST_PLACES + 1);
        assert_eq!(list.iter().map(|denial| denial.count).sum::<u64>(), 10_003);
        let pypi = list.iter().find(|denial| denial.place == "pypi.org:443");
        assert_eq!(pypi.unwrap().count, 3);
        assert!(list.iter().any(|denial| denial.place == "h0.com"));
    }
}
