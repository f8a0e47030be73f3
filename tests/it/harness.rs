//! The world of the stories: a temporary data folder, a daemon, an agent that is nothing but files, and a person who
//! is nothing but HTTP. A story switches on the stand-ins that it needs: `in_slack.rs` and `on_whatsapp.rs` have what
//! people do and see there. Waiting is for a state, with a bound. Time passes where the story says so: the daemon runs
//! in this process, on a clock that the story moves, unless the story asks for the real binary.
//!
//! A stand-in runs in the test's own runtime: a story with one starts, awaits and stops the daemon by the asynchronous
//! functions (`begin`, `passes`, `stop`), so that the stand-in can answer meanwhile.

use crate::daemon::{Beside, Daemon};
pub(crate) use crate::daemon::{NOBODY, SHORTEST, SOON, askd, without_environment};
use crate::in_slack::Meeting;
use crate::on_postgres::Database;
use askd::testing::{Hand, Settings};
use askd_sim::slack::Slack;
use askd_sim::whatsapp::Whatsapp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The binary under test.
pub(crate) const ASKD: &str = env!("CARGO_BIN_EXE_askd");

/// What a daemon logs beside a stand-in.
const DETAILED: &str = "info,askd=debug";

/// A part of the world that a story switches on.
pub(crate) struct Part<T>(pub(crate) Option<T>);

impl<T> std::ops::Deref for Part<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("this part of the world is switched on")
    }
}

/// A data folder and, most of the time, a daemon on it.
pub(crate) struct World {
    // First, so that it ends before its folder goes.
    daemon: Option<Daemon>,
    pub(crate) slack: Part<Slack>,
    pub(crate) meeting: Part<Meeting>,
    pub(crate) phone: Part<Whatsapp>,
    pub(crate) dir: TempDir,
    env: Vec<(String, String)>,
    config: String,
    docker_host: Option<String>,
    process: bool,
    after_loss: bool,
    binary: PathBuf,
    address: Option<SocketAddr>,
    /// Where the records are, if not in files.
    database: Option<Database>,
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.daemon.take());
        if std::thread::panicking() {
            for message in self.slack.0.iter().flat_map(|slack| slack.select(|_| true)) {
                eprintln!("--- in {}: {}", message.channel, message.visible_text());
            }
            for person in self.phone.0.iter().flat_map(|phone| &phone.config().people) {
                eprintln!("--- said to {}: {:#?}", person.name, self.said_to(&person.wa_id));
            }
            eprintln!("--- the daemon's log ---\n{}", self.log());
        } else if let Some(phone) = &self.phone.0 {
            crate::meta_schema::judge(phone);
        }
    }
}

impl World {
    /// A world with a running daemon and no settings.
    pub(crate) fn new() -> Self {
        Self::empty().started()
    }

    /// The same with these groups in its settings, so that they are called so in a database, too.
    pub(crate) fn of(groups: &[&str]) -> Self {
        Self::empty().groups(groups).started()
    }

    /// Names groups in the settings.
    pub(crate) fn groups(self, groups: &[&str]) -> Self {
        self.more_config(&sections(groups))
    }

    /// The same with the real binary.
    pub(crate) fn process() -> Self {
        Self::empty().with_binary().started()
    }

    /// A world without a daemon yet.
    pub(crate) fn empty() -> Self {
        Self {
            daemon: None,
            slack: Part(None),
            meeting: Part(None),
            phone: Part(None),
            dir: tempfile::tempdir().unwrap(),
            env: Vec::new(),
            config: String::new(),
            docker_host: None,
            process: false,
            after_loss: false,
            binary: PathBuf::from(ASKD),
            address: None,
            database: Database::of_a_story(),
        }
    }

    /// Its records are files, whatever the other stories' are.
    pub(crate) fn in_files(mut self) -> Self {
        self.database = None;
        self
    }

    /// Its records are in this database, whatever the other stories' are.
    pub(crate) fn in_database(mut self, database: Database) -> Self {
        self.database = Some(database);
        self
    }

    /// Its daemon is the real binary in a process of its own, on the real clock.
    pub(crate) fn with_binary(mut self) -> Self {
        self.process = true;
        self
    }

