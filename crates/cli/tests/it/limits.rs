//! Limits that are none, wherever they are written: refused before anything is made.

use mini_ork_testkit::{Lane, TestEnv, tree_state};

use crate::support::{PROJECT, agent, fan_recipe, new_env};

const GARBAGE: &[&str] = &[
    "0", "-1", "-0", "NaN", "inf", "1e99", "5x", "4.5.6", "one", " ", "0x10",
];

fn ready() -> TestEnv {
    let env = new_env();
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[]);
    env.lanes(&[("default", Lane::Shell(&agent("echo 42 > answer")))]);
    fan_recipe(&env, &["edit"], "");
    env
}

fn call(env: &TestEnv) -> mini_ork_testkit::Call<'_> {
    env.mini_ork(["run", "fan", "--repo", "repo", "kickoff.md"])
}

#[test]
fn bc_72_flags() {
    let env = ready();
    let before = tree_state(&env.home());
    for flag in ["--deadline", "--budget", "--max-parallel"] {
        for value in GARBAGE {
            let output = call(&env).arg(format!("{flag}={value}")).run().expect(2);
            assert!(output.errors().contains(flag), "{}", output.transcript());
        }
    }
    for value in ["0d", "1h30m", "h", "99999999999999999999s", "400d"] {
        call(&env)
            .arg(format!("--deadline={value}"))
            .run()
            .expect(2);
    }
    for value in ["257", "1000000", "4.0"] {
        call(&env)
            .arg(format!("--max-parallel={value}"))
            .run()
            .expect(2);
    }
    before.assert_same(&tree_state(&env.home()), "after refusals");
}

#[test]
fn bc_72_variables() {
    let env = ready();
    let before = tree_state(&env.home());
    for name in ["MINI_ORK_MAX_PARALLEL", "MO_NODE_TIMEOUT_S"] {
        for value in GARBAGE.iter().chain(&["5m", "99999999999"]) {
            let output = call(&env).env(name, value).run().expect(2);
            let errors = output.errors();
            assert!(
                errors.contains(name) && errors.contains("hint: "),
                "{}",
                output.transcript()
            );
        }
    }
    for value in GARBAGE {
        let output = call(&env).env("MO_DAILY_BUDGET_USD", value).run().expect(2);
        assert!(
            output.errors().contains("MO_DAILY_BUDGET_USD"),
            "{}",
            output.transcript()
        );
    }
    for name in ["MINI_ORK_DRY_RUN", "MO_NODE_ISOLATION"] {
        call(&env).env(name, "2").run().expect(2);
    }
    before.assert_same(&tree_state(&env.home()), "after refusals");
}

#[test]
fn bc_72_recipes() {
    let env = ready();
    let keys: &[(&str, &[&str])] = &[
        (
            "timeout_minutes",
            &[
                "0", "-1", "0.001", ".nan", ".inf", "1e99", "5m", "\"5\"", "[]", "10081",
            ],
        ),
        (
            "max_cost_usd",
            &["0", "-1", ".nan", ".inf", "\"1\"", "free", "{}"],
        ),
        (
            "retries",
            &[
                "-1",
                "6",
                "1.5",
                "1e99",
                "\"1\"",
                "many",
                "99999999999999999999",
            ],
        ),
    ];
    for (key, values) in keys {
        for value in *values {
            if *key == "retries" {
                // The helper sets `retries`, which may stand only once.
                fan_recipe(&env, &["edit"], "");
                let path = env.home().join("recipes/fan/workflow.yaml");
                let text = fs_err::read_to_string(&path).unwrap();
                fs_err::write(
                    path,
                    text.replace("retries: 0", &format!("retries: {value}")),
                )
                .unwrap();
            } else {
                fan_recipe(&env, &["edit"], &format!(", {key}: {value}"));
            }
            let output = call(&env).run();
            let errors = output.errors();
            assert!(
                output.code() == Some(2)
                    && errors.contains("workflow.yaml:4")
                    && errors.contains(key),
                "{key}: {value}: {}",
                output.transcript()
            );
        }
    }
    assert!(env.runs().is_empty());
}

#[test]
fn bc_72_what_is_a_limit_is_taken() {
    let env = ready();
    fan_recipe(
        &env,
        &["edit"],
        ", timeout_minutes: 0.5, max_cost_usd: 0.01",
    );
    call(&env)
        .arg("--deadline=2m")
        .arg("--budget=$0.50")
        .arg("--max-parallel=256")
        .env("MO_NODE_TIMEOUT_S", "5")
        .run()
        .expect(0);
}
