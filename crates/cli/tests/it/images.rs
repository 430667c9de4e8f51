//! The images of the container engine.

use std::net::TcpListener;
use std::time::Duration;

use mini_ork_testkit::{Call, ContainerEngine, Lane, Running, TestEnv, skip, wait_for};
use serde_json::Value;

use crate::sandbox::World;
use crate::support::{CHECK, PROJECT, agent, new_env, text};

const NOWHERE: &str = "unix:///nowhere/docker.sock";
const PATIENCE: Duration = Duration::from_secs(60);

impl World {
    fn image(&self, arguments: &[&str]) -> Call<'_> {
        let all = [&["image"], arguments].concat();
        // No image is chosen, but where a test says so.
        self.call(&all).without_env("MO_SANDBOX_IMAGE")
    }

    fn build(&self, tag: &str, dockerfile: &str) -> Call<'_> {
        let file = self.env.write("context/Dockerfile", dockerfile);
        self.image(&["build", "--json", "--tag", tag])
            .arg(file.parent().unwrap())
    }

    fn listed(&self) -> Vec<Value> {
        let listed = self.image(&["ls", "--json"]).run().expect(0).json();
        listed["images"].as_array().unwrap().clone()
    }
}

#[test]
fn an_image_is_built_used_and_removed() {
    let Some(world) = World::new() else {
        return;
    };
    assert_eq!(world.listed(), Vec::<Value>::new());
    world.env.write("context/hello", "hello from the context\n");
    world.env.write("context/secret.key", "SENTINEL");
    world.env.write("context/.dockerignore", "*.key\n");
    let dockerfile = "ARG BASE=nothing\nFROM $BASE\nCOPY . /context\nENV ANSWER=42\n";
    let base = format!("BASE={}", world.image);
    let built = world
        .build("tools:1", dockerfile)
        .arg("--build-arg")
        .arg(&base);
    let built = built.run().expect(0);
    assert!(built.errors().contains("Step 3/5"), "{}", built.errors());
    let id = text(&built.json(), "id").to_owned();
    assert!(id.starts_with("sha256:"), "{id}");

    world.lane(
        "set -e\n\
         test -e /context/hello\n\
         ! test -e /context/secret.key\n\
         echo $ANSWER > answer",
    );
    let view = world
        .run()
        .env("MO_SANDBOX_IMAGE", "tools:1")
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    let unused = world.build("tools:2", &dockerfile.replace("=42", "=43"));
    unused.arg("--build-arg").arg(&base).run().expect(0);

    let listed = world.listed();
    assert_eq!(listed.len(), 2, "{listed:#?}");
    let used = listed
        .iter()
        .find(|image| image["id"] == id.as_str())
        .unwrap();
    assert_eq!(used["names"], serde_json::json!(["tools:1"]));
    assert_eq!(used["runs"], serde_json::json!([text(&view, "run")]));
    assert_eq!(used["own"], true);
    let shown = world
        .image(&["ls"])
        .env("MO_SANDBOX_IMAGE", &world.image)
        .run();
    let shown = shown.expect(0).text();
    for part in ["tools:1", "tools:2", "(chosen)", text(&view, "run")] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    let prune = |arguments: &[&str]| {
        let arguments = [&["prune"], arguments].concat();
        world.image(&arguments).run().expect(0).text()
    };
    let dry = prune(&["--dry-run"]);
    assert!(dry.contains("would remove tools:2"), "{dry}");
    assert_eq!(world.listed().len(), 2);
    let done = prune(&[]);
    assert!(
        done.contains("used by") && done.contains("tools:1"),
        "{done}"
    );
    let left = world.listed();
    assert_eq!(left.len(), 1, "{left:#?}");
    assert_eq!(left[0]["id"], id.as_str());
    // What others made stays, whatever uses it.
    assert!(world.engine.docker(&["images"]).contains(&world.image));
    world.assert_nothing_is_left();
}

