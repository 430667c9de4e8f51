//! `mini-ork doctor --lane`: whether one lane works, down to an answer of its model.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mini_ork_control::lanes::{Driver, Inject, Lane, LaunchContext, ModelAgent};
use mini_ork_control::trial::{Trial, TrialFailure, try_lane};
use mini_ork_node::model::FailureClass;
use mini_ork_node::redact::Redactor;
use mini_ork_node::secret::Secret;
use mini_ork_node::text::with_sources;
use mini_ork_protocol::ExitOutcome;

use super::super::lanes::{find, lane_check, load};
use super::super::place::checkout;
use super::super::preflight::mistake;
use super::{Check, find_program, missing, note, ok, run_program, runtime, trial_directory};
use crate::error::CommandError;
use crate::settings::{GlobalSettings, daily_budget};

/// How long the model may take to answer one word.
const LIMIT: Duration = Duration::from_secs(30);
const CALL: &str = "call";

/// Checks the lane called `name` and asks its model for one word. A lane that there is not is an
/// error.
pub(super) fn checks(name: &str, global: &GlobalSettings) -> Result<Vec<Check>, CommandError> {
    let config = load(None, global)?;
    let lane = find(&config, name)?;
    let file = config.lane_file(name).unwrap_or_default();
    let Some(agent) = lane.model() else {
        let nothing = "the lane asks no model through mini-ork, so no call was made";
        let call = note(CALL, nothing.to_owned(), None);
        return Ok(vec![lane_check(global, lane, file), call]);
    };
    let redactor = Redactor::new();
    let checkout = checkout(global, None)?;
    let mut checks = vec![described(lane, agent, file)];
    checks.extend(program(lane, agent, file, global));
    checks.extend(key_and_call(
        lane,
        agent,
        file,
        checkout.as_deref(),
        &redactor,
        global,
    )?);
    for check in &mut checks {
        check.text = redactor.redact_text(&check.text);
    }
    Ok(checks)
}

fn described(lane: &Lane, agent: &ModelAgent, file: &str) -> Check {
    let text = format!(
        "{} · {} · {} by {} at {} · {file}",
        lane.name,
        lane.agent.kind(),
        agent.model,
        agent.api,
        agent.base_url
    );
    ok("lane", text)
}

/// The program of the lane and its version; nothing for the agent that is part of mini-ork.
fn program(lane: &Lane, agent: &ModelAgent, file: &str, global: &GlobalSettings) -> Vec<Check> {
    const NAME: &str = "program";
    let Some(program) = agent.driver.program() else {
        return Vec::new();
    };
    if let Some(problem) = mistake(lane, global) {
        let remedy = format!("install it, or put it on PATH; the lane is in {file}");
        return vec![missing(NAME, problem, &remedy)];
    }
    let path = find_program(global, program.as_ref()).unwrap_or_else(|| PathBuf::from(program));
    vec![
        ok(NAME, path.display().to_string()),
        version(agent, program, global),
    ]
}

fn version(agent: &ModelAgent, program: &str, global: &GlobalSettings) -> Check {
    const NAME: &str = "version";
    // As for a node: what it writes about itself does not go to the user's own settings of it.
    let home = trial_directory(global).join("home");
    let launch = agent.launch(
        &LaunchContext {
            program: &global.program,
            base_url: &agent.base_url,
            home: &home,
            resume: None,
            writes: false,
            tools: None,
        },
        "",
    );
    let argv = vec![program.into(), "--version".into()];
    let ran = run_program(global, argv, launch.environment);
    let tried = agent.driver.tried_version().unwrap_or_default();
    let broken = |what: String| {
        missing(
            NAME,
            format!("`{program} --version` {what}"),
            &format!("see that `{program}` runs at all; {tried} is the version that was tried"),
        )
    };
    let said = match ran {
        Ok(ran) => match ran.outcome {
            ExitOutcome::Exited { code: 0 } => ran.said.unwrap_or_default(),
            ExitOutcome::Exited { code } => return broken(format!("ended with {code}")),
            outcome => return broken(format!("did not end well: {outcome:?}")),
        },
        Err(problem) => return broken(format!("could not be run: {problem}")),
    };
    match version_in(&said) {
        Some(found) if found == tried => ok(NAME, format!("{found}, which was tried")),
        found => note(
            NAME,
            match found {
                Some(found) => format!("{found}; the version that was tried is {tried}"),
                None => format!("not known; the version that was tried is {tried}"),
            },
            Some(&format!("if it does not work, install {program} {tried}")),
        ),
    }
}

/// The first thing in `text` that looks like a version.
fn version_in(text: &str) -> Option<&str> {
    text.split(|character: char| !(character.is_ascii_digit() || character == '.'))
        .find(|word| {
            let mut numbers = word.split('.');
            numbers.clone().count() == 3 && numbers.all(|number| !number.is_empty())
        })
}

