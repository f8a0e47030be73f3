//! The groups are spread over the daemons that share a database: each daemon posts and closes the cards of the groups that it holds, and others
//! take them over when it dies or stops.

use crate::harness::{SOON, World, within};
use crate::in_slack::CHANNEL;
use crate::remote::Agent;
use crate::several_daemons::{Cluster, DEATH, is_noticed, meanwhile};
use crate::slack_forms::longest;
use askd_sim::slack::{FaultKind, SIGNING_SECRET};
use rustix::process::Signal;
use serde_json::json;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// More than one daemon keeps for itself beside another one.
const GROUPS: usize = 24;
/// A daemon hands groups over to another one that has at least so many fewer.
const LEVEL: usize = 8;
/// After a planned stop, where daemons tell each other. The machine may be busy with other stories: `measures` of `taking_over` look closer.
const TOLD: Duration = Duration::from_millis(2_500);

struct Spread {
    cluster: Cluster,
    /// The agents of all groups, which ask at the first daemon.
    agents: Vec<Agent>,
    cards: usize,
}

impl Spread {
    /// Two daemons, each of which holds some groups; `None` without a server.
    async fn of_two(sabotage: Option<(&str, bool)>) -> Option<Self> {
        let groups: Vec<String> = (0..GROUPS)
            .map(|number| {
                format!(
                    "[groups.g{number}]\nmax_attempts = 1\n\
                     routes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"U0ALICE\"] }}]\n"
                )
            })
            .collect();
        let by = format!("signing_secret = \"{SIGNING_SECRET}\"");
        let cluster = Cluster::reached(2, &by, &groups.concat(), sabotage, true).await?;
        let agents = (0..GROUPS).map(|number| meanwhile(|| cluster.agent(0, &format!("g{number}")))).collect();
        let mut spread = Self { cluster, agents, cards: 0 };
        spread.ask("first");
        spread.has_cards(SOON).await;
        // With more between them, some would go over in the middle of the story.
        let is_spread = || (spread.held(0).len() < spread.held(1).len() + LEVEL).then_some(());
        meanwhile(|| within(SOON, "the groups to be spread", is_spread));
        Some(spread)
    }

    /// The groups that this daemon holds.
    fn held(&self, number: usize) -> HashSet<usize> {
        let held = format!(
            "select group_name from askd.held join askd.runs using (run) where node = 'host-{number}' and group_name like 'g%'"
        );
        let held = self.cluster.database.query(&held);
        held.iter().map(|name| name[1..].parse().unwrap()).collect()
    }

    /// How many groups this daemon says that it holds, or that nobody serves.
    fn says(&self, number: usize, what: &str) -> usize {
        let (_, text) = meanwhile(|| self.cluster.hosts[number].world.raw("GET", "/metrics", "", ""));
        let value = text.lines().find_map(|line| line.strip_prefix(&format!("askd_groups_{what} ")));
        value.unwrap_or_else(|| panic!("{text}")).parse().unwrap()
    }

    /// Asks something in each group.
    fn ask(&mut self, request: &str) {
        self.ask_in(request, &(0..GROUPS).collect());
    }

    fn ask_in(&mut self, request: &str, groups: &HashSet<usize>) {
        for group in groups {
            assert_eq!(meanwhile(|| self.agents[*group].ask(request, &format!("{request} {group}?"))).0, 201);
        }
        self.cards += groups.len();
    }

    /// Answers the question of that group at one daemon or the other.
    fn answer(&self, request: &str, group: usize) {
        self.answer_at(group % 2, request, group);
    }

    fn answer_at(&self, host: usize, request: &str, group: usize) {
        let (world, group) = (&self.cluster.hosts[host].world, format!("g{group}"));
        let open =
            || world.open().into_iter().find(|ask| ask["request_id"] == request && ask["group"] == group.as_str());
        let ask = within(SOON, "the question to be open", open);
        assert_eq!(world.answer(&ask, &json!({ask["questions"][0]["id"].as_str().unwrap(): "yes"})).0, 200);
    }

