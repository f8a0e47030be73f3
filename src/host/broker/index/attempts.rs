//! How often each group asked each question without an answer, and which blocks stand. Section 8, "Attempts",
//! of the specification.
//!
//! Counted from the kept asks and built anew at every start, in any order. Only the moments of Allow again
//! are stored (`store/files/groups.rs`). This module says what is over the limit; the core decides what follows.

use super::entries::{Entries, Entry, answered_at};
use super::tables::Names;
use super::{Naming, Slot};
use crate::host::store::Allowed;
use crate::ipc::wire::digest;
use askd_core::{Ask, AskId, Content, Digest, Group, Person, Question, Time};
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};

/// The most asks that are counted for one question, the newest: far more than any limit.
const MOST: usize = 64;

/// See the module.
#[derive(Debug)]
pub(in crate::host::broker) struct Attempts {
    /// Asks that count, by the name of each of their questions.
    asked: Names,
    groups: HashMap<Group, Counted>,
    /// While asks are loaded, in any order: the last answer to each question. Afterwards an answer simply ends the count of
    /// all asks before it.
    answered: Option<HashMap<u64, Time>>,
    naming: Naming,
}

/// Of one group.
#[derive(Debug, Default)]
struct Counted {
    /// When Allow again was pressed last and by whom, unless an answer came after it. Earlier versions recorded the
    /// question [`alone`].
    allowed: HashMap<Digest, (Time, Option<Person>)>,
    /// Blocks that stand.
    blocked: BTreeMap<AskId, Block>,
}

#[derive(Debug)]
struct Block {
    /// The questions it is about.
    about: Vec<Digest>,
    /// Their names. `None`: it holds for them under every title and context.
    names: Option<Vec<u64>>,
    since: Time,
}

impl Counted {
    /// An answer ends what Allow again credited to a person before it.
    fn answer(&mut self, content: &Content, at: Time) {
        if self.allowed.is_empty() {
            return;
        }
        for subject in subjects(content) {
            if let Some((_, by)) = self.allowed.get_mut(&subject).filter(|(allowed, _)| *allowed <= at) {
                *by = None;
            }
        }
    }
}

/// A question with the title and context above it: the same stock wording about something else is another question.
fn subject(content: &Content, alone: Digest) -> Digest {
    let alone = alone.to_string();
    let above = [content.title.as_ref(), content.context.as_ref()].into_iter().flat_map(given);
    digest([b"subject".as_slice(), alone.as_bytes()].into_iter().chain(above))
}

/// The subject of blocks and Allow again of an earlier version: the question under every title and context. Questions
/// that look the same to a person have the same subject, whatever their ids.
fn alone(question: &Question) -> Digest {
    let choices = question.choices.iter().flat_map(|choice| [Some(&choice.label), choice.description.as_ref()]);
    let texts = [Some(&question.text), question.header.as_ref(), question.placeholder.as_ref()];
    let parts = texts.into_iter().chain(choices).flat_map(given);
    let flags = [u8::from(question.custom), u8::from(question.required)];
    digest([question.kind.name().as_bytes(), &flags].into_iter().chain(parts))
}

/// A missing text differs from an empty one.
fn given(text: Option<&String>) -> [&[u8]; 2] {
    match text {
        Some(text) => [b"1", text.as_bytes()],
        None => [b"0", b""],
    }
}

/// The subjects of an ask, question by question.
fn subjects(content: &Content) -> impl Iterator<Item = Digest> {
    content.questions.iter().map(|question| subject(content, alone(question)))
}

/// What a person sees of a question, as [`alone`] has it.
struct Seen<'a>(&'a Question);

impl Hash for Seen<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Question { id: _, text, header, kind, choices, custom, required, placeholder } = self.0;
        (kind.name(), text, header, custom, required, placeholder, choices.len()).hash(state);
        for choice in choices {
            (&choice.label, &choice.description).hash(state);
        }
    }
}

impl Naming {
    /// The name of a question under this title and context. A start needs those of all asks, and a [`subject`] takes five times as long.
    fn question(&self, group: &Group, Content { title, context, questions: _ }: &Content, question: &Question) -> u64 {
        self.name((group, title, context, Seen(question)))
    }

    /// Those of an ask, question by question.
    pub(super) fn questions(&self, group: &Group, content: &Content) -> impl Iterator<Item = u64> {
        content.questions.iter().map(|question| self.question(group, content, question))
    }
}

/// The subjects that a block of this ask, or Allow again on it, holds for.
pub(in crate::host::broker) fn held(ask: &Ask) -> Vec<Digest> {
    match ask.block() {
        Some(block) if block.any_context => ask.content.questions.iter().map(alone).collect(),
        _ => subjects(&ask.content).collect(),
    }
}

impl Attempts {
    pub(super) fn new(naming: Naming) -> Self {
        Self { asked: Names::default(), groups: HashMap::new(), answered: None, naming }
    }

