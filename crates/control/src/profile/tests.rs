use std::path::Path;

use mini_ork_node::size::parse_memory;
use mini_ork_node::workspace::docker::Processors;
use proptest::prelude::*;

use super::*;

fn resolve(files: &[&str]) -> Result<ResolvedProfile, String> {
    let mut raw = RawProfile::default();
    for (index, text) in files.iter().enumerate() {
        raw.read(&format!("{index}.yaml"), text.as_bytes());
    }
    raw.resolve().map_err(|mistakes| mistakes.to_string())
}

#[test]
fn the_repository_wins_key_by_key() {
    let home = "image: debian:12\nnetwork: allowlist\nallow_domains: [pypi.org, 'github.com:22']\n\
        env: {A: home, B: 1.10}\nresources: {cpus: 2, memory: 4G}\n";
    let own = "image: own:1\nenv: {A: repository}\nresources:\n  memory: 500M\n";
    let profile = resolve(&[home, own]).unwrap();
    assert_eq!(profile.image.unwrap().value, "own:1");
    let network = profile.network.unwrap();
    assert_eq!(network.to_string(), "0.yaml:2");
    assert_eq!(
        network.value.allowed().unwrap().to_string(),
        "pypi.org, github.com:22"
    );
    let env: Vec<(&str, &str)> = profile
        .env
        .iter()
        .map(|(name, placed)| (name.as_str(), placed.value.as_str()))
        .collect();
    assert_eq!(env, [("A", "repository"), ("B", "1.10")]);
    assert_eq!(profile.env["A"].to_string(), "1.yaml:2");
    assert_eq!(profile.cpus.unwrap().value, "2");
    let memory = profile.memory.unwrap();
    assert_eq!((memory.value.as_str(), memory.line), ("500M", 4));
    let closed = resolve(&[home, "network: none\n"]).unwrap();
    assert_eq!(closed.network.unwrap().value, NetworkPolicy::None);
    assert_eq!(
        resolve(&["# nothing\nenv: {}\n"]).unwrap(),
        ResolvedProfile::default()
    );
}

#[test]
fn bc_72_what_makes_no_sense_is_refused_with_its_place() {
    for (text, says) in [
        (
            "network: allowlist\n",
            "0.yaml:1  network: `allowlist` without a host",
        ),
        (
            "network: allowlist\nallow_domains: []\n",
            "0.yaml:2  allow_domains: allows nothing",
        ),
        (
            "network: allowlist\nallow_domains: pypi.org\n",
            "not a list",
        ),
        (
            "network: allowlist\nallow_domains:\n- a.com\n- '*'\n",
            "0.yaml:4  allow_domains: `*` cannot",
        ),
        (
            "network: allowlist\nallow_domains: [a.com, A.com.]\n",
            "`a.com` is there twice",
        ),
        (
            "network: allowlist\nallow_domains: [https://a.com]\n",
            "write `a.com`",
        ),
        (
            "network: none\nallow_domains: [a.com]\n",
            "0.yaml:2  allow_domains: is not looked at",
        ),
        ("allow_domains: [a.com]\n", "write `network: allowlist`"),
        ("network: allowlsit\n", "did you mean `allowlist`?"),
        ("netwrok: none\n", "did you mean `network`?"),
        ("resources: {cpsu: 1}\n", "did you mean `cpus`?"),
        (
            "resources:\n  cpu: 1\n  cpus: 1\n",
            "0.yaml:2  resources.cpu: is another name of `cpus`",
        ),
        (
            "resources: {cpus: 0}\n",
            "0.yaml:1  resources.cpus: is `0`, which is no number of processors",
        ),
        (
            "resources: {cpu: 1.2345}\n",
            "0.yaml:1  resources.cpu: is `1.2345`, which is no number of processors",
        ),
        ("resources: {cpus: [1]}\n", "not a text"),
        ("resources: {cpus: -1}\n", "no number of processors"),
        ("resources: {cpus: .nan}\n", "no number of processors"),
        ("resources: {cpus: NaN}\n", "no number of processors"),
        ("resources: {cpus: 1e99}\n", "no number of processors"),
        ("resources: {cpus: 5m}\n", "no number of processors"),
        ("resources: {cpus: 4097}\n", "no number of processors"),
        ("resources: {memory: 0}\n", "no amount of memory"),
        ("resources: {memory: -1}\n", "no amount of memory"),
        ("resources: {memory: NaN}\n", "no amount of memory"),
        ("resources: {memory: 1e99}\n", "no amount of memory"),
        ("resources: {memory: 5m}\n", "no amount of memory"),
        ("resources: {memory: 99999999999T}\n", "no amount of memory"),
        ("resources: {memory: 15m}\n", "no amount of memory"),
        ("resources: {memory: 17T}\n", "from 16M to 16T"),
        ("resources: {memory: 1.5g}\n", "no amount of memory"),
        ("resources: 4\n", "not a map"),
        ("image: ''\n", "is blank"),
        ("image: 'a b'\n", "not the name of an image"),
        ("env: {OPENAI_API_KEY: x}\n", "`secrets`"),
        ("env: {MO_NODE_ID: x}\n", "sets itself"),
        ("env: {'A B': x}\n", "not the name of a variable"),
        ("env: {A: [x]}\n", "not a text"),
        ("provider: daytona\n", "is not carried out"),
        ("provider_options: {timeout: 1}\n", "is not carried out"),
        ("setup: [make]\n", "in the image"),
        ("secrets: [A]\n", "vault"),
    ] {
        let error = resolve(&[text]).unwrap_err();
        assert!(error.contains(says), "{text}: {error}");
    }
    let all =
        resolve(&["image: ''\nnetwork: allowlist\nallow_domains: ['*']\nsetup: [x]\nodd: 1\n"]);
    assert_eq!(all.unwrap_err().lines().count(), 4);
}

