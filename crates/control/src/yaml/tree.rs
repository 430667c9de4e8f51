use std::collections::HashSet;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::mistake::{self, Mistake, Mistakes, quote};

/// Largest file in bytes. The files are written by hand; the bound keeps a hostile one from
/// costing more than a moment.
const LARGEST_FILE: usize = 1024 * 1024;
const DEEPEST_NESTING: usize = 64;
const MOST_VALUES: usize = 50_000;

/// A value with the line on which it starts.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) content: Content,
}

#[derive(Debug)]
pub(super) enum Content {
    Scalar {
        text: String,
        /// Not quoted and not a block: only such a text can be a number or a boolean.
        plain: bool,
    },
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map. Keys are distinct; [`parse`] has refused the file otherwise.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) line: u32,
    pub(super) value: Node,
}

/// Takes a file apart. A file that is refused for one thing is read on where that is possible, so
/// the error holds all duplicate keys, anchors and tags; a broken syntax ends it.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Node, Mistakes> {
    let one = |line, problem: &str, remedy: &str| {
        Mistakes(vec![Mistake::new(file, line, "", problem, remedy)])
    };
    if bytes.len() > LARGEST_FILE {
        return Err(one(1, "the file is larger than 1 MiB", "make it smaller"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = line_at(bytes, error.valid_up_to());
        one(line, "the text is not UTF-8", "save the file as UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // The parser takes a NUL for the end of the file, so what follows one would be lost silently.
    let is_forbidden = |character: char| {
        character.is_control() && !matches!(character, '\t' | '\n' | '\r' | '\u{85}')
    };
    if let Some(position) = text.find(is_forbidden) {
        let line = line_at(text.as_bytes(), position);
        return Err(one(
            line,
            "there is a control character",
            "remove it or write it as an escape",
        ));
    }

    let mut builder = Builder::new(file);
    for event in Parser::new_from_str(text) {
        let outcome = match event {
            Ok((event, span)) => builder.take(event, span),
            Err(error) => {
                let marker = error.marker();
                let problem = format!(
                    "is not YAML at column {}: {}",
                    marker.col() + 1,
                    error.info()
                );
                Err(Mistake::new(
                    file,
                    line_number(marker.line()),
                    &builder.path(),
                    problem.as_str(),
                    "correct the syntax",
                ))
            }
        };
        if let Err(fatal) = outcome {
            mistake::push(&mut builder.mistakes, fatal);
            break;
        }
    }
    Mistakes::check(builder.mistakes)?;
    builder
        .root
        .ok_or_else(|| one(1, "the file is empty", "write its keys, or remove it"))
}

enum Frame {
    List {
        line: u32,
        items: Vec<Node>,
    },
    Map {
        line: u32,
        entries: Vec<Entry>,
        names: HashSet<String>,
        key: Option<(String, u32)>,
    },
}

struct Builder<'f> {
    file: &'f str,
    frames: Vec<Frame>,
    values: usize,
    documents: usize,
    root: Option<Node>,
    mistakes: Vec<Mistake>,
}

impl<'f> Builder<'f> {
    fn new(file: &'f str) -> Self {
        Self {
            file,
            frames: Vec::new(),
            values: 0,
            documents: 0,
            root: None,
            mistakes: Vec::new(),
        }
    }

    /// Fails only when reading on makes no sense.
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), Mistake> {
        let line = line_number(span.start.line());
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.mistake(
                        line,
                        "a second document starts here",
                        "keep one document in a file, without `---` inside",
                    ));
                }
            }
            Event::Alias(_) => {
                self.refuse(
                    line,
                    "an alias (`*`) stands here",
                    "write the value out; quote a text that starts with `*`",
                );
                self.value(Node {
                    line,
                    content: empty(),
                })?;
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.properties(line, anchor, tag.is_some());
                let plain = style == ScalarStyle::Plain;
                if self.awaits_key() {
                    return self.key(line, text.into_owned(), plain);
                }
                let content = Content::Scalar {
                    text: text.into_owned(),
                    plain,
                };
                self.value(Node { line, content })?;
            }
            Event::SequenceStart(anchor, tag) => {
                self.properties(line, anchor, tag.is_some());
                self.open(
                    line,
                    Frame::List {
                        line,
                        items: Vec::new(),
                    },
                )?;
            }
            Event::MappingStart(anchor, tag) => {
                self.properties(line, anchor, tag.is_some());
                let names = HashSet::new();
                self.open(
                    line,
                    Frame::Map {
                        line,
                        entries: Vec::new(),
                        names,
                        key: None,
                    },
                )?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(frame) = self.frames.pop() {
                    let node = match frame {
                        Frame::List { line, items } => Node {
                            line,
                            content: Content::List(items),
                        },
                        Frame::Map { line, entries, .. } => Node {
                            line,
                            content: Content::Map(entries),
                        },
                    };
                    self.value(node)?;
                }
            }
        }
        Ok(())
    }

    fn open(&mut self, line: u32, frame: Frame) -> Result<(), Mistake> {
        if self.awaits_key() {
            return Err(self.mistake(
                line,
                "a key is a list or a map",
                "use a plain word as the key",
            ));
        }
        if self.frames.len() == DEEPEST_NESTING {
            return Err(self.mistake(line, "is nested deeper than 64 levels", "make it flatter"));
        }
        self.frames.push(frame);
        Ok(())
    }

    fn key(&mut self, line: u32, text: String, plain: bool) -> Result<(), Mistake> {
        if plain && text == "<<" {
            self.refuse(line, "a merge key (`<<`) stands here", "write the keys out");
        } else if plain && text.is_empty() {
            self.refuse(line, "a key is missing before the `:`", "write the key");
        }
        let mut repeated = false;
        if let Some(Frame::Map { names, key, .. }) = self.frames.last_mut() {
            repeated = !names.insert(text.clone());
            *key = Some((text, line));
        }
        if repeated {
            self.refuse(line, "the key stands twice in this map", "keep one of them");
        }
        Ok(())
    }

    fn value(&mut self, node: Node) -> Result<(), Mistake> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(self.mistake(
                node.line,
                "the file has more than 50000 values",
                "make it smaller",
            ));
        }
        match self.frames.last_mut() {
            None => self.root = Some(node),
            Some(Frame::List { items, .. }) => items.push(node),
            Some(Frame::Map { entries, key, .. }) => match key.take() {
                Some((key, line)) => entries.push(Entry {
                    key,
                    line,
                    value: node,
                }),
                // An alias as a key: it has been refused already, its value is still to come.
                None => *key = Some((String::new(), node.line)),
            },
        }
        Ok(())
    }

    fn properties(&mut self, line: u32, anchor: usize, tagged: bool) {
        if anchor != 0 {
            self.refuse(
                line,
                "an anchor (`&`) stands here",
                "write the value out where it is used; quote a text that starts with `&`",
            );
        }
        if tagged {
            self.refuse(
                line,
                "a tag (`!`) stands here",
                "remove it; quote a text that starts with `!`",
            );
        }
    }

    fn awaits_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Map { key: None, .. }))
    }

    fn refuse(&mut self, line: u32, problem: &str, remedy: &str) {
        let mistake = self.mistake(line, problem, remedy);
        mistake::push(&mut self.mistakes, mistake);
    }

    fn mistake(&self, line: u32, problem: &str, remedy: &str) -> Mistake {
        Mistake::new(self.file, line, &self.path(), problem, remedy)
    }

    /// The dotted path of the value that is being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match frame {
                Frame::List { items, .. } => path = item_path(&path, items.len()),
                Frame::Map {
                    key: Some((key, _)),
                    ..
                } => path = key_path(&path, key),
                Frame::Map { key: None, .. } => {}
            }
        }
        path
    }
}

/// The path of a key of the map at `path`.
pub(super) fn key_path(path: &str, key: &str) -> String {
    let plain = key
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    let key = if plain && !key.is_empty() {
        key.to_owned()
    } else {
        quote(key)
    };
    if path.is_empty() {
        key
    } else {
        format!("{path}.{key}")
    }
}

/// The path of an item of the list at `path`; items count from 0.
pub(super) fn item_path(path: &str, index: usize) -> String {
    format!("{path}[{index}]")
}

fn empty() -> Content {
    Content::Scalar {
        text: String::new(),
        plain: true,
    }
}

fn line_number(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX).max(1)
}

fn line_at(bytes: &[u8], position: usize) -> u32 {
    let breaks = bytes
        .iter()
        .take(position)
        .filter(|byte| **byte == b'\n')
        .count();
    line_number(breaks + 1)
}
