//! What the kernel says of processes and of the whole machine.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Ticks of /proc in a second; Linux says 100 on every platform that askd runs on.
const TICKS: f64 = 100.0;

fn field(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Resident memory of a process, now and at most since [`forget_peak`], in bytes.
pub(crate) fn memory(pid: u32) -> (u64, u64) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    (field(&status, "VmRSS") * 1024, field(&status, "VmHWM") * 1024)
}

/// Lets the peak of memory begin anew.
pub(crate) fn forget_peak(pid: u32) {
    let _not_root = fs::write(format!("/proc/{pid}/clear_refs"), "5");
}

/// Seconds of processor time of a process, all of its threads included, also those that ended.
#[expect(clippy::cast_precision_loss, reason = "ticks")]
pub(crate) fn cpu(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) as f64 / TICKS
}

/// What a process did so far: wake-ups of its threads (they gave the processor back, or it was taken from them), and
/// nanoseconds on a processor.
#[derive(Clone, Copy)]
pub(crate) struct Activity {
    pub(crate) at: Instant,
    pub(crate) switches: u64,
    pub(crate) nanos: u64,
    pub(crate) threads: usize,
}

pub(crate) fn activity(pid: u32) -> Activity {
    let mut activity = Activity { at: Instant::now(), switches: 0, nanos: 0, threads: 0 };
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return activity };
    for task in tasks.flatten() {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        activity.switches += field(&status, "voluntary_ctxt_switches") + field(&status, "nonvoluntary_ctxt_switches");
        let times = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        activity.nanos += times.split_whitespace().next().and_then(|nanos| nanos.parse::<u64>().ok()).unwrap_or(0);
        activity.threads += 1;
    }
    activity
}

/// Processor time of the machine so far, in ticks: in use, and in all.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    busy: f64,
    all: f64,
    ours: f64,
}

/// Reads it; `ours` are the processes of this bench beside itself.
pub(crate) fn machine(ours: &[u32]) -> Machine {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).take(8).filter_map(|field| field.parse().ok()).collect();
    let all: f64 = ticks.iter().sum();
    let idle = ticks.get(3).unwrap_or(&0.0) + ticks.get(4).unwrap_or(&0.0);
    let own = cpu(std::process::id()) + ours.iter().map(|pid| cpu(*pid)).sum::<f64>();
    Machine { busy: all - idle, all, ours: own * TICKS }
}

/// The share of the machine's processors that others took between the two.
pub(crate) fn others(before: Machine, after: Machine) -> f64 {
    let all = after.all - before.all;
    if all <= 0.0 { 0.0 } else { ((after.busy - before.busy - (after.ours - before.ours)) / all).max(0.0) }
}

/// What a command prints in its first line, if it can be run.
pub(crate) fn says(command: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(command).args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}

/// The conditions of a run, one a line.
pub(crate) fn conditions(folder: &Path) -> Vec<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let disk = says("stat", &["-f", "-c", "%T", &folder.to_string_lossy()]).unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let commit = says("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--abbrev=10"])
        .unwrap_or_else(|| "unknown".into());
    vec![
        format!("date: {}", says("date", &["-u", "+%Y-%m-%d %H:%M UTC"]).unwrap_or_default()),
        format!("commit: {commit}"),
        format!("processors: {count} ({})", model.trim_start_matches([' ', '\t', ':'])),
        format!("kernel: {}", says("uname", &["-sr"]).unwrap_or_default()),
        format!("file system: {disk}{}", journal(folder)),
        format!("load when it began: {}", load.split(' ').take(3).collect::<Vec<_>>().join(" ")),
    ]
}

/// Whether ext4 keeps a journal there: without one a sync of a folder is far cheaper.
fn journal(folder: &Path) -> &'static str {
    let folder = folder.to_string_lossy();
    let device = says("findmnt", &["-no", "SOURCE", "-T", &folder]).unwrap_or_default();
    let Some(name) = device.strip_prefix("/dev/") else { return "" };
    if says("findmnt", &["-no", "FSTYPE", "-T", &folder]).as_deref() != Some("ext4") {
        return "";
    }
    let mut journals = fs::read_dir("/proc/fs/jbd2").into_iter().flatten().flatten();
    let has = journals.any(|journal| journal.file_name().to_string_lossy().starts_with(&format!("{name}-")));
    if has { ", ext4 with a journal" } else { ", ext4 without a journal" }
}

/// Waits until `look` says yes; `false` if that takes too long.
pub(crate) fn until(at_most: Duration, mut look: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !look() {
        if begun.elapsed() > at_most {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}
