//! Whether the daemon runs, takes this token, can be reached from elsewhere, and what it says of itself.

use super::Findings;
use super::probe::Probe;
use crate::host::client::{Client, ClientError, healthy};
use crate::host::settings::Settings;
use reqwest::Method;
use serde_json::Value;
use std::io;
use std::net::TcpListener;
use std::path::PathBuf;

const START: &str =
    "askd serve, or: sudo systemctl start askd (if it ends at once, its last line says why: journalctl -u askd -n 20)";

/// Whether it runs, and can be talked to.
pub(super) async fn check(found: &mut Findings, files: &[PathBuf], settings: &Settings) -> bool {
    let listen = settings.http.listen;
    if healthy(files, None).await.is_err() {
        match TcpListener::bind(listen) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let fix = format!("stop it (ss -ltnp 'sport = :{}' names it), or set [http] listen", listen.port());
                found.fault("daemon", format!("something that is not askd listens on {listen}"), fix);
            }
            _ => found.fault("daemon", format!("no askd answers on {listen}"), START),
        }
        found.not_checked("token", "daemon");
        return false;
    }
    found.ok("daemon", format!("answers on {listen}"));
    match status(files).await {
        Ok(status) => {
            found.ok("token", "the daemon takes it");
            let (theirs, ours) = (status["version"].as_str().unwrap_or_default(), env!("CARGO_PKG_VERSION"));
            if theirs == ours {
                found.ok("version", ours);
            } else {
                let what = format!("the daemon is askd {theirs}, this is askd {ours}");
                found.fault("version", what, "restart the daemon: sudo systemctl restart askd");
            }
        }
        Err(ClientError::Problem { status: 401, .. }) => {
            let fix = "if it was started with --config, give this command the same; else restart the daemon, so that it reads the \
                       token again: sudo systemctl restart askd";
            let at = if settings.web.token.is_some() { "of the settings ([web] token)" } else { "in state/web_token" };
            found.fault("token", format!("the daemon does not accept the token {at}"), fix);
        }
        Err(ClientError::Problem { status: 503, detail, .. }) => found.not_checked("token", detail),
        Err(error) => found.fault("token", error, "run askd doctor as the user that owns the data folder"),
    }
    true
}

async fn status(files: &[PathBuf]) -> Result<Value, ClientError> {
    Client::find(files, None, None)?.call(Method::GET, "/status", None).await
}

/// What it says of itself, where no other check says it already.
pub(super) async fn problems(found: &mut Findings, files: &[PathBuf]) {
    let Ok(status) = status(files).await else { return };
    let mut told = 0;
    for problem in status["problems"].as_array().into_iter().flatten() {
        let text = |field: &str| problem[field].as_str().unwrap_or_default();
        let known = match text("kind") {
            "channel" => found.has_fault_in(text("about")),
            // What it cannot write there is no matter of the disk.
            "daemon" => found.has_fault("state folder"),
            "folder" => found.has_found(text("line")),
            _ => false,
        };
        if !known {
            told += 1;
            found.fault("status", text("line"), text("fix"));
        }
    }
    if told == 0 {
        let what = match status["uncollected"].as_array().map_or(0, Vec::len) {
            1 => "1 answer not collected yet".to_owned(),
            answers => format!("{answers} answers not collected yet"),
        };
        found.ok("status", what);
    }
}

/// Whether it can be reached under the address that people and platforms use.
pub(super) async fn public(found: &mut Findings, probe: &Probe, settings: &Settings, runs: bool) {
    let Some(url) = &settings.http.public_url else { return };
    if !runs {
        return found.not_checked("public_url", "daemon");
    }
    let said = probe.call(url, |client| client.get(format!("{url}/healthz"))).await;
    let fix =
        "check the reverse proxy or tunnel: it has to pass this name on to [http] listen; or correct http.public_url";
    match said {
        Ok(said) if said.text == "ok\n" => found.ok("public_url", format!("{url} leads to askd")),
        Ok(said) => found.fault("public_url", format!("{url} answers {} and is not askd", said.status), fix),
        Err(why) => found.fault("public_url", format!("{url} cannot be reached: {why}"), fix),
    }
}
