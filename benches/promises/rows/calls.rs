//! System calls of one life: asked, posted, answered, taken, card closed, filed. Counted by strace, one life at a time, and
//! with all that the daemon does later because of it.

use crate::Bench;
use crate::chat::marker;
use crate::load::{Connection, click};
use crate::report::{Goal, Unit};
use crate::system;
use crate::world::{Host, World, button, fresh};
use serde_json::Value;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

const TRACED: &str = "trace=fsync,fdatasync,syncfs,openat,openat2,mkdirat,mkdir,rename,renameat,renameat2,unlink,unlinkat,\
                      linkat,statx,newfstatat,access,faccessat2,utimensat,sendto,write,writev";
/// The daemon flushes what it saved soon within 5 s, and looks for taken responses as often.
const LATER: Duration = Duration::from_secs(11);
/// In the quick form: once each, at the least.
const SOONER: Duration = Duration::from_secs(6);
/// How often the daemon looks at the folders, and flushes then.
const LOOKS: Duration = Duration::from_secs(5);

struct Line {
    at: f64,
    call: String,
    rest: String,
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

pub(crate) fn measure(bench: &mut Bench) {
    if system::says("strace", &["-V"]).is_none() {
        return bench.report.skip("system calls of one life: strace is not there");
    }
    let later = if bench.quick { SOONER } else { LATER };
    let mut world = World::new(Host::Askd, fresh(&bench.base, "calls"), 1, &bench.chat);
    world.start();
    life(bench, &world);
    let mut filed = Instant::now();
    // What a daemon does anyway, counted at one that nobody has asked anything. It looks after no outcome, so less is subtracted.
    let mut still = World::new(Host::Askd, fresh(&bench.base, "calls-still"), 1, &bench.chat);
    still.start();
    std::thread::sleep(later);
    let idle_file = still.folder.join("strace");
    let mut counted = Vec::new();
    for nth in 0..if bench.quick { 1 } else { 3 } {
        let file = world.folder.join("strace");
        let strace = attach(world.pid(), &file);
        // A life that lies between two flushes: one across a flush is filed twice, and how many are is chance.
        let mut next = filed + Duration::from_millis(500);
        while next < Instant::now() {
            next += LOOKS;
        }
        std::thread::sleep(next - Instant::now());
        let moments = life(bench, &world);
        filed = Instant::now();
        let beside = (nth == 0).then(|| attach(still.pid(), &idle_file));
        std::thread::sleep(later);
        beside.into_iter().for_each(detach);
        detach(strace);
        let lines = read(&fs::read_to_string(&file).unwrap());
        fs::rename(&file, file.with_extension(format!("{:.0}", moments[0]))).unwrap();
        counted.push(count(&lines, moments));
    }
    let idle = count(&read(&fs::read_to_string(&idle_file).unwrap()), [0.0; 3]);
    let mut most: Vec<(&str, f64, usize)> = Vec::new();
    for life in counted {
        for (index, (what, count, goal)) in life.into_iter().enumerate() {
            let count = (count - idle[index].1).max(0.0);
            match most.get_mut(index) {
                Some(entry) => entry.1 = entry.1.max(count),
                None => most.push((what, count, goal)),
            }
        }
    }
    for (what, count, goal) in most {
        #[expect(clippy::cast_precision_loss, reason = "a small count")]
        bench.report.row(16, what, Unit::Count, None, count, Goal::AtMost(goal as f64));
    }
}

fn attach(pid: u32, file: &std::path::Path) -> Child {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-ttt", "-e", TRACED, "-o"]).arg(file).args(["-p", &pid.to_string()]);
    let strace = strace.stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(1));
    strace
}

fn detach(mut strace: Child) {
    let _detached = Command::new("kill").arg("-INT").arg(strace.id().to_string()).status();
    let _ended = strace.wait();
}

