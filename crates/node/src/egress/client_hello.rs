use super::host::HostName;

/// Most bytes of a client's first message: far more than any client sends, and what a server takes.
pub(super) const MOST_BYTES: usize = 64 * 1024;

const HANDSHAKE_RECORD: u8 = 22;
const LONGEST_RECORD: usize = 16 * 1024;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
/// Encrypted client hello, in its final form and in the drafts that were in use.
const ENCRYPTED: [u16; 5] = [0xfe0d, 0xfe0a, 0xfe09, 0xfe08, 0xffce];

/// What the first bytes of a client say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hello {
    /// There have to be more of them.
    Incomplete,
    /// They are not TLS.
    Other,
    /// They are TLS, and not as the protocol has it.
    Malformed(&'static str),
    /// A client hello that names this server, or none.
    Names(Option<HostName>),
}

/// Reads the name that a TLS client asks for. What is in doubt is malformed: a server may read it
/// in another way.
pub(super) fn read(bytes: &[u8]) -> Hello {
    match handshake(bytes) {
        Ok(message) => match name(&message) {
            Ok(name) => Hello::Names(name),
            Err(problem) => Hello::Malformed(problem),
        },
        Err(hello) => hello,
    }
}

/// The body of the client hello, out of as many records as it takes.
fn handshake(bytes: &[u8]) -> Result<Vec<u8>, Hello> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        match rest {
            [] => return Err(Hello::Incomplete),
            [HANDSHAKE_RECORD] => return Err(Hello::Incomplete),
            [HANDSHAKE_RECORD, 3, ..] => {}
            _ if message.is_empty() => return Err(Hello::Other),
            _ => {
                return Err(Hello::Malformed(
                    "another record in the middle of the hello",
                ));
            }
        }
        let Some((header, body)) = rest.split_at_checked(5) else {
            return Err(Hello::Incomplete);
        };
        let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
        if length == 0 || length > LONGEST_RECORD {
            return Err(Hello::Malformed("a record of no length"));
        }
        let part = &body[..body.len().min(length)];
        message.extend_from_slice(part);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err(Hello::Malformed("the first message is no client hello"));
        }
        if let Some((header, body)) = message.split_at_checked(4) {
            let length =
                usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
            if length > MOST_BYTES {
                return Err(Hello::Malformed("a hello of no length"));
            }
            if body.len() > length {
                return Err(Hello::Malformed("more than a hello in its record"));
            }
            if body.len() == length {
                return Ok(message.split_off(4));
            }
        }
        if part.len() < length {
            return Err(Hello::Incomplete);
        }
        rest = &body[length..];
    }
}

fn name(message: &[u8]) -> Result<Option<HostName>, &'static str> {
    const SHORT: &str = "the hello ends too early";
    let mut reader = Reader(message);
    reader.take(2 + 32).ok_or(SHORT)?;
    reader.vector(1).ok_or(SHORT)?;
    reader.vector(2).ok_or(SHORT)?;
    reader.vector(1).ok_or(SHORT)?;
    if reader.0.is_empty() {
        return Ok(None);
    }
    let mut extensions = Reader(reader.vector(2).ok_or(SHORT)?);
    if !reader.0.is_empty() {
        return Err("bytes after the extensions");
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number(2).ok_or(SHORT)?;
        let body = extensions.vector(2).ok_or(SHORT)?;
        let kind = u16::try_from(kind).unwrap_or(u16::MAX);
        if ENCRYPTED.contains(&kind) {
            return Err("the name that is meant is encrypted");
        }
        if kind == SERVER_NAME {
            if found.is_some() {
                return Err("two names");
            }
            found = Some(server_name(body)?);
        }
    }
    Ok(found)
}

