use std::collections::BTreeMap;

use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::probe::Verification;

use super::text::{Style, one_line, paint, plural, table};

const LONGEST: usize = 60;

/// A line for each kind of way, one for each attempt that ended as it must not, and what the canary
/// saw.
pub(crate) fn verification(verified: &Verification, policy: &NetworkPolicy, all: bool) -> String {
    let mut ways: Vec<(&str, usize, usize)> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    let mut rows = Vec::new();
    for attempt in &verified.attempts {
        let place = *places.entry(&attempt.way).or_insert_with(|| {
            ways.push((&attempt.way, 0, 0));
            ways.len() - 1
        });
        if let Some((_, tried, bad)) = ways.get_mut(place) {
            *tried += 1;
            *bad += usize::from(!attempt.verdict.is_good());
        }
        if all || !attempt.verdict.is_good() {
            let style = if attempt.verdict.is_good() {
                Style::Good
            } else {
                Style::Bad
            };
            rows.push(vec![
                one_line(&attempt.way, LONGEST),
                one_line(&attempt.what, LONGEST),
                paint(style, &one_line(&attempt.outcome, LONGEST)),
            ]);
        }
    }
    let summary: Vec<Vec<String>> = ways
        .iter()
        .map(|(way, tried, bad)| {
            let state = match bad {
                0 => paint(Style::Good, "held"),
                bad => paint(Style::Bad, &format!("{bad} did not hold")),
            };
            vec![(*way).to_owned(), tried.to_string(), state]
        })
        .collect();
    let mut text = format!("{}\n\n", one_line(&verified.isolation, 400));
    text.push_str(&table(&["WAY", "TRIED", "STATE"], &summary));
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&table(&["WAY", "WHAT", "OUTCOME"], &rows));
    }
    let seen = verified.seen;
    let state = if verified.is_good() {
        paint(Style::Good, "held")
    } else {
        paint(Style::Bad, "did not hold")
    };
    text.push_str(&format!(
        "\nnetwork {} {state} · {} · the canary saw {} and {}\n",
        policy.name(),
        plural(verified.attempts.len(), "attempt"),
        plural(
            usize::try_from(seen.connections).unwrap_or(usize::MAX),
            "connection"
        ),
        plural(
            usize::try_from(seen.datagrams).unwrap_or(usize::MAX),
            "datagram"
        ),
    ));
    text
}
