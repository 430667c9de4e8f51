//! As much of Rust's grammar as tells brackets from the insides of literals and comments.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Word,
    Open(char),
    Close(char),
    Mark(char),
    Literal,
    /// `/// …` or `/** … */`, which belongs to the item below it.
    Doc,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// For each opening bracket the index of its end, 0 for other tokens; none when brackets do not
/// match.
pub(super) fn pairs(tokens: &[Token]) -> Option<Vec<usize>> {
    let mut pairs = vec![0; tokens.len()];
    let mut open = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Open(bracket) => open.push((index, bracket)),
            Kind::Close(bracket) => match open.pop() {
                Some((start, opened)) if opened == bracket => pairs[start] = index,
                _ => return None,
            },
            _ => {}
        }
    }
    open.is_empty().then_some(pairs)
}

/// The tokens of `text` without comments; none when something in it has no end.
pub(super) fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut start = 0;
    if text.starts_with("#!") && !text[2..].trim_start().starts_with('[') {
        start = text.find('\n').unwrap_or(text.len());
    }
    while let Some(character) = text[start..].chars().next() {
        let rest = &text[start..];
        let (kind, length) = if character.is_whitespace() {
            (None, character.len_utf8())
        } else if rest.starts_with("//") {
            let is_doc = rest.starts_with("///") && !rest.starts_with("////");
            (
                is_doc.then_some(Kind::Doc),
                rest.find('\n').unwrap_or(rest.len()),
            )
        } else if rest.starts_with("/*") {
            let is_doc =
                rest.starts_with("/**") && !rest.starts_with("/***") && !rest.starts_with("/**/");
            (is_doc.then_some(Kind::Doc), block_comment(rest)?)
        } else if let Some((begin, closing)) = raw_string(rest) {
            let end = rest[begin..].find(&closing)?;
            (Some(Kind::Literal), begin + end + closing.len())
        } else if character == '"' {
            (Some(Kind::Literal), quoted(rest, '"')?)
        } else if character == '\'' {
            quote(rest)?
        } else if character.is_alphanumeric() || character == '_' {
            (Some(Kind::Word), word(rest))
        } else {
            let kind = match character {
                '(' | '[' | '{' => Kind::Open(character),
                ')' => Kind::Close('('),
                ']' => Kind::Close('['),
                '}' => Kind::Close('{'),
                other => Kind::Mark(other),
            };
            (Some(kind), character.len_utf8())
        };
        if let Some(kind) = kind {
            tokens.push(Token {
                kind,
                start,
                end: start + length,
            });
        }
        start += length;
    }
    Some(tokens)
}

fn word(text: &str) -> usize {
    let text_after_raw = text
        .strip_prefix("r#")
        .filter(|rest| rest.starts_with(is_word));
    let (skipped, rest) = text_after_raw.map_or((0, text), |rest| (2, rest));
    skipped
        + rest
            .find(|character| !is_word(character))
            .unwrap_or(rest.len())
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// Length of the block comment that `text` begins with; they nest.
fn block_comment(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut depth, mut index) = (0_usize, 0);
    while index + 1 < bytes.len() {
        match &bytes[index..index + 2] {
            b"/*" => depth += 1,
            b"*/" => {
                depth -= 1;
                if depth == 0 {
                    return Some(index + 2);
                }
            }
            _ => {
                index += 1;
                continue;
            }
        }
        index += 2;
    }
    None
}

/// Where the content of the raw string begins that `text` begins with, and what ends it.
fn raw_string(text: &str) -> Option<(usize, String)> {
    let rest = ["r", "br", "cr"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = rest.bytes().take_while(|&byte| byte == b'#').count();
    let content = rest[hashes..].strip_prefix('"')?;
    Some((
        text.len() - content.len(),
        format!("\"{}", "#".repeat(hashes)),
    ))
}

/// Length of a literal up to the unescaped `mark` that ends it.
fn quoted(text: &str, mark: char) -> Option<usize> {
    let mut characters = text.char_indices().skip(1);
    while let Some((index, character)) = characters.next() {
        if character == '\\' {
            characters.next();
        } else if character == mark {
            return Some(index + 1);
        }
    }
    None
}

/// A character literal or a lifetime.
fn quote(text: &str) -> Option<(Option<Kind>, usize)> {
    let mut characters = text.chars().skip(1);
    let first = characters.next()?;
    if first == '\\' {
        return Some((Some(Kind::Literal), quoted(text, '\'')?));
    }
    if characters.next() == Some('\'') {
        return Some((Some(Kind::Literal), 2 + first.len_utf8()));
    }
    Some((Some(Kind::Mark('\'')), 1))
}
