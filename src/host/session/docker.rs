//! The Docker Engine, as far as a session needs it: look at a container, start it, stop it. Errors are
//! sentences that say what to mend.
//!
//! It creates and removes nothing, and knows no group: which container belongs to which agent stands in the
//! settings. What the Engine tells about a container is never logged: its environment holds secrets.

use crate::clock::Clock;
use askd_core::Time;
use bollard::errors::Error as BollardError;
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{InspectContainerOptions, StartContainerOptions, StopContainerOptions};
use bollard::{API_DEFAULT_VERSION, Docker};
use std::error::Error as StdError;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a call may take.
const CALL: Duration = Duration::from_secs(10);
/// How long stopping may take: the container has a while to end by itself.
const STOP: Duration = Duration::from_secs(30);
/// How long a container has between SIGTERM and SIGKILL, in seconds.
const GRACE: i32 = 10;
/// Where the Engine listens if `DOCKER_HOST` says nothing.
const SOCKET: &str = "/var/run/docker.sock";

/// The Engine, connected anew for each call so that an Engine that comes back is found.
#[derive(Debug, Clone)]
pub struct Engine {
    /// Where it listens, or why that cannot be used.
    socket: Result<PathBuf, String>,
    clock: Clock,
}

/// What the Engine says of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// `<full id>@<StartedAt>`: one run of it.
    pub run: String,
    /// Whether it runs now (a paused one does).
    pub running: bool,
    /// When it was last started; `None`: never.
    pub started_at: Option<Time>,
}

/// The Engine notes a start only when the container's first process runs already, and that may ask at once.
const NOTED_WITHIN: Duration = Duration::from_secs(1);

impl Container {
    /// Whether its last run began after that.
    pub(super) fn began_after(&self, then: Time) -> bool {
        self.started_at.is_some_and(|at| at > then + NOTED_WITHIN)
    }
}

/// Why the Engine did not do what was asked, as a sentence for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// It cannot be reached, or does not answer in time: askd cannot know whether it was done.
    #[error("{0}")]
    Away(String),
    /// It knows no such container.
    #[error("{0}")]
    NoContainer(String),
    /// It said no.
    #[error("{0}")]
    Refused(String),
}

impl Engine {
    /// The Engine at this `DOCKER_HOST`, else at its usual socket. Connects to nothing yet.
    pub fn new(host: Option<&str>, clock: Clock) -> Self {
        let host = host.map(str::trim).filter(|host| !host.is_empty());
        let socket = match host {
            None => Ok(PathBuf::from(SOCKET)),
            Some(host) => match host.strip_prefix("unix://") {
                Some(path) if path.starts_with('/') => Ok(PathBuf::from(path)),
                // The address itself is not repeated: it could hold a password.
                _ => Err("DOCKER_HOST is not the address of a Unix socket, and askd talks to no other. Set it to \
                          unix:///var/run/docker.sock, or unset it"
                    .to_owned()),
            },
        };
        Self { socket, clock }
    }

    /// How a container is.
    pub async fn look(&self, container: &str) -> Result<Container, EngineError> {
        let docker = self.connect(container)?;
        let looking = docker.inspect_container(container, None::<InspectContainerOptions>);
        let told = self.within(CALL, container, "look at", looking).await?;
        read(told).ok_or_else(|| EngineError::Refused(format!("the Docker Engine does not say how {container:?} is")))
    }

    /// Starts a container. One that runs already is as good.
    pub async fn start(&self, container: &str) -> Result<(), EngineError> {
        let docker = self.connect(container)?;
        let starting = docker.start_container(container, None::<StartContainerOptions>);
        self.within(CALL, container, "start", starting).await
    }

    /// Stops a container, with ten seconds to end by itself. One that is stopped already is as good.
    pub async fn stop(&self, container: &str) -> Result<(), EngineError> {
        let docker = self.connect(container)?;
        let grace = StopContainerOptions { signal: None, t: Some(GRACE) };
        let stopping = docker.stop_container(container, Some(grace));
        self.within(STOP, container, "stop", stopping).await
    }

    fn connect(&self, container: &str) -> Result<Docker, EngineError> {
        if !is_name(container) {
            return Err(EngineError::NoContainer(format!(
                "{container:?} is not a container name; use letters, digits, _, . and -. `docker ps -a` lists the names"
            )));
        }
        let socket = self.socket.as_ref().map_err(|why| EngineError::Away(why.clone()))?;
        // Bollard takes any trouble with the path for a missing file.
        std::fs::metadata(socket).map_err(|error| away(socket, &error))?;
        let path = socket.to_string_lossy();
        // Its own limit stands behind ours, and is never the first.
        Docker::connect_with_unix(&path, 2 * STOP.as_secs(), API_DEFAULT_VERSION)
            .map_err(|error| self.explain(&error, container, "reach"))
    }

