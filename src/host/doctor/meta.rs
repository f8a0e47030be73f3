//! What Meta knows of the app behind the token: its permissions, the webhooks that it gets, the template. And, which Meta
//! does not tell, for how long each person's chat is open, from what the daemon keeps.

use super::Findings;
use super::probe::Probe;
use crate::host::channel::whatsapp::{REMEMBERED, last_wrote};
use crate::host::settings::{Settings, WhatsappSettings};
#[cfg(feature = "postgres")]
use crate::host::store::document_of;
use askd_core::{ChannelName, Time};
use reqwest::Url;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const SENDS: &str = "whatsapp_business_messaging";
const MANAGES: &str = "whatsapp_business_management";
/// A token that expires sooner is one to try things with.
const SOON: Duration = Duration::from_secs(3 * 86_400);
/// How long a person's message keeps the chat open.
const WINDOW: Duration = Duration::from_secs(86_400);
const NEW_TOKEN: &str = "make a token of a system user that does not expire, with whatsapp_business_messaging and \
                         whatsapp_business_management, and set whatsapp.access_token (docs/whatsapp.md)";

struct Meta<'a> {
    probe: &'a Probe,
    whatsapp: &'a WhatsappSettings,
}

impl Meta<'_> {
    /// One lookup; the error is a sentence.
    async fn get(&self, path: &str, query: &[(&str, &str)], token: &str) -> Result<Value, String> {
        let url = Url::parse_with_params(&format!("{}/{path}", self.whatsapp.api_url), query);
        let url = url.map_err(|error| error.to_string())?;
        let said = self.probe.call(&self.whatsapp.api_url, |client| client.get(url).bearer_auth(token)).await?;
        let answer = said.json();
        match answer["error"]["code"].as_u64() {
            None if said.status == 200 => Ok(answer),
            None => Err(format!("HTTP status {}", said.status)),
            Some(code) => {
                Err(format!("Meta refuses it ({code}): {}", answer["error"]["message"].as_str().unwrap_or_default()))
            }
        }
    }

    fn token(&self) -> &str {
        self.whatsapp.access_token.expose_secret()
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) async fn check(found: &mut Findings, probe: &Probe, whatsapp: &WhatsappSettings) {
    let nothing = |found: &mut Findings, why: &str| {
        for check in ["permissions", "expiry", "app secret", "field messages", "account", "template"] {
            found.not_checked(format!("whatsapp {check}"), why);
        }
    };
    for cause in ["whatsapp connection", "whatsapp token", "whatsapp number"] {
        if found.has_fault(cause) {
            return nothing(found, cause);
        }
    }
    let meta = Meta { probe, whatsapp };
    let told = match meta.get("debug_token", &[("input_token", meta.token())], meta.token()).await {
        Ok(told) => told["data"].clone(),
        Err(why) => return nothing(found, &why),
    };
    let may = |scope: &str| list(&told["scopes"]).any(|held| held == scope);
    if may(SENDS) {
        found.ok("whatsapp permissions", "the token can send");
    } else {
        found.fault("whatsapp permissions", format!("the token lacks {SENDS}"), NEW_TOKEN);
    }
    expiry(found, told["expires_at"].as_i64().unwrap_or_default(), probe.clock.now());
    let app = told["app_id"].as_str().unwrap_or_default();
    field(found, &meta, app).await;
    if !may(MANAGES) {
        found.not_checked("whatsapp account", format!("the token has no {MANAGES}, which only this check needs"));
        return found.not_checked("whatsapp template", format!("the token has no {MANAGES}"));
    }
    let granted = list(&told["granular_scopes"]).filter(|granted| granted["scope"] == MANAGES);
    for account in granted.flat_map(|granted| list(&granted["target_ids"])).filter_map(Value::as_str) {
        let numbers = meta.get(&format!("{account}/phone_numbers"), &[("fields", "id")], meta.token()).await;
        if numbers.is_ok_and(|told| list(&told["data"]).any(|number| number["id"] == whatsapp.phone_number_id)) {
            subscribed(found, &meta, account, app).await;
            return template(found, &meta, account).await;
        }
    }
    found.not_checked("whatsapp account", "Meta does not name the business account of this number");
    found.not_checked("whatsapp template", "whatsapp account");
}

fn expiry(found: &mut Findings, seconds: i64, now: Time) {
    let left = Time::from_millis(seconds.saturating_mul(1_000)).since(now);
    match seconds {
        0 => found.ok("whatsapp expiry", "the token does not expire"),
        _ if left < SOON => {
            let what = format!("the token expires in {} hours", left.as_secs() / 3_600);
            found.fault("whatsapp expiry", what, NEW_TOKEN);
        }
        _ => found.ok("whatsapp expiry", format!("the token expires in {} days", left.as_secs() / 86_400)),
    }
}

