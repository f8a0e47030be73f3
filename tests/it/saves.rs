//! Saves that fail half-way: askd finishes a save that was written but not synced, reports one that was not written,
//! and needs no restart for either.

use crate::command_line::{err, out};
use crate::harness::{SOON, World, choice, within};
use crate::mcp_client::go;
use crate::mcp_url::{Client, TAKES_TASKS};
use crate::remote::{Agent, Remote};
use serde_json::{Value, json};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// A world in which calls on files can be made to fail while the daemon runs.
struct Disk {
    world: World,
}

impl Disk {
    fn new() -> Self {
        Self::of(World::empty().with_binary())
    }

    fn of(world: World) -> Self {
        let fail = world.dir.path().join("fail").display().to_string();
        let slow = world.dir.path().join("slow").display().to_string();
        Self { world: world.env("ASKD_FAIL_CALL", &fail).env("ASKD_SLOW_CALL", &slow).started() }
    }

    /// From now on the calls that `what` names fail (`fail`), or take long (`slow`).
    fn begins(&self, trouble: &str, what: &str) {
        let file = self.world.dir.path().join(trouble);
        fs::write(file.with_extension("new"), what).unwrap();
        fs::rename(file.with_extension("new"), file).unwrap();
    }

    fn ends(&self, trouble: &str) {
        fs::remove_file(self.world.dir.path().join(trouble)).unwrap();
    }

    /// With an ask that is over: the folders of the group are made.
    fn and_one_done(self) -> Self {
        let agent = self.world.group("g");
        agent.ask_framework("done");
        let ask = self.world.open_of("done");
        assert_eq!(self.world.answer(&ask, &json!({"done_0": "Vue"})).0, 200);
        agent.take("done");
        self.world.all_done("g");
        self
    }

    /// These are asked and answered, and their outcomes taken.
    fn end_together(&self, ids: &[&str]) {
        let agent = self.world.group("g");
        for id in ids {
            agent.ask_framework(id);
            assert_eq!(self.world.answer(&self.world.open_of(id), &json!({format!("{id}_0"): "Vue"})).0, 200);
        }
        for id in ids {
            agent.take(id);
        }
    }

    fn lines(&self, what: &str) -> usize {
        self.world.audit().iter().filter(|line| line["what"] == what).count()
    }
}

#[test]
fn an_answer_that_was_written_and_not_synced_is_finished_without_a_restart() {
    is_finished(&Disk::new().and_one_done(), SOON);
}

/// A save in doubt that is forgotten leaves its agent waiting.
#[test]
fn forgetting_a_save_that_failed_is_noticed() {
    let forgetful = Disk::of(World::empty().env("ASKD_SABOTAGE", "forgetsave")).and_one_done();
    let noticed = catch_unwind(AssertUnwindSafe(|| is_finished(&forgetful, Duration::from_secs(12))));
    assert!(noticed.is_err(), "nobody noticed");
}

fn is_finished(disk: &Disk, at_most: Duration) {
    let world = &disk.world;
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    disk.begins("fail", "fsync@journal:1-:EIO");
    let (status, problem) = world.answer(&ask, &json!({"r1_0": "Vue"}));
    assert_eq!(status, 503, "{problem}");
    assert!(!problem["detail"].as_str().unwrap().contains("nothing was changed"), "a lie: {problem}");
    assert!(problem["detail"].as_str().unwrap().starts_with("It may have been stored; look again."), "{problem}");
    assert!(agent.response("r1").is_none(), "nothing is done before it is stored");
    disk.ends("fail");
    let response = within(at_most, "the answer in doubt", || agent.response("r1"));
    assert_eq!(response["result"]["answers"]["Which framework?"], "Vue");
    let (status, problem) = world.answer(&ask, &json!({"r1_0": "React"}));
    assert_eq!(status, 409, "{problem}");
    agent.take("r1");
    world.all_done("g");
    assert_eq!(disk.lines("answered"), 2);
}

