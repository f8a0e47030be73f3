//! The reference host: the same visible work as askd in the same order, with the same compiler flags, and nothing else.
//! No policy, no log, no state but a file for each ask. It bounds from below what the work itself costs.
//!
//! - A request: stored durably, deleted, posted.
//! - A click: verified, settled durably, 200; then the response is written and the card updated.

use crate::chat::{marker, number_in, number_of_ts};
use crate::floor::{place, store};
use crate::load::{Connection, SIGNING_SECRET};
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use serde::Deserialize;
use serde_json::json;
use sha2::Sha256;
use std::collections::HashMap;
use std::fs;
use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What follows a click waits no longer for other clicks.
const FOLLOWS_AFTER_AT_MOST: Duration = Duration::from_secs(1);

type Follow = Box<dyn FnOnce(&Reference) + Send>;

struct Reference {
    folder: PathBuf,
    chat_port: u16,
    /// Connections to the chat that are kept.
    idle: Mutex<Vec<Connection>>,
    /// What follows an acknowledged click, and since when: one after the other, and promises go first, as at askd.
    follows: Sender<(Instant, Follow)>,
    /// Clicks that are not acknowledged yet.
    clicks: Mutex<usize>,
    fewer_clicks: Condvar,
}

#[derive(Deserialize)]
struct Interaction {
    container: Container,
    user: User,
    actions: Vec<Action>,
}

#[derive(Deserialize)]
struct Container {
    message_ts: String,
    channel_id: String,
}

#[derive(Deserialize)]
struct User {
    id: String,
}

#[derive(Deserialize)]
struct Action {
    value: String,
}

/// `--reference <folder> <port> <url of the chat>`: serves until it is killed. With `expire` as the port, it ends all
/// asks of the folder as timed out, and then itself.
pub(crate) fn run(mut arguments: impl Iterator<Item = String>) {
    let folder: PathBuf = arguments.next().unwrap().into();
    let port = arguments.next().unwrap();
    let chat_url = arguments.next().unwrap();
    if port == "expire" {
        return expire(&folder, 8);
    }
    let chat_port = chat_url.rsplit(':').next().and_then(|rest| rest.split('/').next()).unwrap().parse().unwrap();
    let (follows, following) = channel();
    let reference = Arc::new(Reference {
        folder,
        chat_port,
        idle: Mutex::default(),
        follows,
        clicks: Mutex::new(0),
        fewer_clicks: Condvar::new(),
    });
    let follower = Arc::clone(&reference);
    std::thread::spawn(move || {
        for (since, follow) in following {
            follower.wait_for_clicks(since);
            follow(&follower);
        }
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let (watching, handle) = (Arc::clone(&reference), runtime.handle().clone());
    std::thread::spawn(move || watching.watch(&handle));
    runtime.block_on(async move {
        let app = Router::new().route("/slack/interactions", post(interaction)).with_state(reference);
        let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await.unwrap();
        let listener = axum::serve::ListenerExt::tap_io(listener, |stream| drop(stream.set_nodelay(true)));
        axum::serve(listener, app).await.unwrap();
    });
}

async fn interaction(State(reference): State<Arc<Reference>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut mac = Hmac::<Sha256>::new_from_slice(SIGNING_SECRET.as_bytes()).unwrap();
    mac.update(format!("v0:{}:", header("x-slack-request-timestamp")).as_bytes());
    mac.update(&body);
    let sent = header("x-slack-signature").strip_prefix("v0=").and_then(|text| hex::decode(text).ok());
    if sent.is_none_or(|sent| mac.verify_slice(&sent).is_err()) {
        return StatusCode::UNAUTHORIZED;
    }
    let interaction = body.strip_prefix(b"payload=").and_then(|payload| serde_json::from_slice(&decoded(payload)).ok());
    let Some(Interaction { container, user, actions }) = interaction else { return StatusCode::OK };
    let Some(number) = number_of_ts(&container.message_ts) else { return StatusCode::OK };
    let group = format!("g{}", container.channel_id.trim_start_matches('C'));
    let value = actions.first().map(|action| action.value.clone()).unwrap_or_default();
    let settled = Arc::clone(&reference);
    let work = move || settled.settle(number, &group, &user.id, &value).map(|()| (group, user.id, value));
    *reference.clicks.lock().unwrap() += 1;
    let done = tokio::task::spawn_blocking(work).await;
    *reference.clicks.lock().unwrap() -= 1;
    reference.fewer_clicks.notify_one();
    let Ok(Ok((group, person, value))) = done else {
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    let follows = Box::new(move |reference: &Reference| {
        if reference.respond(number, &group, &person, &value).is_ok() {
            let body = json!({"channel": container.channel_id, "ts": container.message_ts, "text": "Answered",
                "blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": format!("Answered: {value}")}}]});
            reference.call("chat.update", &body.to_string());
        }
    });
    let _ended = reference.follows.send((Instant::now(), follows));
    StatusCode::OK
}

/// What a form has encoded.
fn decoded(text: &[u8]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text);
    loop {
        match rest {
            [] => return out,
            [b'%', hex @ ..] if hex.len() >= 2 => {
                let byte = std::str::from_utf8(&hex[..2]).ok().and_then(|hex| u8::from_str_radix(hex, 16).ok());
                out.push(byte.unwrap_or(b'?'));
                rest = &hex[2..];
            }
            [b'+', after @ ..] => {
                out.push(b' ');
                rest = after;
            }
            [byte, after @ ..] => {
                out.push(*byte);
                rest = after;
            }
        }
    }
}

