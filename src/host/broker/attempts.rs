//! How often each group asked each question without an answer, and which blocks stand. Section 8, "Attempts",
//! of the specification.
//!
//! Counted from the kept asks and built anew at every start, in any order. Only the moments of Allow again
//! are stored (`store/files/groups.rs`). This module says what is over the limit; the core decides what follows.

use super::{Broker, Inner, Submitted};
use crate::host::settings::GroupSettings;
use crate::host::store::{Allowed, StoreError};
use crate::ipc::wire::{Request, digest};
use crate::sabotage::{crash_point, on};
use askd_core::{
    Accepted, Ask, AskId, Content, Digest, Effect, Event, Fact, FollowUpEvent, Group, Outcome, Person, Question,
    Relation, Rules, Stage, Step, Time, Waiter,
};
use std::collections::{BTreeMap, HashMap};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Attempts {
    groups: HashMap<Group, Counted>,
}

/// Of one group.
#[derive(Debug, Default)]
struct Counted {
    /// By [`subject`], and by [`alone`] for the blocks of before.
    questions: HashMap<Digest, Asked>,
    /// When Allow again was pressed. Earlier versions recorded the question [`alone`].
    allowed: HashMap<Digest, Time>,
    /// Blocks that stand, by the ask and the questions it is about.
    blocked: BTreeMap<AskId, Vec<Digest>>,
}

/// Of one question.
#[derive(Debug, Default)]
struct Asked {
    /// Asks that count, and when they were asked.
    asks: BTreeMap<AskId, Time>,
    /// The last answer or the last Allow again, and who pressed that.
    since: Option<(Time, Option<Person>)>,
}

