//! The index against a model that keeps whole asks and looks through all of them.

use super::*;
use crate::host::broker::listing::Filter;
use crate::ipc::wire::{Message, parse};
use askd_core::{
    Accepted, Capabilities, ChannelName, Delivery, DeliveryEffect, DeliveryEvent, Digest, Effect, Event, Given,
    Outcome, Posted, Reply, RequestId, Responders, Route, Rules, SessionRules, ShortId, Source, Step, TimeoutPolicy,
    Told, Via, Waiter, WidgetEffect, WidgetEvent,
};
use proptest::prelude::*;
use std::collections::BTreeMap;

const START: Time = Time::from_millis(1_790_000_000_000);
const PEOPLE: [&str; 3] = ["491", "492", "493"];

/// What may happen to one of a few asks.
#[derive(Debug, Clone, Copy)]
enum What {
    New,
    Answer,
    Dismiss,
    Withdraw,
    TimeOut,
    Take,
    Forget,
    Loaded,
    Carried,
}

fn change() -> impl Strategy<Value = (u8, What)> {
    let what = prop_oneof![
        4 => Just(What::New), 2 => Just(What::Answer), 1 => Just(What::Dismiss), 1 => Just(What::Withdraw),
        1 => Just(What::TimeOut), 2 => Just(What::Take), 1 => Just(What::Forget), 1 => Just(What::Loaded),
        1 => Just(What::Carried),
    ];
    (0_u8..24, what)
}

fn group(number: u8) -> Group {
    format!("g{}", number % 2).parse().unwrap()
}

fn content(number: u8) -> Content {
    let text = format!(
        r#"{{"type":"ask_user:ask","request_id":"r{number}","session_id":"s","questions":[{{"question":"Q{}?"}}]}}"#,
        number % 5
    );
    let Ok(Message::Ask(request)) = parse(text.as_bytes()) else { panic!("not a request") };
    request.content
}

fn text(content: &Content) -> String {
    content.questions[0].text.clone()
}

fn key(number: u8) -> Digest {
    Digest::from_bytes([number % 7; 32])
}

fn code(number: u8) -> ShortId {
    format!("k{}", number % 11).parse().unwrap()
}

fn request(number: u8) -> RequestId {
    format!("r{number}").parse().unwrap()
}

fn new(number: u8, id: u128, now: Time) -> Step {
    with_session(number, id, now, SessionRules::default())
}

fn with_session(number: u8, id: u128, now: Time, session: SessionRules) -> Step {
    let channel = if number.is_multiple_of(3) { ChannelName::WHATSAPP } else { ChannelName::SLACK };
    let route = Route {
        channel,
        chat: PEOPLE[usize::from(number / 3) % 3].to_owned(),
        responders: if number.is_multiple_of(2) {
            Responders::Anyone
        } else {
            Responders::Only(vec![PEOPLE[0].to_owned()])
        },
        capabilities: Capabilities::before_they_were_stored(channel),
    };
    let waiter = Waiter {
        request_id: request(number),
        digest: Digest::from_bytes([number; 32]),
        op_code: None,
        on_timeout: TimeoutPolicy::ReturnCancel,
        process: None,
        other_session: None,
        briefed: None,
        asked_at: now,
        run: None,
        told: Told::Outcome,
        carrier: askd_core::Carrier::File,
        replaced: false,
        claim: None,
        response: Delivery::default(),
    };
    let rules = Rules {
        timeout: Duration::from_secs(60 + u64::from(number)),
        render_timeout: Duration::from_secs(30),
        max_retries: 3,
        keep: Duration::from_secs(3600),
        remind_after: None,
        escalate_after: None,
        session,
    };
    let accepted = Accepted {
        id: AskId::from_bits(id << 64 | u128::from(number)),
        short_id: code(number),
        group: group(number),
        content: content(number),
        rules,
        routes: vec![route],
        key: Some(key(number)),
        session: None,
        waiter,
    };
    Ask::accept(accepted, now)
}

/// All asks, whole.
struct World {
    index: Index,
    asks: BTreeMap<u8, Ask>,
    /// The last answer to each question: it holds until a start, also when its ask is forgotten.
    answers: BTreeMap<(Group, String), Time>,
    minted: u128,
    now: Time,
}

impl World {
    fn new() -> Self {
        Self { index: Index::default(), asks: BTreeMap::new(), answers: BTreeMap::new(), minted: 0, now: START }
    }

