//! Where engines differ. All of it is here; everywhere else an engine is an engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bollard::models::{
    HostConfig, Mount, MountType, ResourcesUlimits, SystemInfoCgroupVersionEnum,
};
use bollard::query_parameters::InspectNetworkOptions;
use bollard::{ClientVersion, Docker};
use rustix::process::{Resource, getrlimit};

use super::container::{ContainerLimits, HOST_NAME, NO_NETWORK, text};
use super::engine::is_missing;
use super::{DockerError, podman};
use crate::egress::{LoopbackPlan, NAME_SERVER};

/// The user that owns nothing.
const NOBODY: u32 = 65534;
/// The network of containers that ask for no special one.
const NETWORK: &str = "bridge";

/// What kind of engine answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EngineKind {
    /// The version of its language that both sides know.
    pub(super) api: (usize, usize),
    /// Its version, as it says.
    pub(super) version: String,
    /// It is podman, which speaks most of the same language.
    podman: bool,
    /// It belongs to an ordinary user, whose number is 0 inside.
    rootless: bool,
    /// There are no other users inside than that one.
    has_one_user: bool,
    /// It keeps containers within their limits.
    pub(super) keeps_limits: bool,
    /// How many processors its machine has.
    pub(super) processors: u32,
    /// The runtime of containers that ask for none.
    default_runtime: String,
    /// The runtimes that can be asked for.
    runtimes: Vec<String>,
}

/// What this process has been told, by the addresses of engines.
static KNOWN: Mutex<BTreeMap<String, EngineKind>> = Mutex::new(BTreeMap::new());

impl EngineKind {
    /// What the engine at `endpoint` said when this process asked it before. A run is checked before
    /// it begins, and an engine takes longer to describe itself than to do most other things.
    pub(super) fn known(endpoint: &str) -> Option<Self> {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(endpoint).cloned()
    }

    /// Asks the engine at `endpoint`.
    pub(super) async fn of(client: &Docker, endpoint: &str) -> Result<Self, DockerError> {
        let kind = Self::asked(client, endpoint).await?;
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(endpoint.to_owned(), kind.clone());
        Ok(kind)
    }

    async fn asked(client: &Docker, endpoint: &str) -> Result<Self, DockerError> {
        let failed = || DockerError::engine("describe itself");
        let (info, version) = tokio::join!(client.info(), client.version());
        let info = info.map_err(failed())?;
        let version = version.map_err(failed())?;
        let podman = version
            .components
            .is_some_and(|parts| parts.iter().any(|part| part.name.contains("Podman")));
        let options = info.security_options.unwrap_or_default();
        let owner = if podman {
            Some(podman::owner(endpoint).await?)
        } else {
            None
        };
        let rootless = owner.as_ref().map_or_else(
            || options.iter().any(|option| option.contains("rootless")),
            |owner| owner.rootless,
        );
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        let first = info.cgroup_version == Some(SystemInfoCgroupVersionEnum::_1);
        let ClientVersion {
            major_version,
            minor_version,
        } = client.client_version();
        Ok(Self {
            api: (major_version, minor_version),
            version: version.version.unwrap_or_default(),
            podman,
            rootless,
            has_one_user: owner.is_some_and(|owner| !owner.has(NOBODY) || !owner.has(NOBODY - 1)),
            // A user has no part in the first version of control groups.
            keeps_limits: !(rootless && first),
            processors: info
                .ncpu
                .and_then(|count| u32::try_from(count).ok())
                .unwrap_or(1),
            default_runtime: info.default_runtime.unwrap_or_default(),
            runtimes,
        })
    }

    /// Whether containers that ask for a network get one. Podman always has one for them.
    pub(super) async fn check_network(&self, client: &Docker) -> Result<(), DockerError> {
        if self.podman {
            return Ok(());
        }
        let found = client.inspect_network(NETWORK, None::<InspectNetworkOptions>);
        match found.await {
            Ok(_) => Ok(()),
            Err(error) if is_missing(&error) => Err(DockerError::NoNetwork),
            Err(error) => Err(DockerError::engine("look for its network")(error)),
        }
    }

    /// Which runtime the engine makes a container with that asks for `asked`.
    pub(super) fn runtime(&self, asked: Option<&str>) -> Result<String, DockerError> {
        let Some(runtime) = asked else {
            return Ok(self.default_runtime.clone());
        };
        if self.podman && runtime != self.default_runtime {
            // It would take the wish, and its own runtime all the same.
            return Err(DockerError::OtherRuntime {
                runtime: runtime.to_owned(),
                used: self.default_runtime.clone(),
            });
        }
        if !self.podman && !self.runtimes.iter().any(|known| known == runtime) {
            return Err(DockerError::NoRuntime {
                runtime: runtime.to_owned(),
                known: self.runtimes.clone(),
            });
        }
        Ok(runtime.to_owned())
    }

    /// Which runtime made the container `name`, which is there; `told` is what the engine says of it
    /// in the language of all engines.
    pub(super) async fn made_with(
        &self,
        endpoint: &str,
        name: &str,
        told: Option<String>,
    ) -> Result<String, DockerError> {
        if self.podman {
            return podman::runtime_of(endpoint, name).await;
        }
        let told = told.filter(|runtime| !runtime.is_empty());
        Ok(told.unwrap_or_else(|| self.default_runtime.clone()))
    }

    /// User and group of programs, so that what they write belongs to the user of mini-ork.
    pub(super) fn user(&self) -> String {
        if self.rootless {
            return "0:0".to_owned();
        }
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        format!("{}:{}", user.as_raw(), group.as_raw())
    }

