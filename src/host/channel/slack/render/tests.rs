//! What cards look like, and what nothing in them can do. Limits are held by the stand-in's own rules, which are written
//! from Slack's and know nothing of this module.

use super::*;
use askd_core::{
    Accepted, Capabilities, ChannelName, Choice, Delivery, Digest, Draft, Event, Given, Person, Posted, Questions,
    Reply, Responders, Route, Rules, SessionRules, Source, TimeoutPolicy, Told, Via, Waiter, WidgetEvent,
};
use askd_sim::slack::blocks::{Surface, check};
use serde_json::json;
use std::time::Duration;

const NOW: Time = Time::from_millis(1_763_632_800_000);

fn draft(text: &str, kind: &str, labels: &[&str]) -> Draft {
    let choices = labels.iter().map(|label| Choice { label: (*label).to_owned(), description: None, style: None });
    Draft { text: text.to_owned(), kind: Some(kind.to_owned()), choices: choices.collect(), ..Draft::default() }
}

fn content(title: Option<&str>, context: Option<&str>, drafts: Vec<Draft>) -> Content {
    let questions = Questions::new("r", drafts).unwrap();
    Content::new(title.map(str::to_owned), context.map(str::to_owned), questions).unwrap()
}

fn drawn(content: &Content, attempt: u8) -> Vec<Message> {
    card(&view(&"research".parse().unwrap(), content, attempt))
}

fn view<'a>(group: &'a Group, content: &'a Content, attempt: u8) -> CardView<'a> {
    CardView { id: AskId::from_bits(7), group, content, attempt, retry: attempt - 1, until: NOW, timed_out: None }
}

/// An ask that is up in Slack.
fn ask(content: Content) -> Ask {
    ask_of(content, SessionRules::default())
}

/// The card of an ask that timed out and can still be answered.
fn late(content: Content) -> Message {
    let rules = SessionRules { start: true, late_answers: Duration::from_secs(3600), ..SessionRules::default() };
    let ask = ask_of(content, rules).step(Event::Tick, NOW + Duration::from_secs(1800)).unwrap().unwrap().ask;
    assert!(ask.is_late_open());
    closed(&ask, 0).unwrap()
}

fn ask_of(content: Content, session: SessionRules) -> Ask {
    let ask = Ask::accept(accepted(content, session), NOW).ask;
    let ask = ask.step(WidgetEvent::SlotGranted.on(0), NOW).unwrap().unwrap().ask;
    let posted = WidgetEvent::Posted { attempt: 1, posted: Posted::Shown("1.1".to_owned()) }.on(0);
    ask.step(posted, NOW).unwrap().unwrap().ask
}

/// What needs most room: characters that are escaped, that get a joint, whose lines are made bold one by one, and empty fields.
#[test]
fn a_text_that_is_certainly_short_is_one_message_whatever_is_in_it() {
    for kind in ["text", "select", "multi-select"] {
        for piece in ["&", "<", "@a", "#a", "a\n", "://", "a.a", "`", "]( ", "\u{7f}", "\u{202e}", "😀"] {
            let labels: Vec<String> = (0..10).map(|at| format!("{at}")).collect();
            let labels: Vec<&str> = labels.iter().map(String::as_str).filter(|_| kind != "text").collect();
            let fill = |bytes: usize| piece.repeat(bytes / piece.len());
            let drafts = || vec![draft(&format!("1{}", fill(90)), kind, &labels), draft("2", kind, &labels)];
            let contents = [
                content(Some(&format!("T{}", fill(60))), Some(&fill(200)), drafts()),
                content(None, None, vec![draft(&format!("1{}", fill(350)), kind, &labels)]),
                content(None, Some(&fill(360)), vec![draft("1", kind, &labels)]),
            ];
            for content in contents {
                assert!(open::is_certainly_short(&content), "{piece:?}");
                assert_eq!(drawn(&content, 3).len(), 1, "{kind} {piece:?}");
                assert!(total(&drawn(&content, 3)[0].blocks) < COMFORTABLE / 2, "{kind} {piece:?}");
            }
        }
    }
    let long = content(None, Some(&"a".repeat(401)), vec![draft("1", "text", &[])]);
    assert!(!open::is_certainly_short(&long));
}

