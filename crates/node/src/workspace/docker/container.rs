use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigLogConfig, Mount, MountType,
    ResourcesUlimits,
};

use super::DockerError;
use crate::egress::NAME_SERVER;
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
/// The home of programs.
pub(super) const HOME: &str = "/workspace/home";

/// What a container may take of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLimits {
    /// Bytes of memory, without swap; `/tmp` is part of it.
    pub memory: u64,
    /// Processors; all when absent. Programs see no others.
    pub processors: Option<u32>,
    /// Processes and threads.
    pub processes: u32,
    /// Bytes in `/tmp`.
    pub temporary: u64,
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
    /// Names of hosts with the loopback addresses that stand for them, as the engine takes them.
    pub(super) names: Vec<String>,
    /// User and group, as the engine takes them.
    pub(super) user: String,
}

/// What the engine is told.
pub(super) fn body(blueprint: &Blueprint<'_>) -> Result<ContainerCreateBody, DockerError> {
    let drive = blueprint.drive;
    let limits = blueprint.limits;
    let memory = i64::try_from(limits.memory).unwrap_or(i64::MAX);
    let labels = HashMap::from([
        (RUN_LABEL.to_owned(), drive.name.clone()),
        (HOME_LABEL.to_owned(), text(&drive.private)?),
    ]);
    let temporary = format!("rw,exec,nosuid,nodev,mode=1777,size={}", limits.temporary);
    let host_config = HostConfig {
        mounts: Some(mounts(blueprint)?),
        network_mode: Some("none".to_owned()),
        // The engine would put the name servers of this machine there.
        dns: Some(vec![NAME_SERVER.ip().to_string()]),
        dns_search: Some(vec![".".to_owned()]),
        extra_hosts: Some(blueprint.names.clone()),
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
        // A share of time would let programs see all processors.
        cpuset_cpus: limits.processors.map(processors),
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
    Ok(ContainerCreateBody {
        image: Some(blueprint.image_id.to_owned()),
        user: Some(blueprint.user.clone()),
        hostname: Some("mini-ork".to_owned()),
        working_dir: Some("/".to_owned()),
        entrypoint: Some(vec![NODE_PROGRAM.to_owned()]),
        cmd: Some(vec![SERVE_ARGUMENT.to_owned(), ADDRESS.to_owned()]),
        // The image's own would run programs by itself.
        healthcheck: Some(HealthConfig {
            test: Some(vec!["NONE".to_owned()]),
            ..HealthConfig::default()
        }),
        stop_signal: Some("TERM".to_owned()),
        labels: Some(labels),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    })
}

fn processors(count: u32) -> String {
    match count.max(1) {
        1 => "0".to_owned(),
        count => format!("0-{}", count - 1),
    }
}

fn mounts(blueprint: &Blueprint<'_>) -> Result<Vec<Mount>, DockerError> {
    let program = Share {
        host: blueprint.node_program.to_owned(),
        inside: NODE_PROGRAM.into(),
        access: Access::ReadOnly,
    };
    let shares = blueprint.drive.shares.iter().chain([&program]);
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

fn text(path: &Path) -> Result<String, DockerError> {
    path.to_str()
        .map(ToOwned::to_owned)
        .ok_or_else(|| DockerError::Path {
            path: path.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            processors: Some(2),
            ..ContainerLimits::default()
        };
        let body = body(&Blueprint {
            drive: &drive,
            image_id: "sha256:0",
            runtime: Some("runsc"),
            node_program: Path::new("/usr/lib/mini-ork-node"),
            limits: &limits,
            names: vec!["a.example:127.1.1.1".to_owned()],
            user: "1000:1000".to_owned(),
        })
        .unwrap();
        let text = serde_json::to_string(&body).unwrap();
        for part in [
            r#""NetworkMode":"none""#,
            r#""CapDrop":["ALL"]"#,
            r#""SecurityOpt":["no-new-privileges"]"#,
            r#""ReadonlyRootfs":true"#,
            r#""CpusetCpus":"0-1""#,
            r#""Runtime":"runsc""#,
            r#""LogConfig":{"Type":"none"}"#,
            r#""User":"1000:1000""#,
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
            [("/workspace/run/nodes", false), (NODE_PROGRAM, true)]
        );
    }
}
