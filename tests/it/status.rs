//! How the daemon is: `GET /api/v1/status` and `askd status`.

use crate::command_line::{as_another, of_another};
use crate::harness::{NOBODY, SOON, World, askd, choice, within};
use crate::in_slack::{ALICE, CHANNEL, Mode, STRANGER, in_slack};
use crate::on_whatsapp::{ADA, TO_ADA, on_whatsapp, sim};
use askd_sim::slack::FaultKind;
use askd_sim::whatsapp::Config;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

fn status(world: &World) -> Value {
    let (code, status) = world.call("GET", "/status", None);
    assert_eq!(code, 200, "{status}");
    status
}

/// A world with agents whose folders the daemon has made.
fn with_agents(names: &[&str]) -> World {
    let config = names.iter().fold(String::new(), |config, name| config + &format!("[groups.{name}]\n"));
    let world = World::empty().config(&config).started();
    for name in names {
        within(SOON, "its folders", || world.data().join("ipc").join(name).join("briefings").exists().then_some(()));
    }
    world
}

/// What `askd status` prints, and its exit code.
fn printed(world: &World, flags: &[&str]) -> (String, Option<i32>) {
    let output = askd().arg("status").args(flags).args(["--url", &world.url(), "--token", &world.token()]).output();
    let output = output.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn all_is_well_says_so_and_names_every_agent() {
    let world = with_agents(&["default", "idle", "research"]);
    world.group("research").ask_framework("r1");
    world.one_open();
    let status = status(&world);
    assert_eq!((&status["state"], &status["problems"]), (&json!("ready"), &json!([])));
    let research = &status["groups"].as_array().unwrap().iter().find(|group| group["name"] == "research").unwrap();
    assert_eq!(
        (&research["open"], &research["uncollected"], &research["served"]),
        (&json!(1), &json!(0), &json!(true))
    );
    assert!(research["last_asked"].is_string() && research["last_heartbeat"].is_null(), "{research}");
    let (text, code) = printed(&world, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.starts_with("askd 0.1.0: ready, running for") && text.contains("\nresearch  1     0"), "{text}");
    let (text, code) = printed(&world, &["--json"]);
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &told["groups"]), (Some(0), &status["groups"]));
    assert_eq!(world.raw("GET", "/api/v1/status", "", "").0, 401);
}

#[test]
fn an_answer_that_nobody_collects_is_counted_and_named_until_it_is_taken() {
    let world = World::new();
    let agent = world.group("research");
    agent.ask_framework("r1");
    world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
    agent.wait("r1");
    let told = status(&world);
    assert_eq!(told["uncollected"][0]["line"], "Answered: Vue by operator");
    assert!(printed(&world, &[]).0.contains("NOBODY HAS COLLECTED"), "{told}");
    agent.take("r1");
    world.passing(SOON, "it to be collected", || (status(&world)["uncollected"] == json!([])).then_some(()));
}

#[test]
fn a_folder_that_cannot_be_used_is_told_with_its_fix_until_it_is_fixed() {
    let mut world = World::empty().groups(&["research"]);
    let agent = world.group("research");
    std::fs::set_permissions(agent.tasks(), std::fs::Permissions::from_mode(0o700)).unwrap();
    world.start();
    let told =
        world.passing(SOON, "the trouble", || Some(status(&world)).filter(|status| status["state"] == "degraded"));
    let problem = &told["problems"][0];
    assert_eq!((&problem["kind"], &problem["about"]), (&json!("folder"), &json!("research")));
    assert!(problem["line"].as_str().unwrap().starts_with("The agent research may be unable to ask: "), "{problem}");
    let (text, code) = printed(&world, &[]);
    let fix = format!("chmod 0770 '{}'", agent.tasks().display());
    assert!(code == Some(1) && text.contains(&format!("  Fix: {fix}")), "{text}");
    // Each fix as it is printed, until nothing is left to fix.
    world.passing(SOON, "it to be well", || {
        let status = status(&world);
        let fix = status["problems"][0]["fix"].as_str().map(str::to_owned);
        let run = |fix: String| std::process::Command::new("sh").args(["-c", &fix]).status().unwrap();
        fix.is_none_or(|fix| !run(fix).success()).then_some(())
    });
    assert_eq!(printed(&world, &[]).1, Some(0));
}

