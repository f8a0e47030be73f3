//! What was under way when the daemon ended is looked for at the next start.
//!
//! After a loss of power a record may be older than what was done. Nothing is assumed then: a card that is not known to be
//! up is looked for before anything is posted, and an outcome that is not known to be taken is told once more.

use super::{AgentStart, Context, Delivery, DeliveryState, Effect, Fact, Widget, WidgetEffect, WidgetState};
use crate::AskState;

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

impl AskState {
    /// Whether something was being posted or looked for when the daemon ended, so that [`super::Event::Interrupted`] has to
    /// happen.
    pub fn was_interrupted(&self) -> bool {
        let under_way = |widget: &Widget| {
            matches!(widget.state, WidgetState::Sent { .. } | WidgetState::Unknown { looks: 0 | 2, .. })
        };
        self.widgets.iter().any(under_way)
    }

    pub(super) fn interrupted(&mut self, cx: &mut Context) -> bool {
        let was_interrupted = self.was_interrupted();
        for (route, widget) in self.widgets.iter_mut().enumerate() {
            let until = cx.now + widget.looks_for();
            match &mut widget.state {
                WidgetState::Sent { at, .. } => {
                    widget.state = WidgetState::Unknown { at: *at, looks: 0, look_at: until, interrupted: true };
                    cx.act(WidgetEffect::Look.on(route));
                }
                // The look that begins anew has its whole time, however long the daemon was away.
                WidgetState::Unknown { looks: 0 | 2, look_at, .. } => *look_at = until,
                WidgetState::Queued { .. }
                | WidgetState::Unknown { .. }
                | WidgetState::Up { .. }
                | WidgetState::Held { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed { .. } => {}
            }
        }
        was_interrupted
    }

    /// Posts again what the end of the daemon cut off: that does not count as a try.
    pub(super) fn post_again(&mut self, route: usize, cx: &mut Context) {
        let widget = &mut self.widgets[route];
        // What was cut off may come up after all. Whoever closes a card that has another number looks for such a one.
        if widget.route.capabilities.history {
            widget.attempt = widget.attempt.saturating_add(1);
            widget.one_by_one.first_attempt = widget.one_by_one.first_attempt.max(1).saturating_add(1);
        }
        if self.is_over() {
            return self.over(route, cx.now);
        }
        self.widgets[route].queue(route, cx.now, cx.now + self.rules.timeout, cx);
    }

    /// Whether a loss of power leaves anything in doubt, so that [`super::Event::PowerLost`] has to happen.
    pub fn is_changed_by_loss(&self) -> bool {
        self.clone().power_lost(&mut Context { now: self.created_at, effects: Vec::new() })
    }

    /// The computer lost its power since this was written. `false`: nothing was under way.
    pub(super) fn power_lost(&mut self, cx: &mut Context) -> bool {
        let mut changed = false;
        for route in 0..self.widgets.len() {
            let widget = &mut self.widgets[route];
            let at = match widget.state {
                WidgetState::Queued { .. } => cx.now,
                WidgetState::Sent { at, .. } | WidgetState::Unknown { at, .. } => at,
                WidgetState::Up { .. }
                | WidgetState::Held { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed { .. } => continue,
            };
            changed = true;
            if widget.route.capabilities.history {
                let look_at = cx.now + widget.looks_for();
                widget.state = WidgetState::Unknown { at, looks: 0, look_at, interrupted: true };
            } else {
                // Nobody can tell whether the person has it.
                self.lost(route, true, cx);
            }
        }
        let mut redone = false;
        for waiter in &mut self.waiters {
            redone |= waiter.response.redo();
        }
        self.change(|follow_up| {
            if follow_up.briefing.redo() {
                // Whatever a start was told may not have been stored.
                (redone, follow_up.start) = (true, AgentStart::NotTried);
            }
            follow_up.retold |= redone;
        });
        if changed || redone {
            // Whatever was being done then is not being done now.
            cx.effects = self.resume();
            cx.effects.retain(|effect| *effect != Effect::Note(Fact::Settled));
        }
        changed || redone
    }
}
