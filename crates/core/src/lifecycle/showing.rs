//! Getting an ask in front of a person: routes in turn, tries of each, proof of display, and the
//! clock that starts with it. Section 6, items 2 and 3 of the specification.

use super::{
    Card, Context, Effect, Face, Fact, Found, Outcome, Post, Posted, Stage, Widget, WidgetEffect, WidgetState,
};
use crate::{AskState, Cause, Reason, Time, Trouble};
use std::time::Duration;

/// How long after a look that found nothing the next one follows: a history may show a message only then.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// The pause between tries of a route whose retries are used up, while people can answer elsewhere.
const NOW_AND_THEN: Duration = Duration::from_secs(60);
/// The longest wait before another try.
const LONGEST_BACKOFF: Duration = Duration::from_secs(256);

impl AskState {
    /// Starts the next route; `false` if there is none left.
    pub(super) fn show_next(&mut self, cx: &mut Context) -> bool {
        if self.next_routes.is_empty() {
            return false;
        }
        let route = self.widgets.len();
        let mut widget = Widget::new(self.next_routes.remove(0), cx.now);
        if widget.route.capabilities.lists_itself {
            // The channel lists it by itself: it is up as soon as it is stored, and its clock runs.
            widget.up(cx.now, Some(cx.now + self.rules.render_timeout), Face::Open);
            cx.note(Fact::Posted { route, attempt: 1 });
            self.open(cx.now, cx);
        } else {
            widget.queue(route, cx.now, cx.now + self.rules.timeout, cx);
        }
        self.widgets.push(widget);
        true
    }

    /// Starts the answer clock, if it is not running: from `shown_at`, which is never later than now.
    pub(super) fn open(&mut self, shown_at: Time, cx: &mut Context) {
        if self.stage == Stage::Posting {
            let shown_at = shown_at.min(cx.now);
            let answer_by = shown_at + self.rules.timeout;
            self.stage = Stage::Open { shown_at, answer_by, reminders: 0, escalations: 0 };
            cx.act(Effect::Status);
        }
    }

    /// The channel's queue has reached the widget. It counts as sent from the moment this is saved.
    pub(super) fn slot_granted(&mut self, route: usize, cx: &mut Context) -> bool {
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        let WidgetState::Queued { not_before, .. } = widget.state else { return false };
        if cx.now < not_before {
            cx.act(WidgetEffect::Queue { not_before }.on(route));
            return true;
        }
        widget.state = WidgetState::Sent { at: cx.now, render_by: cx.now + self.rules.render_timeout };
        if !widget.route.capabilities.forms {
            widget.sends();
        }
        cx.act(WidgetEffect::Send { attempt: widget.attempt }.on(route));
        true
    }

