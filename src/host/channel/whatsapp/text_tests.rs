//! What people read, letter for letter.

use super::deadline_text::zoned;
use super::text::{Audience, How, blocked, copied, question, tame, update};
use askd_core::{
    Accepted, Ask, AskId, Choice, Content, Delivery, Digest, Draft, Event, FollowUpEvent, Given, Heard, Names, Person,
    Questions, Relation, Reply, WidgetEvent,
};
use askd_core::{ChannelName, Route, Rules, SessionRules, Source, Time, TimeoutPolicy, Told, Tried, Via, Waiter};
use jiff::tz::TimeZone;
use std::time::Duration;

fn closing(ask: &Ask, audience: Audience, now: Time) -> Vec<String> {
    super::text::closing(ask, audience, &zoned(now, TimeZone::UTC))
}

fn draft(text: &str, labels: &[&str]) -> Draft {
    let choice = |label: &&str| Choice { label: (*label).to_owned(), description: None, style: None };
    Draft { text: text.to_owned(), choices: labels.iter().map(choice).collect(), ..Draft::default() }
}

fn content(drafts: Vec<Draft>) -> Content {
    Content { title: None, context: None, questions: Questions::new("r", drafts).unwrap() }
}

fn auth() -> Draft {
    draft("Which auth strategy?", &["JWT tokens", "Session cookies", "OAuth 2.0"])
}

fn one(content: &Content) -> String {
    let texts = question(content, 0, How::default());
    assert_eq!(texts.len(), 1);
    texts[0].clone()
}

#[test]
fn the_text_of_the_specification() {
    assert_eq!(
        one(&content(vec![auth()])),
        "The agent is asking: Which auth strategy?\n1. JWT tokens\n2. Session cookies\n3. OAuth 2.0\n\n\
         Reply with a number or type your own answer."
    );
}

#[test]
fn the_agent_is_named_once_in_a_line_above() {
    let content = content(vec![auth(), draft("Why?", &[])]);
    let how = How { agent: Some("research"), ..How::default() };
    let first = question(&content, 0, how).concat();
    assert!(first.starts_with("Agent: research\nQuestion 1 of 2\nThe agent is asking: Which"), "{first}");
    assert!(!question(&content, 1, how).concat().contains("research"));
}

#[test]
fn each_kind_says_how_it_is_answered() {
    let last = |draft: Draft| one(&content(vec![draft])).lines().last().unwrap().to_owned();
    assert_eq!(last(Draft { custom: Some(false), ..auth() }), "Reply with a number.");
    assert_eq!(last(Draft { kind: Some("confirm".into()), ..draft("Go?", &[]) }), "Reply with a number.");
    assert_eq!(last(draft("Why?", &[])), "Reply with your answer.");
    assert_eq!(last(Draft { required: Some(false), ..draft("Why?", &[]) }), "Reply with your answer. Reply 0 to skip.");
    let counted = Draft { required: Some(false), custom: Some(false), ..draft("How many?", &["none", "0", "2"]) };
    assert_eq!(last(counted), "Reply with a number. Reply \"skip\" to skip.", "0 is the name of an option");
    assert_eq!(
        last(Draft { multiple: true, ..auth() }),
        "Reply with one or more numbers, like 1,3, or type your own answer."
    );
    assert_eq!(
        last(Draft { multiple: true, custom: Some(false), ..auth() }),
        "Reply with one or more numbers, like 1,3."
    );
}

#[test]
fn title_context_descriptions_codes_and_several_questions() {
    let mut rollout = draft("How?", &["Canary"]);
    rollout.choices[0].description = Some("5 %\nfirst".to_owned());
    rollout.header = Some("Rollout".to_owned());
    let content = Content {
        title: Some("Release 2.4".to_owned()),
        context: Some("All tests pass.\n\n\n\nNo migration.".to_owned()),
        ..content(vec![rollout, draft("Why?", &[])])
    };
    let how =
        How { group: Some("research"), code: Some("k7"), repeat: true, until: Some("2 hours left."), agent: None };
    assert_eq!(
        question(&content, 0, how),
        ["(repeat)\nRelease 2.4\n\nAll tests pass.\n\nNo migration.\n\nQuestion 1 of 2\nRollout\n\
          The agent \"research\" is asking: How?\n1. Canary - 5 % first\n\n\
          Reply with a number or type your own answer.\n\
          Several questions are open. Swipe this one to reply, or start with k7: \"k7 2\".\n\n\
          2 hours left."]
    );
    assert_eq!(
        question(&content, 1, How::default()),
        ["Got it. Question 2 of 2\nThe agent is asking: Why?\n\nReply with your answer."]
    );
}

