//! A world for the stories about Slack: a daemon in a folder of its own, and the stand-in of Slack.

use crate::daemon::{Daemon, askd, free_port};
pub(crate) use crate::daemon::{SHORTEST, SOON};
use askd_sim::slack::{APP_TOKEN, BOT_TOKEN, Config, Message, SIGNING_SECRET, Slack};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const CHANNEL: &str = "C0AGENTS";
pub(crate) const ALICE: &str = "U0ALICE";
pub(crate) const BOB: &str = "U0BOB";
pub(crate) const STRANGER: &str = "U0STRANGER";

/// How the daemon is told what people do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Http,
    Socket,
}

/// A daemon, its folder, and its Slack.
pub(crate) struct World {
    // First, so that it ends before its folder goes.
    daemon: Option<Daemon>,
    pub(crate) slack: Slack,
    pub(crate) folder: TempDir,
    pub(crate) url: String,
    env: Vec<(String, String)>,
    process: bool,
}

/// What a world is made of.
pub(crate) struct Make {
    pub(crate) mode: Mode,
    /// Of the stand-in.
    pub(crate) sim: Config,
    /// Instead of the usual `[slack]` keys.
    pub(crate) slack: String,
    /// `[groups.*]` and whatever else.
    pub(crate) groups: String,
    /// More keys of `[http]`.
    pub(crate) http: String,
    /// Where the webhooks are, if not beside the inbox.
    pub(crate) webhooks: Option<String>,
    /// Whether to wait until people's doings come in.
    pub(crate) waits: bool,
    /// Whether the daemon is the real binary in a process of its own, on the real clock.
    pub(crate) process: bool,
}

impl Make {
    /// One group, `research`, whose only route is a channel in which alice and bob may answer; no pace.
    pub(crate) fn new(mode: Mode) -> Self {
        let sim = Config { pace: Duration::ZERO, ..Config::default() };
        let groups = format!(
            "[groups.research]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\", \"{BOB}\"] }}]\n"
        );
        let door = match mode {
            Mode::Http => format!("signing_secret = \"{SIGNING_SECRET}\"\n"),
            Mode::Socket => format!("app_token = \"{APP_TOKEN}\"\n"),
        };
        let slack = format!("bot_token = \"{BOT_TOKEN}\"\n{door}pace = \"0s\"\n");
        Self { mode, sim, slack, groups, http: String::new(), webhooks: None, waits: true, process: false }
    }

    /// The daemon is the real binary.
    pub(crate) fn with_binary(mut self) -> Self {
        self.process = true;
        self
    }

    pub(crate) fn sim(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.sim);
        self
    }

    pub(crate) fn groups(mut self, groups: &str) -> Self {
        groups.clone_into(&mut self.groups);
        self
    }

    /// The stand-in and the settings, and no daemon yet.
    pub(crate) async fn prepare(self) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}");
        let mut sim = self.sim;
        let webhooks = self.webhooks.unwrap_or_else(|| url.clone());
        sim.interactivity_url = Some(format!("{webhooks}/slack/interactions"));
        let slack = Slack::start(sim).await.expect("a stand-in");
        let config = format!(
            "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:{port}\"\n{}[log]\nfilter = \"info,askd=debug\"\n[slack]\napi_url = \"{}\"\n{}\n{}",
            folder.path().join("data").display(),
            self.http,
            slack.api_url(),
            self.slack,
            self.groups
        );
        write(&folder.path().join("askd.toml"), config.as_bytes());
        World { daemon: None, slack, folder, url, env: Vec::new(), process: self.process }
    }

    pub(crate) async fn start(self) -> World {
        let (waits, mode, webhooks) = (self.waits, self.mode, self.webhooks.clone());
        let mut world = self.prepare().await;
        world.serve().await;
        if !waits {
            return world;
        }
        if mode == Mode::Http {
            let events = format!("{}/slack/events", webhooks.unwrap_or_else(|| world.url.clone()));
            world.slack.set_events_url(&events).await.expect("the challenge is echoed");
        } else {
            world.slack.wait_for(SOON, || (world.slack.sockets() > 0).then_some(())).await.expect("a socket");
        }
        world
    }
}

