//! One call of the Cloud API, and its result. Knows nothing of asks, windows or rates.

use super::callback_data::CallbackData;
use super::errors::{Verdict, concerns_all, is_about_the_token, verdict};
use super::identities::is_user_id;
use crate::clock::Clock;
use crate::host::channel::notice_its_return;
use crate::host::outgoing::{client_for, root_cause};
use crate::host::settings::WhatsappSettings as Settings;
use crate::host::standing::{Problem, Standing};
use askd_core::{Time, Trouble, wording};
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::header::{DATE, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use std::time::Duration;

/// How long a call may take; then its reply counts as lost.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);
/// No reply of the API comes near this.
const MAX_REPLY: usize = 1024 * 1024;

/// A message to a person.
#[derive(Debug, Clone)]
pub(super) struct Outgoing<'a> {
    /// The person's number or business-scoped user id.
    pub(super) to: &'a str,
    pub(super) content: Content<'a>,
    pub(super) callback: Option<CallbackData>,
    /// The message it quotes.
    pub(super) quotes: Option<&'a str>,
}

/// What a message says.
#[derive(Debug, Clone)]
pub(super) enum Content<'a> {
    Text(&'a str),
    /// A text with options to tap.
    Interactive(&'a Value),
    /// The approved template in this language, with or without the name of the group as parameter.
    Template(&'a str, &'a str, Option<&'a str>),
}

/// The result of a call, and what else the reply says.
#[derive(Debug)]
pub(super) struct Reply {
    /// The id of the message, if the platform accepted it.
    pub(super) result: Result<String, Failure>,
    /// What the platform's clock showed, in whole seconds.
    pub(super) date: Option<Time>,
    /// The platform's own id for the person we wrote to.
    pub(super) wa_id: Option<String>,
}

/// Why a call has no message id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The platform certainly did not accept the message.
    Refused(Verdict),
    /// The platform may have accepted it.
    Lost,
}

/// The client of one number of the business.
#[derive(Debug)]
pub(super) struct Client {
    http: reqwest::Client,
    clock: Clock,
    settings: Settings,
    /// Whether the last call got a reply, and the token was good.
    calls: Standing,
    /// Whether the last message was not refused for anything else that every message would be refused for.
    messages: Standing,
}

/// The reply to a call.
struct Replied {
    status: StatusCode,
    date: Option<Time>,
    retry_after: Option<Duration>,
    body: Value,
}

impl Replied {
    fn code(&self) -> Option<u64> {
        self.body["error"]["code"].as_u64()
    }
}

impl Client {
    /// Fixed address, no redirects, no proxy: the token goes nowhere else.
    pub(super) fn new(settings: Settings, clock: Clock) -> Result<Self, reqwest::Error> {
        let http = client_for(&settings.api_url).redirect(Policy::none()).build()?;
        Ok(Self { http, clock, settings, calls: Standing::default(), messages: Standing::default() })
    }

    /// What keeps calls from working.
    pub(super) fn problem(&self) -> Option<Problem> {
        self.calls.problem().or_else(|| self.messages.problem())
    }

    /// Looks up the number while WhatsApp is away.
    pub(super) async fn notice_its_return(&self) {
        let look = || async {
            let _noted = self.reply(self.http.get(format!("{}?fields=id", self.number())), TIMEOUT).await;
        };
        notice_its_return(&self.clock, &self.calls, look).await;
    }

    /// The address of the number.
    fn number(&self) -> String {
        format!("{}/{}", self.settings.api_url, self.settings.phone_number_id)
    }

    /// Notes whether a reply refuses what every later call would be refused, too.
    fn note(&self, standing: &Standing, code: Option<u64>) {
        match code.and_then(|code| Some((code, concerns_all(code)?))) {
            Some((code, fix)) => standing.fails(self.clock.now(), format!("refused with {code}"), fix),
            None => standing.works(),
        }
    }

    /// Makes a call that may take this long, and notes what comes of it.
    async fn reply(&self, call: RequestBuilder, within: Duration) -> Result<Replied, Failure> {
        let call = async {
            let response = call.bearer_auth(self.settings.access_token.expose_secret()).send().await?;
            let header = |name| response.headers().get(name)?.to_str().ok();
            let (status, date) = (response.status(), header(DATE).and_then(parse_date));
            let retry_after = header(RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs);
            // The headers count only if the reply is complete: a proxy between us and the platform may have sent it.
            let body = read(response).await.map(|bytes| serde_json::from_slice(&bytes).unwrap_or_default());
            Ok::<_, reqwest::Error>(body.map(|body| Replied { status, date, retry_after, body }))
        };
        let fails = |why: String| self.calls.fails(self.clock.now(), why, wording::UNREACHABLE);
        match self.clock.timeout(within, call).await {
            Some(Ok(Some(reply))) => {
                self.note(&self.calls, reply.code().filter(|code| is_about_the_token(*code)));
                Ok(reply)
            }
            Some(Ok(None)) => Err(Failure::Lost),
            Some(Err(error)) => {
                let (never_left, why) = (error.is_connect(), root_cause(&error.without_url()));
                fails(format!("no connection: {why}"));
                if never_left {
                    tracing::warn!(why, "WhatsApp cannot be reached");
                    return Err(Failure::Refused(Verdict::Retry(None, Trouble::NoConnection)));
                }
                tracing::warn!(why, "the reply of WhatsApp was lost");
                Err(Failure::Lost)
            }
            None => {
                fails("no answer".to_owned());
                tracing::warn!("WhatsApp did not reply within {} s", within.as_secs());
                Err(Failure::Lost)
            }
        }
    }

    /// Sends a message in a call that may take this long. `attempt`: which try this is, for pauses that grow with it.
    pub(super) async fn send(&self, message: &Outgoing<'_>, attempt: u8, within: Duration) -> Reply {
        let call = self.http.post(format!("{}/messages", self.number())).json(&body(message));
        let replied = match self.reply(call, within).await {
            Ok(replied) => replied,
            Err(failure) => return failed(failure),
        };
        let code = replied.code();
        self.note(&self.messages, code.filter(|code| !is_about_the_token(*code)));
        let Replied { status, date, retry_after, body: reply } = replied;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if status.is_success() {
            let id = reply["messages"].as_array().and_then(|messages| text(&messages.last()?["id"]));
            let contacts = reply["contacts"].as_array().map(Vec::as_slice).unwrap_or_default();
            let recipient = contacts.iter().find(|contact| contact["input"] == message.to);
            let wa_id = recipient.and_then(|contact| text(&contact["wa_id"]));
            return Reply { result: id.ok_or(Failure::Lost), date, wa_id };
        }
        let failure = match code {
            Some(code) => {
                tracing::warn!(code, status = status.as_u16(), "WhatsApp refused a message");
                let why = reply["error"]["message"].as_str().unwrap_or_default();
                Failure::Refused(verdict(code, why, attempt))
            }
            // A proxy refused it.
            None if status.is_client_error() => {
                let trouble = if retry_after.is_some() { Trouble::RateLimited } else { Trouble::Unknown };
                Failure::Refused(Verdict::Retry(retry_after, trouble))
            }
            None => Failure::Lost,
        };
        Reply { date, ..failed(failure) }
    }
}

fn failed(failure: Failure) -> Reply {
    Reply { result: Err(failure), date: None, wa_id: None }
}

/// The time in a `Date` header.
fn parse_date(text: &str) -> Option<Time> {
    Some(Time::from_millis(DateTimeParser::new().parse_timestamp(text).ok()?.as_millisecond()))
}

async fn read(mut response: reqwest::Response) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > MAX_REPLY {
            return None;
        }
    }
    Some(bytes)
}

fn body(message: &Outgoing<'_>) -> Value {
    let mut body = json!({"messaging_product": "whatsapp", "recipient_type": "individual"});
    body[if is_user_id(message.to) { "recipient" } else { "to" }] = json!(message.to);
    match message.content {
        Content::Text(text) => {
            body["type"] = json!("text");
            body["text"] = json!({"preview_url": false, "body": text});
        }
        Content::Interactive(interactive) => {
            body["type"] = json!("interactive");
            body["interactive"] = interactive.clone();
        }
        Content::Template(name, language, group) => {
            body["type"] = json!("template");
            body["template"] = json!({"name": name, "language": {"code": language}});
            if let Some(group) = group {
                body["template"]["components"] =
                    json!([{"type": "body", "parameters": [{"type": "text", "text": group}]}]);
            }
        }
    }
    if let Some(callback) = &message.callback {
        body["biz_opaque_callback_data"] = json!(callback.to_string());
    }
    if let Some(quoted) = message.quotes {
        body["context"] = json!({"message_id": quoted});
    }
    body
}
