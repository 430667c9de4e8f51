//! What goes when, and that a clean itself may be broken off.

use super::*;

#[test]
fn bc_73_the_oldest_runs_go_first_and_a_dry_run_explains() {
    let env = world("true");
    let old = run(&env, 1);
    let ballast = |run: &str| {
        let file = env.run_directory(run).join("nodes/ballast");
        fs_err::write(file, vec![7; 4 << 20]).unwrap();
    };
    ballast(&old);
    let new = run(&env, 1);
    ballast(&new);

    let plan = env
        .mini_ork(["clean", "--dry-run", "--max-size", "6M"])
        .run();
    let plan = plan.expect(0).text();
    assert!(
        plan.contains("MiB") && plan.contains("would free"),
        "{plan}"
    );
    assert!(plan.contains("it is the oldest"), "{plan}");
    assert!(env.run_directory(&old).is_dir() && status(&env, &old).is_some());

    let done = clean(&env, &["--max-size", "6M"]);
    assert_eq!(items(&done, &old), [("run", "remove")]);
    assert!(done["freed_bytes"].as_u64().unwrap() > 4 << 20);
    assert_eq!(env.runs(), [new.as_str()]);
    assert_eq!(
        (status(&env, &old), status(&env, &new).is_some()),
        (None, true)
    );

    clean(&env, &["--older-than", "1d"]);
    assert_eq!(env.runs(), [new.as_str()]);
    clean(&env, &["--older-than", "0d"]);
    assert_eq!((env.runs(), status(&env, &new)), (Vec::new(), None));
    let text = env.mini_ork(["clean"]).run().expect(0).text();
    assert_eq!(text, "nothing to clean; all runs take 0 B\n");
}

#[test]
fn bc_73_a_run_whose_directory_vanished_is_given_an_end() {
    let env = world("echo 42 > answer");
    let call = env.mini_ork(["run", "code-fix", "--repo", "repo", "kickoff.md"]);
    call.env("MO_FAULT", "node-ended").run().expect_killed();
    let run = only_row(&env).run;
    fs_err::remove_dir_all(env.home().join("runs")).unwrap();
    assert_eq!(
        items(&clean(&env, &["--dry-run"]), &run),
        [("record", "finalise")]
    );
    assert_eq!(only_row(&env).status, None);
    clean(&env, &[]);
    let row = only_row(&env);
    assert_eq!(
        row.status.map(mini_ork_control::reason::Status::name),
        Some("failed")
    );
    assert_eq!(row.reason.as_deref(), Some("infra_lost"));
    assert_eq!(clean(&env, &[])["items"].as_array().unwrap().len(), 0);
    assert_eq!(
        items(&clean(&env, &["--older-than", "0d"]), &run),
        [("record", "remove")]
    );
    assert_eq!(status(&env, &run), None);
}

#[test]
fn a_killed_clean_leaves_nothing_half() {
    for point in ["clean-rescued", "clean-set-aside"] {
        let env = world("echo 43 > answer");
        let run = run(&env, 1);
        fs_err::write(worktree(&env, &run).join("notes"), "mine\n").unwrap();
        env.mini_ork(["clean"])
            .env("MO_FAULT", point)
            .run()
            .expect_killed();
        let rescued = |env: &TestEnv| {
            let all = refs(env, &run).into_iter();
            all.filter(|name| name.contains("/rescue/"))
                .collect::<Vec<_>>()
        };
        let first = rescued(&env);
        assert_eq!(first.len(), 1, "{point}");
        assert_eq!(remains(&env).is_empty(), point == "clean-rescued");
        clean(&env, &[]);
        assert_eq!(rescued(&env), first, "{point}");
        assert_eq!(remains(&env), Vec::<String>::new());
        assert!(!env.run_directory(&run).join("control.git").exists());
        set_work(&env, "echo 42 > answer");
        env.mini_ork(["recover", &run]).run().expect(0);
    }
    for point in ["clean-rescued", "clean-set-aside", "clean-forgotten"] {
        let env = world("true");
        let run = run(&env, 1);
        let call = env.mini_ork(["clean", "--older-than", "0d"]);
        call.env("MO_FAULT", point).run().expect_killed();
        clean(&env, &["--older-than", "0d"]);
        assert_eq!(
            (env.runs(), status(&env, &run)),
            (Vec::new(), None),
            "{point}"
        );
    }
}

/// A control plane that died at its start leaves a directory that no record speaks of.
#[test]
fn a_directory_without_a_record_goes() {
    let env = world("true");
    for point in ["directory-made", "plan-written"] {
        let call = env.mini_ork(["run", "code-fix", "--repo", "repo", "kickoff.md"]);
        call.env("MO_FAULT", point).run().expect_killed();
        let run = env.runs().remove(0);
        // It might be about to be recorded.
        assert_eq!(items(&clean(&env, &[]), &run), [("orphan", "keep")]);
        age(&env.run_directory(&run), Duration::from_secs(3600));
        assert_eq!(
            items(&clean(&env, &[]), &run),
            [("orphan", "remove")],
            "{point}"
        );
        assert_eq!(env.runs(), Vec::<String>::new());
    }
    // One with work in it is not thrown away, whatever became of the records.
    let run = run(&env, 1);
    fs_err::write(worktree(&env, &run).join("notes"), "mine\n").unwrap();
    for name in ["state.db", "state.db-wal", "state.db-shm"] {
        drop(fs_err::remove_file(env.home().join(name)));
    }
    age(&env.run_directory(&run), Duration::from_secs(3600));
    let done = clean(&env, &[]);
    assert_eq!(
        items(&done, &run),
        [
            ("worktree", "rescue_then_remove"),
            ("control_git", "remove")
        ],
        "{done:#}"
    );
    assert_eq!(repo(&env).show(&refs(&env, &run)[0], "notes"), "mine\n");
    assert!(env.run_directory(&run).join("report.md").exists());
}

/// Room for its own records is held for this moment.
#[test]
fn bc_70_a_full_disk_can_be_cleaned() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root can make a small disk");
    }
    let env = world("true");
    let home = env.home();
    let mounted = env
        .call("mount", ["-t", "tmpfs", "-o", "size=64m", "none"])
        .arg(&home)
        .run();
    if mounted.code() != Some(0) {
        return skip("this machine lets nobody mount");
    }
    let _small = Mounted(&env);
    set_work(&env, "true");
    let run = run(&env, 1);
    let mut filler = fs_err::File::create(home.join("filler")).unwrap();
    while std::io::Write::write_all(&mut filler, &[7; 4096]).is_ok() {}
    let done = clean(&env, &["--older-than", "0d"]);
    assert_eq!(items(&done, &run), [("run", "remove")]);
    assert_eq!(status(&env, &run), None);
    assert_eq!(env.runs(), Vec::<String>::new());
}

struct Mounted<'a>(&'a TestEnv);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let home = self.0.home();
        self.0.call("umount", ["--lazy"]).arg(home).run();
    }
}

fn age(path: &Path, by: Duration) {
    let then = std::time::SystemTime::now() - by;
    let directory = std::fs::File::from(
        rustix::fs::open(path, rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap(),
    );
    directory.set_modified(then).unwrap();
}
