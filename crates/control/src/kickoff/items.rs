//! List items, paragraphs and code blocks of a section.

use super::markdown::{Kind, Line};

/// One item of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    /// Line of its first text, from 1.
    pub(super) line: u32,
    pub(super) form: Form,
    /// Without the list marker; lines of a code block or paragraph are separated by `\n`.
    pub(super) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Form {
    Bullet,
    Paragraph,
    /// With the first word behind its fence, in lower case.
    Code(String),
}

/// The items of `lines` in order. Text that is indented below a bullet belongs to the bullet.
pub(super) fn items(lines: &[Line<'_>]) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut joins = false;
    for line in lines {
        let (form, text) = match line.kind {
            Kind::Hidden => continue,
            Kind::Fence => {
                joins = false;
                continue;
            }
            Kind::Code { info } => (Form::Code(info.to_lowercase()), line.text.trim_end()),
            Kind::Heading { title, .. } => (Form::Paragraph, title),
            Kind::Text => match bullet(line.text) {
                Some(text) => (Form::Bullet, text),
                None => (Form::Paragraph, line.text.trim()),
            },
        };
        if form == Form::Paragraph && text.is_empty() {
            joins = false;
            continue;
        }
        let indented = line.text.starts_with([' ', '\t']);
        if let Some(last) = items.last_mut().filter(|_| joins) {
            let separator = match (&last.form, &form) {
                (Form::Bullet, Form::Paragraph) if indented => Some(' '),
                (Form::Paragraph, Form::Paragraph) => Some('\n'),
                (Form::Code(_), Form::Code(_)) => Some('\n'),
                _ => None,
            };
            if let Some(separator) = separator {
                last.text.push(separator);
                last.text.push_str(text);
                continue;
            }
        }
        items.push(Item {
            line: line.number,
            form,
            text: text.to_owned(),
        });
        joins = true;
    }
    items.retain(|item| !item.text.trim().is_empty());
    items
}

/// The text of a list item without its marker and task box.
fn bullet(text: &str) -> Option<&str> {
    let text = text.trim();
    let rest = match text.strip_prefix(['-', '*', '+']) {
        Some(rest) => rest,
        None => {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            if digits == 0 {
                return None;
            }
            text[digits..].strip_prefix(['.', ')'])?
        }
    };
    if !rest.is_empty() && !rest.starts_with([' ', '\t']) {
        return None;
    }
    let rest = rest.trim_start();
    let boxed = ["[ ]", "[x]", "[X]"]
        .iter()
        .find_map(|mark| rest.strip_prefix(mark));
    Some(boxed.map_or(rest, str::trim_start))
}

/// The content of each code span of `text` with the byte range that the span takes in it.
pub(super) fn code_spans(text: &str) -> Vec<(std::ops::Range<usize>, &str)> {
    let mut spans = Vec::new();
    let mut position = 0;
    while let Some(start) = text[position..].find('`').map(|offset| position + offset) {
        let ticks = text[start..]
            .bytes()
            .take_while(|&byte| byte == b'`')
            .count();
        let inner = start + ticks;
        match closing_ticks(text, inner, ticks) {
            Some(end) => {
                spans.push((start..end + ticks, text[inner..end].trim()));
                position = end + ticks;
            }
            None => position = inner,
        }
    }
    spans
}

/// Where the run of exactly `ticks` backticks begins that closes a span.
fn closing_ticks(text: &str, mut position: usize, ticks: usize) -> Option<usize> {
    while let Some(start) = text[position..].find('`').map(|offset| position + offset) {
        let length = text[start..]
            .bytes()
            .take_while(|&byte| byte == b'`')
            .count();
        if length == ticks {
            return Some(start);
        }
        position = start + length;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::markdown::scan;
    use super::*;

    fn read(text: &str) -> Vec<(u32, Form, String)> {
        items(&scan(text).unwrap())
            .into_iter()
            .map(|item| (item.line, item.form, item.text))
            .collect()
    }

    #[test]
    fn bullets_paragraphs_and_code_are_told_apart() {
        let text = "- [x] one\n  more\n* two\nloose\nstill\n\n10) ten\n-dash\n```SH x\na \\\n  b\n```\n```\nc\n```\n-\n";
        let expected = vec![
            (1, Form::Bullet, "one more".to_owned()),
            (3, Form::Bullet, "two".to_owned()),
            (4, Form::Paragraph, "loose\nstill".to_owned()),
            (7, Form::Bullet, "ten".to_owned()),
            (8, Form::Paragraph, "-dash".to_owned()),
            (10, Form::Code("sh".to_owned()), "a \\\n  b".to_owned()),
            (14, Form::Code(String::new()), "c".to_owned()),
        ];
        assert_eq!(read(text), expected);
    }

    #[test]
    fn code_spans_close_with_as_many_ticks() {
        let texts: Vec<&str> = code_spans("`a` ``b ` c`` `open")
            .into_iter()
            .map(|(_, text)| text)
            .collect();
        assert_eq!(texts, vec!["a", "b ` c"]);
    }

    proptest! {
        #[test]
        fn any_text_has_items_and_spans(text in "[-*+1.`#~ a\n\u{e9}]{0,60}") {
            for (range, span) in code_spans(&text) {
                prop_assert!(text[range].contains(span));
            }
            if let Ok(lines) = scan(&text) {
                prop_assert!(items(&lines).len() <= lines.len());
            }
        }
    }
}
