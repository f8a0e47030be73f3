//! `askd answer`: options by label or number; words of one's own only where they are said to be that.

use super::asks::{One, say_settled};
use super::layout::text;
use super::{Exit, USAGE, say};
use anyhow::Context as _;
use askd_core::{chosen, printable, wording};
use clap::Args;
use serde_json::{Map, Value, json};
use std::io::IsTerminal as _;

/// Answer a question.
///
/// Give an option's label (in upper or lower case) or its number; where several can be chosen, several of them, or one
/// list with commas. An answer in your own words needs --text, unless the question has no options.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  askd answer 3f2a React\n  askd answer 3f2a 1\n  askd answer 3f2a staging,prod\n  \
                        askd answer 3f2a --text \"Neither: use Svelte\"\n  \
                        askd answer 3f2a -q r1_0=React -q \"Why?=because it is known\" --text \"r1_2=none of them\""
)]
pub(super) struct Answer {
    #[command(flatten)]
    ask: One,
    /// The answer. Without one askd shows the choices, and on a terminal asks for it.
    #[arg(value_name = "ANSWER", conflicts_with = "questions")]
    values: Vec<String>,
    /// The answer to one of several questions, by the question's id or text. Repeatable.
    #[arg(short = 'q', value_name = "QUESTION=ANSWER")]
    questions: Vec<String>,
    /// An answer in your own words where there are options; QUESTION=WORDS if there are several questions. Repeatable.
    #[arg(long = "text", value_name = "WORDS")]
    texts: Vec<String>,
}

/// What was typed for one question.
#[derive(Debug, Default)]
struct Typed {
    words: Vec<String>,
    own: Vec<String>,
}

impl Answer {
    pub(super) fn run(mut self) -> Result<(), Exit> {
        let ask = self.ask.read()?;
        // If the ask is over, the daemon's reply says so, whatever the person typed.
        let over = ask["state"] == "settled" && ask["late_until"].is_null();
        if !over && self.values.is_empty() && self.questions.is_empty() && self.texts.is_empty() {
            self.values = asked_for(&ask)?;
        }
        let answers = if over { Map::new() } else { self.answers(&ask)? };
        // By its whole id: an ask that came meanwhile may have the same beginning.
        let ask = One { id: text(&ask, "id").to_owned(), ..self.ask };
        say_settled(&ask.post("answer", json!({"answers": answers}))?)
    }

    fn answers(&self, ask: &Value) -> Result<Map<String, Value>, Exit> {
        let questions = ask["questions"].as_array().map_or(&[][..], Vec::as_slice);
        let several = questions.len() > 1;
        let typed = match questions {
            // With a single question all words are for it, even if they contain a "=".
            [_] => {
                let named = self.questions.iter().map(|pair| Ok(named(questions, pair)?.1.to_owned()));
                let words = self.values.iter().cloned().map(Ok).chain(named).collect::<Result<_, Exit>>()?;
                vec![Typed { words, own: self.texts.clone() }]
            }
            _ if !self.values.is_empty() => return Err(name_them(questions)),
            _ => by_question(questions, &self.questions, &self.texts)?,
        };
        let given = questions.iter().zip(typed).filter(|(_, typed)| !(typed.words.is_empty() && typed.own.is_empty()));
        given.map(|(question, typed)| Ok((text(question, "id").to_owned(), typed.answer(question, several)?))).collect()
    }
}

impl Typed {
    /// As the API takes it: labels, and words of one's own.
    fn answer(self, question: &Value, of_several: bool) -> Result<Value, Exit> {
        if question["type"] == "text" {
            return Ok(json!(self.words.into_iter().chain(self.own).collect::<Vec<_>>().join(" ")));
        }
        let labels: Vec<&str> =
            question["options"].as_array().into_iter().flatten().map(|option| text(option, "label")).collect();
        let own_words = question["custom"] == true;
        if !self.own.is_empty() && !own_words {
            return Err(refused(&wording::no_own_words(text(question, "question"), &labels)));
        }
        let several = question["type"] == "multi-select";
        let picks = chosen(&labels, several, &self.words).map_err(|mistyped| {
            let name = of_several.then(|| text(question, "id"));
            refused(&wording::mistyped(&mistyped, &labels, own_words, name))
        })?;
        let picked = picks.into_iter().map(|pick| labels[pick].to_owned());
        Ok(json!(picked.chain(self.own).collect::<Vec<_>>()))
    }
}

/// What a person types at the terminal when they see the question and its choices.
fn asked_for(ask: &Value) -> Result<Vec<String>, Exit> {
    let questions = ask["questions"].as_array().map_or(&[][..], Vec::as_slice);
    let [question] = questions else { return Err(name_them(questions)) };
    let code = text(ask, "short_id");
    let mut lines = vec![format!("What is the answer to {:?}", printable(text(question, "question")))];
    let options = question["options"].as_array().into_iter().flatten().zip(1..);
    lines.extend(options.map(|(option, number)| format!("  {number}. {}", printable(text(option, "label")))));
    if !std::io::stdin().is_terminal() {
        let example = if lines.len() > 1 { "1" } else { "\"your answer\"" };
        return Err(Exit::new(USAGE, format!("{}\nAnswer with: askd answer {code} {example}", lines.join("\n"))));
    }
    say(&lines.join("\n"))?;
    let mut typed = String::new();
    std::io::stdin().read_line(&mut typed).context("cannot read the answer")?;
    match typed.trim() {
        "" => Err(Exit::new(USAGE, "no answer; nothing was sent")),
        typed => Ok(vec![typed.to_owned()]),
    }
}

/// Nothing was sent. The agent's own words stand in it, so that each line is made printable.
fn refused(why: &str) -> Exit {
    Exit::new(USAGE, why.lines().map(printable).collect::<Vec<_>>().join("\n"))
}

fn name_them(questions: &[Value]) -> Exit {
    let names: Vec<String> = questions
        .iter()
        .map(|q| format!("  -q \"{}=...\"  {}", printable(text(q, "id")), printable(text(q, "question"))))
        .collect();
    Exit::new(USAGE, format!("there are {} questions; answer each:\n{}", names.len(), names.join("\n")))
}

/// Sorts QUESTION=ANSWER and QUESTION=WORDS by question.
fn by_question(questions: &[Value], answers: &[String], texts: &[String]) -> Result<Vec<Typed>, Exit> {
    let mut typed: Vec<Typed> = questions.iter().map(|_| Typed::default()).collect();
    for pair in answers {
        let (index, words) = named(questions, pair)?;
        typed[index].words.push(words.to_owned());
    }
    for pair in texts {
        let (index, words) = named(questions, pair)?;
        typed[index].own.push(words.to_owned());
    }
    Ok(typed)
}

/// The question that is named, by its id or text, and what is said to it. A question's text may hold a "=" itself:
/// the longest name that fits is meant.
fn named<'a>(questions: &[Value], pair: &'a str) -> Result<(usize, &'a str), Exit> {
    let names = questions
        .iter()
        .enumerate()
        .flat_map(|(index, question)| [text(question, "id"), text(question, "question")].map(|name| (index, name)));
    let found = names.filter_map(|(index, name)| Some((index, name, pair.strip_prefix(name)?.strip_prefix('=')?)));
    let found = found.max_by_key(|(_, name, _)| name.len());
    found.map(|(index, _, words)| (index, words)).ok_or_else(|| match pair.split_once('=') {
        Some((name, _)) => refused(&format!("there is no question {name:?} here; name it by its id or its whole text")),
        None => refused(&format!("{pair:?} is not QUESTION=ANSWER")),
    })
}
