use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use mini_ork_control::run::{Limits, Scope, SettingRecord};
use mini_ork_node::egress::NetworkPolicy;
use mini_ork_node::workspace::{LOCAL, backend_names};

use super::limits::parse_count;
use super::profile::{Profile, Surroundings};
use super::{GlobalSettings, Setting, Source, assignment, parse_duration, parse_money};
use crate::cli::RunArgs;
use crate::env_vars;
use crate::error::CommandError;

const DEFAULT_PARALLEL: u64 = 4;
const MOST_PARALLEL: u64 = 256;
const DEFAULT_NODE_TIMEOUT_S: u64 = 1500;
const DEFAULT_DAILY_BUDGET_USD: f64 = 50.0;

/// What `mini-ork run` is to do.
#[derive(Debug)]
pub(crate) struct RunSettings {
    pub(crate) first: Option<String>,
    pub(crate) second: Option<PathBuf>,
    pub(crate) repository: Option<Setting<PathBuf>>,
    pub(crate) lane_overrides: BTreeMap<String, String>,
    pub(crate) answers: BTreeMap<String, String>,
    pub(crate) max_parallel: Setting<usize>,
    pub(crate) node_timeout: Setting<Duration>,
    pub(crate) deadline: Option<Setting<Duration>>,
    pub(crate) budget_usd: Option<Setting<f64>>,
    pub(crate) daily_budget_usd: Setting<f64>,
    pub(crate) backend: Setting<String>,
    pub(crate) placement: Setting<String>,
    pub(crate) scope: Setting<Scope>,
    pub(crate) host_agent: Setting<bool>,
    pub(crate) surroundings: Surroundings,
    pub(crate) apply: bool,
    pub(crate) dry_run: bool,
    pub(crate) may_ask: bool,
    pub(crate) json: bool,
}

impl RunSettings {
    /// Resolves the arguments of `mini-ork run`; every mistake is found before anything is made.
    pub(crate) fn resolve(
        args: RunArgs,
        global: &GlobalSettings,
        profile: &Profile,
    ) -> Result<Self, CommandError> {
        let environment = &global.environment;
        let (backend, placement) = boundaries(global, args.backend, args.placement)?;
        let scope = sandbox_scope(global)?;
        let host_agent = host_agent(global)?;
        let surroundings = Surroundings::resolve(global, &backend.value, profile)?;
        let deadline = args
            .deadline
            .map(|text| {
                let deadline = parse_duration("--deadline", &text)?;
                if deadline.is_zero() {
                    return Err(CommandError::usage("--deadline is zero")
                        .hint("leave it out for a run without a deadline"));
                }
                Ok(Setting::new(
                    "deadline",
                    deadline,
                    Source::Flag("--deadline"),
                ))
            })
            .transpose()?;
        let budget_usd = args
            .budget
            .map(|text| {
                let budget = parse_money("--budget", &text)?;
                Ok(Setting::new("budget_usd", budget, Source::Flag("--budget")))
            })
            .transpose()?;
        Ok(Self {
            repository: global.repository_choice(args.repo.as_deref()),
            lane_overrides: assignments("--lane", &args.lanes)?,
            answers: assignments("--answer", &args.answers)?,
            max_parallel: max_parallel(global, args.max_parallel)?,
            node_timeout: node_timeout(global)?,
            deadline,
            budget_usd,
            daily_budget_usd: daily_budget(global)?,
            backend,
            placement,
            scope,
            host_agent,
            surroundings,
            apply: args.apply,
            dry_run: args.dry_run || environment.switch(env_vars::MINI_ORK_DRY_RUN)?,
            may_ask: !args.no_input && !environment.switch(env_vars::MINI_ORK_NONINTERACTIVE)?,
            json: args.json,
            first: args.first,
            second: args.second,
        })
    }

    /// How much of an agent is in the workspace. Where there is no boundary, all of it is.
    pub(crate) fn effective_scope(&self) -> Scope {
        if self.has_boundary() {
            self.scope.value
        } else {
            Scope::Agent
        }
    }

    /// Whether a sandbox is made for the run.
    pub(crate) fn has_boundary(&self) -> bool {
        self.backend.value != LOCAL || self.surroundings.network.policy.value != NetworkPolicy::Full
    }

