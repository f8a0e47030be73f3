//! Verified webhooks: a handler gets a [`Signed`] body only after the platform's signature over the raw bytes was verified.
//! Unverified bodies are limited in size, time, number and sum. At a limit the oldest one gives way, so that strangers
//! cannot keep genuine webhooks out.

use crate::clock::{Clock, Moment};
use crate::host::warnings::Warnings;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How long reading a body may take.
const BODY_TIMEOUT: Duration = Duration::from_secs(2);
/// How many unverified bodies may be read at a time, and how many bytes they may have in all. A burst of clicks may use
/// every connection at once, and none of them may give way to another.
const MAX_UNVERIFIED: usize = 512;
const MAX_UNVERIFIED_BYTES: usize = 8 * 1024 * 1024;
/// How long a platform waits for its reply: Slack gives up after 3 s.
pub(super) const ACKNOWLEDGE_WITHIN: Duration = Duration::from_millis(2_500);
/// How many verified webhooks may be in work at a time. askd tells the senders of others to send them again.
const MAX_IN_WORK: usize = 512;
/// The room for a body that is made at once, in bytes.
const USUAL_BODY: usize = 256 * 1024;

/// How many forged webhooks are refused at once in such a time. More than these wait until it is over: whoever floods askd with them leaves
/// the processors to genuine ones.
const FORGED: u32 = 150;
const WINDOW: Duration = Duration::from_millis(5);

/// How a platform signs its webhooks. Implemented by the state of its routes.
pub(super) trait Platform: Sync {
    /// Its name in the log.
    const NAME: &'static str;
    /// The largest body it sends, in bytes.
    const MAX_BODY: usize;
    /// What the headers say about the signature.
    type Signature: Send + Sync;
    /// Where its webhooks are verified.
    fn webhooks(&self) -> &Webhooks;
    /// The signature, if it can be a current one; else what is wrong with it.
    fn signature(&self, headers: &HeaderMap) -> Result<Self::Signature, &'static str>;
    /// Compares the signature with that of the body, in constant time.
    fn is_genuine(&self, signature: &Self::Signature, body: &[u8]) -> bool;
}

/// What the webhooks of all platforms share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Webhooks {
    clock: Clock,
    warnings: Warnings,
    unverified: Arc<Mutex<Unverified>>,
    in_work: Arc<Semaphore>,
    /// When the window began, and how many were refused in it.
    forged: Arc<Mutex<(Moment, u32)>>,
}

/// A verified body. It counts as in work until it is dropped.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) body: Bytes,
    _in_work: OwnedSemaphorePermit,
}

/// Why a webhook was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused(StatusCode, &'static str);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, format!("{}\n", self.1)).into_response()
    }
}

const TOO_LARGE: Refused = Refused(StatusCode::PAYLOAD_TOO_LARGE, "too large, or cut off");
const TOO_SLOW: Refused = Refused(StatusCode::REQUEST_TIMEOUT, "too slow");
const TOO_MANY: Refused = Refused(StatusCode::SERVICE_UNAVAILABLE, "too many at once");

impl<P: Platform> FromRequest<P> for Signed {
    type Rejection = Refused;

    async fn from_request(request: Request, platform: &P) -> Result<Self, Refused> {
        let webhooks = platform.webhooks();
        let verified = webhooks.verify(platform, request).await;
        if let Err(Refused(_, why)) = verified {
            webhooks.warn(&format!("a webhook of {} was refused: {why}", P::NAME));
        }
        verified
    }
}

impl Webhooks {
    /// Counts refused webhooks in `warnings`.
    pub fn new(clock: Clock, warnings: Warnings) -> Self {
        Self {
            clock,
            warnings,
            unverified: Arc::default(),
            in_work: Arc::new(Semaphore::new(MAX_IN_WORK)),
            forged: Arc::default(),
        }
    }

    /// Logs a warning that strangers can cause: not more often than `Warnings` allows.
    pub(super) fn warn(&self, warning: &str) {
        if self.warnings.is_first(None, warning) {
            tracing::warn!("{warning}");
        }
    }

    /// Before a forged webhook is refused.
    async fn slow_down(&self) {
        let now = self.clock.monotonic();
        let until = {
            let (began, refused) = &mut *self.forged.lock();
            if now.since(*began) >= WINDOW {
                (*began, *refused) = (now, 0);
            }
            *refused += 1;
            (*refused > FORGED).then(|| *began + WINDOW)
        };
        if let Some(until) = until {
            self.clock.sleep_to(until).await;
        }
    }

