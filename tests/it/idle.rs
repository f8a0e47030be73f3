//! A daemon that has nothing to do does next to nothing.

use crate::harness::{SOON, World, within};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

/// Signs of life that processes left behind are removed, and no others.
#[test]
fn old_signs_of_life_are_tidied_away() {
    let mut world = World::empty();
    let tasks = world.data().join("ipc/g/tasks");
    fs::create_dir_all(tasks.join(".alive")).unwrap();
    let signs = [".alive/left", ".alive-left", ".alive/lives", ".alive-lives"].map(|name| tasks.join(name));
    for sign in &signs {
        fs::write(sign, "").unwrap();
    }
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(7_200);
    for sign in &signs[..2] {
        fs::File::open(sign).unwrap().set_modified(long_ago).unwrap();
    }
    world.start();
    world.passing(SOON, "the old ones to go", || signs[..2].iter().all(|sign| !sign.exists()).then_some(()));
    assert!(signs[2..].iter().all(|sign| sign.exists()));
}

mod measures {
    use super::*;
    use serde_json::json;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Waits for ten seconds with at most this many wake-ups. Beside a busy neighbour one look may take some more.
    fn ten_quiet_seconds(world: &World, most: u64) {
        let mut counted: Vec<u64> = Vec::new();
        within(SOON * 4, "ten quiet seconds", || {
            let before = world.wake_ups();
            std::thread::sleep(Duration::from_secs(10));
            let woken = |(thread, count): (_, u64)| count - before.get(&thread).copied().unwrap_or(0);
            counted.push(world.wake_ups().into_iter().map(woken).sum());
            counted.last().is_some_and(|last| *last <= most).then_some(())
        });
        eprintln!("wake-ups in each ten seconds: {counted:?}");
    }

    #[test]
    #[ignore = "measures: tests/run plays it last and alone"]
    fn a_thousand_groups_and_two_hundred_waiters_wake_nothing_but_one_look() {
        const WAITERS: usize = 200;
        let mut world = World::empty().with_binary();
        let groups: Vec<_> = (0..1_000).map(|number| world.data().join(format!("ipc/g{number}"))).collect();
        for group in &groups {
            fs::create_dir_all(group.join("tasks/.alive")).unwrap();
            fs::set_permissions(group.join("tasks"), PermissionsExt::from_mode(0o770)).unwrap();
        }
        world.start();
        within(SOON, "all groups to be found", || (world.log().matches("Group found").count() > 1_000).then_some(()));
        // Two looks, each by one thread.
        ten_quiet_seconds(&world, 10);
        let over = AtomicBool::new(false);
        let waiting = &groups[..WAITERS];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    for (number, group) in waiting.iter().enumerate() {
                        fs::write(group.join("tasks/.alive/p"), number.to_string()).unwrap();
                    }
                    std::thread::sleep(Duration::from_secs(3));
                }
            });
            for group in waiting {
                let request = json!({
                    "type": "ask_user:ask", "request_id": "r1", "process": "p", "questions": [{"question": "Go?"}]
                });
                fs::write(group.join("tasks/.new"), request.to_string()).unwrap();
                fs::rename(group.join("tasks/.new"), group.join("tasks/r1.json")).unwrap();
            }
            within(SOON * 2, "all to be open", || (world.open().len() == WAITERS).then_some(()));
            ten_quiet_seconds(&world, 20);
            over.store(true, Ordering::SeqCst);
        });
    }
}
