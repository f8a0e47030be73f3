//! An open ask that nobody answers: brought to mind, and shown on further routes. Section 9, "All", of the
//! specification.

use super::{Context, Fact, Stage, Widget, WidgetEffect, WidgetState};
use crate::{AskState, Time};

/// How often an ask is brought to mind at most.
const REMINDERS: u8 = 3;

impl AskState {
    /// When the next reminder is due: after a while, then after twice and four times as long again.
    fn remind_at(&self) -> Option<Time> {
        let Stage::Open { shown_at, reminders, .. } = self.stage else { return None };
        let first = self.rules.remind_after.filter(|_| reminders < REMINDERS)?;
        Some(shown_at + first.saturating_mul((2_u32 << reminders) - 1))
    }

    /// When it is shown on the next route too.
    fn escalate_at(&self) -> Option<Time> {
        let Stage::Open { shown_at, escalations, .. } = self.stage else { return None };
        let first = self.rules.escalate_after.filter(|_| !self.next_routes.is_empty())?;
        Some(shown_at + first.saturating_mul(u32::from(escalations) + 1))
    }

    /// When one of them is due.
    pub(super) fn nudge_at(&self) -> Option<Time> {
        self.remind_at().into_iter().chain(self.escalate_at()).min()
    }

    /// Does what is due; `true` if something was. What fell due while the daemon did not run is made up for once.
    pub(super) fn nudge(&mut self, cx: &mut Context) -> bool {
        let (mut reminded, mut escalated) = (false, false);
        while self.remind_at().is_some_and(|due| due <= cx.now) {
            self.count(|reminders, _| *reminders += 1);
            reminded = true;
        }
        if reminded {
            let card = |widget: &Widget| widget.route.posts() && matches!(widget.state, WidgetState::Up { .. });
            let shown = (0..self.widgets.len()).filter(|route| card(&self.widgets[*route]));
            cx.effects.extend(shown.map(|route| WidgetEffect::Remind.on(route)));
        }
        if self.escalate_at().is_some_and(|due| due <= cx.now) {
            self.count(|_, escalations| *escalations = escalations.saturating_add(1));
            cx.note(Fact::Escalated { route: self.widgets.len() });
            escalated = self.show_next(cx);
        }
        reminded || escalated
    }

    /// What came of a reminder, for the audit log; `false` if nothing is noted of the ask any more.
    pub(super) fn was_reminded(&self, route: usize, sent: bool, cx: &mut Context) -> bool {
        let noted = self.outcome().is_none() && route < self.widgets.len();
        if noted {
            cx.note(if sent { Fact::Reminded { route } } else { Fact::NotReminded { route } });
        }
        noted
    }

    fn count(&mut self, count: impl FnOnce(&mut u8, &mut u8)) {
        if let Stage::Open { reminders, escalations, .. } = &mut self.stage {
            count(reminders, escalations);
        }
    }
}
