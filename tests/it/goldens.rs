//! Asks that earlier versions stored, as their own binaries wrote them (`tests/golden`): what people and agents see of
//! them, and can still do, is what it was.

use crate::harness::{Agent, SOON, World, askd, within};
use crate::in_slack::{ALICE, CHANNEL, Mode, in_slack};
use crate::on_whatsapp::{ADA, TO_ADA, binary_on_whatsapp, happens, sim};
use askd_sim::slack::Raw;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

/// The versions of which there is a folder.
pub(crate) const VERSIONS: [&str; 3] = ["35ffb63", "b652487", "4b65f53"];

const CONFIG: &str = r#"
[defaults]
routes = [{ channel = "web" }]
[groups.team]
routes = [{ channel = "web" }]
session = { start = { command = ["/bin/true"] } }
[groups.ada]
routes = [{ channel = "web" }]
session = { start = { command = ["/bin/true"] } }
[groups.broken]
routes = [{ channel = "web" }]
session = { start = { command = ["/bin/false"] } }
[groups.team-blocks]
routes = [{ channel = "web" }]
max_attempts = 1
[groups.inbox-blocks]
routes = [{ channel = "web" }]
max_attempts = 1
"#;

/// A golden folder whose times are moved to the present, and what was noted when it was made.
pub(crate) struct Golden {
    from: PathBuf,
    moved: SignedDuration,
    made: Value,
}

fn read(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The same with every time in it moved.
fn moved(value: Value, by: SignedDuration) -> Value {
    match value {
        Value::String(text) => match text.parse::<Timestamp>() {
            Ok(time) => json!(format!("{:.3}", time + by)),
            Err(_) => Value::String(text),
        },
        Value::Array(values) => values.into_iter().map(|value| moved(value, by)).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, value)| (name, moved(value, by))).collect(),
        other => other,
    }
}

impl Golden {
    pub(crate) fn of(version: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(version);
        let made = read(&from.join("made.json"));
        let then: Timestamp = made["made_at"].as_str().unwrap().parse().unwrap();
        Self { from, moved: Timestamp::now().duration_since(then), made }
    }

    /// Puts `state` and `ipc` below a folder.
    pub(crate) fn put(&self, data: &Path) {
        for part in ["state", "ipc"] {
            self.copy(&self.from.join(part), &data.join(part));
        }
    }

    fn copy(&self, from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            if from.is_dir() {
                self.copy(&from, &to);
            } else {
                fs::write(to, moved(read(&from), self.moved).to_string()).unwrap();
            }
        }
    }

    fn world(&self) -> World {
        let world = World::empty().config(CONFIG);
        self.put(&world.data());
        world.started()
    }

    /// The record of the ask of a request, as the version wrote it.
    pub(crate) fn record(&self, request_id: &str) -> Value {
        let (id, _) = self.made["asks"]
            .as_object()
            .unwrap()
            .iter()
            .find(|(_, requests)| requests.as_array().unwrap().contains(&json!(request_id)))
            .unwrap();
        let folders = ["pending_questions", "settled"].map(|kind| self.from.join("state").join(kind));
        let groups = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap());
        let file = groups.map(|group| group.unwrap().path().join(format!("{id}.json"))).find(|file| file.exists());
        read(&file.unwrap())
    }

    fn id(&self, request_id: &str) -> String {
        self.record(request_id)["id"].as_str().unwrap().to_owned()
    }

    fn answer(&self, world: &World, request_id: &str, answers: &Value) -> (u16, Value) {
        world.answer(&json!({"id": self.id(request_id)}), answers)
    }

    /// Asks what was asked then, as another request.
    fn ask_again(&self, agent: &Agent, request_id: &str, again: &str) {
        agent.ask(again, &without(&self.made["requests"][request_id], &["type", "request_id"]));
    }
}

