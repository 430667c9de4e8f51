use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The longest name that the domain name system has.
pub(super) const LONGEST_NAME: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A host name in its one spelling: ASCII, lower case, without a dot at the end. Never an address,
/// and nothing that some program would take for one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostName(String);

/// Why a text is no host name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// There is nothing.
    #[error("the name is empty")]
    Empty,
    /// It is too long, as a whole or in a part.
    #[error("the name is too long: 253 characters, and 63 between two dots, are the most")]
    Long,
    /// It has letters beyond ASCII.
    #[error("the name is not in ASCII: write it as it is on the wire, with `xn--`")]
    NotAscii,
    /// It has an empty part, or a character that host names do not have.
    #[error("the name may have letters, digits, `-` between them, and single dots only")]
    Characters,
    /// Its last part is a number, as in an address.
    #[error("the last part is a number, as in an address: write an address as four plain numbers")]
    Number,
}

impl HostName {
    /// Takes a name of any case, with or without one dot at its end.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let text = text.strip_suffix('.').unwrap_or(text);
        if text.is_empty() {
            return Err(HostError::Empty);
        }
        if !text.is_ascii() {
            return Err(HostError::NotAscii);
        }
        if text.len() > LONGEST_NAME || text.split('.').any(|label| label.len() > LONGEST_LABEL) {
            return Err(HostError::Long);
        }
        let is_label = |label: &str| {
            let bytes = label.as_bytes();
            let ends_well = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            ends_well(bytes.first())
                && ends_well(bytes.last())
                && bytes
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
        };
        if !text.split('.').all(is_label) {
            return Err(HostError::Characters);
        }
        let last = text.rsplit('.').next().unwrap_or(text).to_ascii_lowercase();
        // `127.1`, `0x7f.1` and `2130706433` are addresses for many programs.
        let hexadecimal = last
            .strip_prefix("0x")
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if hexadecimal || last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(HostError::Number);
        }
        Ok(Self(text.to_ascii_lowercase()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether this is a name below `other`, and not `other` itself.
    pub fn is_below(&self, other: &Self) -> bool {
        self.0
            .strip_suffix(&other.0)
            .is_some_and(|rest| rest.ends_with('.'))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What a connection may be asked to go to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A name, which is resolved outside.
    Name(HostName),
    /// An address. One that is IPv4 in the clothes of IPv6 is IPv4 here.
    Address(IpAddr),
}

impl Host {
    /// Takes a name, an IPv4 address of four plain numbers, or an IPv6 address with or without
    /// brackets.
    pub fn parse(text: &str) -> Result<Self, HostError> {
        let bare = text
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        if let Some(address) = bare {
            return match address.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Self::from(IpAddr::V6(address))),
                Err(_) => Err(HostError::Characters),
            };
        }
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Address(IpAddr::V4(address)));
        }
        if text.contains(':') {
            return match text.parse::<Ipv6Addr>() {
                Ok(address) => Ok(Self::from(IpAddr::V6(address))),
                Err(_) => Err(HostError::Characters),
            };
        }
        HostName::parse(text).map(Self::Name)
    }
}

impl From<IpAddr> for Host {
    fn from(address: IpAddr) -> Self {
        Self::Address(address.to_canonical())
    }
}

/// IPv6 is in brackets, so that a port can follow.
impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(formatter),
            Self::Address(IpAddr::V4(address)) => address.fmt(formatter),
            Self::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]"),
        }
    }
}

