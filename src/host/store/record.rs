//! An ask as it is kept: one readable JSON file. Knows the shape and no folder.
//!
//! The shape is the core's own types. The fields beside them repeat what is in the ask: people and tools that look into
//! the folder find them by these names, and askd never reads them.

use super::earlier;
use super::files::EntryId;
use crate::sabotage::on;
use askd_core::{Ask, ChannelName, RequestId, Stage, Time};
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer as _, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// The format that is written. A newer one is not touched.
pub(super) const VERSION: u32 = 3;
/// Most records are smaller.
pub(super) const USUAL_BYTES: usize = 4 * 1024;

/// Why a record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    /// Written by a newer askd.
    #[error("it has format {found}, this askd knows {known}: a newer askd wrote it")]
    Newer {
        /// Its format.
        found: u32,
        /// The newest format that this askd reads.
        known: u32,
    },
    /// Not JSON, or not an ask.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The ask has another id or group than the file's name says.
    #[error("it is the record of another ask")]
    Misnamed,
}

/// The number that every file of the store has, whatever else is in it.
#[derive(Deserialize)]
pub(super) struct Version {
    v: u32,
}

impl Version {
    /// The version of these bytes, unless it is newer than what this askd knows.
    pub(super) fn at_most(known: u32, bytes: &[u8]) -> Result<u32, BadRecord> {
        let Self { v: found } = serde_json::from_slice(bytes)?;
        if found > known { Err(BadRecord::Newer { found, known }) } else { Ok(found) }
    }
}

/// The fields that only repeat what is in the ask.
const REPEATED: [&str; 7] = ["request_id", "channel_name", "chat", "message_id", "attempt", "shown_at", "answer_by"];

#[derive(Serialize)]
struct Record<'a> {
    v: u32,
    /// The boot of the computer in which this was written.
    boot: &'a str,
    /// What a file has in it of the journal: no entry up to this one is newer.
    #[serde(skip_serializing_if = "Option::is_none")]
    entry: Option<&'a EntryId>,
    request_id: Option<&'a RequestId>,
    channel_name: Option<ChannelName>,
    chat: Option<&'a str>,
    message_id: Option<&'a str>,
    attempt: u8,
    shown_at: Option<Time>,
    answer_by: Option<Time>,
    #[serde(flatten)]
    ask: &'a Ask,
}

/// The bytes of an ask's file. `entry`: the last one of the journal that was about it.
pub(super) fn write(ask: &Ask, boot: &str, entry: Option<&EntryId>) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    to_bytes(&record(ask, boot, entry), &mut serde_json::Serializer::pretty(&mut bytes))?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The bytes of an entry of the journal. The boot stands in the head of its part, but for a record of an earlier one.
pub(super) fn entry(ask: &Ask, earlier_boot: Option<&str>) -> Result<Vec<u8>, serde_json::Error> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    to_bytes(&record(ask, earlier_boot.unwrap_or_default(), None), &mut serde_json::Serializer::new(&mut bytes))?;
    Ok(bytes)
}

fn to_bytes<'a, S>(record: &Record<'_>, serializer: &'a mut S) -> Result<(), serde_json::Error>
where
    &'a mut S: Serializer<Ok = (), Error = serde_json::Error>,
{
    if on("noseen") {
        let mut record = serde_json::to_value(record)?;
        record["heard"] = serde_json::json!([]);
        return record.serialize(serializer);
    }
    record.serialize(serializer)
}

fn record<'a>(ask: &'a Ask, boot: &'a str, entry: Option<&'a EntryId>) -> Record<'a> {
    let widget = ask.widgets.last();
    let route = widget.map(|widget| &widget.route);
    Record {
        v: VERSION,
        boot,
        entry,
        request_id: ask.waiters.first().map(|waiter| &waiter.request_id),
        channel_name: route.map(|route| route.channel),
        chat: route.map(|route| route.chat.as_str()).filter(|chat| !chat.is_empty()),
        message_id: widget.and_then(|widget| widget.messages().next_back()),
        attempt: widget.map_or(0, |widget| widget.attempt),
        shown_at: ask.shown_at(),
        answer_by: if let Stage::Open { answer_by, .. } = ask.stage { Some(answer_by) } else { None },
        ask,
    }
}

