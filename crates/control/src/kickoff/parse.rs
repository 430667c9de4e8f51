use super::error::{KickoffError, KickoffProblem};
use super::items::{Form, Item, code_spans, items};
use super::markdown::{Kind, Line, scan};
use super::{Kickoff, Scope};

/// Most bytes of a kickoff: it goes into prompts whole.
const LIMIT: usize = 1 << 20;
/// Level of a line such as `**Scope**`: every real heading ends it.
const PSEUDO_LEVEL: u8 = 7;

/// A part of a kickoff that mini-ork understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Section {
    Problem,
    DefinitionOfDone,
    Scope,
    OutOfScope,
    Verification,
    OpenQuestions,
}

impl Kickoff {
    /// Reads a kickoff; `file` is only named in errors.
    ///
    /// A section of which nothing could be understood is an error and not an absent one: a limit
    /// that somebody wrote down must not vanish.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, KickoffError> {
        let text = decode(bytes).map_err(|problem| problem.of(file))?;
        let lines = scan(text).map_err(|(line, problem)| problem.at(file, line))?;
        let document = Document::of(&lines);
        let title = document
            .title
            .ok_or_else(|| KickoffProblem::NoTitle.of(file))?;
        let in_file = |(line, problem): (u32, KickoffProblem)| problem.at(file, line);

        let scope = Scope::read(
            document.heading(Section::Scope),
            &document.items(Section::Scope),
            document.heading(Section::OutOfScope),
            &document.items(Section::OutOfScope),
        )
        .map_err(in_file)?;
        let verification = commands(&document.items(Section::Verification));
        if let (true, Some((line, heading)), Some(_)) = (
            verification.is_empty(),
            document.heading(Section::Verification),
            document.items(Section::Verification).first(),
        ) {
            return Err(KickoffProblem::NoCommand {
                section: heading.to_owned(),
            }
            .at(file, line));
        }
        let problem = match document.heading(Section::Problem) {
            Some(_) => prose(&document.lines(Section::Problem)),
            None => prose(&document.preamble),
        };
        Ok(Self {
            title: title.to_owned(),
            problem,
            definition_of_done: texts(document.items(Section::DefinitionOfDone)),
            scope,
            verification,
            open_questions: texts(document.items(Section::OpenQuestions)),
            answers: String::new(),
            text: text.to_owned(),
        })
    }
}

