//! Getting an ask in front of a person: routes in turn, tries of each, proof of display, and the
//! clock that starts with it. Section 6, items 2 and 3 of the specification.

use super::{Effect, Fact, Found, OneByOne, Outcome, Posted, Stage, Widget, WidgetEffect, WidgetState};
use crate::{Ask, Cause, Reason, Time, Trouble};
use std::time::Duration;

/// How long after a look that found nothing the next one follows: what a chat service may need
/// until its history shows a message that it has taken.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// How long a look may take; a history that cannot be read for so long tells nothing any more.
pub(super) const LOOK_FOR: Duration = Duration::from_secs(60);
/// The pause between tries of a route whose retries are used up, while people can answer elsewhere.
const NOW_AND_THEN: Duration = Duration::from_secs(60);
/// The longest wait before another try.
const LONGEST_BACKOFF: Duration = Duration::from_secs(256);

impl Widget {
    fn new(state: WidgetState) -> Self {
        Self {
            attempt: 1,
            state,
            messages: Vec::new(),
            one_by_one: OneByOne::default(),
            sendings: Vec::new(),
            said: None,
            trouble: None,
        }
    }
}

impl Ask {
    /// Starts the next route; `false` if there is none left.
    pub(super) fn show_next(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let route = self.widgets.len();
        let Some(next) = self.rules.routes.get(route) else { return false };
        if next.capabilities.lists_itself {
            // The channel lists it by itself: it is up as soon as it is stored, and its clock runs.
            let fall_back_at = Some(now + self.rules.render_timeout);
            let state = WidgetState::Up { at: now, proven: false, fall_back_at };
            self.widgets.push(Widget::new(state));
            effects.push(Effect::Note(Fact::Posted { route, attempt: 1 }));
            self.open(now, now, effects);
        } else {
            let state = WidgetState::Queued { not_before: now, until: now + self.rules.timeout };
            self.widgets.push(Widget::new(state));
            effects.push(WidgetEffect::Queue { not_before: now }.on(route));
        }
        true
    }

    /// Starts the answer clock, if it is not running: from `shown_at`, which is never later than now.
    pub(super) fn open(&mut self, shown_at: Time, now: Time, effects: &mut Vec<Effect>) {
        if self.stage == Stage::Posting {
            let shown_at = shown_at.min(now);
            self.stage = Stage::Open { shown_at, answer_by: shown_at + self.rules.timeout };
            effects.push(Effect::Status);
        }
    }

    /// The channel's queue has reached the widget. It counts as sent from the moment this is saved.
    pub(super) fn slot_granted(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) -> bool {
        let render_timeout = self.rules.render_timeout;
        let names_nothing = self.rules.routes.get(route).is_some_and(|route| !route.capabilities.forms);
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        let WidgetState::Queued { not_before, .. } = widget.state else { return false };
        if now < not_before {
            effects.push(WidgetEffect::Queue { not_before }.on(route));
            return true;
        }
        widget.state = WidgetState::Sent { at: now, render_by: now + render_timeout };
        if names_nothing {
            widget.sends();
        }
        effects.push(WidgetEffect::Send { attempt: widget.attempt }.on(route));
        true
    }

    pub(super) fn posted(
        &mut self,
        route: usize,
        attempt: u8,
        posted: Posted,
        now: Time,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        widget.called(attempt, &posted);
        if widget.attempt != attempt {
            return self.posted_late(route, attempt, &posted);
        }
        let (WidgetState::Sent { at, .. } | WidgetState::Unknown { at, .. } | WidgetState::Up { at, .. }) =
            widget.state
        else {
            return false;
        };
        match posted {
            Posted::Shown(message) => {
                self.up(route, at, vec![message], effects);
                self.prove(route, now, effects);
            }
            Posted::Accepted(messages, _) => self.up(route, at, messages, effects),
            // A proof came before this reply: it is up, whatever the reply says.
            _ if matches!(widget.state, WidgetState::Up { .. }) => return false,
            Posted::NotPosted { retry_after_millis, trouble } => {
                self.try_again(route, retry_after_millis.map(Duration::from_millis), trouble, now, effects);
            }
            Posted::Never { trouble, .. } => self.give_up(route, trouble, true, now, effects),
            Posted::Unknown(_) => self.unknown(route, at, now, effects),
            Posted::Held(message) => self.hold(route, message, now, effects),
        }
        true
    }

    /// Part of the card is there, so the wait for its display counts from now: a card of many messages takes
    /// longer than `render_timeout` at the channel's pace.
    pub(super) fn progress(&mut self, route: usize, attempt: u8, now: Time) -> bool {
        let render_by = now + self.rules.render_timeout;
        match self.widgets.get_mut(route) {
            Some(Widget { attempt: current, state: WidgetState::Sent { render_by: known, .. }, .. })
                if *current == attempt && *known < render_by =>
            {
                *known = render_by;
                true
            }
            _ => false,
        }
    }

