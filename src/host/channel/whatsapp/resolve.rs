//! Which question a message is about, from how it names the question and when the platform received it. Pure.
//!
//! A tap or a quote names its question, and that is proof. Any other message can mean only a question that the platform
//! had sent to that person before it received the message. In doubt, askd asks which one.

use askd_core::Time;
use std::time::Duration;

/// A phone that was off for longer may send words that were written before it showed the question.
const SLOW: Duration = Duration::from_secs(30);
/// A message may be older than the question that it meets by this much more than the clocks differ.
pub(super) const TOLERANCE: Duration = Duration::from_secs(5);
/// How long after such a question was delivered askd asks whether a reply was meant for it.
const JUST_DELIVERED: Duration = Duration::from_secs(10);

/// What is known of a message before its words are read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Message<'a> {
    /// The message of ours that it quotes, or that was tapped.
    pub(super) quotes: Option<&'a str>,
    /// It quotes a message of an ask that does not ask this person.
    pub(super) quotes_another: bool,
    /// The code that it begins with, if it may be one.
    pub(super) code: Option<&'a str>,
    /// When the platform received it; `None`: unknown, so it may be older than any question.
    pub(super) at: Option<Time>,
    /// A message of this person that the platform received no earlier has been dealt with already.
    pub(super) overtaken: bool,
}

/// An ask that this person may mean, at their next question.
#[derive(Debug, Clone, Default)]
pub(super) struct Candidate<'a> {
    pub(super) code: &'a str,
    /// The ids of our messages about it.
    pub(super) messages: Vec<&'a str>,
    /// It may have a message whose id we do not know yet, which only a message received later than this can quote.
    pub(super) unnamed_since: Option<Time>,
    /// Its question is on its way, or was sent.
    pub(super) begun: bool,
    /// The dates that are known leave open whether the platform received the message before it sent the question. By then the ask
    /// had not ended for certain.
    pub(super) doubtful: bool,
    pub(super) fit: Fit,
    /// The person may have seen its code.
    pub(super) code_seen: bool,
    pub(super) times: Times,
    pub(super) state: State,
}

/// What the message as a whole is to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Fit {
    /// It neither answers nor dismisses it.
    #[default]
    No,
    /// It answers or dismisses it.
    Answer,
    /// It is nothing but the name of one of the options.
    Label,
}

/// When a question was sent. All times are by the platform's clock.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// When our call began.
    pub(super) called: Option<Time>,
    /// Only a message received later can be about it; `None`: only one that quotes or taps it.
    pub(super) since: Option<Time>,
    /// When the platform itself says that it sent the question.
    pub(super) sent: Option<Time>,
    pub(super) delivered: Option<Time>,
}

/// Where an ask is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum State {
    #[default]
    Open,
    /// It has ended and can still be answered.
    Late { at: Time },
    /// It has ended; `theirs`: by a message of this same person.
    Ended { at: Time, theirs: bool },
}

/// What a message is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// This one.
    One(usize),
    /// This one, if the person confirms it: the phone may have been off when they wrote.
    Confirm(usize),
    /// This one, which was open when the platform received the message. It has ended since, and nothing else is open.
    Overtaken(usize),
    /// One of these, but the platform received the message before it had sent them.
    Before(Vec<usize>),
    /// One of these; ask the person which.
    Which(Vec<usize>),
    /// One of these, and a status will say which: the message quotes one whose id we do not know yet.
    Unnamed(Vec<usize>),
    /// None.
    Nothing,
}

/// See the module.
pub(super) fn resolve(message: &Message<'_>, candidates: &[Candidate<'_>]) -> Target {
    let coded = match message.code.map(|code| coded(message, code, candidates)) {
        Some(Target::One(at)) => Some(at),
        Some(doubt @ Target::Which(_)) if message.quotes.is_none() => return doubt,
        Some(_) | None => None,
    };
    let Some(quoted) = message.quotes else {
        return coded.map_or_else(|| unnamed(message, candidates), |at| judged(message, at, candidates));
    };
    let known = candidates.iter().position(|candidate| candidate.messages.contains(&quoted));
    let (nameless, newer) = if known.is_some() { <_>::default() } else { nameless(message, candidates) };
    let only = match nameless.as_slice() {
        [only] => Some(*only),
        several => coded.filter(|coded| several.contains(coded)),
    };
    match (known.or(only), coded) {
        (Some(at), Some(other))
            if at != other && candidates[at].fit != Fit::Label && !candidates[other].has_ended() =>
        {
            Target::Which(vec![at, other])
        }
        (Some(at), _) => Target::One(at),
        (None, Some(at)) => judged(message, at, candidates),
        (None, None) if !nameless.is_empty() => Target::Unnamed(nameless),
        // It quotes an unknown message, so it may be about any open question.
        (None, None) => match eligible(message, candidates) {
            open if open.is_empty() && newer.is_empty() => Target::Nothing,
            open if open.is_empty() => Target::Which(newer),
            open => Target::Which(open),
        },
    }
}

