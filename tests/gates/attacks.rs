//! Every attack with files, from a hostile agent (`intruder`), bare or in a container, beside an honest group. Nothing
//! outside may be read or written, and the honest group may not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Command;

use crate::agent::{Agent, lock};
use crate::daemon::{Daemon, TOKEN};
use crate::files;
use crate::history::{History, Reply, Verdict};

/// The mark of what must not be read: a request that would be valid.
const MARK: &str = "outsideoutside";
/// How long the honest group may wait (P9), and how long until it is called hung.
const BOUND: Duration = Duration::from_secs(1);
/// The same of the short form: in `tests/run` stories and other gates keep it waiting, too. The second is judged by the
/// long form, which is played alone.
const BOUND_BESIDE_OTHERS: Duration = Duration::from_secs(5);
/// From here on it is the long form.
const LONG: u64 = 60;
const SOON: Duration = Duration::from_secs(60);
/// The image with this program in it, if the intruder is to be in a container.
const IMAGE: &str = "ASKD_ATTACK_IMAGE";

/// Plays it for so many seconds and judges.
pub(crate) async fn play(seconds: u64, sabotage: Option<&'static str>) -> Result<Verdict, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = folder.path().join("data");
    let outside = folder.path().join("outside");
    prepare(folder.path(), &data, &outside).map_err(|error| error.to_string())?;
    let before = tree(&outside);
    let daemon = Arc::new(Daemon::new(folder.path(), sabotage)?);
    daemon.spawn().await?;
    daemon.listening().await?;
    let history = Arc::new(Mutex::new(History::default()));
    let over = Arc::new(AtomicBool::new(false));
    let operator = tokio::spawn(answer(Arc::clone(&daemon), Arc::clone(&history), Arc::clone(&over)));
    let honest = tokio::spawn(honest(data.clone(), Arc::clone(&history), Arc::clone(&over)));
    let said = intrude(&data.join("ipc/hostile"), &outside, seconds).await?;
    over.store(true, Ordering::SeqCst);
    let mut took = honest.await.map_err(|error| error.to_string())?;
    let read = seen(&daemon, &data).await;
    operator.abort();
    let lives = daemon.runs().await;
    daemon.kill().await;
    let mut verdict = lock(&history).judge();
    for (path, _) in read.iter().filter(|(_, text)| text.contains(MARK)) {
        verdict.found("read outside", 1, &format!("{} has what stands outside", path.display()));
    }
    let after = tree(&outside);
    let all: BTreeSet<&PathBuf> = before.keys().chain(after.keys()).collect();
    for path in all.into_iter().filter(|path| after.get(*path) != before.get(*path)) {
        let is = |tree: &Tree| match tree.get(path) {
            Some((bytes, mode, owner)) => format!("{} bytes, mode {mode:o}, of {owner}", bytes.len()),
            None => "nothing".to_owned(),
        };
        verdict.found("written outside", 1, &format!("{}: {}, was {}", path.display(), is(&after), is(&before)));
    }
    for name in files::names(&data.join("ipc/honest/responses")) {
        if !name.contains("honest-") && !name.starts_with(".askd") {
            verdict.found("written outside", 1, &format!("{name} among the responses of another group"));
        }
    }
    if !lives {
        verdict.found("hangs", 1, "the daemon has ended");
    }
    took.sort_unstable();
    let last = took.last().copied().unwrap_or(SOON);
    let bound = if seconds < LONG { BOUND_BESIDE_OTHERS } else { BOUND };
    let slow = took.iter().filter(|time| **time > bound).count();
    if slow > 0 || took.is_empty() {
        verdict.found("hangs", slow.max(1), &format!("the honest group waited {last:?}"));
    }
    let place = if std::env::var_os(IMAGE).is_some() { "in a container" } else { "bare" };
    verdict.note(format!(
        "{seconds} s {place}: {said}; the other group accepted {} times, after {} ms at most",
        took.len(),
        last.as_millis()
    ));
    if !verdict.findings().is_empty() && sabotage.is_none() {
        crate::keep(&folder.path().join("log"));
    }
    Ok(verdict)
}

fn prepare(folder: &Path, data: &Path, outside: &Path) -> std::io::Result<()> {
    for group in ["hostile", "honest"] {
        for part in ["tasks", "responses", "briefings"] {
            std::fs::create_dir_all(data.join("ipc").join(group).join(part))?;
        }
    }
    std::fs::create_dir_all(outside)?;
    for id in ["secret", "named-twice"] {
        let request = json!({"type": "ask_user:ask", "request_id": id, "questions": [{"question": MARK}]});
        files::write(&outside.join(format!("{id}.json")), request.to_string().as_bytes())?;
    }
    files::write(&outside.join("target"), b"as it was")?;
    let config = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{TOKEN}\"\n\
         [asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 1000000\nmax_attempts = 10\n[defaults]\nroutes = [{{ channel = \"web\" }}]\n",
        data.display()
    );
    files::write(&folder.join("askd.toml"), config.as_bytes())
}

