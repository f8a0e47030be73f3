//! When a question was sent to a person, and what came of it. This decides which messages can be about the question.
//! Only channels whose messages need not name their question record it.

use super::{MessageStatus, Posted, Source, Widget};
use crate::{AskState, Heard, Names, Person, Refusal, Time};
use serde::{Deserialize, Serialize};

/// One sending of one question to one person. For a text in parts it is the last part.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sending {
    /// The try it belongs to; each try sends once.
    pub attempt: u8,
    /// The number of the question.
    pub question: usize,
    /// The person, if it is not the chat of the route.
    pub to: Option<String>,
    /// The channel's id of the message; without one we do not know that it left.
    pub message: Option<String>,
    /// When our call began, and the earliest moment at which the message had certainly left, if the platform says
    /// nothing.
    pub left: Option<Left>,
    /// When the platform sent it, by its own clock.
    pub sent: Option<Time>,
    /// When it was first known to be on the person's device, by the same clock.
    pub delivered: Option<Time>,
    /// It will never be displayed.
    pub failed: bool,
}

/// When a message left us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// When the call began, by our own clock.
    pub called: Time,
    /// When it had certainly left, by the platform's clock; every uncertainty is added.
    pub by: Time,
}

impl Sending {
    /// Only a message that the platform received later than this can be about it; `None`: only one that names it.
    pub fn since(&self) -> Option<Time> {
        if self.failed || self.message.is_none() {
            return None;
        }
        // What is reckoned may be too late. It had certainly left when it was on the device.
        self.sent.or([self.left.map(|left| left.by), self.delivered].into_iter().flatten().min())
    }
}

impl Widget {
    /// The person that it went to.
    pub fn recipient<'a>(&'a self, sending: &'a Sending) -> &'a str {
        sending.to.as_ref().unwrap_or(&self.route.chat)
    }

    /// Records that the question is about to be sent.
    pub(super) fn sends(&mut self) {
        self.sendings.push(Sending {
            attempt: self.attempt,
            question: self.one_by_one.index,
            to: self.one_by_one.to.clone(),
            ..Sending::default()
        });
    }

    fn sending_mut(&mut self, attempt: u8) -> Option<&mut Sending> {
        self.sendings.iter_mut().find(|sending| sending.attempt == attempt)
    }

    /// Records what the call said about when the message left.
    pub(super) fn called(&mut self, attempt: u8, posted: &Posted) {
        let Some(sending) = self.sending_mut(attempt) else { return };
        match posted {
            Posted::Accepted(messages, left) => {
                sending.message = messages.last().cloned().or(sending.message.take());
                sending.left = *left;
            }
            Posted::Unknown(left) => sending.left = *left,
            Posted::Shown(message) => sending.message = Some(message.clone()),
            Posted::Held(_) | Posted::NotPosted { .. } | Posted::Never { .. } if sending.message.is_none() => {
                self.sendings.retain(|sending| sending.attempt != attempt);
            }
            Posted::Held(_) | Posted::NotPosted { .. } | Posted::Never { .. } => {}
        }
    }

    /// Whether the platform has said that this message of this try was displayed.
    pub(super) fn was_displayed(&self, attempt: u8, message: &str) -> bool {
        let displayed = |sending: &Sending| sending.delivered.is_some() && sending.message.as_deref() == Some(message);
        self.sendings.iter().any(|sending| sending.attempt == attempt && displayed(sending))
    }

    /// Records what the platform says of the message, by its own clock; `true` if that is new. Of a question in several
    /// messages only the last one counts.
    pub(super) fn told(&mut self, attempt: u8, message: &str, status: MessageStatus, at: Option<Time>) -> bool {
        let Some(sending) = self.sending_mut(attempt) else { return false };
        let before = sending.clone();
        let known = match status {
            MessageStatus::Known => return false,
            MessageStatus::Taken => &mut sending.sent,
            MessageStatus::Displayed => &mut sending.delivered,
            MessageStatus::Failed { .. } => return !std::mem::replace(&mut sending.failed, true),
        };
        *known = [*known, at].into_iter().flatten().min();
        sending.message.get_or_insert_with(|| message.to_owned());
        sending.failed &= status != MessageStatus::Displayed;
        *sending != before
    }
}

impl AskState {
    /// The sending by which the question reached that person on a route: of several copies, the earliest that did not
    /// fail. The first question reaches everybody through the chat.
    pub fn sending(&self, route: usize, person: &str, question: usize) -> Option<&Sending> {
        let widget = self.widgets.get(route)?;
        let chat = &widget.route.chat;
        let reaches = |sending: &&Sending| {
            let to = widget.recipient(sending);
            sending.question == question && !sending.failed && (to == person || (question == 0 && to == chat))
        };
        let sendings = widget.sendings.iter().filter(reaches);
        sendings.min_by_key(|sending| (sending.since().is_none(), sending.since(), sending.attempt))
    }

