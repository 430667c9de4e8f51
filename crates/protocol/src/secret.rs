use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use zeroize::Zeroizing;

/// A value that is to be kept out of whatever is written down.
///
/// It is not shown by `Debug`, and its memory is overwritten when it is dropped. The wire form is
/// base64, for a pipe between two processes of mini-ork and for nothing else.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    /// The value, for whoever looks for it.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for SecretBytes {
    fn from(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.to_vec()))
    }
}

impl fmt::Debug for SecretBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SecretBytes(***)")
    }
}

impl Serialize for SecretBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = Zeroizing::new(STANDARD.encode(self.expose()));
        serializer.serialize_str(&text)
    }
}

impl<'de> Deserialize<'de> for SecretBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Zeroizing::new(String::deserialize(deserializer)?);
        // The text of the decoder's error would hold a byte of the value.
        let bytes = STANDARD
            .decode(text.as_bytes())
            .map_err(|_| D::Error::custom("a secret is not base64"))?;
        Ok(Self(Zeroizing::new(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = SecretBytes::from(b"SENTINEL".as_slice());
        assert_eq!(
            format!("{secret:?} {:?}", [&secret]),
            "SecretBytes(***) [SecretBytes(***)]"
        );
        let error = serde_json::from_str::<SecretBytes>("\"SENTINEL!\"").unwrap_err();
        assert_eq!(error.to_string(), "a secret is not base64");
    }

    proptest! {
        #[test]
        fn any_bytes_survive_the_wire(bytes: Vec<u8>) {
            let wire = serde_json::to_string(&SecretBytes::from(bytes.as_slice())).unwrap();
            let after: SecretBytes = serde_json::from_str(&wire).unwrap();
            prop_assert_eq!(after.expose(), bytes);
        }
    }
}
