//! The real `askd serve` as a process that is killed and started again.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use askd_sim::slack::Slack;
use askd_sim::whatsapp::Whatsapp;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// How long a start may take on a busy machine.
const START: Duration = Duration::from_secs(60);
/// The operator's token. The gate sets it, so that it is known before the first start.
pub(crate) const TOKEN: &str = "gates-0123456789-0123456789-0123456789";

/// For calls to the daemon.
pub(crate) fn client() -> Result<reqwest::Client, String> {
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(10)).build();
    client.map_err(|error| error.to_string())
}

/// What a daemon holds at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    /// In KiB.
    pub(crate) memory: usize,
    /// Open files that are no sockets.
    pub(crate) files: usize,
    pub(crate) sockets: usize,
}

/// A daemon, its settings and its log. Clients find its address here.
pub(crate) struct Daemon {
    /// The binary under a name of its own: Cargo may replace the original during the run.
    binary: PathBuf,
    config: PathBuf,
    log: PathBuf,
    sabotage: Option<String>,
    url: Mutex<String>,
    http: reqwest::Client,
    child: tokio::sync::Mutex<Option<Child>>,
}

impl Daemon {
    /// Prepares a daemon but does not start it. `askd.toml` lies in the folder, and the log will lie there too.
    pub(crate) fn new(folder: &Path, sabotage: Option<&str>) -> Result<Self, String> {
        let binary = folder.join("askd");
        // A link, where one can be made: a copy cannot be run while another thread's child still has it open to write.
        let original = std::env::var("ASKD_BIN").unwrap_or_else(|_| env!("CARGO_BIN_EXE_askd").to_owned());
        let there = std::fs::hard_link(&original, &binary).or_else(|_| std::fs::copy(&original, &binary).map(drop));
        there.map_err(|error| format!("askd: {error}"))?;
        Ok(Self {
            binary,
            config: folder.join("askd.toml"),
            log: folder.join("log"),
            sabotage: sabotage.map(str::to_owned),
            url: Mutex::default(),
            http: client()?,
            child: tokio::sync::Mutex::default(),
        })
    }

    /// Starts it, waits until it listens, and tells both stand-ins where.
    pub(crate) async fn start_for(&self, slack: &Slack, phone: &Whatsapp) -> Result<(), String> {
        self.spawn().await?;
        let url = self.listening().await?;
        slack.set_interactivity_url(Some(format!("{url}/slack/interactions")));
        // A busy machine may answer late.
        for left in (0..10).rev() {
            match slack.set_events_url(&format!("{url}/slack/events")).await {
                Err(_late) if left > 0 => {}
                set => {
                    set?;
                    break;
                }
            }
        }
        phone.set_webhook(Some(&format!("{url}/whatsapp/webhook")));
        Ok(())
    }

    /// Starts it without waiting.
    pub(crate) async fn spawn(&self) -> Result<(), String> {
        self.spawn_with([]).await
    }

    /// The same with further variables in its environment.
    pub(crate) async fn spawn_with<const N: usize>(&self, variables: [(&str, &str); N]) -> Result<(), String> {
        let log = std::fs::File::options().create(true).append(true).open(&self.log);
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars() {
            if name.starts_with("ASKD") || name == "RUST_LOG" {
                command.env_remove(name);
            }
        }
        command.args(["serve", "--config"]).arg(&self.config).stdin(Stdio::null()).stdout(Stdio::piped());
        if let Some(sabotage) = &self.sabotage {
            command.env("ASKD_SABOTAGE", sabotage);
        }
        command.envs(variables);
        let log = log.map_err(|error| format!("{}: {error}", self.log.display()))?;
        let child = command.stderr(log).kill_on_drop(true).spawn().map_err(|error| format!("askd: {error}"))?;
        *self.child.lock().await = Some(child);
        Ok(())
    }

    /// Waits until it listens; returns its address.
    pub(crate) async fn listening(&self) -> Result<String, String> {
        let stdout = self.child.lock().await.as_mut().and_then(|child| child.stdout.take()).ok_or("it does not run")?;
        let mut lines = BufReader::new(stdout).lines();
        let line = tokio::time::timeout(START, lines.next_line()).await;
        let line = line.ok().and_then(Result::ok).flatten().unwrap_or_default();
        let Some(address) = line.split('/').nth(2) else {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let tail: Vec<&str> = log.lines().rev().take(20).collect();
            return Err(format!("askd does not start: {line:?}\n{}", tail.join("\n")));
        };
        let url = format!("http://{address}");
        self.url.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&url);
        Ok(url)
    }

    /// Whether it runs.
    pub(crate) async fn runs(&self) -> bool {
        self.child.lock().await.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)))
    }

    /// Its process, if it runs.
    pub(crate) async fn pid(&self) -> Option<u32> {
        self.child.lock().await.as_ref().and_then(Child::id)
    }

    /// What it holds now.
    pub(crate) async fn size(&self) -> Option<Size> {
        let pid = self.pid().await?;
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let held = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let memory = held.trim().trim_end_matches(" kB").parse().ok()?;
        let open =
            std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten().filter_map(|fd| fd.path().read_link().ok());
        let (sockets, files): (Vec<_>, Vec<_>) = open.partition(|of| of.to_string_lossy().starts_with("socket:"));
        Some(Size { memory, files: files.len(), sockets: sockets.len() })
    }

    /// `kill -9`.
    pub(crate) async fn kill(&self) {
        let mut running = self.child.lock().await;
        if let Some(mut child) = running.take() {
            let _gone = child.kill().await;
        }
    }

    /// Its address now, or the last one that it had.
    pub(crate) fn url(&self) -> String {
        self.url.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A call of the API as the operator; `None` if no whole answer came.
    pub(crate) async fn call(&self, path: &str, body: Option<&Value>) -> Option<(u16, Value)> {
        let url = format!("{}/api/v1{path}", self.url());
        let request = match body {
            Some(body) => self.http.post(url).json(body),
            None => self.http.get(url),
        };
        let answer = request.bearer_auth(TOKEN).send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, answer.json().await.ok()?))
    }

    /// What a page without a token says.
    pub(crate) async fn get(&self, path: &str) -> Option<(u16, String)> {
        let answer = self.http.get(format!("{}{path}", self.url())).send().await.ok()?;
        Some((answer.status().as_u16(), answer.text().await.ok()?))
    }

    /// Asks that are open.
    pub(crate) async fn open(&self) -> Vec<Value> {
        self.asks("state=open").await
    }

    /// Asks of which this is so.
    pub(crate) async fn asks(&self, which: &str) -> Vec<Value> {
        let (mut asks, mut after) = (Vec::new(), String::new());
        while let Some((_, list)) = self.call(&format!("/asks?{which}&limit=1000{after}"), None).await {
            asks.extend(list["asks"].as_array().cloned().unwrap_or_default());
            let Some(next) = list["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        asks
    }
}
