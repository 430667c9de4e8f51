use std::fmt::Write as _;
use std::io::IsTerminal as _;

use mini_ork_control::report;
use mini_ork_node::text::on_one_line;
use owo_colors::OwoColorize as _;

/// What a piece of text says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// It went well.
    Good,
    /// It did not.
    Bad,
    /// Look here.
    Warn,
    /// Something to type, or a name.
    Accent,
    /// Less important than the rest.
    Dim,
    /// A heading.
    Strong,
}

/// `text` in a style.
pub(crate) fn paint(style: Style, text: &str) -> String {
    match style {
        Style::Good => text.green().to_string(),
        Style::Bad => text.red().bold().to_string(),
        Style::Warn => text.yellow().to_string(),
        Style::Accent => text.cyan().to_string(),
        Style::Dim => text.dimmed().to_string(),
        Style::Strong => text.bold().to_string(),
    }
}

/// The sign of a node's state. The words beside it say the same without colour.
pub(crate) fn mark(state: &str) -> String {
    match state {
        "done" | "published" => paint(Style::Good, "✓"),
        "failed" => paint(Style::Bad, "✗"),
        "skipped" | "blocked" => paint(Style::Dim, "–"),
        "running" => paint(Style::Accent, "▸"),
        "interrupted" => paint(Style::Warn, "!"),
        "cancelled" => paint(Style::Bad, "✗"),
        _ => paint(Style::Dim, "·"),
    }
}

/// `2 min ago` and the like, from milliseconds since the epoch.
pub(crate) fn ago(now_ms: u64, then_ms: u64) -> String {
    let seconds = now_ms.saturating_sub(then_ms) / 1000;
    match seconds {
        0..10 => "just now".to_owned(),
        10..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

/// `text` on one line without control characters, at most `width` characters wide: much of what is
/// shown was written by an agent, and a terminal obeys escape sequences.
pub(crate) fn one_line(text: &str, width: usize) -> String {
    let clean = on_one_line(text);
    let clean = clean.trim();
    if clean.chars().count() <= width {
        return clean.to_owned();
    }
    let mut cut: String = clean.chars().take(width.saturating_sub(1)).collect();
    cut.push('…');
    cut
}

/// Output of a program as a terminal may show it: lines and tabs stay, escape sequences go, and any
/// other control character, or one that turns the direction of text, is spelled out.
pub(crate) fn harmless(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let text = anstream::adapter::strip_str(&text).to_string();
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            '\r' => shown.push('\n'),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                shown.extend(character.escape_unicode());
            }
            hidden if hidden.is_control() => shown.extend(hidden.escape_unicode()),
            other => shown.push(other),
        }
    }
    shown
}

/// `1 file`, `2 files`.
pub(crate) fn plural(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// Columns of the terminal on standard output; none when there is no terminal.
pub(crate) fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(stdout).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// Rows in columns that are as wide as they must be. The last column is not padded.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|title| title.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(visible_width(cell));
        }
    }
    let mut text = String::new();
    let titles: Vec<String> = header
        .iter()
        .map(|title| paint(Style::Dim, title))
        .collect();
    push_row(&mut text, &titles, &widths);
    for row in rows {
        push_row(&mut text, row, &widths);
    }
    text
}

/// What something cost, or nothing for what costs nothing.
pub(crate) fn cost(cost_usd: Option<f64>, unknown: bool) -> String {
    report::money(cost_usd, unknown)
}

fn push_row(text: &mut String, cells: &[String], widths: &[usize]) {
    let mut line = String::new();
    for (index, (cell, width)) in cells.iter().zip(widths).enumerate() {
        if index + 1 == cells.len() {
            line.push_str(cell);
        } else {
            let padding = width.saturating_sub(visible_width(cell)) + 2;
            let _ = write!(line, "{cell}{:padding$}", "");
        }
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

/// How many columns `text` takes, without what colours it.
pub(crate) fn visible_width(text: &str) -> usize {
    anstream::adapter::strip_str(text)
        .to_string()
        .chars()
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_cannot_move_the_cursor() {
        assert_eq!(one_line("a\u{1b}[2Jb\nc", 80), "a [2Jb c");
        assert_eq!(one_line("abcdef", 4), "abc…");
    }

    #[test]
    fn output_of_a_program_cannot_control_the_terminal() {
        assert_eq!(
            harmless(b"10%\r20%\r\n\x1b[31mred\x1b[0m\tx\x07\x08 \xff\x1b]0;title\x07"),
            "10%\n20%\nred\tx \u{fffd}"
        );
        let odd = harmless("a\u{202e}b\u{9b}2J\u{7f}".as_bytes());
        assert!(
            !odd.chars().any(|c| c.is_control() || c == '\u{202e}'),
            "{odd}"
        );
    }

    #[test]
    fn columns_line_up_whatever_their_colour() {
        let rows = vec![
            vec![paint(Style::Good, "ok"), "x".to_owned()],
            vec!["longer".to_owned(), "y".to_owned()],
        ];
        let text = anstream::adapter::strip_str(&table(&["A", "B"], &rows)).to_string();
        assert_eq!(text, "A       B\nok      x\nlonger  y\n");
    }
}
