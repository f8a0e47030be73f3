//! Clocks that are set in every direction, or run too fast, and a process that is stopped for a while, as in a computer
//! that sleeps. No question may end early or wait more than five seconds longer than it should. A second daemon on the
//! same folder has to leave at once.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::daemon::{Daemon, TOKEN};
use crate::files;
use crate::history::Verdict;

/// The library that shows a process another time of day and leaves the monotonic clocks alone.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
/// How long a question waits in this gate, and the error that is allowed (P10).
const WAITS: Duration = Duration::from_secs(10);
const LATE: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(60);

/// What happens to the clock while a question of ten seconds and one of a day are open.
#[derive(Debug, Clone, Copy)]
enum Event {
    /// The time of day is set, as `faketime` writes it.
    Set(&'static str),
    /// The process is stopped and goes on later.
    Stopped(Duration),
}

const EVENTS: [Event; 11] = [
    Event::Set("+1h"),
    Event::Set("-1h"),
    Event::Set("+23h"),
    Event::Set("-1d"),
    Event::Set("-30d"),
    Event::Set("+6s"),
    Event::Set("-6s"),
    Event::Set("+90s"),
    Event::Set("-90s"),
    Event::Stopped(Duration::from_secs(4)),
    Event::Stopped(Duration::from_secs(14)),
];
const LONG: [Event; 2] = [Event::Stopped(Duration::from_secs(180)), Event::Stopped(Duration::from_secs(600))];

/// Plays all events side by side and judges.
pub(crate) async fn play(long: bool, sabotage: Option<&'static str>) -> Result<Verdict, String> {
    let mut verdict = Verdict::default();
    let mut lives = tokio::task::JoinSet::new();
    for event in EVENTS.into_iter().chain(LONG.into_iter().filter(|_| long)) {
        if matches!(event, Event::Set(_)) && !Path::new(FAKETIME).exists() {
            println!("SKIPPED clocks, {event:?}: {FAKETIME} is not there (apt-get install faketime)");
            continue;
        }
        lives.spawn(async move { (event, life(event, sabotage).await) });
    }
    let (mut worst, mut count) = (Duration::ZERO, 0);
    while let Some(lived) = lives.join_next().await {
        let (event, seen) = lived.map_err(|error| error.to_string())?;
        let Seen { took, since_asked, due, day_is_open, second } =
            seen.map_err(|error| format!("{event:?}: {error}"))?;
        count += 1;
        worst = worst.max(took.saturating_sub(due));
        if since_asked < WAITS {
            verdict.found("early", 1, &format!("{event:?}: it ended {since_asked:?} after it was asked"));
        }
        if took > due + LATE {
            verdict.found("late", 1, &format!("{event:?}: it ended after {took:?}, {due:?} was due"));
        }
        if !day_is_open {
            verdict.found("swept away", 1, &format!("{event:?}: the question of a day is not open any more"));
        }
        if second != Some(75) {
            verdict.found("two daemons", 1, &format!("{event:?}: the second daemon ended with {second:?}"));
        }
    }
    verdict.note(format!("{count} lives, deadlines missed by {} ms at most", worst.as_millis()));
    Ok(verdict)
}

/// What came of it.
struct Seen {
    /// When the question of ten seconds ended, and when it should have.
    took: Duration,
    due: Duration,
    /// The first, from before it was asked: what it took to open it passed in between.
    since_asked: Duration,
    day_is_open: bool,
    /// How the second daemon on the folder ended.
    second: Option<i32>,
}

async fn life(event: Event, sabotage: Option<&'static str>) -> Result<Seen, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = folder.path().join("data");
    let config = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{TOKEN}\"\n[groups.g]\nroutes = [{{ channel = \"web\" }}]\n",
        data.display()
    );
    files::write(&folder.path().join("askd.toml"), config.as_bytes()).map_err(|error| error.to_string())?;
    let offset = folder.path().join("offset");
    set(&offset, "+0")?;
    let daemon = Daemon::new(folder.path(), sabotage)?;
    if matches!(event, Event::Set(_)) {
        let file = offset.display().to_string();
        let faked = [
            ("LD_PRELOAD", FAKETIME),
            ("FAKETIME_TIMESTAMP_FILE", file.as_str()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
            ("NO_FAKE_STAT", "1"),
        ];
        daemon.spawn_with(faked).await?;
    } else {
        daemon.spawn().await?;
    }
    daemon.listening().await?;
    ask(&data, "day", 24 * 3_600_000)?;
    let asked = Instant::now();
    ask(&data, "brief", 10_000)?;
    // The clock of an answer starts when the daemon says so in the file beside the response.
    let status = data.join("ipc/g/responses/brief.status");
    wait("the question to be open", || json(&status).is_some_and(|status| status["answer_by"].is_string())).await?;
    let began = Instant::now();
    let twin = Command::new(folder.path().join("askd"))
        .args(["serve", "--config"])
        .arg(folder.path().join("askd.toml"))
        .env_remove("ASKD_SABOTAGE")
        .output();
    let second = twin.ok().and_then(|twin| twin.status.code());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut due = WAITS;
    match event {
        Event::Set(to) => set(&offset, to)?,
        Event::Stopped(time) => {
            let pid = daemon.pid().await.ok_or("it does not run")?;
            signal(pid, "STOP")?;
            tokio::time::sleep(time).await;
            signal(pid, "CONT")?;
            due = due.max(began.elapsed());
        }
    }
    let response = data.join("ipc/g/responses/brief.json");
    let ended = wait("the end of the question", || json(&response).is_some()).await;
    let (took, since_asked) = (began.elapsed(), asked.elapsed());
    if ended.is_err() && sabotage.is_none() {
        crate::keep(&folder.path().join("log"));
    }
    let open = daemon.open().await;
    let day_is_open =
        open.iter().any(|ask| ask["request_id"] == "day") && !data.join("ipc/g/responses/day.json").exists();
    daemon.kill().await;
    Ok(Seen { took, due, since_asked, day_is_open, second })
}

fn ask(data: &Path, request: &str, timeout: u64) -> Result<(), String> {
    let content = json!({"type": "ask_user:ask", "request_id": request, "timeoutMs": timeout,
        "questions": [{"question": format!("Now, {request}?")}]});
    let tasks: PathBuf = data.join("ipc/g/tasks");
    let written = files::publish(&tasks, &format!("{request}.json"), content.to_string().as_bytes(), false);
    written.map_err(|error| error.to_string())
}

fn json(path: &Path) -> Option<Value> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

fn set(offset: &Path, to: &str) -> Result<(), String> {
    let new = offset.with_extension("new");
    let written = files::write(&new, to.as_bytes()).and_then(|()| std::fs::rename(&new, offset));
    written.map_err(|error| error.to_string())
}

fn signal(pid: u32, signal: &str) -> Result<(), String> {
    let sent = Command::new("kill").args([&format!("-{signal}"), &pid.to_string()]).status();
    sent.map(drop).map_err(|error| error.to_string())
}

async fn wait(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > SOON {
            return Err(format!("waited too long for {what}"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
