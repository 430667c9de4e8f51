use super::api::{self, Habits, Request};
use super::client::{CallError, Client};
use super::conversation::Turn;
use super::spec::gateway_at;
use crate::model::Api;
use crate::secret::Secret;

const SYSTEM: &str = "You answer with one word.";
const QUESTION: &str = "Is anybody there? Answer with the word yes.";
/// A model that thinks before it speaks needs more than the one word.
const MOST_TOKENS: u64 = 256;

/// Asks `model` for one word through the lane gateway at `base_url`, as in
/// [`AgentSpec::base_url`](super::AgentSpec::base_url): the smallest call that shows whether key,
/// model and API are right.
///
/// Any whole answer is as good as another. The error is a sentence, which may quote the vendor; the
/// gateway's own report says what kind of failure it was.
pub async fn try_model(api: Api, base_url: &str, model: &str, token: Secret) -> Result<(), String> {
    let gateway = gateway_at(base_url).ok_or("the address is not that of a lane gateway")?;
    let client = Client::new(api, gateway, token);
    let turns = [Turn::User(QUESTION.to_owned())];
    let mut habits = Habits::DEFAULT;
    loop {
        let request = Request {
            model,
            system: SYSTEM,
            tools: &[],
            turns: &turns,
            max_output_tokens: MOST_TOKENS,
            habits,
        };
        let error = match client
            .call(api::body(api, &request).to_string().into())
            .await
        {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        let adapted = match &error {
            CallError::Refused { status, message } if status.as_u16() == 400 => {
                habits.after_refusal(api, message)
            }
            _ => None,
        };
        match adapted {
            Some(adapted) => habits = adapted,
            None => return Err(error.to_string()),
        }
    }
}
