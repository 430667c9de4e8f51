use std::collections::HashMap;
use std::path::{Path, PathBuf};

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType,
    ResourcesUlimits,
};
use serde::{Deserialize, Serialize};

use super::certificates::{self, Bundle};
use super::kind::EngineKind;
use super::{DockerError, door};
use crate::egress::{LoopbackPlan, NAME_SERVER};
use crate::session::SERVE_ARGUMENT;
use crate::workspace::{Access, Drive, Share};

/// Label with the name of the run.
pub(super) const RUN_LABEL: &str = "dev.mini-ork.run";
/// Label with the directory of what mini-ork knows of the run.
pub(super) const HOME_LABEL: &str = "dev.mini-ork.directory";
/// Where the program for the inside is mounted.
pub(super) const NODE_PROGRAM: &str = "/opt/mini-ork/mini-ork-node";
/// Where its server listens: a name in the network namespace of the container, which no program in
/// there can take away.
pub(super) const ADDRESS: &str = "@mini-ork-session";
/// The engine's word for a container that has a loopback interface alone.
pub(super) const NO_NETWORK: &str = "none";
/// What the container calls itself.
pub(super) const HOST_NAME: &str = "mini-ork";
/// The home of programs.
pub(super) const HOME: &str = "/workspace/home";

/// What is known of a container before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerRecord {
    /// Its name.
    pub name: String,
    /// Address of the engine.
    pub endpoint: String,
    /// The image as the user named it.
    pub image: String,
    /// The image itself: its digest.
    pub image_id: String,
    /// The runtime that was asked for; the engine's own when absent.
    pub runtime: Option<String>,
    /// The runtime that made it, as the engine says; absent before it was made.
    pub made_with: Option<String>,
    /// Whether the engine keeps it within its limits.
    pub keeps_limits: bool,
    /// User and group of the processes that lead to its server.
    pub bridge_user: String,
    /// The program that is mounted into it.
    pub node_program: PathBuf,
    /// The environment that programs begin with.
    pub environment: Vec<(String, String)>,
}

/// What a container may take of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLimits {
    /// Bytes of memory, without swap; `/tmp` is part of it.
    pub memory: u64,
    /// Processors; all when absent. Programs see no others.
    pub processors: Option<Processors>,
    /// Processes and threads.
    pub processes: u32,
    /// Bytes in `/tmp`.
    pub temporary: u64,
}

/// How much of the time of processors, in thousandths of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processors(u32);

impl Processors {
    /// Most processors.
    pub const MOST: u32 = 4096;

    /// A number above 0, such as `2` or `0.5`, with at most three digits behind the point.
    pub fn parse(text: &str) -> Option<Self> {
        let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |text: &str| {
            let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            plain.then(|| text.parse::<u32>().ok()).flatten()
        };
        let scale = [100, 10, 1].get(part.len().checked_sub(1)?)?;
        let thousandths = digits(whole)?.checked_mul(1000)? + digits(part)? * scale;
        (1..=Self::MOST * 1000)
            .contains(&thousandths)
            .then_some(Self(thousandths))
    }

    /// How many processors that takes at least.
    pub(super) fn count(self) -> u32 {
        self.0.div_ceil(1000)
    }

    /// Share of time for a second of the clock, in nanoseconds; none when it is all the time of the
    /// processors.
    fn quota(self) -> Option<i64> {
        (!self.0.is_multiple_of(1000)).then(|| i64::from(self.0) * 1_000_000)
    }
}

impl Default for ContainerLimits {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            processors: None,
            processes: 2048,
            temporary: 1 << 30,
        }
    }
}

/// Everything that a container is made from.
pub(super) struct Blueprint<'a> {
    pub(super) drive: &'a Drive,
    pub(super) image_id: &'a str,
    pub(super) runtime: Option<&'a str>,
    pub(super) node_program: &'a Path,
    pub(super) limits: &'a ContainerLimits,
    /// The hosts that are reached by loopback addresses.
    pub(super) names: &'a LoopbackPlan,
    pub(super) kind: &'a EngineKind,
    /// Whether it has the engine's ordinary network, and no shim.
    pub(super) has_network: bool,
    /// The certificates of this machine's user and of the image.
    pub(super) certificates: Option<&'a Bundle>,
    /// The directory of the socket to which the first process connects.
    pub(super) door: &'a Path,
}