fn server_name(body: &[u8]) -> Result<HostName, &'static str> {
    const WRONG: &str = "the name is not written as one";
    let mut reader = Reader(body);
    let mut names = Reader(reader.vector(2).ok_or(WRONG)?);
    let kind = names.number(1).ok_or(WRONG)?;
    let name = names.vector(2).ok_or(WRONG)?;
    if kind != 0 || !names.0.is_empty() || !reader.0.is_empty() {
        return Err(WRONG);
    }
    let text = std::str::from_utf8(name).map_err(|_| WRONG)?;
    HostName::parse(text).map_err(|_| WRONG)
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self, bytes: usize) -> Option<usize> {
        let taken = self.take(bytes)?;
        Some(
            taken
                .iter()
                .fold(0, |number, byte| number << 8 | usize::from(*byte)),
        )
    }

    /// Bytes with their count in front, of which there are `size`.
    fn vector(&mut self, size: usize) -> Option<&'a [u8]> {
        let count = self.number(size)?;
        self.take(count)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use rustls::pki_types::ServerName;

    use super::*;

    /// What a real client begins with.
    pub(crate) fn real_hello(name: &str) -> Vec<u8> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let settings = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let mut client = rustls::ClientConnection::new(Arc::new(settings), name).unwrap();
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        bytes
    }

    fn names(name: &str) -> Hello {
        Hello::Names(Some(HostName::parse(name).unwrap()))
    }

    /// The same message in records of this size.
    fn cut(bytes: &[u8], size: usize) -> Vec<u8> {
        bytes[5..]
            .chunks(size)
            .flat_map(|chunk| {
                let length = u16::try_from(chunk.len()).unwrap().to_be_bytes();
                [&[22, 3, 1][..], &length, chunk].concat()
            })
            .collect()
    }

    /// A hello with these extensions and nothing else of interest.
    fn made(extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let extensions: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, body)| {
                let length = u16::try_from(body.len()).unwrap().to_be_bytes();
                [&kind.to_be_bytes()[..], &length, body].concat()
            })
            .collect();
        let length = u16::try_from(extensions.len()).unwrap().to_be_bytes();
        let body = [
            &[3, 3][..],
            &[7; 32],
            &[0, 0, 2, 0x13, 1, 1, 0],
            &length,
            &extensions,
        ]
        .concat();
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let message = [&[1][..], &length[1..], &body].concat();
        let length = u16::try_from(message.len()).unwrap().to_be_bytes();
        [&[22, 3, 1][..], &length, &message].concat()
    }

    fn sni(name: &str) -> Vec<u8> {
        let length = u16::try_from(name.len()).unwrap();
        let outer = (length + 3).to_be_bytes();
        [&outer[..], &[0], &length.to_be_bytes(), name.as_bytes()].concat()
    }

    #[test]
    fn a_real_client_is_understood_however_it_is_cut() {
        let hello = real_hello("api.example.com");
        assert_eq!(read(&hello), names("api.example.com"));
        for size in [1, 2, 7, 100] {
            assert_eq!(read(&cut(&hello, size)), names("api.example.com"));
        }
        for end in 0..hello.len() {
            assert_eq!(read(&hello[..end]), Hello::Incomplete, "{end}");
        }
        assert_eq!(read(&real_hello("127.0.0.1")), Hello::Names(None));
    }

    #[test]
    fn what_a_server_might_read_otherwise_is_malformed() {
        let malformed = |bytes: &[u8]| matches!(read(bytes), Hello::Malformed(_));
        let name = sni("a.com");
        assert_eq!(read(&made(&[(0, &name)])), names("a.com"));
        assert_eq!(read(&made(&[])), Hello::Names(None));
        assert!(malformed(&made(&[(0, &name), (0, &sni("b.com"))])));
        assert!(malformed(&made(&[(0, &name), (0xfe0d, b"x")])));
        assert!(malformed(&made(&[(0, &sni("a.com\0b.com"))])));
        assert!(malformed(&made(&[(0, &sni("127.0.0.1"))])));
        assert!(malformed(&made(&[(0, &sni(""))])));
        assert!(malformed(&made(&[(0, &[])])));
        let two = [&[0, 16][..], &sni("a.com")[2..], &sni("b.com")[2..]].concat();
        assert!(malformed(&made(&[(0, &two)])));
        // A second message in the same record, and an alert in the middle.
        let mut more = made(&[(0, &name)]);
        let length = u16::from_be_bytes([more[3], more[4]]) + 1;
        more[3..5].copy_from_slice(&length.to_be_bytes());
        more.push(0);
        assert!(malformed(&more));
        let hello = cut(&made(&[(0, &name)]), 20);
        let alert = [&hello[..25], &[21, 3, 1, 0, 2, 1, 0], &hello[25..]].concat();
        assert!(malformed(&alert));
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Hello::Other);
        assert_eq!(read(&[0x80, 0x2e, 1, 3, 1]), Hello::Other);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let tls = [&[22, 3, 1][..], &bytes].concat();
            let _ = read(&tls);
        }

        #[test]
        fn one_wrong_byte_never_gives_a_name_that_was_not_there(at in 0usize..200, value: u8) {
            let mut hello = real_hello("api.example.com");
            let at = at % hello.len();
            hello[at] = value;
            if let Hello::Names(Some(name)) = read(&hello) {
                let text = name.as_str().as_bytes();
                let lower = hello.to_ascii_lowercase();
                prop_assert!(lower.windows(text.len()).any(|window| window == text));
            }
        }
    }
}
