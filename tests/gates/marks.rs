//! Secrets and texts that carry a mark, and everything that others can read: no secret may stand in it at any level of
//! the log, and no text of a question or answer above `debug`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use askd_sim::slack::{self, Slack, Token};
use askd_sim::whatsapp::{self, Person, Whatsapp};
use serde_json::{Value, json};

use crate::daemon::Daemon;
use crate::files;
use crate::history::Verdict;

const SOON: Duration = Duration::from_secs(90);
const ADA: &str = "15550001111";
/// What stands in every secret, and in every text. Letters and digits only: no encoding changes them.
const SECRET: &str = "S3cretS3cretMark";
const TEXT: &str = "Wordsoftheagent";
/// Levels, and whether texts may stand in such a log. `debug` is for those who look for a mistake in what was said.
const LEVELS: [(&str, bool); 5] =
    [("error", false), ("warn", false), ("info", false), ("debug", true), ("trace", true)];

/// Who asks what.
const ASKED: [(&str, &str); 4] = [("research", "s1"), ("ada", "w1"), ("gamma", "g1"), ("other", "o1")];

fn secret(what: &str) -> String {
    format!("{SECRET}{what}{}", "0123456789".repeat(3))
}

struct Life {
    folder: PathBuf,
    slack: Slack,
    phone: Whatsapp,
    daemon: Daemon,
    http: reqwest::Client,
    token: String,
}

/// Plays a life at each level and looks at all that it left.
pub(crate) async fn play(seed: u64, leaks: bool) -> Result<Verdict, String> {
    let mut verdict = Verdict::default();
    let mut looked = (0, 0);
    let lives = LEVELS.into_iter().zip(["text", "json"].into_iter().cycle());
    let lives =
        lives.map(|((level, texts), format)| async move { (level, texts, life(level, format, seed, leaks).await) });
    for (level, texts, places) in futures_util::future::join_all(lives).await {
        for (place, bytes) in places.map_err(|error| format!("{level}: {error}"))? {
            looked = (looked.0 + 1, looked.1 + bytes.len());
            let (ours, theirs) = (count(&bytes, SECRET), count(&bytes, TEXT));
            if ours > 0 && place.may != May::Both {
                verdict.found("secrets", ours, &format!("{level}: {}: {}", place.name, around(&bytes, SECRET)));
            }
            let allowed = place.may != May::Nothing || (texts && place.log);
            if theirs > 0 && !allowed {
                verdict.found("texts", theirs, &format!("{level}: {}: {}", place.name, around(&bytes, TEXT)));
            }
        }
    }
    verdict.note(format!("{} levels, {} places, {} KiB read", LEVELS.len(), looked.0, looked.1 / 1024));
    Ok(verdict)
}

/// What may stand in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum May {
    Nothing,
    /// The group's own folder, askd's own records, and the chats of that group.
    Texts,
    /// What the gate itself wrote: the settings.
    Both,
}

struct Place {
    name: String,
    may: May,
    log: bool,
}

fn place(name: impl Into<String>, may: May) -> Place {
    Place { name: name.into(), may, log: false }
}

fn count(bytes: &[u8], mark: &str) -> usize {
    bytes.windows(mark.len()).filter(|window| *window == mark.as_bytes()).count()
}

fn around(bytes: &[u8], mark: &str) -> String {
    let at = bytes.windows(mark.len()).position(|window| window == mark.as_bytes()).unwrap_or(0);
    let part = &bytes[at.saturating_sub(160)..bytes.len().min(at + 60)];
    String::from_utf8_lossy(part).replace('\n', " ")
}

async fn life(level: &'static str, format: &str, seed: u64, leaks: bool) -> Result<Vec<(Place, Vec<u8>)>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let life = begin(level, format, folder.path(), seed, leaks).await?;
    let lived = life.live().await;
    let read = life.read().await;
    life.daemon.kill().await;
    lived.map_err(|error| format!("{error}\n{}", life.tail()))?;
    Ok(read)
}

