//! The agents of `cluster`: each asks one question after the other, over HTTP at any daemon or through the folder of its group on one host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::deadlines::Wait;
use super::{DAEMONS, REMOTE, WIDTH, World, in_folder, remote};
use crate::PHONES;
use crate::agent::{Agent, lock, text};
use crate::daemon::TOKEN;
use crate::dice::Dice;
use crate::slack::LABELS;

/// How long a call may take, and one about a question with a deadline: whoever cannot wait calls the next daemon. Such a call waits for a
/// second at the daemon, and the time that a paused one holds it up counts as the outcome's being late.
const CALL: Duration = Duration::from_secs(25);
const HURRY: Duration = Duration::from_secs(2);

/// A token for each group that asks over HTTP.
pub(super) async fn tokens(http: &reqwest::Client, inbox: SocketAddr) -> Result<Vec<String>, String> {
    let mut tokens = Vec::new();
    for group in 0..REMOTE + PHONES {
        let body = json!({"group": remote(group), "name": "gate"});
        let made = http.post(format!("http://{inbox}/api/v1/tokens")).bearer_auth(TOKEN).json(&body).send().await;
        let made: Value = made.map_err(|error| error.to_string())?.json().await.map_err(|error| error.to_string())?;
        tokens.push(made["token"].as_str().ok_or_else(|| made.to_string())?.to_owned());
    }
    Ok(tokens)
}

/// An agent of a group that asks over HTTP.
struct Caller {
    world: Arc<World>,
    group: usize,
    process: String,
    /// The daemon that it calls about a question with a deadline.
    at: usize,
}

impl Caller {
    /// A call through the proxy, or, where `hurries`, to one daemon after the other; `None` if no whole answer came.
    async fn call(&mut self, path: &str, body: Option<&Value>, hurries: bool) -> Option<(StatusCode, Vec<u8>)> {
        let called = self.call_once(path, body, hurries).await;
        self.at += usize::from(called.as_ref().is_none_or(|(status, _)| status.is_server_error()));
        called
    }

    async fn call_once(&self, path: &str, body: Option<&Value>, hurries: bool) -> Option<(StatusCode, Vec<u8>)> {
        let Self { world, group, process, at } = self;
        let (door, at_most) = if hurries { (world.hosts[at % DAEMONS].agents, HURRY) } else { (world.doors[1], CALL) };
        let url = format!("http://{door}/agent/v1{path}");
        let request = match body {
            Some(body) => world.http.post(url).json(body),
            None => world.http.get(url),
        };
        let request = request.bearer_auth(&world.tokens[*group]).header("askd-process", process).timeout(at_most);
        let answer = request.send().await.ok()?;
        let status = answer.status();
        Some((status, answer.bytes().await.ok()?.to_vec()))
    }
}

/// Asks over HTTP, and takes each outcome. What breaks is called again.
pub(super) async fn asks_over_http(world: Arc<World>, group: usize, nth: usize, mut dice: Dice) {
    if group >= REMOTE {
        world.phones.wrote().await;
    }
    let process = format!("p{group}x{nth}");
    let mut caller = Caller { world: Arc::clone(&world), group, process, at: group };
    for number in 0.. {
        if !world.asking.load(Ordering::SeqCst) {
            return;
        }
        // The pace of a phone's chat is slower than the shortest deadline.
        let wait = if group < REMOTE { Wait::roll(&mut dice) } else { Wait::Usual };
        let request = format!("{}-{nth}-{number}{}", remote(group), wait.end());
        lock(&world.history).asked(&request);
        let question = json!({"question": text(&request), "options": LABELS});
        let mut body = json!({"type": "ask_user:ask", "request_id": request, "questions": [question]});
        let hurries = wait.timeout().is_some();
        if let Some(timeout) = wait.timeout() {
            body["timeoutMs"] = json!(timeout);
            lock(&world.history).asked_for_a_moment(&request);
        }
        let mut path = "/asks".to_owned();
        let mut sent = Some(&body);
        while !world.is_over() {
            let answered = caller.call(&path, sent, hurries).await;
            match (&answered, sent.is_some()) {
                (Some((StatusCode::OK | StatusCode::CREATED, status)), true) => {
                    world.deadlines.told(&request, status);
                    (path, sent) = (format!("/asks/{request}?wait={}", if hurries { 1 } else { 20 }), None);
                    continue;
                }
                (Some((StatusCode::OK, outcome)), false) => {
                    lock(&world.history).response(&request, outcome);
                    break;
                }
                (Some((StatusCode::ACCEPTED, status)), false) => {
                    world.deadlines.told(&request, status);
                    continue;
                }
                _ => world.broken(),
            }
            tokio::time::sleep(dice.millis(50, 400)).await;
        }
        let taken = json!({});
        while !world.is_over() {
            match caller.call(&format!("/asks/{request}/taken"), Some(&taken), hurries).await {
                Some((StatusCode::NO_CONTENT | StatusCode::GONE, _)) => break,
                _ => world.broken(),
            }
            tokio::time::sleep(dice.millis(50, 400)).await;
        }
        tokio::time::sleep(dice.millis(10, 200)).await;
    }
}

/// Asks through the folder of a group, and takes the responses. The daemon of that host dies and comes back, like the others, unless the
/// host is gone, and this agent with it.
pub(super) async fn asks_in_folder(world: Arc<World>, group: usize, mut dice: Dice) {
    let host = &world.hosts[group % DAEMONS];
    let mut agent = Agent::new(&host.data(), &in_folder(group), world.forgets);
    while !world.is_over() && !host.is_gone() {
        for (request, status) in agent.statuses() {
            world.deadlines.told(request, &status);
        }
        agent.take(&world.history);
        if world.asking.load(Ordering::SeqCst) && agent.waiting() < WIDTH {
            let wait = Wait::roll(&mut dice);
            let labels = |_: &str| LABELS.map(str::to_owned).to_vec();
            agent.ask_so(&world.history, labels, false, (wait.end(), wait.timeout()));
        }
        tokio::time::sleep(dice.millis(50, 400)).await;
    }
}
