//! The stand-in of Slack by itself: interactions, events, Socket Mode, rights, and `slack-morphism` as a client of it.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use askd_sim::slack::{ALL_SCOPES, Act, Config, Goodbye, Raw, Slack, Token};
use serde_json::{Value, json};
use slack_morphism::errors::SlackClientError;
use slack_morphism::prelude::*;
use slack_morphism::signature_verifier::SlackEventSignatureVerifier;

use crate::sim_slack_app::{App, Reply, call, form, plain, post_form, slack};

const CHANNEL: &str = "C0AGENTS";
const ALICE: &str = "U0ALICE";
const SOON: Duration = Duration::from_secs(30);

async fn with_app(change: impl FnOnce(&mut Config)) -> (Slack, App, String) {
    let (app, url) = App::start().await;
    let slack = slack(|config| {
        config.interactivity_url = Some(url.clone());
        change(config);
    })
    .await;
    (slack, app, url)
}

#[tokio::test]
async fn a_click_is_signed_and_carries_the_state_of_everything() {
    let (slack, app, _) = with_app(|_| {}).await;
    let ts = post_form(&slack).await;
    let fill = [("r", Act::Choose(vec!["1".into()])), ("u", Act::Type("typed".into()))];
    let delivery = slack.submit(CHANNEL, &ts, &fill, "submit", ALICE).await.expect("sent");
    assert!(delivery.acknowledged && !delivery.socket);
    let got = app.got();
    assert_eq!(got.len(), 1, "radio buttons and text in input blocks are silent");
    let verifier = SlackEventSignatureVerifier::new(&slack.config().signing_secret.clone().into());
    let body = String::from_utf8(got[0].body.to_vec()).expect("text");
    let header = |name| got[0].header(name).expect("a header");
    verifier.verify(header("x-slack-signature"), &body, header("x-slack-request-timestamp")).expect("signed");
    let payload = got[0].payload();
    assert_eq!(
        payload["state"]["values"],
        json!({
            "q1": {"r": {"type": "radio_buttons", "selected_option":
                {"text": {"type": "plain_text", "text": "Two", "emoji": true}, "value": "1"}}},
            "q2": {"t": {"type": "plain_text_input", "value": null}},
            "q3": {"u": {"type": "plain_text_input", "value": "typed"}},
            "go": {"c": {"type": "checkboxes", "selected_options": []}},
        })
    );
    assert_eq!(payload["user"], json!({"id": ALICE, "username": "alice", "name": "alice", "team_id": "T0ASKD"}));
    assert_eq!(
        payload["container"],
        json!({"type": "message", "message_ts": ts, "channel_id": CHANNEL, "is_ephemeral": false})
    );
    assert_eq!(payload["actions"][0]["value"], "k7");
    assert_eq!(payload["message"]["metadata"]["event_payload"]["ask"], "k7");
    assert_eq!((&payload["team"]["id"], &payload["enterprise"]), (&json!("T0ASKD"), &Value::Null));
}

#[tokio::test]
async fn enter_and_toggles_send_by_themselves() {
    let (slack, app, _) = with_app(|_| {}).await;
    let ts = post_form(&slack).await;
    assert!(slack.type_in(CHANNEL, &ts, "t", ALICE, "hi").await.expect("typed").is_none());
    assert!(slack.press_enter(CHANNEL, &ts, "t", ALICE).await.expect("pressed").is_some());
    assert!(slack.press_enter(CHANNEL, &ts, "u", ALICE).await.expect("pressed").is_none(), "no dispatch_action");
    assert!(slack.choose(CHANNEL, &ts, "c", ALICE, &["0", "1"]).await.expect("toggled").is_some());
    let got: Vec<Value> = app.got().iter().map(|got| got.payload()["actions"][0].clone()).collect();
    assert_eq!((&got[0]["type"], &got[0]["value"]), (&json!("plain_text_input"), &json!("hi")));
    assert_eq!(got[1]["selected_options"].as_array().map(Vec::len), Some(2));
    assert!(slack.type_in(CHANNEL, &ts, "t", ALICE, "eleven char").await.is_err(), "over max_length");
    assert!(slack.choose(CHANNEL, &ts, "r", ALICE, &["9"]).await.is_err());
    assert_eq!(slack.click(CHANNEL, &ts, "submit", "U0NOBODY").await.map(|_| ()), Err("user_not_in_channel".into()));
}

