//! Web Push: tells browsers of new questions while no page is open. A notice names the agent, and with `push = "text"` what it
//! asks; when the question is over, a second one takes the first away. Nothing depends on a notice: the inbox has the
//! question, and a notice that could not be pushed for some minutes is given up.

mod address;
mod devices;
mod lines;
mod notice;
mod sealed;
mod told;

use super::people::{Caller, People};
use super::{Inbox, Problem};
use crate::clock::Moment;
use crate::host::broker::{Broker, Filter};
use crate::host::ctx::Ctx;
use crate::host::settings::{PushSettings, Settings};
use crate::host::store::{Documents, StoreError};
use crate::ipc::wire::Object;
use askd_core::{AskId, Time};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use devices::{Device, Devices};
use notice::Notice;
use parking_lot::Mutex;
use sealed::Subscription;
use serde::Deserialize;
use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::error::RecvError;
use told::Told;

/// Before asks are read again that could not be read.
const PAUSE: Duration = Duration::from_secs(2);
/// Notices that are on their way at a time.
const AT_ONCE: usize = 16;
/// How soon it is stored of which asks browsers were told. What a crash undoes is told once more, in the same place.
const STORED_AFTER: Duration = Duration::from_secs(1);
/// Asks that are read at a time.
const PAGE: usize = 200;

/// Pushes to browsers. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Push(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    broker: Broker,
    people: Arc<People>,
    ctx: Ctx,
    devices: Devices,
    /// Made when the first notice leaves: it reads certificates.
    client: Mutex<Option<reqwest::Client>>,
    /// What waits for each browser, by its address. One task for each takes from there, so that the end of a question comes
    /// after its beginning, and a push service that is away costs only so much.
    lines: Mutex<HashMap<String, VecDeque<Arc<Notice>>>>,
    /// The open questions that this run has told of at each address.
    begun: Mutex<HashSet<(AskId, String)>>,
    places: Semaphore,
}

impl Push {
    /// Reads which browsers there are, and tells them of what changes from now on.
    pub(super) fn open(
        broker: Broker,
        people: Arc<People>,
        ctx: &Ctx,
        documents: Arc<dyn Documents>,
    ) -> io::Result<Self> {
        let devices = Devices::open(documents)?;
        let (client, lines, begun) = (Mutex::default(), Mutex::default(), Mutex::default());
        let places = Semaphore::new(AT_ONCE);
        let inner = Inner { broker, people, ctx: ctx.clone(), devices, client, lines, begun, places };
        let push = Self(Arc::new(inner));
        if push.0.broker.leads() {
            ctx.finish(push.clone().follow());
        }
        Ok(push)
    }

    /// The key that a browser needs to sign up; `None`: nothing is pushed.
    pub(super) fn key(&self) -> Option<&str> {
        (self.settings().web.push != PushSettings::Off).then_some(self.0.devices.vapid.public.as_str())
    }

    fn settings(&self) -> Arc<Settings> {
        self.0.broker.settings()
    }

