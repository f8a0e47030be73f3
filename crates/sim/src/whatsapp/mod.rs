//! A strict stand-in of the WhatsApp Cloud API: the calls `askd` makes, the webhooks Meta sends, and a
//! page that looks like the person's phone.
//!
//! Does: text, reply buttons, lists and templates within Meta's limits; pair and throughput limits; the
//! 24-hour window with its late failure; signed webhooks in Meta's shapes, batched, doubled, shuffled and
//! retried on request; faults; people with and without a visible number; phones that are off.
//! Does not: media, groups, calls, flows, payments, template review, several numbers (start two).
//! What is not known for sure about Meta is said in the module it concerns (`error`, `pace`, `check`,
//! `sign`, `event`, `state`, `graph`); where readings differ, the stricter one is built.
//! Called by tests, the demo and benches through [`Whatsapp`], and by `askd sim whatsapp` through [`run`].
//! Knows nothing of the daemon.

mod check;
mod climb;
mod clock;
mod config;
mod control;
mod courier;
mod error;
mod event;
mod fault;
mod graph;
mod message;
mod pace;
mod page;
mod person;
mod random;
mod run;
mod sign;
mod state;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

pub use config::{Business, Config, Ladder, Shapes, Template, Traffic};
pub use event::Sending;
pub use fault::{Fault, FaultMix};
pub use message::{Call, Message, Person, Posted, Stage, Tap};
pub use run::{Args, run};

use crate::line::{Line, Lines};
use state::Hub;

/// A running stand-in; dropping it closes the port and ends its tasks.
pub struct Whatsapp {
    hub: Arc<Hub>,
    address: SocketAddr,
}

impl Drop for Whatsapp {
    fn drop(&mut self) {
        self.hub.stop.cancel();
    }
}

impl Whatsapp {
    /// Binds 127.0.0.1 and serves. Errors: the port is taken, or no HTTP client can be built.
    pub async fn start(config: Config) -> io::Result<Self> {
        // Another founder of the process may have chosen one already; then that one stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            // Only addresses on this machine are called, without TLS; reading the system's certificates takes longer than all else here.
            .tls_certs_only([])
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(Duration::from_secs(5))
            .build()
            .map_err(io::Error::other)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)).await?;
        let address = listener.local_addr()?;
        let (events, coming) = mpsc::unbounded_channel();
        let hub = Arc::new(Hub::new(config, http, events));
        tokio::spawn(courier::run(Arc::clone(&hub), coming));
        let ours = control::routes().merge(page::routes()).layer(axum::middleware::from_fn(page::local_only));
        let reached = axum::middleware::from_fn_with_state(Arc::clone(&hub), graph::reached);
        let app: Router<Arc<Hub>> = graph::routes()
            .layer(reached)
            .merge(ours)
            .layer(axum::middleware::from_fn_with_state(Arc::clone(&hub), graph::dated));
        let service = app.with_state(Arc::clone(&hub)).into_make_service_with_connect_info::<Line>();
        let lines = Lines { listener, stop: hub.stop.clone() };
        let stop = hub.stop.clone().cancelled_owned();
        tokio::spawn(async move { axum::serve(lines, service).with_graceful_shutdown(stop).await });
        Ok(Self { hub, address })
    }

    /// `http://127.0.0.1:PORT`: the page, and `/control` below it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `http://127.0.0.1:PORT/v25.0`, in place of `https://graph.facebook.com/v25.0`.
    #[must_use]
    pub fn api_url(&self) -> String {
        format!("{}/v25.0", self.url())
    }

    /// What it was started with.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.hub.config
    }

    /// Where webhooks go from now on; `None`: nowhere.
    pub fn set_webhook(&self, url: Option<&str>) {
        self.hub.lock().webhook = url.map(str::to_owned);
    }

    /// The verification handshake with the webhook. `Err` says what came instead of the challenge.
    pub async fn handshake(&self) -> Result<(), String> {
        courier::handshake(&self.hub).await
    }

    /// Adds a person (or renews one and keeps the chat).
    pub fn add_person(&self, person: Person) {
        self.hub.add_person(person);
    }

    /// Switches a phone. Off, messages stay at `sent`, and what the person writes waits.
    pub fn phone(&self, who: &str, on: bool) {
        self.hub.phone(who, on);
    }

    /// Somebody opens the chat: what is delivered becomes read.
    pub fn opens_chat(&self, who: &str) {
        self.hub.opens_chat(who);
    }

    /// Whether a number has WhatsApp; without it messages fail late with 131026.
    pub fn reachable(&self, who: &str, on: bool) {
        self.hub.reachable(who, on);
    }

    /// All the business sent to a person, in the order of acceptance, shown or not.
    #[must_use]
    pub fn messages_to(&self, who: &str) -> Vec<Message> {
        let state = self.hub.lock();
        let chat = state.key(who).and_then(|k| state.chats.get(&k));
        chat.map(|c| c.messages.iter().filter(|m| m.outgoing).cloned().collect()).unwrap_or_default()
    }

    /// One message by its id, as it stands now.
    #[must_use]
    pub fn message(&self, id: &str) -> Option<Message> {
        self.hub.lock().message(id).cloned()
    }

    /// The first message of the business, accepted at any time, that the predicate likes; waits up to
    /// `timeout` of real time. `|m| m.stage.shown() && …` waits until a phone shows it.
    pub async fn wait_for_message(&self, like: impl Fn(&Message) -> bool, timeout: Duration) -> Option<Message> {
        let mut changed = self.hub.changed.subscribe();
        let search = async {
            loop {
                let found = {
                    let state = self.hub.lock();
                    let outgoing = state.chats.values().flat_map(|c| &c.messages).filter(|m| m.outgoing);
                    outgoing.filter(|m| like(m)).min_by_key(|m| m.at).cloned()
                };
                if found.is_some() || changed.changed().await.is_err() {
                    return found;
                }
            }
        };
        tokio::time::timeout(timeout, search).await.ok().flatten()
    }

    /// Waits until something about the stand-in is true (looked at after every change).
    pub async fn wait_until(&self, is_true: impl Fn(&Self) -> bool, timeout: Duration) -> bool {
        let mut changed = self.hub.changed.subscribe();
        let search = async { while !is_true(self) && changed.changed().await.is_ok() {} };
        tokio::time::timeout(timeout, search).await.is_ok() && is_true(self)
    }

    /// Moves the stand-in's clock forward: windows close, rates recover.
    pub fn advance(&self, by: Duration) {
        self.hub.clock.advance(by);
        self.hub.bump();
    }

    /// The next calls go wrong in this way.
    pub fn fault(&self, fault: Fault, times: usize) {
        self.hub.lock().faults.queue(fault, times);
    }

    /// A share of all calls goes wrong from now on.
    pub fn faults(&self, mix: FaultMix) {
        self.hub.lock().faults.set_mix(mix);
    }

    /// Every call is refused with this code (131031, 368, 190, …) until `None`.
    pub fn account(&self, code: Option<i64>) {
        self.hub.lock().account = code;
    }

    /// Whether the network to the API is broken: the connection of every call is reset.
    pub fn away(&self, away: bool) {
        self.hub.lock().away = away;
    }

    /// Changes what Meta says of the app.
    pub fn business(&self, change: impl FnOnce(&mut Business)) {
        change(&mut self.hub.lock().business);
    }

    /// How ticks climb from now on.
    pub fn ladder(&self, ladder: Ladder) {
        self.hub.lock().ladder = ladder;
    }

    /// How webhooks travel from now on (`lanes` counts only from the start).
    pub fn traffic(&self, traffic: Traffic) {
        self.hub.lock().traffic = traffic;
    }

    /// Calls of the API so far.
    #[must_use]
    pub fn calls(&self) -> Vec<Call> {
        self.hub.lock().calls.clone()
    }

    /// Attempts to deliver webhooks so far.
    #[must_use]
    pub fn webhooks(&self) -> Vec<Posted> {
        self.hub.lock().posted.clone()
    }

    /// Posts an old webhook again, byte for byte; 0 is the last one. The receiver's HTTP status.
    pub async fn webhook_again(&self, back: usize) -> Option<u16> {
        self.hub.again(back).await
    }

    /// Posts the webhook that brought this message of a person again, byte for byte: last week's
    /// duplicate. The receiver's HTTP status; `None`: it was never posted.
    pub async fn message_again(&self, message: &str) -> Option<u16> {
        self.hub.again_with(message).await
    }

    /// Posts any bytes to the webhook, signed well (`None`) or as given. The receiver's HTTP status.
    pub async fn webhook_raw(&self, body: &[u8], signature: Option<&str>) -> Option<u16> {
        courier::attempt(&self.hub, body, signature.map(str::to_owned), 0).await
    }

    /// The signature Meta would put on these bytes.
    #[must_use]
    pub fn sign(&self, body: &[u8]) -> String {
        sign::signature(&self.hub.config.app_secret, body)
    }
}

