//! `[whatsapp]`, and the routes that lead there.

use super::Settings;
use super::group::RouteSettings;
use super::mistakes::Mistakes;
use super::values::{Secrets, api_url, secrets};
use askd_core::Responders;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Deserializer};

/// What the channel needs to write to people on WhatsApp and to verify what comes back.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhatsappSettings {
    /// Bearer token of calls.
    #[serde(default = "not_given")]
    pub access_token: SecretString,
    /// Keys of the signatures of webhooks, and of what can be tapped.
    #[serde(default, rename = "app_secret", deserialize_with = "app_secrets")]
    pub app_secrets: Secrets,
    /// The word that the platform says when the webhook is set up.
    #[serde(default = "not_given")]
    pub verify_token: SecretString,
    /// Which number of the business writes.
    pub phone_number_id: String,
    /// The template that asks a person to write who has not written for a day; empty: they cannot be asked.
    pub template: String,
    /// The language the template was approved in.
    pub template_language: String,
    /// No slash at the end.
    #[serde(deserialize_with = "api_url")]
    pub api_url: String,
}

fn app_secrets<'de, D: Deserializer<'de>>(from: D) -> Result<Secrets, D::Error> {
    secrets(from).map(Option::unwrap_or_default)
}

fn not_given() -> SecretString {
    String::new().into()
}

impl WhatsappSettings {
    /// The section; `None` if nothing in it is set.
    pub(super) fn check(self, mistakes: &mut Mistakes) -> Option<Self> {
        let number = &self.phone_number_id;
        let needed = [
            ("phone_number_id", number.as_str(), NUMBER),
            ("access_token", self.access_token.expose_secret(), ACCESS_TOKEN),
            ("app_secret", self.app_secrets.newest.expose_secret(), APP_SECRET),
            ("verify_token", self.verify_token.expose_secret(), VERIFY_TOKEN),
        ];
        if needed.iter().all(|(_, value, _)| value.is_empty()) {
            return None;
        }
        for (key, _, what) in needed.iter().filter(|(_, value, _)| value.is_empty()) {
            mistakes.add(format!("whatsapp.{key}"), format!("missing: {what}"));
        }
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            let why = "is not an id of digits like \"106540352242922\" (not the number itself)";
            mistakes.add("whatsapp.phone_number_id", format!("{number:?} {why}"));
        }
        Some(self)
    }
}

const NUMBER: &str = "write the id of the number (WhatsApp > API Setup), for example \"106540352242922\"";
const ACCESS_TOKEN: &str = "write the token of a system user, or access_token_file = \"/etc/askd/secrets/...\"";
const APP_SECRET: &str = "write the app secret (App settings > Basic), or app_secret_file; without it askd could not tell \
                          a true webhook from a forged one";
const VERIFY_TOKEN: &str = "make up a word, write it here (or verify_token_file) and where the webhook is set up";

/// Checks a route and writes each person as WhatsApp does. Without responders, the person of the chat may answer.
pub(super) fn check_route(route: &mut RouteSettings, at: &str, settings: &Settings, mistakes: &mut Mistakes) {
    let key = format!("{at}.chat");
    if route.chat.is_empty() {
        let why = "missing: write the person's number with country code, digits only, for example \"15551234567\"";
        return mistakes.add(key, why);
    }
    let mut write = |key: &str, text: &mut String| match person(text) {
        Ok(person) => *text = person,
        Err(why) => mistakes.add(key, why),
    };
    write(&key, &mut route.chat);
    match route.responders.get_or_insert_with(|| Responders::Only(vec![route.chat.clone()])) {
        Responders::Anyone => {}
        Responders::Only(ids) if *ids == [route.chat.clone()] => {}
        Responders::Only(ids) => {
            let key = format!("{at}.responders");
            for id in ids.iter_mut() {
                write(&key, id);
            }
            // Which number a business-scoped id belongs to is known later.
            let is_number = |id: &String| id.bytes().all(|byte| byte.is_ascii_digit());
            if is_number(&route.chat) && ids.iter().all(is_number) && !ids.contains(&route.chat) {
                let chat = &route.chat;
                let why = format!("{chat} is asked, but may not answer: add \"{chat}\", or make one of these the chat");
                mistakes.add(key, why);
            }
        }
    }
    if settings.whatsapp.is_none() && !mistakes.any_in("whatsapp") {
        let why = "a whatsapp route needs access_token, app_secret, verify_token and phone_number_id in [whatsapp] \
                   (docs/whatsapp.md says where they come from)";
        mistakes.add(at, why);
    }
}

/// A number in any spelling, as its digits; or a business-scoped id as it is.
fn person(text: &str) -> Result<String, String> {
    let scoped = text.split_once('.').is_some_and(|(country, id)| {
        country.len() == 2
            && country.bytes().all(|b| b.is_ascii_uppercase())
            && (1..=128).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric())
    });
    if scoped {
        return Ok(text.to_owned());
    }
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let spelled = text.chars().all(|c| c.is_ascii_digit() || " +-().".contains(c));
    if spelled && (7..=15).contains(&digits.len()) {
        // Nobody has that number, and nothing that was sent to it would arrive.
        if digits.starts_with('0') || text.contains("(0") {
            let why = "has a 0 that is dialled and is no part of the number: write + and the country code before it, and no 0 \
                       between, for example \"+15551234567\"";
            return Err(format!("{text:?} {why}"));
        }
        return Ok(digits);
    }
    let why = "is neither a number like \"15551234567\" nor a business-scoped id like \"US.13491208655302741918\"";
    Err(format!("{text:?} {why}"))
}