fn without(object: &Value, fields: &[&str]) -> Value {
    let kept = object.as_object().unwrap().iter().filter(|(name, _)| !fields.contains(&name.as_str()));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[test]
fn what_the_inbox_says_of_asks_of_earlier_versions_is_what_it_always_said() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let world = golden.world();
        let mut shown = serde_json::Map::new();
        let mut counts = [("open", 0), ("settled", 0)];
        for (state, count) in &mut counts {
            let (status, list) = world.call("GET", &format!("/asks?state={state}&limit=1000"), None);
            assert_eq!(status, 200);
            for ask in list["asks"].as_array().unwrap() {
                assert_eq!(&world.details(ask["id"].as_str().unwrap()), ask, "a list shows what the ask itself shows");
                shown.insert(ask["request_id"].as_str().unwrap().to_owned(), moved(ask.clone(), -golden.moved));
                *count += 1;
            }
        }
        assert_eq!(shown.len(), golden.made["asks"].as_object().unwrap().len(), "{counts:?}\n{}", world.log());
        assert!(!world.log().contains("moved aside") && !world.log().contains("corrupt"), "{}", world.log());
        let file = golden.from.join("shown.json");
        let shown = Value::Object(shown);
        if std::env::var_os("GOLDEN_WRITE").is_some() {
            fs::write(&file, format!("{shown:#}\n")).unwrap();
        }
        let expected = read(&file);
        for (request_id, ask) in expected.as_object().unwrap() {
            assert_eq!(&shown[request_id], ask, "{version}: {request_id}");
        }
    }
}

#[test]
fn open_asks_of_earlier_versions_are_answered_and_every_waiter_is_told() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let world = golden.world();
        let whole = json!({"Which framework?": "Vue", "Sure?": "No", "Which targets?": ["prod"]});
        let only = |questions: &[&str]| {
            Value::Object(questions.iter().map(|name| ((*name).to_owned(), whole[*name].clone())).collect())
        };
        let plain = json!({"What is its name?": "Ada"});
        for (group, request_id, answers) in [
            ("inbox", "inbox-open", only(&["Which framework?"])),
            ("inbox", "inbox-form", whole.clone()),
            ("inbox", "inbox-plain", plain),
            ("team", "team-open", only(&["Which framework?"])),
            ("team", "team-form", only(&["Which targets?", "Sure?"])),
            ("ada", "ada-half", only(&["Which framework?", "Sure?"])),
            ("grace", "grace-held", only(&["Which framework?"])),
            ("pair", "pair-open", json!({"Deploy now?": "yes"})),
        ] {
            let (status, body) = golden.answer(&world, request_id, &answers);
            assert_eq!(status, 200, "{version}: {request_id}: {body}");
            let response = world.group(group).take(request_id);
            assert_eq!(response["result"]["answers"], answers, "{version}: {request_id}");
        }
        let joined = world.group("inbox").take("inbox-joined");
        assert_eq!(joined["result"]["opCode"], "op-2");
        assert_eq!(joined["result"]["answers"]["Which framework?"], "Vue");
        let (status, refused) = golden.answer(&world, "inbox-answered", &json!({"Sure?": "No"}));
        assert_eq!(status, 409, "{refused}");
    }
}

#[test]
fn late_answers_are_still_taken_once_where_an_earlier_version_said_so() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let world = golden.world();
        for (request_id, question) in [("team-late", "Late in Slack?"), ("ada-late", "Late on WhatsApp?")] {
            let (status, body) = golden.answer(&world, request_id, &json!({question: "yes"}));
            assert_eq!(status, 200, "{version}: {request_id}: {body}");
            within(SOON, "the agent to be started", || {
                let ask = world.details(&golden.id(request_id));
                let (late, status) = (&ask["late"], &ask["outcome"]["status"]);
                (*late == true && *status == "timeout" && ask["note"].to_string().contains("started")).then_some(())
            });
            assert_eq!(golden.answer(&world, request_id, &json!({question: "no"})).0, 409, "it is taken once");
        }
        assert_eq!(golden.answer(&world, "inbox-timeout", &json!({"Too late?": "Yes"})).0, 409, "none was offered");
        let answered = world.details(&golden.id("team-late-answered"));
        assert_eq!(answered["late_answer"]["answers"], json!({"Answered late?": "yes"}));
    }
}

