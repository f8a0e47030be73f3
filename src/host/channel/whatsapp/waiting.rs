//! The messages that wait until a status says what they can mean, in the order in which they came.

use crate::clock::Moment;
use parking_lot::Mutex;
use std::time::Duration;

/// Who goes on with a message tries again every second. After this, nobody does.
const LEFT_ALONE: Duration = Duration::from_secs(5);
/// How long a message waits before the operator is told.
const TOLD_AFTER: Duration = Duration::from_secs(2);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Waiting(Mutex<Vec<Reply>>);

#[derive(Debug)]
struct Reply {
    person: String,
    message: String,
    since: Moment,
    /// When it was last tried.
    tried: Moment,
    told: bool,
}

impl Waiting {
    /// That message waits, from now on or still. `true`, once: it has waited for so long that the operator should know.
    pub(super) fn add(&self, person: &str, message: &str, now: Moment) -> bool {
        let mut replies = self.0.lock();
        replies.retain(|reply| now.since(reply.tried) < LEFT_ALONE);
        let Some(reply) = replies.iter_mut().find(|reply| reply.message == message) else {
            let (person, message) = (person.to_owned(), message.to_owned());
            replies.push(Reply { person, message, since: now, tried: now, told: false });
            return false;
        };
        reply.tried = now;
        let tells = !reply.told && now.since(reply.since) >= TOLD_AFTER;
        reply.told |= tells;
        tells
    }

    /// That message waits no more. `true` if it did.
    pub(super) fn remove(&self, message: &str) -> bool {
        let mut replies = self.0.lock();
        let before = replies.len();
        replies.retain(|reply| reply.message != message);
        replies.len() < before
    }

    /// For how long that message has waited.
    pub(super) fn waited(&self, message: &str, now: Moment) -> Duration {
        let replies = self.0.lock();
        replies.iter().find(|reply| reply.message == message).map_or(Duration::ZERO, |reply| now.since(reply.since))
    }

    /// Whether another message of that person waits that came before this one.
    pub(super) fn is_behind(&self, person: &str, message: &str, now: Moment) -> bool {
        let replies = self.0.lock();
        let before = replies.iter().take_while(|reply| reply.message != message);
        before.into_iter().any(|reply| reply.person == person && now.since(reply.tried) < LEFT_ALONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_a_person_keep_their_order_and_nobody_waits_for_one_that_is_left_alone() {
        let (waiting, at) = (Waiting::default(), |seconds| Moment::default() + Duration::from_secs(seconds));
        assert!(!waiting.add("ada", "first", at(0)) && !waiting.add("ada", "second", at(1)));
        assert!(waiting.is_behind("ada", "second", at(1)) && waiting.is_behind("ada", "third", at(1)));
        assert!(!waiting.is_behind("ada", "first", at(1)) && !waiting.is_behind("bob", "other", at(1)));
        assert!(waiting.add("ada", "first", at(2)) && !waiting.add("ada", "first", at(3)), "told once");
        assert_eq!(waiting.waited("first", at(3)), Duration::from_secs(3));
        assert!(waiting.remove("first") && !waiting.remove("first"));
        assert!(!waiting.is_behind("ada", "second", at(3)) && waiting.is_behind("ada", "third", at(5)));
        assert!(!waiting.is_behind("ada", "third", at(6)));
        assert!(!waiting.add("bob", "other", at(7)));
        assert_eq!(waiting.waited("second", at(7)), Duration::ZERO, "forgotten");
    }
}