#[test]
fn a_try_that_does_not_count_carries_no_number_in_its_heading() {
    let ask = Ask::accept(
        accepted(content(None, None, vec![draft("Which?", "select", &["a"])]), SessionRules::default()),
        NOW,
    );
    let mut ask = ask.ask.step(Event::Viewed, NOW).unwrap().unwrap().ask;
    let headed = |ask: &Ask| {
        let messages = card(&CardView::on(ask, 0, ask.widgets[0].attempt, NOW));
        json!(messages[0].blocks).to_string().contains("retry attempt")
    };
    for failed in 0..5 {
        assert_eq!(headed(&ask), (1..=3).contains(&failed), "{failed} tries have failed");
        let now = NOW + Duration::from_secs(300 * failed);
        ask = ask.step(WidgetEvent::SlotGranted.on(0), now).unwrap().unwrap().ask;
        let posted = Posted::NotPosted { retry_after_millis: None, trouble: askd_core::Trouble::NoConnection };
        let attempt = ask.widgets[0].attempt;
        ask = ask.step(WidgetEvent::Posted { attempt, posted }.on(0), now).unwrap().unwrap().ask;
    }
}

fn accepted(content: Content, session: SessionRules) -> Accepted {
    let route = Route {
        channel: ChannelName::SLACK,
        chat: "C1".to_owned(),
        responders: Responders::Anyone,
        capabilities: Capabilities::default(),
    };
    let rules = Rules {
        timeout: Duration::from_secs(1800),
        render_timeout: Duration::from_secs(30),
        max_retries: 3,
        keep: Duration::from_secs(86_400),
        remind_after: None,
        escalate_after: None,
        session,
    };
    let waiter = Waiter {
        request_id: "r1".parse().unwrap(),
        digest: Digest::from_bytes([1; 32]),
        op_code: None,
        on_timeout: TimeoutPolicy::ReturnCancel,
        process: None,
        other_session: None,
        briefed: None,
        asked_at: NOW,
        run: None,
        told: Told::Outcome,
        carrier: askd_core::Carrier::File,
        replaced: false,
        claim: None,
        response: Delivery::default(),
    };
    Accepted {
        id: AskId::from_bits(7),
        short_id: "k7".parse().unwrap(),
        group: "research".parse().unwrap(),
        content,
        rules,
        routes: vec![route],
        key: None,
        session: None,
        waiter,
    }
}

fn answered(content: Content, given: Vec<(usize, Given)>, name: &str) -> Message {
    let person =
        Person { via: Via::Channel(ChannelName::SLACK), id: "U0ALICE".to_owned(), name: Some(name.to_owned()) };
    let replied = Event::Replied { source: Source::Route(0), person, reply: Reply::Whole(given) };
    closed(&ask(content).step(replied, NOW).unwrap().unwrap().ask, 0).unwrap()
}

fn within_limits(messages: &[Message]) {
    for message in messages {
        assert_eq!(
            check(&message.blocks, Surface::Message, "/blocks"),
            Ok(()),
            "{:.2000}",
            json!(message.blocks).to_string()
        );
        assert!(message.text.chars().count() <= 4_000, "the limit of an edit's text");
    }
}

/// Every text of a message with the type of the object it stands in.
fn texts(message: &Message) -> Vec<(String, String)> {
    fn walk(value: &Value, into: &mut Vec<(String, String)>) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| walk(item, into)),
            Value::Object(map) => {
                if let (Some(Value::String(kind)), Some(Value::String(text))) = (map.get("type"), map.get("text")) {
                    if kind == "mrkdwn" {
                        assert_eq!(map["verbatim"], true, "Slack looks for nothing by itself");
                    }
                    into.push((kind.clone(), text.clone()));
                }
                map.values().for_each(|value| walk(value, into));
            }
            _ => {}
        }
    }
    let mut texts = vec![("top".to_owned(), message.text.clone())];
    walk(&json!(message.blocks), &mut texts);
    texts
}

/// What can be used in a message, with the block it stands in.
fn elements(message: &Message) -> Vec<String> {
    let of = |block: &Value| {
        let one = block.get("element").into_iter();
        let many = block["elements"].as_array().into_iter().flatten();
        let id = |element: &Value| Some(format!("{} {}", block["block_id"], element["action_id"].as_str()?));
        one.chain(many).filter_map(id).collect::<Vec<_>>()
    };
    message.blocks.iter().flat_map(of).collect()
}

