//! What a look lists of what other daemons have changed.

use super::edges::two;
use super::*;

/// A transaction that another program begins on the server, and what is done in it.
fn transaction(server: &Server) -> impl FnMut(&str) + '_ {
    let mut connection = server.runtime.block_on(PgConnection::connect(&server.url)).unwrap();
    let mut run = move |text: &str| {
        server.runtime.block_on(sqlx::raw_sql(text).execute(&mut connection)).unwrap();
    };
    run("begin; select pg_current_xact_id()");
    run
}

/// Else all that was changed since it began would be listed, and looks would soon take too long.
#[test]
fn a_look_lists_a_row_once_however_long_another_transaction_runs() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    let mut long = transaction(&server);
    let first = Arc::new(ask(1, "g"));
    of_one.save(&first, &Basis::New(0), Along::default(), Save::Now).unwrap();
    let changed = || of_other.look().unwrap().changed.len();
    assert_eq!(changed(), 1);
    // What is listed now would be read, as it is not what is at hand.
    server.sql("update askd.asks set operations = array_prepend(gen_random_uuid(), operations)");
    assert_eq!(changed(), 0);
    long("update askd.asks set changed = pg_current_xact_id(); commit");
    assert_eq!((changed(), changed()), (1, 0));
}

/// Transactions have their numbers when they begin to write, and end in any order.
#[test]
fn a_look_sees_what_a_transaction_has_changed_however_late_it_ends() {
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    // These have one code.
    server.sql("drop index askd.asks_short");
    let [first, second] = [1, 2].map(|number| Arc::new(ask(number, "g")));
    for (given, ask) in [(0, &first), (1, &second)] {
        of_one.save(ask, &Basis::New(given), Along::default(), Save::Now).unwrap();
    }
    let changed = || of_other.look().unwrap().changed.into_iter().map(|stored| stored.ask.id).collect::<Vec<_>>();
    assert_eq!(changed().len(), 2);
    let mut late = server.runtime.block_on(PgConnection::connect(&server.url)).unwrap();
    let mut late = |text: String| server.runtime.block_on(sqlx::raw_sql(&text).execute(&mut late)).unwrap();
    late(format!(
        "begin; update askd.asks set revision = revision + 1, changed = pg_current_xact_id(),
             operations = array_prepend(gen_random_uuid(), operations) where id = '{}'",
        uuid(first.id)
    ));
    of_one.save(&step(&second, Event::Viewed), &Basis::Ask(second.clone()), Along::default(), Save::Now).unwrap();
    assert_eq!(changed(), [second.id]);
    assert_eq!(changed(), []);
    late("commit".to_owned());
    assert_eq!(changed(), [first.id]);
    assert_eq!(changed(), []);
}

/// A daemon may have been cut off for long. Whoever judges a request by how many asks its group was given has to know all of them.
#[test]
fn what_is_too_much_for_one_look_is_left_for_the_next_one() {
    const MANY: i64 = 1_020;
    let Some(server) = Server::found() else { return };
    let [one, other] = two(&server);
    let [of_one, of_other] = [&one, &other].map(|opened| opened.store.shared().unwrap());
    // These have one code.
    server.sql("drop index askd.asks_short");
    server.sql(
        "do $$ begin
             for number in 1..1010 loop insert into askd.documents (name, bytes) values (number, ''); commit; end loop;
         end $$",
    );
    let mut late = transaction(&server);
    for number in 0..MANY {
        let ask = Arc::new(ask(u128::try_from(number).unwrap() + 1, "g"));
        of_one.save(&ask, &Basis::New(number), Along::default(), Save::Soon).unwrap();
    }
    assert_eq!(of_one.to_take_up(&["g".parse().unwrap()]).unwrap().len(), 1_020, "other lists are read to their ends");
    let look = || {
        let news = of_other.look().unwrap();
        (news.documents.len(), news.changed.len(), news.is_all, news.given)
    };
    let given = |count| vec![("g".parse().unwrap(), count)];
    // Two lists are full: the one that ends earlier ends the look.
    assert_eq!(look(), (1_000, 0, false, Vec::new()));
    assert_eq!(look(), (10, 1_000, false, Vec::new()));
    // That one has an earlier number than what is left.
    late(
        "update askd.asks set changed = pg_current_xact_id(), operations = array_prepend(gen_random_uuid(), operations)
              where id = (select id from askd.asks order by id limit 1);
          commit",
    );
    let mut late = transaction(&server);
    late("update askd.counts set changed = pg_current_xact_id(), accepted = accepted + 1");
    assert_eq!(look(), (0, 21, true, given(MANY)));
    assert_eq!(look(), (0, 0, true, Vec::new()));
    late("commit");
    assert_eq!(look(), (0, 0, true, given(MANY + 1)));
    // There is no cutting in the middle of what one transaction has changed.
    server.sql("update askd.asks set changed = pg_current_xact_id(), operations = array_prepend(gen_random_uuid(), operations)");
    assert_eq!(look(), (0, 1_020, false, Vec::new()));
    assert_eq!(look(), (0, 0, true, Vec::new()));
    // All that is open may be older than it was seen, however long ago it was changed.
    other.store.probe().unwrap();
    server.crash();
    one.store.flush().unwrap();
    assert_eq!(look(), (0, 1_000, false, Vec::new()));
    assert_eq!(look(), (0, 20, true, Vec::new()));
    assert_eq!(look(), (0, 0, true, Vec::new()));
}

#[test]
fn all_that_may_be_asked_again_is_read_however_much_it_is() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    server.sql(
        "insert into askd.allowed (group_name, question, at, by)
             select 'g' || n % 3, encode(sha256(n::text::bytea), 'hex'), n, '{\"channel\": \"web\", \"id\": \"operator\", \"name\": null}' from generate_series(1, 1100) as n",
    );
    let allowed = opened.store.allowed().unwrap();
    assert_eq!(allowed.iter().map(|(_, of_group)| of_group.len()).collect::<Vec<_>>(), [366, 367, 367]);
}

#[test]
fn what_is_over_is_taken_up_only_if_it_may_have_a_second_card() {
    let Some(server) = Server::found() else { return };
    let opened = server.opened("here");
    // These have one code.
    server.sql("drop index askd.asks_short");
    let [once, twice] = [1, 2].map(|number| settled(ask(number, "g")));
    for over in [&once, &twice] {
        opened.store.save(&Arc::new(over.clone()), Save::Now).unwrap();
        opened.store.retire(&over.group, over.id).unwrap();
    }
    let open = ask(3, "g");
    opened.store.save(&Arc::new(open.clone()), Save::Now).unwrap();
    server.sql(&format!(
        "update askd.asks set record = jsonb_set(record, '{{widgets,0,attempt}}', '2') where id = '{}'",
        uuid(twice.id)
    ));
    let found = opened.store.shared().unwrap().to_take_up(std::slice::from_ref(&open.group)).unwrap();
    assert_eq!(found, [twice.id, open.id]);
}
