//! How soon another daemon serves what its leader served: after the leader's death, and after a planned stop of it.

use crate::harness::{SOON, World, within};
use crate::in_slack::{ALICE, CHANNEL};
use crate::several_daemons::{Cluster, DEATH, PLANNED, is_noticed, meanwhile};
use askd_sim::slack::SIGNING_SECRET;
use serde_json::json;
use std::time::{Duration, Instant};

/// After a planned stop where daemons tell each other; where they only look it is [`PLANNED`].
const TOLD: Duration = Duration::from_secs(1);

/// Two daemons.
async fn two(listens: bool, sabotage: Option<(&str, bool)>) -> Option<Cluster> {
    Cluster::reached(2, &format!("signing_secret = \"{SIGNING_SECRET}\""), "", sabotage, listens).await
}

/// The leader ends so, and a question that is then asked at the other daemon has its card in time, counted from the beginning of that
/// end. Only a leader posts.
async fn is_served(cluster: &mut Cluster, leader: usize, ends: impl FnOnce(&mut Cluster), limit: Duration) {
    let agent = cluster.agent(1 - leader, "research");
    let cards = cluster.slack.messages(CHANNEL).len();
    assert_eq!(meanwhile(|| agent.ask(&format!("before-{cards}"), &format!("Deploy {cards}?"))).0, 201);
    let are = |cluster: &Cluster, count| (cluster.slack.messages(CHANNEL).len() == count).then_some(());
    cluster.slack.wait_for(SOON, || are(cluster, cards + 1)).await.expect("a card of the leader");
    let since = Instant::now();
    meanwhile(|| ends(cluster));
    assert_eq!(meanwhile(|| agent.ask(&format!("after-{cards}"), &format!("And {cards}?"))).0, 201);
    let left = limit.saturating_sub(since.elapsed());
    let served = cluster.slack.wait_for(left, || are(cluster, cards + 2)).await;
    assert!(served.is_some(), "another daemon has not served it after {:?}", since.elapsed());
}

