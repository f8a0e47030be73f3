//! One question through a daemon that lives only as long as the question.

use crate::agent::Way;
use crate::cli::{Exit, FAILED};
use crate::clock::Clock;
use crate::host::Daemon;
use crate::host::folders::Folders;
use crate::host::settings::{Settings, reachable};
use crate::ipc::wire::{Draft, DraftChoice, RequestFile};
use anyhow::Context as _;
use askd_core::Group;
use secrecy::ExposeSecret as _;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

/// How long a question that is interrupted has until it is withdrawn.
const WITHDRAWN: Duration = Duration::from_secs(5);

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) runtime: &'a Runtime,
    pub(super) stop: &'a CancellationToken,
}

/// A question with one option.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) text: &'a str,
    pub(super) option: &'a str,
    pub(super) context: &'a str,
}

impl Asked<'_> {
    /// Asks, and returns the id of the person who answered; `None` if another daemon holds the data folder. `before` is
    /// told the link to the inbox, and the question is asked after it.
    pub(super) fn ask(
        self,
        settings: Settings,
        group: &Group,
        question: &Question<'_>,
        before: impl FnOnce(&str) -> Result<(), Exit>,
    ) -> Result<Option<String>, Exit> {
        let Self { runtime, stop } = self;
        let clock = Clock::system();
        let ipc = settings.ipc_dir().join(group.as_str());
        let folders =
            Folders::open(settings.ipc_dir(), settings.access, clock.clone()).context("the agents' folders")?;
        folders.prepare(group).context("the agent's folders")?;
        let public = settings.http.public_url.clone();
        let daemon = match runtime.block_on(Daemon::open(settings, clock.clone())) {
            Err(error) if error.is_held() => return Ok(None),
            opened => opened.map_err(|error| Exit::new(FAILED, error))?,
        };
        let url = public.unwrap_or_else(|| format!("http://{}", reachable(daemon.address())));
        let link = format!("{url}/#token={}", daemon.token().expose_secret());
        let ends = CancellationToken::new();
        let running = runtime.spawn(daemon.run(ends.clone(), || ()));
        let answered = before(&link).and_then(|()| {
            runtime.block_on(async {
                let request = RequestFile {
                    questions: vec![Draft {
                        question: question.text.to_owned(),
                        options: Some(vec![DraftChoice::Label(question.option.to_owned())]),
                        custom: Some(false),
                        ..Draft::default()
                    }],
                    context: Some(question.context.to_owned()),
                    ..RequestFile::default()
                };
                let call = Way::new(Some(ipc), |_| None, &clock)?.ask(request, |_| None)?;
                tokio::select! {
                    taken = call.wait() => Ok(taken?),
                    () = stop.cancelled() => {
                        // The daemon closes the card before it ends, if it had the request.
                        if !call.withdraw()?
                            && let Some(Ok(taken)) = clock.timeout(WITHDRAWN, call.wait()).await
                        {
                            taken.done().context("cannot delete the response")?;
                        }
                        Err(Exit::new(FAILED, "interrupted; what was set up so far is kept"))
                    }
                }
            })
        });
        ends.cancel();
        let ended = runtime.block_on(running).context("the daemon")?;
        let taken = answered?;
        ended.map_err(|error| Exit::new(FAILED, error))?;
        let response = taken.response.clone();
        taken.done().context("cannot delete the response")?;
        match response.result.answered_by {
            Some(by) => Ok(Some(by.id)),
            None => {
                Err(Exit::new(FAILED, response.error.unwrap_or_else(|| "the question was not answered".to_owned())))
            }
        }
    }
}
