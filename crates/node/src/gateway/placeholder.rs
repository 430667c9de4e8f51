use std::{fmt, io};

/// What an agent has in the place of a key: `mo-` and 128 random bits in hexadecimal.
///
/// It opens the gateway it was made for, as long as that gateway is open, and nothing else. It is
/// kept out of records all the same, so that none has to be judged.
#[derive(Clone, PartialEq, Eq)]
pub struct Placeholder(String);

const PREFIX: &str = "mo-";
const BYTES: usize = 16;

impl Placeholder {
    /// One that nobody has or can guess.
    pub fn new() -> io::Result<Self> {
        let mut text = PREFIX.to_owned();
        for byte in crate::sys::random_bytes::<BYTES>()? {
            for digit in [byte >> 4, byte & 0xf] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        Ok(Self(text))
    }

    /// Takes `text` as a placeholder when it has the form of one.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let well_formed = digits.len() == 2 * BYTES
            && digits
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        well_formed.then(|| Self(text.to_owned()))
    }

    /// The text, for the environment of the one process that it is for.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether `other` is the same text. How long that takes tells nothing about how much of it
    /// is right.
    pub(super) fn is(&self, other: &[u8]) -> bool {
        if other.len() != self.0.len() {
            return false;
        }
        let difference = self
            .0
            .bytes()
            .zip(other)
            .fold(0, |difference, (left, right)| {
                std::hint::black_box(difference | (left ^ right))
            });
        difference == 0
    }
}

impl fmt::Debug for Placeholder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Placeholder(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_is_the_same_as_itself_alone() {
        let one = Placeholder::new().unwrap();
        let other = Placeholder::new().unwrap();
        assert!(one.is(one.expose().as_bytes()));
        assert!(!one.is(other.expose().as_bytes()));
        let mut near = one.expose().as_bytes().to_vec();
        near[34] ^= 1;
        assert!(!one.is(&near));
        assert!(!one.is(&near[..34]));
        assert!(!one.is(b""));
        assert_eq!(Placeholder::parse(one.expose()), Some(one));
    }

    #[test]
    fn other_texts_are_none() {
        for text in [
            "",
            "mo-",
            "mo-0123",
            "mo-0123456789ABCDEF0123456789ABCDEF",
            "sk-0123456789abcdef0123456789abcdef",
            "mo-0123456789abcdef0123456789abcdef0",
        ] {
            assert_eq!(Placeholder::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_placeholder_is_not_shown() {
        let placeholder = Placeholder::new().unwrap();
        assert_eq!(format!("{placeholder:?}"), "Placeholder(***)");
    }
}
