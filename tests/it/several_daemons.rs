//! Several daemons with one database, one Slack app and one WhatsApp number: each takes what people and agents do, one of them
//! does what follows. `tests/postgres/run` starts the server; without it these stories say that they were skipped.

use crate::harness::{SOON, World, within};
use crate::in_slack::{ALICE, BOB, CHANNEL};
use crate::on_postgres::Database;
use crate::on_whatsapp::ADA;
use crate::remote::{Agent, Remote};
use crate::whatsapp_window::with_template;
use askd_sim::slack::{APP_TOKEN, BOT_TOKEN, Config, FaultKind, Message, SIGNING_SECRET, Slack, too_early};
use askd_sim::whatsapp::{Config as WhatsappConfig, Whatsapp};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How soon another daemon leads after the leader has died, and after a planned stop.
pub(crate) const DEATH: Duration = Duration::from_secs(20);
pub(crate) const PLANNED: Duration = Duration::from_millis(2_500);
/// How long Slack or WhatsApp takes for a call that is slow, yet soon enough to be in time.
pub(crate) const SLOW: Duration = Duration::from_millis(5_500);
/// While this file is in the folder of [`Cluster::woken`], no daemon reads what others ask it for.
const HELD: &str = "held";

/// Daemons that share a database, and where people are.
pub(crate) struct Cluster {
    pub(crate) database: Database,
    pub(crate) slack: Slack,
    pub(crate) phone: Whatsapp,
    pub(crate) hosts: Vec<Remote>,
    /// Where an agent of the group `woken` that is started writes what it was started with, and by which process.
    pub(crate) woken: TempDir,
}

impl Cluster {
    /// Until the file of this path is removed, the daemons hold back before they read what others ask of them. When this returns, each
    /// has seen that nothing has changed, and is about to read that.
    pub(crate) async fn falls_behind(&self) -> PathBuf {
        let held = self.woken.path().join(HELD);
        std::fs::write(&held, "").unwrap();
        // They look once a second; on a busy machine later than that.
        tokio::time::sleep(Duration::from_secs(4)).await;
        held
    }

    /// So many daemons, of which the first one leads; `None` without a server.
    pub(crate) async fn of(count: usize) -> Option<Self> {
        Self::with(count, "", None).await
    }

    /// With these settings of the group, and with a promise broken in the first daemon or the others.
    pub(crate) async fn with(count: usize, group: &str, sabotage: Option<(&str, bool)>) -> Option<Self> {
        let by = format!("signing_secret = \"{SIGNING_SECRET}\"");
        let cluster = Self::reached(count, &by, group, sabotage, false).await?;
        cluster.people_reach(0).await;
        Some(cluster)
    }

    /// The same, and Slack reaches them so. `listens`: they tell each other of changes.
    pub(crate) async fn reached(
        count: usize,
        by: &str,
        group: &str,
        sabotage: Option<(&str, bool)>,
        listens: bool,
    ) -> Option<Self> {
        let database = Database::found()?;
        let slack = Slack::start(Config { pace: Duration::ZERO, ..Config::default() }).await.unwrap();
        let phone =
            Whatsapp::start(WhatsappConfig { stall_ms: SLOW.as_millis().try_into().unwrap(), ..with_template() })
                .await
                .unwrap();
        let woken = tempfile::tempdir().unwrap();
        let text = format!(
            "[slack]\napi_url = \"{1}\"\nbot_token = \"{BOT_TOKEN}\"\n{by}\npace = \"0s\"\n\
             [whatsapp]\naccess_token = \"sim-token\"\napp_secret = \"sim-app-secret\"\nverify_token = \"sim-verify-token\"\n\
             phone_number_id = \"{2}\"\napi_url = \"{3}\"\n\
             [groups.research]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\", \"{BOB}\"] }}]\n\
             {group}\n\
             [groups.phone]\nroutes = [{{ channel = \"whatsapp\", chat = \"{ADA}\" }}]\n\
             [groups.woken]\nroutes = [{{ channel = \"web\" }}]\n\
             session = {{ start = {{ command = [\"/bin/sh\", \"-c\", \"echo $PPID > {0}/by; cat > {0}/briefing\"] }} }}\n",
            woken.path().display(),
            slack.api_url(),
            phone.config().phone_number_id,
            phone.api_url(),
        );
        let host = |number: usize| {
            let mut settings = database.settings(&format!("host-{number}"));
            if listens {
                settings = format!("{settings}listen_url = \"{}\"\n", database.url());
            }
            let held = format!("owed={}", woken.path().join(HELD).display());
            let world = World::empty().in_files().with_binary().config(&text).more_config(&settings);
            let world = world.env("ASKD_GATE", &held);
            match sabotage {
                Some((name, first)) if first == (number == 0) => world.env("ASKD_SABOTAGE", name),
                _ => world,
            }
        };
        let hosts = (0..count).map(|number| Remote::ready(host(number))).collect();
        let mut cluster = Self { database, slack, phone, hosts, woken };
        for number in 0..count {
            cluster.start(number);
        }
        Some(cluster)
    }