    async fn follow(self) {
        let (mut changes, started) = (self.0.broker.changes(), self.0.ctx.clock().now());
        let mut documents = self.0.broker.documents_changes();
        let (mut told, is_known) = Told::before(&self.0.devices);
        // Asks that could not be read when they changed.
        let mut unread = HashSet::new();
        let Some(()) = self.0.ctx.unless_cut(self.0.broker.loaded()).await else { return };
        // What was taken in since the start is news; so is all that is new from now on, whatever is done to the time of day.
        // Of what was asked before, an earlier run has told, unless it says that it has not.
        self.look(&mut told, &mut unread, |notice, told| {
            if notice.created_at >= started {
                self.take(notice, told);
            } else if told.add(notice.ask, None) && is_known {
                self.tell(notice, None);
            }
        })
        .await;
        let (clock, mut due, mut again) = (self.0.ctx.clock(), None, None);
        loop {
            if told.changed && due.is_none() && !self.0.devices.is_empty() {
                due = Some(clock.monotonic() + STORED_AFTER);
            }
            if !unread.is_empty() && again.is_none() {
                again = Some(clock.monotonic() + PAUSE);
            }
            let nobody_hears = self.0.devices.is_empty();
            let heard = tokio::select! {
                // Changes wake nothing here while there is no browser.
                heard = changes.recv(), if !nobody_hears => heard,
                since = self.0.devices.until_some(), if nobody_hears => {
                    self.learn(since, &mut told, &mut unread).await;
                    continue;
                }
                () = self.0.ctx.stopping() => return self.keep(&mut told).await,
                written = documents.recv() => {
                    if !matches!(written, Ok(name) if name != devices::FILE) {
                        self.refresh().await;
                    }
                    continue;
                }
                () = clock.sleep_to(due.unwrap_or_default()), if due.is_some() => {
                    due = None;
                    self.keep(&mut told).await;
                    continue;
                }
                () = clock.sleep_to(again.unwrap_or_default()), if again.is_some() => {
                    again = None;
                    let ids = std::mem::take(&mut unread);
                    self.take_now(ids, &mut told, &mut unread).await;
                    continue;
                }
            };
            match heard {
                Ok(id) => self.take_now([id], &mut told, &mut unread).await,
                Err(RecvError::Lagged(_)) => {
                    self.look(&mut told, &mut unread, |notice, told| self.take(notice, told)).await;
                }
                Err(RecvError::Closed) => return,
            }
        }
    }

    /// Learns what is asked once there is a browser, since that moment. Whoever signed up knows from the page what was asked by then.
    async fn learn(&self, since: Time, told: &mut Told, unread: &mut HashSet<AskId>) {
        self.look(told, unread, |notice, told| {
            if notice.created_at >= since {
                self.take(notice, told);
            } else {
                let _is_new = told.add(notice.ask, None);
            }
        })
        .await;
    }

    /// Stores of which asks browsers were told.
    async fn keep(&self, told: &mut Told) {
        if !told.changed {
            return;
        }
        let (push, told) = (self.clone(), told.take_changes());
        let _logged = stored(tokio::task::spawn_blocking(move || push.0.devices.keep_told(told.as_deref())).await);
    }

    /// Another daemon may have signed browsers up.
    async fn refresh(&self) {
        let push = self.clone();
        let _logged = stored(tokio::task::spawn_blocking(move || push.0.devices.refresh()).await);
    }

