//! What became of messages of ours: proof of display, late failures, and who is who.

use super::Whatsapp;
use super::callback_data::{CallbackData, Kind};
use super::errors::trouble;
use super::inbound::NotStored;
use super::payload::{Progress, Status};
use crate::host::broker::{Broker, Failure};
use askd_core::{AskId, Event, MessageStatus, Posted, Trouble, WidgetEvent};
use std::time::Duration;

/// Failed, because the person has to write first.
const WINDOW: u64 = 131_047;

impl Whatsapp {
    /// Takes a status in. Any order, any number of times.
    pub(super) async fn status(&self, broker: &Broker, status: Status) -> Result<(), NotStored> {
        if let (Some(number), Some(scoped)) = (&status.ids.wa_id, &status.ids.user_id) {
            self.0.contacts.learn(number, scoped);
        }
        let failed = match &status.progress {
            Progress::Failed { code, title } => {
                tracing::warn!(code, title, "WhatsApp could not deliver a message it had taken");
                self.lapse(&status, *code);
                Some(trouble(*code))
            }
            _ => None,
        };
        let Some(tag) = status.tag.as_deref().and_then(CallbackData::read) else { return Ok(()) };
        self.recognise(broker, &tag, &status).await?;
        let window = matches!(status.progress, Progress::Failed { code: WINDOW, .. });
        let report = |message_status| {
            WidgetEvent::Status {
                attempt: tag.attempt,
                question: tag.part,
                message: status.id.clone(),
                status: message_status,
                at: status.at,
            }
            .on(tag.route)
        };
        match (tag.kind, failed) {
            (Kind::Question | Kind::Part, Some(trouble)) => {
                happen(broker, tag.ask, report(MessageStatus::Failed { window, trouble })).await
            }
            (Kind::Question, None) if status.progress == Progress::Delivered => {
                happen(broker, tag.ask, report(MessageStatus::Displayed)).await
            }
            (Kind::Question, None) => happen(broker, tag.ask, report(MessageStatus::Taken)).await,
            (Kind::Part, None) => happen(broker, tag.ask, report(MessageStatus::Known)).await,
            (Kind::Template, Some(trouble)) => self.uninvited(broker, &tag, &status, trouble).await,
            (Kind::Template, None) => {
                let posted = Posted::Held(status.id.clone());
                happen(broker, tag.ask, WidgetEvent::Posted { attempt: tag.attempt, posted }.on(tag.route)).await
            }
            (Kind::Closing, None) => {
                self.0.contacts.about(&status.id, tag.ask, self.now());
                self.told_closed(&tag);
                Ok(())
            }
            (Kind::Confirmation, None) => {
                let person = status.ids.wa_id.as_ref().or(status.ids.user_id.as_ref());
                if let (Progress::Sent, Some(sent), Some(person)) = (&status.progress, status.at, person) {
                    let person = self.0.contacts.one_name(person);
                    self.0.contacts.confirmation_left(&person, tag.attempt, &status.id, sent, true);
                }
                self.0.contacts.about(&status.id, tag.ask, self.now());
                Ok(())
            }
            (Kind::Note, None) => {
                self.0.contacts.about(&status.id, tag.ask, self.now());
                Ok(())
            }
            (Kind::Closing, Some(_)) => self.not_closed(&tag, &status, window).await,
            (Kind::Note | Kind::Confirmation, Some(_)) => Ok(()),
        }
    }

    /// Learns another number of the person a question was sent to, if the statuses of the question name it.
    async fn recognise(&self, broker: &Broker, tag: &CallbackData, status: &Status) -> Result<(), NotStored> {
        let Some(number) = status.ids.wa_id.as_ref().filter(|_| tag.kind.asks()) else { return Ok(()) };
        let ids = self.0.contacts.person(std::slice::from_ref(number));
        if broker.settings().may_write_on_whatsapp(&ids) || !broker.asked_of(&ids).is_empty() {
            return Ok(());
        }
        let Some(ask) = broker.show(tag.ask).await.map_err(|_| NotStored)? else { return Ok(()) };
        let (Some(place), Some(widget)) = (ask.rules.routes.get(tag.route), ask.widgets.get(tag.route)) else {
            return Ok(());
        };
        let sending = widget.sendings.iter().find(|sending| sending.attempt == tag.attempt);
        let to = sending.and_then(|sending| sending.to.as_ref()).unwrap_or(&place.chat);
        if self.0.contacts.learn(to, number) { self.save().await } else { Ok(()) }
    }

    /// The platform says that the chat is closed.
    fn lapse(&self, status: &Status, code: u64) {
        // A repeated status says nothing about the chat as it is now.
        if code == WINDOW
            && !self.0.contacts.has_seen(&status.id)
            && let Some(id) = status.ids.wa_id.as_ref().or(status.ids.user_id.as_ref())
        {
            self.0.contacts.lapsed(id, status.at.unwrap_or_default() + Duration::from_millis(999));
        }
    }

    /// The invitation to write did not arrive: nothing that waits for it will be shown.
    async fn uninvited(
        &self,
        broker: &Broker,
        tag: &CallbackData,
        status: &Status,
        trouble: Trouble,
    ) -> Result<(), NotStored> {
        self.0.invited.lock().retain(|_, message| *message != status.id);
        let ids: Vec<String> = [&status.ids.wa_id, &status.ids.user_id].into_iter().flatten().cloned().collect();
        let mut asks = broker.asked_of(&self.0.contacts.person(&ids));
        if !asks.contains(&tag.ask) {
            asks.push(tag.ask);
        }
        for id in asks {
            let ask = match broker.show(id).await {
                Ok(Some(ask)) => ask,
                Ok(None) => continue,
                Err(_) => return Err(NotStored),
            };
            for (route, widget) in ask.widgets.iter().enumerate() {
                let ours = widget.messages.contains(&status.id) || (id == tag.ask && route == tag.route);
                if ours {
                    let failed = MessageStatus::Failed { window: false, trouble };
                    let (attempt, part, message) = (widget.attempt, widget.one_by_one.index, status.id.clone());
                    happen(
                        broker,
                        id,
                        WidgetEvent::Status { attempt, question: part, message, status: failed, at: None }.on(route),
                    )
                    .await?;
                }
            }
        }
        Ok(())
    }
}

async fn happen(broker: &Broker, id: AskId, event: Event) -> Result<(), NotStored> {
    match broker.happen(id, event).await {
        Err(Failure::NotStored | Failure::InDoubt) => Err(NotStored),
        Ok(_) | Err(Failure::Unknown | Failure::Refused(..) | Failure::Broken) => Ok(()),
    }
}
