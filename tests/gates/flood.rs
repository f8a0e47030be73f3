//! One group dumps a great many names into its folder while a hundred others ask, and are accepted within a second.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::daemon::{Daemon, TOKEN};
use crate::files;
use crate::history::Verdict;

const OTHERS: usize = 100;
/// P9: how long the flood may keep another group waiting.
const BOUND: Duration = Duration::from_secs(1);
/// How much more memory it may cost, in KiB.
const MEMORY: usize = 64 * 1024;
const SOON: Duration = Duration::from_secs(60);

/// Plays it with so many thousand names and judges.
pub(crate) async fn play(thousands: usize, sabotage: Option<&'static str>) -> Result<Verdict, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let data = folder.path().join("data");
    let config = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{TOKEN}\"\n[asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 100000\n[defaults]\nroutes = [{{ channel = \"web\" }}]\n",
        data.display()
    );
    files::write(&folder.path().join("askd.toml"), config.as_bytes()).map_err(|error| error.to_string())?;
    let daemon = Daemon::new(folder.path(), sabotage)?;
    daemon.spawn().await?;
    daemon.listening().await?;
    // Every group exists and has asked once: a new folder is another matter.
    let mut verdict = Verdict::default();
    round(&data, 0).await;
    let before = daemon.size().await.ok_or("it does not run")?;
    let flooding = data.join("ipc/flood/tasks");
    std::fs::create_dir_all(&flooding).map_err(|error| error.to_string())?;
    let (over, names) = (std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false)), thousands * 1_000);
    let flood = {
        let over = std::sync::Arc::clone(&over);
        std::thread::spawn(move || {
            let made = dump(&flooding, names);
            over.store(true, std::sync::atomic::Ordering::SeqCst);
            made
        })
    };
    let (mut took, mut lost, mut nth) = (Vec::new(), 0, 1);
    // While the names come, and for a round after that.
    loop {
        let ended = over.load(std::sync::atomic::Ordering::SeqCst);
        let times = round(&data, nth).await;
        lost += times.iter().filter(|time| time.is_none()).count();
        took.extend(times.into_iter().flatten());
        nth += 1;
        if ended || (sabotage.is_some() && lost > 0) {
            break;
        }
    }
    let made = flood.join().map_err(|_| "the flood ended by itself".to_owned())?;
    let after = daemon.size().await.ok_or("it does not run any more")?;
    daemon.kill().await;
    took.sort_unstable();
    let at = |percent: usize| {
        took.get((took.len() * percent / 100).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
    };
    let more = after.memory.saturating_sub(before.memory);
    verdict.note(format!(
        "{made} names, {OTHERS} other groups, {} accepted: half of them within {} ms, 99 of 100 within {} ms, the last after {} ms; {} MiB more",
        took.len(),
        at(50).as_millis(),
        at(99).as_millis(),
        at(100).as_millis(),
        more / 1024
    ));
    if at(99) > BOUND {
        verdict.found("kept waiting", 1, &format!("99 of 100 within {:?}", at(99)));
    }
    if lost > 0 {
        verdict.found("kept waiting", lost, &format!("{lost} requests were not accepted within {SOON:?}"));
    }
    if more > MEMORY {
        verdict.found("growing", 1, &format!("{more} KiB more"));
    }
    Ok(verdict)
}

/// Names that look like requests, as fast as the file system takes them. Most files are empty, one in twenty is a malformed
/// request, which costs the daemon more.
fn dump(folder: &Path, names: usize) -> usize {
    let pad = "x".repeat(100);
    let make = |nth: &usize| {
        let bytes: &[u8] =
            if nth.is_multiple_of(20) { br#"{"type":"ask_user:ask","request_id":"x","questions":7}"# } else { b"" };
        files::write(&folder.join(format!("{nth:08}{pad}.json")), bytes).is_ok()
    };
    (0..names).take_while(make).count()
}

/// Each other group asks; how long each request took to be accepted, which deletes it.
async fn round(data: &Path, nth: usize) -> Vec<Option<Duration>> {
    let asks = (0..OTHERS).map(|group| {
        let tasks = data.join(format!("ipc/other{group}/tasks"));
        async move {
            // Over a second, as a hundred agents would.
            tokio::time::sleep(Duration::from_millis(10 * group as u64)).await;
            accepted(tasks, format!("r{nth}")).await
        }
    });
    futures_util::future::join_all(asks).await
}

async fn accepted(tasks: PathBuf, request: String) -> Option<Duration> {
    let content =
        json!({"type": "ask_user:ask", "request_id": request, "questions": [{"question": format!("Go {request}?")}]});
    files::publish(&tasks, &format!("{request}.json"), content.to_string().as_bytes(), false).ok()?;
    let (began, status) = (Instant::now(), tasks.with_file_name("responses").join(format!("{request}.status")));
    while began.elapsed() < SOON {
        if status.exists() {
            return Some(began.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    None
}
