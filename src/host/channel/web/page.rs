//! The page: files compiled in, no build step, nothing from elsewhere. They hold no secret and need
//! no token; what they show comes through the API.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::routing::get;

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

macro_rules! files {
    ($($path:literal => $file:literal, $kind:ident;)*) => {
        &[$(($path, $kind, include_str!(concat!("page/", $file)))),*]
    };
}

/// Path, content type and content.
const FILES: &[(&str, &str, &str)] = files! {
    "/" => "index.html", HTML;
    "/inbox.css" => "inbox.css", CSS;
    "/inbox.js" => "inbox.js", SCRIPT;
    "/api.js" => "api.js", SCRIPT;
    "/blocked.js" => "blocked.js", SCRIPT;
    "/card.js" => "card.js", SCRIPT;
    "/dom.js" => "dom.js", SCRIPT;
    "/form.js" => "form.js", SCRIPT;
    "/live.js" => "live.js", SCRIPT;
    "/notify.js" => "notify.js", SCRIPT;
    "/settled.js" => "settled.js", SCRIPT;
    "/words.js" => "words.js", SCRIPT;
    "/icon.svg" => "icon.svg", SVG;
};

pub(super) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    FILES.iter().fold(Router::new(), |router, (path, kind, content)| {
        // After an update of the daemon the browser must not go on with old parts.
        let file = [(CONTENT_TYPE, *kind), (CACHE_CONTROL, "no-cache")];
        router.route(path, get(move || async move { (file, *content) }))
    })
}