    /// The channel has the message.
    pub(super) fn up(&mut self, route: usize, at: Time, messages: Vec<String>, effects: &mut Vec<Effect>) {
        let render_timeout = self.rules.render_timeout;
        let settled = self.is_over();
        let can_be_changed = self.rules.routes[route].capabilities.edits;
        let widget = &mut self.widgets[route];
        let was_up = matches!(widget.state, WidgetState::Up { .. });
        let part = widget.one_by_one.index;
        let mut new = false;
        for message in messages {
            new |= widget.remember(message, part);
        }
        if new {
            effects.push(Effect::Note(Fact::Posted { route, attempt: widget.attempt }));
        }
        widget.trouble = None;
        if !was_up {
            widget.state = WidgetState::Up { at, proven: false, fall_back_at: Some(at + render_timeout) };
        }
        // What is up already is being closed; only a card that the ask did not know has to be closed besides.
        if settled && (!was_up || (new && can_be_changed)) {
            effects.push(WidgetEffect::Close.on(route));
        }
    }

    fn unknown(&mut self, route: usize, at: Time, now: Time, effects: &mut Vec<Effect>) {
        self.widgets[route].trouble = Some(Trouble::Unknown);
        self.widgets[route].state = WidgetState::Unknown { at, looks: 0, look_at: now + LOOK_FOR, interrupted: false };
        effects.push(WidgetEffect::Look.on(route));
    }

    /// Whether something was being posted when the daemon ended, so that [`super::Event::Interrupted`] has to happen.
    pub fn was_interrupted(&self) -> bool {
        self.widgets.iter().any(|widget| matches!(widget.state, WidgetState::Sent { .. }))
    }

    pub(super) fn interrupted(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        for (route, widget) in self.widgets.iter_mut().enumerate() {
            if let WidgetState::Sent { at, .. } = widget.state {
                widget.state = WidgetState::Unknown { at, looks: 0, look_at: now + LOOK_FOR, interrupted: true };
                effects.push(WidgetEffect::Look.on(route));
            }
        }
        !effects.is_empty()
    }

    /// Posts again what the end of the daemon cut off: that does not count as a try.
    pub(super) fn post_again(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) {
        if self.is_over() {
            return self.over(route, now, effects);
        }
        self.widgets[route].state = WidgetState::Queued { not_before: now, until: now + self.rules.timeout };
        effects.push(WidgetEffect::Queue { not_before: now }.on(route));
    }

    pub(super) fn looked(&mut self, route: usize, found: Found, now: Time, effects: &mut Vec<Effect>) -> bool {
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        let WidgetState::Unknown { at, looks, interrupted, .. } = widget.state else { return false };
        match found {
            Found::Widget(message) => {
                self.up(route, at, vec![message], effects);
                self.prove(route, now, effects);
            }
            Found::CannotKnow => self.lost(route, interrupted, now, effects),
            // A channel's history may lag behind. On WhatsApp our own record says that it never left.
            Found::Absent if looks == 0 && self.rules.routes[route].capabilities.history => {
                widget.state = WidgetState::Unknown { at, looks: 1, look_at: now + LOOK_AGAIN, interrupted };
            }
            // The second look is not due yet.
            Found::Absent if looks == 1 => return false,
            Found::Absent if interrupted => self.post_again(route, now, effects),
            Found::Absent => self.try_again(route, None, Trouble::Unknown, now, effects),
        }
        true
    }

    /// A message of ours was used that may not have been known: it is up, and will be closed too.
    pub(super) fn spotted(&mut self, route: usize, message: String, now: Time, effects: &mut Vec<Effect>) -> bool {
        let settled = self.is_over();
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        if widget.messages.contains(&message) {
            return false;
        }
        effects.push(Effect::Note(Fact::Posted { route, attempt: widget.attempt }));
        // The newest message stays the card that people use.
        let at = widget.messages.len().saturating_sub(1);
        widget.messages.insert(at, message);
        let part = widget.one_by_one.index;
        widget.one_by_one.of.resize(widget.messages.len() - 1, part);
        widget.one_by_one.of.insert(at, part);
        if !matches!(widget.state, WidgetState::Up { .. }) {
            widget.state = WidgetState::Up { at: now, proven: false, fall_back_at: None };
        }
        if settled {
            effects.push(WidgetEffect::Close.on(route));
        } else {
            self.prove(route, now, effects);
        }
        true
    }

