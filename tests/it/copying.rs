//! `askd store copy` beside a database that was lost: the only records that are left stay, and the operator can go on.

use crate::command_line::{err, out};
use crate::forgetting::{forget, run, with};
use crate::harness::{SOON, World, choice, within};
use crate::on_postgres::{Database, copy, copy_until};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;

/// Records in files, an open question among them, with a database in the settings to which they can be moved.
fn in_files(database: &Database) -> World {
    let mut world = World::empty().in_files().with_binary().started();
    world.ask("r1", choice("Which?", &["a", "b"]));
    world.one_open();
    assert_eq!(world.terminate().code(), Some(0));
    fs::write(world.dir.path().join("askd.toml"), database.settings("host-a")).unwrap();
    world
}

/// What the files have: the questions, and what is remembered beside them.
fn kept(world: &World) -> BTreeMap<String, String> {
    let records = world.store().into_iter().map(|(path, text)| (path.display().to_string(), text));
    let push = fs::read_to_string(world.state().join("push.json")).unwrap_or_default();
    records.chain([("push.json".to_owned(), push)]).collect()
}

/// What the daemon advises that does not start on moved records.
#[test]
fn the_moved_records_stay_when_the_database_that_has_them_is_lost() {
    let Some(database) = Database::found() else { return };
    let mut world = in_files(&database);
    let (code, told) = copy(&world, &["postgres"]);
    assert_eq!(code, Some(0), "{told}");
    let before = kept(&world);
    database.anew();
    let (code, told) = copy(&world, &["files"]);
    assert_eq!((code, kept(&world)), (Some(1), before), "{told}");
    let why = "the state folder still has records, and nothing shows that the database has them too: it may be new, or another one";
    assert!(told.contains(why), "{told}");
    // As it says.
    assert!(told.contains("remove state/copy"), "{told}");
    fs::remove_file(world.state().join("copy")).unwrap();
    world.start();
    world.one_open();
}

#[test]
fn a_copy_whose_database_was_lost_half_way_is_taken_back_or_run_again() {
    let Some(database) = Database::found() else { return };
    let mut world = in_files(&database);
    for back in [true, false] {
        let (code, told) = copy_until(&world, &["postgres"], "copy.marked");
        assert_eq!(code, None, "it was not killed: {told}");
        database.anew();
        if back {
            let (code, told) = copy(&world, &["postgres", "--abort"]);
            assert_eq!(code, Some(0), "{told}");
            world.start();
            world.one_open();
            assert_eq!(world.terminate().code(), Some(0));
        }
    }
    let (code, told) = copy(&world, &["postgres"]);
    assert!(code == Some(0) && told.contains(": 1 open and 0 closed questions"), "{told}");
}

const PEOPLE: &str = "[web]\npeople = [{ name = \"annabel\", token = \"annabel-0123456789abcdef\" }]\n";

/// Annabel answers what is open under this id.
fn annabel_answers(world: &World, request: &str) {
    let ask = world.open_of(request);
    let answer = json!({"answers": {ask["questions"][0]["id"].as_str().unwrap(): "yes"}}).to_string();
    let headers = "authorization: Bearer annabel-0123456789abcdef\r\ncontent-type: application/json\r\n";
    let path = format!("/api/v1/asks/{}/answer", ask["id"].as_str().unwrap());
    assert_eq!(world.raw("POST", &path, headers, &answer).0, 200);
    world.group("research").take(request);
}

#[test]
fn a_person_is_forgotten_in_the_records_that_were_moved_too() {
    let Some(database) = Database::found() else { return };
    let mut world = World::empty().in_files().with_binary().config(PEOPLE).started();
    for (request, question) in [("r1", "Fire Bob?"), ("r2", "Hire Eve?"), ("r3", "Move to Rome?")] {
        world.ask(request, choice(question, &["yes", "no"]));
        world.open_of(request);
    }
    annabel_answers(&world, "r1");
    world.noted_as_taken("research");
    assert_eq!(world.terminate().code(), Some(0));
    let settings = world.dir.path().join("askd.toml");
    fs::write(&settings, PEOPLE.to_owned() + &database.settings("host-a")).unwrap();
    let (code, told) = copy(&world, &["postgres"]);
    assert_eq!(code, Some(0), "{told}");
    // In the files this one is still open.
    let mut world = world.config(&(PEOPLE.to_owned() + &database.settings("host-a"))).started();
    annabel_answers(&world, "r2");
    within(SOON, "both to be filed", || {
        (database.query("select count(*) from askd.asks where not settled") == ["1"]).then_some(())
    });
    assert_eq!(world.terminate().code(), Some(0));
    assert!(!with(&world, &["Fire Bob", "Hire Eve"]).is_empty());
    let told = run(forget(&world, &["--person", "annabel"]));
    assert!(told.status.success() && out(&told).starts_with("Erased: 2 questions, "), "{}{}", out(&told), err(&told));
    assert_eq!(with(&world, &["annabel", "Fire Bob", "Hire Eve"]), Vec::<std::path::PathBuf>::new());
    assert_eq!(database.with(&["annabel", "Fire Bob", "Hire Eve"]), Vec::<String>::new());
    assert_eq!((with(&world, &["Move to Rome"]).len(), database.with(&["Move to Rome"]).len()), (1, 1));
    let again = run(forget(&world, &["--person", "annabel"]));
    assert!(out(&again).starts_with("Nothing in the records names that person or question."), "{}", out(&again));
    // The other way the copy is out of reach, and that is said.
    let (code, moved) = copy(&world, &["files"]);
    assert_eq!(code, Some(0), "{moved}");
    assert!(!out(&again).contains("the database"), "{}", out(&again));
    fs::write(&settings, PEOPLE).unwrap();
    let told = run(forget(&world, &["--person", "annabel"]));
    let not = "Not looked into: the database that has a copy of these records, the log (journald), backups";
    assert!(out(&told).contains(not), "{}{}", out(&told), err(&told));
}
