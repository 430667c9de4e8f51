use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fs_err::os::unix::fs::symlink;

use crate::wait_for;

/// How long an engine may take to start on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A container engine of the test's own, without a network, which ends with it.
#[derive(Debug)]
pub struct ContainerEngine {
    place: tempfile::TempDir,
    daemon: Child,
}

impl ContainerEngine {
    /// Starts one. `None`, with a line that begins with `SKIP `, where that is not possible: it
    /// takes root and Debian's `docker.io`.
    pub fn start() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            crate::skip("a container engine can only be started as root");
            return None;
        }
        for program in ["dockerd", "docker", "busybox"] {
            if find(program).is_none() {
                crate::skip(&format!(
                    "there is no {program}; scripts/test installs it as root"
                ));
                return None;
            }
        }
        let place = tempfile::tempdir().unwrap();
        let daemon = Self::spawn(place.path());
        let engine = Self { place, daemon };
        engine.wait_until_up();
        Some(engine)
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
            let needed = self.output(program("ldd").arg(file));
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

    fn spawn(place: &Path) -> Child {
        let log = fs_err::File::create(place.join("dockerd.log")).unwrap();
        let mut command = program("dockerd");
        command
            .arg("--data-root")
            .arg(place.join("data"))
            .arg("--exec-root")
            .arg(place.join("exec"))
            .arg("--pidfile")
            .arg(place.join("docker.pid"))
            .arg("--host")
            .arg(format!("unix://{}", place.join("docker.sock").display()))
            // Its own network is of no use here, and may not be possible.
            .args(["--bridge=none", "--iptables=false", "--ip-forward=false"])
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

    fn import(&self, root: &Path, name: &str) -> String {
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
        for name in self.containers() {
            let _ = self.client().args(["rm", "--force", &name]).output();
        }
        let pid = i32::try_from(self.daemon.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.daemon.wait();
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

fn find(name: &str) -> Option<PathBuf> {
    let path = crate::program::ambient("PATH")?;
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(name))
        .find(|file| file.is_file())
}

/// The one constructor of the programs of an engine.
#[expect(
    clippy::disallowed_methods,
    reason = "the one constructor of the programs of an engine"
)]
fn program(name: impl AsRef<OsStr>) -> Command {
    Command::new(name)
}
