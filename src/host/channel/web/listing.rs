//! `GET /api/v1/asks`: reads its parameters strictly and returns its pages. The broker decides which asks fit.

use super::api::unreadable;
use super::people::Caller;
use super::view::View;
use super::{Inbox, Problem};
use crate::host::broker::{Cursor, Filter, Page};
use crate::ipc::wire::STATUSES;
use askd_core::{Ask, ChannelName, Time};
use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

/// How many asks a page has by default, and at most.
const LIMIT: usize = 200;
const MAX_LIMIT: usize = 1000;
/// A page ends with the ask that brings it to so many bytes: the largest may have thousands of times those of the smallest.
const MOST_BYTES: usize = 512 * 1024;
/// An ask has at most so many, nearly always.
const USUAL_BYTES: usize = 16 * 1024;
const PARAMETERS: &str = "state, group, q, outcome, channel, person, since, until, limit and after";

/// The parameters of a call.
#[derive(Debug)]
pub(super) struct Listing {
    pub(super) filter: Filter,
    limit: usize,
    after: Option<Cursor>,
}

impl Listing {
    /// Reads these parameters; the error is a sentence that names the wrong one.
    pub(super) fn of(parameters: &[(String, String)], caller: &Caller) -> Result<Self, String> {
        let filter = Filter { only: caller.groups.clone(), ..Filter::default() };
        let mut listing = Self { filter, limit: LIMIT, after: None };
        for (position, (name, value)) in parameters.iter().enumerate() {
            if parameters[..position].iter().any(|(before, _)| before == name) {
                return Err(format!("{name} is given twice."));
            }
            // A form may send its empty fields: they count as not given.
            if value.is_empty() && PARAMETERS.split([',', ' ']).any(|known| known == name) {
                continue;
            }
            listing.set(name, value)?;
        }
        Ok(listing)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let filter = &mut self.filter;
        let wrong = |what: &str| format!("{name}={value:?} is {what}.");
        match name {
            "state" => {
                filter.settled = Some(match value {
                    "open" => false,
                    "settled" => true,
                    _ => return Err(wrong("neither open nor settled")),
                });
            }
            "group" => filter.group = Some(value.parse().map_err(|_| wrong("not the name of a group"))?),
            "q" => filter.words = Some(value.to_lowercase()),
            "outcome" => {
                let known = STATUSES.into_iter().find(|known| *known == value);
                filter.outcome = Some(known.ok_or_else(|| wrong(&format!("none of {}", STATUSES.join(", "))))?);
            }
            "channel" => {
                let names: Vec<&str> = ChannelName::ALL.iter().map(ChannelName::as_str).chain(["cli", "api"]).collect();
                let known = names.contains(&value).then(|| value.to_owned());
                filter.channel = Some(known.ok_or_else(|| wrong(&format!("none of {}", names.join(", "))))?);
            }
            "person" => filter.person = Some(value.to_lowercase()),
            "since" => filter.since = Some(time(value).ok_or_else(|| wrong(NO_TIME))?),
            "until" => filter.until = Some(time(value).ok_or_else(|| wrong(NO_TIME))?),
            "limit" => {
                let limit = value.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
                self.limit = limit.ok_or_else(|| wrong(&format!("not a number from 1 to {MAX_LIMIT}")))?;
            }
            "after" => {
                self.after = Some(value.parse().map_err(|_| wrong("not the next of an earlier page"))?);
            }
            _ => return Err(format!("There is no parameter {name:?}; there are {PARAMETERS}.")),
        }
        Ok(())
    }
}

const NO_TIME: &str = "not a time like 2026-11-20T10:00:00Z";

/// A plus sign that was not escaped arrives as a space.
fn time(value: &str) -> Option<Time> {
    value.replace(' ', "+").parse().ok()
}

pub(super) async fn list(
    State(inbox): State<Inbox>,
    Extension(caller): Extension<Caller>,
    Query(parameters): Query<Vec<(String, String)>>,
) -> Result<impl IntoResponse, Problem> {
    let Listing { filter, limit, after } = Listing::of(&parameters, &caller)
        .map_err(|detail| Problem::new(StatusCode::BAD_REQUEST, "Not understood", detail))?;
    if !inbox.broker.is_loaded() {
        return Err(Problem::loading());
    }
    // Made on this thread, which also frees it: what the reading threads get back from others they keep until they read again.
    let mut text = Vec::with_capacity(MOST_BYTES + USUAL_BYTES);
    text.extend_from_slice(br#"{"asks":["#);
    let page = inbox.broker.page_into(filter, limit, after, text, add).await;
    let Page { asks: mut text, total, next, .. } = page.map_err(unreadable)?;
    if text.ends_with(b",") {
        text.pop();
    }
    let next = next.map_or(String::new(), |next| format!(r#","next":"{next}""#));
    text.extend_from_slice(format!(r#"],"total":{total}{next}}}"#).as_bytes());
    Ok(([(CONTENT_TYPE, "application/json")], text))
}

/// Writes an ask, and a comma; `false`: the page is full.
fn add(text: &mut Vec<u8>, ask: &Ask) -> bool {
    let before = text.len();
    match serde_json::to_writer(&mut *text, &View::of(ask)) {
        Ok(()) => text.push(b','),
        Err(_unwritable) => text.truncate(before),
    }
    text.len() < MOST_BYTES
}