#[test]
fn several_questions_are_one_form() {
    let optional = Draft {
        required: Some(false),
        placeholder: Some("for the notes".to_owned()),
        ..draft("Anything to add?", "text", &[])
    };
    let described = Draft {
        choices: vec![Choice { label: "Canary".to_owned(), description: Some("5 % first".to_owned()), style: None }],
        header: Some("How".to_owned()),
        ..draft("How to roll out?", "select", &[])
    };
    let content =
        content(None, None, vec![described, draft("Where to?", "multi-select", &["staging", "prod"]), optional]);
    let cards = drawn(&content, 2);
    within_limits(&cards);
    insta::assert_json_snapshot!(cards[0].blocks);
}

#[test]
fn what_is_too_long_for_a_button_stands_above_under_its_number() {
    let (long, wide) = ("x".repeat(75), "\u{1f600}".repeat(75));
    let content = content(None, None, vec![draft("Which?", "select", &["short", &long, &wide])]);
    let cards = drawn(&content, 1);
    within_limits(&cards);
    let labels: Vec<String> =
        texts(&cards[0]).into_iter().filter(|(kind, _)| kind == "plain_text").map(|(_, text)| text).collect();
    assert_eq!(labels[..3], ["1. short", "Option 2", "Option 3"]);
    assert!(texts(&cards[0]).iter().any(|(_, text)| text.contains(&format!("2. {long}\n3. {wide}"))));
}

/// Everything at its limit, in the characters that take the most room.
fn at_the_limits(filler: &str, questions: usize) -> Content {
    let drafts = (0..questions).map(|n| {
        let fill = |most: usize, start: String| {
            let left = most - start.chars().count();
            start + &filler.chars().cycle().take(left).collect::<String>()
        };
        let choices = (0..10).map(|c| Choice {
            label: fill(75, format!("{c} ")),
            description: Some(fill(300, String::new())),
            style: None,
        });
        Draft {
            text: fill(3000, format!("{n} ")),
            header: Some(fill(30, String::new())),
            kind: Some(if n % 2 == 0 { "select" } else { "multi-select" }.to_owned()),
            choices: choices.collect(),
            placeholder: Some(fill(150, String::new())),
            required: Some(n % 3 == 0),
            ..Draft::default()
        }
    });
    let long = |most: usize| filler.chars().cycle().take(most).collect::<String>();
    content(Some(&long(100)), Some(&long(3000)), drafts.collect())
}

#[test]
fn ten_questions_at_their_limits_fit_and_nothing_is_cut() {
    for filler in ["word ", "x", "&", "<>&", "\u{1f468}\u{200d}\u{1f469}", "é", "`", "*_~", "```\n", "\n", "://", "@a"]
    {
        for questions in [1, 2, 10] {
            let content = at_the_limits(filler, questions);
            assert_eq!(fits(&"research".parse().unwrap(), &content), Ok(()), "{filler:?} {questions}");
            for attempt in [1, 4] {
                let cards = drawn(&content, attempt);
                within_limits(&cards);
                let buttons =
                    |message: &Message| message.blocks.iter().filter(|block| block["type"] == "actions").count();
                let (last, before) = cards.split_last().unwrap();
                assert!(
                    buttons(last) > 0 && before.iter().all(|message| buttons(message) == 0),
                    "one message can be used"
                );
                let count = |text: &str| text.chars().filter(|c| !c.is_whitespace() && *c != '\u{2060}').count();
                let shown: usize = cards
                    .iter()
                    .flat_map(|card| &card.blocks)
                    .flat_map(|block| [&block["text"]["text"], &block["label"]["text"]])
                    .map(|text| count(text.as_str().unwrap_or_default()))
                    .sum();
                let said: usize = content.questions.iter().map(|question| count(&text::mrkdwn(&question.text))).sum();
                assert!(shown >= said, "{filler:?}: {shown} of {said}");
            }
            let after = late(content.clone());
            within_limits(std::slice::from_ref(&after));
            assert!(!json!(after.blocks).to_string().contains("\"dismiss\""));
            let typed = (0..questions).map(|n| (n, Given { picks: vec![], text: Some("y".repeat(3000)) })).collect();
            within_limits(&[answered(content, typed, &"n".repeat(80))]);
        }
    }
}

