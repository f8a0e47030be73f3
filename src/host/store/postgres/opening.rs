//! Opens the store: connects, makes the tables or refuses those of a newer askd, and finds out whether this daemon leads.

use super::audit::AuditRows;
use super::database::{Database, Durable, Failed, Work, query, scalar};
use super::documents::InTables;
use super::hints::Hints;
use super::holding::Holding;
use super::lease::{Leading, Lease};
use super::news::{Mark, snapshot};
use super::nodes::{ALONE, Joined, Joining, Node, abandon, begin};
use super::pins::{self, PinRow};
use super::settling::Settling;
use super::tables::prepare;
use super::{InPostgres, Shared, runs};
use crate::clock::Clock;
use crate::host::audit::Together;
use crate::host::store::{Documents as _, InFiles, Opened, StoreError, hold};
use crate::ipc::files::{Access, Dir};
use crate::random;
use parking_lot::Mutex;
use sqlx::PgConnection;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64},
};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) fn io_error(what: impl Into<String>) -> impl FnOnce(io::Error) -> StoreError {
    let what = what.into();
    move |source| StoreError::Io { what, source }
}

/// How often a daemon that waits looks whether it is its turn.
const LOOK: Duration = Duration::from_secs(1);
/// The shortest pause between two such looks. While others store something all the time, most notices tell of no end.
const PAUSE: Duration = Duration::from_millis(200);
/// The document of the state folder that names it.
const HOME: &str = "home";

/// Why a daemon does not lead.
enum Later {
    /// It never will.
    Refused(StoreError),
    /// This node leads.
    Leads(String),
    /// The database does not answer.
    Away(String),
}

/// What a daemon does with the records.
#[derive(Debug)]
pub enum Turn {
    /// It takes calls, and does what steps ask for.
    Leads(Opened),
    /// It takes calls, and waits until it can lead.
    Joins(Opened, Waiting),
}

/// What a run begins with: since when it looks, the server's era and the last transaction that is on stable storage, which host serves
/// each folder, and which groups it holds.
type Begun = (Mark, (String, u64), Vec<PinRow>, Vec<String>);

/// A daemon's place in the line for the lead. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Waiting {
    database: Arc<Database>,
    node: Box<Node>,
    /// It is among the nodes.
    joined: Option<Joining>,
    lease: Option<Lease>,
    after_loss: bool,
    why: watch::Sender<String>,
    held: Option<Arc<File>>,
    left: CancellationToken,
    hints: Hints,
    /// Where notices come from, past a pooler.
    listen: Option<String>,
}

impl Waiting {
    /// Takes the state folder, whose files stay on this host, and connects to nothing yet. `thread`: what the thread of the
    /// database is called.
    pub fn new(url: &str, node: &str, state: &Path, after_loss: bool, thread: &str) -> Result<Self, StoreError> {
        let cannot = |error| io_error(format!("cannot use {}", state.display()))(error);
        let parent = state.parent().unwrap_or(state);
        std::fs::create_dir_all(parent).map_err(cannot)?;
        Dir::open(parent).and_then(|parent| parent.ensure("state", Access::PRIVATE)).map_err(cannot)?;
        let held = hold(state)?;
        let waiting = Self::beside(url, node, state, after_loss, thread)?;
        Ok(Self { held: Some(Arc::new(held)), ..waiting })
    }

