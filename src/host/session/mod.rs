//! The agents' sessions: tells whether one is alive, starts one with an answer, stops one. The broker decides when; the
//! group's settings say how. Section 7 of the specification.

mod command;
pub mod docker;
mod heartbeats;
mod leases;
mod webhook;

pub(crate) use heartbeats::{DEAD_AFTER, Heartbeats, Liveness};
pub(crate) use leases::{Leases, OF_MCP};

use crate::host::ctx::Ctx;
use crate::host::settings::{GroupSettings, Means};
use askd_core::{Ask, Time, Tried, Waiter};
use command::{Overlong, Ran, STARTED_AFTER, run};
use docker::{Container, Engine, EngineError};
use std::time::Duration;

/// How long a probe or a stop by a command may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Why a session is stopped. *Exact.*
const STOPPED_FOR: &str = "ask_user_timeout";

/// The sessions of all agents.
#[derive(Debug)]
pub(crate) struct Sessions {
    ctx: Ctx,
    engine: Engine,
    /// Signs of life.
    pub(crate) heartbeats: Heartbeats,
    /// Which calls over HTTP still wait.
    pub(crate) leases: Leases,
}

impl Sessions {
    pub(crate) fn new(docker_host: Option<&str>, pending_lease: Duration, ctx: Ctx) -> Self {
        let engine = Engine::new(docker_host, ctx.clock().clone());
        let leases = Leases::new(ctx.clock().clone(), pending_lease);
        Self { engine, ctx, heartbeats: Heartbeats::default(), leases }
    }

    /// The container run that asked at that time; `None`: the group has no container, the run is over, or the Engine cannot tell.
    pub(crate) async fn run_of(&self, settings: &GroupSettings, asked_at: Time) -> Option<String> {
        let Some(Means::Docker(container)) = &settings.session.probe else { return None };
        match self.engine.look(container).await {
            // A request may be old: a run that began after it did not make it.
            Ok(container) => (!container.began_after(asked_at)).then_some(container.run),
            Err(error) => {
                tracing::warn!(%error, "the Engine did not say which run of its container asks; askd cannot tell whether that run is alive");
                None
            }
        }
    }

    /// Whether the process of a waiter is gone, by its signs of life and by the group's probe. `None`: neither can tell
    /// now.
    pub(crate) async fn is_dead(
        &self,
        ask: &Ask,
        waiter: &Waiter,
        settings: &GroupSettings,
        now: Time,
    ) -> Option<bool> {
        let signs = match waiter.process.as_deref().map(|process| self.heartbeats.of(&ask.group, process, now)) {
            Some(Liveness::Alive) => return Some(false),
            Some(Liveness::TooEarly) => return None,
            Some(Liveness::Dead) => Some(true),
            None => None,
        };
        match (signs, self.probe(ask, waiter, settings).await) {
            (_, Probed::Alive) => Some(false),
            (_, Probed::Dead) => Some(true),
            (_, Probed::Unknown) => None,
            (signs, Probed::NoProbe) => signs,
        }
    }

    async fn probe(&self, ask: &Ask, waiter: &Waiter, settings: &GroupSettings) -> Probed {
        match &settings.session.probe {
            None | Some(Means::Webhook(_)) => Probed::NoProbe,
            Some(Means::Docker(container)) => match (self.engine.look(container).await, &waiter.run) {
                (Ok(Container { running: false, .. }) | Err(EngineError::NoContainer(_)), _) => Probed::Dead,
                (Ok(Container { run, .. }), Some(asked)) if run == *asked => Probed::Alive,
                (Ok(container), None) if !container.began_after(waiter.asked_at) => Probed::Alive,
                (Ok(_), _) => Probed::Dead,
                (Err(error), _) => {
                    tracing::warn!(%error, "a session cannot be probed");
                    Probed::Unknown
                }
            },
            Some(Means::Command(argv)) => match run(&self.ctx, argv, ask, &[], b"", (PATIENCE, Overlong::Ends)).await {
                Ran::Ended(status) if status.success() => Probed::Alive,
                Ran::Ended(_) => Probed::Dead,
                Ran::Runs => {
                    tracing::warn!("a probe did not end within {} s", PATIENCE.as_secs());
                    Probed::Unknown
                }
                Ran::Not(error) => {
                    tracing::warn!(error, "a session cannot be probed");
                    Probed::Unknown
                }
            },
        }
    }

