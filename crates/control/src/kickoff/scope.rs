use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use bstr::{BStr, BString, ByteSlice};
use globset::{GlobBuilder, GlobMatcher};

use super::error::KickoffProblem;
use super::items::{Form, Item, code_spans};

/// Most entries of a scope: two globs are compiled for each.
const LONGEST_SCOPE: usize = 500;

/// Which paths a run may change.
///
/// With paths in scope, a changed path must match one of them; a path out of scope must not be
/// changed in any case. A path covers itself and everything below it. In a glob `*` and `?` stay
/// within one component, `**` does not.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    allow: Vec<Pattern>,
    deny: Vec<Pattern>,
}

/// A changed path that the scope does not permit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The changed path, relative to the top of the repository.
    pub path: BString,
    /// Which rule it breaks.
    pub breach: Breach,
    /// Line of the rule in the kickoff, from 1; of the first path in scope when none matches.
    pub line: u32,
}

/// How a path breaks a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breach {
    /// Matches this path that is out of scope.
    Forbidden(String),
    /// Matches none of the paths in scope.
    OutOfScope,
}

#[derive(Debug, Clone)]
struct Pattern {
    /// As the kickoff has it.
    text: String,
    line: u32,
    /// Without `.` components and slashes at its ends; empty for the whole repository.
    literal: String,
    /// Written with a slash at its end: covers what is below it, but no file of that name.
    directory: bool,
    globs: Vec<GlobMatcher>,
}

impl Scope {
    /// Checks every path of `changed`; the result is in the same order, one for each path at most.
    ///
    /// A path that is not UTF-8 matches no path in scope.
    pub fn violations<P: AsRef<[u8]>>(&self, changed: &[P]) -> Vec<Violation> {
        changed
            .iter()
            .filter_map(|path| self.violation(path.as_ref()))
            .collect()
    }

    /// Whether any path is in scope explicitly, so that all others are not.
    pub fn is_limited(&self) -> bool {
        !self.allow.is_empty()
    }

    fn violation(&self, path: &[u8]) -> Option<Violation> {
        let violation = |breach, line| {
            Some(Violation {
                path: BString::from(path),
                breach,
                line,
            })
        };
        if let Some(rule) = self.deny.iter().find(|rule| rule.covers(path)) {
            return violation(Breach::Forbidden(rule.text.clone()), rule.line);
        }
        let first = self.allow.first()?;
        let permitted = path.to_str().is_ok() && self.allow.iter().any(|rule| rule.covers(path));
        if permitted {
            None
        } else {
            violation(Breach::OutOfScope, first.line)
        }
    }

    /// Takes over what `other` allows.
    pub(super) fn limit_to(&mut self, other: Self) {
        self.allow = other.allow;
    }

    /// Reads the two sections; a section comes with the line and the text of its heading.
    pub(super) fn read(
        allow_heading: Option<(u32, &str)>,
        allow: &[Item],
        deny_heading: Option<(u32, &str)>,
        deny: &[Item],
    ) -> Result<Self, (u32, KickoffProblem)> {
        let scope = Self {
            allow: patterns(allow_heading, allow, Side::Allow)?,
            deny: patterns(deny_heading, deny, Side::Deny)?,
        };
        Ok(scope)
    }
}

impl fmt::Display for Scope {
    /// Markdown for people and prompts; empty for a scope without limits.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (title, rules) in [
            ("May be changed:", &self.allow),
            ("Must not be changed:", &self.deny),
        ] {
            if !rules.is_empty() {
                writeln!(formatter, "{title}")?;
            }
            for rule in rules {
                writeln!(formatter, "- `{}`", rule.text)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path: &BStr = self.path.as_bstr();
        match &self.breach {
            Breach::Forbidden(rule) => {
                write!(
                    formatter,
                    "`{path}` is out of scope by `{rule}` (kickoff line {})",
                    self.line
                )
            }
            Breach::OutOfScope => {
                write!(
                    formatter,
                    "`{path}` is not in scope (kickoff line {})",
                    self.line
                )
            }
        }
    }
}

impl Pattern {
    fn compile(text: &str, line: u32) -> Result<Self, KickoffProblem> {
        let bad = |reason: &str| KickoffProblem::BadPattern {
            path: text.to_owned(),
            reason: reason.to_owned(),
        };
        if text.contains('\\') {
            return Err(bad("write `/` between the parts of a path"));
        }
        if text.starts_with(['/', '~']) || text.split('/').any(|part| part == "..") {
            return Err(KickoffProblem::OutsideRepository {
                path: text.to_owned(),
            });
        }
        let parts: Vec<&str> = text
            .split('/')
            .filter(|part| !part.is_empty() && *part != ".")
            .collect();
        let literal = parts.join("/");
        let directory = text.ends_with('/');
        let mut globs = Vec::new();
        if literal.contains(['*', '?', '[', '{']) {
            let below = format!("{literal}/**");
            let wanted = if directory {
                vec![&below]
            } else {
                vec![&literal, &below]
            };
            for glob in wanted {
                match GlobBuilder::new(glob)
                    .literal_separator(true)
                    .backslash_escape(false)
                    .build()
                {
                    Ok(glob) => globs.push(glob.compile_matcher()),
                    // `app/[id` can still be the literal name of a file.
                    Err(_) if !literal.contains(['*', '?', '{']) => {}
                    Err(error) => return Err(bad(&error.kind().to_string())),
                }
            }
        }
        Ok(Self {
            text: text.to_owned(),
            line,
            literal,
            directory,
            globs,
        })
    }

