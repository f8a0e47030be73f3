//! WhatsApp through the Cloud API: numbers, and everything around them.
//!
//! An ask is shown as numbered text, one question after the other; what people write is read in
//! [`inbound`] and comes to the broker as events. Statuses, not the answers to our calls, say what was
//! displayed. Who may answer and what happens next is the core's to say.

mod allowing;
mod answering;
mod callback_data;
mod client;
mod closing;
mod coalesced_file;
mod contacts;
mod deadline_text;
mod errors;
mod inbound;
mod payload;
mod posting;
mod rates;
mod reading;
mod reminding;
mod resolve;
mod send_log;
pub(crate) mod settings;
mod statuses;
mod text;
mod webhook;

#[cfg(test)]
mod text_tests;

use crate::clock::Moment;
use crate::host::broker::{Broker, WeakBroker};
use crate::host::channel::Adapter;
use crate::host::channel::signed::Webhooks;
use crate::host::ctx::Ctx;
use crate::host::keyed_lock::KeyedLock;
use crate::host::port::{Channel, Progress, Updated};
use crate::host::settings as host;
use crate::sabotage::on;
use askd_core::{Ask, AskId, Capabilities, ChannelName, Found, Left, Posted, Route, Time};
use async_trait::async_trait;
use axum::Router;
use callback_data::CallbackData;
use client::{Answer, Client, Outgoing, Sent};
use contacts::Contacts;
use parking_lot::Mutex;
use rates::{Pair, Throughput};
use send_log::{Attempt, SendLog};
use settings::Whatsapp as Settings;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// What the clock that only goes forward shows at the start; before it lies what was sent before.
const START: u64 = 86_400_000;
/// This long after the date of the answer to its call, which is in whole seconds, a message has certainly left.
const AFTER_DATE: Duration = Duration::from_secs(1);
/// The same if the answer was lost: two clocks may differ, and nobody measured how long the call took to arrive.
const AFTER_CALL: Duration = Duration::from_secs(5);
/// Milliseconds after which a call is over for certain.
const LONGEST_CALL: u64 = 10_000;

/// The channel. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Whatsapp(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    client: Client,
    contacts: Contacts,
    send_log: SendLog,
    ctx: Ctx,
    started: Moment,
    broker: OnceLock<WeakBroker>,
    pairs: Mutex<HashMap<String, Pair>>,
    throughput: Mutex<Throughput>,
    /// One message to a person at a time, so that they arrive in order.
    sending: KeyedLock<String>,
    /// One message of a person at a time.
    reading: KeyedLock<String>,
    /// The messages that are up of a question that needs several, by ask, route and question.
    begun: Mutex<HashMap<(AskId, usize, usize), Vec<String>>>,
    /// Templates that wait for a person to write.
    invited: Mutex<HashMap<String, String>>,
    /// Closing lines that a status has told of.
    closed: Mutex<HashSet<(AskId, usize, usize)>>,
    /// Notes that wait to be sent: the same one is not sent twice at a time.
    notes: Mutex<HashSet<(String, String, Option<u8>)>>,
}

/// WhatsApp, if the settings have its tokens. Reads what was remembered.
pub(in crate::host) fn open(settings: &host::Settings, ctx: &Ctx) -> io::Result<Option<Arc<dyn Adapter>>> {
    let state = settings.state_dir();
    let open = |settings: &Settings| Whatsapp::open(settings.clone(), &state, ctx.clone());
    let opened = settings.whatsapp.as_ref().map(open).transpose()?;
    Ok(opened.map(|whatsapp| Arc::new(whatsapp) as Arc<dyn Adapter>))
}

#[async_trait]
impl Channel for Whatsapp {
    fn name(&self) -> ChannelName {
        ChannelName::WHATSAPP
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { edits: false, history: false, forms: false, lists_itself: false }
    }

    /// One message every 6 seconds to a person, a few at once on credit.
    async fn wait_for_slot(&self, route: &Route) {
        let person = self.0.contacts.one_name(&route.chat);
        loop {
            let now = self.ticks();
            let turn = self.0.pairs.lock().entry(person.clone()).or_default().turn(now);
            match turn {
                Ok(()) => return,
                Err(then) => self.sleep_to(then).await,
            }
        }
    }

    async fn post(&self, ask: &Ask, route: usize, attempt: u8, _progress: Progress<'_>) -> Option<Posted> {
        self.post_question(ask, route, attempt).await
    }

    async fn find(&self, ask: &Ask, route: usize) -> Found {
        self.find_sent(ask, route).await
    }

    async fn wait_for_person(&self, ask: &Ask, route: usize, until: Time) -> bool {
        self.wait_for_window(ask, route, until).await
    }

    async fn update(&self, ask: &Ask, route: usize) -> Updated {
        // A sent message stays as it is; the next reminder says the new deadline.
        if ask.is_over() { self.close(ask, route).await } else { Updated::Done }
    }

    async fn remind(&self, ask: &Ask, route: usize) {
        self.remind_person(ask, route).await;
    }

    fn is_away(&self) -> bool {
        self.0.client.is_away()
    }
}

impl Adapter for Whatsapp {
    fn connect(&self, broker: &Broker, webhooks: &Webhooks) -> Router {
        if self.0.broker.set(broker.downgrade()).is_err() {
            tracing::error!("the WhatsApp channel belongs to another broker");
        }
        self.close_what_is_owed();
        webhook::routes(self.clone(), webhooks.clone())
    }
}

