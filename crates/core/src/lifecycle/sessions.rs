//! Which runs of the agent know the outcome. Calls of several runs may wait for one ask, and askd tells each run separately:
//! by a response of its own, or by a briefing. Briefings of one ask follow one another.

use super::{AgentStart, Context, Delivery, DeliveryState, Fact, FollowUp, Outcome, Stage, Taker, Waiter};
use crate::{AskState, Time};

impl AskState {
    /// Which run of the agent made that waiter's call, as it said itself.
    pub fn session_of<'a>(&'a self, waiter: &'a Waiter) -> Option<&'a str> {
        waiter.other_session.as_deref().or(self.session.as_deref()).filter(|session| !session.is_empty())
    }

    /// The same waiter, with a session only if it is another one than that of the ask.
    pub(super) fn of_other_session(&self, mut waiter: Waiter) -> Waiter {
        waiter.other_session.take_if(|own| own == self.session.as_deref().unwrap_or_default());
        waiter
    }

    fn has_several_sessions(&self) -> bool {
        self.waiters.iter().any(|waiter| waiter.other_session.is_some())
    }

    pub(super) fn any_of_session(&self, of: &Waiter, is: impl Fn(&Waiter) -> bool) -> bool {
        self.waiters.iter().any(|waiter| self.session_of(waiter) == self.session_of(of) && is(waiter))
    }

    /// Whether the current briefing (owed, published or read) is for this waiter's session.
    pub fn briefs(&self, waiter: &Waiter) -> bool {
        let FollowUp { briefing, briefings, .. } = self.follow_up();
        let its = !self.has_several_sessions() || waiter.briefed == Some(*briefings);
        its && briefing.state() != DeliveryState::Undecided
    }

    /// Whether an earlier briefing was for this waiter's session, and was read.
    fn was_briefed(&self, waiter: &Waiter) -> bool {
        waiter.briefed.is_some_and(|nth| nth < self.follow_up().briefings)
    }

    /// Whose session the briefing is for.
    pub fn briefed_waiter(&self) -> Option<&Waiter> {
        self.waiters.iter().find(|waiter| waiter.waits() && self.briefs(waiter)).or(self.waiters.first())
    }

    fn has_taken(&self, waiter: &Waiter) -> bool {
        waiter.response.is_taken() && self.is_told_all(waiter)
    }

    /// Whether the waiter's session knows the outcome.
    fn is_told(&self, of: &Waiter) -> bool {
        let read = self.follow_up().briefing.is_taken();
        self.any_of_session(of, |it| self.has_taken(it) || self.was_briefed(it) || (read && self.briefs(it)))
    }

    /// Whether a call or a briefing tells the waiter's session the outcome, or has.
    pub(super) fn is_served(&self, of: &Waiter) -> bool {
        let responds = |it: &Waiter| self.is_told_all(it) && !it.response.is_taken_back();
        self.any_of_session(of, |it| responds(it) || self.was_briefed(it) || self.briefs(it))
    }

    /// Whether nobody at all knows the outcome.
    pub(super) fn is_told_to_none(&self) -> bool {
        !self.waiters.iter().any(|waiter| self.is_told(waiter))
    }

    /// Whether a session that waits for the outcome does not know it.
    pub fn is_untaken(&self) -> bool {
        self.has_tellable_outcome() && self.waiters.iter().any(|waiter| waiter.waits() && !self.is_told(waiter))
    }

    fn has_tellable_outcome(&self) -> bool {
        !matches!(self.outcome(), None | Some(Outcome::Withdrawn { .. } | Outcome::Blocked { .. }))
    }

    /// Until when the outcome is kept for a call that asks the same.
    pub fn outcome_until(&self) -> Option<Time> {
        let Stage::Settled { at, .. } = &self.stage else { return None };
        Some(self.said_at(*at) + self.rules.session.answer_retention)
    }

    fn is_in_retention(&self, now: Time) -> bool {
        self.outcome_until().is_some_and(|until| now < until)
    }

    /// Whether the outcome is kept for some session.
    pub(super) fn is_kept(&self, now: Time) -> bool {
        self.is_in_retention(now) && self.is_untaken()
    }

    /// Whether a call of this session that asks the same is given the outcome: either nobody knows the outcome yet, or this
    /// session waits for it and does not know it.
    pub fn keeps_outcome(&self, now: Time, session: Option<&str>) -> bool {
        // While another session's briefing is unread, askd briefs this one next.
        let free = self.is_briefing_over();
        let lacks = |waiter: &Waiter| {
            let its = free || self.briefs(waiter);
            self.session_of(waiter) == session && waiter.waits() && its && !self.is_told(waiter)
        };
        self.is_kept(now) && (self.is_told_to_none() || self.waiters.iter().any(lacks))
    }

    /// One more call is given the outcome that no call took.
    pub(super) fn join_settled(&mut self, waiter: Waiter, cx: &mut Context) -> bool {
        self.keeps_outcome(cx.now, self.session_of(&waiter)) && self.give_to(waiter, cx)
    }

    /// Whether a call that waited for the outcome while another call was given it is given it, too, once it is free.
    pub fn shares_outcome(&self, now: Time) -> bool {
        self.is_in_retention(now) && self.has_tellable_outcome()
    }

