//! Names that git gives and takes: object ids, file modes, paths in a tree.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use mini_ork_protocol::ByteString;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How a repository names its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectFormat {
    /// 40 hex digits.
    Sha1,
    /// 64 hex digits.
    Sha256,
}

impl ObjectFormat {
    /// The id that stands for "no object".
    pub(crate) fn null_id(self) -> String {
        "0".repeat(match self {
            Self::Sha1 => 40,
            Self::Sha256 => 64,
        })
    }
}

/// Why a text is not an object id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an object id of 40 or 64 lower-case hex digits")]
pub struct ObjectIdError {
    text: String,
}

macro_rules! object_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// Always 40 or 64 lower-case hex digits, so it is never an option or a reference.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Takes `text` as an id when it has the form of one. Whether there is such an object
            /// is another question.
            pub fn parse(text: &str) -> Result<Self, ObjectIdError> {
                let hex = text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
                if hex && matches!(text.len(), 40 | 64) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(ObjectIdError { text: text.to_owned() })
                }
            }

            /// The hex digits.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<OsStr> for $name {
            fn as_ref(&self) -> &OsStr {
                OsStr::new(&self.0)
            }
        }

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

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }
    };
}

object_id!(
    /// Names a tree: the content of a directory.
    TreeId
);
object_id!(
    /// Names a commit.
    CommitId
);
object_id!(
    /// Names an entry of a tree: the content of a file, or the commit of a submodule.
    ObjectId
);

/// What an entry of a tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileMode {
    /// A file.
    Regular,
    /// A file with its executable bit set.
    Executable,
    /// A symbolic link; its content is its target.
    Symlink,
    /// A commit of another repository.
    Submodule,
}

impl FileMode {
    /// As git spells it, six octal digits.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Regular => "100644",
            Self::Executable => "100755",
            Self::Symlink => "120000",
            Self::Submodule => "160000",
        }
    }

    /// None when `text` is no mode of a tree entry, or that of "nothing" (`000000`).
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        match text {
            // 100664 is what git wrote in its first year.
            b"100644" | b"100664" => Some(Self::Regular),
            b"100755" => Some(Self::Executable),
            b"120000" => Some(Self::Symlink),
            b"160000" => Some(Self::Submodule),
            _ => None,
        }
    }
}

/// Why bytes are not a path in a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a path inside a tree: {rule}", path.escape_ascii())]
pub struct RepoPathError {
    path: Vec<u8>,
    rule: &'static str,
}

/// A path in a tree: bytes, relative, with `/` between components.
///
/// Joined to a directory it stays below it: it is not empty, not absolute, and has no component
/// that is empty, `.`, `..`, or `.git` in any spelling that some file system takes for it. It may
/// still lead through a symbolic link that lies there.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoPath(Vec<u8>);

impl RepoPath {
    /// Takes `path` when it keeps the rules.
    pub fn new(path: impl Into<Vec<u8>>) -> Result<Self, RepoPathError> {
        let path = path.into();
        let rule = if path.is_empty() {
            "it is empty"
        } else if path.contains(&0) {
            "it holds a NUL byte"
        } else if path
            .split(|byte| *byte == b'/')
            .any(|part| matches!(part, b"" | b"." | b".."))
        {
            "a component is empty, `.` or `..`"
        } else if path.split(|byte| *byte == b'/').any(is_dot_git) {
            "a component is `.git` to some file system"
        } else {
            return Ok(Self(path));
        };
        Err(RepoPathError { path, rule })
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a relative path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// The directories that hold it, outermost first, without the root.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &[u8]> {
        self.0
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'/')
            .map(|(position, _)| &self.0[..position])
    }
}

impl fmt::Debug for RepoPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(&self.0), formatter)
    }
}

/// For people: what is not text, and what a terminal would obey, is replaced.
impl fmt::Display for RepoPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in String::from_utf8_lossy(&self.0).chars() {
            if character.is_control() {
                write!(formatter, "{}", character.escape_default())?;
            } else {
                write!(formatter, "{character}")?;
            }
        }
        Ok(())
    }
}

