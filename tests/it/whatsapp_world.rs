//! A world for the stories about WhatsApp: a daemon, a folder to ask through, and the stand-in of WhatsApp.

pub(crate) use crate::daemon::SHORTEST;
use crate::daemon::{Daemon, askd};
use askd_sim::whatsapp::{Call, Config, Message, Person, Sending, Whatsapp};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

pub(crate) const ADA: &str = "15550001111";
pub(crate) const BOB: &str = "15550002222";
pub(crate) const MALLORY: &str = "15550009999";
/// Longer than anything that is to happen by itself may take, on a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(45);

pub(crate) struct World {
    // First, so that it ends before its folder goes.
    daemon: Option<Daemon>,
    pub(crate) sim: Whatsapp,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) url: String,
    process: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.daemon.take());
        if std::thread::panicking() {
            for person in &self.sim.config().people {
                eprintln!("said to {}: {:#?}", person.name, self.said_to(&person.wa_id));
            }
            eprintln!("{}", self.log());
        }
    }
}

/// A route to Ada alone.
pub(crate) const TO_ADA: &str = r#"{ channel = "whatsapp", chat = "15550001111" }"#;

/// How the stand-in is set in most stories: the pair limit is on, and so is everything else.
pub(crate) fn sim() -> Config {
    Config {
        people: vec![Person::new(ADA, "Ada"), Person::new(BOB, "Bob"), Person::new(MALLORY, "Mal")],
        ..Config::default()
    }
}

impl World {
    /// `routes` of the group `research`, and further lines of settings.
    pub(crate) async fn start(config: Config, routes: &str, more: &str) -> Self {
        Self::start_as(false, config, routes, more).await
    }

    /// The same with the real binary in a process of its own, on the real clock.
    pub(crate) async fn process(config: Config, routes: &str, more: &str) -> Self {
        Self::start_as(true, config, routes, more).await
    }

    async fn start_as(process: bool, config: Config, routes: &str, more: &str) -> Self {
        let sim = Whatsapp::start(config).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let text = format!(
            "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[log]\nfilter = \"askd=debug\"\n\
             [whatsapp]\naccess_token = \"sim-token\"\napp_secret = \"sim-app-secret\"\nverify_token = \"sim-verify-token\"\n\
             phone_number_id = \"{}\"\napi_url = \"{}\"\n{more}\n[groups.research]\nroutes = [{routes}]\n\
             max_open_per_group = 5000\nmax_per_hour_per_group = 100000\n",
            folder.path().display(),
            sim.config().phone_number_id,
            sim.api_url()
        );
        put(&folder.path().join("askd.toml"), &text);
        let mut world = Self { daemon: None, sim, folder, url: String::new(), process };
        world.begin();
        world.sim.handshake().await.unwrap();
        world
    }

