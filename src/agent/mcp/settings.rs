//! What the environment says about `askd mcp`: the session, how long calls may wait, the least time a person gets. Read
//! once, at start. A value that is wrong ends the process with a sentence.

use crate::random;
use askd_core::{MAX_TOKEN, TimeoutPolicy};
use std::path::PathBuf;
use std::time::Duration;

/// How long a call of an unknown client waits: less than the 60 s after which many clients cut a call.
const CAREFUL_WAIT: Duration = Duration::from_secs(45);
/// A person needs at least so long to see a question.
const MIN_TIMEOUT: Duration = Duration::from_secs(300);
/// Clients, by the name they introduce themselves with, that wait for a call as long as it reports progress.
const PATIENT_CLIENTS: [&str; 1] = ["claude-code"];

/// A variable with a wrong value.
#[derive(Debug, thiserror::Error)]
#[error("{name}={value:?}: {why}")]
pub struct BadSetting {
    name: &'static str,
    value: String,
    why: String,
}

/// What the environment says.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder that was named.
    pub ipc: Option<PathBuf>,
    /// Which run of the agent asks.
    pub(super) session: String,
    /// What happens at a timeout, if the call does not say.
    pub(super) policy: Option<String>,
    /// The least time a person is given.
    pub(super) min_timeout: Duration,
    /// How long calls wait: zero is to the end, `None` what the client is known to allow.
    max_wait: Option<Duration>,
}

impl Settings {
    /// Reads the environment.
    pub fn read(ipc: Option<PathBuf>, variable: impl Fn(&str) -> Option<String>) -> Result<Self, BadSetting> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let session = set("ASKD_SESSION_ID").unwrap_or_else(random::unique);
        if session.chars().count() > MAX_TOKEN {
            let why = format!("it may have at most {MAX_TOKEN} characters");
            return Err(BadSetting { name: "ASKD_SESSION_ID", value: session, why });
        }
        let policy = set("ASK_USER_TIMEOUT_POLICY");
        if let Some(value) = policy.clone().filter(|policy| TimeoutPolicy::from_name(policy).is_none()) {
            let why = "it is neither return_cancel nor abort_task".to_owned();
            return Err(BadSetting { name: "ASK_USER_TIMEOUT_POLICY", value, why });
        }
        let max_wait = set("ASKD_MAX_WAIT").filter(|value| value.trim() != "auto");
        let max_wait = max_wait.map(|value| duration("ASKD_MAX_WAIT", value)).transpose()?;
        let min_timeout = set("ASKD_MIN_TIMEOUT").map(|value| duration("ASKD_MIN_TIMEOUT", value)).transpose()?;
        let min_timeout = min_timeout.unwrap_or(MIN_TIMEOUT);
        Ok(Self { ipc, session, policy, min_timeout, max_wait })
    }

    /// How long a call may wait that says nothing itself; `None` is to the end.
    pub(super) fn max_wait(&self, client: impl FnOnce() -> Option<String>) -> Option<Duration> {
        let patient = || client().is_some_and(|name| PATIENT_CLIENTS.contains(&name.to_lowercase().as_str()));
        match self.max_wait {
            Some(wait) => Some(wait).filter(|wait| !wait.is_zero()),
            None => (!patient()).then_some(CAREFUL_WAIT),
        }
    }
}

/// Seconds, or a number with its unit.
fn duration(name: &'static str, value: String) -> Result<Duration, BadSetting> {
    if let Ok(seconds) = value.trim().parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(value.trim()).map_err(|_| {
        let auto = if name == "ASKD_MAX_WAIT" { ", or auto" } else { "" };
        BadSetting { name, value, why: format!("not a duration; use seconds, or a unit such as 45s or 30m{auto}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let variable =
            |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::read(None, variable).map_err(|error| error.to_string())
    }

    #[test]
    fn the_client_is_waited_for_as_long_as_it_is_known_to_allow() {
        let wait = |value: &str, client: &str| {
            let settings = read(&[("ASKD_MAX_WAIT", value)]).unwrap();
            settings.max_wait(|| Some(client.to_owned()))
        };
        assert_eq!(wait("", "claude-code"), None);
        assert_eq!(wait("auto", "claude-code"), None);
        assert_eq!(wait("auto", "codex-mcp-client"), Some(CAREFUL_WAIT));
        assert_eq!(wait("90", "claude-code"), Some(Duration::from_secs(90)));
        assert_eq!(wait("2m", "x"), Some(Duration::from_secs(120)));
        assert_eq!(wait("0", "x"), None);
        assert_eq!(read(&[]).unwrap().max_wait(|| None), Some(CAREFUL_WAIT));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |name: &str, value: &str| read(&[(name, value)]).unwrap_err();
        assert_eq!(
            error("ASKD_MAX_WAIT", "soon"),
            "ASKD_MAX_WAIT=\"soon\": not a duration; use seconds, or a unit such as 45s or 30m, or auto"
        );
        assert!(error("ASKD_MIN_TIMEOUT", "-3").starts_with("ASKD_MIN_TIMEOUT=\"-3\": not a duration"));
        assert!(error("ASK_USER_TIMEOUT_POLICY", "x").contains("neither return_cancel nor abort_task"));
        assert!(error("ASKD_SESSION_ID", &"x".repeat(129)).ends_with("at most 128 characters"));
    }

    #[test]
    fn each_process_without_a_session_has_its_own() {
        assert_ne!(read(&[]).unwrap().session, read(&[]).unwrap().session);
        assert_eq!(read(&[("ASKD_SESSION_ID", "run-1")]).unwrap().session, "run-1");
    }
}
