//! Which host serves the folder of each group. The first host in whose folder a request comes does, until an operator moves the group.
//! Each save of that host checks it: once a group has moved, what its former host still does in the folder changes no record. So does each
//! save of a daemon that knows of no such host: it would do what is that host's.

use super::database::{Durable, Failed, Work, query, scalar};
use super::look::from_outside;
use super::statement::statement;
use super::{InPostgres, failed};
use crate::host::store::{Pin, Pins, Silent, StoreError};
use askd_core::{Group, Time};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The columns of a [`PinRow`].
macro_rules! pins {
    ($rest:literal) => {
        concat!("select group_name, node, strange from askd.pins ", $rest)
    };
}

/// A row of `askd.pins`.
pub(super) type PinRow = (String, String, Option<i64>);

pub(super) fn pin_rows(rows: &[PgRow]) -> Result<Vec<PinRow>, sqlx::Error> {
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))).collect()
}

/// All of them, for a start.
pub(super) async fn all(connection: &mut PgConnection) -> Result<Vec<PinRow>, sqlx::Error> {
    pin_rows(&query(pins!("")).fetch_all(connection).await?)
}

/// A host begins: another run of its name is over, and after a loss of power nobody knows what lies in its folders. Only whoever has
/// made sure that no such run is live calls this.
pub(super) async fn begin(connection: &mut PgConnection, node: &str, boot: &str) -> Result<(), sqlx::Error> {
    query("delete from askd.nodes where node = $1").bind(node).execute(&mut *connection).await?;
    let lost = "update askd.pins set changed = pg_current_xact_id(),
                    strange = (extract(epoch from clock_timestamp()) * 1000)::bigint
                where node = $1 and exists (select from askd.hosts where node = $1 and boot <> $2)";
    query(lost).bind(node).bind(boot).execute(&mut *connection).await?;
    let begin = "insert into askd.hosts (node, heard, boot) values ($1, now(), $2)
                 on conflict (node) do update set heard = excluded.heard, boot = excluded.boot";
    query(begin).bind(node).bind(boot).execute(connection).await.map(drop)
}

/// Begins each save of the host that serves the group's folder. It fails if that is another one by now.
pub(super) async fn hold(connection: &mut PgConnection, group: &str, run: &str) -> Result<(), sqlx::Error> {
    query("select askd.hold_folder($1, $2::uuid)").bind(group).bind(run).execute(connection).await.map(drop)
}

/// The hosts that serve folders and were last heard of longer ago than that, and when.
pub(super) async fn silent_for(
    connection: &mut PgConnection,
    since: Duration,
) -> Result<Vec<(String, Time)>, sqlx::Error> {
    let silent = "select node, (extract(epoch from heard) * 1000)::bigint from askd.hosts as hosts
                  where heard < now() - make_interval(secs => $1)
                      and exists (select from askd.pins as pins where pins.node = hosts.node) order by node";
    let rows = query(silent).bind(since.as_secs_f64()).fetch_all(connection).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, Time::from_millis(row.try_get(1)?)))).collect()
}

/// The operator says that disks may have lost what was written last.
pub(super) async fn lose(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let lost = "update askd.pins set changed = pg_current_xact_id(),
                    strange = (extract(epoch from clock_timestamp()) * 1000)::bigint";
    query(lost).execute(connection).await.map(drop)
}

/// What came of moving a group.
#[derive(Debug)]
pub enum Moved {
    /// The host that served its folder, if one did.
    From(Option<String>),
    /// There is no such host; these there are.
    Unknown(Vec<String>),
}

/// Has another host serve the group's folder. Waits for what the one that does is saving. The settings name the group:
/// in a folder that they do not name, each host has a group of its own.
pub async fn move_group(url: &str, group: &Group, host: &str) -> Result<Moved, String> {
    let (group, host) = (group.to_string(), host.to_owned());
    let work: Work<Moved> = Arc::new(move |connection| {
        let (group, host) = (group.clone(), host.clone());
        Box::pin(async move {
            let hosts = scalar("select node from askd.hosts order by node").fetch_all(&mut *connection).await?;
            if !hosts.contains(&host) {
                return Ok(Moved::Unknown(hosts));
            }
            let from = scalar("select node from askd.pins where group_name = $1 for update").bind(&group);
            let from = from.fetch_optional(&mut *connection).await?;
            let to = "insert into askd.pins as pins (group_name, node, strange)
                      values ($1, $2, (extract(epoch from clock_timestamp()) * 1000)::bigint)
                      on conflict (group_name) do update
                      set node = excluded.node, strange = excluded.strange, changed = excluded.changed
                      where pins.node <> excluded.node";
            query(to).bind(group).bind(host).execute(connection).await?;
            Ok(Moved::From(from))
        })
    });
    from_outside(url, |connections| async move { connections.transact(Durable::Yes, "", work).await }).await
}

