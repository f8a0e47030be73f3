//! After a loss of power a record may be older than what was done. Nothing is assumed then: a card that is not known to be
//! up is looked for before anything is posted, and an outcome that is not known to be taken is told once more.

use super::showing::LOOK_FOR;
use super::{Delivery, DeliveryState, Effect, Fact, WidgetState};
use crate::{Ask, Time};

impl Delivery {
    /// Has it told once more, unless it certainly was not told or certainly was taken; `true` if so.
    fn redo(&mut self) -> bool {
        let again = match self.state() {
            DeliveryState::Owed | DeliveryState::Ready | DeliveryState::Published { .. } => true,
            // Putting it out of reach is synced before it is recorded.
            DeliveryState::Undecided
            | DeliveryState::TakingBack
            | DeliveryState::TakenBack { .. }
            | DeliveryState::Taken => false,
        };
        if again {
            self.owe();
        }
        again
    }
}

impl Ask {
    /// Whether a loss of power leaves anything in doubt, so that [`super::Event::PowerLost`] has to happen.
    pub fn is_changed_by_loss(&self) -> bool {
        self.clone().power_lost(self.created_at, &mut Vec::new())
    }

    /// The computer lost its power since this was written. `false`: nothing was under way.
    pub(super) fn power_lost(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let mut changed = false;
        for route in 0..self.widgets.len() {
            let at = match self.widgets[route].state {
                WidgetState::Queued { .. } => now,
                WidgetState::Sent { at, .. } | WidgetState::Unknown { at, .. } => at,
                WidgetState::Up { .. }
                | WidgetState::Held { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed => {
                    continue;
                }
            };
            changed = true;
            if self.rules.routes[route].capabilities.history {
                let look_at = now + LOOK_FOR;
                self.widgets[route].state = WidgetState::Unknown { at, looks: 0, look_at, interrupted: true };
            } else {
                // Nobody can tell whether the person has it.
                self.lost(route, true, now, effects);
            }
        }
        let mut redone = false;
        for waiter in &mut self.waiters {
            redone |= waiter.response.redo();
        }
        self.change(|follow_up| {
            redone |= follow_up.briefing.redo();
            follow_up.retold |= redone;
        });
        if changed || redone {
            // Whatever was being done then is not being done now.
            *effects = self.resume();
            effects.retain(|effect| *effect != Effect::Note(Fact::Settled));
        }
        changed || redone
    }
}
