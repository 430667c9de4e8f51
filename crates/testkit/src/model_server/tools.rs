use serde_json::{Map, Value, json};

/// Something that the model does with a tool. The server calls whichever tool of the client does
/// it, with the arguments that this one wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// Runs a command of the shell.
    Run(String),
    /// Reads the file.
    Read(String),
    /// Writes `content` to the file `path`.
    Write {
        /// The file.
        path: String,
        /// All that is in it.
        content: String,
    },
    /// Puts `new` where `old` is in the file `path`.
    Edit {
        /// The file.
        path: String,
        /// What is there.
        old: String,
        /// What is to be there.
        new: String,
    },
    /// Ends the work, with the tool of a client that has one for it.
    Finish(String),
    /// Calls `name` with `arguments`, whether or not there is such a tool and whether or not these
    /// are JSON.
    Call {
        /// The tool.
        name: String,
        /// JSON text, as a rule.
        arguments: String,
    },
}

/// A tool that a client offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offered {
    pub(super) name: String,
    /// Names of its arguments; none for a tool that takes free text.
    pub(super) arguments: Vec<String>,
    /// Whether it takes free text.
    pub(super) free: bool,
}

/// A call of a tool as it goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) name: String,
    /// JSON text, or free text.
    pub(super) arguments: String,
    pub(super) free: bool,
}

const SHELLS: [&str; 4] = ["bash", "exec_command", "shell", "run"];
const COMMANDS: [&str; 2] = ["command", "cmd"];
const PATHS: [&str; 4] = ["file_path", "filePath", "path", "file"];
const CONTENTS: [&str; 2] = ["content", "text"];
const OLD: [&str; 3] = ["old_string", "oldString", "old"];
const NEW: [&str; 3] = ["new_string", "newString", "new"];
const WORDS: [&str; 3] = ["summary", "message", "result"];

/// How the client with the tools `offered` does `act`. What it has no tool for is done by its
/// shell; without one, by a tool that does not exist, so that a test sees it.
pub(super) fn call_of(act: &Act, offered: &[Offered]) -> Called {
    let direct = match act {
        Act::Call { name, arguments } => Some(Called {
            name: name.clone(),
            arguments: arguments.clone(),
            free: offered.iter().any(|tool| tool.name == *name && tool.free),
        }),
        Act::Run(command) => shell(command, offered),
        Act::Read(path) => fill(offered, &["read"], &[(&PATHS, path)]),
        Act::Write { path, content } => {
            fill(offered, &["write"], &[(&PATHS, path), (&CONTENTS, content)])
        }
        Act::Edit { path, old, new } => {
            let pairs: [(&[&str], &str); 3] = [(&PATHS, path), (&OLD, old), (&NEW, new)];
            fill(offered, &["edit"], &pairs).or_else(|| patch(path, old, new, offered))
        }
        Act::Finish(words) => fill(offered, &["finish"], &[(&WORDS, words)]),
    };
    direct
        .or_else(|| shell(&as_command(act)?, offered))
        .unwrap_or_else(|| Called {
            name: "no_such_tool".to_owned(),
            arguments: "{}".to_owned(),
            free: false,
        })
}

fn shell(command: &str, offered: &[Offered]) -> Option<Called> {
    let tool = named(offered, &SHELLS)?;
    let argument = first_of(tool, &COMMANDS)?;
    let mut arguments = Map::new();
    arguments.insert(argument.to_owned(), json!(command));
    if tool.arguments.iter().any(|name| name == "description") {
        arguments.insert("description".to_owned(), json!("a step of the script"));
    }
    Some(called(tool, arguments))
}

fn fill(offered: &[Offered], names: &[&str], pairs: &[(&[&str], &str)]) -> Option<Called> {
    let tool = named(offered, names)?;
    let mut arguments = Map::new();
    for (candidates, value) in pairs {
        arguments.insert(first_of(tool, candidates)?.to_owned(), json!(value));
    }
    Some(called(tool, arguments))
}

