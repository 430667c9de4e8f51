//! BC-51: nothing that an agent writes makes us run anything.

use std::path::Path;

use mini_ork_node::git::{Expected, PublishOutcome};
use mini_ork_node::tree::ApplyOutcome;

use crate::support::{Run, World, gits, set_mode, write};

/// Everything in a git directory that can name a program, with a program that leaves a trace.
fn poison(git_dir: &Path, canary: &Path) {
    let touch = format!("touch '{}'", canary.display());
    let quoted = touch.replace('\\', "\\\\").replace('"', "\\\"");
    let script = git_dir.join("evil.sh");
    write(&script, format!("#!/bin/sh\n{touch}\ncat\n"));
    set_mode(&script, 0o755);
    let program = format!("'{}'", script.display());
    let mut configuration = fs_err::read_to_string(git_dir.join("config")).unwrap_or_default();
    configuration.push_str(&format!(
        "[core]\n fsmonitor = \"{program}\"\n sshCommand = \"{quoted}\"\n pager = \"{quoted}\"\n editor = \"{quoted}\"\n \
         hooksPath = {hooks}\n attributesFile = {dir}/attributes\n alternateRefsCommand = \"{quoted}\"\n askPass = \"{program}\"\n\
         [filter \"evil\"]\n clean = \"{program}\"\n smudge = \"{program}\"\n process = \"{program}\"\n required = true\n\
         [diff]\n external = \"{program}\"\n[diff \"evil\"]\n textconv = \"{program}\"\n command = \"{program}\"\n\
         [merge \"evil\"]\n driver = \"{program} %A\"\n[merge]\n default = evil\n\
         [gpg]\n program = \"{program}\"\n[commit]\n gpgsign = true\n[credential]\n helper = \"!{quoted}\"\n\
         [include]\n path = {dir}/more\n[uploadpack]\n packObjectsHook = \"{program}\"\n\
         [remote \"origin\"]\n url = \"ext::sh -c {quoted}\"\n promisor = true\n\
         [protocol]\n allow = always\n[submodule]\n recurse = true\n[gc]\n auto = 1\n",
        hooks = git_dir.join("hooks").display(),
        dir = git_dir.display(),
    ));
    write(&git_dir.join("config"), &configuration);
    write(
        &git_dir.join("more"),
        format!("[core]\n fsmonitor = \"{program}\"\n"),
    );
    write(
        &git_dir.join("attributes"),
        "* filter=evil diff=evil merge=evil\n",
    );
    write(
        &git_dir.join("info/attributes"),
        "* filter=evil diff=evil merge=evil\n",
    );
    for hook in [
        "pre-commit",
        "post-commit",
        "post-checkout",
        "post-index-change",
        "reference-transaction",
        "pre-auto-gc",
        "post-merge",
        "post-update",
        "update",
        "pre-receive",
        "post-receive",
        "fsmonitor-watchman",
        "sendemail-validate",
    ] {
        write(
            &git_dir.join("hooks").join(hook),
            format!("#!/bin/sh\n{touch}\n"),
        );
        set_mode(&git_dir.join("hooks").join(hook), 0o755);
    }
}

/// All that the control plane does with a directory and a repository.
fn everything(run: &Run) {
    let control = &run.control;
    let tree = run.snapshot();
    run.not_carried();
    control.changes(run.base(), &tree).unwrap();
    control.patch(run.base(), &tree, &mut Vec::new()).unwrap();
    control.uncommitted(&run.repository).unwrap();
    let mine = run.in_work("mine");
    write(&mine, "other\n");
    let other = run.snapshot();
    write(&mine, "third\n");
    let third = run.snapshot();
    control.merge(&tree, &other, &third).unwrap();
    control.reset(&run.place, &tree).unwrap();
    let commit = control
        .commit(&tree, std::slice::from_ref(&run.repository.head), "m", 0)
        .unwrap();
    let reference = "refs/heads/mini-ork/r1";
    let published = control
        .publish(&run.repository, &commit, reference, &Expected::Absent)
        .unwrap();
    assert_eq!(published, PublishOutcome::Published);
    let applied = control
        .apply(&run.repository, run.base(), &tree, false)
        .unwrap();
    assert!(matches!(applied, ApplyOutcome::Applied { .. }));
    control
        .delete_ref(&run.repository, reference, &commit)
        .unwrap();
}

