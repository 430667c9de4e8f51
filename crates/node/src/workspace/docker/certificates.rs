//! The certificates of a container: the image's own, and those that the user trusts besides.

use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::DownloadFromContainerOptionsBuilder;
use futures_util::StreamExt as _;

use super::boundary::create_named;
use super::container::{ContainerRecord, NO_NETWORK, NODE_PROGRAM, labels};
use super::{DockerError, engine};
use crate::certificates::{AUTHORITY_VARIABLES, Authorities, BUNDLES, LONGEST_BUNDLE};
use crate::workspace::Drive;

/// Where programs find them.
pub(super) const INSIDE: &str = "/opt/mini-ork/certificates.pem";
/// The file in the private directory of a drive.
const FILE: &str = "certificates.pem";
/// Size of the header of a member, and of what contents are filled up to.
const BLOCK: usize = 512;
/// Most links that lead to a file of certificates.
const MOST_LINKS: usize = 8;

/// The certificates of a container.
#[derive(Debug)]
pub(super) struct Bundle {
    /// The file on this machine.
    pub(super) file: PathBuf,
    /// Where the image has its own. Many programs know that place alone, so it is covered.
    pub(super) covered: PathBuf,
}

/// Makes the certificates that `container` is to have: those of its image with the user's. Those of
/// the image are read from a container of its name that is never started, and is gone afterwards:
/// in one that has the file mounted they could not be seen.
pub(super) async fn bundle(
    client: &Docker,
    container: &ContainerRecord,
    drive: &Drive,
    environment: &[String],
    authorities: &Authorities,
) -> Result<Bundle, DockerError> {
    let body = ContainerCreateBody {
        image: Some(container.image_id.clone()),
        entrypoint: Some(vec![NODE_PROGRAM.to_owned()]),
        labels: Some(labels(drive)?),
        host_config: Some(HostConfig {
            network_mode: Some(NO_NETWORK.to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    create_named(client, container, body).await?;
    let found = of_image(client, &container.name, environment).await;
    engine::remove(client, &container.name).await?;
    let (covered, own) = found?;
    let file = drive.private.join(FILE);
    fs_err::write(&file, authorities.bundle(&own)).map_err(DockerError::Record)?;
    Ok(Bundle { file, covered })
}

/// Where an image has its certificates, and all that it has.
async fn of_image(
    client: &Docker,
    container: &str,
    environment: &[String],
) -> Result<(PathBuf, Vec<Vec<u8>>), DockerError> {
    let named = environment.iter().filter_map(|entry| {
        let (name, value) = entry.split_once('=')?;
        let is_named = AUTHORITY_VARIABLES.contains(&name);
        (is_named && value.starts_with('/')).then_some(value)
    });
    let mut own = Vec::new();
    for path in named {
        let found = read(client, container, Path::new(path)).await?;
        own.extend(found.map(|(_, content)| content));
    }
    for path in BUNDLES {
        if let Some((path, content)) = read(client, container, Path::new(path)).await? {
            own.push(content);
            return Ok((path, own));
        }
    }
    Ok((BUNDLES[0].into(), own))
}

/// A regular file of a container, wherever links lead, and where it is; none when there is no such
/// file.
async fn read(
    client: &Docker,
    container: &str,
    path: &Path,
) -> Result<Option<(PathBuf, Vec<u8>)>, DockerError> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let archive = download(client, container, &path).await?;
        match first_member(&archive) {
            Some(Member::File(content)) => return Ok(Some((path, content.to_owned()))),
            Some(Member::Link(target)) => path = follow(&path, target),
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Where a link at `path` leads.
fn follow(path: &Path, target: &Path) -> PathBuf {
    let mut found = PathBuf::from("/");
    let parent = path.parent().unwrap_or(Path::new("/"));
    for component in parent.join(target).components() {
        match component {
            Component::Normal(name) => found.push(name),
            Component::ParentDir => {
                found.pop();
            }
            _ => {}
        }
    }
    found
}

/// The archive of one file of a container; empty when there is no such file.
async fn download(client: &Docker, container: &str, path: &Path) -> Result<Vec<u8>, DockerError> {
    let Some(path) = path.to_str() else {
        return Ok(Vec::new());
    };
    let options = DownloadFromContainerOptionsBuilder::new()
        .path(path)
        .build();
    let mut pieces = Box::pin(client.download_from_container(container, Some(options)));
    let mut archive = Vec::new();
    while let Some(piece) = pieces.next().await {
        match piece {
            Ok(piece) => archive.extend_from_slice(&piece),
            Err(error) if engine::is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(DockerError::engine("read the image's certificates")(error)),
        }
        if archive.len() as u64 > LONGEST_BUNDLE {
            let error = io::Error::from(io::ErrorKind::FileTooLarge);
            return Err(DockerError::Record(error));
        }
    }
    Ok(archive)
}

/// What an archive begins with.
#[derive(Debug, PartialEq, Eq)]
enum Member<'a> {
    File(&'a [u8]),
    Link(&'a Path),
}

/// The first member of a tar archive, when that is a regular file or a symbolic link. Members that
/// describe the next one are passed over.
fn first_member(archive: &[u8]) -> Option<Member<'_>> {
    let mut rest = archive;
    loop {
        let header = rest.get(..BLOCK)?;
        let digits = header[124..136].split(|byte| *byte == 0 || *byte == b' ');
        let size = digits.into_iter().find(|digits| !digits.is_empty())?;
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 8).ok()?;
        let end = BLOCK.checked_add(size)?;
        match header[156] {
            b'0' | 0 => return rest.get(BLOCK..end).map(Member::File),
            b'2' => {
                let target = header[157..257].split(|byte| *byte == 0).next()?;
                let target = Path::new(std::ffi::OsStr::from_bytes(target));
                return (!target.as_os_str().is_empty()).then_some(Member::Link(target));
            }
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
        let file = Some(Member::File(b"content"));
        assert_eq!(first_member(&archive.concat()), file);
        let mut link = member(b'2', b"");
        assert_eq!(first_member(&link), None, "to nothing");
        link[157..163].copy_from_slice(b"../a/b");
        let found = first_member(&link);
        assert_eq!(found, Some(Member::Link(Path::new("../a/b"))));
        assert_eq!(first_member(&member(b'0', b"content")[..515]), None);
        assert_eq!(first_member(&[]), None);
    }

    #[test]
    fn links_lead_on_inside_of_the_image() {
        let path = Path::new("/etc/ssl/ca-bundle.pem");
        for (target, found) in [
            ("certs/all.pem", "/etc/ssl/certs/all.pem"),
            ("../pki/./all.pem", "/etc/pki/all.pem"),
            ("../../../../all.pem", "/all.pem"),
            ("/var/lib/all.pem", "/var/lib/all.pem"),
        ] {
            assert_eq!(follow(path, Path::new(target)), Path::new(found));
        }
    }

    proptest! {
        #[test]
        fn no_archive_breaks_the_reader(mut archive in prop::collection::vec(any::<u8>(), 0..1600), size in "[0-9 ]{0,12}") {
            if archive.len() > 136 {
                archive[124..124 + size.len()].copy_from_slice(size.as_bytes());
            }
            let _ = first_member(&archive);
        }
    }
}
