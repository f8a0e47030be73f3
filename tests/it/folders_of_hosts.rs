//! The folders of groups where several daemons share a database: each group's folder is served by one host, and everything else of its
//! questions by any daemon, also while that host is away. `tests/postgres/run` starts the server.

use crate::harness::{Agent, SOON, World, askd, choice, names, within};
use crate::in_slack::{ALICE, BOB, CHANNEL};
use crate::on_postgres::Database;
use crate::sessions::Alive;
use crate::several_daemons::{Cluster, DEATH, is_noticed, meanwhile};
use serde_json::{Value, json};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// Longer than a daemon waits before it looks again at folders and at what others have stored.
const LOOKED: Duration = Duration::from_secs(7);
/// After this long without a sign of life a process counts as dead.
const DEAD: Duration = Duration::from_secs(17);

const SILENT: &str = "The agent's host does not answer; it gets this when it is back.";

fn status(cluster: &Cluster, host: usize) -> Value {
    meanwhile(|| cluster.hosts[host].world.call("GET", "/status", None)).1
}

fn deploy() -> Value {
    choice("Deploy?", &["yes", "no"])
}

/// What lies in the folder of responses of a group, briefings included.
fn lies(world: &World, group: &str) -> Vec<String> {
    let folder = world.data().join("ipc").join(group);
    ["responses", "briefings"].iter().flat_map(|name| names(&folder.join(name))).collect()
}

/// Waits until the record says that the response was taken.
fn is_known_as_taken(cluster: &Cluster, request_id: &str) {
    let taken = format!(
        "select 'taken' from askd.asks where record -> 'waiters' -> 0 ->> 'request_id' = '{request_id}'
             and (record -> 'waiters' -> 0 -> 'response')::text like '%\"taken\"%'"
    );
    meanwhile(|| within(SOON, "the response to be known as taken", || cluster.database.query(&taken).pop()));
}