#[test]
fn bc_51_a_poisoned_git_directory_runs_nothing() {
    for git in gits() {
        let world = World::with(git);
        let canary = world.path("canary");
        let run = world.run_on(&[("a.txt", "1\n"), ("b", "2\n")]);
        poison(&run.in_work(".git"), &canary);
        // The test must be able to fail: the agent's own git does run what is planted.
        world.try_run(&run.place.path, &["status"]);
        assert!(canary.exists());
        fs_err::remove_file(&canary).unwrap();

        write(
            &run.in_work(".gitattributes"),
            "* filter=evil diff=evil merge=evil text=auto\n",
        );
        write(&run.in_work("a.txt"), "changed\n");
        write(&run.in_work("mine"), "m\n");
        write(
            &run.in_work(".gitmodules"),
            format!(
                "[submodule \"x\"]\n path = x\n url = ext::sh -c \"touch {}\"\n",
                canary.display()
            ),
        );
        fs_err::remove_file(run.in_work(".gitmodules")).unwrap();
        everything(&run);
        assert!(!canary.exists());
    }
}

/// A link in the place of the worktree would lead every later step into the user's checkout.
#[test]
fn bc_51_a_worktree_that_became_a_link_is_not_followed() {
    let world = World::with(gits().remove(0));
    let run = world.run_on(&[("a.txt", "1\n")]);
    let checkout = run.repository.toplevel.clone().unwrap();
    write(&checkout.join("mine"), "not committed\n");
    let tree = run.repository.head_tree.clone();
    fs_err::rename(&run.place.path, world.path("elsewhere")).unwrap();
    fs_err::os::unix::fs::symlink(&checkout, &run.place.path).unwrap();

    let refused = [
        run.control.snapshot(&run.place).map(drop),
        run.control.reset(&run.place, &tree),
        run.control.not_carried(&run.place, &tree).map(drop),
    ];
    for outcome in refused {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains("replaced by something else"), "{error}");
    }
    assert_eq!(
        fs_err::read(checkout.join("mine")).unwrap(),
        b"not committed\n"
    );
}

#[test]
fn bc_51_pointers_to_elsewhere_are_not_followed() {
    for git in gits() {
        let world = World::with(git);
        let canary = world.path("canary");
        let evil = world.path("evil.git");
        let run = world.run_on(&[("a.txt", "1\n")]);
        fs_err::create_dir_all(&evil).unwrap();
        world.run(&evil, &["init", "-q", "--bare"]);
        poison(&evil, &canary);
        let git_dir = run.in_work(".git");

        // A git directory that says its configuration is elsewhere.
        write(&git_dir.join("commondir"), format!("{}\n", evil.display()));
        world.try_run(&run.place.path, &["status"]);
        assert!(canary.exists(), "the agent's own git follows it");
        fs_err::remove_file(&canary).unwrap();
        write(&git_dir.join("index"), "DIRC crafted");
        write(
            &git_dir.join("objects/info/alternates"),
            format!("{}/objects\n", evil.display()),
        );
        write(&run.in_work("mine"), "m\n");
        write(&run.in_work("a.txt"), "2\n");
        everything(&run);
        assert!(!canary.exists());

        // A file in its place, a link, and the work tree itself looking like a bare repository.
        fs_err::remove_dir_all(&git_dir).unwrap();
        write(&git_dir, format!("gitdir: {}\n", evil.display()));
        assert!(run.paths(&run.snapshot()).contains(&"a.txt".to_owned()));
        fs_err::remove_file(&git_dir).unwrap();
        fs_err::os::unix::fs::symlink(&evil, &git_dir).unwrap();
        assert!(run.paths(&run.snapshot()).contains(&"a.txt".to_owned()));
        for name in ["objects/x", "refs/x"] {
            write(&run.in_work(name), "x\n");
        }
        write(&run.in_work("HEAD"), "ref: refs/heads/main\n");
        poison(&run.place.path, &canary);
        run.snapshot();
        run.control.changes(run.base(), &run.snapshot()).unwrap();
        run.not_carried();
        run.control.reset(&run.place, run.base()).unwrap();
        assert!(!canary.exists());
    }
}

