//! Socket Mode through `slack-morphism` with a listener of our own: its stock listener acknowledges what it cannot parse, and the click is lost.

#![expect(clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::sync::{Arc, Weak};
use std::time::Duration;

use askd_sim::slack::{Goodbye, Slack};
use serde_json::{Value, json};
use slack_morphism::clients_manager::{SlackSocketModeClientsManager, SlackSocketModeClientsManagerFactory};
use slack_morphism::prelude::*;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::sim_slack::morphism;
use crate::sim_slack_app::{post_form, slack};

const SOON: Duration = Duration::from_secs(30);

type Manager = dyn SlackSocketModeClientsManager + Send + Sync;

/// Gets every frame as text, and returns the acknowledgement.
struct Raw {
    manager: Weak<Manager>,
    heard: UnboundedSender<Value>,
}

#[async_trait::async_trait]
impl SlackSocketModeClientListener for Raw {
    async fn on_message(&self, id: &SlackSocketModeWssClientId, body: String) -> Option<String> {
        let envelope: Value = serde_json::from_str(&body).ok()?;
        if envelope["type"] == "disconnect" {
            if let Some(manager) = self.manager.upgrade() {
                manager.restart_client(id).await;
            }
            return None;
        }
        let id = envelope["envelope_id"].as_str()?.to_owned();
        // Here the daemon makes the answer durable; without that there is no acknowledgement.
        self.heard.send(envelope).ok()?;
        Some(json!({"envelope_id": id}).to_string())
    }

    async fn on_error(&self, _error: Box<dyn std::error::Error + Send + Sync>) {}

    async fn on_disconnect(&self, id: &SlackSocketModeWssClientId) {
        if let Some(manager) = self.manager.upgrade() {
            manager.restart_client(id).await;
        }
    }
}

async fn listen(slack: &Slack) -> (Arc<Manager>, UnboundedReceiver<Value>) {
    let client = Arc::new(morphism(slack));
    let environment = Arc::new(SlackClientEventsListenerEnvironment::new(Arc::clone(&client)));
    let manager = client.http_api.connector.new_clients_manager(environment);
    let (heard, inbox) = unbounded_channel();
    let listener = Raw { manager: Arc::downgrade(&manager), heard };
    let config = SlackClientSocketModeConfig::new().with_max_connections_count(1);
    let token = SlackApiToken::new("xapp-askd-sim".into());
    manager.register_new_token(&config, token, Arc::new(listener)).await.expect("registered");
    manager.start().await;
    slack.wait_for(SOON, || (slack.sockets() == 1).then_some(())).await.expect("connected");
    (manager, inbox)
}

#[tokio::test]
async fn team_null_and_unknown_types_arrive_and_are_acknowledged() {
    let slack = slack(|config| config.enterprise_install = Some("E0ASKD".into())).await;
    let (manager, mut inbox) = listen(&slack).await;
    let ts = post_form(&slack).await;
    let clicked = slack.click("C0AGENTS", &ts, "submit", "U0ALICE").await.expect("sent");
    assert!(clicked.socket && clicked.acknowledged);
    let envelope = next(&mut inbox, "interactive").await;
    assert_eq!((&envelope["payload"]["team"], &envelope["payload"]["user"]["id"]), (&Value::Null, &json!("U0ALICE")));
    assert!(slack.send_over_socket(&json!({"type": "of_the_future"})).await);
    assert_eq!(next(&mut inbox, "interactive").await["payload"]["type"], "of_the_future");
    manager.shutdown().await;
}

#[tokio::test]
async fn it_comes_back_after_every_goodbye() {
    let slack = slack(|_| {}).await;
    let (manager, mut inbox) = listen(&slack).await;
    let ts = post_form(&slack).await;
    for (count, goodbye) in [(2, Goodbye::Warning), (3, Goodbye::Refresh), (4, Goodbye::Abrupt)] {
        slack.disconnect(goodbye);
        let back = || (slack.sockets_ever() == count && slack.sockets() == 1).then_some(());
        slack.wait_for(SOON, back).await.unwrap_or_else(|| panic!("came back after {goodbye:?}"));
        assert!(slack.click("C0AGENTS", &ts, "submit", "U0ALICE").await.expect("sent").acknowledged, "{goodbye:?}");
        next(&mut inbox, "interactive").await;
    }
    manager.shutdown().await;
}

async fn next(inbox: &mut UnboundedReceiver<Value>, kind: &str) -> Value {
    loop {
        let envelope = tokio::time::timeout(SOON, inbox.recv()).await.expect("in time").expect("open");
        if envelope["type"] == kind {
            return envelope;
        }
    }
}