    /// Refuses what cannot be genuine before it reads the body.
    async fn verify<P: Platform>(&self, platform: &P, request: Request) -> Result<Signed, Refused> {
        let (parts, body) = request.into_parts();
        let unauthorized = |why| Refused(StatusCode::UNAUTHORIZED, why);
        let signature = platform.signature(&parts.headers).map_err(unauthorized)?;
        let length = parts.headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if length.is_some_and(|bytes| bytes > P::MAX_BODY) {
            return Err(TOO_LARGE);
        }
        let place = Place::take(&self.unverified);
        let reading = self.clock.timeout(BODY_TIMEOUT, read(body, length, P::MAX_BODY, &place));
        let body = tokio::select! {
            biased;
            body = reading => body.unwrap_or(Err(TOO_SLOW))?,
            () = place.gone.cancelled() => return Err(TOO_MANY),
        };
        if !platform.is_genuine(&signature, &body) && !crate::sabotage::on("unsigned") {
            drop((place, body));
            self.slow_down().await;
            return Err(unauthorized("the signature is wrong"));
        }
        drop(place);
        let permit = Arc::clone(&self.in_work).try_acquire_owned().map_err(|_full| TOO_MANY)?;
        Ok(Signed { body: body.into(), _in_work: permit })
    }
}

async fn read(body: Body, length: Option<usize>, max: usize, place: &Place) -> Result<Vec<u8>, Refused> {
    let mut chunks = body.into_data_stream();
    // What is not written to yet takes no memory, and what grows leaves holes behind.
    let mut body = Vec::with_capacity(length.unwrap_or_default().min(USUAL_BODY));
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_cut_off| TOO_LARGE)?;
        if body.len() + chunk.len() > max {
            return Err(TOO_LARGE);
        }
        place.add(chunk.len());
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The bodies that are being read and not verified yet.
#[derive(Debug, Default)]
struct Unverified {
    next: u64,
    bytes: usize,
    /// The oldest first: the size of each, and the token that tells it to give way.
    bodies: BTreeMap<u64, (usize, CancellationToken)>,
}

impl Unverified {
    fn drop_oldest(&mut self) {
        if let Some((_, (bytes, gone))) = self.bodies.pop_first() {
            self.bytes -= bytes;
            gone.cancel();
        }
    }
}

/// The place of one body among the unverified ones.
#[derive(Debug)]
struct Place {
    unverified: Arc<Mutex<Unverified>>,
    number: u64,
    /// Cancelled when the body has to give way to another.
    gone: CancellationToken,
}

impl Place {
    fn take(unverified: &Arc<Mutex<Unverified>>) -> Self {
        let gone = CancellationToken::new();
        let mut all = unverified.lock();
        all.next += 1;
        let number = all.next;
        all.bodies.insert(number, (0, gone.clone()));
        if all.bodies.len() > MAX_UNVERIFIED {
            all.drop_oldest();
        }
        drop(all);
        Self { unverified: Arc::clone(unverified), number, gone }
    }

    fn add(&self, more: usize) {
        let mut all = self.unverified.lock();
        let Some((bytes, _)) = all.bodies.get_mut(&self.number) else { return };
        *bytes += more;
        all.bytes += more;
        while all.bytes > MAX_UNVERIFIED_BYTES {
            all.drop_oldest();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.unverified.lock();
        if let Some((bytes, _)) = all.bodies.remove(&self.number) {
            all.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_body_gives_way() {
        let unverified = Arc::default();
        let first = Place::take(&unverified);
        let others: Vec<Place> = (1..MAX_UNVERIFIED).map(|_| Place::take(&unverified)).collect();
        assert!(!first.gone.is_cancelled());
        let last = Place::take(&unverified);
        assert!(first.gone.is_cancelled() && !others[0].gone.is_cancelled());
        others[0].add(MAX_UNVERIFIED_BYTES);
        last.add(1);
        assert!(others[0].gone.is_cancelled() && !last.gone.is_cancelled(), "too many bytes in all");
        first.add(1);
        drop((first, others, last));
        let all = unverified.lock();
        assert_eq!((all.bytes, all.bodies.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_forged_webhooks_waits_for_the_next_window() {
        let clock = Clock::of_tokio();
        let webhooks = Webhooks::new(clock.clone(), Warnings::new(clock.clone()));
        let begun = clock.monotonic();
        let mut took = Vec::new();
        for _ in 0..=FORGED + 1 {
            webhooks.slow_down().await;
            took.push(clock.monotonic().since(begun));
        }
        let many = FORGED as usize;
        assert!(took[..many].iter().all(Duration::is_zero), "{took:?}");
        assert_eq!(took[many..], [WINDOW, WINDOW], "one waits, and the next window begins with none");
    }
}
