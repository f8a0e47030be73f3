//! Meta's post room, between the stand-in and the daemon. It delivers every webhook until it gets a 200, and once more
//! after the next start, as Meta may do for days. It can hold back what one person writes. It never changes a webhook.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::routing::post;
use serde_json::Value;
use tokio::sync::watch;

use crate::agent::lock;

/// When a message was acknowledged for the first time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acknowledged {
    pub(crate) at: Instant,
    pub(crate) time: SystemTime,
}

/// The post room. `epoch` holds the count of the daemon's starts and its address; an empty address means no daemon.
pub(crate) struct Room {
    http: reqwest::Client,
    epoch: watch::Sender<(u64, String)>,
    /// The people whose messages stay here until they are released.
    held: watch::Sender<Vec<String>>,
    acknowledged: Mutex<HashMap<String, Acknowledged>>,
    repeats: Mutex<usize>,
}

struct Letter {
    body: Bytes,
    signature: String,
    /// For a person's message: its id and who wrote it.
    message: Option<(String, String)>,
}

impl Room {
    /// Opens the room; returns the address that the stand-in posts to.
    pub(crate) async fn open() -> Result<(Arc<Self>, String), String> {
        let room = Arc::new(Self {
            http: crate::daemon::client()?,
            epoch: watch::Sender::default(),
            held: watch::Sender::default(),
            acknowledged: Mutex::default(),
            repeats: Mutex::default(),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let service = Router::new().route("/", post(take)).with_state(Arc::clone(&room));
        tokio::spawn(async move { axum::serve(listener, service).await });
        Ok((room, format!("http://{address}/")))
    }

    /// Notes that the daemon now listens at that address.
    pub(crate) fn started(&self, url: &str) {
        self.epoch.send_modify(|(count, known)| {
            *count += 1;
            *known = format!("{url}/whatsapp/webhook");
        });
    }

    /// Notes that no daemon listens.
    pub(crate) fn stopped(&self) {
        self.epoch.send_modify(|(_, known)| known.clear());
    }

    /// The number of the current start.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.borrow().0
    }

    /// From now on holds back what this person writes.
    pub(crate) fn hold(&self, who: &str) {
        self.held.send_modify(|held| held.push(who.to_owned()));
    }

    /// Delivers what was held back.
    pub(crate) fn release(&self, who: &str) {
        self.held.send_modify(|held| held.retain(|known| known != who));
    }

    /// When this message was acknowledged for the first time, if it was.
    pub(crate) fn acknowledged(&self, message: &str) -> Option<Acknowledged> {
        lock(&self.acknowledged).get(message).copied()
    }

    /// How many webhooks were delivered again after a start.
    pub(crate) fn repeats(&self) -> usize {
        *lock(&self.repeats)
    }

    async fn bring(self: Arc<Self>, letter: Letter) {
        if let Some((_, who)) = &letter.message {
            let mut held = self.held.subscribe();
            let _room_is_closed = held.wait_for(|held| !held.contains(who)).await;
        }
        let first = self.until_taken(&letter, 0).await;
        if let Some((id, _)) = &letter.message {
            let now = Acknowledged { at: Instant::now(), time: SystemTime::now() };
            lock(&self.acknowledged).insert(id.clone(), now);
        }
        self.until_taken(&letter, first + 1).await;
        *lock(&self.repeats) += 1;
    }

    /// Posts to the daemon of that start or a later one until it answers 200. Returns the number of that start.
    async fn until_taken(&self, letter: &Letter, from: u64) -> u64 {
        let mut epoch = self.epoch.subscribe();
        loop {
            let there = epoch.wait_for(|(count, url)| *count >= from && !url.is_empty()).await;
            let Ok((count, url)) = there.map(|there| there.clone()) else { return from };
            let request = self.http.post(url).body(letter.body.clone()).header("content-type", "application/json");
            let answer = request.header("x-hub-signature-256", &letter.signature).send().await;
            if answer.is_ok_and(|answer| answer.status() == 200) {
                return count;
            }
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
    }
}

async fn take(State(room): State<Arc<Room>>, headers: HeaderMap, body: Bytes) {
    let signature = headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok());
    let letter = Letter { message: message_in(&body), signature: signature.unwrap_or_default().to_owned(), body };
    tokio::spawn(room.bring(letter));
}

/// The message that a webhook carries (the stand-in puts one thing into each).
fn message_in(body: &[u8]) -> Option<(String, String)> {
    let webhook: Value = serde_json::from_slice(body).ok()?;
    let message = webhook.pointer("/entry/0/changes/0/value/messages/0")?;
    Some((message["id"].as_str()?.to_owned(), message["from"].as_str()?.to_owned()))
}
