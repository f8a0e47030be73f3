//! Fills a state folder with many asks, for stories and benches that measure. It drives one ask through the core and writes
//! copies of its record under other names, without a sync for each.

use askd_core::{
    Accepted, Ask, AskId, Capabilities, ChannelName, Choice, Content, Delivery, DeliveryEffect, DeliveryEvent, Digest,
    Draft, Effect, Event, FollowUpEvent, Given, Person, Posted, Questions, Reply, Responders, Route, Rules,
    SessionRules, Source, Step, Taker, Time, TimeoutPolicy, Told, Via, Waiter, WaiterEvent, WidgetEffect, WidgetEvent,
};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The number that stands in the record of which the others are copies, in the ask's id and in its texts.
const MARK: u128 = 0xa5a5_0000_1111_2222_3333_4444_5555_c3c3;
/// The code of that ask, the message of its card, and the part of its texts that differs.
const CODE: &str = "zz999999";
const MESSAGE: &str = "1700000000.999999";
const NAME: &str = "name-of-the-ask";
const DAY: Duration = Duration::from_secs(86_400);

/// How the asks are shown and how large they are.
#[derive(Debug, Clone)]
pub struct Kind {
    /// The route; the card is up on it.
    pub channel: ChannelName,
    /// Its chat.
    pub chat: String,
    /// Ten questions at their limits instead of one short one.
    pub large: bool,
    /// They are settled: answered, the response taken, the card closed.
    pub settled: bool,
    /// Settled, and nobody took the answer: it is a briefing.
    pub briefed: bool,
    /// How long a person has to answer.
    pub timeout: Duration,
    /// When they were asked.
    pub at: Time,
}

impl Kind {
    /// Small open asks in a Slack channel, asked now.
    pub fn open(chat: &str, now: Time) -> Self {
        let timeout = 7 * DAY;
        Self {
            channel: ChannelName::SLACK,
            chat: chat.to_owned(),
            large: false,
            settled: false,
            briefed: false,
            timeout,
            at: now,
        }
    }

    /// The same, settled.
    pub fn settled(chat: &str, now: Time) -> Self {
        Self { settled: true, ..Self::open(chat, now) }
    }

    /// The same, and the answer is a briefing. Its file is not there.
    pub fn briefed(chat: &str, now: Time) -> Self {
        Self { briefed: true, ..Self::settled(chat, now) }
    }
}

/// The group of an ask.
pub fn group(number: usize, groups: usize) -> String {
    format!("group-{}", number % groups)
}