/// Files with their content, mode and owner.
type Tree = BTreeMap<PathBuf, (Vec<u8>, u32, u64)>;

/// Every file below a folder. The intruder may give names here, as it may write here
/// itself when it is bare; it only writes names of its own.
fn tree(folder: &Path) -> Tree {
    let mut found = BTreeMap::new();
    for name in files::names(folder) {
        let path = folder.join(&name);
        if let Ok(stat) = path.symlink_metadata() {
            let bytes = if stat.is_file() { std::fs::read(&path).unwrap_or_default() } else { Vec::new() };
            found.insert(path, (bytes, stat.mode(), u64::from(stat.uid())));
        }
    }
    found
}

/// Everything that the daemon has written or says.
async fn seen(daemon: &Daemon, data: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["state", "ipc/honest", "ipc/hostile/responses", "ipc/hostile/briefings"] {
        let folder = data.join(folder);
        // What the intruder left may be a link: only what is really there counts.
        if folder.symlink_metadata().is_ok_and(|stat| stat.is_dir()) {
            gather(&folder, &mut found);
        }
    }
    let open = daemon.open().await;
    found.push((PathBuf::from("the list of asks"), serde_json::Value::from(open).to_string()));
    found
}

fn gather(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
    for name in files::names(folder) {
        let path = folder.join(name);
        let Ok(stat) = path.symlink_metadata() else { continue };
        if stat.is_dir() {
            gather(&path, found);
        } else if stat.is_file() && stat.nlink() == 1 {
            found.push((path.clone(), String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned()));
        }
    }
}

/// Starts the intruder and waits for its end.
async fn intrude(group: &Path, outside: &Path, seconds: u64) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = match std::env::var(IMAGE) {
        // Each folder is a mount of its own, as SECURITY.md recommends, and nothing of what lies outside is one.
        Ok(image) => {
            let mut docker = Command::new(std::env::var("ASKD_ATTACK_DOCKER").unwrap_or_else(|_| "docker".to_owned()));
            docker.args(["run", "--rm", "--network", "none", "--user", "0"]);
            for part in ["tasks", "responses", "briefings"] {
                let part = group.join(part);
                docker.arg("-v").arg(format!("{0}:{0}", part.display()));
            }
            docker.arg(image).arg("/gates");
            docker
        }
        Err(_) => Command::new(program),
    };
    command.args(["--gates", "--attack"]).arg(group).arg(outside).arg(seconds.to_string());
    command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let at_most = Duration::from_secs(seconds) + SOON;
    let output = tokio::time::timeout(at_most, command.output()).await.map_err(|_| "the intruder hangs".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("the intruder ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Answers every open question at once.
async fn answer(daemon: Arc<Daemon>, history: Arc<Mutex<History>>, over: Arc<AtomicBool>) {
    loop {
        for ask in daemon.open().await {
            let (Some(id), Some(request)) = (ask["id"].as_str(), ask["request_id"].as_str()) else { continue };
            let honest = ask["group"] == "honest";
            // A few of the hostile group's questions stay open.
            if !honest && id.starts_with('0') {
                continue;
            }
            let question = ask["questions"][0]["question"].as_str().unwrap_or_default();
            let began = Instant::now();
            let answer =
                daemon.call(&format!("/asks/{id}/answer"), Some(&json!({"answers": { (question): "go" }}))).await;
            if honest && answer.is_some_and(|(status, _)| status == 200) {
                lock(&history).attempt(request, ("api", "operator"), "go", began, Reply::Won);
            }
        }
        let pause = if over.load(Ordering::SeqCst) { 50 } else { 20 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
    }
}

/// Asks again and again; returns how long each request took to be accepted. In the end it waits for all responses.
async fn honest(data: PathBuf, history: Arc<Mutex<History>>, over: Arc<AtomicBool>) -> Vec<Duration> {
    let mut agent = Agent::new(&data, "honest", false);
    let (responses, mut took) = (data.join("ipc/honest/responses"), Vec::new());
    while !over.load(Ordering::SeqCst) {
        let request = agent.ask(&history, |_| vec!["go".to_owned(), "stay".to_owned()], false);
        let began = Instant::now();
        let accepted = || ["status", "json"].iter().any(|end| responses.join(format!("{request}.{end}")).exists());
        while !accepted() && began.elapsed() < SOON {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        took.push(began.elapsed());
        agent.take(&history);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    let until = Instant::now() + SOON;
    while agent.waiting() > 0 && Instant::now() < until {
        agent.take(&history);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    took
}
