use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::beneath::{Directory, Links};

/// How much of the end of a log is searched for its last line.
const LAST_LINE_WINDOW: u64 = 8 * 1024;

/// No log is longer: programs are stopped long before. What a program has put in the place of one
/// may be, and is read no further.
const LONGEST: u64 = 2 << 30;

/// Reads a growing log from an absolute offset on.
///
/// The offset is all the state there is: a reader that starts again at it gets each byte once.
#[derive(Debug)]
pub struct LogCursor {
    file: fs_err::File,
    offset: u64,
}

impl LogCursor {
    /// Begins to read `path` at `offset` bytes from its start. Errors when it is not a regular
    /// file; a symbolic link is none.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        Ok(Self {
            file: open_log(path)?,
            offset,
        })
    }

    /// Where the next read begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next bytes, at most `limit` of them; empty when there are none yet.
    pub fn read(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        let length = self.file.metadata()?.len().min(LONGEST);
        let available = usize::try_from(length.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; available.min(limit)];
        let count = self.file.file().read_at(&mut bytes, self.offset)?;
        bytes.truncate(count);
        self.offset += count as u64;
        Ok(bytes)
    }
}

/// Opens a log. Its program may write there, so no link on the way is followed.
fn open_log(path: &Path) -> io::Result<fs_err::File> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let file = Directory::open_strictly(parent)?.file(Path::new(name), Links::Refused)?;
    Ok(fs_err::File::from_parts(file, path))
}

/// The two ends of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEdges {
    /// Its beginning.
    pub head: Vec<u8>,
    /// Bytes between the two that were not read.
    pub omitted: u64,
    /// Its end; empty when all of it is in `head`.
    pub tail: Vec<u8>,
}

/// Reads at most `head` bytes from the beginning of a log and at most `tail` from its end. No byte
/// is in both.
pub fn log_edges(path: &Path, head: usize, tail: usize) -> io::Result<LogEdges> {
    let file = open_log(path)?;
    let length = file.metadata()?.len();
    let head = read_range(&file, 0, head as u64)?;
    let after_head = head.len() as u64;
    let start = length.saturating_sub(tail as u64).max(after_head);
    let tail = read_range(&file, start, length.saturating_sub(start))?;
    Ok(LogEdges {
        head,
        omitted: start - after_head,
        tail,
    })
}

/// The last line of a log that shows something, for a display of progress; none when there is none
/// in its last 8 KiB.
///
/// Text in any encoding is taken as UTF-8 with replacements. Control characters, terminal escape
/// sequences and characters that turn the direction of text are left out; what follows a carriage
/// return counts as a new line.
pub fn last_line(path: &Path) -> io::Result<Option<String>> {
    let file = open_log(path)?;
    let length = file.metadata()?.len();
    let start = length.saturating_sub(LAST_LINE_WINDOW);
    Ok(last_line_in(&read_range(&file, start, LAST_LINE_WINDOW)?))
}

/// The last line of `bytes` that shows something; see [`last_line`].
pub fn last_line_in(bytes: &[u8]) -> Option<String> {
    let text = plain_text(&String::from_utf8_lossy(bytes));
    text.lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .map(str::to_owned)
}

fn read_range(file: &fs_err::File, start: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut reader = file;
    io::Seek::seek(&mut reader, io::SeekFrom::Start(start))?;
    reader.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Leaves lines of harmless characters. A sequence that is cut off takes the rest of its line with
/// it at most.
fn plain_text(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\n' | '\r' => plain.push('\n'),
            '\t' => plain.push(' '),
            '\u{1b}' => match characters.peek() {
                Some('[') => skip_control_sequence(&mut characters),
                Some(']' | 'P' | 'X' | '^' | '_') => skip_string(&mut characters),
                _ => skip_short_sequence(&mut characters),
            },
            '\u{9b}' => skip_control_sequence(&mut characters),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut characters),
            hidden if hidden.is_control() || turns_direction(hidden) => {}
            shown => plain.push(shown),
        }
    }
    plain
}

type Characters<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// `ESC [`, parameters, one final character.
fn skip_control_sequence(characters: &mut Characters<'_>) {
    characters.next_if_eq(&'[');
    while characters
        .next_if(|character| matches!(character, ' '..='?'))
        .is_some()
    {}
    characters.next_if(|character| matches!(character, '@'..='~'));
}