#[tokio::test]
async fn a_late_or_refused_answer_is_a_warning_to_the_person() {
    let (slack, app, _) = with_app(|config| config.ack_within = Duration::from_secs(3)).await;
    let ts = post_form(&slack).await;
    app.will_answer([Reply { after: Duration::from_secs(9), ..Reply::status(200) }, Reply::status(500)]);
    for status in [None, Some(500)] {
        let delivery = slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent");
        assert_eq!((delivery.acknowledged, delivery.status), (false, status));
        let message = slack.message(CHANNEL, &ts).expect("there");
        assert!(message.warnings.contains_key(ALICE) && !message.warnings.contains_key("U0BOB"));
    }
    assert!(slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent").acknowledged);
    assert!(slack.message(CHANNEL, &ts).expect("there").warnings.is_empty());
}

#[tokio::test]
async fn an_installation_for_an_organisation_says_team_null() {
    let (slack, app, _) = with_app(|config| config.enterprise_install = Some("E0ASKD".into())).await;
    let ts = post_form(&slack).await;
    slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent");
    let payload = app.got()[0].payload();
    assert_eq!((&payload["team"], &payload["is_enterprise_install"]), (&Value::Null, &json!(true)));
    assert_eq!((&payload["user"]["team_id"], &payload["enterprise"]["id"]), (&json!("T0ASKD"), &json!("E0ASKD")));
}

#[tokio::test]
async fn events_are_verified_retried_and_stopped() {
    let (app, url) = App::start().await;
    let slack = slack(|config| {
        config.event_retries = vec![Duration::ZERO, Duration::from_millis(20), Duration::from_millis(20)];
    })
    .await;
    assert!(slack.set_events_url("http://127.0.0.1:9/nobody").await.is_err());
    slack.set_events_url(&url).await.expect("the challenge is echoed");
    let ts = post_form(&slack).await;
    slack.wait_for(SOON, || (slack.deliveries().len() == 1).then_some(())).await.expect("its own message is announced");
    assert_eq!(app.got()[0].payload()["event"]["bot_id"], "B0ASKD");
    app.will_answer([Reply::status(500), Reply::status(503)]);
    slack.reply_in_thread(CHANNEL, &ts, ALICE, "2 & more").expect("said");
    slack.wait_for(SOON, || (slack.deliveries().len() == 4).then_some(())).await.expect("two retries");
    let got = app.got();
    let (first, last) = (got[1].payload(), got[3].payload());
    assert_eq!(first["event_id"], last["event_id"]);
    assert_eq!((got[1].header("x-slack-retry-num"), got[3].header("x-slack-retry-num")), (None, Some("2")));
    assert_eq!(got[3].header("x-slack-retry-reason"), Some("http_error"));
    assert_eq!(first["event"]["text"], "2 &amp; more");
    assert_eq!((&first["event"]["thread_ts"], &first["event"]["user"]), (&json!(ts), &json!(ALICE)));
    app.will_answer([Reply { no_retry: true, ..Reply::status(500) }]);
    slack.reply_in_thread(CHANNEL, &ts, ALICE, "once").expect("said");
    slack.wait_for(SOON, || (slack.deliveries().len() == 5).then_some(())).await.expect("sent");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(slack.deliveries().len(), 5, "no retry was asked for");
}

#[tokio::test]
async fn scopes_and_tokens() {
    let slack = slack(|config| {
        config.bot_tokens.push(Token { secret: "xoxb-poor".into(), scopes: vec!["users:read".into()] });
    })
    .await;
    let poor = |method: &str| {
        let request = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().expect("a client");
        request.get(format!("{}/{method}?channel=C0AGENTS", slack.api_url())).bearer_auth("xoxb-poor").send()
    };
    let response = poor("chat.postMessage").await.expect("an answer");
    let headers = response.headers().clone();
    let body: Value = response.json().await.expect("JSON");
    assert_eq!(body, json!({"ok": false, "error": "missing_scope", "needed": "chat:write", "provided": "users:read"}));
    assert_eq!(headers["x-accepted-oauth-scopes"], "chat:write");
    let body: Value = poor("auth.test").await.expect("an answer").json().await.expect("JSON");
    assert_eq!(body["ok"], true);
    assert!(ALL_SCOPES.contains(&"chat:write"));
}

#[tokio::test]
async fn a_modal_opens_once_within_three_seconds() {
    let (slack, app, _) = with_app(|_| {}).await;
    let ts = post_form(&slack).await;
    slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent");
    let trigger = app.got()[0].payload()["trigger_id"].clone();
    let view = json!({"type": "modal", "title": plain("Other"), "submit": plain("Send"), "blocks": [form()[3]]});
    let open = |trigger: Value| json!({"trigger_id": trigger, "view": view});
    let opened = call(&slack, "views.open", &open(trigger.clone())).await;
    assert_eq!(opened["ok"], true, "{opened}");
    assert_eq!(call(&slack, "views.open", &open(trigger)).await["error"], "exchanged_trigger_id");
    slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent");
    slack.advance(Duration::from_secs(4));
    let late = app.got()[1].payload()["trigger_id"].clone();
    assert_eq!(call(&slack, "views.open", &open(late)).await["error"], "expired_trigger_id");
    let id = opened["view"]["id"].as_str().expect("an id");
    slack.submit_view(id, ALICE, json!({"q3": {"u": {"type": "plain_text_input", "value": "x"}}})).await.expect("sent");
    assert_eq!(app.got()[2].payload()["view"]["state"]["values"]["q3"]["u"]["value"], "x");
    assert!(slack.views().is_empty(), "an empty 200 closes it");
}

#[tokio::test]
async fn raw_sends_are_what_they_say() {
    let (slack, app, url) = with_app(|_| {}).await;
    let ts = post_form(&slack).await;
    let payload = slack.payload_of_click(CHANNEL, &ts, "submit", ALICE).expect("a payload");
    assert!(app.got().is_empty());
    let verifier = SlackEventSignatureVerifier::new(&slack.config().signing_secret.clone().into());
    let honest = Raw::interaction(&slack, &url, &payload);
    let cases = [
        (honest.clone(), true),
        (Raw { chunks: Some(100), ..honest.clone() }, true),
        (Raw { skew: -301, ..honest.clone() }, false),
        (Raw { secret: Some("another".into()), ..honest.clone() }, false),
        (Raw { signature: Some("v0=00".into()), ..honest.clone() }, false),
    ];
    for (raw, good) in cases {
        assert_eq!(slack.send_raw(raw.clone()).await.status, Some(200));
        let got = app.got().pop().expect("it came");
        let body = String::from_utf8(got.body.to_vec()).expect("text");
        let header = |name| got.header(name).expect("a header");
        let outcome = verifier.verify(header("x-slack-signature"), &body, header("x-slack-request-timestamp"));
        assert_eq!(outcome.is_ok(), good, "{raw:?}");
        assert_eq!(got.header("content-length").is_none(), raw.chunks.is_some());
    }
    slack.send_raw(Raw { secret: None, ..honest }).await;
    assert_eq!(app.got().pop().and_then(|got| got.header("x-slack-signature").map(str::to_owned)), None);
}

#[tokio::test]
async fn an_edit_keeps_what_it_does_not_name() {
    let slack = slack(|_| {}).await;
    let ts = post_form(&slack).await;
    let edit = async |mut more: Value| {
        more["channel"] = json!(CHANNEL);
        more["ts"] = json!(ts);
        assert_eq!(call(&slack, "chat.update", &more).await["ok"], true);
        slack.message(CHANNEL, &ts).expect("there")
    };
    let message = edit(json!({"text": "only the fallback"})).await;
    assert_eq!((message.text.as_str(), message.blocks.len()), ("only the fallback", 5));
    let message = edit(json!({"text": "closed", "blocks": []})).await;
    assert_eq!((message.blocks.len(), message.metadata.is_some()), (0, true));
    assert!(edit(json!({"text": "closed", "metadata": {}})).await.metadata.is_none());
}

#[tokio::test]
async fn an_event_waits_for_a_socket() {
    let slack = slack(|config| config.event_retries = vec![Duration::ZERO, Duration::from_secs(2)]).await;
    let (listener, mut inbox) = listen(&slack).await;
    let ts = post_form(&slack).await;
    slack.disconnect(Goodbye::Abrupt);
    slack.reply_in_thread(CHANNEL, &ts, ALICE, "while away").expect("said");
    let arrived = || {
        let deliveries = slack.deliveries();
        deliveries
            .into_iter()
            .find(|delivery| delivery.acknowledged && delivery.payload["event"]["text"] == "while away")
    };
    assert!(slack.wait_for(SOON, arrived).await.expect("it came").attempt > 0);
    assert!(inbox.try_recv().is_err(), "no interaction");
    listener.shutdown().await;
}

/// The shape in which the daemon will use it.
pub(crate) fn morphism(slack: &Slack) -> SlackClient<SlackClientHyperHttpsConnector> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let https = hyper_rustls::HttpsConnectorBuilder::new().with_native_roots().expect("roots");
    let https = https.https_or_http().enable_http1().enable_http2().build();
    SlackClient::new(SlackClientHyperConnector::with_connector(https).with_slack_api_url(&slack.api_url()))
}

