//! The versions of an ask's record, and which of them this askd reads and writes. The core knows the shape of today's.

use super::earlier;
use crate::sabotage::on;
use askd_core::Ask;
pub(super) use askd_core::record::Record;
#[cfg(feature = "postgres")]
pub(super) use askd_core::record::USUAL_BYTES;
use askd_core::record::{self, EntryId, Head};
use serde::Deserialize;

/// The format that is written. A newer one is not touched.
pub(super) const VERSION: u32 = 3;

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
pub struct Version {
    /// Counts from 1.
    pub v: u32,
}

impl Version {
    /// The version of these bytes, unless it is newer than what this askd knows.
    pub(super) fn at_most(known: u32, bytes: &[u8]) -> Result<u32, BadRecord> {
        let Self { v: found } = serde_json::from_slice(bytes)?;
        if found > known { Err(BadRecord::Newer { found, known }) } else { Ok(found) }
    }
}

/// The bytes of an ask's file. `entry`: the last one of the journal that was about it.
pub(super) fn write(ask: &Ask, boot: &str, entry: Option<&EntryId>) -> Result<Vec<u8>, serde_json::Error> {
    forgetful(record::write_pretty(ask, Head { v: VERSION, boot, entry })?)
}

/// The bytes of an entry of the journal. The boot stands in the head of its part, but for a record of an earlier one.
pub(super) fn entry(ask: &Ask, earlier_boot: Option<&str>) -> Result<Vec<u8>, serde_json::Error> {
    forgetful(record::write(ask, Head { v: VERSION, boot: earlier_boot.unwrap_or_default(), entry: None })?)
}

fn forgetful(bytes: Vec<u8>) -> Result<Vec<u8>, serde_json::Error> {
    if !on("noseen") {
        return Ok(bytes);
    }
    let mut record: serde_json::Value = serde_json::from_slice(&bytes)?;
    record["heard"] = serde_json::json!([]);
    serde_json::to_vec(&record)
}

/// The ask of such bytes, parsed once if the record is of today's format.
pub(super) fn read(bytes: &[u8]) -> Result<Record, BadRecord> {
    match record::read(bytes) {
        Ok(record) if record.v == Some(VERSION) => Ok(record),
        not_of_today => match Version::at_most(VERSION, bytes)? {
            VERSION => Ok(not_of_today?),
            format => {
                let ask = serde_json::from_value(earlier::in_todays_shape(serde_json::from_slice(bytes)?, format))?;
                Ok(Record { v: Some(format), boot: None, entry: None, ask })
            }
        },
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
