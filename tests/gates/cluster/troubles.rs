//! What goes wrong in `cluster`: of the daemons, of their way to the database, and of its computer's power.

use std::fmt;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::World;
use super::hosts::{Host, sql};
use crate::dice::Dice;
use crate::server::Server;

/// How long the paused daemon is paused: longer than its lease and all that it may still do in it.
const PAUSE: Duration = Duration::from_secs(40);
/// A pause takes long, so there is one in so many troubles, and none in a short run.
const LONG: usize = 10;
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
    losses: usize,
    gone: usize,
}

impl fmt::Display for Came {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, pauses, cuts, losses, gone } = self;
        write!(
            f,
            "{kills} kills, {pauses} pauses, {cuts} cuts of the database, {losses} losses of its power, {gone} hosts gone for good"
        )
    }
}

/// The database, as it is got at.
pub(super) struct Database {
    /// Its server, where its power can be cut.
    own: Option<Server>,
    server: String,
    name: String,
}

impl Database {
    pub(super) fn new(troubles: Troubles, name: String) -> Result<Self, String> {
        let own = if troubles == Troubles::OfPower { Some(Server::start()?) } else { None };
        let server = match &own {
            Some(own) => own.url(),
            None => std::env::var("ASKD_TEST_POSTGRES").map_err(|error| error.to_string())?,
        };
        sql(&server, &format!("create database {name}"))?;
        Ok(Self { own, server, name })
    }

    pub(super) fn url(&self) -> Result<String, String> {
        let (server, _) = self.server.rsplit_once('/').ok_or("the server's URL has no database")?;
        Ok(format!("{server}/{}", self.name))
    }

    /// It ends all connections, and takes none for a while.
    async fn cut_off(&self) -> Result<(), String> {
        let Self { server, name, .. } = self;
        sql(server, &format!("alter database {name} allow_connections false"))?;
        sql(server, &format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"))?;
        tokio::time::sleep(CUT).await;
        sql(server, &format!("alter database {name} allow_connections true"))
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
        let host = left[dice.roll(left.len())];
        if let Some(own) = &mut database.own {
            if dice.chance(50) {
                host.daemon.kill().await;
                came.kills += 1;
            }
            tokio::task::block_in_place(|| own.lose_power())?;
            came.losses += 1;
        } else if round == rounds * 4 / 5 {
            host.go().await;
            came.gone += 1;
        } else if rounds >= LONG && round % LONG == LONG / 2 {
            paused(host).await?;
            came.pauses += 1;
        } else if dice.chance(25) {
            database.cut_off().await?;
            came.cuts += 1;
        } else {
            host.daemon.kill().await;
            came.kills += 1;
        }
        self.revive().await
    }

    /// Starts what does not run, as systemd would.
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

/// Stops a daemon for longer than its lease, and lets it go on: what lay in its sockets is then the first thing that it sees.
async fn paused(host: &Host) -> Result<(), String> {
    let pid = host.daemon.pid().await.and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or("no daemon to pause")?;
    kill_process(pid, Signal::STOP).map_err(|error| error.to_string())?;
    tokio::time::sleep(PAUSE).await;
    kill_process(pid, Signal::CONT).map_err(|error| error.to_string())
}
