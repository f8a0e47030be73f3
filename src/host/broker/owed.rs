//! What other daemons' steps ask this one for.

use super::errands::Errand;
use super::saves::BURST;
use super::{Broker, RETRY};
use crate::host::store::{LeftTo, Owed, Sharing, StoreError};
use crate::sabotage::{on, task_gate};
use askd_core::{Ask, AskId, Effect};
use std::time::Duration;

/// So much that others ask for at a time comes from a burst of promises.
const MANY: usize = 32;

/// What an ask needs done, whatever was begun. The audit log has its lines already.
pub(super) fn undone(ask: &Ask) -> Vec<Effect> {
    let mut effects = ask.resume();
    effects.retain(|effect| !matches!(effect, Effect::Note(_)));
    effects
}

impl Broker {
    /// What other daemons' steps ask this one for.
    pub(super) async fn owed(&self) -> Result<Vec<Owed>, StoreError> {
        self.in_store(Sharing::owed).await
    }

    /// Does that. `seen`: a look has read since what others have stored.
    pub(super) async fn pay(&self, owed: Vec<Owed>, seen: bool) -> Result<(), StoreError> {
        task_gate("owed").await;
        let burst = if owed.len() < MANY { 0 } else { BURST };
        self.0.beside.burst.lock().resize_with(burst, || self.0.saves.promises.begin());
        if owed.is_empty() || on("nohandover") {
            return Ok(());
        }
        // What is at hand may be from before the steps. One look reads all of them.
        let seen = seen || self.catch_up().await.is_ok();
        for Owed { number, ask, effects } in &owed {
            // It may be noted as owed for a while longer.
            let known = self.0.beside.paying.lock().insert(*number, (*ask, effects.clone()));
            if known.is_some_and(|(of, what)| of == *ask && what == *effects) {
                continue;
            }
            let (broker, id, effects) = (self.clone(), *ask, effects.clone());
            self.0.ctx.finish_blocking(move || broker.act_for_another(id, effects, seen, RETRY.0));
        }
        let numbers: Vec<i64> = owed.iter().map(|owed| owed.number).collect();
        let paid = numbers.clone();
        self.in_store(move |shared| shared.paid(&paid)).await?;
        self.0.beside.paying.lock().retain(|number, _| !numbers.contains(number));
        Ok(())
    }

    fn act_for_another(&self, id: AskId, effects: Vec<Effect>, seen: bool, mut pause: Duration) {
        let refreshed = if seen { Ok(()) } else { self.refresh(id) };
        let ask = refreshed
            .and_then(|()| self.load(id))
            .and_then(|ask| ask.map(|ask| self.hand_on(&ask, &effects).map(|()| ask)).transpose());
        let ask = match ask {
            Ok(Some(ask)) => ask,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(ask = %id, %error, "cannot read a question, or cannot hand its work to its host; retrying");
                // Another daemon has stored it: what the ask needs cannot be told from what is at hand.
                let broker = self.clone();
                self.0.ctx.finish(async move {
                    if broker.pause(&mut pause).await {
                        let ctx = broker.0.ctx.clone();
                        ctx.finish_blocking(move || broker.act_for_another(id, effects, false, pause));
                    }
                });
                return;
            }
        };
        let effects = if effects.is_empty() { undone(&ask) } else { effects };
        // A daemon of an earlier version leaves that to the holder.
        if effects.contains(&Effect::Retire) {
            self.retire_later(id);
        }
        let mut errands: Vec<Errand> = Vec::new();
        self.act_now(&ask, self.own_of(&ask, effects), &mut errands);
        self.hand_over(errands);
    }

    /// Leaves to the host of the ask's folder what concerns the folder, and to the leader what is the leader's: whoever asked for it did not
    /// know whose that is.
    fn hand_on(&self, ask: &Ask, effects: &[Effect]) -> Result<(), StoreError> {
        let mut left = LeftTo { host: self.of_another_host(ask, effects), ..LeftTo::default() };
        if self.is_of_leader(ask) && !self.leads() {
            left.leader = effects.iter().filter(|effect| !left.host.contains(effect)).cloned().collect();
        }
        match self.0.store.shared() {
            Some(shared) if !left.host.is_empty() || !left.leader.is_empty() => shared.hand_on(ask, &left),
            Some(_) | None => Ok(()),
        }
    }
}