    /// Does what a step asks for, as a channel and a group's folder would, and notes each change.
    fn run(&mut self, number: u8, Step { ask, effects }: Step) {
        self.index.update(&ask);
        self.asks.insert(number, ask);
        for effect in effects {
            let ask = &self.asks[&number];
            let event = match effect {
                Effect::Widget { route, effect: WidgetEffect::Queue { .. } } => WidgetEvent::SlotGranted.on(route),
                Effect::Widget { route, effect: WidgetEffect::Send { attempt } } => {
                    WidgetEvent::Posted { attempt, posted: Posted::Shown(format!("m{}", ask.id)) }.on(route)
                }
                Effect::Widget { route, effect: WidgetEffect::Update } => WidgetEvent::Updated(ask.face()).on(route),
                Effect::Delivery { to, effect: DeliveryEffect::Write } => DeliveryEvent::Written.to(to),
                Effect::Delivery { to, effect: DeliveryEffect::Publish } => DeliveryEvent::Published.to(to),
                Effect::Widget {
                    effect: WidgetEffect::Look | WidgetEffect::Await { .. } | WidgetEffect::Remind,
                    ..
                }
                | Effect::Delivery { effect: DeliveryEffect::TakeBack { .. }, .. }
                | Effect::FollowUp(_)
                | Effect::Identify(_)
                | Effect::Note(_)
                | Effect::Status
                | Effect::Retire
                | Effect::Forget => continue,
            };
            self.happen(number, event);
        }
    }

    fn happen(&mut self, number: u8, event: Event) {
        let Some(ask) = self.asks.get(&number).cloned() else { return };
        if let Ok(Some(step)) = ask.step(event, self.now) {
            self.run(number, step);
        }
    }

    fn change(&mut self, number: u8, what: What) {
        self.now = self.now + Duration::from_secs(1);
        let by = || askd_core::Person::operator(Via::Api);
        let replied = |reply| Event::Replied { source: Source::Token, person: by(), reply };
        match what {
            What::New if !self.asks.contains_key(&number) => {
                self.minted += 1;
                let step = new(number, self.minted, self.now);
                self.index.insert(&step.ask, 0);
                self.run(number, step);
            }
            What::New => {}
            What::Answer => {
                let given = Given { picks: Vec::new(), text: Some("yes".to_owned()) };
                self.happen(number, replied(Reply::Whole(vec![(0, given)])));
            }
            What::Dismiss => self.happen(number, replied(Reply::Dismiss)),
            What::Withdraw => self.happen(number, Event::Cancel(by())),
            What::TimeOut => {
                self.now = self.now + Duration::from_secs(100);
                self.happen(number, Event::Tick);
            }
            What::Take => {
                let since = self.asks.get(&number).and_then(|ask| ask.waiters[0].response.published_at());
                if let Some(since) = since {
                    self.happen(number, DeliveryEvent::Taken { since }.of(request(number)));
                }
            }
            What::Forget => {
                if let Some(ask) = self.asks.remove(&number) {
                    self.index.remove(&ask);
                }
            }
            What::Loaded => {
                self.index = Index::default();
                self.answers.clear();
                self.index.begin_loading();
                // In no order of time.
                for ask in self.asks.values().rev() {
                    self.index.take_in(ask, self.index.naming.of(ask), 0);
                }
                self.index.end_loading();
            }
            What::Carried => {
                // What was due is in hand, or is another daemon's.
                let _in_hand = self.index.take_due(self.now, |of| *of == group(0));
                self.index = std::mem::take(&mut self.index).carried(self.now);
                self.index.begin_loading();
                for ask in self.asks.values().rev().filter(|ask| !ask.is_done_with()) {
                    assert!(!self.index.has_read(ask.id));
                    self.index.take_in(ask, self.index.naming.of(ask), 0);
                    assert!(self.index.has_read(ask.id));
                }
                self.index.end_loading();
                assert!(self.asks.values().all(|ask| self.index.has_read(ask.id)));
            }
        }
    }

    fn note_answers(&mut self) {
        for ask in self.asks.values() {
            if let Some(at) = entries::answered_at(ask) {
                let last = self.answers.entry((ask.group.clone(), text(&ask.content))).or_insert(at);
                *last = at.max(*last);
            }
        }
    }

