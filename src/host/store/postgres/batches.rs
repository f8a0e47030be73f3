//! Saves that come while others are in hand share a transaction: it waits for the disk once for all of them. A save that comes
//! alone goes at once. Each save gets a verdict of its own: if a transaction fails, each of its saves is done again in one of its
//! own, so none fails because of another one.

use super::Shared;
use super::asks::Carried;
use super::columns::Columns;
use super::database::{Database, Durable, Failed, LIMIT, Work, stopped};
use crate::clock::{Clock, Moment};
use crate::sabotage::on;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::Notify;

/// How many such transactions are under way at a time: while one waits for the disk, the next one is at work, if so many saves
/// wait. A transaction costs more than a save in it, and daemons that share a server make many.
const AT_WORK: usize = 2;
const ENOUGH: usize = 16;
/// After a transaction of so many saves, those that were told are about to save what they have next: the next one waits for as many, but
/// no longer than this. Else it would have one or two of them, and the one after that all the others.
const MANY: usize = 4;
pub(super) const GATHERS: Duration = Duration::from_millis(1);
/// The most saves in one transaction, and about how many bytes.
const MOST: usize = 64;
const MOST_BYTES: usize = 1024 * 1024;
/// How long such a transaction waits for a row that another one holds, in milliseconds. Whoever waits longer does so alone.
const LOCK_LIMIT: u32 = 100;

/// A save of a row.
#[derive(Debug, Clone)]
pub(super) struct NewRow {
    pub(super) which: String,
    pub(super) of_group: String,
    /// The operation.
    pub(super) made_by: String,
    /// The record.
    pub(super) what: String,
    /// The run that has to be the one of the folder's host; [`NO_ID`](super::NO_ID): no host may serve it.
    pub(super) held: Option<String>,
    /// The run that has to hold the group.
    pub(super) holder: Option<String>,
    pub(super) code: String,
    pub(super) over: Over,
    pub(super) in_era: String,
    pub(super) along: Carried,
}

/// What a save finds in the place of its row.
#[derive(Debug, Clone)]
pub(super) enum Over {
    /// Nothing, and its group was given only so many asks.
    Given(i64),
    /// What this operation has made.
    Replaces(String),
}

/// The row's new revision; `None`: the row, or the number of asks that its group was given, is another than the save says.
pub(super) type Verdict = Result<Option<i64>, Failed>;

/// A save that waits for its verdict.
#[derive(Debug)]
pub(super) struct Waiting {
    row: NewRow,
    durable: Durable,
    since: Moment,
    told: SyncSender<Verdict>,
}

impl Waiting {
    pub(super) fn new(row: NewRow, durable: Durable, since: Moment, told: SyncSender<Verdict>) -> Self {
        Self { row, durable, since, told }
    }

    /// Transactions that take rows in this order do not wait for each other in a circle, as a rule: a plan of the server may take those that
    /// replace something in another one. Then they wait for [`LOCK_LIMIT`], and each save goes alone.
    fn order(&self) -> (bool, &str, i64) {
        match self.row.over {
            Over::Given(given) => (false, &self.row.of_group, given),
            Over::Replaces(_) => (true, &self.row.which, 0),
        }
    }

    fn tell(&self, verdict: Verdict) {
        // Nobody waits any more only if the caller's thread is gone.
        let _told = self.told.send(verdict);
    }
}

/// The saves that wait until a transaction takes them.
#[derive(Debug, Default)]
pub(super) struct Line {
    all: Mutex<InLine>,
    /// Rings when as many wait as the last transaction had.
    as_many: Notify,
}

#[derive(Debug, Default)]
struct InLine {
    waiting: VecDeque<Waiting>,
    at_work: usize,
    /// How many the last transaction had.
    last: usize,
}

impl InLine {
    fn has_as_many(&self) -> bool {
        self.last < MANY || self.waiting.len() >= self.last
    }
}

impl Line {
    /// `true`: whoever calls this has to have [`Batches::run`] run.
    #[must_use]
    pub(super) fn join(&self, waiting: Waiting) -> bool {
        let mut line = self.all.lock();
        line.waiting.push_back(waiting);
        if line.has_as_many() {
            self.as_many.notify_one();
        }
        let goes = line.at_work == 0 || line.at_work < AT_WORK && line.waiting.len() >= ENOUGH;
        line.at_work += usize::from(goes);
        goes
    }

