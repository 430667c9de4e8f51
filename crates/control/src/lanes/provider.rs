use std::collections::BTreeMap;
use std::path::Path;

use mini_ork_node::gateway::BaseUrl;
use mini_ork_node::model::Api;
use mini_ork_node::secret::SecretName;

use super::model::{Agent, Driver, Inject, Lane, LaneLimits, ModelAgent};
use crate::variables::variables;
use crate::yaml::{Map, Value};

const ANTHROPIC: &str = "https://api.anthropic.com";
const OPENAI: &str = "https://api.openai.com/v1";
/// The token of a subscription, which only the vendor's own program may use.
const SUBSCRIPTION: &str = "CLAUDE_CODE_OAUTH_TOKEN";
const LONGEST_MODEL: usize = 128;
const DEFAULT_TURNS: u32 = 60;
const DEFAULT_CALLS: u32 = 200;

/// Reads one entry of `providers.yaml`; `base` is what its paths are relative to.
pub(super) fn provider(name: &str, base: &Path, value: &Value<'_>) -> Option<Lane> {
    let map = value.map()?;
    let kind = map.required("kind")?.choice(&KINDS, &REFUSED)?;
    let agent = match kind {
        Kind::Executable => executable(&map, base, value),
        Kind::Scripted => {
            let file = map.required("file").and_then(|value| value.filled_string());
            file.map(|file| Agent::Scripted {
                file: base.join(file),
            })
        }
        Kind::Model(kind) => model(&map, kind).map(Agent::Model),
    };
    let reserved = agent.as_ref().map(Agent::variables).unwrap_or_default();
    let extra_env = map
        .optional("extra_env")
        .map(|value| extra_env(&value, &reserved))
        .unwrap_or_default();
    map.finish();
    Some(Lane {
        name: name.to_owned(),
        agent: agent?,
        extra_env,
    })
}

#[derive(Clone, Copy)]
enum Kind {
    Executable,
    Scripted,
    Model(ModelKind),
}

/// What a kind of model lane fixes.
#[derive(Clone, Copy)]
struct ModelKind {
    driver: Driver,
    /// The form that is used when the entry does not choose one.
    api: Api,
    /// The forms that an entry may choose, by the word for each.
    apis: &'static [(&'static str, Api)],
    /// Whether the kind speaks of a vendor that has to be named.
    needs_base_url: bool,
}

const CLAUDE_CODE: ModelKind = ModelKind {
    driver: Driver::ClaudeCode,
    api: Api::AnthropicMessages,
    apis: &[("messages", Api::AnthropicMessages)],
    needs_base_url: false,
};
const CODEX: ModelKind = ModelKind {
    driver: Driver::Codex,
    api: Api::OpenaiResponses,
    apis: &[("responses", Api::OpenaiResponses)],
    needs_base_url: false,
};
const OPENCODE: ModelKind = ModelKind {
    driver: Driver::Opencode,
    api: Api::OpenaiChat,
    apis: &[
        ("chat", Api::OpenaiChat),
        ("responses", Api::OpenaiResponses),
        ("messages", Api::AnthropicMessages),
    ],
    needs_base_url: false,
};
const OPENAI_BUILT_IN: ModelKind = ModelKind {
    driver: Driver::BuiltIn,
    api: Api::OpenaiChat,
    apis: &[
        ("chat", Api::OpenaiChat),
        ("responses", Api::OpenaiResponses),
    ],
    needs_base_url: false,
};

/// The second name of a kind is the one that older files use.
const KINDS: [(&str, Kind); 13] = [
    ("claude-code", Kind::Model(CLAUDE_CODE)),
    ("anthropic-native", Kind::Model(CLAUDE_CODE)),
    (
        "anthropic-compat",
        Kind::Model(ModelKind {
            needs_base_url: true,
            ..CLAUDE_CODE
        }),
    ),
    ("codex", Kind::Model(CODEX)),
    ("codex-native", Kind::Model(CODEX)),
    ("opencode", Kind::Model(OPENCODE)),
    ("opencode-native", Kind::Model(OPENCODE)),
    (
        "anthropic",
        Kind::Model(ModelKind {
            driver: Driver::BuiltIn,
            ..CLAUDE_CODE
        }),
    ),
    ("openai", Kind::Model(OPENAI_BUILT_IN)),
    ("openai-compat", Kind::Model(OPENAI_BUILT_IN)),
    ("openai-chat", Kind::Model(OPENAI_BUILT_IN)),
    ("executable", Kind::Executable),
    ("scripted", Kind::Scripted),
];
const REFUSED: [(&str, &str); 1] = [(
    "uhp",
    "use a lane of kind `executable` that starts the agent, or remove the lane",
)];

