use serde::{Deserialize, Serialize};

use crate::{ByteString, ExitRecord, ProcessRecord, ProcessSpec, SecretBytes};

/// Longest frame of a session, in bytes. The longest one that is honest holds the arguments and the
/// environment of a program, which Linux limits to a few MiB.
pub const LONGEST_FRAME: u32 = 16 << 20;

/// What the outside asks of the session server inside a sandbox: the first frame of each stream
/// that the outside opens.
///
/// A frame is its length in four bytes, the highest first, and that much JSON. The answer is one
/// [`SessionAnswer`] in a frame; what follows it is said at the request. Both sides may end a stream
/// at any time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub enum SessionRequest {
    /// Who asks; before anything else on a connection. Answered by [`SessionAnswer::Welcome`].
    Hello(Hello),
    /// Start a program with its records in `directory`. Answered by [`SessionAnswer::Started`].
    Spawn {
        /// Absolute path of the record directory, as the server sees it.
        directory: ByteString,
        /// What to run.
        spec: ProcessSpec,
    },
    /// What became of the program with its records in `directory`. Answered by
    /// [`SessionAnswer::Found`].
    Attach {
        /// Absolute path of the record directory.
        directory: ByteString,
    },
    /// The same, but while the program runs there is no answer.
    Wait {
        /// Absolute path of the record directory.
        directory: ByteString,
    },
    /// Ask for the end of a program. Answered by [`SessionAnswer::Done`].
    Stop {
        /// Absolute path of the record directory.
        directory: ByteString,
        /// At once, without a grace time.
        now: bool,
    },
    /// Read a file. Answered by [`SessionAnswer::Content`], and then by that many bytes.
    Get {
        /// Absolute path of a directory.
        root: ByteString,
        /// Path below it.
        path: ByteString,
        /// Most bytes.
        limit: u64,
    },
    /// Write a file; its content follows the request. Answered by [`SessionAnswer::Done`].
    Put {
        /// Absolute path of a directory.
        root: ByteString,
        /// Path below it.
        path: ByteString,
        /// How many bytes follow.
        length: u64,
    },
    /// List a directory. Answered by [`SessionAnswer::Listing`].
    List {
        /// Absolute path of a directory.
        root: ByteString,
        /// Path below it.
        path: ByteString,
        /// How many levels.
        levels: u32,
        /// Most entries.
        most: u32,
        /// Names of directories that are listed and not entered.
        not_entered: Vec<String>,
    },
    /// Listen on a loopback port inside, and open a stream to the outside for each connection, with
    /// a [`SessionCall`] at its beginning. Asked again for the same service it changes nothing.
    /// Answered by [`SessionAnswer::Listening`].
    Forward {
        /// The port; 0 for any.
        port: u16,
        /// What the outside calls it.
        service: String,
    },
    /// Listen no more for a service; connections that were made stay. Where nothing listens it
    /// changes nothing. Answered by [`SessionAnswer::Done`]; a server that is older closes the
    /// stream, and the port stays.
    Unforward {
        /// As in [`SessionRequest::Forward`].
        service: String,
    },
    /// Find out that nothing of the outside can be reached, and then run the shim: listen on
    /// loopback for the hosts of a list, and open a stream to the outside for each connection, with
    /// a [`SessionCall`] of the service [`SessionCall::EGRESS`] at its beginning. Asked again with
    /// the same list it changes nothing. Answered by [`SessionAnswer::Done`].
    Egress {
        /// The entries of the list.
        allow: Vec<String>,
        /// Addresses with ports at which the outside listens, and which must not be reached.
        canary: Vec<String>,
    },
}

/// The first words of the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`crate::GENERATION`] of the outside.
    pub generation: u32,
    /// What only the outside knows. The first one that is ever said to a server holds for all
    /// connections after it, so that what runs beside the server cannot speak to it.
    pub token: SecretBytes,
    /// A file that the outside has written, to be read and answered beside it.
    pub proof: Option<MountProof>,
    /// This connection only asks: no stream of the inside goes to it, and it opens no way out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub only_asks: bool,
}

/// How the outside finds out whether both sides see the same directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountProof {
    /// Absolute path of a directory inside. The outside has put a file called
    /// [`MountProof::QUESTION`] there; the server puts the same bytes into a file called
    /// [`MountProof::ANSWER`].
    pub directory: ByteString,
}

impl MountProof {
    /// Name of the file that the outside writes.
    pub const QUESTION: &str = "mount-question";
    /// Name of the file that the server writes.
    pub const ANSWER: &str = "mount-answer";
}

/// What the session server answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum SessionAnswer {
    /// To [`SessionRequest::Hello`].
    Welcome(Welcome),
    /// To [`SessionRequest::Spawn`].
    Started {
        /// The program; none when the system refused to run it, which then is on record.
        record: Option<ProcessRecord>,
    },
    /// To [`SessionRequest::Attach`] and [`SessionRequest::Wait`].
    Found(SessionFound),
    /// It is done.
    Done,
    /// To [`SessionRequest::Get`].
    Content {
        /// How many bytes follow.
        length: u64,
    },
    /// To [`SessionRequest::List`].
    Listing {
        /// What was found.
        entries: Vec<SessionEntry>,
        /// Whether that is all.
        complete: bool,
    },
    /// To [`SessionRequest::Forward`].
    Listening {
        /// The port.
        port: u16,
    },
    /// It could not be done.
    Refused(SessionRefusal),
}

/// What the server says of the place where it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// [`crate::GENERATION`] of the server.
    pub generation: u32,
    /// Release of the kernel.
    pub kernel: String,
    /// User that it runs as.
    pub uid: u32,
    /// Group that it runs as.
    pub gid: u32,
    /// Names of the network interfaces, in order.
    pub interfaces: Vec<String>,
    /// How many processors programs may use.
    pub processors: u32,
}

/// What became of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum SessionFound {
    /// Nothing was ever started there.
    NeverStarted,
    /// It runs.
    Running {
        /// The program.
        record: Option<ProcessRecord>,
    },
    /// It ended.
    Ended {
        /// How.
        exit: ExitRecord,
    },
    /// It is gone without a record of its end.
    Lost,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionEntry {
    /// Relative to the directory that was listed.
    pub path: ByteString,
    /// What it is.
    pub kind: SessionEntryKind,
    /// Its length in bytes.
    pub size: u64,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionEntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRefusal {
    /// What kind of refusal.
    pub kind: RefusalKind,
    /// A sentence.
    pub message: String,
}

/// The kinds of refusals that the outside tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// Whoever asked has not shown the right token.
    Unauthorised,
    /// The server does not speak this generation.
    Generation,
    /// The directory of the mount proof has not what the outside wrote.
    Mount,
    /// The record directory belongs to a process already.
    Taken,
    /// There is no such file.
    NotFound,
    /// The system or the file does not permit it.
    NotPermitted,
    /// Anything else.
    Failed,
}

/// What the inside says first on a stream that it opens: where the connection wants to go. Bytes in
/// both directions follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionCall {
    /// As the outside named it in [`SessionRequest::Forward`], or [`SessionCall::EGRESS`].
    pub service: String,
}

impl SessionCall {
    /// A connection that the policy proxy outside decides about.
    pub const EGRESS: &str = "egress";
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
