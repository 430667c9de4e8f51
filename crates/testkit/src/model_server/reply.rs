use std::time::Duration;

use bytes::Bytes;

use super::dialect::{Dialect, Tokens};
use super::ledger::Ending;
use super::request::ModelRequest;
use super::tools::{Called, call_of};
use super::trouble::Trouble;
use super::turn::{Delivery, Fault, Kind, Says, Stop, Turn};
use super::{chat, messages, responses};

/// What goes out, piece by piece.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) wait: Duration,
    /// Status and headers; none when the connection is closed without an answer.
    pub(super) head: Option<(u16, Vec<(String, String)>)>,
    pub(super) steps: Vec<Step>,
}

#[derive(Debug)]
pub(super) enum Step {
    /// Bytes, and what a reader has been told of the cost once it has them.
    Send(Bytes, Option<Tokens>),
    Pause(Duration),
    /// Nothing comes any more.
    Stall,
    /// The connection breaks.
    Break,
    /// The answer is over, in this way.
    End(Ending),
}

/// An answer of the model in the words of all dialects.
#[derive(Debug)]
pub(super) struct Answer<'a> {
    /// Makes its ids different from those of other answers.
    pub(super) number: usize,
    pub(super) model: &'a str,
    pub(super) blocks: Vec<Block>,
    pub(super) stop: Option<Stop>,
    pub(super) tokens: Tokens,
    pub(super) piece: usize,
    /// Whether a stream of chat completions tells its cost.
    pub(super) include_usage: bool,
}

#[derive(Debug)]
pub(super) enum Block {
    Thinking(String),
    Text(String),
    Call { id: String, call: Called },
}

/// An event of a stream, or a whole plain answer.
#[derive(Debug)]
pub(super) struct Event {
    pub(super) bytes: Vec<u8>,
    pub(super) told: Option<Tokens>,
}

impl Reply {
    /// An answer outside the APIs.
    pub(super) fn plain(status: u16, body: impl Into<Vec<u8>>) -> Self {
        raw(status, body.into(), &Delivery::default())
    }
}

impl Answer<'_> {
    pub(super) fn calls(&self) -> impl Iterator<Item = (&str, &Called)> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call { id, call } => Some((id.as_str(), call)),
            _ => None,
        })
    }

    pub(super) fn text(&self) -> Option<String> {
        let texts: Vec<&str> = self
            .blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        (!texts.is_empty()).then(|| texts.concat())
    }

    /// `text` in the pieces of a stream.
    pub(super) fn pieces(&self, text: &str) -> Vec<String> {
        let characters: Vec<char> = text.chars().collect();
        characters
            .chunks(self.piece)
            .map(|piece| piece.iter().collect())
            .collect()
    }
}

/// What `turn` makes of `request`.
pub(super) fn reply(turn: Turn, request: &ModelRequest) -> Reply {
    let Turn {
        kind,
        headers,
        delivery,
    } = turn;
    let mut reply = match kind {
        Kind::Answer(says) => answered(&says, request, &delivery),
        Kind::Trouble(trouble) => refused(&trouble, request.dialect),
        Kind::Raw(status, body) => raw(status, body, &delivery),
        Kind::Close => Reply {
            wait: Duration::ZERO,
            head: None,
            steps: Vec::new(),
        },
    };
    if let Some((_, all)) = &mut reply.head {
        for (name, value) in headers {
            all.retain(|(other, _)| *other != name);
            all.push((name, value));
        }
    }
    reply.wait = delivery.wait;
    reply
}