/// A title or the like, up to its terminator.
fn skip_string(characters: &mut Characters<'_>) {
    while let Some(character) = characters.next_if(|character| !matches!(character, '\n' | '\r')) {
        match character {
            '\u{7}' | '\u{9c}' => return,
            '\u{1b}' if characters.next_if_eq(&'\\').is_some() => return,
            _ => {}
        }
    }
}

/// `ESC`, intermediates, one final character.
fn skip_short_sequence(characters: &mut Characters<'_>) {
    while characters
        .next_if(|character| matches!(character, ' '..='/'))
        .is_some()
    {}
    characters.next_if(|character| matches!(character, '0'..='~'));
}

fn turns_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use proptest::prelude::*;

    use super::*;

    fn log(content: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn a_log_of_any_length_has_an_end() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        fs_err::File::create(&path)
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let mut cursor = LogCursor::open(&path, LONGEST - 10).unwrap();
        assert_eq!(cursor.read(100).unwrap(), [0; 10]);
        assert_eq!(cursor.read(100).unwrap(), [0_u8; 0]);
        let edges = log_edges(&path, 2, 3).unwrap();
        assert_eq!((edges.head.len(), edges.tail.len()), (2, 3));
    }

    #[test]
    fn a_cursor_gives_each_byte_once_while_the_log_grows() {
        let mut file = log(b"abcdef");
        let mut cursor = LogCursor::open(file.path(), 1).unwrap();
        assert_eq!(cursor.read(3).unwrap(), b"bcd");
        assert_eq!(cursor.read(100).unwrap(), b"ef");
        assert_eq!(cursor.read(100).unwrap(), b"");
        file.write_all(b"gh").unwrap();
        assert_eq!(cursor.read(100).unwrap(), b"gh");
        assert_eq!(cursor.offset(), 8);
        file.as_file().set_len(2).unwrap();
        assert_eq!(
            cursor.read(100).unwrap(),
            b"",
            "a log that shrank has nothing new"
        );
        assert_eq!(cursor.offset(), 8);
    }

    #[test]
    fn the_edges_of_a_log_do_not_overlap() {
        let file = log(b"0123456789");
        let edges = |head, tail| {
            let edges = log_edges(file.path(), head, tail).unwrap();
            (edges.head, edges.omitted, edges.tail)
        };
        assert_eq!(edges(3, 2), (b"012".to_vec(), 5, b"89".to_vec()));
        assert_eq!(edges(8, 8), (b"01234567".to_vec(), 0, b"89".to_vec()));
        assert_eq!(edges(20, 20), (b"0123456789".to_vec(), 0, Vec::new()));
        assert_eq!(edges(0, 0), (Vec::new(), 10, Vec::new()));
    }

    #[test]
    fn the_last_line_shows_only_its_text() {
        let last = |content: &[u8]| last_line(log(content).path()).unwrap();
        assert_eq!(last(b""), None);
        assert_eq!(last(b"\n \n\x1b[0m\n"), None);
        assert_eq!(last(b"one\ntwo\n\n").as_deref(), Some("two"));
        assert_eq!(last(b"10%\r20%").as_deref(), Some("20%"));
        assert_eq!(
            last(b"\x1b[1;31mred\x1b[0m \x1b(Bend").as_deref(),
            Some("red end")
        );
        assert_eq!(
            last(b"\x1b]0;title\x07a\x1b]8;;u\x1b\\b").as_deref(),
            Some("ab")
        );
        assert_eq!(
            last("\u{202e}x\u{9b}2Jy\u{7f}".as_bytes()).as_deref(),
            Some("xy")
        );
        assert_eq!(last(b"a\xff\xfeb").as_deref(), Some("a\u{fffd}\u{fffd}b"));
        assert_eq!(last(b"kept\n\x1b]never ended").as_deref(), Some("kept"));
    }

    proptest! {
        #[test]
        fn no_bytes_reach_a_terminal_as_control(bytes: Vec<u8>) {
            let text = plain_text(&String::from_utf8_lossy(&bytes));
            prop_assert!(!text.chars().any(|character| character.is_control() && character != '\n'));
        }
    }
}
