use super::client_hello::{self, Hello, MOST_BYTES};
use super::host::HostName;

/// The longest first line of a web request.
const LONGEST_LINE: usize = 16 * 1024;

/// What a client speaks, by its first bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Protocol {
    /// There have to be more of them.
    Undecided,
    /// TLS, for this server.
    Tls(Option<HostName>),
    /// HTTP without TLS.
    Web,
    /// Something that names no host.
    Other,
    /// Something that cannot be read, or goes on for ever.
    Refused,
}

/// The first bytes of a client, kept until it is known what they are.
#[derive(Debug, Default)]
pub(super) struct Opening {
    bytes: Vec<u8>,
}

impl Opening {
    /// Takes more bytes.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Protocol {
        self.bytes.extend_from_slice(bytes);
        match client_hello::read(&self.bytes) {
            Hello::Names(name) => Protocol::Tls(name),
            Hello::Malformed(_) => Protocol::Refused,
            Hello::Incomplete if self.bytes.len() >= MOST_BYTES => Protocol::Refused,
            Hello::Incomplete => Protocol::Undecided,
            Hello::Other => web(&self.bytes),
        }
    }

    /// The client says no more. What it said is no request that a server could answer, unless it
    /// lacks nothing but the end of its line.
    pub(super) fn at_end(&self) -> Protocol {
        match client_hello::read(&self.bytes) {
            _ if self.bytes.is_empty() => Protocol::Other,
            Hello::Other if !has_version(&self.bytes) => Protocol::Other,
            _ => Protocol::Refused,
        }
    }

    /// All of them.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// Whether there is a request line. A server may take more than the standard has, so anything like
/// it is a web request.
fn web(bytes: &[u8]) -> Protocol {
    let blank = bytes
        .iter()
        .take_while(|byte| matches!(byte, b'\r' | b'\n'))
        .count();
    let bytes = &bytes[blank..];
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let line = &bytes[..end.unwrap_or(bytes.len())];
    let is_text = line
        .iter()
        .all(|byte| matches!(byte, b'\t' | b'\r' | b' '..=b'~' | 0x80..));
    if !is_text {
        return Protocol::Other;
    }
    match end {
        Some(_) if has_version(line) => Protocol::Web,
        Some(_) => Protocol::Other,
        None if !may_become_request(line) => Protocol::Other,
        None if line.len() + blank >= LONGEST_LINE => Protocol::Refused,
        None => Protocol::Undecided,
    }
}

fn has_version(line: &[u8]) -> bool {
    let mut windows = line.windows(5);
    windows.any(|window| window.eq_ignore_ascii_case(b"HTTP/"))
}

/// Whether a request may begin like this: its first word is a method, which has letters, digits and
/// some signs. Protocols of text such as those of Subversion and XMPP begin with others, and end no
/// line.
fn may_become_request(line: &[u8]) -> bool {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r');
    let word = line.iter().skip_while(|byte| is_blank(byte));
    let mut word = word.take_while(|byte| !is_blank(byte));
    word.all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::client_hello::tests::real_hello;
    use super::*;

    fn all_at_once(bytes: &[u8]) -> Protocol {
        Opening::default().push(bytes)
    }

    #[test]
    fn protocols_are_known_however_they_arrive() {
        let tls = Protocol::Tls(Some(HostName::parse("a.example").unwrap()));
        let cases: [(&[u8], Protocol); 13] = [
            (&real_hello("a.example"), tls),
            (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Protocol::Web),
            (b"\r\n\r\nget http://b/ http/1.1\n", Protocol::Web),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Protocol::Web),
            (b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", Protocol::Other),
            (b"EHLO me.example\r\n", Protocol::Other),
            (b"( 2 ( edit-pipeline ) ", Protocol::Other),
            (b"<?xml version='1.0'?><stream:stream ", Protocol::Other),
            (b"\xc3\xa9", Protocol::Other),
            (b" \tget / http/1.1\n", Protocol::Web),
            (b"\0\0\0\x08\x04\xd2\x16\x2f", Protocol::Other),
            (b"\x30\x0c\x02\x01\x01\x60\x07", Protocol::Other),
            (b"\x16\x03\x01\x00\x00", Protocol::Refused),
        ];
        for (bytes, protocol) in cases {
            assert_eq!(all_at_once(bytes), protocol, "{bytes:?}");
            let mut opening = Opening::default();
            let mut last = Protocol::Undecided;
            for byte in bytes {
                if last == Protocol::Undecided {
                    last = opening.push(&[*byte]);
                }
            }
            assert_eq!(last, protocol, "{bytes:?} byte by byte");
        }
    }

    #[test]
    fn at_the_end_only_what_may_be_a_request_is_refused() {
        for (bytes, protocol) in [
            (&b""[..], Protocol::Other),
            (b"example.com", Protocol::Other),
            (b"GET / HT", Protocol::Other),
            (b"GET http://b/ http/1.0", Protocol::Refused),
            (b"\x16\x03\x01", Protocol::Refused),
        ] {
            let mut opening = Opening::default();
            assert_eq!(opening.push(bytes), Protocol::Undecided, "{bytes:?}");
            assert_eq!(opening.at_end(), protocol, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn a_request_is_known_in_whatever_pieces_it_comes(
            method in "[A-Za-z!#$%&'*+.^_`|~-]{1,12}",
            target in "[ -~]{0,40}",
            cut in 0usize..60,
        ) {
            let line = format!("{method} {target} HTTP/1.1\r\n");
            let (first, second) = line.as_bytes().split_at(cut.min(line.len()));
            let mut opening = Opening::default();
            let last = match opening.push(first) {
                Protocol::Undecided => opening.push(second),
                decided => decided,
            };
            prop_assert_eq!(last, Protocol::Web);
        }
    }

    #[test]
    fn nothing_is_kept_for_ever() {
        let mut opening = Opening::default();
        let mut last = Protocol::Undecided;
        for _ in 0..LONGEST_LINE {
            if last == Protocol::Undecided {
                last = opening.push(b"A");
            }
        }
        assert_eq!(last, Protocol::Refused);
        let mut opening = Opening::default();
        let record = [&[22, 3, 1, 0x40, 0, 1, 1, 0, 0][..], &[0; 0x4000 - 4]].concat();
        let mut last = opening.push(&record);
        for _ in 0..8 {
            if last == Protocol::Undecided {
                last = opening.push(&[&[22, 3, 1, 0x40, 0][..], &[0; 0x4000]].concat());
            }
        }
        assert_ne!(last, Protocol::Undecided);
        assert_eq!(Opening::default().at_end(), Protocol::Other);
    }
}
