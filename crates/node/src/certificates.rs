//! Certificates of authorities that the user trusts: added to those of the place where programs
//! run, never put in their place.

use std::io;
use std::path::{Path, PathBuf};

use crate::sys::files::read_bounded;

/// The variables by which users name such certificates, and by which programs find them. By the
/// last two, tools find them whatever a machine's own configuration of theirs says.
pub const AUTHORITY_VARIABLES: [&str; 8] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "CARGO_HTTP_CAINFO",
    "PIP_CERT",
    "npm_config_cafile",
];

/// Where systems have the certificates that everybody trusts.
pub(crate) const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Longest file of certificates; those of a system take a quarter of a megabyte.
pub(crate) const LONGEST_BUNDLE: u64 = 8 << 20;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Certificates of authorities that the user trusts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities(Vec<String>);

impl Authorities {
    /// Takes the certificates out of these files. Whatever else is in them, such as a key, is left.
    pub fn read(files: &[PathBuf]) -> Result<Self, AuthorityError> {
        let mut all = Self::default();
        for path in files {
            let failed = |source| AuthorityError {
                path: path.clone(),
                source,
            };
            let found = certificates(&read(path).map_err(failed)?);
            if found.is_empty() {
                return Err(failed(io::Error::other("there is no certificate in it")));
            }
            all.add(found);
        }
        Ok(all)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those of `own` files first, then these, each once.
    pub(crate) fn bundle(&self, own: &[Vec<u8>]) -> String {
        let mut all = Self::default();
        for bytes in own {
            all.add(certificates(bytes));
        }
        all.add(self.0.clone());
        all.0.concat()
    }

    fn add(&mut self, found: Vec<String>) {
        let mut known: std::collections::BTreeSet<String> = self.0.iter().cloned().collect();
        let new = found.into_iter();
        self.0.extend(new.filter(|one| known.insert(one.clone())));
    }
}

/// The certificates of this machine, and where they are.
pub(crate) fn of_this_machine() -> Option<(&'static Path, Vec<u8>)> {
    let mut bundles = BUNDLES.iter().map(Path::new);
    bundles.find_map(|path| Some((path, read(path).ok()?)))
}

/// They are links on many systems.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let bytes = read_bounded(&fs_err::canonicalize(path)?, LONGEST_BUNDLE)?;
    bytes.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A file of certificates cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the certificates in `{}` cannot be used", path.display())]
pub struct AuthorityError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

/// Each certificate of a file as text of its own, with a newline at its end.
fn certificates(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut found = Vec::new();
    let mut rest = text.as_ref();
    while let Some(start) = rest.find(BEGIN) {
        let block = &rest[start..];
        let Some(end) = block.find(END) else {
            break;
        };
        let (block, after) = block.split_at(end + END.len());
        // One that was cut off has the beginning of the next one in it.
        let inner = &block[BEGIN.len()..];
        match inner.find(BEGIN) {
            Some(again) => rest = &rest[start + BEGIN.len() + again..],
            None => {
                found.push(format!("{}\n", block.replace('\r', "")));
                rest = after;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(content: &str) -> String {
        format!("{BEGIN}\n{content}\n{END}\n")
    }

    #[test]
    fn bc_41_certificates_are_added_and_nothing_else_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = place.path().join(name);
            fs_err::write(&path, text).unwrap();
            path
        };
        let key = "-----BEGIN PRIVATE KEY-----\nsecret\n-----END PRIVATE KEY-----\n";
        let first = write("first", &format!("# one\n{}{key}{}", one("A"), one("B")));
        let second = write("second", &one("B").replace('\n', "\r\n"));
        let authorities = Authorities::read(&[first, second]).unwrap();
        let system = format!("# system\n{}{}", one("S"), one("A"));
        assert_eq!(
            authorities.bundle(&[system.into_bytes()]),
            format!("{}{}{}", one("S"), one("A"), one("B"))
        );
        assert_eq!(authorities.bundle(&[]), format!("{}{}", one("A"), one("B")));
        for bad in [
            write("key", key),
            write("empty", ""),
            place.path().join("none"),
        ] {
            assert!(Authorities::read(&[bad]).is_err());
        }
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_reader(parts in prop::collection::vec(prop_oneof![Just(BEGIN.to_owned()), Just(END.to_owned()), "[a\r\n\u{e9}-]{0,6}"], 0..12)) {
            for found in certificates(parts.concat().as_bytes()) {
                prop_assert_eq!(found.matches(BEGIN).count(), 1);
                prop_assert!(found.starts_with(BEGIN) && found.trim_end().ends_with(END));
            }
        }
    }
}