#[test]
fn bounds_are_written_as_for_a_container_engine() {
    for memory in [
        "8g",
        "512m",
        "1Gi",
        "4GB",
        "4GiB",
        "4gib",
        "268435456",
        "16M",
    ] {
        let profile = resolve(&[&format!("resources: {{memory: {memory}}}\n")]).unwrap();
        assert_eq!(profile.memory.unwrap().value, memory);
    }
    for cpus in ["2", "0.5", "'1.25'"] {
        for name in ["cpus", "cpu"] {
            let profile = resolve(&[&format!("resources: {{{name}: {cpus}}}\n")]).unwrap();
            assert_eq!(profile.cpus.unwrap().value, cpus.trim_matches('\''));
        }
    }
    // Each file says what it says, under either name.
    let profile = resolve(&["resources: {cpus: 4}\n", "resources: {cpu: 2}\n"]).unwrap();
    let cpus = profile.cpus.unwrap();
    assert_eq!(
        (cpus.value.as_str(), cpus.to_string()),
        ("2", "1.yaml:1".to_owned())
    );
}

#[test]
fn a_profile_is_found_or_its_name_is_told() {
    let home = tempfile::tempdir().unwrap();
    let load = |name: &str| RawProfile::load(home.path(), None, name);
    let error = load("ci").unwrap_err().to_string();
    assert!(error.contains("config/environments/ci.yaml"), "{error}");
    let directory = home.path().join("config/environments");
    fs_err::create_dir_all(&directory).unwrap();
    fs_err::write(directory.join("docker.yaml"), "image: a\n").unwrap();
    let error = load("dokcer").unwrap_err().to_string();
    assert!(error.contains("did you mean `docker`?"), "{error}");
    for odd in ["../docker", "", "a/b", ".docker"] {
        assert!(load(odd).is_err(), "{odd}");
    }
    let profile = load("docker").unwrap().resolve().unwrap();
    let file = directory.join("docker.yaml");
    assert_eq!(Path::new(&profile.image.unwrap().file), file);
}

#[test]
fn images_of_all_profiles_are_known_or_it_is_told_why_not() {
    let place = tempfile::tempdir().unwrap();
    let (home, repository) = (place.path().join("home"), place.path().join("repository"));
    let write = |file: &str, text: &str| {
        let file = place.path().join(file);
        fs_err::create_dir_all(file.parent().unwrap()).unwrap();
        fs_err::write(file, text).unwrap();
    };
    let images = || named_images(&home, Some(&repository));
    assert!(images().unwrap().is_empty());
    write("home/config/environments/a.yaml", "image: a:1\n");
    write("home/config/environments/b.yaml", "network: none\n");
    // What else is wrong with it does not hide its image.
    write("home/config/environments/c.yaml", "odd: 1\nimage: c:1\n");
    write(
        "repository/.mini-ork/config/environments/a.yaml",
        "image: a:2\n",
    );
    let found: Vec<String> = images().unwrap().into_iter().map(|one| one.value).collect();
    assert_eq!(found, ["a:1", "a:2", "c:1"]);
    assert_eq!(names(&home, Some(&repository)), ["a", "b", "c"]);
    write("home/config/environments/d.yaml", "image: [\n");
    let error = images().unwrap_err().to_string();
    assert!(error.contains("d.yaml:"), "{error}");
}

proptest! {
    #[test]
    fn bc_72_whatever_a_number_is_written_as_it_is_good_or_a_mistake(
        cpus in "-?[0-9]{1,4}(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,3})?|[.+-]?(nan|inf|NaN|Infinity)|[0-9]{1,3}[a-zA-Z]{1,2}|0x[0-9a-f]{1,4}|'[0-9]'",
        memory in "-?[0-9]{1,22}[KMGTkmgtbBi]{0,3}|[+-]?(nan|inf)|[0-9]e[0-9]{1,3}",
    ) {
        let text = format!("resources:\n  cpus: {cpus}\n  memory: {memory}\n");
        if let Ok(profile) = resolve(&[&text]) {
            prop_assert!(Processors::parse(&profile.cpus.unwrap().value).is_some());
            prop_assert!(parse_memory(&profile.memory.unwrap().value).is_some());
        }
    }

    #[test]
    fn no_bytes_break_the_reader(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut raw = RawProfile::default();
        raw.read("f", &bytes);
        let _ = raw.resolve();
    }

    #[test]
    fn no_known_keys_break_the_reader(text in "((image|network|allow_domains|env|resources|cpus|memory|provider): ?(\\[|\\{|[a-z0-9*.,:']{0,8}|\\]|\\})?\n? {0,2}){0,8}") {
        let _ = resolve(&[&text]);
    }
}
