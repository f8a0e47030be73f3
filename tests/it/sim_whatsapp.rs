//! The stand-in of the WhatsApp Cloud API keeps Meta's rules: what it accepts, refuses, delivers late, and
//! how its webhooks look and travel.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use askd_sim::whatsapp::{
    Config, Fault, FaultMix, Ladder, Message, Person, Sending, Shapes, Stage, Template, Traffic, Whatsapp,
};
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};

const ADA: &str = "15550001111";
const SOON: Duration = Duration::from_secs(30);

/// The business's side: a webhook that keeps what comes, and a client that sends.
#[derive(Clone, Default)]
struct Business {
    got: Arc<Mutex<Vec<(String, String)>>>,
    /// Answers so many POSTs with 500 first.
    refuse: Arc<Mutex<usize>>,
}

impl Business {
    async fn listen(&self) -> String {
        let app = axum::Router::new()
            .route(
                "/hook",
                axum::routing::get(async |query| Self::verify(&query))
                    .post(async |State(me), headers, body| Self::take(&me, &headers, &body)),
            )
            .with_state(self.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        url
    }

    fn verify(Query(query): &Query<Vec<(String, String)>>) -> (StatusCode, String) {
        let get = |key: &str| query.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone()).unwrap_or_default();
        if get("hub.mode") == "subscribe" && get("hub.verify_token") == "sim-verify-token" {
            (StatusCode::OK, get("hub.challenge"))
        } else {
            (StatusCode::FORBIDDEN, String::new())
        }
    }