#[test]
fn the_fault_of_a_folder_that_was_removed_is_not_told_any_more() {
    let mut world = World::empty();
    let agent = world.group("research");
    std::fs::set_permissions(agent.tasks(), std::fs::Permissions::from_mode(0o700)).unwrap();
    world.start();
    world.passing(SOON, "the trouble", || (status(&world)["state"] == "degraded").then_some(()));
    std::fs::remove_dir_all(&agent.path).unwrap();
    world.passing(SOON, "it to be well", || (status(&world)["state"] == "ready").then_some(()));
}

/// Nobody can ask from a folder of a group that a reload has taken out.
#[test]
fn the_fault_of_a_group_that_is_not_served_any_more_is_not_told() {
    let mut world = World::empty().with_binary().config("[defaults]\nroutes = [{ channel = \"web\" }]\n");
    let agent = world.group("research");
    std::fs::set_permissions(agent.tasks(), std::fs::Permissions::from_mode(0o700)).unwrap();
    world.start();
    within(SOON, "the trouble", || (status(&world)["state"] == "degraded").then_some(()));
    world.reload("[defaults]\nroutes = []\n");
    within(SOON, "it to be well", || (status(&world)["state"] == "ready").then_some(()));
    assert!(world.log().contains("not served: its requests are rejected"), "{}", world.log());
}

/// The data folder is that other user's, and the folders of an agent belong to this group.
fn folders_of_another(world: &World, gid: u32) {
    for name in ["", "ipc"] {
        of_another(&world.data().join(name), 12345, 0o751);
    }
    for name in ["", "tasks", "responses", "briefings"] {
        of_another(&world.data().join("ipc/research").join(name), gid, 0o770);
    }
}

/// It cannot give its files to that group: agents would never get an answer.
#[test]
fn an_askd_that_is_not_in_the_group_of_its_agents_is_told_with_its_fix() {
    let world = World::empty().config("gid = \"54321\"\n[groups.research]\n");
    let story = "an_askd_that_is_not_in_the_group_of_its_agents_is_told_with_its_fix";
    let Some(program) = as_another(world.dir.path(), story) else { return };
    folders_of_another(&world, 54321);
    let world = world.with_daemon(&program).started();
    let told = within(SOON, "the trouble", || Some(status(&world)).filter(|status| status["state"] == "degraded"));
    let problem = &told["problems"][0];
    assert_eq!((&problem["kind"], &problem["about"]), (&json!("folder"), &json!("research")));
    assert!(problem["line"].as_str().unwrap().contains("askd is not in group 54321"), "{problem}");
    for how in ["SupplementaryGroups=54321", "--group-add 54321"] {
        assert!(problem["fix"].as_str().unwrap().contains(how), "{problem}");
    }
    world.group("research").ask_framework("r1");
    assert_eq!(world.answer(&world.open_of("r1"), &json!({"r1_0": "Vue"})).0, 200);
    let told = "degraded: the responses of a group cannot be written\n";
    within(SOON, "it to be told", || (ready(&world) == told).then_some(()));
}

/// A daemon of another user than root, which plays the story of this name again and may look at all.
fn run_by_another(story: &str) -> Option<World> {
    let world = World::empty().config("[groups.research]\nroutes = [{ channel = \"web\" }]\n");
    let program = as_another(world.dir.path(), story)?;
    folders_of_another(&world, 12345);
    Some(world.with_daemon(&program).started())
}