    /// Its daemon is this binary.
    pub(crate) fn with_daemon(mut self, binary: &Path) -> Self {
        binary.clone_into(&mut self.binary);
        self.with_binary()
    }

    /// With these settings (TOML).
    pub(crate) fn config(mut self, text: &str) -> Self {
        text.clone_into(&mut self.config);
        self
    }

    /// The same from its next start on; returns what they were.
    pub(crate) fn swap_config(&mut self, text: &str) -> String {
        std::mem::replace(&mut self.config, text.to_owned())
    }

    /// With these settings besides.
    pub(crate) fn more_config(mut self, text: &str) -> Self {
        self.config.push_str(text);
        self
    }

    /// With a Docker Engine at this socket.
    pub(crate) fn docker(mut self, socket: &Path) -> Self {
        self.docker_host = Some(format!("unix://{}", socket.display()));
        self
    }

    /// With this variable in the daemon's environment: only a process has one.
    pub(crate) fn env(self, name: &str, value: &str) -> Self {
        let mut world = self.with_binary();
        world.set_env(name, value);
        world
    }

    /// The same from the next start on.
    pub(crate) fn set_env(&mut self, name: &str, value: &str) {
        assert!(self.process, "only a process has an environment: see `World::process`");
        self.env.push((name.to_owned(), value.to_owned()));
    }

    /// Forgets a variable again.
    pub(crate) fn without_env(&mut self, name: &str) {
        self.env.retain(|(known, _)| known != name);
    }

    /// From now on the daemon is started with `--after-loss`, or without.
    pub(crate) fn after_loss(&mut self, on: bool) {
        self.after_loss = on;
    }

