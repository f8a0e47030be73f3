//! For every promise one deliberate sabotage: the check of the promise has to notice it. The honest
//! daemon passes the same checks in the same run, so that a check cannot fail for another reason.
//! (The promises of the pure core are broken by patches: `tests/sabotage`.)

use crate::harness::{World, names, within};
use crate::mcp_url::{
    nothing_is_joined_without_a_session, what_a_client_cancels_is_still_owed,
    what_a_reset_connection_carried_is_still_owed, what_nobody_acknowledged_is_still_owed,
};
use crate::remote::{only_its_holder_takes_an_outcome, revoking_ends_open_calls};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for an honest daemon, short enough for a broken one.
const BRIEFLY: Duration = Duration::from_secs(12);

/// Both daemons are checked at the same time: the broken one waits in vain, most of the time.
fn noticed(sabotage: &str, check: impl Fn(World) + Sync) {
    let caught = thread::scope(|scope| {
        let broken = scope.spawn(|| check(World::empty().env("ASKD_SABOTAGE", sabotage)));
        check(World::empty().with_binary());
        broken.join()
    });
    assert!(caught.is_err(), "{sabotage}: nobody noticed");
}

/// P3: an answer that was acknowledged is there after `kill -9`.
#[test]
fn acknowledging_before_storing_is_noticed() {
    noticed("ackfirst", |world| {
        let mut world = world.started();
        let agent = world.group("g");
        agent.ask_framework("r1");
        let ask = world.one_open();
        assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
        world.kill();
        world.start();
        within(BRIEFLY, "the acknowledged answer", || agent.response("r1"));
    });
}

/// A name leads a webhook to no private address.
#[test]
fn a_webhook_that_is_called_anywhere_is_noticed() {
    noticed("anywhere", crate::sessions_webhook::a_private_address_is_not_called);
}

/// A call that waits for an answer which another call is given makes no second card.
#[test]
fn asking_a_waiting_repeat_anew_is_noticed() {
    noticed("askedanew", crate::sessions::both_are_told);
}

/// P4: a response is absent or complete.
#[test]
fn a_torn_response_is_noticed() {
    noticed("torn", |world| {
        let world = world.started();
        let agent = world.group("g");
        agent.ask_framework("r1");
        world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
        within(BRIEFLY, "the response", || agent.response("r1"));
    });
}

/// P4: what was not taken is there for its taker.
#[test]
fn an_outcome_that_counts_as_taken_with_its_folder_is_noticed() {
    noticed("renewed", |world| crate::renewed::a_response_that_went_with_its_folder_is_written_again(world, BRIEFLY));
}

/// A request is asked once, also while the daemon is still reading what it has stored.
#[test]
fn taking_a_request_before_its_group_is_read_is_noticed() {
    noticed("unread", |world| {
        let mut world = world.started();
        let agent = world.group("g");
        agent.ask_framework("r1");
        world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
        agent.take("r1");
        world.all_done("g");
        world.kill();
        agent.ask_framework("r1");
        world.start_held("settled/g");
        agent.status_of("r1");
        thread::sleep(Duration::from_millis(500));
        world.let_go();
        agent.tasks_gone();
        assert_eq!(world.open().len(), 0, "it was answered before");
    });
}

/// Law 3: the directory is the truth.
#[test]
fn trusting_events_alone_is_noticed() {
    noticed("noscan", |world| {
        let world = world.env("ASKD_WATCH", "off").started();
        let agent = world.group("g");
        world.group("other").ask_framework("first");
        within(BRIEFLY, "the first", || world.open().pop());
        agent.ask_framework("r1");
        within(BRIEFLY, "a request without an event", || {
            world.open().into_iter().find(|ask| ask["request_id"] == "r1")
        });
    });
}

