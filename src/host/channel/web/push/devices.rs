//! The browsers that askd pushes to, each with the person who signed in there, and the daemon's own key: `state/push.json`, for
//! the daemon's user alone. A browser counts once it is on stable storage.

use super::sealed::{Subscription, Vapid};
use crate::clock::Moment;
use crate::host::store::{Documents, Version, change_document};
use askd_core::{AskId, Digest, Time};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

pub(super) const FILE: &str = "push.json";
const FORMAT: u32 = 1;
/// Browsers of one person, and of all. One more displaces the oldest.
const OF_ONE: usize = 20;
const OF_ALL: usize = 1000;
/// How long a browser counts whose person a proxy named: askd does not learn whom the proxy still lets in, but that page has not
/// been open for so long.
const UNSEEN: Duration = Duration::from_secs(28 * 24 * 3600);
/// A browser that is back within this time is not noted anew.
const SEEN_ANEW: Duration = Duration::from_secs(24 * 3600);

/// A browser.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Device {
    /// Who signed in there; `None`: the operator.
    pub(super) person: Option<String>,
    /// The hash of the token that they gave; `None`: a proxy named them.
    #[serde(default)]
    pub(super) token: Option<Digest>,
    /// Since when; it hears of no ask that is older.
    pub(super) since: Time,
    /// The same for asks of this run, whatever is done to the time of day; `None`: since an earlier run.
    #[serde(skip)]
    pub(super) joined: Option<Moment>,
    /// When a page was last open there, about to the day.
    #[serde(default)]
    pub(super) seen: Time,
    pub(super) subscription: Subscription,
}

impl Device {
    /// Whether its person may be long gone.
    pub(super) fn is_stale(&self, now: Time) -> bool {
        self.token.is_none() && now.since(self.seen) > UNSEEN
    }

    /// Whether it was there when browsers were told of an ask: `told` is when, `None` in an earlier run.
    pub(super) fn heard_of(&self, told: Option<Moment>, created_at: Time) -> bool {
        match (self.joined, told) {
            (None, None) => self.since <= created_at,
            (joined, told) => joined <= told,
        }
    }
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    v: u32,
    /// The private key of [`Vapid`].
    key: String,
    devices: Vec<Device>,
    /// The open asks that browsers were told of; `None`: an earlier version wrote the file, or there are too many.
    #[serde(default)]
    told: Option<Vec<AskId>>,
}

/// All browsers.
#[derive(Debug)]
pub(super) struct Devices {
    documents: Arc<dyn Documents>,
    pub(super) vapid: Vapid,
    /// Calls look at it on the threads of the runtime: its lock is never held over the disk.
    kept: Mutex<Kept>,
    /// Held over a change and its write, so that changes reach the disk in their order.
    changing: Mutex<()>,
    /// Rings when there may be a browser after there was none.
    came: Notify,
}

impl Devices {
    /// Reads the file, or makes a key and the file. A damaged one is moved aside: it keeps no question from being asked.
    pub(super) fn open(documents: Arc<dyn Documents>) -> io::Result<Self> {
        let unusable = |why: &str| io::Error::other(format!("state/{FILE}: {why}"));
        let whole = |bytes: &[u8]| {
            let kept: Kept = serde_json::from_slice(bytes).ok()?;
            Some((Vapid::of(&kept.key)?, kept))
        };
        let generate = || {
            let key = Vapid::make().ok()?;
            Some((Vapid::of(&key)?, Kept { v: FORMAT, key, devices: Vec::new(), told: Some(Vec::new()) }))
        };
        let (vapid, kept) = change_document(&*documents, FILE, |before| {
            if before.and_then(|bytes| serde_json::from_slice(bytes).ok()).is_some_and(|Version { v }| v > FORMAT) {
                return Err(unusable("a newer askd wrote it"));
            }
            if let Some(known) = before.and_then(whole) {
                return Ok((None, known));
            }
            if before.is_some() {
                documents.set_aside(FILE)?;
                tracing::error!(
                    "state/{FILE} was damaged and was moved aside (.corrupt); browsers have to sign up for notices again"
                );
            }
            let made = generate().ok_or_else(|| unusable("cannot make a key"))?;
            Ok((Some(serde_json::to_vec_pretty(&made.1)?), made))
        })?;
        Ok(Self { documents, vapid, kept: Mutex::new(kept), changing: Mutex::default(), came: Notify::new() })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.lock().devices.is_empty()
    }

