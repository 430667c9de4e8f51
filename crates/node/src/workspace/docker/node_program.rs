use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::DockerError;
use crate::sys::files::open_regular;

/// Offsets and values of the format of Linux programs.
const HEADER: usize = 64;
const PROGRAM_HEADERS: usize = 32;
const PROGRAM_HEADER_LENGTH: usize = 54;
const PROGRAM_HEADER_COUNT: usize = 56;
const MACHINE: usize = 18;
const INTERPRETER: u32 = 3;
/// How much of the program is looked at.
const LOOKED_AT: u64 = 16 << 10;

/// Makes sure that `path` is a program that runs in any image: one that needs no libraries. Returns
/// the machine that it is for, as engines call it.
pub(super) fn check(path: &Path) -> Result<&'static str, DockerError> {
    let wrong = |problem: String| DockerError::NodeProgram {
        path: path.to_owned(),
        problem,
    };
    let mut bytes = Vec::new();
    let mut for_all = false;
    open_regular(path)
        .and_then(|file| {
            for_all = file.metadata()?.mode() & 0o001 != 0;
            std::io::Read::read_to_end(&mut std::io::Read::take(file, LOOKED_AT), &mut bytes)
        })
        .map_err(|error| wrong(format!("cannot be read: {error}")))?;
    let machine = machine(&bytes).ok_or_else(|| wrong("is no 64-bit Linux program".to_owned()))?;
    match needs_libraries(&bytes) {
        Some(false) if for_all => Ok(machine),
        // Connections into a sandbox are another user's.
        Some(false) => Err(wrong("can be run by its owner only: chmod 755".to_owned())),
        Some(true) => Err(wrong("needs the libraries of this machine".to_owned())),
        None => Err(wrong("has a header that makes no sense".to_owned())),
    }
}

fn machine(bytes: &[u8]) -> Option<&'static str> {
    // Little-endian and of 64 bits.
    if !bytes.starts_with(b"\x7fELF\x02\x01") || bytes.len() < HEADER {
        return None;
    }
    match number::<2>(bytes, MACHINE)? {
        62 => Some("amd64"),
        183 => Some("arm64"),
        _ => None,
    }
}

/// None when it cannot be told.
fn needs_libraries(bytes: &[u8]) -> Option<bool> {
    let first = usize::try_from(number::<8>(bytes, PROGRAM_HEADERS)?).ok()?;
    let length = usize::try_from(number::<2>(bytes, PROGRAM_HEADER_LENGTH)?).ok()?;
    let count = usize::try_from(number::<2>(bytes, PROGRAM_HEADER_COUNT)?).ok()?;
    for index in 0..count {
        let at = first.checked_add(length.checked_mul(index)?)?;
        if number::<4>(bytes, at)? == u64::from(INTERPRETER) {
            return Some(true);
        }
    }
    Some(false)
}

fn number<const LENGTH: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(LENGTH)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)),
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_program_that_needs_libraries_is_refused() {
        let own = std::env::current_exe().unwrap();
        let error = check(&own).unwrap_err().to_string();
        assert!(
            error.ends_with("needs the libraries of this machine"),
            "{error}"
        );
        let script = tempfile::NamedTempFile::new().unwrap();
        fs_err::write(script.path(), "#!/bin/sh\n").unwrap();
        let error = check(script.path()).unwrap_err().to_string();
        assert!(error.ends_with("is no 64-bit Linux program"), "{error}");
    }

    proptest! {
        #[test]
        fn no_bytes_are_a_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = needs_libraries(&bytes);
            bytes.splice(0..0, *b"\x7fELF\x02\x01");
            let _ = machine(&bytes);
            let _ = needs_libraries(&bytes);
        }
    }
}
