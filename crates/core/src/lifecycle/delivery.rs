//! An outcome on its way to one taker: a waiter's response, or the briefing for the agent's next start. Both live the
//! same life. The broker moves the files; this module does not know which files those are.

use super::{DeliveryEffect, DeliveryEvent};
use crate::Time;
use serde::{Deserialize, Serialize};

/// How far an outcome is on its way to its taker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Delivery {
    state: DeliveryState,
}

/// How a waiting call reaches askd, and its outcome the call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// Its response is a file in its group's folder.
    #[default]
    File,
    /// The call fetches its response, which is nowhere but in the record, and says when it has it.
    Http {
        /// Who has said so.
        taken_by: Option<String>,
    },
}

impl Carrier {
    /// Whether its response is a file.
    pub fn is_file(&self) -> bool {
        *self == Self::File
    }
}

/// The states of a [`Delivery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// There is nothing to tell this taker.
    #[default]
    Undecided,
    /// Owed: to be written and synced under a name of our own.
    Owed,
    /// Written and synced; only the rename is left. After a crash, a missing file means that it was published.
    Ready,
    /// It is there for the taker.
    Published {
        /// Since when. This tells it from what was published for the same taker before.
        at: Time,
    },
    /// To be put out of the taker's reach, by one rename.
    TakingBack,
    /// It was not taken, and cannot be any more.
    TakenBack {
        /// Since when.
        at: Time,
    },
    /// The taker has it.
    Taken,
}

use DeliveryState::{Owed, Published, Ready, Taken, TakenBack, TakingBack, Undecided};

impl From<DeliveryState> for Delivery {
    fn from(state: DeliveryState) -> Self {
        Self { state }
    }
}

impl Delivery {
    pub(super) const UNDECIDED: Self = Self { state: Undecided };

    /// How far it is.
    pub const fn state(self) -> DeliveryState {
        self.state
    }

    /// Since when it is there for the taker.
    pub const fn published_at(self) -> Option<Time> {
        if let Published { at } = self.state { Some(at) } else { None }
    }

    /// Whether it is there for the taker.
    pub const fn is_published(self) -> bool {
        matches!(self.state, Published { .. })
    }

    /// Whether the taker has it.
    pub fn is_taken(self) -> bool {
        self.state == Taken
    }

    /// Whether it was put out of the taker's reach.
    pub const fn is_taken_back(self) -> bool {
        matches!(self.state, TakenBack { .. })
    }

    /// Whether it was where the taker looks for it, once at least.
    pub(super) const fn has_been_published(self) -> bool {
        !matches!(self.state, Undecided | Owed | Ready)
    }

    /// Has it written, whatever it was before.
    pub(super) const fn owe(&mut self) -> DeliveryEffect {
        self.state = Owed;
        DeliveryEffect::Write
    }

    /// Has it put out of the taker's reach. Only what is published can be.
    pub(super) fn take_back(&mut self) -> Option<DeliveryEffect> {
        let since = self.published_at();
        since.map(|_| {
            self.state = TakingBack;
            DeliveryEffect::TakeBack { since }
        })
    }

    /// Has nothing to tell this taker any more; a file that lies there for it is put away.
    pub(super) const fn withdraw(&mut self) -> Option<DeliveryEffect> {
        let effect = match self.state {
            Owed | Ready | Published { .. } | TakingBack => {
                Some(DeliveryEffect::TakeBack { since: self.published_at() })
            }
            Undecided | TakenBack { .. } | Taken => None,
        };
        self.state = Undecided;
        effect
    }

    /// Keeps it for a call that is expected to ask the same; without that call it is owed again.
    pub(super) const fn set_aside(&mut self, at: Time) {
        self.state = TakenBack { at };
    }

    /// The taker has it, as the caller knows by other means than the file.
    pub(super) const fn take(&mut self) {
        self.state = Taken;
    }

