//! What `askd forget` takes out of the tables. The order is that of the files: a record goes after what it names elsewhere, and what
//! channels know of a person goes last, because their other ids are known from there.

use super::asks::{Row, uuid};
use super::database::{Durable, Failed, Work};
use super::statement::statement;
use super::{InPostgres, failed};
use crate::host::store::documents::CHANNELS;
use crate::host::store::forgetting::{
    BEGINNING, Erased, Whom, learn_ids, leave_devices, leave_lists, leave_unnamed, prune, take_whole, tells_of,
};
use crate::host::store::{StoreError, record};
use crate::ipc::is_json_file;
use askd_core::Ask;
use serde_json::Value;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use std::io;
use std::sync::Arc;

/// A table beside the asks: how its rows are read (where each is, what it is called, its bytes), changed, and dropped.
struct Table {
    read: &'static str,
    change: &'static str,
    drop: &'static str,
}

/// What was set aside comes before the document that knows the other ids of a person.
const DOCUMENTS: Table = Table {
    read: "select ctid::text, name, bytes from askd.documents order by name desc",
    change: "update askd.documents set bytes = $2 where ctid = $1::tid",
    drop: "delete from askd.documents where ctid = $1::tid",
};
const ALLOWED: Table = Table {
    read: "select ctid::text, group_name || '.json', convert_to(by::text, 'UTF8') from askd.allowed",
    change: "update askd.allowed set by = convert_from($2, 'UTF8')::jsonb where ctid = $1::tid",
    drop: "delete from askd.allowed where ctid = $1::tid",
};
const REJECTED: Table = Table {
    read: "select ctid::text, name, bytes from askd.rejected",
    change: "",
    drop: "delete from askd.rejected where ctid = $1::tid",
};
const SET_ASIDE: Table = Table {
    read: "select ctid::text, replace(id::text, '-', ''), convert_to(record::text, 'UTF8') from askd.set_aside",
    change: "",
    drop: "delete from askd.set_aside where ctid = $1::tid",
};
const WEBHOOKS: &str = "select ctid::text, channel, body from askd.webhooks";
/// What only running daemons need.
const PASSING: [&str; 2] = ["delete from askd.gone", "delete from askd.owed"];
/// The browsers that get notices.
const PUSH: &str = "push.json";

/// A row of such a table.
struct Entry {
    at: String,
    name: String,
    bytes: Vec<u8>,
}

impl Entry {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.bytes).ok()
    }

    /// It is what a channel remembers, or was that.
    fn is_channels(&self) -> bool {
        self.name.split_once('/').is_some_and(|(folder, _)| folder == CHANNELS)
    }
}

impl InPostgres {
    /// Also refuses, before anything is changed, if a message about that was acknowledged and has not been read yet.
    pub(super) fn learn_all(&self, whom: &mut Whom) -> Result<(), StoreError> {
        self.learn_whom(whom)?;
        let unread = self.entries(WEBHOOKS).map_err(failed("cannot forget"))?;
        if unread.iter().any(|webhook| whom.is_in(&webhook.text())) {
            let source =
                io::Error::other("messages about that wait to be read: start askd, stop it, and run this again");
            return Err(StoreError::Io { what: "cannot forget".to_owned(), source });
        }
        Ok(())
    }