/// An agent with another user id and a umask of 077: it would wait, and nobody would know of what.
#[test]
fn a_request_that_askd_may_not_read_is_named_until_its_fix_was_run() {
    let story = "a_request_that_askd_may_not_read_is_named_until_its_fix_was_run";
    let Some(world) = run_by_another(story) else { return };
    let agent = world.group("research");
    agent.ask_framework("first");
    std::fs::set_permissions(agent.tasks().join("first.json"), std::fs::Permissions::from_mode(0o644)).ok();
    world.open_of("first");
    // The file is never there with another mode.
    let text = r#"{"type":"ask_user:ask","request_id":"r1","questions":[{"question":"Go?"}]}"#;
    let (temporary, file) = (agent.tasks().join(".new"), agent.tasks().join("it's.json"));
    std::fs::write(&temporary, text).unwrap();
    std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&temporary, &file).unwrap();
    let problem = within(SOON, "the trouble", || world.problems("folder").pop());
    let line = format!("{}: askd (user id 12345) cannot read it: Permission denied", file.display());
    assert!(problem["line"].as_str().unwrap().contains(&line) && problem["about"] == "research", "{problem}");
    let fix =
        problem["fix"].as_str().unwrap().split(", ").next().unwrap().strip_prefix("if it is a request: ").unwrap();
    assert!(fix.starts_with("chmod 0660 "), "{problem}");
    assert!(std::process::Command::new("sh").args(["-c", &fix.replace("0660", "0664")]).status().unwrap().success());
    world.open_of("r1");
    within(SOON, "it to be well", || (status(&world)["state"] == "ready").then_some(()));
}

/// Somebody takes the folder from askd while it runs, or makes it as `/tmp` is.
#[test]
fn a_folder_from_which_askd_may_take_nothing_is_named_until_its_fix_was_run() {
    let story = "a_folder_from_which_askd_may_take_nothing_is_named_until_its_fix_was_run";
    let Some(world) = run_by_another(story) else { return };
    let agent = world.group("research");
    let faults =
        [(1, 0o1777, "it has the sticky bit"), (2, 0o755, "cannot write here"), (3, 0o700, "cannot write here")];
    for (number, mode, told) in faults {
        std::os::unix::fs::chown(agent.tasks(), Some(0), Some(12345)).unwrap();
        std::fs::set_permissions(agent.tasks(), std::fs::Permissions::from_mode(mode)).unwrap();
        let id = format!("r{number}");
        agent.ask_framework(&id);
        let problem = within(SOON, "the trouble", || world.problems("folder").pop());
        assert!(problem["line"].as_str().unwrap().contains(told), "{problem}");
        let fix = problem["fix"].as_str().unwrap();
        let fix = fix.split("(or ").last().unwrap().trim_end_matches(')');
        assert!(std::process::Command::new("sh").args(["-c", fix]).status().unwrap().success(), "{problem}");
        std::fs::set_permissions(agent.tasks(), std::fs::Permissions::from_mode(0o777)).unwrap();
        world.open_of(&id);
        within(SOON, "it to be well", || (status(&world)["state"] == "ready").then_some(()));
    }
}

#[test]
fn a_response_that_cannot_be_written_is_told_after_ten_seconds_until_it_is() {
    let world = with_agents(&["research"]);
    let agent = world.group("research");
    agent.ask_framework("r1");
    let ask = world.open_of("r1");
    agent.squat_responses();
    assert_eq!(world.answer(&ask, &json!({"r1_0": "Vue"})).0, 200);
    let told = "degraded: the responses of a group cannot be written\n";
    world.passing(Duration::from_secs(30), "it to be told", || (ready(&world) == told).then_some(()));
    let problems = status(&world)["problems"].clone();
    let is_told = |problem: &Value| {
        let line = problem["line"].as_str().unwrap();
        line.starts_with("The agent research does not get its answers: ") && problem["kind"] == "folder"
    };
    assert!(problems.as_array().unwrap().iter().any(is_told), "{problems}");
    agent.free_responses();
    world.passing(Duration::from_secs(60), "it to be well", || (ready(&world) == "ready\n").then_some(()));
}

