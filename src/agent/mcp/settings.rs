//! What the environment says about `askd mcp`: the session, and what its calls go by. Read once, at start. A
//! value that is wrong ends the process with a sentence.

use crate::mcp::{self, BadSetting};
use crate::random;
use askd_core::MAX_TOKEN;

/// What the environment says.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which run of the agent asks.
    pub(super) session: String,
    /// Signs what a client repeats. It ends with the process, as its questions do.
    pub(super) key: String,
    /// What calls go by.
    pub(super) calls: mcp::Settings,
}

impl Settings {
    /// Reads the environment.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, BadSetting> {
        let session = variable("ASKD_SESSION_ID").filter(|value| !value.trim().is_empty());
        let session = session.unwrap_or_else(random::unique);
        if session.chars().count() > MAX_TOKEN {
            let why = format!("it may have at most {MAX_TOKEN} characters");
            return Err(BadSetting { name: "ASKD_SESSION_ID", value: session, why });
        }
        Ok(Self { session, key: random::unique(), calls: mcp::Settings::read(variable)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(session: &str) -> Result<String, String> {
        let read = Settings::read(|name| (name == "ASKD_SESSION_ID").then(|| session.to_owned()));
        read.map(|settings| settings.session).map_err(|error| error.to_string())
    }

    #[test]
    fn each_process_without_a_session_has_its_own() {
        assert_ne!(read(" ").unwrap(), read("").unwrap());
        assert_eq!(read("run-1").unwrap(), "run-1");
        assert!(read(&"x".repeat(129)).unwrap_err().ends_with("at most 128 characters"));
    }
}