#[test]
fn a_late_card_is_as_many_messages_as_it_was() {
    let long = |n: usize| "word ".repeat(n);
    let mut both = [0, 0];
    for n in 540..=598 {
        let drafts = vec![draft(&long(596), "text", &[]), draft(&format!("{}the end", long(n)), "text", &[])];
        let content = content(Some("Title"), Some(&long(596)), drafts);
        let one = drawn(&content, 1).len() == 1;
        let after = late(content);
        within_limits(std::slice::from_ref(&after));
        let said = json!(after.blocks).to_string();
        assert_eq!(said.contains("the end"), one, "{n}: its texts stand in it, or above it");
        both[usize::from(one)] += 1;
    }
    assert!(both[0] > 0 && both[1] > 0, "{both:?}");
}

#[test]
fn every_mixture_of_questions_fits() {
    let kinds: [(&str, &[&str]); 4] =
        [("text", &[]), ("select", &["a", "b"]), ("multi-select", &["a"]), ("confirm", &[])];
    for (first, labels) in kinds {
        for (second, more) in kinds {
            for (custom, required) in [(false, false), (false, true), (true, true), (true, false)] {
                let one = |text: &str, kind: &str, labels: &[&str]| Draft {
                    custom: (custom && kind.contains("select")).then_some(true).or(Some(false)),
                    required: Some(required),
                    ..draft(text, kind, labels)
                };
                let alone = content(None, None, vec![one("q", first, labels)]);
                let both = content(None, None, vec![one("q", first, labels), one("r", second, more)]);
                for content in [alone, both] {
                    let cards = drawn(&content, 1);
                    within_limits(&cards);
                    assert_eq!(cards.len(), 1);
                    let said = json!(cards[0].blocks).to_string();
                    assert!(said.contains("\"dismiss\""), "it can always be dismissed");
                    let after = late(content.clone());
                    within_limits(std::slice::from_ref(&after));
                    let before = elements(&cards[0]).into_iter().filter(|id| !id.ends_with(" dismiss"));
                    assert_eq!(elements(&after), before.collect::<Vec<_>>(), "used as before, but for Dismiss");
                    assert_eq!(
                        said.contains("\"skip\""),
                        !required && (content.questions.len() == 1 || said.contains("radio_buttons"))
                    );
                }
            }
        }
    }
}

const INJECTIONS: &[&str] = &[
    "<!channel>",
    "<!here>",
    "<!everyone>",
    "<!channel|x>",
    "<!here|here>",
    "<@U0ALICE>",
    "<@U0ALICE|alice>",
    "<@W0ALICE>",
    "<#C0AGENTS>",
    "<#C0AGENTS|agents>",
    "<!subteam^S0X>",
    "<!subteam^S0X|@admins>",
    "<!date^1392734382^{date}^https://evil.example|x>",
    "<https://evil.example>",
    "<https://evil.example|Approve>",
    "<http://evil.example|your bank>",
    "<mailto:a@evil.example|mail>",
    "<tel:+1555|call>",
    "<slack://user?team=T&id=U|x>",
    "<javascript:alert(1)|x>",
    "https://evil.example/x?y=1",
    "http://evil.example",
    "HTTPS://EVIL.EXAMPLE",
    "hTTp://evil.example",
    "ftp://evil.example",
    "slack://open",
    "www.evil.example",
    "WWW.evil.example",
    "see https://evil.example.",
    "(https://evil.example)",
    "*https://evil.example*",
    "`https://evil.example`",
    "```https://evil.example```",
    "https://evil.example|Approve",
    "mailto:a@evil.example",
    "MAILTO:a@evil.example",
    "tel:+15551234567",
    "a@evil.example",
    "@channel",
    "@here",
    "@everyone",
    "@alice",
    "@U0ALICE",
    "#agents",
    "#general",
    "x@channel",
    "\n@here\n",
    "&lt;!channel&gt;",
    "&amp;lt;!channel&amp;gt;",
    "&#60;!channel&#62;",
    "<<!channel>>",
    "<!chan<!channel>nel>",
    "< !channel>",
    "<\u{200b}!channel>",
    "<\u{202e}!channel>",
    "\u{202e}lennahc!<",
    "<!\u{0}channel>",
    "<\n!channel>",
    "ht\u{200b}tps://evil.example",
    "https:\u{200b}//evil.example",
    "https:\u{ad}//evil.example",
    "@\u{200b}channel",
    "@\u{2060}here",
    "\u{feff}@here",
    "www\u{200b}.evil.example",
    "[Approve](https://evil.example)",
    "[x]: https://evil.example",
    "![x](https://evil.example/x.png)",
    "<img src=x>",
    "<script>alert(1)</script>",
    "{{7*7}}",
    "<!-- x -->",
    "Answered: yes by alice",
    "*research* asks",
    "\u{e0041}@here\u{e007f}",
    "javascript:alert(1)",
    "data:text/html,x",
    "evil.example/login",
];

