//! `askd doctor`: looks at everything that has to be right for a question to reach a person and the answer to come back, from
//! outside the daemon and through it. Each finding says what is wrong and how to fix it. What depends on something that is
//! wrong is not checked, and says so. It changes nothing, but for a test question if it is told to send one.

mod daemon;
#[cfg(feature = "postgres")]
mod database;
mod folders;
mod meta;
mod probe;
mod send;
mod slack;
mod whatsapp;

pub use whatsapp::{Unusable, number_of};

use super::settings::Settings;
use super::status::CLOCK_FIX;
use crate::clock::Clock;
use askd_core::Time;
use probe::Probe;
use serde::Serialize;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

/// By how much the clock of this host may differ from a platform's: Slack's signatures hold for five minutes.
const CLOCK: Duration = Duration::from_secs(60);
/// By how much it may differ from the database's, by which daemons go.
#[cfg(feature = "postgres")]
const DATABASE_CLOCK: Duration = Duration::from_secs(2);

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is as it should be.
    Ok,
    /// It has to be fixed.
    Fault,
    /// Something that it depends on is wrong, or askd may not look.
    NotChecked,
}

/// One check.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What was found, or why it was not checked.
    pub what: String,
    /// How to fix it.
    pub fix: Option<String>,
}

/// All checks so far.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    fn ok(&mut self, check: impl Display, what: impl Display) {
        self.add(check, Verdict::Ok, what, None);
    }

    fn fault(&mut self, check: impl Display, what: impl Display, fix: impl Display) {
        self.add(check, Verdict::Fault, what, Some(fix.to_string()));
    }

    fn not_checked(&mut self, check: impl Display, cause: impl Display) {
        self.add(check, Verdict::NotChecked, cause, None);
    }

    fn add(&mut self, check: impl Display, verdict: Verdict, what: impl Display, fix: Option<String>) {
        self.0.push(Finding { check: check.to_string(), verdict, what: what.to_string(), fix });
    }

    /// Whether this check found a fault.
    fn has_fault(&self, check: &str) -> bool {
        self.faults().any(|fault| fault == check)
    }

    /// Whether this line of the daemon's report ends with what a check found.
    fn has_found(&self, line: &str) -> bool {
        self.0.iter().any(|finding| finding.verdict == Verdict::Fault && line.ends_with(&finding.what))
    }

    /// Whether any check of this channel did.
    fn has_fault_in(&self, channel: &str) -> bool {
        self.faults().any(|fault| fault.split(' ').next() == Some(channel))
    }

    fn faults(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|finding| finding.verdict == Verdict::Fault).map(|finding| finding.check.as_str())
    }

    /// Notes what a platform's clock shows, and whether it is ours.
    fn clock(&mut self, platform: &str, theirs: Option<Time>, ours: Time) {
        let Some(theirs) = theirs else {
            return self.not_checked(format!("{platform} clock"), format!("{platform} does not say what time it has"));
        };
        self.same_clock(format!("{platform} clock"), &format!("{platform}'s"), [theirs, ours], CLOCK);
    }

    /// The same for a clock that may differ by so much.
    fn same_clock(&mut self, check: impl Display, whose: &str, [theirs, ours]: [Time; 2], most: Duration) {
        let apart = ours.since(theirs).max(theirs.since(ours));
        if apart > most {
            let what = format!("this host's clock and {whose} differ by {} s", apart.as_secs());
            self.fault(check, what, CLOCK_FIX);
        } else {
            self.ok(check, "the same as this host's");
        }
    }
}

/// Makes all checks for the daemon of these settings files.
pub async fn examine(files: &[PathBuf], sends: bool, clock: &Clock) -> Vec<Finding> {
    let mut found = Findings::default();
    let settings = match Settings::load(files) {
        Ok(settings) => settings,
        Err(error) => {
            found.fault(
                "settings",
                error,
                "correct this, then run askd doctor again; config/default.toml explains each key",
            );
            for check in ["data folder", "daemon", "groups", "slack", "whatsapp"] {
                found.not_checked(check, "settings");
            }
            return found.0;
        }
    };
    found.ok("settings", "can be read");
    folders::data(&mut found, &settings);
    folders::set_aside(&mut found, &settings);
    #[cfg(feature = "postgres")]
    database::check(&mut found, &settings, clock).await;
    let runs = daemon::check(&mut found, files, &settings).await;
    folders::groups(&mut found, &settings, runs, clock).await;
    let probe = Probe::new(clock.clone());
    if let Some(slack) = &settings.slack {
        slack::check(&mut found, &probe, slack, &settings, runs).await;
    }
    if let Some(whatsapp) = &settings.whatsapp {
        whatsapp::check(&mut found, &probe, whatsapp, &settings, runs).await;
    }
    daemon::public(&mut found, &probe, &settings, runs).await;
    if sends {
        send::check(&mut found, files, &settings, &probe, runs).await;
    }
    daemon::problems(&mut found, files).await;
    found.0
}

#[cfg(test)]
mod tests {
    use super::Findings;

    #[test]
    fn a_fault_is_of_the_check_that_found_it_and_of_none_that_is_called_like_it() {
        let mut found = Findings::default();
        found.fault("group dev2", "no", "mend it");
        found.fault("slack scopes", "no", "mend it");
        found.fault("token file", "no", "mend it");
        assert!(found.has_fault("group dev2") && found.has_fault_in("slack"));
        for other in ["group dev", "group", "token", "slack"] {
            assert!(!found.has_fault(other), "{other}");
        }
        assert!(!found.has_fault_in("sl") && !found.has_fault_in("whatsapp"));
    }
}
