//! What of an ask lies in its group's folders, as the index remembers it for each look ([`super::looks`]).

use askd_core::{Ask, AskId, RequestId, Taker, Time};

/// What is published of an ask in its group's folders and was not taken yet, and who may come for it.
#[derive(Debug, Clone)]
pub(super) struct Lying {
    pub(super) outcomes: Vec<LyingOutcome>,
    /// Something other than a sign of life can tell whether its session lives.
    pub(super) probe: bool,
    /// The calls of processes that were thought gone.
    pub(super) gone: Vec<GoneCall>,
    /// Until when askd looks whether one of these lives.
    until: Time,
}

/// A call of a process that was thought gone.
#[derive(Debug, Clone)]
pub(super) struct GoneCall {
    pub(super) request_id: RequestId,
    pub(super) process: String,
    /// The outcome can come back to it from the briefing that lies there.
    pub(super) from_briefing: bool,
}

/// A response or briefing that lies there.
#[derive(Debug, Clone)]
pub(super) struct LyingOutcome {
    pub(super) to: Taker,
    pub(super) since: Time,
    /// The process that waits.
    pub(super) process: Option<String>,
    /// It is a file, and not what a call over HTTP fetches.
    pub(super) file: bool,
    /// askd has to act if that process is gone.
    pub(super) judged: bool,
}

impl Lying {
    /// What lies there of an ask, if anything does, or may again.
    pub(super) fn of(ask: &Ask) -> Option<Self> {
        let responses = ask.waiters.iter().filter_map(|waiter| {
            Some(LyingOutcome {
                to: Taker::Waiter(waiter.request_id.clone()),
                since: waiter.response.published_at()?,
                process: waiter.process.clone(),
                file: waiter.carrier.is_file(),
                judged: ask.minds_death_of(waiter),
            })
        });
        let follow_up = ask.follow_up();
        let since = follow_up.briefing.published_at();
        let briefing =
            since.map(|since| LyingOutcome { to: Taker::Briefing, since, process: None, file: true, judged: false });
        let gone = ask.waiters.iter().filter(|waiter| waiter.may_come_back()).filter_map(|waiter| {
            let (request_id, process) = (waiter.request_id.clone(), waiter.process.clone()?);
            Some(GoneCall { request_id, process, from_briefing: ask.can_return_to(waiter) })
        });
        let lying = Self {
            outcomes: responses.chain(briefing).collect(),
            probe: ask.rules.session.probe,
            gone: gone.collect(),
            until: ask.outcome_until().unwrap_or(Time::MAX),
        };
        (lying.lies() || !lying.gone.is_empty()).then_some(lying)
    }

    /// Whether anything lies there.
    pub(super) fn lies(&self) -> bool {
        !self.outcomes.is_empty()
    }

    /// Whether askd has to look what becomes of it.
    pub(super) fn is_watched(&self, now: Time) -> bool {
        self.lies() || self.is_sought(now)
    }

    /// Whether askd looks if the processes that were thought gone live.
    pub(super) fn is_sought(&self, now: Time) -> bool {
        now < self.until
    }

    /// Whether a briefing lies there.
    pub(super) fn is_briefing(&self) -> bool {
        self.outcomes.iter().any(|outcome| outcome.to == Taker::Briefing)
    }
}

/// The asks of which something lies in one group's folders.
pub(in crate::host) type Outcomes = Vec<AskId>;