#[test]
fn blocks_of_earlier_versions_hold_are_counted_and_end() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let world = golden.world();
        let (inbox, team) = (world.group("inbox-blocks"), world.group("team-blocks"));
        golden.ask_again(&team, "team-blocked", "again");
        assert_eq!(team.take("again")["result"]["status"], "blocked");
        within(SOON, "the card to count it", || {
            (world.details(&golden.id("team-blocked"))["block"]["times"] == 4).then_some(())
        });
        golden.ask_again(&inbox, "inbox-allowed", "allowed");
        world.open_of("allowed");
        golden.ask_again(&inbox, "inbox-blocked", "still");
        assert_eq!(inbox.take("still")["result"]["status"], "blocked");
        let (status, body) = world.call("POST", &format!("/asks/{}/reset", golden.id("inbox-blocked")), None);
        assert_eq!(status, 200, "{body}");
        golden.ask_again(&inbox, "inbox-blocked", "reset");
        world.open_of("reset");
    }
}

#[test]
fn a_call_that_repeats_a_request_to_an_earlier_version_joins_its_ask_or_is_given_its_outcome() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let world = golden.world();
        let inbox = world.group("inbox");
        // The hash of content and session, and of an explicit key, is what it was: no second ask.
        for (request_id, again) in [("inbox-open", "joins-by-content"), ("inbox-form", "joins-by-key")] {
            let open = world.open().len();
            golden.ask_again(&inbox, request_id, again);
            inbox.status_of(again);
            assert_eq!(world.open().len(), open, "{version}: {request_id}");
        }
        golden.ask_again(&world.group("team"), "team-open", "joins-in-slack");
        world.group("team").status_of("joins-in-slack");
        assert_eq!(golden.answer(&world, "team-open", &json!({"Which framework?": "Vue"})).0, 200);
        assert_eq!(world.group("team").take("joins-in-slack")["result"]["answers"]["Which framework?"], "Vue");
        // An answer that was not collected is given to the call that asks the same again.
        golden.ask_again(&inbox, "inbox-uncollected", "collects");
        let given = inbox.take("collects");
        assert_eq!(given["result"]["answers"], json!({"Uncollected?": "yes"}));
        let then = &golden.made["responses"]["inbox-uncollected"]["result"]["answered_at"];
        assert_eq!(given["result"]["answered_at"], moved(then.clone(), golden.moved));
        assert!(inbox.response("inbox-uncollected").is_none(), "it is out of the reach of the call before");
        // The digest of a whole request is what it was: the same request again is given its response again.
        for request_id in ["inbox-answered", "inbox-dismissed"] {
            inbox.ask(request_id, &without(&golden.made["requests"][request_id], &["type", "request_id"]));
            let response = inbox.take(request_id);
            let then = moved(golden.made["responses"][request_id].clone(), golden.moved);
            for (field, value) in then["result"].as_object().unwrap() {
                assert_eq!(&response["result"][field], value, "{version}: {request_id}: {field}");
            }
        }
    }
}

