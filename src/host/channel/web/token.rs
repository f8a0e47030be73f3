//! The token of the inbox: from the settings, else made at the first start and kept beside the asks.

use crate::host::store::Documents;
use crate::random;
use secrecy::SecretString;
use std::io;

/// Its document.
pub const TOKEN_FILE: &str = "web_token";

/// Reads the kept token, or makes one. An empty file holds none.
pub fn token(documents: &dyn Documents) -> io::Result<SecretString> {
    let kept = documents.read(TOKEN_FILE)?.unwrap_or_default();
    let kept = String::from_utf8_lossy(&kept).trim().to_owned();
    if !kept.is_empty() {
        return Ok(kept.into());
    }
    let secret = random::secret()?;
    documents.store(TOKEN_FILE, format!("{secret}\n").as_bytes())?;
    Ok(secret.into())
}
