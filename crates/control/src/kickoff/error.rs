use std::fmt;

/// Why a kickoff cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct KickoffError {
    /// Name of the file as the caller gave it.
    pub file: String,
    /// Line, from 1, when the mistake is in one.
    pub line: Option<u32>,
    /// What is wrong.
    pub problem: KickoffProblem,
}

/// What is wrong with a kickoff.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KickoffProblem {
    /// Nothing but blanks.
    #[error("the kickoff is empty: say in it what is wanted, below a line `# <title>`")]
    Empty,
    /// More than 1 MiB.
    #[error("the kickoff has {size} bytes, the limit is {limit}: link to long material instead")]
    TooLarge {
        /// Bytes given.
        size: usize,
        /// Most bytes taken.
        limit: usize,
    },
    /// Not text.
    #[error("byte {offset} is not UTF-8: save the file as UTF-8")]
    NotUtf8 {
        /// Offset of the first bad byte, from 0.
        offset: usize,
    },
    /// A zero byte, which no argument of a program can carry.
    #[error("the kickoff contains a NUL byte: remove it")]
    NulByte,
    /// No heading of level 1.
    #[error("the kickoff has no title: begin it with a line `# <title>`")]
    NoTitle,
    /// A fence without its end would hide every section below it.
    #[error(
        "the code block that starts here has no end: close it with a line that is only {fence}"
    )]
    UnclosedFence {
        /// The text that closes it.
        fence: String,
    },
    /// A comment without its end would hide every section below it.
    #[error("the comment that starts here has no end: close it with `-->`")]
    UnclosedComment,
    /// Without this error such a section would be no limit at all.
    #[error(
        "the section `{section}` names no path: write each as an item like `- src/parser/`, or remove the heading"
    )]
    NoPath {
        /// Heading of the section.
        section: String,
    },
    /// `src/ except src/secret/` in one item.
    #[error("`{item}` holds an exception: give the excluded paths under a heading `Out of scope`")]
    Exception {
        /// The item.
        item: String,
    },
    /// Absolute, or with `..`.
    #[error("`{path}` leads out of the repository: paths of a scope start at its top directory")]
    OutsideRepository {
        /// The path.
        path: String,
    },
    /// Not a glob.
    #[error("`{path}` is not a path or glob: {reason}")]
    BadPattern {
        /// The pattern.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Each entry is compiled, so their number is bounded.
    #[error("more than {limit} paths in the scope: name directories instead of files")]
    TooManyPaths {
        /// Most paths taken.
        limit: usize,
    },
    /// Prose where a command was expected.
    #[error(
        "the section `{section}` holds no command: write each as an item like `- cargo test`, or as a line of a code block"
    )]
    NoCommand {
        /// Heading of the section.
        section: String,
    },
    /// An answer to something that was not asked.
    #[error("there is no question `{id}`: open are {open}")]
    UnknownQuestion {
        /// The id given.
        id: String,
        /// Ids that are open, or `none`.
        open: String,
    },
}

impl KickoffProblem {
    pub(super) fn at(self, file: &str, line: u32) -> KickoffError {
        KickoffError {
            file: file.to_owned(),
            line: Some(line),
            problem: self,
        }
    }

    pub(super) fn of(self, file: &str) -> KickoffError {
        KickoffError {
            file: file.to_owned(),
            line: None,
            problem: self,
        }
    }
}

impl fmt::Display for KickoffError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}:{line}: {}", self.file, self.problem),
            None => write!(formatter, "{}: {}", self.file, self.problem),
        }
    }
}
