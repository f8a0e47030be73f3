//! `askd forget`: afterwards nothing that askd keeps names the person or has the words of the question, what cannot be erased
//! is named, and a crash in between leaves nothing that a second call does not find.

use crate::command_line::{err, out};
use crate::harness::{SOON, World, askd, choice, names};
use crate::in_slack::{ALICE, BOB, CHANNEL, Mode, in_slack};
use crate::on_whatsapp::{ADA, BOB as BEN, TO_ADA, on_whatsapp, sim};
use base64::Engine as _;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(crate) fn forget(world: &World, args: &[&str]) -> Command {
    let mut command = askd();
    command.arg("forget").args(args).arg("--config").arg(world.dir.path().join("askd.toml"));
    command.env("ASKD__DATA_DIR", world.data());
    command
}

pub(crate) fn run(mut command: Command) -> Output {
    command.output().unwrap()
}

/// The files below the data folder in which one of these words stands, and the rows of its database, as if they were such files.
pub(crate) fn with(world: &World, words: &[&str]) -> Vec<PathBuf> {
    fn look(folder: &Path, words: &[&str], found: &mut Vec<PathBuf>) {
        for path in names(folder).into_iter().map(|name| folder.join(name)) {
            if path.is_dir() {
                look(&path, words, found);
            } else {
                let bytes = std::fs::read(&path).unwrap();
                let text = String::from_utf8_lossy(&bytes);
                found.extend(words.iter().any(|word| text.contains(word)).then_some(path));
            }
        }
    }
    let mut found = Vec::new();
    look(&world.data(), words, &mut found);
    if let Some(database) = world.database() {
        found.extend(database.with(words).iter().map(|row| world.state().join(row)));
    }
    found
}

/// Three questions in Slack: Alice answered the first, Bob the second, and the third is open. The last two are the same in
/// this: Alice could answer them. Her answer was not collected.
async fn three() -> World {
    let world = in_slack(Mode::Http).start().await;
    for (request, question) in [("r1", "Fire Bob?"), ("r2", "Hire Eve?"), ("r3", "Move to Rome?")] {
        world.ask(request, choice(question, &["yes", "no"]));
        let card = world.card(CHANNEL).await;
        let (answer, by) = if request == "r1" { ("pick:0:0", ALICE) } else { ("pick:0:1", BOB) };
        if request == "r3" {
            world.stored(&card.ts).await;
        } else {
            assert!(world.slack.click(CHANNEL, &card.ts, answer, by).await.unwrap().acknowledged);
            world.response(request).await;
            world.all_closed(SOON).await;
        }
    }
    world
}

