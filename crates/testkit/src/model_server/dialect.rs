use std::iter::Sum;
use std::ops::Add;

/// An API of a vendor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// Anthropic's Messages API.
    Messages,
    /// OpenAI's chat completions.
    Chat,
    /// OpenAI's Responses API.
    Responses,
}

impl Dialect {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Messages, Self::Chat, Self::Responses];

    /// Where its calls go.
    pub fn path(self) -> &'static str {
        match self {
            Self::Messages => "/v1/messages",
            Self::Chat => "/v1/chat/completions",
            Self::Responses => "/v1/responses",
        }
    }

    /// What a path belongs to, so that an error has the right form.
    pub(super) fn near(path: &str) -> Self {
        if path.contains("/messages") {
            Self::Messages
        } else if path.contains("/responses") {
            Self::Responses
        } else {
            Self::Chat
        }
    }
}

/// Tokens of a call, each counted in one field only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tokens {
    /// Read at the full price.
    pub input: u64,
    /// Read from the vendor's cache.
    pub cache_read: u64,
    /// Written to the vendor's cache. OpenAI's APIs do not tell it: there it is input.
    pub cache_write: u64,
    /// Written by the model.
    pub output: u64,
}

impl Tokens {
    /// Input and output, without a cache.
    pub fn new(input: u64, output: u64) -> Self {
        Self {
            input,
            output,
            ..Self::default()
        }
    }

    /// With `read` and `written` to the cache.
    #[must_use]
    pub fn cached(self, read: u64, written: u64) -> Self {
        Self {
            cache_read: read,
            cache_write: written,
            ..self
        }
    }

    /// As a reader of `dialect` is told.
    pub(super) fn as_told_by(self, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Messages => self,
            Dialect::Chat | Dialect::Responses => Self {
                input: self.input + self.cache_write,
                cache_write: 0,
                ..self
            },
        }
    }
}

impl Add for Tokens {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            input: self.input + other.input,
            cache_read: self.cache_read + other.cache_read,
            cache_write: self.cache_write + other.cache_write,
            output: self.output + other.output,
        }
    }
}

impl Sum for Tokens {
    fn sum<I: Iterator<Item = Self>>(iterator: I) -> Self {
        iterator.fold(Self::default(), Add::add)
    }
}
