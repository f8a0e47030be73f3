//! Plays a whole life for each of its calls on files, and makes that one call fail. Whatever the call was for,
//! everything has to end without a restart, exactly once, and every 503 on the way has to be true.

use crate::harness::{World, choice, until};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, client, in_slack, write};
use crate::sessions::Program;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Daemons side by side. They mostly wait.
const AT_A_TIME: usize = 8;
/// How long anything may take. askd repeats a failed step after fractions of a second, and checks outcomes every 5 s.
const BOUND: Duration = Duration::from_secs(40);

/// One life: the world, and the command that is started for an answer that nobody takes.
struct Liveness {
    world: World,
    program: Program,
    bound: Duration,
}

impl Liveness {
    async fn begin(env: &[(&str, String)], bound: Duration) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = Program::new(&folder.keep(), "start", 0);
        let groups = format!(
            "[groups.research]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\", \"{BOB}\"] }}]\n\
             [groups.gone]\npickup_timeout = \"1s\"\nroutes = [{{ channel = \"web\" }}]\n\
             session = {{ start = {{ command = [\"{}\"] }} }}\n",
            program.path.display()
        );
        let mut world = in_slack(Mode::Http).with_binary().groups(&groups).prepare().await;
        for (name, value) in env {
            world.set_env(name, value);
        }
        // If it cannot start, it says why and ends; its supervisor starts it again.
        if let Some(ended) = world.try_begin().await {
            assert_eq!(ended.code(), Some(1), "{}", world.log());
            assert!(world.log().contains("os error"), "it says why: {}", world.log());
            world.without_env("ASKD_FAIL_CALL");
            world.begin().await;
        }
        Self { world, program, bound }
    }

    /// One card with two callers, and an answer that nobody takes.
    async fn live(&mut self) {
        self.in_slack().await;
        self.in_the_inbox().await;
        let pending = self.world.state().join("pending_questions");
        let done = || files(&pending).is_empty().then_some(());
        until("every ask to be kept as an outcome", self.bound, done).await;
        self.judge().await;
    }

    async fn in_slack(&self) {
        let world = &self.world;
        let mut question = choice("Which framework?", &["React", "Vue"]);
        question["idempotency_key"] = json!("one card");
        world.ask("first", question.clone());
        let card = until("the card", self.bound, || world.live(CHANNEL).pop()).await;
        world.ask("second", question);
        let joined = || world.store().into_values().any(|record| record.contains("\"second\"")).then_some(());
        until("the second call to join", self.bound, joined).await;
        let began = Instant::now();
        loop {
            let click = world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await;
            // A card that has been closed meanwhile cannot be clicked: then the click that was not acknowledged
            // counted.
            if click.is_err() || click.is_ok_and(|delivery| delivery.acknowledged) {
                break;
            }
            assert!(began.elapsed() < self.bound, "no click is taken");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for request_id in ["first", "second"] {
            let response = world.response_within(request_id, self.bound).await;
            assert_eq!(response["result"]["answers"], json!({"Which framework?": "React"}), "{request_id}: {response}");
        }
        let closed = || world.slack.message(CHANNEL, &card.ts).filter(|card| card.text.contains("Answered: React"));
        until("the card to be closed", self.bound, closed).await;
    }

    async fn in_the_inbox(&self) {
        self.world.ask_as("gone", "g1", choice("Go?", &["yes", "no"]));
        let began = Instant::now();
        let id = loop {
            let (_, list) = self.call("GET", "?state=open", None).await;
            if let Some(id) = list["asks"].as_array().and_then(|asks| asks.first()).map(|ask| ask["id"].clone()) {
                break id.as_str().expect("an id").to_owned();
            }
            assert!(began.elapsed() < self.bound, "waited for the ask to be open");
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        let mut in_doubt = false;
        loop {
            let (status, said) =
                self.call("POST", &format!("/{id}/answer"), Some(json!({"answers": {"Go?": "yes"}}))).await;
            let detail = said["detail"].as_str().unwrap_or_default();
            match status {
                200 => break,
                409 if in_doubt => break,
                503 if detail.contains("nothing was changed") => {
                    let (status, ask) = self.call("GET", &format!("/{id}"), None).await;
                    assert!(in_doubt || status == 503 || ask["state"] == "open", "a lie: {detail} {ask}");
                }
                503 => in_doubt |= detail.starts_with("It may have been stored"),
                _ => panic!("{status} {said}"),
            }
            assert!(began.elapsed() < self.bound, "no answer is taken: {said}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        until("the agent to be started", self.bound, || self.program.runs().pop()).await;
    }

    /// Everything was done once, and a restart finds nothing more to do.
    async fn judge(&mut self) {
        let ipc = self.world.data().join("ipc");
        let tasks = || files(&ipc.join("research/tasks")).is_empty().then_some(());
        until("every request to be deleted", self.bound, tasks).await;
        for request_id in ["first", "second"] {
            std::fs::remove_file(ipc.join(format!("research/responses/{request_id}.json"))).expect("taken");
        }
        self.world.kill();
        self.world.without_env("ASKD_FAIL_CALL");
        self.world.begin().await;
        let (_, list) = self.call("GET", "?state=open", None).await;
        assert_eq!(list["asks"], json!([]), "a ghost");
        assert_eq!(self.world.slack.messages(CHANNEL).len(), 1, "one card");
        let state = self.world.state();
        // A temporary file that will replace another does not count.
        let outcomes =
            || files(&state.join("settled")).iter().filter(|path| !path.to_string_lossy().contains("/.tmp-")).count();
        // Until it is filed, an outcome may be in the journal alone.
        let filed = || (files(&state.join("pending_questions")).is_empty() && outcomes() >= 2).then_some(());
        until("what was done to be filed", self.bound, filed).await;
        assert_eq!(outcomes(), 2, "two outcomes");
        let audit: String = files(&state.join("audit")).iter().map(|path| read(path)).collect();
        for what in ["asked", "answered"] {
            assert_eq!(audit.matches(&format!("\"what\":\"{what}\"")).count(), 2, "{what}, in {audit}");
        }
        // A briefing stays until it is read; a withdrawn response and a folder's test file do no harm.
        let stays = |path: &Path| {
            ["/briefings/", "/.withdrawn-", "/.askd-"].iter().any(|part| path.to_string_lossy().contains(part))
        };
        let left: Vec<_> = files(&ipc).into_iter().filter(|path| !stays(path)).collect();
        assert!(left.is_empty(), "left: {left:?}");
        assert!(self.program.runs().len() <= 2, "at least once, not again and again");
    }

    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let url = format!("{}/api/v1/asks{path}", self.world.url());
        let token = read(&self.world.state().join("web_token"));
        let call = client().request(method.parse().expect("a method"), url).bearer_auth(token.trim());
        let call = if let Some(body) = body { call.json(&body) } else { call };
        let answer = call.send().await.expect("an answer");
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }
}

/// All files below a folder but signs of life.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The calls of a life in which nothing fails: kind, number, name.
async fn calls() -> Vec<(String, u64, String)> {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut life = Liveness::begin(&[("ASKD_CALLS", file.path().display().to_string())], BOUND).await;
    life.live().await;
    let text = read(file.path());
    let words = |line: &str| {
        let mut words = line.splitn(3, ' ').map(str::to_owned);
        Some((words.next()?, words.next()?.parse().ok()?, words.next()?))
    };
    let mut calls = Vec::new();
    for call in text.lines().filter_map(words) {
        // The restart at the end begins to count from 1 again.
        if call.1 == 1 && calls.iter().any(|(kind, _, _): &(String, u64, String)| *kind == call.0) {
            break;
        }
        calls.push(call);
    }
    calls
}

/// Plays one life for each failing call; returns what went wrong in which.
async fn sweep(failing: Vec<String>, env: &[(&str, String)], bound: Duration) -> Vec<String> {
    let lives = failing.into_iter().map(|call| async move {
        let mut env = env.to_vec();
        env.push(("ASKD_FAIL_CALL", call.clone()));
        let mut life = Liveness::begin(&env, bound).await;
        let lived = AssertUnwindSafe(life.live()).catch_unwind().await;
        lived.err().map(|why| {
            let why = why.downcast_ref::<String>().cloned().unwrap_or_default();
            let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("sweep-{call}.log"));
            write(&log, life.world.log().as_bytes());
            format!("{call}: {} ({})", why.chars().take(600).collect::<String>(), log.display())
        })
    });
    stream::iter(lives).buffer_unordered(AT_A_TIME).filter_map(std::future::ready).collect().await
}

/// `ASKD_SWEEP=all` takes every kind of call; otherwise only those that may leave something half-done.
#[tokio::test(flavor = "multi_thread")]
async fn whichever_call_fails_everything_ends_once_and_without_a_restart() {
    let all = std::env::var("ASKD_SWEEP").is_ok_and(|which| which == "all");
    let kinds: &[(&str, &str)] = if all {
        &[
            ("fsync", "EIO"),
            ("renameat2", "EIO"),
            ("openat2", "EIO"),
            ("write", "ENOSPC"),
            ("unlinkat", "EIO"),
            ("mkdirat", "ENOSPC"),
        ]
    } else {
        &[("fsync", "EIO"), ("renameat2", "EIO")]
    };
    let calls = calls().await;
    let mut failing = Vec::new();
    for (kind, error) in kinds {
        let last = calls.iter().filter(|call| call.0 == *kind).map(|call| call.1).max().unwrap_or(0);
        assert!(last > 0, "no {kind} at all");
        failing.extend((1..=last).map(|number| format!("{kind}:{number}:{error}")));
    }
    let count = failing.len();
    let wrong = sweep(failing, &[], BOUND).await;
    assert!(wrong.is_empty(), "{} of {count} lives went wrong:\n{}", wrong.len(), wrong.join("\n"));
    println!("{count} lives, one failed call in each");
}
