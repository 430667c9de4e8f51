use std::cell::RefCell;
use std::time::Duration;

use super::mistake::{self, Mistake, Mistakes, quote};
use super::scalar::{self, Scalar};
use super::suggest::{suggest, suggest_or_list};
use super::tree::{self, Content, Entry, Node};

/// Longest time limit that a file can set, in minutes: a week.
const MOST_MINUTES: f64 = 7.0 * 24.0 * 60.0;

/// A file that has been taken apart, and the mistakes found in it so far.
///
/// Accessors give `None` or an empty list for a wrong value and keep the mistake; a caller goes on
/// with a default and must end with [`Document::check`], which is what tells right from wrong.
#[derive(Debug)]
pub struct Document {
    file: String,
    root: Node,
    mistakes: RefCell<Vec<Mistake>>,
}

impl Document {
    /// Reads the text of the file that a person knows as `file`. Its top must be a map.
    pub fn parse(file: &str, bytes: &[u8]) -> Result<Self, Mistakes> {
        let root = tree::parse(file, bytes)?;
        if !matches!(root.content, Content::Map(_)) {
            return Err(Mistakes(vec![Mistake::new(
                file,
                root.line,
                "",
                "the file is not a map of keys",
                "write `key: value` lines",
            )]));
        }
        Ok(Self {
            file: file.to_owned(),
            root,
            mistakes: RefCell::default(),
        })
    }

    /// The map at the top of the file.
    pub fn root(&self) -> Map<'_> {
        let entries = match &self.root.content {
            Content::Map(entries) => entries.as_slice(),
            _ => &[],
        };
        Map::new(self, entries, self.root.line, String::new())
    }

    fn report(&self, line: u32, key: &str, problem: &str, remedy: &str) {
        let mistake = Mistake::new(&self.file, line, key, problem, remedy);
        mistake::push(&mut self.mistakes.borrow_mut(), mistake);
    }

    /// All mistakes so far, in the order in which they were found.
    pub fn into_mistakes(self) -> Vec<Mistake> {
        self.mistakes.into_inner()
    }

    /// `Ok` when the file has no mistake.
    pub fn check(self) -> Result<(), Mistakes> {
        Mistakes::check(self.into_mistakes())
    }
}

/// A map of a document. Knows which keys it has been asked for, so that [`Map::finish`] can report
/// the others.
#[derive(Debug)]
pub struct Map<'d> {
    document: &'d Document,
    entries: &'d [Entry],
    line: u32,
    path: String,
    known: RefCell<Vec<&'static str>>,
    refused: RefCell<Vec<&'static str>>,
}

impl<'d> Map<'d> {
    fn new(document: &'d Document, entries: &'d [Entry], line: u32, path: String) -> Self {
        let (known, refused) = (RefCell::default(), RefCell::default());
        Self {
            document,
            entries,
            line,
            path,
            known,
            refused,
        }
    }

    /// The value of a key that must be there; its absence is a mistake.
    pub fn required(&self, key: &'static str) -> Option<Value<'d>> {
        let value = self.optional(key);
        if value.is_none() {
            let (line, problem) = match self.find(key) {
                Some(entry) => (entry.line, "has no value"),
                None => (self.line, "is missing"),
            };
            let remedy = format!("write `{key}: …`");
            self.document
                .report(line, &tree::key_path(&self.path, key), problem, &remedy);
        }
        value
    }

    /// The value of a key that may be absent, empty or `null`.
    pub fn optional(&self, key: &'static str) -> Option<Value<'d>> {
        self.known.borrow_mut().push(key);
        let entry = self.find(key)?;
        let value = self.value(entry);
        (!value.is_null()).then_some(value)
    }

    /// A key of the format that mini-ork does not carry out: writing it is a mistake, since it
    /// would be ignored.
    pub fn not_carried_out(&self, key: &'static str, remedy: &str) {
        // Apart from the known keys, as it is no suggestion for a typing error.
        self.refused.borrow_mut().push(key);
        if let Some(entry) = self.find(key) {
            self.value(entry)
                .mistake("is not carried out by mini-ork", remedy);
        }
    }

    /// Every key with its value, for maps whose keys the file chooses; a value may be null.
    pub fn entries(&self) -> impl Iterator<Item = (&'d str, Value<'d>)> {
        self.entries
            .iter()
            .map(|entry| (entry.key.as_str(), self.value(entry)))
    }

    /// Reports every key that was not asked for.
    pub fn finish(self) {
        let (known, refused) = (self.known.borrow(), self.refused.borrow());
        for entry in self.entries {
            let key = entry.key.as_str();
            if !known.contains(&key) && !refused.contains(&key) {
                let path = tree::key_path(&self.path, key);
                let remedy = suggest_or_list(key, known.iter().copied());
                self.document
                    .report(entry.line, &path, "is not a known key", &remedy);
            }
        }
    }

    fn find(&self, key: &str) -> Option<&'d Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    fn value(&self, entry: &'d Entry) -> Value<'d> {
        Value {
            document: self.document,
            node: &entry.value,
            // Of `key:` with its value on later lines the line of the key is the one to look at.
            line: entry.line,
            path: tree::key_path(&self.path, &entry.key),
        }
    }
}

