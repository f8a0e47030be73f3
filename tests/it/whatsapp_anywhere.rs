//! Several daemons with one WhatsApp number: Meta calls any of them, and that one reads what a person wrote.

use crate::harness::{SOON, within};
use crate::on_postgres::Database;
use crate::on_whatsapp::{ADA, happens, taken};
use crate::outages::all_are_told_in_time;
use crate::remote::Agent;
use crate::said::FROM_BEFORE;
use crate::several_daemons::{Cluster, is_noticed, meanwhile};
use askd_sim::whatsapp::{Fault, Ladder, Message as Bubble, Stage, Whatsapp};
use serde_json::{Value, json};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// How often two daemons are told the same at once. Meta lets few messages through to one person.
const ROUNDS: usize = 3;

/// A webhook of this number with this in it.
fn webhook(phone: &Whatsapp, what: Value) -> String {
    let mut value = what;
    value["messaging_product"] = json!("whatsapp");
    value["metadata"] = json!({"phone_number_id": phone.config().phone_number_id});
    let body = json!({"object": "whatsapp_business_account",
        "entry": [{"id": "1", "changes": [{"field": "messages", "value": value}]}]});
    body.to_string()
}

/// A message of Ada's that Meta received at that second.
fn says(at: i64, id: &str, text: &str) -> Value {
    json!({"from": ADA, "id": id, "timestamp": at.to_string(), "type": "text", "text": {"body": text}})
}

impl Cluster {
    /// Meta calls this daemon. What that one answered.
    fn tells(&self, number: usize, body: &str) -> u16 {
        let signed = self.phone.sign(body.as_bytes());
        let headers = format!("content-type: application/json\r\nx-hub-signature-256: {signed}\r\n");
        self.hosts[number].world.raw("POST", "/whatsapp/webhook", &headers, body).0
    }

    /// Ada has this on her phone, and the daemons know when it was sent.
    async fn shown(&self, says: &str) -> Bubble {
        let shown = |message: &Bubble| message.wa_id == ADA && message.stage.shown() && message.text.contains(says);
        self.phone.wait_for_message(shown, SOON).await.unwrap_or_else(|| panic!("no {says:?}"))
    }

    /// The status that says when this question was sent is stored.
    fn knows_when_it_left(&self, says: &str) {
        let stored = format!(
            "select count(*) from askd.asks where group_name = 'phone' and record::text like '%{says}%' \
             and record #>> '{{widgets,0,sendings,0,sent}}' is not null"
        );
        let known = || (self.database.query(&stored) == ["1"]).then_some(());
        meanwhile(|| within(SOON, "the status to be stored", known));
    }
}

/// That story fails, where there is a server.
fn notices(broken: impl Future<Output = ()> + Send + 'static) {
    assert!(Database::found().is_none() || is_noticed(broken), "nobody noticed");
}

fn asks(agent: &Agent, request: &str, text: &str) {
    assert_eq!(meanwhile(|| agent.ask(request, text)).0, 201);
}

