//! `mini-ork run`.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use mini_ork_control::kickoff::{Kickoff, Question};
use mini_ork_control::lanes::LaneConfig;
use mini_ork_control::recipe::{Catalog, Recipe, classify};
use mini_ork_control::run::{
    self, ModelSources, PlanError, RunRequest, RunView, StartError, make_plan, shows_its_tests,
};
use mini_ork_control::store::Store;
use mini_ork_node::git::{DiscoverError, Repository};
use mini_ork_node::redact::Redactor;
use mini_ork_node::text::with_sources;
use mini_ork_protocol::RunId;

use super::apply;
use super::drive::{
    broken_off, conclude, drive, execution, fault_point, find_git, missing_keys, open_workspace,
    run_error, user_excludes,
};
use super::dry_run::dry_run;
use super::preflight::{check_lanes, check_places};
use super::sandbox::check_sandbox;
use super::sandboxes::{MAX_AGE_BESIDE_A_RUN, plain_sweep, sweep_before};
use crate::cli::RunArgs;
use crate::error::{CommandError, CommandResult, ExitStatus};
use crate::render;
use crate::settings::{GlobalSettings, Profile, RunSettings, Setting, Source};

/// Carries out a recipe on a kickoff.
pub(crate) fn run(args: RunArgs, global: &GlobalSettings) -> CommandResult {
    let profile = profile(&args, global)?;
    let settings = RunSettings::resolve(args, global, &profile)?;
    let redactor = Redactor::new();
    // No message is made from a key; should a vendor's be, it is not shown.
    carry_out(&settings, global, &redactor).map_err(|error| error.redacted(&redactor))
}

fn carry_out(
    settings: &RunSettings,
    global: &GlobalSettings,
    redactor: &Redactor,
) -> CommandResult {
    let sweep = settings
        .has_boundary()
        .then(|| plain_sweep(global, None, MAX_AGE_BESIDE_A_RUN))
        .transpose()?;
    let (request, models) = request(settings, global, redactor)?;
    if settings.dry_run {
        let plan = make_plan(&request, placeholder()?).map_err(|error| plan_error(&error))?;
        return dry_run(&plan, &request, settings, global);
    }
    run::require_room(&global.home.value).map_err(|error| run_error(&error))?;
    if let Some(sweep) = sweep {
        sweep_before(&sweep)?;
    }
    let store = Store::open(&global.home.value).map_err(|error| {
        CommandError::usage("the state cannot be written")
            .caused_by(&error)
            .hint("make the home writable, or use another with --home DIR")
    })?;
    let view = drive(
        async |observer, asked| run::start(request, models, &store, observer, asked).await,
        !settings.json,
    )?
    .map_err(|error| match error {
        StartError::Plan(error) => plan_error(&error),
        StartError::Keys(missing) => missing_keys(&missing),
        StartError::Run(error) => run_error(&error),
        StartError::Broken { run, error } => broken_off(global, &run, &error, settings.json),
    })?;
    let status = conclude(&view, settings.json)?;
    apply_when_asked(settings.apply, &view, global, status)
}

/// With `--apply`, puts published work into the checkout too.
pub(crate) fn apply_when_asked(
    asked: bool,
    view: &RunView,
    global: &GlobalSettings,
    status: ExitStatus,
) -> CommandResult {
    if asked && view.branch.is_some() {
        render::err(&apply::apply_view(view, global, false)?.describe());
    }
    Ok(status)
}

