//! A block of lines at the bottom of the terminal on standard error, drawn anew in place.

use std::io::{self, IsTerminal as _, Write as _};

use super::graph::{GraphRow, Size, frame};
use super::text::visible_width;

/// The block and what stands above it.
///
/// The cursor rests behind the last line and not at the edge of the screen: there the `^C` that a
/// terminal echoes would begin a new line, and the next drawing would miss the first one.
#[derive(Debug)]
pub(super) struct Screen {
    /// Width of each line of the block as it stands.
    drawn: Vec<usize>,
    block: String,
    in_color: bool,
}

impl Screen {
    /// Nothing is drawn yet.
    pub(super) fn new() -> Self {
        let choice = anstream::AutoStream::choice(&io::stderr());
        Self {
            drawn: Vec::new(),
            block: String::new(),
            in_color: choice != anstream::ColorChoice::Never,
        }
    }

    /// Brings the block up to date.
    pub(super) fn draw(&mut self, rows: &[GraphRow], footer: &str) {
        let size = size();
        let block = frame(rows, footer, size);
        let mut output = back(&self.drawn, size.columns);
        output.push_str(&self.put(block));
        write(&output);
    }

    /// A line above the block.
    pub(super) fn say(&mut self, text: &str) {
        let mut output = back(&self.drawn, size().columns);
        for line in self.colored(text).split('\n') {
            output.push_str(line);
            output.push_str("\x1b[K\n");
        }
        let block = std::mem::take(&mut self.block);
        output.push_str(&self.put(block));
        write(&output);
    }

    /// Leaves the rows as they are at the end, all of them and without a footer.
    pub(super) fn finish(&mut self, rows: &[GraphRow]) {
        let size = size();
        let mut output = back(&self.drawn, size.columns);
        output.push_str("\x1b[J");
        if !rows.is_empty() {
            let all = Size {
                lines: usize::MAX,
                ..size
            };
            output.push_str(self.colored(&frame(rows, "", all)).trim_end());
            output.push_str("\n\n");
        }
        self.drawn.clear();
        self.block.clear();
        write(&output);
    }

    /// The output that puts `block` where the cursor is.
    fn put(&mut self, block: String) -> String {
        let lines: Vec<&str> = block.split('\n').collect();
        self.drawn = if block.is_empty() {
            Vec::new()
        } else {
            lines.iter().map(|line| visible_width(line)).collect()
        };
        // Each line wipes what was right of it: nothing is empty even for an instant.
        let lines: Vec<String> = lines.iter().map(|line| self.colored(line)).collect();
        let output = format!("{}\x1b[K\x1b[J", lines.join("\x1b[K\n"));
        self.block = block;
        output
    }

    fn colored(&self, text: &str) -> String {
        if self.in_color {
            text.to_owned()
        } else {
            anstream::adapter::strip_str(text).to_string()
        }
    }
}

/// The output that moves the cursor to the beginning of a block with lines of these widths. A
/// terminal that has become narrower has wrapped them.
fn back(drawn: &[usize], columns: usize) -> String {
    let lines: usize = drawn
        .iter()
        .map(|width| width.div_ceil(columns.max(1)).max(1))
        .sum();
    match lines {
        0 | 1 => "\r".to_owned(),
        lines => format!("\x1b[{}A\r", lines - 1),
    }
}

/// All at once, so that no half of it is seen. Nobody may be there any more, which is no reason to
/// fail.
fn write(output: &str) {
    let mut stderr = io::stderr().lock();
    let _ = stderr
        .write_all(output.as_bytes())
        .and_then(|()| stderr.flush());
}

fn size() -> Size {
    let stderr = io::stderr();
    let found = stderr
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(stderr).ok())
        .flatten();
    let or = |value: u16, other: usize| match value {
        0 => other,
        value => usize::from(value),
    };
    Size {
        columns: or(found.map_or(0, |size| size.ws_col), 80),
        lines: or(found.map_or(0, |size| size.ws_row), 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_goes_back_over_every_line_also_over_wrapped_ones() {
        assert_eq!(back(&[], 80), "\r");
        assert_eq!(back(&[10], 80), "\r");
        assert_eq!(back(&[10, 0, 79], 80), "\x1b[2A\r");
        assert_eq!(back(&[79, 0, 79], 40), "\x1b[4A\r");
    }

    #[test]
    fn without_colour_only_the_movements_are_left() {
        let mut screen = Screen {
            drawn: Vec::new(),
            block: String::new(),
            in_color: false,
        };
        let output = screen.put("\x1b[32mgreen\x1b[39m\nplain".to_owned());
        assert_eq!(output, "green\x1b[K\nplain\x1b[K\x1b[J");
        assert_eq!(screen.drawn, [5, 5]);
    }
}