/// An error in the vendor's form.
pub(super) fn refused(trouble: &Trouble, dialect: Dialect) -> Reply {
    let (status, body) = trouble.answer(dialect);
    let mut reply = raw(status, body.to_string().into_bytes(), &Delivery::default());
    if let Some((_, headers)) = &mut reply.head {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    reply
}

fn raw(status: u16, body: Vec<u8>, delivery: &Delivery) -> Reply {
    let events = vec![Event {
        bytes: body,
        told: None,
    }];
    plain(status, Vec::new(), events, delivery)
}

fn answered(says: &Says, request: &ModelRequest, delivery: &Delivery) -> Reply {
    let answer = answer(says, request);
    let (id_header, id) = match request.dialect {
        Dialect::Messages => ("request-id", format!("req_{:08}", request.number)),
        Dialect::Chat | Dialect::Responses => ("x-request-id", format!("req{:08}", request.number)),
    };
    let mut headers = vec![(id_header.to_owned(), id)];
    let mut header = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
    if request.is_streamed() {
        header("content-type", "text/event-stream; charset=utf-8");
        header("cache-control", "no-cache");
        let events = match request.dialect {
            Dialect::Messages => messages::events(&answer),
            Dialect::Chat => chat::events(&answer),
            Dialect::Responses => responses::events(&answer),
        };
        let steps = steps(events, delivery, request.dialect, false);
        let head = Some((200, headers));
        let wait = Duration::ZERO;
        return Reply { wait, head, steps };
    }
    header("content-type", "application/json");
    let body = match request.dialect {
        Dialect::Messages => messages::plain(&answer),
        Dialect::Chat => chat::plain(&answer),
        Dialect::Responses => responses::plain(&answer),
    };
    let events = vec![Event {
        bytes: body.to_string().into_bytes(),
        told: Some(answer.tokens),
    }];
    plain(200, headers, events, delivery)
}

/// An answer of known length.
fn plain(
    status: u16,
    mut headers: Vec<(String, String)>,
    events: Vec<Event>,
    delivery: &Delivery,
) -> Reply {
    let length: usize = events.iter().map(|event| event.bytes.len()).sum();
    headers.push(("content-length".to_owned(), length.to_string()));
    Reply {
        wait: Duration::ZERO,
        head: Some((status, headers)),
        steps: steps(events, delivery, Dialect::Messages, true),
    }
}

fn answer<'a>(says: &Says, request: &'a ModelRequest) -> Answer<'a> {
    let mut blocks = Vec::new();
    blocks.extend(says.thinking.clone().map(Block::Thinking));
    blocks.extend(says.text.clone().map(Block::Text));
    for (at, act) in says.acts.iter().enumerate() {
        let number = request.number;
        let id = match request.dialect {
            Dialect::Messages => format!("toolu_{number:08}x{at:02}"),
            Dialect::Chat | Dialect::Responses => format!("call_{number:08}x{at:02}"),
        };
        let call = call_of(act, &request.offered);
        blocks.push(Block::Call { id, call });
    }
    Answer {
        number: request.number,
        model: request.model(),
        blocks,
        stop: says.stop,
        tokens: says.tokens.as_told_by(request.dialect),
        piece: says.piece,
        include_usage: request.body["stream_options"]["include_usage"] == true,
    }
}

/// Events as they go out. A plain answer is one event, which a fault of whatever kind hits in the
/// middle.
fn steps(
    mut events: Vec<Event>,
    delivery: &Delivery,
    dialect: Dialect,
    is_plain: bool,
) -> Vec<Step> {
    let mut last = vec![Step::End(Ending::Complete)];
    if let Some((count, fault)) = &delivery.fault {
        let (count, inside) = match fault {
            _ if is_plain => (0, true),
            Fault::CutInside => (*count, true),
            _ => (*count, false),
        };
        let half = events.get_mut(count).filter(|_| inside).map(|event| Event {
            bytes: event.bytes[..event.bytes.len() / 2].to_vec(),
            told: None,
        });
        events.truncate(count);
        events.extend(half);
        last = match fault {
            Fault::Stall => vec![Step::Stall],
            Fault::Trouble(trouble) if !is_plain => vec![
                Step::Send(Bytes::from(trouble.event(dialect)), None),
                Step::End(Ending::Cut),
            ],
            Fault::End if !is_plain => vec![Step::End(Ending::Cut)],
            _ => vec![Step::Break],
        };
    }
    let mut steps = Vec::new();
    for event in events {
        drop_by_drop(event, delivery.drip, &mut steps);
    }
    steps.extend(last);
    steps
}

fn drop_by_drop(event: Event, drip: Option<(Duration, usize)>, steps: &mut Vec<Step>) {
    let bytes = Bytes::from(event.bytes);
    let Some((pause, size)) = drip else {
        steps.push(Step::Send(bytes, event.told));
        return;
    };
    let mut at = 0;
    while at < bytes.len() {
        let end = bytes.len().min(at + size);
        let told = event.told.filter(|_| end == bytes.len());
        steps.push(Step::Send(bytes.slice(at..end), told));
        steps.push(Step::Pause(pause));
        at = end;
    }
}