/// Splits `host`, `host:port` or `[address]:port`. A port is decimal, without a sign or a zero in
/// front, and not 0; no host is looked at.
pub(super) fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = if text.starts_with('[') {
        let end = text.find(']')? + 1;
        let (host, rest) = text.split_at(end);
        match rest {
            "" => return Some((host, None)),
            _ => (host, rest.strip_prefix(':')?),
        }
    } else {
        match text.split_once(':') {
            None => return Some((text, None)),
            // An IPv6 address without brackets has no port.
            Some((_, rest)) if rest.contains(':') => return Some((text, None)),
            Some(parts) => parts,
        }
    };
    let plain = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    let port = port.parse().ok().filter(|_| plain)?;
    Some((host, Some(port)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_have_one_spelling() {
        for (given, kept) in [
            ("GitHub.com", "github.com"),
            ("github.com.", "github.com"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
            ("localhost", "localhost"),
            ("1and1.com", "1and1.com"),
            ("a.0xyz", "a.0xyz"),
        ] {
            assert_eq!(HostName::parse(given).unwrap().as_str(), kept);
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        use HostError::{Characters, Empty, Long, NotAscii, Number};
        let long_label = format!("{}.com", "a".repeat(64));
        let long_name = ["abcdefg"; 40].join(".");
        for (text, error) in [
            ("", Empty),
            (".", Empty),
            ("a..b", Characters),
            (".a", Characters),
            ("a..", Characters),
            ("-a.com", Characters),
            ("a-.com", Characters),
            ("a_b.com", Characters),
            ("a b", Characters),
            ("a@b.com", Characters),
            ("a\0.com", Characters),
            ("a/b", Characters),
            ("b\u{fc}cher.example", NotAscii),
            ("\u{ff47}ithub.com", NotAscii),
            ("github\u{3002}com", NotAscii),
            ("127.1", Number),
            ("2130706433", Number),
            ("0x7f000001", Number),
            ("0x7f.0x1", Number),
            ("0x", Number),
            ("127.0.0.01", Number),
            ("127.0.0.1", Number),
            (long_label.as_str(), Long),
            (long_name.as_str(), Long),
        ] {
            assert_eq!(HostName::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn an_address_is_one_in_its_plain_form_only() {
        let address = |text: &str| match Host::parse(text) {
            Ok(Host::Address(address)) => Some(address.to_string()),
            _ => None,
        };
        assert_eq!(address("10.0.0.1").as_deref(), Some("10.0.0.1"));
        assert_eq!(address("::1").as_deref(), Some("::1"));
        assert_eq!(address("[2001:db8::1]").as_deref(), Some("2001:db8::1"));
        assert_eq!(
            address("::ffff:127.0.0.1").as_deref(),
            Some("127.0.0.1"),
            "IPv4 stays IPv4"
        );
        for text in [
            "[10.0.0.1]",
            "[::1",
            "::1]",
            "fe80::1%eth0",
            "1::2::3",
            "0177.0.0.1",
        ] {
            assert!(Host::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ports_are_plain_numbers() {
        assert_eq!(split_port("a"), Some(("a", None)));
        assert_eq!(split_port("a:1"), Some(("a", Some(1))));
        assert_eq!(split_port("[::1]:65535"), Some(("[::1]", Some(65535))));
        assert_eq!(split_port("[::1]"), Some(("[::1]", None)));
        assert_eq!(split_port("::1"), Some(("::1", None)));
        for text in [
            "a:", "a:0", "a:65536", "a:+1", "a:01", "a:x", "[::1]1", "[::1", "a: 1",
        ] {
            assert_eq!(split_port(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn whatever_is_taken_is_taken_again_unchanged(text in "\\PC{0,80}|[a-zA-Z0-9.:\\[\\]x-]{0,40}") {
            if let Ok(host) = Host::parse(&text) {
                prop_assert_eq!(Host::parse(&host.to_string()), Ok(host.clone()));
            }
            let _ = split_port(&text);
        }

        #[test]
        fn below_means_a_dot_between(left in "[a-z]{1,3}(\\.[a-z]{1,3}){0,2}", right in "[a-z]{1,3}(\\.[a-z]{1,3}){0,2}") {
            let (name, above) = (HostName::parse(&left).unwrap(), HostName::parse(&right).unwrap());
            let parts: Vec<&str> = left.split('.').collect();
            let tails: Vec<String> = (1..parts.len()).map(|from| parts[from..].join(".")).collect();
            prop_assert_eq!(name.is_below(&above), tails.contains(&right));
        }
    }
}
