//! Secrets are taken out of whatever leaves: output, logs, records, messages.

mod forms;
mod matcher;
mod stream;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use matcher::Matcher;
pub use stream::RedactingStream;

/// What stands in the place of a secret.
pub const MASK: &str = "***";

/// Fewest bytes of a secret: a shorter one would be found everywhere, and could be guessed from
/// where it is missing.
pub const SHORTEST: usize = 4;
/// Most bytes of a secret. The matcher takes one or two KiB of memory for each.
const LONGEST: usize = 64 << 10;

/// The secrets of this process, shared by all who write something down.
///
/// A clone is the same set. A value counts from the moment [`register`](Self::register) returns,
/// also in streams that were begun before.
///
/// Masked are the value itself, its base64 (both alphabets, with and without padding, wherever the
/// value lies in what was encoded), its percent-encoding (both cases, whichever characters the
/// encoder spares), and its form in a JSON string, once and twice. When a value does not fill whole
/// groups of base64, up to four of its bits may be left in the character at each end. Other
/// encodings, base64 that is broken into lines, and compressed text are not looked through.
///
/// The value is in the memory of the process for as long as a clone lives.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    values: BTreeSet<Vec<u8>>,
    forms: BTreeSet<Vec<u8>>,
    matcher: Option<Arc<Matcher>>,
}

/// Why a value cannot be kept out of output.
#[derive(Debug, thiserror::Error)]
pub enum RegisterError {
    /// It would be found in ordinary text.
    #[error("a secret of fewer than {SHORTEST} bytes cannot be kept out of output")]
    TooShort,
    /// The matcher would take too much memory.
    #[error("a secret of more than {LONGEST} bytes cannot be kept out of output")]
    TooLong,
    /// There are too many values for one matcher. The earlier ones stay registered.
    #[error("there are too many secrets to be kept out of output")]
    TooMany(#[source] aho_corasick::BuildError),
}

impl Redactor {
    /// A set without any value: nothing is masked.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `value` in all its forms. May be called again with the same value, which is cheap.
    pub fn register(&self, value: &[u8]) -> Result<(), RegisterError> {
        if value.len() < SHORTEST {
            return Err(RegisterError::TooShort);
        }
        if value.len() > LONGEST {
            return Err(RegisterError::TooLong);
        }
        let mut known = self.lock();
        if known.values.contains(value) {
            return Ok(());
        }
        // What was added stays when the matcher cannot be made: the next try includes it.
        known.forms.extend(forms::of(value));
        let matcher = Matcher::new(&known.forms).map_err(RegisterError::TooMany)?;
        known.values.insert(value.to_owned());
        known.matcher = Some(Arc::new(matcher));
        Ok(())
    }

    /// `bytes` without any secret.
    pub fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        let mut output = Vec::with_capacity(bytes.len());
        let mut stream = self.stream();
        stream.push(bytes, &mut output);
        stream.finish(&mut output);
        output
    }

    /// Text without any secret.
    pub fn redact_text(&self, text: &str) -> String {
        String::from_utf8_lossy(&self.redact(text.as_bytes())).into_owned()
    }

    /// A stream that is redacted piece by piece.
    pub fn stream(&self) -> RedactingStream {
        RedactingStream::new(self.clone())
    }

    fn matcher(&self) -> Option<Arc<Matcher>> {
        self.lock().matcher.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        // Nothing is half done when a panic could leave the lock.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redactor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
