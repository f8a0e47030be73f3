//! What people write about a question that was asked too often: `allow`, with its code or as a reply to its
//! message. Everything else goes on to [`super::inbound`].

use super::inbound::{Asked, NotStored, Sender, place};
use super::payload::Body;
use super::resolve::{self, Target};
use super::{Whatsapp, text};
use crate::host::broker::{Broker, Failure};
use askd_core::{Ask, ChannelName, Event, Person, Source, Via, wording};

/// A block that somebody may end.
struct Blocked {
    asked: Asked,
}

/// What a text allows to be asked again.
#[derive(Debug, PartialEq, Eq)]
enum Allows {
    /// Whatever is blocked, or is quoted.
    It,
    /// What has this code.
    Coded(String),
    /// It says something else.
    Nothing,
}

fn read(said: &str) -> Allows {
    let said = said.trim().trim_end_matches(['.', '!']).to_lowercase();
    let words = said.split(|c: char| c.is_whitespace() || ":,;".contains(c)).filter(|word| !word.is_empty());
    match words.collect::<Vec<_>>().as_slice() {
        ["allow"] | ["allow", "again"] => Allows::It,
        ["allow", code]
        | ["allow", "again", code]
        | ["allow", code, "again"]
        | [code, "allow"]
        | [code, "allow", "again"] => Allows::Coded((*code).to_owned()),
        _ => Allows::Nothing,
    }
}

impl Whatsapp {
    /// Whether the message was about a block, and dealt with. `open`: something waits for an answer of this person.
    pub(super) async fn allowed(&self, broker: &Broker, sender: &Sender<'_>, open: bool) -> Result<bool, NotStored> {
        let Body::Text(said) = &sender.message.said else { return Ok(false) };
        let named = read(said);
        let quotes = sender.message.quotes.as_deref();
        let subject = quotes.and_then(|quoted| self.subject(broker, quoted));
        if named == Allows::Nothing && subject.is_none_or(|subject| !broker.blocked().contains(&subject)) {
            return Ok(false);
        }
        let blocked = self.blocked_for(broker, sender).await?;
        let of = |subject| blocked.iter().find(|blocked| blocked.asked.ask.id == subject);
        if named == Allows::Nothing {
            // Whoever replies to the message of a block hears what can be done about it.
            let Some(Blocked { asked }) = subject.and_then(of) else { return Ok(false) };
            let code = asked.ask.short_id.as_str();
            self.note(&sender.reply_to, Some(&asked.ask), wording::how_to_allow(code));
            return Ok(true);
        }
        let code = if let Allows::Coded(code) = &named { Some(code.as_str()) } else { None };
        // It names no block, so it may be the answer to an open question.
        if code.is_none() && quotes.is_none() && open {
            return Ok(false);
        }
        let message = resolve::Message { quotes, quotes_another: subject.is_some(), code, at: sender.at };
        let candidates: Vec<_> =
            blocked.iter().map(|blocked| self.candidate(&blocked.asked, sender, said).into_open()).collect();
        match resolve::resolve(&message, &candidates) {
            Target::One(at) | Target::Confirm(at) => self.allow(broker, sender, &blocked[at]).await.map(|()| true),
            Target::Which(which) if quotes.is_none() => {
                let list = which.into_iter().filter_map(|at| {
                    let ask = &blocked[at].asked.ask;
                    Some((ask.short_id.to_string(), text::in_short(ask.content.questions.first()?)))
                });
                self.note(&sender.reply_to, None, wording::which_to_allow(&list.collect::<Vec<_>>()));
                Ok(true)
            }
            Target::Which(_) | Target::Before(_) | Target::Nothing => Ok(false),
        }
    }

    /// The blocks that this person may end.
    async fn blocked_for(&self, broker: &Broker, sender: &Sender<'_>) -> Result<Vec<Blocked>, NotStored> {
        let mut found = Vec::new();
        for id in broker.blocked() {
            let ask = broker.show(id).await.map_err(|_| NotStored)?;
            let placed = ask.filter(Ask::is_blocked).and_then(|ask| place(ask, &sender.ids));
            found.extend(placed.map(|asked| Blocked { asked }));
        }
        found.sort_by_key(|Blocked { asked }| (asked.ask.created_at, asked.ask.id));
        Ok(found)
    }

    async fn allow(&self, broker: &Broker, sender: &Sender<'_>, Blocked { asked }: &Blocked) -> Result<(), NotStored> {
        let person = Person {
            via: Via::Channel(ChannelName::WHATSAPP),
            id: asked.person.clone(),
            name: sender.message.name.clone(),
        };
        let event = Event::Allow { source: Source::Route(asked.route), person };
        match broker.happen(asked.ask.id, event).await {
            Ok(ask) => {
                // The chat itself has its closing line.
                let elsewhere = !sender.ids.contains(&ask.rules.routes[asked.route].chat);
                if let Some(line) = ask.closing_line().filter(|_| elsewhere) {
                    self.note(&sender.reply_to, Some(&ask), wording::receipt(&text::tame(&line)));
                }
                Ok(())
            }
            Err(Failure::NotStored | Failure::InDoubt) => Err(NotStored),
            Err(Failure::Unknown | Failure::Broken) => Ok(()),
            Err(Failure::Refused(refusal, ask)) => {
                self.note(&sender.reply_to, Some(&ask), text::tame(&refusal.to_string()));
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowing_is_said_with_or_without_a_code() {
        for bare in ["allow", " Allow. ", "ALLOW AGAIN!"] {
            assert_eq!(read(bare), Allows::It, "{bare}");
        }
        for coded in ["allow k7", "k7 allow", "k7: allow", "Allow again K7", "allow k7 again."] {
            assert_eq!(read(coded), Allows::Coded("k7".to_owned()), "{coded}");
        }
        for other in ["", "allowed", "do not allow k7 please", "k7", "2", "allow it for me please"] {
            assert_eq!(read(other), Allows::Nothing, "{other}");
        }
    }
}