    /// The same for a caller that has the lock of the state folder already.
    pub fn beside(url: &str, node: &str, state: &Path, after_loss: bool, thread: &str) -> Result<Self, StoreError> {
        let cannot = |error| io_error(format!("cannot use {}", state.display()))(error);
        let home = || -> io::Result<String> {
            let files = InFiles::open(state)?;
            let known = files.read(HOME)?.and_then(|bytes| String::from_utf8(bytes).ok());
            let home = known.filter(|home| uuid::Uuid::parse_str(home).is_ok());
            if let Some(home) = home {
                return Ok(home);
            }
            let home = random::unique();
            files.store(HOME, home.as_bytes())?;
            Ok(home)
        };
        let (home, clock) = (home().map_err(cannot)?, Clock::system());
        let (run, host) = (random::unique(), node.to_owned());
        let (heard, silent, standbys) = (Arc::default(), Arc::default(), Arc::default());
        let database = Database::new(url, thread).map_err(io::Error::other).map_err(io_error("[postgres]"))?;
        let holding = Holding::new(run.clone(), database.connections().clock().clone());
        let node = Box::new(Node { run, node: host.clone(), host, home, clock, heard, holding, silent, standbys });
        let (database, why) = (Arc::new(database), watch::Sender::new("connecting to the database".to_owned()));
        let (left, hints) = (CancellationToken::new(), Hints::default());
        let (joined, lease, held, listen) = (None, None, None, None);
        Ok(Self { database, node, joined, lease, after_loss, why, held, left, hints, listen })
    }

    /// Notices of other daemons come by this URL, past a pooler. Without one, a daemon looks every second.
    pub fn listening(mut self, url: Option<&str>) -> Self {
        self.listen = url.map(str::to_owned);
        self
    }

    /// This clock follows the database's.
    pub fn setting(mut self, clock: &Clock) -> Self {
        self.node.clock = clock.clone();
        self
    }

    /// Why this daemon takes no calls yet.
    pub fn why(&self) -> watch::Receiver<String> {
        self.why.subscribe()
    }

    /// Whether this daemon has taken the lead already.
    #[cfg(test)]
    pub fn leads(&self) -> bool {
        self.lease.is_some()
    }

    /// Gives the lead up that this daemon has won and will not use: another one can take it at once.
    pub async fn abandon(self) {
        self.left.cancel();
        let Some(lease) = self.lease else { return };
        let (connections, run) = (self.database.connections().clone(), self.node.run);
        let ended = self.database.run(async move { abandon(&connections, run, &lease).await }).await;
        if let Err(error) = ended {
            tracing::warn!(%error, "cannot give the lead up; another daemon takes it in some seconds");
        }
    }

    /// Waits until the database can be reached, and finds out whether this daemon leads.
    pub async fn turn(mut self) -> Result<Turn, StoreError> {
        let mut patient = false;
        loop {
            let later = match self.try_turn(patient).await {
                Ok(()) => match self.open().await {
                    Ok(opened) => return Ok(Turn::Leads(opened)),
                    Err(later) => later,
                },
                Err(Later::Leads(node)) => match self.open().await {
                    Ok(opened) => {
                        tracing::info!("{node} leads; this daemon takes calls beside it");
                        return Ok(Turn::Joins(opened, self));
                    }
                    Err(later) => later,
                },
                Err(later) => later,
            };
            match later {
                Later::Refused(refused) => return Err(refused),
                Later::Leads(_) => {}
                Later::Away(cause) => {
                    // Whoever leads was cut off, too.
                    patient = true;
                    if self.waits("the database cannot be reached") {
                        tracing::warn!(cause, "cannot reach the database; trying again every second");
                    }
                }
            }
            self.database.connections().clock().sleep(LOOK).await;
        }
    }

    /// Waits until this daemon can lead. The next [`Self::turn`] says so at once.
    pub async fn lead(mut self) -> Result<Self, StoreError> {
        let mut heard = self.hints.heard();
        let clock = self.database.connections().clock().clone();
        loop {
            clock.sleep(PAUSE).await;
            clock.timeout(LOOK.saturating_sub(PAUSE), heard.changed()).await;
            match self.try_turn(true).await {
                Ok(()) => return Ok(self),
                Err(Later::Refused(refused)) => return Err(refused),
                Err(Later::Leads(_) | Later::Away(_)) => {}
            }
        }
    }

    /// The same at once, or not at all.
    pub async fn now(mut self) -> Result<Opened, StoreError> {
        let unusable = |what: String| io_error("[postgres]")(io::Error::other(what));
        let opened = match self.try_turn(false).await {
            Ok(()) => self.open().await,
            Err(later) => Err(later),
        };
        opened.map_err(|later| match later {
            Later::Refused(refused) => refused,
            Later::Leads(node) => StoreError::Held(format!("the database ({node} is running)")),
            Later::Away(why) => unusable(why),
        })
    }

