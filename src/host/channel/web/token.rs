//! The token of the inbox: from the settings, else made at the first start and kept beside the asks.

use crate::ipc::files::{Access, Dir, ReadError};
use crate::random;
use secrecy::SecretString;
use std::io;
use std::path::Path;

/// Its file below `state/`, for the daemon's user alone.
pub const TOKEN_FILE: &str = "web_token";
const LONGEST: usize = 4096;

/// Reads the kept token, or makes one. An empty file holds none.
pub fn token(state: &Path) -> io::Result<SecretString> {
    let dir = Dir::open(state)?;
    let kept = match dir.read_own(TOKEN_FILE, LONGEST) {
        Ok((bytes, _)) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(ReadError::Gone) => String::new(),
        Err(error) => return Err(io::Error::other(format!("{}: {error}", state.join(TOKEN_FILE).display()))),
    };
    if !kept.is_empty() {
        return Ok(kept.into());
    }
    let secret = random::secret()?;
    dir.replace(".tmp-web_token", TOKEN_FILE, format!("{secret}\n").as_bytes(), Access::PRIVATE)?;
    Ok(secret.into())
}