    /// Waits until there are some, and says since when. One task may.
    pub(super) async fn until_some(&self) -> Time {
        loop {
            let since = self.kept.lock().devices.iter().map(|device| device.since).min();
            if let Some(since) = since {
                return since;
            }
            self.came.notified().await;
        }
    }

    /// All that there are.
    pub(super) fn all(&self) -> Vec<Device> {
        self.kept.lock().devices.clone()
    }

    /// The one with this address.
    pub(super) fn at(&self, endpoint: &str) -> Option<Device> {
        self.kept.lock().devices.iter().find(|known| known.subscription.endpoint == endpoint).cloned()
    }

    /// The open asks that browsers were told of, as far as it is stored.
    pub(super) fn told(&self) -> Option<Vec<AskId>> {
        self.kept.lock().told.clone()
    }

    /// Stores of which asks browsers were told. Blocks on the disk.
    pub(super) fn keep_told(&self, told: Option<&[AskId]>) -> io::Result<()> {
        self.change_all(|kept| {
            let changes = kept.told.as_deref() != told && !kept.devices.is_empty();
            kept.told = told.map(<[AskId]>::to_vec);
            changes
        })
    }

    /// Takes over what another daemon has stored. Blocks on the disk.
    pub(super) fn refresh(&self) -> io::Result<()> {
        self.change(|_| false)
    }

    /// Adds a browser. It belongs to the person who signed in there last. Blocks on the disk.
    pub(super) fn add(&self, device: &Device) -> io::Result<()> {
        self.change(|devices| {
            let mut device = device.clone();
            let known = devices.iter().position(|known| known.subscription.endpoint == device.subscription.endpoint);
            let same = known.map(|at| &devices[at]);
            if let Some(same) = same.filter(|it| it.person == device.person && it.subscription == device.subscription) {
                if same.token == device.token && device.seen.since(same.seen) < SEEN_ANEW {
                    return false;
                }
                (device.since, device.joined) = (same.since, same.joined);
            }
            known.map(|at| devices.remove(at));
            let own = devices.iter().filter(|known| known.person == device.person).count();
            let oldest =
                if own >= OF_ONE { devices.iter().position(|known| known.person == device.person) } else { None };
            oldest.or((devices.len() >= OF_ALL).then_some(0)).map(|at| devices.remove(at));
            devices.push(device);
            true
        })
    }

    /// Forgets such browsers. Blocks on the disk.
    pub(super) fn remove(&self, is: impl Fn(&Device) -> bool) -> io::Result<()> {
        self.change(|devices| {
            let before = devices.len();
            devices.retain(|known| !is(known));
            devices.len() < before
        })
    }

    fn change(&self, change: impl Fn(&mut Vec<Device>) -> bool) -> io::Result<()> {
        self.change_all(|kept| change(&mut kept.devices))
    }

    /// What is not on stable storage has not changed. Another daemon may change it at the same moment.
    fn change_all(&self, change: impl Fn(&mut Kept) -> bool) -> io::Result<()> {
        let _changing = self.changing.lock();
        let kept = change_document(&*self.documents, FILE, |before| {
            let mut kept = self.kept.lock().clone();
            if let Some(stored) = before.and_then(|bytes| serde_json::from_slice::<Kept>(bytes).ok()) {
                let known = std::mem::replace(&mut kept.devices, stored.devices);
                kept.told = stored.told;
                for device in &mut kept.devices {
                    // What is not stored: since when it is known in this run.
                    let same = known.iter().find(|known| known.subscription.endpoint == device.subscription.endpoint);
                    device.joined = same.and_then(|known| known.joined);
                }
            }
            let after = if change(&mut kept) { Some(serde_json::to_vec_pretty(&kept)?) } else { None };
            Ok((after, kept))
        })?;
        *self.kept.lock() = kept;
        if !self.is_empty() {
            self.came.notify_one();
        }
        Ok(())
    }
}