    /// The same, and no other daemon may be there, or come.
    pub async fn alone(mut self) -> Result<Opened, StoreError> {
        self.node = Box::new(self.node.alone());
        self.now().await
    }

    /// `patient`: a leader may have been cut off as this daemon was, and has the time to come back.
    async fn try_turn(&mut self, patient: bool) -> Result<(), Later> {
        if self.lease.is_some() {
            return Ok(());
        }
        let away = |database: Arc<Database>, error: Failed| async move {
            let connections = database.connections().clone();
            let cause = database.run(async move { Ok(connections.cause().await) }).await.ok().flatten();
            Later::Away(cause.unwrap_or_else(|| error.to_string()))
        };
        if self.joined.is_none() {
            match self.join().await {
                Ok(Ok(joining)) => self.joined = Some(joining),
                Ok(Err(refused)) => return Err(Later::Refused(refused)),
                Err(error) => return Err(away(Arc::clone(&self.database), error).await),
            }
        }
        let (connections, node) = (self.database.connections().clone(), self.node.clone());
        let taken = self.database.run(async move { Lease::take(&connections, &node, patient).await }).await;
        match taken {
            Ok(Ok(lease)) => {
                self.database.spawn(lease.clone().keep(self.database.connections().clone()));
                self.lease = Some(lease);
                Ok(())
            }
            Ok(Err(Leading { node })) => Err(Later::Leads(node)),
            Err(error) => Err(away(Arc::clone(&self.database), error).await),
        }
    }

    /// Makes the tables, and enters this run among the nodes.
    async fn join(&self) -> Result<Result<Joining, StoreError>, Failed> {
        let (connections, node) = (self.database.connections().clone(), self.node.clone());
        let direct = self.listen.clone();
        let joining = async move {
            if let Err(refused) = prepare(&connections, direct.as_deref()).await? {
                return Ok(Err(refused));
            }
            Ok(match node.join(&connections).await? {
                Joined::Yes => Ok(()),
                Joined::Beside(other) => Err(StoreError::Held(format!("the database ({other} is running)"))),
                Joined::Namesake | Joined::Copied => Err(StoreError::Namesake(node.host)),
                Joined::Moved(moved) => Err(moved),
            })
        };
        if let Err(refused) = self.database.run(joining).await? {
            return Ok(Err(refused));
        }
        let connections = self.database.connections().clone();
        self.database.spawn(self.node.holding.clone().keep(connections.clone(), self.left.clone()));
        self.database.spawn(self.node.clone().keep(connections.clone(), self.left.clone()));
        if let Some(url) = self.listen.clone() {
            self.database.spawn(self.hints.clone().listen(url, connections.clock().clone(), self.left.clone()));
            self.database.spawn(self.hints.clone().notify(connections.clone(), self.left.clone()));
        }
        let after_loss = self.after_loss;
        self.database.run(async move { begin(&connections, after_loss).await }).await.map(Ok)
    }

    /// Begins with what the tables give to this run. Returns from where on what is changed is news, the server's era with what of it is
    /// on stable storage, and which host serves which folder.
    async fn begin_run(&self) -> Result<(Mark, (String, u64), Vec<PinRow>), Failed> {
        let (connections, leads) = (self.database.connections().clone(), self.lease.is_some());
        let check = checks(self.lease.as_ref(), &self.node.holding);
        let (node, run) = (self.node.node.clone(), self.node.run.clone());
        let turn = self.node.holding.turn().await;
        let work: Work<Begun> = Arc::new(move |connection| {
            let (node, run) = (node.clone(), run.clone());
            Box::pin(async move {
                // Before anything is read: what is changed from now on is news.
                let since = Mark::at(snapshot(&mut *connection).await?);
                let held = runs::open(&mut *connection, (&run, &node), leads).await?;
                Ok((since, synced(&mut *connection).await?, pins::all(connection).await?, held))
            })
        });
        let begun = self.database.run(async move { connections.transact(Durable::Yes, &check, work).await }).await;
        let (since, synced, pins, mut held) = begun?;
        if leads {
            let (holding, connections) = (self.node.holding.clone(), self.database.connections().clone());
            let check = checks(self.lease.as_ref(), &holding);
            let taken = self.database.run(async move { Ok(holding.take_free(&connections, &check).await) }).await;
            held.extend(taken.unwrap_or_default());
        }
        self.node.holding.set(&held);
        drop(turn);
        Ok((since, synced, pins))
    }

