use std::path::{Path, PathBuf};

use super::catalog::{Catalog, FindError, IN_REPOSITORY, LoadError, load_directory};
use super::model::Origin;

const WORKFLOW: &str = "version: 1\ntask_class: t\ndescription: D\nnodes:\n- {name: a, type: researcher, prompt_ref: p.md}\nedges: []\n";

fn put(directory: &Path, workflow: &str) {
    fs_err::create_dir_all(directory).unwrap();
    fs_err::write(directory.join("workflow.yaml"), workflow).unwrap();
    fs_err::write(directory.join("p.md"), "{{ kickoff }}").unwrap();
}

struct World {
    _temporary: tempfile::TempDir,
    repository: PathBuf,
    home: PathBuf,
}

impl World {
    fn new() -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let (repository, home) = (temporary.path().join("r"), temporary.path().join("h"));
        fs_err::create_dir_all(&repository).unwrap();
        Self {
            _temporary: temporary,
            repository,
            home,
        }
    }

    fn catalog(&self) -> Catalog {
        Catalog::new(Some(&self.repository), &self.home)
    }

    fn in_repository(&self, name: &str) -> PathBuf {
        self.repository.join(IN_REPOSITORY).join(name)
    }
}

#[test]
fn the_repository_wins_over_home_and_home_over_the_bundled() {
    let world = World::new();
    assert_eq!(
        world.catalog().find("docs").unwrap().origin,
        Origin::Bundled
    );
    let at_home = world.home.join("recipes/docs");
    put(&at_home, WORKFLOW);
    assert_eq!(
        world.catalog().find("docs").unwrap().origin,
        Origin::Home(at_home)
    );
    put(&world.in_repository("docs"), WORKFLOW);
    let found = world.catalog().find("docs").unwrap();
    assert_eq!(
        found.origin,
        Origin::Repository(world.in_repository("docs"))
    );
    let listed = world.catalog().list().unwrap();
    let docs: Vec<bool> = listed
        .iter()
        .filter(|one| one.name == "docs")
        .map(|one| one.shadowed)
        .collect();
    assert_eq!(docs, [false, true, true]);
    assert_eq!(world.catalog().load_all().unwrap().len(), 5);
}

#[test]
fn an_unknown_name_gets_a_suggestion_or_the_list() {
    let world = World::new();
    let error = world.catalog().find("code-fx").unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no recipe `code-fx` (did you mean `code-fix`?)"
    );
    let error = world.catalog().find("zebra").unwrap_err().to_string();
    assert!(
        error.contains("known: `code-fix`, `docs`, `parallel-fix`"),
        "{error}"
    );
}

#[test]
fn a_name_is_one_safe_segment() {
    let world = World::new();
    put(&world.home.join("outside"), WORKFLOW);
    for name in [
        "",
        ".",
        "..",
        "../outside",
        "/etc",
        "a/b",
        "a\0b",
        "-x",
        "é",
        &"x".repeat(65),
    ] {
        let error = world.catalog().find(name);
        assert!(
            matches!(error, Err(FindError::NotAName(_))),
            "{name}: {error:?}"
        );
    }
}

#[test]
fn a_broken_recipe_is_listed_and_hides_no_other() {
    let world = World::new();
    put(&world.in_repository("docs"), "version: 1\n");
    put(&world.in_repository("mine"), WORKFLOW);
    put(&world.in_repository("bad name"), WORKFLOW);
    fs_err::write(world.in_repository("README.md"), "").unwrap();
    let listed = world.catalog().list().unwrap();
    let names: Vec<(&str, bool)> = listed
        .iter()
        .map(|one| (one.name.as_str(), one.mistakes.is_some()))
        .collect();
    assert_eq!(
        names,
        [
            ("bad name", true),
            ("code-fix", false),
            ("docs", true),
            ("docs", false),
            ("mine", false),
            ("parallel-fix", false),
            ("research-synthesis", false),
            ("review", false),
        ]
    );
    // The edited recipe is the one that is meant, so its mistakes are the answer.
    let error = world.catalog().find("docs").unwrap_err().to_string();
    assert!(
        error.contains(".mini-ork/recipes/docs/workflow.yaml:1"),
        "{error}"
    );
    let loaded: Vec<String> = world
        .catalog()
        .load_all()
        .unwrap()
        .into_iter()
        .map(|recipe| recipe.name)
        .collect();
    assert_eq!(
        loaded,
        [
            "code-fix",
            "mine",
            "parallel-fix",
            "research-synthesis",
            "review"
        ]
    );
}

#[test]
fn a_link_in_a_repository_makes_no_recipe_of_files_elsewhere() {
    let world = World::new();
    put(&world.home.join("elsewhere"), WORKFLOW);
    fs_err::create_dir_all(world.in_repository("")).unwrap();
    fs_err::os::unix::fs::symlink(world.home.join("elsewhere"), world.in_repository("linked"))
        .unwrap();
    let error = world.catalog().find("linked").unwrap_err();
    assert!(
        matches!(error, FindError::Load(LoadError::Read { .. })),
        "{error:?}"
    );
    let listed = world.catalog().list().unwrap();
    let linked = listed.iter().find(|one| one.name == "linked").unwrap();
    let mistakes = linked.mistakes.as_ref().unwrap().to_string();
    assert!(
        mistakes.contains("leads out of its directory"),
        "{mistakes}"
    );
    // At home the user may keep recipes wherever they like.
    fs_err::create_dir_all(world.home.join("recipes")).unwrap();
    fs_err::os::unix::fs::symlink("../elsewhere", world.home.join("recipes/own")).unwrap();
    assert_eq!(world.catalog().find("own").unwrap().description, "D");
}

#[test]
fn a_named_directory_is_loaded_wherever_it_lies() {
    let world = World::new();
    let path = world.home.join("some/recipe");
    put(&path, WORKFLOW);
    let recipe = load_directory(&path).unwrap();
    assert_eq!(
        (recipe.name.as_str(), &recipe.origin),
        ("recipe", &Origin::Directory(path.clone()))
    );
    assert_eq!(
        load_directory(&path.join(".")).unwrap().digest,
        recipe.digest
    );
    let error = load_directory(&world.home.join("nothing")).unwrap_err();
    assert!(matches!(error, LoadError::Read { .. }), "{error:?}");
    put(&world.home.join("a b"), WORKFLOW);
    let error = load_directory(&world.home.join("a b"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("is not the name of a recipe"), "{error}");
    fs_err::create_dir(world.home.join("empty")).unwrap();
    let error = load_directory(&world.home.join("empty"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("workflow.yaml:1  the file is missing"),
        "{error}"
    );
}
