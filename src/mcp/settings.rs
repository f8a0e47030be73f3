//! What calls of the tools go by if they do not say it themselves: how long they wait, the least time a person gets, what
//! happens then. `askd mcp` reads it from its environment, once, at start; over HTTP the defaults hold.

use crate::ipc::wire::MAX_TIMEOUT_MS;
use askd_core::TimeoutPolicy;
use std::time::Duration;

/// How long a call of an unknown client waits: less than the 60 s after which many clients cut a call.
const CAREFUL_WAIT: Duration = Duration::from_secs(45);
/// A person needs at least so long to see a question.
const MIN_TIMEOUT: Duration = Duration::from_secs(300);
/// What clients are known to allow: how the name begins with which they introduce themselves, in small letters, the first
/// version that allows it, and how long a call waits (`None`: to the end). `docs/agents.md` has the same table.
const CLIENTS: [(&str, (u32, u32), Option<Duration>); 6] = [
    ("claude-code", (0, 0), None),
    ("visual studio code", (0, 0), None),
    ("codex-mcp-client", (0, 141), Some(Duration::from_secs(290))),
    ("gemini-cli-mcp-client", (0, 0), Some(Duration::from_secs(590))),
    ("hermes", (0, 0), Some(Duration::from_secs(290))),
    ("openai-agents", (0, 0), Some(Duration::from_secs(4))),
];

/// A variable with a wrong value.
#[derive(Debug, thiserror::Error)]
#[error("{name}={value:?}: {why}")]
pub struct BadSetting {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) why: String,
}

/// What holds for all calls.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What happens at a timeout, if the call does not say.
    pub(super) policy: Option<String>,
    /// The least time a person is given.
    pub(super) min_timeout: Duration,
    /// How long calls wait: zero is to the end, `None` what the client is known to allow.
    max_wait: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { policy: None, min_timeout: MIN_TIMEOUT, max_wait: None }
    }
}

impl Settings {
    /// Reads the environment.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, BadSetting> {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let policy = set("ASK_USER_TIMEOUT_POLICY");
        if let Some(value) = policy.clone().filter(|policy| TimeoutPolicy::from_name(policy).is_none()) {
            let why = "it is neither return_cancel nor abort_task".to_owned();
            return Err(BadSetting { name: "ASK_USER_TIMEOUT_POLICY", value, why });
        }
        let max_wait = set("ASKD_MAX_WAIT").filter(|value| value.trim() != "auto");
        let max_wait = max_wait.map(|value| duration("ASKD_MAX_WAIT", value)).transpose()?;
        let min_timeout = set("ASKD_MIN_TIMEOUT").map(|value| {
            let least = duration("ASKD_MIN_TIMEOUT", value.clone())?;
            let why = "no question is open for longer than 7 days".to_owned();
            if least > Duration::from_millis(MAX_TIMEOUT_MS) {
                Err(BadSetting { name: "ASKD_MIN_TIMEOUT", value, why })
            } else {
                Ok(least)
            }
        });
        let min_timeout = min_timeout.transpose()?;
        Ok(Self { policy, min_timeout: min_timeout.unwrap_or(MIN_TIMEOUT), max_wait })
    }

    /// How long a call may wait that says nothing itself; `None` is to the end. The client says its name and version.
    pub fn max_wait(&self, client: impl FnOnce() -> Option<(String, String)>) -> Option<Duration> {
        if let Some(wait) = self.max_wait {
            return Some(wait).filter(|wait| !wait.is_zero());
        }
        let Some((name, version)) = client() else { return Some(CAREFUL_WAIT) };
        let (name, version) = (name.to_lowercase(), major_minor(&version));
        let known = CLIENTS.iter().find(|(begins, since, _)| name.starts_with(begins) && version >= *since);
        known.map_or(Some(CAREFUL_WAIT), |(.., wait)| *wait)
    }
}

/// The first two numbers of a version; what is no number counts as zero.
fn major_minor(version: &str) -> (u32, u32) {
    let mut numbers = version.split('.').map(|number| number.parse().unwrap_or_default());
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default())
}

/// Seconds, or a number with its unit.
fn duration(name: &'static str, value: String) -> Result<Duration, BadSetting> {
    if let Ok(seconds) = value.trim().parse::<u64>() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(value.trim()).map_err(|_| {
        let auto = if name == "ASKD_MAX_WAIT" { ", or auto" } else { "" };
        BadSetting { name, value, why: format!("not a duration; use seconds, or a unit like 45s or 30m{auto}") }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings, String> {
        let variable =
            |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Settings::read(variable).map_err(|error| error.to_string())
    }

    #[test]
    fn the_client_is_waited_for_as_long_as_it_is_known_to_allow() {
        let wait = |value: &str, name: &str, version: &str| {
            let settings = read(&[("ASKD_MAX_WAIT", value)]).unwrap();
            settings.max_wait(|| Some((name.to_owned(), version.to_owned()))).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("", "claude-code", "2.1.0"), None);
        assert_eq!(wait("auto", "claude-code", ""), None);
        for (version, seconds) in
            [("0.141.0", 290), ("0.142.0-alpha.1", 290), ("1.0.0", 290), ("0.140.0", 45), ("0.50.0", 45), ("dev", 45)]
        {
            assert_eq!(wait("auto", "codex-mcp-client", version), Some(seconds), "{version}");
        }
        assert_eq!(wait("auto", "gemini-cli-mcp-client-askd", "0.0.1"), Some(590));
        assert_eq!(wait("auto", "Visual Studio Code - Insiders", "1.110.0"), None);
        assert_eq!(wait("auto", "hermes-agent", "0.9.0"), Some(290));
        assert_eq!(wait("auto", "openai-agents-mcp", "1.0"), Some(4));
        assert_eq!(wait("auto", "mcp", "0.1.0"), Some(45));
        assert_eq!(wait("90", "claude-code", ""), Some(90));
        assert_eq!(wait("2m", "x", ""), Some(120));
        assert_eq!(wait("0", "x", ""), None);
        assert_eq!(read(&[]).unwrap().max_wait(|| None), Some(CAREFUL_WAIT));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |name: &str, value: &str| read(&[(name, value)]).unwrap_err();
        assert_eq!(
            error("ASKD_MAX_WAIT", "soon"),
            "ASKD_MAX_WAIT=\"soon\": not a duration; use seconds, or a unit like 45s or 30m, or auto"
        );
        assert!(error("ASKD_MIN_TIMEOUT", "-3").starts_with("ASKD_MIN_TIMEOUT=\"-3\": not a duration"));
        assert_eq!(
            error("ASKD_MIN_TIMEOUT", "8d"),
            "ASKD_MIN_TIMEOUT=\"8d\": no question is open for longer than 7 days"
        );
        assert!(read(&[("ASKD_MIN_TIMEOUT", "7d")]).is_ok());
        assert!(error("ASK_USER_TIMEOUT_POLICY", "x").contains("neither return_cancel nor abort_task"));
    }
}
