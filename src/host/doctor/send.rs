//! `askd doctor --send`: asks a test question in each group, through real files, looks where it is shown, and withdraws it.

use super::Findings;
use super::probe::Probe;
use crate::host::client::Client;
use crate::host::settings::Settings;
use crate::ipc::files::Dir;
use crate::ipc::{MAX_REQUEST_BYTES, RESPONSES, TASKS, response_name};
use crate::random;
use askd_core::Group;
use reqwest::Method;
use serde_json::{Value, json};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// How often askd looks whether the question is shown, and how long a look is apart from the next.
const LOOKS: u32 = 60;
const PAUSE: Duration = Duration::from_millis(250);

pub(super) async fn check(found: &mut Findings, files: &[PathBuf], settings: &Settings, probe: &Probe, runs: bool) {
    // The daemon could not read what another user writes.
    if let Ok(state) = std::fs::metadata(settings.state_dir())
        && state.uid() != rustix::process::geteuid().as_raw()
    {
        let uid = state.uid();
        return found
            .not_checked("test question", format!("it takes askd's own user: sudo -u '#{uid}' askd doctor --send"));
    }
    let client = match Client::find(files, None, None) {
        Ok(client) if runs && !found.has_fault("token") => client,
        _ => return found.not_checked("test question", if runs { "token" } else { "daemon" }),
    };
    let groups: Vec<Group> = settings.configured().collect();
    if groups.is_empty() {
        return found
            .not_checked("test question", "no group has a section in the settings; try: askd ask \"Test?\" --confirm");
    }
    for group in groups {
        let check = format!("test question {group}");
        if found.has_fault(&format!("group {group}")) {
            found.not_checked(check, format!("group {group}"));
            continue;
        }
        match send(&client, &group, settings, probe).await {
            Ok(place) => found.ok(check, format!("was shown in {place}, and withdrawn")),
            Err(why) => found.fault(check, why, "askd status says which channel is away; the log of askd says more"),
        }
    }
}

async fn send(client: &Client, group: &Group, settings: &Settings, probe: &Probe) -> Result<String, String> {
    let id = format!("doctor-{}", random::unique());
    let request = json!({"type": "ask_user:ask", "request_id": id, "title": "Test of askd doctor",
        "questions": [{"question": "Nothing to do: this question is withdrawn at once.", "options": ["OK"]}]});
    put(settings, group, &id, request.to_string().as_bytes()).map_err(|error| error.to_string())?;
    let mut shown = Err("askd did not take the question".to_owned());
    for _ in 0..LOOKS {
        // It ended by itself: it could not be shown.
        if let Some(response) = taken(settings, group, &id) {
            let why = response["error"].as_str().unwrap_or("it was not shown");
            return Err(why.to_owned());
        }
        let asks = client.call(Method::GET, &format!("/asks?state=open&group={group}"), None).await;
        let asks = match asks {
            Ok(asks) => asks,
            // It is withdrawn all the same.
            Err(error) => {
                shown = Err(error.to_string());
                break;
            }
        };
        if let Some(ask) = asks["asks"].as_array().into_iter().flatten().find(|ask| ask["request_id"] == *id) {
            let channel = ask["channel"].as_str().unwrap_or_default();
            let cause = ask["cause_line"].as_str();
            let first =
                settings.group(group).and_then(|group| group.routes.first()).map(|route| route.channel.as_str());
            if first != Some(channel) {
                let why = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
                shown = Err(format!("it was shown in {channel}, and not in {}{why}", first.unwrap_or_default()));
                break;
            }
            if channel == "web" || ask["stage"] == "open" {
                shown = Ok(channel.to_owned());
                break;
            }
            shown = Err(cause.unwrap_or("it was not shown within 15 s").to_owned());
        }
        probe.clock.sleep(PAUSE).await;
    }
    let cancel = json!({"type": "ask_user:cancel", "request_id": id});
    put(settings, group, &format!("cancel-{id}"), cancel.to_string().as_bytes()).map_err(|error| error.to_string())?;
    for _ in 0..LOOKS {
        if taken(settings, group, &id).is_some() {
            break;
        }
        probe.clock.sleep(PAUSE).await;
    }
    shown
}

fn put(settings: &Settings, group: &Group, id: &str, bytes: &[u8]) -> io::Result<()> {
    let tasks = Dir::open(&settings.ipc_dir())?.sub(&format!("{group}/{TASKS}"))?;
    let temporary = format!(".tmp-{id}");
    tasks.stage(&temporary, bytes, settings.access)?;
    tasks.put_in_place(&temporary, &format!("{id}.json"))?;
    Ok(())
}

/// The response, which nobody else collects.
fn taken(settings: &Settings, group: &Group, id: &str) -> Option<Value> {
    let folder = Dir::open(&settings.ipc_dir()).and_then(|root| root.sub(&format!("{group}/{RESPONSES}"))).ok()?;
    let (bytes, _) = folder.read(&response_name(&id), MAX_REQUEST_BYTES).ok()?;
    folder.remove(&response_name(&id)).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap_or_default())
}
