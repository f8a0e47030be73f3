//! The way from an agent to the daemon: the folder of its group, or HTTP. Commands and the MCP server ask and wait by it, and
//! do not see which of the two it is.

#[cfg(feature = "remote")]
use super::connection::Connection;
#[cfg(feature = "remote")]
use super::remote::{Call, RemoteWaiter};
use super::{AgentError, Folder, Look, Process, Waiter, find};
use crate::clock::Clock;
use crate::ipc::wire::{RequestFile, ResponseFile};
use crate::ipc::{response_name, taken_name};
use askd_core::RequestId;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How often to look at questions over HTTP: their tasks say at once what is new.
#[cfg(feature = "remote")]
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Where `ASKD_URL` leads, if no folder is `named`.
pub fn url(named: Option<&Path>, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>, AgentError> {
    let url = variable("ASKD_URL").filter(|url| named.is_none() && !url.is_empty());
    if url.is_some() && cfg!(not(feature = "remote")) {
        let mend = "this askd was built without HTTP (the feature remote); unset ASKD_URL to use a folder";
        return Err(AgentError::Settings(mend.to_owned()));
    }
    Ok(url)
}

/// How this process reaches the daemon.
#[derive(Debug)]
pub struct Way {
    clock: Clock,
    process: Arc<Process>,
    by: By,
}

#[derive(Debug)]
enum By {
    Folder {
        /// What the command line names.
        named: Option<PathBuf>,
        /// The folder of the last question.
        found: Option<Arc<Folder>>,
    },
    #[cfg(feature = "remote")]
    Http(Arc<Connection>, tokio::runtime::Handle),
}

impl Way {
    /// HTTP if `ASKD_URL` says where and no folder is `named`, else a folder. It is called inside of a runtime.
    pub fn new(
        named: Option<PathBuf>,
        variable: impl Fn(&str) -> Option<String>,
        clock: &Clock,
    ) -> Result<Self, AgentError> {
        let (clock, process) = (clock.clone(), Process::new(clock));
        let url = url(named.as_deref(), &variable)?;
        #[cfg(feature = "remote")]
        if let Some(url) = url {
            let connection = Arc::new(Connection::new(&url, variable, clock.clone())?);
            return Ok(Self { clock, process, by: By::Http(connection, tokio::runtime::Handle::current()) });
        }
        #[cfg(not(feature = "remote"))]
        drop(url);
        Ok(Self { clock, process, by: By::Folder { named, found: None } })
    }

    /// Asks. Each question looks for its folder anew: it may have been missing before, or been made again.
    pub fn ask(
        &mut self,
        request: RequestFile,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<OpenCall, AgentError> {
        match &mut self.by {
            By::Folder { named, found } => {
                let folder = match found.take().filter(|folder| folder.is_current()) {
                    Some(folder) => folder,
                    None => Arc::new(find(named.as_deref(), variable)?),
                };
                *found = Some(Arc::clone(&folder));
                Waiter::ask(folder, request, self.clock.clone(), &self.process)
                    .map(|waiter| OpenCall::File(Box::new(waiter)))
            }
            #[cfg(feature = "remote")]
            By::Http(connection, runtime) => connection.ask(request, runtime).map(OpenCall::Http),
        }
    }

    /// Over HTTP, the connection.
    #[cfg(feature = "remote")]
    pub fn connection(&self) -> Option<&Arc<Connection>> {
        match &self.by {
            By::Folder { .. } => None,
            By::Http(connection, _) => Some(connection),
        }
    }

    /// Whether it is HTTP.
    pub(super) fn is_remote(&self) -> bool {
        !matches!(self.by, By::Folder { .. })
    }

    /// How often to look without being woken. Over HTTP a task looks for each question.
    pub(super) fn look_every(&self) -> Duration {
        match &self.by {
            By::Folder { .. } => self.process.look_every(),
            #[cfg(feature = "remote")]
            By::Http(..) => LOOK_EVERY,
        }
    }

    /// What can be read as soon as a file may be new. [`Self::has_news`] reads it.
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.process.events()
    }

    pub(super) fn has_news(&self) -> bool {
        self.process.has_news()
    }

    /// The process goes, its questions stay: see [`Process::leave`].
    pub(super) fn leave(&self) {
        self.process.leave();
    }
}

/// One waiting call.
pub enum OpenCall {
    /// Through a folder.
    File(Box<Waiter>),
    /// Over HTTP.
    #[cfg(feature = "remote")]
    Http(RemoteWaiter),
}

impl OpenCall {
    /// Names the question.
    pub fn request_id(&self) -> &RequestId {
        match self {
            Self::File(waiter) => waiter.request_id(),
            #[cfg(feature = "remote")]
            Self::Http(waiter) => waiter.request_id(),
        }
    }

    /// Whether the daemon has taken the request.
    pub fn is_claimed(&self) -> bool {
        match self {
            Self::File(waiter) => waiter.is_claimed(),
            #[cfg(feature = "remote")]
            Self::Http(waiter) => waiter.is_claimed(),
        }
    }

    /// Whether the question stays without this process: a file waits for the daemon, HTTP has no such place.
    pub fn stays(&self) -> bool {
        matches!(self, Self::File(_)) || self.is_claimed()
    }

    /// How long a person still has, if the daemon has said so.
    pub fn left(&self) -> Option<Duration> {
        match self {
            Self::File(waiter) => waiter.left(),
            #[cfg(feature = "remote")]
            Self::Http(waiter) => waiter.left(),
        }
    }

    /// Shows the daemon that this process lives. Over HTTP the call in flight does.
    pub(super) fn show_life(&self) {
        match self {
            Self::File(waiter) => waiter.show_life(),
            #[cfg(feature = "remote")]
            Self::Http(_) => {}
        }
    }

    /// What there is now. An error ends the wait.
    pub(super) fn look(&self) -> Result<Look, AgentError> {
        match self {
            Self::File(waiter) => waiter.look(),
            #[cfg(feature = "remote")]
            Self::Http(waiter) => waiter.look(),
        }
    }

    /// Takes the response, if it is there.
    pub(super) fn take(&self) -> Result<Option<Taken>, AgentError> {
        match self {
            Self::File(waiter) => waiter.take(),
            #[cfg(feature = "remote")]
            Self::Http(waiter) => {
                Ok(waiter.take().map(|(response, call)| Taken { response, owed: Owed::Record(call) }))
            }
        }
    }

    /// Waits for the response and takes it.
    pub async fn wait(&self) -> Result<Taken, AgentError> {
        match self {
            Self::File(waiter) => waiter.wait().await,
            #[cfg(feature = "remote")]
            Self::Http(waiter) => loop {
                if waiter.look()? == Look::Ready
                    && let Some(taken) = self.take()?
                {
                    return Ok(taken);
                }
                waiter.woken().await;
            },
        }
    }

    /// Withdraws the request: takes it back (`true`), or tells the daemon that this call no longer waits.
    pub fn withdraw(&self) -> Result<bool, AgentError> {
        match self {
            Self::File(waiter) => waiter.withdraw(),
            #[cfg(feature = "remote")]
            Self::Http(waiter) => {
                waiter.withdraw();
                Ok(false)
            }
        }
    }

    /// Whether a question that this call has withdrawn will reach no person any more. In a folder its withdrawal waits for the
    /// daemon.
    pub fn is_withdrawn(&self) -> bool {
        match self {
            Self::File(_) => true,
            #[cfg(feature = "remote")]
            Self::Http(waiter) => waiter.is_withdrawn(),
        }
    }

    /// Whether the question was over before it was withdrawn, as far as a folder shows. Over HTTP the daemon says so.
    pub fn is_over(&self) -> bool {
        match self {
            Self::File(waiter) => waiter.is_over(),
            #[cfg(feature = "remote")]
            Self::Http(_) => false,
        }
    }

    /// Until the daemon knows what was taken.
    #[cfg_attr(
        not(feature = "remote"),
        expect(clippy::unused_async, reason = "only what goes over HTTP has to be waited for")
    )]
    pub async fn finish(&self) -> Result<(), AgentError> {
        match self {
            Self::File(_) => Ok(()),
            #[cfg(feature = "remote")]
            Self::Http(waiter) => waiter.finish().await,
        }
    }

    /// The process goes, the question stays.
    pub fn leave(&self) {
        match self {
            Self::File(waiter) => waiter.leave(),
            #[cfg(feature = "remote")]
            Self::Http(_) => {}
        }
    }
}

