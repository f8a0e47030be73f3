//! Server-sent events: where each question of the group that was asked over HTTP is, and that an outcome is there. An event is
//! no delivery: the outcome is fetched.
//!
//! Each event names how far its reader has come. A client that was cut off goes on from there, as long as this daemon remembers
//! what has changed since; else it begins anew. What a question is comes from its record each time.

use super::Agents;
use super::asks::Status;
use super::door::Caller;
use crate::host::broker::{Broker, Filter};
use crate::host::channel::web::Problem;
use crate::host::ctx::Ctx;
use crate::host::store::StoreError;
use crate::random;
use askd_core::{Ask, AskId, Group, Waiter};
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use std::collections::{HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{broadcast, watch};

const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// More open questions than a group can have.
const MOST: usize = 1000;
/// How many changes of asks are remembered.
const REMEMBERED: usize = 10_000;
/// How many changes are looked at before their events are sent.
const AT_A_TIME: usize = 100;
/// In the id of an event after which a client begins anew: it does not have the whole state yet.
const BEGINNING: &str = "0";

/// The changes since the first reader of events came.
#[derive(Debug, Default)]
pub(super) struct Changes(OnceLock<Arc<Recent>>);

/// What has changed lately.
#[derive(Debug)]
struct Recent {
    /// Tells these numbers from those of another run or daemon.
    run: String,
    last: Mutex<Last>,
    /// How many changes there were.
    count: watch::Sender<u64>,
}

/// The last changes, and the number of the first of them.
#[derive(Debug, Default)]
struct Last {
    first: u64,
    asks: VecDeque<AskId>,
}

impl Last {
    fn count(&self) -> u64 {
        self.first + self.asks.len() as u64
    }

    fn add(&mut self, id: AskId) {
        if self.asks.len() >= REMEMBERED {
            self.asks.pop_front();
            self.first += 1;
        }
        self.asks.push_back(id);
    }

    /// Some changes were missed: nobody can go on from before.
    fn miss(&mut self) {
        *self = Self { first: self.count() + 1, asks: VecDeque::new() };
    }

    /// The first changes after so many; `None`: they are not remembered.
    fn after(&self, count: u64) -> Option<Vec<AskId>> {
        let skipped = usize::try_from(count.checked_sub(self.first)?).ok()?;
        (skipped <= self.asks.len()).then(|| self.asks.iter().skip(skipped).take(AT_A_TIME).copied().collect())
    }
}

impl Changes {
    /// The changes, remembered from now on.
    fn recent(&self, broker: &Broker, ctx: &Ctx) -> Arc<Recent> {
        let begin = || {
            let recent =
                Arc::new(Recent { run: random::unique(), last: Mutex::default(), count: watch::Sender::new(0) });
            let (kept, mut changes) = (Arc::clone(&recent), broker.changes());
            ctx.spawn(async move {
                loop {
                    let next = changes.recv().await;
                    let mut last = kept.last.lock();
                    match next {
                        Ok(id) => last.add(id),
                        Err(broadcast::error::RecvError::Lagged(_)) => last.miss(),
                        Err(broadcast::error::RecvError::Closed) => return,
                    }
                    kept.count.send_replace(last.count());
                }
            });
            recent
        };
        Arc::clone(self.0.get_or_init(begin))
    }
}

impl Recent {
    /// How far an event has brought its reader.
    fn revision(&self, count: u64) -> String {
        format!("{}-{count}", self.run)
    }

    /// How far the reader of this event has come, if this daemon knows.
    fn read(&self, id: &str) -> Option<u64> {
        let (run, count) = id.split_once('.')?.1.rsplit_once('-')?;
        count.parse().ok().filter(|_| run == self.run)
    }
}

/// What a group is told of an ask, for each of its calls over HTTP.
fn told(ask: &Ask, group: &Group) -> Vec<(AskId, Event)> {
    let mine = ask.waiters.iter().filter(|waiter| ask.group == *group && !waiter.carrier.is_file());
    let event = |waiter: &Waiter| {
        let kind = if waiter.response.is_published() { "outcome" } else { "status" };
        let event = Event::default().event(kind).json_data(Status::of(ask, waiter.request_id.clone())).ok();
        event.map(|event| (ask.id, event))
    };
    mine.filter(|waiter| waiter.response.is_published() || ask.outcome().is_none()).filter_map(event).collect()
}

/// Says in each event how far it brings its reader: the last one to `after`, the others no further than before.
fn named(events: Vec<(AskId, Event)>, before: &str, after: &str) -> Vec<Event> {
    let last = events.len().saturating_sub(1);
    let name = |(at, (ask, event)): (usize, (AskId, Event))| {
        event.id(format!("{ask}.{}", if at == last { after } else { before }))
    };
    events.into_iter().enumerate().map(name).collect()
}

pub(super) async fn events(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let place = agents.place(&caller)?;
    let group = caller.holder.group.clone();
    agents.broker.loaded_of(&group).await;
    let (ctx, holder) = (agents.ctx.clone(), caller.holder.clone());
    let recent = agents.changes.recent(&agents.broker, &ctx);
    let last = headers.get("last-event-id").and_then(|id| recent.read(id.to_str().ok()?));
    let reader = Reader { count: recent.count.subscribe(), recent, agents, group, last };
    let stream = stream::unfold(reader, |mut reader: Reader| async move {
        let events = reader.next().await?;
        Some((stream::iter(events.into_iter().map(Ok)), reader))
    });
    let stream = stream.flatten().take_until(async move {
        let _place = place;
        tokio::select! {
            () = ctx.stopping() => {}
            () = holder.ends(ctx.clock()) => {}
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

/// A stream of events.
struct Reader {
    agents: Agents,
    group: Group,
    recent: Arc<Recent>,
    count: watch::Receiver<u64>,
    /// How many changes it has told; `None`: it has the state of now to tell first.
    last: Option<u64>,
}

impl Reader {
    /// The next events; `None` if there will be none any more.
    async fn next(&mut self) -> Option<Vec<Event>> {
        loop {
            let Some(last) = self.last else {
                // Before the state is read: what changes meanwhile is told after it.
                let count = *self.count.borrow_and_update();
                self.last = Some(count);
                let mut events = vec![Event::default().event("reset").data("{}")];
                // If it cannot be read, the reader calls again.
                let present = self.agents.present(&self.group).await.ok()?;
                events.extend(named(present, BEGINNING, &self.recent.revision(count)));
                return Some(events);
            };
            let changed = self.recent.last.lock().after(last);
            let Some(changed) = changed else {
                self.last = None;
                continue;
            };
            if changed.is_empty() {
                self.count.wait_for(|count| *count > last).await.ok()?;
                continue;
            }
            let count = last + changed.len() as u64;
            self.last = Some(count);
            let mut seen = HashSet::new();
            let mut events = Vec::new();
            for id in changed.into_iter().filter(|id| seen.insert(*id)) {
                if !self.agents.broker.is_of_group(id, &self.group) {
                    continue;
                }
                match self.agents.broker.get(id).await {
                    Ok(ask) => events.extend(ask.iter().flat_map(|ask| told(ask, &self.group))),
                    Err(StoreError::Damaged { .. }) => {}
                    // The reader calls again, and goes on from before.
                    Err(_) => return None,
                }
            }
            if !events.is_empty() {
                let (before, after) = (self.recent.revision(last), self.recent.revision(count));
                return Some(named(events, &before, &after));
            }
        }
    }
}

impl Agents {
    async fn present(&self, group: &Group) -> Result<Vec<(AskId, Event)>, StoreError> {
        let mut events = Vec::new();
        for settled in [false, true] {
            let filter = Filter { settled: Some(settled), group: Some(group.clone()), ..Filter::default() };
            let page = self.broker.page(filter, MOST, None, |ask| told(ask, &ask.group)).await?;
            for (_, id) in page.unreadable {
                match self.broker.get(id).await {
                    Err(StoreError::Damaged { .. }) => {}
                    read => drop(read?),
                }
            }
            events.extend(page.asks.into_iter().flatten());
        }
        Ok(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_goes_on_from_what_is_remembered_and_from_nowhere_else() {
        let id = |n: u128| AskId::from_bits(n);
        let mut last = Last::default();
        assert_eq!(last.after(0), Some(Vec::new()));
        assert_eq!(last.after(1), None, "of another run");
        (0..3).for_each(|n| last.add(id(n)));
        assert_eq!((last.after(1), last.after(3)), (Some(vec![id(1), id(2)]), Some(Vec::new())));
        (3..=REMEMBERED as u128).for_each(|n| last.add(id(n)));
        assert_eq!((last.after(0), last.after(1).map(|asks| asks.len())), (None, Some(AT_A_TIME)));
        let count = last.count();
        last.miss();
        assert_eq!((last.after(count), last.after(last.count())), (None, Some(Vec::new())));
    }
}
