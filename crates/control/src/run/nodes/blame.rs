//! Whether the network policy is why a program failed.

use std::path::Path;

use mini_ork_node::egress::{Denial, DenialKind};
use mini_ork_node::supervise::{STDERR_LOG, STDOUT_LOG, log_edges};

use super::super::event::{Failure, Remedy};
use crate::reason::Reason;

/// How much of the end of each log counts as a program's last words.
const LAST_WORDS: usize = 4096;

/// Where connections were refused while a program ran: what was counted `before` it is left out.
pub(super) fn refused_since(before: &[Denial], after: &[Denial]) -> Vec<String> {
    let earlier = |denial: &Denial| {
        let same = |other: &&Denial| (&other.place, other.kind) == (&denial.place, denial.kind);
        before.iter().find(same).map_or(0, |known| known.count)
    };
    after
        .iter()
        .filter(|denial| matches!(denial.kind, DenialKind::NotListed | DenialKind::Reserved))
        .filter(|denial| !denial.place.is_empty() && denial.count > earlier(denial))
        .map(|denial| denial.place.clone())
        .collect()
}

/// The end of what a program said, on both of its streams.
pub(super) fn last_words(process: &Path) -> String {
    let logs = [STDOUT_LOG, STDERR_LOG].map(|log| {
        let edges = log_edges(&process.join(log), 0, LAST_WORDS);
        edges.map(|edges| edges.tail).unwrap_or_default()
    });
    String::from_utf8_lossy(&logs.join(&b'\n')).into_owned()
}

/// Gives a failure the policy as its reason where a refusal explains it: one that came while the
/// program ran, for a host of which it complained at its end. That something was refused alone says
/// nothing, since programs try many things that they can do without.
pub(super) fn blame_policy(failure: Failure, refused: &[String], words: &str) -> Failure {
    if failure.reason != Reason::CommandFailed {
        return failure;
    }
    let named = refused.iter().find(|place| names(words, host_of(place)));
    match named {
        None => failure,
        Some(place) => Failure {
            reason: Reason::EgressDenied,
            detail: format!(
                "{}; {place} was refused by the network policy",
                failure.detail
            ),
            // It would be refused again.
            remedy: Remedy::None,
        },
    }
}

/// `host:port` without the port, which names that were only looked up do not have.
fn host_of(place: &str) -> &str {
    let host = match place.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => place,
    };
    host.trim_matches(['[', ']'])
}

/// Whether `host` stands in `words` as a name of its own.
fn names(words: &str, host: &str) -> bool {
    let continues =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '-' | '_');
    !host.is_empty()
        && words.match_indices(host).any(|(at, _)| {
            let before = words[..at].chars().next_back();
            let mut after = words[at + host.len()..].chars();
            let ended = match after.next() {
                // The end of a sentence.
                Some('.') => !after.next().is_some_and(&continues),
                Some(next) => !continues(next),
                None => true,
            };
            ended && !before.is_some_and(continues)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(place: &str, kind: DenialKind, count: u64) -> Denial {
        Denial {
            place: place.to_owned(),
            kind,
            count,
        }
    }

    #[test]
    fn only_what_was_refused_meanwhile_counts() {
        let before = [
            denial("a.com:443", DenialKind::NotListed, 2),
            denial("b.com:443", DenialKind::NotListed, 1),
        ];
        let after = [
            denial("a.com:443", DenialKind::NotListed, 3),
            denial("b.com:443", DenialKind::NotListed, 1),
            denial("c.com", DenialKind::Reserved, 1),
            denial("", DenialKind::NotListed, 9),
            denial("d.com:80", DenialKind::OtherName, 1),
        ];
        assert_eq!(refused_since(&before, &after), ["a.com:443", "c.com"]);
    }

    #[test]
    fn a_refusal_is_the_reason_only_where_it_explains_the_end() {
        let failure = |reason| Failure {
            reason,
            detail: "ended with exit code 1".to_owned(),
            remedy: Remedy::Attempt,
        };
        let reason = |words: &str| {
            let refused = ["pypi.org:443".to_owned(), "10.0.0.7:5432".to_owned()];
            blame_policy(failure(Reason::CommandFailed), &refused, words).reason
        };
        for words in [
            "Could not resolve host: pypi.org",
            "https://pypi.org/simple",
            "connection to pypi.org.",
            "10.0.0.7:5432 refused",
        ] {
            assert_eq!(reason(words), Reason::EgressDenied, "{words}");
        }
        for words in [
            "",
            "assertion failed",
            "evilpypi.org",
            "pypi.org.evil",
            "pypi.organic",
        ] {
            assert_eq!(reason(words), Reason::CommandFailed, "{words}");
        }
        let blamed = blame_policy(
            failure(Reason::CommandFailed),
            &["pypi.org:443".to_owned()],
            "pypi.org",
        );
        assert!(
            blamed.detail.contains("pypi.org:443 was refused") && blamed.remedy == Remedy::None
        );
        let timeout = blame_policy(failure(Reason::Timeout), &["a".to_owned()], "a");
        assert_eq!(timeout.reason, Reason::Timeout);
    }
}
