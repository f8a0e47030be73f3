//! A folder, its groups and asks, and a host that serves it: the real daemon, the reference, or Slack Bolt.

use crate::chat::{Chat, marker, number_in, ts};
use crate::floor;
use crate::load::{Button, Click, Connection, SIGNING_SECRET, click, get};
use crate::system;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The token of the inbox.
pub(crate) const TOKEN: &str = "bench-token-bench-token-bench-token";
const START: Duration = Duration::from_secs(120);

/// Who serves a world.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Host {
    Askd,
    Reference,
    Bolt,
}

pub(crate) struct World {
    pub(crate) host: Host,
    pub(crate) folder: PathBuf,
    pub(crate) groups: usize,
    pub(crate) port: u16,
    pub(crate) chat: Arc<Chat>,
    child: Option<Child>,
}

pub(crate) fn group(number: usize) -> String {
    format!("g{number:06}")
}

/// The daemon that is measured: built as it is shipped, or the binary that is named.
pub(crate) fn askd_binary() -> PathBuf {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--profile", "dist", "-p", "askd", "--bin", "askd"]);
        cargo.args(["--message-format", "json-render-diagnostics", "--manifest-path"]);
        let output = cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml")).stderr(Stdio::inherit()).output();
        let output = output.expect("cargo runs");
        assert!(output.status.success(), "askd cannot be built");
        let messages = String::from_utf8_lossy(&output.stdout).into_owned();
        let built = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let built = built.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).next_back();
        built.expect("cargo tells the path of askd")
    };
    BINARY.get_or_init(|| std::env::var_os("ASKD_BENCH_BIN").map_or_else(build, PathBuf::from)).clone()
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl World {
    /// Folders and settings; nothing runs yet.
    pub(crate) fn new(host: Host, folder: PathBuf, groups: usize, chat: &Arc<Chat>) -> Self {
        let world = Self { host, folder, groups, port: free_port(), chat: Arc::clone(chat), child: None };
        for number in 0..groups {
            for kind in ["tasks", "responses"] {
                let folder = world.ipc(number).join(kind);
                fs::create_dir_all(&folder).unwrap();
                // As askd makes them: a folder in trouble costs a look of its own.
                fs::set_permissions(folder, Permissions::from_mode(0o770)).unwrap();
            }
            fs::create_dir_all(world.pending(number)).unwrap();
        }
        fs::create_dir_all(world.folder.join("taken")).unwrap();
        world.write_settings("");
        world
    }

    /// With more lines at the end.
    pub(crate) fn write_settings(&self, more: &str) {
        let mut settings = format!(
            "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:{}\"\n[asks]\nmax_open_per_group = 1000000\n\
             max_per_hour_per_group = 1000000\nremind_after = \"\"\n[web]\ntoken = \"{TOKEN}\"\n[slack]\n\
             bot_token = \"xoxb-bench\"\nsigning_secret = \"{SIGNING_SECRET}\"\napi_url = \"{}\"\npace = \"0s\"\n\
             team_ids = [\"T0BENCH\"]\n[defaults]\nroutes = []\n",
            self.folder.display(),
            self.port,
            self.chat.url
        );
        for number in 0..self.groups {
            let _written = writeln!(
                settings,
                "[groups.{}]\nroutes = [{{ channel = \"slack\", chat = \"C{number:06}\", responders = [\"U0ALICE\"] }}]",
                group(number)
            );
        }
        settings.push_str(more);
        fs::write(self.folder.join("askd.toml"), settings).unwrap();
    }

    pub(crate) fn ipc(&self, number: usize) -> PathBuf {
        self.folder.join("ipc").join(group(number))
    }

    pub(crate) fn state(&self, kind: &str, number: usize) -> PathBuf {
        self.folder.join("state").join(kind).join(group(number))
    }

    pub(crate) fn pending(&self, number: usize) -> PathBuf {
        self.state("pending_questions", number)
    }

    pub(crate) fn response(&self, number: u64, group: usize) -> PathBuf {
        self.ipc(group).join("responses").join(format!("{}.json", marker(number)))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    /// Starts the host and does not wait.
    pub(crate) fn spawn(&mut self) {
        let log = File::options().create(true).append(true).open(self.folder.join("log")).unwrap();
        let mut command = match self.host {
            Host::Askd => {
                let mut command = Command::new(askd_binary());
                command.args(["serve", "--config"]).arg(self.folder.join("askd.toml"));
                command
            }
            Host::Reference => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.arg("--reference").arg(&self.folder).arg(self.port.to_string()).arg(&self.chat.url);
                command
            }
            Host::Bolt => {
                let mut command = Command::new("node");
                command.arg(crate::bolt::APP).arg(&self.folder).arg(self.port.to_string()).arg(&self.chat.url);
                command.env("SLACK_SIGNING_SECRET", SIGNING_SECRET).env("NODE_PATH", crate::bolt::modules());
                command
            }
        };
        command.env("RUST_LOG_STYLE", "never").stdin(Stdio::null());
        self.child = Some(command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap());
    }

    /// Starts the host and waits until it has loaded everything.
    pub(crate) fn start(&mut self) {
        self.spawn();
        let until = Instant::now() + START;
        let path = if self.host == Host::Askd { "/readyz" } else { "/" };
        while !matches!(Connection::new(self.port).call(&get(self.port, path, TOKEN)), Ok((200 | 404, _))) {
            assert!(Instant::now() < until && self.runs(), "no start: see {}", self.folder.join("log").display());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the daemon does nothing more of its own: after a start with many asks it tells their waiters the deadlines.
    pub(crate) fn rest(&self) {
        let second = Duration::from_secs(1);
        let is_busy = || {
            let before = system::cpu(self.pid());
            std::thread::sleep(second);
            system::cpu(self.pid()) - before > 0.02
        };
        assert!(system::until(120 * second, || !is_busy()), "it does not come to rest");
    }

    pub(crate) fn runs(&mut self) -> bool {
        self.child.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none())
    }

    pub(crate) fn signal(&self, name: &str) {
        assert!(Command::new("kill").arg(format!("-{name}")).arg(self.pid().to_string()).status().unwrap().success());
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn stop(&mut self) {
        if self.runs() {
            self.signal("TERM");
            assert!(system::until(Duration::from_secs(20), || !self.runs()), "it does not stop");
        }
        self.child = None;
    }

    /// An agent writes a request: written under another name, then renamed.
    pub(crate) fn ask(&self, number: u64, group: usize) -> Instant {
        let request = request(number, None);
        let tasks = self.ipc(group).join("tasks");
        let temporary = tasks.join(format!(".tmp-{number}"));
        fs::write(&temporary, request.to_string()).unwrap();
        let at = Instant::now();
        fs::rename(temporary, tasks.join(format!("{}.json", marker(number)))).unwrap();
        at
    }

    /// Agents take these responses: gone from `responses/`, and not deleted, so that no deletes slow the disk down.
    /// How many were there.
    pub(crate) fn take(&self, numbers: &[(u64, usize)]) -> usize {
        let taken = self.folder.join("taken");
        let take = |(number, group): &&(u64, usize)| {
            fs::rename(self.response(*number, *group), taken.join(marker(*number))).is_ok()
        };
        numbers.iter().filter(take).count()
    }

    /// A record of this kind in the first group: its name, and what it says.
    fn record(&self, kind: &str) -> Option<(String, String)> {
        let mut names = fs::read_dir(self.state(kind, 0)).ok()?.flatten();
        let path = names.find(|entry| entry.path().extension().is_some_and(|kind| kind == "json"))?.path();
        Some((path.file_stem()?.to_string_lossy().into_owned(), fs::read_to_string(path).ok()?))
    }

    /// Clicks on the cards of these asks.
    pub(crate) fn clicks(&self, asks: &[(u64, usize)], template: &Template) -> Vec<Click> {
        asks.iter()
            .map(|(number, group)| click(*number, *group, &template.button(*number, *group), self.port, true))
            .collect()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _gone = child.kill();
            let _ended = child.wait();
        }
    }
}

/// What an agent asks.
pub(crate) fn request(number: u64, process: Option<&str>) -> Value {
    json!({
        "type": "ask_user:ask", "request_id": marker(number), "timeoutMs": 604_800_000, "title": "Release",
        "context": "All tests pass.", "process": process,
        "questions": [{"question": format!("Deploy {} now?", marker(number)),
            "options": [{"label": "yes", "description": "roll it out"}, "no"]}],
    })
}

/// The records of one ask as the daemon itself wrote them, open and settled, to make many others from. Whatever the
/// format is: only the names in them are replaced.
pub(crate) struct Template {
    id: String,
    short: String,
    pub(crate) open: String,
    pub(crate) settled: String,
    /// The file of the audit log, and what stands in it of the open ask.
    audit: (PathBuf, String),
    /// What the daemon notes of the format of its records. Without it a start looks at every record for a newer one.
    format: String,
    card: Button,
}

const TEMPLATE: u64 = 999_999_999;
const FORMAT: &str = "state/format.json";

impl Template {
    /// Lets the daemon ask, be answered and file one ask, which has one question.
    pub(crate) fn make(folder: PathBuf, chat: &Arc<Chat>, request: &Value) -> Self {
        let (open, mut world) = Self::make_open(folder, chat, request);
        let click = click(TEMPLATE, 0, &open.card, world.port, true);
        let (status, _) = Connection::new(world.port).call(&click.request).unwrap();
        assert_eq!(status, 200, "the click");
        assert!(system::until(START, || world.response(TEMPLATE, 0).exists()), "no response");
        fs::remove_file(world.response(TEMPLATE, 0)).unwrap();
        // A flush may file it before a look has seen that its agent has the outcome.
        let taken = |text: &str| {
            let record: Value = serde_json::from_str(text).unwrap_or_default();
            record["waiters"][0]["response"] == "taken"
        };
        let filed = || world.record("settled").filter(|(_, text)| taken(text));
        assert!(system::until(START, || filed().is_some()), "the ask is not filed");
        let (_, settled) = filed().unwrap();
        world.stop();
        Self { settled, ..open }
    }

    /// Lets the daemon ask, and nobody answer.
    pub(crate) fn make_open(folder: PathBuf, chat: &Arc<Chat>, request: &Value) -> (Self, World) {
        let mut world = World::new(Host::Askd, folder, 1, chat);
        world.start();
        let posts = chat.posts();
        let text =
            request.to_string().replace(&marker(number_in(request.to_string().as_bytes()).unwrap()), &marker(TEMPLATE));
        floor::place(&world.ipc(0).join("tasks"), "request.json", text.as_bytes()).unwrap();
        assert!(chat.wait_for_posts(posts + 1, START), "the card was not posted");
        // A long one comes after its texts.
        let posted = || serde_json::from_slice::<Value>(&chat.last_post()).ok().as_ref().and_then(button);
        assert!(system::until(START, || posted().is_some()), "the card has no button");
        let card = posted().unwrap();
        let is_open = |text: &str| {
            let record: Value = serde_json::from_str(text).unwrap_or_default();
            record["stage"]["name"] == "open" && record["message_id"] == ts(TEMPLATE)
        };
        let found = system::until(START, || world.record("pending_questions").is_some_and(|(_, text)| is_open(&text)));
        assert!(found, "the ask is not open");
        let (id, open) = world.record("pending_questions").unwrap();
        let day = fs::read_dir(world.folder.join("state/audit")).unwrap().flatten().next().unwrap().file_name();
        let audit = PathBuf::from("state/audit").join(day);
        let lines = fs::read_to_string(world.folder.join(&audit)).unwrap();
        let format = fs::read_to_string(world.folder.join(FORMAT)).unwrap();
        let record: Value = serde_json::from_str(&open).unwrap();
        let short = record["short_id"].as_str().unwrap().to_owned();
        (Self { id, short, open, settled: String::new(), audit: (audit, lines), format, card }, world)
    }

    /// The id of an ask.
    fn id(number: u64) -> String {
        let mut mixed = u128::from(number) + 1;
        for _ in 0..3 {
            mixed = mixed.wrapping_mul(0x2545_F491_4F6C_DD1D_9E37_79B9_7F4A_7C15) ^ (mixed >> 61);
        }
        format!("{mixed:032x}")
    }

    fn of(&self, text: &str, number: u64, group_number: usize) -> String {
        let letters = b"abcdefghjkmnpqrstuvwxyz";
        #[expect(clippy::cast_possible_truncation, reason = "a small index")]
        let letter = char::from(letters[(number % letters.len() as u64) as usize]);
        text.replace(&self.id, &Self::id(number))
            .replace(&marker(TEMPLATE), &marker(number))
            .replace(&ts(TEMPLATE), &ts(number))
            .replace("g000000", &group(group_number))
            .replace("C000000", &format!("C{group_number:06}"))
            .replace(&format!("\"{}\"", self.short), &format!("\"{letter}{}\"", 1 + number % 99))
    }

    pub(crate) fn button(&self, number: u64, group: usize) -> Button {
        let of = |text: &str| self.of(text, number, group);
        let card = &self.card;
        Button { block_id: of(&card.block_id), action_id: of(&card.action_id), value: of(&card.value) }
    }

    /// Makes records of asks that are posted and wait, and what the audit log says of them. Not synced.
    pub(crate) fn fill(&self, world: &World, asks: &[(u64, usize)]) {
        self.write(&self.open, "pending_questions", world, asks);
        if world.host == Host::Askd {
            let (file, lines) = &self.audit;
            let file = world.folder.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(world.folder.join(FORMAT), &self.format).unwrap();
            let mut file = std::io::BufWriter::new(File::options().create(true).append(true).open(file).unwrap());
            for (number, group) in asks {
                std::io::Write::write_all(&mut file, self.of(lines, *number, *group).as_bytes()).unwrap();
            }
        }
    }

    /// Makes records of asks that were settled and filed that long ago.
    pub(crate) fn fill_settled(&self, world: &World, asks: &[(u64, usize)], ago: Duration) {
        let settled = earlier(serde_json::from_str(&self.settled).unwrap(), ago);
        self.write(&settled.to_string(), "settled", world, asks);
    }

    /// Makes records of asks whose time is over.
    pub(crate) fn fill_stale(&self, world: &World, asks: &[(u64, usize)]) {
        // Asked ten days earlier, so it ended three days ago.
        let stale = earlier(serde_json::from_str(&self.open).unwrap(), Duration::from_secs(10 * 86_400));
        self.write(&stale.to_string(), "pending_questions", world, asks);
    }

    fn write(&self, text: &str, kind: &str, world: &World, asks: &[(u64, usize)]) {
        std::thread::scope(|scope| {
            for part in asks.chunks(asks.len().div_ceil(2).max(1)) {
                scope.spawn(move || {
                    for (number, group) in part {
                        let folder = world.state(kind, *group);
                        // The reference finds an ask by its card.
                        let name = if world.host == Host::Askd { Self::id(*number) } else { marker(*number) };
                        let file = folder.join(format!("{name}.json"));
                        let text = self.of(text, *number, *group);
                        if fs::write(&file, &text).is_err() {
                            fs::create_dir_all(folder).unwrap();
                            fs::write(file, text).unwrap();
                        }
                    }
                });
            }
        });
    }
}

/// The same record with each moment in it earlier.
fn earlier(value: Value, by: Duration) -> Value {
    match value {
        Value::String(text) => {
            let moment: Result<jiff::Timestamp, _> = text.parse();
            moment.map_or(Value::String(text), |moment| Value::String(format!("{:.3}", moment - by)))
        }
        Value::Array(values) => values.into_iter().map(|value| earlier(value, by)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, earlier(value, by))).collect(),
        other => other,
    }
}

