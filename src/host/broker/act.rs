//! Doing what a saved step asks for. Each effect is a task of its own or an errand, is tried until it is done,
//! and comes back as an event; all of them may be done twice.

use super::Broker;
use super::errands::{Errand, What};
use super::holding::is_in_chat;
use super::index::is_chat;
use super::lane::Work;
use super::step::{Applied, Stepped};
use crate::host::delivery;
use crate::host::port::Reminded;
use crate::ipc::{RESPONSES, status_name};
use crate::sabotage::{crash_point, gate, on};
use askd_core::{
    Ask, AskId, Effect, Event, Fact, FollowUpEffect, Posted, Stage, Time, Waiter, Widget, WidgetEffect, WidgetEvent,
};
use futures_util::FutureExt as _;
use std::sync::Arc;
use std::time::Duration;

/// How long after a request was taken in its waiters are told so. A file that is replaced costs as much as all else of a request.
const TOLD_AFTER: Duration = Duration::from_millis(250);
/// How long after a takeover what was being posted then is looked for once more.
const LOOK_ONCE_MORE: Duration = Duration::from_secs(60);

/// The routes of cards that may have come up twice, as far as that can be found out.
fn up_twice(ask: &Ask) -> impl Iterator<Item = usize> {
    let may_be = |widget: &Widget| widget.route.capabilities.history && widget.may_be_up_twice();
    ask.widgets.iter().enumerate().filter(move |(_, widget)| may_be(widget)).map(|(route, _)| route)
}

fn is_posting(ask: &Arc<Ask>) -> bool {
    matches!(ask.stage, Stage::Posting)
}

impl Broker {
    /// Does what a saved step asks this daemon for; the caller sees to the errands.
    pub(super) fn act(&self, step: Stepped, errands: &mut Vec<Errand>) {
        let (ask, effects) = step.into_own();
        self.act_now(&ask, effects, errands);
    }

    /// Does all of this.
    pub(super) fn act_now(&self, ask: &Arc<Ask>, effects: Vec<Effect>, errands: &mut Vec<Errand>) {
        let errand = |what| Errand { ask: Arc::clone(ask), what };
        let first = effects.contains(&Effect::Note(Fact::Settled));
        for effect in effects {
            match effect {
                Effect::Widget { route, effect: WidgetEffect::Update } => errands.push(errand(What::Update { route })),
                Effect::Widget { route, effect } => self.act_on_widget(ask, route, effect),
                Effect::Delivery { to, effect } => errands.extend(self.act_on_delivery(ask, to, effect, first)),
                Effect::FollowUp(effect) => match effect {
                    FollowUpEffect::Start => self.start_agent(ask),
                    FollowUpEffect::Stop => self.stop_session(ask),
                    FollowUpEffect::Tidy => self.tidy(ask),
                },
                Effect::Status => errands.push(errand(What::Status)),
                Effect::Identify(request_id) => self.identify(ask, request_id),
                // What was counted may not count any more.
                Effect::Note(Fact::Settled | Fact::LateAnswer | Fact::AllowedAgain { .. }) | Effect::Forget => {
                    self.end_blocks(&ask.group);
                }
                // Done in the lane, together with saving.
                Effect::Note(_) | Effect::Retire => {}
            }
        }
    }

    fn act_on_widget(&self, ask: &Arc<Ask>, route: usize, effect: WidgetEffect) {
        match effect {
            WidgetEffect::Queue { not_before } => self.queue(ask, route, not_before),
            WidgetEffect::Send { attempt } => self.send(ask, route, attempt),
            WidgetEffect::Look => self.look(ask, route),
            WidgetEffect::Await { until } => self.wait_for_person(ask, route, until),
            WidgetEffect::Update => self.update(ask, route),
            WidgetEffect::Remind => self.remind(ask, route),
        }
    }

    /// Tells waiters where the ask is. Blocks on the disk.
    pub(super) fn write_status(&self, ask: &Arc<Ask>) {
        if is_posting(ask) {
            return self.tell_if_still_posting(ask);
        }
        // The errands of one ask run side by side, so what this one knows may be older than what was written.
        self.write_status_of(self.now_of(ask).unwrap_or_else(|| Arc::clone(ask)));
    }

    fn now_of(&self, ask: &Ask) -> Option<Arc<Ask>> {
        self.0.store.read(&ask.group, ask.id).ok().flatten()
    }

