//! The store against real folders.

use super::*;
use crate::ipc::wire::{Message, parse};
use askd_core::{Accepted, Block, Event, Fact, Given, Lifted, Outcome, Person, Reply, Source, Stage, Time, Via};
use askd_core::{Delivery, Digest, Effect, Responders, Route, Rules, SessionRules, TimeoutPolicy, Waiter};
use serde_json::{Value, json};
use std::time::Duration;

const START: Time = Time::from_millis(1_760_000_000_000);

fn ask(number: u128, group: &str) -> Ask {
    let request = br#"{"type":"ask_user:ask","request_id":"r1","title":"T","questions":[
        {"question":"Which?","options":["a",{"label":"b","description":"bb"}],"multiSelect":true},
        {"question":"Sure?","type":"confirm"},{"question":"Why?","required":false}]}"#;
    let Ok(Message::Ask(request)) = parse(request) else { panic!() };
    let web = Route {
        channel: askd_core::ChannelName::WEB,
        chat: String::new(),
        responders: Responders::Anyone,
        capabilities: askd_core::Capabilities::before_they_were_stored(askd_core::ChannelName::WEB),
    };
    let new = Accepted {
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
            routes: vec![web],
        },
        key: Some(Digest::from_bytes([9; 32])),
        session: Some("s1".to_owned()),
        waiter: Waiter {
            request_id: request.request_id,
            digest: request.digest,
            op_code: Some("op".to_owned()),
            on_timeout: TimeoutPolicy::ReturnCancel,
            process: None,
            asked_at: START,
            run: None,
            late: false,
            withdrawn: false,
            response: Delivery::default(),
        },
    };
    Ask::accept(new, START).ask
}

fn settled(ask: Ask) -> Ask {
    let given =
        vec![(0, Given { picks: vec![1, 0], text: Some("own".to_owned()) }), (1, Given { picks: vec![0], text: None })];
    let event =
        Event::Replied { source: Source::Token, person: Person::operator(Via::Api), reply: Reply::Whole(given) };
    let step = ask.step(event, START + Duration::from_secs(5)).unwrap().unwrap();
    assert!(step.effects.contains(&Effect::Note(Fact::Settled)));
    step.ask
}

fn open() -> (tempfile::TempDir, Store) {
    let temp = tempfile::tempdir().unwrap();
    let store = Store::open(&temp.path().join("state")).unwrap();
    (temp, store)
}

#[test]
fn what_is_saved_is_read_back_the_same_at_every_stage() {
    let (_temp, store) = open();
    let open = ask(1, "g");
    let done = settled(ask(2, "g"));
    let mut blocked = ask(4, "g");
    blocked.stage =
        Stage::Settled { outcome: Outcome::Blocked { limit: 5 }, at: START, shown_at: None, follow_up: Box::default() };
    blocked.block = Some(Block { times: 7, told: 6, telling: true, any_context: false, lifted: None });
    let mut lifted = blocked.clone();
    let end = Lifted { by: Some(Person::operator(Via::Cli)), at: START };
    lifted.block = Some(Block { times: 7, told: 7, telling: false, any_context: false, lifted: Some(end) });
    for ask in [&blocked, &lifted, &open, &done] {
        store.save(ask).unwrap();
        assert_eq!(store.load(&ask.group, ask.id).unwrap().as_ref(), Some(ask));
    }
    assert_eq!(store.load(&open.group, AskId::from_bits(3)).unwrap(), None);
    store.forget(&blocked.group, blocked.id).unwrap();
    store.retire(&done.group, done.id).unwrap();
    store.retire(&done.group, done.id).unwrap();
    let scan = store.scan(&Loading::default()).unwrap();
    assert_eq!((scan.pending, scan.settled), (vec![open], vec![done.clone()]));
    store.forget(&done.group, done.id).unwrap();
    assert_eq!(store.load(&done.group, done.id).unwrap(), None);
}

#[test]
fn the_pending_file_has_the_fields_that_people_look_for() {
    let (temp, store) = open();
    store.save(&ask(1, "research")).unwrap();
    let path = temp.path().join("state/pending_questions/research/00000000000000000000000000000001.json");
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for field in [
        "v",
        "id",
        "request_id",
        "short_id",
        "source_group",
        "channel_name",
        "chat",
        "session_id",
        "questions",
        "message_id",
        "timestamp",
        "stage",
        "attempt",
        "shown_at",
        "answer_by",
        "waiters",
        "widgets",
    ] {
        assert!(record.get(field).is_some(), "{field}");
    }
    assert_eq!(record["source_group"], "research");
    assert_eq!(record["answer_by"], "2025-10-09T08:54:20.000Z");
}

#[test]
fn one_damaged_file_stops_nothing_and_a_newer_one_stops_the_start() {
    let (temp, store) = open();
    store.save(&ask(1, "g")).unwrap();
    let folder = temp.path().join("state/pending_questions/g");
    let put = |name: &str, text: &str| {
        std::io::Write::write_all(&mut File::create(folder.join(name)).unwrap(), text.as_bytes()).unwrap();
    };
    put("00000000000000000000000000000002.json", "{\"v\":1,");
    put("00000000000000000000000000000003.json", "{\"v\":1}");
    put(".tmp-litter", "x");
    let scan = store.scan(&Loading::default()).unwrap();
    assert_eq!((scan.pending.len(), scan.corrupt.len()), (1, 2));
    assert!(folder.join("00000000000000000000000000000002.json.corrupt").exists());
    assert!(!folder.join(".tmp-litter").exists());
    assert_eq!(store.scan(&Loading::default()).unwrap().corrupt.len(), 0, "reported once");
    put("00000000000000000000000000000004.json", "{\"v\":3}");
    assert!(matches!(store.scan(&Loading::default()), Err(StoreError::Newer { .. })));
}