/// A daemon with slow or failing calls, and an agent over HTTP.
fn over_http() -> (Disk, Agent) {
    let Remote { world, agents } = Remote::ready(World::empty().with_binary());
    let disk = Disk::of(world);
    let (status, made) = disk.world.call("POST", "/tokens", Some(&json!({"group": "g", "name": "ci"})));
    assert_eq!(status, 201, "{made}");
    let agent = Agent { at: agents, token: made["token"].as_str().unwrap().to_owned(), process: "p1" };
    (disk, agent)
}

/// A request under a key of its own.
fn under(key: &str, request_id: &str, question: &str) -> String {
    let mut request = choice(question, &["yes", "no"]);
    (request["request_id"], request["idempotency_key"]) = (request_id.into(), key.into());
    request.to_string()
}

/// Otherwise one agent would get the answer to the other's question.
#[test]
fn of_two_questions_with_one_request_id_at_the_same_moment_one_is_asked() {
    let (disk, agent) = over_http();
    disk.begins("slow", "fsync@journal:700");
    for round in 0..3 {
        let together = Barrier::new(2);
        let ask = |key: &str| {
            let request = under(&format!("{key}-{round}"), &format!("r-{round}"), &format!("{key}, round {round}?"));
            together.wait();
            agent.call("POST", "/asks", &request).0
        };
        let mut told = thread::scope(|scope| {
            [scope.spawn(|| ask("one")), scope.spawn(|| ask("two"))].map(|call| call.join().unwrap())
        });
        told.sort_unstable();
        assert_eq!((told, disk.world.open().len()), ([201, 409], round + 1));
    }
}

/// A client that loses its connection asks again at once.
#[test]
fn what_is_being_stored_for_a_caller_that_has_gone_is_not_asked_twice() {
    let (disk, agent) = over_http();
    disk.begins("slow", "fsync@journal:1500");
    let request = under("deploy", "r1", "Deploy?");
    let stream = agent.send("POST", "/asks", &request);
    let in_journal = || {
        let files = fs::read_dir(disk.world.state().join("journal")).into_iter().flatten();
        let text = |file: std::io::Result<fs::DirEntry>| fs::read_to_string(file.ok()?.path()).ok();
        files.filter_map(text).any(|text| text.contains("Deploy?")).then_some(())
    };
    within(SOON, "the save to begin", in_journal);
    drop(stream);
    thread::sleep(Duration::from_millis(300)); // until the daemon has noticed
    let calls = [("r1", "deploy", "Deploy?"), ("r2", "deploy", "Deploy?"), ("r1", "other", "Other?")];
    let told = thread::scope(|scope| {
        let ask = |(id, key, question)| agent.call("POST", "/asks", &under(key, id, question)).0;
        calls.map(|call| scope.spawn(move || ask(call))).map(|call| call.join().unwrap())
    });
    assert_eq!((told, disk.world.open().len()), ([200, 201, 409], 1));
}

#[test]
fn a_question_that_is_withdrawn_while_it_is_first_stored_is_never_shown() {
    let (disk, agent) = over_http();
    disk.begins("slow", "fsync@journal:1500");
    let asking = thread::spawn({
        let agent = agent.clone();
        move || agent.ask("r1", "Go?")
    });
    // It is not unknown meanwhile.
    within(SOON, "the request to be there", || (agent.call("GET", "/asks/r1", "").0 == 503).then_some(()));
    assert_eq!(disk.world.call("GET", "/asks?state=open", None).1["total"], 0, "nor is it counted");
    assert_eq!(agent.call("DELETE", "/asks/r1", "").0, 204);
    let (status, asked) = asking.join().unwrap();
    assert_eq!(status, 201, "{asked}");
    let (status, outcome) = agent.call("GET", "/asks/r1?wait=10", "");
    assert_eq!((status, &outcome["result"]["status"]), (200, &json!("cancelled")), "{outcome}");
    assert!(disk.world.open().is_empty());
}

