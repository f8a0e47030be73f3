//! MCP by URL where several daemons share the records: each message of a client may come to another one of them.

use crate::harness::{SOON, within};
use crate::mcp_client::go;
use crate::mcp_url::Client;
use crate::on_postgres::Database;
use crate::several_daemons::{Cluster, DEATH, is_noticed, meanwhile};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

impl Cluster {
    /// One client, whose messages come to each of the daemons.
    fn client<const N: usize>(&self) -> [Client; N] {
        let client = Client::introduced(self.agent(0, "inbox"));
        std::array::from_fn(|number| client.at(self.hosts[number].agents))
    }
}

/// A yes that a client has read is no answer to what it asks next, whichever daemon it asks.
async fn what_was_read_is_no_answer_to_the_next_question(sabotage: Option<(&str, bool)>) {
    let Some(cluster) = Cluster::with(3, "", sabotage).await else {
        assert!(sabotage.is_none(), "nobody to notice it without a server");
        return;
    };
    meanwhile(|| {
        let [client, other, third] = cluster.client();
        let mut first = client.begin(1, "ask_user", &go(60_000));
        first.comment();
        let id = cluster.hosts[0].says("yes");
        first.told().assert_answered(&json!({"Go?": "yes"}));
        other.call(2, "ask_user", &go(0)).assert_pending();
        let taken = || (client.agent.call("GET", &format!("/asks/{id}"), "").0 == 410).then_some(());
        within(Duration::from_secs(5), "the first daemon to know that it was taken", taken);
        cluster.hosts[1].says("no");
        other.call(3, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "no"}));
        // A message to the one shows it to the other one, however soon that is asked.
        client.tools();
        third.call(4, "ask_user", &go(0)).assert_pending();
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_on_at_another_daemon_has_read_what_it_was_sent() {
    what_was_read_is_no_answer_to_the_next_question(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_does_not_hear_of_other_daemons_calls_is_noticed() {
    if Database::found().is_none() {
        return;
    }
    let noticed = is_noticed(what_was_read_is_no_answer_to_the_next_question(Some(("deafdaemons", false))));
    assert!(noticed, "deafdaemons: nobody noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_has_not_read_or_has_cancelled_is_owed_to_its_next_call_at_any_daemon() {
    let Some(cluster) = Cluster::of(2).await else { return };
    meanwhile(|| {
        let [client, other] = cluster.client();
        let mut cut = client.begin(1, "ask_user", &go(60_000));
        cut.comment();
        cluster.hosts[0].says("yes");
        // Unread bytes make the kernel reset the connection.
        cut.leaves_unread();
        drop(cut);
        thread::sleep(Duration::from_secs(1));
        other.call(2, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
        client.tools();
        // Cancelled after its result was written.
        let mut written = client.begin(3, "ask_user", &go(60_000));
        written.comment();
        cluster.hosts[0].says("no");
        assert!(written.message().is_some());
        assert_eq!(other.tell("notifications/cancelled", &json!({"requestId": 3})).status, 202);
        // Nor does the next message to the daemon that has sent it show that it was read.
        client.tools();
        other.call(4, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "no"}));
        client.tools();
        // Before.
        let mut waiting = client.begin(5, "ask_user", &go(60_000));
        waiting.comment();
        assert_eq!(other.tell("notifications/cancelled", &json!({"requestId": 5})).status, 202);
        cluster.hosts[1].says("yes");
        let results = std::iter::from_fn(|| waiting.message()).filter(|message| message["id"].is_u64());
        assert_eq!(results.count(), 0, "it ends without a result");
        other.call(6, "ask_user", &go(60_000)).assert_answered(&json!({"Go?": "yes"}));
    });
}

/// Its client has read an answer, and its daemon has died since. The same call is a new question, a minute later, too.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_was_read_before_its_daemon_died_is_no_answer_later() {
    let Some(mut cluster) = Cluster::of(2).await else { return };
    let [client, other] = cluster.client();
    meanwhile(|| {
        let mut first = client.begin(1, "ask_user", &go(60_000));
        first.comment();
        cluster.hosts[0].says("yes");
        first.told().assert_answered(&json!({"Go?": "yes"}));
    });
    cluster.hosts[0].world.kill();
    for row in
        ["askd.calls set at = at", "askd.holds set until = until", "askd.waits set until = until + interval '1 hour'"]
    {
        cluster.database.query(&format!("update {row} - interval '2 minutes' returning 'moved'"));
    }
    meanwhile(|| {
        cluster.leads_within(1, DEATH);
        other.call(2, "ask_user", &go(0)).assert_pending();
    });
}

/// Without a session, and of two clients that use the same numbers.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_counts_as_taken_ten_seconds_later_whoever_asked() {
    let Some(cluster) = Cluster::of(2).await else { return };
    meanwhile(|| {
        let agent = cluster.agent(0, "inbox");
        let modern = Client::modern(agent.clone());
        let named = modern.with("askd-session: run-7");
        let answered = |client: &Client| {
            let mut call = client.begin(1, "ask_user", &go(60_000));
            call.comment();
            let id = cluster.hosts[0].says("yes");
            call.told().assert_answered(&json!({"Go?": "yes"}));
            id
        };
        // The second client of the session has not read what the first one was sent, and asks before that counts as taken.
        let ids = [answered(&modern), answered(&named), answered(&named.at(cluster.hosts[1].agents))];
        let taken = |id: &String| agent.call("GET", &format!("/asks/{id}"), "").0 == 410;
        within(Duration::from_secs(20), "all to be taken", || ids.iter().all(taken).then_some(()));
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_is_ended_at_one_daemon_is_over_at_all() {
    let Some(cluster) = Cluster::of(2).await else { return };
    meanwhile(|| {
        let [client, other] = cluster.client();
        let pending = client.call(1, "ask_user", &go(0));
        pending.assert_pending();
        let id = pending.question_id();
        let waits = || cluster.database.query("select request_id from askd.waits");
        within(SOON, "the daemons to know that it waits", || waits().contains(&id).then_some(()));
        cluster.hosts[0].says("yes");
        other.end();
        assert_eq!(waits(), [""; 0], "nobody waits for it");
        assert_eq!(client.send(2, "tools/list", json!({})).status, 404);
        // Whoever is told of another call finds out which sessions are over. Else that is found out every 20 s.
        let next = cluster.agent(0, "inbox");
        assert_eq!(next.ask("r1", "And this?").0, 201);
        let briefed = || -> Option<Value> {
            let briefings = next.call("GET", "/briefings", "").1["briefings"].as_array().cloned()?;
            briefings.into_iter().find(|briefing| briefing["result"]["request_id"] == id)
        };
        within(Duration::from_secs(40), "the briefing, long before 15 minutes", briefed);
    });
}
