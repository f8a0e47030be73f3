//! Several hundred webhooks, calls and files that must change nothing: of strangers, unsigned, changed, replayed, forged,
//! from before the question, or for another card. After each of them the records are compared byte by byte.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use askd_sim::slack::{self, BOT_TOKEN, Message, Raw, SIGNING_SECRET, Slack};
use askd_sim::whatsapp::{self, Person, Whatsapp};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::daemon::{Daemon, TOKEN};
use crate::history::Verdict;
use crate::{files, journal};

const CHANNEL: &str = "C0AGENTS";
const ELSEWHERE: &str = "C0RESEARCH";
const ALICE: &str = "U0ALICE";
const BOB: &str = "U0BOB";
const STRANGER: &str = "U0STRANGER";
const ADA: &str = "15550001111";
const MALLORY: &str = "15550009999";
const SOON: Duration = Duration::from_secs(60);

/// What is sent.
enum Send {
    Slack(Raw),
    Whatsapp {
        body: Vec<u8>,
        signature: Option<String>,
    },
    /// Method, path, headers (each line whole) and body.
    Http(&'static str, String, String, String),
    /// A file of an agent: group, name, content.
    File(&'static str, String, Vec<u8>),
}

/// One try, and the statuses that may come back.
struct Cell {
    name: String,
    send: Send,
    wants: &'static [u16],
}

struct World {
    slack: Slack,
    phone: Whatsapp,
    daemon: Daemon,
    http: reqwest::Client,
    data: PathBuf,
    cells: Vec<Cell>,
}

type Records = BTreeMap<PathBuf, Vec<u8>>;

/// Everything that askd has stored about asks and blocks, in files and in the journal, and every response. An ask has no folder in
/// here: one that is over moves to another one with a later flush, and says the same there.
fn records(data: &Path) -> Records {
    let asks = journal::overlaid(&data.join("state"), || {
        let mut asks = Records::new();
        for folder in ["state/pending_questions", "state/settled"] {
            collect(&data.join(folder), &mut asks, |name| !name.starts_with('.'));
        }
        asks.into_iter().map(|(path, bytes)| (path, String::from_utf8_lossy(&bytes).into_owned())).collect()
    });
    let name = |path: PathBuf| path.file_name().map(PathBuf::from).unwrap_or_default();
    let mut found: Records = asks.into_iter().map(|(path, text)| (name(path), text.into_bytes())).collect();
    collect(&data.join("state/groups"), &mut found, |name| !name.starts_with('.'));
    collect(&data.join("ipc"), &mut found, |name| !name.starts_with('.') && name.contains(".json"));
    found.retain(|path, _| !path.to_string_lossy().contains("/tasks/"));
    found
}

fn collect(folder: &Path, found: &mut Records, wanted: impl Fn(&str) -> bool + Copy) {
    for name in files::names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            collect(&path, found, wanted);
        } else if wanted(&name)
            && let Ok(bytes) = std::fs::read(&path)
        {
            found.insert(path, bytes);
        }
    }
}

/// Plays it and judges.
pub(crate) async fn play(seed: u64, sabotage: Option<&'static str>) -> Result<Verdict, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut world = begin(folder.path(), seed, sabotage).await?;
    let played = world.play().await;
    world.daemon.kill().await;
    let verdict = played?;
    if !verdict.findings().is_empty() && sabotage.is_none() {
        crate::keep(&folder.path().join("log"));
    }
    Ok(verdict)
}

async fn begin(folder: &Path, seed: u64, sabotage: Option<&'static str>) -> Result<World, String> {
    let say = |error: std::io::Error| error.to_string();
    let slack = slack::Config { pace: Duration::ZERO, seed, ..slack::Config::default() };
    let slack = Slack::start(slack).await.map_err(say)?;
    let people = vec![Person::new(ADA, "Ada"), Person::new(MALLORY, "Mal")];
    let phone = whatsapp::Config { people, seed, pair_every_ms: 0, ..whatsapp::Config::default() };
    let phone = Whatsapp::start(phone).await.map_err(say)?;
    let data = folder.join("data");
    let text = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{TOKEN}\"\n\
         [asks]\nrender_timeout = \"60s\"\n[slack]\nbot_token = \"{BOT_TOKEN}\"\nsigning_secret = \"{SIGNING_SECRET}\"\npace = \"0s\"\napi_url = \"{}\"\n\
         [whatsapp]\naccess_token = \"sim-token\"\napp_secret = \"sim-app-secret\"\nverify_token = \"sim-verify-token\"\n\
         phone_number_id = \"{}\"\napi_url = \"{}\"\n\
         [groups.research]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\", \"{BOB}\"] }}]\n\
         [groups.beta]\nroutes = [{{ channel = \"slack\", chat = \"{ELSEWHERE}\", responders = [\"{BOB}\"] }}]\n\
         [groups.ada]\nroutes = [{{ channel = \"whatsapp\", chat = \"{ADA}\" }}]\n\
         [groups.gamma]\nroutes = [{{ channel = \"web\" }}]\n",
        data.display(),
        slack.api_url(),
        phone.config().phone_number_id,
        phone.api_url()
    );
    files::write(&folder.join("askd.toml"), text.as_bytes()).map_err(say)?;
    let daemon = Daemon::new(folder, sabotage)?;
    daemon.start_for(&slack, &phone).await?;
    Ok(World { slack, phone, daemon, http: crate::daemon::client()?, data, cells: Vec::new() })
}

