//! `askd serve`: the daemon.

use super::{Exit, FAILED, HeldSignals, USAGE, say, systemd};
use crate::clock::Clock;
use crate::host::settings::{LogFormat, Settings};
use crate::host::store::note_settings;
use crate::host::{CHANNELS, Daemon, DaemonError, Tls};
use anyhow::Context as _;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use secrecy::ExposeSecret as _;
use std::io::{self, IsTerminal as _};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Another daemon holds the state folder (`EX_TEMPFAIL` of sysexits.h).
pub(super) const HELD: u8 = 75;
/// How many threads serve connections at most. Others wait for the disk.
const MOST_WORKERS: usize = 4;
/// How many files may be open: each call that waits has a connection (4,096 of agents, 512 of the inbox, and as many of webhooks), and
/// folders are held open (`folders::most_held`). Not all that the system allows: a command that askd starts inherits it, and some close
/// every number up to it.
const OPEN_FILES: u64 = 12_288;
/// How long the disk may take for what is under way when everything else has stopped.
const DISK: Duration = Duration::from_secs(1);

/// Run the daemon: watch the group folders, show questions, deliver answers.
///
/// SIGTERM or Ctrl-C finishes what is in flight and stops. SIGHUP reloads groups, people and signing secrets; the log
/// names what needs a restart.
///
/// Exit codes: 0 stopped, 2 bad settings or usage, or a newer askd wrote the records, 75 another daemon holds the state
/// folder or has this node's name, 1 anything else.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  askd serve\n  askd serve --config askd.toml\n  \
                        ASKD__HTTP__LISTEN=127.0.0.1:8585 askd serve")]
pub(super) struct Serve {
    /// Settings file; repeatable, later files override earlier ones [default: /etc/askd/askd.toml if it exists].
    #[arg(long, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// Check what was already done before doing anything again: use it if the disk may have lost recent writes although
    /// the computer did not restart (a storage failure, a moved virtual machine).
    #[arg(long)]
    after_loss: bool,
}

/// Shells and systemd begin with 1,024 open files and let a program have more.
fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES));
    if current.is_none_or(|now| now >= wanted) {
        return;
    }
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

impl Serve {
    pub(super) fn run(self) -> Result<(), Exit> {
        let mut settings = Settings::load(&self.config).map_err(|error| Exit::new(USAGE, error))?;
        settings.after_loss = self.after_loss;
        super::log(&settings.log.filter, settings.log.format == LogFormat::Json)?;
        let held = HeldSignals::hold()?;
        raise_open_files();
        let cores = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.enable_all().worker_threads(cores.clamp(2, MOST_WORKERS)).build();
        let runtime = runtime.context("cannot start")?;
        let ended = runtime.block_on(self.serve(settings, held));
        // A disk that hangs keeps nothing from stopping: what it still writes is found by the next start.
        runtime.shutdown_timeout(DISK);
        ended
    }

    async fn serve(&self, settings: Settings, held: HeldSignals) -> Result<(), Exit> {
        let (data_dir, state, url) = (settings.data_dir.clone(), settings.state_dir(), settings.inbox_url());
        let by_port = settings.http.public_url.is_none();
        let token_file = state.join(crate::host::store::TOKEN_FILE);
        let token_at = match settings.web.token {
            Some(_) => "the settings: [web] token".to_owned(),
            None => token_file.display().to_string(),
        };
        let stop = super::stop_on(false)?;
        let mut hangup = signal(SignalKind::hangup()).context("cannot listen for SIGHUP")?;
        drop(held);
        if settings.postgres.url.is_some() {
            // It may have to stand by for long, and is well while it does.
            systemd::tell(&[NotifyState::Ready]);
        }
        let mut beside = pin!(systemd::follow(Clock::system(), stop.clone()));
        let mut opening = pin!(Daemon::open_with(CHANNELS, systemd::sockets()?, settings, Clock::system()));
        let daemon = loop {
            tokio::select! {
                daemon = &mut opening => break daemon,
                Some(()) = hangup.recv() => {
                    tracing::warn!("got SIGHUP before askd was ready; restart askd to apply changed settings");
                }
                () = stop.cancelled() => {
                    tracing::info!("askd has stopped");
                    return Ok(());
                }
                () = &mut beside => return Ok(()),
            }
        };
        let daemon = daemon.map_err(|error| exit(&error))?;
        self.note_settings(&state);
        let url = if by_port { format!("http://{}", crate::host::settings::reachable(daemon.address())) } else { url };
        self.reload_on_hangup(&daemon, hangup);
        let (address, token) = (daemon.address(), daemon.token().clone());
        let ready = || {
            tracing::info!(version = env!("CARGO_PKG_VERSION"), data_dir = %data_dir.display(), listen = %address, "askd is ready");
            // The token goes to a terminal only: logs are kept and read by others.
            let way = if std::io::stdout().is_terminal() {
                format!("#token={}", token.expose_secret())
            } else {
                format!(" (token in {token_at})")
            };
            if let Err(error) = say(&format!("Inbox: {url}/{way}")) {
                tracing::warn!(%error, "cannot say where the inbox is");
            }
            systemd::tell(&[NotifyState::Ready]);
        };
        tokio::select! {
            ended = daemon.run(stop, ready) => ended.map_err(|error| exit(&error))?,
            () = &mut beside => {}
        }
        tracing::info!("askd has stopped");
        Ok(())
    }

    /// `askd init` looks whether the daemon would read what it has written.
    fn note_settings(&self, state: &Path) {
        let files = Settings::files(&self.config).into_iter().map(std::path::absolute).collect::<io::Result<Vec<_>>>();
        if let Err(error) = files.and_then(|files| note_settings(state, &files)) {
            tracing::debug!(%error, "cannot note which settings are read");
        }
    }

    fn reload_on_hangup(&self, daemon: &Daemon, mut hangup: Signal) {
        let (files, current) = (self.config.clone(), daemon.current().clone());
        #[expect(clippy::disallowed_methods, reason = "listens for as long as the process lives")]
        tokio::spawn(async move {
            let started_with = current.broker().settings();
            while hangup.recv().await.is_some() {
                systemd::reloading();
                let (broker, tls) = (current.broker(), current.tls());
                match Settings::load(&files) {
                    Ok(settings) => {
                        let now = broker.settings().changes(&settings).now;
                        let after_restart = started_with.changes(&settings).after_restart;
                        broker.reload(Arc::new(settings));
                        let what = if now.is_empty() { "nothing changed".to_owned() } else { now.join(", ") };
                        tracing::info!("reloaded the settings: {what}");
                        if !after_restart.is_empty() {
                            tracing::warn!("takes effect only after a restart: {}", after_restart.join(", "));
                        }
                    }
                    Err(error) => tracing::error!(%error, "cannot reload the settings; they stay as they were"),
                }
                match tls.as_ref().map(Tls::reload) {
                    None => {}
                    Some(Ok(())) => tracing::info!("reloaded the certificate for agents"),
                    Some(Err(error)) => tracing::error!(%error, "the certificate for agents stays as it was"),
                }
                systemd::tell(&[NotifyState::Ready]);
            }
        });
    }
}

fn exit(error: &DaemonError) -> Exit {
    let code = if error.is_held() {
        HELD
    } else if error.is_newer() {
        USAGE
    } else {
        FAILED
    };
    Exit::new(code, error)
}