    /// A proof of display; a second one, or one for what is not posted, changes nothing.
    pub(super) fn prove(&mut self, route: usize, now: Time, effects: &mut Vec<Effect>) -> bool {
        if self.is_over() {
            return false;
        }
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        let (WidgetState::Up { at, proven: false, .. }
        | WidgetState::Sent { at, .. }
        | WidgetState::Unknown { at, .. }) = widget.state
        else {
            return false;
        };
        widget.state = WidgetState::Up { at, proven: true, fall_back_at: None };
        widget.trouble = None;
        widget.one_by_one.seen = true;
        self.confirmed = true;
        effects.push(Effect::Note(Fact::Shown { route }));
        self.open(now, now, effects);
        true
    }

    /// Certainly not up: post again, or give the route up.
    pub(super) fn try_again(
        &mut self,
        route: usize,
        retry_after: Option<Duration>,
        trouble: Trouble,
        now: Time,
        effects: &mut Vec<Effect>,
    ) {
        let timeout = self.rules.timeout;
        let max_retries = self.rules.max_retries;
        let settled = self.is_over();
        let widget = &mut self.widgets[route];
        let attempt = widget.attempt;
        let tries = widget.tries();
        if settled {
            self.over(route, now, effects);
        } else if tries > max_retries {
            self.used_up(route, trouble, now, effects);
        } else {
            effects.push(Effect::Note(Fact::NotShown { route, attempt }));
            widget.trouble = Some(trouble);
            let backoff = Duration::from_secs(4_u64.saturating_pow(u32::from(tries) - 1)).min(LONGEST_BACKOFF);
            let not_before = now + backoff.max(retry_after.unwrap_or_default());
            widget.attempt = widget.attempt.saturating_add(1);
            widget.state = WidgetState::Queued { not_before, until: (now + timeout).max(not_before) };
            effects.push(WidgetEffect::Queue { not_before }.on(route));
        }
    }

    /// A page that a person is looking at displays the ask. People can answer there, so its clock starts and it does
    /// not end as undeliverable. This proves nothing for its routes.
    pub(super) fn view(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        if self.outcome().is_some() || self.viewed {
            return false;
        }
        self.viewed = true;
        self.open(now, now, effects);
        true
    }

    /// The route was posted as often as allowed. An ask that a page has displayed goes on, and its route is tried now
    /// and then.
    fn used_up(&mut self, route: usize, trouble: Trouble, now: Time, effects: &mut Vec<Effect>) {
        if !self.viewed {
            return self.give_up(route, trouble, false, now, effects);
        }
        let counted = self.counts(route);
        let (timeout, last) = (self.rules.timeout, self.rules.max_retries.saturating_add(1));
        let widget = &mut self.widgets[route];
        if counted {
            effects.push(Effect::Note(Fact::NotShown { route, attempt: widget.attempt }));
        }
        let not_before = now + NOW_AND_THEN;
        widget.trouble = Some(trouble);
        widget.attempt = widget.one_by_one.first_attempt.max(1).saturating_add(last);
        widget.state = WidgetState::Queued { not_before, until: not_before + timeout };
        effects.push(WidgetEffect::Queue { not_before }.on(route));
        if counted {
            self.show_next(now, effects);
        }
    }

    /// Whether the current try is one of those that `maxRetries` allows; other tries carry no number.
    pub fn counts(&self, route: usize) -> bool {
        self.widgets.get(route).is_none_or(|widget| widget.tries() <= self.rules.max_retries.saturating_add(1))
    }

    /// Nothing of this route is up, nor will be: on to the next one.
    pub(super) fn give_up(
        &mut self,
        route: usize,
        trouble: Trouble,
        for_good: bool,
        now: Time,
        effects: &mut Vec<Effect>,
    ) {
        let settled = self.is_over();
        let widget = &mut self.widgets[route];
        widget.trouble = Some(trouble);
        effects.push(Effect::Note(Fact::NotShown { route, attempt: widget.attempt }));
        widget.state = WidgetState::Failed { for_good };
        if settled {
            self.over(route, now, effects);
        } else if !self.show_next(now, effects) {
            self.start_clock_or_end(now, effects);
        }
    }

