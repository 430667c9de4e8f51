//! Text that is too long, with its beginning and its end.

use std::io;
use std::path::Path;

use crate::supervise::{LogEdges, log_edges};
use crate::text::beginning;

/// `text` when it has at most `limit` bytes; else what fits of its beginning and its end, and
/// between them how much was left out. The note comes on top of the limit.
pub(super) fn shorten(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let (head, tail) = split(limit);
    let head = beginning(text, head);
    let mut tail = text.len() - tail;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    join(head, (tail - head.len()) as u64, &text[tail..])
}

/// The content of a log in the same way; never more of it than `limit` bytes is read. What is not
/// text in it is replaced.
pub(super) fn read_shortened(path: &Path, limit: usize) -> io::Result<String> {
    let (head, tail) = split(limit);
    let LogEdges {
        mut head,
        omitted,
        tail,
    } = log_edges(path, head, tail)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if omitted == 0 {
        head.extend(tail);
        return Ok(text(&head));
    }
    Ok(join(&text(&head), omitted, &text(&tail)))
}

/// How a limit is shared between beginning and end.
fn split(limit: usize) -> (usize, usize) {
    let tail = limit / 2;
    (limit - tail, tail)
}

fn join(head: &str, left_out: u64, tail: &str) -> String {
    format!("{head}\n[… {left_out} bytes are left out here …]\n{tail}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_long_keeps_its_beginning_and_its_end() {
        assert_eq!(shorten("0123456789", 10), "0123456789");
        assert_eq!(
            shorten("0123456789", 5),
            "012\n[… 5 bytes are left out here …]\n89"
        );
        // No character is cut in two.
        assert_eq!(
            shorten("äöüäöü", 6),
            "ä\n[… 8 bytes are left out here …]\nü"
        );
        assert_eq!(shorten("ab", 0), "\n[… 2 bytes are left out here …]\n");
    }

    proptest! {
        #[test]
        fn nothing_is_invented(text in "\\PC{0,60}", limit in 0_usize..80) {
            let short = shorten(&text, limit);
            if text.len() <= limit {
                prop_assert_eq!(short, text);
            } else {
                let (head, rest) = short.split_once("\n[… ").unwrap();
                let (count, tail) = rest.split_once(" bytes are left out here …]\n").unwrap();
                let count: usize = count.parse().unwrap();
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert_eq!(head.len() + count + tail.len(), text.len());
                prop_assert!(head.len() + tail.len() <= limit);
            }
        }

        #[test]
        fn a_file_is_shortened_as_its_text(text in "[a-z\n]{0,60}", limit in 0_usize..80) {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("log");
            fs_err::write(&path, &text).unwrap();
            prop_assert_eq!(read_shortened(&path, limit).unwrap(), shorten(&text, limit));
        }
    }
}
