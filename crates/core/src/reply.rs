//! Replies and questions to answers, or to a refusal that tells the person what would fit.
//! [`Answers`] can only be built here, so an answer that was not offered cannot be written down.

use super::question::MAX_TEXT;
use super::{Kind, Outcome, Person, Question, Questions, Time, without_controls, wording};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Where a reply came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The widget of this route.
    Route(usize),
    /// The holder of the inbox token: the operator.
    Token,
}

/// What a person sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The whole form at once: what is not in it was left out.
    Whole(Vec<(usize, Given)>),
    /// One question's part of several, told in a message of a chat; the ask settles when every question has been dealt
    /// with. A message that was taken already changes nothing, whatever has been asked since.
    Told {
        /// Which question.
        index: usize,
        /// What for it.
        given: Given,
        /// The message that says it.
        heard: Heard,
    },
    /// [`Self::Dismiss`], said in a chat message.
    ToldDismiss(Heard),
    /// The person does not want to answer: ends the whole ask.
    Dismiss,
}

/// What decides which question a chat message can be about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The channel's id of it.
    pub message: String,
    /// When the platform received it; `None`: it does not say, so the message may be older than any question.
    pub at: Option<Time>,
    /// How it names its question.
    pub names: Names,
}

/// How a message names the question that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Names {
    /// It quotes the message of the question, or is a tap on it: that is proof.
    Message,
    /// By its code, which says which question is meant but not when the message was written.
    Code,
    /// Not at all.
    Nothing,
}

impl Reply {
    /// The chat message that it came in, if any.
    pub fn heard(&self) -> Option<&Heard> {
        match self {
            Self::Told { heard, .. } | Self::ToldDismiss(heard) => Some(heard),
            Self::Whole(_) | Self::Dismiss => None,
        }
    }
}

/// What a person gave for one question; neither picks nor text means that it was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Given {
    /// Indices of choices.
    pub picks: Vec<usize>,
    /// Something typed. A blank text is that of a person who chose to type and did not: that skips nothing.
    pub text: Option<String>,
}

/// A complete, valid set: one entry per question, `None` for a skipped optional one. The picks of each are ascending.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers(Vec<Option<Given>>);

impl Answers {
    /// One entry per question, in their order.
    pub fn entries(&self) -> &[Option<Given>] {
        &self.0
    }

    /// The same, checked against the questions: a stored answer is read before its questions are known.
    pub(crate) fn fitting(&self, questions: &Questions) -> Result<Self, Refusal> {
        let given = self.0.iter().map(|answer| answer.clone().unwrap_or_default());
        questions.answer(&given.enumerate().collect::<Vec<_>>())
    }
}

/// Why a reply was not taken. It is told to the person; the sentences are in [`super::wording`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// Decided already.
    Settled {
        /// How.
        outcome: Box<Outcome>,
        /// When.
        at: Time,
        /// The questions, to say the answer in words.
        questions: Questions,
        /// What was replied, in words.
        said: Option<String>,
    },
    /// The platform received it before it had sent the question.
    FromBefore,
    /// Not one of those who may answer; carries the person's own id so that an operator can add it.
    NotResponder {
        /// The channel's id of the person.
        id: String,
    },
    /// Of another workspace than the bot's.
    OtherTeam,
    /// From another chat than those in which it was asked.
    NotAskedHere,
    /// Not one of those who may let a question be asked again; carries the person's own id.
    MayNotAllow {
        /// The channel's id of the person.
        id: String,
    },
    /// It may be asked already.
    NotBlocked {
        /// Who allowed it again, if a person did.
        by: Option<Person>,
    },
    /// Required questions without an answer.
    Missing {
        /// Their texts.
        questions: Vec<String>,
    },
    /// No such question in this ask.
    NoSuchQuestion {
        /// What was named.
        name: String,
    },
    /// An answer that was not offered.
    NotOffered {
        /// The question's text.
        question: String,
        /// What was given.
        given: String,
        /// What is offered.
        labels: Vec<String>,
    },
    /// Neither a text nor a list of texts.
    NoText {
        /// The question's text.
        question: String,
    },
    /// Several answers where one is wanted.
    OnlyOne {
        /// The question's text.
        question: String,
    },
    /// Several answers in words where one is wanted.
    OnlyOneText {
        /// The question's text.
        question: String,
    },
    /// A choice and a text where only one of them is taken.
    ChoiceOrText {
        /// The question's text.
        question: String,
    },
    /// A typed answer with U+0000 in it.
    Unreadable {
        /// The question's text.
        question: String,
    },
    /// A typed answer over the limit.
    TooLong {
        /// The question's text.
        question: String,
        /// Characters allowed.
        limit: usize,
        /// Characters given.
        size: usize,
    },
}

