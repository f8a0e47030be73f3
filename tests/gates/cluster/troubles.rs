//! What goes wrong in `cluster`: of the daemons, of the database and their way to it, and of its computer's power.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::World;
use super::hosts::{Host, sql};
use crate::dice::Dice;
use crate::server::Server;

/// How long the paused daemon is paused: longer than its lease and all that it may still do in it.
const PAUSE: Duration = Duration::from_secs(40);
/// A pause takes long, so there is one in so many troubles, and none in a short run.
const LONG: usize = 10;
/// The shortest pause of the leader after which another one leads: for daemons that are broken on purpose.
const OVERTAKEN: Duration = Duration::from_secs(22);
/// How soon a daemon ends that was overtaken.
const ENDS: Duration = Duration::from_secs(10);
/// The server is restarted in one of so many troubles.
const OFTEN: usize = 5;
const CUT: Duration = Duration::from_secs(3);

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Troubles {
    /// Of the daemons, and of their way to the database.
    OfDaemons,
    /// The power of the database's computer is cut, with or without the death of a daemon.
    OfPower,
}

/// How often each trouble came.
#[derive(Default)]
pub(super) struct Came {
    kills: usize,
    pauses: usize,
    cuts: usize,
    restarts: usize,
    losses: usize,
    gone: usize,
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, pauses, cuts, restarts, losses, gone } = self;
        write!(
            f,
            "{kills} kills, {pauses} pauses, {cuts} cuts of the database, {restarts} restarts, {losses} losses of its power, {gone} hosts gone for good"
        )
    }
}

/// The database, as it is got at.
pub(super) struct Database {
    own: Server,
    name: String,
}

impl Database {
    pub(super) fn new(troubles: Troubles, name: String) -> Result<Self, String> {
        let own = tokio::task::block_in_place(|| Server::start(troubles == Troubles::OfPower))?;
        sql(&own.url(), &format!("create database {name}"))?;
        Ok(Self { own, name })
    }

    pub(super) fn url(&self) -> Result<String, String> {
        let server = self.own.url();
        let (server, _) = server.rsplit_once('/').ok_or("the server's URL has no database")?;
        Ok(format!("{server}/{}", self.name))
    }

    /// It ends all connections, and takes none for a while.
    async fn cut_off(&self) -> Result<(), String> {
        let (server, name) = (self.own.url(), &self.name);
        sql(&server, &format!("alter database {name} allow_connections false"))?;
        sql(&server, &format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"))?;
        tokio::time::sleep(CUT).await;
        sql(&server, &format!("alter database {name} allow_connections true")).map(drop)
    }

    /// The name of the host whose daemon leads.
    fn leader(&self) -> Result<String, String> {
        sql(&self.url()?, "select node from askd.groups where until > now()")
    }
}

impl World {
    /// The trouble of a round.
    pub(super) async fn trouble(
        &self,
        database: &mut Database,
        (round, rounds): (usize, usize),
        dice: &mut Dice,
        came: &mut Came,
    ) -> Result<(), String> {
        let left: Vec<&Host> = self.hosts.iter().filter(|host| !host.is_gone()).collect();
        let (any, began) = (left[dice.roll(left.len())], Instant::now());
        let host = match self.sabotage {
            // Only a takeover shows it.
            Some("untimed") => self.leader(database)?,
            // The one that only looks has to go on leading.
            Some("nopoll") => left[left.len() - 1],
            _ => any,
        };
        if self.forgets {
            if dice.chance(50) {
                self.kill(host, came).await?;
            }
            tokio::task::block_in_place(|| database.own.lose_power())?;
            self.deadlines.trouble(None, began);
            came.losses += 1;
        } else if round == rounds * 4 / 5 {
            host.go().await;
            came.gone += 1;
        } else if self.sabotage == Some("nofence") && round == 0 {
            self.pause(database, self.leader(database)?, OVERTAKEN, came).await?;
        } else if rounds >= LONG && round % LONG == LONG / 2 {
            // Every second one is of the leader, who is overtaken meanwhile.
            let host = if (round / LONG).is_multiple_of(2) { self.leader(database)? } else { host };
            self.pause(database, host, PAUSE, came).await?;
        } else if round % OFTEN == 1 {
            tokio::task::block_in_place(|| database.own.restart())?;
            self.deadlines.trouble(None, began);
            came.restarts += 1;
        } else if dice.chance(25) {
            database.cut_off().await?;
            self.deadlines.trouble(None, began);
            came.cuts += 1;
        } else {
            self.kill(host, came).await?;
        }
        self.revive().await
    }

    /// The host whose daemon leads, or any other if none does.
    fn leader(&self, database: &Database) -> Result<&Host, String> {
        let name = database.leader()?;
        let leads = self.hosts.iter().find(|host| host.name == name && !host.is_gone());
        leads.or_else(|| self.hosts.iter().find(|host| !host.is_gone())).ok_or_else(|| "no host is left".to_owned())
    }

    fn number(&self, host: &Host) -> Option<usize> {
        self.hosts.iter().position(|other| other.name == host.name)
    }

    /// Kills its daemon, and starts it again, as systemd would.
    async fn kill(&self, host: &Host, came: &mut Came) -> Result<(), String> {
        let began = Instant::now();
        host.daemon.kill().await;
        host.daemon.spawn().await?;
        self.deadlines.trouble(self.number(host), began);
        came.kills += 1;
        Ok(())
    }

    /// Stops its daemon for longer than its lease, and lets it go on: what lay in its sockets is then the first thing that it sees. One that
    /// was overtaken has to end.
    async fn pause(&self, database: &Database, host: &Host, time: Duration, came: &mut Came) -> Result<(), String> {
        let pid =
            host.daemon.pid().await.and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or("no daemon to pause")?;
        let (began, led) = (Instant::now(), database.leader()? == host.name);
        kill_process(pid, Signal::STOP).map_err(|error| error.to_string())?;
        tokio::time::sleep(time).await;
        let overtaken = led && database.leader()? != host.name;
        self.deadlines.resumes();
        kill_process(pid, Signal::CONT).map_err(|error| error.to_string())?;
        self.deadlines.trouble(self.number(host), began);
        came.pauses += 1;
        let resumed = Instant::now();
        while overtaken && host.daemon.runs().await {
            if resumed.elapsed() > ENDS {
                self.two_leaders.fetch_add(1, Ordering::SeqCst);
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Starts what does not run.
    pub(super) async fn revive(&self) -> Result<(), String> {
        for host in self.hosts.iter().filter(|host| !host.is_gone()) {
            if !host.daemon.runs().await {
                host.daemon.kill().await;
                host.daemon.spawn().await?;
            }
        }
        Ok(())
    }
}
