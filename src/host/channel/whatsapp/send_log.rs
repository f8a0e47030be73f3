//! What was sent to whom lately, in `state/channels/whatsapp-sent.json`. Each sending is on stable storage before it
//! leaves, so a restart in a burst keeps the pair limit, and knows which questions certainly never left.
//!
//! The log forgets after minutes: what came of a message stands with its ask.

use super::callback_data::CallbackData;
use super::state_file::StateFile;
use crate::host::store::Documents;
use askd_core::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The file's name below `state/channels/`.
const FILE: &str = "channels/whatsapp-sent.json";
/// The result of a call is stored with its ask within this time.
const KEEP: Duration = Duration::from_secs(600);

/// See the module.
#[derive(Debug)]
pub(super) struct SendLog(StateFile<Sent>);

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Sent {
    /// For each person, when the current burst of messages began, and how many messages it has.
    debts: BTreeMap<String, (Time, u64)>,
    /// The attempts that may have left, and when that was written down.
    #[serde(serialize_with = "keys", deserialize_with = "begun")]
    begun: BTreeMap<String, Time>,
}

fn keys<S: Serializer>(begun: &BTreeMap<String, Time>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(begun.keys())
}

fn begun<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, Time>, D::Error> {
    Ok(Vec::<String>::deserialize(from)?.into_iter().map(|attempt| (attempt, Time::default())).collect())
}

/// The name of an attempt at a question or an invitation. `None`: no ask waits for the result of this message.
fn attempt(message: &CallbackData) -> Option<String> {
    message.kind.asks().then(|| format!("{}:{}:{}", message.ask, message.route, message.attempt))
}

impl SendLog {
    /// Reads what an earlier run has sent.
    pub(super) fn open(documents: Arc<dyn Documents>, number: &str, now: Time) -> io::Result<Self> {
        let file = StateFile::<Sent>::open(documents, FILE, number)?;
        // However long ago that was: askd may still have to find out the results.
        file.get().begun.values_mut().for_each(|at| *at = now);
        Ok(Self(file))
    }

    /// For each person, when the current burst of messages began, and how many messages it has.
    pub(super) fn bursts(&self) -> Vec<(String, Time, u64)> {
        self.0.get().debts.iter().map(|(person, (began, sent))| (person.clone(), *began, *sent)).collect()
    }

    /// Records that a message is about to leave to that person, as number `sent` of a burst. It is stored when this
    /// returns.
    pub(super) async fn sending(
        &self,
        person: &str,
        sent: u64,
        message: Option<&CallbackData>,
        now: Time,
    ) -> io::Result<()> {
        {
            let mut log = self.0.change();
            let burst = log.debts.entry(person.to_owned()).or_insert((now, sent));
            *burst = (if sent <= 1 { now } else { burst.0 }, sent);
            log.begun.extend(message.and_then(attempt).map(|attempt| (attempt, now)));
        }
        let forget = |log: &mut Sent| {
            log.debts.retain(|_, (began, _)| *began + KEEP >= now);
            log.begun.retain(|_, at| *at + KEEP >= now);
        };
        self.0.save(forget).await
    }

    /// Records that the platform refused the message, so it did not leave.
    pub(super) fn refused(&self, message: &CallbackData) {
        if let Some(attempt) = attempt(message) {
            self.0.change().begun.remove(&attempt);
        }
    }

    /// Whether the message may have left. In doubt it may.
    pub(super) fn may_have_left(&self, message: &CallbackData) -> bool {
        !self.0.whole || attempt(message).is_some_and(|attempt| self.0.get().begun.contains_key(&attempt))
    }
}

#[cfg(test)]
mod tests {
    use super::super::callback_data::Kind;
    use super::*;
    use crate::host::store::InFiles;
    use askd_core::AskId;

    const NOW: Time = Time::from_millis(1_790_000_000_000);

    #[tokio::test]
    async fn what_left_is_known_after_a_restart_and_what_did_not_too() {
        let temp = tempfile::tempdir().unwrap();
        let documents = || Arc::new(InFiles::open(temp.path()).unwrap());
        let of = |attempt| CallbackData { ask: AskId::from_bits(7), route: 1, attempt, part: 0, kind: Kind::Question };
        let first = SendLog::open(documents(), "106", NOW).unwrap();
        assert!(first.may_have_left(&of(1)), "an earlier run may have sent it");
        first.sending("1555", 1, Some(&of(1)), NOW).await.unwrap();
        first.sending("1555", 2, Some(&of(2)), NOW + Duration::from_secs(1)).await.unwrap();
        first.refused(&of(2));
        first.sending("1666", 1, None, NOW + Duration::from_secs(2)).await.unwrap();
        let later = NOW + Duration::from_secs(86_400);
        let again = SendLog::open(documents(), "106", later).unwrap();
        assert!(again.may_have_left(&of(1)) && !again.may_have_left(&of(2)) && !again.may_have_left(&of(3)));
        assert_eq!(again.bursts()[0], ("1555".to_owned(), NOW, 2));
        assert!(SendLog::open(documents(), "107", later).unwrap().bursts().is_empty(), "another number");
        again.sending("1777", 1, None, later).await.unwrap();
        let third = SendLog::open(documents(), "106", later).unwrap();
        assert!(third.may_have_left(&of(1)), "a start later it is still known");
        assert_eq!(third.bursts().len(), 1, "bursts that are paid back are forgotten");
    }
}