/// Somebody has made them by hand, with a umask of 022.
#[test]
fn one_fix_mends_all_folders_of_a_group() {
    let mut world = World::empty().groups(&["research"]);
    let folders = ["tasks", "responses", "briefings"].map(|name| world.group("research").path.join(name));
    for folder in &folders {
        std::fs::create_dir_all(folder).unwrap();
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.start();
    let problem = world.passing(SOON, "the trouble", || world.problems("folder").pop());
    let fix = folders.map(|folder| format!("chmod 0770 '{}'", folder.display())).join("; ");
    assert_eq!(problem["fix"], *fix, "{problem}");
    assert!(std::process::Command::new("sh").args(["-c", &fix]).status().unwrap().success());
    world.passing(SOON * 2, "it to be well", || world.problems("folder").is_empty().then_some(()));
}

#[test]
fn a_briefings_folder_that_cannot_be_used_is_told_too() {
    let mut world = World::empty().groups(&["research"]);
    let briefings = world.group("research").path.join("briefings");
    std::fs::create_dir_all(&briefings).unwrap();
    std::fs::set_permissions(&briefings, std::fs::Permissions::from_mode(0o700)).unwrap();
    world.start();
    let fix = format!("chmod 0770 '{}'", briefings.display());
    world.passing(SOON, "the trouble", || {
        let problems = status(&world)["problems"].clone();
        let mended = |problem: &Value| {
            let fix = problem["fix"].as_str().unwrap();
            assert!(std::process::Command::new("sh").args(["-c", fix]).status().unwrap().success());
        };
        problems.as_array().unwrap().iter().for_each(mended);
        let told = |problem: &Value| problem["fix"].as_str().unwrap().split("; ").any(|one| one == fix);
        problems.as_array().unwrap().iter().any(told).then_some(())
    });
}

#[tokio::test]
async fn a_refused_token_is_named_with_its_fix_and_a_connection_that_is_back_is_well() {
    let mut world = in_slack(Mode::Http).prepare().await;
    world.slack.faults().next("auth.test", FaultKind::Error("invalid_auth".into()), 5);
    world.begin().await;
    let slack = |world: &World| status(world)["channels"][0].clone();
    let away = world.passes(SOON, "the refusal", || Some(slack(&world)).filter(|it| it["connected"] == false)).await;
    assert_eq!((&away["name"], &away["why"]), (&json!("slack"), &json!("invalid_auth")));
    assert!(away["since"].is_string() && away["fix"].as_str().unwrap().contains("Bot User OAuth Token"), "{away}");
    assert_eq!(ready(&world), "degraded: Slack is away\n");
    world.time_passes(Duration::from_secs(60)).await;
    world.passes(SOON, "it to be back", || (slack(&world)["connected"] == true).then_some(())).await;
    assert_eq!(status(&world)["state"], "ready");
}

/// Nobody clicks and nobody asks: askd finds out by itself.
#[tokio::test]
async fn slack_that_is_back_counts_as_connected_though_nothing_else_calls_it() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.stored(&card.ts).await;
    let connected = |world: &World| status(world)["channels"][0]["connected"] == true;
    world.slack.faults().next("chat.postEphemeral", FaultKind::Status(503), 3);
    world.slack.faults().next("auth.test", FaultKind::Status(503), 1);
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", STRANGER).await.expect("sent");
    world.passes(SOON, "the failure", || (!connected(&world)).then_some(())).await;
    let notes = || world.slack.calls().iter().filter(|call| call.method == "chat.postEphemeral").count();
    world.passes(SOON, "the last try", || (notes() == 3).then_some(())).await;
    world.time_passes(Duration::from_secs(60)).await;
    world.passes(SOON, "it to be back", || connected(&world).then_some(())).await;
    assert_eq!(ready(&world), "ready\n");
}

/// Whether it is ready, as a load balancer reads it.
fn ready(world: &World) -> String {
    world.raw("GET", "/readyz", "", "").1
}

/// Asks something on WhatsApp that cannot be shown there.
async fn ask_in_vain(world: &World, request_id: &str) {
    world.ask(request_id, choice("Which?", &["a", "b"]));
    let response = world.response_within(request_id, Duration::from_secs(900)).await;
    assert_eq!(response["result"]["status"], "undeliverable", "{response}");
}