impl Reference {
    /// What follows a click waits while others are settled, for a second at most.
    fn wait_for_clicks(&self, since: Instant) {
        let left = FOLLOWS_AFTER_AT_MOST.saturating_sub(since.elapsed());
        let clicks = self.clicks.lock().unwrap();
        let _clicks = self.fewer_clicks.wait_timeout_while(clicks, left, |clicks| *clicks > 0).unwrap();
    }

    fn settle(&self, number: u64, group: &str, person: &str, value: &str) -> std::io::Result<()> {
        let folder = self.folder.join("state/pending_questions").join(group);
        let name = format!("{}.json", marker(number));
        let mut record = fs::read_to_string(folder.join(&name))?;
        record.push_str(&json!({"settled": {"by": person, "value": value}}).to_string());
        store(&folder, &name, record.as_bytes())
    }

    fn respond(&self, number: u64, group: &str, person: &str, value: &str) -> std::io::Result<()> {
        let id = marker(number);
        let response = json!({"result": {
            "answers": {format!("Deploy {id} now?"): value}, "status": "answered", "reason": "user", "answered": true,
            "details": [{"id": format!("{id}_0"), "selected": [value], "text": null}],
            "answered_by": {"channel": "slack", "id": person}, "request_id": id,
        }});
        place(
            &self.folder.join("ipc").join(group).join("responses"),
            &format!("{id}.json"),
            response.to_string().as_bytes(),
        )
    }

    fn call(&self, method: &str, body: &str) {
        let idle = self.idle.lock().unwrap().pop();
        let mut connection = idle.unwrap_or_else(|| Connection::new(self.chat_port));
        let head = format!(
            "POST /api/{method} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer xoxb-bench\r\n\
             Content-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        if connection.call(&[head.as_bytes(), body.as_bytes()].concat()).is_ok() {
            self.idle.lock().unwrap().push(connection);
        }
    }

    /// One watch for all groups.
    fn watch(self: &Arc<Self>, handle: &tokio::runtime::Handle) {
        let events = inotify::init(CreateFlags::CLOEXEC).unwrap();
        let mut groups = HashMap::new();
        for entry in fs::read_dir(self.folder.join("ipc")).unwrap() {
            let entry = entry.unwrap();
            let watch = inotify::add_watch(&events, entry.path().join("tasks"), WatchFlags::MOVED_TO).unwrap();
            groups.insert(watch, entry.file_name().into_string().unwrap());
        }
        let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
        let mut reader = Reader::new(&events, &mut buffer);
        while let Ok(event) = reader.next() {
            let (Some(group), Some(name)) = (groups.get(&event.wd()), event.file_name()) else { continue };
            let (group, name) = (group.clone(), name.to_string_lossy().into_owned());
            let reference = Arc::clone(self);
            handle.spawn_blocking(move || {
                if let Ok(card) = reference.accept(&group, &name) {
                    reference.call("chat.postMessage", &card);
                }
            });
        }
    }

    fn accept(&self, group: &str, name: &str) -> std::io::Result<String> {
        let path = self.folder.join("ipc").join(group).join("tasks").join(name);
        let bytes = fs::read(&path)?;
        let request: serde_json::Value = serde_json::from_slice(&bytes)?;
        let number = number_in(&bytes).unwrap_or_default();
        // About as long as a record of askd.
        let record = json!({"id": marker(number), "group": group, "request": request, "rules": " ".repeat(1500)});
        store(
            &self.folder.join("state/pending_questions").join(group),
            &format!("{}.json", marker(number)),
            record.to_string().as_bytes(),
        )?;
        fs::remove_file(path)?;
        let text = request["questions"][0]["question"].as_str().unwrap_or_default();
        let section = |text: &str| json!({"type": "section", "text": {"type": "mrkdwn", "text": text}});
        let button = |at: usize| {
            json!({"type": "button", "action_id": format!("pick:0:{at}"), "value": at.to_string(),
                "text": {"type": "plain_text", "text": "1. yes"}})
        };
        let actions = json!({"type": "actions", "block_id": marker(number), "elements": [button(0), button(1)]});
        Ok(json!({
            "channel": format!("C{}", group.trim_start_matches('g')), "text": text,
            "blocks": [section("*asks* until tomorrow"), section("All tests pass."), section(text), actions],
        })
        .to_string())
    }
}

/// Ends every ask of the folder: settled durably, then the response.
fn expire(folder: &std::path::Path, writers: usize) {
    let mut asks = Vec::new();
    for group in fs::read_dir(folder.join("state/pending_questions")).unwrap().flatten() {
        for ask in fs::read_dir(group.path()).unwrap().flatten() {
            asks.push((group.file_name().into_string().unwrap(), ask.path()));
        }
    }
    let (next, folder) = (AtomicUsize::new(0), folder.to_owned());
    std::thread::scope(|scope| {
        for _ in 0..writers {
            scope.spawn(|| {
                while let Some((group, path)) = asks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut record = fs::read(path).unwrap();
                    let Some(number) = number_in(&record) else { continue };
                    record.extend_from_slice(b"{\"settled\": \"timeout\"}");
                    store(path.parent().unwrap(), &format!("{}.json", marker(number)), &record).unwrap();
                    let responses = folder.join("ipc").join(group).join("responses");
                    let response = json!({"result": {"status": "timeout", "request_id": marker(number)}});
                    place(&responses, &format!("{}.json", marker(number)), response.to_string().as_bytes()).unwrap();
                }
            });
        }
    });
}
