use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::error::{KickoffError, KickoffProblem};
use super::items::items;
use super::markdown::{Kind, scan};
use super::parse::commands;
use super::{Kickoff, Scope};

/// The file name that errors about answers carry.
const ANSWERS: &str = "answers";

/// What a recipe wants a kickoff to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Requirement {
    /// What is wrong or wanted.
    Problem,
    /// When it is done.
    DefinitionOfDone,
    /// Which paths may be changed.
    Scope,
    /// Which command shows that it is done.
    Verification,
}

/// Something that has to be answered before a run can start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Names the question in answers; the same kickoff always gives the same ids.
    pub id: String,
    /// The question, one sentence or what the author wrote.
    pub text: String,
}

impl Requirement {
    const ALL: [Self; 4] = [
        Self::Problem,
        Self::DefinitionOfDone,
        Self::Scope,
        Self::Verification,
    ];

    fn id(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::DefinitionOfDone => "definition_of_done",
            Self::Scope => "scope",
            Self::Verification => "verification",
        }
    }

    fn question(self) -> &'static str {
        match self {
            Self::Problem => "What is the problem, or what is wanted?",
            Self::DefinitionOfDone => "When is the work done? One criterion for each line.",
            Self::Scope => "Which paths may be changed? One path or glob for each line.",
            Self::Verification => "Which commands show that the work is done? One for each line.",
        }
    }
}

impl Kickoff {
    /// What is still to be asked: the parts that `requires` names and the kickoff lacks, in a fixed
    /// order, and then its open questions as `question-1`, `question-2`….
    ///
    /// `detected_verification` says that the repository itself shows how it is tested.
    pub fn missing(&self, requires: &[Requirement], detected_verification: bool) -> Vec<Question> {
        let lacks = |requirement| match requirement {
            Requirement::Problem => self.problem.is_empty(),
            Requirement::DefinitionOfDone => self.definition_of_done.is_empty(),
            Requirement::Scope => !self.scope.is_limited(),
            Requirement::Verification => self.verification.is_empty() && !detected_verification,
        };
        let parts = Requirement::ALL
            .into_iter()
            .filter(|requirement| requires.contains(requirement) && lacks(*requirement))
            .map(|requirement| Question {
                id: requirement.id().to_owned(),
                text: requirement.question().to_owned(),
            });
        let written = self
            .open_questions
            .iter()
            .enumerate()
            .map(|(index, text)| Question {
                id: question_id(index),
                text: text.clone(),
            });
        parts.chain(written).collect()
    }

    /// The kickoff with `answers` (question id → text) filled in. A blank answer answers nothing.
    ///
    /// All ids are those of one call of [`Kickoff::missing`]; another id is an error. A part that
    /// the kickoff already has cannot be answered over.
    pub fn with_answers(
        mut self,
        answers: &BTreeMap<String, String>,
    ) -> Result<Self, KickoffError> {
        let open = self.missing(&Requirement::ALL, false);
        for id in answers.keys() {
            if !open.iter().any(|question| question.id == *id) {
                let ids: Vec<String> = open
                    .iter()
                    .map(|question| format!("`{}`", question.id))
                    .collect();
                let open = if ids.is_empty() {
                    "none".to_owned()
                } else {
                    ids.join(", ")
                };
                return Err(KickoffProblem::UnknownQuestion {
                    id: id.clone(),
                    open,
                }
                .of(ANSWERS));
            }
        }
        let mut unanswered = Vec::new();
        for question in open {
            let answer = answers.get(&question.id).map_or("", |answer| answer.trim());
            if answer.contains('\0') {
                return Err(KickoffProblem::NulByte.of(ANSWERS));
            }
            if answer.is_empty() {
                if question.id.starts_with("question-") {
                    unanswered.push(question.text);
                }
                continue;
            }
            self.fill(&question.id, answer)?;
            let separator = if self.answers.is_empty() { "" } else { "\n" };
            // Writing to a string cannot fail.
            let _ = write!(
                self.answers,
                "{separator}### {}\n\n{answer}\n",
                question.text
            );
        }
        self.open_questions = unanswered;
        Ok(self)
    }

    fn fill(&mut self, id: &str, answer: &str) -> Result<(), KickoffError> {
        let listed = as_list(answer)?;
        let lines = scan(&listed).map_err(|(line, problem)| problem.at(ANSWERS, line))?;
        let items = items(&lines);
        match id {
            "problem" => answer.clone_into(&mut self.problem),
            "definition_of_done" => {
                self.definition_of_done = items.into_iter().map(|item| item.text).collect();
            }
            "scope" => {
                let read = Scope::read(Some((1, id)), &items, None, &[])
                    .map_err(|(line, problem)| problem.at(ANSWERS, line))?;
                self.scope.limit_to(read);
            }
            "verification" => {
                self.verification = commands(&items);
                if self.verification.is_empty() {
                    return Err(KickoffProblem::NoCommand {
                        section: id.to_owned(),
                    }
                    .at(ANSWERS, 1));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn question_id(index: usize) -> String {
    format!("question-{}", index + 1)
}

/// Whoever answers a question does not write list marks, so every line becomes an item.
fn as_list(answer: &str) -> Result<String, KickoffError> {
    let lines = scan(answer).map_err(|(line, problem)| problem.at(ANSWERS, line))?;
    let marked: Vec<String> = lines
        .iter()
        .map(|line| {
            let item = line.text.trim();
            let is_marked = ["- ", "* ", "+ "].iter().any(|mark| item.starts_with(mark));
            if line.kind == Kind::Text && !item.is_empty() && !is_marked {
                format!("- {item}")
            } else {
                line.text.to_owned()
            }
        })
        .collect();
    Ok(marked.join("\n"))
}