    fn learn_whom(&self, whom: &mut Whom) -> Result<(), StoreError> {
        let cannot = || failed("cannot forget");
        match whom {
            Whom::Ask(id) => {
                let known = statement(
                    "select replace(id::text, '-', '') from (
                         select id, record from askd.asks union all select id, record from askd.settled
                         union all select id, record from askd.set_aside
                     ) known
                     where record ->> 'short_id' = $1 or length($1) >= $2 and replace(id::text, '-', '') ^@ $1",
                );
                let known = known.bind(id.clone()).bind(i32::try_from(BEGINNING).unwrap_or_default());
                let known: Vec<String> = self.shared.read_long(known.all()).map_err(cannot())?;
                let whole = take_whole(id, known.into_iter().collect());
                whole.map_err(|source| StoreError::Io { what: "cannot forget".to_owned(), source })
            }
            Whom::Person(ids) => {
                let documents = self.entries(DOCUMENTS.read).map_err(cannot())?;
                documents
                    .iter()
                    .filter(|it| it.is_channels())
                    .filter_map(Entry::json)
                    .for_each(|it| learn_ids(ids, &it));
                Ok(())
            }
        }
    }

    pub(super) fn erase_all(
        &self,
        whom: &Whom,
        first: &mut dyn FnMut(&Ask) -> io::Result<()>,
    ) -> Result<Erased, StoreError> {
        let others = self.erase_beside(whom).map_err(failed("cannot forget"))?;
        let mut erased = Erased { others, ..Erased::default() };
        self.erase_asks(whom, &mut erased, first)?;
        let ids_too = erased.unfinished.is_empty();
        let change = |value: &mut Value, whom: &Whom| prune(value, whom, ids_too);
        let of_channels = self.erase_in(&DOCUMENTS, &Entry::is_channels, &change, whom);
        erased.others += of_channels.map_err(failed("cannot forget"))?;
        Ok(erased)
    }

    /// Drops what was forgotten, and would otherwise go with the table of its week.
    fn drop_forgotten(&self) -> Result<(), Failed> {
        let some: Work<i64> = statement("select askd.drop_forgotten('infinity', 500)").one();
        while self.shared.change(Durable::Yes, Arc::clone(&some))? > 0 {}
        Ok(())
    }

    /// Out of what stands beside the asks, but what channels know. How many rows it was in.
    fn erase_beside(&self, whom: &Whom) -> Result<usize, Failed> {
        self.drop_forgotten()?;
        for passing in PASSING {
            self.at_row(passing, None)?;
        }
        let mut others = self.erase_in(&DOCUMENTS, &|entry| entry.name == PUSH, &leave_devices, whom)?;
        others += self.erase_in(&ALLOWED, &|_| true, &leave_unnamed, whom)?;
        for table in [REJECTED, SET_ASIDE] {
            // A copy goes as a whole, whatever it is.
            for entry in self.entries(table.read)? {
                if whom.is_ask(&entry.name) || whom.is_in(&entry.text()) {
                    self.at_row(table.drop, Some((&entry.at, None)))?;
                    others += 1;
                }
            }
        }
        Ok(others)
    }

    fn erase_asks(
        &self,
        whom: &Whom,
        erased: &mut Erased,
        first: &mut dyn FnMut(&Ask) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        self.scan_rows(&mut |row| self.erase_row(&row, whom, erased, first))
    }

    fn erase_row(
        &self,
        row: &Row,
        whom: &Whom,
        erased: &mut Erased,
        first: &mut dyn FnMut(&Ask) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        const DROP: &str = "select askd.take($1::uuid)";
        const CHANGE: &str =
            "with moved as (update askd.settled set record = convert_from($2, 'UTF8')::jsonb where id = $1::uuid)
             update askd.asks set record = convert_from($2, 'UTF8')::jsonb where id = $1::uuid";
        let (cannot, id) = (|| failed("cannot forget"), row.id.replace('-', ""));
        let unfit = |source| StoreError::Io { what: "cannot forget".to_owned(), source };
        let Ok(record::Record { ask, .. }) = row.ask() else {
            if whom.is_ask(&id) || whom.is_in(row.text()) {
                self.at_row(DROP, Some((&row.id, None))).map_err(cannot())?;
                erased.others += 1;
            }
            return Ok(());
        };
        let mut value: Value = serde_json::from_str(row.text()).map_err(|error| unfit(error.into()))?;
        let listed = leave_lists(&mut value, whom);
        let named = whom.is_ask(&id) || tells_of(&value, whom);
        if !row.settled {
            erased.unfinished.extend((named || listed).then_some(ask.id));
        } else if named {
            first(&ask).map_err(unfit)?;
            self.at_row(DROP, Some((&uuid(ask.id), None))).map_err(cannot())?;
            erased.asks.push(ask);
        } else if listed {
            let bytes = serde_json::to_vec(&value).map_err(|error| unfit(error.into()))?;
            record::read(&bytes).map_err(|why| unfit(io::Error::other(why)))?;
            self.at_row(CHANGE, Some((&row.id, Some(bytes)))).map_err(cannot())?;
            erased.lists += 1;
        }
        Ok(())
    }

    /// Changes rows of a table. One that is damaged or was set aside goes if it names the person. How many had to.
    fn erase_in(
        &self,
        table: &Table,
        which: &dyn Fn(&Entry) -> bool,
        change: &dyn Fn(&mut Value, &Whom),
        whom: &Whom,
    ) -> Result<usize, Failed> {
        let mut changed = 0;
        for entry in self.entries(table.read)?.iter().filter(|entry| which(entry)) {
            let Some(mut value) = is_json_file(&entry.name).then(|| entry.json()).flatten() else {
                if whom.is_in(&entry.text()) {
                    self.at_row(table.drop, Some((&entry.at, None)))?;
                    changed += 1;
                }
                continue;
            };
            let before = value.clone();
            change(&mut value, whom);
            if value != before {
                self.at_row(table.change, Some((&entry.at, Some(value.to_string().into_bytes()))))?;
                changed += 1;
            }
        }
        Ok(changed)
    }

    /// Runs a statement about one row, with its new bytes; or about a whole table.
    fn at_row(&self, text: &'static str, row: Option<(&str, Option<Vec<u8>>)>) -> Result<(), Failed> {
        let run = match row {
            None => statement(text),
            Some((at, None)) => statement(text).bind(at),
            Some((at, Some(bytes))) => statement(text).bind(at).bind(bytes),
        };
        self.shared.change(Durable::Yes, run.execute())
    }

    fn entries(&self, read: &'static str) -> Result<Vec<Entry>, Failed> {
        let entry = |row: &PgRow| Ok(Entry { at: row.try_get(0)?, name: row.try_get(1)?, bytes: row.try_get(2)? });
        self.shared.read_long(statement(read).rows(entry))
    }
}