/// However an image is written, the engine knows which one it is.
#[test]
fn images_that_a_profile_names_stay() {
    let Some(world) = World::new() else {
        return;
    };
    let mut ids = Vec::new();
    for number in 1..=4 {
        let dockerfile = format!("FROM {}\nENV NUMBER={number}\n", world.image);
        let built = world.build(&format!("tools:{number}"), &dockerfile);
        ids.push(text(&built.run().expect(0).json(), "id").to_owned());
    }
    let short = ids[0].trim_start_matches("sha256:")[..12].to_owned();
    let of_home = world.env.write(
        "home/config/environments/box.yaml",
        &format!("# more\nimage: {}\n", ids[1]),
    );
    // Without a tag it is the latest.
    world.engine.docker(&["tag", "tools:3", "latest-tools"]);
    world.env.write(
        "repo/.mini-ork/config/environments/box.yaml",
        "image: latest-tools\n",
    );
    let call = |arguments: &[&str]| {
        let call = world.image(arguments).cwd(world.repo().path());
        call.env("MO_SANDBOX_IMAGE", &short)
    };
    let listed = call(&["ls", "--json"]).run().expect(0).json();
    let chosen = |id: &str| {
        let images = listed["images"].as_array().unwrap();
        let image = images.iter().find(|image| image["id"] == id);
        (
            image.unwrap()["chosen"].clone(),
            image.unwrap()["named_by"].to_string(),
        )
    };
    for (id, place) in ids
        .iter()
        .zip(["MO_SANDBOX_IMAGE", "box.yaml:2", "box.yaml:1"])
    {
        let (chosen, named_by) = chosen(id);
        assert!(chosen == true && named_by.contains(place), "{listed:#}");
    }
    assert_eq!(chosen(&ids[3]), (false.into(), "[]".to_owned()));
    let pruned = call(&["prune"]).run().expect(0).text();
    assert!(
        pruned.contains("removed      tools:4") && pruned.contains("named by MO_SANDBOX_IMAGE"),
        "{pruned}"
    );
    assert!(
        pruned.contains(&format!("named by {}:2", of_home.display())),
        "{pruned}"
    );
    assert_eq!(world.listed().len(), 3);

    // Nothing is removed that may be named.
    fs_err::write(&of_home, "image: [\n").unwrap();
    let refused = call(&["prune"]).run().expect(2);
    assert!(
        refused.errors().contains("box.yaml:2  image"),
        "{}",
        refused.errors()
    );
    let listed = call(&["ls"]).run().expect(0);
    assert!(
        listed.errors().contains("box.yaml:2  image"),
        "{}",
        listed.errors()
    );
    assert_eq!(world.listed().len(), 3);
}

/// Podman lists an image under another name than the one that it was given.
#[test]
fn an_image_of_podman_is_known_by_the_name_that_was_written() {
    let Some(world) = World::on(ContainerEngine::start_podman(0)) else {
        return;
    };
    world.env.write(
        "home/config/environments/box.yaml",
        &format!("image: {}\n", world.image),
    );
    let listed = world.listed();
    let [image] = listed.as_slice() else {
        panic!("{listed:#?}");
    };
    assert_eq!(image["chosen"], true, "{image:#}");
    assert_ne!(
        image["names"],
        serde_json::json!([world.image]),
        "{image:#}"
    );
    assert!(
        image["named_by"][0]
            .as_str()
            .unwrap()
            .ends_with("box.yaml:1")
    );
}

#[test]
fn what_cannot_be_built() {
    let Some(world) = World::new() else {
        return;
    };
    let refused = |call: Call<'_>, code: i32, says: &str| {
        let output = call.run().expect(code);
        let errors = output.errors();
        assert!(
            errors.contains(says) && errors.contains("hint: "),
            "{errors}"
        );
        assert_eq!(world.listed(), Vec::<Value>::new());
        world.assert_nothing_is_left();
    };
    refused(
        world.image(&["build", "nowhere", "--tag", "x:1"]),
        2,
        "there is no",
    );
    world.env.write("context/Dockerfile", "FROM scratch\n");
    refused(
        world.image(&["build", "context"]),
        2,
        "the image has no name",
    );
    let unknown = world.build("x:1", "FROM scratch\nNONSENSE\n");
    refused(unknown, 1, "could not build the image");
    world.env.write("context/.dockerignore", "a[\n");
    let pattern = world.build("x:1", "FROM scratch\nCOPY . /\n");
    refused(pattern, 2, "`a[` is no pattern");
    let down = world
        .image(&["build"])
        .env("DOCKER_HOST", "unix:///nowhere");
    refused(down, 2, "no container engine answers");

    // The bundled one, as far as it comes without a network.
    let bundled = world.image(&["build", "--build-arg"]);
    let output = bundled.arg(format!("BASE={}", world.image)).run().expect(1);
    let errors = output.errors();
    assert!(errors.contains("LABEL dev.mini-ork.image"), "{errors}");
    assert!(errors.contains("RUN apt-get update"), "{errors}");
    world.assert_nothing_is_left();
}

