use std::fmt;

/// Longest text of a file that a message repeats, in characters.
const LONGEST_QUOTE: usize = 120;
/// Most mistakes that are kept of one file: the rest of a file with thousands tells nothing new.
const MOST_MISTAKES: usize = 50;

/// One thing that is wrong in a file, and what to do about it.
///
/// All its texts are one line without control characters, whatever the file holds: they end up on
/// terminals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file as a person would name it.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Dotted path of the key, like `nodes[2].type`; empty when the whole file is meant.
    pub key: String,
    /// What is wrong: a fragment that follows the key.
    pub problem: String,
    /// What to do: an imperative fragment.
    pub remedy: String,
}

impl Mistake {
    /// Makes all texts safe to print.
    pub fn new(file: &str, line: u32, key: &str, problem: &str, remedy: &str) -> Self {
        Self {
            file: printable(file, usize::MAX),
            line,
            key: printable(key, LONGEST_QUOTE),
            problem: printable(problem, LONGEST_QUOTE * 4),
            remedy: printable(remedy, LONGEST_QUOTE * 8),
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}  ", self.file, self.line)?;
        if !self.key.is_empty() {
            write!(formatter, "{}: ", self.key)?;
        }
        write!(formatter, "{} ({})", self.problem, self.remedy)
    }
}

/// All mistakes of one or several files; never empty when it is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl Mistakes {
    /// `Ok` when there are none. Sorts by file and line.
    pub fn check(mut mistakes: Vec<Mistake>) -> Result<(), Self> {
        if mistakes.is_empty() {
            return Ok(());
        }
        mistakes.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        Err(Self(mistakes))
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            if index > 0 {
                formatter.write_str("\n")?;
            }
            write!(formatter, "{mistake}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Adds `mistake` unless the file has more of them than anyone reads; the last one kept says so.
pub(crate) fn push(mistakes: &mut Vec<Mistake>, mistake: Mistake) {
    if mistakes.len() < MOST_MISTAKES {
        mistakes.push(mistake);
    } else if mistakes.len() == MOST_MISTAKES {
        mistakes.push(Mistake::new(
            &mistake.file,
            mistake.line,
            "",
            "more mistakes follow and are not shown",
            "correct the ones above first",
        ));
    }
}

/// `text` between backticks, cut to a length that fits in a sentence.
pub(super) fn quote(text: &str) -> String {
    format!("`{}`", printable(text, LONGEST_QUOTE))
}

fn printable(text: &str, longest: usize) -> String {
    let mut result = String::with_capacity(text.len().min(longest));
    for (index, character) in text.chars().enumerate() {
        if index == longest {
            result.push('…');
            break;
        }
        // Direction marks reorder the rest of a line, so they mislead as control characters do.
        let misleading = character.is_control()
            || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if misleading {
            result.extend(character.escape_default());
        } else {
            result.push(character);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_cannot_write_to_the_terminal() {
        let mistake = Mistake::new("a\nb.yaml", 3, "x\u{1b}[2J", "is \u{202e}odd", "remove it");
        assert_eq!(
            mistake.to_string(),
            "a\\nb.yaml:3  x\\u{1b}[2J: is \\u{202e}odd (remove it)"
        );
    }

    #[test]
    fn a_flood_of_mistakes_is_cut_with_a_word_about_it() {
        let mut mistakes = Vec::new();
        for line in 0..1000 {
            push(
                &mut mistakes,
                Mistake::new("f", line, "", "is wrong", "remove it"),
            );
        }
        assert_eq!(mistakes.len(), MOST_MISTAKES + 1);
        assert!(mistakes[MOST_MISTAKES].problem.contains("not shown"));
    }

    #[test]
    fn mistakes_are_shown_in_the_order_of_the_file() {
        let at = |line| Mistake::new("f", line, "k", "is wrong", "remove it");
        let error = Mistakes::check(vec![at(9), at(2)]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f:2  k: is wrong (remove it)\nf:9  k: is wrong (remove it)"
        );
    }
}