/// Waits until `look` finds something.
async fn wait<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> Result<T, String> {
    let until = Instant::now() + SOON;
    loop {
        if let Some(found) = look().await {
            return Ok(found);
        }
        if Instant::now() > until {
            return Err(format!("waited too long for {what}"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl World {
    async fn play(&mut self) -> Result<Verdict, String> {
        self.set_the_scene().await?;
        let before = self.quiet().await?;
        let (mut verdict, mut by_kind) = (Verdict::default(), BTreeMap::<String, usize>::new());
        for cell in std::mem::take(&mut self.cells) {
            *by_kind.entry(cell.name.split(':').next().unwrap_or_default().to_owned()).or_default() += 1;
            let status = self.send(&cell.send).await;
            if !cell.wants.contains(&status) {
                verdict.found("other replies", 1, &format!("{}: {status}, not {:?}", cell.name, cell.wants));
            }
            self.compare(&before, &cell.name, &mut verdict);
            if verdict.bad("state changes") > 0 {
                break;
            }
        }
        // What is done after the reply has been done by now.
        tokio::time::sleep(Duration::from_secs(2)).await;
        self.compare(&before, "afterwards", &mut verdict);
        let all: usize = by_kind.values().sum();
        let kinds: Vec<String> = by_kind.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        verdict.note(format!("{all} cells ({})", kinds.join(", ")));
        if all < 300 && verdict.findings().is_empty() {
            verdict.found("other replies", 1, "fewer than 300 cells");
        }
        if verdict.findings().is_empty() {
            self.the_honest_still_get_through(&mut verdict).await?;
        }
        Ok(verdict)
    }

    fn compare(&self, before: &Records, name: &str, verdict: &mut Verdict) {
        let now = records(&self.data);
        if now == *before {
            return;
        }
        let paths: Vec<_> = now.iter().filter(|(path, bytes)| before.get(*path) != Some(*bytes)).collect();
        let gone = before.keys().filter(|path| !now.contains_key(*path));
        let paths: Vec<_> = paths.iter().map(|(path, _)| *path).chain(gone).collect();
        verdict.found("state changes", 1, &format!("{name}: {paths:?}"));
    }

    /// Waits until nothing has been written for longer than a record may wait to be filed, which is 5 s.
    async fn quiet(&self) -> Result<Records, String> {
        let (mut last, mut since) = (records(&self.data), Instant::now());
        let until = Instant::now() + SOON;
        while since.elapsed() < Duration::from_secs(6) {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let now = records(&self.data);
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if Instant::now() > until {
                return Err("the records never come to rest".to_owned());
            }
        }
        Ok(last)
    }

    fn ask(&self, group: &str, request: &str, text: &str) -> Result<(), String> {
        let question = json!({"question": text, "options": ["red", "blue"], "custom": true});
        self.ask_this(group, request, &json!([question]))
    }

    fn ask_this(&self, group: &str, request: &str, questions: &Value) -> Result<(), String> {
        let content = json!({"type": "ask_user:ask", "request_id": request, "questions": questions});
        let tasks = self.data.join("ipc").join(group).join("tasks");
        let written = files::publish(&tasks, &format!("{request}.json"), content.to_string().as_bytes(), false);
        written.map_err(|error| error.to_string())
    }

    /// The id of the ask that a request became, once it can be answered.
    async fn id_of(&self, request: &str) -> Result<String, String> {
        wait(request, async || {
            let open = self.daemon.open().await;
            let ask = open.into_iter().find(|ask| ask["request_id"] == request)?;
            Some(ask["id"].as_str()?.to_owned())
        })
        .await
    }

    async fn card(&self, channel: &str, text: &str) -> Result<Message, String> {
        let shows = |message: &&Message| message.visible_text().contains(text) && !message.elements().is_empty();
        wait(text, async || self.slack.messages(channel).iter().find(shows).cloned()).await
    }

    async fn answered(&self, group: &str, request: &str) -> Result<(), String> {
        let response = self.data.join(format!("ipc/{group}/responses/{request}.json"));
        wait("a response", async || response.exists().then_some(())).await
    }

    /// Open and settled asks on every channel, and all the cells about them.
    async fn set_the_scene(&mut self) -> Result<(), String> {
        let hello = self.phone.person_says(ADA, "hello");
        wait("the hello", async || {
            self.phone
                .webhooks()
                .iter()
                .any(|hook| hook.body.replace("\\/", "/").contains(&hello) && hook.status == 200)
                .then_some(())
        })
        .await?;
        self.ask("research", "old", "Old one?")?;
        let old = self.card(CHANNEL, "Old one?").await?;
        let old_click = self.slack.payload_of_click(CHANNEL, &old.ts, "pick:0:0", BOB)?;
        self.slack.click(CHANNEL, &old.ts, "pick:0:0", ALICE).await?;
        self.answered("research", "old").await?;
        self.ask("gamma", "over", "Over?")?;
        let over = self.id_of("over").await?;
        let said = self.daemon.call(&format!("/asks/{over}/answer"), Some(&json!({"answers": {"Over?": "red"}}))).await;
        if said.as_ref().is_none_or(|(status, _)| *status != 200) {
            return Err(format!("the scene: {said:?}"));
        }
        self.ask("ada", "past", "Past?")?;
        let shown = |text: &'static str| {
            move |message: &whatsapp::Message| message.text.contains(text) && message.stage.shown()
        };
        let past = self.phone.wait_for_message(shown("Past?"), SOON).await.ok_or("no question on the phone")?;
        self.phone.person_quotes(ADA, &past.id, "1");
        self.answered("ada", "past").await?;
        self.ask("research", "s1", "Which one?")?;
        let two = json!([{"question": "Form one?", "type": "multi-select", "options": ["red", "blue"]},
            {"question": "Form two?", "required": false}]);
        self.ask_this("research", "s2", &two)?;
        self.ask("beta", "b1", "Of beta?")?;
        self.ask("ada", "w1", "On the phone?")?;
        self.ask("gamma", "g1", "In the inbox?")?;
        let question =
            self.phone.wait_for_message(shown("On the phone?"), SOON).await.ok_or("no question on the phone")?;
        let ids = [self.id_of("s1").await?, self.id_of("s2").await?, self.id_of("w1").await?, self.id_of("g1").await?];
        let cards = (self.card(CHANNEL, "Which one?").await?, self.card(ELSEWHERE, "Of beta?").await?);
        let form = self.card(CHANNEL, "Form one?").await?;
        let mut form_click = self.slack.payload_of_click(CHANNEL, &cards.0.ts, "pick:0:0", ALICE)?;
        form_click["container"]["message_ts"] = json!(form.ts);
        form_click["message"] = Value::Null;
        let click = self.slack.payload_of_click(CHANNEL, &cards.0.ts, "pick:0:0", ALICE)?;
        let of_beta = self.slack.payload_of_click(ELSEWHERE, &cards.1.ts, "pick:0:0", BOB)?;
        // A page displays it, so that nothing about it is due for as long as this takes.
        self.daemon.call(&format!("/asks/{}/shown", ids[3]), Some(&json!({}))).await;
        self.slack_signatures(&click);
        self.slack_people(&click);
        self.slack_values(&click, &of_beta);
        self.slack_forms(&form_click, &ids[1]);
        self.slack_late(&old_click);
        self.slack_threads(&cards.0);
        self.slack_shapes(&click);
        self.whatsapp_signatures();
        self.whatsapp_people(&question);
        self.whatsapp_before(&question);
        self.whatsapp_shapes();
        self.inbox_doors(&ids[3]);
        self.inbox_values(&ids[3], &over);
        self.agents();
        Ok(())
    }

    fn cell(&mut self, name: String, wants: &'static [u16], send: Send) {
        self.cells.push(Cell { name, send, wants });
    }

    async fn send(&self, send: &Send) -> u16 {
        match send {
            Send::Slack(raw) => self.slack.send_raw(raw.clone()).await.status.unwrap_or(0),
            Send::Whatsapp { body, signature } => {
                let call = self.http.post(format!("{}/whatsapp/webhook", self.daemon.url())).body(body.clone());
                let call = match signature {
                    Some(signature) => call.header("x-hub-signature-256", signature),
                    None => call,
                };
                call.send().await.map_or(0, |answer| answer.status().as_u16())
            }
            Send::Http(method, path, headers, body) => self.raw(method, path, headers, body).await.unwrap_or(0),
            Send::File(group, name, bytes) => {
                let tasks = self.data.join("ipc").join(group).join("tasks");
                let written = files::publish(&tasks, name, bytes, false);
                let path = tasks.join(name);
                // Read, left alone or set aside: a moment is enough for all three.
                let until = Instant::now() + Duration::from_millis(400);
                while path.exists() && Instant::now() < until {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                written.map_or(0, |()| 200)
            }
        }
    }

    /// A call byte by byte: only so a header can come twice, or be wrong.
    async fn raw(&self, method: &str, path: &str, headers: &str, body: &str) -> Option<u16> {
        let url = self.daemon.url();
        let address = url.strip_prefix("http://")?;
        let host =
            if headers.to_ascii_lowercase().contains("host:") { String::new() } else { format!("host: {address}\r\n") };
        let call = format!(
            "{method} {path} HTTP/1.1\r\n{host}{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut stream = tokio::net::TcpStream::connect(address).await.ok()?;
        stream.write_all(call.as_bytes()).await.ok()?;
        // The line with the status is enough: a stream of events would go on.
        let mut reply = [0; 64];
        let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut reply)).await.ok()?.ok()?;
        std::str::from_utf8(&reply[..read]).ok()?.split(' ').nth(1)?.parse().ok()
    }

    fn interactions(&self) -> String {
        format!("{}/slack/interactions", self.daemon.url())
    }

    fn events(&self) -> String {
        format!("{}/slack/events", self.daemon.url())
    }

    fn interaction(&self, payload: &Value) -> Raw {
        Raw::interaction(&self.slack, &self.interactions(), payload)
    }

    /// A click of a genuine payload that was changed.
    fn forged(&mut self, name: String, payload: &Value, forge: impl FnOnce(&mut Value)) {
        let mut payload = payload.clone();
        payload["trigger_id"] = json!(format!("{name}.{}", self.cells.len()));
        forge(&mut payload);
        let send = Send::Slack(self.interaction(&payload));
        self.cell(name, &[200], send);
    }

    fn slack_signatures(&mut self, click: &Value) {
        let event = json!({"type": "message", "channel": CHANNEL, "user": ALICE, "text": "red",
            "ts": "1.1", "thread_ts": click["container"]["message_ts"], "team": "T0ASKD"});
        let event = self.slack.event_payload(&event);
        let bodies = [
            ("a click", self.interaction(click)),
            ("a dismissal", {
                let mut payload = click.clone();
                payload["actions"][0]["action_id"] = json!("dismiss");
                self.interaction(&payload)
            }),
            ("a modal", self.interaction(&modal(click, "mine"))),
            ("a thread", Raw::event(&self.slack, &self.events(), &event)),
        ];
        for (what, honest) in bodies {
            let genuine = slack::sign(SIGNING_SECRET, 1, &honest.body);
            let mut flipped = honest.clone();
            if let Some(last) = flipped.body.last_mut() {
                *last ^= 1;
            }
            let signature = |text: &str| Raw { signature: Some(text.to_owned()), ..honest.clone() };
            let tries = [
                ("another secret", Raw { secret: Some("another".into()), ..honest.clone() }),
                ("an empty secret", Raw { secret: Some(String::new()), ..honest.clone() }),
                ("no signature", Raw { secret: None, ..honest.clone() }),
                ("an empty signature", signature("")),
                ("nonsense", signature("v0=00")),
                ("no hex", signature("v0=zz")),
                ("another version", signature(&genuine.replace("v0=", "v1="))),
                ("without a version", signature(genuine.trim_start_matches("v0="))),
                ("of another time", signature(&genuine)),
                ("a changed body", Raw { signature: Some(genuine.clone()), ..flipped }),
                ("half a signature", signature(&genuine[..genuine.len() / 2])),
                ("too old", Raw { skew: -302, ..honest.clone() }),
                ("a day old", Raw { skew: -86_400, ..honest.clone() }),
                ("from the future", Raw { skew: 302, ..honest.clone() }),
                ("of 1970", Raw { skew: i64::MIN / 4, ..honest.clone() }),
            ];
            for (why, raw) in tries {
                for url in [self.interactions(), self.events()] {
                    let at = if url.ends_with("events") { "events" } else { "interactions" };
                    let send = Send::Slack(Raw { url, ..raw.clone() });
                    self.cell(format!("signatures of Slack: {what}, {why}, at {at}"), &[401], send);
                }
            }
        }
    }

    /// People, workspaces and channels that may not answer, with every kind of click.
    fn slack_people(&mut self, click: &Value) {
        type Forge = fn(&mut Value);
        let people: [(&str, Forge); 10] = [
            ("a stranger", |payload| payload["user"]["id"] = json!(STRANGER)),
            ("nobody", |payload| payload["user"] = json!({})),
            ("an empty id", |payload| payload["user"]["id"] = json!("")),
            ("a name for an id", |payload| payload["user"]["id"] = json!("alice")),
            ("an id in small letters", |payload| payload["user"]["id"] = json!("u0alice")),
            ("an id with a space", |payload| payload["user"]["id"] = json!("U0ALICE ")),
            ("another workspace", |payload| payload["team"]["id"] = json!("T0OTHER")),
            ("an org-wide install of others", |payload| {
                payload["team"] = Value::Null;
                payload["user"]["team_id"] = json!("T0OTHER");
            }),
            ("another channel", |payload| payload["container"]["channel_id"] = json!(ELSEWHERE)),
            ("a private channel", |payload| payload["container"]["channel_id"] = json!("G0SECRET")),
        ];
        let kinds: [(&str, Forge); 7] = [
            ("opens a modal", |payload| payload["actions"][0]["action_id"] = json!("other:0")),
            ("picks", |_| ()),
            ("dismisses", |payload| payload["actions"][0]["action_id"] = json!("dismiss")),
            ("skips", |payload| payload["actions"][0]["action_id"] = json!("skip")),
            ("submits", |payload| payload["actions"][0]["action_id"] = json!("submit")),
            ("allows", |payload| payload["actions"][0]["action_id"] = json!("allow")),
            ("picks again", |payload| {
                payload["actions"][0]["action_id"] = json!("pick:0:1");
                payload["actions"][0]["value"] = json!("1");
            }),
        ];
        for (who, forge) in people {
            for (does, kind) in kinds {
                self.forged(format!("people in Slack: {who} {does}"), click, |payload| {
                    kind(payload);
                    forge(payload);
                });
            }
            // A modal says by itself where its card is.
            let mut theirs = click.clone();
            forge(&mut theirs);
            self.forged(format!("people in Slack: {who} sends a modal"), &theirs, |payload| {
                *payload = modal(payload, "mine");
            });
        }
    }

    /// Values that were not offered, and buttons of one card on another.
    fn slack_values(&mut self, click: &Value, of_beta: &Value) {
        for (nth, card) in ["", "{", "{}", "[]", r#"{"channel_id":7}"#].iter().enumerate() {
            self.forged(format!("forged values: modal of nowhere {nth}"), click, |payload| {
                *payload = modal(payload, "mine");
                payload["view"]["private_metadata"] = json!(card);
            });
        }
        for text in ["", "   "] {
            self.forged(format!("forged values: modal that says {text:?}"), click, |payload| {
                *payload = modal(payload, text);
            });
        }
        self.forged("forged values: modal of another card".to_owned(), click, |payload| {
            *payload = modal(payload, "mine");
            payload["view"]["state"] = modal(of_beta, "mine")["view"]["state"].clone();
        });
        for value in
            ["2", "7", "998", "-1", "1e0", "0x0", " 0", "red", "", "null", "4294967296", "18446744073709551616"]
        {
            self.forged(format!("forged values: {value:?}"), click, |payload| {
                payload["actions"][0]["value"] = json!(value);
            });
            self.forged(format!("forged values: {value:?} twice"), click, |payload| {
                payload["actions"][0]["value"] = json!(value);
                payload["actions"][0]["action_id"] = json!(format!("pick:0:{value}"));
            });
        }
        for action in
            ["pick", "pick:", "pick:0", "pick:1:0", "pick:0:0:0", "PICK:0:0", "choice:0", "answer", "", "submit:1:"]
        {
            self.forged(format!("forged values: action {action:?}"), click, |payload| {
                payload["actions"][0]["action_id"] = json!(action);
            });
        }
        let block = click["actions"][0]["block_id"].as_str().unwrap_or_default().to_owned();
        let id = block.split(':').nth(1).unwrap_or_default().to_owned();
        let zeros = "0".repeat(32);
        let blocks = [
            block.replace(":q0:", ":q1:"),
            block.replace(":q0:", ":q18446744073709551616:"),
            block.replace(":q0:", ":t0:"),
            block.replace(&id, &zeros),
            block.replace(&id, &id.to_uppercase()),
            block.replace(&id, &id[..id.len().saturating_sub(1)]),
            block.replace("askd:", "other:"),
            String::new(),
            "askd".to_owned(),
        ];
        for block in blocks {
            let kind = block.split(':').nth(2).unwrap_or_default().to_owned();
            // Ids in capitals are the same ids, so that one is no forgery where it is the only change.
            if block.contains(&id.to_uppercase()) && id.to_uppercase() != id {
                continue;
            }
            self.forged(format!("forged values: block {kind:?}"), click, |payload| {
                payload["actions"][0]["block_id"] = json!(block);
            });
        }
        // A button of one card pressed in another channel, on another card, by somebody who may answer only there.
        let actions = of_beta["actions"].clone();
        self.forged("forged values: a button of beta on a card of research".to_owned(), click, |payload| {
            payload["actions"] = actions;
        });
        let actions = click["actions"].clone();
        self.forged("forged values: a button of research on a card of beta".to_owned(), of_beta, |payload| {
            payload["actions"] = actions;
        });
    }

    /// A form that misses what it needs, or holds what was not offered.
    fn slack_forms(&mut self, click: &Value, form: &str) {
        let part = |part: &str| format!("askd:{form}:{part}:1");
        let select = |values: &[&str]| {
            let options: Vec<Value> = values.iter().map(|value| json!({"value": value})).collect();
            json!({"choice:0": {"type": "checkboxes", "selected_options": options}})
        };
        let forms = [
            json!({}),
            json!({ part("q0"): select(&[]) }),
            json!({ part("q0"): select(&["9"]) }),
            json!({ part("q0"): select(&["red"]) }),
            json!({ part("t1"): {"text:1": {"type": "plain_text_input", "value": "only the second"}} }),
            json!({ part("q7"): select(&["0"]) }),
            json!({ part("q0"): select(&["0", "9"]) }),
            json!({ "elsewhere": select(&["0"]) }),
        ];
        for (nth, values) in forms.into_iter().enumerate() {
            self.forged(format!("forged values: form {nth}"), click, |payload| {
                payload["actions"][0]["block_id"] = json!(part("do"));
                payload["actions"][0]["action_id"] = json!("submit");
                payload["state"] = json!({ "values": values });
            });
        }
    }

    /// Clicks on a card whose question has been answered, and copies of the click that answered it.
    fn slack_late(&mut self, old: &Value) {
        for action in ["pick:0:0", "pick:0:1", "dismiss", "skip", "submit"] {
            for who in [ALICE, BOB, STRANGER] {
                self.forged(format!("late clicks: {who} {action}"), old, |payload| {
                    payload["user"]["id"] = json!(who);
                    payload["actions"][0]["action_id"] = json!(action);
                    payload["actions"][0]["value"] = json!(action.rsplit(':').next());
                });
            }
        }
        for who in [ALICE, BOB, STRANGER] {
            self.forged(format!("late clicks: {who} opens a modal"), old, |payload| {
                payload["user"]["id"] = json!(who);
                payload["actions"][0]["action_id"] = json!("other:0");
            });
            self.forged(format!("late clicks: {who} sends a modal"), old, |payload| {
                payload["user"]["id"] = json!(who);
                *payload = modal(payload, "mine");
            });
        }
        for nth in 0..10 {
            let send = Send::Slack(self.interaction(old));
            self.cell(format!("late clicks: copy {nth}"), &[200], send);
        }
    }

    /// What is written in the thread of a card.
    fn slack_threads(&mut self, card: &Message) {
        let ts = card.ts.clone();
        let seconds: u64 = ts.split('.').next().and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
        let later = format!("{}.000100", seconds + 3);
        let cases = [
            ("a stranger", json!({"user": STRANGER})),
            ("a bot", json!({"user": ALICE, "bot_id": "B0OTHER"})),
            ("an app", json!({"user": ALICE, "app_id": "A0OTHER"})),
            ("an edit", json!({"user": ALICE, "subtype": "message_changed"})),
            ("a deletion", json!({"user": ALICE, "subtype": "message_deleted"})),
            ("nobody", json!({})),
            ("before the card", json!({"user": ALICE, "ts": format!("{}.000100", seconds - 60)})),
            ("in the same moment", json!({"user": ALICE, "ts": ts})),
            ("without a time", json!({"user": ALICE, "ts": null})),
            ("another channel", json!({"user": ALICE, "channel": ELSEWHERE})),
            ("another thread", json!({"user": ALICE, "thread_ts": "1.000001"})),
            ("no thread", json!({"user": ALICE, "thread_ts": null})),
            ("another workspace", json!({"user": ALICE, "workspace": "T0OTHER"})),
            ("no workspace", json!({"user": ALICE, "workspace": null, "team": null})),
            ("no such option", json!({"user": ALICE, "text": "7"})),
        ];
        for (what, changes) in cases {
            for said in ["red", "1"] {
                let mut event = json!({"type": "message", "channel": CHANNEL, "text": said, "ts": later,
                    "thread_ts": ts, "team": "T0ASKD"});
                for (key, value) in changes.as_object().into_iter().flatten() {
                    event[key] = value.clone();
                }
                let mut payload = self.slack.event_payload(&event);
                if let Some(workspace) = changes.get("workspace") {
                    payload["team_id"] = workspace.clone();
                }
                let send = Send::Slack(Raw::event(&self.slack, &self.events(), &payload));
                self.cell(format!("threads in Slack: {what}, {said:?}"), &[200], send);
            }
        }
    }

    /// Signed, but nothing that askd uses: modals, commands, shortcuts, and what is not even JSON.
    fn slack_shapes(&mut self, click: &Value) {
        let view = |kind: &str| {
            let mut payload = click.clone();
            payload["type"] = json!(kind);
            payload["view"] = json!({"id": "V1", "callback_id": "askd", "private_metadata": click["actions"][0]["block_id"],
                "state": {"values": {"q": {"pick:0:0": {"value": "0"}}}}});
            payload
        };
        let mut payloads: Vec<(String, Value)> = [
            "view_submission",
            "view_closed",
            "shortcut",
            "message_action",
            "block_suggestion",
            "dialog_submission",
            "interactive_message",
            "workflow_step_edit",
            "slash_command",
            "BLOCK_ACTIONS",
            "",
        ]
        .map(|kind| (format!("modals: {kind:?}"), view(kind)))
        .into();
        for odd in [json!([]), json!(null), json!(7), json!("x"), json!({"type": 7}), json!({"type": "block_actions"})]
        {
            payloads.push((format!("odd shapes: {odd}"), odd));
        }
        for actions in [json!([]), json!(null), json!({}), json!([[]]), json!("pick:0:0")] {
            let mut payload = click.clone();
            payload["actions"] = actions.clone();
            payloads.push((format!("odd shapes: actions {actions}"), payload));
        }
        for (name, payload) in payloads {
            let send = Send::Slack(self.interaction(&payload));
            self.cell(name, &[200], send);
        }
        for body in ["", "payload=", "payload={", "x=y", "payload=%00", "\u{0}", "payload=[[[[[[[["] {
            let url = self.interactions();
            let raw = Raw::new(&self.slack, &url, "application/x-www-form-urlencoded", body.as_bytes().to_vec());
            self.cell(format!("odd shapes: body {body:?}"), &[200], Send::Slack(raw));
        }
        for method in ["GET", "PUT", "DELETE", "PATCH"] {
            for path in ["/slack/interactions", "/slack/events"] {
                let send = Send::Http(method, path.to_owned(), String::new(), String::new());
                self.cell(format!("odd shapes: {method} {path}"), &[405], send);
            }
        }
    }

    /// A webhook of Meta with one message; its time is two seconds from now.
    fn hook(&self, changes: &Value) -> Vec<u8> {
        let mut message = json!({"from": ADA, "id": format!("wamid.forged{}", self.cells.len()),
            "timestamp": (seconds() + 2).to_string(), "type": "text", "text": {"body": "1"}});
        for (key, value) in changes.as_object().into_iter().flatten() {
            message[key] = value.clone();
        }
        let phone = message.as_object_mut().and_then(|message| message.remove("phone"));
        let phone = phone.unwrap_or_else(|| json!(self.phone.config().phone_number_id));
        let contact = json!({"wa_id": message["from"], "profile": {"name": "Ada"}});
        let value = json!({"messaging_product": "whatsapp", "metadata": {"phone_number_id": phone},
            "contacts": [contact], "messages": [message]});
        json!({"object": "whatsapp_business_account", "entry": [{"id": "1", "changes": [{"field": "messages", "value": value}]}]})
            .to_string()
            .into_bytes()
    }

    fn meta(&mut self, name: String, changes: &Value) {
        let body = self.hook(changes);
        let signature = Some(self.phone.sign(&body));
        self.cell(name, &[200], Send::Whatsapp { body, signature });
    }

    fn whatsapp_signatures(&mut self) {
        for (what, changes) in [
            ("a number", json!({})),
            ("words", json!({"text": {"body": "blue"}})),
            ("a dismissal", json!({"text": {"body": "cancel"}})),
        ] {
            let body = self.hook(&changes);
            let genuine = self.phone.sign(&body);
            let mut flipped = body.clone();
            if let Some(last) = flipped.last_mut() {
                *last = b' ';
            }
            let tries = [
                ("none", body.clone(), None),
                ("empty", body.clone(), Some(String::new())),
                ("no hash", body.clone(), Some("sha256=".to_owned())),
                ("sha1", body.clone(), Some(genuine.replace("sha256=", "sha1="))),
                ("without a kind", body.clone(), Some(genuine.trim_start_matches("sha256=").to_owned())),
                ("half of it", body.clone(), Some(genuine[..genuine.len() / 2].to_owned())),
                ("one digit less", body.clone(), Some(genuine[..genuine.len() - 1].to_owned())),
                ("no hex", body.clone(), Some(format!("sha256={}", "zz".repeat(32)))),
                ("zeros", body.clone(), Some(format!("sha256={}", "00".repeat(32)))),
                ("of another body", flipped, Some(genuine.clone())),
                ("of a longer body", [body.as_slice(), b" "].concat(), Some(genuine.clone())),
                ("Slack's", body.clone(), Some(slack::sign(SIGNING_SECRET, 1, &body))),
            ];
            for (why, body, signature) in tries {
                self.cell(format!("signatures of Meta: {what}, {why}"), &[401], Send::Whatsapp { body, signature });
            }
        }
        for query in [
            "",
            "?hub.mode=subscribe&hub.challenge=1&hub.verify_token=another",
            "?hub.mode=subscribe&hub.challenge=1",
            "?hub.mode=unsubscribe&hub.challenge=1&hub.verify_token=sim-verify-token",
        ] {
            let send = Send::Http("GET", format!("/whatsapp/webhook{query}"), String::new(), String::new());
            self.cell(format!("signatures of Meta: handshake {query:?}"), &[403], send);
        }
    }

    /// People who may not answer, and messages that are no answers, each with words that would be one.
    fn whatsapp_people(&mut self, question: &whatsapp::Message) {
        let senders = [
            ("a stranger", json!({"from": MALLORY})),
            ("nobody", json!({"from": null})),
            ("an empty number", json!({"from": ""})),
            ("a number with a plus and a digit more", json!({"from": format!("+{ADA}0")})),
            ("a group's member", json!({"group_id": "G1"})),
            ("another number of the business", json!({"phone": "999"})),
            ("no number of the business", json!({"phone": null})),
        ];
        for tap in &question.taps {
            let said = tap.id.rsplit_once(':').map_or("", |(said, _)| said);
            for mac in ["0".repeat(32), "f".repeat(32), String::new(), "0".repeat(30)] {
                let chosen = json!({"id": format!("{said}:{mac}"), "title": tap.title});
                let forged = json!({"type": "interactive", "text": null, "context": {"id": question.id, "from": "1"},
                    "interactive": {"type": "button_reply", "button_reply": chosen}});
                self.meta(format!("taps: a forged MAC {mac:?} for {:?}", tap.title), &forged);
            }
        }
        for (who, sender) in senders {
            for tap in &question.taps {
                let mut changes = sender.clone();
                changes["type"] = json!("interactive");
                changes["text"] = Value::Null;
                changes["context"] = json!({"id": question.id, "from": "1"});
                changes["interactive"] =
                    json!({"type": "button_reply", "button_reply": {"id": tap.id, "title": tap.title}});
                self.meta(format!("taps: {who} taps {:?}", tap.title), &changes);
            }
            for words in ["1", "2", "red", "mine", "cancel", "skip", "0"] {
                for quotes in [false, true] {
                    let mut changes = sender.clone();
                    changes["text"] = json!({ "body": words });
                    if quotes {
                        changes["context"] = json!({"id": question.id, "from": "1"});
                    }
                    let how = if quotes { " by quote" } else { "" };
                    self.meta(format!("people on WhatsApp: {who} says {words:?}{how}"), &changes);
                }
            }
        }
    }

    /// What was written before the question was on its way there.
    fn whatsapp_before(&mut self, question: &whatsapp::Message) {
        let sent = question.reached(whatsapp::Stage::Sent).unwrap_or(question.at) / 1000;
        for (when, at) in [
            ("an hour before", json!((sent - 3_600).to_string())),
            ("a minute before", json!((sent - 60).to_string())),
            ("a second before", json!((sent - 1).to_string())),
            ("in the same second", json!(sent.to_string())),
            ("without a time", json!(null)),
            ("at no time", json!("soon")),
            ("in 1970", json!("0")),
            ("before 1970", json!("-1")),
        ] {
            for words in ["1", "2", "blue", "skip", "cancel", "0", "mine"] {
                let changes = json!({"timestamp": at, "text": {"body": words}});
                self.meta(format!("from before: {words:?} {when}"), &changes);
            }
        }
    }

    fn whatsapp_shapes(&mut self) {
        for kind in [
            "sticker",
            "audio",
            "image",
            "video",
            "document",
            "location",
            "contacts",
            "reaction",
            "unsupported",
            "order",
            "system",
        ] {
            self.meta(
                format!("odd shapes: a message of type {kind}"),
                &json!({"type": kind, "text": null, (kind): {"id": "1"}}),
            );
        }
        // Taps on buttons and lists of messages that askd never sent: of a stranger, from before, and without a word.
        let an_hour_ago = (seconds() - 3_600).to_string();
        for id in ["", "0", "askd:0:0:0", "1", &"0".repeat(64)] {
            for (who, from, title) in [
                ("a stranger's", json!({"from": MALLORY}), json!("red")),
                ("an old", json!({ "timestamp": an_hour_ago }), json!("red")),
                ("a wordless", json!({}), json!(null)),
            ] {
                for kind in ["button_reply", "list_reply"] {
                    let mut tap = from.clone();
                    tap["type"] = json!("interactive");
                    tap["text"] = Value::Null;
                    tap["interactive"] = json!({"type": kind, (kind): {"id": id, "title": title}});
                    self.meta(format!("taps: {who} {kind} {id:?}"), &tap);
                }
            }
            let button = json!({"type": "button", "text": null, "button": {"payload": id, "text": "red"}});
            self.meta(format!("taps: of a template {id:?}"), &button);
        }
        for body in ["", "{}", "no json", "[]", "null", "{\"entry\":7}", "{\"entry\":[{\"changes\":7}]}", "[[[[[[["] {
            let body = body.as_bytes().to_vec();
            let signature = Some(self.phone.sign(&body));
            self.cell("odd shapes: a signed body of Meta".to_owned(), &[200], Send::Whatsapp { body, signature });
        }
        for method in ["PUT", "DELETE", "PATCH"] {
            let send = Send::Http(method, "/whatsapp/webhook".to_owned(), String::new(), String::new());
            self.cell(format!("odd shapes: {method} /whatsapp/webhook"), &[405], send);
        }
    }

    /// Everybody without the token, and pages from elsewhere that have it.
    fn inbox_doors(&mut self, id: &str) {
        let json_type = "content-type: application/json\r\n";
        let body = json!({"answers": {"In the inbox?": "red"}}).to_string();
        let verbs = ["answer", "dismiss", "cancel", "reset", "shown"];
        let half = &TOKEN[..TOKEN.len() / 2];
        let keys = [
            ("no token", String::new()),
            ("an empty token", "authorization: Bearer \r\n".to_owned()),
            ("another token", "authorization: Bearer another\r\n".to_owned()),
            ("half a token", format!("authorization: Bearer {half}\r\n")),
            ("more than the token", format!("authorization: Bearer {TOKEN}x\r\n")),
            ("another scheme", format!("authorization: Basic {TOKEN}\r\n")),
            ("no scheme", format!("authorization: {TOKEN}\r\n")),
            ("a cookie", format!("cookie: token={TOKEN}\r\n")),
            ("another header", format!("x-askd-token: {TOKEN}\r\n")),
        ];
        for (what, key) in &keys {
            for verb in verbs {
                let body = if verb == "answer" { body.clone() } else { "{}".to_owned() };
                let send = Send::Http("POST", format!("/api/v1/asks/{id}/{verb}"), format!("{key}{json_type}"), body);
                self.cell(format!("doors: {verb} with {what}"), &[401], send);
            }
            for path in ["/api/v1/asks", "/api/v1/events", "/api/v1/asks/x", "/api/v1/nothing"] {
                let send = Send::Http("GET", path.to_owned(), key.clone(), String::new());
                self.cell(format!("doors: {path} with {what}"), &[401], send);
            }
        }
        let send =
            Send::Http("POST", format!("/api/v1/asks/{id}/answer?token={TOKEN}"), json_type.to_owned(), body.clone());
        self.cell("doors: the token in the address".to_owned(), &[401], send);
        let good = format!("authorization: Bearer {TOKEN}\r\n{json_type}");
        let port = self.daemon.url().rsplit(':').next().unwrap_or_default().to_owned();
        let hosts = [
            "evil.example".to_owned(),
            format!("evil.example:{port}"),
            format!("localhost.evil.example:{port}"),
            "127.0.0.1".to_owned(),
            format!("127.0.0.1.evil.example:{port}"),
            format!("[::1]:{port}0"),
            String::new(),
            format!("169.254.169.254:{port}"),
            format!("0.0.0.0:{port}"),
            format!("127.0.0.1:{port}@evil.example"),
        ];
        for host in hosts {
            for verb in ["answer", "dismiss", "cancel"] {
                let body = if verb == "answer" { body.clone() } else { "{}".to_owned() };
                let send =
                    Send::Http("POST", format!("/api/v1/asks/{id}/{verb}"), format!("{good}host: {host}\r\n"), body);
                self.cell(format!("doors: {verb} as host {host:?}"), &[400, 403], send);
            }
        }
        for (what, header) in [
            ("another origin", "origin: http://evil.example\r\n"),
            ("no origin", "origin: null\r\n"),
            ("https", "origin: https://127.0.0.1\r\n"),
            ("cross-site", "sec-fetch-site: cross-site\r\n"),
            ("same-site", "sec-fetch-site: same-site\r\n"),
        ] {
            for verb in ["answer", "dismiss", "cancel", "reset"] {
                let body = if verb == "answer" { body.clone() } else { "{}".to_owned() };
                let send = Send::Http("POST", format!("/api/v1/asks/{id}/{verb}"), format!("{good}{header}"), body);
                self.cell(format!("doors: {verb} from {what}"), &[403], send);
            }
        }
        for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""] {
            let headers = format!("authorization: Bearer {TOKEN}\r\ncontent-type: {kind}\r\n");
            let send = Send::Http("POST", format!("/api/v1/asks/{id}/answer"), headers, body.clone());
            self.cell(format!("doors: a body of type {kind:?}"), &[415], send);
        }
        for method in ["GET", "PUT", "PATCH", "DELETE"] {
            for verb in verbs {
                let send = Send::Http(method, format!("/api/v1/asks/{id}/{verb}"), good.clone(), body.clone());
                self.cell(format!("doors: {method} {verb}"), &[405], send);
            }
        }
    }

    /// With the token, but not an answer.
    fn inbox_values(&mut self, id: &str, over: &str) {
        let good = format!("authorization: Bearer {TOKEN}\r\ncontent-type: application/json\r\n");
        let question = "In the inbox?";
        let bodies = [
            "",
            "null",
            "[]",
            "7",
            "\"red\"",
            "{",
            "{}",
            "{\"answers\":null}",
            "{\"answers\":[]}",
            "{\"answers\":7}",
            "{\"answers\":{}}",
            "{\"answers\":{\"Another?\":\"red\"}}",
            "{\"answers\":{\"In the inbox?\":null}}",
            "{\"answers\":{\"In the inbox?\":7}}",
            "{\"answers\":{\"In the inbox?\":true}}",
            "{\"answers\":{\"In the inbox?\":{}}}",
            "{\"answers\":{\"In the inbox?\":[7]}}",
            "{\"answers\":{\"In the inbox?\":[[\"red\"]]}}",
            "{\"answers\":{\"In the inbox?\":[\"red\",\"blue\"]}}",
            "{\"answers\":{\"In the inbox?\":\"\"}}",
            "{\"answers\":{\"In the inbox?\":\"a\\u0000b\"}}",
            "{\"answers\":{\"In the inbox?\":\"red\",\"g1_0\":\"blue\"}}",
            "{\"answers\":{\"In the inbox?\":\"red\"},\"more\":1}",
            "{\"answers\":{\"In the inbox?\":\"red\"},\"by\":\"root\"}",
            "{\"answers\":{\"In the inbox?\":\"red\"}} x",
            "{\"answers\":{\"In the inbox?\":\"\\ud800\"}}",
        ];
        for body in bodies {
            let send = Send::Http("POST", format!("/api/v1/asks/{id}/answer"), good.clone(), body.to_owned());
            self.cell(format!("answers that do not fit: {body}"), &[400, 415, 422], send);
        }
        let long = json!({"answers": { (question): "x".repeat(3_001) }}).to_string();
        let send = Send::Http("POST", format!("/api/v1/asks/{id}/answer"), good.clone(), long);
        self.cell("answers that do not fit: 3,001 characters".to_owned(), &[422], send);
        let deep = format!("{{\"answers\":{{\"{question}\":{}{}}}}}", "[".repeat(10_000), "]".repeat(10_000));
        let send = Send::Http("POST", format!("/api/v1/asks/{id}/answer"), good.clone(), deep);
        self.cell("answers that do not fit: 10,000 lists in lists".to_owned(), &[400, 422], send);
        for name in ["x", "00000000000000000000000000000000", "..", "%2e%2e%2f", "%00", &"f".repeat(300), "%ff"] {
            let body = json!({"answers": { (question): "red" }}).to_string();
            let send = Send::Http("POST", format!("/api/v1/asks/{name}/answer"), good.clone(), body);
            self.cell(format!("answers that do not fit: to {name:?}"), &[400, 404, 409, 414, 422], send);
        }
        for verb in ["answer", "dismiss", "cancel"] {
            let body =
                if verb == "answer" { json!({"answers": {"Over?": "blue"}}).to_string() } else { "{}".to_owned() };
            let send = Send::Http("POST", format!("/api/v1/asks/{over}/{verb}"), good.clone(), body);
            self.cell(format!("late calls: {verb}"), &[409], send);
        }
    }

    /// Agents that reach for what is another group's, or speak of what they were not given.
    fn agents(&mut self) {
        let cancel = |request: &str| json!({"type": "ask_user:cancel", "request_id": request}).to_string().into_bytes();
        for request in ["s1", "g1", "w1", "b1", "unknown"] {
            for group in ["gamma", "beta"] {
                if (group, request) == ("gamma", "g1") || (group, request) == ("beta", "b1") {
                    continue;
                }
                let send = Send::File(group, format!("cancel-{request}.json"), cancel(request));
                self.cell(format!("agents: {group} withdraws {request}"), &[200], send);
            }
        }
        for file in [
            json!({"type": "ask_user:answer", "request_id": "g1", "answers": {"In the inbox?": "red"}}),
            json!({"type": "other:ask", "request_id": "g1"}),
            json!({"request_id": "g1", "result": {"status": "answered"}}),
        ] {
            let send = Send::File("gamma", format!("odd{}.json", self.cells.len()), file.to_string().into_bytes());
            self.cell("agents: a file that answers its own question".to_owned(), &[200], send);
        }
    }

    /// After all of that each channel still takes the answer of a person who may give it.
    async fn the_honest_still_get_through(&self, verdict: &mut Verdict) -> Result<(), String> {
        let card = self.card(CHANNEL, "Which one?").await?;
        self.slack.click(CHANNEL, &card.ts, "pick:0:1", BOB).await?;
        let question = self.phone.wait_for_message(|message| message.text.contains("On the phone?"), SOON).await;
        self.phone.person_quotes(ADA, &question.ok_or("no question on the phone")?.id, "2");
        let id = self.id_of("g1").await?;
        self.daemon.call(&format!("/asks/{id}/answer"), Some(&json!({"answers": {"In the inbox?": "blue"}}))).await;
        for (group, request) in [("research", "s1"), ("ada", "w1"), ("gamma", "g1")] {
            if let Err(error) = self.answered(group, request).await {
                verdict.found("other replies", 1, &format!("afterwards {request} cannot be answered: {error}"));
            }
        }
        Ok(())
    }
}

fn seconds() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

/// What Slack sends when the person of this click has typed into the modal of its card.
fn modal(click: &Value, text: &str) -> Value {
    let row = click["actions"][0]["block_id"].as_str().unwrap_or_default();
    let block = row.replace(":q0:", ":t0:");
    let typed = json!({"type": "plain_text_input", "value": text});
    json!({"type": "view_submission", "team": click["team"], "user": click["user"], "trigger_id": click["trigger_id"],
        "view": {"type": "modal", "private_metadata": click["container"].to_string(),
            "state": {"values": {block: {"text:0": typed}}}}})
}
