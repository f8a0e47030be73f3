//! A session by a call to an address of the operator, signed as the Standard Webhooks specification says. A call
//! follows no redirect, and reaches a private address only where the settings say so. Who calls it: [`super::Sessions`].

use crate::host::ctx::Ctx;
use crate::host::networks::PublicOnly;
use crate::host::outgoing::{client_for, root_cause};
use crate::host::settings::Webhook;
use askd_core::Ask;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::redirect::Policy;
use secrecy::{ExposeSecret as _, SecretSlice};
use serde_json::{Value, json};
use sha2::Sha256;
use std::sync::Arc;
use std::time::Duration;

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(15);

/// Hands over the briefing. The id is the same each time this briefing is tried.
pub(super) async fn start(ctx: &Ctx, webhook: &Webhook, ask: &Ask, briefing: &[u8]) -> Result<(), String> {
    let mut body: Value = serde_json::from_slice(briefing).map_err(|error| format!("its briefing: {error}"))?;
    body["type"] = json!("start");
    let id = format!("{}.start.{}", ask.id, ask.follow_up().briefings.max(1));
    call(ctx, webhook, ask, &id, body).await
}

/// Has the session stopped.
pub(super) async fn stop(ctx: &Ctx, webhook: &Webhook, ask: &Ask, reason: &str) -> Result<(), String> {
    let id = format!("{}.stop.1", ask.id);
    call(ctx, webhook, ask, &id, json!({"type": "stop", "reason": reason})).await
}

async fn call(ctx: &Ctx, webhook: &Webhook, ask: &Ask, id: &str, mut body: Value) -> Result<(), String> {
    body["ask_id"] = json!(ask.id.to_string());
    body["group"] = json!(ask.group.folder());
    let called = ctx.clock().timeout(PATIENCE, post(ctx, webhook, id, body.to_string())).await;
    let called = called.unwrap_or_else(|| Err(format!("no answer within {} s", PATIENCE.as_secs())));
    called.map_err(|why| format!("the webhook {}: {why}", webhook.host()))
}

async fn post(ctx: &Ctx, webhook: &Webhook, id: &str, body: String) -> Result<(), String> {
    let settings = webhook.clone();
    let keys = tokio::task::spawn_blocking(move || settings.keys()).await.map_err(|panic| panic.to_string())??;
    let timestamp = (ctx.clock().now().as_millis() / 1_000).to_string();
    let signed = format!("{id}.{timestamp}.{body}");
    let signatures: Option<Vec<String>> = keys.iter().map(|key| signature(key, &signed)).collect();
    let mut http = client_for(webhook.url.as_str()).redirect(Policy::none());
    if !webhook.private {
        http =
            http.dns_resolver(Arc::new(PublicOnly { otherwise: "if that is meant, write private = true beside it" }));
    }
    let call = http
        .build()
        .map_err(|error| root_cause(&error))?
        .post(webhook.url.clone())
        .header("content-type", "application/json")
        .header("webhook-id", id)
        .header("webhook-timestamp", timestamp)
        .header("webhook-signature", signatures.unwrap_or_default().join(" "))
        .body(body);
    let status = call.send().await.map_err(|error| root_cause(&error))?.status();
    if status.is_success() { Ok(()) } else { Err(format!("it answered {status}")) }
}

fn signature(key: &SecretSlice<u8>, signed: &str) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose_secret()).ok()?;
    mac.update(signed.as_bytes());
    Some(format!("v1,{}", BASE64.encode(mac.finalize().into_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn a_call_is_signed_as_the_specification_says() {
        let key = BASE64.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap().into();
        let signed = "msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{\"test\": 2432232314}";
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(signature(&key, signed).as_deref(), Some(expected));
    }
}
