//! What of an ask lies in its group's folders, as the index remembers it for each look ([`super::collect`]).

use askd_core::{AgentStart, Ask, AskId, RequestId, Taker, Time};

/// What is published of an ask in its group's folders and was not taken yet.
#[derive(Debug, Clone)]
pub(in crate::host) struct Lying {
    pub(super) outcomes: Vec<LyingOutcome>,
    /// Something other than a sign of life can tell whether its session lives.
    pub(super) probe: bool,
    /// Calls whose processes were thought gone, so that their outcome became a briefing, and until when it can come back to them.
    pub(super) gone: (Vec<(RequestId, String)>, Time),
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
        let (follow_up, session) = (ask.follow_up(), &ask.rules.session);
        let since = follow_up.briefing.published_at();
        let briefing =
            since.map(|since| LyingOutcome { to: Taker::Briefing, since, process: None, file: true, judged: false });
        let gone = ask.waiters.iter().filter(|waiter| {
            since.is_some() && follow_up.start != AgentStart::Started && waiter.response.is_taken_back()
        });
        let gone = gone.filter(|waiter| waiter.carrier.is_file() && !waiter.is_withdrawn());
        let gone = gone.filter_map(|waiter| Some((waiter.request_id.clone(), waiter.process.clone()?))).collect();
        let until = since.map_or(Time::MAX, |since| since + session.answer_retention);
        ask.is_watched().then(|| Self {
            outcomes: responses.chain(briefing).collect(),
            probe: session.probe,
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
