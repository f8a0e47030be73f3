//! What the daemon costs while nothing happens: wake-ups, processor time, threads.

use crate::Bench;
use crate::report::{Goal, Unit};
use crate::system;
use crate::world::{Host, World, fresh, request, spread};
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long after a start its first looks and what a request leaves behind may go on.
const SETTLE: Duration = Duration::from_secs(8);
/// How often a waiter gives a sign of life.
const SIGN: Duration = Duration::from_secs(5);

/// A daemon with so many groups, in which nothing happens; and when it was started.
pub(crate) fn start(bench: &Bench, groups: usize) -> (World, Instant) {
    let mut world = World::new(Host::Askd, fresh(&bench.base, "idle"), groups, &bench.chat);
    world.start();
    (world, Instant::now())
}

pub(crate) fn measure(bench: &mut Bench, (world, started): (World, Instant)) {
    let window = Duration::from_secs(if bench.quick { 8 } else { 60 });
    std::thread::sleep(SETTLE.saturating_sub(started.elapsed()));
    watch(bench, &world, window, "idle, 1,000 groups", 0.5, 0.05);
    drop(world);
    if bench.quick {
        return;
    }
    let (world, _) = start(bench, 10_000);
    std::thread::sleep(SETTLE);
    watch(bench, &world, window, "idle, 10,000 groups", 1.0, 0.5);
    drop(world);
    waiters(bench, window);
}

/// 1,000 open asks, each with a process that waits and says every 5 s that it lives.
fn waiters(bench: &mut Bench, window: Duration) {
    let mut world = World::new(Host::Askd, fresh(&bench.base, "waiters"), 100, &bench.chat);
    world.start();
    let before = bench.chat.posts();
    let asks = spread(bench.numbers(1_000), 100);
    let mut signs: Vec<PathBuf> = Vec::new();
    for (number, group) in asks {
        let (process, tasks) = (format!("p{number}"), world.ipc(group).join("tasks"));
        fs::create_dir_all(tasks.join(".alive")).unwrap();
        signs.push(tasks.join(".alive").join(&process));
        fs::write(tasks.join(".alive").join(&process), "").unwrap();
        crate::floor::place(&tasks, &format!("{number}.json"), request(number, Some(&process)).to_string().as_bytes())
            .unwrap();
    }
    assert!(bench.chat.wait_for_posts(before + 1_000, Duration::from_secs(120)), "all are posted");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let pause = SIGN / u32::try_from(signs.len()).unwrap();
            for sign in signs.iter().cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                let file = fs::File::options().write(true).open(sign).unwrap();
                file.set_modified(std::time::SystemTime::now()).unwrap();
                std::thread::sleep(pause);
            }
        });
        std::thread::sleep(SETTLE);
        watch(bench, &world, window, "1,000 open asks with live waiters", 5.0, 0.5);
        stop.store(true, Ordering::Relaxed);
    });
}

#[expect(clippy::cast_precision_loss, reason = "counts")]
fn watch(bench: &mut Bench, world: &World, window: Duration, what: &str, wakes: f64, percent: f64) {
    let before = system::activity(world.pid());
    let ticks = system::cpu(world.pid());
    std::thread::sleep(window.saturating_sub(before.at.elapsed()).max(Duration::from_millis(1)));
    let after = system::activity(world.pid());
    let took = before.at.elapsed().as_secs_f64();
    // Threads that ended take their counts with them; the process keeps the time of all.
    let used = (after.nanos.saturating_sub(before.nanos) as f64 / 1e9).max(system::cpu(world.pid()) - ticks - 0.01);
    let woken = after.switches.saturating_sub(before.switches) as f64 / took;
    bench.report.row(11, &format!("{what}: wake-ups a second"), Unit::Count, None, woken, Goal::AtMost(wakes));
    bench.report.row(
        11,
        &format!("{what}: of a processor"),
        Unit::Percent,
        None,
        used / took * 100.0,
        Goal::AtMost(percent),
    );
    bench.report.row(11, &format!("{what}: threads"), Unit::Count, None, after.threads as f64, Goal::AtMost(24.0));
}
