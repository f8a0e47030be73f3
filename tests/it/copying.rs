//! `askd store copy` beside a database that was lost: the only records that are left stay, and the operator can go on.

use crate::harness::{World, choice};
use crate::on_postgres::{Database, copy, copy_until};
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
    assert!(code == Some(0) && told.contains(": 1 open and 0 settled questions"), "{told}");
}