/// The leader is killed, or stopped, once.
async fn ends_once(listens: bool, kill: bool, limit: Duration, sabotage: Option<&str>) {
    let Some(mut cluster) = two(listens, sabotage.map(|name| (name, true))).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    if let Some(name) = sabotage {
        // Both have it: a daemon shortens what lasts longer than its own lease would, because the clock may have been set back.
        meanwhile(|| cluster.hosts[1].world.kill());
        cluster.hosts[1].world.set_env("ASKD_SABOTAGE", name);
        cluster.start(1);
        let leases =
            "select groups.until, runs.until from askd.groups join askd.runs using (node) where node = 'host-0'";
        let leases = || cluster.database.query(leases).concat();
        let before = leases();
        let renewed = || leases().split('|').zip(before.split('|')).all(|(now, then)| now != then).then_some(());
        meanwhile(|| within(SOON, "the leader to renew its leases", renewed));
    }
    let ends = |cluster: &mut Cluster| {
        let leader = &mut cluster.hosts[0].world;
        if kill { leader.kill() } else { assert_eq!(leader.terminate().code(), Some(0)) }
    };
    is_served(&mut cluster, 0, ends, limit).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_leaders_death_another_daemon_serves_in_time() {
    ends_once(false, true, DEATH, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_lasts_too_long_is_noticed() {
    assert!(is_noticed(ends_once(false, true, DEATH, Some("longlease"))), "longlease: nobody noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_given_up_is_noticed() {
    assert!(is_noticed(ends_once(true, false, PLANNED, Some("keeplease"))), "keeplease: nobody noticed");
}

/// A start reads every kept outcome, of which there may be very many.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_leader_posts_what_is_owed_before_it_has_read_what_is_kept() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "research");
    assert_eq!(meanwhile(|| agent.ask("kept", "Deploy?")).0, 201);
    let kept = "select id::text from askd.asks where settled";
    meanwhile(|| {
        cluster.hosts[1].answer("kept", "yes");
        agent.outcome("kept");
        assert_eq!(agent.taken("kept"), 204);
        within(SOON, "it to be kept", || cluster.database.query(kept).pop());
    });
    let gate = cluster.woken.path().join("kept");
    cluster.hosts[1].world.kill();
    cluster.hosts[1].world.set_env("ASKD_GATE", &format!("start.kept={}", gate.display()));
    cluster.start(1);
    // The leader dies before it has read that a card is owed.
    cluster.falls_behind().await;
    let cards = cluster.slack.messages(CHANNEL).len();
    assert_eq!(meanwhile(|| agent.ask("owed", "And this?")).0, 201);
    std::fs::write(&gate, "").unwrap();
    meanwhile(|| cluster.hosts[0].world.kill());
    let posted = || (cluster.slack.messages(CHANNEL).len() > cards).then_some(());
    assert!(cluster.slack.wait_for(DEATH, posted).await.is_some(), "it waits for what is kept");
    assert_eq!(meanwhile(|| cluster.hosts[1].world.raw("GET", "/readyz", "", "")).0, 503, "it has not read that yet");
    std::fs::remove_file(gate).unwrap();
    let ready = || (cluster.hosts[1].world.raw("GET", "/readyz", "", "").0 == 200).then_some(());
    meanwhile(|| within(SOON, "the rest to be read", ready));
    assert_eq!(cluster.slack.messages(CHANNEL).len(), cards + 1, "and no second card");
}

/// Outcomes that stand where nothing changes any more, made of one that is there: each has an id, a code, a request and a question of its own.
const COPIES: &str = "
    insert into askd.asks (id, group_name, settled, revision, operations, short_id, record)
    select which, 'research', true, revision, array[gen_random_uuid()], code, record || jsonb_build_object(
        'id', replace(which::text, '-', ''), 'short_id', code, 'request_id', request,
        'waiters', jsonb_set(jsonb_set(record -> 'waiters', '{0,request_id}', to_jsonb(request)),
                             '{0,digest}', to_jsonb(encode(sha256(request::bytea), 'hex'))),
        'questions', jsonb_set(record -> 'questions', '{0,question}', to_jsonb('Deploy ' || request || '?')))
    from (select revision, record from askd.asks where record #>> '{waiters,0,request_id}' = 'kept') as real, lateral (
        select gen_random_uuid() as which, 'q' || to_hex(n) as code, 'copy-' || n as request
        from generate_series(100, 399) as n) as new;";
const MOVES: &str = "
    select askd.settle(array_agg(id), array_agg(operations[1]),
                       array_agg((extract(epoch from now() + interval '20 days') * 1000)::bigint))
    from askd.asks where settled and group_name = 'research'";

/// How many rows the last reading of this daemon took.
fn rows_read(log: &str) -> usize {
    let line = log.lines().rfind(|line| line.contains("Stored questions loaded")).unwrap_or_else(|| panic!("{log}"));
    let read = line.split_once("read=").unwrap_or_else(|| panic!("it does not say how many: {line}")).1;
    read.split(|sign: char| !sign.is_ascii_digit()).next().unwrap().parse().unwrap()
}

/// It has followed them so far. What it knows of them is what a reading of all of them would have told.
#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_takes_the_lead_does_not_read_every_kept_outcome_again() {
    let Some(mut cluster) = Cluster::with(2, "max_attempts = 2", None).await else { return };
    cluster.people_reach(1).await;
    let (agent, woken) = (cluster.agent(1, "research"), cluster.agent(1, "woken"));
    let request = json!({"request_id": "late", "timeoutMs": 10000, "questions": [{"question": "Late?"}]});
    assert_eq!(meanwhile(|| woken.call("POST", "/asks", &request.to_string())).0, 201);
    let late = meanwhile(|| cluster.hosts[1].world.open_of("late"));
    for request in ["twice-0", "twice-1", "kept"] {
        assert_eq!(meanwhile(|| agent.ask(request, request.split('-').next().unwrap())).0, 201);
        let card = cluster.card().await;
        let dismiss = || {
            let path = format!("/asks/{}/dismiss", cluster.hosts[1].world.open_of(request)["id"].as_str().unwrap());
            cluster.hosts[1].world.call("POST", &path, None).0
        };
        match request {
            "kept" => meanwhile(|| cluster.hosts[1].answer("kept", "yes")),
            _ => assert_eq!(meanwhile(dismiss), 200),
        }
        let closed = || cluster.slack.message(CHANNEL, &card.ts).filter(|card| card.elements().is_empty());
        assert!(cluster.slack.wait_for(SOON, closed).await.is_some(), "the card of {request} is closed");
        meanwhile(|| agent.outcome(request));
        assert_eq!(meanwhile(|| agent.taken(request)), 204);
    }
    let outcome = meanwhile(|| agent.outcome("kept"));
    assert_eq!(meanwhile(|| woken.outcome("late"))["result"]["status"], "timeout");
    assert_eq!(meanwhile(|| woken.taken("late")), 204);
    assert_eq!(meanwhile(|| agent.ask("open", "And this?")).0, 201);
    let open = cluster.card().await;
    let settled = "select id from askd.asks where settled and group_name = 'research'";
    let settled = || (cluster.database.query(settled).len() == 3).then_some(());
    meanwhile(|| within(SOON, "outcomes to be kept", settled));
    meanwhile(|| cluster.database.query(&format!("{COPIES}{MOVES}")));
    let total = |world: &World| world.call("GET", "/asks?state=settled&limit=1", None).1["total"].as_u64();
    let known = || (total(&cluster.hosts[1].world) == Some(304)).then_some(());
    meanwhile(|| within(SOON, "the other daemon to know them", known));
    // It does not see any more what happens to these before it leads.
    let held = cluster.falls_behind().await;
    let id = |number: u32| {
        let id =
            format!("select id::text from askd.settled where record #>> '{{waiters,0,request_id}}' = 'copy-{number}'");
        cluster.database.query(&id).concat()
    };
    let [gone, changed] = [id(100), id(200)];
    cluster.database.query(&format!("select askd.forget('{gone}')"));
    cluster.database.query(&format!(
        "update askd.settled set record = jsonb_set(record, '{{title}}', '\"Changed\"'), changed = pg_current_xact_id(),
             operations = array_prepend(gen_random_uuid(), operations) where id = '{changed}'"
    ));
    meanwhile(|| cluster.hosts[0].world.kill());
    cluster.leads_within(1, DEATH);
    std::fs::remove_file(held).unwrap();
    let world = &cluster.hosts[1].world;
    let ready = || {
        (world.raw("GET", "/readyz", "", "").0 == 200 && world.log().contains("this daemon leads from now on"))
            .then_some(())
    };
    meanwhile(|| within(DEATH, "it to take calls", ready));
    // What is open, and what can be answered late.
    let clicked = cluster.slack.click(CHANNEL, &open.ts, "pick:0:0", ALICE).await.expect("sent");
    assert!(clicked.acknowledged, "{clicked:?}");
    assert_eq!(meanwhile(|| agent.outcome("open"))["result"]["answered_by"]["id"], ALICE);
    cluster.says(&open.ts, "*yes* by").await;
    let question = late["questions"][0]["id"].as_str().unwrap();
    let (status, answered) = meanwhile(|| world.answer(&late, &json!({question: "yes"})));
    assert_eq!(status, 200, "{answered}");
    let briefing =
        || std::fs::read_to_string(cluster.woken.path().join("briefing")).ok().filter(|text| text.contains("yes"));
    meanwhile(|| within(DEATH, "an agent to be started with it", briefing));
    // What is kept: its request, and what was asked too often.
    assert!(meanwhile(|| agent.ask("kept", "kept")).0 < 300);
    assert_eq!(meanwhile(|| agent.outcome("kept")), outcome);
    assert_eq!(meanwhile(|| agent.ask("twice-2", "twice")).0, 201);
    assert_eq!(meanwhile(|| agent.outcome("twice-2"))["result"]["status"], "blocked");
    // The list: one is gone, and two were added.
    let title = || (world.details(&changed.replace('-', ""))["title"] == "Changed").then_some(());
    meanwhile(|| within(SOON, "the change to be known", title));
    let path = format!("/asks/{}", gone.replace('-', ""));
    assert_eq!(meanwhile(|| world.call("GET", &path, None)).0, 404);
    meanwhile(|| within(SOON, "the totals to be right", || (total(world) == Some(305)).then_some(())));
    assert!(meanwhile(|| world.open()).is_empty());
    let blocked = || (cluster.slack.messages(CHANNEL).len() > 4).then_some(());
    cluster.slack.wait_for(SOON, blocked).await.expect("a card of what is blocked");
    assert_eq!(cluster.slack.messages(CHANNEL).len(), 5, "and no second card of any question");
    let read = rows_read(&world.log());
    assert!(read <= 20, "it has read {read} rows");
}

mod measures {
    use super::*;

    /// One daemon after the other leads and is stopped.
    async fn stops_one_after_the_other(listens: bool, limit: Duration) {
        let Some(mut cluster) = two(listens, None).await else { return };
        for (round, leader) in [0, 1, 0].into_iter().enumerate() {
            // Not always at the same time after the other daemon has looked.
            meanwhile(|| std::thread::sleep(Duration::from_millis(350) * u32::try_from(round).unwrap()));
            let ends = |cluster: &mut Cluster| assert_eq!(cluster.hosts[leader].world.terminate().code(), Some(0));
            is_served(&mut cluster, leader, ends, limit).await;
            meanwhile(|| cluster.start(leader));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "measures: tests/run plays it last and alone"]
    async fn daemons_that_are_told_of_a_planned_stop_serve_within_a_second() {
        stops_one_after_the_other(true, TOLD).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "measures: tests/run plays it last and alone"]
    async fn daemons_that_only_look_serve_two_and_a_half_seconds_after_a_planned_stop() {
        stops_one_after_the_other(false, PLANNED).await;
    }
}
