//! Counts what the vendor says that it dealt, and knows when an answer is whole.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::classify::Complaint;
use crate::model::{Api, SseEvent, SseParser, TokenUsage};

/// Higher counts are no counts: sums of them must not overflow.
const MOST_TOKENS: u64 = 1 << 40;

/// Reads a stream as it passes. However it is cut into pieces, the result is the same.
#[derive(Debug)]
pub struct StreamMeter {
    parser: SseParser,
    reading: Reading,
}

/// The stream is not of the API's form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(String);

/// What was read of an answer so far.
#[derive(Debug)]
pub(super) struct Reading {
    api: Api,
    tally: Tally,
    has_begun: bool,
    /// Of chat completions: the model said why it stopped.
    has_reason: bool,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Whole,
    Failed(Complaint),
}

impl StreamMeter {
    /// A meter for an answer of `api`.
    pub fn new(api: Api) -> Self {
        // The last event of the Responses API repeats the whole answer.
        let longest = match api {
            Api::AnthropicMessages | Api::OpenaiChat => 4 << 20,
            Api::OpenaiResponses => 16 << 20,
        };
        Self {
            parser: SseParser::new(longest),
            reading: Reading {
                api,
                tally: Tally::default(),
                has_begun: false,
                has_reason: false,
                end: None,
            },
        }
    }

    /// Reads the next piece. After an error no more can be read.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), Malformed> {
        let mut result = Ok(());
        let reading = &mut self.reading;
        self.parser
            .push(piece, |event| {
                if result.is_ok() {
                    result = reading.take(&event);
                }
            })
            .map_err(|error| Malformed(error.to_string()))?;
        result
    }

    /// Whether an event was read.
    pub(super) fn has_begun(&self) -> bool {
        self.reading.has_begun
    }

    /// Whether nothing that matters can come any more.
    pub(super) fn is_over(&self) -> bool {
        self.reading.end.is_some()
    }

    /// Whether the answer is whole, should nothing more come.
    pub fn is_whole(&self) -> bool {
        match &self.reading.end {
            Some(end) => matches!(end, End::Whole),
            None => self.reading.has_reason && self.parser.is_between_events(),
        }
    }

    /// What the vendor said in the stream about why it failed.
    pub(super) fn complaint(&self) -> Option<&Complaint> {
        match &self.reading.end {
            Some(End::Failed(complaint)) => Some(complaint),
            _ => None,
        }
    }

    /// The count so far.
    pub fn usage(&self) -> Option<TokenUsage> {
        self.reading.tally.usage()
    }

    /// Whether that count is the vendor's last word.
    pub(super) fn is_final(&self) -> bool {
        self.reading.tally.is_final()
    }
}

/// What a whole answer without a stream says.
#[derive(Debug)]
pub(super) struct PlainAnswer {
    pub(super) usage: Option<TokenUsage>,
    /// Some vendors report errors with a status of success.
    pub(super) complaint: Option<Complaint>,
}

/// Reads an answer that is no stream.
pub(super) fn read_plain(api: Api, body: &[u8]) -> Result<PlainAnswer, Malformed> {
    #[derive(Deserialize)]
    struct Plain {
        usage: Option<Value>,
        error: Option<Value>,
    }
    let plain: Plain = parse(body)?;
    let mut tally = Tally::default();
    tally.take(api, plain.usage.as_ref());
    tally.seal();
    Ok(PlainAnswer {
        usage: tally.usage().filter(|_| tally.is_final()),
        complaint: plain.error.as_ref().map(Complaint::of_value),
    })
}

impl Reading {
    fn take(&mut self, event: &SseEvent<'_>) -> Result<(), Malformed> {
        self.has_begun = true;
        if self.end.is_some() {
            return Ok(());
        }
        match self.api {
            Api::AnthropicMessages => self.take_messages(event.data),
            Api::OpenaiChat => self.take_chat(event.data),
            Api::OpenaiResponses => self.take_responses(event.data),
        }
    }