fn key_and_call(
    lane: &Lane,
    agent: &ModelAgent,
    file: &str,
    checkout: Option<&Path>,
    redactor: &Redactor,
    global: &GlobalSettings,
) -> Result<Vec<Check>, CommandError> {
    const NAME: &str = "key";
    let sources = global.model_sources(checkout, redactor)?;
    let key = match sources.vault.resolve(&agent.key, &*sources.exported) {
        Ok(key) => key,
        Err(error) => {
            let why = "no call was made, since there is no key".to_owned();
            let key = missing(NAME, with_sources(&error), &error.remedy());
            return Ok(vec![key, note(CALL, why, None)]);
        }
    };
    let exported = is_exported(agent, &key, global);
    let place = if exported { "exported" } else { "in the vault" };
    let holder = match agent.inject {
        Inject::Gateway => "held by the gateway",
        Inject::Env => "inside of the agent (inject: env)",
    };
    let found = ok(NAME, format!("{} is {place}, {holder}", agent.key));
    if logs_in_by_itself(agent) {
        let why = format!(
            "no call was made: with {} only `claude` itself can log in",
            agent.key
        );
        let remedy = "try it with `claude --print hi`, or with a run";
        return Ok(vec![found, note(CALL, why, Some(remedy))]);
    }
    let daily_usd = daily_budget(global)?.value;
    let home = &global.home.value;
    let trial = runtime()
        .map_err(CommandError::failure)?
        .block_on(try_lane(agent, key, sources, home, daily_usd, LIMIT));
    let call = match &trial.outcome {
        Ok(()) => ok(CALL, answered(agent, &trial)),
        Err(failure) => missing(
            CALL,
            format!("{}{}", with_sources(failure), price(&trial)),
            &remedy(failure, lane, agent, file, exported),
        ),
    };
    Ok(vec![found, call])
}

/// Whether the value of the key is that of a variable, which wins over the vault.
fn is_exported(agent: &ModelAgent, key: &Secret, global: &GlobalSettings) -> bool {
    let variable = global.environment.raw(agent.key.as_str());
    variable
        .and_then(|value| value.to_str())
        .is_some_and(|value| value.trim_end_matches(['\r', '\n']) == key.expose())
}

/// Whether the program shows the key in a way of its own. The Messages API itself takes no token of
/// a subscription.
fn logs_in_by_itself(agent: &ModelAgent) -> bool {
    agent.driver == Driver::ClaudeCode
        && agent.inject == Inject::Env
        && agent.key.as_str() != "ANTHROPIC_API_KEY"
}

fn answered(agent: &ModelAgent, trial: &Trial) -> String {
    let by = match agent.driver.program() {
        Some(program) => format!("mini-ork itself, without `{program}`"),
        None => "mini-ork itself".to_owned(),
    };
    format!(
        "{} answered {by} after {:.1} s{}",
        agent.model,
        trial.duration.as_secs_f64(),
        price(trial)
    )
}

/// What the call took; nothing for one that cost nothing.
fn price(trial: &Trial) -> String {
    let usage = trial.usage;
    let input = usage
        .input
        .saturating_add(usage.cache_read)
        .saturating_add(usage.cache_write);
    if trial.cost_usd == Some(0.0) && input == 0 && usage.output == 0 {
        return String::new();
    }
    let cost = match trial.cost_usd {
        Some(cost) => format!("${cost:.4}"),
        None => "a price that is not known".to_owned(),
    };
    format!(" · {input} tokens in, {} out, {cost}", usage.output)
}

/// What the user can do about a lane that does not work.
fn remedy(
    failure: &TrialFailure,
    lane: &Lane,
    agent: &ModelAgent,
    file: &str,
    exported: bool,
) -> String {
    let key = &agent.key;
    let lane = &lane.name;
    let call = match failure {
        TrialFailure::Call(call) => call,
        TrialFailure::Time(_) => {
            return "try again later; if it stays so, check `base_url` and the network".to_owned();
        }
        TrialFailure::Gateway(_) => {
            return format!(
                "check SSL_CERT_FILE, a PEM file of certificates, and that {key} is one line of \
                 plain characters"
            );
        }
        TrialFailure::State(_) => return "`mini-ork doctor` checks the state".to_owned(),
        TrialFailure::BaseUrl(_) | TrialFailure::Answer(_) => {
            return format!("check `base_url` and `api` of the lane in {file}");
        }
        TrialFailure::Here(_) | TrialFailure::Token(_) => {
            return "see that this machine has a loopback interface and free ports".to_owned();
        }
    };
    match call.class {
        FailureClass::Auth if exported => format!(
            "the exported {key} was refused: export a valid one, or unset it and use \
             `mini-ork vault set {key}`"
        ),
        FailureClass::Auth => {
            format!("the key was refused: store a valid one with `mini-ork vault set {key}`")
        }
        FailureClass::Quota => {
            "add money or allowance to the account at the vendor, or use another \
                                lane"
                .to_owned()
        }
        FailureClass::Capacity => format!(
            "the vendor is busy: try again later, or let another lane step in with \
             `default: [{lane}, OTHER]` in config/agents.yaml"
        ),
        // The gateway's sentence ends with that of the TLS library.
        FailureClass::Network if call.message.contains("certificate") => "name the certificate of \
             the authority that vouches for the vendor in SSL_CERT_FILE (PEM), or correct the host \
             in `base_url`"
            .to_owned(),
        FailureClass::Network => {
            format!("check the network and `base_url` of the lane in {file}; proxies are not used")
        }
        FailureClass::Server => "the vendor has trouble: try again later".to_owned(),
        FailureClass::Stream => format!(
            "what answers is not the API {}: check `base_url` and `api` of the lane in {file}; if \
             they are right, try again later",
            agent.api
        ),
        FailureClass::Request => format!(
            "check `model` ({}), `api` and `base_url` of the lane in {file}",
            agent.model
        ),
        FailureClass::Safety => "ask the vendor why it refuses one harmless word".to_owned(),
        FailureClass::Budget => {
            "raise MO_DAILY_BUDGET_USD, or wait; `mini-ork costs` shows what was spent".to_owned()
        }
        FailureClass::Calls => "try again".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_found_in_what_programs_print() {
        for (text, version) in [
            ("2.1.197 (Claude Code)", Some("2.1.197")),
            ("codex-cli 0.171.0", Some("0.171.0")),
            ("1.18.33", Some("1.18.33")),
            ("v1.2.3-beta.4", Some("1.2.3")),
            ("version 12", None),
            ("1..2 ...", None),
            ("", None),
        ] {
            assert_eq!(version_in(text), version, "{text}");
        }
    }
}
