//! The process that git asks about files with `filter=lfs`.
//!
//! Git speaks to it in packets: four hex digits with the length, themselves included, and bytes;
//! `0000` ends a list. What it sends as content is what an agent wrote.

use std::io::{self, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use super::{Kept, LARGEST, Pointer, Stores};

/// The argument that makes a program of ours this process; the control directory follows.
pub const LFS_ARGUMENT: &str = "__lfs";

/// The most that a packet holds.
const LARGEST_PACKET: usize = 65_520 - 4;
/// A list that git sends has a handful of short lines, one of them a path.
const LONGEST_LIST: usize = 64;

/// Answers until git has no more questions.
pub fn lfs_main(directory: &Path, input: &mut dyn Read, output: &mut dyn Write) -> ExitCode {
    let served = Stores::open(directory).and_then(|stores| serve(&stores, input, output));
    match served {
        Ok(()) => ExitCode::SUCCESS,
        // Git tells that its filter has ended, and fails.
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(stores: &Stores, input: &mut dyn Read, output: &mut dyn Write) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    let greeting = read_list(input)?.unwrap_or_default();
    if !has(&greeting, b"git-filter-client") || !has(&greeting, b"version=2") {
        return Err(malformed("greeting"));
    }
    write_list(&mut output, &["git-filter-server", "version=2"])?;
    read_list(input)?;
    write_list(&mut output, &["capability=clean", "capability=smudge"])?;
    while let Some(question) = read_list(input)? {
        let mut content = Packets::new(input);
        if has(&question, b"command=clean") {
            clean(stores, &mut content, &mut output)?;
        } else if has(&question, b"command=smudge") {
            smudge(stores, &mut content, &mut output)?;
        } else {
            io::copy(&mut content, &mut io::sink())?;
            write_list(&mut output, &["status=error"])?;
        }
    }
    Ok(())
}

/// Content becomes a pointer; a pointer, and nothing at all, stay what they are.
fn clean(stores: &Stores, content: &mut Packets<'_>, output: &mut dyn Write) -> io::Result<()> {
    let beginning = beginning(content)?;
    let text = if beginning.is_empty() || Pointer::parse(&beginning).is_some() {
        beginning
    } else {
        let kept = stores.keep(io::Cursor::new(&beginning).chain(&mut *content));
        // Before git is told of it, it has to have been heard to the end.
        io::copy(content, &mut io::sink())?;
        match kept {
            Ok(Kept::Pointer(pointer)) => pointer.text().into_bytes(),
            Ok(Kept::Raw(mut file)) => return answer(&mut file, output),
            Err(_) => return write_list(output, &["status=error"]),
        }
    };
    answer(&mut text.as_slice(), output)
}

/// A pointer becomes the content, where it is here; anything else stays what it is.
fn smudge(stores: &Stores, content: &mut Packets<'_>, output: &mut dyn Write) -> io::Result<()> {
    let beginning = beginning(content)?;
    let stored = Pointer::parse(&beginning).and_then(|pointer| stores.open_content(&pointer));
    match stored {
        Some(mut stored) => answer(&mut stored, output),
        None => {
            // Git listens to no answer before it has said everything.
            let mut all = beginning;
            content.read_to_end(&mut all)?;
            if !all.is_empty() && Pointer::parse(&all).is_none() {
                stores.remember_raw(&all)?;
            }
            answer(&mut all.as_slice(), output)
        }
    }
}

/// As much as tells a pointer from other content.
fn beginning(content: &mut Packets<'_>) -> io::Result<Vec<u8>> {
    let mut beginning = Vec::new();
    content.take(LARGEST + 1).read_to_end(&mut beginning)?;
    Ok(beginning)
}

fn answer(content: &mut dyn Read, output: &mut dyn Write) -> io::Result<()> {
    write_list(output, &["status=success"])?;
    let mut buffer = vec![0; LARGEST_PACKET];
    loop {
        let count = content.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        write_packet(output, buffer.get(..count).unwrap_or_default())?;
    }
    output.write_all(b"0000")?;
    // The status stays as it was said.
    write_list(output, &[])
}

/// The lines up to the end of a list; none when git has gone.
fn read_list(input: &mut dyn Read) -> io::Result<Option<Vec<Vec<u8>>>> {
    let mut lines = Vec::new();
    loop {
        match read_packet(input)? {
            None if lines.is_empty() => return Ok(None),
            None => return Err(malformed("end in a list")),
            Some(packet) if packet.is_empty() => return Ok(Some(lines)),
            Some(_) if lines.len() == LONGEST_LIST => return Err(malformed("list")),
            Some(mut packet) => {
                if packet.last() == Some(&b'\n') {
                    packet.pop();
                }
                lines.push(packet);
            }
        }
    }
}

fn has(list: &[Vec<u8>], line: &[u8]) -> bool {
    list.iter().any(|each| each == line)
}

/// The next packet, an empty one for the end of a list; none at the end of the input.
fn read_packet(input: &mut dyn Read) -> io::Result<Option<Vec<u8>>> {
    let mut header = Vec::new();
    input.take(4).read_to_end(&mut header)?;
    if header.is_empty() {
        return Ok(None);
    }
    let length = std::str::from_utf8(&header)
        .ok()
        .filter(|text| text.len() == 4)
        .and_then(|text| usize::from_str_radix(text, 16).ok())
        .ok_or_else(|| malformed("length"))?;
    let length = match length {
        0 => return Ok(Some(Vec::new())),
        length => length.checked_sub(4).filter(|length| *length > 0),
    };
    let mut packet = vec![0; length.ok_or_else(|| malformed("length"))?];
    input.read_exact(&mut packet)?;
    Ok(Some(packet))
}

fn write_packet(output: &mut dyn Write, bytes: &[u8]) -> io::Result<()> {
    write!(output, "{:04x}", bytes.len() + 4)?;
    output.write_all(bytes)
}

fn write_list(output: &mut dyn Write, lines: &[&str]) -> io::Result<()> {
    for line in lines {
        write_packet(output, format!("{line}\n").as_bytes())?;
    }
    output.write_all(b"0000")?;
    output.flush()
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("git sent an unexpected {what}"),
    )
}

/// Content that comes in packets.
struct Packets<'a> {
    input: &'a mut dyn Read,
    packet: io::Cursor<Vec<u8>>,
    ended: bool,
}

