use std::fs::FileType;
use std::io::{self, Write};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use futures_util::Stream;
use tokio::sync::mpsc;

use super::BuildSource;
use super::ignore::Ignored;

/// Name of the Dockerfile when it is all there is.
const DOCKERFILE: &str = "Dockerfile";
const IGNORE_FILE: &str = ".dockerignore";
/// Longest list of what is left out.
const LONGEST_IGNORE: u64 = 1 << 20;
/// How much is on its way to the engine at a time.
const PIECE: usize = 256 << 10;
const PIECES: usize = 8;

/// The name of the Dockerfile in the archive, and the archive. It is made while it is sent, so that
/// its size takes no memory.
pub(super) fn archive(
    source: &BuildSource,
) -> io::Result<(String, impl Stream<Item = io::Result<Bytes>> + Send + use<>)> {
    let (sender, receiver) = mpsc::channel(PIECES);
    let source = source.clone();
    let (name, ignored) = match &source {
        BuildSource::Text(_) => (DOCKERFILE.to_owned(), Ignored::default()),
        BuildSource::Directory {
            directory,
            dockerfile,
        } => {
            fs_err::File::open(directory.join(dockerfile))?;
            (dockerfile.clone(), read_ignored(directory)?)
        }
    };
    tokio::task::spawn_blocking(move || {
        let mut pieces = Pieces {
            sender,
            piece: Vec::new(),
        };
        let written = match &source {
            BuildSource::Text(text) => write_text(text, &mut pieces),
            BuildSource::Directory {
                directory,
                dockerfile,
            } => write_directory(directory, dockerfile, &ignored, &mut pieces),
        };
        if let Err(error) = written.and_then(|()| pieces.flush()) {
            // Nobody may be there to hear it.
            let _ = pieces.sender.blocking_send(Err(error));
        }
    });
    let next = |mut receiver: mpsc::Receiver<_>| async move {
        let piece = receiver.recv().await?;
        Some((piece, receiver))
    };
    Ok((name, futures_util::stream::unfold(receiver, next)))
}

fn read_ignored(directory: &Path) -> io::Result<Ignored> {
    let file = directory.join(IGNORE_FILE);
    let bytes = crate::sys::files::read_bounded(&file, LONGEST_IGNORE)?;
    let text = String::from_utf8(bytes.unwrap_or_default());
    let wrong = |problem: String| {
        let message = format!("{}: {problem}", file.display());
        io::Error::new(io::ErrorKind::InvalidData, message)
    };
    let text = text.map_err(|_| wrong("it is no text".to_owned()))?;
    Ignored::parse(&text).map_err(wrong)
}

fn write_text(text: &str, pieces: &mut Pieces) -> io::Result<()> {
    let mut archive = tar::Builder::new(pieces);
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, DOCKERFILE, text.as_bytes())?;
    archive.finish()
}

fn write_directory(
    directory: &Path,
    dockerfile: &str,
    ignored: &Ignored,
    pieces: &mut Pieces,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(pieces);
    archive.follow_symlinks(false);
    let needed = [Path::new(dockerfile), Path::new(IGNORE_FILE)];
    let mut pending = vec![PathBuf::new()];
    while let Some(inner) = pending.pop() {
        let mut entries = Vec::new();
        for entry in fs_err::read_dir(directory.join(&inner))? {
            let entry = entry?;
            entries.push((inner.join(entry.file_name()), entry.file_type()?));
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (path, kind) in entries {
            let left_out = ignored.matches(&path) && !needed.contains(&path.as_path());
            if kind.is_dir() && (!left_out || ignored.has_exceptions()) {
                pending.push(path.clone());
            }
            if !left_out && can_be_archived(kind) {
                archive.append_path_with_name(directory.join(&path), &path)?;
            }
        }
    }
    archive.finish()
}

/// Whatever waits for another program is no part of a context.
fn can_be_archived(kind: FileType) -> bool {
    !(kind.is_fifo() || kind.is_socket() || kind.is_block_device() || kind.is_char_device())
}

/// Collects what is written into pieces and sends them.
struct Pieces {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::take(&mut self.piece);
        self.sender
            .blocking_send(Ok(piece.into()))
            .map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_context_has_what_is_not_ignored() {
        let place = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = place.path().join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, text).unwrap();
        };
        write("Dockerfile", "FROM scratch\n");
        write(".dockerignore", "**\n!src\nsrc/*.log\n");
        write("src/main.c", "int main;");
        write("src/x.log", "");
        write("secret", "");
        fs_err::os::unix::fs::symlink("/etc/passwd", place.path().join("src/link")).unwrap();
        let (sender, mut receiver) = mpsc::channel(1000);
        let mut pieces = Pieces {
            sender,
            piece: Vec::new(),
        };
        let ignored = read_ignored(place.path()).unwrap();
        write_directory(place.path(), "Dockerfile", &ignored, &mut pieces).unwrap();
        pieces.flush().unwrap();
        drop(pieces);
        let mut bytes = Vec::new();
        while let Some(piece) = receiver.blocking_recv() {
            bytes.extend_from_slice(&piece.unwrap());
        }
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut found = BTreeSet::new();
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            if path == "src/link" {
                assert_eq!(entry.header().entry_type(), tar::EntryType::Symlink);
            }
            found.insert(path.trim_end_matches('/').to_owned());
        }
        let expected = [
            ".dockerignore",
            "Dockerfile",
            "src",
            "src/link",
            "src/main.c",
        ];
        assert_eq!(found, expected.map(ToOwned::to_owned).into());
    }
}
