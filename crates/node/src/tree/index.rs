//! Reading the index of a place, which `git ls-files` costs a process for, at every snapshot.

use crate::git::ObjectFormat;

/// What an index has at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) path: Vec<u8>,
    pub(super) is_submodule: bool,
}

/// Bytes of metadata in front of an entry's object id.
const METADATA: usize = 40;
/// Where in it the mode is.
const MODE: std::ops::Range<usize> = 24..28;
const SUBMODULE: u32 = 0o160_000;
/// The bit of an entry's flags which says that two more bytes of flags follow.
const MORE_FLAGS: u16 = 1 << 14;

/// The entries of an index as git writes it when nothing asks for another form (version 2, or 3
/// with marks on some entries). None for any other form and for what is damaged: that is for git to
/// read, or to complain of.
pub(super) fn read_index(bytes: &[u8], format: ObjectFormat) -> Option<Vec<IndexEntry>> {
    let id_length = match format {
        ObjectFormat::Sha1 => 20,
        ObjectFormat::Sha256 => 32,
    };
    let (header, rest) = bytes.split_at_checked(12)?;
    // At the end is a digest of the rest.
    let mut rest = rest.get(..rest.len().checked_sub(id_length)?)?;
    if !header.starts_with(b"DIRC") || !matches!(number(header.get(4..8)?)?, 2 | 3) {
        return None;
    }
    let mut entries = Vec::new();
    for _ in 0..number(header.get(8..)?)? {
        let flags_at = METADATA + id_length;
        let flags = u16::from_be_bytes(rest.get(flags_at..flags_at + 2)?.try_into().ok()?);
        let path_at = flags_at + if flags & MORE_FLAGS == 0 { 2 } else { 4 };
        let length = rest.get(path_at..)?.iter().position(|byte| *byte == 0)?;
        entries.push(IndexEntry {
            path: rest.get(path_at..path_at + length)?.to_vec(),
            is_submodule: number(rest.get(MODE)?)? == SUBMODULE,
        });
        // NULs up to a multiple of eight, at least one.
        rest = rest.get((path_at + length + 8) / 8 * 8..)?;
    }
    // Extensions. One whose name is not upper-case changes what the entries mean.
    while !rest.is_empty() {
        let (header, after) = rest.split_at_checked(8)?;
        if !header.first()?.is_ascii_uppercase() {
            return None;
        }
        rest = after.get(usize::try_from(number(header.get(4..)?)?).ok()?..)?;
    }
    Some(entries)
}

fn number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry(path: &str, mode: u32, marked: bool, id_length: usize) -> Vec<u8> {
        let mut bytes = vec![7; MODE.start];
        bytes.extend(mode.to_be_bytes());
        bytes.resize(METADATA + id_length, 9);
        let flags = path.len().min(0xfff) as u16 | if marked { MORE_FLAGS } else { 0 };
        bytes.extend(flags.to_be_bytes());
        if marked {
            bytes.extend([0x20, 0]);
        }
        bytes.extend(path.as_bytes());
        bytes.resize((bytes.len() + 8) / 8 * 8, 0);
        bytes
    }

    fn index(entries: &[Vec<u8>], extensions: &[u8], id_length: usize) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend(3_u32.to_be_bytes());
        bytes.extend(u32::try_from(entries.len()).unwrap().to_be_bytes());
        bytes.extend(entries.concat());
        bytes.extend(extensions);
        bytes.resize(bytes.len() + id_length, 1);
        bytes
    }

    #[test]
    fn entries_are_read_whatever_their_length_and_marks() {
        for (format, id_length) in [(ObjectFormat::Sha1, 20), (ObjectFormat::Sha256, 32)] {
            let long = "d/".repeat(3000);
            let paths: Vec<String> = (1..20).map(|length| "x".repeat(length)).collect();
            let mut entries: Vec<Vec<u8>> = paths
                .iter()
                .map(|path| entry(path, 0o100_644, path.len() % 3 == 0, id_length))
                .collect();
            entries.push(entry("sub", SUBMODULE, false, id_length));
            entries.push(entry(&long, 0o120_000, true, id_length));
            let bytes = index(&entries, b"TREE\0\0\0\x02ab", id_length);
            let found = read_index(&bytes, format).unwrap();
            let names = found.iter().map(|entry| entry.path.clone());
            let expected = paths.iter().map(String::as_str).chain(["sub", &long]);
            assert!(names.eq(expected.map(|path| path.as_bytes().to_vec())));
            let submodules = found.iter().filter(|entry| entry.is_submodule);
            assert!(submodules.map(|entry| &entry.path).eq([b"sub"]));
        }
    }

    #[test]
    fn forms_that_only_git_understands_are_left_to_it() {
        let format = ObjectFormat::Sha1;
        let one = [entry("x", 0o100_644, false, 20)];
        assert!(read_index(&index(&one, b"", 20), format).is_some());
        // A split index and a sparse one.
        for extension in [b"link\0\0\0\0", b"sdir\0\0\0\0"] {
            assert_eq!(read_index(&index(&one, extension, 20), format), None);
        }
        let mut newer = index(&one, b"", 20);
        newer[7] = 4;
        assert_eq!(read_index(&newer, format), None);
        // Cut off in the middle of an entry, an extension or the digest.
        let whole = index(&one, b"TREE\0\0\0\x02ab", 20);
        let entries = read_index(&whole, format);
        for length in 0..whole.len() {
            let found = read_index(&whole[..length], format);
            assert!(found.is_none() || found == entries, "{length}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(
            count in 0_u32..4,
            bytes in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 0x40, b'x', 0xff]), 0..300),
        ) {
            let mut index = b"DIRC\0\0\0\x03".to_vec();
            index.extend(count.to_be_bytes());
            index.extend(bytes);
            let _ = read_index(&index, ObjectFormat::Sha1);
            let _ = read_index(&index, ObjectFormat::Sha256);
        }
    }
}