/// One value of a document, with its place.
#[derive(Debug, Clone)]
pub struct Value<'d> {
    document: &'d Document,
    node: &'d Node,
    line: u32,
    path: String,
}

impl<'d> Value<'d> {
    /// The line of the value's key, or of the value itself in a list; from 1.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// Keeps a mistake about this value.
    pub fn mistake(&self, problem: &str, remedy: &str) {
        self.document.report(self.line, &self.path, problem, remedy);
    }

    /// A text, which may be empty. A number, boolean or null is refused: which text was meant by
    /// `1.10` is not known once it has been read as a number.
    pub fn string(&self) -> Option<String> {
        match self.scalar() {
            Some(Scalar::Text(text)) => Some(text.to_owned()),
            found => {
                let remedy = if found.is_some() {
                    "put it in quotes"
                } else {
                    "write one text"
                };
                self.mistake(&format!("is {}, not a text", self.found()), remedy);
                None
            }
        }
    }

    /// A text that is not blank.
    pub fn filled_string(&self) -> Option<String> {
        let text = self.string()?;
        if text.trim().is_empty() {
            self.mistake("is blank", "write a text");
            return None;
        }
        Some(text)
    }

    /// A scalar exactly as it is written, for values where `1.0` and `true` are texts as well.
    pub fn text(&self) -> Option<String> {
        match &self.node.content {
            Content::Scalar { text, .. } if !self.is_null() => Some(text.clone()),
            _ => {
                self.mistake(
                    &format!("is {}, not a text", self.found()),
                    "write one text",
                );
                None
            }
        }
    }

    /// `true` or `false`.
    pub fn boolean(&self) -> Option<bool> {
        if let Some(Scalar::Boolean(value)) = self.scalar() {
            return Some(value);
        }
        self.mistake(
            &format!("is {}, not a boolean", self.found()),
            "write `true` or `false`",
        );
        None
    }

    /// A whole number from `least` to `most`.
    pub fn integer(&self, least: i64, most: i64) -> Option<i64> {
        let remedy = format!("write a whole number from {least} to {most}, without quotes");
        match self.scalar() {
            Some(Scalar::Integer(number)) if (least..=most).contains(&number) => Some(number),
            Some(Scalar::Integer(number)) => {
                self.mistake(&format!("is {number}, which is out of range"), &remedy);
                None
            }
            _ => {
                self.mistake(&format!("is {}, not a whole number", self.found()), &remedy);
                None
            }
        }
    }

    /// A number above zero and at most `most`.
    pub fn positive(&self, most: f64) -> Option<f64> {
        self.number(
            &format!("write a number above 0 and at most {most}, without quotes"),
            |number| number > 0.0 && number <= most,
        )
    }

    /// A number from zero to `most`.
    pub fn not_negative(&self, most: f64) -> Option<f64> {
        self.number(
            &format!("write a number from 0 to {most}, without quotes"),
            |number| (0.0..=most).contains(&number),
        )
    }