/// The first button of a card.
pub(crate) fn button(card: &Value) -> Option<Button> {
    let actions = card["blocks"].as_array()?.iter().find(|block| block["type"] == "actions")?;
    let first = &actions["elements"][0];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Some(Button {
        block_id: text(&actions["block_id"])?,
        action_id: text(&first["action_id"])?,
        value: text(&first["value"])?,
    })
}

/// The same, with everything as long as it may be.
pub(crate) fn long_request(number: u64) -> Value {
    let text = |length: usize| "All tests pass. ".repeat(length / 16);
    let questions: Vec<Value> = (0..10)
        .map(|index| {
            let options: Vec<Value> = (0..10)
                .map(|option| json!({"label": format!("{option} {}", text(64)), "description": text(288)}))
                .collect();
            json!({"question": format!("{} {index} {}", marker(number), text(2_900)), "options": options})
        })
        .collect();
    json!({
        "type": "ask_user:ask", "request_id": marker(number), "timeoutMs": 604_800_000, "title": text(96),
        "context": text(2_992), "questions": questions,
    })
}

/// Asks with these numbers, spread over the groups in turn.
pub(crate) fn spread(numbers: std::ops::Range<u64>, groups: usize) -> Vec<(u64, usize)> {
    #[expect(clippy::cast_possible_truncation, reason = "a small index")]
    numbers.map(|number| (number, (number % groups as u64) as usize)).collect()
}

/// A folder that did not exist before.
pub(crate) fn fresh(base: &Path, name: &str) -> PathBuf {
    let mut number = 0;
    loop {
        let folder = base.join(format!("{name}-{number}"));
        if fs::create_dir(&folder).is_ok() {
            return folder;
        }
        number += 1;
    }
}
