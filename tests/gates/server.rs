//! A PostgreSQL server on a disk whose power can be cut.

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
    disk: Disk,
    folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.stop();
    }
}

impl Server {
    /// Makes one and starts it.
    pub(crate) fn start() -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let disk = Disk::new(folder.path(), FILE_SYSTEMS[0])?;
        let port = crate::ports::free_port();
        // The server refuses to run as root.
        let id = Command::new("id").args(["-u", "postgres"]).output().map_err(|error| format!("id: {error}"))?;
        let owner = String::from_utf8_lossy(&id.stdout).trim().parse().map_err(|_| "there is no user postgres")?;
        for path in [folder.path(), disk.mounted()] {
            chown(path, Some(owner), None).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut server = Self { process: None, port, disk, folder };
        let data = server.disk.mounted().join("data");
        let made = server.program("initdb")?.args(["-U", "askd", "--auth=trust", "-D"]).arg(data).status();
        let made = made.map_err(|error| format!("initdb: {error}"))?;
        if !made.success() {
            return Err(format!("initdb: {made}"));
        }
        server.run()?;
        Ok(server)
    }

    /// The URL of its own database.
    pub(crate) fn url(&self) -> String {
        format!("postgres://askd@127.0.0.1:{}/postgres", self.port)
    }

    /// Cuts the power, and turns it on again.
    pub(crate) fn lose_power(&mut self) -> Result<(), String> {
        self.disk.cut()?;
        self.stop()?;
        self.disk.again()?;
        self.run()
    }

    /// A program of the server's, as its user.
    fn program(&self, name: &str) -> Result<Command, String> {
        let log = self.folder.path().join("log");
        let log = std::fs::File::options().create(true).append(true).open(log).map_err(|error| error.to_string())?;
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", name]);
        command.current_dir(self.disk.mounted()).stdin(Stdio::null()).stderr(log).stdout(Stdio::null());
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

    /// Ends it and its children at once, without a checkpoint.
    fn stop(&mut self) -> Result<(), String> {
        let Some(mut process) = self.process.take() else { return Ok(()) };
        if let Some(pid) = Pid::from_raw(process.id().cast_signed()) {
            // It may have ended by itself: its disk is gone.
            let _ended = kill_process(pid, Signal::QUIT);
        }
        process.wait().map(drop).map_err(|error| error.to_string())
    }
}