    /// With a running daemon.
    pub(crate) fn started(mut self) -> Self {
        self.start();
        self
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.data().join("state")
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn settings_file(&self) -> PathBuf {
        let file = self.dir.path().join("askd.toml");
        let database = self.database.as_ref().map(|database| database.settings("here"));
        fs::write(&file, format!("{}\n{}", self.config, database.unwrap_or_default())).unwrap();
        file
    }

    /// The command that starts the daemon.
    pub(crate) fn command(&self) -> Command {
        let mut command = without_environment(&self.binary);
        command.arg("serve").env("ASKD__DATA_DIR", self.data()).env("ASKD__HTTP__LISTEN", "127.0.0.1:0");
        if !self.beside().is_empty() {
            command.env("ASKD__LOG__FILTER", DETAILED);
        }
        if !self.config.is_empty() || self.database.is_some() {
            command.arg("--config").arg(self.settings_file());
        }
        if self.after_loss {
            command.arg("--after-loss");
        }
        command.envs(self.env.iter().cloned());
        command
    }

    fn start_daemon(&self) -> Daemon {
        if self.process {
            Daemon::process(self.command(), &self.log_path())
        } else {
            let of_all = self.dir.path().join("all.toml");
            let filter = if self.beside().is_empty() { "info,notify=error" } else { DETAILED };
            let text = format!(
                "data_dir = \"{}\"\nhttp.listen = \"127.0.0.1:0\"\nlog.filter = \"{filter}\"\n",
                self.data().display()
            );
            fs::write(&of_all, text).unwrap();
            let mut settings = Settings::load(&[of_all, self.settings_file()]).unwrap();
            settings.docker_host.clone_from(&self.docker_host);
            Daemon::with(settings, &self.log_path())
        }
    }

    /// Starts the daemon and waits until it listens; `false` if it ended instead.
    pub(crate) fn try_start(&mut self) -> bool {
        let daemon = self.start_daemon();
        self.address = daemon.address();
        let listens = self.address.is_some();
        self.daemon = listens.then_some(daemon);
        listens
    }

    pub(crate) fn start(&mut self) {
        assert!(self.try_start(), "the daemon did not start:\n{}", self.log());
    }

    /// Starts the daemon, and holds up its reading of this folder below `state/` until [`Self::let_go`].
    pub(crate) fn start_held(&mut self, folder: &str) {
        let (gate, port) = (self.dir.path().join("gate"), crate::ports::free_port());
        fs::write(&gate, "").unwrap();
        self.set_env("ASKD_GATE", &format!("{folder}={}", gate.display()));
        self.set_env("ASKD__HTTP__LISTEN", &format!("127.0.0.1:{port}"));
        self.daemon = Some(self.start_daemon());
        self.address = Some(([127, 0, 0, 1], port).into());
        within(SOON, "the daemon to listen", || TcpStream::connect(self.address()).ok());
        within(SOON, "the daemon to read", || {
            self.raw("GET", "/readyz", "", "").1.starts_with("loading ").then_some(())
        });
    }

    /// Starts the daemon on a port of its own, and waits until it listens there: it may have to stand by.
    pub(crate) fn start_waiting(&mut self) {
        let port = crate::ports::free_port();
        self.set_env("ASKD__HTTP__LISTEN", &format!("127.0.0.1:{port}"));
        self.daemon = Some(self.start_daemon());
        self.address = Some(([127, 0, 0, 1], port).into());
        within(SOON, "the daemon to listen", || TcpStream::connect(self.address()).ok());
    }

    /// Lets the daemon read the rest, and waits until it has.
    pub(crate) fn let_go(&self) {
        fs::remove_file(self.dir.path().join("gate")).unwrap();
        within(SOON, "the daemon to be ready", || (self.raw("GET", "/readyz", "", "").1 == "ready\n").then_some(()));
    }

    /// Starts the daemon (again) beside the stand-ins, and tells them where it is.
    pub(crate) async fn begin(&mut self) {
        let ended = self.try_begin().await;
        assert!(ended.is_none(), "the daemon did not start: {ended:?}\n{}", self.log());
    }

    /// The same; how it ended, if it did instead.
    pub(crate) async fn try_begin(&mut self) -> Option<ExitStatus> {
        let listening = self.daemon.insert(self.start_daemon()).listening().await;
        match listening {
            Ok(address) => self.address = Some(address),
            Err(ended) => return Some(ended),
        }
        if self.slack.0.is_some() {
            self.connect_slack().await;
        }
        if let Some(phone) = &self.phone.0 {
            phone.set_webhook(Some(&format!("{}/whatsapp/webhook", self.url())));
        }
        None
    }

    /// A start with these variables in its environment.
    pub(crate) async fn begin_with(&mut self, env: &[(&str, &str)]) {
        let before = self.env.clone();
        for (name, value) in env {
            self.set_env(name, value);
        }
        self.begin().await;
        self.env = before;
    }

    /// `kill -9`, and a new start.
    pub(crate) async fn restart(&mut self) {
        self.kill();
        self.begin().await;
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("the daemon runs")
    }

    fn beside(&self) -> Vec<&dyn Beside> {
        let slack = self.slack.0.as_ref().map(|slack| slack as &dyn Beside);
        let phone = self.phone.0.as_ref().map(|phone| phone as &dyn Beside);
        slack.into_iter().chain(phone).chain(self.database.as_ref().map(|database| database as &dyn Beside)).collect()
    }

    /// Lets time pass, at the stand-ins too, once nothing is on its way: at once where the clock can be moved.
    pub(crate) async fn time_passes(&self, by: Duration) {
        self.daemon().time_passes(by, &self.beside()).await;
    }

    /// The same for a world without stand-ins, which needs no runtime.
    pub(crate) fn later(&self, by: Duration) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(self.time_passes(by));
    }

    /// Moves the daemon's clock.
    pub(crate) fn hand(&self) -> &Hand {
        self.daemon().hand()
    }

    /// Lets time pass until `look` finds something, at most `at_most` of it.
    pub(crate) async fn passes<T>(&self, at_most: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
        self.daemon().passes(at_most, what, look, &self.beside()).await
    }