fn model(map: &Map<'_>, kind: ModelKind) -> Option<ModelAgent> {
    map.not_carried_out("script", "use a lane of kind `executable` for a script");
    // A word for people, from older files.
    if let Some(family) = map.optional("family") {
        family.filled_string();
    }
    let model = map.required("model").and_then(|value| model_name(&value));
    let api = match map.optional("api") {
        Some(value) => value.choice(kind.apis, &[]),
        None => Some(kind.api),
    };
    let address = match map.optional("base_url") {
        Some(value) => api.and_then(|api| base_url(&value, api)),
        None if kind.needs_base_url => {
            map.required("base_url");
            None
        }
        None => api.map(|api| vendor(api).0.to_owned()),
    };
    let key = match map.optional("api_key_env") {
        Some(value) => key(&value),
        None => default_key(map, api, address.as_deref()),
    };
    let inject = inject(map, kind.driver, key.as_ref());
    let limits = limits(map, kind.driver);
    Some(ModelAgent {
        driver: kind.driver,
        api: api?,
        model: model?,
        base_url: address?,
        key: key?,
        inject: inject?,
        limits: limits?,
    })
}

/// Address and secret of the vendor who made the form.
fn vendor(api: Api) -> (&'static str, &'static str) {
    match api {
        Api::AnthropicMessages => (ANTHROPIC, "ANTHROPIC_API_KEY"),
        Api::OpenaiChat | Api::OpenaiResponses => (OPENAI, "OPENAI_API_KEY"),
    }
}

/// The name goes into arguments and configuration of programs that give some characters a meaning.
fn model_name(value: &Value<'_>) -> Option<String> {
    let name = value.filled_string()?;
    let is_plain = name.len() <= LONGEST_MODEL
        && !name.starts_with('-')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\"'`\\{}".contains(&byte));
    if !is_plain {
        value.mistake(
            "is not the name of a model",
            "write it as the vendor does: printable, without quotes, braces or blanks",
        );
        return None;
    }
    Some(name)
}

fn base_url(value: &Value<'_>, api: Api) -> Option<String> {
    match BaseUrl::parse(&value.filled_string()?, api) {
        Ok(url) => Some(url.to_string()),
        Err(error) => {
            value.mistake("cannot be used", &error.to_string());
            None
        }
    }
}

fn key(value: &Value<'_>) -> Option<SecretName> {
    let key = SecretName::parse(&value.filled_string()?);
    if let Err(error) = &key {
        value.mistake(
            "is not the name of a secret",
            &format!("{error}; the value belongs into `mini-ork vault set NAME`"),
        );
    }
    key.ok()
}

/// The key of the vendor who made the form, for this vendor only.
fn default_key(map: &Map<'_>, api: Option<Api>, address: Option<&str>) -> Option<SecretName> {
    let (of_vendor, name) = vendor(api?);
    if address? != of_vendor {
        // Nobody's key is sent to somebody else because a line was left out.
        map.required("api_key_env");
        return None;
    }
    SecretName::parse(name).ok()
}

