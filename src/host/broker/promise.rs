//! Which steps make a promise. A promise is on stable storage before anything says so; every other step is saved soon:
//! what it says is found out again, or done again, after a loss of power. The table stands in `ARCHITECTURE.md`.

use crate::host::store::Save;
use askd_core::{Effect, Event, Fact, FollowUpEffect, FollowUpEvent, Relation, Step, WaiterEvent};

/// Whether the event itself is something that askd answers for: a request that is taken in, a word of a person, a change
/// of what is allowed.
pub(super) const fn is_made_by(event: &Event) -> bool {
    match event {
        Event::Replied { .. } | Event::Allow { .. } | Event::Cancel => true,
        Event::Requested(relation) => match relation {
            Relation::Joins(_) | Relation::JoinsBlocked(_) | Relation::JoinsSettled(_) | Relation::Replays(_) => true,
            Relation::Reclaims(_) | Relation::Supersedes => false,
        },
        Event::Waiter { event, .. } => match event {
            WaiterEvent::Withdrawn => true,
            WaiterEvent::Identified { .. } | WaiterEvent::Died => false,
        },
        Event::FollowUp(event) => match event {
            FollowUpEvent::Lifted { .. } => true,
            FollowUpEvent::Tried(_) | FollowUpEvent::Stopped => false,
        },
        Event::Tick
        | Event::Interrupted
        | Event::PowerLost
        | Event::Viewed
        | Event::Widget { .. }
        | Event::Delivery { .. } => false,
    }
}

/// When a step has to be on stable storage. An outcome is a promise however it came about, and what was put out of its
/// taker's reach is deleted only after the record that replaces it is synced.
pub(super) fn save(promised: bool, step: &Step) -> Save {
    let outcome = |effect: &Effect| {
        matches!(
            effect,
            Effect::Note(Fact::Settled | Fact::LateAnswer | Fact::AllowedAgain { .. })
                | Effect::FollowUp(FollowUpEffect::Tidy)
        )
    };
    if promised || step.effects.iter().any(outcome) { Save::Now } else { Save::Soon }
}
