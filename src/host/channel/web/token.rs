//! The token of the inbox: from the settings, else made at the first start and kept beside the asks.

use crate::host::store::Documents;
use crate::random;
use secrecy::SecretString;
use std::io;

/// Its document.
pub const TOKEN_FILE: &str = "web_token";

/// Reads the kept token, or makes one. An empty file holds none.
pub fn token(documents: &dyn Documents) -> io::Result<SecretString> {
    loop {
        let before = documents.read(TOKEN_FILE)?;
        let kept = String::from_utf8_lossy(before.as_deref().unwrap_or_default()).trim().to_owned();
        if !kept.is_empty() {
            return Ok(kept.into());
        }
        let secret = random::secret()?;
        // Another daemon may make one at the same moment.
        if documents.swap(TOKEN_FILE, before.as_deref(), format!("{secret}\n").as_bytes())? {
            return Ok(secret.into());
        }
    }
}
