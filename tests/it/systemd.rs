//! What the daemon tells systemd, played by a socket: ready, alive, reloading, stopping.

use crate::harness::{SOON, World, within};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::Duration;

#[test]
fn systemd_hears_ready_alive_reloading_and_stopping_and_a_reload_says_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    let hear = |wanted: &str| loop {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{wanted}: {error}"));
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        if text.lines().any(|line| line == wanted) {
            return text;
        }
    };
    let mut world = World::empty()
        .env("NOTIFY_SOCKET", path.to_str().unwrap())
        .env("WATCHDOG_USEC", "200000")
        .config("[groups.a]\n[groups.b]\ntimeout = \"5m\"\n")
        .started();
    hear("READY=1");
    hear("WATCHDOG=1");
    hear("WATCHDOG=1");
    let settings = world.dir.path().join("askd.toml");
    let reload = |text: &str, said: &str| {
        std::fs::write(&settings, text).unwrap();
        world.signal(rustix::process::Signal::HUP);
        assert!(hear("RELOADING=1").contains("MONOTONIC_USEC="));
        hear("READY=1");
        within(SOON, said, || world.log().contains(said).then_some(()));
    };
    let changed = "[log]\nformat = \"json\"\n[groups.b]\ntimeout = \"6m\"\n[groups.c]\n";
    reload(
        changed,
        "reloaded the group settings: group a has no settings of its own any more, group b changed, group c is new",
    );
    within(Duration::from_secs(5), "what needs a restart", || {
        world.log().contains("needs a restart before it holds: [log]").then_some(())
    });
    reload("[groups.b]\ntimeout = \"6 minits\"\n", "cannot reload the settings; they stay as they were");
    reload(changed, "reloaded the group settings: nothing changed");
    world.tell_to_stop();
    hear("STOPPING=1");
    assert!(world.ended().success());
}

#[test]
fn the_unit_is_one_that_systemd_understands() {
    let unit = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/askd.service");
    let text = std::fs::read_to_string(unit).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("askd.service");
    std::fs::write(&copy, text.replace("/usr/local/bin/askd", crate::harness::ASKD)).unwrap();
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output() {
        Err(_) => println!("SKIPPED the_unit_is_one_that_systemd_understands: needs systemd-analyze"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let about_us: Vec<&str> = said.lines().filter(|line| line.contains("askd.service")).collect();
            assert!(about_us.is_empty(), "{said}");
        }
    }
}
