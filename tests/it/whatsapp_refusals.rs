//! What must not happen on WhatsApp: nothing that is no answer answers, nobody who may not answer does,
//! and nothing that is not signed is heard.

use crate::harness::{World, choice};
use crate::on_whatsapp::{ADA, BOB, MALLORY, TO_ADA, TO_BOTH, binary_on_whatsapp, on_whatsapp, sim};
use crate::said;
use askd_sim::whatsapp::{Config, Message, Sending, Stage, Whatsapp};
use serde_json::{Value, json};

async fn asked(question: Value, text: &str) -> World {
    asked_in(on_whatsapp(sim(), TO_ADA, "").await, question, text).await
}

async fn asked_in(world: World, question: Value, text: &str) -> World {
    world.writes(ADA, "hello").await;
    world.ask("r1", question);
    world.shown(ADA, text).await;
    world.quiet(1).await;
    world
}

#[tokio::test]
async fn numbers_are_understood_as_people_write_them() {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    for (n, said) in ["²", "2.", "2)", " 2 ", "２"].iter().enumerate() {
        let (id, text) = (format!("r{n}"), format!("Which {n}?"));
        world.ask(&id, choice(&text, &["a", "b", "c"]));
        world.shown(ADA, &text).await;
        world.writes(ADA, said).await;
        assert_eq!(world.response(&id).await["result"]["answers"][&text], "b", "{said:?}");
    }
}

#[tokio::test]
async fn a_number_out_of_range_is_asked_back() {
    let world = asked(choice("Which?", &["a", "b", "c"]), "Which?").await;
    let before = world.records();
    world.writes(ADA, "7").await;
    world.shown(ADA, "Please pick 1-3, or answer in words: a number alone picks an option.").await;
    world.writes(ADA, "1,2").await;
    world.shown(ADA, "Please pick one of 1-3.").await;
    assert!(before == world.records());
    world.writes(ADA, "3").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "c");
}

#[tokio::test]
async fn a_label_that_is_another_ones_number_is_asked_back() {
    let world = asked(choice("How many?", &["2", "1"]), "How many?").await;
    world.writes(ADA, "2").await;
    world.shown(ADA, "One option has that name, another that number:\n1. 2\n2. 1\n").await;
    world.writes(ADA, "2.").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["How many?"], "1");
}

#[tokio::test]
async fn confirm_takes_no_free_text() {
    let world = asked(json!({"questions": [{"question": "Deploy?", "type": "confirm"}]}), "Deploy?").await;
    world.writes(ADA, "if the tests pass").await;
    world.shown(ADA, "Please reply 1 for Yes or 2 for No. (\"cancel\" to dismiss)").await;
    let before = world.records();
    for (said, proposal) in
        [("sure", "Shall I take that as Yes? Reply 1."), ("nope", "Shall I take that as No? Reply 2.")]
    {
        world.writes(ADA, said).await;
        assert_eq!(world.shown(ADA, proposal).await.text, proposal);
    }
    assert!(before == world.records(), "a proposal keeps nothing");
    world.writes(ADA, "yes").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Deploy?"], "Yes");
}

#[tokio::test]
async fn what_is_asked_back_names_the_question_where_several_are_open() {
    let world = asked(json!({"questions": [{"question": "Deploy?", "type": "confirm"}]}), "Deploy?").await;
    world.ask("r2", choice("Which?", &["a", "b"]));
    world.shown(ADA, "Which?").await;
    let code =
        world.open().iter().find(|ask| ask["request_id"] == "r1").unwrap()["short_id"].as_str().unwrap().to_owned();
    world.writes(ADA, &format!("{code} nope")).await;
    let proposal = format!("Shall I take that as No? Reply 2. Swipe the question to reply, or start with {code}.");
    assert_eq!(world.shown(ADA, "Shall I take").await.text, proposal, "a bare 2 could be about either");
    world.writes(ADA, &format!("{code} 2")).await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Deploy?"], "No");
}