impl<'a> Packets<'a> {
    fn new(input: &'a mut dyn Read) -> Self {
        Self {
            input,
            packet: io::Cursor::default(),
            ended: false,
        }
    }
}

impl Read for Packets<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.packet.read(buffer)?;
            if count > 0 || self.ended || buffer.is_empty() {
                return Ok(count);
            }
            let packet = read_packet(self.input)?.ok_or_else(|| malformed("end"))?;
            self.ended = packet.is_empty();
            self.packet = io::Cursor::new(packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets(words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in words {
            if word.is_empty() {
                bytes.extend(b"0000");
            } else {
                write_packet(&mut bytes, word).unwrap();
            }
        }
        bytes
    }

    fn ask(directory: &Path, questions: &[&[u8]]) -> (bool, Vec<u8>) {
        let greeting: [&[u8]; 5] = [
            b"git-filter-client\n",
            b"version=2\n",
            b"",
            b"capability=clean\n",
            b"",
        ];
        let input = packets(&[&greeting, questions].concat());
        let mut output = Vec::new();
        let stores = Stores::open(directory).unwrap();
        let served = serve(&stores, &mut input.as_slice(), &mut output);
        let hello = packets(&[
            b"git-filter-server\n",
            b"version=2\n",
            b"",
            b"capability=clean\n",
            b"capability=smudge\n",
            b"",
        ]);
        (served.is_ok(), output.split_off(hello.len()))
    }

    #[test]
    fn content_becomes_a_pointer_and_content_again() {
        let directory = tempfile::tempdir().unwrap();
        let content = vec![7; 200_000];
        let mut question: Vec<&[u8]> = vec![b"command=clean\n", b"pathname=a\n", b""];
        question.extend(content.chunks(LARGEST_PACKET));
        question.push(b"");
        let (served, output) = ask(directory.path(), &question);
        let pointer = Pointer {
            digest: super::super::hex(&<sha2::Sha256 as sha2::Digest>::digest(&content)),
            size: 200_000,
        };
        let text = pointer.text();
        assert!(served);
        assert_eq!(
            output,
            packets(&[b"status=success\n", b"", text.as_bytes(), b"", b""])
        );
        let question: [&[u8]; 5] = [
            b"command=smudge\n",
            b"pathname=a\n",
            b"",
            text.as_bytes(),
            b"",
        ];
        let (served, output) = ask(directory.path(), &question);
        assert!(served);
        let mut expected: Vec<&[u8]> = vec![b"status=success\n", b""];
        expected.extend(content.chunks(LARGEST_PACKET));
        expected.extend([&b""[..], b""]);
        assert!(output == packets(&expected));
    }

    #[test]
    fn what_is_nowhere_stays_a_pointer_and_nothing_stays_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let pointer = Pointer {
            digest: "ab".repeat(32),
            size: 3,
        };
        let text = pointer.text();
        for command in [&b"command=smudge\n"[..], b"command=clean\n"] {
            let (served, output) = ask(
                directory.path(),
                &[command, b"pathname=a\n", b"", text.as_bytes(), b""],
            );
            assert!(served);
            let expected = packets(&[b"status=success\n", b"", text.as_bytes(), b"", b""]);
            assert_eq!(output, expected);
            let question: [&[u8]; 4] = [command, b"pathname=a\n", b"", b""];
            let (_, output) = ask(directory.path(), &question);
            assert_eq!(output, packets(&[b"status=success\n", b"", b"", b""]));
        }
        assert!(!directory.path().join("lfs").exists());
        let (_, output) = ask(directory.path(), &[b"command=other\n", b"", b"x", b""]);
        assert_eq!(output, packets(&[b"status=error\n", b""]));
    }

    proptest! {
        #[test]
        fn no_input_makes_the_filter_panic(
            bytes in prop::collection::vec(prop::sample::select(b"0005f\nversion=2".to_vec()), 0..80),
        ) {
            let directory = tempfile::tempdir().unwrap();
            let stores = Stores::open(directory.path()).unwrap();
            let mut output = Vec::new();
            drop(serve(&stores, &mut bytes.as_slice(), &mut output));
            let mut input = packets(&[b"git-filter-client\n", b"version=2\n", b"", b""]);
            input.extend(bytes);
            drop(serve(&stores, &mut input.as_slice(), &mut output));
        }
    }
}