    /// Waits until there are as many as the last transaction had, but not for long.
    pub(super) async fn gather(&self, clock: &Clock) {
        let as_many = async {
            while !self.all.lock().has_as_many() {
                self.as_many.notified().await;
            }
        };
        let _late = clock.timeout(GATHERS, as_many).await;
    }

    /// Takes what waits, the oldest first; `None`: nothing does, or too little while another transaction is under way.
    pub(super) fn take(&self) -> Option<Vec<Waiting>> {
        let mut line = self.all.lock();
        if line.at_work > 1 && line.waiting.len() < ENOUGH {
            line.at_work -= 1;
            return None;
        }
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            let fits = bytes < MOST_BYTES;
            bytes += waiting.row.what.len();
            fits
        };
        let most = if on("onebyone") { 1 } else { MOST };
        let many = line.waiting.iter().take(most).take_while(fits).count();
        line.last = many;
        if many == 0 {
            line.at_work -= 1;
            return None;
        }
        Some(line.waiting.drain(..many).collect())
    }
}

/// What stores them.
#[derive(Debug, Clone)]
pub(super) struct Batches {
    pub(super) line: Arc<Line>,
    pub(super) database: Arc<Database>,
    /// What each transaction begins with.
    pub(super) check: String,
}

impl Batches {
    /// Stores what waits, until nothing does.
    async fn run(self) {
        loop {
            self.line.gather(self.database.connections().clock()).await;
            let Some(batch) = self.line.take() else { return };
            // A panic has been reported, and the place must not be lost.
            let _panicked = AssertUnwindSafe(self.store(batch)).catch_unwind().await;
        }
    }

    /// Stores these in one transaction. Those that fail are done again in the background.
    pub(super) async fn store(&self, mut batch: Vec<Waiting>) {
        batch.sort_by(|one, other| one.order().cmp(&other.order()));
        let check = format!("set local lock_timeout = {LOCK_LIMIT}; {}", self.check);
        match self.transact(&batch, &check).await {
            Ok(verdicts) => batch.iter().zip(verdicts).for_each(|(waiting, verdict)| waiting.tell(verdict)),
            // One of them may be at fault, or wait for a row that somebody holds for long.
            Err(Failed::Unchanged(_) | Failed::Conflict | Failed::Moved | Failed::NotHeld) if !on("onefate") => {
                for waiting in batch {
                    self.database.spawn(self.clone().alone(waiting));
                }
            }
            Err(why) => batch.iter().for_each(|waiting| waiting.tell(Err(why.clone()))),
        }
    }

    async fn alone(self, waiting: Waiting) {
        let verdict = match self.transact(std::slice::from_ref(&waiting), &self.check).await {
            Ok(verdicts) => verdicts.into_iter().next().unwrap_or(Ok(None)),
            Err(why) => Err(why),
        };
        waiting.tell(verdict);
    }

    /// Each one is told in time, however long it has waited.
    async fn transact(&self, batch: &[Waiting], check: &str) -> Result<Vec<Verdict>, Failed> {
        let now = self.database.connections().clock().monotonic();
        let waited = batch.iter().map(|waiting| now.since(waiting.since)).max().unwrap_or_default();
        let durable =
            if batch.iter().any(|waiting| waiting.durable == Durable::Yes) { Durable::Yes } else { Durable::No };
        let saves = Arc::new(Columns::of(batch.iter().map(|waiting| &waiting.row)));
        let work: Work<Vec<Verdict>> = Arc::new(move |connection| {
            let saves = Arc::clone(&saves);
            Box::pin(async move { saves.store(connection).await })
        });
        self.database.connections().transact_within(LIMIT.saturating_sub(waited), durable, check, work).await
    }
}

impl Shared {
    /// Stores a row, together with others that wait.
    pub(super) fn save(&self, row: NewRow, durable: Durable) -> Verdict {
        let (tell, told) = sync_channel(1);
        let now = self.database.connections().clock().monotonic();
        if self.line.join(Waiting::new(row, durable, now, tell)) {
            let check = self.check();
            let batches = Batches { line: Arc::clone(&self.line), database: Arc::clone(&self.database), check };
            self.database.spawn(batches.run());
        }
        let verdict = told.recv().unwrap_or_else(|_| Err(stopped()));
        if let Err(Failed::Overtaken) = &verdict {
            self.lose();
        }
        verdict
    }
}
