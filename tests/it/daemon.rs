//! The daemon of a story: within this process on a clock that the story can move, or as a process of its own. The
//! world that holds it says which; everything that starts, ends or waits for a daemon is here.

use askd::testing::{Clock, Hand, Settings};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;

/// Where nobody listens. A port that was free a moment ago may be another story's by now.
pub(crate) const NOBODY: &str = "127.0.0.1:1";
/// How long something that needs no time may take on a busy machine. Only a story that fails waits so long.
pub(crate) const SOON: Duration = Duration::from_secs(45);
/// The shortest time that a question may wait for its answer.
pub(crate) const SHORTEST: Duration = Duration::from_secs(10);
/// How far one step moves the clock while the story waits. It is less than any time limit of a call.
const STEP: Duration = Duration::from_secs(1);
/// How long the clock is not moved: what needs no time comes within this.
const GRACE: Duration = Duration::from_millis(250);
/// A daemon that has done nothing for this long waits for its clock, for a person or for a disk.
const IDLE: Duration = Duration::from_millis(25);
/// How long a jump of the clock waits for a daemon that is not idle.
const BUSY: Duration = Duration::from_secs(2);

/// What a daemon calls: a stand-in of a chat platform with a clock of its own, or a database.
pub(crate) trait Beside {
    /// Where to ask whether it has read all that was sent to it.
    fn url(&self) -> Option<String>;
    /// Whether it does nothing that the daemon waits for, as far as can be seen from outside.
    fn is_idle(&self) -> bool {
        true
    }
    /// Moves its clock.
    fn advance(&self, by: Duration);
}

impl Beside for askd_sim::slack::Slack {
    fn url(&self) -> Option<String> {
        Some(self.url().to_owned())
    }

    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

impl Beside for askd_sim::whatsapp::Whatsapp {
    fn url(&self) -> Option<String> {
        Some(self.url())
    }

