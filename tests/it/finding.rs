//! Whatever is written is found: in new folders, while the daemon was down, without any event.

use crate::harness::{SOON, World, within};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

/// What is allowed where no event ever comes: 5 s until the next look, and time for a busy machine, but
/// none for a second look.
const WITHOUT_EVENTS: Duration = Duration::from_millis(9_500);

#[test]
fn a_folder_made_and_filled_in_the_same_instant_is_served() {
    let world = World::new();
    // Twenty of them: most of the files would be missed by whoever trusts events.
    for number in 0..20 {
        world.group(&format!("new{number}")).ask_framework("r1");
    }
    let begun = Instant::now();
    within(WITHOUT_EVENTS, "all twenty", || (world.open().len() == 20).then_some(()));
    println!("twenty new folders after {:?}", begun.elapsed());
}

/// As at the limit of open files.
#[test]
fn a_look_that_fails_for_a_moment_costs_no_group_its_place() {
    let world = World::process();
    let agent = world.group("not-in-the-settings");
    agent.ask_framework("r1");
    world.open_of("r1");
    // What is in the folder of all groups is known by then, and nothing is new there.
    std::thread::sleep(Duration::from_secs(11));
    let limit = |soft: u32| {
        let limit = format!("--nofile={soft}:");
        let set = Command::new("prlimit").args(["--pid", &world.pid().to_string(), &limit]).status().unwrap();
        assert!(set.success());
    };
    limit(10);
    let failed = || world.log().contains("cannot list the groups' folders").then_some(());
    within(SOON, "a look to fail", failed);
    limit(1_024);
    agent.ask_framework("r2");
    within(WITHOUT_EVENTS, "the next one", || world.open().into_iter().find(|ask| ask["request_id"] == "r2"));
}

#[test]
fn a_whole_tree_renamed_into_place_is_served() {
    let world = World::new();
    let aside = world.dir.path().join("aside");
    fs::create_dir_all(aside.join("tasks")).unwrap();
    fs::write(
        aside.join("tasks/r1.json"),
        r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#,
    )
    .unwrap();
    fs::rename(aside, world.data().join("ipc/moved")).unwrap();
    within(WITHOUT_EVENTS, "the request", || world.open().pop());
}

#[test]
fn what_was_written_while_the_daemon_was_down_is_served() {
    let mut world = World::process();
    world.kill();
    let agent = world.group("g");
    agent.ask_framework("r1");
    world.start();
    world.open_of("r1");
}

#[test]
fn without_a_single_event_a_request_is_found_in_time() {
    let world = World::empty().env("ASKD_WATCH", "off").started();
    let agent = world.group("g");
    // Long after the start, between two looks.
    world.group("other").ask_framework("first");
    within(WITHOUT_EVENTS, "the first", || world.open().pop());
    agent.ask_framework("r1");
    let begun = Instant::now();
    within(WITHOUT_EVENTS, "the request", || world.open().into_iter().find(|ask| ask["request_id"] == "r1"));
    println!("found without events after {:?}", begun.elapsed());
    assert!(world.log().contains("watching is switched off"));
}

#[test]
fn a_tasks_folder_that_was_replaced_is_watched_again() {
    let world = World::new();
    let agent = world.group("g");
    agent.ask_framework("r1");
    world.open_of("r1");
    fs::rename(agent.tasks(), agent.path.join("old")).unwrap();
    // The daemon may have been quicker.
    fs::create_dir_all(agent.tasks()).unwrap();
    agent.ask_framework("r2");
    // A look may fall into the moment in which there is none.
    within(SOON, "the request in the new folder", || world.open().into_iter().find(|ask| ask["request_id"] == "r2"));
}

