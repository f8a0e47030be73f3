//! WhatsApp: the token and the number, and whether the daemon takes what Meta will send.

use super::probe::{Probe, not_taken, signature, webhooks};
use super::{Findings, meta};
use crate::host::channel::DOCTORS_CHALLENGE;
use crate::host::settings::{Settings, WhatsappSettings};
use askd_core::wording;
use reqwest::Url;
use secrecy::ExposeSecret as _;

const RESTART: &str = "restart the daemon, so that it reads the settings again: sudo systemctl restart askd";

pub(super) async fn check(
    found: &mut Findings,
    probe: &Probe,
    whatsapp: &WhatsappSettings,
    settings: &Settings,
    runs: bool,
) {
    number(found, probe, whatsapp).await;
    meta::check(found, probe, whatsapp).await;
    meta::windows(found, whatsapp, settings, probe.clock.now()).await;
    if !runs {
        found.not_checked("whatsapp webhook", "daemon");
        return found.not_checked("whatsapp signature", "daemon");
    }
    handshake(found, probe, whatsapp, settings).await;
    signed(found, probe, whatsapp, settings).await;
}

async fn number(found: &mut Findings, probe: &Probe, whatsapp: &WhatsappSettings) {
    let url = format!("{}/{}?fields=display_phone_number", whatsapp.api_url, whatsapp.phone_number_id);
    let call = |client: &reqwest::Client| client.get(&url).bearer_auth(whatsapp.access_token.expose_secret());
    let said = match probe.call(&url, call).await {
        Ok(said) => said,
        Err(why) => {
            let what = format!("{} cannot be used: {why}", whatsapp.api_url);
            found.fault("whatsapp connection", what, wording::UNREACHABLE);
            found.not_checked("whatsapp token", "whatsapp connection");
            return found.not_checked("whatsapp number", "whatsapp connection");
        }
    };
    found.ok("whatsapp connection", &whatsapp.api_url);
    found.clock("whatsapp", said.date, probe.clock.now());
    let answer = said.json();
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    match answer["error"]["code"].as_u64() {
        None => {
            found.ok("whatsapp token", "Meta takes it");
            found.ok("whatsapp number", answer["display_phone_number"].as_str().unwrap_or_default());
        }
        Some(code @ (0 | 10 | 190 | 200..=299)) => {
            let fix = "make a permanent token of a system user and set whatsapp.access_token (docs/whatsapp.md)";
            found.fault("whatsapp token", format!("Meta refuses it ({code}): {message}"), fix);
            found.not_checked("whatsapp number", "whatsapp token");
        }
        Some(code) => {
            found.ok("whatsapp token", "Meta takes it");
            let fix =
                "set whatsapp.phone_number_id: the id on the page API Setup of the app, not the phone number itself";
            found.fault("whatsapp number", format!("Meta refuses it ({code}): {message}"), fix);
        }
    }
}

/// As when the webhook is entered in Meta's dashboard.
async fn handshake(found: &mut Findings, probe: &Probe, whatsapp: &WhatsappSettings, settings: &Settings) {
    let url = format!("{}/whatsapp/webhook", webhooks(settings));
    let token = whatsapp.verify_token.expose_secret();
    let query = [("hub.mode", "subscribe"), ("hub.verify_token", token), ("hub.challenge", DOCTORS_CHALLENGE)];
    let Ok(asked) = Url::parse_with_params(&url, query) else { return };
    match probe.call(&url, |client| client.get(asked)).await {
        Ok(said) if said.text == DOCTORS_CHALLENGE => {
            found.ok("whatsapp webhook", "the daemon takes this verify token");
        }
        Ok(_) => found.fault("whatsapp webhook", "the daemon uses another verify token than the settings", RESTART),
        Err(why) => found.fault("whatsapp webhook", format!("{url}: {why}"), RESTART),
    }
}

async fn signed(found: &mut Findings, probe: &Probe, whatsapp: &WhatsappSettings, settings: &Settings) {
    if found.has_fault("whatsapp app secret") {
        return found.not_checked("whatsapp signature", "whatsapp app secret");
    }
    let url = format!("{}/whatsapp/webhook", webhooks(settings));
    let body = "{\"object\":\"whatsapp_business_account\",\"entry\":[]}";
    for secret in whatsapp.app_secrets.all() {
        let signed = format!("sha256={}", signature(secret, body.as_bytes()));
        let call = |client: &reqwest::Client| client.post(&url).header("x-hub-signature-256", signed).body(body);
        match probe.call(&url, call).await {
            Ok(said) if said.status == 200 => {}
            Ok(said) => {
                let (what, fix) = not_taken(said.status, "whatsapp.app_secret");
                return found.fault("whatsapp signature", what, fix);
            }
            Err(why) => return found.fault("whatsapp signature", format!("{url}: {why}"), RESTART),
        }
    }
    found.ok("whatsapp signature", "the daemon takes this app secret");
}
