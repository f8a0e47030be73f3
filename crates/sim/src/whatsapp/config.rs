//! Everything that can be set about the stand-in, with defaults that suit a test. Read by `state`,
//! `graph` and `courier`; the control API changes `Ladder`, `Traffic` and faults while it runs.

use serde::{Deserialize, Serialize};

use super::fault::FaultMix;
use super::message::Person;

/// A message template approved for the business.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Language code, such as `en_US`.
    pub language: String,
    /// The text, with `{{1}}`, `{{2}}`, … for parameters.
    pub body: String,
    /// Labels of quick-reply buttons.
    #[serde(default)]
    pub buttons: Vec<String>,
}

/// What Meta says of the app behind the token, to those who ask.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Business {
    /// Id of the app.
    pub app_id: String,
    /// What the token may do.
    pub scopes: Vec<String>,
    /// When the token expires, in Unix seconds; 0: never.
    pub expires_at: i64,
    /// The fields of webhooks that the app gets.
    pub fields: Vec<String>,
    /// Whether the app gets the webhooks of the business account.
    pub subscribed: bool,
    /// How far the approval of templates is.
    pub template_status: String,
}

impl Default for Business {
    fn default() -> Self {
        Self {
            app_id: "634974688087057".into(),
            scopes: vec!["whatsapp_business_management".into(), "whatsapp_business_messaging".into()],
            expires_at: 0,
            fields: vec!["messages".into()],
            subscribed: true,
            template_status: "APPROVED".into(),
        }
    }
}

/// How a message climbs its ticks by itself. Real milliseconds after the step before; `None`: only on
/// demand.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ladder {
    /// Accepted to sent.
    pub sent_ms: Option<u64>,
    /// Sent to delivered (waits for the phone to be on).
    pub delivered_ms: Option<u64>,
    /// Delivered to read.
    pub read_ms: Option<u64>,
    /// Accepted to failed, for what fails late (131047, 131026).
    pub failed_ms: u64,
    /// Whether status webhooks go out at all; off, ticks climb and nobody is told.
    pub told: bool,
    /// At least and at most so long after its step each status webhook goes out, drawn anew each time: so they come late,
    /// after replies, and in any order. They keep the time of their step.
    pub told_after_ms: [u64; 2],
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            sent_ms: Some(5),
            delivered_ms: Some(10),
            read_ms: None,
            failed_ms: 20,
            told: true,
            told_after_ms: [0; 2],
        }
    }
}

/// How webhooks travel.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Traffic {
    /// Wait so long for more events before a POST goes out.
    pub gather_ms: u64,
    /// At most so many events in one POST; spread over entries, changes and lists in all the ways
    /// Meta allows.
    pub batch: usize,
    /// Send what was gathered in a random order.
    pub shuffle: bool,
    /// Share of events that are sent twice, 0.0 to 1.0.
    pub duplicate: f64,
    /// Real delays before second, third, … attempt after anything but a 200. Meta: decreasing
    /// frequency for up to 7 days.
    pub retry_ms: Vec<u64>,
    /// POSTs under way at once; 1 keeps their order.
    pub lanes: usize,
    /// A receiver that takes longer has failed (Meta does not publish its number).
    pub timeout_ms: u64,
}

impl Default for Traffic {
    fn default() -> Self {
        let retry_ms = vec![200, 1_000, 5_000, 15_000, 60_000];
        Self { gather_ms: 0, batch: 1, shuffle: false, duplicate: 0.0, retry_ms, lanes: 1, timeout_ms: 10_000 }
    }
}

/// Variants of webhook shapes that a receiver should live with.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Shapes {
    /// `conversation` in statuses, as before v24.0.
    pub conversations: bool,
    /// `contacts` beside `failed` statuses. Client libraries disagree on whether Meta sends them.
    pub contacts_when_failed: bool,
    /// A shape of webhook from before April 2026: no business-scoped ids at all.
    pub without_user_ids: bool,
}

impl Default for Shapes {
    fn default() -> Self {
        Self { conversations: false, contacts_when_failed: true, without_user_ids: false }
    }
}

/// The business behind the stand-in, its people and its limits. One business number each; start two
/// stand-ins for two numbers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Port on 127.0.0.1; 0 chooses one.
    pub port: u16,
    /// Bearer token that calls must carry.
    pub token: String,
    /// Key of webhook signatures.
    pub app_secret: String,
    /// Sent in the verification handshake.
    pub verify_token: String,
    /// Where webhooks go; `None`: nowhere, until set.
    pub webhook: Option<String>,
    /// Id of the business number, the `…` of `/v25.0/…/messages`.
    pub phone_number_id: String,
    /// Id of the business account.
    pub waba_id: String,
    /// The business number in digits.
    pub display_phone_number: String,
    /// Name of the business.
    pub verified_name: String,
    /// People known from the start; others come to be when first written to.
    pub people: Vec<Person>,
    /// Numbers that nobody has been seen to write from, and that are not among `people`, have no WhatsApp: 131026, late.
    pub only_known: bool,
    /// How many seconds the `Date` header of answers is ahead of the times of messages and statuses. Meta does not say that
    /// one clock makes both.
    pub date_ahead_s: i64,
    /// A test number's list of who may be written to (131030 for others); `None`: everybody.
    pub allowed: Option<Vec<String>>,
    /// Approved templates.
    pub templates: Vec<Template>,
    /// The app.
    pub business: Business,
    /// Ticks.
    pub ladder: Ladder,
    /// Webhooks.
    pub traffic: Traffic,
    /// Forced faults from the start.
    pub faults: FaultMix,
    /// The clock stands still but for `advance`: rates and windows then depend on the test alone.
    pub clock_held: bool,
    /// Seed of faults, shuffling and batches.
    pub seed: u64,
    /// Pair limit: milliseconds per message to one person; 0 switches it off. Meta: 6 s.
    pub pair_every_ms: i64,
    /// Pair limit: so many at once on credit. Meta: 45.
    pub pair_burst: i64,
    /// Messages per second of the number; 0 switches it off. Meta: 80.
    pub throughput: usize,
    /// HTTP status of throttling refusals; see `error` for why it can be set.
    pub throttle_status: u16,
    /// How long a stalled call stays without an answer.
    pub stall_ms: u64,
    /// How long a person's message keeps the window open. Meta: 24 h.
    pub window_ms: i64,
    /// Where readings of Meta's webhook shapes differ.
    pub shapes: Shapes,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            port: 0,
            token: "sim-token".into(),
            app_secret: "sim-app-secret".into(),
            verify_token: "sim-verify-token".into(),
            webhook: None,
            phone_number_id: "106540352242922".into(),
            waba_id: "102290129340398".into(),
            display_phone_number: "15550783881".into(),
            verified_name: "Agents".into(),
            people: Vec::new(),
            only_known: false,
            date_ahead_s: 0,
            allowed: None,
            templates: Vec::new(),
            business: Business::default(),
            ladder: Ladder::default(),
            traffic: Traffic::default(),
            faults: FaultMix::default(),
            clock_held: false,
            seed: 1,
            pair_every_ms: 6_000,
            pair_burst: 45,
            throughput: 80,
            throttle_status: 400,
            stall_ms: 60_000,
            window_ms: 24 * 60 * 60 * 1000,
            shapes: Shapes::default(),
        }
    }
}