/// What the engine is told.
pub(super) fn body(blueprint: &Blueprint<'_>) -> Result<ContainerCreateBody, DockerError> {
    let drive = blueprint.drive;
    let limits = blueprint.limits;
    let memory = i64::try_from(limits.memory).unwrap_or(i64::MAX);
    let temporary = format!("rw,exec,nosuid,nodev,mode=1777,size={}", limits.temporary);
    let mut host_config = HostConfig {
        mounts: Some(mounts(blueprint)?),
        network_mode: Some(
            if blueprint.has_network {
                "default"
            } else {
                NO_NETWORK
            }
            .to_owned(),
        ),
        // The engine would put the name servers of this machine there.
        dns: (!blueprint.has_network).then(|| vec![NAME_SERVER.ip().to_string()]),
        dns_search: (!blueprint.has_network).then(|| vec![".".to_owned()]),
        extra_hosts: Some(blueprint.names.host_entries()),
        // The shim listens on the ports of the hosts, and is no root.
        sysctls: Some(HashMap::from([(
            "net.ipv4.ip_unprivileged_port_start".to_owned(),
            "0".to_owned(),
        )])),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        readonly_rootfs: Some(true),
        tmpfs: Some(HashMap::from([
            ("/tmp".to_owned(), temporary.clone()),
            ("/var/tmp".to_owned(), temporary),
        ])),
        memory: Some(memory),
        // Memory and swap together: no swap.
        memory_swap: Some(memory),
        pids_limit: Some(i64::from(limits.processes)),
        // A share of time alone would let programs see all processors.
        cpuset_cpus: limits
            .processors
            .map(|limit| processors(limit.count(), blueprint.kind.processors, &drive.name)),
        nano_cpus: limits.processors.and_then(Processors::quota),
        ulimits: Some(vec![ResourcesUlimits {
            name: Some("core".to_owned()),
            soft: Some(0),
            hard: Some(0),
        }]),
        runtime: blueprint.runtime.map(ToOwned::to_owned),
        // Else the engine writes every byte of the channel to a file.
        log_config: Some(HostConfigLogConfig {
            typ: Some("none".to_owned()),
            config: None,
        }),
        ..HostConfig::default()
    };
    let (kind, names) = (blueprint.kind, blueprint.names);
    kind.adapt(&mut host_config, names, &drive.private)?;
    Ok(ContainerCreateBody {
        image: Some(blueprint.image_id.to_owned()),
        user: Some(blueprint.kind.user()),
        hostname: Some(HOST_NAME.to_owned()),
        working_dir: Some("/".to_owned()),
        entrypoint: Some(vec![NODE_PROGRAM.to_owned()]),
        cmd: Some(
            [SERVE_ARGUMENT, ADDRESS, door::INSIDE]
                .map(ToOwned::to_owned)
                .to_vec(),
        ),
        // The image's own would run programs by itself.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        stop_signal: Some("TERM".to_owned()),
        labels: Some(labels(drive)?),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    })
}

/// By which a container is known as that of a run.
pub(super) fn labels(drive: &Drive) -> Result<HashMap<String, String>, DockerError> {
    Ok(HashMap::from([
        (RUN_LABEL.to_owned(), drive.name.clone()),
        (HOME_LABEL.to_owned(), text(&drive.private)?),
    ]))
}

/// A list of `count` of the `machine`'s processors. Runs that go on at the same time are spread over
/// them by their names.
fn processors(count: u32, machine: u32, run: &str) -> String {
    let places = machine.saturating_sub(count) + 1;
    let number = run.bytes().fold(0_u32, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(u32::from(byte))
    });
    let first = number % places;
    match count {
        1 => first.to_string(),
        _ => format!("{first}-{}", first + count - 1),
    }
}

fn mounts(blueprint: &Blueprint<'_>) -> Result<Vec<Mount>, DockerError> {
    let program = Share {
        host: blueprint.node_program.to_owned(),
        inside: NODE_PROGRAM.into(),
        access: Access::ReadOnly,
    };
    let certificates = blueprint.certificates.into_iter().flat_map(|bundle| {
        [certificates::INSIDE.into(), bundle.covered.clone()].map(|inside| Share {
            host: bundle.file.clone(),
            inside,
            access: Access::ReadOnly,
        })
    });
    let certificates: Vec<Share> = certificates.collect();
    let door = Share {
        host: blueprint.door.to_owned(),
        inside: door::DIRECTORY_INSIDE.into(),
        access: Access::ReadOnly,
    };
    let own = [&program, &door].into_iter().chain(&certificates);
    let shares = blueprint.drive.shares.iter().chain(own);
    shares
        .filter(|share| share.access != Access::Name)
        .map(|share| {
            Ok(Mount {
                typ: Some(MountType::BIND),
                source: Some(text(&share.host)?),
                target: Some(text(&share.inside)?),
                read_only: Some(share.access == Access::ReadOnly),
                ..Mount::default()
            })
        })
        .collect()
}

