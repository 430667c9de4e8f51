//! Every environment variable that mini-ork reads or sets, in one place. `docs/environment.md` is
//! checked against this list.

/// One variable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EnvVar {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does, in one sentence. Shown by `mini-ork help environment`.
    pub(crate) about: &'static str,
    /// Whether mini-ork reads it, or sets it for the programs of a run.
    pub(crate) direction: Direction,
}

/// Who reads a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// mini-ork.
    Read,
    /// The tests of mini-ork.
    Test,
    /// The programs of a run.
    Set,
}

macro_rules! variables {
    ($($(#[doc = $about:literal])+ $direction:ident $name:ident;)+) => {
        /// All of them, in the order of the documentation.
        pub(crate) const ALL: &[EnvVar] = &[
            $(EnvVar {
                name: stringify!($name),
                about: concat!($($about),+),
                direction: Direction::$direction,
            }),+
        ];

        $(variables!(@name $direction $name [$(#[doc = $about])+]);)+
    };
    // What is only set is named by whoever sets it, in `control`.
    (@name Set $name:ident [$($about:tt)+]) => {};
    (@name Test $name:ident [$($about:tt)+]) => {};
    (@name $direction:ident $name:ident [$($about:tt)+]) => {
        $($about)+
        pub(crate) const $name: &str = stringify!($name);
    };
}

variables! {
    /// Home of mini-ork: state, runs, configuration. Same as `--home`. Default: `$XDG_STATE_HOME/mini-ork`.
    Read MINI_ORK_HOME;
    /// Most nodes that run at once. Same as `--max-parallel`. Default: 4.
    Read MINI_ORK_MAX_PARALLEL;
    /// `1`: show the plan and do nothing. Same as `--dry-run`.
    Read MINI_ORK_DRY_RUN;
    /// `1`: never ask, also on a terminal. Same as `--no-input`.
    Read MINI_ORK_NONINTERACTIVE;
    /// The repository to work on. Same as `--repo`. Default: the one that holds the kickoff, else the one around the current directory.
    Read MO_TARGET_CWD;
    /// Time limit in seconds of a node that sets none. Default: 1500.
    Read MO_NODE_TIMEOUT_S;
    /// Most US dollars that all runs of the home together may spend in 24 hours. Default: 50.
    Read MO_DAILY_BUDGET_USD;
    /// Workspace backend: `local`, without a boundary unless a network policy asks for one, or `docker`. Same as `--backend`. Default: `local`.
    Read MO_SANDBOX_BACKEND;
    /// With `docker`: the image whose programs the run finds. It has to be on the engine.
    Read MO_SANDBOX_IMAGE;
    /// With `docker`: the runtime, such as `runsc` or `kata`. Default: the engine's own.
    Read MO_SANDBOX_RUNTIME;
    /// With `docker`: memory of the container, such as `8G`. Default: `4G`.
    Read MO_SANDBOX_MEMORY;
    /// With `docker`: how many processors the container has, such as `2` or `0.5`; it sees no others. Default: all.
    Read MO_SANDBOX_CPU;
    /// With a boundary: most processes and threads in it. Default: 2048.
    Read MO_SANDBOX_PIDS;
    /// How old the sandbox of an interrupted run becomes before it is removed, such as `90m`, `6h`, or seconds. Same as `--max-age` of `sandbox-gc`, which removes all of them by default. Default before a run: `6h`.
    Read MO_SANDBOX_MAX_AGE;
    /// The static `mini-ork-node` that runs in sandboxes. Default: the one beside `mini-ork`.
    Read MO_NODE_PROGRAM;
    /// How much of an agent is inside of a boundary: `agent`, all of it, or `tool`, what its tools do. The same where there is no boundary. Default: `agent`.
    Read MO_SANDBOX_SCOPE;
    /// With `MO_SANDBOX_SCOPE=tool`: `1` lets an agent whose tools cannot be moved run on this machine, without a boundary.
    Read MO_SANDBOX_ALLOW_HOST_AGENT;
    /// Where work runs; this version has `local`. Same as `--placement`.
    Read MO_PLACEMENT;
    /// The profile of what runs work in: `config/environments/NAME.yaml`. Same as `--env`.
    Read MO_NODE_ENV;
    /// `1` asks for a sandbox for each node; refused, since this version makes one for each run.
    Read MO_NODE_ISOLATION;
    /// What programs of a run reach: `full`, the network of this machine or of the engine; `allowlist`, the hosts of `MO_SANDBOX_ALLOW` or of the profile; or `none`. Default: `full` with `local`, `none` with `docker`.
    Read MO_SANDBOX_NETWORK;
    /// With the policy `allowlist`: the hosts, with commas between them, each `host`, `host:port` or `*.host`. Without a port: 80 and 443.
    Read MO_SANDBOX_ALLOW;
    /// Debug builds only: kill the control plane at a named point (`NAME` or `NAME:COUNT`), to test recovery.
    Read MO_FAULT;
    /// Tests only: `1` runs their long versions.
    Test MO_TEST_FULL;
    /// The role of the node: its `model_lane`, else its type.
    Set MO_NODE_ROLE;
    /// The name of the node.
    Set MO_NODE_ID;
    /// The type of the node.
    Set MO_NODE_TYPE;
    /// The node's round of the retry loop, from 1.
    Set MO_NODE_ROUND;
    /// The node's attempt in its round, from 1.
    Set MO_NODE_ATTEMPT;
    /// Where the node puts the outputs that its recipe declares.
    Set MO_OUTPUT_DIR;
    /// A lane may write `{"cost_usd": N}` there to say what it cost.
    Set MO_USAGE_FILE;
    /// For the built-in agent: what the lane gateway knows it by. The commands that it runs do not get it.
    Set MO_AGENT_TOKEN;
    /// For a verifier script: a file with the changed paths, each ended by a NUL.
    Set MO_CHANGED_FILES;
    /// Marks every process of a node, so that none is left behind.
    Set MO_RUN_MARKER;
    /// The run.
    Set MINI_ORK_RUN_ID;
    /// The run directory.
    Set MINI_ORK_RUN_DIR;
    /// The plan as JSON.
    Set MINI_ORK_PLAN_PATH;
}
