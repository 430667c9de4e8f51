//! The measurements: that they come to an end, hold together, and leave nothing behind.

use mini_ork_testkit::{ContainerEngine, skip, static_node_program};

use crate::sandbox::TOOLS;
use crate::support::new_env;

#[test]
fn every_part_is_measured_and_nothing_is_left() {
    let env = new_env();
    let lab = env.root().join("lab");
    fs_err::create_dir(&lab).unwrap();
    let report = env
        .mini_ork(
            "bench dispatch --json --samples 1 --nodes 3 --runs 2 --files 60 --dir lab"
                .split_ascii_whitespace(),
        )
        .run()
        .expect(0)
        .json();
    assert_eq!(report["format"], 1);
    let rows = report["rows"].as_array().unwrap();
    for part in ["start", "nodes", "tree", "runs"] {
        assert!(rows.iter().any(|row| row["part"] == part), "no {part}");
    }
    for row in rows {
        let [min, median, max] = ["min", "median", "max"].map(|key| row[key].as_f64().unwrap());
        assert!(min <= median && median <= max, "{row}");
        assert!(row["count"].as_u64() >= Some(1), "{row}");
    }
    let goals = report["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 6, "{goals:#?}");
    for goal in goals {
        let within = goal["measured"].as_f64() <= goal["at_most"].as_f64();
        assert_eq!(goal["met"], within, "{goal}");
    }
    assert_eq!(fs_err::read_dir(&lab).unwrap().count(), 0);
    assert!(!env.home().exists(), "measuring made the user's home");
    env.assert_no_process();
}

#[test]
fn the_gateway_is_measured_beside_nginx() {
    let env = new_env();
    let lab = env.root().join("lab");
    fs_err::create_dir(&lab).unwrap();
    let arguments = "bench gateway --json --samples 1 --clients 10 --calls 2 --dir lab";
    let measured = env.mini_ork(arguments.split_ascii_whitespace()).run();
    assert_eq!(fs_err::read_dir(&lab).unwrap().count(), 0);
    env.assert_no_process();
    if measured.errors().contains("`nginx` cannot be run") {
        assert!(measured.expect(1).errors().contains("apt-get install"));
        skip("nginx is not installed");
        return;
    }
    let report = measured.expect(0).json();
    let rows = report["rows"].as_array().unwrap();
    for part in ["steady", "burst", "memory", "slow"] {
        assert!(rows.iter().any(|row| row["part"] == part), "no {part}");
    }
    for row in rows {
        assert!(row["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(report["goals"].as_array().unwrap().len(), 6);
}

#[test]
fn sandboxes_are_measured_beside_docker() {
    let Some(node_program) = static_node_program() else {
        return;
    };
    let Some(engine) = ContainerEngine::start() else {
        return;
    };
    let tools = [TOOLS, &["true", "curl"]].concat();
    let image = engine.image_of_this_machine(&tools);
    let env = new_env();
    let lab = env.root().join("lab");
    fs_err::create_dir(&lab).unwrap();
    let arguments = "bench sandbox --json --samples 1 --files 50 --dir lab --image";
    let measured = env
        .mini_ork(arguments.split_ascii_whitespace())
        .arg(&image)
        .env("DOCKER_HOST", engine.endpoint())
        .env("MO_NODE_PROGRAM", &node_program)
        .run()
        .expect(0);
    assert!(measured.errors().contains("docker: there is no cargo"));
    let report = measured.json();
    let rows = report["rows"].as_array().unwrap();
    for part in ["up", "exec", "files", "egress", "memory"] {
        assert!(rows.iter().any(|row| row["part"] == part), "no {part}");
    }
    for row in rows {
        // What the control plane takes more may be less than a page.
        let may_be_none = row["name"].as_str().unwrap().contains("outside");
        assert!(may_be_none || row["max"].as_f64() > Some(0.0), "{row}");
    }
    for row in ["docker: session up", "docker run --detach, same image"] {
        assert!(rows.iter().any(|found| found["name"] == row), "no {row}");
    }
    assert_eq!(report["goals"].as_array().unwrap().len(), 2);
    assert_eq!(engine.containers(), Vec::<String>::new());
    assert_eq!(fs_err::read_dir(&lab).unwrap().count(), 0);
    assert!(!env.home().exists(), "measuring made the user's home");
    env.assert_no_process();
}

#[test]
fn sandboxes_are_not_measured_without_an_engine() {
    let env = new_env();
    let socket = format!("unix://{}/none.sock", env.root().display());
    let call = || {
        env.mini_ork(["bench", "sandbox", "--image", "none"])
            .env("DOCKER_HOST", &socket)
    };
    let output = call().run().expect(2);
    assert!(output.errors().contains("none.sock"), "{}", output.errors());
}