    /// Takes in what an ask has become. `before` is what was known of it; the `names` of its questions are worked out only if they are needed.
    pub(super) fn note(
        &mut self,
        slot: Slot,
        ask: &Ask,
        names: impl IntoIterator<Item = u64>,
        before: Option<&Entry>,
        entries: &Entries,
    ) {
        let (counted, had_answer) = before.map_or((false, false), |before| (before.counts(), before.is_answered()));
        let (counts, created) = (entries[slot].counts(), entries[slot].created());
        let answered = answered_at(ask).filter(|_| !had_answer);
        if counts != counted || answered.is_some() {
            for name in names {
                let last = self.answered.as_ref().and_then(|answered| answered.get(&name));
                if !counts {
                    self.asked.remove(name, slot);
                } else if last.is_none_or(|last| created > *last) {
                    self.count_one(name, slot, entries);
                }
                let Some(at) = answered else { continue };
                if let Some(answered) = &mut self.answered {
                    let last = answered.entry(name).or_insert(at);
                    *last = at.max(*last);
                }
                let over: Vec<Slot> = self.asked.of(name).filter(|slot| entries[*slot].created() <= at).collect();
                for slot in over {
                    self.asked.remove(name, slot);
                }
            }
            if let (Some(at), Some(group)) = (answered, self.groups.get_mut(&ask.group)) {
                group.answer(&ask.content, at);
            }
        }
        if ask.is_blocked() {
            let any_context = ask.block().is_some_and(|block| block.any_context);
            let names = (!any_context).then(|| self.naming.questions(&ask.group, &ask.content).collect());
            let block = Block { about: held(ask), names, since: ask.created_at };
            self.groups.entry(ask.group.clone()).or_default().blocked.insert(ask.id, block);
        } else if before.is_some_and(Entry::is_blocked) {
            self.end_block(ask);
        }
    }

    /// Counts an ask for the question of this name. Those before Allow again count no more, so the oldest make room.
    fn count_one(&mut self, name: u64, slot: Slot, entries: &Entries) {
        let created = |slot: &Slot| entries[*slot].created();
        if self.asked.of(name).count() >= MOST
            && let Some(oldest) = self.asked.of(name).min_by_key(created)
        {
            if created(&oldest) > created(&slot) {
                return;
            }
            self.asked.remove(name, oldest);
        }
        self.asked.insert(name, slot);
    }

    fn end_block(&mut self, ask: &Ask) {
        if let Some(group) = self.groups.get_mut(&ask.group) {
            group.blocked.remove(&ask.id);
        }
    }