impl Serialize for RepoPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        ByteString::from(self.0.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RepoPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = ByteString::deserialize(deserializer)?;
        Self::new(bytes.as_bytes()).map_err(D::Error::custom)
    }
}

/// Whether some file system takes `name` for `.git`: HFS+ compares without case and without
/// invisible characters; NTFS without case and without trailing dots and spaces, knows `GIT~1`,
/// and takes a backslash for a separator. Git refuses such a name at the next exchange, and so
/// the work that holds it would be lost later instead of listed now.
pub(crate) fn is_dot_git(name: &[u8]) -> bool {
    is_hfs_dot_git(name) || name.split(|byte| *byte == b'\\').any(is_ntfs_dot_git)
}

/// Whether `name` is `.gitmodules` to some file system. As a symbolic link git refuses it.
pub(crate) fn is_dot_gitmodules(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    lower == b".gitmodules"
        || lower.starts_with(b".gitmodules ")
        || lower.starts_with(b".gitmodules.")
        || lower.starts_with(b".gitmodules:")
        || lower.starts_with(b"gitmod~")
        || lower.starts_with(b"gi7eba~")
}

fn is_hfs_dot_git(name: &[u8]) -> bool {
    // Four characters, each with some three-byte invisible ones around; longer is not looked at.
    let Ok(text) = std::str::from_utf8(name) else {
        return false;
    };
    text.chars()
        .filter(|character| {
            !matches!(character,
                '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
        })
        .map(|character| character.to_ascii_lowercase())
        .eq(".git".chars())
}

fn is_ntfs_dot_git(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let rest = lower
        .strip_prefix(b".git")
        .or_else(|| lower.strip_prefix(b"git~1"));
    rest.is_some_and(|rest| {
        rest.iter()
            .copied()
            .find(|byte| !matches!(byte, b' ' | b'.'))
            .is_none_or(|byte| byte == b':')
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ids_are_hex_of_one_of_two_lengths() {
        assert!(TreeId::parse(&"a".repeat(40)).is_ok());
        assert!(CommitId::parse(&"0".repeat(64)).is_ok());
        for text in [
            "",
            "abc",
            &"A".repeat(40),
            &"g".repeat(40),
            &"a".repeat(41),
            "--output=/etc/passwd",
        ] {
            assert!(ObjectId::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn paths_stay_below_their_root() {
        for path in [
            "a",
            "a/b",
            "a\nb/ü",
            ".gitignore",
            ".github/x",
            "git",
            ".gitx/y",
            "a\\b",
            "...",
        ] {
            assert!(RepoPath::new(path).is_ok(), "{path}");
        }
        for path in [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "a/../b",
            "./a",
            "a/.git",
            ".git/config",
            ".GiT/x",
            "git~1/x",
            ".git. ./x",
            ".git:x/y",
            "a\\.git",
            ".g\u{200c}it/x",
            "a\0b",
        ] {
            assert!(RepoPath::new(path).is_err(), "{path}");
        }
        let deep = RepoPath::new("a/b/c").unwrap();
        assert_eq!(deep.parents().collect::<Vec<_>>(), [&b"a"[..], &b"a/b"[..]]);
    }

    proptest! {
        #[test]
        fn paths_survive_the_wire(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(path) = RepoPath::new(bytes) {
                let wire = serde_json::to_string(&path).unwrap();
                let after: RepoPath = serde_json::from_str(&wire).unwrap();
                prop_assert!(Path::new("/root").join(path.as_path()).starts_with("/root"));
                prop_assert_eq!(path, after);
            }
        }

        #[test]
        fn ids_of_any_text_do_not_panic(text: String) {
            if let Ok(id) = ObjectId::parse(&text) {
                prop_assert_eq!(id.as_str(), text);
            }
        }
    }
}
