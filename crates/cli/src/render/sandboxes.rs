use std::fmt::Write as _;

use mini_ork_control::sandboxes::{SweepAction, SweptSandbox};

use super::text::{Style, ago, one_line, paint, table};
use crate::commands::{ShownContainer, ShownSandbox};

/// The widest reason in a list.
const WIDTH: usize = 100;

/// Sandboxes as a table.
pub(crate) fn sandboxes(shown: &[ShownSandbox], now_ms: u64) -> String {
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|one| {
            let image = one.container.as_ref().map(|container| &container.image);
            vec![
                paint(Style::Accent, &one.run),
                one.node.clone().unwrap_or_else(|| "all".to_owned()),
                one.backend.to_owned(),
                one.state.to_owned(),
                ago(now_ms, one.made_at_ms),
                made_by(one),
                image.map_or_else(|| "–".to_owned(), |image| one_line(image, WIDTH)),
                one_line(one.reason.as_deref().unwrap_or_default(), WIDTH),
            ]
        })
        .collect();
    let header = [
        "RUN", "NODE", "BACKEND", "STATE", "MADE", "BY", "IMAGE", "WHY",
    ];
    table(&header, &rows)
}

/// One sandbox with all that is known of it.
pub(crate) fn sandbox(shown: &ShownSandbox, now_ms: u64) -> String {
    let mut lines = vec![
        ("run", shown.run.clone()),
        (
            "node",
            shown.node.clone().unwrap_or_else(|| "all".to_owned()),
        ),
        ("backend", shown.backend.to_owned()),
        ("state", shown.state.to_owned()),
        ("made", ago(now_ms, shown.made_at_ms)),
        ("by", made_by(shown)),
    ];
    if let Some(released) = shown.released_at_ms {
        lines.push(("gone", ago(now_ms, released)));
    }
    if let Some(reason) = &shown.reason {
        lines.push(("why", reason.clone()));
    }
    match (&shown.container, shown.first_process) {
        (Some(container), _) => lines.extend(of_container(container)),
        (None, Some(first)) => lines.push(("process", first.to_string())),
        (None, None) => {}
    }
    let mut text = String::new();
    for (name, value) in lines {
        let _ = writeln!(text, "{name:<10} {}", one_line(&value, usize::MAX));
    }
    text
}

fn of_container(container: &ShownContainer) -> [(&'static str, String); 5] {
    let runtime = container.runtime.as_deref().unwrap_or("the engine's own");
    [
        ("container", container.name.clone()),
        ("image", container.image.clone()),
        ("digest", container.image_id.clone()),
        ("runtime", runtime.to_owned()),
        ("engine", container.engine.clone()),
    ]
}

/// What a sweep did, or would do.
pub(crate) fn swept(swept: &[SweptSandbox], dry_run: bool) -> String {
    if swept.is_empty() {
        return "nothing to remove\n".to_owned();
    }
    let rows: Vec<Vec<String>> = swept
        .iter()
        .map(|one| {
            let action = match one.action {
                SweepAction::Removed if dry_run => "would go".to_owned(),
                SweepAction::Removed => "removed".to_owned(),
                SweepAction::Kept => "stays".to_owned(),
                SweepAction::Failed => paint(Style::Bad, "failed"),
            };
            vec![
                one_line(&one.run, WIDTH),
                one.backend.to_owned(),
                action,
                one_line(&one.why, 2 * WIDTH),
            ]
        })
        .collect();
    let mut text = table(&["RUN", "BACKEND", "ACTION", "WHY"], &rows);
    let removed = swept
        .iter()
        .filter(|one| one.action == SweepAction::Removed);
    let removed = match removed.count() {
        1 => "1 sandbox".to_owned(),
        count => format!("{count} sandboxes"),
    };
    let _ = writeln!(
        text,
        "\n{removed} {}",
        if dry_run {
            "would be removed"
        } else {
            "removed"
        }
    );
    text
}

fn made_by(shown: &ShownSandbox) -> String {
    let maker = &shown.made_by;
    let ended = if maker.alive { "" } else { ", ended" };
    format!("user {}, process {}{ended}", maker.user, maker.process)
}
