use std::fmt::Write as _;

use mini_ork_control::report::duration;
use mini_ork_control::run::now_ms;

use super::runs::ListedRun;
use super::text::{Style, ago, mark, one_line, paint};

/// Most runs that are listed: all of the text has ten lines.
const MOST_RUNS: usize = 3;

/// What runs now and what to do next, in at most ten lines.
pub(crate) fn overview(home: Option<&str>, runs: &[ListedRun], width: Option<usize>) -> String {
    let mut text = format!(
        "{} {} · {}\n",
        paint(Style::Strong, "mini-ork"),
        env!("CARGO_PKG_VERSION"),
        home.unwrap_or("no home: set MINI_ORK_HOME or HOME")
    );
    let open = |status| runs.iter().filter(move |run| run.status == status);
    let running: Vec<&ListedRun> = open("running").collect();
    let interrupted: Vec<&ListedRun> = open("interrupted").collect();
    match (runs.first(), running.len()) {
        (None, _) => text.push_str("no run yet\n"),
        (Some(_), 0) => text.push_str("nothing runs now\n"),
        (Some(_), 1) => text.push_str("1 run goes on\n"),
        (Some(_), count) => {
            let _ = writeln!(text, "{count} runs go on");
        }
    }
    let mut listed: Vec<&ListedRun> = running.iter().chain(&interrupted).copied().collect();
    if let Some(latest) = runs.first().filter(|_| listed.is_empty()) {
        listed.push(latest);
    }
    let more = listed.len().saturating_sub(MOST_RUNS);
    for run in listed.iter().take(MOST_RUNS) {
        let _ = writeln!(text, "  {}", one(run, width));
    }
    if more > 0 {
        let _ = writeln!(text, "  and {more} more: mini-ork runs");
    }
    text.push('\n');
    for (command, about) in next_steps(&running, &interrupted, runs.first()) {
        let _ = writeln!(
            text,
            "{} {about}",
            paint(Style::Accent, &format!("{command:38}"))
        );
    }
    text
}

fn one(run: &ListedRun, width: Option<usize>) -> String {
    let time = if run.status == "running" {
        duration(now_ms().saturating_sub(run.started_at_ms))
    } else {
        ago(now_ms(), run.started_at_ms)
    };
    let head = format!("{}  {} · {time} · {}", run.run, run.recipe, run.status);
    let room = width.map_or(60, |width| {
        width.saturating_sub(head.chars().count() + 7).max(20)
    });
    format!(
        "{} {} · {}",
        mark(run.status),
        head,
        one_line(&run.title, room)
    )
}

fn next_steps(
    running: &[&ListedRun],
    interrupted: &[&ListedRun],
    latest: Option<&ListedRun>,
) -> Vec<(String, &'static str)> {
    let mut steps = Vec::new();
    if let Some(run) = running.first() {
        steps.push((format!("mini-ork status {}", run.run), "how far it is"));
        steps.push((
            format!("mini-ork logs {} -f", run.run),
            "what it writes now",
        ));
    }
    if let Some(run) = interrupted.first() {
        steps.push((
            format!("mini-ork recover {}", run.run),
            "continue from the last good node",
        ));
    }
    let Some(latest) = latest else {
        return vec![
            (
                "mini-ork init".to_owned(),
                "set up the repository around you",
            ),
            (
                "mini-ork doctor".to_owned(),
                "check that everything is here",
            ),
            (
                "mini-ork run code-fix ./kickoff.md".to_owned(),
                "do what the kickoff asks, on a branch",
            ),
            ("mini-ork --help".to_owned(), "all commands"),
        ];
    };
    if steps.is_empty() {
        steps.push((
            format!("mini-ork status {}", latest.run),
            "what it did, and what to do next",
        ));
        if latest.branch.is_some() {
            steps.push((
                format!("mini-ork apply {}", latest.run),
                "put its change into the checkout",
            ));
        }
    }
    steps.push(("mini-ork --help".to_owned(), "all commands"));
    steps.truncate(3);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, status: &'static str) -> ListedRun {
        ListedRun {
            run: id.to_owned(),
            status,
            reason: None,
            detail: None,
            recipe: "code-fix".to_owned(),
            title: "a very long title ".repeat(20),
            repository: String::new(),
            directory: String::new(),
            backend: "local".to_owned(),
            branch: None,
            cost_usd: None,
            cost_unknown: true,
            started_at_ms: 0,
            ended_at_ms: None,
        }
    }

    #[test]
    fn it_never_takes_more_than_ten_lines() {
        let many: Vec<ListedRun> = (0..20)
            .map(|number| {
                let status = if number % 2 == 0 {
                    "running"
                } else {
                    "interrupted"
                };
                run(&format!("r{number}"), status)
            })
            .collect();
        for runs in [&many[..], &many[..1], &[run("x", "failed")], &[]] {
            let text = overview(Some("/home"), runs, Some(80));
            let plain = anstream::adapter::strip_str(&text).to_string();
            assert!(plain.lines().count() <= 10, "{plain}");
            assert!(
                plain.lines().all(|line| line.chars().count() <= 80),
                "{plain}"
            );
        }
    }

    #[test]
    fn it_says_what_to_do_next() {
        let of = |runs: &[ListedRun]| overview(None, runs, None);
        assert!(of(&[]).contains("mini-ork init"));
        assert!(of(&[run("abc", "running")]).contains("mini-ork logs abc -f"));
        assert!(of(&[run("abc", "interrupted")]).contains("mini-ork recover abc"));
        assert!(of(&[run("abc", "failed")]).contains("mini-ork status abc"));
    }
}