pub(super) fn text(path: &Path) -> Result<String, DockerError> {
    path.to_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| DockerError::Path {
            path: path.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::AllowList;

    #[test]
    fn bc_72_processors_are_a_number_above_0() {
        for text in [
            "",
            "0",
            "0.0",
            "0.000",
            "-1",
            "+1",
            "1.",
            ".5",
            "1.2345",
            "1e2",
            "NaN",
            "inf",
            "1,5",
            "4097",
            "5000000",
            "99999999999",
            "1.0.0",
            "1 ",
        ] {
            assert_eq!(Processors::parse(text), None, "{text}");
        }
        for (text, count, quota) in [
            ("1", 1, None),
            ("2.0", 2, None),
            ("0.5", 1, Some(500_000_000)),
            ("0.001", 1, Some(1_000_000)),
            ("2.25", 3, Some(2_250_000_000)),
            ("4096", 4096, None),
        ] {
            let parsed = Processors::parse(text).unwrap();
            assert_eq!((parsed.count(), parsed.quota()), (count, quota), "{text}");
        }
    }

    #[test]
    fn processors_are_some_of_the_machine() {
        assert_eq!(processors(2, 2, "any"), "0-1");
        assert_eq!(processors(1, 1, "any"), "0");
        let mut seen = std::collections::BTreeSet::new();
        for run in 0..100 {
            seen.insert(processors(1, 4, &format!("run{run}")));
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
    }

    proptest::proptest! {
        #[test]
        fn no_text_is_a_panic(text in ".*", count in 1_u32..5000, machine in 0_u32..5000) {
            let _ = Processors::parse(&text);
            let _ = processors(count, machine, &text);
        }
    }

    #[test]
    fn a_container_has_no_way_out() {
        let drive = Drive {
            name: "abc".to_owned(),
            private: "/h/runs/abc/sandbox".into(),
            proof: "/h/runs/abc/nodes".into(),
            shares: vec![
                Share {
                    host: "/h/runs/abc".into(),
                    inside: "/workspace/run".into(),
                    access: Access::Name,
                },
                Share {
                    host: "/h/runs/abc/nodes".into(),
                    inside: "/workspace/run/nodes".into(),
                    access: Access::ReadWrite,
                },
            ],
        };
        let limits = ContainerLimits {
            processors: Processors::parse("1.5"),
            ..ContainerLimits::default()
        };
        let body = body(&Blueprint {
            drive: &drive,
            image_id: "sha256:0",
            runtime: Some("runsc"),
            node_program: Path::new("/usr/lib/mini-ork-node"),
            limits: &limits,
            names: &LoopbackPlan::new(&AllowList::parse(["a.example"]).unwrap()),
            kind: &EngineKind::docker(),
            has_network: false,
            certificates: Some(&Bundle {
                file: "/h/runs/abc/sandbox/certificates.pem".into(),
                covered: "/etc/ssl/cert.pem".into(),
            }),
            door: Path::new("/h/runs/abc/sandbox/door"),
        })
        .unwrap();
        let text = serde_json::to_string(&body).unwrap();
        for part in [
            r#""NetworkMode":"none""#,
            r#""CapDrop":["ALL"]"#,
            r#""SecurityOpt":["no-new-privileges"]"#,
            r#""ReadonlyRootfs":true"#,
            r#""CpusetCpus":"0-1""#,
            r#""NanoCpus":1500000000"#,
            r#""Runtime":"runsc""#,
            r#""LogConfig":{"Type":"none"}"#,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in [
            "Privileged",
            "CapAdd",
            "Devices",
            "Binds",
            "docker.sock",
            "PidMode",
        ] {
            assert!(!text.contains(part), "{part}: {text}");
        }
        let mounts = body.host_config.unwrap().mounts.unwrap();
        let mounted: Vec<_> = mounts
            .iter()
            .map(|mount| (mount.target.as_deref().unwrap(), mount.read_only.unwrap()))
            .collect();
        assert_eq!(
            mounted,
            [
                ("/workspace/run/nodes", false),
                (NODE_PROGRAM, true),
                (door::DIRECTORY_INSIDE, true),
                (certificates::INSIDE, true),
                ("/etc/ssl/cert.pem", true),
            ]
        );
    }
}
