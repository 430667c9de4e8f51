//! What an agent plants for git never runs outside its node, and never keeps the work from being
//! taken.

use mini_ork_testkit::{Lane, Repo, TestEnv, checkout_state};

use crate::support::{CHECK, PROJECT, agent, new_env, run_json, text};

/// Every setting of git that names a program, in the configuration file `config`.
pub(crate) fn poison(config: &str, canary: &str) -> String {
    let evil = format!("sh -c 'echo hit >> {canary}; cat'");
    let settings = [
        ("core.fsmonitor", evil.as_str()),
        ("core.sshCommand", &evil),
        ("core.pager", &evil),
        ("core.editor", &evil),
        ("core.askPass", &evil),
        ("core.gitProxy", &evil),
        ("core.alternateRefsCommand", &evil),
        ("sequence.editor", &evil),
        ("diff.external", &evil),
        ("diff.evil.command", &evil),
        ("diff.evil.textconv", &evil),
        ("merge.evil.driver", &evil),
        ("filter.evil.clean", &evil),
        ("filter.evil.smudge", &evil),
        ("filter.evil.process", &evil),
        ("filter.evil.required", "true"),
        ("gpg.program", &evil),
        ("commit.gpgSign", "true"),
        ("tag.gpgSign", "true"),
        ("credential.helper", &evil),
        ("uploadpack.packObjectsHook", &evil),
        ("pager.diff", &evil),
        ("alias.status", &format!("!{evil}")),
        ("alias.commit-tree", &format!("!{evil}")),
    ];
    settings
        .iter()
        .map(|(key, value)| format!("git config --file {config} {key} \"{value}\"\n"))
        .collect()
}

pub(crate) fn hooks(directory: &str, canary: &str) -> String {
    let names = "applypatch-msg pre-commit prepare-commit-msg commit-msg post-commit post-checkout \
                 post-merge pre-push pre-auto-gc post-rewrite post-index-change fsmonitor-watchman \
                 reference-transaction post-update update pre-receive post-receive \
                 pre-merge-commit";
    format!(
        "mkdir -p {directory}\nfor hook in {names}; do\n\
         printf '#!/bin/sh\\necho hit $0 >> {canary}\\n' > {directory}/$hook\n\
         chmod +x {directory}/$hook\ndone\n"
    )
}

/// Attributes, a module and an include that lead to what is planted.
const PLANTED_FILES: &str = "printf '* filter=evil diff=evil merge=evil\\n' > .gitattributes\n\
     printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = ext::sh -c \"echo hit >> %s\"\\n' \"$CANARY\" \
     > .gitmodules\n";

fn world(work: &str) -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    let canary = env.root().join("canary");
    let work = format!("set -e\nCANARY='{}'\n{work}", canary.display());
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    env
}

/// A run whose agent did its worst is published; then everything else is done that uses git.
#[track_caller]
fn assert_nothing_ran(env: &TestEnv) {
    let canary = env.root().join("canary");
    let no_canary = |when: &str| {
        let hits = fs_err::read_to_string(&canary).unwrap_or_default();
        assert!(hits.is_empty(), "{when}: {hits}");
    };
    let view = env
        .mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
        .run()
        .expect(0)
        .json();
    no_canary("after the run");
    assert_eq!(text(&view, "status"), "published");

    // One that is killed and recovered looks at the same places again.
    env.mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
        .env("MO_FAULT", "snapshot-taken:2")
        .run()
        .expect_killed();
    env.mini_ork(["recover", "--json"]).run().expect(0);
    no_canary("after a recovery");

    // And one that is refused keeps its work.
    env.write("check.log", "");
    env.kickoff("The answer is wrong", &["exit 1"]);
    env.mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
        .run()
        .expect(1);
    no_canary("after a refusal");
    for command in [
        &["status", "--json"][..],
        &["diff"],
        &["diff", "--stat"],
        &["conflicts"],
        &["apply", "--dry-run"],
        &["clean", "--older-than", "0d"],
    ] {
        // Whether the command has something to do here is not the matter.
        let output = env.mini_ork(command).cwd(env.root().join("repo")).run();
        assert!(
            matches!(output.code(), Some(0..=2)),
            "{}",
            output.transcript()
        );
        no_canary(command[0]);
    }
}

