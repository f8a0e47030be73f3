//! A person as they are kept: in an ask's record, and beside what they allowed.

use super::BadRecord;
use askd_core::{Person, Via};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, PartialEq)]
pub(super) struct PersonRecord {
    channel: String,
    id: String,
    name: Option<String>,
}

fn via(name: &str) -> Result<Via, BadRecord> {
    let all = [Via::Slack, Via::Whatsapp, Via::Web, Via::Cli, Via::Api];
    all.into_iter().find(|via| via.name() == name).ok_or(BadRecord::Field("channel of a person"))
}

impl PersonRecord {
    pub(super) fn of(person: &Person) -> Self {
        Self { channel: person.via.name().to_owned(), id: person.id.clone(), name: person.name.clone() }
    }

    pub(super) fn person(self) -> Result<Person, BadRecord> {
        Ok(Person { via: via(&self.channel)?, id: self.id, name: self.name })
    }
}
