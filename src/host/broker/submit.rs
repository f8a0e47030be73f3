//! From a request to an ask: a new one, one more waiter of an open one, or one that is known already.

use super::admission::{Admitted, waiter};
use super::{Broker, Failure};
use crate::clock::Reading;
use crate::host::delivery::Lies;
use crate::host::store::StoreError;
use crate::ipc::wire::Request;
use crate::random;
use crate::sabotage::panic_point;
use askd_core::{
    Accepted, Ask, AskId, DeliveryState, Effect, Event, Group, MAX_WAITERS, Rejection, Relation, RequestId, ShortId,
    Step, Time, WaiterEvent, WidgetEffect, WidgetEvent,
};
use std::sync::Arc;

/// How many times a request is judged anew because other daemons give its group questions.
const RIVALS: u32 = 50;
/// How long the code of an ask is that is made before all stored asks are known.
const UNCOMMON: usize = 6;

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Submitted {
    /// A new ask, stored.
    New(AskId),
    /// One more waiter of an open ask, stored.
    Joined(AskId),
    /// The same request as before; its response was written again if it had been taken.
    Known(AskId),
    /// The request id stands for something else already: askd answers nothing.
    OtherContent,
    /// askd cannot ask it, and has to tell the agent.
    Rejected(Rejection),
    /// It could not be stored: try again later.
    NotStored,
    /// It may have been stored, or not: only the same request again finds that out without asking twice.
    InDoubt,
    /// What it asks was asked before, and it is not clear yet who gets the outcome: try again soon.
    NotYet,
}

impl Submitted {
    /// What came of storing a new ask.
    fn first(stored: Result<Result<Arc<Ask>, Failure>, Stale>) -> Result<Self, Stale> {
        stored.map(|stored| stored.map_or_else(|failure| Self::failed(&failure), |ask| Self::New(ask.id)))
    }

    /// What is known of a request whose save failed.
    pub(super) fn failed(failure: &Failure) -> Self {
        match failure {
            Failure::InDoubt => Self::InDoubt,
            Failure::Broken => Self::Rejected(Rejection::SetAside),
            Failure::Unknown | Failure::Refused(..) | Failure::NotStored => Self::NotStored,
        }
    }
}

/// Another daemon gave the group a question first.
#[derive(Debug)]
pub(super) struct Stale;

