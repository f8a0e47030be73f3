//! What goes wrong around askd: full disks, stray files, people who hold connections, agents that are
//! killed early. Nothing is lost by it, and nobody is kept waiting by somebody else's trouble.

use crate::harness::{SOON, World, askd, names, within};
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A small disk for `state/`; `None` where none can be mounted.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: &std::path::Path) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=400k", "tmpfs"]).arg(path).status();
        mount.is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("fill")).unwrap();
        while file.write_all(&[0; 1024]).is_ok() {}
    }

    fn free(&self) {
        fs::remove_file(self.0.join("fill")).unwrap();
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_loses_nothing_and_uses_up_no_limit() {
    let mut world = World::empty().with_binary().config("[asks]\nmax_per_hour_per_group = 3\n");
    let Some(disk) = SmallDisk::mount(&world.data().join("state")) else {
        println!("SKIPPED a_full_disk_loses_nothing_and_uses_up_no_limit: no small disk can be mounted here");
        return;
    };
    world.start();
    let agent = world.group("g");
    agent.ask_framework("before");
    let ask = world.open_of("before");
    // A clean stop leaves an empty journal: no room in it is set aside.
    assert!(world.terminate().success());
    world.start();
    disk.fill();
    agent.ask_framework("r1");
    within(SOON, "the first complaint", || world.log().contains("could not be stored").then_some(()));
    // Its withdrawal waits for it, too.
    agent.ask_framework("r2");
    agent.cancel("r2");
    within(Duration::from_secs(60), "many tries", || {
        (world.log().matches("a new ask could not be stored").count() > 4).then_some(())
    });
    let (status, problem) = world.answer(&ask, &json!({"before_0": "Vue"}));
    assert_eq!(status, 503, "never a lie: {problem}");
    assert!(agent.response("r1").is_none(), "not rejected: it was never asked");
    disk.free();
    world.open_of("r1");
    assert_eq!(agent.wait("r2")["result"]["status"], "cancelled");
    assert_eq!(world.answer(&ask, &json!({"before_0": "Vue"})).0, 200);
    assert_eq!(agent.wait("before")["result"]["answers"]["Which framework?"], "Vue");
    world.kill();
}

#[test]
fn a_claimed_request_of_a_daemon_that_died_is_tried_until_it_is_stored() {
    let mut world = World::empty().with_binary();
    let Some(disk) = SmallDisk::mount(&world.data().join("state")) else {
        println!(
            "SKIPPED a_claimed_request_of_a_daemon_that_died_is_tried_until_it_is_stored: no small disk can be mounted here"
        );
        return;
    };
    world.start();
    world.kill();
    let agent = world.group("g");
    let request = r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
    fs::write(agent.tasks().join(".claimed-abc.json"), request).unwrap();
    // Full, but for what a start needs.
    world.start();
    world.open_of("r1");
    world.kill();
    fs::write(agent.tasks().join(".claimed-abd.json"), request.replace("r1", "r2")).unwrap();
    disk.fill();
    if world.try_start() {
        within(SOON, "the complaint", || world.log().contains("could not be stored").then_some(()));
        disk.free();
    } else {
        disk.free();
        world.start();
    }
    world.open_of("r2");
    world.kill();
}

#[test]
fn what_is_owed_is_not_forgotten_however_long_it_takes() {
    let world = World::empty().config("[asks]\nkeep_settled = \"1m\"\n").started();
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    agent.status_of("r1");
    agent.squat_responses();
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    // Longer than outcomes are kept.
    for _ in 0..65 {
        world.later(Duration::from_secs(1));
        std::thread::sleep(Duration::from_millis(10));
    }
    agent.free_responses();
    // It is tried again every 30 s by now.
    let response = world.passing(Duration::from_secs(60), "the response", || agent.response("r1"));
    assert_eq!(response["result"]["answers"]["Which framework?"], "Vue");
}

#[test]
fn an_agent_that_is_killed_early_leaves_no_question_behind() {
    let world = World::process();
    let children: Vec<_> = (0..30)
        .map(|number| {
            let mut command = askd();
            command.args(["ask", &format!("early {number}?")]).env("ASKD__DATA_DIR", world.data());
            let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let killed = Instant::now() + Duration::from_millis(number);
            within(SOON, "the moment", || (Instant::now() >= killed).then_some(()));
            let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
            child
        })
        .collect();
    for mut child in children {
        child.wait().unwrap();
    }
    let tasks = world.data().join("ipc/default/tasks");
    within(SOON, "every request to be taken", || names(&tasks).iter().all(|name| name.starts_with('.')).then_some(()));
    within(SOON, "no question without an agent", || world.open().is_empty().then_some(()));
}

/// A disk that loses what was synced leaves empty files. None of these keeps a question from being asked.
#[test]
fn files_that_serve_the_page_alone_keep_no_daemon_from_starting() {
    let mut world = World::process();
    world.kill();
    let state = world.data().join("state");
    for name in ["web_token", "push.json"] {
        fs::write(state.join(name), "").unwrap();
    }
    world.start();
    assert!(fs::metadata(state.join("web_token")).unwrap().len() > 20 && state.join("push.json.corrupt").exists());
    assert!(world.log().contains("browsers have to sign up"));
    world.group("g").ask_framework("r1");
    world.open_of("r1");
}

#[test]
fn a_damaged_record_hides_no_other_question() {
    let mut world = World::process();
    let agent = world.group("g");
    agent.ask_framework("r1");
    agent.ask_framework("r2");
    agent.ask_framework("r3");
    let (kept, bad) = (world.open_of("r1"), world.open_of("r2"));
    world.open_of("r3");
    let name = |ask: &Value| format!("{}.json", ask["id"].as_str().unwrap());
    let folder = world.data().join("state/pending_questions/g");
    // A backup that is made of second names is harmless.
    fs::hard_link(folder.join(name(&kept)), world.dir.path().join("backup")).unwrap();
    assert_eq!(world.open().len(), 3);
    world.answer(&kept, &json!({"r1_0": "Vue"}));
    agent.take("r1");
    let settled = world.data().join("state/settled/g").join(name(&kept));
    within(SOON, "the outcome to be kept", || settled.exists().then_some(()));
    // A start would look whether it was.
    world.noted_as_taken("g");
    // What was read lately, or stands in the journal, is at hand and not read again.
    assert!(world.terminate().success());
    world.start();
    let whole = fs::read(&settled).unwrap();
    fs::write(&settled, "{").unwrap();
    let list = || world.call("GET", "/asks?limit=1000", None).1;
    assert_eq!((list()["asks"].as_array().unwrap().len(), &list()["total"]), (2, &json!(2)), "the others are shown");
    // It is named until it can be read again, and an export does not look whole without it.
    let ready = || world.raw("GET", "/readyz", "", "").1;
    assert_eq!(ready(), "degraded: a stored question cannot be read\n");
    let told = world.problems("record");
    let problem = &told[0];
    assert_eq!((told.len(), &problem["about"]), (1, &json!("g")));
    let line = format!("A stored question of the agent g cannot be read: {}: ", settled.display());
    assert!(problem["line"].as_str().unwrap().starts_with(&line), "{problem}");
    assert!(problem["fix"].as_str().unwrap().starts_with("restore the file from a backup"), "{problem}");
    let token = format!("authorization: Bearer {}\r\n", world.token());
    let export = |query: &str| world.raw("GET", &format!("/api/v1/export?state=settled&format={query}"), &token, "").1;
    let id = kept["id"].as_str().unwrap();
    let told: Value = serde_json::from_str(&export("jsonl")).unwrap();
    assert_eq!(told, json!({"id": id, "group": "g", "status": "unreadable"}));
    assert_eq!(export("csv").lines().nth(1), Some(&*format!("{id},g,,,unreadable,,,,,,")));
    fs::write(&settled, whole).unwrap();
    assert_eq!((ready(), &list()["total"]), ("ready\n".to_owned(), &json!(3)));
    fs::write(folder.join("stray.txt"), "").unwrap();
    fs::create_dir(folder.join("folder.json")).unwrap();
    fs::write(world.data().join("state/pending_questions/stray"), "").unwrap();
    // After a kill the journal would have its record, too.
    assert!(world.terminate().success());
    fs::write(folder.join(name(&bad)), "{").unwrap();
    world.start();
    assert_eq!(world.open().len(), 1);
    assert!(world.state_files("pending_questions/g").iter().any(|name| name.ends_with(".json.corrupt")));
}

#[test]
fn half_sent_requests_keep_nothing_from_stopping() {
    let mut world = World::process();
    let begun = Instant::now();
    let mut held = Vec::new();
    for part in [
        "GET / HT",
        "GET / HTTP/1.1\r\nhost: x",
        "POST /api/v1/asks/x/answer HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{",
    ] {
        let mut stream = std::net::TcpStream::connect(world.address()).unwrap();
        stream.write_all(part.as_bytes()).unwrap();
        held.push(stream);
    }
    assert_eq!(world.raw("GET", "/healthz", "", "").0, 200);
    // They are given 5 s, and not the 10 s after which a connection without a whole head is dropped anyway.
    assert!(world.terminate().success());
    assert!(begun.elapsed() < Duration::from_millis(9_800), "{:?}", begun.elapsed());
    drop(held);
}

#[test]
fn a_squatted_status_is_only_untidy() {
    let world = World::new();
    let agent = world.group("g");
    fs::create_dir(agent.path.join("responses/r1.status")).unwrap();
    agent.ask_framework("r1");
    world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
    agent.wait("r1");
    world.all_done("g");
    // And where a rejection belongs, a folder: the mistake is kept once, however often it is tried.
    fs::create_dir_all(agent.response_path("bad").join("inner")).unwrap();
    agent.put("bad.json", br#"{"type":"ask_user:ask","request_id":"bad","questions":7}"#);
    within(SOON, "two tries", || (world.log().matches("a rejection could not be written").count() > 1).then_some(()));
    assert!(world.state_files("rejected/g").is_empty(), "kept when the agent was told");
    fs::remove_dir_all(agent.response_path("bad")).unwrap();
    assert_eq!(agent.wait("bad")["result"]["status"], "rejected");
    within(SOON, "one copy", || (world.state_files("rejected/g").len() == 1).then_some(()));
}

#[test]
fn groups_that_are_all_removed_come_back() {
    let world = World::new();
    world.group("g").ask_framework("r1");
    world.open_of("r1");
    // askd may write a file into a folder while it is being removed.
    let removed = || fs::remove_dir_all(world.data().join("ipc")).is_ok().then_some(());
    within(SOON, "the folders to be removed", removed);
    world
        .passing(SOON, "the folders to be made anew", || world.data().join("ipc/default/tasks").is_dir().then_some(()));
    world.group("g").ask_framework("r2");
    world.open_of("r2");
}

#[test]
fn the_folder_of_a_configured_group_comes_back_alone() {
    let world = World::empty().config("[groups.research]\nroutes = [{ channel = \"web\" }]\n").started();
    let folder = world.data().join("ipc/research");
    world.passing(SOON, "the folder", || folder.join("briefings").is_dir().then_some(()));
    within(SOON, "the folder to be removed", || fs::remove_dir_all(&folder).is_ok().then_some(()));
    world.passing(SOON, "the folder to be made anew", || folder.join("briefings").is_dir().then_some(()));
    world.group("research").ask_framework("r1");
    world.open_of("r1");
}

#[test]
fn small_mistakes_are_told_like_large_ones() {
    let world = World::new();
    let agent = world.group("g");
    agent.put("null.json", br#"{"type":"ask_user:ask","request_id":"null","questions":null}"#);
    assert_eq!(agent.wait("null")["error"], "No questions provided");
    agent.put(
        "half.json",
        br#"{"type":"ask_user:ask","request_id":"half","timeoutMs":30000.5,"questions":[{"question":"q"}]}"#,
    );
    assert!(agent.wait("half")["error"].as_str().unwrap().contains("timeoutMs: must be an integer, not "));
    agent.put(
        "twice.json",
        br#"{"type":"ask_user:ask","request_id":"twice","questions":[{"question":"q"}],"type":"other"}"#,
    );
    assert!(agent.wait("twice")["error"].as_str().unwrap().contains("duplicate field `type`"));
    agent.put("canary.json", br#"{"type":"ask_user:ask","request_id":"canary","questions":"canary-text?"}"#);
    assert!(agent.wait("canary")["error"].as_str().unwrap().contains("canary-text"), "the agent is told what it wrote");
    within(SOON, "the log", || world.log().contains("request_id=canary").then_some(()));
    assert!(!world.log().contains("canary-text"), "the log is not");
    agent.ask_framework("r1");
    let id = world.open_of("r1")["id"].as_str().unwrap().to_owned();
    let token = format!("authorization: Bearer {}\r\n", world.token());
    for (method, path, headers) in [
        ("GET", "/api/v1/asks/%ff".to_owned(), token.clone()),
        ("GET", "/api/v1/asks?state=open&state=settled".to_owned(), token.clone()),
    ] {
        let (status, text) = world.raw(method, &path, &headers, "");
        assert_eq!(status, 400, "{text}");
        assert!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["detail"].is_string(), "{text}");
    }
    assert_eq!(world.raw("GET", "/readyz", "host: probe.example\r\n", "").0, 200);
    let empty = format!("{token}content-type: application/json\r\n");
    assert_eq!(world.raw("POST", &format!("/api/v1/asks/{id}/dismiss"), &empty, "").0, 200);
}

#[test]
fn an_answer_that_cannot_be_printed_stays_where_it_was_and_the_same_call_prints_it() {
    let world = World::process();
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    let gone = || Stdio::from(std::io::pipe().unwrap().1);
    let mut command = askd();
    command.args(["ask", "Go?"]).env("ASKD__DATA_DIR", world.data());
    for (session, output) in [("full", full()), ("gone", gone())] {
        let child = command.env("ASKD_SESSION_ID", session).stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        let ask = world.one_open();
        world.answer(&ask, &json!({"Go?": "yes"}));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{session}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("the response stays in responses/"));
        let response = format!("responses/{}.json", ask["request_id"].as_str().unwrap());
        assert!(world.group("default").path.join(response).exists());
    }
    let again = command.stdout(Stdio::piped()).output().unwrap();
    assert_eq!((again.status.code(), &*again.stdout), (Some(0), &b"yes\n"[..]), "{again:?}");
    assert!(world.open().is_empty(), "nothing is asked twice");
}

/// As in `ASKD_SESSION_ID=${RUN_ID:-}`: like every empty id, it is not given.
#[test]
fn where_the_session_is_empty_askd_ask_makes_one() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["tasks", "responses"] {
        fs::create_dir(dir.path().join(folder)).unwrap();
    }
    let mut command = askd();
    command.args(["ask", "Go?"]).env("ASKD_IPC_DIR", dir.path()).env("ASKD_SESSION_ID", "");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let request = within(SOON, "the request", || {
        let tasks = fs::read_dir(dir.path().join("tasks")).unwrap().flatten();
        let mut files = tasks.filter(|file| !file.file_name().to_string_lossy().starts_with('.'));
        serde_json::from_slice::<Value>(&fs::read(files.next()?.path()).ok()?).ok()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(request["session_id"].as_str().is_some_and(|id| !id.is_empty()), "{request}");
}