/// Asked in the folder of a host that does not lead, answered at another one, and answered in that folder.
async fn the_host_of_the_folder_answers(sabotage: Option<&str>) {
    let Some(cluster) = Cluster::with(3, "", sabotage.map(|name| (name, true))).await else { return };
    let agent = cluster.hosts[1].world.group("research");
    agent.ask("r1", &deploy());
    let card = cluster.card().await;
    let status =
        meanwhile(|| within(SOON, "the deadline", || agent.status_now("r1").filter(|it| it["state"] == "open")));
    assert!(status["answer_by"].is_string(), "{status}");
    meanwhile(|| cluster.hosts[2].answer("r1", "no"));
    let response = meanwhile(|| agent.take("r1"));
    assert_eq!(response["result"]["answers"], json!({"Deploy?": "no"}), "{response}");
    cluster.says(&card.ts, "*no*").await;
    is_known_as_taken(&cluster, "r1");
    for other in [0, 2] {
        assert_eq!(lies(&cluster.hosts[other].world, "research"), Vec::<String>::new(), "at host-{other}");
    }
    assert_eq!(lies(&cluster.hosts[1].world, "research"), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_host_that_has_the_folder_answers_there_whoever_leads() {
    the_host_of_the_folder_answers(None).await;
}

/// The host knows the question as it was before it was answered, and must not go by that: nothing would be written, and it would count as
/// published.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_has_not_seen_the_answer_yet_writes_it() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.hosts[1].world.group("research");
    agent.ask("r1", &deploy());
    cluster.card().await;
    let held = cluster.falls_behind().await;
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    fs::remove_file(&held).unwrap();
    assert_eq!(meanwhile(|| agent.take("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
}

/// Nobody else has heard yet that this host serves the folder: the leader would write into its own. It knows nothing of the first
/// question, and the second one as it was asked over HTTP, before a call for it came in the folder.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_right_after_the_first_request_in_a_folder_comes_to_that_folder() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let over_http = json!({"request_id": "early", "idempotency_key": "deploy", "questions": deploy()["questions"]});
    let posted = || cluster.agent(0, "woken").call("POST", "/asks", &over_http.to_string());
    assert_eq!(meanwhile(posted).0, 201);
    let held = cluster.falls_behind().await;
    for group in ["research", "woken"] {
        let agent = cluster.hosts[1].world.group(group);
        let mut request = deploy();
        request["idempotency_key"] = "deploy".into();
        agent.ask(group, &request);
        meanwhile(|| agent.tasks_gone());
        let open = cluster.hosts[1].world.open();
        let ask = open.iter().find(|ask| ask["group"] == group).expect("it is open");
        let question = ask["questions"][0]["id"].as_str().unwrap();
        assert_eq!(meanwhile(|| cluster.hosts[0].world.answer(ask, &json!({question: "no"}))).0, 200);
    }
    fs::remove_file(&held).unwrap();
    for group in ["research", "woken"] {
        let agent = cluster.hosts[1].world.group(group);
        assert_eq!(meanwhile(|| agent.take(group))["result"]["answers"], json!({"Deploy?": "no"}), "{group}");
        assert_eq!(lies(&cluster.hosts[0].world, group), Vec::<String>::new());
    }
}

/// The daemon that took the answer did not know that a host serves the folder, and left all of it to the leader.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_leader_cannot_leave_to_the_host_at_once_it_leaves_to_it_later() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.hosts[1].world.group("research");
    agent.ask("r1", &deploy());
    cluster.card().await;
    let held = cluster.falls_behind().await;
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    cluster.database.query(
        "begin; update askd.owed set folder = null; create sequence tries;
         create function fails() returns trigger language plpgsql as
             'begin if nextval(''tries'') = 1 then raise exception ''on purpose''; end if; return new; end';
         create trigger fails before insert on askd.owed for each row when (new.folder is not null) execute function fails();
         commit",
    );
    fs::remove_file(&held).unwrap();
    assert_eq!(meanwhile(|| agent.take("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
    assert!(cluster.database.query("select last_value from tries").concat().parse::<u8>().unwrap() > 1);
}

/// It is there before the record says so, which takes longer in a database.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_taken_and_asked_for_again_at_once_is_written_again() {
    let Some(cluster) = Cluster::of(1).await else { return };
    let agent = cluster.hosts[0].world.group("research");
    agent.ask("r1", &deploy());
    cluster.card().await;
    cluster.database.query(
        "create function slow() returns trigger language plpgsql as 'begin perform pg_sleep(1); return new; end';
         create trigger slow before update on askd.asks for each row
             when (new.record::text like '%\"published\"%') execute function slow()",
    );
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    let first = meanwhile(|| agent.take("r1"));
    agent.ask("r1", &deploy());
    assert_eq!(meanwhile(|| agent.take("r1")), first);
}

/// The host writes the response, and does not know whether it has stored that. It has not, and another daemon has changed the question
/// meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_published_although_the_save_before_was_in_doubt_and_another_daemon_was_faster() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.hosts[1].world.group("research");
    agent.ask("r1", &deploy());
    cluster.card().await;
    doubts(&cluster, "new.record::text like '%\"ready\"%'");
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    another_is_faster(&cluster);
    assert_eq!(meanwhile(|| agent.take("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
}

/// A request in the folder of one host, and then one in the folder of the same name on another.
async fn the_second_host_refuses(sabotage: Option<&str>) {
    let Some(cluster) = Cluster::with(2, "", sabotage.map(|name| (name, true))).await else { return };
    let (first, second) = (cluster.hosts[1].world.group("research"), cluster.hosts[0].world.group("research"));
    first.ask("r1", &deploy());
    meanwhile(|| cluster.hosts[0].world.open_of("r1"));
    second.ask("r2", &choice("And this?", &["yes", "no"]));
    let refused = meanwhile(|| second.take("r2"));
    assert_eq!(refused["error"], "Group research is served by host-1.", "{refused}");
    // Not even a request that is known, and nobody there takes a question back.
    second.ask("r1", &deploy());
    assert_eq!(meanwhile(|| second.take("r1"))["error"], "Group research is served by host-1.");
    second.cancel("r1");
    meanwhile(|| second.tasks_gone());
    meanwhile(|| cluster.hosts[1].answer("r1", "yes"));
    assert_eq!(meanwhile(|| first.take("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
    assert_eq!(cluster.database.query("select count(*) from askd.asks"), ["1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_in_the_folder_of_a_second_host_is_refused() {
    the_second_host_refuses(None).await;
}

/// Answers are taken, cards closed, and deadlines kept; the agent is told when its host is back.
#[tokio::test(flavor = "multi_thread")]
async fn while_a_host_is_away_only_its_folders_wait() {
    let Some(mut cluster) = Cluster::with(2, "timeout = \"20s\"", None).await else { return };
    let agent = cluster.hosts[1].world.group("research");
    agent.ask("r1", &deploy());
    agent.ask("r2", &choice("And this?", &["yes", "no"]));
    meanwhile(|| within(SOON, "two cards", || (cluster.slack.messages(CHANNEL).len() == 2).then_some(())));
    cluster.hosts[1].world.kill();
    let card = |text: &str| {
        let cards = cluster.slack.messages(CHANNEL);
        cards.into_iter().find(|card| card.visible_text().contains(text)).expect("its card").ts
    };
    let (first, second) = (card("Deploy?"), card("And this?"));
    let clicked = cluster.slack.click(CHANNEL, &first, "pick:0:0", ALICE).await.expect("sent");
    assert!(clicked.acknowledged && clicked.answer.is_empty(), "{clicked:?}");
    cluster.says(&first, "*yes* by").await;
    let timed_out = || cluster.slack.message(CHANNEL, &second).filter(|card| card.visible_text().contains("Timed out"));
    meanwhile(|| within(Duration::from_secs(40), "the deadline", timed_out));
    for card in [&first, &second] {
        cluster.says(card, SILENT).await;
    }
    assert_eq!(agent.response("r1"), None);
    cluster.start(1);
    assert_eq!(meanwhile(|| agent.take("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
    assert_eq!(meanwhile(|| agent.take("r2"))["result"]["status"], "timeout");
    let said = || {
        [&first, &second]
            .iter()
            .any(|card| cluster.slack.message(CHANNEL, card).unwrap().visible_text().contains(SILENT))
    };
    meanwhile(|| within(SOON, "the cards to say so no longer", || (!said()).then_some(())));
}

/// A closed card says that the host is away, and one that leads later takes that back. What is reported after a day.
async fn a_silent_host_is_told(sabotage: Option<&str>) {
    let Some(mut cluster) = Cluster::with(3, "", sabotage.map(|name| (name, true))).await else { return };
    let agent = cluster.hosts[2].world.group("research");
    agent.ask("r1", &deploy());
    let card = cluster.card().await;
    cluster.hosts[2].world.kill();
    meanwhile(|| cluster.hosts[1].answer("r1", "yes"));
    let says = || {
        let card = cluster.slack.message(CHANNEL, &card.ts).unwrap();
        card.visible_text().contains(SILENT)
    };
    meanwhile(|| within(DEATH + SOON, "the card to say so", || says().then_some(())));
    assert_eq!(status(&cluster, 1)["problems"], json!([]), "it is away for seconds");
    cluster.database.query("update askd.hosts set heard = now() - interval '25 hours' where node = 'host-2'");
    let problem = meanwhile(|| {
        within(SOON, "the report", || Some(status(&cluster, 1)["problems"][0].clone()).filter(|it| !it.is_null()))
    });
    assert_eq!((&problem["kind"], &problem["about"]), (&json!("host"), &json!("host-2")), "{problem}");
    assert!(problem["line"].as_str().unwrap().ends_with("wait for it: research"), "{problem}");
    assert!(problem["fix"].as_str().unwrap().contains("askd group move"), "{problem}");
    let (_, told) = meanwhile(|| runs(&cluster.hosts[1].world, &["doctor"]));
    assert!(told.contains("are told nothing: host-2"), "{told}");
    // Moved while nobody leads: the next leader finds what the last one has said.
    cluster.hosts[0].world.kill();
    let (code, told) = meanwhile(|| moves(&cluster.hosts[1].world, "research", "host-1"));
    assert_eq!(code, Some(0), "{told}");
    cluster.leads_within(1, DEATH);
    let says = || cluster.slack.message(CHANNEL, &card.ts).unwrap().visible_text().contains(SILENT);
    meanwhile(|| within(SOON, "the card to say so no longer", || (!says()).then_some(())));
    assert_eq!(
        meanwhile(|| cluster.hosts[1].world.group("research").take("r1"))["result"]["answers"],
        json!({"Deploy?": "yes"})
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_stays_away_is_named_on_cards_and_to_the_operator() {
    a_silent_host_is_told(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_does_not_say_that_the_host_is_away_is_noticed() {
    if Database::found().is_none() {
        return;
    }
    assert!(is_noticed(a_silent_host_is_told(Some("nosilence"))), "nosilence: nobody noticed");
}

/// The same where the host leads: the lead moves to another daemon, the folder does not.
#[tokio::test(flavor = "multi_thread")]
async fn the_lead_moves_and_the_folder_does_not() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let agent = cluster.hosts[0].world.group("research");
    agent.ask("r1", &deploy());
    let card = cluster.card().await;
    cluster.people_reach(1).await;
    cluster.hosts[0].world.kill();
    cluster.slack.click(CHANNEL, &card.ts, "pick:0:1", BOB).await.expect("sent");
    cluster.leads_within(1, DEATH);
    cluster.says(&card.ts, "*no* by").await;
    assert_eq!(lies(&cluster.hosts[1].world, "research"), Vec::<String>::new());
    cluster.start(0);
    assert_eq!(meanwhile(|| agent.take("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
    // Its requests are taken as before, beside the leader.
    agent.ask("r2", &choice("And this?", &["yes", "no"]));
    meanwhile(|| cluster.hosts[1].answer("r2", "yes"));
    assert_eq!(meanwhile(|| agent.take("r2"))["result"]["answers"], json!({"And this?": "yes"}));
}

/// Nobody collects the answer: the agent is started on the host that has its folder, with the briefing that lies there.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_is_started_on_the_host_of_its_folder() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.hosts[1].world.group("woken");
    let mut request = deploy();
    // It gives no sign of life.
    request["process"] = "gone".into();
    agent.ask("r1", &request);
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    let read = |name: &str| fs::read_to_string(cluster.woken.path().join(name)).ok().filter(|text| !text.is_empty());
    let briefing = meanwhile(|| within(Duration::from_secs(60), "the agent to be started", || read("briefing")));
    assert!(briefing.contains("The user answered: \\\"no\\\""), "{briefing}");
    assert_eq!(read("by").unwrap().trim(), cluster.hosts[1].world.pid().to_string());
    assert_eq!(lies(&cluster.hosts[0].world, "woken"), Vec::<String>::new());
}

/// Two hosts, of which the second one's computer has lost its power, and its disk the response of its agent's question `r1`.
async fn with_a_lost_response() -> Option<(Cluster, Agent)> {
    let mut cluster = Cluster::of(2).await?;
    let agent = cluster.hosts[1].world.group("research");
    agent.ask("r1", &deploy());
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    meanwhile(|| agent.wait("r1"));
    let published = "select 'yes' from askd.asks where record::text like '%published%'";
    meanwhile(|| within(SOON, "the record", || cluster.database.query(published).pop()));
    cluster.hosts[1].world.kill();
    cluster.database.query("update askd.hosts set boot = 'another' where node = 'host-1'");
    fs::remove_file(agent.response_path("r1")).unwrap();
    Some((cluster, agent))
}

/// The computer of a host loses its power, and its disk the file of a response, while the database and the leader go on.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_a_host_may_have_lost_is_written_again() {
    let Some((mut cluster, agent)) = with_a_lost_response().await else { return };
    cluster.start(1);
    assert_eq!(meanwhile(|| agent.take("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
    // After a clean stop nothing is in doubt.
    agent.ask("r2", &choice("And this?", &["yes", "no"]));
    meanwhile(|| cluster.hosts[0].answer("r2", "yes"));
    meanwhile(|| agent.wait("r2"));
    assert_eq!(meanwhile(|| cluster.hosts[1].world.terminate()).code(), Some(0));
    cluster.database.query("update askd.hosts set boot = 'another' where node = 'host-1' and boot is not null");
    fs::remove_file(agent.response_path("r2")).unwrap();
    cluster.start(1);
    thread::sleep(LOOKED);
    assert_eq!(agent.response("r2"), None, "it was taken");
}

/// Another daemon takes the call that joins, and sees no signs of life in the folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_of_a_dead_process_is_replaced_by_one_that_joins_at_another_daemon() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let mut request = deploy();
    (request["idempotency_key"], request["process"]) = ("deploy".into(), "died".into());
    let folder = cluster.hosts[1].world.group("research");
    folder.ask("dead", &request);
    meanwhile(|| folder.status_of("dead"));
    // Its process gives no sign of life.
    tokio::time::sleep(DEAD).await;
    let over_http = cluster.agent(0, "research");
    (request["request_id"], request["process"]) = ("successor".into(), "lives".into());
    assert_eq!(meanwhile(|| over_http.call("POST", "/asks", &request.to_string())).0, 201);
    let replaced = "select line from askd.audit where line::text like '%call_replaced%'";
    let line = meanwhile(|| within(SOON, "the dead one to be replaced", || cluster.database.query(replaced).pop()));
    assert!(line.contains("\"dead\""), "{line}");
}

/// Its process lives and may take it at any time, and the other daemon sees no signs of life in the folder.
#[tokio::test(flavor = "multi_thread")]
async fn a_response_in_the_folder_of_a_living_process_stays_there_whoever_asks_the_same_at_another_daemon() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let mut request = deploy();
    (request["idempotency_key"], request["process"]) = ("deploy".into(), "lives".into());
    let folder = cluster.hosts[1].world.group("research");
    let alive = Alive::new(&folder, "lives");
    folder.ask("r1", &request);
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    meanwhile(|| folder.wait("r1"));
    let over_http = cluster.agent(0, "research");
    (request["request_id"], request["process"]) = ("successor".into(), "other".into());
    let asks = || over_http.call("POST", "/asks", &request.to_string()).0;
    let end = Instant::now() + DEAD + LOOKED;
    while Instant::now() < end {
        assert_eq!((meanwhile(asks), lies(&cluster.hosts[1].world, "research")), (503, vec!["r1.json".to_owned()]));
        thread::sleep(Duration::from_millis(250));
    }
    // It is gone: its host finds that out.
    drop(alive);
    meanwhile(|| within(Duration::from_secs(60), "the outcome for another call", || (asks() == 201).then_some(())));
    assert_eq!(meanwhile(|| over_http.outcome("successor"))["result"]["answers"], json!({"Deploy?": "no"}));
}

/// What the computer may have lost is written again, although the host does not know whether it has stored that, and another daemon
/// changes the question meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_host_may_have_lost_is_written_again_although_that_was_in_doubt_and_another_daemon_was_faster() {
    let Some((mut cluster, agent)) = with_a_lost_response().await else { return };
    doubts(&cluster, "old.record::text like '%published%' and new.record::text not like '%published%'");
    cluster.start(1);
    another_is_faster(&cluster);
    assert_eq!(meanwhile(|| agent.take("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
}

/// The first save of this kind hangs, and then fails.
fn doubts(cluster: &Cluster, when: &str) {
    cluster.database.query(&format!(
        "create sequence tries;
         create function doubt() returns trigger language plpgsql as
             'begin if nextval(''tries'') = 1 then perform pg_sleep(5); raise exception ''on purpose''; end if; return null; end';
         create constraint trigger doubt after update on askd.asks deferrable initially deferred for each row
             when ({when}) execute function doubt()"
    ));
}

/// Once it hangs, another daemon changes the question, which waits for that save.
fn another_is_faster(cluster: &Cluster) {
    let commits =
        "select 'commits' from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    meanwhile(|| within(SOON, "the save to hang", || cluster.database.query(commits).pop()));
    meanwhile(|| {
        cluster.database.query(
            "update askd.asks set revision = revision + 1, changed = pg_current_xact_id(),
                 operations = array_prepend(gen_random_uuid(), operations)",
        )
    });
}

/// `askd group move`, as an operator runs it on this host.
fn moves(world: &World, group: &str, to: &str) -> (Option<i32>, String) {
    runs(world, &["group", "move", group, "--to", to])
}

/// What a command prints that is run on that host, and its exit code.
fn runs(world: &World, args: &[&str]) -> (Option<i32>, String) {
    let settings = world.dir.path().join("askd.toml");
    let mut command = askd();
    command.args(args).arg("--config").arg(settings);
    let done = command.env("ASKD__DATA_DIR", world.data()).output().unwrap();
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr))
}

/// The host is gone for good. What lay in its folder, and what is still open, is told in the folder of another one.
#[tokio::test(flavor = "multi_thread")]
async fn a_group_that_is_moved_is_told_everything_on_its_new_host() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let agent = cluster.hosts[1].world.group("research");
    for (request, question) in [("r1", "Deploy?"), ("r2", "And this?"), ("r3", "And that?")] {
        agent.ask(request, &choice(question, &["yes", "no"]));
    }
    // An agent that died: its answer waits for its next start.
    let mut of_the_dead = choice("And now?", &["yes", "no"]);
    of_the_dead["process"] = "gone".into();
    agent.ask("r0", &of_the_dead);
    let briefed = meanwhile(|| cluster.hosts[0].world.open_of("r0"))["id"].as_str().unwrap().to_owned() + ".json";
    meanwhile(|| cluster.hosts[0].answer("r0", "yes"));
    let briefings =
        [0, 1].map(|host| cluster.hosts[host].world.group("research").path.join("briefings").join(&briefed));
    meanwhile(|| within(SOON, "the briefing", || briefings[1].exists().then_some(())));
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    meanwhile(|| agent.take("r1"));
    meanwhile(|| cluster.hosts[0].answer("r2", "no"));
    meanwhile(|| agent.wait("r2"));
    is_known_as_taken(&cluster, "r1");
    cluster.hosts[1].world.kill();
    // Somebody else's settings name it, or did: in that folder another host may have a group of its own.
    cluster.database.query("insert into askd.pins (group_name, node) values ('reserach', 'host-1')");
    let (code, told) = moves(&cluster.hosts[0].world, "reserach", "host-0");
    assert!(code == Some(2) && told.contains("the settings have no group reserach; they have: "), "{told}");
    let (code, told) = moves(&cluster.hosts[0].world, "research", "host-9");
    assert_eq!(
        (code, told.contains("no daemon is called host-9; there are: host-0, host-1")),
        (Some(2), true),
        "{told}"
    );
    let (code, told) = moves(&cluster.hosts[0].world, "default@host-1", "host-0");
    assert!(code == Some(2) && told.contains("has a group of its own in that folder"), "{told}");
    let (code, told) = moves(&cluster.hosts[0].world, "research", "host-0");
    assert_eq!(code, Some(0), "{told}");
    assert_eq!(told.trim(), "host-0 serves the folder of research from now on, and host-1 no longer.");
    let moved = cluster.hosts[0].world.group("research");
    assert_eq!(meanwhile(|| moved.take("r2"))["result"]["answers"], json!({"And this?": "no"}));
    meanwhile(|| cluster.hosts[0].answer("r3", "yes"));
    assert_eq!(meanwhile(|| moved.take("r3"))["result"]["answers"], json!({"And that?": "yes"}));
    assert_eq!(moved.response("r1"), None, "it was taken");
    meanwhile(|| within(SOON, "the briefing on the new host", || briefings[0].exists().then_some(())));
    moved.ask("r4", &choice("Once more?", &["yes", "no"]));
    meanwhile(|| cluster.hosts[0].answer("r4", "yes"));
    meanwhile(|| moved.take("r4"));
    // The former host comes back after all.
    fs::remove_file(agent.response_path("r2")).unwrap();
    cluster.start(1);
    agent.ask("r5", &deploy());
    assert_eq!(meanwhile(|| agent.take("r5"))["error"], "Group research is served by host-0.");
}

/// Every host has a folder of that name, and its agent knows it by no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_the_settings_do_not_name_is_another_group_on_each_host() {
    let group = "[defaults]\nroutes = [{ channel = \"web\" }]\nmax_open_per_group = 1";
    let Some(cluster) = Cluster::with(2, group, None).await else { return };
    for (host, answer) in [(0, "yes"), (1, "no")] {
        let agent = cluster.hosts[host].world.group("default");
        agent.ask("same", &deploy());
        let open = || {
            let open = cluster.hosts[1 - host].world.open();
            open.into_iter().find(|ask| ask["group"] == format!("default@host-{host}"))
        };
        let ask = meanwhile(|| within(SOON, "the question at the other host", open));
        // Each has limits of its own, and says so in the agent's words.
        agent.ask("more", &choice("And this?", &["yes", "no"]));
        let refused = meanwhile(|| agent.take("more"));
        assert!(refused["error"].as_str().unwrap().contains("group \"default\" has 1 questions open"), "{refused}");
        let answers = json!({ask["questions"][0]["id"].as_str().unwrap(): answer});
        assert_eq!(meanwhile(|| cluster.hosts[1 - host].world.answer(&ask, &answers)).0, 200);
        assert_eq!(meanwhile(|| agent.take("same"))["result"]["answers"], json!({"Deploy?": answer}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_in_the_folder_of_the_wrong_host_is_noticed() {
    if Database::found().is_none() {
        return;
    }
    assert!(is_noticed(the_host_of_the_folder_answers(Some("anyhost"))), "anyhost: nobody noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_the_wrong_host_takes_is_noticed() {
    if Database::found().is_none() {
        return;
    }
    assert!(is_noticed(the_second_host_refuses(Some("anyfolder"))), "anyfolder: nobody noticed");
}
