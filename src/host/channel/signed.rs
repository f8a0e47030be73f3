//! Verified webhooks: a [`Signed`] is only built after the platform's signature over the raw bytes was verified. Bodies
//! that are not verified yet have limits, each and all together, and the oldest gives way to a new one, so that
//! strangers cannot keep genuine webhooks from being read.

use crate::clock::Clock;
use crate::host::warnings::Warnings;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt as _;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// How long a body may take.
const SLOWEST: Duration = Duration::from_secs(2);
/// How many bodies are read at a time, and how many bytes they may have in all. The oldest gives way to a new one.
const MOST_READ: usize = 64;
const MOST_BYTES: usize = 8 * 1024 * 1024;
/// How many verified webhooks are worked on at a time; the senders of others are told to send them again.
const AT_A_TIME: usize = 64;

/// How a platform signs its webhooks.
pub(super) trait Platform {
    /// Its name in the log.
    const NAME: &'static str;
    /// The largest body it sends, in bytes.
    const LARGEST: usize;
    /// What the headers say about the signature.
    type Signature;
    /// The signature, if it can be a current one; else what is wrong with it.
    fn signature(&self, headers: &HeaderMap) -> Result<Self::Signature, &'static str>;
    /// Whether the signature fits these bytes. In constant time.
    fn is_genuine(&self, signature: &Self::Signature, body: &[u8]) -> bool;
}

/// Where webhooks of all platforms arrive. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Webhooks {
    clock: Clock,
    warnings: Warnings,
    unsigned: Unsigned,
    places: Arc<Semaphore>,
}

/// A verified body. It holds its place among the webhooks that are worked on.
#[derive(Debug)]
pub(super) struct Signed {
    pub(super) body: Bytes,
    _place: OwnedSemaphorePermit,
}

/// Why a webhook was not taken.
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

impl Webhooks {
    /// Counts refused webhooks in `warnings`.
    #[must_use]
    pub fn new(clock: Clock, warnings: Warnings) -> Self {
        Self { clock, warnings, unsigned: Unsigned::default(), places: Arc::new(Semaphore::new(AT_A_TIME)) }
    }

    /// The warnings that strangers can cause.
    pub(super) fn warnings(&self) -> &Warnings {
        &self.warnings
    }

    /// Reads a webhook within its limits and verifies it. One that cannot be genuine is refused before it is read.
    pub(super) async fn verify<P: Platform>(&self, platform: &P, request: Request) -> Result<Signed, Refused> {
        let verified = self.read(platform, request).await;
        if let Err(Refused(_, why)) = verified {
            let name = P::NAME;
            let cause = format!("a webhook of {name} was refused: {why}");
            if self.warnings.is_first(None, &cause) {
                tracing::warn!("{cause}");
            }
        }
        verified
    }

    async fn read<P: Platform>(&self, platform: &P, request: Request) -> Result<Signed, Refused> {
        let (parts, body) = request.into_parts();
        let refused = |why| Refused(StatusCode::UNAUTHORIZED, why);
        let signature = platform.signature(&parts.headers).map_err(refused)?;
        let said =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if said.is_some_and(|bytes| bytes > P::LARGEST) {
            return Err(TOO_LARGE);
        }
        let reader = self.unsigned.begin();
        let gone = reader.gone.clone();
        let body = tokio::select! {
            read = self.clock.timeout(SLOWEST, whole(body, P::LARGEST, &reader)) => read.unwrap_or(Err(TOO_SLOW))?,
            () = gone.cancelled() => return Err(TOO_MANY),
        };
        if !platform.is_genuine(&signature, &body) {
            return Err(refused("the signature is wrong"));
        }
        drop(reader);
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_full| TOO_MANY)?;
        Ok(Signed { body: body.into(), _place: place })
    }
}

async fn whole(body: Body, largest: usize, reader: &Reader) -> Result<Vec<u8>, Refused> {
    let mut pieces = body.into_data_stream();
    let mut whole = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_cut_off| TOO_LARGE)?;
        if whole.len() + piece.len() > largest {
            return Err(TOO_LARGE);
        }
        reader.add(piece.len());
        whole.extend_from_slice(&piece);
    }
    Ok(whole)
}

/// The bodies that are being read and not verified yet.
#[derive(Debug, Clone, Default)]
struct Unsigned(Arc<Mutex<Readers>>);

#[derive(Debug, Default)]
struct Readers {
    next: u64,
    bytes: usize,
    /// The oldest first: how many bytes each has, and how it is told to give way.
    open: BTreeMap<u64, (usize, CancellationToken)>,
}

/// One body that is being read.
#[derive(Debug)]
struct Reader {
    unsigned: Unsigned,
    number: u64,
    /// It has to give way to another.
    gone: CancellationToken,
}

impl Unsigned {
    fn lock(&self) -> MutexGuard<'_, Readers> {
        self.0.lock()
    }

    fn begin(&self) -> Reader {
        let gone = CancellationToken::new();
        let mut readers = self.lock();
        readers.next += 1;
        let number = readers.next;
        readers.open.insert(number, (0, gone.clone()));
        if readers.open.len() > MOST_READ {
            readers.drop_oldest();
        }
        drop(readers);
        Reader { unsigned: self.clone(), number, gone }
    }
}

impl Readers {
    fn drop_oldest(&mut self) {
        if let Some((_, (bytes, gone))) = self.open.pop_first() {
            self.bytes -= bytes;
            gone.cancel();
        }
    }
}

impl Reader {
    fn add(&self, more: usize) {
        let mut readers = self.unsigned.lock();
        let Some((bytes, _)) = readers.open.get_mut(&self.number) else { return };
        *bytes += more;
        readers.bytes += more;
        while readers.bytes > MOST_BYTES {
            readers.drop_oldest();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut readers = self.unsigned.lock();
        if let Some((bytes, _)) = readers.open.remove(&self.number) {
            readers.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_body_gives_way() {
        let unsigned = Unsigned::default();
        let first = unsigned.begin();
        let others: Vec<Reader> = (1..MOST_READ).map(|_| unsigned.begin()).collect();
        assert!(!first.gone.is_cancelled());
        let last = unsigned.begin();
        assert!(first.gone.is_cancelled() && !others[0].gone.is_cancelled());
        others[0].add(MOST_BYTES);
        last.add(1);
        assert!(others[0].gone.is_cancelled() && !last.gone.is_cancelled(), "too many bytes in all");
        first.add(1);
        drop((first, others, last));
        let readers = unsigned.lock();
        assert_eq!((readers.bytes, readers.open.len()), (0, 0));
    }
}
