//! The measurements: that they come to an end, hold together, and leave nothing behind.

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
