//! Copies of the records in the tables to files, and back.

use super::*;
use crate::host::store::copying::{Copied, CopyError, abort, copy};
use askd_core::{Digest, Person, Via};
use std::time::Duration;

/// The records in the database, as `askd store copy` on the host `here` opens them, and the files to which they are copied.
fn to_files(server: &Server) -> (Opened, Opened) {
    let state = server.state("here");
    let files = Opened::files(&state, false).unwrap();
    let beside = Waiting::beside(&server.url, "here", &state, false, "test-postgres").unwrap();
    (server.runtime.block_on(beside.alone()).unwrap(), files)
}

fn refused(copied: Result<Copied, CopyError>) -> String {
    copied.unwrap_err().to_string()
}

#[test]
fn a_message_that_was_acknowledged_and_not_read_keeps_the_records_where_they_are() {
    let Some(server) = Server::found() else { return };
    let (tables, files) = to_files(&server);
    tables.store.save(&Arc::new(ask(1, "g")), Save::Now).unwrap();
    server.sql("insert into askd.webhooks (channel, body) values ('whatsapp', 'yes')");
    let told = refused(copy(&tables, &files, "here"));
    assert_eq!(
        told,
        "messages that were acknowledged wait to be read in the database: start askd, stop it, and run this again"
    );
    assert!(tables.check().is_ok() && matches!(abort(&tables, &files), Err(CopyError::NotBegun)), "nothing was marked");
    server.sql("delete from askd.webhooks");
    assert_eq!(copy(&tables, &files, "here").unwrap().open, 1);
}

/// Whatever the tables held before their records were moved away.
#[test]
fn records_that_come_back_to_the_database_find_it_empty() {
    let Some(server) = Server::found() else { return };
    let (tables, files) = to_files(&server);
    let shared = tables.store.shared().unwrap();
    let (first, second) = (Arc::new(ask(1, "g")), Arc::new(ask(2, "g")));
    shared.pin(&first.group, "here").unwrap();
    shared.save(&first, &Basis::New(0), Along::default(), Save::Now).unwrap();
    copy(&tables, &files, "here").unwrap();
    server.sql(
        "insert into askd.webhooks (channel, body) values ('whatsapp', 'yes');
         insert into askd.owed (ask, effects) values (gen_random_uuid(), '[]');
         insert into askd.gone (id, record, forget_at) values (gen_random_uuid(), 'null', now());
         insert into askd.gone (id, record) select id, record from askd.asks;
         insert into askd.waits values (gen_random_uuid(), 'g', 'r1', now() + interval '1 hour');
         insert into askd.pins (group_name, node) values ('elsewhere', 'there')",
    );
    files.store.save(&second, Save::Now).unwrap();
    files.store.flush().unwrap();
    assert_eq!(copy(&files, &tables, "here").unwrap().open, 2);
    let left = "select format('%s %s %s %s %s', (select count(*) from askd.webhooks), (select count(*) from askd.owed),
                    (select count(*) from askd.gone), (select count(*) from askd.waits), (select count(*) from askd.counts))";
    assert_eq!(server.sql(left), ["0 0 0 0 0"]);
    assert_eq!(server.sql("select group_name || ' ' || node from askd.pins"), ["g here"]);
    assert!(shared.look().unwrap().gone.is_empty());
}

/// A daemon that was silent for so long that a copy could begin must not go on beside it.
#[test]
fn whoever_was_silent_when_a_copy_began_saves_nothing_more() {
    let Some(server) = Server::found() else { return };
    let leader = server.opened("leader");
    let (other, _waiting) = server.joins("other");
    leader.store.close().unwrap();
    drop(leader);
    server.sql("update askd.nodes set heard = now() - interval '1 minute'");
    let (_tables, _files) = to_files(&server);
    let saved = other.store.shared().unwrap().save(&Arc::new(ask(2, "g")), &Basis::New(0), Along::default(), Save::Now);
    assert!(saved.is_err());
    assert!(other.store.overtaken().is_cancelled());
}

/// Each engine lists groups in an order of its own.
#[test]
fn what_may_be_asked_again_in_several_groups_moves_both_ways() {
    let Some(server) = Server::found() else { return };
    let (tables, files) = to_files(&server);
    let allowed =
        Allowed { question: Digest::from_bytes([1; 32]), at: Time::from_millis(7), by: Person::operator(Via::Cli) };
    for group in ["gamma", "alpha", "Beta", "delta"] {
        tables.store.allow(&group.parse().unwrap(), std::slice::from_ref(&allowed), Time::from_millis(0)).unwrap();
    }
    copy(&tables, &files, "here").unwrap();
    copy(&files, &tables, "here").unwrap();
    // What is no longer allowed leaves nothing in the files that would count as a difference.
    tables.store.allow(&"delta".parse().unwrap(), &[], Time::MAX).unwrap();
    copy(&tables, &files, "here").unwrap();
}

/// A record's text names its group, too.
fn in_group(number: u128, group: &str) -> Arc<Ask> {
    Arc::new(ask(number, group))
}

