//! The token of the inbox: from the settings, else made at the first start and kept beside the asks.

use crate::host::store::{Documents, change_document};
use crate::random;
use secrecy::SecretString;
use std::io;

/// Its document.
pub const TOKEN_FILE: &str = "web_token";

/// Reads the kept token, or makes one. An empty file holds none.
pub fn token(documents: &dyn Documents) -> io::Result<SecretString> {
    change_document(documents, TOKEN_FILE, |before| {
        let kept = String::from_utf8_lossy(before.unwrap_or_default()).trim().to_owned();
        if !kept.is_empty() {
            return Ok((None, kept.into()));
        }
        let secret = random::secret()?;
        Ok((Some(format!("{secret}\n").into_bytes()), secret.into()))
    })
}