async fn begin(level: &'static str, format: &str, folder: &Path, seed: u64, leaks: bool) -> Result<Life, String> {
    let say = |error: std::io::Error| error.to_string();
    let scopes = slack::Config::default().bot_tokens.into_iter().flat_map(|token| token.scopes).collect();
    let bot = Token { secret: format!("xoxb-{}", secret("bot")), scopes };
    let config = slack::Config {
        pace: Duration::ZERO,
        seed,
        bot_tokens: vec![bot.clone()],
        signing_secret: secret("signing"),
        ..slack::Config::default()
    };
    let slack = Slack::start(config).await.map_err(say)?;
    let config = whatsapp::Config {
        people: vec![Person::new(ADA, "Ada")],
        seed,
        token: secret("access"),
        app_secret: secret("app"),
        verify_token: secret("verify"),
        ..whatsapp::Config::default()
    };
    let phone = Whatsapp::start(config).await.map_err(say)?;
    let token = secret("web");
    // Broken on purpose by the settings: a group that is named like a secret is named everywhere.
    let leak = if leaks { format!("[groups.{SECRET}]\nroutes = [{{ channel = \"web\" }}]\n") } else { String::new() };
    let text = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{token}\"\n\
         [log]\nfilter = \"{level}\"\nformat = \"{format}\"\n\
         [slack]\nbot_token = \"{}\"\nsigning_secret = \"{}\"\npace = \"0s\"\napi_url = \"{}\"\n\
         [whatsapp]\naccess_token = \"{}\"\napp_secret = \"{}\"\nverify_token = \"{}\"\nphone_number_id = \"{}\"\napi_url = \"{}\"\n\
         [groups.research]\nroutes = [{{ channel = \"slack\", chat = \"C0AGENTS\", responders = [\"U0ALICE\"] }}]\n\
         [groups.ada]\nroutes = [{{ channel = \"whatsapp\", chat = \"{ADA}\" }}]\n\
         [groups.gamma]\nroutes = [{{ channel = \"web\" }}]\nmax_attempts = 1\n\
         [groups.other]\nroutes = [{{ channel = \"slack\", chat = \"C0RESEARCH\", responders = [\"U0BOB\"] }}]\n{leak}",
        folder.join("data").display(),
        bot.secret,
        secret("signing"),
        slack.api_url(),
        secret("access"),
        secret("app"),
        secret("verify"),
        phone.config().phone_number_id,
        phone.api_url()
    );
    files::write(&folder.join("askd.toml"), text.as_bytes()).map_err(say)?;
    let daemon = Daemon::new(folder, None)?;
    daemon.start_for(&slack, &phone).await?;
    if leaks {
        files::publish(
            &folder.join(format!("data/ipc/{SECRET}/tasks")),
            "x.json",
            b"{\"type\":\"ask_user:ask\"}",
            false,
        )
        .map_err(say)?;
    }
    Ok(Life { folder: folder.to_owned(), slack, phone, daemon, http: crate::daemon::client()?, token })
}

fn words(what: &str) -> String {
    format!("{TEXT} {what}")
}

impl Life {
    fn tail(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        log.lines().rev().take(10).collect::<Vec<_>>().join("\n")
    }