#[test]
fn bc_51_settings_hooks_and_attributes_of_the_worktree() {
    let work = format!(
        "{}{}git config --file .git/config core.hooksPath \"$PWD/.git/evil-hooks\"\n\
         git config --file .git/config include.path ../evil.config\n\
         git config --file evil.config core.fsmonitor \"sh -c 'echo hit >> $CANARY'\"\n\
         {}echo '* filter=evil diff=evil' > .git/info/attributes\necho 42 > answer\n\
         git status > seen 2>&1 || true\ntest -s \"$CANARY\"\nrm \"$CANARY\" seen\n",
        poison(".git/config", "$CANARY"),
        hooks(".git/hooks", "'$CANARY'").replace("'$CANARY'", "'\"$CANARY\"'")
            + &hooks(".git/evil-hooks", "'\"$CANARY\"'"),
        PLANTED_FILES,
    );
    let env = world(&work);
    assert_nothing_ran(&env);
    // The files that the agent planted are ordinary work, and published as they are.
    let repo = Repo::at(&env, &env.root().join("repo"));
    let branch = repo.refs("refs/heads/mini-ork").remove(0);
    assert!(repo.files(&branch).contains(&".gitattributes".to_owned()));
    assert_eq!(repo.show(&branch, "answer"), "42\n");
}

#[test]
fn bc_51_a_git_directory_that_is_another_one() {
    for replace in [
        // A file that leads to a git directory of the agent's.
        "mv .git evil.git; echo \"gitdir: $PWD/evil.git\" > .git",
        // A symbolic link to it.
        "mv .git evil.git; ln -s evil.git .git",
        // Shared with one elsewhere.
        "cp -r .git \"$CANARY.git\"; echo \"$CANARY.git\" > .git/commondir",
        // None at all, and one further up is not looked for.
        "rm -rf .git",
        // Not even a git directory.
        "rm -rf .git; mkdir .git; echo x > .git/HEAD",
        // An index that is none, and a lock that nobody holds.
        "echo garbage > .git/index; touch .git/index.lock .git/HEAD.lock .git/config.lock",
    ] {
        let work = format!(
            "{}{}{replace}\n{PLANTED_FILES}echo 42 > answer\n",
            poison(".git/config", "$CANARY"),
            hooks(".git/hooks", "'\"$CANARY\"'"),
        );
        let env = world(&work);
        let canary = env.root().join("canary");
        let view = env
            .mini_ork(["run", "code-fix", "--json", "--repo", "repo", "kickoff.md"])
            .run()
            .expect(0)
            .json();
        assert!(!canary.exists(), "{replace}");
        let repo = Repo::at(&env, &env.root().join("repo"));
        assert_eq!(
            repo.show(text(&view, "branch"), "answer"),
            "42\n",
            "{replace}"
        );
        repo.git(["fsck", "--strict", "--no-dangling"]);
    }
}

/// An agent that finds the user's repository by the objects that it borrows from it, and plants
/// there what the next git command would run. `local` has no boundary that keeps it from that, but
/// mini-ork runs none of it.
#[test]
fn bc_51_settings_and_hooks_of_the_users_repository() {
    let work = format!(
        "user=$(tail -n 1 .git/objects/info/alternates); user=${{user%/objects}}\n\
         test -d \"$user/refs\"\n{}{}{PLANTED_FILES}cp .gitattributes \"$user/info/attributes\"\n\
         git config --file \"$user/config\" core.hooksPath \"$user/evil-hooks\"\necho 42 > answer\n",
        poison("\"$user/config\"", "$CANARY"),
        hooks("\"$user/hooks\"", "'\"$CANARY\"'") + &hooks("\"$user/evil-hooks\"", "'\"$CANARY\"'"),
    );
    let env = world(&work);
    assert_nothing_ran(&env);
    // What is planted does work: an unwary git runs it.
    Repo::at(&env, &env.root().join("repo")).git_succeeds(["status"]);
    assert!(env.root().join("canary").exists());
}

/// A link in the place of the worktree leads into the user's checkout: nothing is done there, and
/// the next attempt gets a directory again.
#[test]
fn bc_51_a_link_in_the_place_of_the_worktree() {
    let env = new_env();
    let repo = env.repo("repo", PROJECT);
    fs_err::write(repo.path().join("mine"), "not committed\n").unwrap();
    env.kickoff("The answer is wrong", &[CHECK]);
    let (once, checkout) = (env.fresh("once"), repo.path().to_owned());
    let work = format!(
        "if [ ! -e '{once}' ]; then\n\
         touch '{once}'; here=$(pwd); cd /; rm -rf \"$here\"; ln -s '{checkout}' \"$here\"; exit\n\
         fi\n\
         echo 42 > answer",
        once = once.display(),
        checkout = checkout.display(),
    );
    env.lanes(&[("default", Lane::Shell(&agent(&work)))]);
    let before = checkout_state(&checkout);
    let view = run_json(&env, &repo, "code-fix").expect(1).json();
    let detail = text(&view, "detail");
    assert!(detail.contains("replaced by something else"), "{detail}");
    before.assert_same(&checkout_state(&checkout), "after the link");

    let view = env.mini_ork(["recover", "--json"]).run().expect(0).json();
    assert_eq!(repo.show(text(&view, "branch"), "answer"), "42\n");
    before.assert_same(&checkout_state(&checkout), "after the recovery");
}