/// Whether Meta takes the app secret, and sends what people write.
async fn field(found: &mut Findings, meta: &Meta<'_>, app: &str) {
    // While a secret is replaced, Meta knows one of the two.
    let mut told = Err(String::new());
    for secret in meta.whatsapp.app_secrets.all() {
        let own_token = format!("{app}|{}", secret.expose_secret());
        told = meta.get(&format!("{app}/subscriptions"), &[], &own_token).await;
        if told.is_ok() {
            break;
        }
    }
    let told = match told {
        Ok(told) => told,
        Err(why) => {
            let fix = format!("copy the App secret (App settings > Basic) of the app {app} to whatsapp.app_secret");
            found.fault("whatsapp app secret", why, fix);
            return found.not_checked("whatsapp field messages", "whatsapp app secret");
        }
    };
    found.ok("whatsapp app secret", "Meta takes it");
    let webhook = list(&told["data"]).find(|webhook| webhook["object"] == "whatsapp_business_account");
    let has = webhook.is_some_and(|webhook| list(&webhook["fields"]).any(|field| field["name"] == "messages"));
    match webhook.filter(|_| has) {
        Some(webhook) if webhook["active"] != false => {
            let to = webhook["callback_url"].as_str().unwrap_or_default();
            found.ok("whatsapp field messages", format!("Meta sends it to {to}"));
        }
        _ => {
            let fix = "subscribe to the field messages: WhatsApp > Configuration > Webhook fields (docs/whatsapp.md)";
            found.fault("whatsapp field messages", "Meta does not send what people write", fix);
        }
    }
}

/// Whether the app gets the webhooks of the business account.
async fn subscribed(found: &mut Findings, meta: &Meta<'_>, account: &str, app: &str) {
    match meta.get(&format!("{account}/subscribed_apps"), &[], meta.token()).await {
        Ok(told) if list(&told["data"]).any(|one| one["whatsapp_business_api_data"]["id"] == app) => {
            found.ok("whatsapp account", format!("its webhooks go to the app {app}"));
        }
        Ok(_) => {
            let url = format!("{}/{account}/subscribed_apps", meta.whatsapp.api_url);
            let fix = format!("curl -X POST '{url}' -H \"Authorization: Bearer <access token>\"");
            found.fault("whatsapp account", format!("the webhooks of {account} do not go to the app {app}"), fix);
        }
        Err(why) => found.not_checked("whatsapp account", why),
    }
}

async fn template(found: &mut Findings, meta: &Meta<'_>, account: &str) {
    let (name, language) = (&meta.whatsapp.template, &meta.whatsapp.template_language);
    if name.is_empty() {
        return found.not_checked("whatsapp template", "whatsapp.template is not set");
    }
    let query = [("name", name.as_str()), ("fields", "name,language,status,components")];
    let told = match meta.get(&format!("{account}/message_templates"), &query, meta.token()).await {
        Ok(told) => told,
        Err(why) => return found.not_checked("whatsapp template", why),
    };
    let templates = || list(&told["data"]).filter(|template| template["name"] == *name);
    let Some(template) = templates().find(|template| template["language"] == *language) else {
        let others: Vec<&str> = templates().filter_map(|template| template["language"].as_str()).collect();
        let (what, fix) = if others.is_empty() {
            (
                format!("there is no template {name:?}"),
                "create it (docs/whatsapp.md, section 5), or correct whatsapp.template",
            )
        } else {
            (
                format!("{name:?} is there in {}, not in {language}", others.join(", ")),
                "correct whatsapp.template_language",
            )
        };
        return found.fault("whatsapp template", what, fix);
    };
    let mut texts = list(&template["components"]).filter_map(|component| component["text"].as_str());
    if template["status"] != "APPROVED" {
        let status = template["status"].as_str().unwrap_or_default();
        let fix = "wait until Meta approves it; WhatsApp Manager > Message templates says what is missing";
        found.fault("whatsapp template", format!("{name:?} is {status}, not APPROVED"), fix);
    } else if texts.any(|text| text.contains("{{2}}")) {
        let fix = "give it one variable, {{1}}, for the name of the group, or none";
        found.fault("whatsapp template", format!("{name:?} has more than one variable"), fix);
    } else {
        found.ok("whatsapp template", format!("{name:?} is approved in {language}"));
    }
}

/// For how long askd can write to each person without a template.
pub(super) async fn windows(found: &mut Findings, whatsapp: &WhatsappSettings, settings: &Settings, now: Time) {
    let remembered = remembered(settings).await;
    let routes = settings.routes_to(ChannelName::WHATSAPP);
    for chat in routes.iter().map(|route| route.chat.as_str()).collect::<BTreeSet<&str>>() {
        let check = format!("whatsapp window {chat}");
        let Ok(remembered) = &remembered else {
            found.not_checked(check, "database");
            continue;
        };
        let last = last_wrote(remembered, &whatsapp.phone_number_id, chat);
        let left = last.map_or(Duration::ZERO, |last| (last + WINDOW).since(now));
        if !left.is_zero() {
            found.ok(check, format!("open for {} more hours", left.as_secs() / 3_600));
        } else if whatsapp.template.is_empty() {
            let fix = "have this person write any message to the business's number, or set whatsapp.template";
            found.fault(check, "the person has not written within 24 hours, and there is no template", fix);
        } else {
            found.ok(check, "closed: the template opens it");
        }
    }
}

/// What the daemon remembers of people.
#[cfg_attr(not(feature = "postgres"), expect(clippy::unused_async, reason = "only a database is waited for"))]
async fn remembered(settings: &Settings) -> Result<Value, String> {
    let bytes = match &settings.postgres.url {
        #[cfg(feature = "postgres")]
        Some(url) => document_of(url.expose_secret(), REMEMBERED).await?,
        _ => std::fs::read(settings.state_dir().join(REMEMBERED)).ok(),
    };
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
}
