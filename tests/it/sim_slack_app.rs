//! A small app of Slack for these tests: takes what is posted to it and answers as it is told.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use askd_sim::slack::{BOT_TOKEN, Config, Slack};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// How the app answers one request.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) after: Duration,
    pub(crate) no_retry: bool,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, after: Duration::ZERO, no_retry: false }
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Got {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The payload of an interaction, or the JSON of an event.
    pub(crate) fn payload(&self) -> Value {
        let form = url::form_urlencoded::parse(&self.body).find(|(key, _)| key == "payload");
        match form {
            Some((_, payload)) => serde_json::from_str(&payload).expect("payload is JSON"),
            None => serde_json::from_slice(&self.body).expect("body is JSON"),
        }
    }
}

#[derive(Clone, Default)]
pub(crate) struct App {
    got: Arc<Mutex<Vec<Got>>>,
    replies: Arc<Mutex<VecDeque<Reply>>>,
}

impl App {
    /// Starts the app; yields its address.
    pub(crate) async fn start() -> (Self, String) {
        let app = Self::default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/slack", listener.local_addr().expect("an address"));
        let router = Router::new().fallback(answer).with_state(app.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (app, url)
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().expect("no panic elsewhere").clone()
    }

    /// The next answers; after them 200.
    pub(crate) fn will_answer(&self, replies: impl IntoIterator<Item = Reply>) {
        self.replies.lock().expect("no panic elsewhere").extend(replies);
    }
}

async fn answer(State(app): State<App>, headers: HeaderMap, body: Bytes) -> Response {
    let got = Got { headers, body };
    if let Ok(Value::Object(body)) = serde_json::from_slice(&got.body)
        && body.get("type") == Some(&json!("url_verification"))
    {
        return body["challenge"].as_str().unwrap_or_default().to_owned().into_response();
    }
    app.got.lock().expect("no panic elsewhere").push(got);
    let reply = app.replies.lock().expect("no panic elsewhere").pop_front().unwrap_or(Reply::status(200));
    tokio::time::sleep(reply.after).await;
    let status = StatusCode::from_u16(reply.status).expect("a status");
    if reply.no_retry { (status, [("x-slack-no-retry", "1")]).into_response() } else { status.into_response() }
}

/// A stand-in in which nothing is slow.
pub(crate) async fn slack(change: impl FnOnce(&mut Config)) -> Slack {
    let mut config = Config { pace: Duration::ZERO, ..Config::default() };
    change(&mut config);
    Slack::start(config).await.expect("a stand-in")
}

/// Calls a Web API method with the bot's token and a JSON body.
pub(crate) async fn call(slack: &Slack, method: &str, args: &Value) -> Value {
    let response = send(slack, method, args).await.expect("an answer");
    serde_json::from_str(&response.text().await.expect("a body")).expect("JSON")
}

/// As [`call`], with all that can go wrong.
pub(crate) async fn send(slack: &Slack, method: &str, args: &Value) -> reqwest::Result<reqwest::Response> {
    let client =
        reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).no_proxy().tls_certs_only([]).build()?;
    let request = client.post(format!("{}/{method}", slack.api_url())).bearer_auth(BOT_TOKEN).json(args);
    request.timeout(Duration::from_secs(10)).send().await
}

pub(crate) fn plain(text: &str) -> Value {
    json!({"type": "plain_text", "text": text})
}

/// A form: radio buttons, text with Enter, checkboxes that send by themselves, and a button.
pub(crate) fn form() -> Value {
    let options = json!([{"text": plain("One"), "value": "0"}, {"text": plain("Two"), "value": "1"}]);
    json!([
        {"type": "section", "block_id": "s", "text": {"type": "mrkdwn", "text": "*Which* one?"}},
        {"type": "input", "block_id": "q1", "label": plain("One"), "element": {"type": "radio_buttons", "action_id": "r", "options": options}},
        {"type": "input", "block_id": "q2", "label": plain("Text"), "dispatch_action": true,
            "element": {"type": "plain_text_input", "action_id": "t", "max_length": 10}},
        {"type": "input", "block_id": "q3", "label": plain("Quiet"), "element": {"type": "plain_text_input", "action_id": "u"}},
        {"type": "actions", "block_id": "go", "elements": [
            {"type": "checkboxes", "action_id": "c", "options": options},
            {"type": "button", "action_id": "submit", "text": plain("Submit"), "value": "k7", "style": "primary"}]},
    ])
}

/// Posts the form to `C0AGENTS`; yields its `ts`.
pub(crate) async fn post_form(slack: &Slack) -> String {
    let args = json!({"channel": "C0AGENTS", "text": "Which one?", "blocks": form(),
        "metadata": {"event_type": "askd_question", "event_payload": {"ask": "k7"}}});
    let posted = call(slack, "chat.postMessage", &args).await;
    posted["ts"].as_str().unwrap_or_else(|| panic!("not posted: {posted}")).to_owned()
}
