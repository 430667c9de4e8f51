use std::fmt;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

/// Longest readable part of a [`NodeSegment`]; with the digest it stays far below `NAME_MAX` (255)
/// and below the 63 bytes that container names and DNS labels allow.
const SLUG_LENGTH: usize = 32;
/// Hex digits of the digest in a [`NodeSegment`]: 80 bits, so that a collision cannot be searched
/// for by whoever chooses node ids.
const DIGEST_HEX: usize = 20;
const LONGEST_RUN_ID: usize = 40;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {kind}: {rule}")]
pub struct IdError {
    text: String,
    kind: &'static str,
    rule: &'static str,
}

/// Names one run of a recipe: a path segment, a branch component and a sandbox label at once.
///
/// Always 1 to 40 of `a-z`, `0-9` and inner `-`, so no context needs to escape it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(String);

impl RunId {
    /// Takes `text` as a run id when it has the form of one.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        let well_formed = !text.is_empty()
            && text.len() <= LONGEST_RUN_ID
            && !text.starts_with('-')
            && !text.ends_with('-')
            && text
                .bytes()
                .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if well_formed {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError {
                text: text.to_owned(),
                kind: "run id",
                rule: "a run id is 1 to 40 lower-case letters, digits and inner dashes",
            })
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The name of a node as its recipe gives it. Untrusted: never a path, see [`NodeSegment`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(String);

impl NodeId {
    /// Takes any non-empty text. What a recipe allows is narrower, but records and peers are read
    /// with this rule.
    pub fn parse(text: &str) -> Result<Self, IdError> {
        if text.is_empty() {
            return Err(IdError {
                text: text.to_owned(),
                kind: "node id",
                rule: "a node id is not empty",
            });
        }
        Ok(Self(text.to_owned()))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The one mapping from an untrusted node id to a path segment, a label or a sandbox name.
///
/// A digest of the raw id is always appended. A rule that appends it only when the readable part
/// had to be changed lets a node that is literally called by another's result share its directory.
/// Guarantees: distinct raw ids give distinct segments (up to an 80-bit digest), also where names
/// are compared without case; the result is never empty, `.` or `..`; at most 53 bytes of `a-z`,
/// `0-9` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSegment(String);

impl NodeSegment {
    /// The segment as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&NodeId> for NodeSegment {
    fn from(id: &NodeId) -> Self {
        let mut slug = String::with_capacity(SLUG_LENGTH);
        for character in id.0.chars() {
            let mapped = match character.to_ascii_lowercase() {
                kept @ ('a'..='z' | '0'..='9') => kept,
                _ => '-',
            };
            // One dash for a run of them, none in front: `--` separates parts of sandbox names.
            if mapped == '-' && (slug.is_empty() || slug.ends_with('-')) {
                continue;
            }
            slug.push(mapped);
            if slug.len() == SLUG_LENGTH {
                break;
            }
        }
        let slug = slug.trim_end_matches('-');
        let slug = if slug.is_empty() { "node" } else { slug };
        let digest = Sha256::digest(id.0.as_bytes());
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Self(format!("{slug}-{}", &hex[..DIGEST_HEX]))
    }
}

/// Names one process of a run: which node, which round of its retry loop, which attempt in it, and
/// which of the attempt's processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessKey {
    /// The node that the process works for.
    pub node: NodeId,
    /// Round of the retry loop, from 1.
    pub round: u32,
    /// Attempt within the round, from 1.
    pub attempt: u32,
    /// What the process does there (`lane`, `verify`, `baseline`…): a short word that the control
    /// plane chooses.
    pub purpose: String,
}

macro_rules! text_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

macro_rules! parsed_id {
    ($name:ident) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                Self::parse(&text).map_err(D::Error::custom)
            }
        }
    };
}

text_id!(RunId);
text_id!(NodeId);
text_id!(NodeSegment);
parsed_id!(RunId);
parsed_id!(NodeId);

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn segment(raw: &str) -> String {
        NodeSegment::from(&NodeId::parse(raw).unwrap()).0
    }

    #[test]
    fn bc_74_a_literal_result_does_not_meet_its_source() {
        let mapped = segment("implementer:0");
        assert_ne!(mapped, segment(&mapped));
        assert_ne!(segment("implementer:0"), segment("implementer_0"));
        assert_ne!(
            segment("Reviewer").to_lowercase(),
            segment("reviewer").to_lowercase()
        );
    }

    #[test]
    fn bc_74_no_id_escapes_its_directory() {
        for raw in [
            ".",
            "..",
            "/",
            "../..",
            "\0",
            "a/../b",
            "-",
            "--",
            " ",
            "é",
            &"x".repeat(300),
        ] {
            let mapped = segment(raw);
            assert!(mapped.len() <= 53, "{mapped}");
            assert!(
                mapped
                    .bytes()
                    .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')),
                "{mapped}"
            );
            assert!(
                !mapped.starts_with('-') && !mapped.contains("--"),
                "{mapped}"
            );
        }
        assert!(NodeId::parse("").is_err());
    }

    proptest! {
        #[test]
        fn bc_74_distinct_ids_have_distinct_segments(ids in prop::collection::hash_set(".{1,80}", 2..40)) {
            let mut seen: HashMap<String, String> = HashMap::new();
            for raw in ids {
                let mapped = segment(&raw).to_lowercase();
                if let Some(other) = seen.insert(mapped.clone(), raw.clone()) {
                    prop_assert!(false, "{raw:?} and {other:?} both give {mapped}");
                }
            }
        }

        #[test]
        fn run_ids_are_safe_path_segments(text in ".{0,60}") {
            if let Ok(id) = RunId::parse(&text) {
                prop_assert!(!id.as_str().contains(['/', '.', '\0']) && !id.as_str().is_empty());
            }
        }
    }
}