impl Broker {
    /// Takes a request in. When it returns, what it says is on stable storage. A caller that goes away cuts nothing off: the
    /// same call again finds what this one has asked.
    pub async fn submit(&self, group: &Group, request: Request) -> Submitted {
        let (broker, of, request_id) = (self.clone(), group.clone(), request.request_id.clone());
        let taken_in = self.0.ctx.finish(async move { broker.take_in_request(&of, request).await });
        let submitted = taken_in.await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(_reported) => Submitted::Rejected(Rejection::SetAside),
            Err(_cut_off) => Submitted::InDoubt,
        });
        self.unless_asked(submitted, group, &request_id)
    }

    /// A request on which askd panicked may be a question by then: the same request again finds that out.
    fn unless_asked(&self, submitted: Submitted, group: &Group, request_id: &RequestId) -> Submitted {
        match submitted {
            Submitted::Rejected(Rejection::SetAside) if self.of_request(group, request_id).is_some() => {
                Submitted::InDoubt
            }
            submitted => submitted,
        }
    }

    async fn take_in_request(&self, group: &Group, request: Request) -> Submitted {
        let Some(shared) = self.0.store.shared() else {
            // Of two calls that ask the same at the same moment, the second one finds the question of the first.
            let _alone = self.0.asking.alone(group, &request).await;
            return self.decide(group, request, 0).await.unwrap_or(Submitted::NotStored);
        };
        if request.carrier.is_file() {
            match self.pin_here(group).await {
                Ok(None) => {}
                Ok(Some(host)) => {
                    return Submitted::Rejected(Rejection::ServedElsewhere { group: group.folder().to_owned(), host });
                }
                Err(error) => {
                    tracing::error!(group = %group, %error, "cannot find out which host serves a group; a request has to come again");
                    return Submitted::NotStored;
                }
            }
        }
        if let Err(error) = self.hold_first(group).await {
            tracing::error!(group = %group, %error, "cannot find out who holds a group; a request has to come again");
            return Submitted::NotStored;
        }
        let mut asked = self.0.beside.clock.monotonic();
        let _alone = self.0.beside.asking.lock(group.clone()).await;
        for _ in 0..RIVALS {
            if let Err(error) = self.catch_up_since(asked).await {
                tracing::error!(%error, "cannot read what other daemons have stored; a request has to come again");
                return Submitted::NotStored;
            }
            let given = shared.given(group);
            if let Ok(submitted) = self.decide(group, request.clone(), given).await {
                return submitted;
            }
            // Another daemon has given the group a question between the judgement and the save.
            asked = self.0.beside.clock.monotonic();
        }
        Submitted::NotStored
    }

    /// Decides on a request by what is known, and stores what comes of it.
    async fn decide(&self, group: &Group, request: Request, given: i64) -> Result<Submitted, Stale> {
        panic_point("decide", request.content.title.as_deref());
        let known = self.index().by_request(group, &request.request_id);
        if let Some(id) = known
            && let Some(submitted) = self.known(id, &request).await
        {
            return Ok(submitted);
        }
        if let Some(submitted) = self.share(group, &request).await {
            return Ok(submitted);
        }
        let joined = request.key.and_then(|key| self.index().by_key(group, key));
        if let Some(id) = joined
            && let Some(submitted) = self.join(id, &request).await
        {
            return Ok(submitted);
        }
        let kept = request.key.and_then(|key| self.index().kept_by_key(group, key));
        // What could not be joined may have just been settled: the index may not know yet that it is kept.
        for id in joined.into_iter().chain(kept) {
            if let Some(submitted) = self.give_kept(id, &request).await {
                return Ok(submitted);
            }
        }
        if let Some(blocked) = self.blocks(group, &request, given).await {
            return blocked;
        }
        match self.admit(group, &request) {
            Ok(rules) => self.create(group, request, rules, given).await,
            Err(rejection) => Ok(Submitted::Rejected(rejection)),
        }
    }

    /// Takes in a request that asks something new, as far as memory knows; others are given back. Blocks on the disk.
    pub fn submit_at_once(&self, group: &Group, request: Box<Request>) -> Result<Submitted, Box<Request>> {
        if self.is_shared() {
            return Err(request);
        }
        let Some(_alone) = self.0.asking.try_alone(group, &request) else { return Err(request) };
        let (settings, index) = (self.settings(), self.index());
        let limit = settings.group(group).map_or(0, |settings| settings.max_attempts);
        let is_new = index.by_request(group, &request.request_id).is_none()
            && request
                .key
                .is_none_or(|key| index.by_key(group, key).is_none() && index.kept_by_key(group, key).is_none())
            && index.over(group, &request.content, limit).is_none()
            && !self.waits_for_outcome(group, &request.request_id);
        drop(index);
        let admitted = if is_new { self.admit(group, &request) } else { return Err(request) };
        let Ok(admitted) = admitted else { return Err(request) };
        let request_id = request.request_id.clone();
        let step =
            self.make_known(|id, short_id, now| Ask::accept(accepted(group, *request, admitted, id, short_id), now));
        let submitted = Submitted::first(self.accept_here(step)).unwrap_or(Submitted::NotStored);
        Ok(self.unless_asked(submitted, group, &request_id))
    }

    /// A request id that was seen before.
    async fn known(&self, id: AskId, request: &Request) -> Option<Submitted> {
        if self.is_unfinished(id) {
            return Some(Submitted::InDoubt);
        }
        let ask = match self.get(id).await {
            Ok(ask) => ask?,
            Err(error) => return Some(Self::unreadable(id, &error)),
        };
        let waiter = ask.waiter(&request.request_id)?;
        // Its outcome goes the way of the first one: who made the same request by the other way would wait for nothing.
        let same_way = request.carrier.is_file() == waiter.carrier.is_file();
        if !same_way || !request.digests.contains(&waiter.digest) {
            return Some(Submitted::OtherContent);
        }
        // Read again because its ask was in doubt: nobody asks a second time, even if the outcome was taken meanwhile.
        let is_first = ask.waiters.first().is_some_and(|first| first.request_id == request.request_id);
        if is_first && self.0.doubted.lock().remove(&id) {
            return Some(Submitted::Known(id));
        }
        let claim = request.claim();
        if claim.is_some() && claim == waiter.claim {
            // A crash came before its file was deleted. Nobody asks a second time, even if the outcome was taken meanwhile.
            return Some(Submitted::Known(id));
        }
        match waiter.response.state() {
            // Its process was thought gone.
            DeliveryState::Undecided if waiter.replaced => {}
            // It may lie there, or be taken already, and the record does not say so yet.
            DeliveryState::Ready if waiter.carrier.is_file() => return Some(Submitted::NotYet),
            DeliveryState::Undecided | DeliveryState::Owed | DeliveryState::Ready => return Some(Submitted::Known(id)),
            DeliveryState::Published { .. }
                if !waiter.carrier.is_file() || self.served_elsewhere(&ask.group).is_some() =>
            {
                return Some(Submitted::Known(id));
            }
            DeliveryState::Published { .. } => match self.lies(&ask.group, &request.request_id).await {
                Ok(Lies::There) => return Some(Submitted::Known(id)),
                Ok(Lies::BeingTaken | Lies::Gone) => {}
                Err(error) => {
                    tracing::error!(ask = %id, %error, "cannot see whether a response is there");
                    return Some(Submitted::NotStored);
                }
            },
            DeliveryState::TakingBack | DeliveryState::TakenBack { .. } | DeliveryState::Taken => {}
        }
        let replays = Relation::Replays(request.request_id.clone(), claim);
        match self.apply(id, Event::Requested(replays)).await {
            Err(failure @ (Failure::NotStored | Failure::InDoubt)) => Some(Submitted::failed(&failure)),
            _ => Some(Submitted::Known(id)),
        }
    }

    pub(super) fn unreadable(id: AskId, error: &StoreError) -> Submitted {
        tracing::error!(ask = %id, %error, "cannot read an ask");
        Submitted::NotStored
    }

    /// One more waiter of an open ask; `None` if it has been settled in the meantime.
    async fn join(&self, id: AskId, request: &Request) -> Option<Submitted> {
        let ask = match self.get(id).await {
            // It may be stored: it is not asked a second time before that is clear.
            Ok(None) if self.is_unfinished(id) => return Some(Submitted::InDoubt),
            Ok(ask) => ask?,
            // The ask may be open already: asking it again would show it twice.
            Err(error) => return Some(Self::unreadable(id, &error)),
        };
        if ask.outcome().is_some() || ask.key != request.key {
            return None;
        }
        if !ask.content.same_as(&request.content) {
            return Some(Submitted::Rejected(Rejection::Wrong {
                field: "idempotency_key".to_owned(),
                why: "another question, or the same under another title or context, is open under this key; use another key, or ask exactly the same".to_owned(),
            }));
        }
        let settings = self.settings();
        let group = settings.group(&ask.group)?;
        let waiter = match waiter(request, group, self.clock().now()) {
            Ok(waiter) => waiter,
            Err(rejection) => return Some(Submitted::Rejected(rejection)),
        };
        let joined = self.apply(id, Event::Requested(Relation::Joins(Box::new(waiter)))).await;
        self.replace_dead(id);
        match joined {
            Ok(ask) if ask.waiter(&request.request_id).is_some() => Some(Submitted::Joined(id)),
            Ok(ask) if ask.is_full() && ask.outcome().is_none() => {
                Some(Submitted::Rejected(Rejection::TooManyWait { limit: MAX_WAITERS }))
            }
            Ok(_) | Err(Failure::Unknown | Failure::Refused(..)) => None,
            Err(failure @ (Failure::NotStored | Failure::InDoubt | Failure::Broken)) => {
                Some(Submitted::failed(&failure))
            }
        }
    }

    /// What becomes of a request that asks too often.
    async fn blocks(&self, group: &Group, request: &Request, given: i64) -> Option<Result<Submitted, Stale>> {
        let settings = self.settings();
        let settings = settings.group(group)?;
        let waiter = waiter(request, settings, self.clock().now()).ok()?;
        self.block(group, request, settings, (&waiter, given)).await
    }

    async fn create(
        &self,
        group: &Group,
        request: Request,
        admitted: Admitted,
        given: i64,
    ) -> Result<Submitted, Stale> {
        let kept = request.key.and_then(|key| self.index().kept_by_key(group, key));
        if let Some(id) = kept {
            // A late answer would go to a question that is asked anew: from here on nobody can give one.
            let closed = self.apply(id, Event::Requested(Relation::Supersedes)).await;
            if matches!(closed, Err(Failure::NotStored | Failure::InDoubt)) {
                return Ok(Submitted::NotStored);
            }
            // Somebody may have given one just before.
            if let Some(submitted) = self.give_kept(id, &request).await {
                return Ok(submitted);
            }
        }
        let make = |id, short_id, now| Ask::accept(accepted(group, request, admitted, id, short_id), now);
        self.store_new(make, given).await
    }

    /// Stores a new ask and acts on it. An ask that is in doubt is known by its request from now on.
    pub(super) async fn store_new(
        &self,
        make: impl FnOnce(AskId, ShortId, Time) -> Step,
        given: i64,
    ) -> Result<Submitted, Stale> {
        // Its card may count as being posted from the first record on: so the group stays here until this is stored.
        let mut tenure = None;
        let step = self.make_known(|id, short_id, now| {
            let step = make(id, short_id, now);
            tenure = self.tenure(&step.ask);
            step
        });
        let stored = self.accept(step, given).await;
        drop(tenure);
        Submitted::first(stored)
    }

    /// Makes a new ask and lets the index know it before it is stored, so that its code and its place are taken. Events that
    /// fall due meanwhile wait in its lane.
    fn make_known(&self, make: impl FnOnce(AskId, ShortId, Time) -> Step) -> Step {
        let Reading { now, set_by } = self.clock().reading();
        let id = random::ask_id();
        self.enter(|index| {
            // Until all codes are known, an uncommon length keeps two asks from having one.
            let unknown = |short: &ShortId| !self.is_loaded() && short.as_str().len() < UNCOMMON;
            let short_id = random::short_id(index.open(), |short| unknown(short) || index.short_taken(short, now));
            let step = self.with_slot(make(id, short_id, now), now);
            index.insert_unstored(&step.ask, set_by);
            step
        })
    }

    /// If its first channel has a turn free now, the first record says already that its card is being posted. Only where a
    /// card can be looked for: a crash before the post would otherwise leave nobody sure of it.
    fn with_slot(&self, step: Step, now: Time) -> Step {
        let queued = |effect: &Effect| match *effect {
            Effect::Widget { route, effect: WidgetEffect::Queue { not_before } } if not_before <= now => Some(route),
            _ => None,
        };
        let Step { ask, mut effects } = step;
        let found = effects.iter().enumerate().find_map(|(at, effect)| Some((at, queued(effect)?)));
        if let Some((at, route)) = found
            && self.serves(&ask)
            && let Some(place) = ask.route(route).filter(|place| place.capabilities.history)
            && self.0.channels.of(&ask, route).takes_slot(place)
            && let Ok(Some(granted)) = ask.clone().step(WidgetEvent::SlotGranted.on(route), now)
        {
            effects.remove(at);
            effects.extend(granted.effects);
            return Step { ask: granted.ask, effects };
        }
        Step { ask, effects }
    }

    /// Withdraws a waiting call; leaves alone what no call waits for.
    pub async fn withdraw(&self, group: &Group, request_id: &askd_core::RequestId) -> Result<(), Failure> {
        let known = self.index().by_request(group, request_id);
        let Some(id) = known else {
            tracing::info!(group = %group, request_id = %request_id, "ignored the withdrawal of an unknown request");
            return Ok(());
        };
        match self.apply(id, WaiterEvent::Withdrawn.of(request_id.clone())).await {
            Err(failure @ (Failure::NotStored | Failure::InDoubt | Failure::Broken)) => Err(failure),
            // Who withdraws lives.
            Ok(ask) if ask.waiter(request_id).is_some_and(|waiter| ask.can_return_to(waiter)) => {
                self.give_back(group, id);
                Ok(())
            }
            Ok(_) | Err(Failure::Unknown | Failure::Refused(..)) => Ok(()),
        }
    }
}

fn accepted(group: &Group, request: Request, admitted: Admitted, id: AskId, short_id: ShortId) -> Accepted {
    Accepted {
        id,
        short_id,
        group: group.clone(),
        content: request.content,
        rules: admitted.rules,
        routes: admitted.routes,
        key: request.key,
        session: request.session,
        waiter: admitted.waiter,
    }
}
