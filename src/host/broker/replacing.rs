//! Calls of an open question that are replaced: another call asks the same, and their processes are gone. Section 7 of the
//! specification. A process that was thought gone and gives a sign of life waits again.

use super::Broker;
use askd_core::{Ask, AskId, Event, Relation, Time, Waiter, WaiterEvent};
use std::time::Duration;

/// How long after the last call, or after a start, askd looks whether the processes of the earlier ones live: a lease of MCP,
/// the longest that one counts as alive without a sign, takes a quarter of an hour.
const JUDGED: Duration = Duration::from_secs(20 * 60);
/// The first and the longest pause between two looks.
const LOOK: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

impl Broker {
    /// Finds out, in time, which calls are of processes that are gone.
    pub(super) fn replace_dead(&self, id: AskId) {
        let Some(alone) = self.0.replacing.try_lock(id) else { return };
        let broker = self.clone();
        let begun = self.clock().now();
        self.0.ctx.spawn(async move {
            let mut pause = LOOK.0;
            while broker.look_at_earlier(id, begun).await && broker.0.ctx.pause(pause).await {
                pause = (pause * 2).min(LOOK.1);
            }
            drop(alone);
        });
    }

    /// The same of an ask that an earlier run has left, at `begun`, or that another daemon has stored: a call may have come
    /// there.
    pub(super) fn replace_dead_of(&self, ask: &Ask, begun: Option<Time>) {
        let begun = begun.unwrap_or(ask.created_at);
        if (self.holds(&ask.group) || self.does_folder_work(&ask.group))
            && judged(ask, begun, self.clock().now()).is_some()
        {
            self.replace_dead(ask.id);
        }
    }

    /// Looks once; `false` if there is nothing to find out any more.
    async fn look_at_earlier(&self, id: AskId, begun: Time) -> bool {
        let Ok(Some(ask)) = self.get(id).await else { return false };
        let Some(earlier) = judged(&ask, begun, self.clock().now()) else { return false };
        for waiter in earlier {
            let request_id = waiter.request_id.clone();
            match (self.is_dead(id, &request_id).await, waiter.replaced) {
                (Some(true), false) => self.apply_later(id, WaiterEvent::Died.of(request_id)),
                (Some(false), true) => self.apply_later(id, Event::Requested(Relation::Replays(request_id, None))),
                _ => {}
            }
        }
        true
    }
}

/// The calls that a later one may replace, if something can be known of their processes; `None`: there are none, or none any more.
fn judged(ask: &Ask, begun: Time, now: Time) -> Option<Vec<&Waiter>> {
    let newest = ask.waiters.last()?;
    if ask.outcome().is_some() || now > newest.asked_at.max(begun) + JUDGED {
        return None;
    }
    let known = |waiter: &&Waiter| {
        let process = waiter.process.as_ref().is_some_and(|process| newest.process.as_ref() != Some(process));
        !waiter.is_withdrawn() && (process || ask.rules.session.probe || !waiter.carrier.is_file())
    };
    let earlier: Vec<&Waiter> = ask.waiters[..ask.waiters.len() - 1].iter().filter(known).collect();
    Some(earlier).filter(|earlier| !earlier.is_empty())
}
