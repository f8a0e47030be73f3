//! Saves that share a transaction, as columns: the server reads each value once, and stores what replaces something by one statement.

use super::batches::{NewRow, Over, Verdict};
use super::database::{Failed, query};
use sqlx::{PgConnection, Row as _};

/// Saves as `askd.save_each` takes them.
#[derive(Debug, Default)]
pub(super) struct Columns {
    ids: Vec<String>,
    groups: Vec<String>,
    made_by: Vec<String>,
    records: Vec<String>,
    hosts: Vec<Option<String>>,
    holders: Vec<Option<String>>,
    givens: Vec<Option<i64>>,
    codes: Vec<String>,
    replaced: Vec<Option<String>>,
    eras: Vec<String>,
    retires: Vec<bool>,
    owed_by: Vec<i64>,
    effects: Vec<String>,
    folders: Vec<Option<String>>,
    noted_by: Vec<i64>,
    times: Vec<i64>,
    lines: Vec<String>,
}

impl Columns {
    pub(super) fn of<'a>(saves: impl Iterator<Item = &'a NewRow>) -> Self {
        let mut all = Self::default();
        for (place, row) in (1..).zip(saves.cloned()) {
            let (given, replaces) = match row.over {
                Over::Given(given) => (Some(given), None),
                Over::Replaces(operation) => (None, Some(operation)),
            };
            all.ids.push(row.which);
            all.groups.push(row.of_group);
            all.made_by.push(row.made_by);
            all.records.push(row.what);
            all.hosts.push(row.held);
            all.holders.push(row.holder);
            all.givens.push(given);
            all.codes.push(row.code);
            all.replaced.push(replaces);
            all.eras.push(row.in_era);
            all.retires.push(row.along.retired);
            all.owed_by.extend(row.along.effects.iter().map(|_| place));
            all.effects.extend(row.along.effects);
            all.folders.extend(row.along.folders);
            all.noted_by.extend(row.along.lines.iter().map(|_| place));
            all.times.extend(row.along.times);
            all.lines.extend(row.along.lines);
        }
        all
    }

    /// Stores them in this transaction.
    pub(super) async fn store(&self, connection: &mut PgConnection) -> Result<Vec<Verdict>, sqlx::Error> {
        let save =
            "select place, stored from askd.save_each($1::uuid[], $2, $3::uuid[], $4, $5::uuid[], $6::uuid[], $7, $8,
                        $9::uuid[], $10::uuid[], $11, $12, $13, $14, $15, $16, $17)";
        let save = query(save).bind(&self.ids).bind(&self.groups).bind(&self.made_by).bind(&self.records);
        let save = save.bind(&self.hosts).bind(&self.holders).bind(&self.givens).bind(&self.codes);
        let save = save.bind(&self.replaced).bind(&self.eras).bind(&self.retires);
        let save = save.bind(&self.owed_by).bind(&self.effects).bind(&self.folders);
        let save = save.bind(&self.noted_by).bind(&self.times).bind(&self.lines);
        let mut verdicts: Vec<Verdict> = self.ids.iter().map(|_| Ok(None)).collect();
        for row in save.fetch_all(connection).await? {
            let place = usize::try_from(row.try_get::<i64, _>(0)?).ok().and_then(|place| place.checked_sub(1));
            if let Some(verdict) = place.and_then(|place| verdicts.get_mut(place)) {
                *verdict = row.try_get::<Option<i64>, _>(1)?.map(Some).ok_or(Failed::Crashed);
            }
        }
        Ok(verdicts)
    }
}