#[test]
fn the_agents_words_format_link_and_hide_nothing() {
    for (text, tamed) in [
        ("*bold* and `code`", "*\u{200b}bold* and `\u{200b}code`"),
        ("snake_case 2*3", "snake_case 2*3"),
        ("see https://evil.example/x", "see https:\u{200b}//evil.\u{200b}example/x"),
        ("evil.com and app.js, OAuth 2.0. Then", "evil.\u{200b}com and app.js, OAuth 2.0. Then"),
        ("mail a@b.org", "mail a@\u{200b}b.\u{200b}org"),
        ("abc\u{202e}def\u{0}\u{7}", "abcdef"),
        ("> quoted\n- item", ">\u{200b} quoted\n-\u{200b} item"),
    ] {
        assert_eq!(tame(text), tamed);
        let plain: String = tamed.chars().filter(|c| *c != '\u{200b}').collect();
        assert_eq!(copied(tamed), plain, "copied from the message");
    }
    for own in ["ភាសា\u{200b}ខ្មែរ", "\u{200b}"] {
        assert_eq!(copied(own), own);
    }
    let faked = one(&content(vec![draft("x", &["a\n2. b"])]));
    assert!(faked.contains("1. a 2. b\n"), "options are numbered by askd alone: {faked}");
}

#[test]
fn what_is_long_is_split_and_nothing_is_cut() {
    let word = |n: usize| format!("w{n}");
    let words = |n: usize| (0..n).map(word).collect::<Vec<_>>().join(" ");
    let mut long = draft(&words(550), &["a", "b"]);
    for (n, choice) in long.choices.iter_mut().enumerate() {
        choice.description = Some(format!("{n}{}", "é".repeat(299)));
    }
    let content = Content { context: Some(words(540)), ..content(vec![long]) };
    let texts = question(&content, 0, How::default());
    assert!(texts.len() > 1 && texts.iter().all(|text| (1..=4096).contains(&text.encode_utf16().count())));
    let all = texts.join(" ");
    let said: Vec<&str> = all.split_whitespace().filter(|part| part.starts_with('w')).collect();
    assert_eq!(said.len(), 550 + 540 + 1, "with the word \"with\"");
    assert!(texts.last().unwrap().contains("\n2. b"), "what can be chosen is the last one");
    let emoji = "\u{1f600}".repeat(3000);
    let parts = question(&self::content(vec![draft(&emoji, &[])]), 0, How::default());
    assert!(parts.iter().all(|text| text.encode_utf16().count() <= 4096));
    assert_eq!(parts.iter().map(|text| text.matches('\u{1f600}').count()).sum::<usize>(), 3000);
}

