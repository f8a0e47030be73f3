//! Takes events to the business's webhook: gathers, doubles, shuffles and batches them as `Traffic` says,
//! signs the bytes, and tries again after anything but a 200.
//!
//! Source of the retry rule: Meta, set-up-webhooks ("decreasing frequency over the next 7 days"; duplicates
//! documented, order not promised). Redirects are not followed. One task, started by `mod`.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use super::event::{self, Event};
use super::message::Posted;
use super::sign;
use super::state::Hub;

pub(super) async fn run(hub: Arc<Hub>, mut events: mpsc::UnboundedReceiver<Event>) {
    let lanes = hub.lock().traffic.lanes.max(1);
    let free = Arc::new(Semaphore::new(lanes));
    loop {
        let first = tokio::select! {
            first = events.recv() => first,
            () = hub.stop.cancelled() => None,
        };
        let Some(first) = first else { return };
        let gather = hub.lock().traffic.gather_ms;
        if gather > 0 && hub.pause(gather).await.is_none() {
            return;
        }
        let mut gathered = vec![first];
        while let Ok(more) = events.try_recv() {
            gathered.push(more);
        }
        for body in bodies(&hub, gathered) {
            let Ok(lane) = Arc::clone(&free).acquire_owned().await else { return };
            let hub = Arc::clone(&hub);
            let trip = async move {
                deliver(&hub, body, lane).await;
            };
            if lanes == 1 { trip.await } else { drop(tokio::spawn(trip)) }
        }
    }
}

/// Request bodies for the events gathered.
fn bodies(hub: &Hub, gathered: Vec<Event>) -> Vec<Vec<u8>> {
    let mut state = hub.lock();
    let traffic = state.traffic.clone();
    let mut events = Vec::with_capacity(gathered.len());
    for event in gathered {
        if state.random.chance(traffic.duplicate) {
            events.push(event.clone());
        }
        events.push(event);
    }
    if traffic.shuffle {
        state.random.shuffle(&mut events);
    }
    let random = &mut state.random;
    events.chunks(traffic.batch.max(1)).map(|part| sign::body(&event::envelope(&hub.config, part, random))).collect()
}

/// One POST; what fails is tried again aside, so that it does not hold up the rest.
async fn deliver(hub: &Arc<Hub>, body: Vec<u8>, lane: tokio::sync::OwnedSemaphorePermit) {
    if attempt(hub, &body, None, 1).await == Some(200) {
        return;
    }
    drop(lane);
    let retries = hub.lock().traffic.retry_ms.clone();
    let hub = Arc::clone(hub);
    tokio::spawn(async move {
        for (i, after) in retries.into_iter().enumerate() {
            if hub.pause(after).await.is_none() || attempt(&hub, &body, None, i + 2).await == Some(200) {
                return;
            }
        }
    });
}

/// Posts these bytes now. `None` without a webhook; 0 when no answer came.
pub(super) async fn attempt(hub: &Hub, body: &[u8], signature: Option<String>, number: usize) -> Option<u16> {
    let (url, timeout) = {
        let state = hub.lock();
        (state.webhook.clone()?, Duration::from_millis(state.traffic.timeout_ms))
    };
    let signature = signature.unwrap_or_else(|| sign::signature(&hub.config.app_secret, body));
    let at_ms = hub.uptime_ms();
    let request = hub.http.post(url).timeout(timeout).body(body.to_vec());
    let request = request
        .header("content-type", "application/json")
        .header("x-hub-signature-256", &signature)
        .header("user-agent", "facebookexternalua");
    let status = tokio::select! {
        answer = request.send() => answer.map_or(0, |a| a.status().as_u16()),
        () = hub.stop.cancelled() => return None,
    };
    let text = String::from_utf8_lossy(body).into_owned();
    hub.lock().posted.push(Posted { at_ms, attempt: number, status, body: text, signature });
    hub.bump();
    Some(status)
}

impl Hub {
    /// Posts a webhook of the past again, byte for byte; `back` counts from the last.
    pub(super) async fn again(&self, back: usize) -> Option<u16> {
        let old = self.lock().posted.iter().rev().nth(back).cloned()?;
        // Bytes that a test made stay so.
        let number = if old.attempt == 0 { 0 } else { old.attempt + 1 };
        attempt(self, old.body.as_bytes(), Some(old.signature), number).await
    }

    /// As `again`, for the first webhook that carries this id as a message's.
    pub(super) async fn again_with(&self, id: &str) -> Option<u16> {
        let carried = format!("\"id\":\"{}\"", id.replace('/', "\\/"));
        let old = self.lock().posted.iter().find(|p| p.body.contains(&carried)).cloned()?;
        attempt(self, old.body.as_bytes(), Some(old.signature), old.attempt + 1).await
    }
}

/// The verification handshake: asks the webhook to echo a challenge. `Err` says what came instead.
pub(super) async fn handshake(hub: &Hub) -> Result<(), String> {
    let Some(url) = hub.lock().webhook.clone() else { return Err("no webhook is set".into()) };
    let challenge = (hub.lock().random.next() % 1_000_000_000 + 1_000_000_000).to_string();
    let query =
        [("hub.mode", "subscribe"), ("hub.challenge", &challenge), ("hub.verify_token", &hub.config.verify_token)];
    let pairs: Vec<String> = query.iter().map(|(k, v)| format!("{k}={}", percent(v))).collect();
    let glue = if url.contains('?') { '&' } else { '?' };
    let request = hub.http.get(format!("{url}{glue}{}", pairs.join("&"))).timeout(Duration::from_secs(10));
    let answer = request.send().await.map_err(|e| e.without_url().to_string())?;
    let status = answer.status().as_u16();
    let text = answer.text().await.map_err(|e| e.without_url().to_string())?;
    if status == 200 && text == challenge { Ok(()) } else { Err(format!("{status} {text:?} instead of the challenge")) }
}

/// Percent-encoding of everything but unreserved characters.
fn percent(text: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