#[expect(clippy::must_use_candidate, reason = "called for its effect; what it returns is often of no interest")]
impl Whatsapp {
    /// Somebody (a number or business-scoped id; unknown people come to be) writes a text. Its id.
    pub fn person_says(&self, who: &str, text: &str) -> String {
        self.person_sends(who, &Sending::Text(text.to_owned()))
    }

    /// As `person_says`; the platform received it at that time (seconds since the Unix epoch), which may be long
    /// before: a webhook that was held back.
    pub fn person_says_at(&self, who: &str, text: &str, seconds: i64) -> String {
        self.hub.person_sends_at(who, &Sending::Text(text.to_owned()), None, Some(seconds * 1000))
    }

    /// As `person_says`; the platform receives it now, however quickly that follows its question.
    pub fn person_says_now(&self, who: &str, text: &str) -> String {
        self.hub.person_sends_at(who, &Sending::Text(text.to_owned()), None, Some(self.hub.clock.now()))
    }

    /// As `person_says`, quoting a message.
    pub fn person_quotes(&self, who: &str, message: &str, text: &str) -> String {
        self.hub.person_sends(who, &Sending::Text(text.to_owned()), Some(message))
    }

    /// Somebody sends a sticker, voice note, picture, reaction, tap, …
    pub fn person_sends(&self, who: &str, sending: &Sending) -> String {
        self.hub.person_sends(who, sending, None)
    }

    /// Taps the choice with this title on a message; `None`: it has none such.
    pub fn person_taps(&self, message: &Message, title: &str) -> Option<String> {
        let tap = message.taps.iter().find(|t| t.title == title)?;
        Some(self.person_sends(&message.wa_id, &Sending::Tap { on: message.id.clone(), id: tap.id.clone() }))
    }

    /// Sends a status webhook, in any order; `code` belongs to `Failed`. False: no such message.
    pub fn status(&self, message: &str, stage: Stage, code: Option<i64>) -> bool {
        self.hub.set_stage(message, stage, code)
    }
}
