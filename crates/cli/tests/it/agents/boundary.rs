use std::path::{Path, PathBuf};

use mini_ork_testkit::{Call, ContainerEngine, agent_cli, skip, static_node_program};

use super::{Kind, World};
use crate::sandbox::{TOOLS, in_container};

/// What agents run behind.
pub(super) enum Boundary {
    /// A container without a network.
    Container {
        engine: Box<ContainerEngine>,
        image: String,
        node_program: PathBuf,
    },
    /// Namespaces of this machine, likewise.
    Confined,
}

impl Boundary {
    /// A container with the program of `kind`; none where there can be none.
    pub(super) fn container(kind: Kind) -> Option<Self> {
        let node_program = static_node_program()?;
        let engine = Box::new(ContainerEngine::start()?);
        let mut programs: Vec<String> = TOOLS.iter().copied().map(ToOwned::to_owned).collect();
        if let Some(program) = kind.program {
            let path = fs_err::canonicalize(agent_cli(program)?).unwrap();
            programs.push(path.to_str().unwrap().to_owned());
        }
        let programs: Vec<&str> = programs.iter().map(String::as_str).collect();
        let image = engine.image_of_this_machine(&programs);
        Some(Self::Container {
            engine,
            image,
            node_program,
        })
    }

    /// Namespaces; none where this machine allows none.
    pub(super) fn confined(world: &World) -> Option<Self> {
        let call = world.env.mini_ork(["sandbox", "verify", "--json"]);
        let output = call.env("MO_SANDBOX_NETWORK", "none").run();
        if output.errors().contains("does not let an ordinary user") {
            skip(&output.errors());
            return None;
        }
        Some(Self::Confined)
    }

    /// `call` behind it, with an agent of `kind`.
    pub(super) fn around<'a>(&self, call: Call<'a>, kind: Kind) -> Call<'a> {
        let call = call.env("MO_SANDBOX_NETWORK", "none");
        match self {
            Self::Container {
                engine,
                image,
                node_program,
            } => in_container(call, engine, image, node_program),
            // The directory of the test is hidden inside, with the programs in it.
            Self::Confined => match kind.program.and_then(agent_cli) {
                Some(cli) => call.env("PATH", path_with(cli.parent().unwrap())),
                None => call,
            },
        }
    }

    /// Directories of this machine in which programs inside see their own files.
    pub(super) fn private_directories(&self) -> Vec<PathBuf> {
        let Self::Container { engine, .. } = self else {
            return Vec::new();
        };
        let root_of = |name: &String| {
            let pid = engine.docker(&["inspect", "--format", "{{.State.Pid}}", name]);
            Path::new("/proc").join(pid.trim()).join("root")
        };
        let roots: Vec<PathBuf> = engine.containers().iter().map(root_of).collect();
        let inner = ["tmp", "var/tmp", "etc"];
        roots
            .iter()
            .flat_map(|root| inner.map(|name| root.join(name)))
            .filter(|directory| directory.is_dir())
            .collect()
    }

    /// Ends the container, with all that runs in it.
    pub(super) fn kill(&self) {
        if let Self::Container { engine, .. } = self {
            for name in engine.containers() {
                engine.docker(&["kill", &name]);
            }
        }
    }

    #[track_caller]
    pub(super) fn assert_nothing_is_left(&self, world: &World) {
        if let Self::Container { engine, .. } = self {
            assert_eq!(engine.containers(), Vec::<String>::new());
        }
        world.env.assert_no_process();
    }
}

fn path_with(directory: &Path) -> String {
    format!(
        "{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        directory.display()
    )
}
