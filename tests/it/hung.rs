//! A disk that never answers stops the group whose folder lies on it, and no other group.

use crate::harness::{Agent, SOON, World, within};
use std::fs;
use std::time::{Duration, Instant};

/// A file system whose server never answers: any process that looks into it waits.
struct Hung {
    at: std::path::PathBuf,
    _server: fs::File,
}

impl Hung {
    fn mount(at: &std::path::Path) -> Option<Self> {
        use rustix::mount::{MountFlags, mount};
        use std::os::fd::AsRawFd as _;
        let server = fs::File::options().read(true).write(true).open("/dev/fuse").ok()?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", server.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        mount("askd-hung", at, "fuse", MountFlags::NOSUID | MountFlags::NODEV, Some(options.as_c_str())).ok()?;
        Some(Self { at: at.to_owned(), _server: server })
    }
}

impl Drop for Hung {
    fn drop(&mut self) {
        rustix::mount::unmount(&self.at, rustix::mount::UnmountFlags::DETACH).unwrap();
    }
}

/// How long each took to be open.
fn three_are_answered(world: &World, agent: &Agent) -> [Duration; 3] {
    ["r0", "r1", "r2"].map(|id| {
        let begun = Instant::now();
        agent.ask_framework(id);
        let ask = world.open_of(id);
        let took = begun.elapsed();
        assert_eq!(world.answer(&ask, &serde_json::json!({(format!("{id}_0")): "Vue"})).0, 200);
        agent.take(id);
        took
    })
}

/// B6: the daemon starts with a group whose folder hangs.
fn one_group_hangs(world: &mut World) {
    let honest = world.group("honest");
    world.start();
    three_are_answered(world, &honest);
    within(SOON, "the complaint", || world.log().contains("the group's folder does not answer").then_some(()));
    let ready = || world.raw("GET", "/readyz", "", "");
    assert_eq!(ready(), (200, "degraded: the folder of a group does not answer\n".to_owned()), "no name of the group");
    // Two looks later the log has not said it again.
    honest.ask_framework("after");
    world.open_of("after");
    let begun = Instant::now();
    within(SOON, "two more looks", || (begun.elapsed() > Duration::from_secs(11)).then_some(()));
    assert_eq!(world.log().matches("the group's folder does not answer").count(), 1);
    let begun = Instant::now();
    assert!(world.terminate().success());
    let took = begun.elapsed();
    eprintln!("stopped after {took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_hung_group_folder_stops_that_group_alone_and_is_said() {
    let mut world = World::empty().with_binary();
    let folder = world.data().join("ipc/hung");
    fs::create_dir_all(&folder).unwrap();
    let Some(hung) = Hung::mount(&folder) else {
        println!(
            "SKIPPED a_hung_group_folder_stops_that_group_alone_and_is_said: no FUSE here (needs root and /dev/fuse)"
        );
        return;
    };
    one_group_hangs(&mut world);
    // Before the world goes, which removes its folder.
    drop(hung);
}

/// The same without a right to mount.
#[test]
fn a_hung_look_stops_that_group_alone_and_is_said() {
    let mut world = World::empty().env("ASKD_SABOTAGE", "hang");
    world.group("hung");
    one_group_hangs(&mut world);
}

mod measures {
    use super::*;

    #[test]
    #[ignore = "measures: tests/run plays it last and alone"]
    fn beside_a_hung_look_another_group_is_served_at_once() {
        let world = World::empty().env("ASKD_SABOTAGE", "hang");
        world.group("hung");
        let world = world.started();
        let took = three_are_answered(&world, &world.group("honest"));
        assert!(took.iter().all(|took| *took < Duration::from_secs(1)), "{took:?}");
    }
}