    /// Starts a daemon anew, which dies at this step.
    fn restart_dying_at(&mut self, number: usize, step: &str) {
        self.hosts[number].world.kill();
        self.hosts[number].world.set_env("ASKD_CRASH_AT", step);
        self.start(number);
    }

    /// Starts a daemon, and waits until it takes calls.
    pub(crate) fn start(&mut self, number: usize) {
        let world = &mut self.hosts[number].world;
        world.start_waiting();
        let ready = || (world.raw("GET", "/readyz", "", "").0 == 200).then_some(());
        tokio::task::block_in_place(|| within(SOON, "a daemon to take calls", ready));
    }

    /// What people do in Slack and on WhatsApp comes to this daemon from now on.
    pub(crate) async fn people_reach(&self, number: usize) {
        let url = self.hosts[number].world.url();
        self.slack.set_interactivity_url(Some(format!("{url}/slack/interactions")));
        self.slack.set_events_url(&format!("{url}/slack/events")).await.expect("the challenge is echoed");
        self.phone.set_webhook(Some(&format!("{url}/whatsapp/webhook")));
    }

    /// An agent of the group that asks at this daemon.
    pub(crate) fn agent(&self, number: usize, group: &str) -> Agent {
        self.hosts[number].agent(group)
    }

    /// The same agent at another daemon.
    fn at(&self, number: usize, agent: &Agent) -> Agent {
        Agent { at: self.hosts[number].agents, ..agent.clone() }
    }

    pub(crate) async fn card(&self) -> Message {
        let live = || self.slack.messages(CHANNEL).into_iter().rfind(|message| !message.elements().is_empty());
        self.slack.wait_for(SOON, live).await.expect("a card")
    }

    pub(crate) async fn says(&self, ts: &str, text: &str) {
        let says = || self.slack.message(CHANNEL, ts).filter(|message| message.visible_text().contains(text));
        self.slack.wait_for(SOON, || says().map(drop)).await.unwrap_or_else(|| {
            panic!("no {text:?}: {:?}", self.slack.message(CHANNEL, ts).map(|message| message.visible_text()))
        });
    }

    fn leader(&self) -> Vec<String> {
        self.database.query("select node from askd.groups where until > now()")
    }

    pub(crate) fn leads_within(&self, number: usize, limit: Duration) {
        let (since, name) = (Instant::now(), format!("host-{number}"));
        let leads = || (self.leader() == [name.as_str()]).then_some(());
        tokio::task::block_in_place(|| within(limit, "another daemon to lead", leads));
        assert!(since.elapsed() < limit, "it took {:?}", since.elapsed());
    }
}

/// Blocks while the stand-ins go on.
pub(crate) fn meanwhile<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_asked_at_one_daemon_is_answered_at_another_and_fetched_at_a_third() {
    let Some(cluster) = Cluster::of(3).await else { return };
    assert_eq!(cluster.leader(), ["host-0"]);
    for (asks, answers, fetches) in [(1, 2, 0), (0, 1, 2), (2, 0, 1), (1, 1, 1)] {
        let request = format!("r{asks}{answers}{fetches}");
        let agent = cluster.agent(asks, "research");
        assert_eq!(meanwhile(|| agent.ask(&request, &format!("Deploy {request}?"))).0, 201);
        let card = cluster.card().await;
        cluster.people_reach(answers).await;
        let clicked = cluster.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
        assert!(clicked.acknowledged && clicked.answer.is_empty(), "{clicked:?}");
        let agent = cluster.at(fetches, &agent);
        let outcome = meanwhile(|| agent.outcome(&request));
        assert_eq!(outcome["result"]["answered_by"]["id"], ALICE);
        assert_eq!(meanwhile(|| agent.taken(&request)), 204);
        cluster.says(&card.ts, "*yes* by").await;
    }
    assert_eq!(cluster.slack.messages(CHANNEL).len(), 4, "one card for each question");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_in_the_inbox_of_any_daemon_ends_the_wait_at_another() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "inbox");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let waiting = thread::spawn({
        let agent = agent.clone();
        move || agent.call("GET", "/asks/r1?wait=20", "")
    });
    meanwhile(|| cluster.hosts[0].answer("r1", "no"));
    let (status, outcome) = meanwhile(|| waiting.join().unwrap());
    assert_eq!((status, &outcome["result"]["answers"]), (200, &json!({"Deploy?": "no"})), "{outcome}");
    // And the other way round, by its code.
    let agent = cluster.at(0, &agent);
    assert_eq!(meanwhile(|| agent.ask("r2", "And this?")).0, 201);
    let open = meanwhile(|| cluster.hosts[1].world.open_of("r2"));
    let path = format!("/asks/{}/answer", open["short_id"].as_str().unwrap());
    let body = json!({"answers": {open["questions"][0]["id"].as_str().unwrap(): "yes"}});
    assert_eq!(meanwhile(|| cluster.hosts[1].world.call("POST", &path, Some(&body))).0, 200);
    assert_eq!(meanwhile(|| agent.outcome("r2"))["result"]["answers"], json!({"And this?": "yes"}));
}

