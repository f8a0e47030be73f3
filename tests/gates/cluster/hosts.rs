//! The hosts of `cluster`: their settings, and the proxy that sends each connection to a daemon that takes it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use askd_sim::slack::{APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, Slack};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use super::{CHANNEL, PEOPLE, groups};
use crate::daemon::{Daemon, TOKEN};
use crate::phones::Phones;

/// What all hosts have in common.
pub(super) struct Shared<'a> {
    /// The database.
    pub(super) url: String,
    /// Where each daemon listens: for people, and for agents.
    pub(super) ports: Vec<[u16; 2]>,
    /// Where the proxy listens for them.
    pub(super) doors: [SocketAddr; 2],
    pub(super) slack: &'a Slack,
    /// Whether Slack brings clicks over Socket Mode.
    pub(super) by_socket: bool,
    pub(super) phones: &'a Phones,
}

/// A host with a daemon, and with the folders of some groups.
pub(super) struct Host {
    folder: TempDir,
    pub(super) daemon: Daemon,
    pub(super) name: String,
    /// Where it listens for agents.
    pub(super) agents: SocketAddr,
    gone: AtomicBool,
}

impl Host {
    pub(super) fn new(number: usize, all: &Shared<'_>, sabotage: Option<&str>) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let Shared { url, doors, slack, by_socket, phones, .. } = all;
        let ports = all.ports[number];
        let clicks = if *by_socket {
            format!("app_token = \"{APP_TOKEN}\"")
        } else {
            format!("signing_secret = \"{SIGNING_SECRET}\"")
        };
        let (name, agents) = (format!("host-{number}"), SocketAddr::from(([127, 0, 0, 1], ports[1])));
        // The one that leads first is only told of changes when it looks, as behind a pooler.
        let listens = if number == 0 { String::new() } else { format!("listen_url = \"{url}\"\n") };
        let mut settings = format!(
            "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:{}\"\nallowed_hosts = [\"{}\"]\n[web]\ntoken = \"{TOKEN}\"\n\
             [agents]\nlisten = \"127.0.0.1:{}\"\nallowed_hosts = [\"{}\", \"{agents}\"]\n[asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 100000\n\
             [postgres]\nurl = \"{url}\"\n{listens}node = \"{name}\"\n\
             [slack]\nbot_token = \"{BOT_TOKEN}\"\n{clicks}\npace = \"0s\"\napi_url = \"{}\"\n",
            folder.path().join("data").display(),
            ports[0],
            doors[0],
            ports[1],
            doors[1],
            slack.api_url()
        );
        let responders = PEOPLE.map(|person| format!("\"{person}\"")).join(", ");
        for group in groups() {
            let _never_fails = writeln!(
                settings,
                "[groups.{group}]\nroutes = [{{ channel = \"slack\", chat = \"{CHANNEL}\", responders = [{responders}] }}]"
            );
        }
        settings.push_str(&phones.settings(CHANNEL));
        std::fs::write(folder.path().join("askd.toml"), settings).map_err(|error| error.to_string())?;
        let daemon = Daemon::new(folder.path(), sabotage)?;
        Ok(Self { folder, daemon, name, agents, gone: AtomicBool::new(false) })
    }

    /// It never comes back, and neither do the agents beside it.
    pub(super) async fn go(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.daemon.kill().await;
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Where the folders of its groups are.
    pub(super) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(super) fn keep_log(&self) {
        crate::keep(&self.folder.path().join("log"));
    }
}

/// Sends each connection to a daemon that takes it: another one each time.
pub(super) async fn proxy(ports: &[[u16; 2]], which: usize) -> Result<SocketAddr, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    let ports: Vec<u16> = ports.iter().map(|ports| ports[which]).collect();
    tokio::spawn(async move {
        let mut next = 0;
        while let Ok((mut from, _)) = listener.accept().await {
            next += 1;
            let ports: Vec<u16> = (0..ports.len()).map(|nth| ports[(next + nth) % ports.len()]).collect();
            tokio::spawn(async move {
                for port in ports {
                    if let Ok(mut to) = TcpStream::connect(("127.0.0.1", port)).await {
                        let _ended = tokio::io::copy_bidirectional(&mut from, &mut to).await;
                        return;
                    }
                }
            });
        }
    });
    Ok(address)
}

/// Runs this; returns what it says.
pub(crate) fn sql(url: &str, text: &str) -> Result<String, String> {
    let told = Command::new("psql").args(["-XAtq", "-v", "ON_ERROR_STOP=1", url, "-c", text]).output();
    let told = told.map_err(|error| format!("psql: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if told.status.success() { Ok(text(&told.stdout)) } else { Err(text(&told.stderr)) }
}
