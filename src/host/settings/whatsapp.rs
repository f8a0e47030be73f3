//! The section `[whatsapp]` and the routes that use it, checked. An error says what to write. Opens no connection.

use super::{SettingsError, is_loopback_url, secret, url_host, wrong};
use askd_core::{Capabilities, ChannelName, Responders, Route};
use secrecy::SecretString;
use serde::Deserialize;
use std::path::PathBuf;

/// What the channel needs to write to people on WhatsApp and to verify what comes back.
#[derive(Debug, Clone)]
pub struct Whatsapp {
    /// Bearer token of calls.
    pub access_token: SecretString,
    /// Key of the signatures of webhooks.
    pub app_secret: SecretString,
    /// The word that the platform says when the webhook is set up.
    pub verify_token: SecretString,
    /// Which number of the business writes.
    pub phone_number_id: String,
    /// The template that asks a person to write who has not written for a day; without it they cannot be asked.
    pub template: Option<String>,
    /// The language the template was approved in.
    pub template_language: String,
    /// No slash at the end.
    pub api_url: String,
}

/// The section as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Shape {
    access_token: Option<SecretString>,
    access_token_file: Option<PathBuf>,
    app_secret: Option<SecretString>,
    app_secret_file: Option<PathBuf>,
    verify_token: Option<SecretString>,
    verify_token_file: Option<PathBuf>,
    phone_number_id: String,
    template: String,
    template_language: String,
    api_url: String,
}

impl Shape {
    /// The section; `None` if nothing in it is set.
    pub(crate) fn check(self) -> Result<Option<Whatsapp>, SettingsError> {
        let access_token = secret("whatsapp.access_token", self.access_token, self.access_token_file.as_deref())?;
        let app_secret = secret("whatsapp.app_secret", self.app_secret, self.app_secret_file.as_deref())?;
        let verify_token = secret("whatsapp.verify_token", self.verify_token, self.verify_token_file.as_deref())?;
        let api_url = api_url(&self.api_url)?;
        let number = Some(self.phone_number_id).filter(|id| !id.is_empty());
        if access_token.is_none() && app_secret.is_none() && verify_token.is_none() && number.is_none() {
            return Ok(None);
        }
        let phone_number_id = required("phone_number_id", number, NUMBER)?;
        if !phone_number_id.bytes().all(|byte| byte.is_ascii_digit()) {
            let why =
                format!("{phone_number_id:?} is not an id of digits like \"106540352242922\" (not the number itself)");
            return Err(wrong("whatsapp.phone_number_id", why));
        }
        Ok(Some(Whatsapp {
            access_token: required("access_token", access_token, ACCESS_TOKEN)?,
            app_secret: required("app_secret", app_secret, APP_SECRET)?,
            verify_token: required("verify_token", verify_token, VERIFY_TOKEN)?,
            phone_number_id,
            template: Some(self.template).filter(|name| !name.is_empty()),
            template_language: self.template_language,
            api_url,
        }))
    }
}

const NUMBER: &str = "write the id of the number (WhatsApp > API Setup), for example \"106540352242922\"";
const ACCESS_TOKEN: &str = "write the token of a system user, or access_token_file = \"/run/secrets/...\"";
const APP_SECRET: &str = "write the app secret (App settings > Basic), or app_secret_file; without it askd could not tell \
                          a true webhook from a forged one";
const VERIFY_TOKEN: &str = "make up a word, write it here (or verify_token_file) and where the webhook is set up";

fn required<T>(key: &str, value: Option<T>, what: &str) -> Result<T, SettingsError> {
    value.ok_or_else(|| wrong(format!("whatsapp.{key}"), format!("missing: {what}")))
}

fn api_url(url: &str) -> Result<String, SettingsError> {
    let url = url.trim_end_matches('/').to_owned();
    let why = match url_host(&url) {
        Some(_) if url.starts_with("https://") || is_loopback_url(&url) => return Ok(url),
        Some(_) => "would send the token in the clear; use https",
        None => "is not a URL like \"https://graph.facebook.com/v25.0\"",
    };
    Err(wrong("whatsapp.api_url", format!("{url:?} {why}")))
}

/// A route to a person on WhatsApp.
pub(crate) fn route(at: &str, chat: Option<String>, responders: Option<Responders>) -> Result<Route, SettingsError> {
    let key = format!("{at}.chat");
    let missing = "missing: write the person's number with country code, digits only, for example \"15551234567\"";
    let chat = chat.filter(|chat| !chat.is_empty()).ok_or_else(|| wrong(&key, missing))?;
    let chat = person(&key, &chat)?;
    let responders = match responders {
        None => Responders::Only(vec![chat.clone()]),
        Some(Responders::Only(ids)) => {
            let ids = ids.iter().map(|id| person(&format!("{at}.responders"), id)).collect::<Result<_, _>>()?;
            Responders::Only(ids)
        }
        Some(Responders::Anyone) => Responders::Anyone,
    };
    Ok(Route { channel: ChannelName::WHATSAPP, chat, responders, capabilities: Capabilities::default() })
}

/// A number in any spelling, as its digits; or a business-scoped id as it is.
fn person(key: &str, text: &str) -> Result<String, SettingsError> {
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
        return Ok(digits);
    }
    let why = format!(
        "{text:?} is neither a number like \"15551234567\" nor a business-scoped id like \"US.13491208655302741918\""
    );
    Err(wrong(key, why))
}
