//! What leaves: one message to a person at a time, in order, and no faster than Meta allows. Each message is in the log
//! on stable storage before it leaves. Knows nothing of what asks are about.

use super::callback_data::{CallbackData, Kind};
use super::client::{Client, Content, Failure, Outgoing, TIMEOUT};
use super::contacts::Contacts;
use super::errors::Verdict;
use super::messages::About;
use super::owed::{Note, Owed};
use super::rates::Rates;
use super::send_log::SendLog;
use super::text;
use crate::clock::Moment;
use crate::host::backoff::Backoff;
use crate::host::ctx::Ctx;
use crate::host::keyed_lock::{KeyGuard, KeyedLock};
use crate::host::settings::WhatsappSettings as Settings;
use crate::host::standing::Problem;
use crate::host::store::Documents;
use crate::sabotage::on;
use askd_core::Left;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How often a note is sent whose replies get lost.
const NOTE_TRIES: u8 = 3;
/// First and longest pause before a refused note is tried again, if the platform names none.
const NOTE_PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));

/// How soon it is tried again to note that a message leaves, and to begin a call that had to wait for this daemon's lease.
const AGAIN: Duration = Duration::from_secs(1);

/// What came of a message.
#[derive(Debug)]
pub(super) enum Sent {
    /// The platform accepted it: its id, and when it left.
    Accepted(String, Left),
    /// The platform certainly did not accept it.
    Refused(Verdict),
    /// The reply was lost, so it may have left.
    Lost(Left),
    /// The daemon is stopping, or another one may be taking over, so the call was not made.
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
    pub(super) fn open(
        settings: Settings,
        contacts: Arc<Contacts>,
        documents: Arc<dyn Documents>,
        ctx: Ctx,
    ) -> io::Result<Self> {
        let now = ctx.clock().now();
        let log = SendLog::open(documents, &settings.phone_number_id, now)?;
        let ticks = ticks(&ctx);
        let bursts = if on("norates") { Vec::new() } else { log.bursts() };
        let bursts = bursts.into_iter().map(|(person, began, sent)| {
            let ago = u64::try_from(now.since(began).as_millis()).unwrap_or(u64::MAX);
            (person, ticks.saturating_sub(ago), sent)
        });
        let rates = Mutex::new(Rates::resumed(ticks, bursts));
        let client = Client::new(settings, ctx.clock().clone()).map_err(io::Error::other)?;
        Ok(Self(Arc::new(Inner { client, contacts, log, rates, order: KeyedLock::default(), ctx })))
    }