#[expect(clippy::disallowed_methods, reason = "a test's own files need no care")]
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("written");
}

/// Waits until `look` finds something.
pub(crate) async fn until<T>(what: &str, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < at_most, "waited {at_most:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.daemon.take());
        if std::thread::panicking() {
            let said = |message: Message| (message.channel.clone(), message.visible_text());
            eprintln!("{:#?}", self.slack.select(|_| true).into_iter().map(said).collect::<Vec<_>>());
            eprintln!("{}", self.log());
        }
    }
}

impl World {
    pub(crate) async fn new(mode: Mode) -> Self {
        Make::new(mode).start().await
    }

    /// With this variable in the daemon's environment, from its next start.
    pub(crate) fn env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Without it again.
    pub(crate) fn without_env(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    /// Starts the daemon (again).
    pub(crate) async fn serve(&mut self) {
        let ended = self.try_serve().await;
        assert!(ended.is_none(), "askd does not get ready: {ended:?}\n{}", self.log());
    }

    /// The same; how it ended, if it did instead.
    pub(crate) async fn try_serve(&mut self) -> Option<std::process::ExitStatus> {
        let (settings, log) = (self.path("askd.toml"), self.path("log"));
        self.daemon = Some(if self.process || !self.env.is_empty() {
            let mut command = askd();
            command.args(["serve", "--config"]).arg(settings).envs(self.env.iter().cloned());
            Daemon::process(command, &log)
        } else {
            Daemon::here(&[settings], &log)
        });
        let began = Instant::now();
        let client = client();
        loop {
            let ready = client.get(format!("{}/readyz", self.url)).send().await;
            if ready.is_ok_and(|response| response.status().is_success()) {
                return None;
            }
            let ended = self.daemon.as_mut().and_then(Daemon::ended);
            if ended.is_some() {
                return ended;
            }
            assert!(began.elapsed() < SOON, "askd does not get ready\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("it runs")
    }

    /// Moves the clock of the daemon.
    pub(crate) fn hand(&self) -> &askd::testing::Hand {
        self.daemon().hand()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.daemon().pid()
    }

    /// Lets time pass here and at Slack: at once where the clock can be moved.
    pub(crate) fn later(&self, by: Duration) {
        self.slack.advance(by);
        self.daemon().later(by);
    }

    /// Lets time pass until `look` finds something, at most `at_most` of it.
    pub(crate) async fn passes<T>(&self, at_most: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
        self.daemon().passes(at_most, what, look, &self.slack).await
    }

    /// Waits a moment; a second passes if the daemon is idle all the while.
    pub(crate) async fn step(&self) {
        self.daemon().step(&self.slack).await;
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.daemon.take().expect("it runs").kill();
    }

    /// SIGTERM, and how it ended.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        self.daemon().tell_to_stop();
        let ended = until("it to stop", SOON, || self.daemon.as_mut().and_then(Daemon::ended)).await;
        self.daemon = None;
        ended.code()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("data/state")
    }

    /// What the daemon logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Writes a request as an agent would.
    pub(crate) fn ask(&self, group: &str, request_id: &str, mut request: Value) {
        let tasks = self.path("data/ipc").join(group).join("tasks");
        std::fs::create_dir_all(&tasks).expect("a folder");
        request["type"] = json!("ask_user:ask");
        request["request_id"] = json!(request_id);
        let temporary = tasks.join(format!(".{request_id}.tmp"));
        write(&temporary, request.to_string().as_bytes());
        std::fs::rename(temporary, tasks.join(format!("{request_id}.json"))).expect("renamed");
    }

    /// Withdraws a request as an agent would.
    pub(crate) fn withdraw(&self, group: &str, request_id: &str) {
        let tasks = self.path("data/ipc").join(group).join("tasks");
        let temporary = tasks.join(".cancel.tmp");
        write(&temporary, json!({"type": "ask_user:cancel", "request_id": request_id}).to_string().as_bytes());
        std::fs::rename(temporary, tasks.join(format!("cancel-{request_id}.json"))).expect("renamed");
    }

    /// The response to a request.
    pub(crate) async fn response(&self, group: &str, request_id: &str, at_most: Duration) -> Value {
        let path = self.path("data/ipc").join(group).join(format!("responses/{request_id}.json"));
        let text = self.passes(at_most, &format!("the response to {request_id}"), || std::fs::read(&path).ok()).await;
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Whether a request has a response.
    pub(crate) fn answered(&self, group: &str, request_id: &str) -> bool {
        self.path("data/ipc").join(group).join(format!("responses/{request_id}.json")).exists()
    }

    /// The newest card of a channel that can be used.
    pub(crate) async fn card(&self, channel: &str) -> Message {
        self.passes(SOON, "a card", || self.live(channel).pop()).await
    }

    /// Messages of a channel that can still be used.
    pub(crate) fn live(&self, channel: &str) -> Vec<Message> {
        self.slack.messages(channel).into_iter().filter(|message| !message.elements().is_empty()).collect()
    }

    /// Waits until a message says this.
    pub(crate) async fn says(&self, channel: &str, ts: &str, text: &str) -> Message {
        let says = || self.slack.message(channel, ts).filter(|message| message.visible_text().contains(text));
        self.passes(SOON, &format!("a card that says {text:?}"), says).await
    }

    /// Waits until this person is told something privately; the newest of what they were told.
    pub(crate) async fn told(&self, user: &str, text: &str) -> Message {
        let told = || self.slack.ephemerals(user).into_iter().rfind(|message| message.text.contains(text));
        self.passes(SOON, &format!("{user} to be told {text:?}"), told).await
    }

    /// Every file of the asks, byte for byte.
    pub(crate) fn store(&self) -> BTreeMap<PathBuf, String> {
        let mut files = BTreeMap::new();
        for kind in ["pending_questions", "settled"] {
            let mut folders = vec![self.state().join(kind)];
            while let Some(folder) = folders.pop() {
                for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                    let path = entry.path();
                    if path.is_dir() {
                        folders.push(path);
                    } else if path.extension().is_some_and(|extension| extension == "json") {
                        files.insert(path.clone(), std::fs::read_to_string(path).unwrap_or_default());
                    }
                }
            }
        }
        files
    }

    /// Waits until this is in a file of an open ask, and the agent has been told: then the daemon knows it, too. Of
    /// one that is settled nobody is told.
    pub(crate) async fn stored(&self, text: &str) {
        let found = || {
            let record = self.store().into_values().find(|file| file.contains(text))?;
            let record: Value = serde_json::from_str(&record).ok()?;
            if record["stage"]["name"] == "settled" {
                return Some(());
            }
            let group = self.path("data/ipc").join(record["source_group"].as_str()?);
            let status = group.join(format!("responses/{}.status", record["request_id"].as_str()?));
            std::fs::read_to_string(status).ok()?.contains("\"open\"").then_some(())
        };
        self.passes(SOON, &format!("{text} to be stored"), found).await;
    }

    /// Waits until nothing is owed to anybody any more.
    pub(crate) async fn all_done(&self, at_most: Duration) {
        let pending = || {
            let files = self.store();
            files.keys().all(|path| !path.starts_with(self.state().join("pending_questions"))).then_some(())
        };
        self.passes(at_most, "every ask to be done with", pending).await;
    }
}

pub(crate) fn client() -> reqwest::Client {
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(SOON).build().expect("a client")
}

/// A single choice.
pub(crate) fn choice(question: &str, labels: &[&str]) -> Value {
    json!({"questions": [{"question": question, "options": labels}]})
}