    /// Follows `event`; `false` if that changes nothing. What is written is published next.
    pub(super) fn step(&mut self, event: DeliveryEvent, now: Time) -> bool {
        self.state = match (self.state, event) {
            (Owed, DeliveryEvent::Written) => Ready,
            (Ready, DeliveryEvent::Published) => Published { at: now },
            (Published { at }, DeliveryEvent::Taken { since }) if at == since => Taken,
            (Published { at }, DeliveryEvent::Lost { since }) if at == since => Owed,
            (TakingBack, DeliveryEvent::TakenBack { taken: true }) => Taken,
            (TakingBack, DeliveryEvent::TakenBack { taken: false }) => TakenBack { at: now },
            (Undecided | Owed | Ready | Published { .. } | TakingBack | TakenBack { .. } | Taken, _) => return false,
        };
        true
    }

    /// What is still to be done after a restart.
    pub(super) const fn resume(self) -> Option<DeliveryEffect> {
        match self.state {
            Owed => Some(DeliveryEffect::Write),
            Ready => Some(DeliveryEffect::Publish),
            TakingBack => Some(DeliveryEffect::TakeBack { since: None }),
            Undecided | Published { .. } | TakenBack { .. } | Taken => None,
        }
    }

    /// Follows a clock that was set.
    pub(super) fn move_by(&mut self, by: i64) {
        if let Published { at } | TakenBack { at } = &mut self.state {
            *at = at.moved(by);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event() -> impl Strategy<Value = DeliveryEvent> {
        prop_oneof![
            Just(DeliveryEvent::Written),
            Just(DeliveryEvent::Published),
            (0..40_i64).prop_map(|at| DeliveryEvent::Taken { since: Time::from_millis(at) }),
            (0..40_i64).prop_map(|at| DeliveryEvent::Lost { since: Time::from_millis(at) }),
            any::<bool>().prop_map(|taken| DeliveryEvent::TakenBack { taken }),
        ]
    }

    proptest! {
        /// Whatever events come, in any order: nothing is published that was not written, nothing is taken that
        /// was not published, and what was taken stays taken until it is owed anew.
        #[test]
        fn a_delivery_takes_no_step_twice(events in proptest::collection::vec(proptest::option::of(event()), 0..40)) {
            let mut delivery = Delivery::default();
            delivery.owe();
            for (now, event) in events.into_iter().enumerate() {
                let before = delivery;
                let now = Time::from_millis(i64::try_from(now).unwrap());
                let Some(event) = event else {
                    delivery.take_back();
                    continue;
                };
                if !delivery.step(event, now) {
                    prop_assert_eq!(delivery, before);
                    continue;
                }
                prop_assert!(!before.is_taken() && !before.is_taken_back(), "an end is an end");
                prop_assert_ne!(delivery, before);
                match delivery.state() {
                    Ready => prop_assert_eq!(before.state(), Owed),
                    Published { at } => prop_assert!(before.state() == Ready && at == now),
                    Taken => prop_assert!(before.has_been_published()),
                    TakenBack { .. } => prop_assert_eq!(before.state(), TakingBack),
                    Owed => {
                        let lost = matches!(event, DeliveryEvent::Lost { since } if before.published_at() == Some(since));
                        prop_assert!(lost);
                    }
                    Undecided | TakingBack => prop_assert!(false, "no event leads there"),
                }
            }
        }

        /// What a restart finds owed carries it to the taker, or out of the taker's reach.
        #[test]
        fn what_is_owed_after_a_restart_ends(events in proptest::collection::vec(event(), 0..10), back in any::<bool>()) {
            let now = Time::from_millis(50);
            let mut delivery = Delivery::default();
            delivery.owe();
            for event in events {
                delivery.step(event, now);
            }
            if back {
                delivery.take_back();
            }
            for _ in 0..3 {
                let event = match delivery.resume() {
                    Some(DeliveryEffect::Write) => DeliveryEvent::Written,
                    Some(DeliveryEffect::Publish) => DeliveryEvent::Published,
                    Some(DeliveryEffect::TakeBack { .. }) => DeliveryEvent::TakenBack { taken: false },
                    None => break,
                };
                prop_assert!(delivery.step(event, now));
            }
            prop_assert!(delivery.is_published() || delivery.is_taken() || delivery.is_taken_back());
        }
    }
}
