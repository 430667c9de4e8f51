//! Prompts: a recipe's template, filled with what a node has to know.

use minijinja::value::Serde;
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value};
use serde::Serialize;

mod limits;

/// The variables that a prompt template may use, in the order of [`PromptVariables`].
pub const PROMPT_VARIABLES: &[&str] = &[
    "kickoff",
    "title",
    "problem",
    "definition_of_done",
    "scope",
    "verification",
    "plan",
    "context",
    "evidence",
    "diff",
    "changed_files",
    "conflicts",
    "answers",
    "round",
    "output_directory",
];

/// Most bytes of `context`, `evidence` and `diff`, each, that go into a prompt.
const LONGEST_VALUE: usize = 128 * 1024;
/// Work and output that one rendering may cost; the template engine charges one unit for an
/// instruction and for each 64 bytes, so no prompt is larger than 64 MB.
const FUEL: u64 = 1_000_000;
/// How unlike a known name a suggestion may be (1 is equal).
const SIMILARITY: f64 = 0.75;

/// Values for a prompt. They are data: template syntax in them is not evaluated.
///
/// Lists come as text that can stand in a prompt as it is, one item for each line. What a node has
/// not is empty, which a template can test with `{% if plan %}`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PromptVariables {
    /// The whole kickoff.
    pub kickoff: String,
    /// Title of the kickoff.
    pub title: String,
    /// What is wrong or wanted.
    pub problem: String,
    /// When it is done, as a Markdown list.
    pub definition_of_done: String,
    /// Which paths may be changed, as Markdown.
    pub scope: String,
    /// Commands that show whether it is done, one for each line.
    pub verification: String,
    /// What the planner wrote.
    pub plan: String,
    /// Outputs of the nodes that supply context.
    pub context: String,
    /// What verifiers and reviewers found in the round before.
    pub evidence: String,
    /// The changes so far, as a patch.
    pub diff: String,
    /// Paths of the changes so far, one for each line.
    pub changed_files: String,
    /// Paths where parallel changes disagree, with both versions.
    pub conflicts: String,
    /// Answers to the questions of the kickoff, as Markdown.
    pub answers: String,
    /// Round of the retry loop, from 1.
    pub round: u32,
    /// Where the node writes files that are outputs and not part of the repository.
    pub output_directory: String,
}

/// A name in a template that no prompt has a value for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVariable {
    /// The name.
    pub name: String,
    /// Line of its first use in the template, from 1.
    pub line: u32,
    /// The known name that was probably meant.
    pub suggestion: Option<&'static str>,
}

/// Why a prompt could not be made from a template.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The template uses a name that no prompt has a value for.
    #[error("{file}:{}: there is no variable `{}`{}", .unknown.line, .unknown.name, meant(.unknown))]
    UnknownVariable {
        /// The template.
        file: String,
        /// The first such name.
        unknown: UnknownVariable,
    },
    /// The template is not well formed.
    #[error("{file}:{line}: the template is not well formed")]
    Syntax {
        /// The template.
        file: String,
        /// Line, from 1.
        line: u32,
        /// What the template engine says.
        #[source]
        source: minijinja::Error,
    },
    /// The template could not be carried out.
    #[error("{file}:{line}: the template cannot be filled in")]
    Render {
        /// The template.
        file: String,
        /// Line, from 1.
        line: u32,
        /// What the template engine says.
        #[source]
        source: minijinja::Error,
    },
    /// The template is larger or more nested than a prompt needs, and could exhaust the parser.
    #[error("{file}:{line}: {problem}")]
    TooLarge {
        /// The template.
        file: String,
        /// Line, from 1.
        line: u32,
        /// What is too large.
        problem: String,
    },
    /// The template does more work than a prompt can need, such as a loop over a long text.
    #[error("{file}: the template needs too much work or makes too long a prompt")]
    TooMuchWork {
        /// The template.
        file: String,
    },
}

impl PromptError {
    /// Line of the template, from 1.
    pub(crate) fn line(&self) -> u32 {
        match self {
            Self::UnknownVariable { unknown, .. } => unknown.line,
            Self::Syntax { line, .. } | Self::Render { line, .. } | Self::TooLarge { line, .. } => {
                *line
            }
            Self::TooMuchWork { .. } => 1,
        }
    }

    /// What is wrong, without the place.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Syntax { source, .. } | Self::Render { source, .. } => source
                .detail()
                .map_or_else(|| source.kind().to_string(), str::to_owned),
            Self::TooLarge { problem, .. } => problem.clone(),
            Self::UnknownVariable { .. } | Self::TooMuchWork { .. } => self.to_string(),
        }
    }
}