/// Slack allows ten connections. The daemon that has none takes one over.
#[tokio::test(flavor = "multi_thread")]
async fn eight_daemons_hold_a_connection_of_socket_mode_and_the_ninth_takes_over() {
    let Some(mut cluster) = Cluster::reached(9, &format!("app_token = \"{APP_TOKEN}\""), "", None, false).await else {
        return;
    };
    let slack = &cluster.slack;
    let connected = |ever| {
        let reached = || (slack.sockets() == 8 && slack.sockets_ever() == ever).then_some(());
        meanwhile(|| within(SOON, "eight connections", reached));
    };
    connected(8);
    cluster.hosts[1].world.kill();
    connected(9);
    let agent = cluster.agent(0, "research");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let card = cluster.card().await;
    let clicked = slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    assert!(clicked.acknowledged, "{clicked:?}");
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
}

/// Rivals at two daemons: one wins, the others are told so, and the outcome is the winner's.
pub(crate) async fn one_of_two_rivals_wins(sabotage: Option<(&str, bool)>) {
    let Some(cluster) = Cluster::with(2, "max_open_per_group = 100", sabotage).await else {
        assert!(sabotage.is_none(), "nothing was shown");
        return;
    };
    let agent = cluster.agent(0, "inbox");
    // The two have to meet: a broken daemon may need more rounds for that.
    for round in 0..if sabotage.is_some() { 50 } else { 20 } {
        let request = format!("r{round}");
        assert_eq!(meanwhile(|| agent.ask(&request, &format!("Deploy {round}?"))).0, 201);
        let open = meanwhile(|| cluster.hosts[1].world.open_of(&request));
        let question = open["questions"][0]["id"].as_str().unwrap();
        let start = Barrier::new(2);
        let told: Vec<(u16, Value)> = meanwhile(|| {
            thread::scope(|scope| {
                let answers = ["yes", "no"].into_iter().enumerate().map(|(host, label)| {
                    let (start, open, world) = (&start, &open, &cluster.hosts[host].world);
                    scope.spawn(move || {
                        start.wait();
                        world.answer(open, &json!({question: label}))
                    })
                });
                answers.collect::<Vec<_>>().into_iter().map(|answer| answer.join().unwrap()).collect()
            })
        });
        let won: Vec<&str> = [("yes", &told[0]), ("no", &told[1])]
            .into_iter()
            .filter_map(|(label, (status, _))| (*status == 200).then_some(label))
            .collect();
        let [won] = won[..] else { panic!("{} of two won: {told:?}", won.len()) };
        let outcome = meanwhile(|| agent.outcome(&request));
        assert_eq!(outcome["result"]["answers"], json!({format!("Deploy {round}?"): won}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_answers_at_two_daemons_one_counts() {
    one_of_two_rivals_wins(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold_for_all_daemons_together() {
    let Some(cluster) = Cluster::with(2, "max_open_per_group = 5", None).await else { return };
    let agent = cluster.agent(0, "research");
    let start = Barrier::new(16);
    let told: Vec<u16> = meanwhile(|| {
        thread::scope(|scope| {
            let asks = (0..16).map(|number| {
                let (start, agent) = (&start, cluster.at(number % 2, &agent));
                scope.spawn(move || {
                    start.wait();
                    agent.ask(&format!("r{number}"), &format!("Question {number}?")).0
                })
            });
            asks.collect::<Vec<_>>().into_iter().map(|ask| ask.join().unwrap()).collect()
        })
    });
    let accepted = told.iter().filter(|status| **status == 201).count();
    assert_eq!((accepted, told.iter().filter(|status| **status == 422).count()), (5, 11), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_to_two_daemons_is_one_question() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(0, "research");
    for round in 0..10 {
        let request = format!("r{round}");
        let start = Barrier::new(2);
        let mut told: Vec<u16> = meanwhile(|| {
            thread::scope(|scope| {
                let asks = (0..2).map(|host| {
                    let (start, request, agent) = (&start, &request, cluster.at(host, &agent));
                    scope.spawn(move || {
                        start.wait();
                        agent.ask(request, &format!("Deploy {request}?")).0
                    })
                });
                asks.collect::<Vec<_>>().into_iter().map(|ask| ask.join().unwrap()).collect()
            })
        });
        told.sort_unstable();
        assert_eq!(told, [200, 201]);
    }
    within(SOON, "the cards", || (cluster.slack.messages(CHANNEL).len() == 10).then_some(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_revoked_at_one_daemon_ends_calls_at_another() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.at(1, &cluster.agent(0, "research"));
    meanwhile(|| {
        within(SOON, "the token to be known", || (agent.ask("r1", "Deploy?").0 == 201).then_some(()));
        let waiting = thread::spawn({
            let agent = agent.clone();
            move || (agent.call("GET", "/asks/r1?wait=20", "").0, Instant::now())
        });
        thread::sleep(Duration::from_millis(300));
        let revoked = Instant::now();
        assert_eq!(agent.revoked(&cluster.hosts[0].world), 204);
        let (status, at) = waiting.join().unwrap();
        assert_eq!(status, 401);
        assert!(at - revoked < Duration::from_secs(3), "{:?}", at - revoked);
    });
}

/// While no daemon leads, the others take answers and hand out outcomes; the next leader does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_dies_answers_are_taken_at_once_and_cards_closed_soon() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "research");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let card = cluster.card().await;
    cluster.people_reach(1).await;
    cluster.hosts[0].world.kill();
    let clicked = cluster.slack.click(CHANNEL, &card.ts, "pick:0:1", BOB).await.expect("sent");
    assert!(clicked.acknowledged && clicked.answer.is_empty(), "{clicked:?}");
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
    // Asked while nobody leads.
    assert_eq!(meanwhile(|| agent.ask("r2", "And this?")).0, 201);
    cluster.leads_within(1, DEATH);
    cluster.says(&card.ts, "*no* by").await;
    let second = cluster.card().await;
    cluster.slack.click(CHANNEL, &second.ts, "pick:0:0", ALICE).await.expect("sent");
    assert_eq!(meanwhile(|| agent.outcome("r2"))["result"]["answers"], json!({"And this?": "yes"}));
    cluster.says(&second.ts, "*yes* by").await;
    assert_eq!(cluster.slack.messages(CHANNEL).len(), 2, "one card for each question");
    // What comes back takes calls beside the other, until a planned stop.
    cluster.start(0);
    assert_eq!(meanwhile(|| cluster.hosts[1].world.terminate()).code(), Some(0));
    cluster.leads_within(0, PLANNED);
    let agent = cluster.at(0, &agent);
    cluster.people_reach(0).await;
    meanwhile(|| within(SOON, "the new leader to take calls", || (agent.ask("r3", "At last?").0 == 201).then_some(())));
    let third = cluster.card().await;
    assert_ne!((third.ts.as_str(), third.ts.as_str()), (card.ts.as_str(), second.ts.as_str()));
}

/// The leader lives on and has to be told: nobody starts anew and finds out what is owed.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_has_stored_just_before_its_death_is_done_by_the_leader() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(0, "research");
    cluster.restart_dying_at(1, "settle.saved");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let card = cluster.card().await;
    cluster.people_reach(1).await;
    let clicked = cluster.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    assert!(!clicked.acknowledged, "it was to die first");
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
    cluster.says(&card.ts, "*yes* by").await;
    // The same where a daemon dies after it has taken a question.
    cluster.restart_dying_at(1, "accept.stored");
    let other = cluster.at(1, &agent);
    let asked = meanwhile(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| other.ask("r2", "And this?"))));
    assert!(asked.is_err(), "it was to die first");
    let second = cluster.card().await;
    assert_eq!(meanwhile(|| agent.ask("r2", "And this?")).0, 200, "it is known");
    cluster.people_reach(0).await;
    cluster.slack.click(CHANNEL, &second.ts, "pick:0:1", ALICE).await.expect("sent");
    assert_eq!(meanwhile(|| agent.outcome("r2"))["result"]["answers"], json!({"And this?": "no"}));
}

/// After a crash of the server a number can come twice. The leader still has the first one in mind, because it could not note that the work
/// was begun.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_the_number_of_other_work_from_before_a_crash_is_done() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "research");
    // From its first question on, the leader holds the group.
    assert_eq!(meanwhile(|| agent.ask("r0", "Really?")).0, 201);
    let known = cluster.card().await;
    cluster.database.query(
        "create function askd.fail() returns trigger language plpgsql as 'begin raise ''crashed''; end';
         create trigger fails before delete on askd.owed execute function askd.fail()",
    );
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let another = |than: &[&str]| {
        let cards = cluster.slack.messages(CHANNEL).into_iter();
        cards.map(|card| card.ts).find(|card| !than.contains(&card.as_str()))
    };
    let first = cluster.slack.wait_for(SOON, || another(&[&known.ts])).await.expect("a card of the first question");
    let told = || cluster.hosts[0].world.log().contains("cannot keep up with the other daemons").then_some(());
    meanwhile(|| within(SOON, "the leader to fail", told));
    let number = cluster.database.query("select min(number) from askd.owed").concat();
    cluster.database.query(&format!(
        "begin; drop trigger fails on askd.owed; delete from askd.owed;
         alter table askd.owed alter column number restart with {number}; commit"
    ));
    assert_eq!(meanwhile(|| agent.ask("r2", "And this?")).0, 201);
    cluster.slack.wait_for(SOON, || another(&[&known.ts, &first])).await.expect("a card of the second question");
}

/// The leader begins with the group only when all of it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_is_over_before_anybody_holds_its_group_is_kept() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "inbox");
    let held = cluster.falls_behind().await;
    meanwhile(|| {
        assert_eq!(agent.ask("r1", "Deploy?").0, 201);
        cluster.hosts[1].answer("r1", "yes");
        agent.outcome("r1");
        assert_eq!(agent.taken("r1"), 204);
    });
    std::fs::remove_file(held).unwrap();
    let kept = || cluster.database.query("select id::text from askd.asks where settled").pop();
    meanwhile(|| within(SOON, "it to be kept", kept));
}

/// The leader knows the question as it was before, and must not go by that.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_daemon_has_stored_is_done_later_if_the_leader_cannot_read_it() {
    let Some(cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "research");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let card = cluster.card().await;
    let held = cluster.falls_behind().await;
    meanwhile(|| cluster.hosts[1].answer("r1", "no"));
    cluster.database.query("alter table askd.asks rename to hidden");
    std::fs::remove_file(&held).unwrap();
    let told =
        || cluster.hosts[0].world.log().contains("cannot read a question, or cannot hand its work").then_some(());
    meanwhile(|| within(SOON, "the leader to fail", told));
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.database.query("alter table askd.hidden rename to asks");
    cluster.says(&card.ts, "*no* by").await;
}

/// The daemon that Slack calls knows the question as it was before it was shown in Slack too.
#[tokio::test(flavor = "multi_thread")]
async fn a_click_on_a_card_that_came_later_counts_at_a_daemon_that_has_not_heard_of_it() {
    let later = format!(
        "[groups.later]\nescalate_after = \"5s\"\n\
         routes = [{{ channel = \"web\" }}, {{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [\"{ALICE}\"] }}]\n"
    );
    let Some(cluster) = Cluster::with(2, &later, None).await else { return };
    let agent = cluster.agent(1, "later");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    meanwhile(|| cluster.hosts[0].world.open_of("r1"));
    let held = cluster.woken.path().join(HELD);
    std::fs::write(&held, "").unwrap();
    let card = cluster.card().await;
    cluster.people_reach(1).await;
    let clicked = cluster.slack.click(CHANNEL, &card.ts, "pick:0:0", ALICE).await.expect("sent");
    assert!(clicked.acknowledged, "{clicked:?}");
    std::fs::remove_file(&held).unwrap();
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
    cluster.says(&card.ts, "*yes* by").await;
}

/// A crash of the server has taken the card's id, and no daemon remembers it. Whoever takes the answer has it looked for.
#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_the_database_has_lost_is_found_and_closed() {
    the_database_loses_a_card(None).await;
}

async fn the_database_loses_a_card(sabotage: Option<(&'static str, bool)>) {
    let Some(cluster) = Cluster::with(2, "", sabotage).await else { return };
    cluster.database.query(
        "create table first as select id, operations, record from askd.asks;
         create function keep() returns trigger language plpgsql as
             'begin insert into first values (new.id, new.operations, new.record); return new; end';
         create trigger keep after insert on askd.asks for each row execute function keep()",
    );
    let agent = cluster.agent(1, "research");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let card = cluster.card().await;
    let posted = || cluster.database.query("select 'posted' from askd.asks where revision > 2").pop();
    meanwhile(|| within(SOON, "the card's id to be stored", posted));
    // Longer than what was stored stays at hand to be stored again.
    tokio::time::sleep(Duration::from_secs(1)).await;
    // The other daemon would see, as soon as it looks, what is missing, and have it looked for itself.
    let held = cluster.falls_behind().await;
    cluster.database.query(
        "begin; delete from askd.era;
         update askd.asks as asks set revision = 1, operations = first.operations, record = first.record
             from first where first.id = asks.id;
         commit",
    );
    // In the inbox: a click would say which card it is.
    meanwhile(|| cluster.hosts[1].answer("r1", "no"));
    std::fs::remove_file(held).unwrap();
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
    cluster.says(&card.ts, "*no* by").await;
    assert_eq!(cluster.slack.messages(CHANNEL).len(), 1, "one card");
}

/// An outcome that was sent to one process of an agent is for a while sent to no other one, whichever daemons they ask.
async fn of_two_takers_at_two_daemons_one_is_sent_the_outcome(sabotage: Option<(&str, bool)>) {
    let Some(cluster) = Cluster::with(2, "", sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    let first = cluster.agent(0, "inbox");
    let second = cluster.at(1, &first).other();
    for round in 0..10 {
        let (request, both) = (format!("r{round}"), Barrier::new(2));
        assert_eq!(meanwhile(|| first.ask(&request, &format!("Deploy {round}?"))).0, 201);
        meanwhile(|| cluster.hosts[1].answer(&request, "yes"));
        let fetch = |agent: &Agent| {
            both.wait();
            // A daemon may not know of the answer yet.
            let call = || Some(agent.call("GET", &format!("/asks/{request}"), "").0).filter(|status| *status != 202);
            within(SOON, "the outcome", call)
        };
        let [one, other] = meanwhile(|| {
            thread::scope(|scope| {
                let calls = [&first, &second].map(|agent| scope.spawn(|| fetch(agent)));
                calls.map(|call| call.join().unwrap())
            })
        });
        assert!(matches!((one, other), (200, 409) | (409, 200)), "{one} and {other}");
        let [winner, loser] = if one == 200 { [&first, &second] } else { [&second, &first] };
        assert_eq!(meanwhile(|| loser.taken(&request)), 410);
        // Its next call may come to the other daemon.
        assert_eq!(meanwhile(|| Agent { at: loser.at, ..winner.clone() }.taken(&request)), 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outcome_is_sent_to_one_taker_at_all_daemons() {
    of_two_takers_at_two_daemons_one_is_sent_the_outcome(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_that_each_daemon_keeps_for_itself_are_noticed() {
    if Database::found().is_none() {
        return;
    }
    let noticed = is_noticed(of_two_takers_at_two_daemons_one_is_sent_the_outcome(Some(("ownholds", false))));
    assert!(noticed, "ownholds: nobody noticed");
}

/// The agent has gone, and so has the daemon that it asked: what was answered is kept for its next start, wherever that asks.
#[tokio::test(flavor = "multi_thread")]
async fn a_briefing_is_handed_out_by_every_daemon() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let agent = cluster.agent(1, "inbox");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    assert_eq!(meanwhile(|| agent.ask("r3", "And now?")).0, 201);
    // Its call ends at once, so its lease is over a minute later. A second agent of the group is its next start.
    let woken = cluster.agent(1, "woken");
    assert_eq!(meanwhile(|| woken.ask("r2", "And this?")).0, 201);
    meanwhile(|| cluster.hosts[0].answer("r3", "yes"));
    meanwhile(|| cluster.hosts[0].answer("r1", "yes"));
    meanwhile(|| cluster.hosts[0].answer("r2", "no"));
    let next = Agent { process: "p2", ..cluster.at(0, &agent) };
    let briefed_of = |agent: &Agent, request: &str| {
        let briefings = agent.call("GET", "/briefings", "").1["briefings"].as_array().cloned().unwrap_or_default();
        briefings.into_iter().find(|briefing| briefing["result"]["request_id"] == request)
    };
    let briefed = |agent: &Agent| briefed_of(agent, "r1");
    // The other daemon takes what it was not told of yet.
    let early = meanwhile(|| within(Duration::from_secs(120), "a briefing", || briefed_of(&next, "r3")));
    let path = format!("/briefings/{}/taken", early["ask_id"].as_str().unwrap());
    assert_eq!(meanwhile(|| Agent { at: agent.at, ..next.clone() }.call("POST", &path, "").0), 204);
    let briefing = meanwhile(|| within(Duration::from_secs(120), "the briefing", || briefed(&next)));
    assert!(briefing["text"].as_str().unwrap().contains("The user answered: \"yes\""), "{briefing}");
    // While one process prints it, no other one gets it, at no daemon and in no way.
    let path = format!("/briefings/{}/taken", briefing["ask_id"].as_str().unwrap());
    let take = |agent: &Agent| meanwhile(|| agent.call("GET", "/briefings?take=true", "").0);
    meanwhile(|| within(SOON, "the briefing at the other daemon", || briefed(&agent)));
    assert_eq!((take(&next), take(&agent)), (200, 409));
    assert_eq!(meanwhile(|| agent.call("POST", &path, "").0), 410);
    let none = "/briefings/00000000000000000000000000000001/taken";
    assert_eq!(meanwhile(|| agent.call("POST", none, "").0), 410);
    let held = "select what from askd.holds where what like 'briefing %'";
    assert_eq!(cluster.database.query(held).len(), 2, "what does not exist takes no room in the database");
    assert_eq!(meanwhile(|| agent.call("GET", "/asks/r1", "").0), 409);
    assert_eq!(meanwhile(|| agent.call("DELETE", &path, "").0), 204, "it puts back nothing of another's");
    assert_eq!(take(&agent), 409);
    assert_eq!(meanwhile(|| next.call("DELETE", &path, "").0), 204);
    assert_eq!(take(&agent), 200);
    let file = cluster.woken.path().join("briefing");
    let told = || std::fs::read_to_string(&file).ok().filter(|told| told.contains("The user answered: \\\"no\\\""));
    meanwhile(|| within(SOON, "the agent to be started with its briefing", told));
    cluster.hosts[0].world.kill();
    meanwhile(|| within(SOON, "the briefing at the other daemon", || briefed(&agent)));
    assert_eq!(meanwhile(|| agent.call("POST", &path, "").0), 204);
    assert_eq!(meanwhile(|| agent.call("POST", &path, "").0), 410);
    assert_eq!(meanwhile(|| briefed(&agent)), None);
}

/// Else two agents would act on one outcome: the one that is started, and the one that asks another daemon meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn while_an_agent_is_being_started_no_call_gets_its_outcome_at_any_daemon() {
    let began = tempfile::tempdir().unwrap();
    let file = began.path().join("began");
    let slow = format!(
        "[groups.slow]\nroutes = [{{ channel = \"web\" }}]\n\
         session = {{ start = {{ command = [\"/bin/sh\", \"-c\", \"touch {}; sleep 15\"] }} }}",
        file.display()
    );
    let Some(cluster) = Cluster::with(2, &slow, None).await else { return };
    let agent = cluster.agent(1, "slow");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    meanwhile(|| cluster.hosts[0].answer("r1", "yes"));
    let starts = || file.exists().then_some(());
    meanwhile(|| within(Duration::from_secs(120), "the agent to be started", starts));
    // What was published before counts until the next look.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (status, told) = meanwhile(|| agent.call("GET", "/asks/r1?wait=5", ""));
    assert_eq!(status, 202, "{told}");
    let call = || agent.call("GET", "/asks/r1", "");
    let (status, told) = meanwhile(|| {
        within(Duration::from_secs(30), "the end of the start", || Some(call()).filter(|told| told.0 != 202))
    });
    assert_eq!(status, 410, "{told}");
    let started = "select line from askd.audit where line::text like '%\"started\"%'";
    assert_eq!(cluster.database.query(started).len(), 1);
}

/// Only the leader lets time pass, and it may be late.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_after_the_deadline_is_late_at_every_daemon() {
    let Some(cluster) = Cluster::with(2, "", Some(("notick", true))).await else { return };
    let agent = cluster.agent(1, "inbox");
    let world = &cluster.hosts[1].world;
    let request = json!({"request_id": "r1", "timeoutMs": 10000, "questions": [{"question": "Deploy?"}]});
    assert_eq!(meanwhile(|| agent.call("POST", "/asks", &request.to_string())).0, 201);
    let ask = meanwhile(|| world.open_of("r1"));
    tokio::time::sleep(Duration::from_secs(11)).await;
    let (status, problem) = meanwhile(|| world.answer(&ask, &json!({"Deploy?": "yes"})));
    assert_eq!((status, &problem["ask"]["outcome"]["status"]), (409, &json!("timeout")), "{problem}");
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["status"], "timeout");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_daemons_of_one_name_the_second_is_refused() {
    let Some(cluster) = Cluster::of(1).await else { return };
    let mut namesake = World::empty().in_files().with_binary().config(&cluster.database.settings("host-0"));
    assert!(!meanwhile(|| namesake.try_start()));
    assert!(namesake.log().contains("another askd is called host-0"), "{}", namesake.log());
    assert_eq!(namesake.command().output().unwrap().status.code(), Some(75));
}

#[tokio::test(flavor = "multi_thread")]
async fn daemons_go_on_beside_a_later_version_that_only_adds_to_the_tables() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    cluster.database.query(
        "alter table askd.asks add column later text; alter table askd.nodes add column later text;
         update askd.format set tables = tables + 1",
    );
    cluster.hosts[1].world.kill();
    cluster.start(1);
    for (asks, answers) in [(0, 1), (1, 0)] {
        let (request, agent) = (format!("r{asks}"), cluster.agent(asks, "inbox"));
        assert_eq!(meanwhile(|| agent.ask(&request, "Deploy?")).0, 201);
        meanwhile(|| cluster.hosts[answers].answer(&request, "yes"));
        assert_eq!(meanwhile(|| agent.outcome(&request))["result"]["answers"], json!({"Deploy?": "yes"}));
    }
    // A later version takes something away that this one needs.
    cluster.database.query("update askd.format set needs = tables");
    let old = &mut cluster.hosts[1].world;
    old.kill();
    assert!(!meanwhile(|| old.try_start()));
    assert!(old.log().contains("the tables of the database"), "{}", old.log());
    assert_eq!(old.command().output().unwrap().status.code(), Some(2));
}

pub(crate) fn is_noticed(story: impl Future<Output = ()> + Send + 'static) -> bool {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let noticed = meanwhile(|| runtime.block_on(runtime.spawn(story)).is_err());
    runtime.shutdown_background();
    noticed
}

#[tokio::test(flavor = "multi_thread")]
async fn a_save_over_what_another_daemon_has_stored_is_noticed() {
    if Database::found().is_none() {
        return;
    }
    assert!(is_noticed(one_of_two_rivals_wins(Some(("norowlock", false)))), "norowlock: nobody noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_takes_for_whole_what_a_crash_has_left_is_noticed() {
    if Database::found().is_none() {
        return;
    }
    assert!(is_noticed(the_database_loses_a_card(Some(("sameera", false)))), "sameera: nobody noticed");
}

/// What Slack has told one leader to wait, the next one waits, too.
async fn a_limit_is_kept_by_the_next_leader(sabotage: Option<(&str, bool)>) {
    let Some(mut cluster) = Cluster::with(2, "", sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    let agent = cluster.agent(1, "research");
    cluster.slack.faults().next("chat.postMessage", FaultKind::RateLimited(8), 1);
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    let limited = || cluster.slack.calls().iter().any(|call| call.retry_after.is_some()).then_some(());
    cluster.slack.wait_for(SOON, limited).await.expect("the limit");
    meanwhile(|| cluster.hosts[0].world.terminate());
    cluster.leads_within(1, PLANNED);
    assert_eq!(meanwhile(|| agent.ask("r2", "And this?")).0, 201);
    let both = || (cluster.slack.messages(CHANNEL).len() == 2).then_some(());
    cluster.slack.wait_for(2 * SOON, both).await.expect("both cards");
    assert_eq!(too_early(&cluster.slack.calls()).len(), 0, "{:?}", cluster.slack.calls());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_slack_holds_for_all_daemons_together() {
    a_limit_is_kept_by_the_next_leader(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_that_each_daemon_keeps_for_itself_are_noticed() {
    if Database::found().is_none() {
        return;
    }
    assert!(is_noticed(a_limit_is_kept_by_the_next_leader(Some(("ownrates", false)))), "ownrates: nobody noticed");
}