/// Nobody writes and nobody asks: askd finds out by itself.
#[tokio::test]
async fn whatsapp_that_is_back_counts_as_connected_though_nothing_else_calls_it() {
    let world = on_whatsapp(sim(), TO_ADA, "").await;
    world.writes(ADA, "hello").await;
    world.phone.away(true);
    ask_in_vain(&world, "r1").await;
    world.time_passes(Duration::from_secs(120)).await;
    // Until the next look at the folders, that is what it says.
    let is_away = || (ready(&world) == "degraded: WhatsApp is away\n").then_some(());
    world.passes(SOON, "it to be away still", is_away).await;
    world.phone.away(false);
    world.time_passes(Duration::from_secs(60)).await;
    world.passes(SOON, "it to be back", || (ready(&world) == "ready\n").then_some(())).await;
}

/// What every message is refused for is told from its first time on, until a message is taken: that the number can be
/// looked up says nothing of the account.
#[tokio::test]
async fn what_whatsapp_refuses_every_message_for_is_told_since_it_began() {
    let wrong = Config { token: "another".to_owned(), ..sim() };
    for (config, code) in [(wrong, 190), (sim(), 131_042)] {
        let world = on_whatsapp(config, TO_ADA, "").await;
        world.phone.account((code != 190).then_some(code));
        world.writes(ADA, "hello").await;
        ask_in_vain(&world, "r1").await;
        let channel = |world: &World| status(world)["channels"][0].clone();
        let began = channel(&world);
        assert_eq!((&began["name"], &began["why"]), (&json!("whatsapp"), &json!(format!("refused with {code}"))));
        world.time_passes(Duration::from_secs(300)).await;
        ask_in_vain(&world, "r2").await;
        assert_eq!(channel(&world), began);
        assert_eq!(ready(&world), "degraded: WhatsApp is away\n");
    }
}

#[tokio::test]
async fn a_card_that_can_never_be_closed_is_told_with_its_reason() {
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.slack.faults().next("chat.update", FaultKind::Error("cant_update_message".into()), 1);
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    let told =
        world.passes(SOON, "the card", || Some(status(&world)["stuck_cards"][0].clone()).filter(Value::is_object));
    let told = told.await;
    assert_eq!((&told["channel"], &told["chat"]), (&json!("slack"), &json!(CHANNEL)));
    assert!(told["why"].as_str().unwrap().contains("cant_update_message"), "{told}");
    // A busy machine may have others.
    let problems = status(&world)["problems"].as_array().unwrap().clone();
    let fixes: Vec<_> = problems.iter().filter(|it| it["kind"] == "card").map(|it| &it["fix"]).collect();
    assert_eq!(fixes, ["delete the message there"]);
}

/// What an operator can mend is no reason to give the card up: it is named until it is closed, also after a restart.
#[tokio::test]
async fn a_card_whose_closing_is_refused_is_named_until_it_is_closed() {
    let mut world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.slack.faults().next("chat.update", FaultKind::Error("is_archived".into()), 100);
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    let named = |world: &World| status(world)["stuck_cards"][0].is_object().then_some(());
    for _ in 0..2 {
        world.time_passes(Duration::from_secs(100)).await;
        let told =
            world.passes(SOON, "the card", || Some(status(&world)["stuck_cards"][0].clone()).filter(Value::is_object));
        let told = told.await;
        assert_eq!((&told["chat"], &told["why"]), (&json!(CHANNEL), &Value::Null), "{told}");
        // Just after the clock was moved, no look at the folders has come by for long.
        let degraded = || (status(&world)["state"] == "degraded").then_some(());
        world.passes(SOON, "it to be degraded, and no worse", degraded).await;
        world.stop().await;
        world.begin().await;
    }
    // The try of that start has failed, so that the next one is due after its pause.
    world.passes(SOON * 4, "the card", || named(&world)).await;
    world.slack.faults().clear();
    world.time_passes(Duration::from_secs(301)).await;
    world.says(CHANNEL, &card.ts, "Answered: a").await;
    world.passes(SOON, "all to be well", || (status(&world)["stuck_cards"] == json!([])).then_some(())).await;
}