    /// Looks at all open asks, and at those that were open when browsers were told of them.
    async fn look(&self, told: &mut Told, unread: &mut HashSet<AskId>, open: impl Fn(&Notice, &mut Told)) {
        if self.0.devices.is_empty() && !self.0.broker.is_shared() {
            // Whoever signs up from now on knows from the page what is asked by then, so nothing has to be read.
            return told.clear();
        }
        let (mut after, mut gone): (_, HashSet<_>) = (None, told.asks().collect());
        loop {
            let filter = Filter { settled: Some(false), ..Filter::default() };
            let page = match self.0.broker.page(filter, PAGE, after, Notice::of).await {
                Ok(page) => page,
                Err(_) if self.0.ctx.pause(PAUSE).await => continue,
                Err(_) => return,
            };
            for notice in page.asks {
                gone.remove(&notice.ask);
                open(&notice, told);
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        self.take_now(gone, told, unread).await;
    }

    /// Takes asks as they are now. What cannot be read is read again later, and so is what is left when the daemon stops.
    async fn take_now(&self, ids: impl IntoIterator<Item = AskId>, told: &mut Told, unread: &mut HashSet<AskId>) {
        let mut ids = ids.into_iter();
        while let Some(id) = ids.next() {
            match self.0.broker.get(id).await {
                Ok(Some(ask)) => self.take(&Notice::of(&ask), told),
                Ok(None) => _ = told.remove(id),
                Err(StoreError::Damaged { .. }) => {}
                Err(_) => _ = unread.insert(id),
            }
            if self.0.ctx.is_stopping() {
                return unread.extend(ids);
            }
        }
    }

    fn take(&self, notice: &Notice, told: &mut Told) {
        let (is_news, at) = if notice.is_open {
            let clock = self.0.ctx.clock();
            // A browser that signed up since then knows the question from its page.
            let at = Some(clock.monotonic() - clock.now().since(notice.created_at));
            (told.add(notice.ask, at), at)
        } else {
            told.remove(notice.ask)
        };
        if is_news {
            self.tell(notice, at);
        }
    }

    /// Who hears of questions at this browser; `None`: nobody who is let in.
    fn hears(&self, device: &Device) -> Option<Caller> {
        let caller = self.0.people.still(device.person.as_deref(), device.token);
        caller.filter(|_| !device.is_stale(self.0.ctx.clock().now()))
    }

    /// Tells every browser whose person sees this group; of the end also those that were told of the beginning. Forgets those of
    /// people who are not let in any more.
    fn tell(&self, notice: &Notice, at: Option<Moment>) {
        if self.key().is_none() {
            return;
        }
        let notice = Arc::new(notice.clone());
        for device in self.0.devices.all() {
            let Some(caller) = self.hears(&device) else {
                self.drop_line(&device.subscription.endpoint);
                self.forget(move |known| {
                    known.subscription == device.subscription
                        && (&known.person, known.token) == (&device.person, device.token)
                });
                continue;
            };
            let to = device.subscription.endpoint.clone();
            let shows = || !notice.is_open && self.0.begun.lock().contains(&(notice.ask, to.clone()));
            if device.heard_of(at, notice.created_at) && (caller.sees(&notice.group) || shows()) {
                self.line_up(to, &notice);
            }
        }
    }

    fn forget(&self, gone: impl Fn(&Device) -> bool + Send + 'static) {
        let push = self.clone();
        self.0.ctx.finish_blocking(move || {
            if let Err(error) = push.0.devices.remove(gone) {
                tracing::error!(%error, "a browser that is gone cannot be forgotten");
            }
        });
    }
}

/// A browser signs up.
pub(super) async fn subscribe(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
    body: Result<Json<Object<Subscription>>, JsonRejection>,
) -> Result<StatusCode, Problem> {
    let Json(Object(subscription)) = body?;
    let push = inbox.push.clone();
    let wrong = |why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "No push service", why);
    let settings = push.settings();
    if settings.web.push == PushSettings::Off {
        return Err(wrong("askd pushes nothing: [web] push is off."));
    }
    address::allowed(&subscription.endpoint, &settings.web.push_hosts).map_err(wrong)?;
    subscription.seal(b"").map_err(|_| wrong("keys are not those of a browser"))?;
    let (clock, person, token) = (inbox.ctx.clock(), caller.name, caller.token);
    let (since, joined) = (clock.now(), Some(clock.monotonic()));
    let device = Device { person, token, since, joined, seen: since, subscription };
    stored(tokio::task::spawn_blocking(move || push.0.devices.add(&device)).await)
}

#[derive(Deserialize)]
pub(super) struct Endpoint {
    endpoint: String,
}

/// A browser signs off.
pub(super) async fn unsubscribe(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
    body: Result<Json<Object<Endpoint>>, JsonRejection>,
) -> Result<StatusCode, Problem> {
    let Json(Object(Endpoint { endpoint })) = body?;
    let (push, person) = (inbox.push.clone(), caller.name);
    let remove = move || {
        push.0.devices.remove(|known| known.subscription.endpoint == endpoint && known.person == person)?;
        if push.0.devices.at(&endpoint).is_none() {
            push.drop_line(&endpoint);
        }
        Ok(())
    };
    stored(tokio::task::spawn_blocking(remove).await)
}

fn stored<E: std::fmt::Display>(written: Result<io::Result<()>, E>) -> Result<StatusCode, Problem> {
    let error = match written {
        Ok(Ok(())) => return Ok(StatusCode::NO_CONTENT),
        Ok(Err(error)) => error.to_string(),
        Err(panic) => panic.to_string(),
    };
    tracing::error!(%error, "cannot use state/push.json");
    Err(Problem::not_stored())
}
