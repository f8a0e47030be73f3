//! The database that holds the records, if they are not files.

use super::{DATABASE_CLOCK, Findings};
use crate::clock::Clock;
use crate::host::settings::Settings;
use crate::host::status::SILENT_HOST;
use crate::host::store::{Seen, look};
use secrecy::ExposeSecret as _;

/// How to mend why the database cannot be used. The server says it in English, or in a language of its own.
fn fix(why: &str) -> &'static str {
    let says = |texts: &[&str]| texts.iter().any(|text| why.contains(text));
    if says(&["too many clients", "connection slots", "too many connections", "query_wait_timeout"]) {
        "askd uses up to 8 connections for each daemon: raise max_connections, or the size of PgBouncer's pool"
    } else if says(&["statement pooling"]) {
        "set pool_mode = transaction, or session, in PgBouncer"
    } else if says(&["database"]) && says(&["does not exist"]) {
        "createdb makes it; or correct its name in the URL of [postgres]"
    } else {
        "psql with the URL of [postgres] shows the same; look at its host, user and password, and at pg_hba.conf"
    }
}

pub(super) async fn check(found: &mut Findings, settings: &Settings, clock: &Clock) {
    let Some(url) = &settings.postgres.url else { return };
    let listen_url = settings.postgres.listen_url.as_ref().map(|at| at.expose_secret().to_owned());
    let mut seen = look(url.expose_secret(), listen_url).await;
    let heard = seen.as_mut().ok().and_then(|seen| seen.hears.take());
    let kept_from = seen.as_ref().ok().and_then(|seen| seen.kept_from.clone());
    let clocks = seen.as_ref().ok().map(|seen| [seen.now, clock.now()]);
    match seen {
        Err(why) => {
            let fix = fix(&why);
            found.fault("database", why, fix);
        }
        Ok(Seen { unusable: Some((why, fix)), .. }) => found.fault("database", why, fix),
        Ok(seen) => {
            if !seen.fsync {
                found.fault(
                    "database",
                    "fsync is off, so a power cut loses answers that were acknowledged",
                    "set fsync = on",
                );
            }
            if seen.asynchronous > 0 {
                let what = format!(
                    "a failover to one of {} asynchronous standbys can lose acknowledged answers",
                    seen.asynchronous
                );
                found.fault("database", what, "name a synchronous one in synchronous_standby_names");
            }
            if !seen.silent.is_empty() {
                let what = format!(
                    "these hosts serve folders and were not heard of for a day, so their agents are told nothing: {}",
                    seen.silent.join(", ")
                );
                found.fault("database", what, SILENT_HOST);
            }
            let leads = match (seen.nodes.len(), seen.leads) {
                (0 | 1, None) => "no daemon leads".to_owned(),
                (0 | 1, Some(node)) => format!("{node} leads"),
                (_, leads) => {
                    format!("{} leads, of {}", leads.unwrap_or("no daemon".to_owned()), seen.nodes.join(", "))
                }
            };
            found.ok("database", format!("PostgreSQL {}; {leads}", seen.version));
        }
    }
    if let Some(user) = kept_from {
        let cause = format!(
            "the user {user} is not allowed to see whether the server's standbys are synchronous; GRANT pg_read_all_stats TO {user} allows it"
        );
        found.not_checked("database standbys", cause);
    }
    if let Some(clocks) = clocks {
        found.same_clock("database clock", "the database's", clocks, DATABASE_CLOCK);
    }
    if let Some(heard) = heard {
        note_notices(found, heard);
    }
}

/// Without notices nothing is lost: each daemon looks every second.
fn note_notices(found: &mut Findings, heard: Result<bool, String>) {
    match heard {
        Ok(true) => found.ok("database notices", "listen_url hears at once what other daemons store"),
        Ok(false) => found.fault(
            "database notices",
            "listen_url connects, and hears nothing",
            "have it lead to the server itself, and not to PgBouncer",
        ),
        Err(why) => found.fault("database notices", format!("listen_url: {why}"), "correct [postgres] listen_url"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fix_fits_what_the_server_says() {
        for (why, mends) in [
            ("db:5432: FATAL: sorry, too many clients already", "max_connections"),
            ("db:6432: query_wait_timeout", "PgBouncer's pool"),
            ("transaction blocks not allowed in statement pooling mode", "pool_mode"),
            ("database \"askd\" does not exist", "createdb"),
            ("password authentication failed for user \"askd\"", "pg_hba.conf"),
        ] {
            assert!(fix(why).contains(mends), "{why}");
        }
    }
}
