//! WhatsApp through the Cloud API: an ask is numbered text, one question after the other.
//!
//! [`Outbox`] sends, [`Contacts`] knows people, [`reader`] says what a message means, and this adapter joins them behind
//! the port. Statuses, not the replies to our calls, say what was displayed. The core decides who may answer and what
//! happens next.

mod allowing;
mod answering;
mod callback_data;
mod client;
mod closing;
mod confirmations;
mod confirming;
mod contacts;
mod deadline_text;
mod entries;
mod errors;
mod identities;
mod inbound;
mod messages;
mod outbox;
mod owed;
mod payload;
mod posting;
mod rates;
mod reader;
mod resolve;
mod send_log;
mod state_file;
mod statuses;
mod taps;
mod text;
mod together;
mod waiting;
mod webhook;
mod words;

#[cfg(test)]
mod text_tests;

use crate::host::broker::{Broker, WeakBroker};
use crate::host::channel::Adapter;
use crate::host::channel::signed::Webhooks;
use crate::host::ctx::Ctx;
use crate::host::keyed_lock::KeyedLock;
use crate::host::settings as host;
use crate::host::settings::{Secrets, WhatsappSettings as Settings};
use crate::host::store::Documents;
use crate::sabotage::on;
use askd_core::{AskId, ChannelName, Time};
use async_trait::async_trait;
use axum::Router;
use callback_data::CallbackData;
use contacts::Contacts;
pub(in crate::host) use contacts::{FILE as REMEMBERED, last_wrote};
use jiff::Zoned;
use jiff::tz::TimeZone;
use outbox::Outbox;
use parking_lot::Mutex;
use posting::Begun;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, OnceLock};
use together::News;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Semaphore, broadcast, watch};
use waiting::Waiting;

/// How many statuses of closing messages are kept for a task that is waiting for one of them.
const CLOSINGS: usize = 4096;
/// How many webhooks may have messages that wait for a status.
const PLACES: usize = 1_000;

/// The channel. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Whatsapp(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    settings: Settings,
    ctx: Ctx,
    outbox: Outbox,
    contacts: Arc<Contacts>,
    broker: OnceLock<WeakBroker>,
    /// Logs what Meta's lateness leads to.
    webhooks: OnceLock<Webhooks>,
    /// The messages that wait for a status.
    waiting: Waiting,
    /// Places for webhooks with such messages. Meta alone goes on with those that find none.
    places: Arc<Semaphore>,
    /// Held while webhooks that other daemons have kept are dealt with.
    taking_kept: tokio::sync::Mutex<()>,
    /// Held by person while they are invited to write.
    inviting: KeyedLock<String>,
    /// The templates that wait for a person to write, by the name of the person.
    invited: Mutex<HashMap<String, Invitation>>,
    /// Questions of several messages of which some were accepted, by ask, route and question.
    begun: Mutex<HashMap<(AskId, usize, usize), Begun>>,
    /// The closing messages that are sent again.
    closing_again: Mutex<HashSet<(AskId, usize)>>,
    /// The closing messages that statuses tell of.
    closings: broadcast::Sender<CallbackData>,
    /// Changes whenever a status was taken in, or a message that had to wait.
    statuses: watch::Sender<()>,
}

/// A template that was sent to a person, and the question that it was sent for.
#[derive(Debug, Clone)]
struct Invitation {
    message: String,
    ask: AskId,
    route: usize,
}

