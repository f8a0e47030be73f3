//! `askd forget`: erases a question, or a person, from what askd keeps, and says what stays elsewhere.

use super::{Exit, FAILED, USAGE, as_owner, say};
use crate::host::forget::{Forgotten, forget};
use crate::host::settings::Settings;
use crate::host::store::{BEGINNING, StoreError, Whom};
use askd_core::{Ask, AskId, ChannelName, ShortId};
use clap::builder::NonEmptyStringValueParser;
use clap::{ArgGroup, Args};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Most messages of a chat that are named.
const MESSAGES: usize = 20;

/// Erase a closed question, or all that a person said, from what askd keeps.
///
/// Stop the daemon first (every one that shares the records), and start it again afterwards; open questions stay open. `--person` erases
/// the closed questions that the person answered, dismissed, withdrew or unblocked, or that were sent to a chat of their own, and takes
/// their id and name out of all other records, the audit log included. What cannot be erased is named: cards in chats, questions that are
/// still open. It cannot be undone. Exit codes: 0 everything is erased, 1 something is left or went wrong.
#[derive(Debug, Args)]
#[command(
    name = "forget",
    after_help = "Examples:\n  sudo systemctl stop askd\n  sudo -u askd askd forget --person U0123ABCD\n  \
                  sudo -u askd askd forget --ask k7\n  sudo systemctl start askd",
    group = ArgGroup::new("whom").required(true)
)]
pub(super) struct ForgetCommand {
    /// The person's id: U0123ABCD in Slack, a number (digits) on WhatsApp, a name in the inbox.
    #[arg(long, value_name = "ID", group = "whom", value_parser = NonEmptyStringValueParser::new())]
    person: Option<String>,
    /// The question's code, or the first 8 or more characters of its id.
    #[arg(long, value_name = "ID", group = "whom")]
    ask: Option<String>,
    /// The daemon's settings file.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

impl ForgetCommand {
    pub(super) fn run(self) -> Result<(), Exit> {
        let settings = Settings::load(&self.config).map_err(|error| Exit::new(USAGE, error))?;
        let whom = match (self.person, self.ask) {
            (Some(person), _) if person == "operator" => {
                let why = "\"operator\" is everyone who holds the inbox token, not a person";
                return Err(Exit::new(USAGE, why));
            }
            (Some(person), _) => Whom::Person(BTreeSet::from([person])),
            (None, Some(ask)) if names_one(&ask) => Whom::Ask(ask),
            _ => {
                let why = "give the question's code, or the first 8 or more characters of its id; `askd list --settled` shows codes";
                return Err(Exit::new(USAGE, why));
            }
        };
        // Of a whole id it is certain that nothing is left. A code may have been mistyped.
        let may_be_mistyped = matches!(&whom, Whom::Ask(ask) if ask.parse::<AskId>().is_err());
        let state = settings.state_dir();
        as_owner(&state, "forget")?;
        let stop = if settings.postgres.url.is_some() {
            "stop every daemon that uses the database, run this again, and start them"
        } else {
            "stop it (sudo systemctl stop askd), run this again, and start it"
        };
        let forgotten = forget(&settings, whom).map_err(|error| match error {
            StoreError::Held(_) => Exit::new(FAILED, format!("askd is running: {stop}. Open questions stay open")),
            error => Exit::new(FAILED, error),
        })?;
        if may_be_mistyped && forgotten.is_nothing() {
            return Err(Exit::new(FAILED, "no question has this code or id; `askd list --settled` shows codes"));
        }
        let left = &forgotten.records.unfinished;
        if left.is_empty() {
            return Ok(say(&told(&forgotten))?);
        }
        if !forgotten.is_nothing() {
            say(&told(&forgotten))?;
        }
        let ids = left.iter().map(AskId::to_string).collect::<Vec<_>>().join("\n  ");
        let why = "still there, because they are open, or because their cards and answers are still on their way. Start askd, close \
                   them (`askd cancel ID`), and run this again. A card whose channel is no longer in the settings waits until it is";
        Err(Exit::new(FAILED, format!("{why}:\n  {ids}")))
    }
}

/// Whether this can be a question's code, or enough of its id.
fn names_one(ask: &str) -> bool {
    ask.parse::<ShortId>().is_ok() || ask.len() >= BEGINNING && ask.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn told(Forgotten { records, lines, lying, in_database }: &Forgotten) -> String {
    let parts = [
        (records.asks.len(), "question", "questions"),
        (*lying, "answer that nobody had collected", "answers that nobody had collected"),
        (records.lists, "list of people who could answer", "lists of people who could answer"),
        (*lines, "line of the audit log", "lines of the audit log"),
        (records.others, "other file", "other files"),
    ];
    let parts = parts.iter().filter(|(count, ..)| *count > 0);
    let parts = parts.map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }));
    let parts = parts.collect::<Vec<_>>();
    let mut told = vec![match &parts[..] {
        [] => "Nothing in the records names that person or question.".to_owned(),
        parts => format!("Erased: {}.", parts.join(", ")),
    }];
    let chats = chats(&records.asks);
    if !chats.is_empty() {
        told.push("These messages stay in the chats, with the replies to them; delete them there:".to_owned());
        told.extend(chats);
    }
    let database = if *in_database { "the database that has a copy of these records, " } else { "" };
    told.push(format!(
        "Not looked into: {database}the log (journald), backups, settings files, and what agents have been told."
    ));
    told.join("\n")
}

/// What was posted, a line for each chat.
fn chats(asks: &[Ask]) -> Vec<String> {
    let mut chats: BTreeMap<(ChannelName, &str), Vec<&str>> = BTreeMap::new();
    for widget in asks.iter().flat_map(|ask| &ask.widgets).filter(|widget| widget.route.posts()) {
        chats.entry((widget.route.channel, &widget.route.chat)).or_default().extend(widget.messages());
    }
    chats.retain(|_, messages| !messages.is_empty());
    let line = |((channel, chat), messages): (&(ChannelName, &str), &Vec<&str>)| {
        let more = messages.len().saturating_sub(MESSAGES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let messages = messages.iter().take(MESSAGES).copied().collect::<Vec<_>>().join(", ");
        format!("  {} {chat}: {messages}{more}", channel.title())
    };
    chats.iter().map(line).collect()
}