    /// The bounds of the run; `recipe_budget` holds when the user gave none.
    pub(crate) fn limits(&self, recipe_budget: Option<f64>) -> Limits {
        Limits {
            max_parallel: self.max_parallel.value,
            deadline_ms: self
                .deadline
                .as_ref()
                .map(|deadline| milliseconds(deadline.value)),
            node_timeout_ms: milliseconds(self.node_timeout.value),
            budget_usd: self
                .budget_usd
                .as_ref()
                .map(|budget| budget.value)
                .or(recipe_budget),
        }
    }

    /// The settings for the run's record.
    pub(crate) fn records(&self, global: &GlobalSettings) -> Vec<SettingRecord> {
        let mut records = vec![
            global.home.record(global.home.value.display().to_string()),
            self.max_parallel
                .record(self.max_parallel.value.to_string()),
            self.node_timeout
                .record(format!("{} s", self.node_timeout.value.as_secs())),
            self.daily_budget_usd
                .record(self.daily_budget_usd.value.to_string()),
            self.backend.record(self.backend.value.clone()),
            self.placement.record(self.placement.value.clone()),
            self.scope.record(self.scope.value.name()),
            self.host_agent.record(self.host_agent.value.to_string()),
        ];
        records.extend(self.surroundings.records(&self.backend.value));
        if let Some(deadline) = &self.deadline {
            records.push(deadline.record(format!("{} s", deadline.value.as_secs())));
        }
        if let Some(budget) = &self.budget_usd {
            records.push(budget.record(budget.value.to_string()));
        }
        for (role, lane) in &self.lane_overrides {
            records.push(SettingRecord {
                name: format!("lane.{role}"),
                value: lane.clone(),
                source: Source::Flag("--lane").to_string(),
            });
        }
        records
    }
}

/// The boundary that is asked for, on both axes. A boundary that this version cannot give is an
/// error, never an ordinary run: whoever asks for one relies on it.
pub(crate) fn boundaries(
    global: &GlobalSettings,
    backend: Option<String>,
    placement: Option<String>,
) -> Result<(Setting<String>, Setting<String>), CommandError> {
    let environment = &global.environment;
    let backend = choice(
        global,
        "backend",
        "--backend",
        backend,
        env_vars::MO_SANDBOX_BACKEND,
    )?;
    if !backend_names().contains(&backend.value.as_str()) {
        return Err(CommandError::usage(format!(
            "there is no workspace backend `{}` in this version ({})",
            backend.value, backend.source
        ))
        .hint(format!(
            "known: {}; nothing falls back to it unasked",
            backend_names().join(", ")
        )));
    }
    let placement = choice(
        global,
        "placement",
        "--placement",
        placement,
        env_vars::MO_PLACEMENT,
    )?;
    if placement.value != LOCAL {
        return Err(CommandError::usage(format!(
            "there is no placement `{}` in this version ({})",
            placement.value, placement.source
        ))
        .hint("known: local"));
    }
    if environment.switch(env_vars::MO_NODE_ISOLATION)? {
        return Err(CommandError::usage(
            "MO_NODE_ISOLATION=1 asks for a sandbox for each node, which this version does not make",
        )
        .hint("unset MO_NODE_ISOLATION; MO_SANDBOX_BACKEND=docker makes one for the run"));
    }
    Ok((backend, placement))
}

/// How much of an agent is inside of the boundary: all of it, or what its tools do.
fn sandbox_scope(global: &GlobalSettings) -> Result<Setting<Scope>, CommandError> {
    const NAME: &str = "sandbox_scope";
    const VARIABLE: &str = env_vars::MO_SANDBOX_SCOPE;
    const SCOPES: [Scope; 2] = [Scope::Agent, Scope::Tool];
    let Some(text) = global.environment.text(VARIABLE)? else {
        return Ok(Setting::new(NAME, Scope::Agent, Source::Default));
    };
    match SCOPES.into_iter().find(|scope| scope.name() == text) {
        Some(scope) => Ok(Setting::new(NAME, scope, Source::Variable(VARIABLE))),
        None => Err(
            CommandError::usage(format!("{VARIABLE} is `{text}`, which is no scope"))
                .hint(format!("known: {}", SCOPES.map(Scope::name).join(", "))),
        ),
    }
}