    /// One more call is given the outcome that another one got while both waited for it.
    pub(super) fn share(&mut self, waiter: Waiter, cx: &mut Context) -> bool {
        self.shares_outcome(cx.now) && self.give_to(waiter, cx)
    }

    fn give_to(&mut self, mut waiter: Waiter, cx: &mut Context) -> bool {
        if !self.is_free() || self.waiter(&waiter.request_id).is_some() {
            return false;
        }
        let (alone, session) = (self.is_told_to_none(), self.session_of(&waiter).map(str::to_owned));
        let request_id = waiter.request_id.clone();
        waiter.told = self.told_now();
        waiter.response = Delivery::default();
        if !self.seat(waiter, cx) {
            return false;
        }
        cx.note(Fact::Joined(request_id.clone()));
        // This call got the outcome, so calls of other sessions that were taken back do not wait for it any more.
        for index in 0..self.waiters.len() {
            let other = self.session_of(&self.waiters[index]) != session.as_deref();
            self.waiters[index].replaced |= alone && other && self.waiters[index].response.is_taken_back();
        }
        // What another session has read stays read.
        if !self.follow_up().briefing.is_taken() {
            self.unbrief();
        }
        self.change(|follow_up| follow_up.overdue = false);
        self.owe_response(request_id, cx);
        self.tidy(cx);
        true
    }

    /// Whether such a call can take the outcome away from this waiter. Once any session knows the outcome, a call can take it
    /// from waiters of its own session only.
    pub fn makes_way_for(&self, waiter: &Waiter, session: Option<&str>) -> bool {
        self.is_told_to_none() || self.session_of(waiter) == session
    }

    /// Whether the waiter's session knows the outcome from a briefing: it was read, or the agent was started with it.
    pub fn is_told_elsewhere(&self, waiter: &Waiter) -> bool {
        let FollowUp { briefing, start, .. } = self.follow_up();
        let started = *start == AgentStart::Started;
        let told =
            briefing.is_taken() || started && (briefing.is_published() || briefing.state() == DeliveryState::Owed);
        self.was_briefed(waiter) || told && self.briefs(waiter)
    }

    /// Whether there is no briefing for the waiter's session, and none before.
    pub fn is_not_briefed(&self, waiter: &Waiter) -> bool {
        !self.briefs(waiter) && !self.was_briefed(waiter)
    }

    /// Whether the briefing of its session lies there and can come back to this call.
    pub fn can_return_to(&self, waiter: &Waiter) -> bool {
        let untold = self.has_briefing() && self.follow_up().start != AgentStart::Started;
        untold && waiter.may_come_back() && self.briefs(waiter)
    }

    /// Since when the current briefing lies there, if there was one for another session before.
    pub fn briefed_after_another(&self) -> Option<Time> {
        self.follow_up().briefing.published_at().filter(|_| self.waiters.iter().any(|waiter| self.was_briefed(waiter)))
    }

    /// Briefs the next session that would not learn the outcome otherwise; `false` if there is none, or another briefing is unread.
    pub(super) fn brief_next(&mut self, cx: &mut Context) -> bool {
        let Some(index) = self.unserved().filter(|_| self.is_briefing_over()) else { return false };
        self.brief(index, cx);
        true
    }

    /// Whether there is no briefing, or it was read.
    pub(super) fn is_briefing_over(&self) -> bool {
        matches!(self.follow_up().briefing.state(), DeliveryState::Undecided | DeliveryState::Taken)
    }

    fn unserved(&self) -> Option<usize> {
        let lacks = |waiter: &Waiter| waiter.response.is_taken_back() || !self.is_told_all(waiter);
        let unserved = |waiter: &Waiter| waiter.waits() && lacks(waiter) && !self.is_served(waiter);
        self.has_tellable_outcome().then(|| self.waiters.iter().position(unserved)).flatten()
    }

    /// Writes down what the agent reads at its next start in the session of this waiter.
    pub(super) fn brief(&mut self, index: usize, cx: &mut Context) {
        let Some(follow_up) = self.follow_up_mut() else { return };
        follow_up.start = AgentStart::NotTried;
        follow_up.briefings += 1;
        let nth = follow_up.briefings;
        cx.act(follow_up.briefing.owe().to(Taker::Briefing));
        self.brief_session_of(index, nth);
    }

    /// The current briefing is for the session of this waiter.
    pub(super) fn brief_session_of(&mut self, index: usize, nth: u32) {
        if !self.has_several_sessions() {
            return;
        }
        let session = self.session_of(&self.waiters[index]).map(str::to_owned);
        for index in 0..self.waiters.len() {
            if self.session_of(&self.waiters[index]) == session.as_deref() {
                self.waiters[index].briefed = Some(nth);
            }
        }
    }

    /// Forgets the current briefing: the session that it was for counts as not briefed.
    pub(super) fn unbrief(&mut self) {
        let nth = self.follow_up().briefings;
        self.change(|follow_up| follow_up.briefing = Delivery::UNDECIDED);
        for waiter in &mut self.waiters {
            waiter.briefed.take_if(|briefed| *briefed == nth);
        }
    }
}
