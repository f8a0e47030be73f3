//! Disks in trouble while people answer: full, without inodes, read-only, failing, slow. The daemon has to say so, must
//! not lie about any answer, and has to go on by itself within ten seconds of the end of the trouble. Each trouble is
//! played twice: once the daemon goes on, once it is killed in the middle.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::agent::{Agent, lock, text};
use crate::daemon::{Daemon, TOKEN};
use crate::files;
use crate::history::{History, Reply, Verdict, label_of};

/// How long the trouble lasts, and how soon after it everything has to work again.
const TROUBLE: Duration = Duration::from_secs(2);
const RECOVERS: Duration = Duration::from_secs(10);
/// How soon what is over is filed: a look finds out within 5 s that an outcome was taken, and a flush files it within 5 s of that. No promise
/// waits for either, and the gate is played beside others: they get 5 s more.
const FILED: Duration = Duration::from_secs(15);
const SOON: Duration = Duration::from_secs(60);

/// What is wrong with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trouble {
    /// No space, or no inodes, on the disk of `state` or of the group's folder.
    Full(&'static str),
    NoInodes(&'static str),
    /// A disk that is read-only when the daemon starts. One that is in use cannot be remounted.
    ReadOnly,
    /// Calls on files fail, or take a second, as `ASKD_FAIL_CALL` and `ASKD_SLOW_CALL` have it.
    Fails(&'static str),
    Slow(&'static str),
}

const TROUBLES: [(&str, Trouble); 12] = [
    ("full", Trouble::Full("state")),
    ("no inodes", Trouble::NoInodes("state")),
    ("read-only", Trouble::ReadOnly),
    ("the group's disk full", Trouble::Full("ipc")),
    ("the group's disk without inodes", Trouble::NoInodes("ipc")),
    ("EIO of fsync", Trouble::Fails("fsync:1-:EIO")),
    ("EIO of fsync of folders", Trouble::Fails("fsync@folder:1-:EIO")),
    ("EIO of fsync of the journal", Trouble::Fails("fsync@journal:1-:EIO")),
    ("EIO of write", Trouble::Fails("write:1-:EIO")),
    ("EIO of rename", Trouble::Fails("renameat2:1-:EIO")),
    ("EIO of open", Trouble::Fails("openat2:1-:EIO")),
    ("fsync of 1 s", Trouble::Slow("fsync:1000")),
];

impl Trouble {
    /// The folder that needs a disk of its own.
    fn disk(self) -> Option<&'static str> {
        match self {
            Self::Full(folder) | Self::NoInodes(folder) => Some(folder),
            Self::ReadOnly => Some("state"),
            Self::Fails(_) | Self::Slow(_) => None,
        }
    }

    /// Whether the daemon cannot store anything.
    fn stores_nothing(self) -> bool {
        // The journal needs no folder to be synced, and no file to be renamed.
        !matches!(
            self,
            Self::Full("ipc")
                | Self::NoInodes("ipc")
                | Self::Slow(_)
                | Self::Fails("fsync@folder:1-:EIO" | "renameat2:1-:EIO")
        )
    }
}

/// A tmpfs, unmounted in the end.
struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _late = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

impl Disk {
    fn mount(at: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m,nr_inodes=300,mode=0700", "askd-gate"]).arg(at))?;
        Ok(Self(at.to_owned()))
    }

    fn remount(&self, how: &str) -> Result<(), String> {
        run(Command::new("mount").args(["-o", &format!("remount,{how}")]).arg(&self.0))
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

struct World {
    data: PathBuf,
    folder: PathBuf,
    daemon: Daemon,
    history: Mutex<History>,
    /// Labels whose sender was told that nothing was changed: they must not be the outcome.
    refused: Vec<(String, String)>,
    tries: usize,
    disk: Option<Disk>,
}

/// How many lives are played at a time. They mostly wait.
const AT_A_TIME: usize = 6;

/// Plays all troubles and judges.
pub(crate) async fn play(sabotage: Option<&'static str>) -> Result<Verdict, String> {
    let can_mount = rustix::process::geteuid().is_root();
    let (places, mut lives) = (Arc::new(Semaphore::new(AT_A_TIME)), tokio::task::JoinSet::new());
    for (name, trouble) in TROUBLES {
        if trouble.disk().is_some() && !can_mount {
            println!("SKIPPED disks, {name}: only root can mount a disk");
            continue;
        }
        for killed in [false, true] {
            if sabotage.is_some() && (name != "full" || !killed) || trouble == Trouble::ReadOnly && !killed {
                continue;
            }
            let places = Arc::clone(&places);
            lives.spawn(async move {
                let _place = places.acquire().await;
                (name, killed, one(trouble, killed, sabotage).await)
            });
        }
    }
    let (mut verdict, mut slowest, mut asked, mut played) = (Verdict::default(), Duration::ZERO, [0; 3], 0);
    while let Some(lived) = lives.join_next().await {
        let (name, killed, seen) = lived.map_err(|error| error.to_string())?;
        let Some((judged, recovered)) = seen.map_err(|error| format!("{name}: {error}"))? else {
            println!("SKIPPED disks, {name}, killed {killed}: it cannot be made here");
            continue;
        };
        played += 1;
        slowest = slowest.max(recovered);
        for (sum, count) in asked.iter_mut().zip(judged.counts()) {
            *sum += count;
        }
        verdict.also(&judged, &format!("{name}, killed {killed}"));
    }
    let sums = format!("{} asked, {} responses, {} calls won", asked[0], asked[1], asked[2]);
    let slowest = slowest.as_millis();
    verdict.note(format!("{played} lives, {sums}, all well {slowest} ms after the trouble at the latest"));
    Ok(verdict)
}

/// One life with a trouble in it. `None`: this machine cannot make the trouble.
async fn one(
    trouble: Trouble,
    killed: bool,
    sabotage: Option<&'static str>,
) -> Result<Option<(Verdict, Duration)>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (folder, mut verdict) = (folder.path(), Verdict::default());
    let data = folder.join("data");
    let disk = trouble.disk().map(|place| Disk::mount(&data.join(place))).transpose()?;
    let config = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{TOKEN}\"\n[groups.g]\nroutes = [{{ channel = \"web\" }}]\n",
        data.display()
    );
    files::write(&folder.join("askd.toml"), config.as_bytes()).map_err(|error| error.to_string())?;
    let daemon = Daemon::new(folder, sabotage)?;
    let mut world = World {
        data,
        folder: folder.to_owned(),
        daemon,
        history: Mutex::default(),
        refused: Vec::new(),
        tries: 0,
        disk,
    };
    let mut agent = Agent::new(&world.data, "g", false);
    world.start().await?;
    for _ in 0..4 {
        agent.ask(&world.history, |_| vec!["a way".to_owned()], true);
    }
    world.until(SOON, "four questions", async |world| world.daemon.open().await.len() == 4).await?;
    if trouble == Trouble::ReadOnly {
        world.daemon.kill().await;
    }
    if !world.begin(trouble)? {
        return Ok(None);
    }
    if trouble == Trouble::ReadOnly {
        // It says so and ends, for its supervisor to start it again.
        world.daemon.spawn().await?;
        if world.daemon.listening().await.is_ok() {
            verdict.found("untold", 1, "it starts on a read-only disk");
        }
    }
    let until = Instant::now() + TROUBLE;
    if trouble.disk() != Some("ipc") {
        for _ in 0..2 {
            agent.ask(&world.history, |_| vec!["a way".to_owned()], true);
        }
    }
    let mut told = false;
    while Instant::now() < until {
        world.answer_all(2, &mut agent).await;
        told |= world.ready().await.is_some_and(|(status, _)| status == 503);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    if trouble.stores_nothing() && trouble != Trouble::ReadOnly && !told && sabotage.is_none() {
        verdict.found("untold", 1, &format!("{trouble:?}: /readyz does not say that nothing can be stored"));
    }
    if killed {
        world.daemon.kill().await;
    }
    world.end(trouble)?;
    let ended = Instant::now();
    if killed {
        world.start().await?;
    }
    let recovered = world.recovers(ended, &mut agent).await;
    let took = recovered.as_ref().copied().unwrap_or_else(|_| ended.elapsed());
    if let Err(what) = recovered {
        verdict.found("stays broken", 1, &format!("{trouble:?}, killed {killed}: {what}"));
    }
    // What was stored is stored: a kill changes nothing.
    world.daemon.kill().await;
    world.start().await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    agent.take(&world.history);
    world.daemon.kill().await;
    for (request, label) in &world.refused {
        let history = lock(&world.history);
        if history.response_to(request).and_then(label_of) == Some(label.as_str()) {
            verdict.found("lies", 1, &format!("{trouble:?}: {request}: {label} was said to have changed nothing"));
        }
    }
    let mut judged = lock(&world.history).judge();
    judged.also(&verdict, "");
    if !judged.findings().is_empty() && sabotage.is_none() {
        crate::keep(&folder.join("log"));
    }
    Ok(Some((judged, took)))
}

impl World {
    async fn start(&self) -> Result<(), String> {
        let fail = self.folder.join("fail").display().to_string();
        let slow = self.folder.join("slow").display().to_string();
        self.daemon.spawn_with([("ASKD_FAIL_CALL", fail.as_str()), ("ASKD_SLOW_CALL", slow.as_str())]).await?;
        self.daemon.listening().await.map(drop)
    }

    /// Waits until everything is answered and taken, and then until it is filed. How long the first has taken since the trouble ended, or
    /// what does not come.
    async fn recovers(&mut self, ended: Instant, agent: &mut Agent) -> Result<Duration, String> {
        let (pending, tasks) = (self.data.join("state/pending_questions"), self.data.join("ipc/g/tasks"));
        let mut recovered = None;
        loop {
            self.answer_all(usize::MAX, agent).await;
            // A request that still lies there would be taken for a repeated one after a kill, and answered once more.
            let taken = agent.waiting() == 0 && !files::names(&tasks).iter().any(|name| name.contains(".json"));
            let ready = self.ready().await;
            if recovered.is_none() && taken && ready.as_ref().is_some_and(|(status, _)| *status == 200) {
                recovered = Some(ended.elapsed());
            }
            let unfiled = files::below(&pending);
            let limit = match recovered {
                Some(took) if unfiled == 0 => return Ok(took),
                Some(took) => took + FILED,
                None => RECOVERS,
            };
            if ended.elapsed() > limit {
                return Err(format!("{} wait, {ready:?}, {unfiled} not filed", agent.waiting()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn until(
        &self,
        at_most: Duration,
        what: &str,
        mut is_so: impl AsyncFnMut(&Self) -> bool,
    ) -> Result<(), String> {
        let began = Instant::now();
        while !is_so(self).await {
            if began.elapsed() > at_most {
                return Err(format!("waited too long for {what}"));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// False: this machine cannot do it.
    fn begin(&self, trouble: Trouble) -> Result<bool, String> {
        let say = |error: std::io::Error| error.to_string();
        match trouble {
            Trouble::Full(_) => self.fill(&vec![0; 1 << 16]),
            Trouble::NoInodes(_) => self.fill(&[]),
            Trouble::ReadOnly => return Ok(self.disk.as_ref().is_some_and(|disk| disk.remount("ro").is_ok())),
            Trouble::Fails(what) => self.trouble("fail", what).map_err(say)?,
            Trouble::Slow(what) => self.trouble("slow", what).map_err(say)?,
        }
        Ok(true)
    }

    fn trouble(&self, file: &str, what: &str) -> std::io::Result<()> {
        files::write(&self.folder.join("new"), what.as_bytes())?;
        std::fs::rename(self.folder.join("new"), self.folder.join(file))
    }

    /// Fills the disk with files of this content.
    fn fill(&self, bytes: &[u8]) {
        let Some(disk) = &self.disk else { return };
        let fill = |nth: usize| files::write(&disk.0.join(format!(".fill-{nth}")), bytes);
        // A file that did not get all its bytes stays, so that the last block is taken too.
        let _full = (0..10_000).find(|nth| fill(*nth).is_err());
    }

    fn end(&self, trouble: Trouble) -> Result<(), String> {
        match trouble {
            Trouble::Full(_) | Trouble::NoInodes(_) => {
                let Some(disk) = &self.disk else { return Ok(()) };
                for name in files::names(&disk.0).into_iter().filter(|name| name.starts_with(".fill-")) {
                    std::fs::remove_file(disk.0.join(name)).map_err(|error| error.to_string())?;
                }
            }
            Trouble::ReadOnly => {
                if let Some(disk) = &self.disk {
                    disk.remount("rw")?;
                }
            }
            Trouble::Fails(_) | Trouble::Slow(_) => {
                for file in ["fail", "slow"] {
                    let _not_there = std::fs::remove_file(self.folder.join(file));
                }
            }
        }
        Ok(())
    }

    async fn ready(&self) -> Option<(u16, String)> {
        self.daemon.get("/readyz").await
    }

    /// Answers open questions, at most so many, and takes what has come.
    async fn answer_all(&mut self, at_most: usize, agent: &mut Agent) {
        let open = self.daemon.open().await;
        for ask in open.iter().take(at_most) {
            let (Some(id), Some(request)) = (ask["id"].as_str(), ask["request_id"].as_str()) else { continue };
            // Each try has words of its own, so that the outcome tells which try it was.
            self.tries += 1;
            let label = format!("try {}", self.tries);
            let body = json!({"answers": { (text(request)): label }});
            let began = Instant::now();
            let answer = self.daemon.call(&format!("/asks/{id}/answer"), Some(&body)).await;
            let unchanged =
                |said: &Value| said["detail"].as_str().is_some_and(|detail| detail.contains("nothing was changed"));
            let reply = match answer {
                Some((200, _)) => Reply::Won,
                Some((409, _)) => Reply::Ended,
                Some((503, said)) if unchanged(&said) => {
                    self.refused.push((request.to_owned(), label.clone()));
                    Reply::Unknown
                }
                _ => Reply::Unknown,
            };
            lock(&self.history).attempt(request, ("api", "operator"), &label, began, reply);
        }
        agent.take(&self.history);
    }
}