/// P5: an outcome reaches the group, also after a crash between deciding and delivering.
#[test]
fn forgetting_what_is_owed_is_noticed() {
    noticed("noresume", |world| {
        let mut world = world.env("ASKD_CRASH_AT", "settle.saved").started();
        let agent = world.group("g");
        agent.ask_framework("r1");
        let ask = world.one_open();
        drop(catch_unwind(AssertUnwindSafe(|| world.answer(&ask, &json!({"r1_0": "Vue"})))));
        world.ended();
        world.without_env("ASKD_CRASH_AT");
        world.start();
        within(BRIEFLY, "the response that was owed", || agent.response("r1"));
    });
}

/// P3: what was allowed again stays allowed after `kill -9`.
#[test]
fn allowing_again_in_memory_only_is_noticed() {
    noticed("allowlost", |world| {
        let mut world = world.config("[asks]\nmax_attempts = 1\n").started();
        let agent = world.group("g");
        let question = json!({"questions": [{"question": "Go?", "options": ["yes", "no"]}]});
        agent.ask("r1", &question);
        let id = world.one_open()["id"].as_str().unwrap().to_owned();
        for verb in ["dismiss", "reset"] {
            assert_eq!(world.call("POST", &format!("/asks/{id}/{verb}"), Some(&json!({}))).0, 200);
        }
        world.kill();
        world.start();
        agent.ask("r2", &question);
        within(BRIEFLY, "the question to be asked again", || world.open().pop());
    });
}

/// P10: no ask waits longer than its deadline.
#[test]
fn a_clock_that_nobody_looks_at_is_noticed() {
    noticed("notick", |world| {
        let world = world.started();
        let agent = world.group("g");
        agent.ask("r1", &json!({"timeoutMs": 10000, "questions": [{"question": "Go?"}]}));
        within(Duration::from_secs(20), "the timeout", || agent.response("r1"));
    });
}