/// Whether an agent whose tools cannot be moved may run on this machine, where they were to be
/// moved behind a boundary.
fn host_agent(global: &GlobalSettings) -> Result<Setting<bool>, CommandError> {
    const NAME: &str = "sandbox_allow_host_agent";
    const VARIABLE: &str = env_vars::MO_SANDBOX_ALLOW_HOST_AGENT;
    let allowed = global.environment.switch(VARIABLE)?;
    let source = if allowed {
        Source::Variable(VARIABLE)
    } else {
        Source::Default
    };
    Ok(Setting::new(NAME, allowed, source))
}

/// The time limit of a node that sets none.
pub(crate) fn node_timeout(global: &GlobalSettings) -> Result<Setting<Duration>, CommandError> {
    const NAME: &str = "node_timeout";
    const MOST_SECONDS: u64 = 7 * 24 * 3600;
    match global.environment.text(env_vars::MO_NODE_TIMEOUT_S)? {
        None => {
            let default = Duration::from_secs(DEFAULT_NODE_TIMEOUT_S);
            Ok(Setting::new(NAME, default, Source::Default))
        }
        Some(text) => {
            let seconds = parse_count(env_vars::MO_NODE_TIMEOUT_S, &text, MOST_SECONDS)?;
            let source = Source::Variable(env_vars::MO_NODE_TIMEOUT_S);
            Ok(Setting::new(NAME, Duration::from_secs(seconds), source))
        }
    }
}

/// What all runs of the home together may spend in a day.
pub(crate) fn daily_budget(global: &GlobalSettings) -> Result<Setting<f64>, CommandError> {
    const NAME: &str = "daily_budget_usd";
    const VARIABLE: &str = env_vars::MO_DAILY_BUDGET_USD;
    Ok(match global.environment.text(VARIABLE)? {
        None => Setting::new(NAME, DEFAULT_DAILY_BUDGET_USD, Source::Default),
        Some(text) => {
            let budget = parse_money(VARIABLE, &text)?;
            Setting::new(NAME, budget, Source::Variable(VARIABLE))
        }
    })
}

/// How many nodes run at once.
pub(crate) fn max_parallel(
    global: &GlobalSettings,
    flag: Option<String>,
) -> Result<Setting<usize>, CommandError> {
    const NAME: &str = "max_parallel";
    let variable = global.environment.text(env_vars::MINI_ORK_MAX_PARALLEL)?;
    let (label, text, source) = match (flag, variable) {
        (Some(text), _) => ("--max-parallel", text, Source::Flag("--max-parallel")),
        (None, Some(text)) => (
            env_vars::MINI_ORK_MAX_PARALLEL,
            text,
            Source::Variable(env_vars::MINI_ORK_MAX_PARALLEL),
        ),
        (None, None) => {
            return Ok(Setting::new(
                NAME,
                DEFAULT_PARALLEL as usize,
                Source::Default,
            ));
        }
    };
    let count = parse_count(label, &text, MOST_PARALLEL)?;
    Ok(Setting::new(
        NAME,
        usize::try_from(count).unwrap_or(usize::MAX),
        source,
    ))
}

fn choice(
    global: &GlobalSettings,
    name: &'static str,
    flag_name: &'static str,
    flag: Option<String>,
    variable: &'static str,
) -> Result<Setting<String>, CommandError> {
    if let Some(value) = flag {
        return Ok(Setting::new(name, value, Source::Flag(flag_name)));
    }
    Ok(match global.environment.text(variable)? {
        Some(value) => Setting::new(name, value, Source::Variable(variable)),
        None => Setting::new(name, LOCAL.to_owned(), Source::Default),
    })
}

fn assignments(flag: &str, texts: &[String]) -> Result<BTreeMap<String, String>, CommandError> {
    let mut all = BTreeMap::new();
    for text in texts {
        let (name, value) = assignment(flag, text)?;
        if all.insert(name.clone(), value).is_some() {
            return Err(CommandError::usage(format!("{flag} names `{name}` twice"))
                .hint("leave one of them out"));
        }
    }
    Ok(all)
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
