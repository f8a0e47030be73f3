//! Brings an open question to a person's mind: a line that quotes it, worth one try. When it is due is
//! the core's to say.

use super::Whatsapp;
use super::callback_data::{CallbackData, Kind};
use super::client::{Content, Outgoing, Sent};
use super::deadline_text;
use super::errors::Verdict;
use askd_core::{Ask, WidgetState, wording};

impl Whatsapp {
    /// Reminds whoever is being asked, if they have the question and may be written to.
    pub(super) async fn remind_person(&self, ask: &Ask, route: usize) {
        let Some(to) = asked(ask, route) else { return };
        let person = self.0.contacts.one_name(&to);
        let _in_order = self.0.sending.lock(person.clone()).await;
        if !self.0.contacts.is_open(&to, self.now()) {
            tracing::info!(ask = %ask.id, "a reminder is left out: the person has not written within 24 hours");
            return;
        }
        let Some(began) = self.begin(&person, None).await else { return };
        // The wait may have been long: it may be settled by now, or be somebody else's turn.
        let Some(broker) = self.broker() else { return };
        let ask = match broker.show(ask.id).await {
            Ok(Some(ask)) if ask.outcome().is_none() && asked(&ask, route) == Some(to.clone()) => ask,
            _ => return,
        };
        let text = wording::whatsapp_reminder(&deadline_text::line(&ask, self.now()));
        let tag = CallbackData { ask: ask.id, route, attempt: 0, part: 0, kind: Kind::Note }.to_string();
        let quotes = question(&ask, route);
        let message = Outgoing { to: &to, content: Content::Text(&text), tag, quotes };
        match self.call(&person, began, &message, 1).await.0 {
            Sent::Id(id) => self.0.contacts.about(&id, ask.id, self.now()),
            Sent::Refused(Verdict::Window) => self.0.contacts.lapsed(&to, self.now()),
            // The next one comes.
            Sent::Refused(_) | Sent::Lost | Sent::NotBegun => {}
        }
    }
}

/// Who has the question of a route before them: nobody, while it is not proven that it is displayed.
fn asked(ask: &Ask, route: usize) -> Option<String> {
    let (place, widget) = (ask.rules.routes.get(route)?, ask.widgets.get(route)?);
    let displayed = matches!(widget.state, WidgetState::Up { proven: true, .. });
    displayed.then(|| widget.one_by_one.to.clone().unwrap_or_else(|| place.chat.clone()))
}

/// The message with the question that is up now.
fn question(ask: &Ask, route: usize) -> Option<&str> {
    let widget = ask.widgets.get(route)?;
    let of = |message: &&String| widget.question_of(message) == Some(widget.one_by_one.index);
    widget.messages.iter().rev().find(of).or(widget.messages.last()).map(String::as_str)
}