fn request(
    settings: &RunSettings,
    global: &GlobalSettings,
    redactor: &Redactor,
) -> Result<(RunRequest, ModelSources), CommandError> {
    let (recipe_name, kickoff_path) = positional(
        settings.first.as_deref(),
        settings.second.as_deref(),
        global,
    )?;
    let bytes = read_kickoff(&kickoff_path)?;
    let file = kickoff_path.display().to_string();
    let kickoff = Kickoff::parse(&bytes, &file).map_err(|error| {
        CommandError::usage("the kickoff cannot be used")
            .caused_by(&error)
            .hint("a kickoff begins with `# TITLE`; `mini-ork init` writes an example")
    })?;
    let git = find_git(global)?;
    let repository = find_repository(&git, settings.repository.as_ref(), &kickoff_path, global)?;
    let (repository, repository_setting) = repository;
    let checkout = repository.toplevel.as_deref();
    let recipe = find_recipe(recipe_name.as_deref(), checkout, global, &kickoff)?;
    let lanes = LaneConfig::load(&global.home.value, checkout).map_err(|error| {
        CommandError::usage("the lanes cannot be used")
            .details(lines(&error))
            .hint("`mini-ork help lanes` describes both files")
    })?;
    let (kickoff, answers, questions) = settle_questions(&kickoff, &recipe, checkout, settings)?;
    let models = global.model_sources(checkout, redactor)?;
    let mut records = settings.records(global);
    records.push(repository_setting);
    let request = RunRequest {
        home: global.home.value.clone(),
        limits: settings.limits(recipe.task.budget_cap_usd),
        daily_budget_usd: settings.daily_budget_usd.value,
        recipe,
        repository,
        kickoff,
        kickoff_path,
        questions,
        answers,
        lanes,
        lane_overrides: settings.lane_overrides.clone(),
        workspace: open_workspace(global, &settings.backend.value, &settings.surroundings)?,
        scope: settings.effective_scope(),
        execution: execution(global, &settings.surroundings),
        excludes: user_excludes(global),
        settings: records,
        fault: fault_point(global)?,
    };
    // Found here, before the home is touched; a lane that is not there is the user's mistake.
    let plan = make_plan(&request, placeholder()?).map_err(|error| plan_error(&error))?;
    check_overrides(&request)?;
    check_places(&plan, settings.host_agent.value)?;
    check_lanes(&plan, &settings.backend.value, global)?;
    check_sandbox(&settings.backend.value, &settings.surroundings, global)?;
    for entry in settings.surroundings.network.wide_entries() {
        render::err(&format!(
            "warning: `{entry}` allows hosts that anybody can have\n"
        ));
    }
    Ok((request, models))
}

/// The profile that was chosen. It may lie in the repository, which is found as for the run.
fn profile(args: &RunArgs, global: &GlobalSettings) -> Result<Profile, CommandError> {
    let Some(name) = Profile::choice(global, args.env.as_deref())? else {
        return Ok(Profile::default());
    };
    let (_, kickoff) = positional(args.first.as_deref(), args.second.as_deref(), global)?;
    let choice = global.repository_choice(args.repo.as_deref());
    let (repository, _) = find_repository(&find_git(global)?, choice.as_ref(), &kickoff, global)?;
    Profile::load(global, repository.toplevel.as_deref(), name)
}

fn positional(
    first: Option<&str>,
    second: Option<&Path>,
    global: &GlobalSettings,
) -> Result<(Option<String>, PathBuf), CommandError> {
    let no_kickoff = |hint: String| CommandError::usage("no kickoff was given").hint(hint);
    match (first, second) {
        (Some(recipe), Some(kickoff)) => Ok((
            Some(recipe.to_owned()),
            global.current_directory.join(kickoff),
        )),
        (Some(only), None) => {
            let path = global.current_directory.join(only);
            if path.is_file() {
                return Ok((None, path));
            }
            Err(no_kickoff(format!("mini-ork run {only} ./kickoff.md")))
        }
        _ => Err(no_kickoff("mini-ork run code-fix ./kickoff.md".to_owned())),
    }
}