#[tokio::test]
async fn slack_morphism_posts_finds_updates_and_notes() {
    let slack = slack(|_| {}).await;
    let client = morphism(&slack);
    let token = SlackApiToken::new("xoxb-askd-sim".into());
    let session = client.open_session(&token);
    assert_eq!(session.auth_test().await.expect("known").team_id, "T0ASKD".into());
    let blocks: Vec<SlackBlock> = serde_json::from_value(form()).expect("typed blocks");
    let metadata = SlackMessageMetadata::new("askd_question".into())
        .with_event_payload([("ask".to_owned(), "k7".to_owned())].into());
    let content = SlackMessageContent::new().with_text("Which one?".into()).with_blocks(blocks).with_metadata(metadata);
    let request = SlackApiChatPostMessageRequest::new(CHANNEL.into(), content);
    let posted = session.chat_post_message(&request).await.expect("posted");
    let request = SlackApiConversationsHistoryRequest::new()
        .with_channel(CHANNEL.into())
        .with_include_all_metadata(true)
        .with_limit(10);
    let history = session.conversations_history(&request).await.expect("history");
    let found = history.messages.iter().find(|message| {
        let metadata = message.content.metadata.as_ref();
        metadata.and_then(|metadata| metadata.event_payload.as_ref()?.get("ask")).is_some_and(|ask| ask == "k7")
    });
    assert_eq!(found.map(|message| &message.origin.ts), Some(&posted.ts));
    let content = SlackMessageContent::new().with_text("Answered".into()).with_blocks(Vec::new());
    session
        .chat_update(&SlackApiChatUpdateRequest::new(CHANNEL.into(), content, posted.ts.clone()))
        .await
        .expect("updated");
    let closed = slack.message(CHANNEL, &posted.ts.0).expect("there");
    assert_eq!((closed.text.as_str(), closed.blocks.len(), closed.metadata.is_some()), ("Answered", 0, true));
    let content = SlackMessageContent::new().with_text("Not you".into());
    session
        .chat_post_ephemeral(&SlackApiChatPostEphemeralRequest::new(CHANNEL.into(), ALICE.into(), content))
        .await
        .expect("noted");
    assert_eq!(slack.ephemerals(ALICE).len(), 1);
    let content = SlackMessageContent::new().with_text("x".into());
    let failed =
        session.chat_post_message(&SlackApiChatPostMessageRequest::new("C0UNINVITED".into(), content.clone())).await;
    assert!(matches!(failed, Err(SlackClientError::ApiError(error)) if error.code == "not_in_channel"));
    slack.faults().next("chat.postMessage", askd_sim::slack::FaultKind::RateLimited(7), 1);
    let limited = session.chat_post_message(&SlackApiChatPostMessageRequest::new(CHANNEL.into(), content)).await;
    assert!(
        matches!(limited, Err(SlackClientError::RateLimitError(error)) if error.retry_after == Some(Duration::from_secs(7)))
    );
}