impl Candidate<'_> {
    fn has_ended(&self) -> bool {
        matches!(self.state, State::Ended { .. })
    }

    /// Whether the platform had sent the question before it received the message.
    fn was_there(&self, message: &Message<'_>) -> bool {
        came_after(message.at, self.times.since)
    }

    /// Whether it has ended since the platform received the message, which may have been meant for it.
    fn was_meant(&self, message: &Message<'_>) -> bool {
        self.state != State::Open
            && (self.doubtful || self.was_there(message) && self.state.was_open(message, Duration::ZERO))
    }
}

impl State {
    /// Whether it may have been open when the message was received, by clocks that differ by at most that much. Those who
    /// ended it themselves mean it no more, unless what ended it has overtaken the message.
    pub(super) fn was_open(self, message: &Message<'_>, tolerance: Duration) -> bool {
        match self {
            Self::Ended { theirs: true, .. } if !message.overtaken => false,
            Self::Late { at } | Self::Ended { at, .. } => message.at.is_some_and(|received| received <= at + tolerance),
            Self::Open => true,
        }
    }
}

/// The open ones that the message can mean: they had been sent before it, or may have been.
fn eligible(message: &Message<'_>, candidates: &[Candidate<'_>]) -> Vec<usize> {
    let there = |candidate: &Candidate<'_>| candidate.doubtful || candidate.was_there(message);
    let open = |at: &usize| candidates[*at].state == State::Open && there(&candidates[*at]);
    (0..candidates.len()).filter(open).collect()
}

/// The ask with that code: an open one, else one that can still be answered, else the one that ended last. `Nothing`: the
/// word is no code.
fn coded(message: &Message<'_>, code: &str, candidates: &[Candidate<'_>]) -> Target {
    let rank = |candidate: &Candidate<'_>| match candidate.state {
        State::Open => (2, None),
        State::Late { at } => (1, Some(at)),
        State::Ended { at, .. } => (0, Some(at)),
    };
    // The answer to an open question may begin with what looks like its code.
    let names = |candidate: &Candidate<'_>| candidate.state != State::Open || candidate.code_seen;
    let of = candidates.iter().enumerate().filter(|(_, candidate)| candidate.code == code && names(candidate));
    let Some((at, found)) = of.max_by_key(|(_, candidate)| rank(candidate)) else { return Target::Nothing };
    // The answer to an open question may begin with what looks like an old code.
    let open = eligible(message, candidates);
    if !found.has_ended() || !open.iter().any(|at| candidates[*at].fit != Fit::No) {
        Target::One(at)
    } else if found.code_seen && !open.iter().any(|at| candidates[*at].fit == Fit::Label) {
        Target::Which(open)
    } else {
        Target::Nothing
    }
}

/// Whether the platform received a message later than that; in doubt not.
pub(super) fn came_after(received: Option<Time>, since: Option<Time>) -> bool {
    received.zip(since).is_some_and(|(received, since)| received > since)
}

/// The open ones with a message whose id we do not know yet: the message must quote one of these. First those that it can
/// quote for certain, then those that seem to have been sent after it.
fn nameless(message: &Message<'_>, candidates: &[Candidate<'_>]) -> (Vec<usize>, Vec<usize>) {
    let open = |at: &usize| candidates[*at].state == State::Open && candidates[*at].unnamed_since.is_some();
    let named = (0..candidates.len()).filter(|at| open(at) && !message.quotes_another);
    named.partition(|at| came_after(message.at, candidates[*at].unnamed_since))
}