/// The user's own settings may name programs too. They are for the user's commands, not for ours.
#[test]
fn bc_51_settings_of_the_user_run_nothing_either() {
    for git in gits() {
        let world = World::with(git);
        let canary = world.path("canary");
        let user = world.repository(
            "user",
            &[
                ("a.txt", "1\n"),
                (".gitattributes", "*.txt filter=evil diff=evil merge=evil\n"),
            ],
        );
        poison(&user.join(".git"), &canary);
        let run = world.run_in(&user);
        assert_eq!(fs_err::read(run.in_work("a.txt")).unwrap(), b"1\n");
        write(&run.in_work("a.txt"), "2\n");
        write(&run.in_work("mine"), "m\n");
        run.repository.submodules().unwrap();
        run.control.lfs_files(&run.repository).unwrap();
        mini_ork_node::tree::checkout_fingerprint(&run.repository).unwrap();
        // Touched, so that git would have to look into it.
        write(&user.join("a.txt"), "1\n");
        everything(&run);
        assert!(!canary.exists());
        world.try_run(&user, &["status"]);
        assert!(canary.exists(), "the user's own git does run them");
    }
}

#[test]
fn bc_51_a_submodule_address_that_is_a_command_is_not_published() {
    for git in gits() {
        let world = World::with(git);
        let canary = world.path("canary");
        let run = world.run_on(&[("a", "1\n")]);
        let address = "[submodule \"x\"]\n\tpath = x\n\turl = -u./payload\n";
        write(&run.in_work(".gitmodules"), address);
        let tree = run.snapshot();
        let commit = run
            .control
            .commit(&tree, std::slice::from_ref(&run.repository.head), "m", 0)
            .unwrap();
        let error = run
            .control
            .publish(
                &run.repository,
                &commit,
                "refs/heads/mini-ork/r1",
                &Expected::Absent,
            )
            .unwrap_err();
        assert!(error.to_string().contains("gitmodulesUrl"), "{error}");

        write(
            &run.in_work(".gitmodules"),
            format!(
                "[submodule \"x\"]\n\tpath = x\n\turl = ext::touch {}\n",
                canary.display()
            ),
        );
        write(&run.in_work("mine"), "m\n");
        write(&run.in_work("a"), "2\n");
        everything(&run);
        assert!(!canary.exists());
    }
}

#[test]
fn bc_51_a_rule_that_cannot_be_kept_is_an_error_with_the_path() {
    let world = World::new();
    let run = world.run_on(&[("a", "1\n")]);
    write(
        &run.in_work(".gitattributes"),
        "bad.txt working-tree-encoding=UTF-16\n",
    );
    write(&run.in_work("bad.txt"), "no mark at the start");
    let error = run.control.snapshot(&run.place).unwrap_err();
    assert!(error.to_string().contains("bad.txt"), "{error}");
    write(
        &run.in_work(".gitattributes"),
        "bad.txt working-tree-encoding=no-such-encoding\n".repeat(2000),
    );
    let outcome = run.control.snapshot(&run.place);
    assert!(outcome.is_ok() || outcome.unwrap_err().to_string().contains("bad.txt"));
}