    async fn open(&self) -> Result<Opened, Later> {
        let (since, (era, flushed), pins) = self.begin_run().await.map_err(|failed| match failed {
            Failed::Unchanged(_) | Failed::Unknown(_) => Later::Away(failed.to_string()),
            // Another run has taken over.
            _ => Later::Refused(io_error("[postgres]")(io::Error::other(failed.to_string()))),
        })?;
        let shared = Arc::new(Shared {
            database: Arc::clone(&self.database),
            line: Arc::default(),
            lease: self.lease.clone(),
            holding: self.node.holding.clone(),
            run: self.node.run.clone(),
            node: self.node.node.clone(),
            silent: Arc::clone(&self.node.silent),
            standbys: Arc::clone(&self.node.standbys),
            ends: CancellationToken::new(),
            left: self.left.clone(),
            overtaken: self.node.holding.lost().clone(),
        });
        let documents = Arc::new(InTables::new(&shared, &self.hints));
        let audit = Some(Together { lines: Arc::new(AuditRows(Arc::clone(&shared))), node: self.node.node.clone() });
        let store = InPostgres {
            shared,
            era: Mutex::new(era),
            clean: self.joined.as_ref().and_then(|joining| joining.clean.clone()),
            cache: Mutex::default(),
            unflushed: Mutex::default(),
            flushing: Mutex::default(),
            doubts: Mutex::default(),
            given: Mutex::default(),
            pins: Mutex::default(),
            mark: Mutex::new(since),
            known_before: AtomicU64::new(0),
            flushed: Mutex::new(flushed),
            hints: self.hints.clone(),
            _held: self.held.clone(),
            closed: AtomicBool::new(false),
            last_save_failed: AtomicBool::new(false),
            last_flush_failed: AtomicBool::new(false),
        };
        store.know_pins(pins);
        if let Some(lease) = self.lease.clone().filter(|_| self.node.node != ALONE) {
            let settling = Settling::new(self.database.connections().clone(), lease.check());
            self.database.spawn(settling.keep(self.left.clone(), lease.lost().clone()));
        }
        Ok(Opened { store: Box::new(store), documents, audit })
    }

    /// Says why this daemon waits; `true` if it is another reason than before.
    fn waits(&self, why: &str) -> bool {
        self.why.send_if_modified(|known| {
            let changed = *known != why;
            why.clone_into(known);
            changed
        })
    }
}

/// The statements that begin each transaction of a run.
pub(super) fn checks(lease: Option<&Lease>, holding: &Holding) -> String {
    lease.map(Lease::check).into_iter().chain([holding.check()]).collect()
}

/// The server's era, and the number of this transaction: once it is committed, and that was waited for, all that was committed before
/// is on stable storage, too.
pub(super) async fn synced(connection: &mut PgConnection) -> Result<(String, u64), sqlx::Error> {
    // What writes nothing does not wait for the disk.
    query("update askd.format set tables = tables").execute(&mut *connection).await?;
    let number = scalar::<String>("select pg_current_xact_id()::text").fetch_one(&mut *connection).await?;
    Ok((era(connection).await?, number.parse().unwrap_or_default()))
}

/// Names the time since which the server lost nothing that it had committed.
pub(super) async fn era(connection: &mut PgConnection) -> Result<String, sqlx::Error> {
    let begin = "insert into askd.era (mark) values ($1::uuid) on conflict do nothing";
    query(begin).bind(random::unique()).execute(&mut *connection).await?;
    scalar("select mark::text from askd.era").fetch_one(connection).await
}