async fn on_interaction(
    event: SlackInteractionEvent,
    _client: std::sync::Arc<SlackHyperClient>,
    states: SlackClientEventsUserState,
) -> UserCallbackResult<()> {
    let states = states.read().await;
    let heard = states.get_user_state::<tokio::sync::mpsc::UnboundedSender<SlackInteractionEvent>>();
    heard.expect("the state was set").send(event)?;
    Ok(())
}

async fn on_event(
    _event: SlackPushEventCallback,
    _client: std::sync::Arc<SlackHyperClient>,
    _states: SlackClientEventsUserState,
) -> UserCallbackResult<()> {
    Ok(())
}

type Inbox = tokio::sync::mpsc::UnboundedReceiver<SlackInteractionEvent>;

/// A connected listener, and the interactions it hears.
async fn listen(slack: &Slack) -> (SlackClientSocketModeListener<SlackClientHyperHttpsConnector>, Inbox) {
    let client = std::sync::Arc::new(morphism(slack));
    let (heard, inbox) = tokio::sync::mpsc::unbounded_channel::<SlackInteractionEvent>();
    let callbacks =
        SlackSocketModeListenerCallbacks::new().with_interaction_events(on_interaction).with_push_events(on_event);
    let environment = std::sync::Arc::new(SlackClientEventsListenerEnvironment::new(client).with_user_state(heard));
    let config = SlackClientSocketModeConfig::new().with_max_connections_count(1);
    let listener = SlackClientSocketModeListener::new(&config, environment, callbacks);
    listener.listen_for(&SlackApiToken::new("xapp-askd-sim".into())).await.expect("opened");
    listener.start().await;
    slack.wait_for(SOON, || (slack.sockets() == 1).then_some(())).await.expect("connected");
    (listener, inbox)
}