/// A record that was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) ask: Ask,
    /// The boot in which it was written; earlier versions did not say.
    pub(super) boot: Option<String>,
    /// What it has in it of the journal.
    pub(super) entry: Option<EntryId>,
}

/// The ask of such bytes, parsed once if the record is of today's format.
pub(super) fn read(bytes: &[u8]) -> Result<Read, BadRecord> {
    let mut head = Head::default();
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let ask = json.deserialize_map(Body(&mut head)).and_then(|ask| json.end().map(|()| ask));
    match ask {
        Ok(ask) if head.v == Some(VERSION) => Ok(Read { ask, boot: head.boot, entry: head.entry }),
        not_an_ask => match Version::at_most(VERSION, bytes)? {
            VERSION => Ok(Read { ask: not_an_ask?, boot: head.boot, entry: head.entry }),
            format => {
                let ask = serde_json::from_value(earlier::in_todays_shape(serde_json::from_slice(bytes)?, format))?;
                Ok(Read { ask, boot: None, entry: None })
            }
        },
    }
}

/// What a record says about itself.
#[derive(Default)]
struct Head {
    v: Option<u32>,
    boot: Option<String>,
    entry: Option<EntryId>,
}

/// Reads an ask, and picks the fields of the head out of the same map.
struct Body<'a>(&'a mut Head);

impl<'de> Visitor<'de> for Body<'_> {
    type Value = Ask;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the record of an ask")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ask, A::Error> {
        Ask::deserialize(MapAccessDeserializer::new(WithoutHead { head: self.0, map }))
    }
}

/// The name of a field, copied only if it has an escape in it.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

struct WithoutHead<'a, A> {
    head: &'a mut Head,
    map: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithoutHead<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(Key(key)) = self.map.next_key()? {
            match &*key {
                "v" => self.head.v = self.map.next_value()?,
                "boot" => self.head.boot = self.map.next_value()?,
                "entry" => self.head.entry = self.map.next_value()?,
                // Serde would keep what it does not know until the end, for the fields that are flattened.
                name if REPEATED.contains(&name) => drop(self.map.next_value::<IgnoredAny>()?),
                _ => return seed.deserialize(key.into_deserializer()).map(Some),
            }
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;
    use std::sync::LazyLock;

    /// The records of every version of which there is a golden folder, the smallest first.
    static GOLDEN: LazyLock<Vec<String>> = LazyLock::new(|| {
        let mut found = Vec::new();
        let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap().flatten() {
                let path = entry.path();
                let is_record =
                    ["pending_questions", "settled"].iter().any(|part| path.to_string_lossy().contains(part));
                if path.is_dir() {
                    folders.push(path);
                } else if is_record && path.extension().is_some_and(|end| end == "json") {
                    found.push(std::fs::read_to_string(path).unwrap());
                }
            }
        }
        found.sort_by_key(String::len);
        found
    });

    fn near_a_record() -> impl Strategy<Value = Vec<u8>> {
        any::<prop::sample::Index>().prop_flat_map(|at| crate::odd::near(at.get::<String>(&GOLDEN)))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// A record is understood or refused; what is understood is written, and read again as the same.
        #[test]
        fn no_bytes_break_it(bytes in near_a_record()) {
            if let Ok(known) = crate::odd::in_time(|| read(&bytes)) {
                let written = write(&known.ask, "boot", None).unwrap();
                let again = read(&written).unwrap();
                prop_assert_eq!(write(&again.ask, "boot", None).unwrap(), written);
                prop_assert_eq!(again.boot.as_deref(), Some("boot"));
            }
        }
    }
}