/// The target of a message that names this ask by its code.
fn judged(message: &Message<'_>, at: usize, candidates: &[Candidate<'_>]) -> Target {
    let candidate = &candidates[at];
    match candidate.state {
        State::Ended { .. } => Target::One(at),
        State::Late { .. } if candidate.was_there(message) => Target::One(at),
        State::Open if candidate.was_there(message) => sure(message, at, candidates),
        _ if candidate.begun => Target::Before(vec![at]),
        _ => Target::Nothing,
    }
}

/// The target of a message that names no question: the only open one that had been sent before it. Where only one can be meant, the
/// dates decide, however exact they are.
fn unnamed(message: &Message<'_>, candidates: &[Candidate<'_>]) -> Target {
    let eligible = eligible(message, candidates);
    let had_left = eligible.iter().any(|at| candidates[*at].was_there(message));
    match eligible.as_slice() {
        [at] if had_left && !candidates.iter().any(|other| other.was_meant(message)) => sure(message, *at, candidates),
        _ if had_left => Target::Which(eligible),
        _ => {
            let begun = |(_, candidate): &(usize, &Candidate<'_>)| candidate.state == State::Open && candidate.begun;
            let before: Vec<usize> = candidates.iter().enumerate().filter(begun).map(|(at, _)| at).collect();
            if !before.is_empty() {
                return Target::Before(before);
            }
            let overtaken = |other: &&Candidate<'_>| other.was_meant(message);
            match candidates.iter().filter(overtaken).count() {
                1 => candidates.iter().position(|other| overtaken(&other)).map_or(Target::Nothing, Target::Overtaken),
                _ => Target::Nothing,
            }
        }
    }
}

/// The target if the question had been sent; it may not have been on the phone when the person wrote.
fn sure(message: &Message<'_>, at: usize, candidates: &[Candidate<'_>]) -> Target {
    let Times { called, sent, delivered, since } = candidates[at].times;
    let (Some(received), Some(began)) = (message.at, sent.or(since)) else { return Target::One(at) };
    let under_way_until = match delivered {
        Some(delivered) if received > delivered + JUST_DELIVERED => return Target::One(at),
        Some(delivered) => delivered,
        // Only if the platform sends statuses at all: the status may come after the message.
        None if sent.is_some() => received,
        None => return Target::One(at),
    };
    let called = called.unwrap_or(began);
    let meanwhile = |time: Option<Time>| time.is_some_and(|time| called < time && time < under_way_until);
    let crossed = candidates.iter().enumerate().any(|(other, candidate)| {
        let ended = match candidate.state {
            State::Open => None,
            State::Late { at } | State::Ended { at, .. } => Some(at),
        };
        other != at && (meanwhile(ended) || meanwhile(candidate.times.called))
    });
    let slow = under_way_until.since(began) > SLOW;
    if slow || crossed { Target::Confirm(at) } else { Target::One(at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: i64) -> Time {
        Time::from_millis(1_790_000_000_000 + seconds * 1000)
    }

    /// A question that was sent at that second and delivered in the next one.
    fn sent<'a>(code: &'a str, messages: &[&'a str], seconds: i64) -> Candidate<'a> {
        let (sent, called) = (Some(at(seconds)), Some(at(seconds) - Duration::from_millis(300)));
        let times = Times { called, since: sent, sent, delivered: Some(at(seconds + 1)) };
        Candidate { code, messages: messages.to_vec(), begun: true, code_seen: true, times, ..Candidate::default() }
    }

    fn ended<'a>(code: &'a str, messages: &[&'a str], seconds: i64, end: i64, theirs: bool) -> Candidate<'a> {
        Candidate { state: State::Ended { at: at(end), theirs }, code_seen: false, ..sent(code, messages, seconds) }
    }

    fn words(seconds: i64) -> Message<'static> {
        Message { at: Some(at(seconds)), ..Message::default() }
    }

    fn coded_at(code: &'static str, seconds: i64) -> Message<'static> {
        Message { code: Some(code), ..words(seconds) }
    }

    fn quoting(id: &'static str, seconds: i64) -> Message<'static> {
        Message { quotes: Some(id), ..words(seconds) }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn what_a_message_means() {
        use Target::{Before, Confirm, Nothing, One, Overtaken, Unnamed, Which};
        let a = || sent("k7", &["a1", "a2"], 0);
        let b = || sent("m3", &["b1"], 100);
        let unsent = || Candidate { times: Times::default(), begun: false, ..a() };
        let on_its_way = || Candidate { begun: true, unnamed_since: Some(at(0)), ..unsent() };
        let late = || Candidate { state: State::Late { at: at(50) }, ..a() };
        let takes = || Candidate { fit: Fit::Answer, ..b() };
        let seen = || Candidate { code_seen: true, ..ended("k7", &["a1"], 0, 60, true) };
        let slow = |delivered: Option<i64>| {
            let times = Times { delivered: delivered.map(at), ..a().times };
            Candidate { times, ..a() }
        };
        let doubtful = |since: i64| {
            let times = Times { called: Some(at(18)), since: Some(at(since)), sent: None, delivered: None };
            Candidate { times, doubtful: true, ..b() }
        };
        let over = |since: i64, end: i64| {
            let state = State::Ended { at: at(end), theirs: false };
            Candidate { state, ..doubtful(since) }
        };
        let reckoned = || Candidate { times: Times { sent: None, delivered: None, ..a().times }, ..a() };
        let table: Vec<(&str, Message<'_>, Vec<Candidate<'_>>, Target)> = vec![
            ("the only open one", words(20), vec![a()], One(0)),
            ("in the same second as it was sent", words(0), vec![a()], Before(vec![0])),
            (
                "in the second after",
                words(1),
                vec![Candidate { times: Times { delivered: None, ..a().times }, ..a() }],
                One(0),
            ),
            ("an hour before", words(-3600), vec![a()], Before(vec![0])),
            ("without a time", Message::default(), vec![a()], Before(vec![0])),
            ("nothing is open", words(20), vec![], Nothing),
            ("two are open", words(200), vec![a(), b()], Which(vec![0, 1])),
            ("two are open, one is newer than the message", words(20), vec![a(), b()], One(0)),
            ("both are newer", words(-5), vec![a(), b()], Before(vec![0, 1])),
            (
                "another one was open when it was written",
                words(150),
                vec![b(), ended("k7", &["a1"], 0, 160, false)],
                Which(vec![0]),
            ),
            ("another one had ended by then", words(150), vec![b(), ended("k7", &["a1"], 0, 149, false)], One(0)),
            ("they ended the other one themselves", words(150), vec![b(), ended("k7", &["a1"], 0, 160, true)], One(0)),
            (
                "the same, and the end has overtaken the message",
                Message { overtaken: true, ..words(150) },
                vec![b(), ended("k7", &["a1"], 0, 160, true)],
                Which(vec![0]),
            ),
            (
                "another message has overtaken it, the end was before",
                Message { overtaken: true, ..words(150) },
                vec![b(), ended("k7", &["a1"], 0, 149, true)],
                One(0),
            ),
            ("the other one was asked later", words(120), vec![b(), ended("k7", &["a1"], 130, 160, false)], One(0)),
            (
                "the one it was for has ended, the next is newer",
                words(20),
                vec![b(), ended("k7", &["a1"], 0, 60, false)],
                Before(vec![0]),
            ),
            ("it has ended meanwhile", words(20), vec![ended("k7", &["a1"], 0, 60, false)], Overtaken(0)),
            ("the same, and it can be answered late", words(20), vec![late()], Overtaken(0)),
            ("they ended it themselves", words(20), vec![ended("k7", &["a1"], 0, 60, true)], Nothing),
            ("all had ended by then", words(70), vec![ended("k7", &["a1"], 0, 60, false)], Nothing),
            (
                "two have ended meanwhile",
                words(150),
                vec![ended("k7", &["a1"], 0, 160, false), ended("m3", &["b1"], 100, 160, false)],
                Nothing,
            ),
            ("in doubt, and no other can be meant", words(20), vec![doubtful(10)], One(0)),
            ("the same, and the dates say no", words(20), vec![doubtful(22)], Before(vec![0])),
            ("the same with a code", coded_at("m3", 20), vec![a(), doubtful(22)], Before(vec![1])),
            ("in doubt, and another can be meant", words(20), vec![a(), doubtful(22)], Which(vec![0, 1])),
            (
                "the same, and only that one had not left",
                words(20),
                vec![doubtful(10), doubtful(22)],
                Which(vec![0, 1]),
            ),
            ("neither had left", words(20), vec![doubtful(22), doubtful(23)], Before(vec![0, 1])),
            ("one in doubt has ended meanwhile", words(20), vec![a(), over(22, 19)], Which(vec![0])),
            ("it was the only one", words(20), vec![over(22, 30)], Overtaken(0)),
            ("not known to have left", words(20), vec![on_its_way()], Before(vec![0])),
            ("waits in our own queue", words(20), vec![unsent()], Nothing),
            ("a quote, from before", quoting("a1", -3600), vec![a(), b()], One(0)),
            ("a quote of what is not known to have left", quoting("a2", 20), vec![on_its_way(), b()], One(0)),
            ("a quote of what nothing has named yet", quoting("x", 20), vec![on_its_way(), b()], One(0)),
            ("the same, from before", quoting("x", 0), vec![on_its_way(), b()], Which(vec![0])),
            (
                "a quote of one of two, and the other was sent later",
                quoting("x", 20),
                vec![on_its_way(), Candidate { unnamed_since: Some(at(20)), ..on_its_way() }],
                One(0),
            ),
            (
                "a quote of one of two that nothing has named yet",
                quoting("x", 20),
                vec![on_its_way(), b(), Candidate { code: "q9", ..on_its_way() }],
                Unnamed(vec![0, 2]),
            ),
            (
                "the same with a code",
                Message { code: Some("q9"), ..quoting("x", 20) },
                vec![on_its_way(), b(), Candidate { code: "q9", ..on_its_way() }],
                One(2),
            ),
            ("a quote of what is not known", quoting("x", 200), vec![a(), b()], Which(vec![0, 1])),
            ("the same, from before", quoting("x", -20), vec![a(), b()], Nothing),
            ("a quote of what has ended", quoting("a1", 20), vec![b(), ended("k7", &["a1"], 0, 60, false)], One(1)),
            (
                "quote and code differ",
                Message { code: Some("m3"), ..quoting("a1", 200) },
                vec![a(), b()],
                Which(vec![0, 1]),
            ),
            ("quote and code agree", Message { code: Some("k7"), ..quoting("a1", -200) }, vec![a(), b()], One(0)),
            ("a code", coded_at("m3", 200), vec![a(), b()], One(1)),
            ("a code, from before", coded_at("m3", 100), vec![a(), b()], Before(vec![1])),
            ("a code of what is not known to have left", coded_at("k7", 20), vec![on_its_way()], Before(vec![0])),
            ("a code of what can be answered late", coded_at("k7", 200), vec![b(), late()], One(1)),
            ("late, from before", coded_at("k7", 0), vec![late()], Before(vec![0])),
            ("late without a code", words(200), vec![late()], Nothing),
            (
                "one that ended later has the same code",
                coded_at("k7", 900),
                vec![ended("k7", &[], 700, 800, false), late()],
                One(1),
            ),
            (
                "of two that ended the last",
                coded_at("k7", 900),
                vec![ended("k7", &[], 1, 5, false), ended("k7", &[], 7, 9, false)],
                One(1),
            ),
            (
                "words that begin with an old code that was never shown",
                coded_at("k7", 900),
                vec![takes(), ended("k7", &["a1"], 0, 60, true)],
                One(0),
            ),
            (
                "words that begin with an old code that was shown",
                coded_at("k7", 900),
                vec![takes(), seen()],
                Which(vec![0]),
            ),
            ("the same, and it is no answer to what is open", coded_at("k7", 900), vec![b(), seen()], One(1)),
            ("the same, and what is open was asked later", coded_at("k7", 70), vec![takes(), seen()], One(1)),
            (
                "an option that looks like an old code",
                coded_at("k7", 900),
                vec![Candidate { fit: Fit::Label, ..b() }, ended("k7", &[], 1, 5, false)],
                One(0),
            ),
            ("the phone was off for 30 s", words(35), vec![slow(Some(30))], One(0)),
            ("for longer", words(35), vec![slow(Some(31))], Confirm(0)),
            (
                "its own code, which was never shown",
                coded_at("k7", 20),
                vec![Candidate { code_seen: false, ..a() }, Candidate { code_seen: false, ..sent("m3", &[], 1) }],
                Which(vec![0, 1]),
            ),
            ("for longer, with a code", coded_at("k7", 35), vec![slow(Some(31))], Confirm(0)),
            ("for longer, quoting", quoting("a1", 35), vec![slow(Some(31))], One(0)),
            ("for longer, 10 s after", words(41), vec![slow(Some(31))], Confirm(0)),
            ("for longer, 11 s after", words(42), vec![slow(Some(31))], One(0)),
            ("still off, as far as is told", words(40), vec![slow(None)], Confirm(0)),
            ("the platform tells nothing", words(40), vec![reckoned()], One(0)),
            (
                "another one ended while it was under way",
                words(20),
                vec![slow(Some(15)), ended("m3", &["b1"], -60, 5, true)],
                Confirm(0),
            ),
            ("another one ended before", words(20), vec![slow(Some(15)), ended("m3", &["b1"], -60, -5, true)], One(0)),
            (
                "another one was asked while it was under way",
                words(20),
                vec![slow(Some(15)), Candidate { state: State::Open, ..sent("m3", &[], 5) }],
                Which(vec![0, 1]),
            ),
            ("the same, with its code", coded_at("k7", 20), vec![slow(Some(15)), sent("m3", &[], 5)], Confirm(0)),
        ];
        for (what, message, candidates, target) in table {
            assert_eq!(resolve(&message, &candidates), target, "{what}");
        }
    }

    fn time() -> impl Strategy<Value = Option<Time>> {
        proptest::option::weighted(0.8, (0..90_i64).prop_map(at))
    }

    fn candidate() -> impl Strategy<Value = Candidate<'static>> {
        let state = prop_oneof![
            3 => Just(State::Open),
            1 => (0..90_i64).prop_map(|end| State::Late { at: at(end) }),
            1 => (0..90_i64, any::<bool>()).prop_map(|(end, theirs)| State::Ended { at: at(end), theirs }),
        ];
        let code = prop_oneof![Just("k7"), Just("m3")];
        let messages = proptest::collection::vec(prop_oneof![Just("a"), Just("b"), Just("c")], 0..3);
        let times = (time(), time(), time(), time()).prop_map(|(called, since, sent, delivered)| Times {
            called,
            since,
            sent,
            delivered,
        });
        let fit = prop_oneof![Just(Fit::No), Just(Fit::Answer), Just(Fit::Label)];
        (state, code, messages, (times, time()), fit, any::<[bool; 3]>()).prop_map(
            |(state, code, messages, (times, unnamed_since), fit, [begun, code_seen, doubtful])| Candidate {
                code,
                messages,
                unnamed_since,
                begun,
                doubtful,
                fit,
                code_seen,
                times,
                state,
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn nothing_from_before_is_meant_unless_it_quotes(
            candidates in proptest::collection::vec(candidate(), 0..4),
            quotes in proptest::option::weighted(0.3, prop_oneof![Just("a"), Just("x")]),
            code in proptest::option::of(prop_oneof![Just("k7"), Just("q9")]),
            received in time(),
            [quotes_another, overtaken] in any::<[bool; 2]>(),
        ) {
            let message = Message { quotes, quotes_another, code, at: received, overtaken };
            let there = |at: usize| received.zip(candidates[at].times.since).is_some_and(|(at, since)| at > since);
            let may_be_there = |at: usize| there(at) || candidates[at].doubtful;
            let may_be_unnamed = |at: usize| received.zip(candidates[at].unnamed_since).is_some_and(|(at, since)| at > since);
            match resolve(&message, &candidates) {
                Target::One(at) | Target::Confirm(at) => {
                    let ended = matches!(candidates[at].state, State::Ended { .. });
                    prop_assert!(quotes.is_some() && (candidates[at].messages.contains(&quotes.unwrap()) || may_be_unnamed(at)) || ended || there(at));
                    prop_assert!(quotes.is_some() || code == Some(candidates[at].code) || candidates[at].state == State::Open);
                    let rival = |(other, rival): (usize, &Candidate<'_>)| other != at && rival.doubtful;
                    let named = quotes.is_some() || code == Some(candidates[at].code);
                    prop_assert!(named || !candidates.iter().enumerate().any(rival), "a guess");
                }
                Target::Which(which) => prop_assert!(quotes.is_some() || which.into_iter().all(may_be_there)),
                Target::Before(before) => prop_assert!(!before.is_empty() && !before.into_iter().any(there)),
                Target::Unnamed(which) => prop_assert!(
                    quotes.is_some() && which.len() > 1 && which.into_iter().all(may_be_unnamed)
                ),
                Target::Overtaken(at) => prop_assert!(
                    quotes.is_none() && candidates.iter().all(|other| other.state != State::Open || !other.begun) && may_be_there(at)
                ),
                Target::Nothing => {}
            }
        }
    }
}
