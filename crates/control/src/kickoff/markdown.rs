//! As much of Markdown as decides what is a heading: fences, comments and front matter hide lines.

use super::error::KickoffProblem;

/// One line of a kickoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// From 1.
    pub(super) number: u32,
    /// Without its end of line.
    pub(super) text: &'a str,
    pub(super) kind: Kind<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind<'a> {
    /// Level 1 to 6; the title is trimmed and without closing marks.
    Heading {
        level: u8,
        title: &'a str,
    },
    /// Opens or closes a code block.
    Fence,
    /// Inside a code block; `info` is the first word behind the opening fence.
    Code {
        info: &'a str,
    },
    /// Front matter or an HTML comment: kept in the text, read by nobody.
    Hidden,
    Text,
}

/// Splits `text` into lines. The error is the line of a block without an end.
pub(super) fn scan(text: &str) -> Result<Vec<Line<'_>>, (u32, KickoffProblem)> {
    let lines: Vec<&str> = text
        .split('\n')
        .map(|line| line.trim_end_matches('\r'))
        .collect();
    let front_matter = front_matter_length(&lines);
    let mut open = Open::None;
    let mut scanned = Vec::with_capacity(lines.len());
    for (index, &text) in lines.iter().enumerate() {
        let number = u32::try_from(index + 1).unwrap_or(u32::MAX);
        let kind = if index < front_matter {
            Kind::Hidden
        } else {
            open.step(text, number)
        };
        scanned.push(Line { number, text, kind });
    }
    match open {
        Open::None => Ok(scanned),
        Open::Fence {
            line, mark, length, ..
        } => {
            let fence = std::iter::repeat_n(mark, length).collect();
            Err((line, KickoffProblem::UnclosedFence { fence }))
        }
        Open::Comment { line } => Err((line, KickoffProblem::UnclosedComment)),
    }
}

enum Open<'a> {
    None,
    Fence {
        line: u32,
        mark: char,
        length: usize,
        info: &'a str,
    },
    Comment {
        line: u32,
    },
}

impl<'a> Open<'a> {
    fn step(&mut self, text: &'a str, number: u32) -> Kind<'a> {
        match *self {
            Self::Fence {
                mark, length, info, ..
            } => {
                let rest = text.trim();
                if rest.len() >= length && rest.chars().all(|character| character == mark) {
                    *self = Self::None;
                    return Kind::Fence;
                }
                Kind::Code { info }
            }
            Self::Comment { .. } => {
                if text.contains("-->") {
                    *self = Self::None;
                }
                Kind::Hidden
            }
            Self::None => {
                if let Some((mark, length, info)) = opening_fence(text) {
                    *self = Self::Fence {
                        line: number,
                        mark,
                        length,
                        info,
                    };
                    return Kind::Fence;
                }
                if let Some(comment) = text.trim_start().strip_prefix("<!--") {
                    if !comment.contains("-->") {
                        *self = Self::Comment { line: number };
                    }
                    return Kind::Hidden;
                }
                match heading(text) {
                    Some((level, title)) => Kind::Heading { level, title },
                    None => Kind::Text,
                }
            }
        }
    }
}

/// Number of lines that a leading `---` … `---` block takes; 0 without one.
fn front_matter_length(lines: &[&str]) -> usize {
    if lines.first().map(|line| line.trim_end()) != Some("---") {
        return 0;
    }
    let end = lines
        .iter()
        .skip(1)
        .position(|line| matches!(line.trim_end(), "---" | "..."));
    end.map_or(0, |position| position + 2)
}

/// Any indentation opens a fence: inside a list item it is deeper than the three blanks that stand
/// in front of one elsewhere.
fn opening_fence(text: &str) -> Option<(char, usize, &str)> {
    let rest = text.trim_start();
    let mark = rest
        .chars()
        .next()
        .filter(|character| matches!(character, '`' | '~'))?;
    let length = rest
        .chars()
        .take_while(|&character| character == mark)
        .count();
    let info = rest[length..].trim();
    // ```` ```code``` ```` in one line is a code span.
    if length < 3 || (mark == '`' && info.contains('`')) {
        return None;
    }
    Some((mark, length, info.split_whitespace().next().unwrap_or("")))
}

fn heading(text: &str) -> Option<(u8, &str)> {
    let rest = text.trim_start_matches(' ');
    if text.len() - rest.len() > 3 {
        return None;
    }
    let level = rest.bytes().take_while(|&byte| byte == b'#').count();
    let title = &rest[level..];
    // `##Scope` is no heading in Markdown, but it is one in the mind of whoever wrote it, and a
    // scope that is not seen is no limit.
    let separated = title.is_empty() || title.starts_with([' ', '\t']);
    if !(1..=6).contains(&level) || !(separated || super::parse::section_named(title).is_some()) {
        return None;
    }
    let title = title.trim();
    let unclosed = title.trim_end_matches('#');
    let title = if unclosed.is_empty() || unclosed.ends_with([' ', '\t']) {
        unclosed.trim_end()
    } else {
        title
    };
    Some((u8::try_from(level).ok()?, title))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn headings(text: &str) -> Vec<(u32, u8, &str)> {
        scan(text)
            .unwrap()
            .into_iter()
            .filter_map(|line| match line.kind {
                Kind::Heading { level, title } => Some((line.number, level, title)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn headings_are_only_what_is_outside_of_blocks() {
        let text = "---\n# front: matter\n---\n# Title ##\r\n```sh\n# comment\n```\n<!--\n## hidden\n-->\n    # code\n####### seven\n#hashtag\n##Scope\n  ~~~~\n## x\n~~~\n~~~~\n### Last\n";
        assert_eq!(
            headings(text),
            vec![(4, 1, "Title"), (14, 2, "Scope"), (19, 3, "Last")]
        );
    }

    #[test]
    fn a_block_without_an_end_is_named_by_its_first_line() {
        let fence = scan("a\n````sh\n```\n").unwrap_err();
        assert_eq!(
            fence,
            (
                2,
                KickoffProblem::UnclosedFence {
                    fence: "````".to_owned()
                }
            )
        );
        assert_eq!(
            scan("a\n\n<!-- x\n").unwrap_err(),
            (3, KickoffProblem::UnclosedComment)
        );
    }

    #[test]
    fn a_rule_at_the_top_is_not_front_matter() {
        assert_eq!(headings("---\n# Title\n"), vec![(2, 1, "Title")]);
    }

    proptest! {
        #[test]
        fn every_line_comes_back_once(text in "[-`~#<!> a\r\n]{0,80}") {
            if let Ok(lines) = scan(&text) {
                let joined: Vec<&str> = lines.iter().map(|line| line.text).collect();
                let expected: Vec<&str> =
                    text.split('\n').map(|line| line.trim_end_matches('\r')).collect();
                prop_assert_eq!(joined, expected);
            }
        }
    }
}
