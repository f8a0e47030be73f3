//! Questions that were asked too often: blocks, and Allow again. `index/attempts.rs` counts.

use super::index::held;
use super::submit::Stale;
use super::{Broker, Failure, Submitted};
use crate::host::settings::GroupSettings;
use crate::host::store::{Allowed, StoreError};
use crate::ipc::wire::Request;
use crate::sabotage::{crash_point, on};
use askd_core::{
    Accepted, Ask, AskId, Content, Effect, Event, Fact, FollowUpEvent, Group, Relation, Rules, Time, Waiter,
};

impl Broker {
    /// Settles a request at once whose questions were asked too often; `None` if it may be asked.
    pub(super) async fn block(
        &self,
        group: &Group,
        request: &Request,
        settings: &GroupSettings,
        (waiter, given): (&Waiter, i64),
    ) -> Option<Result<Submitted, Stale>> {
        let limit = settings.max_attempts;
        let (over, most) = self.index().over(group, &request.content, limit)?;
        let content = Content { questions: request.content.questions.only(&over)?, ..request.content.clone() };
        tracing::warn!(group = %group, request_id = %request.request_id, limit, "asked too often; no person is asked");
        let standing = self.index().attempts.standing(group, &content);
        if let Some(id) = standing {
            match self.apply(id, Event::Requested(Relation::JoinsBlocked(Box::new(waiter.clone())))).await {
                Ok(ask) if ask.waiter(&waiter.request_id).is_some() => return Some(Ok(Submitted::Joined(id))),
                Err(failure @ (Failure::NotStored | Failure::InDoubt)) => return Some(Ok(Submitted::failed(&failure))),
                // Allowed again in the meantime: look once more.
                _ => return self.index().over(group, &content, limit).map(|_| Ok(Submitted::NotStored)),
            }
        }
        let (rules, routes) = (rules_of(settings), self.0.channels.fix(&settings.routes));
        let make = |id, short_id, now| {
            let accepted = Accepted {
                id,
                short_id,
                group: group.clone(),
                content,
                rules,
                routes,
                key: None,
                session: request.session.clone(),
                waiter: waiter.clone(),
            };
            Ask::blocked(accepted, limit, most.saturating_add(1), now)
        };
        Some(self.store_new(make, given).await)
    }

    /// Ends the blocks that do not hold any more: a person answered or allowed it, or the attempts are forgotten.
    pub(super) fn end_blocks(&self, group: &Group) {
        // While asks are missing, too few attempts are counted.
        if !self.0.loading.has(group) {
            return;
        }
        let settings = self.settings();
        let Some(limit) = settings.group(group).map(|settings| settings.max_attempts) else { return };
        let ended = self.index().ended_blocks(group, limit);
        for (id, by) in ended {
            self.apply_later(id, Event::FollowUp(FollowUpEvent::Lifted { by }));
        }
    }

    /// The same for every group: after a start, and when the limits have changed.
    pub(super) fn end_all_blocks(&self) {
        let groups = self.index().attempts.groups();
        for group in groups {
            self.end_blocks(&group);
        }
    }

    /// Blocks that stand.
    pub fn blocked(&self) -> Vec<AskId> {
        self.index().attempts.blocked().collect()
    }

    /// Records that a person pressed Allow again, before anything else is stored; `true` if a person did. This call
    /// blocks on the disk.
    pub(super) fn allow(&self, ask: &Ask, effects: &[Effect], now: Time) -> Result<bool, StoreError> {
        let by = |effect| if let &Effect::Note(Fact::AllowedAgain { ref by }) = effect { Some(by) } else { None };
        let Some(by) = effects.iter().find_map(by) else { return Ok(false) };
        let allow = |question| Allowed { question, at: now, by: by.clone() };
        let allowed: Vec<Allowed> = held(ask).into_iter().map(allow).collect();
        if !on("allowlost") {
            self.0.store.allow(&ask.group, &allowed, now - ask.rules.keep)?;
        }
        self.index().attempts.allow(&ask.group, allowed);
        crash_point("allow.stored");
        Ok(true)
    }
}

/// The group's own rules, without nudges: for a card that no call waits for, so that no rules of a call hold for it.
pub(super) fn rules_of(settings: &GroupSettings) -> Rules {
    Rules {
        timeout: settings.timeout,
        render_timeout: settings.render_timeout,
        max_retries: settings.max_retries,
        keep: settings.keep_settled,
        remind_after: None,
        escalate_after: None,
        session: settings.session_rules(),
    }
}
