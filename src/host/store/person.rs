//! A person as they are kept: in an ask's record, and beside what they allowed.

use super::BadRecord;
use askd_core::Person;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq)]
pub(super) struct PersonRecord {
    channel: String,
    id: String,
    name: Option<String>,
}

impl PersonRecord {
    pub(super) fn of(person: &Person) -> Self {
        Self { channel: person.via.as_str().to_owned(), id: person.id.clone(), name: person.name.clone() }
    }

    pub(super) fn person(self) -> Result<Person, BadRecord> {
        Ok(Person {
            via: self.channel.parse().map_err(|_| BadRecord::Field("channel of a person"))?,
            id: self.id,
            name: self.name,
        })
    }
}