    /// `kill -9`, and a new start.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.begin();
    }

    pub(crate) fn kill(&mut self) {
        self.daemon.take().unwrap().kill();
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    /// Lets time pass here and at Meta: at once where the clock can be moved.
    pub(crate) fn later(&self, by: Duration) {
        self.sim.advance(by);
        self.daemon().later(by);
    }

    /// Lets time pass until `look` finds something, at most `at_most` of it.
    pub(crate) async fn passes<T>(&self, at_most: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
        self.daemon().passes(at_most, what, look, &self.sim).await
    }

    /// Waits a moment; a second passes if the daemon is idle all the while.
    pub(crate) async fn step(&self) {
        self.daemon().step(&self.sim).await;
    }

    /// Lets time pass until something has happened.
    pub(crate) async fn until(&self, what: &str, mut happened: impl FnMut() -> bool) {
        self.passes(SOON, what, || happened().then_some(())).await;
    }

    /// SIGTERM, and the exit code.
    pub(crate) async fn terminate(&mut self) -> Option<i32> {
        self.daemon().tell_to_stop();
        self.end().await.code()
    }

    async fn end(&mut self) -> ExitStatus {
        let started = Instant::now();
        loop {
            if let Some(status) = self.daemon.as_mut().and_then(Daemon::ended) {
                self.daemon = None;
                return status;
            }
            assert!(started.elapsed() < SOON, "the daemon does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn begin(&mut self) {
        self.begin_with(&[]);
    }

    /// A start with these variables in its environment.
    pub(crate) fn begin_with(&mut self, env: &[(&str, &str)]) {
        let (settings, log) = (self.folder.path().join("askd.toml"), self.folder.path().join("log"));
        let daemon = if self.process {
            let mut command = askd();
            command.args(["serve", "--config"]).arg(settings).envs(env.iter().copied());
            Daemon::process(command, &log)
        } else {
            assert!(env.is_empty(), "only a process has an environment: see `World::process`");
            Daemon::here(&[settings], &log)
        };
        let address = daemon.address().unwrap_or_else(|| panic!("it does not start\n{}", self.log()));
        (self.daemon, self.url) = (Some(daemon), format!("http://{address}"));
        self.sim.set_webhook(Some(&format!("{}/whatsapp/webhook", self.url)));
    }

    /// Somebody writes something that opens the chat, and the daemon knows it.
    pub(crate) async fn writes(&self, who: &str, text: &str) -> String {
        let id = self.sim.person_says(who, text);
        self.taken(&id).await;
        id
    }

    /// Posts a webhook with this one message, as Meta would sign it. What the daemon answered.
    pub(crate) async fn webhook(&self, message: &Value) -> u16 {
        let phone = &self.sim.config().phone_number_id;
        let value = json!({"messaging_product": "whatsapp", "metadata": {"phone_number_id": phone},
            "contacts": [{"wa_id": message["from"], "profile": {"name": "Raw"}}], "messages": [message]});
        self.webhook_of("messages", &value).await
    }

    /// Posts a webhook of any field.
    pub(crate) async fn webhook_of(&self, field: &str, value: &Value) -> u16 {
        let body = json!({"object": "whatsapp_business_account",
            "entry": [{"id": "1", "changes": [{"field": field, "value": value}]}]});
        self.sim.webhook_raw(body.to_string().as_bytes(), None).await.unwrap()
    }

    /// Waits until the webhook with that message was taken.
    pub(crate) async fn taken(&self, id: &str) {
        let carried = format!("\"id\":\"{}\"", id.replace('/', "\\/"));
        let taken =
            |sim: &Whatsapp| sim.webhooks().iter().any(|post| post.status == 200 && post.body.contains(&carried));
        assert!(self.sim.wait_until(taken, SOON).await, "a message was not taken");
    }

    /// Waits until the daemon has ended by itself.
    pub(crate) async fn ended(&mut self) {
        self.end().await;
    }

    fn ipc(&self, group: &str) -> PathBuf {
        self.folder.path().join("ipc").join(group)
    }

    /// The agent asks.
    pub(crate) fn ask(&self, id: &str, request: Value) {
        self.ask_as("research", id, request);
    }

    /// An agent of another group asks.
    pub(crate) fn ask_as(&self, group: &str, id: &str, mut request: Value) {
        request["type"] = json!("ask_user:ask");
        request["request_id"] = json!(id);
        let tasks = self.ipc(group).join("tasks");
        let started = Instant::now();
        while !tasks.is_dir() {
            assert!(started.elapsed() < SOON, "no folder of the group");
            std::thread::yield_now();
        }
        put(&tasks.join(format!(".tmp-{id}")), &request.to_string());
        fs::rename(tasks.join(format!(".tmp-{id}")), tasks.join(format!("{id}.json"))).unwrap();
    }

    pub(crate) fn cancel(&self, id: &str) {
        let request = json!({"type": "ask_user:cancel", "request_id": id});
        let tasks = self.ipc("research").join("tasks");
        put(&tasks.join(".tmp-cancel"), &request.to_string());
        fs::rename(tasks.join(".tmp-cancel"), tasks.join(format!("cancel-{id}.json"))).unwrap();
    }

    pub(crate) fn response_now(&self, id: &str) -> Option<Value> {
        self.response_as("research", id)
    }

    pub(crate) fn response_as(&self, group: &str, id: &str) -> Option<Value> {
        let bytes = fs::read(self.ipc(group).join("responses").join(format!("{id}.json"))).ok()?;
        Some(serde_json::from_slice::<Value>(&bytes).unwrap())
    }

    /// What the agent gets.
    pub(crate) async fn response(&self, id: &str) -> Value {
        self.response_within(id, SOON).await
    }

    pub(crate) async fn response_within(&self, id: &str, patience: Duration) -> Value {
        self.passes(patience, &format!("the response to {id}"), || self.response_now(id)).await
    }

    /// The shown message of that person that says this.
    pub(crate) async fn shown(&self, who: &str, says: &str) -> Message {
        self.shown_within(who, says, SOON).await
    }

    pub(crate) async fn shown_within(&self, who: &str, says: &str, patience: Duration) -> Message {
        let there = |m: &Message| m.stage.shown() && m.text.contains(says);
        self.passes(patience, &format!("a message that says {says:?}"), || {
            self.sim.messages_to(who).into_iter().filter(there).min_by_key(|m| m.at)
        })
        .await
    }

    /// Somebody sends stickers, and gets a friendly line for each: on credit, while it lasts.
    pub(crate) async fn chatters(&self, who: &str, times: usize) {
        for nth in 1..=times {
            self.sim.person_sends(who, &Sending::Sticker);
            let hint = |m: &Message| m.stage.shown() && m.text.contains("I can only read text");
            let hints = || self.sim.messages_to(who).into_iter().filter(hint).count();
            self.until("a friendly line", || hints() >= nth).await;
        }
    }

    /// All that was said to somebody, in order.
    pub(crate) fn said_to(&self, who: &str) -> Vec<String> {
        self.sim.messages_to(who).into_iter().map(|message| message.text).collect()
    }

    /// The inbox's API.
    pub(crate) async fn api(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let token = fs::read_to_string(self.folder.path().join("state/web_token")).unwrap();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut call = http.request(method, format!("{}/api/v1{path}", self.url)).bearer_auth(token.trim());
        if let Some(body) = body {
            call = call.json(&body);
        }
        let answer = call.send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or(Value::Null))
    }

    /// Open asks, as the API tells.
    pub(crate) async fn open(&self) -> Vec<Value> {
        self.api(reqwest::Method::GET, "/asks?state=open", None).await.1["asks"].as_array().cloned().unwrap_or_default()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// The records of asks, once nothing is on its way any more.
    pub(crate) async fn quiet(&self, open: usize) -> Vec<(PathBuf, String)> {
        let started = Instant::now();
        loop {
            let asks = self.open().await;
            let confirmed = |ask: &Value| ask["render_confirmed"] == json!(true);
            let records = self.records();
            let posted = records.iter().all(|(_, record)| !record.contains("\"name\": \"sent\""));
            // What is settled has been closed, too.
            let pending = records.iter().filter(|(path, _)| path.to_string_lossy().contains("/pending_questions/"));
            if asks.len() == open && pending.count() == open && asks.iter().all(confirmed) && posted {
                return records;
            }
            assert!(started.elapsed() < SOON, "never quiet: {asks:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The records of asks, byte for byte.
    pub(crate) fn records(&self) -> Vec<(PathBuf, String)> {
        self.records_of("research")
    }

    pub(crate) fn records_of(&self, group: &str) -> Vec<(PathBuf, String)> {
        let mut records = Vec::new();
        for kind in ["pending_questions", "settled"] {
            let folder = self.folder.path().join("state").join(kind).join(group);
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                // One may be renamed, into place or to where settled asks are, since it was listed.
                if let Ok(record) = fs::read_to_string(&path) {
                    records.push((path, record));
                }
            }
        }
        records.sort();
        records
    }

    /// The audit log, a line each.
    pub(crate) fn audit(&self) -> Vec<Value> {
        let mut lines = Vec::new();
        for entry in fs::read_dir(self.folder.path().join("state/audit")).unwrap() {
            let text = fs::read_to_string(entry.unwrap().path()).unwrap();
            lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
        lines
    }

    /// No call was refused for being too fast, unless the stand-in was told to.
    pub(crate) fn kept_the_pace(&self) {
        let broken = self.too_fast();
        assert!(broken.is_empty(), "too fast: {broken:?}");
    }

    /// Calls that were refused for being too fast.
    pub(crate) fn too_fast(&self) -> Vec<Call> {
        let fast = |call: &Call| matches!(call.code, Some(131_056 | 130_429)) && call.fault.is_none();
        self.sim.calls().into_iter().filter(fast).collect()
    }
}

/// Waits until something has happened.
pub(crate) async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let started = Instant::now();
    while !happened() {
        assert!(started.elapsed() < SOON, "waited {SOON:?} for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// One question with options.
pub(crate) fn select(text: &str, labels: &[&str]) -> Value {
    json!({"questions": [{"question": text, "options": labels}]})
}

pub(crate) fn result(response: &Value) -> (&str, &str) {
    (response["result"]["status"].as_str().unwrap(), response["result"]["reason"].as_str().unwrap())
}

/// Writes a file; nobody looks at it before it has its name.
pub(crate) fn put(path: &Path, text: &str) {
    fs::File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}
