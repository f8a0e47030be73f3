//! What leaves: one message to a person at a time, in order, and no faster than Meta allows. Each message is in the log
//! on stable storage before it leaves. Knows nothing of what asks are about.

use super::callback_data::{CallbackData, Kind};
use super::client::{Client, Content, Failure, Outgoing};
use super::contacts::Contacts;
use super::errors::Verdict;
use super::rates::Rates;
use super::send_log::SendLog;
use super::text;
use crate::clock::Moment;
use crate::host::ctx::Ctx;
use crate::host::keyed_lock::{KeyGuard, KeyedLock};
use crate::host::settings::WhatsappSettings as Settings;
use crate::sabotage::on;
use askd_core::{AskId, Left};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How often a note is tried.
const NOTE_TRIES: u8 = 3;
/// The pause between these tries, if the platform names none.
const NOTE_PAUSE: Duration = Duration::from_secs(2);

/// What came of a message.
#[derive(Debug)]
pub(super) enum Sent {
    /// The platform accepted it: its id, and when it left.
    Accepted(String, Left),
    /// The platform certainly did not accept it.
    Refused(Verdict),
    /// The reply was lost, so it may have left.
    Lost(Left),
    /// The daemon is stopping, so the call was not made.
    NotBegun,
}

/// See the module. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Outbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    contacts: Arc<Contacts>,
    log: SendLog,
    rates: Mutex<Rates>,
    /// Held by person while a message is sent.
    order: KeyedLock<String>,
    /// The notes that are on their way, by recipient, text and number: no note is sent twice at a time.
    notes: Mutex<HashSet<(String, String, Option<u8>)>>,
    ctx: Ctx,
}

/// The right to send one message to a person now.
pub(super) struct Slot {
    person: String,
    began: u64,
    _order: KeyGuard,
}