    pub(super) fn posted(&mut self, route: usize, attempt: u8, posted: Posted, cx: &mut Context) -> bool {
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
                self.up(route, at, vec![message], cx);
                self.prove(route, cx);
            }
            Posted::Accepted(messages, _) => self.up(route, at, messages, cx),
            // A proof came before this reply: it is up, whatever the reply says.
            _ if matches!(widget.state, WidgetState::Up { .. }) => return false,
            Posted::NotPosted { retry_after_millis, trouble } => {
                self.try_again(route, retry_after_millis.map(Duration::from_millis), trouble, cx);
            }
            Posted::Never { trouble, .. } => self.give_up(route, trouble, true, cx),
            Posted::Unknown(_) => self.unknown(route, at, cx),
            Posted::Held(message) => self.hold(route, message, cx),
        }
        true
    }

    /// Part of the card is there: all of its messages may take longer than `render_timeout` at the channel's pace.
    pub(super) fn progress(&mut self, route: usize, attempt: u8, now: Time) -> bool {
        let due = now + self.rules.render_timeout;
        self.widgets.get_mut(route).is_some_and(|widget| widget.attempt == attempt && widget.progress(due))
    }

    /// The channel has the message.
    fn up(&mut self, route: usize, at: Time, messages: Vec<String>, cx: &mut Context) {
        let first_face = self.first_face();
        let widget = &mut self.widgets[route];
        let question = widget.one_by_one.index;
        let mut new = false;
        for message in messages {
            new |= widget.remember(message, question);
        }
        if new {
            cx.note(Fact::Posted { route, attempt: widget.attempt });
        }
        widget.trouble = None;
        match &mut widget.state {
            WidgetState::Up { card, .. } if new && widget.route.capabilities.edits => card.grow(first_face),
            WidgetState::Up { .. } => {}
            WidgetState::Queued { .. }
            | WidgetState::Sent { .. }
            | WidgetState::Unknown { .. }
            | WidgetState::Held { .. }
            | WidgetState::Failed { .. }
            | WidgetState::Closed { .. } => widget.up(at, Some(at + self.rules.render_timeout), first_face),
        }
        // Somebody may have been given more time while it was on its way.
        if self.extended && !self.is_over() {
            self.tell_deadline_on(route, &mut cx.effects);
        }
    }

    pub(super) fn unknown(&mut self, route: usize, at: Time, cx: &mut Context) {
        self.widgets[route].trouble = Some(Trouble::Unknown);
        self.widgets[route].state = WidgetState::Unknown {
            at,
            looks: 0,
            look_at: cx.now + self.widgets[route].looks_for(),
            interrupted: false,
        };
        cx.act(WidgetEffect::Look.on(route));
    }

    pub(super) fn looked(&mut self, route: usize, found: Found, cx: &mut Context) -> bool {
        let waited = self.stage == Stage::Posting;
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        // It took so long that the card is to be posted again: it need not be.
        if let (WidgetState::Queued { .. }, Found::Widget(message)) = (&widget.state, &found) {
            return self.spotted(route, message.clone(), cx);
        }
        let WidgetState::Unknown { at, looks, interrupted, .. } = widget.state else { return false };
        match found {
            Found::Widget(message) => {
                self.up(route, at, vec![message], cx);
                self.prove(route, cx);
                // Its clock starts now, and the card names an earlier deadline.
                if waited {
                    self.tell_deadline_on(route, &mut cx.effects);
                }
            }
            Found::CannotKnow => self.lost(route, interrupted, cx),
            // A channel's history may lag behind. On WhatsApp our own record says that it never left.
            Found::Absent if looks == 0 && widget.route.capabilities.history => {
                widget.state = WidgetState::Unknown { at, looks: 1, look_at: cx.now + LOOK_AGAIN, interrupted };
            }
            // The second look is not due yet.
            Found::Absent if looks == 1 => return false,
            Found::Absent if interrupted => self.post_again(route, cx),
            Found::Absent => self.try_again(route, None, Trouble::Unknown, cx),
        }
        true
    }

    /// A message of ours was used that may not have been known: it is up, and will be closed too.
    pub(super) fn spotted(&mut self, route: usize, message: String, cx: &mut Context) -> bool {
        let first_face = self.first_face();
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        if widget.knows(&message) {
            return false;
        }
        cx.note(Fact::Posted { route, attempt: widget.attempt });
        // The newest message stays the card that people use.
        let at = widget.posts.len().saturating_sub(1);
        widget.posts.insert(at, Post { message_id: message, question: widget.one_by_one.index, invitation: false });
        if let Some(card) = widget.state.card_mut() {
            card.grow(first_face);
        } else {
            widget.up(cx.now, None, first_face);
        }
        self.prove(route, cx);
        true
    }

    /// A proof of display; a second one, or one for what is not posted, changes nothing.
    pub(super) fn prove(&mut self, route: usize, cx: &mut Context) -> bool {
        if self.is_over() {
            return false;
        }
        let first_face = self.first_face();
        let Some(widget) = self.widgets.get_mut(route) else { return false };
        let (WidgetState::Up { at, proven: false, .. }
        | WidgetState::Sent { at, .. }
        | WidgetState::Unknown { at, .. }) = widget.state
        else {
            return false;
        };
        let card = widget.state.card().unwrap_or(Card::Shows(first_face));
        widget.state = WidgetState::Up { at, proven: true, fall_back_at: None, card };
        widget.trouble = None;
        widget.one_by_one.seen = true;
        self.confirmed = true;
        cx.note(Fact::Shown { route });
        self.open(cx.now, cx);
        true
    }

    /// Certainly not up: post again, or give the route up.
    pub(super) fn try_again(
        &mut self,
        route: usize,
        retry_after: Option<Duration>,
        trouble: Trouble,
        cx: &mut Context,
    ) {
        if self.is_over() {
            return self.over(route, cx.now);
        }
        let tries = self.widgets[route].tries();
        if tries > self.rules.max_retries {
            return self.used_up(route, trouble, cx);
        }
        // A longer pause than people have would keep the ask from its other routes.
        if retry_after > Some(self.rules.timeout) && !self.goes_on_unshown() {
            return self.give_up(route, trouble, true, cx);
        }
        let widget = &mut self.widgets[route];
        cx.note(Fact::NotShown { route, attempt: widget.attempt });
        widget.trouble = Some(trouble);
        let backoff = Duration::from_secs(4_u64.saturating_pow(u32::from(tries) - 1)).min(LONGEST_BACKOFF);
        let not_before = cx.now + backoff.max(retry_after.unwrap_or_default());
        widget.attempt = widget.attempt.saturating_add(1);
        widget.queue(route, not_before, not_before + self.rules.timeout, cx);
    }

    /// A page in view displays the ask: its clock starts, and it is not undeliverable. This proves nothing for its routes.
    pub(super) fn view(&mut self, cx: &mut Context) -> bool {
        if self.outcome().is_some() || self.viewed {
            return false;
        }
        self.viewed = true;
        self.open(cx.now, cx);
        true
    }

    /// The route was posted as often as allowed. An ask that a page has displayed goes on, as does a block that stands, and its
    /// route is tried now and then.
    fn used_up(&mut self, route: usize, trouble: Trouble, cx: &mut Context) {
        if !self.goes_on_unshown() {
            return self.give_up(route, trouble, false, cx);
        }
        let counted = self.counts(route);
        let last = self.rules.max_retries.saturating_add(1);
        let widget = &mut self.widgets[route];
        if counted {
            cx.note(Fact::NotShown { route, attempt: widget.attempt });
        }
        let not_before = cx.now + NOW_AND_THEN;
        widget.trouble = Some(trouble);
        widget.attempt = widget.one_by_one.first_attempt.max(1).saturating_add(last);
        widget.queue(route, not_before, not_before + self.rules.timeout, cx);
        if counted {
            self.show_next(cx);
        }
    }

    /// Whether the current try is one of those that `maxRetries` allows; other tries carry no number.
    pub fn counts(&self, route: usize) -> bool {
        self.widgets.get(route).is_none_or(|widget| widget.tries() <= self.rules.max_retries.saturating_add(1))
    }

    /// Nothing of this route is up, nor will be: on to the next one.
    pub(super) fn give_up(&mut self, route: usize, trouble: Trouble, for_good: bool, cx: &mut Context) {
        let settled = self.is_over();
        let widget = &mut self.widgets[route];
        widget.trouble = Some(trouble);
        cx.note(Fact::NotShown { route, attempt: widget.attempt });
        widget.state = WidgetState::Failed { for_good };
        if settled {
            self.over(route, cx.now);
        } else if !self.show_next(cx) {
            self.start_clock_or_end(cx);
        }
    }

    /// No route is left to try. If something was accepted, its clock runs from then; if something
    /// may still come up, that is waited for; else the agent is told at once.
    pub(super) fn start_clock_or_end(&mut self, cx: &mut Context) {
        if self.stage != Stage::Posting {
            let gone = |route: usize| {
                let state = &self.widgets[route].state;
                matches!(state, WidgetState::Failed { .. } | WidgetState::Closed { .. }) && !self.is_with_others(route)
            };
            if self.outcome().is_none() && !self.viewed && (0..self.widgets.len()).all(gone) {
                self.settle(Outcome::Undelivered { cause: self.cause() }, cx);
            }
            return;
        }
        let (mut accepted, mut held) = (Vec::new(), false);
        for widget in &self.widgets {
            match widget.state {
                WidgetState::Queued { .. }
                | WidgetState::Sent { .. }
                | WidgetState::Unknown { .. }
                | WidgetState::Up { fall_back_at: Some(_), .. } => return,
                WidgetState::Up { at, .. } => accepted.push(at),
                WidgetState::Held { .. } => held = true,
                WidgetState::Failed { .. } | WidgetState::Closed { .. } => {}
            }
        }
        match accepted.into_iter().min() {
            Some(earliest) => self.open(earliest, cx),
            None if held => {}
            None => self.settle(Outcome::Undelivered { cause: self.cause() }, cx),
        }
    }

    fn cause(&self) -> Cause {
        let lasts = |widget: &Widget| matches!(widget.state, WidgetState::Failed { for_good: true });
        let retried = self.widgets.iter().position(|widget| !lasts(widget));
        let reason = self.widgets[retried.unwrap_or(0)].reason();
        Cause { retries: retried.map(|_| self.rules.max_retries), reason }
    }

    /// The first route that is in trouble and has nothing up.
    pub fn trouble(&self) -> Option<Reason> {
        let shown = |widget: &&Widget| matches!(widget.state, WidgetState::Up { .. } | WidgetState::Closed { .. });
        self.widgets.iter().filter(|widget| !shown(widget)).find_map(Widget::reason)
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
            WidgetState::Up { .. } | WidgetState::Failed { .. } | WidgetState::Closed { .. } => None,
        });
        due.min()
    }

    /// Lets every widget whose time has come act; `true` if one did.
    pub(super) fn tick_widgets(&mut self, cx: &mut Context) -> bool {
        let mut changed = false;
        for route in 0..self.widgets.len() {
            let settled = self.is_over();
            let attempt = self.widgets[route].attempt;
            match self.widgets[route].state.clone() {
                WidgetState::Queued { until, .. } if until <= cx.now => {
                    // It has only waited in line: for the channel's pace, as a rule.
                    let trouble = self.widgets[route].trouble.unwrap_or(Trouble::RateLimited);
                    self.give_up(route, trouble, false, cx);
                }
                WidgetState::Sent { at, render_by } if render_by <= cx.now => {
                    cx.note(Fact::NotShown { route, attempt });
                    self.unknown(route, at, cx);
                }
                WidgetState::Unknown { at, looks: 1, look_at, interrupted } if look_at <= cx.now => {
                    let look_at = cx.now + self.widgets[route].looks_for();
                    self.widgets[route].state = WidgetState::Unknown { at, looks: 2, look_at, interrupted };
                    cx.act(WidgetEffect::Look.on(route));
                }
                WidgetState::Unknown { look_at, interrupted, .. } if look_at <= cx.now => {
                    self.lost(route, interrupted, cx);
                }
                WidgetState::Held { until, .. } if until <= cx.now => {
                    self.give_up(route, Trouble::WindowClosed, true, cx);
                }
                WidgetState::Held { at, until, fall_back_at: Some(due) } if due <= cx.now => {
                    cx.note(Fact::NotShown { route, attempt });
                    self.widgets[route].state = WidgetState::Held { at, until, fall_back_at: None };
                    self.show_next(cx);
                }
                WidgetState::Up { at, proven, fall_back_at: Some(due), card } if due <= cx.now && !settled => {
                    cx.note(Fact::NotShown { route, attempt });
                    self.widgets[route].state = WidgetState::Up { at, proven, fall_back_at: None, card };
                    if !self.show_next(cx) {
                        self.start_clock_or_end(cx);
                    }
                }
                WidgetState::Queued { .. }
                | WidgetState::Sent { .. }
                | WidgetState::Unknown { .. }
                | WidgetState::Up { .. }
                | WidgetState::Held { .. }
                | WidgetState::Failed { .. }
                | WidgetState::Closed { .. } => continue,
            }
            changed = true;
        }
        changed
    }
}