#[test]
fn what_an_agent_of_an_earlier_version_writes_is_asked_and_what_its_daemon_wrote_is_read() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let world = World::new();
        for (name, agent) in golden.made["agents"].as_object().unwrap() {
            // Its files, byte for byte, in its order: the request first.
            let (group, request) = (world.group(name), agent["request"].as_str().unwrap());
            let files = agent["files"].as_object().unwrap();
            let request_id = request.trim_start_matches("tasks/").trim_end_matches(".json");
            group.put(&format!("{request_id}.json"), files[request].as_str().unwrap().as_bytes());
            for (file, text) in files.iter().filter(|(file, _)| *file != request) {
                let path = group.path.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text.as_str().unwrap()).unwrap();
            }
            let ask = world.open_of(request_id);
            let answers = if name == "ask" {
                json!({"Deploy now?": "no"})
            } else {
                json!({"Which framework?": "Vue", "Sure?": "Yes"})
            };
            assert_eq!(world.answer(&ask, &answers).0, 200, "{version}: {name}");
            assert_eq!(group.take(request_id)["result"]["answers"], answers);
        }
        // The other way round: the tool of today, and a host that writes what that version's daemon wrote.
        let host = World::empty();
        let folder = host.group("old");
        let ask = ["ask", "Which?", "--option", "React", "--option", "Vue", "--ipc", folder.path.to_str().unwrap()];
        let mut tool = askd().args(ask).stdout(std::process::Stdio::piped()).spawn().unwrap();
        let request = within(SOON, "a request", || {
            let name = folder.task_names().into_iter().find(|name| !name.starts_with('.'))?;
            let text = fs::read(folder.tasks().join(&name)).ok()?;
            fs::remove_file(folder.tasks().join(name)).unwrap();
            serde_json::from_slice::<Value>(&text).ok()
        });
        let request_id = request["request_id"].as_str().unwrap();
        let status = fs::read(golden.from.join("ipc/inbox/responses/inbox-open.status")).unwrap();
        let status = moved(serde_json::from_slice(&status).unwrap(), golden.moved);
        fs::write(folder.path.join(format!("responses/{request_id}.status")), status.to_string()).unwrap();
        let mut response = golden.made["responses"]["inbox-answered"].clone();
        response["result"]["request_id"] = json!(request_id);
        response["result"]["answers"] = json!({"Which?": "Vue"});
        folder.put_response(request_id, &response);
        let ended = within(SOON, "the tool to end", || tool.try_wait().unwrap());
        let mut said = String::new();
        std::io::Read::read_to_string(&mut tool.stdout.take().unwrap(), &mut said).unwrap();
        assert_eq!((ended.code(), said.trim()), (Some(0), "Vue"), "{version}");
    }
}

#[test]
fn a_file_of_a_newer_version_stops_the_start_and_nothing_is_changed() {
    for (folder, name) in [
        ("pending_questions/inbox", "ffffffffffffffffffffffffffffffff.json"),
        ("groups", "zebras.json"),
        ("channels", "whatsapp.json"),
        // A newer askd has written records here, which are read only after the start.
        ("", "format.json"),
    ] {
        let golden = Golden::of("b652487");
        let mut world = World::empty().config(CONFIG);
        golden.put(&world.data());
        let state = world.data().join("state");
        fs::write(state.join(folder).join(name), r#"{"v": 1000000}"#).unwrap();
        // Beside some that are damaged, which another start would have moved aside.
        fs::write(state.join("pending_questions/inbox/eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee.json"), "{").unwrap();
        fs::write(state.join("groups/aardvarks.json"), "{").unwrap();
        let kept = || ["pending_questions", "settled", "groups", "channels"].map(|kind| files(&state.join(kind)));
        let before = kept();
        assert!(!world.try_start());
        let code = world.command().output().unwrap();
        assert_eq!(code.status.code(), Some(2), "{folder}: {}", world.log());
        assert!(String::from_utf8_lossy(&code.stderr).contains(name), "{folder}: the file is named");
        assert_eq!(kept(), before, "{folder}");
    }
}

/// What Slack posts when a person uses a card that an earlier version posted: its buttons and their ids as they were then.
fn use_of_card(record: &Value, part: &str, action: &str, value: &str, state: &Value) -> Value {
    let (ask, ts) = (record["id"].as_str().unwrap(), &record["message_id"]);
    json!({
        "type": "block_actions", "trigger_id": format!("{ask}.{action}"), "team": {"id": "T0ASKD"},
        "user": {"id": ALICE, "username": "alice", "team_id": "T0ASKD"},
        "container": {"type": "message", "message_ts": ts, "channel_id": record["chat"]},
        "message": {"ts": ts, "blocks": [{"type": "actions", "block_id": format!("askd:{ask}:{part}:1")}]},
        "actions": [{"type": "button", "action_id": action, "block_id": format!("askd:{ask}:{part}:1"), "value": value}],
        "state": {"values": state},
    })
}

#[tokio::test]
async fn a_slack_card_of_an_earlier_version_is_answered_after_the_upgrade() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let groups = format!(
            "[groups.team]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\"] }}, \
             {{ channel = \"web\" }}]\nsession = {{ start = {{ command = [\"/bin/true\"] }} }}\n"
        );
        let mut world = in_slack(Mode::Http).groups(&groups).prepare().await;
        golden.put(&world.data());
        world.begin().await;
        let (tapped, form) = (golden.record("team-open"), golden.record("team-form"));
        let block = |part: &str| format!("askd:{}:{part}:1", form["id"].as_str().unwrap());
        let state = json!({
            block("q0"): {"choice:0": {"type": "checkboxes", "selected_options": [{"value": "1"}]}},
            block("q1"): {"choice:1": {"type": "radio_buttons", "selected_option": {"value": "0"}}},
        });
        for (payload, request_id, answers) in [
            (use_of_card(&tapped, "q0", "pick:0:1", "1", &json!({})), "team-open", json!({"Which framework?": "Vue"})),
            (
                use_of_card(&form, "do", "submit", "submit", &state),
                "team-form",
                json!({"Which targets?": ["prod"], "Sure?": "Yes"}),
            ),
        ] {
            let raw = Raw::interaction(&world.slack, &format!("{}/slack/interactions", world.url()), &payload);
            assert_eq!(world.slack.send_raw(raw).await.status, Some(200), "{version}: {}", world.log());
            let response = world.response_to("team", request_id, SOON).await;
            assert_eq!(response["result"]["answers"], answers, "{version}: {request_id}");
            assert_eq!(response["result"]["answered_by"]["id"], ALICE, "{version}: {request_id}");
        }
    }
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found.sort();
    found
}

