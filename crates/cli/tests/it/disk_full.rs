//! The disk of the home fills up in the middle of a run: a named failure, a database that is
//! whole, and a run that goes on when there is room again.

use std::path::PathBuf;

use mini_ork_control::store::StoreReader;
use mini_ork_testkit::{Lane, SmallDisk, TestEnv, skip};

use crate::support::{PROJECT, agent, new_env, text};

/// Large enough to begin a run, small enough to be filled at once.
const MEBIBYTES: u32 = 48;

struct Filled<'a> {
    env: &'a TestEnv,
    home: PathBuf,
    _disk: SmallDisk<'a>,
}

impl<'a> Filled<'a> {
    /// A run in which the disk is filled where `$FILL` stands: in what writers do, in what the
    /// planner or the reviewer does, or in the check. Only the first time.
    fn run(
        env: &'a TestEnv,
        work: &str,
        planner: &str,
        reviewer: &str,
        check: &str,
    ) -> Option<Self> {
        let disk = env.root().join("disk");
        let mounted = SmallDisk::mount(env, &disk, MEBIBYTES)?;
        let home = disk.join("home");
        env.repo("repo", PROJECT);
        let once = env.root().join("filled");
        let fill = env.write(
            "lanes/fill.sh",
            &format!(
                "[ -e '{0}' ] && exit 0\ntouch '{0}'\n\
                 dd if=/dev/zero of='{1}/fill' bs=64k 2> /dev/null\n\
                 dd if=/dev/zero of='{1}/fill-more' bs=1 count=65536 2> /dev/null\nexit 0\n",
                once.display(),
                disk.display()
            ),
        );
        let with_fill = |text: &str| text.replace("$FILL", &format!("sh '{}'", fill.display()));
        env.kickoff("The answer is wrong", &[&with_fill(check)]);
        let lane = format!(
            "case $MO_NODE_TYPE in\nplanner) {} ;;\nreviewer) {} ;;\nesac\n{}",
            with_fill(planner),
            with_fill(reviewer),
            agent(&with_fill(work))
        );
        env.lanes(&[("default", Lane::Shell(&lane))]);
        fs_err::create_dir_all(home.join("config")).unwrap();
        for name in ["providers.yaml", "agents.yaml"] {
            let from = env.home().join("config").join(name);
            fs_err::copy(from, home.join("config").join(name)).unwrap();
        }
        Some(Self {
            env,
            home,
            _disk: mounted,
        })
    }

    fn call(&self, arguments: &[&str]) -> mini_ork_testkit::Call<'_> {
        self.env
            .mini_ork(arguments)
            .env("MINI_ORK_HOME", &self.home)
    }

    /// The run fails for want of space and says so; nothing is damaged; and after there is room it
    /// is brought to its end.
    #[track_caller]
    fn assert_fails_and_recovers(&self) {
        let output = self
            .call(&["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
            .run()
            .expect(1);
        let view = output.json();
        assert_eq!(view["reason"], "disk_full", "{}", output.transcript());
        self.env.assert_no_process();
        for name in ["fill", "fill-more"] {
            // Whoever filled the disk may have been stopped before the last piece.
            let _ = fs_err::remove_file(self.env.root().join("disk").join(name));
        }
        let reader = StoreReader::open(&self.home).unwrap().unwrap();
        assert_eq!(reader.check().unwrap(), None);
        let recovered = self.call(&["recover", "--json"]).run().expect(0).json();
        assert_eq!(text(&recovered, "status"), "published", "{recovered:#}");
        let rows = StoreReader::open(&self.home)
            .unwrap()
            .unwrap()
            .runs()
            .unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].status.unwrap().name(), "published");
    }
}

fn fill_in(work: &str, planner: &str, reviewer: &str, check: &str) {
    let env = new_env();
    let Some(filled) = Filled::run(&env, work, planner, reviewer, check) else {
        return skip("bc_70: a small disk cannot be mounted here");
    };
    filled.assert_fails_and_recovers();
}

const CHECK: &str = "sh check.sh";
const WORK: &str = "echo 42 > answer";

#[test]
fn bc_70_full_when_the_planner_ends() {
    fill_in(WORK, "$FILL", ":", CHECK);
}

#[test]
fn bc_70_full_before_a_writer_writes() {
    fill_in(
        "$FILL; head -c 100000 /dev/zero > big && echo 42 > answer && rm big",
        ":",
        ":",
        CHECK,
    );
}

#[test]
fn bc_70_full_after_a_writer_has_written() {
    fill_in("echo 42 > answer; $FILL", ":", ":", CHECK);
}

#[test]
fn bc_70_full_while_it_is_checked() {
    fill_in(WORK, ":", ":", "$FILL; sh check.sh");
}

#[test]
fn bc_70_full_before_it_is_published() {
    fill_in(WORK, ":", "$FILL", CHECK);
}