    fn covers(&self, path: &[u8]) -> bool {
        if self.literal.is_empty() {
            return true;
        }
        // Brackets are also taken literally: `app/[id]/page.tsx` is the name of a file.
        let literal = match path.strip_prefix(self.literal.as_bytes()) {
            Some([]) => !self.directory,
            Some(rest) => rest.starts_with(b"/"),
            None => false,
        };
        literal
            || self
                .globs
                .iter()
                .any(|glob| glob.is_match(OsStr::from_bytes(path)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Allow,
    Deny,
}

fn patterns(
    heading: Option<(u32, &str)>,
    items: &[Item],
    side: Side,
) -> Result<Vec<Pattern>, (u32, KickoffProblem)> {
    let Some((heading_line, section)) = heading else {
        return Ok(Vec::new());
    };
    let mut patterns = Vec::new();
    let mut says_nothing = false;
    for item in items {
        for (offset, text) in (0..).zip(item.text.lines()) {
            let line = item.line.saturating_add(offset);
            let at_line = |problem| (line, problem);
            says_nothing |= is_nothing(text);
            let paths = match &item.form {
                _ if is_nothing(text) => Vec::new(),
                Form::Code(_) => vec![text.trim().to_owned()],
                Form::Bullet => item_paths(text, side).map_err(at_line)?,
                Form::Paragraph => whole_line_path(text).into_iter().collect(),
            };
            for path in paths.iter().filter(|path| !path.is_empty()) {
                if patterns.len() == LONGEST_SCOPE {
                    return Err(at_line(KickoffProblem::TooManyPaths {
                        limit: LONGEST_SCOPE,
                    }));
                }
                patterns.push(Pattern::compile(path, line).map_err(at_line)?);
            }
        }
    }
    if patterns.is_empty() && !(side == Side::Deny && says_nothing) {
        return Err((
            heading_line,
            KickoffProblem::NoPath {
                section: section.to_owned(),
            },
        ));
    }
    Ok(patterns)
}

/// "Out of scope: none" is a complete sentence.
fn is_nothing(text: &str) -> bool {
    let word = text.trim_matches(|character: char| !character.is_ascii_alphanumeric());
    ["none", "nothing", "n/a"]
        .iter()
        .any(|nothing| word.eq_ignore_ascii_case(nothing))
}

/// The paths that an item names: those it begins with; out of scope also every code span behind,
/// since there one path too many only narrows the limit.
fn item_paths(text: &str, side: Side) -> Result<Vec<String>, KickoffProblem> {
    let (mut paths, rest) = leading_paths(text);
    let spans = code_spans(rest);
    let mentions_path = !spans.is_empty() || rest.contains('/');
    let mut words = rest.split(|character: char| !character.is_alphanumeric());
    let excludes = words.any(|word| {
        let word = word.to_lowercase();
        let always = [
            "except",
            "excepting",
            "excluding",
            "unless",
            "besides",
            "but",
        ];
        always.contains(&word.as_str())
            || (side == Side::Allow && ["not", "without", "never"].contains(&word.as_str()))
    });
    let reads_as_path = !paths.is_empty() || side == Side::Deny;
    if reads_as_path && mentions_path && excludes {
        return Err(KickoffProblem::Exception {
            item: text.to_owned(),
        });
    }
    if side == Side::Deny {
        let named = spans
            .iter()
            .map(|(_, span)| *span)
            .filter(|span| is_path(span));
        paths.extend(named.map(str::to_owned));
    }
    Ok(paths)
}

/// Paths at the start of `text`, separated by commas or "and", and what follows them.
fn leading_paths(text: &str) -> (Vec<String>, &str) {
    let mut paths = Vec::new();
    let mut rest = text.trim();
    let alone = !rest.contains(char::is_whitespace);
    loop {
        let (path, behind) = match code_spans(rest).first() {
            Some((range, span)) if range.start == 0 && is_path(span) => (*span, &rest[range.end..]),
            _ => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                let token = rest[..end].trim_end_matches([',', ';', ':']);
                let bare = is_path(token) && (alone || is_plainly_path(token));
                if !bare || token.contains('`') {
                    return (paths, rest);
                }
                (token, &rest[token.len()..])
            }
        };
        paths.push(path.to_owned());
        let behind = behind.trim_start();
        let next = behind.trim_start_matches([',', ';']).trim_start();
        let next = ["and ", "or ", "& "]
            .iter()
            .find_map(|word| next.strip_prefix(word))
            .unwrap_or(next);
        if next.len() == behind.len() || next.is_empty() {
            return (paths, behind);
        }
        rest = next.trim_start();
    }
}

fn whole_line_path(text: &str) -> Option<String> {
    let (paths, rest) = leading_paths(text);
    match paths.as_slice() {
        [path] if rest.is_empty() => Some(path.clone()),
        _ => None,
    }
}

/// Whether text that stands for itself can be meant as a path.
fn is_path(text: &str) -> bool {
    let has_separator = text.contains(['/', '.']);
    let is_code =
        text.contains("::") || text.contains(|character: char| "()<>|;$\"'`=".contains(character));
    !text.is_empty() && !is_code && (has_separator || !text.contains(char::is_whitespace))
}

/// Whether a word among other words must be meant as a path.
fn is_plainly_path(word: &str) -> bool {
    let has_extension = word.rsplit_once('.').is_some_and(|(_, extension)| {
        !extension.is_empty() && extension.bytes().all(|byte| byte.is_ascii_alphanumeric())
    });
    word.contains(['/', '*']) || has_extension
}
