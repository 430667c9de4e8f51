//! The certificates of a container: the image's own, and those that the user trusts besides.

use std::io;
use std::path::{Path, PathBuf};

use bollard::Docker;
use bollard::query_parameters::DownloadFromContainerOptionsBuilder;
use futures_util::StreamExt as _;

use super::DockerError;
use crate::certificates::{Authorities, BUNDLES, LONGEST_BUNDLE, variables};

/// Where programs find them.
pub(super) const INSIDE: &str = "/opt/mini-ork/certificates.pem";
/// The file in the private directory of a drive.
const FILE: &str = "certificates.pem";
/// Size of the header of a member, and of what contents are filled up to.
const BLOCK: usize = 512;

/// Makes the file that a container is to have; none where the user trusts nobody besides.
pub(super) fn make_place(
    authorities: &Authorities,
    private: &Path,
) -> Result<Option<PathBuf>, DockerError> {
    if authorities.is_empty() {
        return Ok(None);
    }
    let file = private.join(FILE);
    fs_err::write(&file, authorities.bundle(&[])).map_err(DockerError::Record)?;
    Ok(Some(file))
}

/// Adds the certificates of the image of `container`, which was made and not started.
pub(super) async fn complete(
    client: &Docker,
    container: &str,
    environment: &[String],
    authorities: &Authorities,
    file: &Path,
) -> Result<(), DockerError> {
    let named = environment.iter().filter_map(|entry| {
        let (name, value) = entry.split_once('=')?;
        let is_named = variables().any(|known| known == name);
        (is_named && value.starts_with('/')).then_some(value)
    });
    let mut own = Vec::new();
    for path in named {
        own.extend(download(client, container, path).await?);
    }
    for path in BUNDLES {
        if let Some(bundle) = download(client, container, path).await? {
            own.push(bundle);
            break;
        }
    }
    // The same file, which the container has mounted.
    fs_err::write(file, authorities.bundle(&own)).map_err(DockerError::Record)
}

/// A regular file of a container; none when there is no such file.
async fn download(
    client: &Docker,
    container: &str,
    path: &str,
) -> Result<Option<Vec<u8>>, DockerError> {
    let options = DownloadFromContainerOptionsBuilder::new()
        .path(path)
        .build();
    let mut pieces = Box::pin(client.download_from_container(container, Some(options)));
    let mut archive = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => archive.extend_from_slice(&piece),
            Err(error) if super::engine::is_missing(&error) => return Ok(None),
            Err(error) => return Err(DockerError::engine("read the image's certificates")(error)),
        }
        if archive.len() as u64 > LONGEST_BUNDLE {
            let error = io::Error::from(io::ErrorKind::FileTooLarge);
            return Err(DockerError::Record(error));
        }
    }
    Ok(first_file(&archive).map(<[u8]>::to_vec))
}

/// The content of the first member of a tar archive, when that is a regular file. Members that
/// describe the next one are passed over.
fn first_file(archive: &[u8]) -> Option<&[u8]> {
    let mut rest = archive;
    loop {
        let header = rest.get(..BLOCK)?;
        let digits = header[124..136].split(|byte| *byte == 0 || *byte == b' ');
        let size = digits.into_iter().find(|digits| !digits.is_empty())?;
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 8).ok()?;
        let end = BLOCK.checked_add(size)?;
        match header[156] {
            b'0' | 0 => return rest.get(BLOCK..end),
            b'x' | b'g' => rest = rest.get(end.checked_next_multiple_of(BLOCK)?..)?,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn member(kind: u8, content: &[u8]) -> Vec<u8> {
        let mut member = vec![0; BLOCK];
        let size = format!("{:011o}", content.len());
        member[124..135].copy_from_slice(size.as_bytes());
        member[156] = kind;
        member.extend_from_slice(content);
        member.resize(member.len().next_multiple_of(BLOCK), 0);
        member
    }

    #[test]
    fn a_file_is_found_in_its_archive() {
        let archive = [
            member(b'x', b"18 mtime=1.5\n"),
            member(b'0', b"content"),
            vec![0; 1024],
        ];
        assert_eq!(first_file(&archive.concat()).unwrap(), b"content");
        assert_eq!(first_file(&member(b'2', b"")), None, "a link");
        assert_eq!(first_file(&member(b'0', b"content")[..515]), None);
        assert_eq!(first_file(&[]), None);
    }

    proptest! {
        #[test]
        fn no_archive_breaks_the_reader(mut archive in prop::collection::vec(any::<u8>(), 0..1600), size in "[0-9 ]{0,12}") {
            if archive.len() > 136 {
                archive[124..124 + size.len()].copy_from_slice(size.as_bytes());
            }
            let _ = first_file(&archive);
        }
    }
}