/// One whole life; when the request was there, the click was sent, and was acknowledged.
fn life(bench: &mut Bench, world: &World) -> [f64; 3] {
    let number = bench.numbers(1).start;
    let before = bench.chat.posts();
    let asked = now();
    world.ask(number, 0);
    assert!(bench.chat.wait_for_posts(before + 1, Duration::from_secs(20)), "it is posted");
    let card: Value = serde_json::from_slice(&bench.chat.last_post()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let click = click(number, 0, &button(&card).unwrap(), world.port, true);
    let clicked = now();
    let (status, _) = Connection::new(world.port).call(&click.request).unwrap();
    let acknowledged = now();
    assert_eq!(status, 200);
    assert!(system::until(Duration::from_secs(20), || world.response(number, 0).exists()), "there is a response");
    assert_eq!(bench.chat.wait_for_updates(&[number], Duration::from_secs(20)), 0, "the card is closed");
    world.take(&[(number, 0)]);
    let settled = world.state("settled", 0);
    let is_filed = || {
        let filed = fs::read_dir(&settled).into_iter().flatten().flatten();
        filed.into_iter().any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(&marker(number))))
    };
    assert!(system::until(Duration::from_secs(20), is_filed), "it is filed");
    [asked, clicked, acknowledged]
}

/// Lines of strace, the two halves of an interrupted call as one.
fn read(text: &str) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for line in text.lines() {
        // Columns are padded.
        let parts = line.split_once(' ').and_then(|(_pid, line)| line.trim_start().split_once(' '));
        let Some((at, rest)) = parts else { continue };
        let rest = rest.trim_start();
        let Ok(at) = at.parse() else { continue };
        if let Some(resumed) = rest.strip_prefix("<... ") {
            let (call, rest) = resumed.split_once(' ').unwrap_or_default();
            if let Some(begun) =
                lines.iter_mut().rev().find(|line| line.call == call && line.rest.ends_with("<unfinished ...>"))
            {
                begun.rest = format!("{} {rest}", begun.rest.trim_end_matches("<unfinished ...>"));
            }
        } else if let Some((call, rest)) = rest.split_once('(') {
            lines.push(Line { at, call: call.to_owned(), rest: rest.to_owned() });
        }
    }
    lines
}

#[expect(clippy::cast_precision_loss, reason = "small counts")]
fn count(lines: &[Line], [asked, clicked, acknowledged]: [f64; 3]) -> Vec<(&'static str, f64, usize)> {
    let is_sync = |line: &&Line| matches!(line.call.as_str(), "fsync" | "fdatasync" | "syncfs");
    let between =
        |from: f64, to: f64| lines.iter().filter(is_sync).filter(|line| line.at >= from && line.at < to).count();
    let life = clicked > 0.0;
    assert!(!life || between(asked, acknowledged) > 1, "strace saw no fsync of a life that was made durable");
    let deleted = lines.iter().find(|line| line.call.starts_with("unlink") && line.rest.contains(".claimed-"));
    let calls = |name: &str| lines.iter().filter(|line| line.call == name).count();
    let is_reply = |line: &&Line| line.at >= clicked && line.rest.contains("HTTP/1.1 200");
    let acknowledged = lines.iter().find(is_reply).map_or(acknowledged, |line| line.at.min(acknowledged));
    let is_of_file = |line: &&Line| !matches!(line.call.as_str(), "sendto" | "write" | "writev");
    let failed = lines.iter().filter(is_of_file).filter(|line| line.rest.contains(" = -1 E")).count();
    let all = lines.iter().filter(is_sync).count();
    vec![
        ("one life: fsync", all as f64, 8),
        (
            "one life: fsync before the request is deleted",
            between(asked, deleted.map_or(asked, |line| line.at)) as f64,
            2,
        ),
        ("one life: fsync between a click and its 200", between(clicked, acknowledged) as f64, 2),
        ("one life: openat2", calls("openat2") as f64, 12),
        ("one life: file calls that fail", failed as f64, 0),
    ]
}