impl Asked {
    /// How often it was asked since the last answer or Allow again, and since `allowed`.
    fn count(&self, allowed: Option<Time>) -> u32 {
        let since = self.since.as_ref().map(|(at, _)| *at).max(allowed);
        let count = self.asks.values().filter(|asked| since.is_none_or(|since| **asked > since)).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    fn starts_anew(&mut self, at: Time, by: Option<Person>) {
        if self.since.as_ref().is_none_or(|(since, _)| *since <= at) {
            self.since = Some((at, by));
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

/// All that an ask counts for: its subjects, and each question alone.
fn counted_for(content: &Content) -> impl Iterator<Item = Digest> {
    content.questions.iter().map(alone).flat_map(|alone| [subject(content, alone), alone])
}

/// The subjects that a block of this ask, or Allow again on it, holds for.
fn held(ask: &Ask) -> Vec<Digest> {
    match &ask.block {
        Some(block) if block.any_context => ask.content.questions.iter().map(alone).collect(),
        _ => subjects(&ask.content).collect(),
    }
}

/// In which way an ask counts.
fn counts(ask: &Ask) -> bool {
    matches!(ask.outcome(), None | Some(Outcome::TimedOut | Outcome::Dismissed { .. }))
}

impl Attempts {
    /// Takes in what an ask has become.
    pub(super) fn note(&mut self, ask: &Ask) {
        let counted = self.groups.entry(ask.group.clone()).or_default();
        let answered = match &ask.stage {
            Stage::Settled { outcome: Outcome::Answered { .. }, at, .. } => Some(*at),
            _ => ask.late_outcome().map(|(_, at)| at),
        };
        for question in counted_for(&ask.content) {
            if counts(ask) {
                counted.questions.entry(question).or_default().asks.insert(ask.id, ask.created_at);
            } else if let Some(asked) = counted.questions.get_mut(&question) {
                asked.asks.remove(&ask.id);
            }
            if let Some(at) = answered {
                counted.questions.entry(question).or_default().starts_anew(at, None);
            }
        }
        if ask.is_blocked() {
            counted.blocked.insert(ask.id, held(ask));
        } else {
            counted.blocked.remove(&ask.id);
        }
    }

    /// Drops an ask.
    pub(super) fn remove(&mut self, ask: &Ask) {
        let Some(counted) = self.groups.get_mut(&ask.group) else { return };
        counted.blocked.remove(&ask.id);
        for question in counted_for(&ask.content) {
            let Some(asked) = counted.questions.get_mut(&question) else { continue };
            asked.asks.remove(&ask.id);
            if asked.asks.is_empty() {
                counted.questions.remove(&question);
            }
        }
    }

    /// A question may be asked again.
    fn allow(&mut self, group: &Group, allowed: Allowed) {
        let counted = self.groups.entry(group.clone()).or_default();
        let last = counted.allowed.entry(allowed.question).or_insert(allowed.at);
        *last = allowed.at.max(*last);
        counted.questions.entry(allowed.question).or_default().starts_anew(allowed.at, Some(allowed.by));
    }

    /// Takes in what was kept of a group.
    pub(super) fn load(&mut self, group: &Group, allowed: Vec<Allowed>) {
        for allowed in allowed {
            self.allow(group, allowed);
        }
    }

    /// What of these questions was asked as often as it may be, and how often that was at most.
    fn over(&self, group: &Group, content: &Content, limit: u8) -> Option<(Vec<usize>, u32)> {
        let counted = self.groups.get(group)?;
        let (mut over, mut most) = (Vec::new(), 0);
        for (at, question) in content.questions.iter().enumerate() {
            let alone = alone(question);
            let subject = subject(content, alone);
            let count =
                counted.questions.get(&subject).map_or(0, |asked| asked.count(counted.allowed.get(&alone).copied()));
            let blocked_before = counted.blocked.values().any(|about| about.contains(&alone));
            if count >= u32::from(limit) || blocked_before {
                over.push(at);
            }
            most = most.max(count);
        }
        (!over.is_empty()).then_some((over, most))
    }

    /// The block that stands and is about these questions, in whatever order.
    fn standing(&self, group: &Group, content: &Content) -> Option<AskId> {
        let about = |held: &Vec<Digest>| {
            let held_for = |question| {
                let alone = alone(question);
                held.contains(&alone) || held.contains(&subject(content, alone))
            };
            held.len() == content.questions.len() && content.questions.iter().all(held_for)
        };
        let blocked = &self.groups.get(group)?.blocked;
        blocked.iter().find(|(_, held)| about(held)).map(|(id, _)| *id)
    }

    /// Blocks of which no question is over the limit any more, and who allowed that.
    fn ended(&self, group: &Group, limit: u8) -> Vec<(AskId, Option<Person>)> {
        let Some(counted) = self.groups.get(group) else { return Vec::new() };
        let count = |one: &Digest| counted.questions.get(one).map_or(0, |asked| asked.count(None));
        let free = |about: &Vec<Digest>| about.iter().all(|one| count(one) < u32::from(limit));
        let by = |about: &Vec<Digest>| {
            let asked = about.iter().filter_map(|one| counted.questions.get(one)?.since.clone());
            asked.max_by_key(|(at, _)| *at).and_then(|(_, by)| by)
        };
        counted.blocked.iter().filter(|(_, about)| free(about)).map(|(id, about)| (*id, by(about))).collect()
    }

    /// Every block that stands.
    pub(super) fn blocked(&self) -> impl Iterator<Item = AskId> {
        self.groups.values().flat_map(|counted| counted.blocked.keys().copied())
    }

    fn groups(&self) -> Vec<Group> {
        self.groups.keys().cloned().collect()
    }
}

impl Broker {
    /// Settles a request at once whose questions were asked too often; `None` if it may be asked.
    pub(super) async fn block(
        &self,
        group: &Group,
        request: &Request,
        settings: &GroupSettings,
        waiter: &Waiter,
    ) -> Option<Submitted> {
        let limit = settings.max_attempts;
        let (over, most) = self.index().attempts().over(group, &request.content, limit)?;
        let content = Content { questions: request.content.questions.only(&over)?, ..request.content.clone() };
        tracing::warn!(group = %group, request_id = %request.request_id, limit, "asked too often; no person is asked");
        let standing = self.index().attempts().standing(group, &content);
        if let Some(id) = standing {
            match self.apply(id, Event::Requested(Relation::JoinsBlocked(Box::new(waiter.clone())))).await {
                Ok(ask) if ask.waiter(&waiter.request_id).is_some() => return Some(Submitted::Joined(id)),
                Err(super::Failure::NotStored) => return Some(Submitted::NotStored),
                // Allowed again in the meantime: look once more.
                _ => return self.index().attempts().over(group, &content, limit).map(|_| Submitted::NotStored),
            }
        }
        let rules = rules_of(settings, self.0.channels.fix(&settings.routes));
        let make = |id, short_id, now| {
            let accepted = Accepted {
                id,
                short_id,
                group: group.clone(),
                content,
                rules,
                key: None,
                session: request.session.clone(),
                waiter: waiter.clone(),
            };
            Ask::block(accepted, limit, most.saturating_add(1), now)
        };
        Some(Submitted::first(self.store_new(make).await))
    }

    /// Ends the blocks that do not hold any more: a person answered or allowed it, or the attempts are forgotten.
    pub(super) fn end_blocks(&self, group: &Group) {
        let settings = self.settings();
        let Some(limit) = settings.group(group).map(|settings| settings.max_attempts) else { return };
        let ended = self.index().attempts().ended(group, limit);
        for (id, by) in ended {
            self.apply_later(id, Event::FollowUp(FollowUpEvent::Lifted { by }));
        }
    }

    /// The same for every group: after a start, and when the limits have changed.
    pub(super) fn end_all_blocks(&self) {
        let groups = self.index().attempts().groups();
        for group in groups {
            self.end_blocks(&group);
        }
    }

    /// Blocks that stand.
    pub fn blocked(&self) -> Vec<AskId> {
        self.index().attempts().blocked().collect()
    }
}

/// The group's own rules: no call waits for the card, so no rules of a call hold for it.
fn rules_of(settings: &GroupSettings, routes: Vec<askd_core::Route>) -> Rules {
    Rules {
        timeout: settings.timeout,
        render_timeout: settings.render_timeout,
        max_retries: settings.max_retries,
        keep: settings.keep_settled,
        remind_after: None,
        escalate_after: None,
        session: settings.session_rules(),
        routes,
    }
}

impl Inner {
    /// Records that a person pressed Allow again, before anything else is stored; `true` if a person did. This call
    /// blocks on the disk.
    pub(super) fn allow(&self, step: &Step, now: Time) -> Result<bool, StoreError> {
        let by = |effect| if let &Effect::Note(Fact::AllowedAgain { ref by }) = effect { Some(by) } else { None };
        let Some(by) = step.effects.iter().find_map(by) else { return Ok(false) };
        let ask = &step.ask;
        let allow = |question| Allowed { question, at: now, by: by.clone() };
        let allowed: Vec<Allowed> = held(ask).into_iter().map(allow).collect();
        if !on("allowlost") {
            self.store.allow(&ask.group, &allowed, now - ask.rules.keep)?;
        }
        self.index().attempts_mut().load(&ask.group, allowed);
        crash_point("allow.stored");
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use askd_core::{Choice, Draft, Questions};

    fn question(change: impl FnOnce(&mut Draft)) -> Question {
        let choice = |label: &str| Choice { label: label.to_owned(), description: None };
        let mut draft = Draft { text: "q".to_owned(), choices: vec![choice("a"), choice("b")], ..Draft::default() };
        change(&mut draft);
        Questions::new("r", vec![draft]).unwrap()[0].clone()
    }

    #[test]
    fn a_question_is_the_same_if_a_person_sees_the_same() {
        let plain = alone(&question(|_| {}));
        assert_eq!(plain, alone(&question(|draft| draft.id = Some("other".to_owned()))), "its id is not seen");
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
        let mut all: Vec<Digest> = others.iter().map(alone).collect();
        all.push(plain);
        let texts = [None, Some(String::new()), Some("t".to_owned())];
        let pairs = texts.iter().flat_map(|title| texts.iter().map(move |context| (title.clone(), context.clone())));
        all.extend(pairs.flat_map(|(title, context)| {
            let questions = Questions::new("r", vec![Draft { text: "q".to_owned(), ..Draft::default() }]).unwrap();
            subjects(&Content { title, context, questions }).collect::<Vec<_>>()
        }));
        let count = all.len();
        all.sort_by_key(ToString::to_string);
        all.dedup();
        assert_eq!(all.len(), count, "each of them differs from every other");
    }
}