#[tokio::test]
async fn slack_morphism_listens_on_sockets_and_comes_back() {
    let slack = slack(|_| {}).await;
    let (listener, mut inbox) = listen(&slack).await;
    let ts = post_form(&slack).await;
    let delivery = slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent");
    assert!(delivery.socket && delivery.acknowledged);
    let event = inbox.recv().await.expect("heard");
    assert!(
        matches!(event, SlackInteractionEvent::BlockActions(event) if event.actions.as_ref().is_some_and(|actions| actions.len() == 1))
    );
    slack.disconnect(Goodbye::Refresh);
    slack
        .wait_for(SOON, || (slack.sockets_ever() == 2 && slack.sockets() == 1).then_some(()))
        .await
        .expect("came back");
    assert!(slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent").acknowledged);
    listener.shutdown().await;
}

#[tokio::test]
async fn slack_morphisms_stock_listener_acknowledges_what_it_cannot_read() {
    let slack = slack(|config| config.enterprise_install = Some("E0ASKD".into())).await;
    let (listener, mut inbox) = listen(&slack).await;
    let ts = post_form(&slack).await;
    let delivery = slack.click(CHANNEL, &ts, "submit", ALICE).await.expect("sent");
    assert!(delivery.acknowledged, "Slack believes that the click arrived");
    assert!(inbox.try_recv().is_err(), "and it did not: hence a listener of our own");
    listener.shutdown().await;
}
