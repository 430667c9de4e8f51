//! What stands in a tree for content that is kept elsewhere.

/// A pointer is about 130 bytes; with extensions the format allows up to 1,024.
pub(crate) const LARGEST: u64 = 1024;
const MARK: &str = "version https://git-lfs.github.com/spec/v1";

/// The name of some content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    /// SHA-256, 64 hex digits.
    pub(crate) digest: String,
    /// In bytes.
    pub(crate) size: u64,
}

impl Pointer {
    /// Reads a pointer of the only version there is. Other bytes are content.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() as u64 > LARGEST {
            return None;
        }
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        if lines.next()? != MARK {
            return None;
        }
        let (mut digest, mut size) = (None, None);
        for line in lines {
            let (key, value) = line.split_once(' ')?;
            match key {
                "oid" => digest = value.strip_prefix("sha256:"),
                "size" => size = value.parse().ok(),
                // An extension says how other bytes became these ones, which nobody undoes here.
                _ => return None,
            }
        }
        let digest = digest?;
        let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (digest.len() == 64 && digest.bytes().all(is_hex)).then(|| Self {
            digest: digest.to_owned(),
            size: size.unwrap_or_default(),
        })
    }

    pub(crate) fn text(&self) -> String {
        format!("{MARK}\noid sha256:{}\nsize {}\n", self.digest, self.size)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_whole_pointers_are_pointers() {
        let digest = "0123456789abcdef".repeat(4);
        let pointer = Pointer {
            digest: digest.clone(),
            size: 7,
        };
        let text = pointer.text();
        assert_eq!(Pointer::parse(text.as_bytes()), Some(pointer));
        for other in [
            text.replace("spec/v1", "spec/v2"),
            text.replace("sha256:", "sha1:"),
            text.replace(&digest, "../../../../etc/passwd"),
            text.replace(&digest, &digest.to_uppercase()),
            text.replace("size", "ext-0-x sha256:00\nsize"),
            text.clone() + &" ".repeat(1024),
            String::new(),
        ] {
            assert_eq!(Pointer::parse(other.as_bytes()), None, "{other}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut text = format!("{MARK}\n").into_bytes();
            text.extend(&bytes);
            drop(Pointer::parse(&text));
            drop(Pointer::parse(&bytes));
        }
    }
}