    fn take_messages(&mut self, data: &[u8]) -> Result<(), Malformed> {
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(borrow)]
            r#type: Cow<'a, str>,
            message: Option<Message>,
            usage: Option<Value>,
            error: Option<Value>,
        }
        #[derive(Deserialize)]
        struct Message {
            usage: Option<Value>,
        }
        let event: Event<'_> = parse(data)?;
        match event.r#type.as_ref() {
            "message_start" => {
                let usage = event.message.and_then(|message| message.usage);
                self.tally.take(self.api, usage.as_ref());
            }
            "message_delta" => self.tally.take(self.api, event.usage.as_ref()),
            "message_stop" => {
                self.tally.seal();
                self.end = Some(End::Whole);
            }
            "error" => self.fail(event.error.as_ref()),
            _ => {}
        }
        Ok(())
    }

    fn take_chat(&mut self, data: &[u8]) -> Result<(), Malformed> {
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(borrow)]
            choices: Option<Vec<Choice<'a>>>,
            usage: Option<Value>,
            error: Option<Value>,
        }
        #[derive(Deserialize)]
        struct Choice<'a> {
            #[serde(borrow)]
            finish_reason: Option<Cow<'a, str>>,
        }
        if data.trim_ascii() == b"[DONE]" {
            if !self.has_reason {
                // Passed on, it would have some clients ask again without end.
                return Err(Malformed(
                    "the stream ended without a finish reason".to_owned(),
                ));
            }
            self.tally.seal();
            self.end = Some(End::Whole);
            return Ok(());
        }
        let event: Event<'_> = parse(data)?;
        if let Some(error) = event.error {
            self.fail(Some(&error));
            return Ok(());
        }
        let stopped = |choice: &Choice<'_>| {
            choice
                .finish_reason
                .as_ref()
                .is_some_and(|reason| !reason.is_empty())
        };
        if event.choices.iter().flatten().any(stopped) {
            self.has_reason = true;
        }
        if event.usage.is_some() {
            self.tally.take(self.api, event.usage.as_ref());
            // Some vendors count along, so only a count after the reason is the last one.
            if self.has_reason {
                self.tally.seal();
            }
        }
        Ok(())
    }

    fn take_responses(&mut self, data: &[u8]) -> Result<(), Malformed> {
        #[derive(Deserialize)]
        struct Event<'a> {
            #[serde(borrow)]
            r#type: Cow<'a, str>,
            response: Option<Response>,
        }
        #[derive(Deserialize)]
        struct Response {
            usage: Option<Value>,
            error: Option<Value>,
        }
        let event: Event<'_> = parse(data)?;
        let kind = event.r#type.as_ref();
        if kind == "error" {
            self.fail(serde_json::from_slice(data).ok().as_ref());
            return Ok(());
        }
        if !matches!(
            kind,
            "response.completed" | "response.incomplete" | "response.failed"
        ) {
            return Ok(());
        }
        let (usage, error) = event
            .response
            .map(|response| (response.usage, response.error))
            .unwrap_or_default();
        self.tally.take(self.api, usage.as_ref());
        self.tally.seal();
        if kind == "response.failed" {
            self.fail(error.as_ref());
        } else {
            self.end = Some(End::Whole);
        }
        Ok(())
    }

    fn fail(&mut self, error: Option<&Value>) {
        let complaint = error.map(Complaint::of_value).unwrap_or_default();
        self.end = Some(End::Failed(complaint));
    }
}

/// Counts of one answer. What is no count makes the whole doubtful.
#[derive(Debug, Default)]
struct Tally {
    input: Option<u64>,
    cache_read: Option<u64>,
    cache_write: Option<u64>,
    output: Option<u64>,
    is_doubtful: bool,
    is_sealed: bool,
}

impl Tally {
    /// Takes over what `usage` tells; what it does not tell stays.
    fn take(&mut self, api: Api, usage: Option<&Value>) {
        let usage = match usage {
            None | Some(Value::Null) => return,
            Some(usage @ Value::Object(_)) => usage,
            Some(_) => {
                self.is_doubtful = true;
                return;
            }
        };
        match api {
            Api::AnthropicMessages => {
                let [input, cache_read, cache_write, output] = [
                    "input_tokens",
                    "cache_read_input_tokens",
                    "cache_creation_input_tokens",
                    "output_tokens",
                ]
                .map(|key| self.count(&usage[key]));
                self.input = input.or(self.input);
                self.cache_read = cache_read.or(self.cache_read);
                self.cache_write = cache_write.or(self.cache_write);
                self.output = output.or(self.output);
            }
            Api::OpenaiChat => self.take_openai(
                &usage["prompt_tokens"],
                &usage["prompt_tokens_details"]["cached_tokens"],
                &usage["completion_tokens"],
            ),
            Api::OpenaiResponses => self.take_openai(
                &usage["input_tokens"],
                &usage["input_tokens_details"]["cached_tokens"],
                &usage["output_tokens"],
            ),
        }
    }

    /// The vendor counts what it read from its cache as part of the input.
    fn take_openai(&mut self, input: &Value, cached: &Value, output: &Value) {
        let cached = self.count(cached).unwrap_or(0);
        let Some(input) = self.count(input) else {
            return;
        };
        if cached > input {
            self.is_doubtful = true;
        }
        self.cache_read = Some(cached.min(input));
        self.input = Some(input.saturating_sub(cached));
        self.output = self.count(output).or(self.output);
    }

    fn count(&mut self, value: &Value) -> Option<u64> {
        if value.is_null() {
            return None;
        }
        let count = value.as_u64().filter(|count| *count <= MOST_TOKENS);
        if count.is_none() {
            self.is_doubtful = true;
        }
        count
    }

    fn seal(&mut self) {
        self.is_sealed = true;
    }

    fn usage(&self) -> Option<TokenUsage> {
        Some(TokenUsage {
            input: self.input?,
            cache_read: self.cache_read.unwrap_or(0),
            cache_write: self.cache_write.unwrap_or(0),
            output: self.output?,
        })
    }

    fn is_final(&self) -> bool {
        self.is_sealed && !self.is_doubtful && self.usage().is_some()
    }
}

/// Reads an object. Where a type is read, a list of its fields would do as well.
fn parse<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, Malformed> {
    if !data.trim_ascii_start().starts_with(b"{") {
        return Err(Malformed("the answer is not a JSON object".to_owned()));
    }
    serde_json::from_slice(data).map_err(|_| {
        // The text of the error could quote the answer.
        let what = match serde_json::from_slice::<IgnoredAny>(data) {
            Ok(_) => "the answer is not of the API's form",
            Err(_) => "the answer is not JSON",
        };
        Malformed(what.to_owned())
    })
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