impl Refusal {
    /// Whether this person replied what counts already, as theirs: that was used.
    pub fn is_of_what_counts(&self, person: &Person) -> bool {
        let Self::Settled { outcome, questions, said: Some(said), .. } = self else { return false };
        matches!(&**outcome, Outcome::Answered { answers, by }
            if by.is_same(person) && wording::told(answers, questions) == *said)
    }

    /// A word for metrics and the audit log.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Settled { .. } => "settled",
            Self::FromBefore => "from_before",
            Self::NotResponder { .. } | Self::MayNotAllow { .. } => "not_responder",
            Self::OtherTeam => "other_team",
            Self::NotAskedHere => "other_chat",
            Self::NotBlocked { .. } => "not_blocked",
            Self::Missing { .. } => "missing",
            Self::NoSuchQuestion { .. } => "no_such_question",
            Self::NotOffered { .. } => "not_offered",
            Self::NoText { .. } => "no_text",
            Self::OnlyOne { .. } | Self::OnlyOneText { .. } => "only_one",
            Self::ChoiceOrText { .. } => "choice_or_text",
            Self::Unreadable { .. } => "unreadable",
            Self::TooLong { .. } => "too_long",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&wording::refusal(self))
    }
}

impl std::error::Error for Refusal {}

impl Reply {
    /// The same with typed text as askd stores it: without characters that control a terminal. U+0000 is refused,
    /// because the text after it could be lost on the way to the agent.
    pub fn readable(self, questions: &Questions) -> Result<Self, Refusal> {
        let readable = |index: usize, given: Given| {
            if given.text.as_ref().is_some_and(|text| text.contains('\0')) {
                let question = questions.get(index).map(|question| question.text.clone()).unwrap_or_default();
                return Err(Refusal::Unreadable { question });
            }
            Ok(Given { text: given.text.map(|text| without_controls(&text)), ..given })
        };
        Ok(match self {
            Self::Whole(given) => {
                let given = given.into_iter().map(|(index, given)| Ok((index, readable(index, given)?)));
                Self::Whole(given.collect::<Result<_, _>>()?)
            }
            Self::Told { index, given, heard } => Self::Told { index, given: readable(index, given)?, heard },
            dismissed @ (Self::Dismiss | Self::ToldDismiss(_)) => dismissed,
        })
    }
}

impl Question {
    /// Labels and typed text, as they come from the API and the command line, to what they mean
    /// here: a label if it is one, else a text of one's own.
    pub fn understand(&self, values: &[String]) -> Result<Given, Refusal> {
        let mut given = Given::default();
        for value in values.iter().filter(|value| !value.trim().is_empty()) {
            if value.contains('\0') {
                return Err(Refusal::Unreadable { question: self.text.clone() });
            } else if let Some(choice) = self.choice(value) {
                given.picks.push(choice);
            } else if !self.takes_text() {
                return Err(self.not_offered(value));
            } else if given.text.replace(value.clone()).is_some() {
                return Err(if self.kind == Kind::MultiSelect {
                    Refusal::OnlyOneText { question: self.text.clone() }
                } else {
                    Refusal::OnlyOne { question: self.text.clone() }
                });
            }
        }
        Ok(given)
    }

    fn not_offered(&self, given: &str) -> Refusal {
        Refusal::NotOffered {
            question: self.text.clone(),
            given: given.to_owned(),
            labels: self.choices.iter().map(|choice| choice.label.clone()).collect(),
        }
    }

