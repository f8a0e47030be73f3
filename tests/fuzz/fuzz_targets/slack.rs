//! What Slack posts.
#![allow(dead_code)]

mod render {
    pub const OTHER: &str = "other";
    pub const SKIP: &str = "skip";
}
#[path = "../../../src/host/channel/slack/payload.rs"]
mod payload;

pub fn read(bytes: &[u8]) {
    if let Ok(payload) = serde_json::from_slice::<payload::Payload>(bytes) {
        drop((payload.action(), payload.key()));
        let _ = payload.message.as_ref().and_then(payload::Message::ask);
        let _ = (payload.event.is_reply(), payload.event.is_later());
    }
}
