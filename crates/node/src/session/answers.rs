//! What a session server answers.

use std::io;

use mini_ork_protocol::{
    RefusalKind, SessionAnswer, SessionEntry, SessionEntryKind, SessionRefusal,
};

use crate::supervise::SuperviseError;
use crate::text::with_sources;
use crate::workspace::{Entry, EntryKind, FileError};

/// Most bytes of the names in a listing, so that it fits into a frame.
const LONGEST_LISTING: usize = 4 << 20;

pub(super) fn listing_of(entries: Vec<Entry>, mut complete: bool) -> SessionAnswer {
    let mut room = LONGEST_LISTING;
    let mut listed = Vec::new();
    for entry in entries {
        let Some(left) = room.checked_sub(entry.path.as_os_str().len() + 64) else {
            complete = false;
            break;
        };
        room = left;
        listed.push(SessionEntry {
            path: entry.path.as_path().into(),
            kind: match entry.kind {
                EntryKind::File => SessionEntryKind::File,
                EntryKind::Directory => SessionEntryKind::Directory,
                EntryKind::Link => SessionEntryKind::Link,
                EntryKind::Special => SessionEntryKind::Special,
            },
            size: entry.size,
        });
    }
    SessionAnswer::Listing {
        entries: listed,
        complete,
    }
}

pub(super) fn refused(kind: RefusalKind, message: impl Into<String>) -> SessionAnswer {
    SessionAnswer::Refused(SessionRefusal {
        kind,
        message: message.into(),
    })
}

pub(super) fn refused_by_supervisor(error: &SuperviseError) -> SessionAnswer {
    let kind = match error {
        SuperviseError::Taken { .. } => RefusalKind::Taken,
        _ => RefusalKind::Failed,
    };
    refused(kind, with_sources(error))
}

pub(super) fn refused_file(error: &FileError) -> SessionAnswer {
    let kind = match error.source.kind() {
        io::ErrorKind::NotFound => RefusalKind::NotFound,
        io::ErrorKind::PermissionDenied => RefusalKind::NotPermitted,
        _ => RefusalKind::Failed,
    };
    refused(kind, error.source.to_string())
}
