//! Queries of stories to the server that `tests/postgres/run` starts. Connections are kept: a `psql` for each query took as much of
//! the processors as a tenth of all stories.

use sqlx::postgres::PgConnectOptions;
use sqlx::{Column as _, Connection as _, PgConnection, Row as _};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use tokio::runtime::Runtime;

/// One database, and the connections to it that no query uses.
#[derive(Debug, Clone)]
pub(crate) struct Sql {
    pub(crate) url: String,
    kept: Arc<Mutex<Vec<PgConnection>>>,
}

impl Sql {
    pub(crate) fn new(url: String) -> Self {
        Self { url, kept: Arc::default() }
    }

    /// The lines that these statements give, the values of a row with `|` between them.
    pub(crate) fn query(&self, text: &str) -> Vec<String> {
        static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());
        // Some stories run in a runtime of their own, whose threads must not wait for another one.
        let lines = thread::scope(|scope| scope.spawn(|| RUNTIME.block_on(self.ask(text))).join().unwrap());
        lines.unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    async fn ask(&self, text: &str) -> Result<Vec<String>, sqlx::Error> {
        let mut connection = self.connection().await?;
        let mut lines = Vec::new();
        for row in sqlx::raw_sql(text).fetch_all(&mut connection).await? {
            let values: Result<Vec<&str>, _> = row
                .columns()
                .iter()
                .map(|column| Ok::<_, sqlx::Error>(row.try_get_raw(column.ordinal())?.as_str().unwrap_or_default()))
                .collect();
            lines.extend(values?.join("|").lines().map(str::to_owned));
        }
        self.kept.lock().unwrap().push(connection);
        Ok(lines)
    }

    /// One of those that are kept, unless the server has ended it.
    async fn connection(&self) -> Result<PgConnection, sqlx::Error> {
        let kept = self.kept.lock().unwrap().pop();
        if let Some(mut connection) = kept
            && connection.ping().await.is_ok()
        {
            return Ok(connection);
        }
        // PgBouncer refuses what it does not know.
        let options = self.url.parse::<PgConnectOptions>()?.extra_float_digits(None);
        PgConnection::connect_with(&options).await
    }
}