    /// Refuses a message that the platform received before it had sent the question, unless it names the question.
    pub(super) fn was_asked_before(
        &self,
        source: Source,
        person: &Person,
        question: usize,
        heard: &Heard,
    ) -> Result<(), Refusal> {
        let Source::Route(route) = source else { return Ok(()) };
        let asked = || self.sending(route, &person.id, question).and_then(Sending::since);
        match heard.names {
            Names::Message => Ok(()),
            Names::Code | Names::Nothing if asked().is_some_and(|asked| heard.at.is_some_and(|at| at > asked)) => {
                Ok(())
            }
            Names::Code | Names::Nothing => Err(Refusal::FromBefore),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::properties::{START, accepted};
    use super::*;
    use crate::{Ask, ChannelName, Event, Given, Reply, Trouble, Undelivered, Via, WidgetEvent};
    use std::time::Duration;

    fn at(seconds: u64) -> Time {
        START + Duration::from_secs(seconds)
    }

    fn step(ask: Ask, event: Event) -> Ask {
        ask.clone().step(event, at(0)).unwrap().map_or(ask, |step| step.ask)
    }

    fn posted(ask: Ask, attempt: u8, posted: Posted) -> Ask {
        let ask = step(ask, WidgetEvent::SlotGranted.on(0));
        step(ask, WidgetEvent::Posted { attempt, posted }.on(0))
    }

    fn fate(ask: Ask, attempt: u8, message: &str, fate: MessageStatus, at: Option<Time>) -> Ask {
        step(ask, WidgetEvent::Status { attempt, question: 0, message: message.to_owned(), status: fate, at }.on(0))
    }

    fn since(ask: &Ask) -> Option<Time> {
        ask.sending(0, "C1", 0).and_then(Sending::since)
    }

    fn begin() -> Ask {
        Ask::accept(accepted(&[ChannelName::WHATSAPP], 1, 3), at(0)).ask
    }

    #[test]
    fn the_platforms_own_word_comes_before_what_is_reckoned_and_nothing_before_it_left() {
        let left = Some(Left { called: at(10), by: at(12) });
        let ask = posted(begin(), 1, Posted::Unknown(left));
        assert_eq!(since(&ask), None, "nobody knows whether it left");
        let ask = fate(ask, 1, "q", MessageStatus::Displayed, None);
        assert_eq!(since(&ask), Some(at(12)), "it did, and this is when at the latest");
        let shown = fate(ask.clone(), 1, "q", MessageStatus::Displayed, Some(at(11)));
        assert_eq!(since(&shown), Some(at(11)), "it was on the device, and the word that it was sent comes later");
        let ask = fate(ask, 1, "q", MessageStatus::Taken, Some(at(11)));
        assert_eq!(since(&ask), Some(at(11)));
        let read = fate(ask.clone(), 1, "q", MessageStatus::Displayed, Some(at(50)));
        let read = fate(read, 1, "q", MessageStatus::Displayed, Some(at(40)));
        assert_eq!(read.sending(0, "C1", 0).unwrap().delivered, Some(at(40)), "delivered, then read, in any order");
        let failed = MessageStatus::Failed { why: Undelivered::ForGood, trouble: Trouble::ChatNotFound };
        assert_eq!(since(&fate(ask, 1, "q", failed, None)), None);
    }

    #[test]
    fn of_a_text_in_parts_the_last_part_counts_and_of_copies_the_first_that_did_not_fail() {
        let left = |seconds| Some(Left { called: at(seconds), by: at(seconds) });
        let ask = step(begin(), WidgetEvent::SlotGranted.on(0));
        let ask = fate(ask, 1, "piece", MessageStatus::Known, Some(at(1)));
        assert_eq!(since(&ask), None, "one part of it");
        let ask = step(ask, WidgetEvent::Posted { attempt: 1, posted: Posted::Unknown(None) }.on(0));
        let ask = step(ask, WidgetEvent::Looked(crate::Found::CannotKnow).on(0));
        let again = ask.clone().step(WidgetEvent::SlotGranted.on(0), at(60)).unwrap().unwrap().ask;
        let accepted = Posted::Accepted(vec!["p".to_owned(), "q2".to_owned()], left(62));
        let ask = step(again, WidgetEvent::Posted { attempt: 2, posted: accepted }.on(0));
        assert_eq!(since(&ask), Some(at(62)));
        let first = fate(ask, 1, "q1", MessageStatus::Taken, Some(at(3)));
        assert_eq!(since(&first), Some(at(3)), "the first one was there after all");
        let failed = MessageStatus::Failed { why: Undelivered::ForGood, trouble: Trouble::ChatNotFound };
        assert_eq!(since(&fate(first, 1, "q1", failed, None)), Some(at(62)), "but will not be displayed");
    }

    #[test]
    fn what_was_displayed_has_not_failed_in_whatever_order_that_is_said() {
        let failed = MessageStatus::Failed { why: Undelivered::ForGood, trouble: Trouble::ChatNotFound };
        let up = posted(begin(), 1, Posted::Shown("q1".to_owned()));
        let sent = fate(up.clone(), 1, "q1", MessageStatus::Taken, Some(at(1)));
        let shown = fate(sent, 1, "q1", MessageStatus::Displayed, Some(at(2)));
        let told = fate(shown.clone(), 1, "q1", failed, Some(at(3)));
        assert_eq!((told.outcome(), since(&told)), (None, Some(at(1))));
        let part = fate(shown, 1, "q0", failed, Some(at(3)));
        assert!(part.outcome().is_some(), "another part of it has failed");
        let two = Ask::accept(accepted(&[ChannelName::WHATSAPP, ChannelName::WEB], 1, 3), at(0)).ask;
        let up = posted(two, 1, Posted::Shown("q1".to_owned()));
        let late = fate(fate(up, 1, "q1", failed, None), 1, "q1", MessageStatus::Displayed, Some(at(2)));
        let late = fate(late, 1, "q1", MessageStatus::Taken, Some(at(1)));
        assert_eq!(since(&late), Some(at(1)));
    }

    #[test]
    fn what_failed_for_now_is_sent_again_whenever_word_comes_that_it_was_sent() {
        let failed = MessageStatus::Failed { why: Undelivered::ForNow(None), trouble: Trouble::RateLimited };
        let up = posted(begin(), 1, Posted::Shown("q1".to_owned()));
        let again = fate(fate(up, 1, "q1", failed, Some(at(1))), 1, "q1", MessageStatus::Taken, Some(at(0)));
        assert!(matches!(again.widgets[0].state, crate::WidgetState::Queued { .. }), "{:?}", again.widgets[0].state);
        assert_eq!((again.widgets[0].attempt, again.outcome()), (2, None));
        let shown = fate(again, 1, "q1", MessageStatus::Displayed, Some(at(2)));
        assert!(matches!(shown.widgets[0].state, crate::WidgetState::Up { .. }), "{:?}", shown.widgets[0].state);
    }

    #[test]
    fn an_invitation_is_kept_and_asks_no_question() {
        let ask = posted(begin(), 1, Posted::Held("template".to_owned()));
        let widget = &ask.widgets[0];
        assert_eq!(widget.messages().collect::<Vec<_>>(), ["template"]);
        assert_eq!((widget.question_of("template"), widget.invitation()), (None, Some("template")));
    }

    #[test]
    fn the_question_that_is_on_its_way_to_one_person_is_not_taken_for_shown_when_another_one_replies() {
        let says = |ask: Ask, who: &str| {
            let heard = Heard { message: format!("of {who}"), at: None, names: Names::Message };
            let reply = Reply::Told { index: 0, given: Given { picks: vec![0], text: None }, heard };
            let person = Person { via: Via::Channel(ChannelName::WHATSAPP), id: who.to_owned(), name: None };
            step(ask, Event::Replied { source: Source::Route(0), person, reply })
        };
        let ask = Ask::accept(accepted(&[ChannelName::WHATSAPP], 3, 3), at(0)).ask;
        let ask = says(posted(ask, 1, Posted::Shown("q1".to_owned())), "alice");
        let ask = says(step(ask, WidgetEvent::SlotGranted.on(0)), "bob");
        assert_eq!((ask.widgets[0].asked(), ask.widgets[0].attempt), ("alice", 2), "her second question leaves first");
        let ask = step(ask, WidgetEvent::Posted { attempt: 2, posted: Posted::Shown("q2".to_owned()) }.on(0));
        assert_eq!((ask.widgets[0].asked(), ask.widgets[0].attempt), ("bob", 3));
        // Word of her question that comes late is about that one, though the same question is on its way to him.
        let late = Posted::Accepted(vec!["q2, too".to_owned()], None);
        let ask = step(ask, WidgetEvent::Posted { attempt: 2, posted: late }.on(0));
        assert_eq!(ask.widgets[0].question_of("q2, too"), Some(1));
    }

    #[test]
    fn the_core_itself_refuses_what_came_before() {
        let left = Some(Left { called: at(10), by: at(10) });
        let ask = posted(begin(), 1, Posted::Accepted(vec!["q".to_owned()], left));
        let reply = |names, received: Option<u64>, dismisses: bool| {
            let heard = Heard { message: "m".to_owned(), at: received.map(at), names };
            let told = Reply::Told { index: 0, given: Given { picks: vec![0], text: None }, heard: heard.clone() };
            let reply = if dismisses { Reply::ToldDismiss(heard) } else { told };
            let person = Person { via: Via::Channel(ChannelName::WHATSAPP), id: "alice".to_owned(), name: None };
            ask.clone().step(Event::Replied { source: Source::Route(0), person, reply }, at(99))
        };
        for dismisses in [false, true] {
            for names in [Names::Code, Names::Nothing] {
                for received in [None, Some(0), Some(9), Some(10)] {
                    assert_eq!(reply(names, received, dismisses), Err(Refusal::FromBefore), "{names:?} {received:?}");
                }
                assert!(reply(names, Some(11), dismisses).unwrap().is_some());
            }
            assert!(reply(Names::Message, None, dismisses).unwrap().is_some(), "a quote proves itself");
        }
    }
}