/// WhatsApp, if the settings have its tokens. Reads what an earlier run has remembered; connects to nothing yet.
pub(in crate::host) fn open(
    all: &host::Settings,
    documents: &Arc<dyn Documents>,
    ctx: &Ctx,
) -> io::Result<Option<Arc<dyn Adapter>>> {
    let Some(settings) = all.whatsapp.clone() else { return Ok(None) };
    let contacts = Contacts::open(Arc::clone(documents), &settings.phone_number_id, ctx.clock().clone())?;
    let contacts = Arc::new(contacts);
    let outbox = Outbox::open(settings.clone(), Arc::clone(&contacts), Arc::clone(documents), ctx.clone())?;
    Ok(Some(Arc::new(Whatsapp(Arc::new(Inner {
        settings,
        ctx: ctx.clone(),
        outbox,
        contacts,
        broker: OnceLock::new(),
        webhooks: OnceLock::new(),
        waiting: Waiting::default(),
        places: Arc::new(Semaphore::new(PLACES)),
        closing_again: Mutex::default(),
        taking_kept: tokio::sync::Mutex::default(),
        inviting: KeyedLock::default(),
        invited: Mutex::default(),
        begun: Mutex::default(),
        closings: broadcast::Sender::new(CLOSINGS),
        statuses: watch::Sender::new(()),
    })))))
}

#[async_trait]
impl Adapter for Whatsapp {
    fn connect(&self, broker: &Broker, webhooks: &Webhooks) -> Router {
        let routes = self.connect_beside(broker, webhooks);
        if !on("forgetnotes") {
            self.0.outbox.resume();
        }
        self.close_what_is_owed();
        if let Some(news) = self.0.contacts.news() {
            let channel = self.clone();
            self.0.ctx.spawn(async move { channel.act_on(news).await });
        }
        routes
    }

    /// The leader sends, and acts on what others read.
    fn connect_beside(&self, broker: &Broker, webhooks: &Webhooks) -> Router {
        if self.0.broker.set(broker.downgrade()).is_err() {
            tracing::error!("the WhatsApp channel belongs to another broker");
        }
        self.0.webhooks.get_or_init(|| webhooks.clone());
        webhook::routes(self.clone(), webhooks.clone())
    }

    async fn keep_up(&self) {
        // It is told of, and happens again with the next look.
        let _away = self.0.contacts.catch_up().await;
        let _later = self.0.contacts.begin_later().await;
        // What was stored with something else, after a turn that was lost.
        if !on("forgetnotes") {
            self.0.outbox.resume();
        }
        webhook::take_kept(self).await;
    }

    /// Notices that WhatsApp is back.
    fn start(&self, _broker: &Broker) {
        let outbox = self.0.outbox.clone();
        self.0.ctx.spawn(async move { outbox.notice_its_return().await });
    }
}

impl Whatsapp {
    fn broker(&self) -> Option<Broker> {
        self.0.broker.get().and_then(WeakBroker::upgrade)
    }

    /// Does what follows from what other daemons have read and stored.
    async fn act_on(&self, mut news: UnboundedReceiver<News>) {
        while let Some(one) = news.recv().await {
            match one {
                News::Wrote(id) => drop(self.0.invited.lock().remove(&self.0.contacts.person(&id))),
                News::Notes => self.0.outbox.resume(),
                News::Unclosed => self.close_what_is_owed(),
                News::Closing(closing) => drop(self.0.closings.send(closing)),
            }
        }
    }

    fn now(&self) -> Time {
        self.0.ctx.clock().now()
    }

    /// The app's secrets as a reload may have changed them: one is replaced without a moment in which replies are refused.
    fn app_secrets(&self) -> Secrets {
        let now = self.broker().and_then(|broker| Some(broker.settings().whatsapp.as_ref()?.app_secrets.clone()));
        now.unwrap_or_else(|| self.0.settings.app_secrets.clone())
    }

    /// The time by the clock of that chat.
    fn now_in(&self, chat: &str) -> Zoned {
        let zone = self.broker().and_then(|broker| broker.settings().time_zone(ChannelName::WHATSAPP, chat));
        deadline_text::zoned(self.now(), zone.unwrap_or_else(TimeZone::system))
    }

    /// Learns that these ids belong to one person.
    fn same_person(&self, ids: &payload::UserIds) {
        let contacts = &self.0.contacts;
        // Anybody may have an id that its person has left.
        let is_current = |id: &String| contacts.current(id) == *id;
        if let (Some(wa_id), Some(user_id)) = (&ids.wa_id, &ids.user_id)
            && [wa_id, user_id].into_iter().all(is_current)
        {
            contacts.learn(wa_id, user_id);
        }
    }
}
