//! A message's way up the ticks: sent, delivered (once the phone is on), read, or failed late. One task
//! per accepted message, started by `graph`; all delays are real.

use std::sync::Arc;

use super::message::{Message, Stage};
use super::state::Hub;

pub(super) fn start(hub: &Arc<Hub>, message: &Message, late_failure: Option<i64>) {
    let (hub, id, wa_id) = (Arc::clone(hub), message.id.clone(), message.wa_id.clone());
    tokio::spawn(async move {
        // `None` means that the stand-in stops or that the rest happens on demand only.
        let _ = match late_failure {
            Some(code) => fail(&hub, &id, code).await,
            None => climb(&hub, &id, &wa_id).await,
        };
    });
}

async fn fail(hub: &Hub, id: &str, code: i64) -> Option<()> {
    let after = hub.lock().ladder.failed_ms;
    hub.pause(after).await?;
    hub.set_stage(id, Stage::Failed, Some(code));
    Some(())
}

async fn climb(hub: &Hub, id: &str, wa_id: &str) -> Option<()> {
    let ladder = hub.lock().ladder;
    hub.pause(ladder.sent_ms?).await?;
    up(hub, id, Stage::Sent);
    hub.pause(ladder.delivered_ms?).await?;
    phone_on(hub, wa_id).await?;
    up(hub, id, Stage::Delivered);
    hub.pause(ladder.read_ms?).await?;
    up(hub, id, Stage::Read);
    Some(())
}

/// One step, unless a test or the person was faster.
fn up(hub: &Hub, id: &str, stage: Stage) {
    if hub.lock().message(id).is_some_and(|m| m.stage < stage) {
        hub.set_stage(id, stage, None);
    }
}

async fn phone_on(hub: &Hub, wa_id: &str) -> Option<()> {
    let mut changed = hub.changed.subscribe();
    while !hub.lock().chats.get(wa_id)?.phone_on {
        tokio::select! {
            seen = changed.changed() => seen.ok()?,
            () = hub.stop.cancelled() => return None,
        }
    }
    Some(())
}