/// The patch tool that takes free text.
fn patch(path: &str, old: &str, new: &str, offered: &[Offered]) -> Option<Called> {
    let tool = offered
        .iter()
        .find(|tool| tool.name == "apply_patch" && tool.free)?;
    let prefixed = |sign: char, text: &str| -> String {
        text.lines().map(|line| format!("{sign}{line}\n")).collect()
    };
    let (removed, added) = (prefixed('-', old), prefixed('+', new));
    Some(Called {
        name: tool.name.clone(),
        arguments: format!(
            "*** Begin Patch\n*** Update File: {path}\n@@\n{removed}{added}*** End Patch\n"
        ),
        free: true,
    })
}

fn as_command(act: &Act) -> Option<String> {
    match act {
        Act::Read(path) => Some(format!("cat -- {}", quoted(path))),
        Act::Write { path, content } => {
            Some(format!("printf %s {} > {}", quoted(content), quoted(path)))
        }
        Act::Edit { path, old, new } => Some(format!(
            "OLD={} NEW={} perl -0pi -e 's/\\Q$ENV{{OLD}}\\E/$ENV{{NEW}}/' {}",
            quoted(old),
            quoted(new),
            quoted(path)
        )),
        Act::Run(_) | Act::Finish(_) | Act::Call { .. } => None,
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn named<'a>(offered: &'a [Offered], names: &[&str]) -> Option<&'a Offered> {
    names.iter().find_map(|name| {
        offered
            .iter()
            .find(|tool| !tool.free && tool.name.eq_ignore_ascii_case(name))
    })
}

fn first_of<'a>(tool: &'a Offered, candidates: &[&str]) -> Option<&'a str> {
    tool.arguments
        .iter()
        .map(String::as_str)
        .find(|name| candidates.contains(name))
}

fn called(tool: &Offered, arguments: Map<String, Value>) -> Called {
    Called {
        name: tool.name.clone(),
        arguments: Value::Object(arguments).to_string(),
        free: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str, arguments: &[&str], free: bool) -> Offered {
        Offered {
            name: name.to_owned(),
            arguments: arguments.iter().map(|name| (*name).to_owned()).collect(),
            free,
        }
    }

    fn edit() -> Act {
        Act::Edit {
            path: "a b.py".to_owned(),
            old: "it's".to_owned(),
            new: "it was".to_owned(),
        }
    }

    #[test]
    fn each_client_gets_a_call_of_its_own_tool() {
        let run = Act::Run("true".to_owned());
        for (offered, name, arguments) in [
            (
                tool("Bash", &["command", "timeout", "description"], false),
                "Bash",
                r#"{"command":"true","description":"a step of the script"}"#,
            ),
            (
                tool("exec_command", &["cmd", "workdir"], false),
                "exec_command",
                r#"{"cmd":"true"}"#,
            ),
            (
                tool("bash", &["command"], false),
                "bash",
                r#"{"command":"true"}"#,
            ),
        ] {
            let call = call_of(&run, &[tool("other", &["command"], false), offered]);
            assert_eq!(
                (call.name.as_str(), call.arguments.as_str()),
                (name, arguments)
            );
        }
    }

    #[test]
    fn edits_use_the_best_tool_that_there_is() {
        let shell = tool("bash", &["command"], false);
        let own = tool("edit", &["filePath", "oldString", "newString"], false);
        let free = tool("apply_patch", &[], true);
        let call = call_of(&edit(), &[shell.clone(), free.clone(), own]);
        assert_eq!(
            call.arguments,
            r#"{"filePath":"a b.py","oldString":"it's","newString":"it was"}"#
        );
        let call = call_of(&edit(), &[shell.clone(), free]);
        assert!(
            call.free && call.arguments.contains("\n@@\n-it's\n+it was\n***"),
            "{call:?}"
        );
        let call = call_of(&edit(), &[shell]);
        assert!(call.arguments.contains("perl -0pi"), "{call:?}");
        assert_eq!(call_of(&edit(), &[]).name, "no_such_tool");
    }
}