#[test]
fn only_one_can_have_it() {
    let (temp, store) = open();
    assert!(matches!(Store::open(&temp.path().join("state")), Err(StoreError::Held(_))));
    drop(store);
    assert!(Store::open(&temp.path().join("state")).is_ok());
}

#[test]
fn rejected_requests_are_kept_within_bounds() {
    let (temp, store) = open();
    let group: Group = "g".parse().unwrap();
    for number in 0..110 {
        store.keep_rejected(&group, &format!("{number:03}.json"), b"{}").unwrap();
    }
    let folder = temp.path().join("state/rejected/g");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 100);
    assert!(folder.join("109.json").exists() && !folder.join("000.json").exists());
    let large = vec![b'x'; 400 * 1024];
    for number in 0..4 {
        store.keep_rejected(&group, &format!("large{number}.json"), &large).unwrap();
    }
    let bytes: u64 = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(bytes <= 1024 * 1024, "{bytes}");
    assert!(folder.join("large3.json").exists());
}

/// What the golden folders do not have: each thing that some version of format 1 wrote otherwise, or not at all.
#[test]
fn records_of_format_1_are_read_whatever_version_wrote_them() {
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/35ffb63");
    let made: Value = serde_json::from_slice(&std::fs::read(golden.join("made.json")).unwrap()).unwrap();
    let asked = |request: &str| {
        let asks = made["asks"].as_object().unwrap();
        let (id, _) = asks.iter().find(|(_, requests)| requests[0] == request).unwrap();
        let group = request.split_once('-').unwrap().0;
        let files = ["pending_questions", "settled"].map(|kind| golden.join(format!("state/{kind}/{group}/{id}.json")));
        let bytes = files.iter().find_map(|file| std::fs::read(file).ok()).unwrap();
        serde_json::from_slice::<Value>(&bytes).unwrap()
    };
    let read = |record: &Value| record::read(record.to_string().as_bytes());
    let with = |record: &Value, at: &str, value: Value| {
        let mut record = record.clone();
        *record.pointer_mut(at).unwrap() = value;
        record
    };
    let open = asked("inbox-open");
    let same = read(&open).unwrap();
    // Fields that the first versions did not have.
    let mut bare = open.clone();
    for (at, field) in
        [("", "reminders"), ("", "escalations"), ("/rules", "remind_after_ms"), ("/waiters/1", "asked_at")]
    {
        bare.pointer_mut(at).unwrap().as_object_mut().unwrap().remove(field);
    }
    let bare = read(&bare).unwrap();
    assert_eq!((bare.rules.remind_after, bare.waiters[1].asked_at), (None, Time::from_millis(0)));
    assert_eq!((&bare.content, &bare.key, bare.id), (&same.content, &same.key, same.id));
    let mut without = open.clone();
    without["rules"].as_object_mut().unwrap().remove("session");
    assert_eq!(read(&without).unwrap().rules.session, SessionRules::default());
    let named = with(&open, "/rules/routes/0/responders", json!(["U1"]));
    assert_eq!(read(&named).unwrap().rules.routes[0].responders, Responders::Only(vec!["U1".to_owned()]));
    let published = with(&open, "/waiters/0/response", json!("published"));
    assert_eq!(read(&published).unwrap().waiters[0].response.published_at(), Some(Time::from_millis(0)));
    // Why it could not be shown: words for the operator at first, then a class.
    let lost = asked("lost-undelivered");
    let cause = |outcome: Value| match read(&with(&lost, "/stage/outcome", outcome)).unwrap().outcome() {
        Some(Outcome::Undelivered { cause }) => (cause.retries, cause.reason.map(|reason| reason.to_string())),
        other => panic!("{other:?}"),
    };
    assert_eq!(cause(json!({"how": "never_shown", "reason": "slack: payment problem"})), (None, None));
    let refused = json!({"how": "never_shown", "reason": "slack: chat not found"});
    assert_eq!(cause(refused), (None, Some("slack: chat not found".to_owned())));
    assert_eq!(cause(json!({"how": "retries_used_up", "retries": 3})), (Some(3), None));
    let known = json!({"how": "retries_used_up", "retries": 0, "reason": "whatsapp: no connection"});
    assert_eq!(cause(known), (Some(0), Some("whatsapp: no connection".to_owned())));
    // What does not fit is damaged, as ever.
    for (record, at, value) in [
        (&open, "/questions/0/question", json!("")),
        (&open, "/questions/0/options/1/label", json!("React")),
        (&open, "/timestamp", json!("yesterday")),
        (&open, "/stage/name", json!("elsewhere")),
        (&open, "/waiters", json!([])),
        (&open, "/waiters/0/response", json!("elsewhere")),
        (&open, "/id", json!("../x")),
        (&asked("team-late"), "/after/wake", json!("elsewhere")),
        (&open, "/block", json!({"times": 1, "told": 1, "telling": false, "lifted": null})),
        (&asked("inbox-answered"), "/stage/outcome/given/1/picks/0", json!(7)),
        (&asked("inbox-answered"), "/stage/outcome/given/2/picks", json!([0, 1])),
    ] {
        assert!(matches!(read(&with(record, at, value)), Err(BadRecord::Json(_))), "{at}");
    }
    assert!(matches!(read(&with(&open, "/v", json!(3))), Err(BadRecord::Newer { found: 3, known: 2 })));
}