    /// Most cards are up before that, and what follows tells of them.
    fn tell_if_still_posting(&self, ask: &Ask) {
        let (broker, id, group) = (self.clone(), ask.id, ask.group.clone());
        self.0.ctx.finish(async move {
            // A stop cuts it short.
            let _whole = broker.0.ctx.pause(TOLD_AFTER).await;
            // Mostly its card is up by now, which takes no thread to see.
            if broker.0.store.cached(id).is_some_and(|ask| !is_posting(&ask)) {
                return;
            }
            let teller = broker.clone();
            broker.in_folder(&group.clone(), move || {
                gate("status.posting");
                if let Some(ask) = teller.0.store.read(&group, id).ok().flatten().filter(is_posting) {
                    gate("status.read");
                    teller.write_status_of(ask);
                }
            });
        });
    }

    /// The same for an ask that was just read.
    pub(super) fn write_status_of(&self, mut latest: Arc<Ask>) {
        let (mut written, newest) = loop {
            let written = delivery::status(&self.0.folders, &latest);
            match self.now_of(&latest) {
                Some(changed) if changed.stage != latest.stage => latest = changed,
                newest => break (written, newest.unwrap_or_else(|| Arc::clone(&latest))),
            }
        };
        // Settled or withdrawn in the meantime: the publisher of the response may have looked before this was written.
        let is_settled = self.index().is_settled(latest.id);
        let reads = |of: &Waiter| delivery::readers_of_status(&newest).any(|it| it.request_id == of.request_id);
        written = written.and_then(|()| {
            let over = delivery::readers_of_status(&latest).filter(|waiter| is_settled || !reads(waiter));
            over.map(|waiter| &waiter.request_id).try_for_each(|id| {
                let responses = self.0.folders.ensure(&latest.group, RESPONSES)?;
                responses.remove_for_good(&status_name(id)).map(drop)
            })
        });
        if let Err(error) = written {
            tracing::warn!(ask = %latest.id, group = %latest.group, %error, "cannot write the status of an ask");
        }
    }

    /// Waits for a turn at the channel. Work that gets no turn before the daemon stops waits again at the next start.
    fn queue(&self, ask: &Arc<Ask>, route: usize, not_before: Time) {
        // Very many may wait, so none of them holds its ask.
        let (broker, id, place) = (self.clone(), ask.id, ask.route(route).cloned());
        let (in_chat, group) = (is_in_chat(ask), ask.group.clone());
        // What is due from the beginning is due: a clock that follows a database's may have moved back since, and whoever sleeps stands
        // in no line.
        let is_due = not_before <= ask.created_at;
        let mut turn = Box::pin(async move {
            if !is_due {
                broker.clock().sleep_until(not_before).await;
            }
            // Another daemon may hold the group since: this one uses up no turn that all of them share.
            if broker.tenure_of(in_chat, &group).is_none() {
                return;
            }
            if let Some(place) = &place {
                // What is written to a person depends on all that the person is asked.
                if is_chat(place) {
                    broker.loaded().await;
                }
                broker.0.channels.named(place.channel).wait_for_slot(place).await;
            }
            let tenure = broker.tenure_of(in_chat, &group);
            if tenure.is_some() {
                broker.apply_later(id, WidgetEvent::SlotGranted.on(route));
            } else if let Some(place) = &place {
                broker.0.channels.named(place.channel).return_slot(place);
            }
        });
        // It stands in the line before this returns: tasks begin in any order, and an ask that comes later would overtake it.
        if turn.as_mut().now_or_never().is_none() {
            self.0.ctx.spawn(turn);
        }
    }

    /// Gives back the turns that were taken for this work and that nothing is posted in.
    pub(super) fn return_unused_slots(&self, work: &Work, applied: &Applied) {
        let sends = |effect: &Effect| match effect {
            Effect::Widget { route, effect: WidgetEffect::Send { .. } } => Some(*route),
            _ => None,
        };
        let (ask, unused): (_, Vec<usize>) = match (work, applied) {
            (Work::Accept(new), Applied::Stale | Applied::NotStored(_)) => {
                (&new.ask, new.effects.iter().filter_map(sends).collect())
            }
            (Work::Event(Event::Widget { route, event: WidgetEvent::SlotGranted }), Applied::Same(ask)) => {
                (ask, vec![*route])
            }
            (Work::Event(Event::Widget { route, event: WidgetEvent::SlotGranted }), Applied::Stepped(after))
                if !after.effects.iter().filter_map(sends).any(|sent| sent == *route) =>
            {
                (&after.ask, vec![*route])
            }
            _ => return,
        };
        for route in unused {
            if let Some(place) = ask.route(route) {
                self.0.channels.of(ask, route).return_slot(place);
            }
        }
    }

