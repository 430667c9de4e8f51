use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::request::ModelRequest;
use super::trouble::Trouble;
use super::turn::Turn;

/// What a server answers: a function of the request.
pub struct Script(Box<dyn Fn(&ModelRequest) -> Turn + Send + Sync>);

impl Script {
    /// The first request gets the first turn, and so on; also a request that is tried again gets
    /// the next one. A request after the last turn is refused.
    pub fn turns(turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns: Vec<Turn> = turns.into_iter().collect();
        let next = AtomicUsize::new(0);
        Self::each(move |_| turn_at(&turns, next.fetch_add(1, Ordering::SeqCst)))
    }

    /// A request gets the turn after as many as its conversation has answers already. So any number
    /// of clients can have this conversation side by side, and a request that is tried again gets
    /// the same turn.
    pub fn conversation(turns: impl IntoIterator<Item = Turn>) -> Self {
        let turns: Vec<Turn> = turns.into_iter().collect();
        Self::each(move |request| turn_at(&turns, request.answers()))
    }

    /// Each request gets what `answer` says.
    pub fn each(answer: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Self {
        Self(Box::new(answer))
    }

    /// A request gets the script of the model that it names; one for another model is refused.
    pub fn by_model(scripts: impl IntoIterator<Item = (&'static str, Self)>) -> Self {
        let scripts: Vec<(&str, Self)> = scripts.into_iter().collect();
        Self::each(move |request| {
            scripts
                .iter()
                .find(|(model, _)| *model == request.model())
                .map_or_else(
                    || Turn::trouble(Trouble::NotFound),
                    |(_, script)| script.turn(request),
                )
        })
    }

    /// What it says to `request`, for scripts that are made of others.
    pub fn turn(&self, request: &ModelRequest) -> Turn {
        (self.0)(request)
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Script")
    }
}

fn turn_at(turns: &[Turn], index: usize) -> Turn {
    turns.get(index).cloned().unwrap_or_else(|| {
        Turn::trouble(Trouble::Request(format!(
            "the script of this test has {} turns and no turn {}",
            turns.len(),
            index + 1
        )))
    })
}
