use std::cell::RefCell;
use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fs_err::os::unix::fs::symlink;

use crate::processes::kill_processes_of;
use crate::wait_for;

/// How long an engine may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A container engine of the test's own, without a network, which ends with it.
#[derive(Debug)]
pub struct ContainerEngine {
    place: tempfile::TempDir,
    daemon: RefCell<Child>,
    special: Special,
}

/// What is special about an engine.
#[derive(Debug, Clone, Default)]
struct Special {
    /// More arguments of its daemon.
    arguments: Vec<String>,
    /// It is podman, and belongs to this user.
    podman: Option<u32>,
    /// A network of this machine for its containers.
    bridge: Option<Bridge>,
    /// A directory that is another one for it.
    unseen: Option<Unseen>,
}

#[derive(Debug, Clone)]
struct Bridge {
    name: String,
    address: Ipv4Addr,
}

#[derive(Debug, Clone)]
struct Unseen {
    directory: PathBuf,
    /// What it sees there; nothing when absent.
    instead: Option<PathBuf>,
}

/// The name of the runtime that is gVisor.
pub const GVISOR: &str = "runsc";

impl ContainerEngine {
    /// Starts one. `None`, with a line that begins with `SKIP `, where that is not possible: it
    /// takes root and Debian's `docker.io`.
    pub fn start() -> Option<Self> {
        Self::start_special(Special::default())
    }

    /// The same, whose containers go on while its daemon does not run.
    pub fn start_with_live_restore() -> Option<Self> {
        Self::start_special(Special {
            arguments: vec!["--live-restore".to_owned()],
            ..Special::default()
        })
    }

    /// The same, on a machine of its own as it were: where `directory` is here it has `instead`, or
    /// nothing at all.
    pub fn start_elsewhere(directory: &Path, instead: Option<&Path>) -> Option<Self> {
        Self::start_special(Special {
            unseen: Some(Unseen {
                directory: directory.to_owned(),
                instead: instead.map(Path::to_owned),
            }),
            ..Special::default()
        })
    }

    /// Starts one whose containers have a network if they ask for it.
    pub fn start_with_bridge() -> Option<Self> {
        let number = std::process::id();
        let [.., third, fourth] = number.to_be_bytes();
        let bridge = Bridge {
            name: format!("mo{number}"),
            address: Ipv4Addr::new(10, 1 + third % 250, fourth, 1),
        };
        Self::start_special(Special {
            bridge: Some(bridge),
            ..Special::default()
        })
    }

    /// The address of this machine in the network of its containers.
    pub fn bridge_address(&self) -> Option<Ipv4Addr> {
        self.special.bridge.as_ref().map(|bridge| bridge.address)
    }