/// P9: one group's flood is its own.
#[test]
fn one_desk_for_all_groups_is_noticed() {
    noticed("onedesk", |world| {
        // A single desk goes on with the flood that it has begun until it is over.
        let (noisy, honest) = (world.group("flood"), world.group("honest"));
        for number in 0..3000 {
            let name = noisy.tasks().join(format!("{number}.json"));
            std::fs::write(name, br#"{"type":"ask_user:ask","request_id":"x","questions":7}"#).unwrap();
        }
        let world = world.started();
        within(BRIEFLY, "the flood to be taken", || (noisy.task_names().len() < 3000).then_some(()));
        honest.ask_framework("r1");
        within(BRIEFLY, "the honest group", || world.open().pop());
        assert!(!noisy.task_names().is_empty(), "it waited for the flood");
    });
}

/// P7: without the token nobody answers.
#[test]
fn a_door_without_a_lock_is_noticed() {
    noticed("notoken", |world| {
        let world = world.started();
        world.group("g").ask_framework("r1");
        let id = world.one_open()["id"].as_str().unwrap().to_owned();
        let headers = "content-type: application/json\r\n";
        let body = json!({"answers": {"r1_0": "Vue"}}).to_string();
        assert_eq!(world.raw("POST", &format!("/api/v1/asks/{id}/answer"), headers, &body).0, 401);
    });
}

/// P7: a person who is limited to some groups sees nothing of another.
#[test]
fn a_person_who_sees_every_group_is_noticed() {
    noticed("allgroups", |world| {
        let people = "[web]\npeople = [{ name = \"ann\", token = \"ann-0123456789abcdef\", groups = [\"writer\"] }]\n";
        let world = world.config(people).started();
        world.group("g").ask_framework("r1");
        let id = world.one_open()["id"].as_str().unwrap().to_owned();
        let headers = "authorization: Bearer ann-0123456789abcdef\r\n";
        assert_eq!(world.raw("GET", &format!("/api/v1/asks/{id}"), headers, "").0, 404);
    });
}

fn strace_works() -> bool {
    let works = Command::new("strace").args(["-e", "trace=none", "true"]).stderr(Stdio::null()).status();
    works.is_ok_and(|status| status.success())
}

/// P1: what is accepted survives a power cut, which is to say: the journal is synced, the request is deleted after that, and a
/// response is synced before it gets its name. Read off the system calls.
#[test]
fn a_missing_sync_is_noticed() {
    if !strace_works() {
        println!("SKIPPED a_missing_sync_is_noticed: strace cannot be used here");
        return;
    }
    noticed("nofsync", |world| {
        let mut world = world.started_under_strace();
        let agent = world.group("g");
        agent.ask_framework("r1");
        let ask = world.one_open();
        agent.tasks_gone();
        assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
        within(BRIEFLY, "the response", || agent.response("r1"));
        world.terminate_traced();
        let calls = world.calls();
        let position = |from: usize, what: &[&str]| {
            let found = calls[from..].iter().position(|call| what.iter().all(|word| call.contains(word)));
            from + found.unwrap_or_else(|| panic!("no {what:?} after line {from} of\n{}", calls.join("\n")))
        };
        let claimed = position(0, &["renameat", ".claimed-"]);
        let journal = position(claimed, &["fdatasync("]);
        let deleted = position(claimed, &["unlinkat", ".claimed-"]);
        assert!(journal < deleted, "the record is synced before the request goes");
        let unpublished = position(deleted, &["openat2", ".new-r1", "O_CREAT"]);
        let published = position(unpublished, &["renameat", ".new-r1", "r1.json"]);
        assert!(
            calls[unpublished..published].iter().any(|call| call.contains("fsync(")),
            "the response is synced before its name"
        );
        position(published, &["fsync("]);
    });
}

/// An agent that is told to stop in the moment in which it begins to listen for that stops, and leaves no question behind.
#[test]
fn a_signal_that_is_lost_is_noticed() {
    if !strace_works() {
        println!("SKIPPED a_signal_that_is_lost_is_noticed: strace cannot be used here");
        return;
    }
    let stops = |sabotage: &str| {
        let dir = tempfile::tempdir().unwrap();
        let mut command = Command::new("strace");
        // Each handler is there for a while before the call that installs it returns.
        command.args([
            "-qq",
            "-o",
            "/dev/null",
            "-e",
            "trace=rt_sigaction",
            "-e",
            "inject=rt_sigaction:delay_exit=50000",
        ]);
        command.arg("--").arg(env!("CARGO_BIN_EXE_askd")).args(["ask", "Now?"]);
        command.env("ASKD__DATA_DIR", dir.path()).env("ASKD_SABOTAGE", sabotage);
        let mut strace = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let children = format!("/proc/{0}/task/{0}/children", strace.id());
        let agent = within(BRIEFLY, "the handler", || {
            let agent: i32 = fs::read_to_string(&children).ok()?.trim().parse().ok()?;
            let status = fs::read_to_string(format!("/proc/{agent}/status")).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?;
            let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
            (caught & (1 << (Signal::TERM.as_raw() - 1)) != 0).then(|| Pid::from_raw(agent).unwrap())
        });
        kill_process(agent, Signal::TERM).unwrap();
        let until = Instant::now() + BRIEFLY;
        while strace.try_wait().unwrap().is_none() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
        let stopped = strace.try_wait().unwrap().is_some();
        if !stopped {
            kill_process(agent, Signal::KILL).unwrap();
        }
        strace.wait().unwrap();
        stopped && names(&dir.path().join("ipc/default/tasks")).iter().all(|name| name.starts_with('.'))
    };
    assert!(stops(""));
    assert!(!stops("nohold"), "nobody noticed");
}

/// P5: an outcome that nobody takes starts the agent.
#[test]
fn looking_after_nothing_is_noticed() {
    use crate::sessions::{Program, with_session};
    let dir = tempfile::tempdir().unwrap();
    let life = |sabotage: &str, starts: bool| {
        let program = Program::new(dir.path(), &format!("start-{sabotage}"), 0);
        let session = format!("start = {{ command = [\"{}\"] }}", program.path.display());
        let world = with_session(&session, "pickup_timeout = \"1h\"").env("ASKD_SABOTAGE", sabotage).started();
        let agent = world.group("g");
        agent.ask("r1", &json!({"process": "died", "questions": [{"question": "Go?"}]}));
        assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "yes"})).0, 200);
        let started = catch_unwind(AssertUnwindSafe(|| {
            within(Duration::from_secs(40), "the agent to be started", || program.runs().into_iter().next())
        }));
        assert_eq!(started.is_ok(), starts, "{sabotage}");
    };
    thread::scope(|scope| {
        scope.spawn(|| life("", true));
        scope.spawn(|| life("nocollect", false));
    });
}

