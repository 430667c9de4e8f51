//! Text from outside, made fit to be shown.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        assert_eq!(
            on_one_line("a\n# Approved\r\u{1b}[2J\u{9b}b"),
            "a # Approved  [2J b"
        );
    }
}