    /// The same for a world without stand-ins, which needs no runtime.
    pub(crate) fn passing<T>(&self, at_most: Duration, what: &str, look: impl FnMut() -> Option<T>) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(self.passes(at_most, what, look))
    }

    /// Waits a moment; a second passes if the daemon is idle all the while.
    pub(crate) async fn step(&self) {
        self.daemon().step(&self.beside()).await;
    }

    /// As `kill -9`.
    pub(crate) fn kill(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            daemon.kill();
        }
    }

    /// As `kill -TERM`.
    pub(crate) fn tell_to_stop(&self) {
        self.daemon().tell_to_stop();
    }

    /// How the daemon ended, if it has.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        let ended = self.daemon.as_mut()?.ended()?;
        self.daemon = None;
        Some(ended)
    }

    /// As `kill -TERM`, beside the stand-ins. The exit code.
    pub(crate) async fn stop(&mut self) -> Option<i32> {
        self.tell_to_stop();
        self.ends().await
    }

    /// Waits until the daemon has ended by itself, beside the stand-ins. The exit code.
    pub(crate) async fn ends(&mut self) -> Option<i32> {
        until("the daemon to end", SOON, || self.has_ended()).await.code()
    }

    /// Waits until the daemon has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.daemon.take().unwrap().end()
    }

    /// As `kill -TERM`, and waits.
    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.daemon().tell_to_stop();
        self.ended()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon().pid()
    }

    fn proc(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.pid())).unwrap()
    }

    /// The processor time that the daemon has used so far.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = self.proc("stat");
        let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        let ticks = |field: usize| fields[field].parse::<u64>().unwrap();
        Duration::from_secs(ticks(11) + ticks(12)) / u32::try_from(rustix::param::clock_ticks_per_second()).unwrap()
    }

    /// How often each thread of the daemon has gone to sleep so far: once for each time it was woken.
    pub(crate) fn wake_ups(&self) -> HashMap<PathBuf, u64> {
        let threads = fs::read_dir(format!("/proc/{}/task", self.daemon().pid())).unwrap();
        let counts = threads.filter_map(|thread| {
            let path = thread.unwrap().path();
            // It may end meanwhile.
            let status = fs::read_to_string(path.join("status")).ok()?;
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            Some((path, count.trim().parse().unwrap()))
        });
        counts.collect()
    }

    /// The memory that the daemon has taken at most since it started, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = self.proc("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        self.daemon().signal(signal);
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address.unwrap()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    pub(crate) fn token(&self) -> String {
        fs::read_to_string(self.data().join("state/web_token")).unwrap().trim().to_owned()
    }

    // The agent.

    pub(crate) fn group(&self, group: &str) -> Agent {
        let path = self.data().join("ipc").join(group);
        for name in ["tasks", "responses"] {
            fs::create_dir_all(path.join(name)).unwrap();
        }
        Agent { path }
    }

    /// An agent of the group `research` asks: the only group of most stories with a chat.
    pub(crate) fn ask(&self, request_id: &str, request: Value) {
        self.ask_as("research", request_id, request);
    }

    #[expect(clippy::needless_pass_by_value, reason = "a story builds what it asks in the call")]
    pub(crate) fn ask_as(&self, group: &str, request_id: &str, request: Value) {
        self.group(group).ask(request_id, &request);
    }

    /// What it was given, if it was.
    pub(crate) fn response_now(&self, request_id: &str) -> Option<Value> {
        self.group("research").response(request_id)
    }

    /// What it is given.
    pub(crate) async fn response(&self, request_id: &str) -> Value {
        self.response_within(request_id, SOON).await
    }

    pub(crate) async fn response_within(&self, request_id: &str, at_most: Duration) -> Value {
        self.response_to("research", request_id, at_most).await
    }

    pub(crate) async fn response_to(&self, group: &str, request_id: &str, at_most: Duration) -> Value {
        let agent = self.group(group);
        self.passes(at_most, &format!("the response to {request_id}"), || agent.response(request_id)).await
    }

    // The person.

    /// Calls the API with the token.
    pub(crate) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
        let headers = format!("authorization: Bearer {}\r\n{kind}", self.token());
        let (status, body) = self.raw(method, &format!("/api/v1{path}"), &headers, &body);
        (status, serde_json::from_str(&body).unwrap_or(Value::Null))
    }

    /// Any HTTP request; `headers` without `Host` gets the right one.
    pub(crate) fn raw(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let host = if headers.to_ascii_lowercase().contains("host:") {
            String::new()
        } else {
            format!("host: {}\r\n", self.address())
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        exchange(self.address(), request.as_bytes())
    }

    pub(crate) fn open(&self) -> Vec<Value> {
        let (mut open, mut after) = (Vec::new(), String::new());
        loop {
            let (status, list) = self.call("GET", &format!("/asks?state=open&limit=1000{after}"), None);
            assert_eq!(status, 200, "{list}");
            open.extend_from_slice(list["asks"].as_array().unwrap());
            // A page of 512 KiB ends before its limit.
            let Some(next) = list["next"].as_str() else { return open };
            after = format!("&after={next}");
        }
    }

    /// Waits until one ask is open and gives it.
    pub(crate) fn one_open(&self) -> Value {
        within(SOON, "one open ask", || self.open().into_iter().next())
    }

    /// Waits until the ask of that request is open and gives it.
    pub(crate) fn open_of(&self, request_id: &str) -> Value {
        within(SOON, "the ask to be open", || self.open().into_iter().find(|ask| ask["request_id"] == request_id))
    }

    pub(crate) fn answer(&self, ask: &Value, answers: &Value) -> (u16, Value) {
        let path = format!("/asks/{}/answer", ask["id"].as_str().unwrap());
        self.call("POST", &path, Some(&json!({ "answers": answers })))
    }

    /// What `askd status` says of this kind of trouble.
    pub(crate) fn problems(&self, kind: &str) -> Vec<Value> {
        let problems = self.call("GET", "/status", None).1["problems"].as_array().unwrap().clone();
        problems.into_iter().filter(|problem| problem["kind"] == kind).collect()
    }

    /// What happened to an ask, line by line.
    pub(crate) fn trail(&self, id: &str) -> Vec<Value> {
        let (status, body) = self.call("GET", &format!("/asks/{id}/trail"), None);
        assert_eq!(status, 200, "{body}");
        body["trail"].as_array().unwrap().clone()
    }

    /// What the inbox says of an ask.
    pub(crate) fn details(&self, id: &str) -> Value {
        let (status, ask) = self.call("GET", &format!("/asks/{id}"), None);
        assert_eq!(status, 200, "{ask}");
        ask
    }

    // The records.

    /// Names of the files below a folder of `state/`.
    pub(crate) fn state_files(&self, folder: &str) -> Vec<String> {
        names(&self.data().join("state").join(folder))
    }

    pub(crate) const fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    pub(crate) fn audit(&self) -> Vec<Value> {
        if let Some(database) = &self.database {
            let lines = database.query("select line from askd.audit order by number");
            return lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        let folder = self.state().join("audit");
        let mut lines = Vec::new();
        for name in names(&folder) {
            let text = fs::read_to_string(folder.join(name)).unwrap();
            lines.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
        lines
    }

    /// The record of each ask as it is stored by now, by the path of its file. An entry of the journal counts instead of a file
    /// that is older.
    pub(crate) fn store(&self) -> BTreeMap<PathBuf, String> {
        let read = || {
            let mut found = BTreeMap::new();
            for kind in ["pending_questions", "settled"] {
                let groups = match &self.database {
                    Some(database) => {
                        database.query("select group_name from askd.asks union select group_name from askd.settled")
                    }
                    None => names(&self.state().join(kind)),
                };
                for group in groups {
                    found.extend(self.records_of(kind, &group));
                }
            }
            found
        };
        if self.database.is_some() { read() } else { crate::journal::overlaid(&self.state(), read) }
    }

    /// The same of the group `research`.
    pub(crate) fn records(&self) -> BTreeMap<PathBuf, String> {
        let of_group = |path: &PathBuf| path.parent().is_some_and(|group| group.ends_with("research"));
        self.store().into_iter().filter(|(path, _)| of_group(path)).collect()
    }

    fn records_of(&self, kind: &str, group: &str) -> BTreeMap<PathBuf, String> {
        let folder = self.state().join(kind).join(group);
        if let Some(database) = &self.database {
            let settled = kind == "settled";
            let rows = format!(
                "select replace(id::text, '-', '') || '.json ' || record from (
                     select id, group_name, settled, record from askd.asks
                     union all select id, group_name, true, record from askd.settled
                 ) as kept where settled = {settled} and group_name in ('{group}', '{group}@here')"
            );
            let rows = database.query(&rows);
            return rows
                .iter()
                .filter_map(|row| row.split_once(' '))
                .map(|(name, text)| (folder.join(name), text.to_owned()))
                .collect();
        }
        let paths = names(&folder).into_iter().filter(|name| !name.starts_with('.')).map(|name| folder.join(name));
        // One may be renamed, into place or to where settled asks are, since it was listed.
        paths.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect()
    }

    /// As if this were the record of an ask, while no daemon runs.
    pub(crate) fn rewrite(&self, path: &Path, record: &str) {
        let Some(database) = &self.database else { return fs::write(path, record).unwrap() };
        let id = path.file_stem().unwrap().display();
        database.query(&format!("update askd.asks set record = $record${record}$record$ where id = '{id}'"));
    }

    /// As if no ask were known, while no daemon runs.
    pub(crate) fn without_records(&self) {
        match &self.database {
            Some(database) => drop(database.query("delete from askd.asks; delete from askd.settled")),
            None => self.records().keys().for_each(|path| fs::remove_file(path).unwrap()),
        }
    }

    /// What the channel WhatsApp remembers.
    pub(crate) fn remembered(&self) -> String {
        let Some(database) = &self.database else {
            let folder = self.state().join("channels");
            // What is being written counts once it has its name.
            let files = names(&folder).into_iter().filter(|name| !name.starts_with('.'));
            return files.map(|name| fs::read_to_string(folder.join(name)).unwrap_or_default()).collect();
        };
        // Entries, and what the leader alone has.
        let all = "select askd.remembered(name) from (select distinct name from askd.memory) known
                   union all select convert_from(bytes, 'UTF8') from askd.documents where name like 'channels/whatsapp%.json'";
        database.query(all).join("\n")
    }

    /// Writes these settings instead, and has the daemon (a process) read them.
    pub(crate) fn reload(&mut self, settings: &str) {
        settings.clone_into(&mut self.config);
        self.settings_file();
        self.signal(rustix::process::Signal::HUP);
    }

    /// Waits until nothing is owed to anybody any more, while time passes.
    pub(crate) async fn all_closed(&self, at_most: Duration) {
        let pending = self.state().join("pending_questions");
        let none = || self.store().keys().all(|path| !path.starts_with(&pending)).then_some(());
        self.passes(at_most, "every ask to be done with", none).await;
    }

    /// Waits until a group has this many settled asks. Until a flush has filed it, only the journal may have one.
    pub(crate) fn kept(&self, group: &str, count: usize) {
        let settled = format!("settled/{group}");
        let names = || self.state_files(&settled).into_iter().filter(|name| !name.starts_with(".tmp-"));
        within(SOON, "settled asks to be filed", || (names().count() >= count).then_some(()));
        assert_eq!(names().count(), count, "settled asks");
    }

    /// Waits until the record of a settled ask says that its outcome was taken: a start would look whether it was.
    pub(crate) fn noted_as_taken(&self, group: &str) {
        let settled = self.state().join("settled").join(group);
        let is_noted = |(path, text): (PathBuf, String)| path.starts_with(&settled) && text.contains("\"taken\"");
        let noted = || self.store().into_iter().any(is_noted).then_some(());
        self.passing(SOON, "the outcome to be noted as taken", noted);
    }

    /// Waits until nothing is pending any more.
    pub(crate) fn all_done(&self, group: &str) {
        let pending = format!("pending_questions/{group}");
        let is_done = || match &self.database {
            Some(_) => self.records_of("pending_questions", group).is_empty(),
            None => self.state_files(&pending).is_empty(),
        };
        within(SOON, "nothing to be pending", || is_done().then_some(()));
    }
}

/// An agent that is nothing but files: what a drop-in client does.
pub(crate) struct Agent {
    pub(crate) path: PathBuf,
}

impl Agent {
    pub(crate) fn tasks(&self) -> PathBuf {
        self.path.join("tasks")
    }

    /// Writes a file under a temporary name, then renames it.
    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        let temporary = self.tasks().join(format!(".{name}.tmp"));
        fs::write(&temporary, content).unwrap();
        fs::rename(temporary, self.tasks().join(name)).unwrap();
    }

    /// Asks with these fields beside `type` and `request_id`.
    pub(crate) fn ask(&self, request_id: &str, fields: &Value) {
        let mut request = json!({"type": "ask_user:ask", "request_id": request_id});
        let fields = fields.as_object().unwrap().clone();
        request.as_object_mut().unwrap().extend(fields);
        self.put(&format!("{request_id}.json"), request.to_string().as_bytes());
    }

    /// Asks a question with the choices React and Vue. It says in its header which one it is: the very same
    /// question may be asked a few times only.
    pub(crate) fn ask_framework(&self, request_id: &str) {
        let question = json!({"header": request_id, "question": "Which framework?", "options": ["React", "Vue"]});
        self.ask(request_id, &json!({"questions": [question]}));
    }

    pub(crate) fn cancel(&self, request_id: &str) {
        let cancel = json!({"type": "ask_user:cancel", "request_id": request_id});
        self.put(&format!("cancel-{request_id}.json"), cancel.to_string().as_bytes());
    }

    pub(crate) fn response_path(&self, request_id: &str) -> PathBuf {
        self.path.join("responses").join(format!("{request_id}.json"))
    }

    /// Writes a response as a host would.
    pub(crate) fn put_response(&self, request_id: &str, response: &Value) {
        let temporary = self.path.join(format!("responses/.tmp-{request_id}"));
        fs::write(&temporary, response.to_string()).unwrap();
        fs::rename(temporary, self.response_path(request_id)).unwrap();
    }

    /// The response, if it is there. One that is not whole is a broken promise.
    pub(crate) fn response(&self, request_id: &str) -> Option<Value> {
        let bytes = fs::read(self.response_path(request_id)).ok()?;
        Some(serde_json::from_slice(&bytes).expect("a response file is complete"))
    }

    /// Waits for the response.
    pub(crate) fn wait(&self, request_id: &str) -> Value {
        within(SOON, &format!("the response of {request_id}"), || self.response(request_id))
    }

    /// Waits for the response and deletes it, as a client does.
    pub(crate) fn take(&self, request_id: &str) -> Value {
        let response = self.wait(request_id);
        fs::remove_file(self.response_path(request_id)).unwrap();
        response
    }

    /// Where the briefing of an ask lies.
    pub(crate) fn briefing(&self, ask: &Value) -> PathBuf {
        self.path.join("briefings").join(format!("{}.json", ask["id"].as_str().unwrap()))
    }

    /// What is left in `tasks/`.
    pub(crate) fn task_names(&self) -> Vec<String> {
        names(&self.tasks())
    }

    /// Waits until nothing is left in `tasks/`.
    pub(crate) fn tasks_gone(&self) {
        holds(&self.tasks(), &[]);
    }

    /// Waits until `responses/` holds these and nothing else.
    pub(crate) fn responses_are(&self, expected: &[&str]) {
        holds(&self.path.join("responses"), expected);
    }

    /// Waits until a waiter is told where its ask is: the ask is stored, and nothing more is written by itself.
    pub(crate) fn status_of(&self, request_id: &str) -> Value {
        within(SOON, "the status file", || self.status_now(request_id))
    }

    pub(crate) fn status_now(&self, request_id: &str) -> Option<Value> {
        serde_json::from_slice(&fs::read(self.path.join(format!("responses/{request_id}.status"))).ok()?).ok()
    }

    /// A file lies where responses belong, from one moment to the next: the daemon makes what is not there.
    pub(crate) fn squat_responses(&self) {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        let aside = self.path.join("aside");
        fs::write(&aside, "").unwrap();
        renameat_with(CWD, &aside, CWD, self.path.join("responses"), RenameFlags::EXCHANGE).unwrap();
    }

    /// And now they can be written again.
    pub(crate) fn free_responses(&self) {
        fs::remove_file(self.path.join("responses")).unwrap();
        fs::create_dir_all(self.path.join("responses")).unwrap();
    }

    /// Has another folder take its place at once; the old one lies at `other` then.
    pub(crate) fn exchange_folder(&self, other: &Path) {
        for name in ["tasks", "responses"] {
            fs::create_dir_all(other.join(name)).unwrap();
        }
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, other, rustix::fs::CWD, &self.path, exchange).unwrap();
    }

    /// Removes the whole folder, also while others write into it.
    pub(crate) fn remove_folder(&self) {
        within(SOON, "the folder to be removed", || {
            let _again = fs::remove_dir_all(&self.path);
            (!self.path.exists()).then_some(())
        });
    }
}