    async fn within<T>(
        &self,
        limit: Duration,
        container: &str,
        what: &str,
        call: impl Future<Output = Result<T, BollardError>>,
    ) -> Result<T, EngineError> {
        match self.clock.timeout(limit, Box::pin(call)).await {
            Some(done) => done.map_err(|error| self.explain(&error, container, what)),
            None => Err(EngineError::Away(format!(
                "the Docker Engine did not answer within {} s when told to {what} {container:?}; see whether \
                 `docker ps` answers",
                limit.as_secs()
            ))),
        }
    }

    fn explain(&self, error: &BollardError, container: &str, what: &str) -> EngineError {
        match error {
            // A start whose network is gone is a 404 as well.
            BollardError::DockerResponseServerError { status_code: 404, message }
                if message.is_empty() || message.to_ascii_lowercase().contains("no such container") =>
            {
                EngineError::NoContainer(format!(
                    "there is no container {container:?}; `docker ps -a` lists those there are, `docker create` makes one"
                ))
            }
            BollardError::DockerResponseServerError { status_code, message } => {
                let message = one_line(message);
                EngineError::Refused(format!(
                    "the Docker Engine would not {what} {container:?}: {}",
                    if message.is_empty() { format!("status {status_code}") } else { message }
                ))
            }
            // What could not be read is not repeated: it may hold the container's environment.
            BollardError::JsonDataError { .. } | BollardError::JsonSerdeError { .. } => EngineError::Refused(format!(
                "what the Docker Engine says of {container:?} cannot be read; is it Docker 20.10 or newer?"
            )),
            other => match (&self.socket, io_cause(other)) {
                (Ok(socket), Some(error)) => away(socket, error),
                _ => EngineError::Away("the Docker Engine closed the connection; it may be restarting".to_owned()),
            },
        }
    }
}

/// What the Engine accepts as a name or id, so that nothing else gets into the path of a call.
fn is_name(container: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    container.starts_with(|c: char| c.is_ascii_alphanumeric()) && container.chars().all(inner)
}

fn read(told: ContainerInspectResponse) -> Option<Container> {
    let state = told.state?;
    let started = state.started_at.unwrap_or_default();
    Some(Container {
        run: format!("{}@{started}", told.id?),
        running: state.running?,
        // A container that was never started has the year 1.
        started_at: started.parse().ok().filter(|time: &Time| *time > Time::default()),
    })
}

/// The Engine's message, short and without line breaks.
fn one_line(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    words.join(" ").chars().take(300).collect()
}

fn io_cause(error: &BollardError) -> Option<&io::Error> {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<io::Error>() {
            return Some(found);
        }
        cause = error.source();
    }
    None
}