fn erased(output: &Output) -> String {
    out(output).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_person_is_in_no_file_afterwards_and_what_stays_is_named() {
    let mut world = three().await;
    let refused = run(forget(&world, &["--person", ALICE]));
    assert_eq!(refused.status.code(), Some(1));
    assert!(err(&refused).starts_with("askd: askd is running: stop "), "{}", err(&refused));
    let card = &world.slack.messages(CHANNEL)[0].ts;
    let open = world.open_of("r3")["id"].as_str().unwrap().to_owned();
    assert_eq!(world.stop().await, Some(0));
    let told = run(forget(&world, &["--person", ALICE]));
    assert_eq!(
        erased(&told),
        "Erased: 1 question, 1 answer that nobody had collected, 1 list of people who could answer, 1 line of the audit log."
    );
    assert!(out(&told).contains(&format!("  Slack {CHANNEL}: {card}\n")), "{}", out(&told));
    assert_eq!(told.status.code(), Some(1), "one is open");
    assert!(err(&told).contains("still there, because they are open") && err(&told).contains(&open), "{}", err(&told));
    let left = with(&world, &[ALICE, "alice", "Fire Bob"]);
    assert!(left.len() == 1 && left[0].ends_with(format!("pending_questions/research/{open}.json")), "{left:?}");

    world.begin().await;
    let open = world.card(CHANNEL).await;
    assert!(world.slack.click(CHANNEL, &open.ts, "pick:0:0", ALICE).await.unwrap().acknowledged);
    assert_eq!(world.response("r3").await["result"]["answered_by"]["id"], ALICE, "the open question takes her answer");
    world.all_closed(SOON).await;
    let kept = world.call("GET", "/asks?state=settled", None).1;
    assert_eq!(kept["asks"].as_array().unwrap().len(), 2, "{kept}");
    assert_eq!(world.stop().await, Some(0));
    let told = run(forget(&world, &["--person", ALICE]));
    assert_eq!(
        (told.status.code(), with(&world, &[ALICE, "alice", "Move to Rome"])),
        (Some(0), vec![]),
        "{}",
        out(&told)
    );
    assert_eq!(with(&world, &["Hire Eve", BOB]).len(), 3, "Bob's question, its response, and his lines stay");

    let again = run(forget(&world, &["--person", ALICE]));
    assert!(out(&again).starts_with("Nothing in the records names that person or question.\n"), "{}", out(&again));
    world.begin().await;
    let kept = world.call("GET", "/asks?state=settled", None).1;
    assert_eq!(kept["asks"][0]["questions"][0]["question"], "Hire Eve?");
}

/// A name that stays in one place is noticed.
#[tokio::test]
async fn a_forgotten_person_in_the_audit_log_is_noticed() {
    let mut world = three().await;
    world.stop().await;
    let mut broken = forget(&world, &["--person", ALICE]);
    run({
        broken.env("ASKD_SABOTAGE", "keepname");
        broken
    });
    let audit = world.state().join("audit");
    assert!(with(&world, &[ALICE]).iter().any(|path| path.starts_with(&audit)), "nobody noticed");
}

#[tokio::test]
async fn a_question_is_forgotten_by_its_code_or_the_beginning_of_its_id_also_after_a_crash() {
    let mut world = three().await;
    let settled = world.call("GET", "/asks?state=settled", None).1;
    let ask = settled["asks"].as_array().unwrap().iter().find(|ask| ask["request_id"] == "r1").unwrap().clone();
    let id = ask["id"].as_str().unwrap();
    world.stop().await;
    let mut crashing = forget(&world, &["--ask", &id[..8]]);
    crashing.env("ASKD_CRASH_AT", "forget.collected");
    assert_eq!(run(crashing).status.code(), None);
    world.begin().await;
    assert_eq!(world.details(id)["state"], "settled", "it is whole, or gone");
    world.stop().await;
    // A write that was cut off leaves this.
    std::fs::write(world.state().join(format!("settled/research/.tmp-{id}")), "{\"title\":\"Fire Bob").unwrap();
    let told = run(forget(&world, &["--ask", ask["short_id"].as_str().unwrap()]));
    assert_eq!(told.status.code(), Some(0), "{}{}", out(&told), err(&told));
    assert_eq!(with(&world, &["Fire Bob", id]).len(), 1, "only its trail in the audit log, without a name");
    let mistyped = run(forget(&world, &["--ask", ask["short_id"].as_str().unwrap()]));
    let why = "no question has this code or id; `askd list --settled` shows codes";
    assert!(mistyped.status.code() == Some(1) && err(&mistyped).contains(why), "{}", err(&mistyped));
    let again = run(forget(&world, &["--ask", id]));
    assert_eq!(again.status.code(), Some(0), "of a whole id it is certain: {}", err(&again));
    assert!(world.audit().iter().all(|line| line["by"] != ALICE));
    world.begin().await;
    let card = world.slack.messages(CHANNEL)[0].clone();
    assert_eq!(world.call("GET", &format!("/asks/{id}"), None).0, 404);
    assert!(card.visible_text().contains("Fire Bob?"), "the chat keeps its card");
}

/// A blocked question remembers its last calls alone.
#[test]
fn what_calls_of_a_blocked_question_have_not_collected_is_forgotten_with_it() {
    let mut world = World::empty().config("[asks]\nmax_attempts = 1\n").started();
    let agent = world.group("g");
    let request = json!({"questions": [{"question": "Fire Annabel?", "type": "confirm"}]});
    agent.ask("r1", &request);
    assert_eq!(world.answer(&world.open_of("r1"), &json!({"r1_0": "Yes"})).0, 200);
    agent.take("r1");
    agent.ask("r2", &request);
    world.open_of("r2");
    for number in 0..60 {
        agent.ask(&format!("b{number}"), &request);
    }
    (0..60).for_each(|number| drop(agent.wait(&format!("b{number}"))));
    let settled = world.call("GET", "/asks?state=settled", None).1;
    let block = settled["asks"].as_array().unwrap().iter().find(|ask| ask["block"].is_object()).unwrap()["id"].clone();
    let block = block.as_str().unwrap();
    assert_eq!(world.call("POST", &format!("/asks/{block}/reset"), Some(&json!({}))).0, 200);
    world.kept("g", 2);
    world.terminate();
    let told = run(forget(&world, &["--ask", block]));
    assert_eq!(told.status.code(), Some(0), "{}{}", out(&told), err(&told));
    assert_eq!(names(&agent.path.join("responses")), ["r2.status"]);
}

#[tokio::test]
async fn a_code_is_never_the_beginning_of_the_id_of_another_question() {
    let mut world = three().await;
    let settled = world.call("GET", "/asks?state=settled", None).1;
    let open = world.call("GET", "/asks", None).1;
    let of =
        |request: &str| settled["asks"].as_array().unwrap().iter().find(|ask| ask["request_id"] == request).unwrap();
    let (fire, hire) = (of("r1"), of("r2")["id"].as_str().unwrap());
    world.stop().await;
    // A code that no question was given is the one's code now, and the beginning of the other's id.
    let given = |code: &str| {
        let asks = [&settled, &open].into_iter().flat_map(|list| list["asks"].as_array().unwrap());
        asks.into_iter().any(|ask| ask["short_id"] == code)
    };
    let code = ["a2", "b3", "c4", "d5"].into_iter().find(|code| !given(code)).unwrap();
    let folder = world.state().join("settled/research");
    let path = |id: &str| folder.join(format!("{id}.json"));
    let (record, other) = (path(fire["id"].as_str().unwrap()), format!("{code}{}", &hire[2..]));
    let change = |from: &Path, to: &Path, old: &str, new: &str| {
        let text = std::fs::read_to_string(from).unwrap();
        assert!(text.contains(old));
        std::fs::remove_file(from).unwrap();
        std::fs::write(to, text.replace(old, new)).unwrap();
    };
    change(&record, &record, &fire["short_id"].to_string(), &format!("{code:?}"));
    change(&path(hire), &path(&other), hire, &other);
    let first = erased(&run(forget(&world, &["--ask", code])));
    assert!(first.starts_with("Erased: 1 question"), "{first}");
    assert!(!record.exists());
    let gone = run(forget(&world, &["--ask", code]));
    assert!(gone.status.code() == Some(1) && err(&gone).contains("no question has this code"), "{}", err(&gone));
    assert!(path(&other).exists(), "its code is another");
    let by_id = erased(&run(forget(&world, &["--ask", &other[..8]])));
    assert!(by_id.starts_with("Erased: 1 question"), "{by_id}");
}

#[tokio::test]
async fn while_a_question_is_open_the_other_ids_of_its_person_stay_known() {
    let mut world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.ask("r1", json!({"questions": [{"question": "What is your address?"}]}));
    world.shown(ADA, "What is your address?").await;
    world.writes(ADA, "Main Street 5").await;
    world.response("r1").await;
    world.all_closed(SOON).await;
    world.ask("r2", json!({"questions": [{"question": "And your town?"}]}));
    world.shown(ADA, "And your town?").await;
    world.stop().await;
    let channels = world.state().join("channels");
    let of_today = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with("whatsapp-2");
    let today = std::fs::read_dir(&channels).unwrap().map(|file| file.unwrap().path()).find(of_today).unwrap();
    let [people, messages] = [channels.join("whatsapp.json"), today.clone()]
        .map(|file| move || serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap());
    let before = (people(), messages());
    // A person who is called like a field takes nothing of it away.
    for field in ["v", "numbers", "same", "seen", "last_inbound"] {
        run(forget(&world, &["--person", field]));
        assert_eq!((people(), messages()), before, "{field}");
    }
    let (people, mut more) = before;
    let number = people["numbers"].as_object().unwrap().keys().next().unwrap().clone();
    let same = people["numbers"][&number]["same"].as_object().unwrap();
    let other = same.iter().find(|(_, other)| *other == ADA).unwrap().0.clone();
    // The id of a message has the number in base64, as Meta writes it.
    let message = |number: &str| {
        let inner = [b"\x1c\x18\x0b", number.as_bytes(), b"\x15\x02\x00\x11\x18\x12"].concat();
        format!("wamid.{}", base64::engine::general_purpose::STANDARD.encode(inner))
    };
    let seen = more["numbers"][&number]["seen"].as_object_mut().unwrap();
    for whose in [ADA, BEN] {
        seen.insert(message(whose), json!("2026-11-22T10:00:00.000Z"));
    }
    std::fs::write(&today, more.to_string()).unwrap();

    assert_eq!(run(forget(&world, &["--person", &other])).status.code(), Some(1), "one is open");
    let seen = &messages()["numbers"][&number]["seen"];
    assert_eq!((seen.get(message(ADA)), seen.get(message(BEN)).is_some()), (None, true));
    world.begin().await;
    world.writes(ADA, "Rome").await;
    world.response("r2").await;
    world.all_closed(SOON).await;
    world.stop().await;
    assert_eq!(run(forget(&world, &["--person", &other])).status.code(), Some(0));
    assert_eq!(with(&world, &[ADA, &other, "Main Street", "Rome"]), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_person_on_whatsapp_is_forgotten_with_every_id_and_what_the_channel_remembers() {
    let routes = format!("{TO_ADA}, {{ channel = \"whatsapp\", chat = \"{BEN}\" }}");
    let mut world = on_whatsapp(sim(), &routes, "").await;
    world.writes(ADA, "hello").await;
    world.writes(BEN, "hello").await;
    world.ask("r1", json!({"questions": [{"question": "What is your address?"}]}));
    world.shown(ADA, "What is your address?").await;
    world.writes(ADA, "Main Street 5").await;
    world.response("r1").await;
    world.all_closed(SOON).await;
    world.stop().await;
    assert!(with(&world, &[ADA, "Main Street"]).len() >= 4);
    let told = run(forget(&world, &["--person", ADA]));
    assert_eq!(told.status.code(), Some(0), "{}{}", out(&told), err(&told));
    assert!(out(&told).contains(&format!("  WhatsApp {ADA}: wamid.")), "{}", out(&told));
    assert_eq!(with(&world, &[ADA, "Main Street", "Ada"]), Vec::<PathBuf>::new());
    assert_eq!(with(&world, &[BEN]).len(), 1, "Ben's window is still known");
    world.begin().await;
    world.writes(ADA, "hello again").await;
    world.ask("r2", json!({"questions": [{"question": "Still there?"}]}));
    world.shown(ADA, "Still there?").await;
}

#[test]
fn a_person_of_the_inbox_is_forgotten_with_the_browsers_that_get_their_notices() {
    let people = "[web]\npeople = [{ name = \"ann\", token = \"ann-0123456789abcdef\" }]\n";
    let mut world = World::empty().config(people).started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open()["id"].as_str().unwrap().to_owned();
    let headers = "authorization: Bearer ann-0123456789abcdef\r\ncontent-type: application/json\r\n";
    let answer = json!({"answers": {"r1_0": "Vue"}}).to_string();
    assert_eq!(world.raw("POST", &format!("/api/v1/asks/{ask}/answer"), headers, &answer).0, 200);
    agent.take("r1");
    world.all_done("g");
    assert!(world.terminate().success());
    let file = world.state().join("push.json");
    let mut push: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let device = |person: &str| {
        json!({"person": person, "since": "2026-11-22T10:00:00.000Z", "subscription":
            {"endpoint": "https://push.example/1", "keys": {"p256dh": "", "auth": ""}}})
    };
    push["devices"] = json!([device("ann"), device("bob")]);
    std::fs::write(&file, push.to_string()).unwrap();
    // An agent's token has the same name, and what it may do is no business of the person's.
    let tokens = world.state().join("agent_tokens.json");
    let token = json!({"v": 1, "tokens": [{"id": "t1", "name": "ann", "group": "ann", "hash": "x",
        "made": "2026-11-22T10:00:00.000Z", "expires": null}]});
    std::fs::write(&tokens, token.to_string()).unwrap();
    let told = run(forget(&world, &["--person", "ann"]));
    assert_eq!(erased(&told), "Erased: 1 question, 1 line of the audit log, 1 other file.", "{}", err(&told));
    assert_eq!(with(&world, &["\"ann\"", "Vue"]), std::slice::from_ref(&tokens));
    push["devices"] = json!([device("bob")]);
    // So does one who is called like a field.
    for field in ["v", "key", "devices", "tokens"] {
        run(forget(&world, &["--person", field]));
        assert_eq!(serde_json::from_slice::<Value>(&std::fs::read(&file).unwrap()).unwrap(), push, "the key stays");
        assert_eq!(std::fs::read_to_string(&tokens).unwrap(), token.to_string());
    }
}

#[test]
fn a_person_who_is_called_like_a_group_a_field_or_an_option_takes_their_own_questions_alone() {
    let people = "[web]\npeople = [{ name = \"team\", token = \"team-0123456789abcdef\" }]\n";
    let mut world = World::empty().config(people).started();
    for (group, token) in [("team", world.token()), ("g", "team-0123456789abcdef".to_owned())] {
        world.group(group).ask_framework("r1");
        let ask = world.one_open()["id"].as_str().unwrap().to_owned();
        let headers = format!("authorization: Bearer {token}\r\ncontent-type: application/json\r\n");
        let answer = json!({"answers": {"r1_0": "Vue"}}).to_string();
        assert_eq!(world.raw("POST", &format!("/api/v1/asks/{ask}/answer"), &headers, &answer).0, 200);
        world.group(group).take("r1");
        world.all_done(group);
    }
    assert!(world.terminate().success());
    for name in ["Vue", "questions", "select", "g", "r1", "web"] {
        assert_eq!(
            erased(&run(forget(&world, &["--person", name]))),
            "Nothing in the records names that person or question.",
            "{name}"
        );
    }
    let told = run(forget(&world, &["--person", "team"]));
    assert_eq!(erased(&told), "Erased: 1 question, 1 line of the audit log.");
    let (team, own) = (world.state().join("settled/team"), world.state().join("settled/g"));
    assert_eq!((names(&team).len(), names(&own).len()), (1, 0));
}

#[test]
fn what_was_cut_off_or_rejected_is_looked_into_also_for_a_person_whom_a_proxy_names() {
    let mut world = World::empty().started();
    let state = world.state();
    assert!(world.terminate().success());
    for folder in ["rejected/g", "channels"] {
        std::fs::create_dir_all(state.join(folder)).unwrap();
    }
    let put = |name: &str, who: &str| std::fs::write(state.join(name), format!("{{\"by\": \"{who}\", ")).unwrap();
    let gone = [
        "rejected/g/1.json",
        "groups/.tmp-g",
        "groups/h.json.corrupt",
        "channels/.tmp-whatsapp.json",
        ".tmp-push.json",
    ];
    for name in gone {
        put(name, "ann@example.com");
    }
    put("rejected/g/2.json", "joann@example.com");
    put("groups/.tmp-h", "ann@example.com.au");
    let told = run(forget(&world, &["--person", "ann"]));
    assert!(out(&told).starts_with("Nothing in the records"), "{}", out(&told));
    let told = run(forget(&world, &["--person", "ann@example.com"]));
    assert_eq!(erased(&told), "Erased: 5 other files.", "{}", err(&told));
    assert_eq!(gone.iter().filter(|name| state.join(name).exists()).count(), 0);
    assert_eq!(with(&world, &["ann@example.com"]).len(), 2);
}

#[test]
fn what_cannot_be_meant_is_refused_with_what_to_do() {
    let world = World::empty();
    for (args, code, told) in [
        (&["--person", "operator"][..], 2, "\"operator\" is everyone who holds the inbox token, not a person"),
        (&["--ask", "../x"], 2, "give the question's code, or the first 8 or more characters of its id"),
        (&["--ask", "980cace"], 2, "give the question's code, or the first 8 or more characters of its id"),
        (&["--ask", "3f", "--person", "U1"], 2, "cannot be used with"),
        (&["--person", ""], 2, "a value is required"),
        (&[], 2, "required"),
        (&["--person", "U1"], 1, "cannot look at"),
    ] {
        std::fs::write(world.dir.path().join("askd.toml"), "").unwrap();
        let output = run(forget(&world, args));
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(err(&output).contains(told), "{args:?}: {}", err(&output));
    }
}