#[test]
fn without_an_engine_there_are_no_images_and_no_containers() {
    let env = new_env();
    let refused = |arguments: &[&str], says: &str| {
        let call = env.mini_ork(arguments).env("DOCKER_HOST", NOWHERE);
        let output = call.run().expect(2);
        assert_eq!(output.text(), "", "{arguments:?}");
        let errors = output.errors();
        let says = format!("{says}: no container engine answers at {NOWHERE}");
        assert!(errors.contains(&says), "{errors}");
        assert!(
            errors.contains("hint: start it, or name another one with DOCKER_HOST\n"),
            "{errors}"
        );
    };
    refused(&["image", "ls"], "the images cannot be listed");
    refused(&["image", "ls", "--json"], "the images cannot be listed");
    refused(&["image", "prune"], "the images cannot be listed");
    refused(&["image", "pull", "debian:12"], "no image was pulled");
    refused(&["image", "build"], "no image was built");
    for arguments in [
        &["sandbox-gc", "--backend", "docker"][..],
        &["sandbox-gc", "--backend", "docker", "--json"],
        &["sandbox-gc", "--backend", "docker", "--dry-run"],
    ] {
        refused(
            arguments,
            "the containers of the engine cannot be looked at",
        );
    }
    // Whoever does not ask for containers need not have an engine.
    let all = env.mini_ork(["sandbox-gc"]).env("DOCKER_HOST", NOWHERE);
    assert_eq!(all.run().expect(0).text(), "nothing to remove\n");
}

/// Nothing goes in plain text to an engine that is to be spoken to with TLS.
#[test]
fn an_engine_with_tls_is_refused() {
    let env = new_env();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
    env.repo("repo", PROJECT);
    env.kickoff("The answer is wrong", &[CHECK]);
    env.lanes(&[("default", Lane::Shell(&agent("true")))]);
    let run = [
        "run",
        "code-fix",
        "--backend",
        "docker",
        "--repo",
        "repo",
        "kickoff.md",
    ];
    for arguments in [
        &["image", "ls"][..],
        &["sandbox-gc", "--backend", "docker"],
        &run,
    ] {
        for (name, value) in [("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", "/certs")] {
            let call = env.mini_ork(arguments).env("DOCKER_HOST", &endpoint);
            let call = call.env("MO_SANDBOX_IMAGE", "debian:12").env(name, value);
            let errors = call.run().expect(2).errors();
            for part in [&endpoint, "TLS", name, "ssh -N -L"] {
                assert!(errors.contains(part), "{part}: {errors}");
            }
        }
    }
    assert!(listener.accept().is_err(), "somebody was asked");
    assert_eq!(env.runs(), Vec::<String>::new());
}

/// A registry of the test's own.
fn registry(env: &TestEnv) -> Option<(Running, u16)> {
    let program = "/usr/bin/docker-registry";
    if !std::path::Path::new(program).exists() {
        skip("there is no docker-registry; scripts/test installs it as root");
        return None;
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let data = env.root().join("registry");
    let configuration = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: '127.0.0.1:{port}'}}\n",
        data.display()
    );
    let file = env.write("registry.yml", &configuration);
    let running = env.call(program, ["serve"]).arg(file).spawn();
    wait_for("registry", PATIENCE, || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    Some((running, port))
}

#[test]
fn an_image_is_pulled_and_pinned() {
    let Some(world) = World::new() else {
        return;
    };
    let Some((running, port)) = registry(&world.env) else {
        return;
    };
    let name = format!("127.0.0.1:{port}/tools");
    world
        .engine
        .docker(&["tag", &world.image, &format!("{name}:1")]);
    let pushed = world.engine.docker(&["push", &format!("{name}:1")]);
    let digest = pushed
        .split_whitespace()
        .find(|word| word.starts_with("sha256:"));
    let pinned = format!("{name}@{}", digest.unwrap());
    world
        .engine
        .docker(&["rmi", "--force", &format!("{name}:1"), &world.image]);
    let pulled = world.image(&["pull", &format!("{name}:1")]).run().expect(0);
    assert_eq!(pulled.text().trim(), pinned);
    assert!(
        pulled.errors().contains("Pull complete"),
        "{}",
        pulled.errors()
    );
    let again = world
        .image(&["pull", "--json", &pinned])
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&again, "pinned"), pinned);
    let output = world.image(&["pull", &format!("{name}:2")]).run().expect(1);
    assert!(
        output.errors().contains("could not pull the image"),
        "{}",
        output.errors()
    );

    world.lane("echo 42 > answer");
    let view = world
        .run()
        .env("MO_SANDBOX_IMAGE", &pinned)
        .run()
        .expect(0)
        .json();
    assert_eq!(text(&view, "status"), "published", "{view:#}");
    running.signal(rustix::process::Signal::KILL);
    running.wait().expect_killed();
    world.assert_nothing_is_left();
}
