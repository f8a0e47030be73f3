//! Tables that were dumped on one server and restored on another one.

use super::edges::two;
use super::settling::{keep, kept, numbers, settling};
use super::*;
use askd_core::{Digest, Person, Via};

/// The transactions of the server from which they were dumped have numbers that this one has not reached.
#[test]
fn rows_that_were_restored_from_another_server_are_no_news_until_they_change() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    let done = kept(&*one.store, conformance::done(1, keep(&server, 30)));
    let open = Arc::new(ask(2, "g"));
    of_one.save(&open, &Basis::New(0), Along::default(), Save::Now).unwrap();
    one.documents.store("web_token", b"secret").unwrap();
    let allowed =
        Allowed { question: Digest::from_bytes([1; 32]), at: Time::from_millis(7), by: Person::operator(Via::Cli) };
    one.store.allow(&open.group, &[allowed], Time::from_millis(0)).unwrap();
    of_one.pin(&"pinned".parse().unwrap(), "one").unwrap();
    server.sql("insert into askd.gone (id, record) values (gen_random_uuid(), '{}')");
    for table in ["asks", "documents", "allowed", "pins", "gone", "counts"] {
        server.sql(&format!("update askd.{table} set changed = '900000000000'"));
    }
    let news = of_other.look().unwrap();
    let changed: Vec<AskId> = news.changed.iter().map(|stored| stored.ask.id).collect();
    assert_eq!((changed, news.documents, news.allowed.len()), (vec![], vec![], 0));
    assert_eq!(news.given, [(open.group.clone(), 1)], "the first look of all reads every number");
    let (database, mut settling) = settling(&server);
    let passed = database.wait(async move {
        settling.pass().await?;
        settling.pass().await
    });
    passed.unwrap();
    assert_eq!((numbers(&server, "settled"), numbers(&server, "asks")), (vec!["1".to_owned()], vec!["2".to_owned()]));
    assert_eq!(other.store.load(&done.group, done.id).unwrap(), Some(done));
    let answered = Arc::new(settled(Ask::clone(&open)));
    of_one.save(&answered, &Basis::Ask(open), Along::default(), Save::Now).unwrap();
    let changed: Vec<Ask> = of_other.look().unwrap().changed.into_iter().map(|stored| stored.ask).collect();
    assert_eq!(changed, [Ask::clone(&answered)]);
}
