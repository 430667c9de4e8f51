use std::io::{self, Read as _};
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use rustix::fs::OFlags;

/// Opens a regular file that a hostile program may have replaced.
///
/// Guarantees: does not follow a symbolic link in the last component, and does not wait for the
/// other end of a FIFO. Anything that is not a regular file is an error.
pub(crate) fn open_regular(path: &Path) -> io::Result<fs_err::File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = fs_err::OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    if !file.metadata()?.is_file() {
        let message = format!("`{}` is not a regular file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(file)
}

/// Reads a file as [`open_regular`] opens it; none when there is no such file. Longer than `limit`
/// bytes is an error.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let message = format!("`{}` is longer than {limit} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_short_regular_files_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(read_bounded(&path, 4).unwrap(), None);
        fs_err::write(&path, "four").unwrap();
        assert_eq!(read_bounded(&path, 4).unwrap().unwrap(), b"four");
        assert_eq!(
            read_bounded(&path, 3).unwrap_err().kind(),
            io::ErrorKind::FileTooLarge
        );

        let link = directory.path().join("link");
        fs_err::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(read_bounded(&link, 4).is_err());

        let fifo = directory.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert_eq!(
            read_bounded(&fifo, 4).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