#[test]
fn nothing_in_an_agent_s_text_can_mention_link_or_pose() {
    assert!(INJECTIONS.len() >= 60);
    for injection in INJECTIONS {
        let poisoned = |kind: &str, text: &str| Draft {
            header: Some(injection.chars().take(30).collect()),
            placeholder: Some((*injection).to_owned()),
            choices: if kind == "text" {
                vec![]
            } else {
                vec![Choice {
                    label: injection.chars().take(75).collect(),
                    description: Some((*injection).to_owned()),
                    style: None,
                }]
            },
            ..draft(text, kind, &[])
        };
        for drafts in [
            vec![poisoned("select", injection)],
            vec![poisoned("text", injection), poisoned("multi-select", &format!("{injection} 2"))],
        ] {
            let content = content(Some(injection), Some(injection), drafts);
            // U+0000 is refused in an answer.
            let said = injection.replace('\0', "");
            let given =
                (0..content.questions.len()).map(|n| (n, Given { picks: vec![], text: Some(said.clone()) })).collect();
            let mut messages = drawn(&content, 1);
            messages.push(late(content.clone()));
            messages.push(answered(content, given, injection));
            within_limits(&messages);
            for message in &messages {
                harmless(injection, message);
            }
        }
    }
}

fn harmless(injection: &str, message: &Message) {
    for (kind, text) in texts(message) {
        assert!(
            !text.chars().any(|c| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c)),
            "{injection:?}"
        );
        if kind == "plain_text" {
            continue;
        }
        // Our own: the date, and the person who answered.
        let foreign = own_forms_removed(&text);
        let lower = foreign.to_lowercase();
        let quotes: &[&str] = if kind == "markdown" { &["](", "][", "]:", "&#", "&lt;"] } else { &[">"] };
        for bad in ["<", "://", "mailto:", "tel:", "www.", "javascript:", "data:"].iter().chain(quotes) {
            let joined = lower.replace(&format!("{bad}\u{2060}"), "");
            assert!(!joined.contains(bad), "{injection:?} gives {bad:?} in {text:?}");
        }
        for mark in ['@', '#'] {
            let bare = foreign.char_indices().any(|(at, c)| {
                c == mark && foreign[at + 1..].chars().next().is_some_and(|next| next.is_alphanumeric() || next == '_')
            });
            assert!(!bare, "{injection:?} gives a bare {mark} in {text:?}");
        }
        let breaks_hosts = kind == "top" || kind == "markdown" && !injection.contains('`');
        assert!(!breaks_hosts || !lower.contains("evil.example"), "{injection:?} gives a host name in {text:?}");
    }
}

fn own_forms_removed(text: &str) -> String {
    let mut rest = text.replace("<@U0ALICE> ·", "").replace("<@U0ALICE>, after", "");
    while let Some(at) = rest.find("<!date^1763") {
        let end = rest[at..].find('>').unwrap();
        rest.replace_range(at..=at + end, "");
    }
    rest
}

