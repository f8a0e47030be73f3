//! The way from an agent to the daemon: the folder of its group, or HTTP. Commands and the MCP server ask and wait by it, and
//! do not see which of the two it is.

#[cfg(feature = "remote")]
use super::connection::Connection;
use super::process::Process;
#[cfg(feature = "remote")]
use super::remote::Call;
use super::waiter::{Look, Waiter};
use super::{AgentError, Folder, find};
use crate::clock::{Clock, Moment};
use crate::ipc::wire::{RequestFile, ResponseFile};
use crate::ipc::{response_name, taken_name};
use askd_core::RequestId;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
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
    pub(super) process: Arc<Process>,
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
    ) -> Result<Box<dyn OpenCall>, AgentError> {
        match &mut self.by {
            By::Folder { named, found } => {
                let folder = match found.take().filter(|folder| folder.is_current()) {
                    Some(folder) => folder,
                    None => Arc::new(find(named.as_deref(), variable)?),
                };
                *found = Some(Arc::clone(&folder));
                Ok(Box::new(Waiter::ask(folder, request, self.clock.clone(), &self.process)?))
            }
            #[cfg(feature = "remote")]
            By::Http(connection, runtime) => Ok(Box::new(connection.ask(request, runtime)?)),
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
}

/// Work of a call that its caller waits for.
pub(super) type Work<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One waiting call, through a folder or over HTTP.
pub trait OpenCall: Send + Sync {
    /// Names the question.
    fn request_id(&self) -> &RequestId;

    /// Whether the daemon has taken the request.
    fn is_claimed(&self) -> bool;

    /// Whether the question stays without this process: a file waits for the daemon, HTTP has no such place.
    fn stays(&self) -> bool {
        true
    }

    /// How long a person still has, if the daemon has said so.
    fn left(&self) -> Option<Duration>;

    /// Shows the daemon that this process lives. Over HTTP the call in flight does.
    fn show_life(&self) {}

    /// What there is now. An error ends the wait.
    fn look(&self) -> Result<Look, AgentError>;

    /// Takes the response, if it is there. It stays where the next call finds it until [`Taken::done`].
    fn take(&self) -> Result<Option<Taken>, AgentError>;

    /// Until it is worth another look, which is the last one at `give_up`.
    fn woken(&self, give_up: Moment) -> Work<'_, ()>;

    /// Withdraws the request: takes it back (`true`), or tells the daemon that this call no longer waits.
    fn withdraw(&self) -> Result<bool, AgentError>;

    /// Whether a question that this call has withdrawn will reach no person any more. In a folder its withdrawal waits for the
    /// daemon.
    fn is_withdrawn(&self) -> bool {
        true
    }

    /// Whether the question was over before it was withdrawn, as far as a folder shows. Over HTTP the daemon says so.
    fn is_over(&self) -> bool {
        false
    }

    /// Until the daemon knows what was taken.
    fn finish(&self) -> Work<'_, Result<(), AgentError>> {
        Box::pin(async { Ok(()) })
    }

    /// The process goes, the question stays.
    fn leave(&self) {}
}

impl dyn OpenCall + '_ {
    /// Waits for the response and takes it.
    pub async fn wait(&self) -> Result<Taken, AgentError> {
        loop {
            self.show_life();
            if let Look::Waiting(give_up) = self.look()? {
                self.woken(give_up).await;
            } else if let Some(taken) = self.take()? {
                return Ok(taken);
            }
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

    #[cfg(feature = "remote")]
    pub(super) fn recorded(response: ResponseFile, call: Arc<Call>) -> Self {
        Self { response, owed: Owed::Record(call) }
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
