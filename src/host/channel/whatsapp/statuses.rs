//! What became of our messages: whether they were displayed or failed, and to whom they went.

use super::Whatsapp;
use super::callback_data::{CallbackData, Kind};
use super::errors::{Verdict, WINDOW_CLOSED, verdict};
use super::inbound::is_known;
use super::messages::About;
use super::payload::{Progress, Status};
use crate::host::broker::Broker;
use crate::host::channel::{NotStored, apply, load};
use askd_core::{MessageStatus, Posted, Trouble, Undelivered, WidgetEvent, WidgetState};
use std::time::Duration;

/// What helps against a failure, and what the agent is told of it.
fn undelivered(progress: &Progress) -> Option<(Undelivered, Trouble)> {
    let Progress::Failed { code, title } = progress else { return None };
    let (undelivered, trouble, why) = match verdict(*code, title, 1) {
        Verdict::Barred(trouble, why) | Verdict::Never(trouble, why) => (Undelivered::ForGood, trouble, why),
        Verdict::Retry(after, trouble) => (Undelivered::ForNow(after), trouble, title.clone()),
        Verdict::WindowClosed => (Undelivered::WindowClosed, Trouble::WindowClosed, title.clone()),
        Verdict::TemplateParameters => (Undelivered::ForGood, Trouble::Refused, title.clone()),
    };
    tracing::warn!(code, why, "WhatsApp could not deliver a message that it had accepted");
    Some((undelivered, trouble))
}

impl Whatsapp {
    /// Takes a status in. Statuses may come in any order and any number of times. What the channel remembers of it comes first: what follows
    /// in the ask may depend on it.
    pub(super) async fn status(&self, broker: &Broker, status: Status) -> Result<(), NotStored> {
        let contacts = &self.0.contacts;
        let turn = contacts.turn(status.ids.any().map_or("", String::as_str)).await?;
        self.same_person(&status.ids);
        let window = matches!(status.progress, Progress::Failed { code: WINDOW_CLOSED, .. });
        let failed = undelivered(&status.progress);
        // A repeated status says nothing about the window as it is now.
        if let Some(person) = status.ids.any().filter(|_| window && !contacts.has_seen(&status.id)) {
            contacts.window_closed(person, status.at.unwrap_or_default() + Duration::from_millis(999));
        }
        let Some(callback) = status.callback.as_deref().and_then(CallbackData::parse) else { return turn.end().await };
        self.recognise(broker, &callback, &status).await?;
        let (ask, route, attempt) = (callback.ask, callback.route, callback.attempt);
        let event = match (callback.kind, failed) {
            (Kind::Question | Kind::Part, failed) => {
                let status_of = match (failed, callback.kind, &status.progress) {
                    (Some((why, trouble)), ..) => MessageStatus::Failed { why, trouble },
                    (None, Kind::Question, Progress::Delivered) => MessageStatus::Displayed,
                    (None, Kind::Question, _) => MessageStatus::Taken,
                    (None, ..) => MessageStatus::Known,
                };
                let message = status.id.clone();
                WidgetEvent::Status { attempt, question: callback.part, message, status: status_of, at: status.at }
            }
            (Kind::Template, Some(failed)) => {
                contacts.saw(&status.id);
                turn.end().await?;
                return self.invitation_failed(broker, &callback, &status, failed).await;
            }
            (Kind::Template, None) => WidgetEvent::Posted { attempt, posted: Posted::Held(status.id.clone()) },
            (Kind::Closing, Some(_)) => return self.closing_failed(turn, &callback, &status, window).await,
            (Kind::Note | Kind::Confirmation, Some(_)) => return turn.end().await,
            (kind @ (Kind::Closing | Kind::Note | Kind::Confirmation), None) => {
                self.learn_about(kind, &callback, &status);
                // The reply to our call may have been lost, and then nothing else says what a quote of it means.
                return turn.end().await;
            }
        };
        turn.end().await?;
        apply(broker, ask, event.on(route)).await.map(drop)
    }

    /// Learns what a message that asks no question is about.
    fn learn_about(&self, kind: Kind, callback: &CallbackData, status: &Status) {
        let (contacts, ask, question) = (&self.0.contacts, callback.ask, callback.part);
        let about = match kind {
            Kind::Closing => About::Ask(ask),
            Kind::Confirmation => About::Request { ask, question, confirms: callback.attempt },
            _ => About::Question { ask, question },
        };
        contacts.is_about(&status.id, about);
        if kind == Kind::Closing {
            self.heard_of_closing(*callback);
        }
        if kind == Kind::Confirmation
            && let (Progress::Sent, Some(sent), Some(person)) = (&status.progress, status.at, status.ids.any())
        {
            contacts.confirmation_left(&contacts.person(person), callback.attempt, &status.id, sent, true);
        }
    }

    /// Learns another number of the person a question was sent to, if the statuses of the question name it.
    async fn recognise(&self, broker: &Broker, callback: &CallbackData, status: &Status) -> Result<(), NotStored> {
        let Some(number) = status.ids.wa_id.as_ref().filter(|_| callback.kind.asks()) else { return Ok(()) };
        if is_known(broker, &self.0.contacts.all_ids(std::slice::from_ref(number))) {
            return Ok(());
        }
        let Some(ask) = load(broker, callback.ask).await? else { return Ok(()) };
        let Some(widget) = ask.widgets.get(callback.route) else { return Ok(()) };
        let sending = widget.sendings.iter().find(|sending| sending.attempt == callback.attempt);
        let to = sending.and_then(|sending| sending.to.as_ref()).unwrap_or(&widget.route.chat);
        self.0.contacts.learn(to, number);
        Ok(())
    }

    /// The invitation to write did not arrive: none of the questions that wait for it will be shown.
    async fn invitation_failed(
        &self,
        broker: &Broker,
        callback: &CallbackData,
        status: &Status,
        (why, trouble): (Undelivered, Trouble),
    ) -> Result<(), NotStored> {
        // An invitation needs no open window.
        let why = if why == Undelivered::WindowClosed { Undelivered::ForGood } else { why };
        self.0.invited.lock().retain(|_, invitation| invitation.message != status.id);
        self.catch_up(broker).await?;
        let mut asks = broker.asked_of(&self.0.contacts.all_ids(&status.ids.all()));
        if !asks.contains(&callback.ask) {
            asks.push(callback.ask);
        }
        for id in asks {
            let Some(ask) = load(broker, id).await? else { continue };
            for (route, widget) in ask.widgets.iter().enumerate() {
                let waits = match widget.state {
                    WidgetState::Held { .. } => widget.invitation() == Some(&status.id),
                    // The status came before the reply to our call.
                    WidgetState::Sent { .. } | WidgetState::Unknown { .. } => {
                        (id, route, widget.attempt) == (callback.ask, callback.route, callback.attempt)
                    }
                    // Whatever became of the invitation: the question is on its way, or there, or has ended.
                    WidgetState::Queued { .. }
                    | WidgetState::Up { .. }
                    | WidgetState::Failed { .. }
                    | WidgetState::Closed { .. } => false,
                };
                if waits {
                    let event = WidgetEvent::Status {
                        attempt: widget.attempt,
                        question: widget.one_by_one.index,
                        message: status.id.clone(),
                        status: MessageStatus::Failed { why, trouble },
                        at: None,
                    };
                    apply(broker, id, event.on(route)).await?;
                }
            }
        }
        Ok(())
    }
}