/// The id of an ask: no two numbers below 2^64 have the same, and it looks random.
pub fn id(number: usize) -> AskId {
    let mixed = (number as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    AskId::from_bits(u128::from(mixed) << 64 | u128::from(mixed.rotate_left(32) ^ 0x5851_f42d_4c95_7f2d))
}

/// The request of an ask.
pub fn request(number: usize) -> String {
    format!("request-{number}")
}

/// The message of its card.
pub fn message(number: usize) -> String {
    format!("{:010}.{:06}", 1_700_000_000 + number / 1_000_000, number % 1_000_000)
}

/// Puts the asks with these numbers into `state/`, spread over `groups` groups. No daemon may hold the folder.
pub fn fill(state: &Path, kind: &Kind, groups: usize, numbers: std::ops::Range<usize>) {
    let (record, key) = record(kind);
    let folder = state.join(if kind.settled { "settled" } else { "pending_questions" });
    for group in (0..groups).map(|number| group(number, groups)) {
        fs::create_dir_all(folder.join(group)).unwrap();
    }
    for number in numbers {
        let (id, group) = (id(number).to_string(), group(number, groups));
        let text = record
            .replace(&format!("{MARK:032x}"), &id)
            .replace(&key, &format!("{id}{id}"))
            .replace(CODE, &code(number))
            .replace(MESSAGE, &message(number))
            .replace(NAME, &request(number))
            .replace("group-of-the-ask", &group);
        fs::write(folder.join(group).join(format!("{id}.json")), text).unwrap();
    }
}

/// A code that no other ask has.
fn code(mut number: usize) -> String {
    const DIGITS: &[u8] = b"23456789abcdefghjkmnpqrstuvwxyz";
    let mut code = String::from("k");
    loop {
        code.push(char::from(DIGITS[number % DIGITS.len()]));
        number /= DIGITS.len();
        if number == 0 {
            return code;
        }
    }
}

/// The record of one such ask, and the key in it.
fn record(kind: &Kind) -> (String, String) {
    let ask = ask(kind);
    let mut record = serde_json::to_value(&ask).unwrap();
    record["v"] = json!(2);
    (serde_json::to_string_pretty(&record).unwrap(), ask.key.unwrap().to_string())
}

fn content(large: bool) -> Content {
    let choice = |label: String, description| Choice { label, description, style: None };
    let small = || Draft {
        text: format!("Which framework for {NAME}?"),
        choices: ["React", "Vue", "Svelte"].map(|label| choice(label.to_owned(), None)).into(),
        ..Draft::default()
    };
    let label = |n| choice(format!("{n}{}", "l".repeat(74)), Some("d".repeat(300)));
    let long = |n| Draft {
        text: format!("{n} {NAME} {}", "q".repeat(2_900)),
        header: Some("h".repeat(30)),
        choices: (0..10).map(label).collect(),
        ..Draft::default()
    };
    let drafts = if large { (0..10).map(long).collect() } else { vec![small()] };
    let above = |text: &str, times| large.then(|| text.repeat(times));
    let questions = Questions::new(NAME, drafts).unwrap();
    Content { title: above("t", 100), context: above("c", 3_000), questions }
}

fn ask(kind: &Kind) -> Ask {
    let route = Route {
        channel: kind.channel,
        chat: kind.chat.clone(),
        responders: Responders::Anyone,
        capabilities: Capabilities::before_they_were_stored(kind.channel),
    };
    let waiter = Waiter {
        request_id: NAME.parse().unwrap(),
        digest: Digest::from_bytes([7; 32]),
        op_code: None,
        on_timeout: TimeoutPolicy::ReturnCancel,
        process: None,
        other_session: None,
        briefed: None,
        asked_at: kind.at,
        run: None,
        told: Told::Outcome,
        carrier: askd_core::Carrier::File,
        replaced: false,
        claim: None,
        response: Delivery::default(),
    };
    let accepted = Accepted {
        id: AskId::from_bits(MARK),
        short_id: CODE.parse().unwrap(),
        group: "group-of-the-ask".parse().unwrap(),
        content: content(kind.large),
        rules: Rules {
            timeout: kind.timeout,
            render_timeout: Duration::from_secs(30),
            max_retries: 3,
            keep: 30 * DAY,
            remind_after: None,
            escalate_after: None,
            session: SessionRules::default(),
        },
        routes: vec![route],
        key: Some(Digest::from_bytes([9; 32])),
        session: Some(format!("session-{NAME}")),
        waiter,
    };
    let mut ask = run(Ask::accept(accepted, kind.at), kind.at);
    if kind.settled {
        let given = ask.content.questions.iter().map(|_| given()).enumerate().collect();
        let (source, person) = (Source::Token, Person::operator(Via::Api));
        let answered = Event::Replied { source, person, reply: Reply::Whole(given) };
        ask = run(ask.step(answered, kind.at).unwrap().unwrap(), kind.at);
        let waiter = ask.waiters[0].request_id.clone();
        let ended = if kind.briefed {
            WaiterEvent::Died.of(waiter)
        } else {
            DeliveryEvent::Taken { since: kind.at }.of(waiter)
        };
        ask = run(ask.step(ended, kind.at).unwrap().unwrap(), kind.at);
        assert!(ask.resume().contains(&Effect::Retire) || ask.resume().is_empty(), "{:?}", ask.resume());
    }
    ask
}

fn given() -> Given {
    Given { picks: vec![0], text: None }
}

/// Does what the steps ask for, as a channel and a group's folder would.
fn run(Step { mut ask, effects }: Step, at: Time) -> Ask {
    let mut effects = std::collections::VecDeque::from(effects);
    while let Some(effect) = effects.pop_front() {
        let event = match effect {
            Effect::Widget { route, effect: WidgetEffect::Queue { .. } } => WidgetEvent::SlotGranted.on(route),
            Effect::Widget { route, effect: WidgetEffect::Send { attempt } } => {
                WidgetEvent::Posted { attempt, posted: Posted::Shown(MESSAGE.to_owned()) }.on(route)
            }
            Effect::Widget { route, effect: WidgetEffect::Update } => WidgetEvent::Updated(ask.face()).on(route),
            Effect::Delivery { to: Taker::Briefing, effect: DeliveryEffect::Write } => {
                Event::FollowUp(FollowUpEvent::Briefed { nth: ask.follow_up().briefings })
            }
            Effect::Delivery { to, effect: DeliveryEffect::Write } => DeliveryEvent::Written.to(to),
            Effect::Delivery { to, effect: DeliveryEffect::Publish } => DeliveryEvent::Published.to(to),
            Effect::Delivery { to, effect: DeliveryEffect::TakeBack { .. } } => {
                DeliveryEvent::TakenBack { taken: false }.to(to)
            }
            _ => continue,
        };
        if let Some(step) = ask.clone().step(event, at).unwrap() {
            ask = step.ask;
            effects.extend(step.effects);
        }
    }
    ask
}
