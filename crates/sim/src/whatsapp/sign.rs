//! How Meta writes and signs a webhook body: compact JSON in pure ASCII and
//! `X-Hub-Signature-256: sha256=` + hex of HMAC-SHA256 with the app secret over exactly those bytes.
//!
//! Escapes, per Meta's webhook documentation ("escaped unicode version of the payload, with lowercase
//! hex digits", the Messenger reference adds `/` as `\/`, `<` as `\u003C`, `%` as `\u0025`, `@` as
//! `\u0040`) and open issues of client libraries that fail on accents and on `@`. That the Cloud API
//! uses the whole list is likely, not proven; a receiver that hashes the raw bytes never notices, one
//! that parses and writes again does, and that is the point. Called by `courier`; `pywa` checks the
//! signature in `tests/contract`.

use std::fmt::Write as _;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::Value;
use sha2::Sha256;

/// The body as it goes over the wire.
pub(super) fn body(value: &Value) -> Vec<u8> {
    let plain = value.to_string();
    let mut out = String::with_capacity(plain.len() + plain.len() / 4);
    let mut units = [0_u16; 2];
    for c in plain.chars() {
        // Only inside of strings can any of these occur in JSON, so no parser is needed here.
        match c {
            '/' => out.push_str("\\/"),
            '<' => out.push_str("\\u003C"),
            '%' => out.push_str("\\u0025"),
            '@' => out.push_str("\\u0040"),
            c if c.is_ascii() => out.push(c),
            c => {
                for unit in c.encode_utf16(&mut units) {
                    // Writing into a String cannot fail.
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
    out.into_bytes()
}

/// The value of `X-Hub-Signature-256`.
pub(super) fn signature(app_secret: &str, body: &[u8]) -> String {
    format!("sha256={}", hex::encode(hmac_sha256(app_secret.as_bytes(), body)))
}

fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    // An HMAC takes a key of any length; the error cannot come.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return Vec::new() };
    mac.update(message);
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hmac_agrees_with_rfc_4231() {
        let case2 = hex::encode(hmac_sha256(b"Jefe", b"what do ya want for nothing?"));
        assert_eq!(case2, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        let case6 = hex::encode(hmac_sha256(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First"));
        assert_eq!(case6, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn the_body_is_ascii_and_reads_back_as_what_was_meant() {
        let value = json!({"body": "na\u{ef}ve \u{1f600} a/b <b> 5% me@x \"q\" \\ \n"});
        let bytes = body(&value);
        assert!(bytes.is_ascii());
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.contains(r"na\u00efve \ud83d\ude00 a\/b \u003Cb> 5\u0025 me\u0040x"), "{text}");
        assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap(), value);
    }
}