    /// What keeps calls from working.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.0.client.problem()
    }

    /// Calls WhatsApp while it is away.
    pub(super) async fn notice_its_return(&self) {
        self.0.client.notice_its_return().await;
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
            if !self.0.ctx.until_calls_may_begin().await {
                return None;
            }
            let next = self.0.rates.lock().next(&person, ticks(&self.0.ctx));
            let free = match next {
                Ok(number) => {
                    let now = self.0.ctx.clock().now();
                    if let Err(error) = self.0.log.sending(&person, number, message, now).await {
                        tracing::error!(%error, "cannot write state/channels/whatsapp-sent.json");
                        // Whoever takes over would take it for one that never left.
                        if !self.0.contacts.are_its_own() && !on("anytime") {
                            self.0.ctx.pause(AGAIN).await.then_some(())?;
                            continue;
                        }
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

    /// Sends a message in its slot, to where its person is now.
    pub(super) async fn send_in(&self, slot: Slot, message: &Outgoing<'_>, attempt: u8) -> Sent {
        let Inner { client, contacts, log, rates, ctx, .. } = &*self.0;
        let message = &Outgoing { to: &contacts.current(message.to), ..message.clone() };
        if !contacts.to_confirm(&slot.person).is_empty() {
            let leaves = |contacts: &Contacts| contacts.leaves(&slot.person, message.callback.as_ref());
            // If this fails, a crash may lead to a needless or a missing question whether the person meant it.
            let (_changed, _not_stored) = contacts.change_of(&slot.person, leaves).await;
        }
        let Some(within) = ctx.call_within(TIMEOUT) else {
            message.callback.iter().for_each(|callback| log.refused(callback));
            rates.lock().over(&slot.person, slot.began, ticks(ctx));
            return Sent::NotBegun;
        };
        let called = ctx.clock().now();
        let reply = client.send(message, attempt, within).await;
        let left = contacts.left(called, reply.date);
        if reply.wa_id.is_some_and(|wa_id| contacts.learn(message.to, &wa_id)) || contacts.tells_clock() {
            // If this fails, the next reply or status says it again.
            let _not_stored = contacts.save().await;
        }
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

    /// Goes on with what people still have to be told, in the background. What is owed counts once [`Contacts::save`] has returned.
    pub(super) fn resume(&self) {
        if self.0.contacts.sends() {
            self.0.contacts.owed().into_iter().for_each(|owed| self.deliver(owed));
        }
    }

    fn deliver(&self, owed: Owed) {
        if !self.0.contacts.takes_in_hand(&owed) {
            return;
        }
        let outbox = self.clone();
        self.0.ctx.finish(async move {
            for text in text::note(&owed.note.text) {
                if !outbox.send_note(&owed.note, &text).await {
                    return;
                }
            }
            outbox.0.contacts.told(&owed);
            // If this fails and askd restarts, it says it once more.
            let _not_stored = outbox.0.contacts.save().await;
        });
    }

    /// Sends a text of a note. `false`: the daemon is stopping, so it is still owed.
    async fn send_note(&self, note: &Note, text: &str) -> bool {
        let (mut lost, mut backoff) = (0, Backoff::new(NOTE_PAUSE.0, NOTE_PAUSE.1));
        let callback = note.ask.map(|ask| match note.confirms {
            Some((nth, _)) => CallbackData::note(ask, note.question, Kind::Confirmation, nth),
            None => CallbackData::note(ask, note.question, Kind::Note, 0),
        });
        // The window closes a day after the person wrote, and then the platform refuses the note for good.
        while lost < NOTE_TRIES {
            let message = Outgoing { to: &note.to, content: Content::Text(text), callback, quotes: None };
            match self.send(&message, 1).await {
                Sent::Accepted(id, left) => {
                    let (contacts, question) = (&self.0.contacts, note.question);
                    contacts.is_about(
                        &id,
                        match (note.ask, &note.confirms) {
                            (None, _) => About::Nothing(()),
                            (Some(ask), Some((nth, _))) => About::Request { ask, question, confirms: *nth },
                            (Some(ask), None) => About::Question { ask, question },
                        },
                    );
                    if let Some((nth, person)) = &note.confirms {
                        // The reply may have told another id of theirs.
                        let person = &contacts.person(person);
                        let left = |contacts: &Contacts| contacts.confirmation_left(person, *nth, &id, left.by, false);
                        // If this fails, the status says it again.
                        let ((), _not_stored) = contacts.change_of(person, left).await;
                    }
                    return true;
                }
                Sent::Refused(Verdict::Retry(after, _)) => {
                    let pause = backoff.pause();
                    if !self.0.ctx.pause(after.unwrap_or(pause)).await {
                        return false;
                    }
                }
                // Two notes are better than none: the person waits for a reply.
                Sent::Lost(_) => lost += 1,
                Sent::Refused(
                    Verdict::WindowClosed | Verdict::TemplateParameters | Verdict::Barred(..) | Verdict::Never(..),
                ) => {
                    return true;
                }
                Sent::NotBegun if self.0.ctx.pause(AGAIN).await => {}
                Sent::NotBegun => return false,
            }
        }
        true
    }
}

/// Milliseconds on the monotonic clock.
fn ticks(ctx: &Ctx) -> u64 {
    u64::try_from(ctx.clock().monotonic().since(Moment::default()).as_millis()).unwrap_or(u64::MAX)
}
