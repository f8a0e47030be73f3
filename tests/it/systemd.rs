//! What the daemon tells systemd, played by a socket: ready, alive, reloading, stopping.

use crate::daemon::without_environment;
use crate::harness::{ASKD, SOON, World, within};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

#[test]
fn systemd_hears_ready_alive_reloading_and_stopping_and_a_reload_says_what_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(SOON)).unwrap();
    // As systemd, it always reads: a few heartbeats that nobody reads fill the socket, and then the daemon waits for it.
    let (tell, heard) = channel();
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(length) = socket.recv(&mut bytes) {
            let _over = tell.send(String::from_utf8_lossy(&bytes[..length]).into_owned());
        }
    });
    let hear = |wanted: &str| loop {
        let text = heard.recv_timeout(SOON).unwrap_or_else(|error| panic!("{wanted}: {error}"));
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
        "reloaded the settings: group a has no settings of its own any more, group b changed, group c is new",
    );
    within(Duration::from_secs(5), "what needs a restart", || {
        world.log().contains("takes effect only after a restart: [log]").then_some(())
    });
    reload("[groups.b]\ntimeout = \"6 minits\"\n", "cannot reload the settings; they stay as they were");
    reload(changed, "reloaded the settings: nothing changed");
    world.tell_to_stop();
    hear("STOPPING=1");
    assert!(world.ended().success());
}

/// A daemon to which this socket is passed as systemd passes one. It ends with the story.
struct Passed(Child);

impl Passed {
    fn start(data: &Path, socket: &TcpListener, listen: SocketAddr) -> Self {
        let mut command = without_environment(Path::new("sh"));
        // The socket comes as standard input; systemd passes it as descriptor 3.
        command.args(["-c", "exec 3<&0 </dev/null; export LISTEN_PID=$$; exec \"$@\"", "sh", ASKD, "serve"]);
        command.env("LISTEN_FDS", "1").env("ASKD__HTTP__LISTEN", listen.to_string()).env("ASKD__DATA_DIR", data);
        let socket = OwnedFd::from(socket.try_clone().unwrap());
        Self(command.stdin(socket).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    fn end(mut self) -> (Option<i32>, String) {
        let mut log = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.0.wait().unwrap().code(), log)
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}

#[test]
fn connections_wait_in_the_socket_of_systemd_while_the_daemon_restarts() {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, folder) = (socket.local_addr().unwrap(), tempfile::tempdir().unwrap());
    let healthz = "GET /healthz HTTP/1.1\r\nhost: probe\r\nconnection: close\r\n\r\n";
    for _ in 0..2 {
        let mut waiting = TcpStream::connect(address).expect("the socket listens while no daemon runs");
        waiting.set_read_timeout(Some(SOON)).unwrap();
        waiting.write_all(healthz.as_bytes()).unwrap();
        let daemon = Passed::start(folder.path(), &socket, address);
        let mut reply = String::new();
        waiting.read_to_string(&mut reply).unwrap();
        assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
        let pid = rustix::process::Pid::from_child(&daemon.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert_eq!(daemon.end().0, Some(0));
    }
    let other = SocketAddr::from(([127, 0, 0, 1], crate::ports::free_port()));
    let (code, log) = Passed::start(folder.path(), &socket, other).end();
    assert_eq!(code, Some(1));
    let told = format!(
        "askd: a socket that systemd passed: {address} has the port of none of http.listen, http.webhook_listen and agents.listen; \
         make ListenStream the same\n"
    );
    assert!(log.ends_with(&told), "{log}");
}

/// With `ProcSubset=pid` no file of the kernel is there but those of processes: each start would be one after a loss of power.
#[test]
fn the_unit_does_not_hide_the_id_of_the_boot() {
    let unit = std::fs::read_to_string(format!("{}/deploy/askd.service", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert_eq!(unit.lines().find(|line| line.starts_with("ProcSubset")), None);
}

#[test]
fn the_units_are_ones_that_systemd_understands() {
    let folder = tempfile::tempdir().unwrap();
    let copies = ["askd.service", "askd.socket"].map(|name| {
        let text = std::fs::read_to_string(format!("{}/deploy/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        let copy = folder.path().join(name);
        std::fs::write(&copy, text.replace("/usr/local/bin/askd", ASKD)).unwrap();
        copy
    });
    match Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&copies).output() {
        Err(_) => println!("SKIPPED the_units_are_ones_that_systemd_understands: needs systemd-analyze"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let about_us: Vec<&str> = said.lines().filter(|line| line.contains("/askd.")).collect();
            assert!(about_us.is_empty(), "{said}");
        }
    }
}