    fn send(&self, ask: &Arc<Ask>, route: usize, attempt: u8) {
        // The next holder looks for the card, and posts it.
        let Some(tenure) = self.tenure(ask) else { return };
        let (broker, ask) = (self.clone(), Arc::clone(ask));
        self.0.ctx.finish(async move {
            if !broker.0.ctx.until_calls_may_begin().await {
                return;
            }
            crash_point("post.before");
            let progress = || broker.apply_later(ask.id, WidgetEvent::Progress { attempt }.on(route));
            let channel = broker.0.channels.of(&ask, route);
            // The daemon stopped before this began: the next start posts it as the same try.
            let Some(posted) = channel.post(&ask, route, attempt, &progress).await else { return };
            crash_point("post.after");
            if let Posted::Never { why, .. } = &posted {
                tracing::error!(ask = %ask.id, group = %ask.group, route, why, "a question could not be posted");
            }
            broker.apply_later(ask.id, WidgetEvent::Posted { attempt, posted }.on(route));
            drop(tenure);
        });
    }

    fn look(&self, ask: &Arc<Ask>, route: usize) {
        let Some(tenure) = self.tenure(ask) else { return };
        let (broker, ask) = (self.clone(), Arc::clone(ask));
        self.0.ctx.spawn(async move {
            if !broker.0.ctx.until_calls_may_begin().await {
                return;
            }
            let found = broker.0.channels.of(&ask, route).find(&ask, route).await;
            broker.apply_later(ask.id, WidgetEvent::Looked(found).on(route));
            drop(tenure);
        });
    }

    /// What was left undone is in hand.
    pub(super) fn has_resumed(&self, id: AskId, was_interrupted: bool) {
        self.lanes().paid(id);
        if was_interrupted && self.is_shared() {
            self.look_once_more(id);
        }
    }

    /// A call begun by the previous holder may still take effect, if that daemon is paused or cut off only from the database. A card that
    /// comes up beside the one that was posted since then is found, and shows the same.
    fn look_once_more(&self, id: AskId) {
        if on("lookonce") {
            return;
        }
        let broker = self.clone();
        self.0.ctx.spawn(async move {
            broker.clock().sleep(LOOK_ONCE_MORE).await;
            let Ok(Some(ask)) = broker.get(id).await else { return };
            up_twice(&ask).for_each(|route| broker.update(&ask, route));
        });
    }

    /// An earlier holder may not have lived to look once more for a card of this ask.
    pub(super) fn look_in_its_place(&self, ask: &Ask) {
        if !self.is_shared() || up_twice(ask).next().is_none() || !self.serves(ask) {
            return;
        }
        let over = if let Stage::Settled { at, .. } = ask.stage { Some(at) } else { None };
        if over.is_none_or(|at| self.clock().now() < at + 2 * LOOK_ONCE_MORE) && !on("looklost") {
            self.look_once_more(ask.id);
        }
    }

    /// Worth one try: it is only a nudge.
    fn remind(&self, ask: &Arc<Ask>, route: usize) {
        let (broker, ask) = (self.clone(), Arc::clone(ask));
        self.0.ctx.finish(async move {
            let Some(place) = ask.route(route).filter(|_| broker.tenure(&ask).is_some()) else { return };
            let turn = broker.0.ctx.unless_cut(broker.0.channels.of(&ask, route).wait_for_slot(place)).await;
            let tenure = broker.tenure(&ask);
            if turn.is_none() {
                return;
            }
            let channel = broker.0.channels.of(&ask, route);
            // Answered while this waited for its turn: then it would only disturb.
            if tenure.is_none()
                || broker.0.ctx.call_within(Duration::MAX).is_none()
                || broker.index().is_settled(ask.id)
            {
                channel.return_slot(place);
            } else {
                let reminded = channel.remind(&ask, route).await;
                if reminded != Reminded::Unknown {
                    let sent = reminded == Reminded::Sent;
                    broker.apply_later(ask.id, WidgetEvent::Reminded { sent }.on(route));
                }
                if let Reminded::Gone(card) = reminded {
                    broker.apply_later(ask.id, WidgetEvent::Gone(card).on(route));
                }
            }
        });
    }

    /// What is held goes on when the person has written.
    fn wait_for_person(&self, ask: &Arc<Ask>, route: usize, until: Time) {
        let Some(channel) = ask.route(route).map(|place| place.channel) else { return };
        // It may take weeks, so the ask is not held meanwhile.
        let person = ask.widgets.get(route).map_or("", Widget::asked).to_owned();
        let (broker, id, in_chat, group) = (self.clone(), ask.id, is_in_chat(ask), ask.group.clone());
        self.0.ctx.spawn(async move {
            let wrote = broker.0.channels.named(channel).wait_for_person(&person, until).await;
            let tenure = broker.tenure_of(in_chat, &group);
            if wrote && tenure.is_some() {
                broker.apply_later(id, WidgetEvent::Opened.on(route));
            }
        });
    }
}
