//! What every engine of the store has to pass, whatever it keeps asks in.

use super::{Allowed, BadRecord, Loading, Save, Store, StoreError, Stored};
use crate::ipc::wire::{Message, parse};
use askd_core::{
    Accepted, Ask, AskId, Capabilities, ChannelName, Delivery, DeliveryEvent, Digest, Effect, Event, Fact,
    FollowUpEvent, Given, Group, Person, Reply, Responders, Route, Rules, SessionRules, Source, Time, TimeoutPolicy,
    Told, Via, Waiter,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// What is no record, and why.
type Corrupt = Vec<(String, BadRecord)>;

/// All that a scan finds.
pub(super) fn scan(store: &dyn Store) -> Result<(Vec<Stored>, Corrupt), StoreError> {
    let found = Mutex::new(Vec::new());
    let corrupt = store.scan(&Loading::default(), &|stored| found.lock().push(stored))?;
    Ok((found.into_inner(), corrupt))
}

/// `open` opens the same store each time, once the one before was dropped.
pub(super) fn holds(open: impl Fn() -> Box<dyn Store>) {
    what_is_saved_is_read_back_the_same_at_every_stage(&open);
    what_was_allowed_is_there_after_a_restart_and_old_news_is_dropped(&open);
    what_is_set_aside_is_gone(&open);
    whatever_was_done_last_before_a_crash_holds(&open);
    a_scan_beside_saves_finds_each_ask_once(&open);
    ten_thousand_open_asks_are_read_back(&open);
    assert!(open().probe().is_ok() && !open().last_save_failed());
}

fn what_is_saved_is_read_back_the_same_at_every_stage(open: &impl Fn() -> Box<dyn Store>) {
    let posting = ask(1, "g");
    let done = settled(ask(2, "g"));
    let blocked = Ask::blocked(accepted(4, "g"), 5, 7, START).ask;
    let lift = Event::FollowUp(FollowUpEvent::Lifted { by: Some(Person::operator(Via::Cli)) });
    let lifted = blocked.clone().step(lift, START).unwrap().unwrap().ask;
    let store = open();
    for ask in [&blocked, &lifted, &posting, &done] {
        store.save(&Arc::new(ask.clone()), Save::Now).unwrap();
        assert_eq!(store.load(&ask.group, ask.id).unwrap().as_deref(), Some(ask));
    }
    assert_eq!(store.load(&posting.group, AskId::from_bits(3)).unwrap(), None);
    store.forget(&blocked.group, blocked.id).unwrap();
    store.retire(&done.group, done.id).unwrap();
    store.retire(&done.group, done.id).unwrap();
    store.flush().unwrap();
    drop(store);
    let store = open();
    let (pending, settled): (Vec<Stored>, _) = scan(&*store).unwrap().0.into_iter().partition(|found| !found.settled);
    let asks = |found: Vec<Stored>| found.into_iter().map(|found| found.ask).collect::<Vec<_>>();
    assert_eq!((asks(pending), asks(settled)), (vec![posting], vec![done.clone()]));
    // An outcome that was retired may still change, and stays retired.
    let written = DeliveryEvent::Written.of("r1".parse().unwrap());
    let changed = done.clone().step(written, START).unwrap().unwrap().ask;
    store.save(&Arc::new(changed.clone()), Save::Soon).unwrap();
    let kept = scan(&*store).unwrap().0.into_iter().filter(|found| found.settled);
    assert_eq!(asks(kept.collect()), std::slice::from_ref(&changed));
    // What may be saved later is at hand at once, and stored with the next flush.
    let ready = changed.step(DeliveryEvent::Published.of("r1".parse().unwrap()), START).unwrap().unwrap().ask;
    store.save(&Arc::new(ready.clone()), Save::Later).unwrap();
    assert_eq!(store.load(&done.group, done.id).unwrap().as_deref(), Some(&ready));
    store.flush().unwrap();
    let kept = scan(&*store).unwrap().0.into_iter().filter(|found| found.settled);
    assert_eq!(asks(kept.collect()), [ready]);
    store.forget(&done.group, done.id).unwrap();
    assert_eq!(store.load(&done.group, done.id).unwrap(), None);
}

fn what_was_allowed_is_there_after_a_restart_and_old_news_is_dropped(open: &impl Fn() -> Box<dyn Store>) {
    let allowed =
        |number, at| Allowed { question: Digest::from_bytes([number; 32]), at, by: Person::operator(Via::Cli) };
    let group: Group = "g".parse().unwrap();
    let later = START + Duration::from_secs(60);
    let store = open();
    store.allow(&group, &[allowed(1, START), allowed(2, START)], START).unwrap();
    store.allow(&group, &[allowed(2, later)], START).unwrap();
    assert_eq!(store.allowed().unwrap(), [(group.clone(), vec![allowed(1, START), allowed(2, later)])]);
    store.allow(&group, &[allowed(3, later)], later).unwrap();
    drop(store);
    assert_eq!(open().allowed().unwrap(), [(group, vec![allowed(2, later), allowed(3, later)])]);
}

fn what_is_set_aside_is_gone(open: &impl Fn() -> Box<dyn Store>) {
    let store = open();
    let ask = Arc::new(ask(5, "g"));
    store.save(&ask, Save::Now).unwrap();
    assert!(!store.set_aside(&ask.group, ask.id).unwrap().is_empty());
    assert_eq!(store.load(&ask.group, ask.id).unwrap(), None);
    store.save(&ask, Save::Now).unwrap();
    store.forget(&ask.group, ask.id).unwrap();
}

/// Each store is dropped without an end, as a crash leaves it.
fn whatever_was_done_last_before_a_crash_holds(open: &impl Fn() -> Box<dyn Store>) {
    let open_one = Arc::new(ask(6, "g"));
    let (group, id) = (&open_one.group, open_one.id);
    let done = Arc::new(settled(Ask::clone(&open_one)));
    let found = || open().load(group, id).unwrap();
    // The same call again, and the same save again, change nothing.
    for _ in 0..2 {
        open().save(&open_one, Save::Now).unwrap();
        assert_eq!(found().as_ref(), Some(&open_one));
    }
    let store = open();
    store.save(&done, Save::Now).unwrap();
    assert_eq!(store.load(group, id).unwrap().as_ref(), Some(&done), "what was written is read");
    drop(store);
    assert_eq!(found().as_ref(), Some(&done));
    open().retire(group, id).unwrap();
    let stored: Vec<_> = scan(&*open()).unwrap().0.into_iter().filter(|stored| stored.ask.id == id).collect();
    assert!(matches!(&stored[..], [only] if only.settled && only.ask == *done), "{stored:?}");
    open().forget(group, id).unwrap();
    assert_eq!(found(), None);
}

/// Of very many, one may take too long on a busy machine.
fn is_saved(store: &dyn Store, ask: &Arc<Ask>) {
    assert!((0..5).any(|_| store.save(ask, Save::Soon).is_ok()));
}

/// A daemon that starts takes in what comes meanwhile.
fn a_scan_beside_saves_finds_each_ask_once(open: &impl Fn() -> Box<dyn Store>) {
    let asks: Vec<Arc<Ask>> = (1_000..1_200).map(|number| Arc::new(ask(number, "g"))).collect();
    let (kept, others) = asks.split_at(100);
    let store = open();
    for ask in kept {
        is_saved(&*store, ask);
    }
    store.flush().unwrap();
    drop(store);
    let store = open();
    let mut found = std::thread::scope(|scope| {
        for ask in others {
            scope.spawn(|| is_saved(&*store, ask));
        }
        scan(&*store).unwrap().0
    });
    found.retain(|stored| kept.iter().any(|ask| ask.id == stored.ask.id));
    found.sort_by_key(|stored| stored.ask.id);
    assert!(found.iter().map(|stored| &stored.ask).eq(kept.iter().map(|ask| &**ask)), "{} asks", found.len());
    for ask in &asks {
        assert_eq!(store.load(&ask.group, ask.id).unwrap().as_ref(), Some(ask));
        store.forget(&ask.group, ask.id).unwrap();
    }
}

fn ten_thousand_open_asks_are_read_back(open: &impl Fn() -> Box<dyn Store>) {
    let store = open();
    (10_000..20_000).for_each(|number| is_saved(&*store, &Arc::new(ask(number, "g"))));
    store.flush().unwrap();
    drop(store);
    let mut found: Vec<u128> = scan(&*open()).unwrap().0.into_iter().map(|stored| stored.ask.id.to_bits()).collect();
    found.retain(|id| *id >= 10_000);
    found.sort_unstable();
    assert!(found.into_iter().eq(10_000..20_000));
}

pub(super) const START: Time = Time::from_millis(1_760_000_000_000);

pub(super) fn ask(number: u128, group: &str) -> Ask {
    Ask::accept(accepted(number, group), START).ask
}

/// It waits to be posted in Slack.
pub(super) fn ask_in_slack(number: u128, group: &str) -> Ask {
    let slack = Route {
        channel: ChannelName::SLACK,
        chat: "C1".to_owned(),
        responders: Responders::Anyone,
        capabilities: Capabilities::before_they_were_stored(ChannelName::SLACK),
    };
    Ask::accept(Accepted { routes: vec![slack], ..accepted(number, group) }, START).ask
}

fn accepted(number: u128, group: &str) -> Accepted {
    let request = br#"{"type":"ask_user:ask","request_id":"r1","title":"T","questions":[
        {"question":"Which?","options":["a",{"label":"b","description":"bb"}],"multiSelect":true},
        {"question":"Sure?","type":"confirm"},{"question":"Why?","required":false}]}"#;
    let Ok(Message::Ask(request)) = parse(request) else { panic!() };
    let web = Route {
        channel: ChannelName::WEB,
        chat: String::new(),
        responders: Responders::Anyone,
        capabilities: Capabilities::before_they_were_stored(ChannelName::WEB),
    };
    Accepted {
        id: AskId::from_bits(number),
        short_id: "k7".parse().unwrap(),
        group: group.parse().unwrap(),
        content: request.content,
        rules: Rules {
            timeout: Duration::from_secs(60),
            render_timeout: Duration::from_secs(30),
            max_retries: 3,
            keep: Duration::from_secs(3600),
            remind_after: Some(Duration::from_secs(600)),
            escalate_after: Some(Duration::from_secs(20)),
            session: SessionRules::default(),
        },
        routes: vec![web],
        key: Some(Digest::from_bytes([9; 32])),
        session: Some("s1".to_owned()),
        waiter: Waiter {
            request_id: request.request_id,
            digest: request.digests[0],
            op_code: Some("op".to_owned()),
            on_timeout: TimeoutPolicy::ReturnCancel,
            process: None,
            other_session: None,
            briefed: None,
            asked_at: START,
            run: None,
            told: Told::Outcome,
            carrier: askd_core::Carrier::File,
            replaced: false,
            claim: None,
            response: Delivery::default(),
        },
    }
}

/// Nothing is left of it but its outcome, which is kept for so long.
pub(super) fn done(number: u128, keep: Duration) -> Ask {
    let accepted = accepted(number, "g");
    let rules = Rules { keep, ..accepted.rules };
    let ask = settled(Ask::accept(Accepted { rules, ..accepted }, START).ask);
    let events = [DeliveryEvent::Written, DeliveryEvent::Published, DeliveryEvent::Taken { since: START }];
    events.into_iter().fold(ask, |ask, event| ask.step(event.of("r1".parse().unwrap()), START).unwrap().unwrap().ask)
}

pub(super) fn settled(ask: Ask) -> Ask {
    let given =
        vec![(0, Given { picks: vec![1, 0], text: Some("own".to_owned()) }), (1, Given { picks: vec![0], text: None })];
    let event =
        Event::Replied { source: Source::Token, person: Person::operator(Via::Api), reply: Reply::Whole(given) };
    let step = ask.step(event, START + Duration::from_secs(5)).unwrap().unwrap();
    assert!(step.effects.contains(&Effect::Note(Fact::Settled)));
    step.ask
}
