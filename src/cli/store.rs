//! `askd store copy`: moves the records from files to PostgreSQL, or back.

use super::{Exit, FAILED, USAGE, as_owner, say, small_runtime};
use crate::host::settings::Settings;
use crate::host::store::{Copied, Opened, StoreError, Waiting, abort, copy};
use clap::{Args, Subcommand};
use secrecy::{ExposeSecret as _, SecretString};
use std::path::PathBuf;

/// Move the records to PostgreSQL, or back to files (docs/cluster.md).
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:\n  askd store copy --to postgres")]
pub(super) enum StoreCommand {
    Copy(Copy),
}

/// Copy all records, verify the copy, and let askd start only on the copy.
///
/// Stop every daemon first. The files are those in the data folder, the database is the one that [postgres] url names; both must be in
/// the settings. If the copy is interrupted, run it again, or undo it with --abort. The audit log and the copies of malformed requests stay
/// where they are. Exit codes: 0 done, 2 bad settings or usage, 75 a daemon serves, 1 anything else.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd store copy --to postgres\n  askd store copy --to files\n  \
                        askd store copy --to postgres --abort")]
pub(super) struct Copy {
    /// Where to: `postgres` (the database of the settings, or its URL) or `files`.
    #[arg(long, value_name = "postgres|files", value_parser = place)]
    to: Place,
    /// Undo an interrupted copy: remove what was copied; the records stay where they were.
    #[arg(long)]
    abort: bool,
    /// The daemon's settings file.
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
enum Place {
    /// The database with this URL; `None`: that of the settings.
    Postgres(Option<SecretString>),
    Files,
}

fn place(text: &str) -> Result<Place, &'static str> {
    match text {
        "postgres" => Ok(Place::Postgres(None)),
        "files" => Ok(Place::Files),
        url if url.starts_with("postgres://") || url.starts_with("postgresql://") => {
            Ok(Place::Postgres(Some(url.to_owned().into())))
        }
        _ => Err("expected postgres, files, or the URL of the database (postgres://...)"),
    }
}

impl StoreCommand {
    pub(super) fn run(self) -> Result<(), Exit> {
        let Self::Copy(Copy { to, abort: back, config }) = self;
        let settings = Settings::load(&config).map_err(|error| Exit::new(USAGE, error))?;
        let Some(url) = settings.postgres.url.clone() else {
            let why = "the settings name no database: set [postgres] url (--to files needs it too, to copy from)";
            return Err(Exit::new(USAGE, why));
        };
        if let Place::Postgres(Some(named)) = &to
            && named.expose_secret() != url.expose_secret()
        {
            let why = "the settings name another database, and askd serve would use that one: change [postgres] url, or \
                       give --to postgres";
            return Err(Exit::new(USAGE, why));
        }
        super::log(&settings.log.filter, false)?;
        let state = settings.state_dir();
        if state.exists() {
            as_owner(&state, "store copy")?;
        }
        let files = Opened::files(&state, false).map_err(exit)?;
        let (url, node) = (url.expose_secret(), &settings.postgres.node);
        let waiting = Waiting::beside(url, node, &state, false, "askd-postgres").map_err(exit)?;
        let runtime = small_runtime()?;
        let tables = runtime.block_on(waiting.alone()).map_err(exit)?;
        let (from, to) = if matches!(to, Place::Postgres(_)) { (&files, &tables) } else { (&tables, &files) };
        let done = if back { abort(from, to).map(|()| None) } else { copy(from, to, node).map(Some) };
        let closed = to.store.close().and_then(|()| from.store.close());
        let (done, ()) = (done.map_err(|error| Exit::new(FAILED, error))?, closed.map_err(exit)?);
        let place = to.store.place();
        let told = match done {
            None => format!("Undone: nothing of the copy is left in {place}, and the records are where they were."),
            Some(Copied { open, settled, documents }) => format!(
                "Moved to {place}: {open} open and {settled} closed questions, {documents} documents; all of them were read \
                 again there and are the same."
            ),
        };
        Ok(say(&told)?)
    }
}

fn exit(error: StoreError) -> Exit {
    let code = match error {
        StoreError::Held(_) | StoreError::Namesake(_) => super::serve::HELD,
        StoreError::Newer { .. } => USAGE,
        _ => FAILED,
    };
    Exit::new(code, error)
}
