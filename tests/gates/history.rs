//! Records what clients saw as it happened, and judges it. Knows nothing about how the daemon stores things: only
//! requests, replies, responses and messages count.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Instant;

use serde_json::Value;

/// The reply to a person who answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// This answer is the outcome.
    Won,
    /// Some answer is the outcome: a click's 2xx also stands for "too late", as does a 409.
    Ended,
    /// No reply, or none yet: the answer may count or not.
    Unknown,
}

/// One try of one person to answer.
#[derive(Debug, Clone)]
struct Attempt {
    /// Channel and id, as the response names them.
    by: (String, String),
    label: String,
    began: Instant,
    reply: Reply,
    at: Instant,
}

/// Everything that is known of one request.
#[derive(Debug, Default)]
struct Life {
    attempts: Vec<Attempt>,
    /// Each response that was read, in order.
    responses: Vec<Value>,
    /// When the first one was read.
    ended: Option<Instant>,
    /// It may end because nobody has answered, or before it could be shown. Whoever asked judges when.
    may_time_out: bool,
    /// How often a response was there although the agent had already taken one.
    again: usize,
    torn: usize,
    /// How many cards each channel has had.
    cards: BTreeMap<&'static str, usize>,
    open_cards: usize,
}

/// What clients saw.
#[derive(Debug, Default)]
pub(crate) struct History(BTreeMap<String, Life>);

impl History {
    pub(crate) fn asked(&mut self, request: &str) {
        self.0.entry(request.to_owned()).or_default();
    }

    /// The same with so little time that nobody may have answered when it is over.
    pub(crate) fn asked_for_a_moment(&mut self, request: &str) {
        self.life(request).may_time_out = true;
    }

    fn life(&mut self, request: &str) -> &mut Life {
        self.0.entry(request.to_owned()).or_default()
    }

    /// Somebody answered from `began` until now, and this came back.
    pub(crate) fn attempt(&mut self, request: &str, by: (&str, &str), label: &str, began: Instant, reply: Reply) {
        let by = (by.0.to_owned(), by.1.to_owned());
        self.life(request).attempts.push(Attempt { by, label: label.to_owned(), began, reply, at: Instant::now() });
    }

    /// The same in hindsight: the reply came at `at`.
    pub(crate) fn attempt_at(
        &mut self,
        request: &str,
        by: (&str, &str),
        label: &str,
        began: Instant,
        reply: Option<Instant>,
    ) {
        let by = (by.0.to_owned(), by.1.to_owned());
        let (reply, at) = reply.map_or((Reply::Unknown, began), |at| (Reply::Ended, at));
        self.life(request).attempts.push(Attempt { by, label: label.to_owned(), began, reply, at });
    }

    /// The agent read a response.
    pub(crate) fn response(&mut self, request: &str, bytes: &[u8]) {
        let life = self.life(request);
        match serde_json::from_slice::<Value>(bytes) {
            Ok(response) if response["result"]["status"].is_string() => {
                life.ended.get_or_insert_with(Instant::now);
                life.responses.push(response);
            }
            _ => life.torn += 1,
        }
    }

    /// A response was there although the agent had taken one.
    pub(crate) fn again(&mut self, request: &str) {
        self.life(request).again += 1;
    }

    /// A card of it is in a chat of this channel.
    pub(crate) fn card(&mut self, request: &str, channel: &'static str, open: bool) {
        let life = self.life(request);
        *life.cards.entry(channel).or_default() += 1;
        life.open_cards += usize::from(open);
    }

    /// The response to a request, if it was read.
    pub(crate) fn response_to(&self, request: &str) -> Option<&Value> {
        self.0.get(request)?.responses.first()
    }

    /// Every request, with its response and when that was first read.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&String, Option<(&Value, Instant)>)> {
        self.0.iter().map(|(request, life)| (request, life.responses.first().zip(life.ended)))
    }

    /// The first time that somebody was told that some answer of this request is its outcome.
    pub(crate) fn acknowledged(&self, request: &str) -> Option<Instant> {
        let attempts = self.0.get(request).into_iter().flat_map(|life| &life.attempts);
        attempts.filter(|attempt| attempt.reply != Reply::Unknown).map(|attempt| attempt.at).min()
    }

    /// Whether this person gave this answer.
    pub(crate) fn gave(&self, request: &str, by: (&str, &str), label: &str) -> bool {
        let attempts = self.0.get(request).into_iter().flat_map(|life| &life.attempts);
        attempts.into_iter().any(|one| (one.by.0.as_str(), one.by.1.as_str()) == by && one.label == label)
    }

    /// Every request with its response.
    pub(crate) fn responses(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.0.iter().filter_map(|(request, life)| Some((request, life.responses.first()?)))
    }

    /// The requests that have no response yet.
    pub(crate) fn unanswered(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter(|(_, life)| life.responses.is_empty()).map(|(request, _)| request)
    }

    /// How many requests have no response yet.
    pub(crate) fn waiting(&self) -> usize {
        self.unanswered().count()
    }

    /// The daemon never got this request: nothing is owed to it.
    pub(crate) fn forget(&mut self, request: &str) {
        self.0.remove(request);
    }

    /// The judgement.
    pub(crate) fn judge(&self) -> Verdict {
        let mut verdict = Verdict::default();
        for (request, life) in &self.0 {
            verdict.asked += 1;
            verdict.responses += usize::from(!life.responses.is_empty());
            verdict.cards += life.cards.values().sum::<usize>();
            let replies = |wanted| life.attempts.iter().filter(|attempt| attempt.reply == wanted).count();
            verdict.won += replies(Reply::Won);
            verdict.ended += replies(Reply::Ended);
            judge_one(request, life, &mut verdict);
        }
        verdict
    }
}

