//! The channel port for WhatsApp: questions, invitations to write and reminders on their way to a person.

use super::callback_data::{CallbackData, Kind};
use super::client::{Content, Outgoing};
use super::errors::Verdict;
use super::messages::About;
use super::outbox::{Sent, Slot};
use super::text::{self, How};
use super::{Invitation, Whatsapp, deadline_text, taps};
use crate::host::channel::Adapter as _;
use crate::host::port::{Channel, Progress, Reminded, Updated};
use crate::host::standing::Problem;
use askd_core::{Ask, Capabilities, ChannelName, Found, Posted, Route, Time, Trouble, Widget, WidgetState, wording};
use async_trait::async_trait;
use std::pin::pin;
use std::time::Duration;

/// How long askd waits for a status that says what became of a message whose call was lost. (Half of that was too short
/// for a thousand asks at once: questions that had arrived were asked again.)
pub(super) const LISTEN: Duration = Duration::from_secs(60);

/// A question of several messages.
#[derive(Debug)]
pub(super) struct Begun {
    /// The ids of those that were accepted.
    accepted: Vec<String>,
    /// All of them, as they were packed then.
    texts: Vec<String>,
}

/// The widget of a route, and the person who is asked there now.
fn asked(ask: &Ask, route: usize) -> Option<(&Widget, &str)> {
    ask.widgets.get(route).map(|widget| (widget, widget.asked()))
}

#[async_trait]
impl Channel for Whatsapp {
    fn name(&self) -> ChannelName {
        ChannelName::WHATSAPP
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { edits: false, history: false, forms: false, lists_itself: false }
    }

    /// One message every 6 seconds to a person, some at once on credit.
    async fn wait_for_slot(&self, route: &Route) {
        self.0.outbox.wait_for_slot(&route.chat).await;
    }

    /// Posts the next question of a route.
    async fn post(&self, ask: &Ask, route: usize, attempt: u8, progress: Progress<'_>) -> Option<Posted> {
        let Some((widget, to)) = asked(ask, route) else {
            return Some(Posted::Never { trouble: Trouble::Unknown, why: "the route is gone".to_owned() });
        };
        self.knows_windows().await;
        if !self.0.contacts.window_is_open(to) {
            // Another daemon may have kept a message of theirs for this one.
            self.keep_up().await;
        }
        if !self.0.contacts.window_is_open(to) {
            return self.invite(ask, route, attempt, to).await;
        }
        let (part, repeated) = (widget.one_by_one.index, widget.one_by_one.repeated);
        let key = (ask.id, route, part);
        // A repetition says everything again; after a refusal only the rest is sent.
        let begun = self.0.begun.lock().remove(&key).filter(|_| !repeated);
        let anew = || Begun { accepted: Vec::new(), texts: self.question_texts(ask, route, part, to, repeated) };
        let Begun { mut accepted, texts } = begun.unwrap_or_else(anew);
        let question = ask.content.questions.get(part).filter(|_| !ask.is_blocked());
        let taps = question.zip(texts.last());
        let taps = taps
            .and_then(|(question, text)| taps::interactive(ask.id, part, question, text, &self.app_secrets().newest));
        let mut left = None;
        for (at, text) in texts.iter().enumerate().skip(accepted.len()) {
            let kind = if at + 1 == texts.len() { Kind::Question } else { Kind::Part };
            let callback = Some(CallbackData { ask: ask.id, route, attempt, part, kind });
            let content = match &taps {
                Some(interactive) if kind == Kind::Question => Content::Interactive(interactive),
                _ => Content::Text(text),
            };
            let message = Outgoing { to, content, callback, quotes: None };
            let sent = loop {
                let slot = self.slot(ask, to, callback.as_ref(), progress).await?;
                // The ask may be over by now, or another attempt on its way.
                if !self.is_being_posted(ask, route, attempt).await {
                    return None;
                }
                match self.0.outbox.send_in(slot, &message, attempt).await {
                    // Another daemon may be taking over. If none does, this goes on.
                    Sent::NotBegun if !self.0.ctx.is_cut() => {}
                    sent => break sent,
                }
            };
            let posted = match sent {
                Sent::Accepted(id, when) => {
                    accepted.push(id);
                    left = Some(when);
                    continue;
                }
                Sent::NotBegun => return None,
                // Only the last message says when the question left.
                Sent::Lost(when) => Posted::Unknown(Some(when).filter(|_| kind == Kind::Question)),
                Sent::Refused(Verdict::WindowClosed) => {
                    self.window_closed(to).await;
                    return self.invite(ask, route, attempt, to).await;
                }
                Sent::Refused(verdict) => refused(verdict),
            };
            if !accepted.is_empty() {
                self.0.begun.lock().insert(key, Begun { accepted, texts });
            }
            return Some(posted);
        }
        Some(Posted::Accepted(accepted, left))
    }

