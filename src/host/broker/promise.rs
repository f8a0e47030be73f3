//! Which steps make a promise. A promise is on stable storage before anything says so; every other step is saved soon or
//! later: what it says is found out again, or done again, after a loss of power. The table stands in `ARCHITECTURE.md`.

use crate::host::store::Save;
use askd_core::{
    DeliveryEvent, Effect, Event, Fact, FollowUpEffect, FollowUpEvent, Relation, Taker, WaiterEvent, WidgetEvent,
};

/// Whether the event itself is something that askd answers for: a request that is taken in, a word of a person, a change
/// of what is allowed.
pub(super) const fn is_made_by(event: &Event) -> bool {
    match event {
        Event::Replied { .. } | Event::Allow { .. } | Event::Cancel(_) => true,
        Event::Requested(relation) => match relation {
            Relation::Joins(_)
            | Relation::JoinsBlocked(_)
            | Relation::JoinsSettled(_)
            | Relation::Shares(_)
            | Relation::Replays(..) => true,
            Relation::Reclaims(_) | Relation::Supersedes => false,
        },
        Event::Waiter { event, .. } => match event {
            WaiterEvent::Withdrawn => true,
            WaiterEvent::Identified { .. }
            | WaiterEvent::Died
            | WaiterEvent::Resumed
            | WaiterEvent::Collected { .. } => false,
        },
        Event::FollowUp(event) => match event {
            FollowUpEvent::Lifted { .. } => true,
            FollowUpEvent::Briefed { .. }
            | FollowUpEvent::Tried { .. }
            | FollowUpEvent::Stopped(_)
            | FollowUpEvent::HostAway(_) => false,
        },
        Event::Tick
        | Event::Interrupted
        | Event::PowerLost
        | Event::Crowded
        | Event::Viewed
        | Event::Typing
        | Event::Widget { .. }
        | Event::Delivery { .. } => false,
    }
}

/// Whether a person has said something. Whoever is told that it is not stored can say it again.
pub(super) const fn is_a_persons_word(event: &Event) -> bool {
    matches!(event, Event::Replied { .. } | Event::Allow { .. } | Event::Cancel(_))
}

/// Whether a person or an agent is told what came of the event.
pub(super) const fn has_a_sender(event: &Event) -> bool {
    match event {
        Event::Replied { .. }
        | Event::Allow { .. }
        | Event::Cancel(_)
        | Event::Requested(_)
        | Event::Waiter { .. }
        | Event::Viewed
        | Event::Typing => true,
        Event::Tick
        | Event::Interrupted
        | Event::PowerLost
        | Event::Crowded
        | Event::FollowUp(_)
        | Event::Widget { .. }
        | Event::Delivery { .. } => false,
    }
}

/// When the step that an event leads to has to be on stable storage, as far as the event says.
pub(super) fn save_of(event: &Event) -> Save {
    match event {
        // A missing `.new-` file was published, a missing response was taken, and a card is updated to the same face.
        Event::Delivery { to: Taker::Waiter(_), event: DeliveryEvent::Published | DeliveryEvent::Taken { .. } }
        | Event::Widget { event: WidgetEvent::Updated(_), .. } => Save::Later,
        event if is_made_by(event) => Save::Now,
        _ => Save::Soon,
    }
}

/// When a step with these effects has to be on stable storage, if its event asks for `asked`. An outcome is a promise however
/// it came about, and what was put out of its taker's reach is deleted only after the record that replaces it is synced.
/// What is done next is done from a record that a `kill -9` keeps.
pub(super) fn save(asked: Save, effects: &[Effect]) -> Save {
    let outcome = |effect: &Effect| {
        matches!(
            effect,
            Effect::Note(Fact::Settled | Fact::LateAnswer | Fact::AllowedAgain { .. })
                | Effect::FollowUp(FollowUpEffect::Tidy)
        )
    };
    let is_the_end = |effect: &Effect| matches!(effect, Effect::Note(_) | Effect::Retire);
    match asked {
        _ if effects.iter().any(outcome) => Save::Now,
        Save::Later if !effects.iter().all(is_the_end) => Save::Soon,
        asked => asked,
    }
}
