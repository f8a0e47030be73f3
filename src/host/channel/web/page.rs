//! The page: files compiled in, no build step, nothing from elsewhere. They hold no secret and need
//! no token; what they show comes through the API.

use crate::ipc::wire::digest;
use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const PNG: &str = "image/png";
const MANIFEST: &str = "application/manifest+json";

macro_rules! files {
    ($($path:literal => $file:literal, $kind:ident;)*) => {
        &[$(($path, $kind, include_bytes!(concat!("page/", $file)))),*]
    };
}

/// Path, content type and content.
const FILES: &[(&str, &str, &[u8])] = files! {
    "/" => "index.html", HTML;
    "/inbox.css" => "inbox.css", CSS;
    "/start.js" => "start.js", SCRIPT;
    "/inbox.js" => "inbox.js", SCRIPT;
    "/api.js" => "api.js", SCRIPT;
    "/blocked.js" => "blocked.js", SCRIPT;
    "/card.js" => "card.js", SCRIPT;
    "/dom.js" => "dom.js", SCRIPT;
    "/drafts.js" => "drafts.js", SCRIPT;
    "/form.js" => "form.js", SCRIPT;
    "/keys.js" => "keys.js", SCRIPT;
    "/list.js" => "list.js", SCRIPT;
    "/live.js" => "live.js", SCRIPT;
    "/markdown.js" => "markdown.js", SCRIPT;
    "/moves.js" => "moves.js", SCRIPT;
    "/notify.js" => "notify.js", SCRIPT;
    "/settled.js" => "settled.js", SCRIPT;
    "/tabs.js" => "tabs.js", SCRIPT;
    "/words.js" => "words.js", SCRIPT;
    "/health.js" => "health.js", SCRIPT;
    "/history.js" => "history.js", SCRIPT;
    "/manifest.webmanifest" => "manifest.webmanifest", MANIFEST;
    "/icon.svg" => "icon.svg", SVG;
    "/icon.png" => "icon.png", PNG;
    "/push.js" => "push.js", SCRIPT;
    "/worker.js" => "worker.js", SCRIPT;
};

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, (path, kind, content)| {
        // After an update of the daemon the browser must not use old parts, so it asks each time and usually hears that
        // nothing has changed.
        let tag = format!("\"{}\"", digest([*content]));
        let file = move |headers: HeaderMap| async move {
            let known = headers.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
            let head =
                [(CONTENT_TYPE, (*kind).to_owned()), (CACHE_CONTROL, "no-cache".to_owned()), (ETAG, tag.clone())];
            if known.is_some_and(|known| is_among(&tag, known)) {
                (StatusCode::NOT_MODIFIED, head).into_response()
            } else {
                (head, *content).into_response()
            }
        };
        router.route(path, get(file))
    })
}

/// Whether `If-None-Match` names this tag; a proxy that compresses may have made it a weak one.
fn is_among(tag: &str, known: &str) -> bool {
    known.split(',').map(str::trim).any(|known| known == "*" || known.trim_start_matches("W/") == tag)
}

#[cfg(test)]
mod tests {
    use askd_core::{ChannelName, Via};

    /// A card in a chat and the inbox tell of one answer in the same words.
    #[test]
    fn the_page_says_where_people_act_in_the_words_of_the_core() {
        let words = include_str!("page/words.js");
        let chats = ChannelName::ALL.into_iter().filter(|name| *name != ChannelName::WEB).map(Via::Channel);
        for via in chats.chain([Via::Web, Via::Cli, Via::Api]) {
            let line = format!("  {}: '{}',\n", via.as_str(), via.place());
            assert!(words.contains(&line), "{line}");
        }
    }
}