/// A record of 35ffb63 does not say when its question was sent, so nothing proves that words without a quote came later:
/// such an ask is answered by naming its message (a tap, a quote) or in the inbox. Records of b652487 say it.
#[tokio::test]
async fn an_old_ask_without_a_time_of_sending_is_answered_by_quote_and_not_by_code() {
    for version in VERSIONS {
        let golden = Golden::of(version);
        let groups = format!("[groups.pair]\nroutes = [{TO_ADA}]\n[groups.ada]\nroutes = [{TO_ADA}]\n");
        let mut world = binary_on_whatsapp(sim(), TO_ADA, &groups).await;
        world.kill();
        golden.put(&world.data());
        world.begin().await;
        let record = golden.record("pair-open");
        let words = format!("{} yes", record["short_id"].as_str().unwrap());
        let pair = || {
            world.store().into_iter().filter(|(path, _)| path.parent().unwrap().ends_with("pair")).collect::<Vec<_>>()
        };
        let before = pair();
        world.writes(ADA, &words).await;
        if version == "35ffb63" {
            assert_eq!(pair(), before);
            let now = Timestamp::now().as_second().to_string();
            let quote = json!({"from": ADA, "id": "wamid.QUOTE", "timestamp": now, "type": "text", "text": {"body": "yes"},
                "context": {"from": "1", "id": record["message_id"]}});
            assert_eq!(world.webhook(&quote).await, 200);
        }
        let path = world.data().join("ipc/pair/responses/pair-open.json");
        happens("the response", || path.exists()).await;
        let response = read(&path);
        assert_eq!(response["result"]["answers"], json!({"Deploy now?": "yes"}), "{version}");
        // Half of it was answered then, and the rest is answered now: what was said is not asked again.
        let last = golden.record("ada-half")["message_id"].clone();
        let now = Timestamp::now().as_second().to_string();
        let quote = json!({"from": ADA, "id": "wamid.HALF", "timestamp": now, "type": "text", "text": {"body": "no"},
            "context": {"from": "1", "id": last}});
        assert_eq!(world.webhook(&quote).await, 200);
        world.shown(ADA, "Question 3 of 3").await;
        world.writes(ADA, "skip").await;
        let path = world.data().join("ipc/ada/responses/ada-half.json");
        happens("the response", || path.exists()).await;
        let answers = json!({"Which framework?": "Vue", "Sure?": "No"});
        assert_eq!(read(&path)["result"]["answers"], answers, "{version}");
    }
}
