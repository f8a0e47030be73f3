//! Calls of an open question that are replaced: another call asks the same, and their processes are gone. Section 7 of the
//! specification.

use super::Broker;
use askd_core::{Ask, AskId, RequestId, Time, Waiter, WaiterEvent};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// How long after the last call askd looks whether the processes of the earlier ones live, and how often. A sign of life
/// takes 15 s to be missed, from the first look at it.
const JUDGED: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(5));

impl Broker {
    /// Finds out, in time, which calls are of processes that are gone. A restart begins anew with the next call.
    pub(super) fn replace_dead(&self, id: AskId) {
        let Some(alone) = self.0.replacing.try_lock(id) else { return };
        let broker = self.clone();
        self.0.ctx.spawn(async move {
            let mut living = HashSet::new();
            while let Ok(Some(ask)) = broker.get(id).await
                && let Some(judged) = judgeable(&ask, broker.clock().now())
            {
                let judged: Vec<_> = judged.into_iter().filter(|request_id| !living.contains(request_id)).collect();
                if judged.is_empty() {
                    break;
                }
                for request_id in judged {
                    match broker.is_dead(id, &request_id).await {
                        Some(true) => broker.apply_later(id, WaiterEvent::Died.of(request_id)),
                        Some(false) => drop(living.insert(request_id)),
                        None => {}
                    }
                }
                if !broker.0.ctx.pause(JUDGED.1).await {
                    break;
                }
            }
            drop(alone);
        });
    }
}

/// The calls that a later one could replace and of whose processes something can be known; `None`: it is over, or too late.
fn judgeable(ask: &Arc<Ask>, now: Time) -> Option<Vec<RequestId>> {
    let newest = ask.waiters.last()?;
    if ask.outcome().is_some() || now > newest.asked_at + JUDGED.0 {
        return None;
    }
    let known = |waiter: &&Waiter| {
        let process = waiter.process.as_ref().is_some_and(|process| newest.process.as_ref() != Some(process));
        waiter.waits() && (process || ask.rules.session.probe || !waiter.carrier.is_file())
    };
    let earlier = &ask.waiters[..ask.waiters.len() - 1];
    Some(earlier.iter().filter(known).map(|waiter| waiter.request_id.clone()).collect())
}