fn read_kickoff(path: &Path) -> Result<Vec<u8>, CommandError> {
    const LARGEST: u64 = 1 << 20;
    let unreadable = |error: std::io::Error| {
        CommandError::usage("the kickoff cannot be read")
            .caused_by(&error)
            .hint("give the path of a Markdown file")
    };
    let found = fs_err::metadata(path).map_err(unreadable)?;
    if !found.is_file() {
        return Err(
            CommandError::usage(format!("the kickoff {} is no file", path.display()))
                .hint("give the path of a Markdown file"),
        );
    }
    if found.len() > LARGEST {
        return Err(CommandError::usage(format!(
            "the kickoff {} is larger than 1 MiB",
            path.display()
        ))
        .hint("say what is wanted, and name the files that hold the rest"));
    }
    fs_err::read(path).map_err(unreadable)
}

/// The repository that was chosen, else the one that holds the kickoff, else the one around the
/// current directory.
fn find_repository(
    git: &mini_ork_node::git::Git,
    choice: Option<&Setting<PathBuf>>,
    kickoff_path: &Path,
    global: &GlobalSettings,
) -> Result<(Repository, run::SettingRecord), CommandError> {
    const NAME: &str = "repository";
    let kickoff_directory = kickoff_path
        .parent()
        .unwrap_or(&global.current_directory)
        .to_owned();
    let starts: Vec<Setting<PathBuf>> = match choice {
        Some(choice) => vec![choice.clone()],
        None => vec![
            Setting::new(
                NAME,
                kickoff_directory,
                Source::Derived("the kickoff's directory"),
            ),
            Setting::new(
                NAME,
                global.current_directory.clone(),
                Source::Derived("the current directory"),
            ),
        ],
    };
    let mut first_error = None;
    for start in starts {
        match Repository::discover(git, &start.value) {
            Ok(repository) => {
                let root = repository.toplevel.as_ref().unwrap_or(&repository.git_dir);
                let record = start.record(root.display().to_string());
                return Ok((repository, record));
            }
            Err(error @ DiscoverError::NotARepository { .. }) => {
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(discover_error(&error)),
        }
    }
    Err(first_error.map_or_else(
        || CommandError::usage("there is no repository"),
        |error| discover_error(&error),
    ))
}

/// What a repository that cannot be used means for the user.
pub(crate) fn discover_error(error: &DiscoverError) -> CommandError {
    let hint = match error {
        DiscoverError::NotARepository { .. } => {
            "go into a repository, name one with --repo DIR, or make one with `git init`"
        }
        DiscoverError::NoCommits { .. } => "make the first commit: git commit",
        _ => "`mini-ork doctor` checks git",
    };
    CommandError::usage("the repository cannot be used")
        .caused_by(error)
        .hint(hint)
}

fn find_recipe(
    name: Option<&str>,
    repository: Option<&Path>,
    global: &GlobalSettings,
    kickoff: &Kickoff,
) -> Result<Recipe, CommandError> {
    let catalog = Catalog::new(repository, &global.home.value);
    let name = match name {
        Some(name) => name.to_owned(),
        None => choose_recipe(&catalog, kickoff)?,
    };
    catalog.find(&name).map_err(|error| {
        CommandError::usage(format!("the recipe `{name}` cannot be used"))
            .details(lines(&error))
            .hint("`mini-ork recipe ls` lists recipes; `mini-ork recipe validate` checks one")
    })
}

fn choose_recipe(catalog: &Catalog, kickoff: &Kickoff) -> Result<String, CommandError> {
    let recipes = catalog.load_all().map_err(|error| {
        CommandError::usage("the recipes cannot be read").details(lines(&error))
    })?;
    let ranked = classify(&recipes, &kickoff.text);
    match ranked.as_slice() {
        [(name, score), rest @ ..] if rest.first().is_none_or(|(_, next)| next < score) => {
            render::err(&format!(
                "recipe {name}, chosen by the words of the kickoff\n"
            ));
            Ok(name.clone())
        }
        _ => {
            let names: Vec<&str> = ranked
                .iter()
                .take(3)
                .map(|(name, _)| name.as_str())
                .collect();
            Err(
                CommandError::usage("the kickoff's words do not choose a recipe").hint(
                    if names.is_empty() {
                        "name one: mini-ork run RECIPE KICKOFF".to_owned()
                    } else {
                        format!(
                            "name one: mini-ork run RECIPE KICKOFF, such as {}",
                            names.join(", ")
                        )
                    },
                ),
            )
        }
    }
}

type Settled = (Kickoff, BTreeMap<String, String>, Vec<Question>);

/// Fills in what the user answers, on the command line or now; returns what is still open.
fn settle_questions(
    kickoff: &Kickoff,
    recipe: &Recipe,
    checkout: Option<&Path>,
    settings: &RunSettings,
) -> Result<Settled, CommandError> {
    let detected = checkout.is_some_and(shows_its_tests);
    let fill = |kickoff: &Kickoff, answers: &BTreeMap<String, String>| {
        kickoff
            .clone()
            .with_answers(answers)
            .map_err(|error| CommandError::usage("an answer cannot be used").caused_by(&error))
    };
    let mut answers = settings.answers.clone();
    let mut filled = fill(kickoff, &answers)?;
    let mut open = filled.missing(&recipe.task.requires, detected);
    if !open.is_empty() && settings.may_ask && can_ask() && !settings.dry_run {
        for question in unanswered(kickoff, recipe, detected, &answers) {
            if let Some(answer) = ask(&question)? {
                answers.insert(question.id, answer);
            }
        }
        filled = fill(kickoff, &answers)?;
        open = filled.missing(&recipe.task.requires, detected);
    }
    Ok((filled, answers, open))
}

/// The questions under the ids that answers to the kickoff as written have.
fn unanswered(
    kickoff: &Kickoff,
    recipe: &Recipe,
    detected: bool,
    answers: &BTreeMap<String, String>,
) -> Vec<Question> {
    kickoff
        .missing(&recipe.task.requires, detected)
        .into_iter()
        .filter(|question| !answers.contains_key(&question.id))
        .collect()
}

fn can_ask() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

fn ask(question: &Question) -> Result<Option<String>, CommandError> {
    render::err(&format!("{}\n> ", question.text));
    let _ = std::io::stderr().flush();
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| CommandError::failure("the answer cannot be read").caused_by(&error))?;
    Ok(Some(line.trim().to_owned()).filter(|answer| !answer.is_empty()))
}

