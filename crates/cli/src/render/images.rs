use std::fmt::Write as _;

use mini_ork_control::clean::human_bytes;

use super::text::{Style, ago, one_line, paint, table};
use crate::commands::{PrunedImage, ShownImage};

/// How much of a digest is shown in a list.
const DIGEST: usize = 19;
/// The widest cell of names.
const WIDTH: usize = 60;

/// Images as a table.
pub(crate) fn images(images: &[ShownImage], now_ms: u64) -> String {
    let rows: Vec<Vec<String>> = images
        .iter()
        .map(|image| {
            let chosen = if image.chosen { " (chosen)" } else { "" };
            vec![
                format!("{}{chosen}", paint(Style::Accent, &name(image))),
                image.id.chars().take(DIGEST).collect(),
                human_bytes(image.bytes),
                ago(now_ms, image.made_at_ms),
                if image.own { "mini-ork" } else { "others" }.to_owned(),
                one_line(&image.runs.join(", "), WIDTH),
            ]
        })
        .collect();
    let header = ["IMAGE", "DIGEST", "SIZE", "MADE", "BY", "RUNS"];
    table(&header, &rows)
}

/// What became of images, or would.
pub(crate) fn pruned(images: &[PrunedImage], dry_run: bool) -> String {
    if images.is_empty() {
        return "nothing to remove\n".to_owned();
    }
    let mut text = String::new();
    for image in images {
        let action = match image.action {
            "removed" if dry_run => "would remove",
            action => action,
        };
        let size = human_bytes(image.image.bytes);
        let _ = writeln!(
            text,
            "{action:<12} {}  {size}  {}",
            name(&image.image),
            one_line(&image.why, 2 * WIDTH)
        );
    }
    text
}

fn name(image: &ShownImage) -> String {
    let name = image.names.first().unwrap_or(&image.id);
    one_line(name, WIDTH)
}
