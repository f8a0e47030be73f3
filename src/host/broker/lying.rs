//! What of an ask lies in its group's folders, as the index remembers it for each look ([`super::collect`]).

use super::kept;
use askd_core::{AgentStart, Ask, AskId, Taker, Time};

/// What is published of an ask in its group's folders and was not taken yet.
#[derive(Debug, Clone)]
pub(in crate::host) struct Lying {
    pub(super) outcomes: Vec<LyingOutcome>,
    /// Something other than a sign of life can tell whether its session lives.
    pub(super) probe: bool,
    /// Processes that were thought gone, so that their outcome became a briefing, and until when it can come back to their calls.
    pub(super) gone: (Vec<String>, Time),
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
    /// What lies there of an ask, if anything does.
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
        let may_come_back = since.is_some() && follow_up.start != AgentStart::Started;
        let gone = ask.waiters.iter().filter(|waiter| may_come_back && kept::may_come_back(waiter));
        let gone = gone.filter_map(|waiter| waiter.process.clone()).collect();
        let until = ask.outcome_until().unwrap_or(Time::MAX);
        ask.is_watched().then(|| Self {
            outcomes: responses.chain(briefing).collect(),
            probe: ask.rules.session.probe,
            gone: (gone, until),
        })
    }

    /// Whether a briefing lies there.
    pub(super) fn is_briefing(&self) -> bool {
        self.outcomes.iter().any(|outcome| outcome.to == Taker::Briefing)
    }
}

/// What lies in one group's folders.
pub(in crate::host) type Outcomes = Vec<(AskId, Lying)>;
