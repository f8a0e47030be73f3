//! What people write about a question that was asked too often: `allow`, with its code or as a reply to its message.
//! Everything else goes on to [`super::answering`].

use super::inbound::Incoming;
use super::messages::About;
use super::reader::{Asked, Reader};
use super::resolve::Target;
use super::text;
use crate::host::channel::{NotStored, apply};
use askd_core::{Ask, Event, Source, wording};

/// What a text allows to be asked again.
#[derive(Debug, PartialEq, Eq)]
enum Allows {
    /// The only block, or the one that the message quotes.
    It,
    /// The block with this code, if it is one.
    Coded(String),
    /// The text says something else.
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

impl Incoming<'_> {
    /// Whether a status may still say which block the message can allow.
    pub(super) async fn may_learn_to_allow(&self, reader: &Reader<'_>) -> Result<bool, NotStored> {
        if read(reader.said) == Allows::Nothing {
            return Ok(false);
        }
        Ok(reader.may_learn(&self.find(self.broker.blocked(), |ask| ask.is_blocked()).await?, &[]))
    }

    /// Whether the message was about a block, and has been dealt with.
    pub(super) async fn allows(&self, reader: &Reader<'_>, asked: &[Asked]) -> Result<bool, NotStored> {
        let (allows, has_quote) = (read(reader.said), reader.message.quotes.is_some());
        let blocks = self.broker.blocked();
        let quotes_one = reader.subject().is_some_and(|subject| blocks.contains(&subject));
        if allows == Allows::Nothing && (reader.said.is_empty() || !quotes_one) {
            return Ok(false);
        }
        let mut blocked = self.find(blocks, |ask| ask.is_blocked()).await?;
        blocked.sort_by_key(|asked| (asked.ask.created_at, asked.ask.id));
        let quoted = blocked.iter().find(|asked| Some(asked.ask.id) == reader.subject());
        let is_open = |asked: &Asked| asked.is_open() && reader.times(asked).since.is_some();
        let mut open = asked.iter().filter(|asked| is_open(asked));
        let is_code = |word: &str| blocked.iter().any(|asked| asked.ask.short_id.as_str() == word);
        let code = match &allows {
            // It names no block, so it may be the answer to an open question.
            Allows::It if !has_quote && open.any(|asked| reader.picks(asked)) => return Ok(false),
            Allows::It if !has_quote && asked.iter().any(|asked| is_open(asked) && reader.would_answer(asked)) => {
                return Ok(self.asks_what_to_allow(reader, &blocked));
            }
            Allows::It => None,
            Allows::Coded(code) if is_code(code) && (quoted.is_some() || !open.any(|asked| reader.picks(asked))) => {
                Some(code.as_str())
            }
            // Another word beside `allow` may refuse it: say to who replies to the block what the person can do about it.
            Allows::Coded(_) | Allows::Nothing => {
                if let Some(asked) = quoted {
                    self.tell(asked.about(), wording::how_to_allow(asked.ask.short_id.as_str()));
                }
                return Ok(quoted.is_some());
            }
        };
        match reader.target_block(code, &blocked) {
            Target::One(at) | Target::Confirm(at) => self.allow(&blocked[at]).await.map(|()| true),
            Target::Which(which) if !has_quote => {
                let text = wording::which_to_allow(&listed(which.into_iter().map(|at| &blocked[at])));
                self.tell(About::Nothing(()), text);
                Ok(true)
            }
            Target::Before(before) => {
                self.tell_from_before(reader, before.into_iter().map(|at| &blocked[at]), |_| true);
                Ok(true)
            }
            Target::Which(_) | Target::Unnamed(_) | Target::Overtaken(_) | Target::Nothing => Ok(false),
        }
    }

    /// Asks whether the message is to end a block, or to answer what is open; `false` if it came before every block.
    fn asks_what_to_allow(&self, reader: &Reader<'_>, blocked: &[Asked]) -> bool {
        let meant = match reader.target_block(None, blocked) {
            Target::One(at) | Target::Confirm(at) => vec![at],
            Target::Which(which) => which,
            Target::Before(_) | Target::Unnamed(_) | Target::Overtaken(_) | Target::Nothing => return false,
        };
        let text = wording::allow_or_answer(&listed(meant.into_iter().map(|at| &blocked[at])));
        self.tell(About::Nothing(()), text);
        true
    }

    async fn allow(&self, asked: &Asked) -> Result<(), NotStored> {
        let heard = Some(self.message.id.clone());
        let event = Event::Allow { source: Source::Route(asked.route), person: self.sender(asked), heard };
        match apply(self.broker, asked.ask.id, event).await? {
            Some((_, Some(refusal))) => self.tell(asked.about(), text::tame(&refusal.to_string())),
            Some((ask, None)) => self.send_receipt(asked.route, &ask),
            None => {}
        }
        Ok(())
    }
}

/// Blocks with their codes and a few words each.
fn listed<'a>(blocked: impl Iterator<Item = &'a Asked>) -> Vec<(String, String)> {
    let named = |ask: &Ask| Some((ask.short_id.to_string(), text::in_short(ask.content.questions.first()?)));
    blocked.filter_map(|asked| named(&asked.ask)).collect()
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