fn inject(map: &Map<'_>, driver: Driver, key: Option<&SecretName>) -> Option<Inject> {
    let inject = map.optional("inject");
    let words = [("gateway", Inject::Gateway), ("env", Inject::Env)];
    let chosen = match &inject {
        Some(value) => Some(value.choice(&words, &[])?),
        None => None,
    };
    // Of older files.
    let gateway = map.optional("gateway");
    let by_gateway = match &gateway {
        Some(value) if value.boolean()? => Some(Inject::Gateway),
        Some(_) => Some(Inject::Env),
        None => None,
    };
    if let (Some(value), Some(chosen), Some(other)) = (&gateway, chosen, by_gateway)
        && chosen != other
    {
        value.mistake("contradicts `inject`", "remove it");
        return None;
    }
    let chosen = chosen.or(by_gateway).unwrap_or(Inject::Gateway);
    if chosen == Inject::Env && driver == Driver::BuiltIn {
        if let Some(value) = inject.or(gateway) {
            value.mistake(
                "does not go with the built-in agent, which reaches its model through the gateway",
                "remove it",
            );
        }
        return None;
    }
    if chosen == Inject::Gateway && key.is_some_and(|key| key.as_str() == SUBSCRIPTION) {
        let problem =
            format!("does not go with `{SUBSCRIPTION}`, which only the program itself may use");
        match inject.or(gateway) {
            Some(value) => value.mistake(&problem, "write `inject: env`"),
            None => {
                map.required("inject");
            }
        }
        return None;
    }
    Some(chosen)
}

fn limits(map: &Map<'_>, driver: Driver) -> Option<LaneLimits> {
    let counts_turns = matches!(driver, Driver::ClaudeCode | Driver::BuiltIn);
    let mut limits = LaneLimits {
        max_turns: counts_turns.then_some(DEFAULT_TURNS),
        max_calls: DEFAULT_CALLS,
        max_output_tokens: None,
        context_tokens: None,
    };
    let Some(value) = map.optional("limits") else {
        return Some(limits);
    };
    let map = value.map()?;
    let number = |key, most| {
        let value = map.optional(key)?;
        let number = value.integer(1, most)?;
        u32::try_from(number).ok()
    };
    if counts_turns {
        limits.max_turns = number("max_turns", 10_000).or(limits.max_turns);
    } else {
        map.not_carried_out(
            "max_turns",
            "use `max_calls`: this agent makes one call in a turn",
        );
    }
    limits.max_calls = number("max_calls", 100_000).unwrap_or(limits.max_calls);
    if driver == Driver::Codex {
        map.not_carried_out("max_output_tokens", "remove it: codex has no such limit");
    } else {
        limits.max_output_tokens = number("max_output_tokens", 10_000_000);
    }
    limits.context_tokens = number("context_tokens", 100_000_000);
    map.finish();
    Some(limits)
}

fn executable(map: &Map<'_>, base: &Path, place: &Value<'_>) -> Option<Agent> {
    let (command, script) = (map.optional("command"), map.optional("script"));
    match (command, script) {
        (Some(command), None) => {
            let items = command.list();
            let argv: Vec<String> = items.iter().filter_map(Value::text).collect();
            let Some(program) = argv.first() else {
                command.mistake("names no program", "write `[program, argument, …]`");
                return None;
            };
            if program.is_empty() || (program.contains('/') && !program.starts_with('/')) {
                // It would be looked up in the workspace, whose files an agent writes.
                command.mistake(
                    &format!("begins with the relative path `{program}`"),
                    "write an absolute path or a name on `PATH`, or use `script`",
                );
                return None;
            }
            (argv.len() == items.len()).then_some(Agent::Executable { argv })
        }
        (None, Some(script)) => {
            let program = base.join(script.filled_string()?).display().to_string();
            let arguments = ["--print", "--output-format", "text"].map(str::to_owned);
            Some(Agent::Executable {
                argv: [program].into_iter().chain(arguments).collect(),
            })
        }
        (Some(_), Some(script)) => {
            script.mistake("stands beside `command`", "keep one of them");
            None
        }
        (None, None) => {
            place.mistake(
                "has neither `command` nor `script`",
                "write `command: [program, …]`",
            );
            None
        }
    }
}

fn extra_env(value: &Value<'_>, reserved: &[String]) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    variables(
        value,
        |name| {
            reserved.iter().any(|variable| variable == name).then_some((
                "is a variable that mini-ork sets for this kind of lane",
                "remove it; `model`, `base_url`, `api_key_env` and `limits` say the same",
            ))
        },
        "remove it; `api_key_env` names the key of a model, and other agents read theirs from their own configuration",
        |name, text, _| {
            env.insert(name.to_owned(), text);
        },
    );
    env
}