/// Whoever is told that nothing was asked asks again, and a question would be there twice.
#[test]
fn a_question_in_doubt_is_not_said_to_be_unasked_and_is_asked_once() {
    let (disk, agent) = over_http();
    disk.begins("fail", "fsync@journal:1-:EIO");
    // No request_id: the refusal names the one that askd has made.
    let asked = choice("Go?", &["yes", "no"]);
    let (status, problem) = agent.call("POST", "/asks", &asked.to_string());
    let detail = problem["detail"].as_str().unwrap();
    assert!(status == 503 && detail.starts_with("It may have been asked, or not"), "{status} {problem}");
    let id = detail.split('"').nth(1).unwrap();
    assert_eq!(agent.ask(id, "Go?").0, 503);
    assert_eq!(agent.call("GET", &format!("/asks/{id}"), "").0, 503, "it is not unknown");
    // A client without a session, whose call asks again by itself for a moment.
    let client = Client::modern(agent.clone());
    let told = client.call(1, "ask_user", &go(0));
    assert!(told.status() == "undeliverable" && told.text.contains("does not know whether"), "{told:?}");
    // Nor is its task unknown.
    let of_task = |method: &str, id: &str| {
        let takes = json!({"io.modelcontextprotocol/clientCapabilities": TAKES_TASKS.parse::<Value>().unwrap()});
        client.send(4, method, json!({"taskId": format!("{id}.1"), "_meta": takes})).message().unwrap()
    };
    assert_eq!(of_task("tasks/get", &told.question_id())["result"]["status"], "working");
    assert_eq!(of_task("tasks/cancel", &told.question_id())["error"]["code"], -32603);
    assert_eq!(of_task("tasks/get", "mcp-none")["error"]["code"], -32602);
    let other = client.begin(2, "ask_user", &go(0));
    disk.ends("fail");
    other.told().assert_pending_alone();
    within(SOON, "the save to be finished", || (agent.ask(id, "Go?").0 == 200).then_some(()));
    let found = json!({"question_id": told.question_id(), "waitMs": 0});
    let wait = || client.call(3, "ask_user_wait", &found);
    within(SOON, "the other save to be finished", || (wait().status() != "undeliverable").then_some(()));
    wait().assert_pending_alone();
    assert_eq!(disk.world.open().len(), 3, "each question once");
}

/// Until it is finished, later events wait for it, and their callers are told so.
#[test]
fn what_comes_after_a_save_in_doubt_waits_for_it() {
    let disk = Disk::new();
    let agent = disk.world.group("g");
    agent.ask_framework("r1");
    let ask = disk.world.one_open();
    disk.begins("fail", "fsync@journal:1-:EIO");
    assert_eq!(disk.world.answer(&ask, &json!({"r1_0": "Vue"})).0, 503);
    let (status, problem) = disk.world.answer(&ask, &json!({"r1_0": "React"}));
    assert_eq!(status, 503, "{problem}");
    disk.ends("fail");
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "Vue");
}

/// What the flush could not put on stable storage is flushed again, and nothing else waits for that.
#[test]
fn a_folder_that_cannot_be_synced_for_a_while_holds_nothing_up() {
    let disk = Disk::new().and_one_done();
    let world = &disk.world;
    let agent = world.group("g");
    disk.begins("fail", "fsync@folder:1-:EIO");
    agent.ask_framework("r1");
    within(SOON, "the flush to fail", || {
        world.log().contains("what was saved lately is not on stable storage; trying again").then_some(())
    });
    disk.ends("fail");
    assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
    assert_eq!(agent.take("r1")["result"]["answers"]["Which framework?"], "Vue");
    world.all_done("g");
}