    /// Drops an ask.
    pub(super) fn remove(&mut self, slot: Slot, ask: &Ask, entries: &Entries) {
        self.end_block(ask);
        if entries[slot].counts() {
            for name in self.naming.questions(&ask.group, &ask.content) {
                self.asked.remove(name, slot);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.asked.bytes()
    }

    /// Asks are loaded from now on, in any order.
    pub(in crate::host::broker) fn begin_loading(&mut self) {
        self.answered = Some(HashMap::new());
    }

    /// All asks are loaded.
    pub(in crate::host::broker) fn end_loading(&mut self) {
        self.answered = None;
        self.asked.fit();
    }

    /// Takes in that questions of a group may be asked again.
    pub(in crate::host::broker) fn allow(&mut self, group: &Group, allowed: Vec<Allowed>) {
        let group = self.groups.entry(group.clone()).or_default();
        for Allowed { question, at, by } in allowed {
            if group.allowed.get(&question).is_none_or(|(last, _)| *last < at) {
                group.allowed.insert(question, (at, Some(by)));
            }
        }
    }

    /// How often the question of this name was asked since the last answer, and since any of these was allowed again.
    fn count(&self, group: &Group, name: u64, allowed: &[Digest], entries: &Entries) -> u32 {
        let known = self.groups.get(group).map(|group| &group.allowed);
        let since = allowed.iter().filter_map(|one| Some(known?.get(one)?.0)).max();
        let count =
            self.asked.of(name).filter(|slot| since.is_none_or(|since| entries[*slot].created() > since)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// What of these questions was asked as often as it may be, and how often that was at most.
    pub(super) fn over(
        &self,
        group: &Group,
        content: &Content,
        limit: u8,
        entries: &Entries,
    ) -> Option<(Vec<usize>, u32)> {
        let known = self.groups.get(group).filter(|known| !known.allowed.is_empty() || !known.blocked.is_empty());
        let (mut over, mut most) = (Vec::new(), 0);
        for (at, question) in content.questions.iter().enumerate() {
            let name = self.naming.question(group, content, question);
            let (count, blocked_before) = match known {
                None => (self.count(group, name, &[], entries), false),
                Some(known) => {
                    let alone = alone(question);
                    let blocked_before = known.blocked.values().any(|block| block.about.contains(&alone));
                    (self.count(group, name, &[subject(content, alone), alone], entries), blocked_before)
                }
            };
            if count >= u32::from(limit) || blocked_before {
                over.push(at);
            }
            most = most.max(count);
        }
        (!over.is_empty()).then_some((over, most))
    }

    /// The block that stands and is about these questions, in whatever order.
    pub(in crate::host::broker) fn standing(&self, group: &Group, content: &Content) -> Option<AskId> {
        let about = |held: &Vec<Digest>| {
            let held_for = |question| {
                let alone = alone(question);
                held.contains(&alone) || held.contains(&subject(content, alone))
            };
            held.len() == content.questions.len() && content.questions.iter().all(held_for)
        };
        let blocked = &self.groups.get(group)?.blocked;
        blocked.iter().find(|(_, block)| about(&block.about)).map(|(id, _)| *id)
    }

    /// Blocks of which no question is over the limit any more, and who allowed that. A block of the first version, which
    /// counted questions under every title and context, ends by Allow again alone.
    pub(super) fn ended(&self, group: &Group, limit: u8, entries: &Entries) -> Vec<(AskId, Option<Person>)> {
        let Some(counted) = self.groups.get(group) else { return Vec::new() };
        let ended = counted.blocked.iter().filter_map(|(id, block)| {
            let allowed = |one: &Digest| counted.allowed.get(one).filter(|(at, _)| *at >= block.since);
            let is_free =
                match &block.names {
                    None => block.about.iter().all(|one| allowed(one).is_some()),
                    Some(names) => block.about.iter().zip(names).all(|(one, name)| {
                        self.count(group, *name, std::slice::from_ref(one), entries) < u32::from(limit)
                    }),
                };
            let last = || block.about.iter().filter_map(allowed).max_by_key(|(at, _)| *at);
            is_free.then(|| (*id, last().and_then(|(_, by)| by.clone())))
        });
        ended.collect()
    }

    /// Every block that stands.
    pub(in crate::host::broker) fn blocked(&self) -> impl Iterator<Item = AskId> {
        self.groups.values().flat_map(|counted| counted.blocked.keys().copied())
    }

    /// The groups with a block.
    pub(in crate::host::broker) fn groups(&self) -> Vec<Group> {
        self.groups.iter().filter(|(_, counted)| !counted.blocked.is_empty()).map(|(group, _)| group.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::{Choice, Draft, Questions};

    fn question(change: impl FnOnce(&mut Draft)) -> Question {
        let choice = |label: &str| Choice { label: label.to_owned(), description: None, style: None };
        let mut draft = Draft { text: "q".to_owned(), choices: vec![choice("a"), choice("b")], ..Draft::default() };
        change(&mut draft);
        Questions::new("r", vec![draft]).unwrap()[0].clone()
    }

    #[test]
    fn a_question_is_the_same_if_a_person_sees_the_same() {
        let naming = Naming::default();
        let name = |question: &Question| naming.name(Seen(question));
        let plain = alone(&question(|_| {}));
        let renamed = question(|draft| draft.id = Some("other".to_owned()));
        assert_eq!(plain, alone(&renamed), "its id is not seen");
        assert_eq!(name(&question(|_| {})), name(&renamed));
        let others = [
            question(|draft| draft.text = "q?".to_owned()),
            question(|draft| draft.header = Some("h".to_owned())),
            question(|draft| draft.placeholder = Some("h".to_owned())),
            question(|draft| draft.choices[0].description = Some("d".to_owned())),
            question(|draft| draft.choices[0].description = Some(String::new())),
            question(|draft| draft.choices.reverse()),
            question(|draft| drop(draft.choices.pop())),
            question(|draft| draft.custom = Some(false)),
            question(|draft| draft.required = Some(false)),
            question(|draft| draft.multiple = true),
        ];
        let mut names: Vec<u64> = others.iter().chain([&renamed]).map(name).collect();
        let mut all: Vec<Digest> = others.iter().map(alone).collect();
        all.push(plain);
        let texts = [None, Some(String::new()), Some("t".to_owned())];
        let pairs = texts.iter().flat_map(|title| texts.iter().map(move |context| (title.clone(), context.clone())));
        all.extend(pairs.flat_map(|(title, context)| {
            let questions = Questions::new("r", vec![Draft { text: "q".to_owned(), ..Draft::default() }]).unwrap();
            let content = Content { title, context, questions };
            names.extend(naming.questions(&"g".parse().unwrap(), &content));
            subjects(&content).collect::<Vec<_>>()
        }));
        let count = all.len();
        assert_eq!(names.iter().collect::<std::collections::HashSet<_>>().len(), count);
        all.sort_by_key(ToString::to_string);
        all.dedup();
        assert_eq!(all.len(), count, "each of them differs from every other");
    }
}