/// The cards in `docs/cards`, which Slack's own libraries judge. `ASKD_CARDS=1` writes them anew.
#[test]
fn the_cards_in_the_documents_are_those_that_askd_posts() {
    let choice = || {
        let mut asked = draft("Shall I go on with the roll-out?", "select", &["Go on", "Wait an hour", "Roll back"]);
        asked.choices[0].style = Some(askd_core::Style::Primary);
        asked.choices[2].style = Some(askd_core::Style::Danger);
        asked.placeholder = Some("another time".to_owned());
        content(
            Some("Release 2.4"),
            Some("`canary` has served **5%** for an hour:\n- no errors\n- no alerts"),
            vec![asked],
        )
    };
    let form = || {
        let optional = Draft { required: Some(false), ..draft("Anything for the notes?", "text", &[]) };
        let drafts = vec![
            draft("Which targets?", "multi-select", &["staging", "production"]),
            draft("How fast?", "select", &["at once", "5% first"]),
            optional,
        ];
        content(Some("Release 2.4"), None, drafts)
    };
    let given = |picks: &[usize], text: Option<&str>| Given { picks: picks.to_vec(), text: text.map(str::to_owned) };
    let answers = vec![(0, given(&[0, 1], None)), (1, given(&[], Some("in an hour")))];
    let dismissed = {
        let via = Via::Channel(ChannelName::SLACK);
        let person = Person { via, id: "U0ALICE".to_owned(), name: Some("alice".to_owned()) };
        let event = Event::Replied { source: Source::Route(0), person, reply: Reply::Dismiss };
        closed(&ask(choice()).step(event, NOW).unwrap().unwrap().ask, 0).unwrap()
    };
    let over = ask(choice()).step(Event::Tick, NOW + Duration::from_secs(1800)).unwrap().unwrap().ask;
    let messages = [
        ("choice", drawn(&choice(), 1).remove(0)),
        ("choice-again", drawn(&choice(), 2).remove(0)),
        ("form", drawn(&form(), 1).remove(0)),
        ("text", drawn(&content(None, None, vec![draft("What is it called?", "text", &[])]), 1).remove(0)),
        ("answered", answered(choice(), vec![(0, given(&[1], None))], "alice")),
        ("answered-form", answered(form(), answers, "alice")),
        ("dismissed", dismissed),
        ("timed-out", closed(&over, 0).unwrap()),
        ("late", late(choice())),
        ("blocked", blocked(&often(choice()), 1).unwrap()),
        ("reminder", reminder(NOW)),
    ];
    for (name, Message { text, blocks }) in messages {
        crate::host::channel::as_documented(&format!("slack-{name}"), &json!({"text": text, "blocks": blocks}));
    }
    let (group, asked) = ("research".parse().unwrap(), choice());
    let modal = modal(&view(&group, &asked, 1), &json!({"channel_id": "C1", "message_ts": "1.1"})).unwrap();
    assert_eq!(askd_sim::slack::blocks::check_view(&modal), Vec::<String>::new());
    crate::host::channel::as_documented("slack-modal", &json!({"view": modal}));
}

#[test]
fn a_closed_card_says_answer_and_person_at_a_glance() {
    let choice = || content(None, Some("long"), vec![draft("Which?", "select", &["a*b", "c"])]);
    let last = |message: &Message| message.blocks.last().unwrap()["text"]["text"].as_str().unwrap().to_owned();
    let message = answered(choice(), vec![(0, Given { picks: vec![0], text: None })], "alice");
    assert!(last(&message).starts_with(":white_check_mark: *a∗b* by <@U0ALICE> · <!date^"), "{}", last(&message));
    assert!(!json!(message.blocks).to_string().contains("long"), "the background is gone");
    let two = content(None, None, vec![draft("Where to?", "multi-select", &["a", "b"]), draft("Why?", "text", &[])]);
    let given =
        vec![(0, Given { picks: vec![0, 1], text: None }), (1, Given { picks: vec![], text: Some("so".to_owned()) })];
    let message = answered(two, given, "alice");
    within_limits(std::slice::from_ref(&message));
    assert_eq!(message.blocks[1]["text"]["text"], "Where to? *a, b*\nWhy? *so*", "one line for each");
    assert!(last(&message).starts_with(":white_check_mark: Answered by <@U0ALICE> · "), "{}", last(&message));
    for longest in ["&", "*", "<>", "\u{1f600}", "://", "@a"] {
        let ten = (0..10).map(|n| draft(&format!("{n} {}", longest.repeat(900)), "text", &[])).collect();
        let typed = (0..10).map(|n| (n, Given { picks: vec![], text: Some(longest.repeat(900)) })).collect();
        within_limits(&[answered(content(None, None, ten), typed, "alice")]);
        let one = content(None, None, vec![draft(&longest.repeat(900), "select", &["a"])]);
        let typed = vec![(0, Given { picks: vec![], text: Some(longest.repeat(900)) })];
        within_limits(&[answered(one, typed, "alice")]);
    }
}

#[test]
fn the_modal_for_another_answer_fits_whatever_is_asked() {
    let group = "research".parse().unwrap();
    let modal_of = |content: &Content| modal(&view(&group, content, 1), &json!({"channel_id": "C1"}));
    for filler in ["x", "&", "\n", "\u{1f600}"] {
        let content = at_the_limits(filler, 1);
        let modal = modal_of(&content).unwrap();
        assert_eq!(askd_sim::slack::blocks::check_view(&modal), Vec::<String>::new());
    }
    for (kind, custom) in [("confirm", true), ("select", false), ("text", true), ("multi-select", true)] {
        let labels: &[&str] = if kind == "text" { &[] } else { &["a", "b"] };
        let asked = content(None, None, vec![Draft { custom: Some(custom), ..draft("Which?", kind, labels) }]);
        assert_eq!(modal_of(&asked), None, "{kind} {custom}: its card has no such button, or has a field");
    }
}

