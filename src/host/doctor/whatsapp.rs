//! WhatsApp: the token and the number, and whether the daemon takes what Meta will send.

use super::probe::{Probe, not_taken, signature, webhooks};
use super::{Findings, meta};
use crate::clock::Clock;
use crate::host::channel::DOCTORS_CHALLENGE;
use crate::host::settings::{Settings, WhatsappSettings};
use askd_core::{Time, wording};
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

/// Why a number cannot be used.
#[derive(Debug)]
pub enum Unusable {
    /// Meta does not answer.
    Away(String),
    /// It does not take the token.
    Token(String),
    /// It takes the token, and this number is none that the token leads to.
    Number(String),
}

const NUMBER_FIX: &str =
    "set whatsapp.phone_number_id: the id on the page API Setup of the app, not the phone number itself";

/// What people see of the number that these settings name.
///
/// # Errors
///
/// Why it cannot be used.
pub async fn number_of(whatsapp: &WhatsappSettings, clock: Clock) -> Result<String, Unusable> {
    look(&Probe::new(clock), whatsapp).await.1
}

/// Looks the number up. Returns what Meta's clock shows, too.
async fn look(probe: &Probe, whatsapp: &WhatsappSettings) -> (Option<Time>, Result<String, Unusable>) {
    let url = format!("{}/{}?fields=display_phone_number", whatsapp.api_url, whatsapp.phone_number_id);
    let call = |client: &reqwest::Client| client.get(&url).bearer_auth(whatsapp.access_token.expose_secret());
    let said = match probe.call(&url, call).await {
        Ok(said) => said,
        Err(why) => return (None, Err(Unusable::Away(format!("{} cannot be used: {why}", whatsapp.api_url)))),
    };
    let answer = said.json();
    let refused =
        |code: u64| format!("Meta refuses it ({code}): {}", answer["error"]["message"].as_str().unwrap_or_default());
    let looked = match answer["error"]["code"].as_u64() {
        None => Ok(answer["display_phone_number"].as_str().unwrap_or_default().to_owned()),
        Some(code @ (0 | 10 | 190 | 200..=299)) => Err(Unusable::Token(refused(code))),
        Some(code) => Err(Unusable::Number(refused(code))),
    };
    (said.date, looked)
}

async fn number(found: &mut Findings, probe: &Probe, whatsapp: &WhatsappSettings) {
    let (date, looked) = look(probe, whatsapp).await;
    if !matches!(looked, Err(Unusable::Away(_))) {
        found.ok("whatsapp connection", &whatsapp.api_url);
        found.clock("whatsapp", date, probe.clock.now());
    }
    match looked {
        Ok(number) => {
            found.ok("whatsapp token", "Meta takes it");
            found.ok("whatsapp number", number);
        }
        Err(Unusable::Number(why)) => {
            found.ok("whatsapp token", "Meta takes it");
            found.fault("whatsapp number", why, NUMBER_FIX);
        }
        Err(Unusable::Away(what)) => {
            found.fault("whatsapp connection", what, wording::UNREACHABLE);
            found.not_checked("whatsapp token", "whatsapp connection");
            found.not_checked("whatsapp number", "whatsapp connection");
        }
        Err(Unusable::Token(why)) => {
            let fix = "make a permanent token of a system user and set whatsapp.access_token (docs/whatsapp.md)";
            found.fault("whatsapp token", why, fix);
            found.not_checked("whatsapp number", "whatsapp token");
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
        Ok(said) if said.status == 403 => {
            found.fault("whatsapp webhook", "the daemon uses another verify token than the settings", RESTART);
        }
        Ok(said) => {
            let (what, fix) = not_taken(said.status, "whatsapp.verify_token");
            found.fault("whatsapp webhook", what, fix);
        }
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