#[tokio::test]
async fn what_has_no_words_is_not_an_answer() {
    let world = asked(choice("Which?", &["a", "b"]), "Which?").await;
    let question = world.shown(ADA, "Which?").await;
    let before = world.records();
    let hint = said::ONLY_TEXT;
    for (n, sending) in [
        Sending::Sticker,
        Sending::Voice,
        Sending::Image(Some(String::new())),
        Sending::Image(None),
        Sending::Unsupported,
    ]
    .iter()
    .enumerate()
    {
        let id = world.phone.person_sends(ADA, sending);
        world.taken(&id).await;
        // The same line is not sent twice at a time: it has to have arrived.
        let arrived = |message: &Message| message.stage.shown() && message.text.contains(hint);
        let told = || world.phone.messages_to(ADA).into_iter().filter(arrived).count() > n;
        world.until(&format!("a friendly line about {sending:?}"), told).await;
    }
    let reaction = Sending::Reaction { on: question.id.clone(), emoji: "\u{1f44d}".to_owned() };
    world.taken(&world.phone.person_sends(ADA, &reaction)).await;
    assert!(before == world.records(), "none of it changed anything");
    world.phone.person_sends(ADA, &Sending::Image(Some("2".to_owned())));
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b", "a caption is text");
    world.shown(ADA, "Answered: b by Ada").await;
    let hints = world.said_to(ADA).into_iter().filter(|text| text.contains(hint)).count();
    assert_eq!(hints, 5, "a reaction gets no reply");
}

#[tokio::test]
async fn chat_that_answers_nothing_is_left_alone() {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello, is anybody there?").await;
    let sticker = world.phone.person_sends(ADA, &Sending::Sticker);
    world.taken(&sticker).await;
    world.writes(ADA, "2").await;
    // What would have been said goes before what is said now.
    world.ask("r1", choice("Which?", &["a"]));
    world.shown(ADA, "Which?").await;
    assert_eq!(world.said_to(ADA).len(), 1, "{:#?}", world.said_to(ADA));
}

#[tokio::test]
async fn strangers_get_nothing_and_change_nothing() {
    let world = asked(choice("Which?", &["a", "b"]), "Which?").await;
    let before = world.records();
    let code = world.open()[0]["short_id"].as_str().unwrap().to_owned();
    for said in ["1", "a", "cancel", &format!("{code} 1")] {
        world.writes(MALLORY, said).await;
    }
    let question = world.shown(ADA, "Which?").await;
    let quoting = world.phone.person_quotes(MALLORY, &question.id, "1");
    world.taken(&quoting).await;
    assert!(before == world.records());
    world.writes(ADA, "1").await;
    world.response("r1").await;
    world.shown(ADA, "Answered: a by Ada").await;
    assert_eq!(world.said_to(MALLORY), Vec::<String>::new());
    let refused: Vec<Value> =
        world.audit().into_iter().filter(|line| line["what"] == "refused" && line["by"] == MALLORY).collect();
    assert!(!refused.is_empty() && refused.iter().all(|line| line["reason"] == "not_responder"));
}

/// `anyone` is anyone in the chat: a stranger with the code does not even skip.
#[tokio::test]
async fn a_stranger_answers_nothing_where_anyone_can_answer() {
    let route = format!("{{ channel = \"whatsapp\", chat = \"{ADA}\", responders = \"anyone\" }}");
    let optional = json!({"questions": [{"question": "Which?", "options": ["a", "b"], "required": false}]});
    let world = asked_in(on_whatsapp(sim(), &route, "").await, optional, "Which?").await;
    let before = world.records();
    let code = world.open()[0]["short_id"].as_str().unwrap().to_owned();
    let question = world.shown(ADA, "Which?").await;
    // After the question, by the platform's clock.
    let at = question.reached(Stage::Sent).unwrap() / 1000 + 2;
    for said in [format!("{code} 1"), format!("{code} skip")] {
        world.taken(&world.phone.person_says_at(MALLORY, &said, at)).await;
    }
    let quote = json!({"from": MALLORY, "id": "wamid.q", "timestamp": at.to_string(), "type": "text",
        "text": {"body": "1"}, "context": {"from": "1", "id": question.id}});
    assert_eq!(world.webhook(&quote).await, 200);
    assert!(before == world.records());
    world.writes(ADA, "2").await;
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "b");
}