    fn advance(&self, by: Duration) {
        self.advance(by);
    }
}

/// Returns when the stand-in has answered a call: it has read whatever lay there before.
async fn round_trip(url: &str) {
    let address = url.trim_start_matches("http://");
    let Ok(mut line) = TcpStream::connect(address).await else { return };
    let call = format!("GET /nothing HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    if line.write_all(call.as_bytes()).await.is_ok() {
        let _end = line.read_to_end(&mut Vec::new()).await;
    }
}

/// The binary under test, without anything from this machine's environment.
pub(crate) fn askd() -> Command {
    without_environment(env!("CARGO_BIN_EXE_askd").as_ref())
}

/// The same for any binary of askd.
pub(crate) fn without_environment(binary: &std::path::Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars() {
        if name.starts_with("ASKD") || name.starts_with("ASK_USER") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// How many daemons were started in this process: each has a name for its threads.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A daemon that was started.
pub(crate) struct Daemon {
    life: Life,
    /// Receives where it listens; nothing comes if it ends first.
    listens: Mutex<Receiver<SocketAddr>>,
}

enum Life {
    Here(Here),
    Process(Child),
}

/// A daemon within this process.
struct Here {
    /// `None` only while it is dropped.
    runtime: Option<Runtime>,
    /// What its threads are called.
    threads: String,
    hand: Hand,
    stop: CancellationToken,
    ended: Mutex<Receiver<bool>>,
    others: Others,
}

/// What runs here and is another's: each is looked at once.
#[derive(Debug, Default)]
pub(crate) struct Others(Mutex<HashSet<OsString>>);

impl Others {
    /// Whether all that this folder of `/proc` lists is idle, as `is_idle` says of each by its own folder; `None`: it is
    /// another's for good.
    pub(crate) fn all_idle(&self, folder: &str, is_idle: impl Fn(&Path) -> Option<bool>) -> bool {
        let mut others = self.0.lock().unwrap();
        let listed = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
        let left: Vec<OsString> = listed.filter(|name| !others.contains(name)).collect();
        left.into_iter().all(|name| {
            is_idle(&Path::new(folder).join(&name)).unwrap_or_else(|| {
                others.insert(name);
                true
            })
        })
    }
}

impl Here {
    /// Whether no thread of it works or waits for a disk.
    fn sleeps(&self) -> bool {
        self.others.all_idle("/proc/self/task", |task| {
            let Ok(stat) = fs::read_to_string(task.join("stat")) else { return Some(true) };
            let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") ")).unwrap_or_default();
            let part = name.strip_prefix(self.threads.as_str())?;
            (part.is_empty() || part.starts_with('-')).then(|| rest.starts_with('S'))
        })
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // Its threads end only when they are told to; a watch that stays uses up what the kernel has of them for a user.
        self.stop.cancel();
        let runtime = self.runtime.take();
        // A runtime must not be waited for on a thread of another one. The folder is removed after this.
        let over = std::thread::spawn(move || runtime.map(|runtime| runtime.shutdown_timeout(Duration::from_secs(1))));
        let _ended = over.join();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Life::Process(child) = &mut self.life {
            let _gone = child.kill();
            let _ended = child.wait();
        }
    }
}

/// Where a daemon's log goes: the same file over all its starts.
fn log_file(path: &Path) -> fs::File {
    fs::File::options().create(true).append(true).open(path).unwrap()
}

impl Daemon {
    /// Starts a process with this command.
    pub(crate) fn process(mut command: Command, log: &Path) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log_file(log));
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (tell, listens) = channel();
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let address = line.strip_prefix("Inbox: ").and_then(|line| line.split('/').nth(2)?.parse().ok());
                address.map(|address| tell.send(address));
            }
        });
        Self { life: Life::Process(child), listens: Mutex::new(listens) }
    }

    /// Starts one within this process with these settings.
    pub(crate) fn with(settings: Settings, log: &Path) -> Self {
        let filter: Targets = settings.log.filter.parse().unwrap();
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_target(false);
        let lines = lines.with_writer(Mutex::new(log_file(log)));
        let threads = format!("story-{}", STARTED.fetch_add(1, Ordering::Relaxed));
        let dispatch = tracing::Dispatch::new(tracing_subscriber::registry().with(filter).with(lines));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name(&threads)
            .enable_all()
            // All threads of this daemon log to its file for as long as they live.
            .on_thread_start(move || std::mem::forget(tracing::dispatcher::set_default(&dispatch)))
            .build()
            .unwrap();
        let ((clock, hand), stop) = (Clock::running_by_hand(), CancellationToken::new());
        let ((tell, listens), (over, ended)) = (channel(), channel());
        let served = Box::pin(serve(settings, clock, tell, stop.clone()));
        runtime.spawn(async move { over.send(served.await) });
        let here =
            Here { runtime: Some(runtime), threads, hand, stop, ended: Mutex::new(ended), others: Others::default() };
        Self { life: Life::Here(here), listens: Mutex::new(listens) }
    }

    /// Where it listens, or how it ended instead, once it is known. Other tasks of the story go on meanwhile.
    pub(crate) async fn listening(&mut self) -> Result<SocketAddr, ExitStatus> {
        let until = Instant::now() + SOON;
        loop {
            if let Ok(address) = self.listens.get_mut().unwrap().try_recv() {
                return Ok(address);
            }
            if let Some(status) = self.ended() {
                return Err(status);
            }
            assert!(Instant::now() < until, "the daemon neither listens nor ends");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until it listens; `None` if it ended instead.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listens.lock().unwrap().recv_timeout(SOON * 2).ok()
    }

    /// Lets time pass: at once where the clock can be moved.
    fn later(&self, by: Duration, beside: &[&dyn Beside]) {
        for called in beside {
            called.advance(by);
        }
        match &self.life {
            Life::Here(here) => here.hand.advance(by),
            Life::Process(_) => std::thread::sleep(by),
        }
    }

    /// Moves its clock.
    pub(crate) fn hand(&self) -> &Hand {
        match &self.life {
            Life::Here(here) => &here.hand,
            Life::Process(_) => panic!("nobody moves the clock of the real binary"),
        }
    }

    /// What its workers have done so far, if all of them wait for something, and no thread of it works or waits for a
    /// disk.
    fn parked(&self) -> Option<Vec<u64>> {
        let Life::Here(here) = &self.life else { return None };
        let metrics = here.runtime.as_ref()?.metrics();
        let counts = (0..metrics.num_workers()).map(|worker| metrics.worker_park_unpark_count(worker));
        // A worker whose count is odd waits.
        let counts: Vec<u64> = counts.collect();
        (counts.iter().all(|count| count % 2 == 1) && here.sleeps()).then_some(counts)
    }

    /// Lets time pass until `look` finds something, at most `at_most` of it. It only passes while the daemon is idle.
    pub(crate) async fn passes<T>(
        &self,
        at_most: Duration,
        what: &str,
        mut look: impl FnMut() -> Option<T>,
        beside: &[&dyn Beside],
    ) -> T {
        let (mut passed, began) = (Duration::ZERO, Instant::now());
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(passed <= at_most && began.elapsed() < at_most + SOON, "{what} did not come in {at_most:?}");
            if began.elapsed() < GRACE {
                tokio::time::sleep(Duration::from_millis(5)).await;
            } else {
                passed += self.step(beside).await;
            }
        }
    }

    /// Waits a moment; if the daemon is idle all the while, moves its clock a step. Returns how much time passed.
    pub(crate) async fn step(&self, beside: &[&dyn Beside]) -> Duration {
        if !self.idle(beside).await {
            return IDLE;
        }
        self.later(STEP, beside);
        IDLE + STEP
    }

    /// Lets time pass once nothing is on its way: a jump of the clock is the end of whatever is half done. A daemon
    /// that is busy for `BUSY` is busy for good.
    pub(crate) async fn time_passes(&self, by: Duration, beside: &[&dyn Beside]) {
        let began = Instant::now();
        while matches!(self.life, Life::Here(_)) && !self.idle(beside).await && began.elapsed() < BUSY {}
        self.later(by, beside);
    }

    /// Whether it does nothing for a moment.
    async fn idle(&self, beside: &[&dyn Beside]) -> bool {
        let before = self.parked();
        // On a busy machine the daemon may wait for a call that the stand-in has not read yet.
        for url in beside.iter().filter_map(|called| called.url()) {
            round_trip(&url).await;
        }
        tokio::time::sleep(IDLE).await;
        before.is_some() && beside.iter().all(|called| called.is_idle()) && self.parked() == before
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child().id()
    }

    fn child(&self) -> &Child {
        match &self.life {
            Life::Process(child) => child,
            Life::Here(_) => panic!("a story about a process needs the real binary: see `World::process`"),
        }
    }

    /// Ends it as `kill -9` does.
    pub(crate) fn kill(self) {
        let _process = self.child();
        drop(self);
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = i32::try_from(self.pid()).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Tells it to stop as SIGTERM does.
    pub(crate) fn tell_to_stop(&self) {
        match &self.life {
            Life::Here(here) => here.stop.cancel(),
            Life::Process(_) => self.signal(rustix::process::Signal::TERM),
        }
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.life {
            Life::Here(here) => {
                let well = here.ended.get_mut().unwrap().try_recv().ok()?;
                Some(ExitStatus::from_raw(i32::from(!well) << 8))
            }
            Life::Process(child) => child.try_wait().unwrap(),
        }
    }

    /// Waits until it has ended by itself.
    pub(crate) fn end(mut self) -> ExitStatus {
        let until = Instant::now() + SOON;
        loop {
            if let Some(status) = self.ended() {
                return status;
            }
            assert!(Instant::now() < until, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// What `askd serve` does once it has read its settings. Returns whether it ended well.
async fn serve(settings: Settings, clock: Clock, listens: Sender<SocketAddr>, stop: CancellationToken) -> bool {
    // As the binary does; stories of one process share it.
    let _chosen = rustls::crypto::ring::default_provider().install_default();
    let until = Instant::now() + SOON;
    let daemon = loop {
        match askd::testing::Daemon::open(settings.clone(), clock.clone()).await {
            Ok(daemon) => break daemon,
            // Between fork and exec, a process that another story starts holds all that is open here, locks too.
            Err(error) if error.is_held() && Instant::now() < until => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => {
                tracing::error!(%error, "the daemon does not start");
                return false;
            }
        }
    };
    let address = daemon.address();
    let ready = || {
        tracing::info!("askd is ready");
        let _unheard = listens.send(address);
        drop(listens);
    };
    daemon.run(stop, ready).await.inspect_err(|error| tracing::error!(%error, "the daemon ends")).is_ok()
}
