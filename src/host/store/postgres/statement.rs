//! One statement with its values, as work that may be done again.

use super::database::Work;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{Arguments as _, Encode, FromRow, Postgres, Type};
use std::sync::Arc;

/// A statement with its values. The server does not keep it: behind a pooler the next one may come to another server process.
#[derive(Debug)]
pub(super) struct Statement {
    text: &'static str,
    /// Or why one of them cannot be sent.
    values: Result<PgArguments, String>,
}

/// A statement without values so far.
pub(super) fn statement(text: &'static str) -> Statement {
    Statement { text, values: Ok(PgArguments::default()) }
}

impl Statement {
    /// With its next value.
    pub(super) fn bind<T: for<'q> Encode<'q, Postgres> + Type<Postgres>>(mut self, value: T) -> Self {
        if let Ok(values) = &mut self.values
            && let Err(error) = values.add(value)
        {
            self.values = Err(error.to_string());
        }
        self
    }

    fn query<'q>(&self) -> Result<Query<'q, Postgres, PgArguments>, sqlx::Error> {
        let values = self.values.clone().map_err(|error| sqlx::Error::Encode(error.into()))?;
        Ok(sqlx::query_with(self.text, values).persistent(false))
    }

    /// Runs it.
    pub(super) fn execute(self) -> Work<()> {
        Arc::new(move |connection| {
            let query = self.query();
            Box::pin(async move { query?.execute(connection).await.map(drop) })
        })
    }

    /// What `read` makes of each row.
    pub(super) fn rows<T: Send + 'static>(self, read: fn(&PgRow) -> Result<T, sqlx::Error>) -> Work<Vec<T>> {
        Arc::new(move |connection| {
            let query = self.query();
            Box::pin(async move { query?.fetch_all(connection).await?.iter().map(read).collect() })
        })
    }

    /// What `read` makes of the row that there may be.
    pub(super) fn row<T: Send + 'static>(self, read: fn(&PgRow) -> Result<T, sqlx::Error>) -> Work<Option<T>> {
        Arc::new(move |connection| {
            let query = self.query();
            Box::pin(async move { query?.fetch_optional(connection).await?.as_ref().map(read).transpose() })
        })
    }

    /// The first column of each row.
    pub(super) fn all<T: Send + 'static>(self) -> Work<Vec<T>>
    where
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        self.rows(first)
    }

    /// The first column of the row that there may be.
    pub(super) fn optional<T: Send + 'static>(self) -> Work<Option<T>>
    where
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        self.row(first)
    }

    /// The first column of the only row.
    pub(super) fn one<T: Send + 'static>(self) -> Work<T>
    where
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        Arc::new(move |connection| {
            let query = self.query();
            Box::pin(async move { first(&query?.fetch_one(connection).await?) })
        })
    }
}

fn first<T>(row: &PgRow) -> Result<T, sqlx::Error>
where
    (T,): for<'r> FromRow<'r, PgRow>,
{
    <(T,)>::from_row(row).map(|(value,)| value)
}