/// An override that names neither a node nor a role of the recipe would do nothing in silence.
fn check_overrides(request: &RunRequest) -> Result<(), CommandError> {
    for name in request.lane_overrides.keys() {
        let known =
            request.recipe.nodes.iter().any(|node| {
                node.kind.uses_lane() && (node.id.as_str() == name || node.role() == name)
            });
        if !known {
            let mut names: Vec<&str> = request
                .recipe
                .nodes
                .iter()
                .filter(|node| node.kind.uses_lane())
                .flat_map(|node| [node.id.as_str(), node.role()])
                .collect();
            names.sort_unstable();
            names.dedup();
            return Err(CommandError::usage(format!(
                "--lane names `{name}`, which is no node or role of the recipe"
            ))
            .hint(format!("known: {}", names.join(", "))));
        }
    }
    Ok(())
}

fn plan_error(error: &PlanError) -> CommandError {
    let error = CommandError::usage("the run has no plan").caused_by(error);
    error.hint("lanes stand in config/providers.yaml of the home or of <repo>/.mini-ork; `mini-ork help lanes`")
}

/// Stands for the run that a plan is made for before there is one.
fn placeholder() -> Result<RunId, CommandError> {
    RunId::parse("none").map_err(|error| CommandError::failure(error.to_string()))
}

/// The lines of an error that lists several mistakes.
pub(crate) fn lines(error: &dyn std::error::Error) -> Vec<String> {
    with_sources(error).lines().map(ToOwned::to_owned).collect()
}