/// Meta repeats all that it is told to send again.
async fn webhooks_wait_for_a_hanging_database(sabotage: Option<(&str, bool)>) {
    let Some(cluster) = Cluster::with(1, "", sabotage).await else { return };
    cluster.phone.handshake().await.unwrap();
    let told = |number: usize| match number % 2 {
        0 => webhook(
            &cluster.phone,
            json!({"messages": [
                {"from": format!("1555{number}"), "id": format!("wamid.{number}"), "timestamp": "1790000000", "type": "text", "text": {"body": "1"}},
            ]}),
        ),
        _ => webhook(
            &cluster.phone,
            json!({"statuses": [
                {"id": format!("wamid.{number}"), "status": "read", "timestamp": "1790000000", "recipient_id": format!("1555{number}")},
            ]}),
        ),
    };
    meanwhile(|| {
        assert_eq!(cluster.tells(0, &told(0)), 200, "it has looked at all that it shares");
        all_are_told_in_time(&cluster.database, 30, &|number| cluster.tells(0, &told(number + 1)));
        within(SOON, "the daemon to go on", || (cluster.tells(0, &told(1)) == 200).then_some(()));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_hangs_all_webhooks_are_answered_in_time() {
    webhooks_wait_for_a_hanging_database(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhooks_that_wait_for_a_hanging_database_in_turn_are_noticed() {
    notices(webhooks_wait_for_a_hanging_database(Some(("inturn", true))));
}

/// The one that leads is gone, and it takes 15 seconds at least until another one leads.
async fn an_answer_counts_while_nobody_leads(sabotage: Option<(&str, bool)>) {
    let Some(mut cluster) = Cluster::with(2, "", sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    cluster.people_reach(1).await;
    cluster.phone.handshake().await.unwrap();
    cluster.phone.person_says(ADA, "hello");
    let agent = cluster.agent(1, "phone");
    asks(&agent, "r1", "Deploy?");
    let asked = cluster.shown("Deploy?").await;
    cluster.knows_when_it_left("Deploy?");
    cluster.hosts[0].world.kill();
    let killed = Instant::now();
    cluster.phone.person_taps(&asked, "yes").expect("a button");
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
    let took = killed.elapsed();
    assert!(took < Duration::from_secs(8), "the answer waited {took:?} for a leader");
    // What follows is done by the next leader, which also tells what people have to be told.
    cluster.phone.person_says(ADA, "no");
    cluster.leads_within(1, Duration::from_secs(25));
    let closed = |message: &Bubble| message.text.contains("yes") && message.at > asked.at;
    cluster.phone.wait_for_message(closed, Duration::from_secs(30)).await.expect("how it ended");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_read_by_the_daemon_that_gets_it_while_nobody_leads() {
    an_answer_counts_while_nobody_leads(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_messages_to_the_leader_is_noticed() {
    notices(an_answer_counts_while_nobody_leads(Some(("leaderreads", false))));
}

/// Meta repeats what it has no answer to yet, and the proxy has another daemon take it. What a person is told comes once.
async fn a_message_that_two_daemons_get_at_once_is_dealt_with_once(sabotage: Option<(&str, bool)>) {
    let Some(cluster) = Cluster::with(2, "", sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    cluster.phone.handshake().await.unwrap();
    let hello = cluster.phone.person_says(ADA, "hello");
    taken(&cluster.phone, &hello).await;
    let agent = cluster.agent(1, "phone");
    for (request, text) in [("r1", "Deploy?"), ("r2", "And this?")] {
        asks(&agent, request, text);
        cluster.shown(text).await;
    }
    cluster.knows_when_it_left("And this?");
    let at = cluster.shown("And this?").await.reached(Stage::Sent).unwrap() / 1000;
    let replies = || {
        let of_ada = cluster.phone.messages_to(ADA);
        of_ada.iter().filter(|message| message.text.starts_with("Which")).count()
    };
    // They have to meet.
    for round in 1..=ROUNDS {
        let body = webhook(&cluster.phone, json!({"messages": [says(at + 1, &format!("wamid.{round}"), "yes")]}));
        let start = Barrier::new(2);
        let told = meanwhile(|| {
            thread::scope(|scope| {
                let tell = |number| {
                    let (cluster, body, start) = (&cluster, &body, &start);
                    scope.spawn(move || {
                        start.wait();
                        cluster.tells(number, body)
                    })
                };
                let both = [0, 1].map(tell);
                both.map(|one| one.join().unwrap())
            })
        });
        assert!(told.contains(&200), "{told:?}");
        happens("a message to be asked back", || replies() >= round).await;
        // Nobody is told the same again while it is on its way.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        assert_eq!(replies(), round, "a message was dealt with twice");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_two_daemons_get_at_once_is_dealt_with_once() {
    a_message_that_two_daemons_get_at_once_is_dealt_with_once(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dealing_with_messages_of_a_person_at_two_daemons_at_once_is_noticed() {
    notices(a_message_that_two_daemons_get_at_once_is_dealt_with_once(Some(("noturn", false))));
}

/// What Ada has on her phone is what counts, and the daemon that gets her reply was not the one that sent it.
async fn a_reply_right_after_the_second_question_is_asked_back(sabotage: Option<(&str, bool)>) {
    let Some(cluster) = Cluster::with(2, "", sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    cluster.phone.handshake().await.unwrap();
    let hello = cluster.phone.person_says(ADA, "hello");
    taken(&cluster.phone, &hello).await;
    let agent = cluster.agent(0, "phone");
    for round in 0..2 {
        let (first, second) = (format!("First {round}?"), format!("Second {round}?"));
        asks(&agent, &format!("a{round}"), &first);
        cluster.shown(&first).await;
        // The other daemon has looked since.
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        asks(&agent, &format!("b{round}"), &second);
        let at = cluster.shown(&second).await.reached(Stage::Sent).unwrap() / 1000;
        cluster.knows_when_it_left(&second);
        let body = webhook(&cluster.phone, json!({"messages": [says(at + 1, &format!("wamid.{round}"), "yes")]}));
        meanwhile(|| {
            let taken = || (cluster.tells(1, &body) == 200).then_some(());
            within(SOON, "the reply to be taken", taken);
        });
        let open = meanwhile(|| cluster.hosts[1].world.open());
        let open = open.iter().filter(|ask| ask["group"] == "phone").count();
        assert_eq!(open, 2, "a reply that can mean either answered one");
        for request in [format!("a{round}"), format!("b{round}")] {
            meanwhile(|| cluster.hosts[0].answer(&request, "no"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_means_what_was_sent_by_then_whoever_sent_it() {
    a_reply_right_after_the_second_question_is_asked_back(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_a_reply_without_looking_what_others_have_sent_is_noticed() {
    notices(a_reply_right_after_the_second_question_is_asked_back(Some(("blindreads", false))));
}

/// The reply to the call is lost, and another daemon hears of the invitation.
#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_that_another_daemon_hears_of_is_not_sent_again() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    for number in [1, 0] {
        let world = &mut cluster.hosts[number].world;
        world.stop().await;
        world.set_env("ASKD__WHATSAPP__TEMPLATE", "agent_question");
        world.set_env("ASKD__WHATSAPP__TEMPLATE_LANGUAGE", "en_US");
    }
    cluster.start(0);
    cluster.start(1);
    cluster.people_reach(1).await;
    cluster.phone.handshake().await.unwrap();
    cluster.phone.fault(Fault::ResetAfter, 1);
    asks(&cluster.agent(0, "phone"), "r1", "Deploy?");
    let held = || {
        let state = "select record #>> '{widgets,0,state,name}' from askd.asks where group_name = 'phone'";
        (cluster.database.query(state) == ["held"]).then_some(())
    };
    meanwhile(|| within(SOON, "the invitation to be known", held));
    let invitations = || cluster.phone.messages_to(ADA).iter().filter(|message| message.kind == "template").count();
    assert_eq!(invitations(), 1);
    cluster.phone.person_says(ADA, "hello");
    cluster.shown("Deploy?").await;
    assert_eq!(invitations(), 1);
}

/// During an update: until a daemon of the version before is gone, the leader alone reads, and then each one.
#[tokio::test(flavor = "multi_thread")]
async fn the_leader_shares_what_it_remembers_once_no_daemon_is_there_that_would_miss_it() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    for number in [1, 0] {
        cluster.hosts[number].world.stop().await;
    }
    cluster.database.query(
        "select askd.fold_memory(); update askd.format set needs = 17; \
         insert into askd.nodes (run, node, home, version, reads, knows, heard) \
         values (gen_random_uuid(), 'earlier', gen_random_uuid(), '0', (select records from askd.format), 17, now() + interval '1 hour')",
    );
    cluster.start(0);
    cluster.start(1);
    cluster.people_reach(1).await;
    let hello = cluster.phone.person_says(ADA, "hello");
    taken(&cluster.phone, &hello).await;
    let agent = cluster.agent(0, "phone");
    asks(&agent, "r1", "Deploy?");
    let asked = cluster.shown("Deploy?").await;
    assert_eq!(cluster.database.query("select shares_memory from askd.format"), ["f"]);
    cluster.phone.person_taps(&asked, "yes").expect("a button");
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
    cluster.database.query("delete from askd.nodes where node = 'earlier'");
    let shares = || (cluster.database.query("select shares_memory from askd.format") == ["t"]).then_some(());
    meanwhile(|| within(SOON, "the leader to share what it remembers", shares));
    // What it knew of her is known now, and what she writes is read where it comes.
    asks(&agent, "r2", "And this?");
    let asked = cluster.shown("And this?").await;
    cluster.hosts[0].world.kill();
    cluster.phone.person_taps(&asked, "no").expect("a button");
    let agent = Agent { at: cluster.hosts[1].agents, ..agent };
    let told = Instant::now();
    assert_eq!(meanwhile(|| agent.outcome("r2"))["result"]["answers"], json!({"And this?": "no"}));
    assert!(told.elapsed() < Duration::from_secs(8), "it waited for a leader");
}

/// Fifty people answer at once, before Meta has told when the question left. The status comes to another daemon, with a message of one who
/// waits.
#[tokio::test(flavor = "multi_thread")]
async fn the_status_that_replies_wait_for_is_heard_of_however_many_wait_elsewhere() {
    let people: Vec<String> = (0..60).map(|number| format!("155501008{number:02}")).collect();
    let all = serde_json::to_string(&people).unwrap();
    let group = format!(
        "[groups.many]\nroutes = [{{ channel = \"whatsapp\", chat = \"{}\", responders = {all} }}]\n",
        people[0]
    );
    let Some(cluster) = Cluster::with(2, &group, None).await else { return };
    cluster.people_reach(1).await;
    cluster.phone.handshake().await.unwrap();
    for person in &people {
        let hello = cluster.phone.person_says(person, "hello");
        taken(&cluster.phone, &hello).await;
    }
    cluster.phone.ladder(Ladder { told: false, ..Ladder::default() });
    let agent = cluster.agent(0, "many");
    asks(&agent, "r1", "Deploy?");
    let there = |message: &Bubble| message.stage.shown() && message.text.contains("Deploy?");
    let asked = cluster.phone.wait_for_message(there, SOON).await.expect("the question");
    let sent = asked.reached(Stage::Sent).unwrap() / 1000;
    let says = |who: &str, id: String| json!({"from": who, "id": id, "timestamp": (sent + 1).to_string(), "type": "text", "text": {"body": "no"}});
    let status = json!({"id": asked.id, "status": "sent", "timestamp": sent.to_string(), "recipient_id": people[0],
        "biz_opaque_callback_data": asked.opaque});
    let both = json!({"messages": [says(&people[0], "wamid.again".to_owned())], "statuses": [status]});
    let both = webhook(&cluster.phone, both);
    let answers = meanwhile(|| {
        thread::scope(|scope| {
            let waits = people.iter().enumerate().map(|(number, person)| {
                let body = webhook(&cluster.phone, json!({"messages": [says(person, format!("wamid.no{number}"))]}));
                let cluster = &cluster;
                scope.spawn(move || cluster.tells(1, &body))
            });
            let waits = waits.collect::<Vec<_>>();
            let answers = waits.into_iter().map(|wait| wait.join().unwrap()).collect::<Vec<_>>();
            assert_eq!(cluster.tells(0, &both), 200);
            answers
        })
    });
    assert!(answers.iter().all(|status| *status == 503), "a reply did not wait: {answers:?}");
    assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "no"}));
    let told = |person: &String| cluster.phone.messages_to(person).iter().any(|message| message.text == FROM_BEFORE);
    assert!(!people.iter().any(told), "an answer was taken for one from before");
}

/// Another daemon was told, and the leader may not have heard of it yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_question_right_after_a_persons_first_message_is_asked_whichever_daemon_took_it() {
    let people: Vec<String> = (0..5).map(|number| format!("1555010077{number}")).collect();
    let groups: Vec<String> = (0..5)
        .map(|number| {
            format!("[groups.p{number}]\nroutes = [{{ channel = \"whatsapp\", chat = \"{}\" }}]\n", people[number])
        })
        .collect();
    let Some(cluster) = Cluster::with(2, &groups.concat(), None).await else { return };
    cluster.people_reach(1).await;
    cluster.phone.handshake().await.unwrap();
    for (number, person) in people.iter().enumerate() {
        let agent = cluster.agent(0, &format!("p{number}"));
        let hello = cluster.phone.person_says(person, "hello");
        taken(&cluster.phone, &hello).await;
        assert_eq!(meanwhile(|| agent.ask("r1", "Deploy?")).0, 201);
        let asked = cluster.phone.wait_for_message(|message| message.wa_id == *person, SOON);
        let asked = asked.await.expect("the question");
        assert!(asked.text.contains("Deploy?"), "{asked:?}");
        cluster.phone.person_taps(&asked, "yes").expect("a button");
        assert_eq!(meanwhile(|| agent.outcome("r1"))["result"]["answers"], json!({"Deploy?": "yes"}));
    }
}
