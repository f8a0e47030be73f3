//! The agents of `cluster`: each asks one question after the other, over HTTP at any daemon or through the folder of its group on one host.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{DAEMONS, REMOTE, WIDTH, World, in_folder, remote};
use crate::PHONES;
use crate::agent::{Agent, lock, text};
use crate::daemon::TOKEN;
use crate::dice::Dice;
use crate::slack::LABELS;

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

impl World {
    /// A call of an agent; `None` if no whole answer came.
    async fn call(
        &self,
        group: usize,
        process: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Option<(StatusCode, Vec<u8>)> {
        let url = format!("http://{}/agent/v1{path}", self.doors[1]);
        let request = match body {
            Some(body) => self.http.post(url).json(body),
            None => self.http.get(url),
        };
        let answer = request.bearer_auth(&self.tokens[group]).header("askd-process", process).send().await.ok()?;
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
    for number in 0.. {
        if !world.asking.load(Ordering::SeqCst) {
            return;
        }
        let request = format!("{}-{nth}-{number}", remote(group));
        lock(&world.history).asked(&request);
        let question = json!({"question": text(&request), "options": LABELS});
        let body = json!({"type": "ask_user:ask", "request_id": request, "questions": [question]});
        let mut path = "/asks".to_owned();
        let mut sent = Some(&body);
        while !world.is_over() {
            let answered = world.call(group, &process, &path, sent).await;
            match (&answered, sent.is_some()) {
                (Some((StatusCode::OK | StatusCode::CREATED, _)), true) => {
                    (path, sent) = (format!("/asks/{request}?wait=20"), None);
                    continue;
                }
                (Some((StatusCode::OK, outcome)), false) => {
                    lock(&world.history).response(&request, outcome);
                    break;
                }
                (Some((StatusCode::ACCEPTED, _)), false) => continue,
                _ => world.broken(),
            }
            tokio::time::sleep(dice.millis(50, 400)).await;
        }
        let taken = json!({});
        while !world.is_over() {
            match world.call(group, &process, &format!("/asks/{request}/taken"), Some(&taken)).await {
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
        agent.take(&world.history);
        if world.asking.load(Ordering::SeqCst) && agent.waiting() < WIDTH {
            agent.ask(&world.history, |_| LABELS.map(str::to_owned).to_vec(), false);
        }
        tokio::time::sleep(dice.millis(50, 400)).await;
    }
}
