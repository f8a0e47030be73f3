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
mod contacts;
mod deadline_text;
mod errors;
mod inbound;
mod outbox;
mod payload;
mod posting;
mod rates;
mod reader;
mod resolve;
mod send_log;
mod state_file;
mod statuses;
mod text;
mod webhook;
mod words;

#[cfg(test)]
mod text_tests;

use crate::host::broker::{Broker, Failure, WeakBroker};
use crate::host::channel::Adapter;
use crate::host::channel::signed::Webhooks;
use crate::host::ctx::Ctx;
use crate::host::keyed_lock::KeyedLock;
use crate::host::port::{Channel, Progress, Updated};
use crate::host::settings as host;
use crate::host::settings::whatsapp::Whatsapp as Settings;
use askd_core::{Ask, AskId, Capabilities, ChannelName, Event, Found, Posted, Refusal, Route, Time};
use async_trait::async_trait;
use axum::Router;
use callback_data::CallbackData;
use contacts::Contacts;
use outbox::Outbox;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::sync::broadcast;

/// How many statuses of closing messages are kept for a task that is waiting for one of them.
const CLOSINGS: usize = 4096;

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
    /// Held by person while one of their messages is dealt with.
    reading: KeyedLock<String>,
    /// Held by person while they are invited to write.
    inviting: KeyedLock<String>,
    /// The templates that wait for a person to write, by the name of the person.
    invited: Mutex<HashMap<String, String>>,
    /// The messages that were accepted of a question that needs several, by ask, route and question.
    begun: Mutex<HashMap<(AskId, usize, usize), Vec<String>>>,
    /// The closing messages that statuses tell of.
    closings: broadcast::Sender<CallbackData>,
}

/// Something could not be stored, so the webhook has to come again.
#[derive(Debug)]
struct NotStored;

/// WhatsApp, if the settings have its tokens. Reads what an earlier run has remembered.
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

    /// One message every 6 seconds to a person, some at once on credit.
    async fn wait_for_slot(&self, route: &Route) {
        self.0.outbox.wait_for_slot(&route.chat).await;
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
        self.0.outbox.is_away()
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
    /// Reads what an earlier run has remembered; connects to nothing yet.
    fn open(settings: Settings, state: &Path, ctx: Ctx) -> io::Result<Self> {
        let contacts = Arc::new(Contacts::open(state, &settings.phone_number_id, ctx.clock().clone())?);
        let outbox = Outbox::open(settings.clone(), Arc::clone(&contacts), state, ctx.clone())?;
        Ok(Self(Arc::new(Inner {
            settings,
            ctx,
            outbox,
            contacts,
            broker: OnceLock::new(),
            reading: KeyedLock::default(),
            inviting: KeyedLock::default(),
            invited: Mutex::default(),
            begun: Mutex::default(),
            closings: broadcast::Sender::new(CLOSINGS),
        })))
    }

    fn broker(&self) -> Option<Broker> {
        self.0.broker.get().and_then(WeakBroker::upgrade)
    }

    fn now(&self) -> Time {
        self.0.ctx.clock().now()
    }

    /// Learns that these ids belong to one person.
    fn same_person(&self, ids: &payload::UserIds) {
        if let (Some(wa_id), Some(user_id)) = (&ids.wa_id, &ids.user_id) {
            self.0.contacts.learn(wa_id, user_id);
        }
    }
}

/// The ask as it is stored, if there is one.
async fn load(broker: &Broker, id: AskId) -> Result<Option<Ask>, NotStored> {
    broker.get(id).await.map_err(|error| {
        tracing::error!(ask = %id, %error, "cannot read an ask");
        NotStored
    })
}

/// Applies an event. Returns the ask as it is now, and why the event was refused if it was; `None`: there is no such ask.
async fn apply(broker: &Broker, id: AskId, event: Event) -> Result<Option<(Ask, Option<Refusal>)>, NotStored> {
    match broker.apply(id, event).await {
        Ok(ask) => Ok(Some((*ask, None))),
        Err(Failure::Refused(refusal, ask)) => Ok(Some((*ask, Some(*refusal)))),
        Err(Failure::Unknown | Failure::Broken) => Ok(None),
        Err(Failure::NotStored | Failure::InDoubt) => Err(NotStored),
    }
}
