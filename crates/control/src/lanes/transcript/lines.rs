/// Longest line that is looked at. Longer ones are output of tools, of which nothing is wanted.
const LONGEST_LINE: usize = 1 << 20;

/// Cuts a stream into lines, and holds no more than one of them.
#[derive(Debug, Default)]
pub(super) struct Lines {
    line: Vec<u8>,
    /// The line is longer than it may be, and its beginning is gone.
    is_too_long: bool,
}

impl Lines {
    /// Gives every line that `bytes` completes to `take`, none for one that is too long. Blank lines
    /// are left out.
    pub(super) fn push(&mut self, bytes: &[u8], mut take: impl FnMut(Option<&[u8]>)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.extend(&rest[..end]);
            self.finish(&mut take);
            rest = &rest[end + 1..];
        }
        self.extend(rest);
    }

    /// Gives the line that has no end.
    pub(super) fn finish(&mut self, mut take: impl FnMut(Option<&[u8]>)) {
        if self.is_too_long {
            take(None);
        } else if !self.line.trim_ascii().is_empty() {
            take(Some(&self.line));
        }
        self.is_too_long = false;
        self.line.clear();
    }

    fn extend(&mut self, bytes: &[u8]) {
        if self.is_too_long || self.line.len() + bytes.len() > LONGEST_LINE {
            self.is_too_long = true;
            self.line = Vec::new();
        } else {
            self.line.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cut(pieces: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            lines.push(piece, |line| found.push(line.map(<[u8]>::to_vec)));
            assert!(lines.line.capacity() <= 2 * LONGEST_LINE);
        }
        lines.finish(|line| found.push(line.map(<[u8]>::to_vec)));
        found
    }

    #[test]
    fn lines_are_whole_and_blank_ones_are_left_out() {
        let found = cut(&[b"a\n\n \r\nb", b"c\n", b"d"]);
        let expected = [&b"a"[..], b"bc", b"d"].map(|line| Some(line.to_vec()));
        assert_eq!(found, expected);
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let piece = vec![b'x'; 1 << 16];
        let mut pieces = vec![piece.as_slice(); 1600];
        pieces.push(b"\nnext\n");
        assert_eq!(cut(&pieces), [None, Some(b"next".to_vec())]);
        let full = vec![b'x'; LONGEST_LINE];
        assert_eq!(cut(&[&full, b"\n"]), [Some(full.clone())]);
        assert_eq!(cut(&[&full, b"x"]), [None]);
    }

    proptest! {
        #[test]
        fn a_cut_changes_nothing(bytes in "[a-c \n]{0,60}", at in 0usize..61) {
            let bytes = bytes.as_bytes();
            let at = at.min(bytes.len());
            prop_assert_eq!(cut(&[bytes]), cut(&[&bytes[..at], &bytes[at..]]));
        }
    }
}