    /// The answer that was given, `None` if the question was skipped, or why it is not one.
    fn answer(&self, given: &Given) -> Result<Option<Given>, Refusal> {
        let text = given.text.as_deref().map(str::trim).filter(|text| !text.is_empty());
        let mut picks = given.picks.clone();
        // A label that somebody has typed is that option.
        let label = text.and_then(|text| self.choice(text));
        picks.extend(label);
        let text = text.filter(|_| label.is_none());
        picks.sort_unstable();
        picks.dedup();
        if let Some(stray) = picks.iter().find(|pick| **pick >= self.choices.len()) {
            return Err(self.not_offered(&(stray + 1).to_string()));
        }
        match (picks.len(), text) {
            (0, None) if self.required || given.text.is_some() => {
                return Err(Refusal::Missing { questions: vec![self.text.clone()] });
            }
            (0, None) => return Ok(None),
            (_, Some(text)) if !self.takes_text() => return Err(self.not_offered(text)),
            (1.., Some(_)) if self.kind != Kind::MultiSelect => {
                return Err(Refusal::ChoiceOrText { question: self.text.clone() });
            }
            (2.., _) if self.kind != Kind::MultiSelect => {
                return Err(Refusal::OnlyOne { question: self.text.clone() });
            }
            _ => {}
        }
        let size = text.map_or(0, |text| text.chars().count());
        if size > MAX_TEXT {
            return Err(Refusal::TooLong { question: self.text.clone(), limit: MAX_TEXT, size });
        }
        Ok(Some(Given { picks, text: text.map(str::to_owned) }))
    }
}

impl Questions {
    /// The answers of a whole form. All that is missing is named at once.
    pub fn answer(&self, given: &[(usize, Given)]) -> Result<Answers, Refusal> {
        let mut parts = vec![Given::default(); self.len()];
        for (index, part) in given {
            let Some(slot) = parts.get_mut(*index) else {
                return Err(Refusal::NoSuchQuestion { name: (index + 1).to_string() });
            };
            slot.clone_from(part);
        }
        let mut missing = Vec::new();
        let mut answers = Vec::with_capacity(self.len());
        for (question, part) in self.iter().zip(&parts) {
            match question.answer(part) {
                Ok(answer) => answers.push(answer),
                Err(Refusal::Missing { questions }) => missing.extend(questions),
                Err(other) => return Err(other),
            }
        }
        if missing.is_empty() { Ok(Answers(answers)) } else { Err(Refusal::Missing { questions: missing }) }
    }

    /// Whether one question's part fits by itself.
    pub fn fits(&self, index: usize, given: &Given) -> Result<(), Refusal> {
        let question = self.get(index).ok_or_else(|| Refusal::NoSuchQuestion { name: (index + 1).to_string() })?;
        question.answer(given).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ChannelName, Choice, Draft, Via};
    use super::*;

    fn questions(kinds: &[(&str, bool)]) -> Questions {
        let drafts = kinds.iter().enumerate().map(|(n, (kind, required))| Draft {
            text: format!("q{n}"),
            kind: Some((*kind).to_owned()),
            required: Some(*required),
            choices: match *kind {
                "text" | "confirm" => vec![],
                _ => ["React", "Vue"].map(|l| Choice { label: l.to_owned(), description: None, style: None }).into(),
            },
            ..Draft::default()
        });
        Questions::new("r", drafts.collect()).unwrap()
    }

    fn understood(kind: &str, values: &[&str]) -> Result<Option<Given>, Refusal> {
        let questions = questions(&[(kind, true)]);
        let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
        let given = questions[0].understand(&values)?;
        Ok(questions.answer(&[(0, given)])?.0.remove(0))
    }

    #[test]
    fn a_copy_of_what_counts_is_that_of_the_same_person_with_the_same_answer() {
        let person = |id: &str| Person { via: Via::Channel(ChannelName::SLACK), id: id.to_owned(), name: None };
        let questions = questions(&[("select", true)]);
        let given = questions[0].understand(&["Vue".to_owned()]).unwrap();
        let outcome = Outcome::Answered { answers: questions.answer(&[(0, given)]).unwrap(), by: person("U0ALICE") };
        let settled = |said: &str| Refusal::Settled {
            outcome: Box::new(outcome.clone()),
            at: Time::from_millis(0),
            questions: questions.clone(),
            said: Some(said.to_owned()),
        };
        assert!(settled("Vue").is_of_what_counts(&person("U0ALICE")));
        assert!(!settled("React").is_of_what_counts(&person("U0ALICE")));
        assert!(!settled("Vue").is_of_what_counts(&person("U0BOB")));
    }