    /// A time given as a number of minutes: from one second to a week.
    pub fn minutes(&self) -> Option<Duration> {
        let remedy = "write a number of minutes, at least a second (0.02) and at most a week (10080), without unit or quotes";
        let minutes = self.number(remedy, |number| {
            number * 60.0 >= 1.0 && number <= MOST_MINUTES
        })?;
        Duration::try_from_secs_f64(minutes * 60.0).ok()
    }

    /// One of the given words. `refused` are words of the format that mini-ork does not carry out,
    /// each with its remedy.
    pub fn choice<T: Copy>(
        &self,
        options: &[(&'static str, T)],
        refused: &[(&str, &str)],
    ) -> Option<T> {
        let word = self.string()?;
        if let Some((_, option)) = options.iter().find(|(name, _)| *name == word) {
            return Some(*option);
        }
        if let Some((_, remedy)) = refused.iter().find(|(name, _)| *name == word) {
            let problem = format!("is `{word}`, which is not carried out by mini-ork");
            self.mistake(&problem, remedy);
            return None;
        }
        let names = options.iter().map(|(name, _)| *name);
        let remedy = match suggest(&word, names.clone()) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => {
                let list: Vec<String> = names.map(|name| format!("`{name}`")).collect();
                format!("use one of {}", list.join(", "))
            }
        };
        self.mistake(&format!("is {}, which is not known", quote(&word)), &remedy);
        None
    }

    /// The items of a list; a mistake and nothing when it is none.
    pub fn list(&self) -> Vec<Self> {
        let Content::List(items) = &self.node.content else {
            self.mistake(
                &format!("is {}, not a list", self.found()),
                "write a list: `[…]`",
            );
            return Vec::new();
        };
        let item = |(index, node): (usize, &'d Node)| Self {
            document: self.document,
            node,
            line: node.line,
            path: tree::item_path(&self.path, index),
        };
        items.iter().enumerate().map(item).collect()
    }

    /// Whether a list stands there.
    pub fn is_list(&self) -> bool {
        matches!(self.node.content, Content::List(_))
    }

    /// A list of texts that are not blank.
    pub fn strings(&self) -> Vec<String> {
        self.list().iter().filter_map(Self::filled_string).collect()
    }

    /// The value as a map.
    pub fn map(&self) -> Option<Map<'d>> {
        let Content::Map(entries) = &self.node.content else {
            let remedy = "write `key: value` lines below it";
            self.mistake(&format!("is {}, not a map", self.found()), remedy);
            return None;
        };
        Some(Map::new(
            self.document,
            entries,
            self.line,
            self.path.clone(),
        ))
    }

    /// Whether nothing, `~` or `null` stands there.
    pub fn is_null(&self) -> bool {
        self.scalar() == Some(Scalar::Null)
    }

    fn number(&self, remedy: &str, fits: impl Fn(f64) -> bool) -> Option<f64> {
        let number = match self.scalar() {
            Some(Scalar::Integer(number)) => number as f64,
            Some(Scalar::Float(number)) => number,
            _ => {
                self.mistake(&format!("is {}, not a number", self.found()), remedy);
                return None;
            }
        };
        if fits(number) {
            return Some(number);
        }
        self.mistake(
            &format!("is {}, which is out of range", self.found()),
            remedy,
        );
        None
    }

    fn scalar(&self) -> Option<Scalar<'d>> {
        match &self.node.content {
            Content::Scalar { text, plain } => Some(scalar::resolve(text, *plain)),
            _ => None,
        }
    }

    /// What stands there, for a sentence.
    fn found(&self) -> String {
        match &self.node.content {
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a map".to_owned(),
            Content::Scalar { text, plain } => match scalar::resolve(text, *plain) {
                Scalar::Null => "empty".to_owned(),
                Scalar::Boolean(_) => format!("the boolean {}", quote(text)),
                Scalar::Integer(_) | Scalar::Float(_) => format!("the number {}", quote(text)),
                Scalar::Text(text) => format!("the text {}", quote(text)),
            },
        }
    }
}
