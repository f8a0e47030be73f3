//! Which ids belong to one person, and which of them the person has left for another. Pure.

use askd_core::Time;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// User ids, other spellings and later ids, each mapped to another id of the same person.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Same(BTreeMap<String, String>);

impl Same {
    /// All ids of the person with these.
    pub(super) fn all(&self, ids: &[String]) -> Vec<String> {
        let mut all: BTreeSet<String> = ids.iter().cloned().collect();
        loop {
            let new = self.0.iter().filter(|(one, other)| all.contains(*one) != all.contains(*other));
            let new: Vec<String> = new.flat_map(|(one, other)| [one.clone(), other.clone()]).collect();
            if new.is_empty() {
                return all.into_iter().collect();
            }
            all.extend(new);
        }
    }

    /// One name for the person with that id: the same for each of their ids.
    pub(super) fn name(&self, id: &str) -> String {
        let mut name = id;
        // The number of steps is bounded, because a circle has no end.
        for _ in 0..self.0.len() {
            let Some(next) = self.0.get(name).filter(|next| *next != id) else { break };
            name = next;
        }
        name.to_owned()
    }

    /// These two names are one person's.
    pub(super) fn join(&mut self, name: String, other: String) {
        self.0.insert(name, other);
    }
}

/// The ids that people have left, each with the one that took its place, and when. Anybody may have a number that a person
/// has left.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Moves(BTreeMap<String, (String, Time)>);

impl Moves {
    /// The person with the old ids has these others instead: a number for a number, a user id for a user id.
    pub(super) fn add(&mut self, before: &[String], after: &[String], at: Time) {
        for old in before.iter().filter(|old| !after.contains(old)) {
            let Some(new) = after.iter().find(|new| is_user_id(new) == is_user_id(old)) else { continue };
            let left_since = |id: &String| self.0.get(id).is_some_and(|(_, left)| *left >= at);
            // What is told again takes back nothing that came later.
            if !left_since(old) && !left_since(new) {
                self.0.remove(new);
                self.0.insert(old.clone(), (new.clone(), at));
            }
        }
    }

    /// The id under which the person with that id is reached now.
    pub(super) fn current<'a>(&'a self, mut id: &'a str) -> &'a str {
        // The number of steps is bounded, because a circle has no end.
        for _ in 0..self.0.len() {
            let Some((next, _)) = self.0.get(id) else { break };
            id = next;
        }
        id
    }

    /// Whether the person with that id had left it when the platform received a message from it. In doubt they had.
    pub(super) fn had_left(&self, id: &str, received: Option<Time>) -> bool {
        self.0.get(id).is_some_and(|(_, left)| received.is_none_or(|received| received >= *left))
    }
}

/// Business-scoped user ids have a dot; numbers have none.
pub(super) fn is_user_id(id: &str) -> bool {
    id.contains('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_millis(seconds * 1000)
    }

    fn moves(told: &[(&[&str], &[&str], i64)]) -> Moves {
        let ids = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        let mut moves = Moves::default();
        for (before, after, seconds) in told {
            moves.add(&ids(before), &ids(after), at(*seconds));
        }
        moves
    }

    #[test]
    fn a_person_is_followed_from_number_to_number_and_back() {
        let (there, on, back): (_, _, (&[&str], &[&str], i64)) =
            ((["1"].as_slice(), ["2"].as_slice(), 10), (["2"].as_slice(), ["3"].as_slice(), 20), (&["3"], &["1"], 30));
        let moved = moves(&[there, on]);
        assert_eq!(["1", "2", "3", "4"].map(|id| moved.current(id)), ["3", "3", "3", "4"]);
        // Meta repeats what it told, in any order.
        let moved = moves(&[there, on, back, on, there]);
        assert_eq!(["1", "2", "3"].map(|id| moved.current(id)), ["1"; 3]);
        assert!(!moved.had_left("1", Some(at(40))) && moved.had_left("3", Some(at(40))));
    }

    #[test]
    fn a_number_takes_the_place_of_a_number_and_what_came_before_was_the_persons() {
        let moved = moves(&[(&["1", "US.1"], &["2", "US.2"], 10)]);
        assert_eq!((moved.current("1"), moved.current("US.1")), ("2", "US.2"));
        assert_eq!(
            [Some(at(9)), Some(at(10)), Some(at(11)), None].map(|received| moved.had_left("1", received)),
            [false, true, true, true]
        );
        let moved = moves(&[(&["1", "US.1"], &["1", "US.2"], 10)]);
        assert_eq!((moved.current("1"), moved.current("US.1")), ("1", "US.2"), "only the user id is another one");
        let moved = moves(&[(&["1"], &["US.2"], 10)]);
        assert_eq!(moved.current("1"), "1", "nothing is known of another number");
    }

    #[test]
    fn a_circle_has_an_end() {
        let moved = Moves(["12", "21"].map(|way| (way[..1].to_owned(), (way[1..].to_owned(), at(1)))).into());
        assert!(["1", "2"].contains(&moved.current("1")));
    }
}
