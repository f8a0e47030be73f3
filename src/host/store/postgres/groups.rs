//! What the broker is told of the groups that this run holds, and has it do with them: [`super::holding`] says how.

use super::asks::ask_id;
use super::database::{Connections, Database, Failed};
use super::holding::Holding;
use super::scanning::{SOME, list};
use super::statement::statement;
use super::{InPostgres, NO_ID, failed};
use crate::host::store::{Holdings, StoreError, Stored, Tended, Tenure};
use askd_core::{AskId, Group};
use std::sync::Arc;

impl InPostgres {
    fn with_holding<T: Send + 'static, F>(
        &self,
        work: impl FnOnce(Holding, Connections, String) -> F,
    ) -> Result<T, Failed>
    where
        F: Future<Output = Result<T, Failed>> + Send + 'static,
    {
        let database: &Database = &self.shared.database;
        let done = work(self.shared.holding.clone(), database.connections().clone(), self.shared.check());
        let done = database.wait(done);
        if let Err(Failed::Overtaken) = &done {
            self.shared.lose();
        }
        done
    }
}

impl Holdings for InPostgres {
    fn holds(&self, group: &Group) -> bool {
        self.shared.holding.holds(group)
    }

    fn tenure(&self, group: &Group) -> Option<Tenure> {
        self.shared.holding.groups().held.get(group).map(|held| Tenure(Some(Arc::clone(held))))
    }

    fn held(&self) -> Vec<Group> {
        self.shared.holding.groups().held.keys().cloned().collect()
    }

    fn unserved(&self) -> usize {
        self.shared.holding.unserved()
    }

    fn tend(&self, takes: bool) -> Result<Tended, StoreError> {
        let leads = self.shared.lease.is_some();
        let tended = self.with_holding(|holding, database, check| holding.tend(database, check, leads, takes));
        tended.map_err(failed("cannot find out which groups this daemon holds"))
    }

    fn take(&self, groups: &[Group]) -> Result<Vec<Group>, StoreError> {
        let (leads, groups) = (self.shared.lease.is_some(), groups.to_vec());
        let taken = self.with_holding(|holding, database, check| async move {
            let _turn = holding.turn().await;
            holding.take(&database, &check, &groups, leads).await
        });
        taken.map_err(failed("cannot take groups that nobody holds"))
    }

    fn rest(&self) -> Result<(), StoreError> {
        let rests = self.with_holding(|holding, database, check| async move {
            let _turn = holding.turn().await;
            holding.may_be_given(&database, &check, false).await
        });
        rests.map_err(failed("cannot say that this daemon stops"))
    }

    fn let_go(&self) -> Result<(), StoreError> {
        self.give_up().map_err(failed("cannot let the groups of this daemon go"))
    }

    fn is_first(&self, group: &Group) -> bool {
        self.shared.holding.groups().first.contains(group)
    }

    fn begin(&self, group: &Group) -> bool {
        let mut groups = self.shared.holding.groups();
        let is_new = !groups.held.contains_key(group);
        if is_new {
            groups.held.insert(group.clone(), Arc::default());
        }
        is_new
    }

    fn end(&self, group: &Group) -> bool {
        let mut groups = self.shared.holding.groups();
        let ends = groups.held.get(group).is_some_and(|held| Arc::strong_count(held) == 1);
        if ends {
            groups.held.remove(group);
            groups.first.remove(group);
            groups.ending.insert(group.clone());
        }
        ends
    }

    fn hand_over(&self, to: &str, groups: &[Group]) -> Result<bool, StoreError> {
        let (to, groups) = (to.to_owned(), groups.to_vec());
        let handed = self.with_holding(|holding, database, check| holding.hand_over(database, check, to, groups));
        if handed.is_ok() {
            self.hints.tell();
        }
        handed.map_err(failed("cannot hand groups over"))
    }

    fn to_take_up(&self, groups: &[Group]) -> Result<Vec<AskId>, StoreError> {
        let groups: Vec<String> = groups.iter().map(Group::to_string).collect();
        // Of those that are over only the newest: as long as any transaction runs on the server, nothing of them is moved elsewhere.
        let lately = statement(
            "select id::text from (
                 select id, group_name, record from askd.asks
                     where settled and changed < pg_snapshot_xmax(pg_current_snapshot()) order by changed desc limit 2000
             ) as lately where group_name = any($1) and record @? '$.widgets[*] ? (@.attempt > 1)'",
        );
        let unsettled = |last: Option<&String>| {
            let some = statement(
                "select id::text from askd.asks
                 where not settled and id > $1::uuid and group_name = any($2) order by asks.id limit $3",
            );
            let last = last.map_or_else(|| NO_ID.to_owned(), String::clone);
            self.shared.read(some.bind(last).bind(groups.clone()).bind(SOME).all())
        };
        let lately: Result<Vec<String>, _> = self.shared.read(lately.bind(groups.clone()).all());
        let ids = lately.and_then(|lately| Ok([lately, list(unsettled)?].concat()));
        let ids = ids.map_err(failed("cannot read the questions of a group"))?;
        Ok(ids.iter().filter_map(|id| ask_id(id)).collect())
    }

    fn reread(&self, ids: &[AskId]) -> Result<Vec<Stored>, StoreError> {
        self.read_again(ids)
    }
}