    /// All questions have their cards by then, and no card is one too many.
    async fn has_cards(&self, limit: Duration) {
        let (began, cards) = (Instant::now(), || self.cluster.slack.messages(CHANNEL).len());
        let posted = self.cluster.slack.wait_for(limit, || (cards() >= self.cards).then_some(())).await;
        assert!(posted.is_some(), "{} of {} cards after {:?}", cards(), self.cards, began.elapsed());
        assert_eq!(cards(), self.cards, "one card for each question");
    }

    /// The daemons that posted the cards of these requests.
    fn posters(&self) -> Vec<String> {
        self.cluster
            .database
            .query("select distinct line ->> 'node' from askd.audit where line ->> 'what' = 'posted' order by 1")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_are_spread_over_daemons_and_each_posts_the_cards_of_its_own() {
    let Some(mut spread) = Spread::of_two(None).await else { return };
    spread.ask("second");
    spread.has_cards(SOON).await;
    assert_eq!(spread.posters(), ["host-0", "host-1"]);
    assert_eq!([0, 1].map(|host| spread.says(host, "held")), [0, 1].map(|host| spread.held(host).len()));
    let served = || ([0, 1].map(|host| spread.says(host, "unserved")) == [0, 0]).then_some(());
    within(SOON, "all groups to be served", served);
    // Cards are closed by whoever holds the group, whoever takes the answer.
    for group in 0..GROUPS {
        meanwhile(|| spread.answer("second", group));
    }
    let closed = || {
        let messages = spread.cluster.slack.messages(CHANNEL);
        (messages.iter().filter(|card| card.elements().is_empty()).count() == GROUPS).then_some(())
    };
    assert!(spread.cluster.slack.wait_for(SOON, closed).await.is_some(), "all cards of answered questions are closed");
}

/// Its groups are served again in time; those of the other one all the while.
async fn a_daemon_ends(number: usize, kill: bool, limit: Duration) {
    let Some(mut spread) = Spread::of_two(None).await else { return };
    let (lost, kept) = (spread.held(number), spread.held(1 - number));
    let other = spread.cluster.hosts[1 - number].agents;
    spread.agents.iter_mut().for_each(|agent| agent.at = other);
    let began = Instant::now();
    meanwhile(|| {
        let world = &mut spread.cluster.hosts[number].world;
        if kill { world.kill() } else { assert_eq!(world.terminate().code(), Some(0)) }
    });
    let stopped = Instant::now();
    if kill {
        spread.ask_in("kept", &kept);
        spread.has_cards(SOON).await;
        assert!(began.elapsed() < Duration::from_secs(12), "the other groups were not held up: {:?}", began.elapsed());
    }
    spread.ask_in("lost", &lost);
    let since = if kill { began } else { stopped };
    spread.has_cards(limit.saturating_sub(since.elapsed())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_takes_the_groups_of_a_daemon_that_has_died() {
    a_daemon_ends(1, true, DEATH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_nobody_leads_other_daemons_serve_their_groups() {
    a_daemon_ends(0, true, DEATH).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_takes_the_groups_of_a_daemon_that_is_stopped_at_once() {
    a_daemon_ends(1, false, TOLD).await;
}

/// A daemon is paused until its groups have gone to the other one. Woken, it saves nothing, and ends.
async fn a_paused_daemon_loses_its_groups(sabotage: Option<(&'static str, bool)>) {
    let Some(mut spread) = Spread::of_two(sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    let mine = spread.held(1);
    spread.cluster.hosts[1].world.signal(Signal::STOP);
    let taken = || (spread.held(0).len() == GROUPS).then_some(());
    meanwhile(|| within(DEATH + SOON, "the groups to be taken over", taken));
    spread.ask_in("taken", &mine);
    spread.has_cards(SOON).await;
    let world = &mut spread.cluster.hosts[1].world;
    world.signal(Signal::CONT);
    assert_eq!(meanwhile(|| world.ended()).code(), Some(1), "it does not go on:\n{}", world.log());
    assert!(world.log().contains("another askd has taken over"), "{}", world.log());
    spread.ask_in("later", &mine);
    spread.has_cards(SOON).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_daemon_saves_nothing_for_groups_that_have_moved() {
    a_paused_daemon_loses_its_groups(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_without_a_fence_is_noticed() {
    let noticed = is_noticed(a_paused_daemon_loses_its_groups(Some(("nofence", false))));
    assert!(noticed, "nofence: nobody noticed");
}

/// What is answered ends the blocks of the same question. The holder of the group was to do that.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_ends_though_the_holder_of_its_group_has_died_before_it_heard_of_the_answer() {
    let Some(mut spread) = Spread::of_two(None).await else { return };
    let group = spread.held(1).into_iter().next().unwrap();
    let slack = &spread.cluster.slack;
    meanwhile(|| {
        assert_eq!(spread.agents[group].ask("r1", "Deploy?").0, 201);
        assert_eq!(spread.agents[group].ask("r2", "Deploy?").0, 201);
        assert_eq!(spread.agents[group].outcome("r2")["result"]["status"], "blocked");
    });
    let of_block =
        || slack.messages(CHANNEL).into_iter().find(|card| card.visible_text().contains("asked this 2 times"));
    let card = slack.wait_for(SOON, of_block).await.expect("the card of the block");
    assert!(!card.elements().is_empty(), "with its button");
    let held = spread.cluster.falls_behind().await;
    meanwhile(|| {
        spread.cluster.hosts[0].answer("r1", "yes");
        spread.cluster.hosts[1].world.kill();
    });
    std::fs::remove_file(held).unwrap();
    let ended = || slack.message(CHANNEL, &card.ts).filter(|card| card.elements().is_empty());
    assert!(slack.wait_for(DEATH + SOON, ended).await.is_some(), "the block stands");
}

/// The next holder looks for the texts that go before the card.
async fn the_texts_of_a_card_are_posted_once_though_it(ends: fn(&mut World)) {
    let Some(mut spread) = Spread::of_two(None).await else { return };
    let group = spread.held(1).into_iter().next().unwrap();
    let slack = &spread.cluster.slack;
    let parts = |part: &str| {
        let messages = slack.messages(CHANNEL);
        messages.iter().filter(|message| message.visible_text().contains(&format!("part {part} of"))).count()
    };
    slack.faults().next("chat.postMessage", FaultKind::Stall(Duration::from_secs(60)), 1);
    assert_eq!(meanwhile(|| spread.agents[group].ask_with("r1", longest())).0, 201);
    slack.wait_for(SOON, || (parts("1") == 1).then_some(())).await.expect("the first text");
    meanwhile(|| ends(&mut spread.cluster.hosts[1].world));
    let form = || slack.messages(CHANNEL).into_iter().any(|card| card.visible_text().contains("10. 9 word"));
    slack.wait_for(DEATH + 3 * SOON, || form().then_some(())).await.expect("all of the card");
    assert_eq!(["1", "2"].map(parts), [1, 1], "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_texts_of_a_card_are_posted_once_though_the_daemon_that_has_begun_dies() {
    the_texts_of_a_card_are_posted_once_though_it(World::kill).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_texts_of_a_card_are_posted_once_though_the_daemon_that_has_begun_stops() {
    the_texts_of_a_card_are_posted_once_though_it(|world| assert!(world.terminate().success())).await;
}

/// What becomes of a question before a second card of it comes up.
#[derive(Clone, Copy, PartialEq)]
enum Until {
    /// It is open.
    Open,
    /// It is over.
    Over,
    /// It is over, and the daemon that has posted the first card dies and is started again.
    Died,
}

/// The holder of a group is paused while Slack is slow with a card, which comes up after the next holder has posted its own.
async fn a_card_of_the_holder_before_comes_up_late(until: Until, sabotage: Option<(&'static str, bool)>) {
    let Some(mut spread) = Spread::of_two(sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    let group = spread.held(1).into_iter().next().unwrap();
    let is_slow = FaultKind::StallBefore(Duration::from_secs(60));
    spread.cluster.slack.faults().next("chat.postMessage", is_slow, 1);
    spread.ask_in("late", &HashSet::from([group]));
    let sent =
        format!("select 1 from askd.asks where group_name = 'g{group}' and record::text like '%\"name\": \"sent\"%'");
    meanwhile(|| within(SOON, "the call", || spread.cluster.database.query(&sent).pop()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    spread.cluster.hosts[1].world.signal(Signal::STOP);
    let cards = |spread: &Spread| {
        let cards = spread.cluster.slack.messages(CHANNEL).into_iter();
        cards.filter(|card| card.visible_text().contains(&format!("late {group}?"))).collect::<Vec<_>>()
    };
    let has = |spread: &Spread, count| (cards(spread).len() == count).then_some(());
    let slack = &spread.cluster.slack;
    slack.wait_for(DEATH + SOON, || has(&spread, 1)).await.expect("the card of the next holder");
    let answer = |spread: &Spread| {
        meanwhile(|| {
            spread.answer_at(0, "late", group);
            // Else the card would say later what becomes of it.
            assert_eq!(spread.agents[group].outcome("late")["result"]["status"], "answered");
            assert_eq!(spread.agents[group].taken("late"), 204);
        });
    };
    if until != Until::Open {
        answer(&spread);
    }
    if until == Until::Died {
        meanwhile(|| {
            spread.cluster.hosts[0].world.kill();
            spread.cluster.start(0);
        });
    }
    let slack = &spread.cluster.slack;
    slack.wait_for(2 * SOON, || has(&spread, 2)).await.expect("the card of the holder before");
    if until == Until::Open {
        answer(&spread);
    }
    let closed = || cards(&spread).iter().all(|card| card.elements().is_empty()).then_some(());
    assert!(slack.wait_for(SOON, closed).await.is_some(), "a card stays: {:?}", cards(&spread));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_card_of_a_paused_holder_is_closed_with_its_question() {
    a_card_of_the_holder_before_comes_up_late(Until::Open, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_card_of_a_paused_holder_is_closed_although_its_question_is_over() {
    a_card_of_the_holder_before_comes_up_late(Until::Over, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_card_of_a_paused_holder_is_closed_although_the_next_one_has_died() {
    a_card_of_the_holder_before_comes_up_late(Until::Died, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_does_not_look_once_more_is_noticed() {
    let noticed = is_noticed(a_card_of_the_holder_before_comes_up_late(Until::Over, Some(("lookonce", true))));
    assert!(noticed, "lookonce: nobody noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_takeover_that_does_not_look_in_the_place_of_who_has_died_is_noticed() {
    let noticed = is_noticed(a_card_of_the_holder_before_comes_up_late(Until::Died, Some(("looklost", true))));
    assert!(noticed, "looklost: nobody noticed");
}

/// Nobody can have posted anything for it before, whichever daemon is asked.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_card_of_a_group_is_not_looked_for_before_it_is_posted() {
    let other = format!(
        "[groups.other]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"U0ALICE\"] }}]\n"
    );
    let Some(cluster) = Cluster::with(2, &other, None).await else { return };
    for (number, group) in [(0, "research"), (1, "other")] {
        let agent = cluster.agent(number, group);
        assert_eq!(meanwhile(|| agent.ask_with("r1", longest())).0, 201);
    }
    let posted = "select line::text from askd.audit where line ->> 'what' = 'posted'";
    let both = || (cluster.database.query(posted).len() == 2).then_some(());
    meanwhile(|| within(SOON, "both cards", both));
    let looks = cluster.slack.calls().iter().filter(|call| call.method == "conversations.history").count();
    assert_eq!(looks, 0);
}

/// How many groups a daemon says that it holds.
fn held_by(cluster: &Cluster, number: usize) -> Option<String> {
    let (_, text) = cluster.hosts[number].world.raw("GET", "/metrics", "", "");
    text.lines().find_map(|line| line.strip_prefix("askd_groups_held ")).map(str::to_owned)
}

/// A failover has lost that a group was handed over, and the daemon that has handed it over has begun with it again. The other one has not
/// looked since, and takes itself for the holder.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_takes_in_that_holds_the_group_no_more_is_shown_by_the_holder() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let late = cluster.woken.path().join("late");
    let world = &mut cluster.hosts[1].world;
    world.kill();
    world.set_env("ASKD_GATE", &format!("owed={}", late.display()));
    cluster.start(1);
    let agent = cluster.agent(1, "research");
    let posters = || cluster.database.query("select line ->> 'node' from askd.audit where line ->> 'what' = 'posted'");
    let has_posted = |cards: usize| {
        let posted = || Some(posters()).filter(|posters| posters.len() == cards);
        meanwhile(|| within(DEATH, "the card to be noted", posted))
    };
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    assert_eq!(has_posted(1), ["host-0"]);
    let goes_to = |number: usize| {
        cluster.database.query(&format!(
            "update askd.held set run = (select run from askd.runs where node = 'host-{number}') where group_name = 'research'"
        ));
        let holds = || {
            // A daemon that has not looked for long takes no calls.
            agent.call("GET", "/asks/unknown", "");
            (held_by(&cluster, number).unwrap() == "1").then_some(())
        };
        meanwhile(|| within(SOON, "the group to be held", holds));
    };
    goes_to(1);
    let gone = || (held_by(&cluster, 0).unwrap() == "0").then_some(());
    meanwhile(|| within(SOON, "the group to be gone", gone));
    std::fs::write(&late, "").unwrap();
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    goes_to(0);
    assert_eq!(meanwhile(|| held_by(&cluster, 1)).unwrap(), "1", "it does not know");
    assert_eq!(meanwhile(|| agent.ask("r2", "And this?")).0, 201);
    // Not only once the card is overdue.
    assert_eq!(has_posted(2), ["host-0", "host-0"]);
    assert_eq!(cluster.slack.messages(CHANNEL).len(), 2, "one card each");
}

/// Its groups would wait until it has read very many outcomes.
#[tokio::test(flavor = "multi_thread")]
async fn no_groups_are_given_to_a_daemon_that_has_not_read_everything() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "inbox");
    assert_eq!(meanwhile(|| agent.ask("kept", "Deploy?")).0, 201);
    meanwhile(|| {
        cluster.hosts[1].answer("kept", "yes");
        agent.outcome("kept");
        assert_eq!(agent.taken("kept"), 204);
        let kept = || cluster.database.query("select id::text from askd.asks where settled").pop();
        within(SOON, "it to be kept", kept);
    });
    let reads = cluster.woken.path().join("reads");
    std::fs::write(&reads, "").unwrap();
    let world = &mut cluster.hosts[1].world;
    world.kill();
    world.set_env("ASKD_GATE", &format!("start.kept={}", reads.display()));
    meanwhile(|| world.start_waiting());
    // Longer than a look takes.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let takes = || cluster.database.query("select takes::text from askd.runs where node = 'host-1'");
    assert_eq!(meanwhile(takes), ["false"]);
    std::fs::remove_file(reads).unwrap();
    meanwhile(|| within(SOON, "it to be given groups", || (takes() == ["true"]).then_some(())));
}

mod measures {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "measures: tests/run plays it last and alone"]
    async fn the_groups_of_a_daemon_that_is_stopped_are_served_within_a_second() {
        a_daemon_ends(1, false, Duration::from_secs(1)).await;
    }
}
