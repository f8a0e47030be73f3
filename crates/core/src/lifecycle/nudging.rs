//! An open ask that nobody answers: brought to mind, and shown on further routes. Section 9, "All", of the
//! specification.

use super::{Effect, Fact, Stage, WidgetEffect, WidgetState};
use crate::{Ask, Time};

/// How often an ask is brought to mind at most.
const REMINDERS: u8 = 3;

impl Ask {
    /// When the next reminder is due: after a while, then after twice and four times as long again.
    fn remind_at(&self) -> Option<Time> {
        let Stage::Open { shown_at, .. } = self.stage else { return None };
        let first = self.rules.remind_after.filter(|_| self.reminders < REMINDERS)?;
        Some(shown_at + first.saturating_mul((2_u32 << self.reminders) - 1))
    }

    /// When it is shown on the next route too.
    fn escalate_at(&self) -> Option<Time> {
        let Stage::Open { shown_at, .. } = self.stage else { return None };
        let first = self.rules.escalate_after.filter(|_| self.widgets.len() < self.rules.routes.len())?;
        Some(shown_at + first.saturating_mul(u32::from(self.escalations) + 1))
    }

    /// When one of them is due.
    pub(super) fn nudge_at(&self) -> Option<Time> {
        self.remind_at().into_iter().chain(self.escalate_at()).min()
    }

    /// Does what is due; `true` if something was. What fell due while the daemon did not run is made up for once.
    pub(super) fn nudge(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let reminders = self.reminders;
        while self.remind_at().is_some_and(|due| due <= now) {
            self.reminders += 1;
        }
        let reminded = self.reminders > reminders;
        if reminded {
            let posts = |route: usize| self.rules.routes[route].posts();
            let up =
                self.widgets.iter().enumerate().filter(|(_, widget)| matches!(widget.state, WidgetState::Up { .. }));
            let shown: Vec<usize> = up.map(|(route, _)| route).filter(|route| posts(*route)).collect();
            if !shown.is_empty() {
                effects.push(Effect::Note(Fact::Reminded));
            }
            effects.extend(shown.into_iter().map(|route| WidgetEffect::Remind.on(route)));
        }
        let escalated = self.escalate_at().is_some_and(|due| due <= now);
        if escalated {
            self.escalations = self.escalations.saturating_add(1);
            effects.push(Effect::Note(Fact::Escalated { route: self.widgets.len() }));
            self.show_next(now, effects);
        }
        reminded || escalated
    }
}