impl Outbox {
    /// Reads what an earlier run has sent. Connects to nothing yet.
    pub(super) fn open(settings: Settings, contacts: Arc<Contacts>, state: &Path, ctx: Ctx) -> io::Result<Self> {
        let now = ctx.clock().now();
        let log = SendLog::open(state, &settings.phone_number_id, now)?;
        let ticks = ticks(&ctx);
        let bursts = if on("norates") { Vec::new() } else { log.bursts() };
        let bursts = bursts.into_iter().map(|(person, began, sent)| {
            let ago = u64::try_from(now.since(began).as_millis()).unwrap_or(u64::MAX);
            (person, ticks.saturating_sub(ago), sent)
        });
        let rates = Mutex::new(Rates::resumed(ticks, bursts));
        let client = Client::new(settings, ctx.clock().clone()).map_err(io::Error::other)?;
        let (order, notes) = (KeyedLock::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { client, contacts, log, rates, order, notes, ctx })))
    }

    /// Whether WhatsApp did not answer when it was called last.
    pub(super) fn is_away(&self) -> bool {
        self.0.client.is_away()
    }

    /// Whether the message may have left before a restart. In doubt it may.
    pub(super) fn may_have_left(&self, message: &CallbackData) -> bool {
        self.0.log.may_have_left(message)
    }

    async fn sleep_to(&self, ticks: u64) {
        self.0.ctx.clock().sleep_to(Moment::default() + Duration::from_millis(ticks)).await;
    }

    /// Waits until a message to that person may begin, and keeps its place for a while.
    pub(super) async fn wait_for_slot(&self, to: &str) {
        let person = self.0.contacts.person(to);
        loop {
            let granted = self.0.rates.lock().grant(&person, ticks(&self.0.ctx));
            match granted {
                Ok(()) => return,
                Err(then) => self.sleep_to(then).await,
            }
        }
    }

    /// Waits until a message to that person may leave; `None` if the daemon stops. The log has it when this returns.
    pub(super) async fn slot(&self, to: &str, message: Option<&CallbackData>) -> Option<Slot> {
        let person = self.0.contacts.person(to);
        let order = self.0.order.lock(person.clone()).await;
        loop {
            let next = self.0.rates.lock().next(&person, ticks(&self.0.ctx));
            let free = match next {
                Ok(number) => {
                    let now = self.0.ctx.clock().now();
                    if let Err(error) = self.0.log.sending(&person, number, message, now).await {
                        tracing::error!(%error, "cannot write state/channels/whatsapp-sent.json");
                    }
                    // The write took its time, so the message begins only now.
                    let began = ticks(&self.0.ctx);
                    let free = self.0.rates.lock().begin(&person, began);
                    match free {
                        Ok(()) => return Some(Slot { person, began, _order: order }),
                        Err(then) => then,
                    }
                }
                Err(then) => then,
            };
            self.0.ctx.unless_cut(self.sleep_to(free)).await?;
        }
    }

    /// Sends a message when the rates allow it. `attempt`: which try this is, for pauses that grow with it.
    pub(super) async fn send(&self, message: &Outgoing<'_>, attempt: u8) -> Sent {
        match self.slot(message.to, message.callback.as_ref()).await {
            Some(slot) => self.send_in(slot, message, attempt).await,
            None => Sent::NotBegun,
        }
    }

    /// Sends a message in its slot.
    pub(super) async fn send_in(&self, slot: Slot, message: &Outgoing<'_>, attempt: u8) -> Sent {
        let Inner { client, contacts, log, rates, ctx, .. } = &*self.0;
        let called = ctx.clock().now();
        let reply = client.send(message, attempt).await;
        if reply.wa_id.is_some_and(|wa_id| contacts.learn(message.to, &wa_id)) {
            // If this fails, the next reply or status says it again.
            let _not_stored = contacts.save().await;
        }
        let left = contacts.left(called, reply.date);
        rates.lock().over(&slot.person, slot.began, ticks(ctx));
        match reply.result {
            Ok(id) => Sent::Accepted(id, left),
            Err(Failure::Lost) => Sent::Lost(left),
            Err(Failure::Refused(verdict)) => {
                if let Some(callback) = &message.callback {
                    log.refused(callback);
                }
                Sent::Refused(verdict)
            }
        }
    }

    /// Sends a text that nothing depends on, in the background.
    pub(super) fn note(&self, to: &str, ask: Option<AskId>, text: String) {
        self.send_aside(to, text, ask.map(|ask| CallbackData::note(ask, Kind::Note, 0)), None);
    }

    /// Sends a request for confirmation in the background. `person` is asked to confirm request number `nth`.
    pub(super) fn ask_to_confirm(&self, to: &str, ask: AskId, text: String, person: String, nth: u8) {
        self.send_aside(to, text, Some(CallbackData::note(ask, Kind::Confirmation, nth)), Some(person));
    }

    fn send_aside(&self, to: &str, text: String, callback: Option<CallbackData>, confirms: Option<String>) {
        // Each request for confirmation is about other words, so one on its way does not stand for the next.
        let key = (to.to_owned(), text, callback.map(|callback| callback.attempt));
        if !self.0.notes.lock().insert(key.clone()) {
            return;
        }
        let outbox = self.clone();
        self.0.ctx.finish(async move {
            let contacts = &outbox.0.contacts;
            for text in text::note(&key.1) {
                let sent = outbox.send_note(&key.0, &text, callback).await;
                if let (Some((id, left)), Some(person), Some(callback)) = (sent, &confirms, callback) {
                    contacts.confirmation_left(person, callback.attempt, &id, left.by, false);
                    // If this fails and askd restarts, it asks for the confirmation once more.
                    let _not_stored = contacts.save().await;
                }
            }
            outbox.0.notes.lock().remove(&key);
        });
    }

    async fn send_note(&self, to: &str, text: &str, callback: Option<CallbackData>) -> Option<(String, Left)> {
        for attempt in 1..=NOTE_TRIES {
            let message = Outgoing { to, content: Content::Text(text), callback, quotes: None };
            match self.send(&message, attempt).await {
                Sent::Accepted(id, left) => {
                    if let Some(callback) = callback {
                        self.0.contacts.is_about(&id, callback.ask);
                    }
                    return Some((id, left));
                }
                Sent::Refused(Verdict::Retry(after, _)) => {
                    if !self.0.ctx.pause(after.unwrap_or(NOTE_PAUSE)).await {
                        return None;
                    }
                }
                // Two notes are better than none: the person waits for a reply.
                Sent::Lost(_) => {}
                Sent::Refused(Verdict::WindowClosed | Verdict::TemplateParameters | Verdict::Never(..))
                | Sent::NotBegun => return None,
            }
        }
        None
    }
}

/// Milliseconds on the monotonic clock.
fn ticks(ctx: &Ctx) -> u64 {
    u64::try_from(ctx.clock().monotonic().since(Moment::default()).as_millis()).unwrap_or(u64::MAX)
}