#[test]
fn records_go_to_files_once_nothing_is_under_way_in_the_folders_of_other_hosts() {
    let Some(server) = Server::found() else { return };
    let (tables, files) = to_files(&server);
    let shared = tables.store.shared().unwrap();
    let asks = [Arc::new(settled(ask(1, "research"))), in_group(2, "default@there"), in_group(3, "remote")];
    for ask in &asks {
        tables.store.save(ask, Save::Now).unwrap();
    }
    // Its response was published, and may lie there for long.
    tables.store.retire(&asks[0].group, asks[0].id).unwrap();
    shared.pin(&asks[0].group, "there").unwrap();
    shared.pin(&asks[1].group, "there").unwrap();
    server.sql("update askd.pins set strange = null");
    server.sql("insert into askd.hosts (node, heard) values ('here', now()), ('there', now()) on conflict do nothing");
    for group in ["default@there", "research"] {
        let told = refused(copy(&tables, &files, "here"));
        assert_eq!(
            told,
            format!(
                "the folder of {group} is on there, and not everything in it is over: run `askd group move {group} --to \
                 here`, start askd on here, stop it, and run this again"
            )
        );
        assert!(tables.check().is_ok(), "nothing was marked");
        let moved = server.runtime.block_on(move_group(&server.url, &group.parse().unwrap(), "here")).unwrap();
        assert!(matches!(moved, Moved::From(Some(_))));
        shared.look().unwrap();
        assert_eq!(
            refused(copy(&tables, &files, "here")),
            format!(
                "askd has not looked into the folder of {group} yet: start it on here, stop it, and run this again"
            )
        );
        shared.pinned(&group.parse().unwrap()).unwrap();
        server.sql("update askd.pins set strange = null, changed = pg_current_xact_id()");
        shared.look().unwrap();
    }
    let copied = copy(&tables, &files, "here").unwrap();
    assert_eq!((copied.open, copied.settled), (2, 1));
}

/// The tokens of agents, of which this group has one.
fn token(group: &str) -> String {
    format!(r#"{{"v":1,"tokens":[{{"id":"i","group":"{group}","hash":"h","made":7}}]}}"#)
}

/// In files no name says which host serves a folder, and its agent asks as the group of that name.
#[test]
fn the_group_of_this_hosts_own_folder_is_called_like_the_folder_in_files() {
    let Some(server) = Server::found() else { return };
    let (tables, files) = to_files(&server);
    let shared = tables.store.shared().unwrap();
    let (open, done) = (in_group(1, "default@here"), Arc::new(settled(ask(2, "default@here"))));
    let others = conformance::done(3, Duration::from_secs(60)).called("default@there".parse().unwrap());
    let others = Arc::new(others);
    for ask in [&open, &done, &others] {
        tables.store.save(ask, Save::Now).unwrap();
        shared.pin(&ask.group, ask.group.as_str().split_once('@').unwrap().1).unwrap();
    }
    for ask in [&done, &others] {
        tables.store.retire(&ask.group, ask.id).unwrap();
    }
    server.sql("update askd.pins set strange = null, changed = pg_current_xact_id()");
    shared.look().unwrap();
    let allowed =
        Allowed { question: Digest::from_bytes([1; 32]), at: Time::from_millis(7), by: Person::operator(Via::Cli) };
    tables.store.allow(&open.group, &[allowed], Time::from_millis(0)).unwrap();
    tables.documents.store("agent_tokens.json", token("default@here").as_bytes()).unwrap();
    // Questions of two groups would come into one.
    let in_the_way = in_group(4, "default");
    tables.store.save(&in_the_way, Save::Now).unwrap();
    assert_eq!(
        refused(copy(&tables, &files, "here")),
        "default@here would be called default in files, and there are questions of default already: once those of \
         default@here are closed and their answers taken, run this again"
    );
    assert!(tables.check().is_ok(), "nothing was marked");
    tables.store.forget(&in_the_way.group, in_the_way.id).unwrap();
    let copied = copy(&tables, &files, "here").unwrap();
    assert_eq!((copied.open, copied.settled, copied.documents), (1, 2, 1));
    let groups: Vec<(u128, String)> =
        scan(&*files.store).unwrap().0.iter().map(|it| (it.ask.id.to_bits(), it.ask.group.to_string())).collect();
    assert_eq!(groups.iter().filter(|(id, group)| *id < 3 && group == "default").count(), 2, "{groups:?}");
    assert!(groups.contains(&(3, "default@there".to_owned())), "{groups:?}");
    assert_eq!(files.store.allowed().unwrap()[0].0.as_str(), "default");
    let kept = files.documents.read("agent_tokens.json").unwrap().unwrap();
    let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).unwrap();
    assert_eq!(read(&kept), read(token("default").as_bytes()));
}

/// Its outcomes may all be forgotten.
#[test]
fn a_token_of_this_hosts_own_folder_is_of_the_group_of_that_name_though_no_question_is_left() {
    let Some(server) = Server::found() else { return };
    let (tables, files) = to_files(&server);
    tables.store.shared().unwrap().pin(&"default@here".parse().unwrap(), "here").unwrap();
    tables.documents.store("agent_tokens.json", token("default@here").as_bytes()).unwrap();
    copy(&tables, &files, "here").unwrap();
    let kept = files.documents.read("agent_tokens.json").unwrap().unwrap();
    assert!(String::from_utf8(kept).unwrap().contains(r#""group":"default""#));
}