impl InPostgres {
    /// Whether this host serves the group's folder, as far as it knows.
    pub(super) fn holds_folder(&self, group: &Group) -> bool {
        self.pins.lock().get(group).is_some_and(|pin| pin.host == self.shared.node)
    }

    /// Another host may serve the group's folder by now. [`Failed::Overtaken`]: this host does, as it `knew`, and another run has its
    /// name.
    pub(super) fn look_for_pin(&self, group: &Group, knew: bool) -> Result<(), Failed> {
        let name = group.to_string();
        let rows = self.shared.read(Arc::new(move |connection| {
            let name = name.clone();
            Box::pin(
                async move { pin_rows(&query(pins!("where group_name = $1")).bind(name).fetch_all(connection).await?) },
            )
        }))?;
        let served_here = rows.iter().any(|(_, host, _)| *host == self.shared.node);
        self.know_pins(rows);
        if knew && served_here {
            self.shared.lose();
            return Err(Failed::Overtaken);
        }
        Ok(())
    }

    pub(super) fn know_pins(&self, rows: Vec<PinRow>) {
        let mut pins = self.pins.lock();
        for (group, host, strange) in rows {
            let Ok(group) = group.parse() else { continue };
            pins.insert(group, Pin { host, strange: strange.map(Time::from_millis) });
        }
    }
}

impl Pins for InPostgres {
    fn host(&self) -> &str {
        &self.shared.node
    }

    fn pinned(&self, group: &Group) -> Option<Pin> {
        self.pins.lock().get(group).cloned()
    }

    fn pinned_groups(&self) -> Vec<Group> {
        self.pins.lock().keys().cloned().collect()
    }

    fn standbys(&self) -> Vec<(String, i64)> {
        self.shared.standbys.lock().clone()
    }

    fn silent(&self) -> Vec<Silent> {
        let pins = self.pins.lock();
        let groups = |host: &str| {
            let here = pins.iter().filter(|(_, pin)| pin.host == host).map(|(group, _)| group.clone());
            here.collect::<BTreeSet<_>>().into_iter().collect()
        };
        let silent = self.shared.silent.lock();
        silent.iter().map(|(host, heard)| Silent { host: host.clone(), heard: *heard, groups: groups(host) }).collect()
    }

    fn pin(&self, group: &Group, host: &str) -> Result<Pin, StoreError> {
        if let Some(pin) = self.pinned(group) {
            return Ok(pin);
        }
        let what = || format!("cannot note which host serves {group}");
        let (name, host) = (group.to_string(), host.to_owned());
        let pinned = self.shared.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (name, host) = (name.clone(), host.clone());
                Box::pin(async move {
                    // Its agents may have asked over HTTP: then the folder lacks the briefings that others hand out.
                    let pin = "insert into askd.pins (group_name, node, strange)
                               select $1, $2, (select (extract(epoch from clock_timestamp()) * 1000)::bigint
                                               where exists (select from askd.asks where group_name = $1)
                                                   or exists (select from askd.settled where group_name = $1))
                               on conflict do nothing";
                    query(pin).bind(&name).bind(host).execute(&mut *connection).await?;
                    pin_rows(&query(pins!("where group_name = $1")).bind(name).fetch_all(connection).await?)
                })
            }),
        );
        self.know_pins(pinned.map_err(failed(what()))?);
        let gone = || StoreError::Io { what: what(), source: io::Error::other("it is not there") };
        self.pinned(group).ok_or_else(gone)
    }

    fn strange(&self) -> Vec<(Group, Time)> {
        let pins = self.pins.lock();
        let here = pins.iter().filter(|(_, pin)| pin.host == self.shared.node);
        here.filter_map(|(group, pin)| Some((group.clone(), pin.strange?))).collect()
    }

    fn settled_in(&self, group: &Group) -> Result<(), StoreError> {
        let known = statement(
            "update askd.pins set strange = null, changed = pg_current_xact_id() where group_name = $1 and node = $2",
        );
        let known = known.bind(group.to_string()).bind(self.shared.node.clone());
        self.shared
            .change(Durable::Yes, known.execute())
            .map_err(failed(format!("cannot note what lies in the folder of {group}")))?;
        if let Some(pin) = self.pins.lock().get_mut(group) {
            pin.strange = None;
        }
        Ok(())
    }
}