    fn take(me: &Self, headers: &HeaderMap, body: &Bytes) -> StatusCode {
        let mut refuse = me.refuse.lock().unwrap();
        if *refuse > 0 {
            *refuse -= 1;
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        let signature = headers["x-hub-signature-256"].to_str().unwrap().to_owned();
        me.got.lock().unwrap().push((signature, String::from_utf8(body.to_vec()).unwrap()));
        StatusCode::OK
    }

    /// All of one kind (`messages`, `statuses`) that came, in order.
    fn all(&self, kind: &str) -> Vec<Value> {
        let mut found = Vec::new();
        for (_, body) in self.got.lock().unwrap().iter() {
            let body: Value = serde_json::from_str(body).unwrap();
            for entry in body["entry"].as_array().unwrap() {
                for change in entry["changes"].as_array().unwrap() {
                    assert_eq!(change["field"], "messages");
                    found.extend(change["value"][kind].as_array().cloned().unwrap_or_default());
                }
            }
        }
        found
    }

    fn stages(&self, id: &str) -> Vec<String> {
        let of = self.all("statuses").into_iter().filter(|s| s["id"] == id);
        of.map(|s| s["status"].as_str().unwrap().to_owned()).collect()
    }
}

async fn world(config: Config) -> (Whatsapp, Business) {
    let business = Business::default();
    let sim = Whatsapp::start(Config { webhook: Some(business.listen().await), ..config }).await.unwrap();
    (sim, business)
}

/// One call with the right token.
async fn call(sim: &Whatsapp, body: Value) -> (u16, Value) {
    let url = format!("{}/{}/messages", sim.api_url(), sim.config().phone_number_id);
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let answer = http.post(url).bearer_auth(&sim.config().token).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

fn text(to: &str, body: &str) -> Value {
    json!({"messaging_product": "whatsapp", "recipient_type": "individual", "to": to, "type": "text",
        "text": {"preview_url": false, "body": body}})
}

fn code(answer: &Value) -> i64 {
    answer["error"]["code"].as_i64().unwrap_or(0)
}

fn id(answer: &Value) -> String {
    answer["messages"][0]["id"].as_str().unwrap().to_owned()
}

async fn shown(sim: &Whatsapp, body: &str) -> Message {
    sim.wait_for_message(|m| m.stage.shown() && m.text == body, SOON).await.expect("never shown")
}

#[tokio::test]
async fn a_question_and_its_answer() {
    let (sim, business) = world(Config { people: vec![Person::new(ADA, "Ada")], ..Config::default() }).await;
    sim.person_says(ADA, "hello");
    let mut ask = text("+1 (555) 000-1111", "Which? \u{1f914}");
    ask["biz_opaque_callback_data"] = json!("tok-1");
    let (status, answer) = call(&sim, ask).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["messaging_product"], "whatsapp");
    assert_eq!(answer["contacts"], json!([{"input": "+1 (555) 000-1111", "wa_id": ADA}]));
    let question = shown(&sim, "Which? \u{1f914}").await;
    assert_eq!(question.id, id(&answer));
    assert!(question.id.starts_with("wamid."));
    let reply = sim.person_quotes(ADA, &question.id, "\u{fc}ber 2 / 3");
    assert!(sim.wait_until(|_| business.all("messages").len() == 2, SOON).await);
    sim.opens_chat(ADA);
    assert!(sim.wait_until(|_| business.stages(&question.id) == ["sent", "delivered", "read"], SOON).await);
    assert!(business.all("statuses").iter().all(|s| s["biz_opaque_callback_data"] == "tok-1"));
    let last = business.all("messages").pop().unwrap();
    assert_eq!(
        (&last["id"], &last["from"], &last["text"]["body"]),
        (&json!(reply), &json!(ADA), &json!("\u{fc}ber 2 / 3"))
    );
    assert_eq!(last["context"], json!({"from": "15550783881", "id": question.id}));
    for (signature, body) in business.got.lock().unwrap().iter() {
        assert!(body.is_ascii());
        assert_eq!(*signature, sim.sign(body.as_bytes()));
    }
    let call = &sim.calls()[0];
    assert_eq!((call.status, call.to.as_deref(), call.message.as_deref()), (200, Some(ADA), Some(&*question.id)));
}

#[tokio::test]
async fn the_handshake_is_metas() {
    let (sim, _business) = world(Config::default()).await;
    assert_eq!(sim.handshake().await, Ok(()));
    let (other, _) = world(Config { verify_token: "another".into(), ..Config::default() }).await;
    assert!(other.handshake().await.is_err());
}

#[tokio::test]
async fn outside_the_window_free_form_fails_late_and_a_template_opens_it() {
    let template = Template {
        name: "agent_question".into(),
        language: "en_US".into(),
        body: "{{1}} has a question".into(),
        buttons: vec!["Show it".into()],
    };
    let (sim, business) = world(Config { templates: vec![template], ..Config::default() }).await;
    let (status, answer) = call(&sim, text(ADA, "cold")).await;
    assert_eq!(status, 200, "accepted all the same");
    let cold = id(&answer);
    assert!(sim.wait_until(|_| business.stages(&cold) == ["failed"], SOON).await);
    assert_eq!(business.all("statuses")[0]["errors"][0]["code"], 131_047);

    let component = json!([{"type": "body", "parameters": [{"type": "text", "text": "research"}]},
        {"type": "button", "sub_type": "quick_reply", "index": "0", "parameters": [{"type": "payload", "payload": "k7"}]}]);
    let mut ask = json!({"messaging_product": "whatsapp", "to": ADA, "type": "template",
        "template": {"name": "agent_question", "language": {"code": "en_US"}, "components": component}});
    let (status, _) = call(&sim, ask.clone()).await;
    assert_eq!(status, 200);
    let template = shown(&sim, "research has a question").await;
    assert!(sim.person_taps(&template, "Show it").is_some());
    assert!(sim.wait_until(|_| business.all("messages").len() == 1, SOON).await);
    assert_eq!(business.all("messages")[0]["button"], json!({"payload": "k7", "text": "Show it"}));

    call(&sim, text(ADA, "warm")).await;
    shown(&sim, "warm").await;
    sim.advance(Duration::from_secs(24 * 3600));
    let (_, answer) = call(&sim, text(ADA, "cold again")).await;
    assert!(sim.wait_until(|_| business.stages(&id(&answer)) == ["failed"], SOON).await);
    assert_eq!(sim.messages_to(ADA).iter().filter(|m| m.stage == Stage::Failed).count(), 2);

    ask["template"]["name"] = json!("never_approved");
    assert_eq!(code(&call(&sim, ask.clone()).await.1), 132_001);
    ask["template"]["name"] = json!("agent_question");
    ask["template"]["components"] = json!([]);
    assert_eq!(code(&call(&sim, ask).await.1), 132_000);
}

#[tokio::test]
async fn refusals_carry_metas_codes() {
    let allowed = Some(vec![ADA.to_owned()]);
    let (sim, _business) = world(Config { allowed, ..Config::default() }).await;
    assert_eq!(code(&call(&sim, text("15559999999", "x")).await.1), 131_030);
    assert_eq!(code(&call(&sim, text("15550783881", "x")).await.1), 131_021);
    assert_eq!(code(&call(&sim, text("nobody", "x")).await.1), 131_009);
    let (status, answer) = call(&sim, text(ADA, "")).await;
    assert_eq!((status, code(&answer)), (400, 100));
    let error = &answer["error"];
    assert_eq!(error["type"], "OAuthException");
    assert!(error["fbtrace_id"].is_string() && error["error_data"]["details"].is_string());
    assert_eq!(error["error_data"]["messaging_product"], "whatsapp");
    for (state, status) in [(131_031, 403), (368, 403), (190, 401), (80007, 400), (131_000, 500)] {
        sim.account(Some(state));
        let (got, answer) = call(&sim, text(ADA, "x")).await;
        assert_eq!((got, code(&answer)), (status, state));
    }
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let url = format!("{}/{}/messages", sim.api_url(), sim.config().phone_number_id);
    let answer = http.post(&url).bearer_auth("wrong").json(&text(ADA, "x")).send().await.unwrap();
    assert_eq!(answer.status(), 401);
    let answer = http.post(format!("{}/1/messages", sim.api_url())).bearer_auth("sim-token").json(&json!({}));
    let answer: Value = answer.send().await.unwrap().json().await.unwrap();
    assert_eq!((code(&answer), answer["error"]["error_subcode"].as_i64()), (100, Some(33)));
    assert!(sim.messages_to(ADA).is_empty());
}

#[tokio::test]
async fn the_pair_limit_borrows_45_and_wants_them_back() {
    let (sim, _business) = world(Config { throughput: 0, clock_held: true, ..Config::default() }).await;
    sim.person_says(ADA, "hi");
    for i in 0..45 {
        assert_eq!(call(&sim, text(ADA, &i.to_string())).await.0, 200, "message {i}");
    }
    let (status, answer) = call(&sim, text(ADA, "one too many")).await;
    assert_eq!((status, code(&answer)), (400, 131_056));
    assert_eq!(call(&sim, text("15550002222", "somebody else")).await.0, 200);
    sim.advance(Duration::from_secs(45 * 6 - 1));
    assert_eq!(code(&call(&sim, text(ADA, "still in debt")).await.1), 131_056);
    sim.advance(Duration::from_secs(1));
    assert_eq!(call(&sim, text(ADA, "paid")).await.0, 200);
}

#[tokio::test]
async fn eighty_a_second_for_the_number() {
    let (sim, _business) = world(Config { throughput: 2, clock_held: true, ..Config::default() }).await;
    let mut refused = 0;
    for i in 0..10 {
        let (_, answer) = call(&sim, text(&format!("1555000{i:04}"), "x")).await;
        refused += usize::from(code(&answer) == 130_429);
    }
    assert_eq!(refused, 8);
}

#[tokio::test]
async fn a_phone_that_is_off_shows_and_says_nothing_until_it_is_on() {
    let (sim, business) = world(Config::default()).await;
    sim.person_says(ADA, "hi");
    sim.phone(ADA, false);
    let (_, answer) = call(&sim, text(ADA, "later")).await;
    assert!(sim.wait_until(|_| business.stages(&id(&answer)) == ["sent"], SOON).await);
    sim.person_says(ADA, "typed in the tunnel");
    // Sent after it and with the same delays: once this is there, the other had its time.
    sim.person_says("15550002222", "hi");
    call(&sim, text("15550002222", "now")).await;
    shown(&sim, "now").await;
    assert_eq!(sim.message(&id(&answer)).unwrap().stage, Stage::Sent);
    assert_eq!(business.all("messages").len(), 2);
    sim.phone(ADA, true);
    shown(&sim, "later").await;
    assert!(sim.wait_until(|_| business.all("messages").len() == 3, SOON).await);
}

#[tokio::test]
async fn somebody_with_a_username_only() {
    let hidden = Person::hidden("4915100001111", "Grace", "grace");
    let (sim, business) = world(Config { people: vec![hidden.clone()], ..Config::default() }).await;
    sim.person_says(&hidden.user_id, "hi");
    assert!(sim.wait_until(|_| !business.all("messages").is_empty(), SOON).await);
    let message = business.all("messages").pop().unwrap();
    assert_eq!((message.get("from"), &message["from_user_id"]), (None, &json!(hidden.user_id)));
    let contact = business.all("contacts").pop().unwrap();
    assert_eq!(contact, json!({"profile": {"name": "Grace", "username": "grace"}, "user_id": hidden.user_id}));
    let mut ask = text("x", "hello");
    ask.as_object_mut().unwrap().remove("to");
    ask["recipient"] = json!(hidden.user_id);
    let (status, answer) = call(&sim, ask.clone()).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["contacts"], json!([{"input": hidden.user_id, "user_id": hidden.user_id}]));
    assert!(sim.wait_until(|_| business.stages(&id(&answer)).len() == 2, SOON).await);
    assert!(business.all("statuses").iter().all(|s| s.get("recipient_id").is_none()));
    ask["recipient"] = json!("US.404");
    assert_eq!(code(&call(&sim, ask).await.1), 131_026);
}