    fn start_special(special: Special) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            crate::skip("a container engine can only be started as root");
            return None;
        }
        let engine: &[&str] = match special.podman {
            None => &["dockerd"],
            Some(_) => &["podman", "runc"],
        };
        for program in engine.iter().chain(&["docker", "busybox"]) {
            if find(program).is_none() {
                crate::skip(&format!(
                    "there is no {program}; scripts/test installs it as root"
                ));
                return None;
            }
        }
        if let Some(Bridge { name, address }) = &special.bridge {
            let address = format!("{address}/24");
            let made = ip(&["link", "add", name, "type", "bridge"])
                && ip(&["address", "add", &address, "dev", name])
                && ip(&["link", "set", name, "up"]);
            if !made {
                crate::skip("a bridge cannot be made here; it takes root and Debian's `iproute2`");
                return None;
            }
        }
        let place = tempfile::tempdir().unwrap();
        let daemon = RefCell::new(Self::spawn(place.path(), &special));
        let engine = Self {
            place,
            daemon,
            special,
        };
        engine.wait_until_up();
        Some(engine)
    }

    /// Starts one that knows [`GVISOR`]; `None` and a line as [`Self::start`].
    pub fn start_with_gvisor() -> Option<Self> {
        if find(GVISOR).is_none() {
            crate::skip(&format!(
                "there is no {GVISOR}; scripts/test installs it as root"
            ));
            return None;
        }
        Self::start()
    }

    /// Starts podman in the place of docker, as the user `owner`; `None` and a line as
    /// [`Self::start`].
    pub fn start_podman(owner: u32) -> Option<Self> {
        Self::start_special(Special {
            podman: Some(owner),
            ..Special::default()
        })
    }

    /// User and group that it belongs to.
    pub fn owner(&self) -> u32 {
        self.special.podman.unwrap_or_default()
    }

    /// Its address.
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.place.path().join("docker.sock").display())
    }

    /// An image with busybox and nothing else; returns its name.
    pub fn busybox_image(&self) -> String {
        let root = self.place.path().join("busybox");
        for directory in ["bin", "etc", "tmp", "proc", "sys", "dev"] {
            fs_err::create_dir_all(root.join(directory)).unwrap();
        }
        let busybox = find("busybox").unwrap();
        fs_err::copy(&busybox, root.join("bin/busybox")).unwrap();
        let applets = self.output(program(&busybox).arg("--list"));
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            symlink("busybox", root.join("bin").join(applet)).unwrap();
        }
        self.import(&root, "mini-ork-test-busybox")
    }

    /// An image with `programs` of this machine, by their names or paths, and the libraries that
    /// they need; returns its name.
    pub fn image_of_this_machine(&self, programs: &[&str]) -> String {
        let root = self.place.path().join("machine");
        for directory in ["etc", "tmp", "proc", "sys", "dev", "usr/bin", "usr/lib"] {
            fs_err::create_dir_all(root.join(directory)).unwrap();
        }
        let mut files = Vec::new();
        for program in programs {
            let path = if program.contains('/') {
                Some(PathBuf::from(program))
            } else {
                find(program)
            };
            let path = path.unwrap_or_else(|| panic!("there is no {program} here"));
            let link = root.join("usr/bin").join(path.file_name().unwrap());
            if !link.exists() {
                fs_err::copy(fs_err::canonicalize(&path).unwrap(), link).unwrap();
            }
            files.push(path);
        }
        for file in files {
            // One that needs none is a failure for `ldd`.
            let needed = program("ldd").arg(file).output().unwrap();
            let needed = String::from_utf8_lossy(&needed.stdout).into_owned();
            let libraries = needed
                .split_whitespace()
                .filter(|word| word.starts_with('/'))
                .map(|word| Path::new(word.trim_end_matches(':')));
            for library in libraries {
                let target = root.join(library.strip_prefix("/").unwrap());
                if !target.exists() && library.is_file() {
                    fs_err::create_dir_all(target.parent().unwrap()).unwrap();
                    fs_err::copy(fs_err::canonicalize(library).unwrap(), target).unwrap();
                }
            }
        }
        symlink("usr/bin", root.join("bin")).unwrap();
        self.import(&root, "mini-ork-test-machine")
    }

    /// The image `image`, said to be for another kind of machine; returns its name.
    pub fn image_of_another_machine(&self, image: &str) -> String {
        const SCRIPT: &str = "set -e; cd $0; rm -rf foreign; mkdir foreign; tar -xf foreign.tar -C foreign; \
             sed -i 's/\"architecture\":\"[a-z0-9]*\"/\"architecture\":\"s390x\"/' foreign/*.json; \
             tar -cf foreign.tar -C foreign .";
        let name = "mini-ork-test-foreign";
        let archive = self.place.path().join("foreign.tar").display().to_string();
        self.docker(&["tag", image, name]);
        self.docker(&["save", "--output", &archive, name]);
        self.docker(&["rmi", name]);
        self.output(program("sh").args(["-c", SCRIPT]).arg(self.place.path()));
        self.docker(&["load", "--input", &archive]);
        name.to_owned()
    }

    /// `image` with another user, by number; returns its name.
    pub fn image_with_user(&self, image: &str, user: &str) -> String {
        let name = format!("{image}-of-{user}");
        let archive = self.place.path().join(format!("{image}.tar"));
        let archive = archive.display().to_string();
        let change = format!("USER {user}");
        self.docker(&["import", "--change", &change, &archive, &name]);
        name
    }

    /// Names of the containers that there are, running or not.
    pub fn containers(&self) -> Vec<String> {
        let listed = self.docker(&["ps", "--all", "--format", "{{.Names}}"]);
        listed.lines().map(ToOwned::to_owned).collect()
    }

    /// Does what `docker ARGUMENTS` does, and returns what it says.
    pub fn docker(&self, arguments: &[&str]) -> String {
        self.output(self.client().args(arguments))
    }

    /// Lets every user of this machine use it.
    pub fn open_to_all(&self) {
        let open = |path: &Path, mode| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs_err::set_permissions(path, mode).unwrap();
        };
        open(self.place.path(), 0o755);
        open(&self.place.path().join("docker.sock"), 0o666);
    }

    /// Kills its daemon, which has no time to do anything.
    pub fn kill(&self) {
        let mut daemon = self.daemon.borrow_mut();
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }

    /// Starts its daemon again after [`Self::kill`].
    pub fn start_again(&self) {
        // What these say is not true any more, and the daemon cannot always tell.
        for stale in ["docker.pid", "exec/containerd/containerd.pid"] {
            let _ = fs_err::remove_file(self.place.path().join(stale));
        }
        *self.daemon.borrow_mut() = Self::spawn(self.place.path(), &self.special);
        self.wait_until_up();
    }

    fn spawn(place: &Path, special: &Special) -> Child {
        match special.podman {
            None => Self::spawn_docker(place, special),
            Some(owner) => Self::spawn_podman(place, owner),
        }
    }

    fn spawn_docker(place: &Path, special: &Special) -> Child {
        let bridge = special
            .bridge
            .as_ref()
            .map_or("none", |bridge| &bridge.name);
        let log = fs_err::File::create(place.join("dockerd.log")).unwrap();
        let mut command = match &special.unseen {
            None => program("dockerd"),
            Some(Unseen { directory, instead }) => {
                let mut command = program("unshare");
                let script = match instead {
                    None => "mount -t tmpfs none \"$0\" && exec \"$@\"",
                    Some(_) => "mount --bind \"$1\" \"$0\" && shift && exec \"$@\"",
                };
                command.args(["--mount", "sh", "-c", script]).arg(directory);
                command.args(instead).arg("dockerd");
                command
            }
        };
        command
            .args(&special.arguments)
            .arg("--data-root")
            .arg(place.join("data"))
            .arg("--exec-root")
            .arg(place.join("exec"))
            .arg("--pidfile")
            .arg(place.join("docker.pid"))
            .arg("--host")
            .arg(format!("unix://{}", place.join("docker.sock").display()))
            .args(gvisor_arguments(place))
            // What it would make by itself may not be possible here.
            .arg(format!("--bridge={bridge}"))
            .args(["--iptables=false", "--ip-forward=false"])
            .stdin(Stdio::null())
            .stdout(log.file().try_clone().unwrap())
            .stderr(log.into_file());
        command.spawn().unwrap()
    }

    fn spawn_podman(place: &Path, owner: u32) -> Child {
        let configuration = place.join("containers.conf");
        // There is no journal and no other cgroup manager for an engine of a test, and what it starts
        // beside containers is not to stay for five minutes.
        fs_err::write(
            &configuration,
            "[engine]\ncgroup_manager = \"cgroupfs\"\nevents_logger = \"file\"\nexit_command_delay = 1\n",
        )
        .unwrap();
        let storage = place.join("storage.conf");
        let places = ["root", "run"].map(|name| place.join(name).display().to_string());
        let text = format!(
            "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n\
             [storage.options.vfs]\nignore_chown_errors = \"true\"\n",
            places[0], places[1],
        );
        fs_err::write(&storage, text).unwrap();
        let log = fs_err::File::create(place.join("podman.log")).unwrap();
        let home = place.join("home");
        fs_err::create_dir_all(&home).unwrap();
        for path in [place, &home] {
            std::os::unix::fs::chown(path, Some(owner), Some(owner)).unwrap();
        }
        let mut command = program("podman");
        command
            // Debian's crun takes no control groups of both versions side by side.
            .args(["--runtime", "runc", "system", "service", "--time=0"])
            .arg(format!("unix://{}", place.join("docker.sock").display()))
            .env("CONTAINERS_CONF", configuration)
            .env("CONTAINERS_STORAGE_CONF", storage)
            .env("HOME", &home)
            .env("XDG_RUNTIME_DIR", &home)
            .env_remove("DBUS_SESSION_BUS_ADDRESS")
            .current_dir(&home)
            .uid(owner)
            .gid(owner)
            .stdin(Stdio::null())
            .stdout(log.file().try_clone().unwrap())
            .stderr(log.into_file());
        command.spawn().unwrap()
    }

    fn wait_until_up(&self) {
        wait_for("container engine", PATIENCE, || {
            let output = self.client().arg("version").output().unwrap();
            output.status.success()
        });
    }

    fn client(&self) -> Command {
        let mut command = program("docker");
        command
            .env("DOCKER_CONFIG", self.place.path().join("client"))
            .arg("--host")
            .arg(self.endpoint());
        command
    }

    /// An image of what is below `root`; returns its name.
    pub fn import(&self, root: &Path, name: &str) -> String {
        let archive = self.place.path().join(format!("{name}.tar"));
        let mut tar = program("tar");
        tar.arg("-C").arg(root).arg("-cf").arg(&archive).arg(".");
        self.output(&mut tar);
        let archive = archive.display().to_string();
        self.docker(&["import", &archive, name]);
        name.to_owned()
    }

    #[track_caller]
    fn output(&self, command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{command:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for ContainerEngine {
    fn drop(&mut self) {
        // Only a daemon can remove what is left.
        if !matches!(self.daemon.borrow_mut().try_wait(), Ok(None)) {
            self.start_again();
        }
        let listed = self.client().args(["ps", "--all", "--quiet"]).output();
        let listed = listed.map(|listed| listed.stdout).unwrap_or_default();
        for id in String::from_utf8_lossy(&listed).lines() {
            let _ = self.client().args(["rm", "--force", id]).output();
        }
        let mut daemon = self.daemon.borrow_mut();
        let pid = i32::try_from(daemon.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = daemon.wait();
        // Podman leaves helpers, some for minutes and some for ever.
        kill_processes_of(self.place.path());
        if let Some(bridge) = &self.special.bridge {
            ip(&["link", "delete", &bridge.name]);
        }
    }
}

/// The static program for the inside, which `scripts/node` builds. `None`, with a line that begins
/// with `SKIP `, when it is not there.
pub fn static_node_program() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    // TARGET/PROFILE/deps/TEST
    let target = own.ancestors().nth(3).unwrap();
    let path = target.join("static/x86_64-unknown-linux-gnu/debug/mini-ork-node");
    if path.is_file() {
        return Some(path);
    }
    crate::skip("there is no static mini-ork-node; scripts/node builds it");
    None
}

/// What lets an engine know gVisor, where that is installed. Its own network is off, which a sandbox
/// without one does not need and which is not possible everywhere.
fn gvisor_arguments(place: &Path) -> Vec<String> {
    let Some(runtime) = find(GVISOR) else {
        return Vec::new();
    };
    let wrapper = place.join(GVISOR);
    let script = format!(
        "#!/bin/sh\nexec {} --platform=ptrace --network=none \"$@\"\n",
        runtime.display()
    );
    fs_err::write(&wrapper, script).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs_err::set_permissions(&wrapper, mode).unwrap();
    vec![
        "--add-runtime".to_owned(),
        format!("{GVISOR}={}", wrapper.display()),
    ]
}

fn find(name: &str) -> Option<PathBuf> {
    let path = crate::program::ambient("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

fn ip(arguments: &[&str]) -> bool {
    let status = program("ip").args(arguments).status();
    status.is_ok_and(|status| status.success())
}

/// The one constructor of the programs of an engine.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of the programs of an engine"
)]
fn program(name: impl AsRef<OsStr>) -> Command {
    Command::new(name)
}