#[test]
fn emphasis_and_code_stay_readable() {
    let text = "*bold* _italic_ ~gone~ `code x < y` ```\nlet a = 1 & 2;\n``` 1. a\n• b";
    let content = content(None, None, vec![draft(text, "text", &[])]);
    let shown: Vec<String> = texts(&drawn(&content, 1)[0]).into_iter().map(|(_, text)| text).collect();
    let expected = text.replace('&', "&amp;").replace('<', "&lt;");
    assert!(shown.contains(&expected), "{shown:?}");
}

#[test]
fn a_block_of_code_goes_on_as_one_in_the_next_piece() {
    let code = format!("```\n{}```", "let a = 1;\n".repeat(600));
    let pieces = text::pieces(&code, 3000);
    assert!(pieces.len() > 2);
    assert!(pieces.iter().all(|piece| piece.matches("```").count() == 2 && text::units(piece) <= 3000), "{pieces:?}");
    assert_eq!(pieces.concat().matches("let a = 1;").count(), 600);
}

/// Asked too often.
fn often(content: Content) -> Ask {
    Ask::blocked(accepted(content, SessionRules::default()), 5, 17, NOW).ask
}

/// The same once the block has ended.
fn lifted(content: Content, by: Option<Person>) -> Ask {
    often(content).step(Event::FollowUp(askd_core::FollowUpEvent::Lifted { by }), NOW).unwrap().unwrap().ask
}

#[test]
fn a_card_of_a_block_has_the_questions_the_number_and_one_button() {
    let content = content(None, None, vec![draft("Deploy to *prod*?", "select", &["yes", "no"])]);
    let card = blocked(&often(content.clone()), 1).unwrap();
    within_limits(std::slice::from_ref(&card));
    let texts: Vec<String> = texts(&card).into_iter().map(|(_, text)| text).collect();
    assert!(texts.contains(&"*research* asked this 17 times without an answer".to_owned()), "{texts:?}");
    assert!(texts.contains(&"Deploy to *prod*?".to_owned()) && texts.contains(&"Allow again".to_owned()));
    let buttons: Vec<&Value> = card.blocks.iter().filter(|block| block["type"] == "actions").collect();
    assert_eq!(buttons.len(), 1);
    assert_eq!(
        (&buttons[0]["elements"][0]["action_id"], buttons[0]["elements"].as_array().unwrap().len()),
        (&json!("allow"), 1)
    );
    assert!(closed(&often(content.clone()), 0).is_none(), "it stands");
    let person =
        Person { via: Via::Channel(ChannelName::SLACK), id: "U0ALICE".to_owned(), name: Some("alice".to_owned()) };
    let ended = lifted(content.clone(), Some(person));
    assert!(blocked(&ended, 1).is_none());
    let card = closed(&ended, 0).unwrap();
    assert_eq!(card.text, "Allowed again by alice");
    assert!(json!(card.blocks).to_string().contains("Allowed again by <@U0ALICE> · <!date^"), "{:?}", card.blocks);
    assert!(!json!(card.blocks).to_string().contains("actions"));
    let nobody = closed(&lifted(content, None), 0).unwrap();
    assert_eq!(nobody.text, "Unblocked");
}

#[test]
fn a_card_of_a_block_is_one_message_however_long_its_questions_are_and_can_do_nothing() {
    let evil = "<!channel> <@U0ALICE> https://evil.example @here ";
    let long: Vec<Draft> = (0..10).map(|n| draft(&format!("{n} {}", &evil.repeat(55)), "text", &[])).collect();
    let content = content(None, None, long);
    for card in [blocked(&often(content.clone()), 1).unwrap(), closed(&lifted(content, None), 0).unwrap()] {
        within_limits(std::slice::from_ref(&card));
        for (_, text) in texts(&card) {
            let agent = text.replace("<!date^", "");
            assert!(!agent.contains("<!") && !agent.contains("<@") && !agent.contains("https://"), "{text}");
        }
    }
}