#[tokio::test]
async fn everything_else_a_person_can_send() {
    let (sim, business) = world(Config::default()).await;
    sim.person_says(ADA, "hi");
    let buttons = json!([{"type": "reply", "reply": {"id": "q:0", "title": "Yes"}}]);
    let interactive = json!({"type": "button", "body": {"text": "OK?"}, "action": {"buttons": buttons}});
    let ask = json!({"messaging_product": "whatsapp", "to": ADA, "type": "interactive", "interactive": interactive});
    call(&sim, ask).await;
    let question = shown(&sim, "OK?").await;
    sim.person_taps(&question, "Yes").unwrap();
    let on = question.id.clone();
    for sending in [
        Sending::Sticker,
        Sending::Voice,
        Sending::Image(Some(String::new())),
        Sending::Reaction { on, emoji: "\u{1f44d}".into() },
        Sending::Unsupported,
    ] {
        sim.person_sends(ADA, &sending);
    }
    assert!(sim.wait_until(|_| business.all("messages").len() == 7, SOON).await);
    let kinds: Vec<String> = business.all("messages").iter().map(|m| m["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["text", "interactive", "sticker", "audio", "image", "reaction", "unsupported"]);
    let tapped = &business.all("messages")[1];
    assert_eq!(tapped["interactive"]["button_reply"], json!({"id": "q:0", "title": "Yes"}));
    assert_eq!(tapped["context"]["id"], question.id);
    assert_eq!(business.all("messages")[4]["image"]["caption"], "");
    assert_eq!(sim.message(&question.id).unwrap().reaction.as_deref(), Some("\u{1f44d}"));
}

#[tokio::test]
async fn webhooks_are_tried_again_doubled_shuffled_and_batched_and_nothing_is_lost() {
    let traffic = Traffic {
        gather_ms: 30,
        batch: 7,
        shuffle: true,
        duplicate: 0.5,
        retry_ms: vec![10, 20, 40, 80, 160],
        ..Traffic::default()
    };
    let (sim, business) = world(Config { traffic, ..Config::default() }).await;
    *business.refuse.lock().unwrap() = 3;
    let sent: Vec<String> = (0..40).map(|i| sim.person_says(&format!("1555000{:04}", i % 9), &i.to_string())).collect();
    let unique = |b: &Business| -> std::collections::BTreeSet<String> {
        b.all("messages").iter().map(|m| m["id"].as_str().unwrap().to_owned()).collect()
    };
    assert!(sim.wait_until(|_| unique(&business).len() == 40, SOON).await);
    let got = business.all("messages");
    assert!(got.len() > 40, "no duplicates among {}", got.len());
    let order: Vec<&str> = got.iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_ne!(order[..10], sent.iter().map(String::as_str).collect::<Vec<_>>()[..10]);
    assert!(sim.webhooks().iter().any(|w| w.attempt > 1 && w.status == 200));
    assert!(sim.webhooks().len() < 40, "nothing was batched");
    let before = got.len();
    assert_eq!(sim.webhook_again(0).await, Some(200));
    assert!(business.all("messages").len() > before);
}

#[tokio::test]
async fn faults_before_lose_the_message_and_faults_after_only_the_answer() {
    let (sim, _business) = world(Config { stall_ms: 50, ..Config::default() }).await;
    sim.person_says(ADA, "hi");
    let url = format!("{}/{}/messages", sim.api_url(), sim.config().phone_number_id);
    for fault in [
        Fault::Code(130_429),
        Fault::Http(502),
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::StallBefore,
        Fault::StallAfter,
        Fault::TruncatedBody,
        Fault::WrongJson,
    ] {
        sim.advance(Duration::from_secs(6));
        sim.fault(fault, 1);
        let body = format!("{fault:?}");
        let http =
            reqwest::Client::builder().no_proxy().tls_certs_only([]).retry(reqwest::retry::never()).build().unwrap();
        let answer = http.post(&url).bearer_auth("sim-token").json(&text(ADA, &body)).send().await;
        let read = match answer {
            Ok(answer) => answer.json::<Value>().await.map_err(|_| ()),
            Err(_) => Err(()),
        };
        let understood = read.is_ok_and(|v| v["messages"][0]["id"].is_string());
        assert_eq!(understood, fault == Fault::StallAfter, "{fault:?}");
        let there = sim.messages_to(ADA).iter().any(|m| m.text == body);
        let after = [Fault::ResetAfter, Fault::StallAfter, Fault::TruncatedBody, Fault::WrongJson];
        assert_eq!(there, after.contains(&fault), "{fault:?}");
    }
    sim.faults(FaultMix { share: 1.0, kinds: vec![Fault::Http(503)] });
    let answer = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    assert_eq!(answer.post(&url).bearer_auth("sim-token").json(&text(ADA, "x")).send().await.unwrap().status(), 503);
    assert_eq!(sim.calls().iter().filter(|c| c.status == 0).count(), 2);
}

#[tokio::test]
async fn statuses_on_demand_in_any_order_and_silence() {
    let ladder = Ladder { sent_ms: None, ..Ladder::default() };
    let (sim, business) = world(Config { ladder, pair_every_ms: 0, ..Config::default() }).await;
    sim.person_says(ADA, "hi");
    let (_, answer) = call(&sim, text(ADA, "x")).await;
    for stage in [Stage::Read, Stage::Sent, Stage::Delivered] {
        assert!(sim.status(&id(&answer), stage, None));
    }
    assert!(sim.wait_until(|_| business.stages(&id(&answer)) == ["read", "sent", "delivered"], SOON).await);
    assert_eq!(sim.message(&id(&answer)).unwrap().stage, Stage::Read);
    sim.ladder(Ladder { told: false, ..Ladder::default() });
    call(&sim, text(ADA, "silent")).await;
    let silent = shown(&sim, "silent").await;
    assert!(business.stages(&silent.id).is_empty());
    sim.reachable("15550003333", false);
    sim.ladder(Ladder::default());
    let (_, answer) = call(&sim, text("15550003333", "x")).await;
    assert!(sim.wait_until(|_| business.stages(&id(&answer)) == ["failed"], SOON).await);
}

#[tokio::test]
async fn marking_as_read_shows_typing_until_the_next_message() {
    let (sim, _business) = world(Config::default()).await;
    let (first, second) = (sim.person_says(ADA, "one"), sim.person_says(ADA, "two"));
    let read = json!({"messaging_product": "whatsapp", "status": "read", "message_id": second,
        "typing_indicator": {"type": "text"}});
    assert_eq!(call(&sim, read).await, (200, json!({"success": true})));
    assert_eq!(sim.message(&first).unwrap().stage, Stage::Read);
    let unknown = json!({"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.none"});
    assert_eq!(code(&call(&sim, unknown).await.1), 131_009);
}

#[tokio::test]
async fn a_doctor_can_look_things_up() {
    let template = Template { name: "t".into(), language: "en".into(), body: "Hi".into(), buttons: vec!["Go".into()] };
    let (sim, _business) = world(Config { templates: vec![template], ..Config::default() }).await;
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let get = async |path: String| -> Value {
        let url = format!("{}/{path}", sim.api_url());
        http.get(url).bearer_auth("sim-token").send().await.unwrap().json().await.unwrap()
    };
    let (number, waba) = (&sim.config().phone_number_id, &sim.config().waba_id);
    let got = get(format!("{number}?fields=display_phone_number,verified_name,quality_rating")).await;
    assert_eq!(
        got,
        json!({"id": number, "display_phone_number": "+15550783881", "verified_name": "Agents",
        "quality_rating": "GREEN"})
    );
    let got = get(format!("{waba}/message_templates?name=t")).await;
    assert_eq!((&got["data"][0]["name"], &got["data"][0]["status"]), (&json!("t"), &json!("APPROVED")));
    assert_eq!(code(&get("404".into()).await), 100);
}

#[tokio::test]
async fn last_weeks_duplicate_is_the_same_to_the_byte() {
    let (sim, business) = world(Config::default()).await;
    let said = sim.person_says(ADA, "2");
    sim.person_says(ADA, "and more");
    assert!(sim.wait_until(|s| s.webhooks().len() == 2, SOON).await);
    sim.advance(Duration::from_secs(7 * 24 * 3600));
    assert_eq!(sim.message_again(&said).await, Some(200));
    let got = business.got.lock().unwrap().clone();
    assert_eq!(got[0], got[2]);
    assert_eq!(sim.message_again("wamid.never").await, None);
}

#[tokio::test]
async fn a_sender_who_hangs_up_is_in_the_log_and_the_message_on_the_phone() {
    let (sim, _business) = world(Config { stall_ms: 4_000, ..Config::default() }).await;
    sim.person_says(ADA, "hi");
    sim.fault(Fault::StallAfter, 1);
    let url = format!("{}/{}/messages", sim.api_url(), sim.config().phone_number_id);
    let http =
        reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(Duration::from_secs(2)).build().unwrap();
    assert!(http.post(url).bearer_auth("sim-token").json(&text(ADA, "gone")).send().await.is_err());
    shown(&sim, "gone").await;
    assert!(sim.wait_until(|s| s.calls().len() == 1, SOON).await);
    assert_eq!(sim.calls()[0].fault, Some(Fault::StallAfter));
}

#[tokio::test]
async fn page_and_orders_want_this_machines_name_and_the_port_closes_on_drop() {
    let (sim, _business) = world(Config::default()).await;
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let page = http.get(sim.url()).send().await.unwrap();
    assert!(page.headers()["content-security-policy"].to_str().unwrap().starts_with("default-src 'none'"));
    for path in ["/", "/control/messages", "/control/calls", "/live"] {
        let answer = http.get(format!("{}{path}", sim.url())).header("host", "evil.example").send().await.unwrap();
        assert_eq!(answer.status(), 403, "{path}");
    }
    let url = sim.url();
    let mut live = http.get(format!("{url}/live")).send().await.unwrap();
    assert!(live.chunk().await.unwrap().is_some());
    drop(sim);
    while let Ok(Some(_)) = live.chunk().await {}
    let fresh = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    assert!(fresh.get(&url).send().await.is_err());
}

/// A thousand messages to two hundred people, three in ten calls spoilt: what the stand-in took is
/// exactly what its people see, and every delivery is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_with_faults() {
    let kinds = vec![
        Fault::Code(131_016),
        Fault::Http(502),
        Fault::ResetBefore,
        Fault::ResetAfter,
        Fault::TruncatedBody,
        Fault::WrongJson,
    ];
    let faults = FaultMix { share: 0.3, kinds };
    let traffic = Traffic { gather_ms: 5, batch: 20, shuffle: true, duplicate: 0.2, lanes: 4, ..Traffic::default() };
    let (sim, business) = world(Config { faults, traffic, throughput: 0, ..Config::default() }).await;
    let sim = Arc::new(sim);
    for i in 0..200 {
        sim.person_says(&format!("1555100{i:04}"), "hi");
    }
    let senders = (0..200).map(|i| {
        let sim = Arc::clone(&sim);
        tokio::spawn(async move {
            let url = format!("{}/{}/messages", sim.api_url(), sim.config().phone_number_id);
            // Each call has a connection of its own: the next one could be lost on one that is being closed for a fault.
            let http = reqwest::Client::builder()
                .pool_max_idle_per_host(0)
                .no_proxy()
                .tls_certs_only([])
                .retry(reqwest::retry::never())
                .build()
                .unwrap();
            for n in 0..5 {
                let body = text(&format!("1555100{i:04}"), &format!("{i}/{n}"));
                let _ = http.post(&url).bearer_auth("sim-token").json(&body).send().await;
            }
        })
    });
    for sender in senders.collect::<Vec<_>>() {
        sender.await.unwrap();
    }
    let calls = sim.calls();
    assert_eq!(calls.len(), 1000);
    let taken = calls.iter().filter(|c| c.message.is_some()).count();
    let spoilt = calls.iter().filter(|c| c.fault.is_some()).count();
    assert!((230..370).contains(&spoilt), "{spoilt}");
    let on_phones = |s: &Whatsapp| -> usize {
        (0..200).map(|i| s.messages_to(&format!("1555100{i:04}")).iter().filter(|m| m.stage.shown()).count()).sum()
    };
    assert!(sim.wait_until(|s| on_phones(s) == taken, SOON).await, "{} of {taken}", on_phones(&sim));
    let delivered = |b: &Business| -> usize {
        let all = b.all("statuses");
        let ids = all.iter().filter(|s| s["status"] == "delivered").map(|s| s["id"].as_str().unwrap().to_owned());
        ids.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(sim.wait_until(|_| delivered(&business) == taken, SOON).await);
}

#[tokio::test]
async fn shapes_of_other_versions() {
    let shapes = Shapes { conversations: true, contacts_when_failed: false, without_user_ids: true };
    let (sim, business) = world(Config { shapes, ..Config::default() }).await;
    let (_, answer) = call(&sim, text(ADA, "cold")).await;
    assert!(sim.wait_until(|_| business.stages(&id(&answer)) == ["failed"], SOON).await);
    assert!(business.all("contacts").is_empty());
    sim.person_says(ADA, "hi");
    let (_, answer) = call(&sim, text(ADA, "warm")).await;
    assert!(sim.wait_until(|_| business.stages(&id(&answer)) == ["sent", "delivered"], SOON).await);
    assert!(business.all("statuses").iter().skip(1).all(|s| s["conversation"]["origin"]["type"] == "service"));
    assert!(!business.got.lock().unwrap().iter().any(|(_, body)| body.contains("user_id")));
}

#[tokio::test]
async fn people_need_a_second_to_read_and_statuses_keep_their_time() {
    let (sim, business) = world(Config { people: vec![Person::new(ADA, "Ada")], ..Config::default() }).await;
    sim.person_says(ADA, "hello");
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let url = format!("{}/{}/messages", sim.api_url(), sim.config().phone_number_id);
    sim.advance(Duration::from_secs(5_000_000));
    sim.person_says(ADA, "still there");
    let answer = http.post(url).bearer_auth("sim-token").json(&text(ADA, "Which?")).send().await.unwrap();
    let date = answer.headers()["date"].to_str().unwrap().to_owned();
    let question = shown(&sim, "Which?").await;
    let sent = question.reached(Stage::Sent).unwrap() / 1000;
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(&date).unwrap().as_second();
    assert!((0..=1).contains(&(sent - date)), "the answer is dated by the stand-in's clock: {date} {sent}");
    sim.person_says(ADA, "2");
    sim.person_says_at(ADA, "an hour ago", sent - 3600);
    assert!(sim.status(&question.id, Stage::Sent, None), "told once more");
    let told = || business.all("statuses").into_iter().filter(|s| s["status"] == "sent").collect::<Vec<_>>();
    assert!(sim.wait_until(|_| told().len() == 2 && business.all("messages").len() == 4, SOON).await);
    assert!(
        told().iter().all(|status| status["timestamp"].as_str() == Some(sent.to_string().as_str())),
        "{:?}",
        told()
    );
    let at = |text: &str| {
        let message = business.all("messages").into_iter().find(|m| m["text"]["body"] == text).unwrap();
        message["timestamp"].as_str().unwrap().parse::<i64>().unwrap()
    };
    assert!(at("2") > sent, "in a later second than the question");
    assert_eq!(at("an hour ago"), sent - 3600);
}

#[tokio::test]
async fn a_number_that_is_spelled_otherwise_reaches_the_same_person() {
    let brazilian = Person { also: vec!["5511987654321".to_owned()], ..Person::new("551187654321", "Bia") };
    let (sim, business) = world(Config { people: vec![brazilian], ..Config::default() }).await;
    sim.person_says("551187654321", "oi");
    let (_, answer) = call(&sim, text("5511987654321", "Which?")).await;
    assert_eq!(answer["contacts"], json!([{"input": "5511987654321", "wa_id": "551187654321"}]));
    let question = shown(&sim, "Which?").await;
    assert!(sim.wait_until(|_| business.stages(&question.id).len() == 2, SOON).await);
    assert!(business.all("statuses").iter().all(|s| s["recipient_id"] == "551187654321"));
}
