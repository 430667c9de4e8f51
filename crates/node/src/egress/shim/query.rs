//! Questions to the name server of a workspace, as bytes. It knows addresses of IPv4 only, because
//! that is what the loopback of a workspace has.

use std::net::Ipv4Addr;

use super::super::host::HostName;

const HEADER: usize = 12;
const ADDRESS: u16 = 1;
const ANYTHING: u16 = 255;
const INTERNET: u16 = 1;
const LIFE_SECONDS: u32 = 60;

/// What a question is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Question<'a> {
    id: [u8; 2],
    wants_recursion: bool,
    /// The question as it was put, which goes back with the answer.
    section: &'a [u8],
    /// The name; none when it is no host name.
    pub(super) name: Option<HostName>,
    /// Whether an IPv4 address answers it.
    pub(super) wants_address: bool,
}

/// What there is to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// The name has this address.
    At(Ipv4Addr),
    /// There is no such name.
    Nowhere,
    /// This server has no room for another name.
    Full,
}

/// Reads a message with one question. What is no such thing has no answer.
pub(super) fn read(message: &[u8]) -> Option<Question<'_>> {
    let (header, rest) = message.split_at_checked(HEADER)?;
    let is_answer = header[2] & 0x80 != 0;
    let operation = header[2] >> 3 & 0xf;
    if is_answer || operation != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let mut labels = Vec::new();
    let mut at = 0;
    loop {
        let length = usize::from(*rest.get(at)?);
        at += 1;
        match length {
            0 => break,
            // A pointer: there is nothing before a question that it could point to.
            64.. => return None,
            _ => labels.push(rest.get(at..at + length)?),
        }
        at += length;
        if at > 255 {
            return None;
        }
    }
    let kind = u16::from_be_bytes([*rest.get(at)?, *rest.get(at + 1)?]);
    let class = u16::from_be_bytes([*rest.get(at + 2)?, *rest.get(at + 3)?]);
    // A dot inside of a label would be another name once the labels are joined.
    let plain = labels.iter().all(|label| !label.contains(&b'.'));
    let name = String::from_utf8(labels.join(&b'.')).ok();
    Some(Question {
        id: [header[0], header[1]],
        wants_recursion: header[2] & 1 != 0,
        section: &rest[..at + 4],
        name: name
            .filter(|_| plain && class == INTERNET)
            .and_then(|name| HostName::parse(&name).ok()),
        wants_address: matches!(kind, ADDRESS | ANYTHING),
    })
}

/// The answer to a question.
pub(super) fn answer(question: &Question<'_>, known: Known) -> Vec<u8> {
    let address = match known {
        Known::At(address) if question.wants_address => Some(address),
        _ => None,
    };
    let code = match known {
        Known::At(_) => 0,
        Known::Nowhere => 3,
        Known::Full => 2,
    };
    let mut message = Vec::with_capacity(HEADER + question.section.len() + 16);
    message.extend_from_slice(&question.id);
    // An answer, and an authority for all names that there are.
    message.push(0x84 | u8::from(question.wants_recursion));
    message.push(0x80 | code);
    message.extend_from_slice(&[0, 1, 0, u8::from(address.is_some()), 0, 0, 0, 0]);
    message.extend_from_slice(question.section);
    if let Some(address) = address {
        // The name is the one at the start of the question.
        message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1]);
        message.extend_from_slice(&LIFE_SECONDS.to_be_bytes());
        message.extend_from_slice(&[0, 4]);
        message.extend_from_slice(&address.octets());
    }
    message
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(name: &str, kind: u8) -> Vec<u8> {
        let mut message = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend_from_slice(label.as_bytes());
        }
        message.extend_from_slice(&[0, 0, kind, 0, 1]);
        message
    }

    #[test]
    fn a_question_has_its_answer() {
        let message = asked("Api.Example.com", 1);
        let question = read(&message).unwrap();
        assert_eq!(question.name.as_ref().unwrap().as_str(), "api.example.com");
        let reply = answer(&question, Known::At(Ipv4Addr::new(127, 1, 1, 1)));
        assert_eq!(reply[..4], [0xab, 0xcd, 0x85, 0x80]);
        assert_eq!(reply[7], 1);
        assert_eq!(reply[reply.len() - 4..], [127, 1, 1, 1]);
        assert_eq!(reply[12..message.len()], message[12..]);
        let reply = answer(&question, Known::Nowhere);
        assert_eq!((reply[3] & 0xf, reply[7]), (3, 0));
        let message = asked("a.com", 28);
        let reply = answer(&read(&message).unwrap(), Known::At(Ipv4Addr::LOCALHOST));
        assert_eq!((reply[3] & 0xf, reply[7]), (0, 0), "no address of IPv6");
    }

    #[test]
    fn what_is_no_question_has_no_answer() {
        assert_eq!(read(&[]), None);
        let mut reply = asked("a.com", 1);
        reply[2] |= 0x80;
        assert_eq!(read(&reply), None);
        let mut pointer = asked("a.com", 1);
        pointer[12] = 0xc0;
        assert_eq!(read(&pointer), None);
        let mut dotted = asked("aXcom", 1);
        dotted[14] = b'.';
        assert_eq!(read(&dotted).unwrap().name, None);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Some(question) = read(&bytes) {
                let _ = answer(&question, Known::Nowhere);
            }
        }
    }
}
