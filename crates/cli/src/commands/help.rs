use std::fmt::Write as _;

use clap::CommandFactory as _;
use mini_ork_control::reason::Reason;

use crate::cli::{Cli, HelpArgs};
use crate::env_vars::{self, Direction};
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render::{self, Style, paint};

/// Topics with what they are about.
const TOPICS: [(&str, &str); 9] = [
    ("recipes", "what a recipe is, and where recipes are found"),
    ("lanes", "how agents are described and chosen"),
    ("kickoffs", "how to say what is wanted"),
    ("sandboxing", "what keeps programs from your machine"),
    ("profiles", "what a run works in, from a file"),
    ("network", "which hosts programs reach"),
    ("environment", "every environment variable"),
    ("exit-codes", "what scripts can rely on"),
    ("recovery", "after a crash, a failure or a kill"),
];

/// Explains a command or a topic.
pub(crate) fn help(args: &HelpArgs) -> CommandResult {
    let Some(asked) = args.topic.as_deref() else {
        let mut command = Cli::command();
        let text = format!("{}\n\n{}", command.render_help().ansi(), topics());
        render::out(&text)?;
        return Ok(ExitStatus::Success);
    };
    render::out(&page(asked)?)?;
    Ok(ExitStatus::Success)
}

fn page(topic: &str) -> Result<String, CommandError> {
    Ok(match topic {
        "recipes" => include_str!("topics/recipes.txt").to_owned(),
        "lanes" => include_str!("topics/lanes.txt").to_owned(),
        "kickoffs" => include_str!("topics/kickoffs.txt").to_owned(),
        "sandboxing" => include_str!("topics/sandboxing.txt").to_owned(),
        "profiles" => include_str!("topics/profiles.txt").to_owned(),
        "network" => include_str!("topics/network.txt").to_owned(),
        "environment" => environment(),
        "exit-codes" => exit_codes(),
        "recovery" => include_str!("topics/recovery.txt").to_owned(),
        name => of_command(name)?,
    })
}

fn of_command(name: &str) -> Result<String, CommandError> {
    let mut all = Cli::command();
    // Gives subcommands their full names.
    all.build();
    let names: Vec<String> = all
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    match all.find_subcommand_mut(name) {
        Some(command) => Ok(format!("{}\n", command.render_long_help().ansi())),
        None => {
            let known: Vec<&str> = TOPICS.iter().map(|(topic, _)| *topic).collect();
            Err(
                CommandError::usage(format!("there is no command or topic `{name}`")).hint(
                    format!(
                        "topics: {}; commands: {}",
                        known.join(", "),
                        names.join(", ")
                    ),
                ),
            )
        }
    }
}

fn topics() -> String {
    let mut text = "Topics, with `mini-ork help TOPIC`:\n".to_owned();
    for (topic, about) in TOPICS {
        let _ = writeln!(
            text,
            "  {} {about}",
            paint(Style::Accent, &format!("{topic:12}"))
        );
    }
    text
}

fn environment() -> String {
    let mut text = String::new();
    for (for_programs, heading) in [
        (false, "Read by mini-ork:"),
        (true, "Set for the programs of a run:"),
    ] {
        let _ = writeln!(text, "{heading}");
        for variable in env_vars::ALL {
            if (variable.direction == Direction::Set) == for_programs {
                let name = paint(Style::Accent, variable.name);
                let _ = writeln!(text, "  {name}\n      {}", variable.about.trim());
            }
        }
        text.push('\n');
    }
    text.push_str(
        "A flag wins over its variable; an empty variable counts as unset. NO_COLOR is honoured.\n\
         `mini-ork settings` shows the value of each setting and where it came from.\n",
    );
    text
}

fn exit_codes() -> String {
    let mut text = include_str!("topics/exit-codes.txt").to_owned();
    for reason in Reason::ALL {
        let _ = writeln!(text, "  {:22} {}", reason.name(), reason.sentence());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variable_and_every_reason_is_explained() {
        let text = environment();
        for variable in env_vars::ALL {
            assert!(text.contains(variable.name), "{}", variable.name);
            assert!(!variable.about.trim().is_empty(), "{}", variable.name);
        }
        let text = exit_codes();
        for reason in Reason::ALL {
            assert!(text.contains(reason.name()), "{reason}");
        }
    }

    #[test]
    fn every_command_has_a_page_and_an_unknown_word_lists_them() {
        for command in Cli::command().get_subcommands() {
            assert!(of_command(command.get_name()).is_ok());
        }
        let hint = of_command("nothing").unwrap_err().hint.unwrap();
        assert!(
            hint.contains("recovery") && hint.contains("conflicts"),
            "{hint}"
        );
    }

    #[test]
    fn every_topic_has_a_page_and_the_first_help_names_it() {
        for (topic, _) in TOPICS {
            assert!(page(topic).is_ok(), "{topic}");
            let first = Cli::command().render_help().to_string();
            assert!(first.contains(topic), "{topic}: {first}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }
}
