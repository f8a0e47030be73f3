//! How soon another daemon serves what its leader served: after the leader's death, and after a planned stop of it.

use crate::harness::{SOON, within};
use crate::in_slack::CHANNEL;
use crate::several_daemons::{Cluster, DEATH, PLANNED, is_noticed, meanwhile};
use askd_sim::slack::SIGNING_SECRET;
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
async fn ends_once(listens: bool, kill: bool, limit: Duration, sabotage: Option<(&str, bool)>) {
    let Some(mut cluster) = two(listens, sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
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
    assert!(is_noticed(ends_once(false, true, DEATH, Some(("longlease", true)))), "longlease: nobody noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_not_given_up_is_noticed() {
    assert!(is_noticed(ends_once(true, false, PLANNED, Some(("keeplease", true)))), "keeplease: nobody noticed");
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
