//! A PostgreSQL server of a gate's own: it can be restarted as an operator does it. On a disk of its own its power can be cut.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::power::{Disk, FILE_SYSTEMS};

/// How long it may take to start: it recovers first.
const START: Duration = Duration::from_secs(60);

/// A server. It stops with this value.
pub(crate) struct Server {
    process: Option<Child>,
    port: u16,
    /// Whose power can be cut.
    disk: Option<Disk>,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.stop(Signal::QUIT);
    }
}

impl Server {
    /// Makes one and starts it, on a disk of its own or in memory where that can be had.
    pub(crate) fn start(on_disk: bool) -> Result<Self, String> {
        let memory = Path::new("/dev/shm");
        let folder = if !on_disk && memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let folder = folder.map_err(|error| error.to_string())?;
        let disk = if on_disk { Some(Disk::new(folder.path(), FILE_SYSTEMS[0])?) } else { None };
        let port = crate::ports::free_port();
        let mut server = Self { process: None, port, disk, folder };
        if let Some(owner) = owner()? {
            for path in [server.folder.path(), server.place()] {
                chown(path, Some(owner), None).map_err(|error| format!("{}: {error}", path.display()))?;
            }
        }
        let data = server.place().join("data");
        let mut initdb = server.program("initdb")?;
        if !on_disk {
            initdb.arg("--no-sync");
        }
        let made = initdb.args(["-U", "askd", "--auth=trust", "-D"]).arg(data).status();
        let made = made.map_err(|error| format!("initdb: {error}"))?;
        if !made.success() {
            return Err(format!("initdb: {made}"));
        }
        server.run()?;
        Ok(server)
    }

    /// Where its files are.
    fn place(&self) -> &Path {
        self.disk.as_ref().map_or(self.folder.path(), Disk::mounted)
    }

    /// The URL of its own database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://askd@127.0.0.1:{}/postgres", self.port)
    }

    /// Cuts the power, and turns it on again.
    pub(crate) fn lose_power(&mut self) -> Result<(), String> {
        self.disk.as_ref().ok_or("it has no disk of its own")?.cut()?;
        self.stop(Signal::QUIT)?;
        self.disk.as_mut().ok_or("it has no disk of its own")?.again()?;
        self.run()
    }

    /// Restarts it as `pg_ctl restart -m fast` does: all connections end, and it writes a checkpoint.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        self.stop(Signal::INT)?;
        self.run()
    }

    /// A program of the server's, as its user.
    fn program(&self, name: &str) -> Result<Command, String> {
        let log = self.folder.path().join("log");
        let log = std::fs::File::options().create(true).append(true).open(log).map_err(|error| error.to_string())?;
        let mut command = Command::new("setpriv");
        if owner()?.is_some() {
            command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]);
        }
        command.arg(name).current_dir(self.place()).stdin(Stdio::null()).stderr(log).stdout(Stdio::null());
        Ok(command)
    }

    fn run(&mut self) -> Result<(), String> {
        let mut command = self.program("postgres")?;
        command.arg("-D").arg(Path::new("data")).args(["-p", &self.port.to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=100",
            "shared_buffers=32MB",
            "max_wal_size=64MB",
            // What does not wait for the disk stays in memory for long.
            "wal_writer_delay=2s",
        ] {
            command.args(["-c", setting]);
        }
        self.process = Some(command.spawn().map_err(|error| format!("postgres: {error}"))?);
        let began = Instant::now();
        while let Err(error) = crate::cluster::sql(&self.url(), "select 1") {
            if began.elapsed() > START {
                return Err(format!("the server does not start: {error}"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Ends it and its children: `QUIT` at once and without a checkpoint.
    fn stop(&mut self, how: Signal) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if let Some(pid) = Pid::from_raw(process.id().cast_signed()) {
            // It may have ended by itself: its disk is gone.
            let _ended = kill_process(pid, how);
        }
        process.wait().map(drop).map_err(|error| error.to_string())
    }
}

/// Who has to own its files and run it: it refuses to run as root.
fn owner() -> Result<Option<u32>, String> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let id = Command::new("id").args(["-u", "postgres"]).output().map_err(|error| format!("id: {error}"))?;
    let id = String::from_utf8_lossy(&id.stdout).trim().parse().map_err(|_| "there is no user postgres")?;
    Ok(Some(id))
}