fn decode(bytes: &[u8]) -> Result<&str, KickoffProblem> {
    if bytes.len() > LIMIT {
        return Err(KickoffProblem::TooLarge {
            size: bytes.len(),
            limit: LIMIT,
        });
    }
    let text = std::str::from_utf8(bytes).map_err(|error| KickoffProblem::NotUtf8 {
        offset: error.valid_up_to(),
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.contains('\0') {
        return Err(KickoffProblem::NulByte);
    }
    if text.trim().is_empty() {
        return Err(KickoffProblem::Empty);
    }
    Ok(text)
}

/// The lines of a kickoff, sorted by the section that they belong to.
struct Document<'a> {
    title: Option<&'a str>,
    /// Lines in front of the first section, without the title.
    preamble: Vec<Line<'a>>,
    headings: Vec<(Section, u32, &'a str)>,
    body: Vec<(Section, Line<'a>)>,
}

impl<'a> Document<'a> {
    fn of(lines: &[Line<'a>]) -> Self {
        let mut document = Self {
            title: None,
            preamble: Vec::new(),
            headings: Vec::new(),
            body: Vec::new(),
        };
        let mut current: Option<(Section, u8)> = None;
        for &line in lines {
            let opened = match line.kind {
                Kind::Heading { level, title } => {
                    section_named(title).map(|name| (name, level, title))
                }
                Kind::Text => {
                    pseudo_heading(line.text).map(|(name, title)| (name, PSEUDO_LEVEL, title))
                }
                _ => None,
            };
            if let Some((section, level, title)) = opened {
                document.headings.push((section, line.number, title));
                current = Some((section, level));
                continue;
            }
            if let Kind::Heading { level, title } = line.kind {
                if level == 1 && document.title.is_none() && !title.is_empty() {
                    document.title = Some(title);
                    current = None;
                    continue;
                }
                // A deeper heading is part of the section, another one ends it.
                current = current.filter(|&(_, open)| level > open);
            }
            match current {
                Some((section, _)) => document.body.push((section, line)),
                None if document.headings.is_empty() => document.preamble.push(line),
                None => {}
            }
        }
        document
    }

    /// Line and text of the first heading of a section.
    fn heading(&self, section: Section) -> Option<(u32, &'a str)> {
        self.headings
            .iter()
            .find(|(name, ..)| *name == section)
            .map(|&(_, line, title)| (line, title))
    }

    fn lines(&self, section: Section) -> Vec<Line<'a>> {
        self.body
            .iter()
            .filter(|(name, _)| *name == section)
            .map(|&(_, line)| line)
            .collect()
    }

    fn items(&self, section: Section) -> Vec<Item> {
        items(&self.lines(section))
    }
}

/// The section that a heading names, if it names one.
pub(super) fn section_named(heading: &str) -> Option<Section> {
    let heading = heading.trim();
    let heading = heading
        .trim_end_matches('#')
        .trim_matches(['*', '_', ':', ' ', '\t']);
    let digits = heading.bytes().take_while(u8::is_ascii_digit).count();
    let heading = match heading[digits..].strip_prefix(['.', ')']) {
        Some(rest) if digits > 0 => rest,
        _ => heading,
    };
    let words: Vec<String> = heading.split_whitespace().map(str::to_lowercase).collect();
    Some(match words.join(" ").as_str() {
        "problem" => Section::Problem,
        "definition of done"
        | "success criteria"
        | "acceptance"
        | "acceptance criteria"
        | "done when" => Section::DefinitionOfDone,
        "scope" | "in scope" | "files in scope" => Section::Scope,
        "out of scope" | "forbidden" | "files out of scope" => Section::OutOfScope,
        "verification"
        | "verification command"
        | "verification commands"
        | "verification command(s)"
        | "verify" => Section::Verification,
        "open questions" | "questions" => Section::OpenQuestions,
        _ => return None,
    })
}

/// `Out of scope:` or `**Scope**` as a line of its own. Read as prose, the items below it would
/// count for the section above, which may say the opposite.
fn pseudo_heading(text: &str) -> Option<(Section, &str)> {
    let text = text.trim();
    let bold = ["**", "__"].iter().any(|mark| text.starts_with(mark));
    if !bold && !text.ends_with(':') {
        return None;
    }
    section_named(text).map(|section| (section, text))
}

/// Lines as they stand in the file, without what is hidden.
fn prose(lines: &[Line<'_>]) -> String {
    let shown: Vec<&str> = lines
        .iter()
        .filter(|line| line.kind != Kind::Hidden)
        .map(|line| line.text)
        .collect();
    shown.join("\n").trim().to_owned()
}

fn texts(items: Vec<Item>) -> Vec<String> {
    items.into_iter().map(|item| item.text).collect()
}

/// The shell commands in a section: the lines of its code blocks, and of each bullet its first code
/// span, else its text. A bullet that ends with a colon introduces something and is no command.
pub(super) fn commands(items: &[Item]) -> Vec<String> {
    let mut commands = Vec::new();
    for item in items {
        let spans = code_spans(&item.text);
        match &item.form {
            Form::Code(language) => {
                if matches!(
                    language.as_str(),
                    "" | "sh" | "bash" | "zsh" | "shell" | "console"
                ) {
                    commands.extend(shell_lines(&item.text));
                }
            }
            Form::Bullet => match spans.first() {
                Some((_, command)) => commands.push((*command).to_owned()),
                None if !item.text.ends_with(':') => commands.push(item.text.clone()),
                None => {}
            },
            Form::Paragraph => {
                for line in item.text.lines() {
                    if let [(range, command)] = code_spans(line).as_slice()
                        && range.len() == line.len()
                    {
                        commands.push((*command).to_owned());
                    }
                }
            }
        }
    }
    commands.retain(|command| !command.is_empty());
    commands
}

/// One command for each line; a backslash at the end joins the next one, as in a shell.
fn shell_lines(block: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut joined = String::new();
    for line in block.lines() {
        if joined.is_empty() {
            let line = line.trim_start();
            let line = line.strip_prefix("$ ").unwrap_or(line);
            if line.starts_with('#') {
                continue;
            }
            joined.push_str(line);
        } else {
            joined.push_str(line);
        }
        if joined.ends_with('\\') {
            joined.pop();
            continue;
        }
        commands.push(std::mem::take(&mut joined));
    }
    commands.push(joined);
    commands
        .iter()
        .map(|command| command.trim().to_owned())
        .collect()
}
