//! What people write about a question that was asked too often: `allow`, with its code or as a reply to its
//! message. Everything else goes on to [`super::inbound`].

use super::inbound::{NotStored, Sender, place};
use super::shapes::Said;
use super::{Whatsapp, text};
use crate::ask::{Ask, Event, Person, Source, Via, wording};
use crate::host::broker::{Broker, Failure};

/// A block that somebody may end.
struct Blocked {
    ask: Ask,
    route: usize,
    person: String,
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
        let Said::Text(said) = &sender.message.said else { return Ok(false) };
        let named = read(said);
        let quoted = sender.message.quotes.as_deref();
        let quoted = quoted.and_then(|quoted| broker.of_message(quoted).or_else(|| self.0.memory.subject(quoted)));
        if named == Allows::Nothing && quoted.is_none_or(|quoted| !broker.blocked().contains(&quoted)) {
            return Ok(false);
        }
        let blocked = self.blocked_for(broker, sender).await?;
        let on = quoted.and_then(|quoted| blocked.iter().find(|blocked| blocked.ask.id == quoted));
        if named == Allows::Nothing {
            // Whoever replies to the message of a block hears what can be done about it.
            let Some(blocked) = on else { return Ok(false) };
            let code = blocked.ask.short_id.as_str();
            self.note(&sender.reply_to, Some(&blocked.ask), wording::how_to_allow(code));
            return Ok(true);
        }
        let meant = match named {
            Allows::Coded(code) => blocked.iter().find(|blocked| blocked.ask.short_id.as_str() == code),
            // Without a name it may be the answer to what is open.
            _ if on.is_none() && open => None,
            _ if on.is_none() && blocked.len() > 1 => {
                let list = blocked.iter().filter_map(|blocked| {
                    Some((blocked.ask.short_id.to_string(), text::in_short(blocked.ask.content.questions.first()?)))
                });
                self.note(&sender.reply_to, None, wording::which_to_allow(&list.collect::<Vec<_>>()));
                return Ok(true);
            }
            _ => on.or(blocked.first().filter(|_| quoted.is_none())),
        };
        match meant {
            Some(meant) => self.allow(broker, sender, meant).await.map(|()| true),
            None => Ok(false),
        }
    }

    /// The blocks that this person may end.
    async fn blocked_for(&self, broker: &Broker, sender: &Sender<'_>) -> Result<Vec<Blocked>, NotStored> {
        let mut found = Vec::new();
        for id in broker.blocked() {
            let ask = broker.show(id).await.map_err(|_| NotStored)?;
            let placed = ask.filter(Ask::is_blocked).and_then(|ask| place(ask, &sender.ids));
            found.extend(placed.map(|at| Blocked { ask: at.ask, route: at.route, person: at.person }));
        }
        found.sort_by_key(|blocked| (blocked.ask.created_at, blocked.ask.id));
        Ok(found)
    }

    async fn allow(&self, broker: &Broker, sender: &Sender<'_>, blocked: &Blocked) -> Result<(), NotStored> {
        let person = Person { via: Via::Whatsapp, id: blocked.person.clone(), name: sender.message.name.clone() };
        let event = Event::Allow { source: Source::Route(blocked.route), person };
        match broker.happen(blocked.ask.id, event).await {
            Ok(ask) => {
                // The chat itself has its closing line.
                let elsewhere = !sender.ids.contains(&ask.rules.routes[blocked.route].chat);
                if let Some(line) = ask.closing_line().filter(|_| elsewhere) {
                    self.note(&sender.reply_to, Some(&ask), wording::receipt(&text::tame(&line)));
                }
                Ok(())
            }
            Err(Failure::NotStored) => Err(NotStored),
            Err(Failure::Unknown) => Ok(()),
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
