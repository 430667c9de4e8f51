use std::time::Duration;

use super::dialect::Tokens;
use super::tools::Act;
use super::trouble::Trouble;

/// What the server does with one request: an answer of the model or a failure, and how it is
/// delivered.
#[derive(Debug, Clone)]
pub struct Turn {
    pub(super) kind: Kind,
    pub(super) headers: Vec<(String, String)>,
    pub(super) delivery: Delivery,
}

#[derive(Debug, Clone)]
pub(super) enum Kind {
    Answer(Says),
    Trouble(Trouble),
    /// Status and body, whatever the API.
    Raw(u16, Vec<u8>),
    /// The connection is closed without an answer.
    Close,
}

/// What the model says.
#[derive(Debug, Clone)]
pub(super) struct Says {
    pub(super) thinking: Option<String>,
    pub(super) text: Option<String>,
    pub(super) acts: Vec<Act>,
    pub(super) stop: Option<Stop>,
    pub(super) tokens: Tokens,
    /// Characters in each piece of a stream.
    pub(super) piece: usize,
}

/// Why the model stops, other than that it has finished or calls a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It may not write more tokens.
    Length,
    /// It does not answer for reasons of safety.
    Refusal,
}

/// How an answer goes out.
#[derive(Debug, Clone, Default)]
pub(super) struct Delivery {
    /// Before the status line.
    pub(super) wait: Duration,
    /// Pause and bytes of each drop.
    pub(super) drip: Option<(Duration, usize)>,
    /// After so many events.
    pub(super) fault: Option<(usize, Fault)>,
}

#[derive(Debug, Clone)]
pub(super) enum Fault {
    Cut,
    CutInside,
    End,
    Stall,
    Trouble(Trouble),
}

impl Turn {
    /// The model says `text` and is done.
    pub fn text(text: impl Into<String>) -> Self {
        Self::says(Some(text.into()), Vec::new())
    }

    /// The model calls tools, all at once.
    pub fn acts(acts: impl IntoIterator<Item = Act>) -> Self {
        Self::says(None, acts.into_iter().collect())
    }

    /// The model runs a command of the shell.
    pub fn run(command: impl Into<String>) -> Self {
        Self::acts([Act::Run(command.into())])
    }

    /// The vendor or its network fails.
    pub fn trouble(trouble: Trouble) -> Self {
        Self::of(Kind::Trouble(trouble))
    }

    /// Any answer: `content-type` and the like with [`Self::header`].
    pub fn raw(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::of(Kind::Raw(status, body.into()))
    }

    /// A page for people, with status 200, as a captive portal sends it.
    pub fn html() -> Self {
        Self::raw(200, "<!DOCTYPE html><html><body>Sign in</body></html>\n")
            .header("content-type", "text/html; charset=utf-8")
    }

    /// A redirect to `url`.
    pub fn redirect(url: impl Into<String>) -> Self {
        Self::raw(307, "").header("location", url)
    }

    /// The connection is closed before the first byte.
    pub fn close() -> Self {
        Self::of(Kind::Close)
    }

    /// With text before the tools.
    #[must_use]
    pub fn saying(self, text: impl Into<String>) -> Self {
        self.change(|says| says.text = Some(text.into()))
    }

    /// With thoughts before everything else.
    #[must_use]
    pub fn thinking(self, text: impl Into<String>) -> Self {
        self.change(|says| says.thinking = Some(text.into()))
    }

    /// With exactly this cost. An answer costs 100 tokens in and 20 out otherwise.
    #[must_use]
    pub fn tokens(self, tokens: Tokens) -> Self {
        self.change(|says| says.tokens = tokens)
    }

    /// Ended by the vendor.
    #[must_use]
    pub fn stopped(self, stop: Stop) -> Self {
        self.change(|says| says.stop = Some(stop))
    }

    /// With so many characters in each piece of a stream; 16 otherwise.
    #[must_use]
    pub fn pieces(self, characters: usize) -> Self {
        self.change(|says| says.piece = characters.max(1))
    }

    /// With another header, such as `retry-after`.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    /// Nothing goes out before `wait` has passed.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.delivery.wait = wait;
        self
    }

    /// The answer goes out in drops of `bytes`, with a pause after each.
    #[must_use]
    pub fn dripping(mut self, pause: Duration, bytes: usize) -> Self {
        self.delivery.drip = Some((pause, bytes.max(1)));
        self
    }

    /// The connection breaks after `events` events of a stream, or within a plain answer.
    #[must_use]
    pub fn cut_after(self, events: usize) -> Self {
        self.fault(events, Fault::Cut)
    }

    /// The connection breaks in the middle of the event after `events` whole ones.
    #[must_use]
    pub fn cut_inside(self, events: usize) -> Self {
        self.fault(events, Fault::CutInside)
    }

    /// The stream ends after `events` events as if that were all: no error of the connection.
    #[must_use]
    pub fn ends_after(self, events: usize) -> Self {
        self.fault(events, Fault::End)
    }

    /// Nothing comes any more after `events` events, and the connection stays open.
    #[must_use]
    pub fn stall_after(self, events: usize) -> Self {
        self.fault(events, Fault::Stall)
    }

    /// The stream ends after `events` events with an error event.
    #[must_use]
    pub fn trouble_after(self, events: usize, trouble: Trouble) -> Self {
        self.fault(events, Fault::Trouble(trouble))
    }

    fn says(text: Option<String>, acts: Vec<Act>) -> Self {
        Self::of(Kind::Answer(Says {
            thinking: None,
            text,
            acts,
            stop: None,
            tokens: Tokens::new(100, 20),
            piece: 16,
        }))
    }

    fn of(kind: Kind) -> Self {
        Self {
            kind,
            headers: Vec::new(),
            delivery: Delivery::default(),
        }
    }

    #[track_caller]
    fn change(mut self, change: impl FnOnce(&mut Says)) -> Self {
        match &mut self.kind {
            Kind::Answer(says) => change(says),
            other => panic!("only an answer of the model has this, and not {other:?}"),
        }
        self
    }

    fn fault(mut self, events: usize, fault: Fault) -> Self {
        self.delivery.fault = Some((events, fault));
        self
    }
}
