//! What Prometheus is told: counts since the start, and what is true at the moment of the scrape. Counted from the facts
//! that an ask's steps note; decides nothing. The names are section 11 of the specification.

use crate::ipc::wire::{STATUSES, status};
use askd_core::{Ask, AskId, ChannelName, Fact, Group, Outcome, Person, Refusal, RequestId, Time, Trouble};
use lru::LruCache;
use parking_lot::Mutex;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::num::NonZeroUsize;

/// The type of what a scrape gets.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Seconds: from a card at once to a person who has to be waited for.
const BUCKETS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Of how many asks it is remembered that their answer has had a response.
const REMEMBERED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// How agents are started, and what comes of it.
const STARTS: [&str; 3] = ["docker", "command", "webhook"];
const RESULTS: [&str; 3] = ["started", "failed", "given_up"];

type Label = (&'static str, String);
type Counters<const N: usize> = Family<[Label; N], Counter>;
/// What is true now, by the value of a label.
type Gauges = Vec<(String, i64)>;

/// The class of a card that nobody was seen to see.
const NO_PROOF: &str = "no_proof";

fn kind(trouble: Trouble) -> String {
    trouble.name().replace(' ', "_")
}

fn ask_labels(group: &Group, channel: &str, outcome: &str) -> [Label; 3] {
    [("group", group.to_string()), ("channel", channel.to_owned()), ("outcome", outcome.to_owned())]
}

fn error_labels(channel: &str, kind: String) -> [Label; 2] {
    [("channel", channel.to_owned()), ("kind", kind)]
}

fn start_labels(kind: &str, result: &str) -> [Label; 2] {
    [("kind", kind.to_owned()), ("result", result.to_owned())]
}

/// All counters of one daemon.
#[derive(Debug)]
pub struct Metrics {
    asks: Counters<3>,
    post_errors: Counters<2>,
    refusals: Counters<2>,
    session_starts: Counters<2>,
    request_to_post: Histogram,
    answer_to_response: Histogram,
    /// The last asks whose answer has had its first response.
    responded: Mutex<LruCache<AskId, ()>>,
}

impl Default for Metrics {
    fn default() -> Self {
        let session_starts = Counters::default();
        // A counter that appears with 1 has not increased, as Prometheus sees it: an alert would miss the first.
        for (kind, result) in STARTS.iter().flat_map(|kind| RESULTS.map(|result| (kind, result))) {
            drop(session_starts.get_or_create(&start_labels(kind, result)));
        }
        Self {
            asks: Family::default(),
            post_errors: Family::default(),
            refusals: Family::default(),
            session_starts,
            request_to_post: Histogram::new(BUCKETS),
            answer_to_response: Histogram::new(BUCKETS),
            responded: Mutex::new(LruCache::new(REMEMBERED)),
        }
    }
}

/// What a daemon is among those that share its records.
#[derive(Debug)]
pub struct Cluster {
    /// Whether it surely leads.
    pub leads: bool,
    /// How many groups it surely holds.
    pub held: usize,
    /// How many groups nobody serves, as far as it knows.
    pub unserved: usize,
    /// How many standbys of the database's server have each `sync_state`.
    pub standbys: Vec<(String, i64)>,
}

impl Metrics {
    /// Counts what happened to an ask. `start`: how the group's agent is started.
    pub fn fact(&self, ask: &Ask, fact: &Fact, start: &'static str, now: Time) {
        match fact {
            Fact::Settled => self.settled(ask),
            Fact::Posted { route: 0, .. } if is_first_card(ask) => {
                self.request_to_post.observe(seconds(ask.created_at, now));
            }
            Fact::NotShown { route, .. } => {
                if let Some(widget) = ask.widgets.get(*route) {
                    let kind = widget.trouble.map_or(NO_PROOF.to_owned(), kind);
                    self.post_errors.get_or_create(&error_labels(widget.route.channel.as_str(), kind)).inc();
                }
            }
            Fact::Delivered(request_id) => self.delivered(ask, request_id, now),
            Fact::Started => self.started(start, "started"),
            Fact::StartFailed { last, .. } => self.started(start, if *last { "given_up" } else { "failed" }),
            Fact::Asked
            | Fact::Joined(_)
            | Fact::WaiterWithdrawn(_)
            | Fact::Replaced(_)
            | Fact::Posted { .. }
            | Fact::Shown { .. }
            | Fact::Taken(_)
            | Fact::TakenBack(_)
            | Fact::Briefed
            | Fact::BriefingRead
            | Fact::LateAnswer
            | Fact::Stopped
            | Fact::Reminded { .. }
            | Fact::NotReminded { .. }
            | Fact::Escalated { .. }
            | Fact::AllowedAgain { .. }
            | Fact::Unblocked
            | Fact::Closed { .. } => {}
        }
    }

    /// Counts a reply that was not taken.
    pub fn refused(&self, person: &Person, refusal: &Refusal) {
        let labels = [("channel", person.via.as_str().to_owned()), ("reason", refusal.code().to_owned())];
        self.refusals.get_or_create(&labels).inc();
    }

    fn settled(&self, ask: &Ask) {
        let Some(outcome) = ask.outcome() else { return };
        let shown = ask.widgets.last().map_or(ChannelName::WEB, |widget| widget.route.channel);
        let channel = match outcome {
            Outcome::Answered { by, .. } | Outcome::Dismissed { by } => by.via.as_str(),
            _ => shown.as_str(),
        };
        self.asks.get_or_create(&ask_labels(&ask.group, channel, status(outcome).0)).inc();
    }

    /// A group that has asked asks in this channel: what can come of it is counted from 0 on, before it happens.
    pub fn expect(&self, group: &Group, channel: ChannelName) {
        for outcome in STATUSES {
            drop(self.asks.get_or_create(&ask_labels(group, channel.as_str(), outcome)));
        }
    }

    /// Only the first response of an answer says how fast askd is: neither one to a call that came after the outcome, nor one that is
    /// written again.
    fn delivered(&self, ask: &Ask, request_id: &RequestId, now: Time) {
        let waited = |at: &Time| ask.waiter(request_id).is_some_and(|waiter| waiter.asked_at <= *at);
        let first = self.responded.lock().put(ask.id, ()).is_none();
        if let Some(at) = ask.settled_at().filter(waited).filter(|_| first) {
            self.answer_to_response.observe(seconds(at, now));
        }
    }

    fn started(&self, kind: &'static str, result: &str) {
        self.session_starts.get_or_create(&start_labels(kind, result)).inc();
    }

    /// What a scrape gets. `cluster`: what this one of several daemons is.
    pub fn text(
        &self,
        open: Gauges,
        uncollected: Gauges,
        channels_up: Gauges,
        cluster: Option<Cluster>,
    ) -> Result<String, fmt::Error> {
        for (channel, _) in &channels_up {
            for kind in Trouble::ALL.map(kind).into_iter().chain([NO_PROOF.to_owned()]) {
                drop(self.post_errors.get_or_create(&error_labels(channel, kind)));
            }
        }
        let mut all = Registry::with_prefix("askd");
        all.register("asks", "Questions that ended", self.asks.clone());
        all.register("post_errors", "Cards that could not be shown, by try", self.post_errors.clone());
        all.register("refusals", "Replies that were not taken", self.refusals.clone());
        all.register("session_starts", "Agents started with an answer", self.session_starts.clone());
        let took = "Time from a request to its first card";
        all.register_with_unit("request_to_post", took, Unit::Seconds, self.request_to_post.clone());
        let took = "Time from an outcome to its response file";
        all.register_with_unit("answer_to_response", took, Unit::Seconds, self.answer_to_response.clone());
        let mut gauges = vec![
            ("asks_open", "Questions that are open", "group", open),
            ("asks_uncollected", "What people said and no agent has collected", "group", uncollected),
            ("channel_up", "1 if the channel is connected, else 0", "channel", channels_up),
        ];
        if let Some(Cluster { leads, held, unserved, standbys }) = cluster {
            let known = [
                ("leads", "1 if this daemon surely leads, else 0", usize::from(leads)),
                ("groups_held", "Groups that this daemon surely holds", held),
                ("groups_unserved", "Groups that no daemon serves, as far as this daemon knows", unserved),
            ];
            for (name, help, value) in known {
                let gauge = Gauge::<i64>::default();
                gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
                all.register(name, help, gauge);
            }
            gauges.push(("standbys", "Standbys of the database's server", "sync_state", standbys));
        }
        for (name, help, label, values) in gauges {
            let gauges = Family::<[Label; 1], Gauge>::default();
            for (of, value) in values {
                gauges.get_or_create(&[(label, of)]).set(value);
            }
            all.register(name, help, gauges);
        }
        let mut text = String::new();
        encode(&mut text, &all)?;
        Ok(text)
    }
}

/// Of several questions one by one only the first counts.
fn is_first_card(ask: &Ask) -> bool {
    ask.widgets.first().is_some_and(|widget| widget.posts.len() <= 1)
}

fn seconds(from: Time, to: Time) -> f64 {
    to.since(from).as_secs_f64()
}