    /// There is no history to look into. A message that had not begun to leave before a restart is not there. For any
    /// other, a status comes within a minute and reaches the ask by itself.
    async fn find(&self, ask: &Ask, route: usize) -> Found {
        if let Some(widget) = ask.widgets.get(route) {
            let message = CallbackData { ask: ask.id, route, attempt: widget.attempt, part: 0, kind: Kind::Question };
            if !self.0.outbox.may_have_left(&message) {
                return Found::Absent;
            }
        }
        self.0.ctx.clock().sleep(LISTEN).await;
        Found::CannotKnow
    }

    async fn wait_for_person(&self, person: &str, until: Time) -> bool {
        self.0.contacts.window_opens(person, until).await
    }

    async fn update(&self, ask: &Ask, route: usize) -> Updated {
        // A sent message stays as it is; the next reminder says the new deadline.
        if ask.is_over() { self.close(ask, route).await } else { Updated::Done }
    }

    /// Reminds the person of a question that they have, in a message that quotes it and is tried once. The core decides
    /// when a reminder is due.
    async fn remind(&self, ask: &Ask, route: usize) -> Reminded {
        self.bring_to_mind(ask, route).await.unwrap_or(Reminded::LeftOut)
    }

    fn problem(&self) -> Option<Problem> {
        self.0.outbox.problem()
    }
}

impl Whatsapp {
    /// `None`: there is nobody to remind.
    async fn bring_to_mind(&self, ask: &Ask, route: usize) -> Option<Reminded> {
        let mut reminded = None;
        for (to, question) in reminds(ask, route) {
            let one = self.remind_person(ask, route, to, question).await;
            if reminded != Some(Reminded::Sent) {
                reminded = one.or(reminded);
            }
        }
        reminded
    }

    /// Another daemon may have read what opens a window, or that one is closed.
    pub(super) async fn knows_windows(&self) {
        // In doubt the platform says it.
        let _away = self.0.contacts.catch_up().await;
    }

    async fn remind_person(&self, ask: &Ask, route: usize, to: &str, question: usize) -> Option<Reminded> {
        self.knows_windows().await;
        if !self.0.contacts.window_is_open(to) {
            tracing::info!(ask = %ask.id, "a reminder is left out: the person has not written within 24 hours");
            return None;
        }
        let slot = self.0.outbox.slot(to, None).await?;
        // After the wait the question may be settled, or the person may have another one.
        let ask = self.broker()?.get(ask.id).await.ok()??;
        if ask.outcome().is_some() || !reminds(&ask, route).contains(&(to, question)) {
            return None;
        }
        let widget = ask.widgets.get(route)?;
        let theirs = ask.sending(route, to, question).and_then(|sending| sending.message.as_deref());
        let current = |message: &&str| widget.question_of(message) == Some(question);
        let quotes = theirs.or_else(|| widget.messages().rev().find(current)).or(widget.messages().next_back());
        let text = wording::whatsapp_reminder(&deadline_text::line(&ask, &self.now_in(to)));
        let callback = Some(CallbackData { route, ..CallbackData::note(ask.id, question, Kind::Note, 0) });
        let message = Outgoing { to, content: Content::Text(&text), callback, quotes };
        match self.0.outbox.send_in(slot, &message, 1).await {
            Sent::Accepted(id, _) => {
                self.0.contacts.is_about(&id, About::Question { ask: ask.id, question });
                // If this fails, the status says it again.
                let _not_stored = self.0.contacts.save().await;
                return Some(Reminded::Sent);
            }
            Sent::Refused(Verdict::WindowClosed) => self.window_closed(to).await,
            // The next reminder will be sent.
            Sent::Refused(_) | Sent::NotBegun => {}
            Sent::Lost(_) => return Some(Reminded::Unknown),
        }
        None
    }
}

impl Whatsapp {
    /// Waits for the message's turn. The render timeout counts from the moment when it has that: nobody can display a message that askd
    /// holds back itself.
    async fn slot(&self, ask: &Ask, to: &str, message: Option<&CallbackData>, progress: Progress<'_>) -> Option<Slot> {
        let mut slot = pin!(self.0.outbox.slot(to, message));
        let mut waited = false;
        loop {
            let granted = self.0.ctx.clock().timeout(ask.rules.render_timeout / 2, &mut slot).await;
            waited |= granted.is_none();
            if waited {
                progress();
            }
            if let Some(slot) = granted {
                return slot;
            }
        }
    }

    /// Whether this attempt is the one that is on its way. In doubt it is.
    async fn is_being_posted(&self, ask: &Ask, route: usize, attempt: u8) -> bool {
        let now = match self.broker() {
            Some(broker) => broker.get(ask.id).await,
            None => return true,
        };
        let widget = |ask: &Ask| ask.widgets.get(route).cloned();
        now.ok()
            .flatten()
            .and_then(|ask| widget(&ask))
            .is_none_or(|widget| widget.attempt == attempt && matches!(widget.state, WidgetState::Sent { .. }))
    }