/// A response on its way to the caller.
#[derive(Debug)]
pub struct Taken {
    /// What came of the ask.
    pub response: ResponseFile,
    owed: Owed,
}

/// Where it lies until it is delivered.
#[derive(Debug)]
enum Owed {
    File(Arc<Folder>, RequestId),
    /// In the daemon's record.
    #[cfg(feature = "remote")]
    Record(Arc<Call>),
}

impl Taken {
    pub(super) fn file(response: ResponseFile, folder: Arc<Folder>, request_id: RequestId) -> Self {
        Self { response, owed: Owed::File(folder, request_id) }
    }

    /// It was delivered: nothing is left behind. Over HTTP the daemon is told in the background.
    pub fn done(self) -> io::Result<()> {
        match self.owed {
            Owed::File(folder, id) => folder.responses.remove(&taken_name(&id)).map(drop),
            #[cfg(feature = "remote")]
            Owed::Record(call) => {
                call.done();
                Ok(())
            }
        }
    }

    /// It could not be delivered: it waits again, as if it had not been taken. Says where.
    pub fn put_back(self) -> io::Result<&'static str> {
        match self.owed {
            Owed::File(folder, id) => folder
                .responses
                .rename(&taken_name(&id), &response_name(&id))
                .map(|()| "the response stays in responses/"),
            #[cfg(feature = "remote")]
            Owed::Record(_) => Ok("askd keeps it for the next call"),
        }
    }
}