impl Whatsapp {
    fn open(settings: Settings, state: &Path, ctx: Ctx) -> io::Result<Self> {
        let contacts = Contacts::open(state, &settings.phone_number_id)?;
        let now = ctx.clock().now();
        let started = ctx.clock().monotonic();
        let send_log = SendLog::open(state, &settings.phone_number_id, now)?;
        let debts = if on("norates") { Vec::new() } else { send_log.debts() };
        let pairs = debts.into_iter().map(|(person, debt)| {
            let ago = u64::try_from(now.since(debt.began).as_millis()).unwrap_or(u64::MAX).min(START);
            let began = START - ago;
            // The call of the first message was over then at the latest.
            (person, Pair::resumed(began, START.min(began + LONGEST_CALL), debt.sent))
        });
        Ok(Self(Arc::new(Inner {
            client: Client::new(settings, ctx.clock().clone()).map_err(io::Error::other)?,
            contacts,
            send_log,
            ctx,
            started,
            broker: OnceLock::new(),
            pairs: Mutex::new(pairs.collect()),
            throughput: Mutex::new(Throughput::after_restart(START)),
            sending: KeyedLock::default(),
            reading: KeyedLock::default(),
            begun: Mutex::default(),
            invited: Mutex::default(),
            closed: Mutex::default(),
            notes: Mutex::default(),
        })))
    }

    fn broker(&self) -> Option<Broker> {
        self.0.broker.get().and_then(WeakBroker::upgrade)
    }

    fn now(&self) -> Time {
        self.0.ctx.clock().now()
    }

    /// Milliseconds on a clock that only goes forward.
    fn ticks(&self) -> u64 {
        u64::try_from(self.0.ctx.clock().monotonic().since(self.0.started).as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(START)
    }

    /// Waits on the same clock; `false` if a stop cuts the wait off.
    async fn until(&self, ticks: u64) -> bool {
        self.0.ctx.unless_cut(self.sleep_to(ticks)).await.is_some()
    }

    async fn sleep_to(&self, ticks: u64) {
        self.0.ctx.clock().sleep_to(self.0.started + Duration::from_millis(ticks.saturating_sub(START))).await;
    }

    /// Sends a message when the rates allow it, and keeps the person's messages in order. Returns when it left, if it
    /// did.
    async fn send(&self, message: &Outgoing<'_>, attempt: u8) -> (Sent, Option<Left>) {
        let person = self.0.contacts.one_name(message.to);
        let _in_order = self.0.sending.lock(person.clone()).await;
        let of = CallbackData::read(&message.tag).filter(|tag| tag.kind.asks());
        let of = of.map(|tag| Attempt { ask: tag.ask, route: tag.route, number: tag.attempt });
        let Some(began) = self.begin(&person, of).await else { return (Sent::NotBegun, None) };
        let (sent, left) = self.call(&person, began, message, attempt).await;
        if let (Sent::Refused(_), Some(of)) = (&sent, of) {
            self.0.send_log.refused(of);
        }
        (sent, Some(left))
    }

    /// Makes the call that [`Self::begin`] has given way to.
    async fn call(&self, person: &str, began: u64, message: &Outgoing<'_>, attempt: u8) -> (Sent, Left) {
        let called = self.now();
        let Answer { sent, date, wa_id } = self.0.client.send(message, attempt).await;
        if wa_id.is_some_and(|wa_id| self.0.contacts.learn(message.to, &wa_id)) {
            // If this fails, the next answer or status tells it again.
            let _not_stored = self.save().await;
        }
        let left = self.left(called, date);
        let now = self.ticks();
        let mut pairs = self.0.pairs.lock();
        if let Some(pair) = pairs.get_mut(person) {
            pair.over(began, now);
        }
        pairs.retain(|_, pair| !pair.is_idle(now));
        (sent, left)
    }

    /// The time by which a message had certainly left, by the platform's clock.
    fn left(&self, called: Time, date: Option<Time>) -> Left {
        let contacts = &self.0.contacts;
        let by = match date {
            Some(date) => {
                contacts.compare_clocks(date, self.now());
                date + AFTER_DATE
            }
            None => contacts.by_their_clock(called) + AFTER_CALL,
        };
        Left { called, by }
    }

    /// Waits until a message may go, of that try of a question if it is one; when it did, or `None` if the
    /// daemon stops. What leaves is on stable storage before.
    async fn begin(&self, person: &str, of: Option<Attempt>) -> Option<u64> {
        loop {
            let mut next = self.0.pairs.lock().get(person).cloned().unwrap_or_default();
            let mut free = next.begin(self.ticks());
            if free.is_ok() {
                if let Err(error) = self.0.send_log.sending(person, next.sent(), of, self.now()).await {
                    tracing::error!(%error, "cannot write state/channels/whatsapp-sent.json");
                }
                // Storing may have taken its time: only now it counts.
                let now = self.ticks();
                let mut pairs = self.0.pairs.lock();
                let pair = pairs.entry(person.to_owned()).or_default();
                let mut tried = pair.clone();
                free = tried.begin(now).and_then(|()| self.0.throughput.lock().begin(now));
                if free.is_ok() {
                    *pair = tried;
                    return Some(now);
                }
            }
            if let Err(then) = free
                && !self.until(then).await
            {
                return None;
            }
        }
    }
}