    #[test]
    fn a_label_is_a_pick_and_the_rest_is_text() {
        assert_eq!(understood("select", &["vue"]).unwrap().unwrap().picks, [1]);
        assert_eq!(understood("select", &["Svelte"]).unwrap().unwrap().text.as_deref(), Some("Svelte"));
        let both = understood("multi-select", &["Vue", "Svelte", "React", "Vue"]).unwrap().unwrap();
        assert_eq!((&*both.picks, both.text.as_deref()), (&[0, 1][..], Some("Svelte")));
        assert_eq!(understood("text", &["  hello  "]).unwrap().unwrap().text.as_deref(), Some("hello"));
        // Channels hand over what was typed as it is.
        let typed = |kind, picks: &[usize], text: &str| {
            let given = Given { picks: picks.to_vec(), text: Some(text.to_owned()) };
            questions(&[(kind, true)]).answer(&[(0, given)]).map(|answers| answers.entries()[0].clone().unwrap())
        };
        let vue = |picks: &[usize]| Ok(Given { picks: picks.to_vec(), text: None });
        assert_eq!(typed("select", &[], " vue "), vue(&[1]));
        assert_eq!(typed("multi-select", &[0, 1], "Vue"), vue(&[0, 1]), "not twice");
        assert_eq!(typed("select", &[0], "Vue").unwrap_err().code(), "only_one");
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        assert_eq!(understood("confirm", &["maybe"]).unwrap_err().code(), "not_offered");
        assert_eq!(understood("select", &["React", "Vue"]).unwrap_err().code(), "only_one");
        assert_eq!(understood("select", &["React", "Svelte"]).unwrap_err().code(), "choice_or_text");
        assert_eq!(understood("select", &["", "  "]).unwrap_err().code(), "missing");
        assert_eq!(understood("text", &["a", "b"]).unwrap_err().code(), "only_one");
        assert_eq!(understood("multi-select", &["Solid", "Svelte"]).unwrap_err().code(), "only_one");
        assert_eq!(understood("text", &[&"x".repeat(3001)]).unwrap_err().code(), "too_long");
        let stray = Given { picks: vec![2], text: None };
        assert_eq!(questions(&[("select", true)]).answer(&[(0, stray)]).unwrap_err().code(), "not_offered");
        // Channels hand picks and texts over as they came: what a question does not take is not taken.
        let typed = Given { picks: vec![], text: Some("maybe".to_owned()) };
        assert_eq!(questions(&[("confirm", true)]).answer(&[(0, typed)]).unwrap_err().code(), "not_offered");
    }

    #[test]
    fn typed_text_is_kept_without_what_steers_a_terminal_and_a_nul_is_asked_back() {
        let questions = questions(&[("text", true), ("select", true)]);
        let typed = |text: &str| Given { text: Some(text.to_owned()), picks: vec![] };
        for reply in [(|given| Reply::Whole(vec![(1, given)])) as fn(Given) -> Reply, |given| Reply::Told {
            index: 1,
            given,
            heard: Heard { message: "m".to_owned(), at: None, names: Names::Message },
        }] {
            let cleaned = reply(typed("red\u{1b}[31m\r\nblue\u{7}")).readable(&questions);
            assert_eq!(cleaned, Ok(reply(typed("red[31m\nblue"))));
            let refused = reply(typed("a\0b")).readable(&questions);
            assert_eq!(refused, Err(Refusal::Unreadable { question: "q1".to_owned() }));
        }
    }

    #[test]
    fn all_that_is_missing_is_named_at_once_and_optional_ones_may_be_left_out() {
        let questions = questions(&[("text", true), ("select", false), ("confirm", true)]);
        assert_eq!(questions.answer(&[]), Err(Refusal::Missing { questions: vec!["q0".to_owned(), "q2".to_owned()] }));
        let blank = Given { text: Some(" ".to_owned()), ..Given::default() };
        let all = [(0, blank.clone()), (1, blank), (2, Given { picks: vec![0], text: None })];
        let missing = Refusal::Missing { questions: vec!["q0".to_owned(), "q1".to_owned()] };
        assert_eq!(questions.answer(&all), Err(missing), "to type was chosen");
        let text = Given { text: Some("x".to_owned()), ..Given::default() };
        let pick = Given { picks: vec![1], ..Given::default() };
        let answers = questions.answer(&[(0, text), (2, pick)]).unwrap();
        assert!(answers.entries()[1].is_none());
        assert_eq!(answers.entries()[2].as_ref().unwrap().picks, [1]);
    }
}
