//! Names and values of secrets.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

const LONGEST_NAME: usize = 128;
/// Longest value of a secret, in bytes.
pub const LONGEST_SECRET: usize = 16 << 10;

/// The name of a secret, which is that of its environment variable: letters `A-Z`, digits and `_`,
/// not beginning with a digit, at most 128 bytes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct SecretName(String);

/// A text is not the name of a secret. The text is not in here: people paste values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the name of a secret is like that of a variable: capital letters, digits and `_`, such as `EXAMPLE_API_KEY`"
)]
pub struct SecretNameError;

impl SecretName {
    /// Takes `text` as a name when it has the form of one.
    pub fn parse(text: &str) -> Result<Self, SecretNameError> {
        let well_formed = text.len() <= LONGEST_NAME
            && text.starts_with(|first: char| first.is_ascii_uppercase() || first == '_')
            && text
                .bytes()
                .all(|byte| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_'));
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(SecretNameError)
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SecretName {
    type Error = SecretNameError;

    fn try_from(text: String) -> Result<Self, SecretNameError> {
        Self::parse(&text)
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The value of a secret: text that is neither blank nor shorter or longer than the redactor takes,
/// without a NUL, without line ends at its end.
///
/// It cannot be printed or serialised, and its memory is overwritten when it is dropped, that of
/// each copy too.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

/// Why a text is not a secret. The text is not in here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Nothing, or white space alone.
    #[error("it is empty")]
    Blank,
    /// Fewer bytes than the redactor takes.
    #[error(
        "it has fewer than {} bytes, so it could not be kept out of output",
        crate::redact::SHORTEST
    )]
    TooShort,
    /// More bytes than a key has.
    #[error("it has more than {LONGEST_SECRET} bytes")]
    TooLong,
    /// It holds a NUL, which neither a variable nor a header can have.
    #[error("it holds a NUL")]
    Nul,
    /// It is not Unicode text.
    #[error("it is not Unicode text")]
    NotText,
}

impl Secret {
    /// Takes `bytes` as a secret; line ends at their end are removed. The memory of `bytes` is
    /// overwritten also when they are refused.
    pub fn new(bytes: Vec<u8>) -> Result<Self, SecretError> {
        let bytes = Zeroizing::new(bytes);
        // Before anything is removed: whoever reads up to a limit must not cut a value unnoticed.
        if bytes.len() > LONGEST_SECRET + 2 {
            return Err(SecretError::TooLong);
        }
        let text = std::str::from_utf8(&bytes).map_err(|_| SecretError::NotText)?;
        let text = text.trim_end_matches(['\r', '\n']);
        if text.trim().is_empty() {
            return Err(SecretError::Blank);
        }
        if text.len() < crate::redact::SHORTEST {
            return Err(SecretError::TooShort);
        }
        if text.len() > LONGEST_SECRET {
            return Err(SecretError::TooLong);
        }
        if text.contains('\0') {
            return Err(SecretError::Nul);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// The value. Whoever asks for it hands it to nobody but whom it is for.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(***)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn secret(text: &str) -> Result<String, SecretError> {
        Secret::new(text.as_bytes().to_vec()).map(|secret| secret.expose().to_owned())
    }

    #[test]
    fn bc_44_what_is_blank_is_no_secret() {
        for blank in ["", " ", "\n", "\r\n", " \t \n\n", "\u{a0}"] {
            assert_eq!(secret(blank), Err(SecretError::Blank), "{blank:?}");
        }
        assert_eq!(secret("abc\n"), Err(SecretError::TooShort));
        assert_eq!(secret("ab\0cd"), Err(SecretError::Nul));
        let long = "x".repeat(LONGEST_SECRET + 1);
        assert_eq!(secret(&long), Err(SecretError::TooLong));
        let lines = format!("{}\r\nmore", "x".repeat(LONGEST_SECRET));
        assert_eq!(secret(&lines), Err(SecretError::TooLong));
        assert!(secret(&lines[..LONGEST_SECRET + 2]).is_ok());
        let error = Secret::new(vec![0xff; 8]).unwrap_err();
        assert_eq!(error, SecretError::NotText);
    }

    #[test]
    fn only_line_ends_at_the_end_are_removed() {
        assert_eq!(secret("abcd\r\n\n").unwrap(), "abcd");
        assert_eq!(secret(" ab\ncd ").unwrap(), " ab\ncd ");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new(b"SENTINEL".to_vec()).unwrap();
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(***) Secret(***)");
    }

    #[test]
    fn names_are_those_of_variables() {
        for good in ["A", "_", "EXAMPLE_API_KEY", "_9", &"A".repeat(128)] {
            assert_eq!(SecretName::parse(good).unwrap().as_str(), good);
        }
        for bad in [
            "",
            "9A",
            "a",
            "A-B",
            "A B",
            "A=B",
            "\u{c4}",
            "A\n",
            &"A".repeat(129),
        ] {
            assert!(SecretName::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn an_error_does_not_repeat_what_was_typed(text in "[a-z]{9,20}=[a-z0-9]{9,30}") {
            let error = SecretName::parse(&text).unwrap_err();
            let shown = format!("{error} {error:?}");
            prop_assert!(!shown.contains(&text));
        }
    }
}
