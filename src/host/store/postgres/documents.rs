//! Documents as rows.

use super::database::{Work, query, scalar};
use super::hints::Hints;
use super::look::from_outside;
use super::memory::InEntries;
use super::rates::InRates;
use super::statement::statement;
use super::{CLEAN, Durable, Shared};
use crate::host::store::marks::{COPY_ID, MARK};
use crate::host::store::memory::Memory;
use crate::host::store::{Documents, Rates, aside};
use std::io;
use std::sync::Arc;

/// Reads a document from outside the daemon.
pub async fn document_of(url: &str, name: &'static str) -> Result<Option<Vec<u8>>, String> {
    let read: Work<Option<Vec<u8>>> = Arc::new(move |connection| {
        Box::pin(async move {
            if !scalar::<bool>("select to_regclass('askd.documents') is not null").fetch_one(&mut *connection).await? {
                return Ok(None);
            }
            // Tables of an earlier version have documents only.
            let entries = "select to_regproc('askd.remembered') is not null";
            if scalar::<bool>(entries).fetch_one(&mut *connection).await? {
                let remembered = "select convert_to(remembered, 'UTF8') from askd.remembered($1)";
                let remembered = scalar(remembered).bind(name).fetch_optional(&mut *connection).await?;
                if remembered.is_some() {
                    return Ok(remembered);
                }
            }
            scalar("select bytes from askd.documents where name = $1").bind(name).fetch_optional(connection).await
        })
    });
    from_outside(url, |connections| async move { connections.read(true, read).await }).await
}

/// Documents in PostgreSQL.
#[derive(Debug)]
pub(super) struct InTables(Arc<Shared>, Arc<InEntries>);

impl InTables {
    pub(super) fn new(shared: &Arc<Shared>, hints: &Hints) -> Self {
        Self(Arc::clone(shared), Arc::new(InEntries::new(Arc::clone(shared), hints.clone())))
    }

    fn write(&self, durable: Durable, name: &str, bytes: &[u8]) -> io::Result<()> {
        let write = statement(
            "insert into askd.documents (name, bytes) values ($1, $2)
             on conflict (name) do update set bytes = excluded.bytes, changed = excluded.changed",
        );
        let write = write.bind(name.to_owned()).bind(bytes.to_vec());
        self.0.change(durable, write.execute()).map_err(io::Error::other)
    }
}

impl Documents for InTables {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let read = statement("select bytes from askd.documents where name = $1").bind(name.to_owned());
        self.0.read(read.optional()).map_err(io::Error::other)
    }

    fn store(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(Durable::Yes, name, bytes)
    }

    fn place(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(Durable::No, name, bytes)
    }

    fn swap(&self, name: &str, before: Option<&[u8]>, bytes: &[u8]) -> io::Result<bool> {
        let swap = statement(
            "insert into askd.documents as d (name, bytes) values ($1, $2)
             on conflict (name) do update set bytes = excluded.bytes, changed = excluded.changed
             where d.bytes = $3
             returning true",
        );
        let swap = swap.bind(name.to_owned()).bind(bytes.to_vec()).bind(before.map(<[u8]>::to_vec));
        let swapped = self.0.change(Durable::Yes, swap.optional::<bool>());
        swapped.map(|swapped| swapped.is_some()).map_err(io::Error::other)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let remove = statement("delete from askd.documents where name = $1").bind(name.to_owned());
        self.0.change(Durable::Yes, remove.execute()).map_err(io::Error::other)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = statement(
            "select name from askd.documents where name not in ($1, $2, $3) and name not like '%.corrupt' order by name",
        );
        self.0.read(names.bind(CLEAN).bind(MARK).bind(COPY_ID).all()).map_err(io::Error::other)
    }

    fn rates(&self) -> Option<Arc<dyn Rates>> {
        Some(Arc::new(InRates(Arc::clone(&self.0))))
    }

    fn memory(&self) -> Option<Arc<dyn Memory>> {
        Some(Arc::clone(&self.1) as Arc<dyn Memory>)
    }

    fn set_aside(&self, name: &str) -> io::Result<()> {
        let (name, aside) = (name.to_owned(), aside(name));
        let renamed = self.0.change(
            Durable::Yes,
            Arc::new(move |connection| {
                let (name, aside) = (name.clone(), aside.clone());
                Box::pin(async move {
                    query("delete from askd.documents where name = $1").bind(&aside).execute(&mut *connection).await?;
                    let rename = "update askd.documents set name = $2 where name = $1";
                    query(rename).bind(name).bind(aside).execute(connection).await.map(drop)
                })
            }),
        );
        renamed.map_err(io::Error::other)
    }
}
