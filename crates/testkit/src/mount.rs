use std::path::{Path, PathBuf};

use crate::TestEnv;

/// A file system of a fixed size, in memory; unmounted when it is dropped.
#[derive(Debug)]
pub struct SmallDisk<'a> {
    env: &'a TestEnv,
    path: PathBuf,
}

impl<'a> SmallDisk<'a> {
    /// Mounts one of `mebibytes` at `path`. `None` where this user or this machine may not.
    pub fn mount(env: &'a TestEnv, path: &Path, mebibytes: u32) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        fs_err::create_dir_all(path).unwrap();
        let size = format!("size={mebibytes}m");
        let arguments = ["-t", "tmpfs", "-o", &size, "mo-test"];
        let output = env.call("mount", arguments).arg(path).run();
        (output.code() == Some(0)).then(|| Self {
            env,
            path: path.to_owned(),
        })
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        // Lazily: a process that a failed test left behind may still be in it.
        let output = self.env.call("umount", ["--lazy"]).arg(&self.path).run();
        if !std::thread::panicking() {
            drop(output.expect(0));
        }
    }
}