    /// A question as that person reads it.
    pub(super) fn question_texts(&self, ask: &Ask, route: usize, part: usize, to: &str, repeat: bool) -> Vec<String> {
        if ask.is_blocked() {
            return text::blocked(ask);
        }
        let broker = self.broker();
        let chat = ask.route(route).map_or("", |place| &place.chat);
        let shared = broker.as_ref().is_some_and(|broker| broker.settings().shares(ChannelName::WHATSAPP, chat));
        let ids = self.0.contacts.all_ids(&[to.to_owned()]);
        let several = broker.is_some_and(|broker| broker.asked_of(&ids).iter().any(|id| *id != ask.id));
        let how = How {
            group: shared.then_some(ask.group.as_str()),
            agent: (!shared).then_some(ask.group.as_str()),
            code: several.then_some(ask.short_id.as_str()),
            repeat,
            until: Some(&deadline_text::line(ask, &self.now_in(chat))),
        };
        text::question(&ask.content, part, how)
    }

    /// Whether the question that the invitation was sent for still waits for the person to write. In doubt it does. A
    /// person who let that question end has put the invitation aside, so the next question needs another one.
    async fn still_waits(&self, invitation: &Invitation) -> bool {
        // It failed, as another daemon was told.
        if self.0.contacts.has_seen(&invitation.message) {
            return false;
        }
        let Some(broker) = self.broker() else { return true };
        let Ok(ask) = broker.get(invitation.ask).await else { return true };
        let open = ask.filter(|ask| ask.outcome().is_none());
        open.and_then(|ask| ask.widgets.get(invitation.route).map(|widget| widget.state.clone()))
            .is_some_and(|state| matches!(state, WidgetState::Held { .. } | WidgetState::Sent { .. }))
    }

    /// The window is closed: an approved template asks the person to write.
    async fn invite(&self, ask: &Ask, route: usize, attempt: u8, to: &str) -> Option<Posted> {
        let template = &self.0.settings.template;
        if template.is_empty() {
            return Some(refused(Verdict::WindowClosed));
        }
        let person = self.0.contacts.person(to);
        let _one_at_a_time = self.0.inviting.lock(person.clone()).await;
        let invited = self.0.invited.lock().get(&person).cloned();
        if let Some(invitation) = invited
            && self.still_waits(&invitation).await
        {
            // One invitation is enough for all questions that come meanwhile.
            return Some(Posted::Held(invitation.message));
        }
        let callback = Some(CallbackData { ask: ask.id, route, attempt, part: 0, kind: Kind::Template });
        let invite = async |group| {
            let content = Content::Template(template, &self.0.settings.template_language, group);
            self.0.outbox.send(&Outgoing { to, content, callback, quotes: None }, attempt).await
        };
        let sent = match invite(Some(ask.group.as_str())).await {
            // The template has no parameter for the name of the group.
            Sent::Refused(Verdict::TemplateParameters) => invite(None).await,
            other => other,
        };
        match sent {
            Sent::Accepted(id, _) => {
                let invitation = Invitation { message: id.clone(), ask: ask.id, route };
                // The reply may have told another id of theirs.
                let person = self.0.contacts.person(to);
                self.0.invited.lock().insert(person, invitation);
                Some(Posted::Held(id))
            }
            Sent::NotBegun => None,
            Sent::Lost(_) => Some(Posted::Unknown(None)),
            Sent::Refused(verdict) => Some(refused(verdict)),
        }
    }
}

/// Who has a question of this route that waits for them, and which one.
fn reminds(ask: &Ask, route: usize) -> Vec<(&str, usize)> {
    let mut all: Vec<_> = displayed(ask, route).map(|(widget, to)| (to, widget.one_by_one.index)).into_iter().collect();
    for other in ask.others_asked(route) {
        if !all.contains(&other) {
            all.push(other);
        }
    }
    all
}

/// The same as [`asked`], once it is proven that the person has the question.
fn displayed(ask: &Ask, route: usize) -> Option<(&Widget, &str)> {
    asked(ask, route).filter(|(widget, _)| matches!(widget.state, WidgetState::Up { proven: true, .. }))
}

fn refused(verdict: Verdict) -> Posted {
    let never = |trouble, why: &str| Posted::Never { trouble, why: why.to_owned() };
    match verdict {
        Verdict::Retry(after, trouble) => {
            let retry_after_millis = after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX));
            Posted::NotPosted { retry_after_millis, trouble }
        }
        Verdict::Barred(trouble, why) | Verdict::Never(trouble, why) => Posted::Never { trouble, why },
        Verdict::WindowClosed => never(Trouble::WindowClosed, wording::NO_TEMPLATE),
        Verdict::TemplateParameters => never(Trouble::Refused, wording::TEMPLATE_PARAMETERS),
    }
}