    /// User and group of bridges: others than those of programs, since the token passes through a
    /// bridge, and who is the same user can look into one that has just begun. Where there is no
    /// other user inside, nothing better can be had.
    pub(super) fn bridge_user(&self) -> String {
        let user = if self.has_one_user {
            0
        } else if !self.rootless && rustix::process::geteuid().as_raw() == NOBODY {
            NOBODY - 1
        } else {
            NOBODY
        };
        format!("{user}:{user}")
    }

    /// Limits that were asked for and cannot be kept are an error.
    pub(super) fn check_limits(&self, limits: &ContainerLimits) -> Result<(), DockerError> {
        if let Some(limit) = limits.processors
            && limit.count() > self.processors
        {
            return Err(DockerError::TooFewProcessors {
                asked: limit.count(),
                has: self.processors,
            });
        }
        if self.keeps_limits || *limits == ContainerLimits::default() {
            return Ok(());
        }
        Err(DockerError::NoLimits)
    }

    /// Changes what the engine is told to what it understands. `names` are the hosts that are
    /// reached by loopback addresses. Files are put into `private`.
    pub(super) fn adapt(
        &self,
        host: &mut HostConfig,
        names: &LoopbackPlan,
        private: &Path,
    ) -> Result<(), DockerError> {
        if !self.keeps_limits {
            host.memory = None;
            host.memory_swap = None;
            host.pids_limit = None;
            host.cpuset_cpus = None;
            host.nano_cpus = None;
        }
        if !self.podman {
            return Ok(());
        }
        if host.network_mode.as_deref() == Some(NO_NETWORK) {
            // Its own files have the address of this machine and all that is in its `hosts`, and
            // the name server of the image.
            let resolver = format!("nameserver {}\nsearch .\n", NAME_SERVER.ip());
            let hosts = names.hosts_file(HOST_NAME);
            for (name, content) in [("resolv.conf", resolver), ("hosts", hosts)] {
                let path = private.join(name);
                fs_err::write(&path, content).map_err(DockerError::Record)?;
                host.mounts.get_or_insert_default().push(Mount {
                    typ: Some(MountType::BIND),
                    source: Some(text(&path)?),
                    target: Some(format!("/etc/{name}")),
                    read_only: Some(true),
                    ..Mount::default()
                });
            }
            host.dns = None;
            host.dns_search = None;
            host.extra_hosts = None;
        }
        // It gives more than it may where somebody took that right from it.
        let ulimits = host.ulimits.get_or_insert_default();
        let most = [
            ("nofile", getrlimit(Resource::Nofile).maximum, None),
            (
                "nproc",
                getrlimit(Resource::Nproc).maximum,
                most_processes(),
            ),
        ];
        for (name, own, machine) in most {
            let most = own.into_iter().chain(machine).min();
            if let Some(most) = most.and_then(|most| i64::try_from(most).ok()) {
                ulimits.push(ResourcesUlimits {
                    name: Some(name.to_owned()),
                    soft: Some(most),
                    hard: Some(most),
                });
            }
        }
        Ok(())
    }
}

/// How many processes this machine has numbers for.
fn most_processes() -> Option<u64> {
    let text = fs_err::read_to_string("/proc/sys/kernel/pid_max").ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::AllowList;

    impl EngineKind {
        pub(in super::super) fn docker() -> Self {
            kind(false, false)
        }
    }

    fn kind(podman: bool, rootless: bool) -> EngineKind {
        EngineKind {
            api: (1, 41),
            version: "20.10".to_owned(),
            podman,
            rootless,
            has_one_user: rootless,
            keeps_limits: !rootless,
            processors: 2,
            default_runtime: "crun".to_owned(),
            runtimes: vec!["crun".to_owned(), "runsc".to_owned()],
        }
    }

    #[test]
    fn a_runtime_that_would_not_be_used_is_an_error() {
        let docker = kind(false, false);
        assert_eq!(docker.runtime(Some("runsc")).unwrap(), "runsc");
        assert_eq!(docker.runtime(None).unwrap(), "crun");
        let error = docker.runtime(Some("kata")).unwrap_err().to_string();
        assert_eq!(
            error,
            "the container engine has no runtime `kata`; it has crun, runsc"
        );
        let podman = kind(true, false);
        assert_eq!(podman.runtime(Some("crun")).unwrap(), "crun");
        let error = podman.runtime(Some("runsc")).unwrap_err().to_string();
        assert_eq!(
            error,
            "the container engine makes every container with `crun`, and not with `runsc`"
        );
    }

    #[test]
    fn limits_that_are_not_kept_are_neither_told_nor_promised() {
        let place = tempfile::tempdir().unwrap();
        let limits = ContainerLimits {
            processes: 100,
            ..ContainerLimits::default()
        };
        let rootless = kind(true, true);
        assert!(matches!(
            rootless.check_limits(&limits),
            Err(DockerError::NoLimits)
        ));
        rootless.check_limits(&ContainerLimits::default()).unwrap();
        kind(true, false).check_limits(&limits).unwrap();
        let mut host = HostConfig {
            network_mode: Some(NO_NETWORK.to_owned()),
            pids_limit: Some(100),
            dns: Some(vec!["127.0.0.1".to_owned()]),
            ..HostConfig::default()
        };
        let allowed = AllowList::parse(["db.example"]).unwrap();
        let names = LoopbackPlan::new(&allowed);
        rootless.adapt(&mut host, &names, place.path()).unwrap();
        assert_eq!((host.pids_limit, host.dns), (None, None));
        let mounts = host.mounts.unwrap();
        let content = |index: usize| {
            let file = mounts[index].source.clone().unwrap();
            fs_err::read_to_string(file).unwrap()
        };
        let server = NAME_SERVER.ip();
        assert_eq!(content(0), format!("nameserver {server}\nsearch .\n"));
        assert!(content(1).ends_with(" db.example\n"), "{}", content(1));
    }
}