/// Fills `template` with `variables`; `file` names it in errors.
///
/// `context`, `evidence` and `diff` are shortened to 128 KiB each. A template can reach nothing but
/// its variables: no files, no other templates, no environment.
pub fn render(
    file: &str,
    template: &str,
    variables: &PromptVariables,
) -> Result<String, PromptError> {
    if let Some(unknown) = undeclared(file, template)?.into_iter().next() {
        return Err(PromptError::UnknownVariable {
            file: file.to_owned(),
            unknown,
        });
    }
    let mut variables = variables.clone();
    for value in [
        &mut variables.context,
        &mut variables.evidence,
        &mut variables.diff,
    ] {
        if value.len() > LONGEST_VALUE {
            *value = clip(value, LONGEST_VALUE);
        }
    }
    let values = Value::from(Serde(&variables));
    environment()
        .render_named_str(file, template, values)
        .map_err(|source| {
            let (file, line) = (file.to_owned(), line_of(&source));
            match source.kind() {
                ErrorKind::OutOfFuel => PromptError::TooMuchWork { file },
                _ => PromptError::Render { file, line, source },
            }
        })
}

/// The names in `template` that are not [`PROMPT_VARIABLES`], in the order of their first lines;
/// `file` names it in errors.
pub fn undeclared(file: &str, template: &str) -> Result<Vec<UnknownVariable>, PromptError> {
    limits::check(template).map_err(|found| PromptError::TooLarge {
        file: file.to_owned(),
        line: found.line,
        problem: found.problem,
    })?;
    let environment = environment();
    let parsed = environment
        .template_from_named_str(file, template)
        .map_err(|source| PromptError::Syntax {
            file: file.to_owned(),
            line: line_of(&source),
            source,
        })?;
    let functions: Vec<&str> = environment.globals().map(|(name, _)| name).collect();
    let mut unknown: Vec<UnknownVariable> = parsed
        .undeclared_variables(false)
        .into_iter()
        .filter(|name| {
            !PROMPT_VARIABLES.contains(&name.as_str()) && !functions.contains(&name.as_str())
        })
        .map(|name| UnknownVariable {
            line: first_use(template, &name),
            suggestion: suggestion(&name),
            name,
        })
        .collect();
    unknown.sort_by(|one, other| (one.line, &one.name).cmp(&(other.line, &other.name)));
    Ok(unknown)
}

/// At most `limit` bytes of `text`, half from each end, with a line between them that says how much
/// was left out. A text that fits comes back as it is; characters stay whole.
pub fn clip(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let mut head = limit.div_ceil(2);
    while !text.is_char_boundary(head) {
        head -= 1;
    }
    let mut tail = text.len() - limit / 2;
    while !text.is_char_boundary(tail) {
        tail += 1;
    }
    format!(
        "{}\n[… {} bytes left out …]\n{}",
        &text[..head],
        tail - head,
        &text[tail..]
    )
}

fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_fuel(Some(FUEL));
    // It shows the insides of the engine, which no agent needs to read.
    environment.remove_global("debug");
    environment
}

fn line_of(error: &minijinja::Error) -> u32 {
    error
        .line()
        .and_then(|line| u32::try_from(line).ok())
        .unwrap_or(1)
}

fn suggestion(name: &str) -> Option<&'static str> {
    PROMPT_VARIABLES
        .iter()
        .map(|known| (strsim::jaro_winkler(name, known), *known))
        .filter(|(similarity, _)| *similarity >= SIMILARITY)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}

fn meant(unknown: &UnknownVariable) -> String {
    match unknown.suggestion {
        Some(known) => format!(", did you mean `{known}`?"),
        None => format!("; known are {}", PROMPT_VARIABLES.join(", ")),
    }
}

/// Line of the first use of `name` inside a tag. The engine finds undeclared names, but not where
/// they stand.
fn first_use(template: &str, name: &str) -> u32 {
    let mut position = 0;
    while let Some(start) = template[position..]
        .find('{')
        .map(|offset| position + offset)
    {
        let closing = match template.as_bytes().get(start + 1) {
            Some(b'{') => "}}",
            Some(b'%') => "%}",
            Some(b'#') => "#}",
            _ => {
                position = start + 1;
                continue;
            }
        };
        let inner = start + 2;
        let end = template[inner..]
            .find(closing)
            .map_or(template.len(), |offset| inner + offset);
        if closing != "#}"
            && let Some(offset) = use_in_tag(&template[inner..end], name)
        {
            let lines = template[..inner + offset]
                .bytes()
                .filter(|&byte| byte == b'\n')
                .count();
            return u32::try_from(lines + 1).unwrap_or(u32::MAX);
        }
        position = end;
    }
    1
}

