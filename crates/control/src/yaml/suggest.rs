/// Longer words are no slips of the pen, and comparing them costs time that a hostile file could
/// multiply.
const LONGEST_WORD: usize = 64;

/// The one of `known` that a person who wrote `word` most likely meant, when one is near enough.
pub fn suggest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    if word.len() > LONGEST_WORD {
        return None;
    }
    let word = word.to_lowercase();
    known
        .into_iter()
        .map(|candidate| {
            (
                strsim::damerau_levenshtein(&word, &candidate.to_lowercase()),
                candidate,
            )
        })
        .filter(|(distance, candidate)| *distance <= candidate.len().max(word.len()) / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// A remedy for an unknown word: the likely one, else the whole list.
pub fn suggest_or_list<'k>(
    word: &str,
    known: impl IntoIterator<Item = &'k str, IntoIter: Clone>,
) -> String {
    let known = known.into_iter();
    if let Some(meant) = suggest(word, known.clone()) {
        return format!("did you mean `{meant}`?");
    }
    let list: Vec<String> = known.map(|name| format!("`{name}`")).collect();
    if list.is_empty() {
        "there is none".to_owned()
    } else {
        format!("known: {}", list.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_suggested_and_far_ones_are_not() {
        let known = ["timeout_minutes", "type", "retries"];
        assert_eq!(suggest("timeout_minute", known), Some("timeout_minutes"));
        assert_eq!(suggest("Retires", known), Some("retries"));
        assert_eq!(suggest("colour", known), None);
        assert_eq!(suggest(&"type".repeat(1000), known), None);
        assert_eq!(
            suggest_or_list("colour", known),
            "known: `timeout_minutes`, `type`, `retries`"
        );
        assert_eq!(suggest_or_list("x", []), "there is none");
    }
}