/// The file system is synced once for all of them, where that can be done.
#[test]
fn questions_that_end_together_are_filed_once_their_files_are_synced() {
    const QUESTIONS: [&str; 5] = ["r1", "r2", "r3", "r4", "r5"];
    let mut disk = Disk::new();
    let (pending, settled) =
        ["pending_questions", "settled"].map(|name| disk.world.state().join(name).join("g")).into();
    let names = |folder: &Path| -> Vec<String> {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        files.map(|file| file.file_name().into_string().unwrap()).collect()
    };
    disk.begins("fail", "fsync@written:1-:EIO");
    disk.end_together(&QUESTIONS);
    within(SOON, "the flush to fail", || disk.world.log().contains("is not on stable storage").then_some(()));
    assert_eq!(names(&settled), [""; 0], "none is filed before it is synced");
    within(SOON, "what was not named", || names(&pending).iter().all(|name| !name.starts_with(".tmp")).then_some(()));
    disk.world.kill();
    disk.ends("fail");
    disk.world.start();
    disk.world.all_done("g");
    within(SOON, "all of them", || (names(&settled).len() == QUESTIONS.len()).then_some(()));
    assert_eq!(disk.lines("answered"), QUESTIONS.len());
}

/// The error may be about a file of another program.
#[test]
fn questions_are_filed_although_the_file_system_cannot_be_synced_as_a_whole() {
    let disk = Disk::new();
    disk.begins("fail", "fsync@file system:1-:EIO");
    disk.end_together(&["r1", "r2", "r3"]);
    disk.world.all_done("g");
    let settled = disk.world.state().join("settled/g");
    within(SOON, "all of them", || (fs::read_dir(&settled).into_iter().flatten().count() == 3).then_some(()));
    assert!(!disk.world.log().contains("is not on stable storage"));
}