/// The sections of these groups, whose questions go to the inbox.
pub(crate) fn sections(groups: &[&str]) -> String {
    let section = |name: &&str| format!("[groups.{name}]\nroutes = [{{ channel = \"web\" }}]\n");
    groups.iter().map(section).collect()
}

/// A single choice.
pub(crate) fn choice(question: &str, labels: &[&str]) -> Value {
    json!({"questions": [{"question": question, "options": labels}]})
}

/// Waits until a folder holds these names and no others: the daemon and the agent's side tidy up a
/// moment after what can be seen of them.
pub(crate) fn holds(folder: &Path, expected: &[&str]) {
    let end = Instant::now() + SOON;
    while names(folder) != expected {
        assert!(Instant::now() < end, "{}: {:?} instead of {expected:?}", folder.display(), names(folder));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The names in a folder, without that of the folder for signs of life: it stays when the last process has gone.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name != ".alive");
    names.sort();
    names
}

/// Looks until something is there; a world in which it never comes has failed.
pub(crate) fn within<T>(bound: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < bound, "waited {bound:?} for {what}");
        std::thread::sleep(pause(began));
    }
}

/// Until the next look: longer and longer, because looks of many stories would take most of the processors, but never much longer than
/// what has been waited for already.
fn pause(began: Instant) -> Duration {
    (began.elapsed() / 16).clamp(Duration::from_millis(5), Duration::from_millis(50))
}

