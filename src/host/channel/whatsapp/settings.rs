//! `[whatsapp]` and the routes that use it, checked. What is missing is an error that says what to
//! write; nothing here opens a connection.

use crate::host::settings::{SettingsError, is_loopback_url, secret, url_host, wrong};
use askd_core::{Capabilities, ChannelName, Responders, Route};
use secrecy::SecretString;
use serde::Deserialize;
use std::path::PathBuf;

/// What is needed to write to people on WhatsApp and to believe what comes back.
#[derive(Debug, Clone)]
pub struct Whatsapp {
    /// Bearer token of calls.
    pub access_token: SecretString,
    /// Key of the signatures of webhooks.
    pub app_secret: SecretString,
    /// Told by the platform when the webhook is set up.
    pub verify_token: SecretString,
    /// Which number of the business writes.
    pub phone_number_id: String,
    /// Opens a chat that has been silent for a day; without it such a chat cannot be used.
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
        let missing = |key: &str, what: &str| wrong(format!("whatsapp.{key}"), format!("missing: {what}"));
        let phone_number_id = number.ok_or_else(|| {
            missing("phone_number_id", "write the id of the number (WhatsApp > API Setup), such as \"106540352242922\"")
        })?;
        if !phone_number_id.bytes().all(|byte| byte.is_ascii_digit()) {
            let why =
                format!("{phone_number_id:?} is not an id of digits like \"106540352242922\" (not the number itself)");
            return Err(wrong("whatsapp.phone_number_id", why));
        }
        Ok(Some(Whatsapp {
            access_token: access_token.ok_or_else(|| {
                missing("access_token", "write the token of a system user, or access_token_file = \"/run/secrets/...\"")
            })?,
            app_secret: app_secret.ok_or_else(|| {
                missing(
                    "app_secret",
                    "write the app secret (App settings > Basic), or app_secret_file; without it \
                                       nobody could tell a true webhook from a forged one",
                )
            })?,
            verify_token: verify_token.ok_or_else(|| {
                missing(
                    "verify_token",
                    "make up a word, write it here (or verify_token_file) and where the webhook is set up",
                )
            })?,
            phone_number_id,
            template: Some(self.template).filter(|name| !name.is_empty()),
            template_language: self.template_language,
            api_url,
        }))
    }
}

fn api_url(url: &str) -> Result<String, SettingsError> {
    let url = url.trim_end_matches('/').to_owned();
    match url_host(&url) {
        Some(_) if url.starts_with("https://") || is_loopback_url(&url) => Ok(url),
        Some(_) => Err(wrong("whatsapp.api_url", format!("{url:?} would send the token in the clear; use https"))),
        None => {
            Err(wrong("whatsapp.api_url", format!("{url:?} is not a URL like \"https://graph.facebook.com/v25.0\"")))
        }
    }
}

/// A route to a person on WhatsApp.
pub(crate) fn route(at: &str, chat: Option<String>, responders: Option<Responders>) -> Result<Route, SettingsError> {
    let chat = chat.filter(|chat| !chat.is_empty()).ok_or_else(|| {
        wrong(
            format!("{at}.chat"),
            "missing: write the person's number with country code, digits only, such as \"15551234567\"",
        )
    })?;
    let chat = person(&format!("{at}.chat"), &chat)?;
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
