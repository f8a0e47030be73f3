//! Asks people to confirm words that may be older than their question, and takes the confirmation: a `1` that quotes our
//! request, or that can be meant for nothing else. In doubt it asks once more.

use super::confirmations::{After, Confirmation};
use super::inbound::Incoming;
use super::owed::Note;
use super::reader::{Asked, Reader};
use super::resolve::Target;
use super::text;
use super::words::{self, Meaning};
use crate::host::channel::NotStored;
use askd_core::{Heard, Names, Reply, Time, wording};

impl Incoming<'_> {
    /// Asks whether the sender meant this question: they may have written before their phone showed it.
    pub(super) fn ask_to_confirm(&self, reader: &Reader<'_>, asked: &Asked) {
        let nth = self.request(asked, reader.said);
        let text = text::tame(&wording::did_you_mean(&text::in_short(asked.question())));
        self.send_request(asked, nth, text);
    }

    /// Keeps the words that a new request is about. The number of that request.
    fn request(&self, asked: &Asked, said: &str) -> u8 {
        let contacts = &self.channel.0.contacts;
        let (ask, question, said) = (asked.ask.id, asked.next(), said.to_owned());
        let (nth, at) = (contacts.number_request(&self.person), self.channel.now().as_millis());
        let (note, since, after) = (None, None, After::Nothing);
        contacts.ask_to_confirm(
            &self.person,
            Confirmation { ask, question, said, nth, note, since, told: false, after, at },
        );
        nth
    }

    /// Sends a message of which a `1` confirms the words that wait.
    fn send_request(&self, asked: &Asked, nth: u8, text: String) {
        let (to, confirms) = (self.reply_to.clone(), Some((nth, self.person.clone())));
        self.owe(&Note { to, text, ask: Some(asked.ask.id), question: asked.next(), confirms });
    }

    /// Asks once more. If something else has left since the request, this is another one: then it is the last thing that a
    /// further `1` can mean.
    fn ask_again(&self, asked: &Asked, waiting: &Confirmation, text: String) {
        let nth = if waiting.after == After::Nothing { waiting.nth } else { self.request(asked, &waiting.said) };
        self.send_request(asked, nth, text);
    }

    /// Whether the message was meant for a request to confirm, or may have been; if so, it has been dealt with.
    pub(super) async fn confirms(&self, reader: &Reader<'_>, asked: &[Asked]) -> Result<bool, NotStored> {
        let waiting = self.channel.0.contacts.to_confirm(&self.person);
        // What is forwarded was written for another reader.
        if self.message.forwarded || waiting.is_empty() {
            return Ok(false);
        }
        let open = |waiting: &Confirmation| {
            let same = |asked: &&Asked| asked.ask.id == waiting.ask && asked.next() == waiting.question;
            asked.iter().find(|asked| asked.is_open() && same(asked))
        };
        let all: Vec<_> = waiting.iter().filter_map(|waiting| Some((waiting, open(waiting)?))).collect();
        let noted = |waiting: &&Confirmation| waiting.note.is_some() && waiting.note == self.message.quotes;
        let noted = || waiting.iter().find(noted).map(|waiting| (waiting.ask, waiting.question, waiting.nth));
        // Earlier versions remembered a request by what waits for it alone.
        let quoted = reader.quoted_request().or_else(noted);
        let bare = quoted.is_none() && reader.names_nothing();
        let (code, rest) = words::split_first_word(reader.said);
        let coded = |asked: &Asked| bare && words::is_one(rest) && asked.is_named_by(&code);
        let one = words::is_one(reader.said);
        // A yes may confirm the words, or answer the question.
        let yes_or_no = words::is_yes_or_no(reader.said) && !matches!(reader.target(asked), Target::Confirm(_));
        let unnamed = bare && (one || yes_or_no);
        let found = match quoted {
            Some((ask, question, _)) => {
                all.iter().find(|(waiting, _)| (waiting.ask, waiting.question) == (ask, question))
            }
            None => all.iter().find(|(_, asked)| coded(asked)).or_else(|| all.first().filter(|_| unnamed)),
        };
        let Some((waiting, asked)) = found.copied() else {
            return Ok(unnamed && self.comes_too_late(reader, asked, &waiting));
        };
        let is_later = self.is_later(waiting) && !reader.doubts_request(waiting);
        let means_it = match quoted {
            Some((_, _, nth)) => one && nth == waiting.nth,
            None if coded(asked) => waiting.after < After::Any && is_later,
            None => one && waiting.after == After::Nothing && is_later,
        };
        if !means_it {
            let said = text::few_words(&waiting.said);
            let text = if one && quoted.is_none() || coded(asked) {
                wording::did_you_mean_that(&said, &text::in_short(asked.question()))
            } else {
                wording::confirm_or_quote(&said)
            };
            self.ask_again(asked, waiting, text);
            return Ok(true);
        }
        // It confirms our own message, and that named the question.
        let heard = Heard { message: self.message.id.clone(), at: self.at, names: Names::Message };
        match words::read(&waiting.said, asked.code(), asked.question()) {
            Meaning::Given(given) => self.reply(asked, Reply::Told { index: asked.next(), given, heard }).await?,
            Meaning::Dismiss => self.reply(asked, Reply::ToldDismiss(heard)).await?,
            // Words of a question that an earlier version read otherwise.
            Meaning::Unfit(_) | Meaning::Show => self.tell(asked.about(), text::tame(&asked.how_to_reply())),
        }
        Ok(true)
    }

    /// Whether the platform received the message after our request had left.
    fn is_later(&self, waiting: &Confirmation) -> bool {
        waiting.since.map(Time::from_millis).zip(self.at).is_some_and(|(since, at)| since < at)
    }

    /// What was to be confirmed is over. If nothing but requests to confirm has left since, the message may have been meant
    /// for that and not for the question that is open, so it is asked back, once.
    fn comes_too_late(&self, reader: &Reader<'_>, asked: &[Asked], over: &[Confirmation]) -> bool {
        for over in over {
            self.channel.0.contacts.confirmed(&self.person, over.ask);
        }
        let Target::One(at) = reader.target(asked) else { return false };
        let doubtful = over.iter().any(|over| over.after <= After::Requests);
        if doubtful {
            self.ask_which([&asked[at]]);
        }
        doubtful
    }
}
