//! A daemon that is cut off from the database alone: Slack and WhatsApp still take what it sends. Another daemon may have taken over by
//! then, so that it makes no call that people see.

use crate::harness::{SOON, within};
use crate::in_slack::CHANNEL;
use crate::on_whatsapp::ADA;
use crate::several_daemons::{Cluster, SLOW, is_noticed, meanwhile};
use crate::slack_forms::longest;
use askd_sim::slack::{FaultKind, Message};
use askd_sim::whatsapp::Fault;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// No call begins later than this after the last renewal of a lease.
const LAST_CALL: Duration = Duration::from_secs(10);
/// Longer than anything that waits for its turn.
const A_WHILE: Duration = Duration::from_secs(15);

/// Between a daemon and its database.
struct Relay {
    at: SocketAddr,
    is_open: Arc<AtomicBool>,
    lines: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            at: listener.local_addr().unwrap(),
            is_open: Arc::new(AtomicBool::new(true)),
            lines: Arc::default(),
        };
        let (is_open, lines) = (Arc::clone(&relay.is_open), Arc::clone(&relay.lines));
        thread::spawn(move || {
            for line in listener.incoming().flatten().filter(|_| is_open.load(Ordering::SeqCst)) {
                let Ok(onward) = TcpStream::connect(server) else { continue };
                for (from, to) in [(&line, &onward), (&onward, &line)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    lines.lock().unwrap().push(from.try_clone().unwrap());
                    if !is_open.load(Ordering::SeqCst) {
                        let _ended = from.shutdown(Shutdown::Both);
                    }
                    thread::spawn(move || {
                        let _ended = std::io::copy(&mut from, &mut to);
                        let _ended = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        relay
    }

    fn cut(&self) {
        self.is_open.store(false, Ordering::SeqCst);
        for line in self.lines.lock().unwrap().drain(..) {
            let _ended = line.shutdown(Shutdown::Both);
        }
    }

    fn mend(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }
}

/// One daemon, and what is between it and its database.
async fn relayed(sabotage: Option<&'static str>) -> Option<(Cluster, Relay)> {
    let mut cluster = Cluster::with(1, "", sabotage.map(|name| (name, true))).await?;
    let url = cluster.database.url();
    let (user, rest) = url.split_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    let relay = Relay::to(server.parse().unwrap());
    let world = &mut cluster.hosts[0].world;
    meanwhile(|| assert!(world.terminate().success()));
    world.set_env("ASKD__POSTGRES__URL", &format!("{user}@{}/{name}", relay.at));
    cluster.start(0);
    cluster.people_reach(0).await;
    Some((cluster, relay))
}

/// What people see stays as it is once the daemon may have been overtaken, and is whole when the database is back.
async fn nothing_comes(relay: &Relay, takes: Duration, seen: impl Fn() -> usize, all: impl Fn() -> bool) {
    relay.cut();
    tokio::time::sleep(LAST_CALL + takes + Duration::from_secs(3)).await;
    let before = seen();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(seen(), before, "something came");
    assert!(!all(), "there was more to come");
    relay.mend();
    meanwhile(|| within(2 * SOON, "the rest", || all().then_some(())));
}

fn each_came_once(mut texts: Vec<String>) {
    let count = texts.len();
    texts.sort();
    texts.dedup();
    assert_eq!(texts.len(), count, "each once");
}

/// A call that begins before the last one may end later.
async fn a_card_of_many_messages_is_being_posted(sabotage: Option<&'static str>) {
    let Some((cluster, relay)) = relayed(sabotage).await else { return };
    let agent = cluster.agent(0, "research");
    cluster.slack.faults().next("chat.postMessage", FaultKind::StallBefore(SLOW), 8);
    assert_eq!(meanwhile(|| agent.ask_with("r1", longest())).0, 201);
    let messages = || cluster.slack.messages(CHANNEL);
    cluster.slack.wait_for(SOON, || (messages().len() == 1).then_some(())).await.expect("the first text");
    let is_whole = || messages().iter().any(|card| !card.elements().is_empty());
    nothing_comes(&relay, SLOW, || messages().len(), is_whole).await;
    each_came_once(messages().iter().map(Message::visible_text).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_cut_off_posts_no_more_of_a_card() {
    a_card_of_many_messages_is_being_posted(None).await;
}

/// A long question takes three messages. When the daemon is cut off, WhatsApp has the first one, and has not said so yet.
async fn a_question_of_three_messages_is_being_sent(sabotage: Option<&'static str>) {
    let Some((cluster, relay)) = relayed(sabotage).await else { return };
    cluster.phone.handshake().await.unwrap();
    cluster.phone.person_says(ADA, "hello");
    let agent = cluster.agent(0, "phone");
    cluster.phone.fault(Fault::StallAfter, 1);
    let messages = || cluster.phone.messages_to(ADA);
    let has = |text: &str| messages().iter().any(|message| message.text.contains(text));
    assert_eq!(meanwhile(|| agent.ask_with("long", longest())).0, 201);
    meanwhile(|| within(SOON, "the first message", || has("word word word").then_some(())));
    nothing_comes(&relay, SLOW, || messages().len(), || has("10. 9 word")).await;
    each_came_once(messages().into_iter().map(|message| message.text).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_cut_off_sends_nothing_on_whatsapp() {
    a_question_of_three_messages_is_being_sent(None).await;
}

/// As if other daemons had stored so many questions like the one with the request id `r1`, each in a transaction of its own.
fn others_store(cluster: &Cluster, count: usize) {
    cluster.database.query(&format!(
        "do $$ declare asked askd.asks; code text; new uuid; begin
             select * into strict asked from askd.asks;
             for number in 1..{count} loop
                 new := gen_random_uuid();
                 code := 'x' || lpad(number::text, 6, '0');
                 insert into askd.asks (id, group_name, revision, operations, short_id, record)
                     select new, asked.group_name, 1, array[gen_random_uuid()], code,
                         replace(replace(replace(asked.record::text, replace(asked.id::text, '-', ''), replace(new::text, '-', '')),
                             '\"r1\"', '\"other' || number || '\"'), '\"' || asked.short_id || '\"', '\"' || code || '\"')::jsonb;
                 commit;
             end loop;
         end $$"
    ));
}

/// A look lists only so much.
async fn a_daemon_has_missed_much(sabotage: Option<&'static str>) {
    const MANY: usize = 1_100;
    let Some((cluster, relay)) = relayed(sabotage).await else { return };
    let agent = cluster.agent(0, "research");
    assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
    cluster.card().await;
    relay.cut();
    meanwhile(|| others_store(&cluster, MANY));
    relay.mend();
    let last = || agent.call("GET", &format!("/asks/other{MANY}"), "");
    let (status, found) = meanwhile(|| within(SOON, "an answer", || Some(last()).filter(|(status, _)| *status != 503)));
    assert_eq!(status, 202, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_has_missed_much_knows_all_of_it_before_it_says_what_is_not_there() {
    a_daemon_has_missed_much(None).await;
}

/// It reads only some of it before it gives way to whoever waits.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_more_than_can_be_read_at_once_is_not_told_that_there_is_nothing() {
    a_daemon_has_missed_much(Some("brief")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_look_at_much_that_was_missed_is_noticed() {
    if crate::on_postgres::Database::found().is_some() {
        assert!(is_noticed(a_daemon_has_missed_much(Some("onelook"))), "onelook: nobody noticed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_begin_at_any_time_are_noticed() {
    if crate::on_postgres::Database::found().is_some() {
        assert!(
            is_noticed(a_card_of_many_messages_is_being_posted(Some("anytime"))),
            "anytime: nobody noticed in Slack"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_leave_although_that_cannot_be_noted_are_noticed() {
    if crate::on_postgres::Database::found().is_some() {
        assert!(
            is_noticed(a_question_of_three_messages_is_being_sent(Some("anytime"))),
            "anytime: nobody noticed on WhatsApp"
        );
    }
}
