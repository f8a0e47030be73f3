//! The token of the inbox: from the settings, else made at the first start and kept beside the asks.

use crate::ipc::files::{Access, Dir, ReadError};
use crate::random;
use secrecy::SecretString;
use std::io;
use std::path::Path;

/// Its file below `state/`, for the daemon's user alone.
pub const TOKEN_FILE: &str = "web_token";
const LONGEST: usize = 4096;

/// Reads the kept token, or makes one.
pub fn token(state: &Path) -> io::Result<SecretString> {
    let dir = Dir::open(state)?;
    match dir.read_own(TOKEN_FILE, LONGEST) {
        Ok((bytes, _)) => {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            if text.is_empty() {
                return Err(io::Error::other(format!(
                    "{} is empty; delete it and a new token is made",
                    state.join(TOKEN_FILE).display()
                )));
            }
            Ok(text.into())
        }
        Err(ReadError::Gone) => {
            let secret = random::secret()?;
            dir.replace(".tmp-web_token", TOKEN_FILE, format!("{secret}\n").as_bytes(), Access::PRIVATE)?;
            Ok(secret.into())
        }
        Err(error) => Err(io::Error::other(format!("{}: {error}", state.join(TOKEN_FILE).display()))),
    }
}