#[tokio::test]
async fn who_may_answer_is_listed() {
    let world = on_whatsapp(sim(), TO_BOTH, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let question = world.shown(ADA, "Which?").await;
    let before = world.quiet(1).await;
    world.writes(MALLORY, "1").await;
    assert!(before == world.records(), "that number is not in the list");
    let code = world.open()[0]["short_id"].as_str().unwrap().to_owned();
    // Bob has heard of it elsewhere, a second after it was sent to the chat.
    world.phone.person_says_at(BOB, &format!("{code} 2"), question.reached(Stage::Sent).unwrap() / 1000 + 1);
    assert_eq!(world.response("r1").await["result"]["answered_by"]["id"], BOB);
    world.shown(BOB, "Answered: b by Bob").await;
    world.shown(ADA, "Answered: b by Bob").await;
}

#[tokio::test]
async fn last_weeks_duplicate_changes_nothing() {
    let world = binary_on_whatsapp(sim(), TO_ADA, "").await;
    let mut world = asked_in(world, choice("Which?", &["a", "b"]), "Which?").await;
    let said = world.writes(ADA, "1").await;
    world.response("r1").await;
    world.shown(ADA, "Answered: a by Ada").await;
    world.ask("r2", choice("And now?", &["c", "d"]));
    world.shown(ADA, "And now?").await;
    let before = world.quiet(1).await;
    world.restart().await;
    for _ in 0..3 {
        world.taken_again(&said).await;
    }
    assert!(before == world.records(), "the answer to the one is not the answer to the other");
    let said = world.said_to(ADA);
    assert!(
        !said.iter().any(|text| text.contains("Already answered") || text.contains("already been answered")),
        "{said:#?}"
    );
}

#[tokio::test]
async fn only_what_is_signed_and_ours_is_heard() {
    let world = asked(choice("Which?", &["a", "b"]), "Which?").await;
    let before = world.records();
    let now = world.phone.calls().last().unwrap().clock / 1000 + 2;
    let hook = |phone: &str, text: &str| {
        json!({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [{"field": "messages", "value": {
            "messaging_product": "whatsapp", "metadata": {"phone_number_id": phone},
            "contacts": [{"wa_id": ADA, "profile": {"name": "Ada"}}],
            "messages": [{"from": ADA, "id": "wamid.forged", "timestamp": now.to_string(), "type": "text", "text": {"body": text}}],
        }}]}]})
        .to_string()
    };
    let ours = world.phone.config().phone_number_id.clone();
    let body = hook(&ours, "1");
    let good = world.phone.sign(body.as_bytes());
    let post = async |body: &str, signature: Option<&str>| {
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let mut call = http.post(format!("{}/whatsapp/webhook", world.url())).body(body.to_owned());
        if let Some(signature) = signature {
            call = call.header("x-hub-signature-256", signature);
        }
        // 0: it hung up while the body was still on its way.
        call.send().await.map_or(0, |answer| answer.status().as_u16())
    };
    assert_eq!(post(&body, None).await, 401);
    assert_eq!(post(&body, Some("sha256=")).await, 401);
    assert_eq!(post(&body, Some(&good.replace("sha256=", "sha1="))).await, 401);
    assert_eq!(post(&body.replace("\"1\"", "\"2\""), Some(&good)).await, 401, "one byte changed");
    assert_eq!(post(&body, Some(&good[..good.len() - 2])).await, 401);
    let other = hook("999", "1");
    assert_eq!(post(&other, Some(&world.phone.sign(other.as_bytes()))).await, 200, "another number: ignored");
    assert_eq!(post("{}", Some(&world.phone.sign(b"{}"))).await, 200);
    assert_eq!(post("no json", Some(&world.phone.sign(b"no json"))).await, 200);
    let huge = "x".repeat(4 * 1024 * 1024 + 1);
    assert!(matches!(post(&huge, Some(&good)).await, 413 | 0));
    assert!(before == world.records(), "nothing of it was heard");
    let get = async |query: &str| {
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
        let answer = http.get(format!("{}/whatsapp/webhook{query}", world.url())).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    let asked = "?hub.mode=subscribe&hub.challenge=4711&hub.verify_token=";
    assert_eq!(get(&format!("{asked}sim-verify-token")).await, (200, "4711".to_owned()));
    assert_eq!(get(&format!("{asked}another")).await.0, 403);
    assert_eq!(get("").await.0, 403);
    assert_eq!(post(&body, Some(&good)).await, 200);
    assert_eq!(world.response("r1").await["result"]["answers"]["Which?"], "a");
}

#[tokio::test]
async fn webhooks_with_an_address_of_their_own_are_there_alone() {
    let port = crate::ports::free_port();
    let sim = Whatsapp::start(Config::default()).await.unwrap();
    let mut world = World::empty().config(&format!(
        "[http]\nwebhook_listen = \"127.0.0.1:{port}\"\n[whatsapp]\n\
         access_token = \"sim-token\"\napp_secret = \"sim-app-secret\"\nverify_token = \"sim-verify-token\"\n\
         phone_number_id = \"106540352242922\"\napi_url = \"{}\"\n",
        sim.api_url()
    ));
    world.begin().await;
    sim.set_webhook(Some(&format!("http://127.0.0.1:{port}/whatsapp/webhook")));
    let apart = sim.handshake().await;
    sim.set_webhook(Some(&format!("{}/whatsapp/webhook", world.url())));
    let beside = sim.handshake().await;
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let inbox = http.get(format!("http://127.0.0.1:{port}/")).send().await.unwrap().status().as_u16();
    assert_eq!((apart, beside.is_err(), inbox), (Ok(()), true, 404));
}