/// The same for a story with stand-ins, which go on meanwhile.
pub(crate) async fn until<T>(what: &str, at_most: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < at_most, "waited {at_most:?} for {what}");
        tokio::time::sleep(pause(began)).await;
    }
}

/// One request, one response, one connection.
pub(crate) fn exchange(address: SocketAddr, request: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    // The server may refuse before it has read everything.
    let _refused = stream.write_all(request);
    let mut response = Vec::new();
    let _reset = stream.read_to_end(&mut response);
    let text = String::from_utf8_lossy(&response).into_owned();
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let (_head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
    let chunked = text.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body) } else { body.to_owned() };
    (status.unwrap_or_else(|| panic!("no HTTP response: {text:?}")), body)
}

fn unchunked(body: &str) -> String {
    let mut rest = body;
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || after.len() < size {
            break;
        }
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    whole
}

/// The same program, started by another one.
pub(crate) fn through(starter: &[&str], program: &Command) -> Command {
    let mut command = Command::new(starter[0]);
    command.args(&starter[1..]).arg(program.get_program()).args(program.get_args());
    if let Some(folder) = program.get_current_dir() {
        command.current_dir(folder);
    }
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

impl World {
    /// With a daemon whose system calls on files are written down.
    pub(crate) fn started_under_strace(mut self) -> Self {
        let calls = self.dir.path().join("calls");
        let traced = "trace=openat2,fsync,fdatasync,renameat,renameat2,unlinkat";
        let strace = ["strace", "-f", "-qq", "-e", traced, "-o", calls.to_str().unwrap(), "--"];
        let command = through(&strace, &self.command());
        let daemon = Daemon::process(command, &self.log_path());
        self.address = daemon.address();
        assert!(self.address.is_some(), "the daemon did not start: {}", self.log());
        self.daemon = Some(daemon);
        self
    }

    /// Ends the traced daemon (strace passes no signal on): its pid is in the first line of the trace.
    pub(crate) fn terminate_traced(&mut self) {
        let pid: i32 = self.calls()[0].split(' ').next().unwrap().parse().unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), rustix::process::Signal::TERM)
            .unwrap();
        self.ended();
    }

    /// The system calls, in order. A call that was interrupted by another thread counts from where it was begun.
    pub(crate) fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.dir.path().join("calls")).unwrap().lines().map(str::to_owned).collect()
    }
}