    fn newest(&self, fits: impl Fn(&Ask) -> bool) -> Option<AskId> {
        self.asks.values().filter(|ask| fits(ask)).max_by_key(|ask| (ask.created_at, ask.id)).map(|ask| ask.id)
    }

    /// How often a question was asked since the last answer.
    fn asked(&self, number: u8) -> usize {
        let same = |ask: &&Ask| ask.group == group(number) && text(&ask.content) == text(&content(number));
        let same = || self.asks.values().filter(same);
        let counts = |ask: &Ask| matches!(ask.outcome(), None | Some(Outcome::TimedOut | Outcome::Dismissed { .. }));
        let since = self.answers.get(&(group(number), text(&content(number))));
        same().filter(|ask| counts(ask) && since.is_none_or(|since| ask.created_at > *since)).count()
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let index = &self.index;
        let open = |ask: &Ask| ask.outcome().is_none();
        let kept = |ask: &Ask| ask.is_untaken() || ask.is_late_open();
        for number in 0..24 {
            let (group, key, code) = (group(number), key(number), code(number));
            let of = |ask: &Ask| ask.group == group && ask.waiter(&request(number)).is_some();
            prop_assert_eq!(index.by_request(&group, &request(number)), self.newest(of));
            let keyed = |ask: &Ask| ask.group == group && ask.key == Some(key);
            prop_assert_eq!(index.by_key(&group, key), self.newest(|ask| keyed(ask) && open(ask)));
            prop_assert_eq!(index.kept_by_key(&group, key), self.newest(|ask| keyed(ask) && kept(ask)));
            // People who see one group only; its code may be another group's, too.
            let coded = |ask: &Ask| ask.short_id == code && ask.group == group;
            let last = self.asks.values().filter(|ask| coded(ask)).max_by_key(|ask| (ask.settled_at(), ask.id));
            let named = self.newest(|ask| coded(ask) && open(ask));
            let named = named.or_else(|| self.newest(|ask| coded(ask) && ask.is_late_open()));
            let named = named.or_else(|| last.map(|ask| ask.id));
            prop_assert_eq!(index.named(code.as_str(), Some(&code), |of| *of == group), Vec::from_iter(named));
            let asked = u8::try_from(self.asked(number)).unwrap();
            if asked > 0 {
                prop_assert!(index.over(&group, &content(number), asked).is_some(), "{} times", asked);
            }
            prop_assert!(index.over(&group, &content(number), asked + 1).is_none(), "{} times", asked);
        }
        for ask in self.asks.values() {
            prop_assert_eq!(index.group(ask.id), Some(Arc::new(ask.group.clone())));
            prop_assert_eq!(index.is_settled(ask.id), !open(ask));
            let Route { channel, chat, .. } = &ask.widgets[0].route;
            let chat = if *channel == ChannelName::WHATSAPP { "" } else { chat };
            prop_assert_eq!(index.by_message(chat, &format!("m{}", ask.id)), Some(ask.id));
        }
        for person in PEOPLE {
            let means = |ask: &Ask| {
                let Route { channel, chat, responders, .. } = &ask.widgets[0].route;
                let listed = matches!(responders, Responders::Only(ids) if ids.iter().any(|id| id == person));
                *channel == ChannelName::WHATSAPP && (chat == person || listed)
            };
            let ids = |fits: &dyn Fn(&Ask) -> bool| {
                let mut ids: Vec<AskId> =
                    self.asks.values().filter(|ask| means(ask) && fits(ask)).map(|ask| ask.id).collect();
                ids.sort_unstable();
                ids
            };
            prop_assert_eq!(index.asked_of(&[person.to_owned()]), ids(&open));
            prop_assert_eq!(index.ended_since(&[person.to_owned()], START), ids(&|ask| !open(ask)));
        }
        let due = self.asks.values().map(|ask| ask.deadline()).min().unwrap_or(Time::MAX);
        prop_assert_eq!(index.next_deadline(), due);
        let all = index.ahead(&Filter::default(), index.begin(&Filter::default()), None, usize::MAX);
        prop_assert_eq!(all.len(), self.asks.len());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever happens to asks, the index says of them what a look at all of them says.
    #[test]
    fn it_says_what_the_asks_say(changes in proptest::collection::vec(change(), 1..60)) {
        let mut world = World::new();
        for (number, what) in changes {
            world.change(number, what);
            world.note_answers();
            world.check()?;
        }
        // Nothing is left of asks that are gone.
        for number in 0..24 {
            world.change(number, What::Forget);
        }
        let index = &mut world.index;
        prop_assert_eq!(index.entries.iter().count(), 0);
        prop_assert!(index.names.iter().all(Names::is_empty) && index.codes.is_empty());
        prop_assert!(index.next_deadline() == Time::MAX && !index.asks_in_chats() && index.lying(Time::from_millis(0)).is_empty());
        prop_assert!(index.groups.are_empty());
    }
}

#[test]
fn a_code_rests_for_eight_days_after_its_last_ask_was_settled() {
    let mut world = World::new();
    world.change(1, What::New);
    world.change(1, What::Withdraw);
    let at = world.asks[&1].settled_at().unwrap();
    for forgotten in [false, true] {
        if forgotten {
            world.change(1, What::Forget);
        }
        assert!(world.index.short_taken(&code(1), at + CODE_RESTS - Duration::from_millis(1)), "{forgotten}");
        assert!(!world.index.short_taken(&code(1), at + CODE_RESTS) && !world.index.short_taken(&code(2), at));
    }
}

/// An outcome that was taken is found by its key no more, unless a late answer to an older one would count.
#[test]
fn an_index_that_is_carried_knows_which_late_answers_do_not_count_any_more() {
    let [late, newer] = [1, 15];
    let mut world = World::new();
    let session = SessionRules { start: true, late_answers: Duration::from_secs(3600), ..SessionRules::default() };
    let step = with_session(late, 99, world.now, session);
    let (name, at) = (world.index.naming.key(&step.ask).unwrap(), step.ask.created_at);
    world.index.insert(&step.ask, 0);
    world.run(late, step);
    world.change(late, What::TimeOut);
    assert!(world.asks[&late].is_late_open() && !world.index.has_newer(name, at));
    for what in [What::New, What::Answer, What::Take] {
        world.change(newer, what);
    }
    assert!(!world.asks[&newer].is_untaken());
    world.change(late, What::Carried);
    assert!(world.index.has_newer(name, at));
    world.change(newer, What::Forget);
    assert!(!world.index.has_newer(name, at));
}

#[test]
fn a_call_that_made_room_for_another_names_no_ask() {
    let before = new(1, 1, START).ask;
    let mut record = serde_json::to_value(&before).unwrap();
    record["waiters"][0]["request_id"] = "r2".into();
    let after: Ask = serde_json::from_value(record).unwrap();
    let mut index = Index::default();
    index.insert(&before, 0);
    index.update(&after);
    index.unname(&before, &after);
    let found = |number| index.by_request(&group(1), &request(number));
    assert_eq!((found(1), found(2)), (None, Some(after.id)));
    index.remove(&after);
    assert!(index.names.iter().all(Names::is_empty));
}

/// What memory holds of an outcome that is kept, and of an open ask, after a start. The table of ids is as full as it is with
/// 100,000.
#[test]
fn an_ask_costs_at_most_130_bytes() {
    const ASKS: u128 = 100_000 / 16;
    let mut world = World::new();
    world.change(1, What::New);
    for (changes, most) in [(&[][..], 130), (&[What::Answer, What::Take], 110)] {
        for what in changes {
            world.change(1, *what);
        }
        let record = serde_json::to_string(&world.asks[&1]).unwrap();
        let (id, mut index) = (world.asks[&1].id.to_string(), Index::default());
        index.begin_loading();
        index.reserve(usize::try_from(ASKS).unwrap());
        for number in 0..ASKS {
            let other = format!("{number:032x}");
            // All that an ask can be looked up by, each different.
            let record = record
                .replace(&id, &other)
                .replace("\"r1\"", &format!("\"r{number}\""))
                .replace("\"k1\"", &format!("\"k{number}\""))
                .replace(&key(1).to_string(), &format!("{other}{other}"));
            let ask = serde_json::from_str(&record).unwrap();
            index.take_in(&ask, index.naming.of(&ask), 0);
        }
        index.end_loading();
        let tables = index.names.iter().map(Names::bytes).sum::<usize>() + index.attempts.bytes();
        let orders = index.deadlines.bytes() + index.codes.bytes() + index.pages.bytes() + index.groups.bytes();
        let each = (index.entries.bytes() + tables + orders) / usize::try_from(ASKS).unwrap();
        assert!(each <= most, "{changes:?}: {each} bytes");
    }
}
