//! What waits for each browser, and its way there: one notice after the other, each tried a few times. Each try is only for those
//! who still hear of it: while a push service was away, they may have signed off, or a reload may have taken the group from them.

use super::notice::Notice;
use super::sealed::Subscription;
use super::{Push, address};
use crate::host::backoff::Backoff;
use crate::host::networks::PublicOnly;
use crate::host::outgoing::client_for;
use crate::host::settings::{PushSettings, Settings};
use crate::host::store::StoreError;
use axum::http::{StatusCode, header};
use futures_util::FutureExt as _;
use reqwest::redirect::Policy;
use serde_json::json;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// How long a push service has for its reply.
const CALL: Duration = Duration::from_secs(10);
/// Tries of one notice, and the first and longest pause between them.
const TRIES: usize = 5;
const PAUSE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
/// How long a signature holds; a push service takes a day at most.
const SIGNED_FOR: Duration = Duration::from_secs(12 * 3600);
/// How long a push service keeps the notice that a question is over.
const KEEP_END: Duration = Duration::from_secs(24 * 3600);
/// Notices that wait for one browser: the last of each ask, and the newest asks.
const WAITING: usize = 100;

/// What came of one try.
enum Tried {
    Done,
    /// The browser is gone.
    Gone,
    Later(String),
}

impl Push {
    pub(super) fn line_up(&self, to: String, notice: &Arc<Notice>) {
        let mut lines = self.0.lines.lock();
        match lines.entry(to.clone()) {
            Entry::Occupied(mut line) => {
                let line = line.get_mut();
                line.retain(|waits| waits.ask != notice.ask);
                if line.len() >= WAITING {
                    line.pop_front();
                }
                line.push_back(Arc::clone(notice));
            }
            Entry::Vacant(line) => {
                line.insert(VecDeque::from([Arc::clone(notice)]));
                let push = self.clone();
                self.0.ctx.spawn(async move { push.serve(&to).await });
            }
        }
    }

    /// Nothing waits for this browser any more.
    pub(super) fn drop_line(&self, to: &str) {
        self.0.begun.lock().retain(|(_, known)| known != to);
        if let Some(line) = self.0.lines.lock().get_mut(to) {
            line.clear();
        }
    }

    /// Pushes to one browser until nothing waits for it.
    async fn serve(&self, to: &str) {
        while let Some(notice) = self.next(to) {
            // Else nobody would serve this line any more.
            let _reported = AssertUnwindSafe(self.deliver(to, &notice)).catch_unwind().await;
        }
    }

    fn next(&self, to: &str) -> Option<Arc<Notice>> {
        let mut lines = self.0.lines.lock();
        let next = lines.get_mut(to).and_then(VecDeque::pop_front);
        if next.is_none() {
            lines.remove(to);
        }
        next
    }

    async fn deliver(&self, to: &str, notice: &Notice) {
        let mut backoff = Backoff::new(PAUSE.0, PAUSE.1);
        // What it shows has to go, even if its person does not see the group any more.
        let shows = !notice.is_open && self.0.begun.lock().remove(&(notice.ask, to.to_owned()));
        for tries_left in (0..TRIES).rev() {
            // First: while it waits for that, whatever is looked at can change.
            let Ok(place) = self.0.places.acquire().await else { return };
            let mut unread = None;
            if notice.is_open {
                match self.0.broker.get(notice.ask).await {
                    Ok(Some(ask)) if ask.outcome().is_none() => {}
                    Ok(_) | Err(StoreError::Damaged { .. }) => return,
                    Err(error) => unread = Some(error),
                }
            }
            let device = self.0.devices.at(to).filter(|_| self.key().is_some());
            let Some((caller, device)) = device.and_then(|device| Some((self.hears(&device)?, device))) else {
                return self.drop_line(to);
            };
            let sees = caller.sees(&notice.group);
            if !sees && !shows {
                return;
            }
            let tried = match unread {
                Some(error) => Tried::Later(error.to_string()),
                None => self.try_once(&device.subscription, notice, sees).await,
            };
            drop(place);
            match tried {
                Tried::Done => {
                    if notice.is_open {
                        self.0.begun.lock().insert((notice.ask, to.to_owned()));
                    }
                    return;
                }
                Tried::Gone => {
                    // What waits for it would go nowhere either.
                    self.drop_line(to);
                    return self.forget(move |known| known.subscription == device.subscription);
                }
                Tried::Later(why) if tries_left == 0 => {
                    tracing::warn!(ask = %notice.ask, why, "a browser cannot be told of a question");
                }
                Tried::Later(_) if !self.0.ctx.pause(backoff.pause()).await => return,
                Tried::Later(_) => {}
            }
        }
    }

    /// `sees`: its person sees the group; else it learns no more than that this question is over.
    async fn try_once(&self, to: &Subscription, notice: &Notice, sees: bool) -> Tried {
        let settings = self.settings();
        let Ok(url) = address::allowed(&to.endpoint, &settings.web.push_hosts) else { return Tried::Gone };
        let group = if sees { notice.group.as_str() } else { "" };
        let mut message = json!({"ask": notice.ask, "group": group, "over": !notice.is_open});
        if sees && settings.web.push == PushSettings::Text {
            message["text"] = json!(notice.text);
        }
        let until = self.0.ctx.clock().now().moved(i64::try_from(SIGNED_FOR.as_millis()).unwrap_or(0));
        let contact = settings.http.public_url.as_deref().filter(|url| url.starts_with("https://"));
        let service = url.origin().ascii_serialization();
        let authorization = self.0.devices.vapid.authorization(&service, contact, until);
        let (Ok(body), Ok(authorization)) = (to.seal(message.to_string().as_bytes()), authorization) else {
            return Tried::Gone;
        };
        let client = match self.client(&url, &settings) {
            Ok(client) => client,
            Err(error) => return Tried::Later(error.to_string()),
        };
        let (urgency, keep) = if notice.is_open { ("high", notice.answer_within) } else { ("normal", KEEP_END) };
        let call = client.post(url).header("ttl", keep.as_secs()).header("urgency", urgency);
        // A browser that was off meanwhile is told the last of an ask only.
        let call = call.header("topic", notice.ask.to_string()).header(header::CONTENT_ENCODING, "aes128gcm");
        let call = call.header(header::CONTENT_TYPE, "application/octet-stream");
        match call.header(header::AUTHORIZATION, authorization).body(body).timeout(CALL).send().await {
            Ok(reply) if reply.status().is_success() => Tried::Done,
            Ok(reply) if matches!(reply.status(), StatusCode::NOT_FOUND | StatusCode::GONE) => Tried::Gone,
            Ok(reply) => Tried::Later(format!("{service} replied {}", reply.status())),
            Err(error) => Tried::Later(format!("{:#}", anyhow::Error::from(error.without_url()))),
        }
    }

    /// Calls the internet only, unless the settings name this host.
    fn client(&self, url: &Url, settings: &Settings) -> reqwest::Result<reqwest::Client> {
        if address::is_named(url, &settings.web.push_hosts) {
            return client_for(url.as_str()).redirect(Policy::none()).build();
        }
        let mut kept = self.0.client.lock();
        if let Some(client) = &*kept {
            return Ok(client.clone());
        }
        let guard = Arc::new(PublicOnly { otherwise: "[web] push_hosts can allow it" });
        let client = client_for("https://").redirect(Policy::none()).dns_resolver(guard).build()?;
        Ok(kept.insert(client).clone())
    }
}