/// P5: a response that was put out of reach is not taken for one that was collected, also after a crash.
#[test]
fn forgetting_a_rename_is_noticed() {
    use crate::sessions::{Program, with_session};
    let dir = tempfile::tempdir().unwrap();
    let life = |sabotage: &str, starts: bool| {
        let program = Program::new(dir.path(), &format!("start-{sabotage}"), 0);
        let session = format!("start = {{ command = [\"{}\"] }}", program.path.display());
        let rules = "pickup_timeout = \"1s\"";
        let mut world = with_session(&session, rules)
            .with_binary()
            .env("ASKD_CRASH_AT", "wake.withdrawn")
            .env("ASKD_SABOTAGE", sabotage)
            .started();
        let agent = world.group("g");
        agent.ask_framework("r1");
        assert_eq!(world.answer(&world.one_open(), &json!({"r1_0": "Vue"})).0, 200);
        assert!(!world.ended().success(), "it crashed");
        world.without_env("ASKD_CRASH_AT");
        world.start();
        let started = catch_unwind(AssertUnwindSafe(|| {
            within(BRIEFLY, "the agent to be started", || program.runs().into_iter().next())
        }));
        assert_eq!(started.is_ok(), starts, "{sabotage}");
    };
    thread::scope(|scope| {
        scope.spawn(|| life("", true));
        scope.spawn(|| life("forgetrename", false));
    });
}

/// P2: an outcome over HTTP has one taker.
#[test]
fn any_taker_of_an_outcome_is_noticed() {
    noticed("anytaker", only_its_holder_takes_an_outcome);
}

/// A revocation ends what is open.
#[test]
fn a_revocation_that_leaves_open_calls_is_noticed() {
    noticed("revokelater", revoking_ends_open_calls);
}

/// Two jobs with one token do not share a consent.
#[test]
fn a_token_that_counts_as_a_session_is_noticed() {
    noticed("tokenjoins", nothing_is_joined_without_a_session);
}

/// An outcome counts as taken by an MCP client that can have it.
#[test]
fn an_outcome_that_counts_as_taken_over_a_reset_connection_is_noticed() {
    noticed("resettaken", what_a_reset_connection_carried_is_still_owed);
}

#[test]
fn an_outcome_that_counts_as_taken_although_nobody_acknowledged_it_is_noticed() {
    noticed("silenttaken", what_nobody_acknowledged_is_still_owed);
}

/// What a client of MCP cancels it does not have.
#[test]
fn a_cancelled_call_that_counts_as_taken_is_noticed() {
    noticed("cancelledtaken", what_a_client_cancels_is_still_owed);
}

/// A stop knows what was sent before it.
#[test]
fn a_stop_that_forgets_what_was_sent_is_noticed() {
    noticed("forgetsent", crate::mcp_url::what_was_sent_before_a_stop_is_taken);
}

/// A reload takes the new certificate.
#[test]
fn a_reload_that_keeps_the_old_certificate_is_noticed() {
    noticed("oldcert", crate::remote_agents::a_reload_reads_the_certificate_anew);
}
