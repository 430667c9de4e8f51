//! Identifiers and wire types that two sides of mini-ork share.
//!
//! A type belongs here when the two sides that exchange it may be of different versions: the
//! supervisor that owns a process outlives the control plane that started it, so a newer
//! `mini-ork` reads the records of an older supervisor, and the session server in a sandbox may
//! outlive the one that made it. Nothing here does IO.
//!
//! Rules of change: a new optional field needs `#[serde(default)]` and no bump; a new meaning or a
//! new required field bumps [`GENERATION`]. Readers accept any generation up to their own and
//! refuse a later one with a sentence that names both.

mod bytes;
mod ids;
mod process;
mod secret;
mod session;

pub use bytes::ByteString;
pub use ids::{IdError, NodeId, NodeSegment, ProcessKey, RunId};
pub use process::{
    Containment, ExitOutcome, ExitRecord, ProcessIdentity, ProcessRecord, ProcessSpec, Shortage,
    StdinSource,
};
pub use secret::SecretBytes;
pub use session::{
    Hello, LONGEST_FRAME, MountProof, RefusalKind, SessionAnswer, SessionCall, SessionEntry,
    SessionEntryKind, SessionFound, SessionRefusal, SessionRequest, Welcome,
};

/// The one version counter of everything in this crate.
pub const GENERATION: u32 = 2;