    /// Starts the agent with its briefing. After a crash the broker may call this twice for one ask.
    pub(crate) async fn start(&self, ask: &Ask, briefing: &[u8], settings: &GroupSettings) -> Tried {
        match &settings.session.start {
            None => Tried::Nothing,
            Some(Means::Docker(container)) => self.start_container(ask, container).await,
            Some(Means::Webhook(webhook)) => match webhook::start(&self.ctx, webhook, ask, briefing).await {
                Ok(()) => Tried::Started { accepted: true },
                Err(why) => Tried::Failed(why),
            },
            Some(Means::Command(argv)) => {
                match run(&self.ctx, argv, ask, &[], briefing, (STARTED_AFTER, Overlong::GoesOn)).await {
                    Ran::Runs => Tried::Started { accepted: true },
                    Ran::Ended(status) if status.success() => Tried::Started { accepted: true },
                    Ran::Ended(status) => Tried::Failed(format!("the start command ended with {status}")),
                    Ran::Not(error) => Tried::Failed(format!("the start command cannot be run: {error}")),
                }
            }
        }
    }

    async fn start_container(&self, ask: &Ask, container: &str) -> Tried {
        // Who was started between the timeout and the late answer does not know that answer.
        let known_at = ask.late_outcome().map_or(asked_at(ask), |(_, at)| at.max(asked_at(ask)));
        // Who was started for another session has read that session's briefing.
        let known_at = ask.briefed_after_another().map_or(known_at, |at| at.max(known_at));
        match self.since(known_at, container).await {
            Ok(Since::Started) => Tried::StartedBefore,
            Ok(Since::Runs) => Tried::Running,
            Ok(Since::Stopped) => match self.engine.start(container).await {
                Ok(()) => Tried::Started { accepted: false },
                Err(error) => Tried::Failed(error.to_string()),
            },
            Err(error) => Tried::Failed(error.to_string()),
        }
    }

    /// What happened to a container since then.
    async fn since(&self, then: Time, container: &str) -> Result<Since, EngineError> {
        let container = self.engine.look(container).await?;
        Ok(match container.running {
            true if container.began_after(then) => Since::Started,
            true => Since::Runs,
            false => Since::Stopped,
        })
    }

    /// Stops the session after a timeout; `false` if the settings do not say how. A session that is gone counts as stopped.
    pub(crate) async fn stop(&self, ask: &Ask, settings: &GroupSettings) -> Result<bool, String> {
        let Some(stop) = &settings.session.stop else { return Ok(false) };
        self.stop_by(stop, ask).await.map(|()| true)
    }

    async fn stop_by(&self, stop: &Means, ask: &Ask) -> Result<(), String> {
        match stop {
            Means::Docker(container) => {
                // A late try, or one more after a crash: an agent that was started since then is another one.
                if matches!(self.since(asked_at(ask), container).await, Ok(Since::Started)) {
                    return Ok(());
                }
                match self.engine.stop(container).await {
                    Ok(()) | Err(EngineError::NoContainer(_)) => Ok(()),
                    Err(error) => Err(error.to_string()),
                }
            }
            Means::Webhook(webhook) => webhook::stop(&self.ctx, webhook, ask, STOPPED_FOR).await,
            Means::Command(argv) => {
                let variables = [("ASKD_REASON", STOPPED_FOR)];
                let input = serde_json::json!({"ask_id": ask.id, "group": ask.group.folder(), "reason": STOPPED_FOR});
                let input = input.to_string();
                match run(&self.ctx, argv, ask, &variables, input.as_bytes(), (PATIENCE, Overlong::Ends)).await {
                    Ran::Ended(status) if status.success() => Ok(()),
                    Ran::Ended(status) => Err(format!("the stop command ended with {status}")),
                    Ran::Runs => Err(format!("the stop command did not end within {} s", PATIENCE.as_secs())),
                    Ran::Not(error) => Err(format!("the stop command cannot be run: {error}")),
                }
            }
        }
    }
}

/// When the agent asked, the last time.
fn asked_at(ask: &Ask) -> Time {
    ask.waiters.iter().map(|waiter| waiter.asked_at).max().unwrap_or(ask.created_at)
}

/// What happened to a container since some time.
enum Since {
    /// It was started anew, and runs.
    Started,
    /// It still runs.
    Runs,
    /// It does not run.
    Stopped,
}

/// What the group's probe says.
enum Probed {
    Alive,
    Dead,
    /// The probe failed.
    Unknown,
    /// The group has no probe.
    NoProbe,
}