#[test]
fn other_peoples_files_are_left_alone() {
    let world = World::new();
    let agent = world.group("g");
    let others: [(&str, &[u8]); 6] = [
        ("ipc.json", br#"{"type":"message","chatJid":"1@g.us","text":"hello"}"#),
        ("notype.json", br#"{"request_id":"r9"}"#),
        ("list.json", b"[1,2,3]"),
        ("note.txt", b"not json at all"),
        ("garbage.json", b"\x00\xff\xfe"),
        ("typed.json", br#"{"type":7}"#),
    ];
    for (name, content) in others {
        agent.put(name, content);
    }
    fs::write(
        agent.tasks().join(".hidden.json"),
        br#"{"type":"ask_user:ask","request_id":"h","questions":[{"question":"q"}]}"#,
    )
    .unwrap();
    agent.ask_framework("ours");
    world.open_of("ours");
    world.passing(SOON, "the complaint about what has no type", || {
        (world.log().matches("has no readable").count() == 1).then_some(())
    });
    for (name, content) in others {
        assert_eq!(fs::read(agent.tasks().join(name)).unwrap(), content, "{name}");
    }
    assert!(agent.tasks().join(".hidden.json").exists());
    assert_eq!(world.open().len(), 1);
    assert!(world.state_files("rejected/g").is_empty());
}

#[test]
fn a_half_written_file_is_read_again_once_it_is_whole() {
    let world = World::new();
    let agent = world.group("g");
    let whole = br#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
    fs::write(agent.tasks().join("r1.json"), &whole[..40]).unwrap();
    agent.ask_framework("other");
    world.open_of("other");
    assert!(world.state_files("rejected/g").is_empty(), "not judged while it may still be written");
    fs::write(agent.tasks().join("r1.json"), whole).unwrap();
    world.open_of("r1");
}

/// A file may be half-written for a minute. Another one is finished after 12 s.
#[test]
fn a_writer_may_pause_and_what_stays_cut_off_is_answered_and_kept() {
    let world = World::new();
    let agent = world.group("g");
    let torn = br#"{"type":"ask_user:ask","request_id":"r1","questions":[{"quest"#;
    fs::write(agent.tasks().join("r1.json"), torn).unwrap();
    let whole = br#"{"type":"ask_user:ask","request_id":"r2","questions":[{"question":"Go?"}]}"#;
    let cancelled = br#"{"type":"ask_user:ask","request_id":"r3","questions":[{"question":"Stop?"}]}"#;
    for (name, content) in [("r2.json", &whole[..45]), ("r3.json", &cancelled[..45])] {
        fs::write(agent.tasks().join(name), content).unwrap();
    }
    agent.cancel("r3");
    // A known request is withdrawn, even with a half-written file beside it.
    agent.ask_framework("r4");
    world.open_of("r4");
    agent.cancel("r4");
    world.passing(Duration::from_secs(6), "the withdrawal", || agent.response("r4"));
    assert_eq!(agent.wait("r4")["result"]["reason"], "system");
    world.later(Duration::from_secs(12));
    std::thread::sleep(Duration::from_millis(200));
    assert!(agent.response("r2").is_none(), "still being written");
    for (name, content) in [("r2.json", &whole[..]), ("r3.json", &cancelled[..])] {
        fs::write(agent.tasks().join(name), content).unwrap();
    }
    world.open_of("r2");
    assert_eq!(agent.wait("r3")["result"]["reason"], "system", "its cancel came first");
    // It was written a moment before the others were cut off: 60 s are not over yet.
    world.later(Duration::from_secs(40));
    std::thread::sleep(Duration::from_millis(200));
    assert!(agent.response("r1").is_none(), "still being written");
    let response = world.passing(Duration::from_secs(30), "the rejection", || agent.response("r1"));
    assert_eq!(response["result"]["status"], "rejected");
    assert!(response["error"].as_str().unwrap().contains("EOF"), "{response}");
    agent.tasks_gone();
    let kept = world.state_files("rejected/g");
    assert_eq!(fs::read(world.data().join("state/rejected/g").join(&kept[0])).unwrap(), torn, "nothing is lost");
}

#[test]
fn a_name_that_is_not_utf_8_is_a_name_like_any_other() {
    use std::os::unix::ffi::OsStrExt as _;
    let world = World::new();
    let agent = world.group("g");
    let odd = agent.tasks().join(std::ffi::OsStr::from_bytes(b"\xff\xfeodd.json"));
    fs::write(&odd, r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#).unwrap();
    world.open_of("r1");
    within(SOON, "the request to be gone", || (!odd.exists()).then_some(()));
    // A group's folder of such a name is named once.
    let folder = world.data().join("ipc").join(std::ffi::OsStr::from_bytes(b"\xffgroup"));
    fs::create_dir_all(folder.join("tasks")).unwrap();
    let said = || world.log().lines().filter(|line| line.contains("ignored: not a group's name")).count();
    within(SOON, "the folder to be named", || (said() == 1).then_some(()));
    agent.ask_framework("r2");
    world.open_of("r2");
    world.later(Duration::from_secs(6));
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(said(), 1, "{}", world.log());
}

#[test]
fn a_byte_order_mark_in_front_is_skipped() {
    let world = World::new();
    let agent = world.group("g");
    let asked = br#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
    agent.put("r1.json", &[b"\xef\xbb\xbf".as_slice(), asked].concat());
    world.answer(&world.open_of("r1"), &json!({"Go?": "yes"}));
    assert_eq!(agent.wait("r1")["result"]["answers"]["Go?"], "yes");
}

#[test]
fn links_pipes_and_giants_are_left_alone_and_hold_nobody_up() {
    let world = World::new();
    let agent = world.group("g");
    let secret = world.dir.path().join("secret");
    fs::write(&secret, br#"{"type":"ask_user:ask","request_id":"stolen","questions":[{"question":"q"}]}"#).unwrap();
    std::os::unix::fs::symlink(&secret, agent.tasks().join("link.json")).unwrap();
    fs::hard_link(&secret, agent.tasks().join("second.json")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        agent.tasks().join("pipe.json"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    fs::create_dir(agent.tasks().join("folder.json")).unwrap();
    fs::File::create(agent.tasks().join("sparse.json")).unwrap().set_len(10 << 40).unwrap();
    let mut large = br#"{"type":"ask_user:ask","request_id":"large","questions":[{"question":"q"}],"pad":""#.to_vec();
    large.resize(1024 * 1024, b'x');
    large.extend_from_slice(br#""}"#);
    agent.put("large.json", &large);
    agent.ask_framework("honest");
    world.open_of("honest");
    // One for each reason: two are too large.
    within(SOON, "the complaints", || (world.log().matches("was left alone").count() == 5).then_some(()));
    let names = agent.task_names();
    for name in ["link.json", "second.json", "pipe.json", "folder.json", "sparse.json", "large.json"] {
        assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
    }
    assert_eq!(world.open().len(), 1);
}

#[test]
fn names_that_are_no_groups_are_ignored_and_said() {
    let world = World::new();
    for name in ["-dash", "has space", ".hidden"] {
        world.group(name).ask_framework("r1");
    }
    world.group("fine").ask_framework("r1");
    world.one_open();
    within(SOON, "the complaint", || (world.log().matches("not a group's name").count() == 3).then_some(()));
    assert_eq!(world.open().len(), 1);
}

#[test]
fn a_link_where_a_folder_has_to_be_is_a_problem_until_it_is_removed() {
    let world = World::empty().in_files().groups(&["linked", "away"]);
    let (ipc, here) = (world.data().join("ipc"), world.dir.path().join("elsewhere"));
    // Another file system, where there is one.
    let memory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for folder in [ipc.as_path(), here.as_path(), &memory.path().join("tasks")] {
        fs::create_dir_all(folder).unwrap();
    }
    std::os::unix::fs::symlink(&here, ipc.join("linked")).unwrap();
    std::os::unix::fs::symlink(memory.path(), ipc.join("away")).unwrap();
    let world = world.started();
    let said = |what: &str| world.log().matches(what).count();
    within(SOON, "both complaints", || (said("it must be a folder, not a link") == 2).then_some(()));
    world.later(Duration::from_secs(20));
    let problems = world.call("GET", "/status", None).1["problems"].clone();
    let abouts: Vec<_> = problems.as_array().unwrap().iter().map(|problem| problem["about"].clone()).collect();
    assert_eq!(abouts, [json!("away"), json!("linked")], "{problems}");
    assert_eq!((said("it must be a folder, not a link"), said("nothing is wrong")), (2, 0), "{}", world.log());

    // As the fix says.
    fs::remove_file(ipc.join("linked")).unwrap();
    world.passing(WITHOUT_EVENTS, "the folder to be made", || ipc.join("linked/responses").exists().then_some(()));
    world.group("linked").ask_framework("r1");
    world.passing(WITHOUT_EVENTS, "the request", || world.open().into_iter().find(|ask| ask["request_id"] == "r1"));

    // Somebody makes the folder, before askd does.
    let aside = world.dir.path().join("aside");
    fs::create_dir_all(aside.join("tasks")).unwrap();
    let request = br#"{"type":"ask_user:ask","request_id":"r2","questions":[{"question":"Go?"}]}"#;
    fs::write(aside.join("tasks/r2.json"), request).unwrap();
    fs::set_permissions(aside.join("tasks"), fs::Permissions::from_mode(0o770)).unwrap();
    fs::remove_file(ipc.join("away")).unwrap();
    fs::rename(aside, ipc.join("away")).unwrap();
    world.passing(WITHOUT_EVENTS, "the request", || world.open().into_iter().find(|ask| ask["request_id"] == "r2"));
    world.passing(WITHOUT_EVENTS, "both to be well", || (said("nothing is wrong") == 2).then_some(()));
    assert_eq!(world.call("GET", "/status", None).1["problems"], json!([]));
}

#[test]
fn a_group_that_nobody_serves_is_told_so() {
    let world =
        World::empty().config("[defaults]\nroutes = []\n[groups.mine]\nroutes = [{ channel = \"web\" }]\n").started();
    let stranger = world.group("stranger");
    stranger.ask_framework("r1");
    let response = stranger.wait("r1");
    assert_eq!(response["result"]["status"], "rejected");
    assert!(response["error"].as_str().unwrap().contains("[groups.stranger]"), "{response}");
    world.group("mine").ask_framework("r1");
    assert_eq!(world.one_open()["group"], "mine");
}

/// P9, in its small form: a flood in one group keeps another waiting no longer than a second.
#[test]
fn a_flood_in_one_group_keeps_no_other_waiting() {
    let world = World::new();
    let (noisy, honest) = (world.group("noisy"), world.group("honest"));
    for number in 0..5000 {
        let name = noisy.tasks().join(format!("{number}.json"));
        fs::write(name, br#"{"type":"ask_user:ask","request_id":"x","questions":7}"#).unwrap();
    }
    let begun = Instant::now();
    honest.ask_framework("r1");
    world.open_of("r1");
    let (took, left) = (begun.elapsed(), noisy.task_names().len());
    println!("accepted beside a flood after {took:?}, {left} of its files were still to be read");
    // A second may be nothing on a busy machine; then most of the flood has not had its turn either.
    assert!(took < Duration::from_secs(1) || left > 4500, "{took:?}, {left}");
    assert_eq!(world.answer(&world.open_of("r1"), &json!({"r1_0": "Vue"})).0, 200);
    honest.wait("r1");
}