    async fn wait<T>(&self, what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> Result<T, String> {
        let until = Instant::now() + SOON;
        loop {
            if let Some(found) = look().await {
                return Ok(found);
            }
            if Instant::now() > until {
                return Err(format!("waited too long for {what}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn put(&self, group: &str, name: &str, bytes: &[u8]) -> Result<(), String> {
        let tasks = self.folder.join("data/ipc").join(group).join("tasks");
        files::publish(&tasks, name, bytes, false).map_err(|error| error.to_string())
    }

    fn ask(&self, group: &str, request: &str) -> Result<(), String> {
        let content = json!({"type": "ask_user:ask", "request_id": request, "title": words("title"), "context": words("context"),
            "opCode": words("code"), "questions": [{"question": words(request), "header": "Head", "placeholder": words("hint"),
            "options": [{"label": words("one"), "description": words("described")}, words("two")]}]});
        self.put(group, &format!("{request}.json"), content.to_string().as_bytes())
    }

    async fn call(&self, method: &str, path: &str, token: &str, body: Option<&Value>) -> Option<(u16, Vec<u8>)> {
        let call = self.http.request(method.parse().ok()?, format!("{}{path}", self.daemon.url())).bearer_auth(token);
        let call = if let Some(body) = body { call.json(body) } else { call };
        let answer = call.send().await.ok()?;
        Some((answer.status().as_u16(), answer.bytes().await.ok()?.to_vec()))
    }

    /// The id of the ask of a request, and its state.
    async fn found(&self, request: &str) -> Option<String> {
        let (_, list) = self.call("GET", "/api/v1/asks?limit=200", &self.token, None).await?;
        let list: Value = serde_json::from_slice(&list).ok()?;
        let ask = list["asks"].as_array()?.iter().find(|ask| ask["request_id"] == request)?.clone();
        Some(ask["id"].as_str()?.to_owned())
    }

    async fn answered(&self, group: &str, request: &str) -> Result<(), String> {
        let response = self.folder.join(format!("data/ipc/{group}/responses/{request}.json"));
        self.wait(request, async || response.exists().then_some(())).await
    }

    /// Asks and answers on each channel, and everything that is worth a line in the log.
    async fn live(&self) -> Result<(), String> {
        let hello = self.phone.person_says(ADA, &words("hello"));
        self.wait("hello", async || {
            self.phone.webhooks().iter().any(|hook| hook.body.replace("\\/", "/").contains(&hello)).then_some(())
        })
        .await?;
        for (group, request) in ASKED {
            self.ask(group, request)?;
        }
        let card = self
            .wait("a card", async || {
                self.slack.messages("C0AGENTS").into_iter().find(|card| !card.elements().is_empty())
            })
            .await?;
        // A stranger, words that do not fit, a forged webhook, a wrong token: each is a line.
        self.slack.click("C0AGENTS", &card.ts, "pick:0:0", "U0STRANGER").await?;
        self.slack.reply_in_thread("C0AGENTS", &card.ts, "U0ALICE", &words("neither of both"))?;
        let mut forged = slack::Raw::new(
            &self.slack,
            &format!("{}/slack/interactions", self.daemon.url()),
            "text/plain",
            words("forged").into_bytes(),
        );
        forged.signature = Some(format!("v0={}", secret("wrong")));
        self.slack.send_raw(forged).await;
        self.phone.webhook_raw(words("forged").as_bytes(), Some(&secret("wrong"))).await;
        self.call("GET", "/api/v1/asks", &secret("another"), None).await;
        self.call("GET", &format!("/api/v1/asks?q={}", secret("query")), &self.token, None).await;
        self.put(
            "gamma",
            "bad.json",
            format!(
                "{{\"type\":\"ask_user:ask\",\"request_id\":\"bad\",\"title\":\"{}\",\"questions\":7}}",
                words("bad")
            )
            .as_bytes(),
        )?;
        self.put("gamma", "odd.json", format!("{{\"type\":\"ask_user:ask\",\"{}\":", words("torn")).as_bytes())?;
        self.slack.faults().next("chat.update", slack::FaultKind::Status(503), 1);
        self.slack.click("C0AGENTS", &card.ts, "pick:0:0", "U0ALICE").await?;
        self.answered("research", "s1").await?;
        let shown = |message: &whatsapp::Message| message.text.contains("w1") && message.stage.shown();
        let question = self.phone.wait_for_message(shown, SOON).await.ok_or("no question on the phone")?;
        self.phone.person_says(ADA, &words("neither"));
        self.phone.person_quotes(ADA, &question.id, &words("own words"));
        self.answered("ada", "w1").await?;
        // What a person has to be told is kept until they were told, and no longer.
        let told = |message: &whatsapp::Message| message.text.contains("Already answered") && message.stage.shown();
        self.phone.wait_for_message(told, SOON).await.ok_or("the second answer was not refused")?;
        let kept = self.folder.join("data/state/channels/whatsapp.json");
        let forgotten = || count(&std::fs::read(&kept).unwrap_or_default(), TEXT) == 0;
        self.wait("what was told to be forgotten", async || forgotten().then_some(())).await?;
        let id = self.wait("g1", async || self.found("g1").await).await?;
        let path = format!("/api/v1/asks/{id}");
        for (verb, body) in [
            ("answer", json!({"answers": { (words("unknown")): words("answer") }})),
            ("answer", json!({"answers": {"g1_0": words("answer"), (words("g1")): 7}})),
            ("answer", json!({"answers": {"g1_0": words("my own")}})),
            ("answer", json!({"answers": {"g1_0": words("too late")}})),
        ] {
            self.call("POST", &format!("{path}/{verb}"), &self.token, Some(&body)).await;
        }
        self.answered("gamma", "g1").await?;
        // The same again after a kill: what a start says about what it finds.
        self.daemon.kill().await;
        self.daemon.spawn().await?;
        let url = self.daemon.listening().await?;
        self.slack.set_interactivity_url(Some(format!("{url}/slack/interactions")));
        self.wait("o1", async || self.found("o1").await).await?;
        self.put("other", "o2.json", json!({"type": "ask_user:cancel", "request_id": "o1"}).to_string().as_bytes())?;
        self.answered("other", "o1").await
    }

    /// Everything that somebody else can read.
    async fn read(&self) -> Vec<(Place, Vec<u8>)> {
        let mut found = Vec::new();
        for path in ["/metrics", "/healthz", "/readyz", "/", "/api/v1/asks", "/api/v1/status", "/nothing"] {
            if let Ok(answer) = self.http.get(format!("{}{path}", self.daemon.url())).send().await {
                let headers = format!("{:?}", answer.headers()).into_bytes();
                found.push((place(format!("the headers of {path}"), May::Nothing), headers));
                found.push((place(path, May::Nothing), answer.bytes().await.unwrap_or_default().to_vec()));
            }
        }
        for path in ["/api/v1/asks", "/api/v1/asks?q=nothing", "/api/v1/asks/x"] {
            if let Some((_, bytes)) = self.call("GET", path, &self.token, None).await {
                found.push((place(format!("{path} with the token"), May::Texts), bytes));
            }
        }
        if let Some(pid) = self.daemon.pid().await {
            for file in ["cmdline", "comm", "status", "maps"] {
                found.push((
                    place(format!("/proc/{file}"), May::Nothing),
                    std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default(),
                ));
            }
        }
        for (channel, may) in [("C0AGENTS", May::Texts), ("C0RESEARCH", May::Texts)] {
            let said = format!("{:?}", self.slack.messages(channel));
            found.push((place(format!("the chat {channel}"), may), said.into_bytes()));
        }
        let whispered = format!("{:?}", self.slack.ephemerals("U0STRANGER"));
        found.push((place("what a stranger was told", May::Nothing), whispered.into_bytes()));
        self.files(&self.folder, &mut found);
        found
    }

    fn files(&self, folder: &Path, found: &mut Vec<(Place, Vec<u8>)>) {
        for name in files::names(folder) {
            let path = folder.join(&name);
            if path.is_dir() {
                self.files(&path, found);
                continue;
            }
            let shown = path.strip_prefix(&self.folder).unwrap_or(&path).to_string_lossy().into_owned();
            let may = match shown.as_str() {
                "askd.toml" => May::Both,
                "askd" => continue,
                "log" => May::Nothing,
                path if path.contains("/audit/") || path.contains("/channels/") => May::Nothing,
                _ => May::Texts,
            };
            let bytes = std::fs::read(&path).unwrap_or_default();
            let another = |(group, request): &(&str, &str)| {
                ASKED.iter().any(|(known, _)| known != group && shown.contains(&format!("/{known}/")))
                    && count(&bytes, &words(request)) > 0
            };
            if let Some((group, _)) = ASKED.iter().find(|asked| another(asked)) {
                found.push((place(format!("{shown}, a text of {group}"), May::Nothing), bytes.clone()));
            }
            let mut place = place(shown, may);
            place.log = place.name == "log";
            found.push((place, bytes));
        }
    }
}
