use std::cell::Cell;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use crate::processes::{kill_processes_of, processes_with};
use crate::program::{Call, ambient};
use crate::repo::Repo;

/// Set to `1` for the long versions of tests.
pub const FULL_VARIABLE: &str = "MO_TEST_FULL";

/// Whether the long versions of tests are asked for.
pub fn full() -> bool {
    ambient(FULL_VARIABLE).is_some_and(|value| value == "1")
}

/// Says that a test could not show anything here, and why. The caller returns after it; the script
/// that runs all tests counts such lines.
pub fn skip(reason: &str) {
    eprintln!("SKIP {reason}");
}

/// The private world of one test: a home of mini-ork, a home and a temporary directory of the user,
/// a directory of programs, and nothing of the machine's configuration.
///
/// When the test fails, everything stays where it is and the path is printed; else it is removed.
/// Processes that still refer to it are killed either way.
#[derive(Debug)]
pub struct TestEnv {
    directory: Option<tempfile::TempDir>,
    root: PathBuf,
    program: PathBuf,
    counter: Cell<u32>,
}

/// What plays an agent.
#[derive(Debug, Clone, Copy)]
pub enum Lane<'a> {
    /// The text of a script for the `scripted` lane.
    Scripted(&'a str),
    /// A program for `sh`, run as an `executable` lane.
    Shell(&'a str),
}

impl TestEnv {
    /// A new world in which `program` is `mini-ork`: `env!("CARGO_BIN_EXE_mini-ork")`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("mo-test-")
            .tempdir()
            .unwrap();
        // A resolved path is what the records of a run and `/proc` show.
        let root = fs_err::canonicalize(directory.path()).unwrap();
        for inner in ["user", "tmp", "bin", "io", "lanes"] {
            fs_err::create_dir(root.join(inner)).unwrap();
        }
        let env = Self {
            directory: Some(directory),
            root,
            program: program.into(),
            counter: Cell::new(0),
        };
        // Of cargo's own directory only what was downloaded is shared: no test fetches anything.
        fs_err::create_dir(env.cargo_home()).unwrap();
        fs_err::write(
            env.cargo_home().join("config.toml"),
            "[net]\noffline = true\n",
        )
        .unwrap();
        if let Some(registry) = ambient_cargo_home().map(|home| home.join("registry"))
            && registry.is_dir()
        {
            symlink(registry, env.cargo_home().join("registry")).unwrap();
        }
        env
    }

    /// The directory that holds all of this world. Its name is in the environment of every process
    /// that mini-ork starts here, and nowhere else.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Home of mini-ork. Not made: the first run makes it.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// `HOME` of the user.
    pub fn user_home(&self) -> PathBuf {
        self.root.join("user")
    }

    /// The first directory of `PATH`.
    pub fn bin(&self) -> PathBuf {
        self.root.join("bin")
    }

    /// `CARGO_HOME`.
    pub fn cargo_home(&self) -> PathBuf {
        self.root.join("cargo")
    }

    /// The program under test.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// A path of this world that nothing has used yet.
    pub fn fresh(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}-{}", self.count()))
    }

    /// Runs `mini-ork ARGS`, once it is told to.
    pub fn mini_ork<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Call<'_> {
        self.call(&self.program, arguments)
            .env("MINI_ORK_HOME", self.home())
            .env("MINI_ORK_NONINTERACTIVE", "1")
    }

    /// The same as user `user`, which only root can ask for. The program is put where that user can
    /// reach it.
    pub fn mini_ork_as<A: AsRef<OsStr>>(
        &self,
        user: u32,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'_> {
        let open = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(&self.root, open).unwrap();
        let program = self.root.join("mini-ork");
        if !program.exists() && fs_err::hard_link(&self.program, &program).is_err() {
            fs_err::copy(&self.program, &program).unwrap();
        }
        self.call(&program, arguments)
            .user(user)
            .env("MINI_ORK_HOME", self.home())
            .env("MINI_ORK_NONINTERACTIVE", "1")
    }

    /// Runs another program in this world, once it is told to.
    pub fn call<A: AsRef<OsStr>>(
        &self,
        program: impl AsRef<OsStr>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Call<'_> {
        Call::new(self, program.as_ref(), arguments)
    }

    /// Makes a repository with one commit of `files`, called `name`.
    pub fn repo(&self, name: &str, files: &[(&str, &str)]) -> Repo<'_> {
        let repo = Repo::init(self, &self.root.join(name));
        for (path, content) in files {
            repo.write(path, content);
        }
        repo.commit_all("first");
        repo
    }

    /// Writes `text` to a file outside every repository; returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.root.join(name);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(&path, text).unwrap();
        path
    }

    /// Writes a program that is found on `PATH` as `name`.
    pub fn program_on_path(&self, name: &str, text: &str) {
        let path = self.bin().join(name);
        fs_err::write(&path, text).unwrap();
        fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Writes a kickoff that leaves nothing open, verified by `commands`; returns its path.
    pub fn kickoff(&self, title: &str, commands: &[&str]) -> PathBuf {
        let mut text = format!(
            "# {title}\n\n## Problem\nIt is wrong.\n\n## Definition of Done\n- It is right.\n"
        );
        if !commands.is_empty() {
            text.push_str("\n## Verification\n```\n");
            for command in commands {
                let _ = writeln!(text, "{command}");
            }
            text.push_str("```\n");
        }
        self.write("kickoff.md", &text)
    }

    /// Writes `providers.yaml` and `agents.yaml`: one lane for each role, which has its name. The
    /// role `default` stands for all that are not named.
    pub fn lanes(&self, lanes: &[(&str, Lane<'_>)]) {
        let mut providers = "providers:\n".to_owned();
        let mut agents = "lanes:\n".to_owned();
        for (role, lane) in lanes {
            let name = format!("{role}-lane");
            let _ = match lane {
                Lane::Scripted(text) => {
                    let file = self.write(&format!("home/{name}.yaml"), text);
                    let file = file.file_name().unwrap().to_str().unwrap();
                    writeln!(providers, "  {name}: {{kind: scripted, file: {file}}}")
                }
                Lane::Shell(text) => {
                    let file = self.write(&format!("lanes/{name}.sh"), text);
                    let file = serde_json::to_string(file.to_str().unwrap()).unwrap();
                    writeln!(
                        providers,
                        "  {name}: {{kind: executable, command: [sh, {file}]}}"
                    )
                }
            };
            let _ = writeln!(agents, "  {role}: {name}");
        }
        self.write("home/config/providers.yaml", &providers);
        self.write("home/config/agents.yaml", &agents);
    }

    /// Writes a recipe into the home: `files` are paths in it and their contents.
    pub fn recipe(&self, name: &str, files: &[(&str, &str)]) {
        for (path, content) in files {
            self.write(&format!("home/recipes/{name}/{path}"), content);
        }
    }

    /// The directory of run `run`.
    pub fn run_directory(&self, run: &str) -> PathBuf {
        self.home().join("runs").join(run)
    }

    /// The names of all run directories, sorted.
    pub fn runs(&self) -> Vec<String> {
        let Ok(entries) = fs_err::read_dir(self.home().join("runs")) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// The processes of this world that run now; none after a run has ended.
    pub fn processes(&self) -> Vec<String> {
        processes_with(self.root.to_str().unwrap())
    }

    /// Panics when a process of this world runs. An ended one may take a moment to be gone.
    #[track_caller]
    pub fn assert_no_process(&self) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(
                std::time::Instant::now() < until,
                "processes are left: {left:#?}"
            );
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.counter.set(self.counter.get() + 1);
        self.counter.get()
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        kill_processes_of(&self.root);
        let Some(directory) = self.directory.take() else {
            return;
        };
        if std::thread::panicking() {
            let kept = directory.keep();
            eprintln!("the files of this test are in {}", kept.display());
        } else {
            make_removable(directory.path());
        }
    }
}

/// A test may leave directories that not even their owner may read.
fn make_removable(directory: &Path) {
    let Ok(entries) = fs_err::read_dir(directory) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let path = entry.path();
            let _ = fs_err::set_permissions(&path, std::fs::Permissions::from_mode(0o700));
            make_removable(&path);
        }
    }
}

fn ambient_cargo_home() -> Option<PathBuf> {
    ambient("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(ambient("HOME")?).join(".cargo")))
}