fn judge_one(request: &str, life: &Life, verdict: &mut Verdict) {
    if life.torn > 0 {
        verdict.found("torn", life.torn, &format!("{request}: a response was not whole"));
    }
    if life.again > 0 {
        verdict.found("twice", life.again, &format!("{request}: a response came after one had been taken"));
    }
    for (channel, cards) in life.cards.iter().filter(|(_, cards)| **cards > 1) {
        verdict.found("second cards", cards - 1, &format!("{request}: {cards} cards on {channel}"));
    }
    if life.open_cards > 0 {
        verdict.found("left open", life.open_cards, &format!("{request}: a card is left open"));
    }
    let winners: Vec<_> = life.attempts.iter().filter(|attempt| attempt.reply == Reply::Won).collect();
    if winners.len() > 1 || life.responses.iter().any(|response| response != &life.responses[0]) {
        let seen: Vec<String> = life.responses.iter().map(Value::to_string).collect();
        verdict.found("two winners", 1, &format!("{request}: {winners:?}, responses {seen:?}"));
    }
    let Some(response) = life.responses.first() else {
        verdict.found("lost", 1, &format!("{request}: no response"));
        return;
    };
    let result = &response["result"];
    if life.may_time_out && (result["status"] == "timeout" || result["status"] == "undeliverable") {
        if let Some(winner) = winners.first() {
            verdict.found("lost", 1, &format!("{request}: {winner:?} was told it won, and nobody did"));
        }
        return;
    }
    let by = &result["answered_by"];
    let label = label_of(response);
    let is_it =
        |attempt: &&Attempt| label == Some(&attempt.label) && by["channel"] == attempt.by.0 && by["id"] == attempt.by.1;
    let given = life.attempts.iter().filter(is_it).map(|attempt| attempt.began).min();
    let Some(given) = given else {
        // `whatsapp` knows more about messages and judges which of them it was.
        if by["channel"] == "whatsapp" {
            return;
        }
        verdict.found("invented", 1, &format!("{request}: nobody gave {label:?} by {by}"));
        return;
    };
    // After the first reply that says that the ask has ended, no new answer can be the outcome.
    let ended = life.attempts.iter().filter(|attempt| attempt.reply != Reply::Unknown).min_by_key(|attempt| attempt.at);
    if let Some(ended) = ended.filter(|ended| ended.at < given) {
        let text =
            format!("{request}: {ended:?} was told that it has ended, the outcome {label:?} was given after that");
        verdict.found("lost", 1, &text);
    } else if let Some(other) = winners.iter().find(|winner| !is_it(winner)) {
        verdict.found("lost", 1, &format!("{request}: {other:?} was told it won, the response says {label:?} by {by}"));
    }
}

/// The label that a response gives as the answer.
pub(crate) fn label_of(response: &Value) -> Option<&str> {
    response["result"]["answers"].as_object()?.values().next()?.as_str()
}

/// Figures, and what is wrong.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    pub(crate) asked: usize,
    responses: usize,
    won: usize,
    ended: usize,
    cards: usize,
    bad: BTreeMap<&'static str, usize>,
    findings: Vec<String>,
    notes: Vec<String>,
}

impl Verdict {
    /// Counts something that must not happen.
    pub(crate) fn found(&mut self, what: &'static str, times: usize, text: &str) {
        *self.bad.entry(what).or_default() += times;
        self.findings.push(format!("{what}: {text}"));
    }

    /// Counts what another verdict found, with where it was.
    pub(crate) fn also(&mut self, other: &Self, place: &str) {
        for (what, times) in &other.bad {
            *self.bad.entry(what).or_default() += times;
        }
        self.findings.extend(other.findings.iter().map(|finding| format!("{finding} ({place})")));
    }

    /// Adds a figure without a limit.
    pub(crate) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    /// Requests, responses and calls that were told they won.
    pub(crate) fn counts(&self) -> [usize; 3] {
        [self.asked, self.responses, self.won]
    }

    /// How often this was found.
    pub(crate) fn bad(&self, what: &str) -> usize {
        self.bad.get(what).copied().unwrap_or(0)
    }

    /// What is wrong, one line each.
    pub(crate) fn findings(&self) -> &[String] {
        &self.findings
    }

    /// One line; `counted` are the figures that have to be 0.
    pub(crate) fn figures(&self, counted: &[&str]) -> String {
        let mut notes = self.notes.clone();
        if self.asked > 0 {
            let lives = format!("{} asked, {} responses", self.asked, self.responses);
            let told = format!("{} calls won, {} others acknowledged", self.won, self.ended);
            notes.insert(0, format!("{lives}, {told}, {} cards", self.cards));
        }
        let mut line = notes.join(", ");
        for (index, what) in counted.iter().enumerate() {
            let comma = if index == 0 { ";" } else { "," };
            let _never_fails = write!(line, "{comma} {what} {}", self.bad(what));
        }
        line
    }
}