fn away(socket: &Path, error: &io::Error) -> EngineError {
    let socket = socket.display();
    EngineError::Away(match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no Docker Engine at {socket}: start it, or set DOCKER_HOST=unix:///its/socket; where askd \
             runs in a container, mount the socket there"
        ),
        io::ErrorKind::PermissionDenied => format!(
            "askd may not use {socket}: let its user into the socket's group (usermod -aG docker <user>; in a \
             container --group-add with the number that `stat -c %g {socket}` prints on the host)"
        ),
        io::ErrorKind::ConnectionRefused => {
            format!("nothing listens on {socket}: start the Docker Engine (systemctl start docker)")
        }
        _ => format!("the Docker Engine at {socket} cannot be reached: {error}"),
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::disallowed_methods, reason = "the Engine of the tests lives as long as they do")]

    use super::*;
    use parking_lot::Mutex;
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::Arc;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{UnixListener, UnixStream};

    const ID: &str = "4fa6e0f0c6786287e131c3852c58a2e01cc697a68231826813597e4994f1d6e2";

    /// An Engine that answers every call the same; `None`: never.
    struct Fake {
        dir: TempDir,
        calls: Arc<Mutex<Vec<String>>>,
    }

    impl Fake {
        fn new(answer: Option<String>) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let listener = UnixListener::bind(dir.path().join("docker.sock")).unwrap();
            let calls = Arc::new(Mutex::new(Vec::new()));
            let kept = Arc::clone(&calls);
            tokio::spawn(async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    tokio::spawn(serve(stream, answer.clone(), Arc::clone(&kept)));
                }
            });
            Self { dir, calls }
        }

        fn says(status: &str, body: &str) -> Self {
            let length = body.len();
            Self::new(Some(format!(
                "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            )))
        }

        /// With a body of no length for those statuses that have none.
        fn nods(status: &str) -> Self {
            Self::new(Some(format!("HTTP/1.1 {status}\r\n\r\n")))
        }

        fn engine(&self) -> Engine {
            Engine::new(Some(&format!("unix://{}", self.dir.path().join("docker.sock").display())), Clock::of_tokio())
        }

        fn calls(&self) -> Vec<String> {
            self.calls.lock().clone()
        }
    }

    async fn serve(mut stream: UnixStream, answer: Option<String>, calls: Arc<Mutex<Vec<String>>>) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap();
        calls.lock().push(head.lines().next().unwrap().to_owned());
        match answer {
            Some(answer) => stream.write_all(answer.as_bytes()).await.unwrap(),
            None => std::future::pending().await,
        }
    }

    fn inspected(state: &str) -> String {
        // As an Engine tells it: more than is read, and secrets beside it.
        format!(
            r#"{{"Id": "{ID}", "Created": "2026-11-20T09:00:00.1Z", "Name": "/agent", "State": {state},
                "Config": {{"Env": ["API_KEY=marked-secret"], "Image": "agent:1"}}, "Platform": "linux"}}"#
        )
    }

    #[tokio::test]
    async fn a_running_container_is_one_run_of_it() {
        let state =
            r#"{"Status": "running", "Running": true, "Pid": 7, "StartedAt": "2026-11-20T10:00:00.123456789Z"}"#;
        let fake = Fake::says("200 OK", &inspected(state));
        let container = fake.engine().look("agent-research").await.unwrap();
        assert_eq!(container.run, format!("{ID}@2026-11-20T10:00:00.123456789Z"));
        assert!(container.running);
        assert_eq!(container.started_at, "2026-11-20T10:00:00.123Z".parse().ok());
        assert_eq!(fake.calls(), ["GET /containers/agent-research/json HTTP/1.1"]);
    }

    #[tokio::test]
    async fn one_that_ended_or_never_ran_does_not_run() {
        let state = r#"{"Status": "exited", "Running": false, "ExitCode": 137, "OOMKilled": true,
                        "StartedAt": "2026-11-20T10:00:00Z", "FinishedAt": "2026-11-20T10:05:00Z"}"#;
        let container = Fake::says("200 OK", &inspected(state)).engine().look("agent").await.unwrap();
        assert!(!container.running && container.started_at.is_some());
        let state = r#"{"Status": "created", "Running": false, "StartedAt": "0001-01-01T00:00:00Z"}"#;
        let container = Fake::says("200 OK", &inspected(state)).engine().look("agent").await.unwrap();
        assert_eq!((container.running, container.started_at), (false, None));
    }

    #[tokio::test]
    async fn started_and_stopped_twice_is_as_good_as_once() {
        for status in ["204 No Content", "304 Not Modified"] {
            let fake = Fake::nods(status);
            fake.engine().start("agent").await.unwrap();
            fake.engine().stop("agent").await.unwrap();
            assert_eq!(
                fake.calls(),
                ["POST /containers/agent/start HTTP/1.1", "POST /containers/agent/stop?t=10 HTTP/1.1"]
            );
        }
    }

    #[tokio::test]
    async fn a_container_that_is_not_there_is_told_apart_from_a_refusal() {
        let fake = Fake::says("404 Not Found", r#"{"message": "No such container: agent"}"#);
        let EngineError::NoContainer(text) = fake.engine().start("agent").await.unwrap_err() else { panic!() };
        assert!(text.contains("\"agent\"") && text.contains("docker ps -a"), "{text}");
        let fake = Fake::says("404 Not Found", r#"{"message": "network a1b2 not found"}"#);
        let EngineError::Refused(text) = fake.engine().start("agent").await.unwrap_err() else { panic!() };
        assert!(text.contains("network a1b2 not found"), "{text}");
    }

    #[tokio::test]
    async fn a_refusal_is_told_in_the_engines_words() {
        let fake = Fake::says("500 Internal Server Error", "{\"message\": \"driver failed:\\n port is allocated\"}");
        let error = fake.engine().start("agent").await.unwrap_err();
        let wanted = "the Docker Engine would not start \"agent\": driver failed: port is allocated";
        assert_eq!(error, EngineError::Refused(wanted.to_owned()));
        let error = Fake::says("503 Service Unavailable", "").engine().stop("agent").await.unwrap_err();
        assert!(error.to_string().ends_with("status 503"), "{error}");
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_refused_and_not_repeated() {
        for body in [inspected("{\"Running\": \"marked-secret\"}"), inspected("{}"), "marked-secret".to_owned()] {
            let error = Fake::says("200 OK", &body).engine().look("agent").await.unwrap_err();
            assert!(matches!(error, EngineError::Refused(_)), "{error}");
            assert!(!error.to_string().contains("marked"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_engine_that_hangs_is_away() {
        let fake = Fake::new(None);
        let (engine, clock) = (fake.engine(), Clock::of_tokio());
        let before = clock.monotonic();
        let error = engine.look("agent").await.unwrap_err();
        assert!(matches!(&error, EngineError::Away(text) if text.contains("within 10 s")), "{error}");
        assert_eq!(clock.monotonic().since(before).as_secs(), 10);
        let error = engine.stop("agent").await.unwrap_err();
        assert!(matches!(&error, EngineError::Away(text) if text.contains("within 30 s")), "{error}");
    }

    #[tokio::test]
    async fn an_engine_that_breaks_off_is_away() {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"Id\"";
        for answer in [answer, "", "SSH-2.0-OpenSSH\r\n"] {
            let error = Fake::new(Some(answer.to_owned())).engine().look("agent").await.unwrap_err();
            assert!(matches!(error, EngineError::Away(_)), "{error}");
        }
    }

    #[tokio::test]
    async fn a_socket_that_does_not_work_is_told_with_what_mends_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("docker.sock");
        let engine = Engine::new(Some(&format!("unix://{}", path.display())), Clock::of_tokio());
        let away = async || match engine.look("agent").await.unwrap_err() {
            EngineError::Away(text) => text,
            other => panic!("{other}"),
        };
        assert!(away().await.contains("mount the socket there"));
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(away().await.contains("nothing listens"));
        // An Engine that comes back is found by the same value.
        std::fs::remove_file(&path).unwrap();
        let listener = UnixListener::bind(&path).unwrap();
        let (looked, ()) = tokio::join!(engine.start("agent"), async {
            let (stream, _) = listener.accept().await.unwrap();
            serve(stream, Some("HTTP/1.1 204 No Content\r\n\r\n".to_owned()), Arc::default()).await;
        });
        looked.unwrap();
        if rustix::process::geteuid().is_root() {
            // To root nothing is closed; the sentence itself:
            let error = super::away(&path, &io::ErrorKind::PermissionDenied.into()).to_string();
            assert!(error.contains("usermod -aG docker"), "{error}");
        } else {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o000)).unwrap();
            assert!(away().await.contains("usermod -aG docker"));
        }
    }

    #[tokio::test]
    async fn nothing_but_a_name_gets_into_a_call() {
        let fake = Fake::nods("204 No Content");
        for bad in ["", "a/b", "../images/x", "a?t=0", "a b", "-a", "a\r\nb", "ä"] {
            let error = fake.engine().stop(bad).await.unwrap_err();
            assert!(matches!(error, EngineError::NoContainer(_)), "{bad:?}: {error}");
        }
        assert!(fake.calls().is_empty());
        for good in ["agent-research", "a", "0_b.c", ID] {
            fake.engine().start(good).await.unwrap();
        }
    }

    #[tokio::test]
    async fn only_a_unix_socket_is_taken_from_the_environment() {
        assert_eq!(Engine::new(None, Clock::of_tokio()).socket, Ok(PathBuf::from(SOCKET)));
        assert_eq!(Engine::new(Some(" "), Clock::of_tokio()).socket, Ok(PathBuf::from(SOCKET)));
        assert_eq!(
            Engine::new(Some("unix:///run/podman.sock"), Clock::of_tokio()).socket,
            Ok(PathBuf::from("/run/podman.sock"))
        );
        for bad in ["tcp://user:marked@10.0.0.1:2376", "ssh://host", "unix://relative", "/bare"] {
            let error = Engine::new(Some(bad), Clock::of_tokio()).look("agent").await.unwrap_err();
            assert!(matches!(&error, EngineError::Away(text) if text.contains("DOCKER_HOST")), "{error}");
            assert!(!error.to_string().contains("marked"));
        }
    }
}
