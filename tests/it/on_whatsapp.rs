//! What people do and see on WhatsApp: a world with the stand-in of WhatsApp switched on.

use crate::harness::{Part, SOON, World, until};
use askd_sim::whatsapp::{Call, Config, Message, Person, Sending, Whatsapp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

pub(crate) const ADA: &str = "15550001111";
pub(crate) const BOB: &str = "15550002222";
pub(crate) const MALLORY: &str = "15550009999";

/// A route to Ada alone.
pub(crate) const TO_ADA: &str = r#"{ channel = "whatsapp", chat = "15550001111" }"#;

/// A route to Ada that Bob may answer on, too.
pub(crate) const TO_BOTH: &str =
    r#"{ channel = "whatsapp", chat = "15550001111", responders = ["15550001111", "15550002222"] }"#;

/// How the stand-in is set in most stories: the pair limit is on, and so is everything else.
pub(crate) fn sim() -> Config {
    Config {
        people: vec![Person::new(ADA, "Ada"), Person::new(BOB, "Bob"), Person::new(MALLORY, "Mal")],
        ..Config::default()
    }
}

/// A world with `routes` of the group `research`, and further settings that begin with those of `[whatsapp]`.
pub(crate) async fn on_whatsapp(config: Config, routes: &str, more: &str) -> World {
    World::empty().on_whatsapp(config, routes, more).await
}

/// The same with the real binary in a process of its own, on the real clock.
pub(crate) async fn binary_on_whatsapp(config: Config, routes: &str, more: &str) -> World {
    World::empty().with_binary().on_whatsapp(config, routes, more).await
}

/// Waits until the webhook with that message was taken.
pub(crate) async fn taken(phone: &Whatsapp, id: &str) {
    let carried = format!("\"id\":\"{}\"", id.replace('/', "\\/"));
    let taken = |sim: &Whatsapp| sim.webhooks().iter().any(|post| post.status == 200 && post.body.contains(&carried));
    assert!(phone.wait_until(taken, SOON).await, "a message was not taken");
}

impl World {
    /// Switches WhatsApp on, and starts.
    pub(crate) async fn on_whatsapp(self, config: Config, routes: &str, more: &str) -> Self {
        let phone = Whatsapp::start(config).await.unwrap();
        let mut world = self.more_config(&format!(
            "[whatsapp]\naccess_token = \"sim-token\"\napp_secret = \"sim-app-secret\"\nverify_token = \"sim-verify-token\"\n\
             phone_number_id = \"{}\"\napi_url = \"{}\"\n{more}\n[groups.research]\nroutes = [{routes}]\n\
             max_open_per_group = 5000\nmax_per_hour_per_group = 100000\n",
            phone.config().phone_number_id,
            phone.api_url()
        ));
        world.phone = Part(Some(phone));
        world.begin().await;
        world.phone.handshake().await.unwrap();
        world
    }

    /// Lets time pass until something has happened.
    pub(crate) async fn until(&self, what: &str, mut happened: impl FnMut() -> bool) {
        self.passes(SOON, what, || happened().then_some(())).await;
    }

    /// Somebody writes something that opens the chat, and the daemon knows it.
    pub(crate) async fn writes(&self, who: &str, text: &str) -> String {
        let id = self.phone.person_says(who, text);
        self.taken(&id).await;
        id
    }

    /// Posts a webhook with this one message, as Meta would sign it. What the daemon answered.
    pub(crate) async fn webhook(&self, message: &Value) -> u16 {
        let phone = &self.phone.config().phone_number_id;
        let value = json!({"messaging_product": "whatsapp", "metadata": {"phone_number_id": phone},
            "contacts": [{"wa_id": message["from"], "profile": {"name": "Raw"}}], "messages": [message]});
        self.webhook_of("messages", &value).await
    }

    /// Posts a webhook of any field.
    pub(crate) async fn webhook_of(&self, field: &str, value: &Value) -> u16 {
        let body = json!({"object": "whatsapp_business_account",
            "entry": [{"id": "1", "changes": [{"field": field, "value": value}]}]});
        self.phone.webhook_raw(body.to_string().as_bytes(), None).await.unwrap()
    }

    /// Waits until the webhook with that message was taken.
    pub(crate) async fn taken(&self, id: &str) {
        taken(&self.phone, id).await;
    }

    /// Meta sends the webhook with that message again. The stand-in knows what it sent once the reply is there, and what the
    /// message leads to can come before.
    pub(crate) async fn taken_again(&self, id: &str) {
        self.taken(id).await;
        assert_eq!(self.phone.message_again(id).await, Some(200));
    }

    /// The shown message of that person that says this.
    pub(crate) async fn shown(&self, who: &str, says: &str) -> Message {
        self.shown_within(who, says, SOON).await
    }

    pub(crate) async fn shown_within(&self, who: &str, says: &str, patience: Duration) -> Message {
        let there = |m: &Message| m.stage.shown() && m.text.contains(says);
        self.passes(patience, &format!("a message that says {says:?}"), || {
            self.phone.messages_to(who).into_iter().filter(there).min_by_key(|m| m.at)
        })
        .await
    }

    /// Somebody sends stickers, and gets a friendly line for each: on credit, while it lasts.
    pub(crate) async fn chatters(&self, who: &str, times: usize) {
        for nth in 1..=times {
            self.phone.person_sends(who, &Sending::Sticker);
            let hint = |m: &Message| m.stage.shown() && m.text.contains("I can only read text");
            let hints = || self.phone.messages_to(who).into_iter().filter(hint).count();
            self.until("a friendly line", || hints() >= nth).await;
        }
    }

    /// All that was said to somebody, in order.
    pub(crate) fn said_to(&self, who: &str) -> Vec<String> {
        self.phone.messages_to(who).into_iter().map(|message| message.text).collect()
    }

    /// The records of asks, once nothing is on its way any more.
    pub(crate) async fn quiet(&self, open: usize) -> BTreeMap<PathBuf, String> {
        let started = Instant::now();
        loop {
            let asks = self.open();
            let confirmed = |ask: &Value| ask["render_confirmed"] == json!(true);
            let records = self.records();
            let posted = records.iter().all(|(_, record)| !record.contains("\"name\": \"sent\""));
            // What is settled has been closed, too.
            let pending = records.iter().filter(|(path, _)| path.to_string_lossy().contains("/pending_questions/"));
            if asks.len() == open && pending.count() == open && asks.iter().all(confirmed) && posted {
                return records;
            }
            assert!(started.elapsed() < SOON, "never quiet: {asks:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// No call was refused for being too fast, unless the stand-in was told to.
    pub(crate) fn kept_the_pace(&self) {
        let broken = self.too_fast();
        assert!(broken.is_empty(), "too fast: {broken:?}");
    }

    /// Calls that were refused for being too fast.
    pub(crate) fn too_fast(&self) -> Vec<Call> {
        let fast = |call: &Call| matches!(call.code, Some(131_056 | 130_429)) && call.fault.is_none();
        self.phone.calls().into_iter().filter(fast).collect()
    }
}

pub(crate) fn result(response: &Value) -> (&str, &str) {
    (response["result"]["status"].as_str().unwrap(), response["result"]["reason"].as_str().unwrap())
}

/// Waits until something has happened, and moves no clock.
pub(crate) async fn happens(what: &str, mut happened: impl FnMut() -> bool) {
    until(what, SOON, || happened().then_some(())).await;
}
