//! What a file in `tasks/` shows even if it is torn or wrong: whether it is ours, and whose. The daemon asks this before it
//! reads the whole file. A refusal repeats what of it can be read.

use super::request::token_within;
use askd_core::RequestId;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// What can be told of a file even if it is torn or wrong: whose it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Peek {
    /// Its `type`.
    pub kind: Option<String>,
    /// Its request id, if it is one.
    pub request_id: Option<RequestId>,
    /// What its response repeats, if it can be repeated.
    pub op_code: Option<String>,
    /// Whether the text ended early or is no JSON: it may be half-written.
    pub torn: bool,
    /// Whether it merely ended early, or in a hole of a file that is still being filled.
    pub ends_early: bool,
}

/// The JSON of a file, without the byte-order mark that some editors and programs put in front.
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes)
}

fn op_code_of(value: &Value) -> Option<String> {
    let text = value.as_str().filter(|text| !text.is_empty())?;
    token_within("opCode", Some(text)).is_ok().then(|| text.to_owned())
}

/// Reads as far as it goes.
pub fn peek(bytes: &[u8]) -> Peek {
    struct Fields<'a>(&'a mut Peek);
    impl<'de> Visitor<'de> for Fields<'_> {
        type Value = ();
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
            let Peek { kind, request_id, op_code, .. } = self.0;
            while let Some(key) = map.next_key::<Cow<'_, str>>()? {
                match key.as_ref() {
                    // Given twice, the first one counts here; reading the whole refuses it.
                    "type" => {
                        let value: Value = map.next_value()?;
                        *kind = kind.take().or_else(|| value.as_str().map(str::to_owned));
                    }
                    "request_id" | "requestId" => {
                        let value: Value = map.next_value()?;
                        *request_id = request_id.take().or_else(|| value.as_str()?.parse().ok());
                    }
                    "op_code" | "opCode" => {
                        let value: Value = map.next_value()?;
                        *op_code = op_code.take().or_else(|| op_code_of(&value));
                    }
                    _ => drop(map.next_value::<IgnoredAny>()?),
                }
            }
            Ok(())
        }
    }
    let mut peek = Peek::default();
    let mut json = serde_json::Deserializer::from_slice(text(bytes));
    if let Err(error) = json.deserialize_map(Fields(&mut peek)).and_then(|()| json.end()) {
        peek.torn = !error.is_data();
        // Perhaps only the first bytes of a byte-order mark are there yet.
        let begins = b"\xef\xbb\xbf".starts_with(bytes);
        peek.ends_early = error.is_eof() || begins || bytes.ends_with(b"\0");
    }
    peek
}