    /// No route is left to try. If something was accepted, its clock runs from then; if something
    /// may still come up, that is waited for; else the agent is told at once.
    fn start_clock_or_end(&mut self, now: Time, effects: &mut Vec<Effect>) {
        if self.stage != Stage::Posting {
            let gone = |widget: &Widget| matches!(widget.state, WidgetState::Failed { .. } | WidgetState::Closed);
            if self.outcome().is_none() && !self.viewed && self.widgets.iter().all(gone) {
                self.settle(Outcome::Undelivered { cause: self.cause() }, now, effects);
            }
            return;
        }
        let on_its_way = |w: &Widget| {
            matches!(w.state, WidgetState::Queued { .. } | WidgetState::Sent { .. } | WidgetState::Unknown { .. })
        };
        let waiting = |w: &Widget| matches!(w.state, WidgetState::Up { fall_back_at: Some(_), .. });
        if self.widgets.iter().any(|w| on_its_way(w) || waiting(w)) {
            return;
        }
        let accepted = self.widgets.iter().filter_map(|widget| match widget.state {
            WidgetState::Up { at, .. } => Some(at),
            _ => None,
        });
        let held = self.widgets.iter().any(|widget| matches!(widget.state, WidgetState::Held { .. }));
        match accepted.min() {
            Some(earliest) => self.open(earliest, now, effects),
            None if held => {}
            None => self.settle(Outcome::Undelivered { cause: self.cause() }, now, effects),
        }
    }

    fn cause(&self) -> Cause {
        let lasts = |widget: &Widget| matches!(widget.state, WidgetState::Failed { for_good: true });
        let retried = self.widgets.iter().position(|widget| !lasts(widget));
        let route = retried.unwrap_or(0);
        let reason =
            self.widgets[route].trouble.map(|trouble| Reason { channel: self.rules.routes[route].channel, trouble });
        Cause { retries: retried.map(|_| self.rules.max_retries), reason }
    }

    /// The first route that is in trouble and has nothing up.
    pub fn trouble(&self) -> Option<Reason> {
        let routes = self.rules.routes.iter().zip(&self.widgets);
        routes
            .filter(|(_, widget)| !matches!(widget.state, WidgetState::Up { .. } | WidgetState::Closed))
            .find_map(|(route, widget)| widget.trouble.map(|trouble| Reason { channel: route.channel, trouble }))
    }

    /// When a widget next needs a tick.
    pub(super) fn widget_deadline(&self) -> Option<Time> {
        let settled = self.is_over();
        let due = self.widgets.iter().filter_map(|widget| match widget.state {
            WidgetState::Queued { until, .. } => Some(until),
            WidgetState::Sent { render_by, .. } => Some(render_by),
            WidgetState::Unknown { look_at, .. } => Some(look_at),
            WidgetState::Up { fall_back_at, .. } if !settled => fall_back_at,
            WidgetState::Held { until, fall_back_at, .. } => Some(fall_back_at.unwrap_or(until).min(until)),
            WidgetState::Up { .. } | WidgetState::Failed { .. } | WidgetState::Closed => None,
        });
        due.min()
    }

    /// Lets every widget whose time has come act; `true` if one did.
    pub(super) fn tick_widgets(&mut self, now: Time, effects: &mut Vec<Effect>) -> bool {
        let mut changed = false;
        for route in 0..self.widgets.len() {
            let settled = self.is_over();
            let attempt = self.widgets[route].attempt;
            match self.widgets[route].state.clone() {
                WidgetState::Queued { until, .. } if until <= now => {
                    let trouble = self.widgets[route].trouble.unwrap_or(Trouble::Unknown);
                    self.give_up(route, trouble, false, now, effects);
                }
                WidgetState::Sent { at, render_by } if render_by <= now => {
                    effects.push(Effect::Note(Fact::NotShown { route, attempt }));
                    self.unknown(route, at, now, effects);
                }
                WidgetState::Unknown { at, looks: 1, look_at, interrupted } if look_at <= now => {
                    self.widgets[route].state =
                        WidgetState::Unknown { at, looks: 2, look_at: now + LOOK_FOR, interrupted };
                    effects.push(WidgetEffect::Look.on(route));
                }
                WidgetState::Unknown { look_at, interrupted, .. } if look_at <= now => {
                    self.lost(route, interrupted, now, effects);
                }
                WidgetState::Held { until, .. } if until <= now => {
                    self.give_up(route, Trouble::WindowClosed, true, now, effects);
                }
                WidgetState::Held { at, until, fall_back_at: Some(due) } if due <= now => {
                    effects.push(Effect::Note(Fact::NotShown { route, attempt }));
                    self.widgets[route].state = WidgetState::Held { at, until, fall_back_at: None };
                    self.show_next(now, effects);
                }
                WidgetState::Up { at, proven, fall_back_at: Some(due) } if due <= now && !settled => {
                    effects.push(Effect::Note(Fact::NotShown { route, attempt }));
                    self.widgets[route].state = WidgetState::Up { at, proven, fall_back_at: None };
                    if !self.show_next(now, effects) {
                        self.start_clock_or_end(now, effects);
                    }
                }
                _ => continue,
            }
            changed = true;
        }
        changed
    }
}