#[test]
fn an_answer_that_was_not_written_changed_nothing() {
    let disk = Disk::new();
    let world = &disk.world;
    let agent = world.group("g");
    agent.ask_framework("r1");
    let ask = world.one_open();
    disk.begins("fail", "write@journal:1-:ENOSPC");
    let (status, problem) = world.answer(&ask, &json!({"r1_0": "Vue"}));
    assert_eq!(status, 503, "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("nothing was changed"), "{problem}");
    disk.ends("fail");
    assert_eq!(world.details(ask["id"].as_str().unwrap())["state"], "open", "nothing was changed");
    assert_eq!(world.answer(&ask, &json!({"r1_0": "React"})).0, 200);
    assert_eq!(agent.wait("r1")["result"]["answers"]["Which framework?"], "React");
    world.all_done("g");
}

/// The journal has the answer, so its file can wait until there is room for it.
#[test]
fn an_answer_whose_file_cannot_be_written_is_taken() {
    let mut disk = Disk::new();
    let agent = disk.world.group("g");
    agent.ask_framework("r1");
    let ask = disk.world.one_open();
    let file = ask["id"].as_str().unwrap();
    disk.begins("fail", &format!("openat2@{file}:1-:ENOSPC"));
    assert_eq!(disk.world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    agent.take("r1");
    within(SOON, "the flush to fail", || disk.world.log().contains("is not on stable storage").then_some(()));
    disk.world.kill();
    disk.ends("fail");
    disk.world.start();
    assert_eq!(disk.world.answer(&ask, &json!({"r1_0": "React"})).0, 409);
    disk.world.all_done("g");
}

#[test]
fn a_request_that_was_stored_by_halves_is_asked_once() {
    let mut disk = Disk::new();
    let agent = disk.world.group("g");
    agent.ask_framework("r0");
    disk.world.open_of("r0");
    disk.begins("fail", "fsync@journal:1-:EIO");
    agent.ask_framework("r1");
    within(SOON, "the complaint", || {
        (disk.world.log().matches("does not know whether an ask is stored").count() > 0).then_some(())
    });
    assert!(!agent.task_names().is_empty(), "its request is not deleted before it is stored");
    disk.ends("fail");
    let ask = disk.world.open_of("r1");
    agent.tasks_gone();
    assert_eq!(disk.world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    agent.take("r1");
    disk.world.kill();
    disk.world.start();
    let open = disk.world.open();
    assert_eq!(open.len(), 1, "no ghost: {open:?}");
    assert_eq!(open[0]["request_id"], "r0");
    assert_eq!(disk.lines("asked"), 2);
    assert!(agent.response("r1").is_none(), "nothing twice");
}

/// Its agent takes the outcome before the request would be read again.
#[test]
fn a_request_that_was_stored_by_halves_is_answered_once() {
    let disk = Disk::new().and_one_done();
    let world = &disk.world;
    let agent = world.group("g");
    disk.begins("fail", "fsync@journal:1-:EIO");
    agent.ask_framework("r1");
    within(SOON, "the complaint", || world.log().contains("does not know whether an ask is stored").then_some(()));
    disk.ends("fail");
    assert_eq!(world.answer(&world.open_of("r1"), &json!({"r1_0": "Vue"})).0, 200);
    agent.take("r1");
    agent.tasks_gone();
    world.all_done("g");
    // A request that is put back is read again a second later at the latest.
    thread::sleep(Duration::from_millis(1_500));
    assert!(agent.response("r1").is_none(), "nothing twice");
}

#[test]
fn an_ask_whose_first_save_takes_long_still_times_out() {
    let disk = Disk::new().and_one_done();
    let agent = disk.world.group("g");
    disk.begins("slow", "fsync@journal:11000");
    agent.ask("r1", &json!({"timeoutMs": 10000, "renderTimeout": 10000, "questions": [{"question": "Go?"}]}));
    within(SOON, "the save to begin", || agent.task_names().into_iter().find(|name| name.starts_with(".claimed-")));
    disk.ends("slow");
    assert_eq!(agent.wait("r1")["result"]["status"], "timeout");
    disk.world.all_done("g");
}

/// Titles on which askd panics in the core, or when it acts on a stored step.
fn panics(at: &str) -> World {
    let world = World::empty().env("ASKD_PANIC_AT", &format!("{at}:The bad one")).started();
    let agent = world.group("g");
    agent.ask("bad", &json!({"title": "The bad one", "questions": [{"question": "Go?"}]}));
    agent.ask_framework("good");
    world.open_of("good");
    world
}

#[test]
fn an_ask_on_which_askd_panics_is_set_aside_and_the_others_go_on() {
    let mut world = panics("step");
    let agent = world.group("g");
    let bad = world.open_of("bad");
    let (status, problem) = world.answer(&bad, &json!({"bad_0": "yes"}));
    assert_eq!(status, 500, "{problem}");
    let response = agent.wait("bad");
    assert_eq!(response["result"]["status"], "rejected");
    assert!(response["error"].as_str().unwrap().contains("failed on this question"), "{response}");
    assert_eq!(world.answer(&bad, &json!({"bad_0": "yes"})).0, 404);
    let kept = format!("{}.json.set-aside", bad["id"].as_str().unwrap());
    assert!(world.state_files("pending_questions/g").contains(&kept));
    assert_eq!(world.log().matches("has set it aside").count(), 1);
    assert_eq!(world.answer(&world.open_of("good"), &json!({"good_0": "Vue"})).0, 200);
    agent.wait("good");
    world.kill();
    world.start();
    assert!(world.open().is_empty(), "nor does it come back");
}

/// Before, the folder was not read any more until the next file came.
#[test]
fn a_request_on_which_askd_panics_is_set_aside_and_those_after_it_go_on() {
    for at in ["accept", "store"] {
        let mut world = World::empty().env("ASKD_PANIC_AT", &format!("{at}:The bad one"));
        let agent = world.group("g");
        agent.ask("bad", &json!({"title": "The bad one", "questions": [{"question": "Go?"}]}));
        agent.ask_framework("good");
        world.start();
        world.open_of("good");
        let response = agent.wait("bad");
        assert_eq!(response["result"]["status"], "rejected");
        assert!(response["error"].as_str().unwrap().contains("failed on this question"), "{response}");
        within(SOON, "the requests to be deleted", || agent.task_names().is_empty().then_some(()));
        assert_eq!(world.open().len(), 1, "nothing is left of it");
    }
}

#[test]
fn a_request_that_joins_a_question_is_set_aside_if_askd_panics_on_it() {
    // With a database each request goes this way, also the first.
    let world = World::empty().in_files().env("ASKD_PANIC_AT", "decide:The bad one").started();
    let agent = world.group("g");
    let bad = json!({"title": "The bad one", "idempotency_key": "k", "questions": [{"question": "Go?"}]});
    agent.ask("first", &bad);
    let open = world.open_of("first");
    agent.ask("second", &bad);
    assert_eq!(agent.wait("second")["result"]["status"], "rejected");
    within(SOON, "it to be kept", || (world.state_files("rejected/g").len() == 1).then_some(()));
    assert_eq!(world.answer(&open, &json!({"first_0": "yes"})).0, 200);
    agent.wait("first");
    agent.ask_framework("good");
    world.open_of("good");
}

#[test]
fn a_call_on_which_askd_panics_is_told_so() {
    let remote = Remote::of(World::empty().env("ASKD_PANIC_AT", "decide:The bad one"));
    let request = json!({"request_id": "r1", "title": "The bad one", "questions": [{"question": "Go?"}]});
    let (status, problem) = remote.agent("g").call("POST", "/asks", &request.to_string());
    assert_eq!((status, &problem["title"]), (500, &json!("Set aside")), "{problem}");
}

/// An agent takes back what askd has not taken, and is told that no daemon runs. But this one may be asked.
#[test]
fn a_request_in_doubt_stays_claimed_until_it_is_asked() {
    let disk = Disk::new().and_one_done();
    let (world, agent) = (&disk.world, disk.world.group("g"));
    disk.begins("fail", "fsync@journal:1-:EIO");
    agent.ask_framework("r1");
    within(SOON, "the doubt", || world.log().contains("does not know whether an ask is stored").then_some(()));
    for _ in 0..20 {
        world.later(Duration::from_secs(1));
        let names = agent.task_names();
        assert!(names.len() == 1 && names[0].starts_with(".claimed-"), "{names:?}");
    }
    disk.ends("fail");
    let ask = world.open_of("r1");
    within(SOON, "the request to be deleted", || agent.task_names().is_empty().then_some(()));
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    agent.wait("r1");
    assert!(world.open().is_empty(), "it is asked once");
}

#[test]
fn a_question_that_was_set_aside_is_not_said_to_be_withdrawn() {
    let remote = Remote::of(World::empty().env("ASKD_PANIC_AT", "step:The bad one"));
    let agent = remote.agent("g");
    let asks = |request_id: &str| {
        let request =
            json!({"request_id": request_id, "title": "The bad one", "questions": [{"question": request_id}]});
        assert_eq!(agent.call("POST", "/asks", &request.to_string()).0, 201);
    };
    asks("r1");
    let (status, problem) = agent.call("DELETE", "/asks/r1", "");
    assert_eq!((status, &problem["title"]), (500, &json!("Set aside")), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("set it aside, so no answer will come"), "{problem}");
    assert_eq!(agent.call("DELETE", "/asks/r1", "").0, 404);
    asks("r2");
    let told = Client::modern(agent).call(1, "ask_user_cancel", &json!({"question_id": "r2"}));
    assert!(told.is_error && told.text.contains("set it aside"), "{told:?}");
    assert_eq!(remote.world.log().matches("has set it aside").count(), 2);
    let folder = remote.world.data().join("ipc/g");
    assert!(!folder.exists(), "nobody reads a response there");
}

#[test]
fn a_lane_has_a_runner_after_a_panic() {
    let mut world = panics("act");
    let agent = world.group("g");
    let bad = world.open_of("bad");
    assert_eq!(world.answer(&bad, &json!({"bad_0": "yes"})).0, 200, "somebody runs its lane");
    assert_eq!(world.answer(&bad, &json!({"bad_0": "no"})).0, 409);
    world.without_env("ASKD_PANIC_AT");
    world.kill();
    world.start();
    assert_eq!(agent.wait("bad")["result"]["answers"]["Go?"], "yes");
}

/// A save that failed, and a disk that takes less than a record, are told to those who ask whether askd is ready.
#[test]
fn readiness_says_that_nothing_can_be_stored() {
    let disk = Disk::new().and_one_done();
    let world = &disk.world;
    let agent = world.group("g");
    let ready = || world.raw("GET", "/readyz", "", "");
    assert_eq!(ready(), (200, "ready\n".to_owned()));
    disk.begins("fail", "write:1-:ENOSPC");
    assert_eq!(ready(), (503, "the state folder cannot be written\n".to_owned()));
    disk.ends("fail");
    assert_eq!(ready(), (200, "ready\n".to_owned()));

    agent.ask_framework("r1");
    let ask = world.one_open();
    disk.begins("fail", "fsync@journal:1-:EIO");
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 503);
    assert_eq!(ready().0, 503);
    disk.ends("fail");
    within(SOON, "the save to be finished", || (ready() == (200, "ready\n".to_owned())).then_some(()));
    agent.take("r1");
}

/// Otherwise no command of the host would be let in, and the token before, which somebody may have, would go on opening the inbox.
#[test]
fn a_new_inbox_token_that_was_written_and_not_synced_is_the_one_that_holds() {
    let disk = Disk::of(World::empty().in_files().with_binary());
    let (world, before) = (&disk.world, disk.world.token());
    let opens =
        |token: &str| world.raw("GET", "/api/v1/me", &format!("authorization: Bearer {token}\r\n"), "").0 == 200;
    disk.begins("fail", "fsync@folder:1-:EIO");
    let made = world.run(&["link", "--new"]);
    disk.ends("fail");
    let told = "askd: The inbox token may have been replaced, or not: the disk or the database failed half-way. `askd link` on askd's \
                host prints the one that holds now; the daemon's log says what is wrong.\n";
    assert_eq!((err(&made).as_str(), made.status.code()), (told, Some(1)));
    let token = world.token();
    assert!(token != before && opens(&token) && !opens(&before));
    let link = world.run(&["link"]);
    assert_eq!(out(&link), format!("{}/#token={token}\n", world.url()), "{}", err(&link));
    // And where nothing was written.
    disk.begins("fail", "write:1-:ENOSPC");
    let refused = world.run(&["link", "--new"]);
    disk.ends("fail");
    assert!(err(&refused).starts_with("askd: It could not be stored, and nothing was changed."), "{}", err(&refused));
    assert!(world.token() == token && opens(&token));
    assert!(world.run(&["link", "--new"]).status.success());
}

/// Behind very many words that a disk keeps waiting, whoever says something hears at once that it is not stored. The sabotage has one
/// be very many.
#[test]
fn behind_too_many_words_that_wait_for_the_disk_a_further_one_is_refused_at_once() {
    let disk = Disk::of(World::empty().in_files().with_binary().env("ASKD_SABOTAGE", "oneword"));
    let (world, agent) = (&disk.world, disk.world.group("research"));
    let [first, second] = ["r1", "r2"].map(|name| {
        agent.ask_framework(name);
        world.open_of(name)
    });
    disk.begins("slow", "fsync@journal:3000");
    let is_on_its_way = || {
        let files = fs::read_dir(world.state().join("journal")).into_iter().flatten();
        let text = |file: std::io::Result<fs::DirEntry>| fs::read(file.ok()?.path()).ok();
        files.filter_map(text).any(|text| String::from_utf8_lossy(&text).contains("\"answered\"")).then_some(())
    };
    thread::scope(|scope| {
        let waits = scope.spawn(|| world.answer(&first, &json!({"r1_0": "Vue"})).0);
        within(SOON, "the first to be written", is_on_its_way);
        let begun = Instant::now();
        let (status, told) = world.answer(&second, &json!({"r2_0": "Vue"}));
        assert_eq!(status, 503, "{told}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(waits.join().unwrap(), 200);
    });
    disk.ends("slow");
    assert_eq!(world.answer(&second, &json!({"r2_0": "Vue"})).0, 200);
    agent.wait("r1");
    agent.wait("r2");
}
