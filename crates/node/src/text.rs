//! Text from outside, made fit to be shown, and errors as text.

use std::error::Error;

/// `text` on one line: every control character is a space. What an agent or a program wrote can
/// then neither move a terminal's cursor nor pose as another line of a report or a record.
pub fn on_one_line(text: &str) -> String {
    text.chars()
        .map(|character| {
            if character.is_control() {
                ' '
            } else {
                character
            }
        })
        .collect()
}

/// The longest beginning of `text` that has at most `most` bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let mut end = most.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// `error` with all its causes.
pub fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        let said = source.to_string();
        // A transparent wrapper says what its source says.
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_cut_in_two() {
        for (most, expected) in [(0, ""), (1, "a"), (2, "a"), (3, "aä"), (9, "aä")] {
            assert_eq!(beginning("aä", most), expected);
        }
    }

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        assert_eq!(
            on_one_line("a\n# Approved\r\u{1b}[2J\u{9b}b"),
            "a # Approved  [2J b"
        );
    }
}