/// A channel that stays archived: askd tries for a day, says so for a week, and leaves it at that.
#[tokio::test]
async fn a_card_in_a_channel_that_stays_archived_is_given_up_after_a_day_and_named_for_a_week() {
    const HOUR: Duration = Duration::from_secs(3600);
    let world = in_slack(Mode::Http).start().await;
    world.ask("r1", choice("Which?", &["a", "b"]));
    let card = world.card(CHANNEL).await;
    world.slack.faults().next("chat.update", FaultKind::Error("is_archived".into()), 1000);
    world.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    world.response("r1").await;
    let stuck = || status(&world)["stuck_cards"].clone();
    let tries = || world.slack.calls().iter().filter(|call| call.method == "chat.update").count();
    world.passes(HOUR, "it to be named", || stuck()[0].is_object().then_some(())).await;
    let first = tries();
    world.time_passes(HOUR * 23).await;
    world.passes(SOON, "another try", || (tries() > first).then_some(())).await;
    assert_eq!(stuck()[0]["why"], Value::Null, "it may be unarchived");
    world.time_passes(HOUR * 2).await;
    let why = world.passes(SOON, "the reason", || stuck()[0]["why"].as_str().map(str::to_owned)).await;
    assert!(why.contains("unarchive it"), "{why}");
    let fix =
        status(&world)["problems"].as_array().unwrap().iter().find(|it| it["kind"] == "card").unwrap()["fix"].clone();
    assert_eq!(fix, "delete the message there");
    let so_far = tries();
    world.time_passes(HOUR * 24 * 6).await;
    assert_eq!(stuck().as_array().unwrap().len(), 1);
    world.time_passes(HOUR * 24 * 2).await;
    world.passes(SOON, "it to be left", || (stuck() == json!([])).then_some(())).await;
    // What became of the answer meanwhile, which nobody has collected, is told once.
    assert!(tries() <= so_far + 2, "{so_far}, then {}", tries());
}

#[test]
fn a_reload_that_brings_routes_of_a_channel_that_does_not_run_is_named() {
    let world = World::empty().with_binary().config("[groups.a]\n").started();
    assert_eq!(status(&world)["state"], "ready");
    let slack = format!("[slack]\nbot_token = \"xoxb-1\"\nsigning_secret = \"s\"\napi_url = \"http://{NOBODY}/api\"\n");
    let group = "[groups.a]\nroutes = [{ channel = \"slack\", chat = \"C1\", responders = [\"U1\"] }]\n";
    std::fs::write(world.dir.path().join("askd.toml"), slack + group).unwrap();
    world.signal(rustix::process::Signal::HUP);
    let told = within(SOON, "the problem", || Some(status(&world)).filter(|status| status["reasons"] != json!([])));
    assert_eq!(told["state"], "degraded");
    let problem = &told["problems"][0];
    assert_eq!((&problem["kind"], &problem["about"]), (&json!("channel"), &json!("slack")), "{told}");
    assert!(problem["fix"].as_str().unwrap().starts_with("restart askd"), "{problem}");
    assert_eq!(told["reasons"], json!(["Slack does not run"]));
    assert_eq!(ready(&world), "degraded: Slack does not run\n");
    let (_, metrics) = world.raw("GET", "/metrics", "", "");
    assert!(metrics.contains("askd_channel_up{channel=\"slack\"} 0\n"), "{metrics}");
}

#[test]
fn the_status_of_the_api_document_has_all_fields() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/api.md")).unwrap();
    let shown = text.split("```json\n").find(|block| block.contains("\"stuck_cards\"")).unwrap();
    let shown: Value = serde_json::from_str(shown.split("```").next().unwrap()).unwrap();
    let world = World::new();
    world.group("research").ask_framework("r1");
    world.answer(&world.one_open(), &json!({"r1_0": "Vue"}));
    let real =
        within(SOON, "it to be uncollected", || Some(status(&world)).filter(|it| it["uncollected"][0].is_object()));
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&shown), keys(&real));
    for list in ["channels", "groups", "uncollected"] {
        assert_eq!(keys(&shown[list][0]), keys(&real[list][0]), "{list}");
    }
}