#[test]
fn the_closing_line_says_how_it_ended_and_who_did_it() {
    let accepted = |content| Accepted {
        id: AskId::from_bits(1),
        short_id: "k7".parse().unwrap(),
        group: "g".parse().unwrap(),
        content,
        rules: Rules {
            timeout: Duration::from_secs(60),
            render_timeout: Duration::from_secs(30),
            max_retries: 3,
            keep: Duration::from_secs(60),
            remind_after: None,
            escalate_after: None,
            session: SessionRules { start: true, late_answers: Duration::from_secs(3600), ..SessionRules::default() },
        },
        routes: vec![Route {
            channel: ChannelName::WHATSAPP,
            chat: "15550001111".to_owned(),
            responders: askd_core::Responders::Only(vec!["15550001111".to_owned()]),
            capabilities: askd_core::Capabilities::default(),
        }],
        key: None,
        session: None,
        waiter: Waiter {
            request_id: "r".parse().unwrap(),
            digest: Digest::from_bytes([0; 32]),
            op_code: None,
            on_timeout: TimeoutPolicy::ReturnCancel,
            process: None,
            other_session: None,
            briefed: None,
            asked_at: Time::from_millis(0),
            run: None,
            told: Told::Outcome,
            carrier: askd_core::Carrier::File,
            replaced: false,
            claim: None,
            response: Delivery::default(),
        },
    };
    let now = Time::from_millis(1_790_000_000_000);
    let ask = Ask::accept(accepted(content(vec![auth()])), now).ask;
    let person =
        Person { via: Via::Channel(ChannelName::WHATSAPP), id: "15550001111".to_owned(), name: Some("Ada".to_owned()) };
    let heard = Heard { message: "m".to_owned(), at: None, names: Names::Message };
    let reply = Reply::Told { index: 0, given: Given { picks: vec![0], text: None }, heard };
    let answered =
        ask.clone().step(Event::Replied { source: Source::Route(0), person, reply }, now).unwrap().unwrap().ask;
    assert_eq!(closing(&answered, Audience::Others, Time::from_millis(0)), ["Answered: JWT tokens by Ada"]);
    assert_eq!(closing(&answered, Audience::Ender, Time::from_millis(0)), ["Answered: JWT tokens by Ada"]);
    assert_eq!(
        closing(&answered, Audience::HadBegun, Time::from_millis(0)),
        ["Answered: JWT tokens by Ada\nYour answers were not used."]
    );
    let withdrawn = ask.clone().step(Event::Cancel(Person::operator(Via::Api)), now).unwrap().unwrap().ask;
    assert_eq!(closing(&withdrawn, Audience::Ender, Time::from_millis(0)), ["Cancelled"]);
    // A question that was asked too often, as long as it is blocked and after that.
    let often = |content| Ask::blocked(accepted(content), 5, 6, now).ask;
    assert_eq!(
        blocked(&often(content(vec![auth()]))),
        ["The agent \"g\" has asked this question 6 times without an answer:\nWhich auth strategy?\n\n\
          The agent was told to wait for your guidance. It cannot ask this again until you allow it. To allow it \
          again, reply \"allow k7\", or swipe this to reply \"allow\"."]
    );
    let often = often(content((0..10).map(|n| draft(&format!("{n} {}", "*x* ".repeat(740)), &[])).collect()));
    let texts = blocked(&often);
    assert!(texts.len() > 1 && texts.iter().all(|text| (1..=4096).contains(&text.encode_utf16().count())));
    assert!(texts.last().unwrap().contains("reply \"allow k7\""));
    let by = Some(Person {
        via: Via::Channel(ChannelName::WHATSAPP),
        id: "15550001111".to_owned(),
        name: Some("Ada".to_owned()),
    });
    let often = often.step(Event::FollowUp(FollowUpEvent::Lifted { by }), now).unwrap().unwrap().ask;
    assert_eq!(closing(&often, Audience::Ender, Time::from_millis(0)), ["Allowed again by Ada"]);
    // What was asked one by one is answered late elsewhere.
    let several = content(vec![auth(), draft("And now?", &["yes", "no"])]);
    let several = timed_out(Ask::accept(accepted(several), now).ask, now);
    assert!(several.is_late_open());
    assert_eq!(closing(&several, Audience::HadBegun, now), ["Timed out\nYour answers were not used."]);
    after_the_timeout(ask, now);
}

fn timed_out(ask: Ask, now: Time) -> Ask {
    let posted = ask.step(WidgetEvent::SlotGranted.on(0), now).unwrap().unwrap().ask;
    let shown = posted.step(WidgetEvent::Proof.on(0), now).unwrap().unwrap().ask;
    shown.step(Event::Tick, now + Duration::from_secs(60)).unwrap().unwrap().ask
}

/// What is said of it then: 2026-09-21T14:13:20Z, or that of the next day.
fn after_the_timeout(ask: Ask, now: Time) {
    let over = now + Duration::from_secs(60);
    let step = |ask: Ask, event: Event| ask.step(event, over).unwrap().unwrap().ask;
    let late = timed_out(ask, now);
    let how = "Timed out at 14:14. You can still answer: the agent will be started with it. \
               Swipe the question to reply, or start with k7.";
    assert_eq!(closing(&late, Audience::Others, over), [how]);
    assert_eq!(update(&late, Audience::Others), Vec::<String>::new(), "it was said when it was closed");
    let again = step(late.clone(), Event::Requested(Relation::Supersedes));
    assert_eq!(
        (closing(&again, Audience::Others, over), update(&again, Audience::Others)),
        (vec!["Timed out\nAsked again.".to_owned()], vec!["Asked again.".to_owned()],)
    );
    let person = Person { via: Via::Api, id: "operator".to_owned(), name: None };
    let reply = Reply::Whole(vec![(0, Given { picks: vec![0], text: None })]);
    let answered = step(late, Event::Replied { source: Source::Token, person, reply });
    let line = "Answered after the timeout: JWT tokens by operator";
    assert_eq!(closing(&answered, Audience::Others, over), [line]);
    assert_eq!(update(&answered, Audience::Others), Vec::<String>::new(), "until it is known what becomes of it");
    let started = step(
        step(answered, Event::FollowUp(FollowUpEvent::Briefed { nth: 1 })),
        Event::FollowUp(FollowUpEvent::Tried { nth: 1, what: Tried::Started { accepted: true } }),
    );
    let remark = "The agent was started with the answer.";
    assert_eq!(closing(&started, Audience::Others, over), [format!("{line}\n{remark}")]);
    assert_eq!(update(&started, Audience::Others), [format!("{line}\n{remark}")]);
    assert_eq!(update(&started, Audience::Ender), [remark]);
}