/// Offset of `name` in the text of a tag, where it is a name of its own: no attribute, no part of a
/// longer name, not in a string.
fn use_in_tag(tag: &str, name: &str) -> Option<usize> {
    let is_name = |character: char| character.is_alphanumeric() || character == '_';
    tag.match_indices(name)
        .map(|(offset, _)| offset)
        .find(|&offset| {
            let before = &tag[..offset];
            let quoted = ['"', '\'']
                .iter()
                .any(|mark| before.matches(*mark).count() % 2 == 1);
            !quoted
                && !before.ends_with(is_name)
                && !before.trim_end().ends_with('.')
                && !tag[offset + name.len()..].starts_with(is_name)
        })
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use proptest::prelude::*;

    use super::*;

    fn variables() -> PromptVariables {
        PromptVariables {
            title: "T".to_owned(),
            problem: "a {{ title }} <b> {% raw %}".to_owned(),
            round: 2,
            ..PromptVariables::default()
        }
    }

    fn rendered(template: &str) -> Result<String, PromptError> {
        render("prompts/x.md", template, &variables())
    }

    #[test]
    fn the_list_of_names_is_the_struct() {
        let value = serde_json::to_value(PromptVariables::default()).unwrap();
        let names: Vec<&String> = value.as_object().unwrap().keys().collect();
        assert_eq!(names, PROMPT_VARIABLES);
    }

    #[test]
    fn a_value_is_never_a_template() {
        let text =
            rendered("# {{ title }} {{ round + 1 }}\n{{ problem }}{% if plan %}p{% endif %}");
        assert_eq!(text.unwrap(), "# T 3\na {{ title }} <b> {% raw %}");
    }

    #[test]
    fn an_unknown_variable_is_named_with_its_line() {
        let error = rendered(
            "{{ title.plann }}{# plann #}\n\"plann\"\n{% if round %}{{ plann }}{% endif %}",
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "prompts/x.md:3: there is no variable `plann`, did you mean `plan`?"
        );
        let unknown = undeclared(
            "x",
            "{{ b }}\n{{ \"zz\" ~ zz }}{% set y = 1 %}{{ y }}{{ range(2) }}",
        );
        let unknown = unknown.unwrap();
        let found: Vec<(&str, u32)> = unknown
            .iter()
            .map(|unknown| (unknown.name.as_str(), unknown.line))
            .collect();
        assert_eq!(found, [("b", 1), ("zz", 2)]);
        assert!(
            rendered("{{ zz }}")
                .unwrap_err()
                .to_string()
                .contains("; known are kickoff, title")
        );
    }

    #[test]
    fn a_broken_template_is_named_with_its_line() {
        let error = rendered("a\n{% if %}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "prompts/x.md:2: the template is not well formed"
        );
        assert!(error.source().is_some());
        let error = rendered("a\n\n{{ title.missing }}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "prompts/x.md:3: the template cannot be filled in"
        );
        for other in [
            "{% include 'a' %}",
            "{% import 'a' as a %}",
            "{% extends 'a' %}",
        ] {
            assert!(
                matches!(rendered(other), Err(PromptError::Syntax { .. })),
                "{other}"
            );
        }
        assert!(matches!(
            rendered("{{ debug() }}"),
            Err(PromptError::UnknownVariable { .. })
        ));
    }

    #[test]
    fn a_template_cannot_work_for_ever() {
        let endless =
            "{% for a in range(9999) %}{% for b in range(9999) %}{{ a }}{% endfor %}{% endfor %}";
        assert_eq!(
            rendered(endless).unwrap_err().to_string(),
            "prompts/x.md: the template needs too much work or makes too long a prompt"
        );
    }

    #[test]
    fn long_values_show_what_was_left_out() {
        let diff = "x".repeat(LONGEST_VALUE + 10);
        let variables = PromptVariables {
            diff,
            ..PromptVariables::default()
        };
        let text = render("p", "{{ diff }}", &variables).unwrap();
        assert!(text.contains("x\n[… 10 bytes left out …]\nx"));
        assert_eq!(text.matches('x').count(), LONGEST_VALUE);
        assert_eq!(clip("aé", 2), "a\n[… 2 bytes left out …]\n");
        assert_eq!(clip("abc", 0), "\n[… 3 bytes left out …]\n");
        assert_eq!(clip("abc", 3), "abc");
    }

    proptest! {
        #[test]
        fn any_template_is_filled_or_refused(template in "[a-z{}%#\"' .\n|()\u{e9}]{0,60}") {
            let _ = rendered(&template);
            prop_assert!(first_use(&template, "a") >= 1);
        }

        #[test]
        fn values_pass_unchanged(value: String) {
            let variables = PromptVariables { kickoff: value.clone(), ..PromptVariables::default() };
            prop_assert_eq!(render("p", "<{{ kickoff }}>", &variables).unwrap(), format!("<{value}>"));
        }

        #[test]
        fn a_clipped_text_keeps_both_ends(text in "[aé€😀]{0,40}", limit in 0..60_usize) {
            let clipped = clip(&text, limit);
            if let Some((head, tail)) = clipped.split_once('\n') {
                let (_, tail) = tail.split_once('\n').unwrap();
                prop_assert!(text.starts_with(head) && text.ends_with(tail));
                prop_assert!(head.len() + tail.len() <= limit);
            } else {
                prop_assert_eq!(clipped, text);
            }
        }
    }
}
