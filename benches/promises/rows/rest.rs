//! The rows that need worlds of their own: many groups, many settled asks, many stale ones, a burst after a stop, sizes.

use super::median;
use super::pending::{bytes, start_once};
use super::trips::Agents;
use crate::Bench;
use crate::load::{burst, send};
use crate::report::{Goal, Unit};
use crate::system;
use crate::world::{Host, Template, World, askd_binary, fresh, long_request, spread};
use std::borrow::Cow;
use std::process::Command;
use std::time::{Duration, Instant};

/// Row 6: clicks at 1,000 groups beside the same at 10.
pub(crate) fn wide(bench: &mut Bench) {
    let template = bench.template();
    let count = 5_000;
    let needed = u64::try_from(count * (bench.rounds * 3 + 1)).unwrap();
    let mut worlds = [10, 1_000].map(|groups| {
        let world = World::new(Host::Askd, fresh(&bench.base, "wide"), groups, &bench.chat);
        let asks = spread(bench.numbers(needed), groups);
        template.fill(&world, &asks);
        (world, asks, Vec::new())
    });
    let _synced = Command::new("sync").arg("-f").arg(&bench.base).status();
    for (world, ..) in &mut worlds {
        world.start();
    }
    let pids = worlds.each_ref().map(|(world, _, _)| world.pid());
    for round in 0..=bench.rounds {
        let rates = bench.round(&pids, |bench| {
            worlds.each_mut().map(|(world, asks, _)| {
                let these = asks.split_off(asks.len() - count);
                let clicks = world.clicks(&these, &template);
                let rate = burst(world.port, 32, &clicks).rate();
                let numbers: Vec<u64> = these.iter().map(|(number, _)| *number).collect();
                bench.chat.wait_for_updates(&numbers, Duration::from_secs(60));
                world.take(&these);
                // What is left to do there would slow the other one.
                world.rest();
                rate
            })
        });
        for ((_, _, all), rate) in worlds.iter_mut().zip(rates).filter(|_| round > 0) {
            all.push(rate);
        }
    }
    let [narrow, wide] = worlds.map(|(_, _, rates)| median(rates));
    let what = "signed clicks, 1,000 groups (floor: its own with 10)";
    bench.report.row(6, what, Unit::PerSecond, Some(narrow), wide, Goal::Reaches(0.9));
}

/// Row 8: asks at their limits.
pub(crate) fn long_asks(bench: &mut Bench) {
    let (template, _) = Template::make_open(fresh(&bench.base, "template-long"), &bench.chat, &long_request(1));
    let mut world = World::new(Host::Askd, fresh(&bench.base, "long"), 10, &bench.chat);
    let count = 20_000;
    template.fill(&world, &spread(bench.numbers(count), 10));
    world.start();
    std::thread::sleep(Duration::from_secs(3));
    let memory = bytes(system::memory(world.pid()).0);
    let what = "memory with 20,000 pending asks at their limits";
    bench.report.row(8, what, Unit::Bytes, None, memory, Goal::AtMost(32e6));
    let size = template.open.len();
    bench.report.note(format!("an ask at its limits is a record of {size} bytes"));
}

/// Rows 8 and 9: a million settled asks are kept.
pub(crate) fn settled(bench: &mut Bench) {
    let template = bench.template();
    let mut empty = World::new(Host::Askd, fresh(&bench.base, "empty"), 200, &bench.chat);
    empty.start();
    std::thread::sleep(Duration::from_secs(2));
    let without = bytes(system::memory(empty.pid()).0);
    empty.stop();
    let mut world = World::new(Host::Askd, fresh(&bench.base, "settled"), 200, &bench.chat);
    let asks = spread(bench.numbers(1_000_000), 200);
    template.fill_settled(&world, &asks, Duration::ZERO);
    let waiting = spread(bench.numbers(1), 200);
    template.fill(&world, &waiting);
    let clicks = world.clicks(&waiting, &template);
    let (took, loaded) = start_once(&mut world, &clicks[0]);
    let what = "start with 1,000,000 settled: first signed click and inbox";
    bench.report.row(9, what, Unit::Seconds, None, took, Goal::AtMost(1.0));
    bench.report.note(format!("with 1,000,000 settled, loading was done after {}", Unit::Seconds.show(loaded)));
    std::thread::sleep(Duration::from_secs(5));
    let each = (bytes(system::memory(world.pid()).0) - without) / 1e6;
    bench.report.row(8, "memory for each settled ask that is kept", Unit::Bytes, None, each, Goal::AtMost(150.0));
}

/// Row 10: 10,000 stale asks end at the start, and webhooks are answered meanwhile.
pub(crate) fn stale(bench: &mut Bench) {
    let template = bench.template();
    let (groups, count) = (100, 10_000);
    let reference = World::new(Host::Reference, fresh(&bench.base, "stale-reference"), groups, &bench.chat);
    let mut askd = World::new(Host::Askd, fresh(&bench.base, "stale"), groups, &bench.chat);
    let (theirs, ours) = (spread(bench.numbers(count), groups), spread(bench.numbers(count), groups));
    template.fill_stale(&reference, &theirs);
    template.fill_stale(&askd, &ours);
    let live = spread(bench.numbers(4_000), groups);
    template.fill(&askd, &live);
    let clicks = askd.clicks(&live, &template);
    let (during, after) = clicks.split_at(2_000);
    let _synced = Command::new("sync").arg("-f").arg(&bench.base).status();
    let begun = Instant::now();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("--reference").arg(&reference.folder).args(["expire", &bench.chat.url]);
    assert!(command.status().unwrap().success());
    let floor = begun.elapsed().as_secs_f64();
    let agents = Agents::watch(&askd);
    let begun = Instant::now();
    askd.spawn();
    let (took, tail) = std::thread::scope(|scope| {
        let ends = scope.spawn(move || {
            (0..count).for_each(|_| _ = agents.next());
            begun.elapsed().as_secs_f64()
        });
        let answered =
            || crate::load::Connection::new(askd.port).call(&during[0].request).is_ok_and(|(status, _)| status == 200);
        assert!(system::until(Duration::from_secs(60), answered), "a click is answered");
        let rest = &during[1..];
        let burst = send(askd.port, 8, rest.len(), Some(200.0), 200, &|index| Cow::Borrowed(&rest[index].request));
        (ends.join().unwrap(), burst.times.p99())
    });
    std::thread::sleep(Duration::from_secs(5));
    let alone =
        send(askd.port, 8, after.len(), Some(200.0), 200, &|index| Cow::Borrowed(&after[index].request)).times.p99();
    let what = "10,000 stale asks end at the start, each with its response";
    bench.report.row(10, what, Unit::Seconds, Some(floor), took, Goal::Within(1.5));
    let what = "p99 of clicks meanwhile (floor: its own alone)";
    bench.report.row(10, what, Unit::Seconds, Some(alone), tail, Goal::Within(2.0));
}

/// Row 12: 20,000 requests in one burst, beside 40,000 files of others, while the daemon is stopped.
pub(crate) fn flood(bench: &mut Bench) {
    let mut world = World::new(Host::Askd, fresh(&bench.base, "flood"), 1, &bench.chat);
    let tasks = world.ipc(0).join("tasks");
    for number in 0..40_000 {
        std::fs::write(tasks.join(format!("{number:05}.note")), "of others").unwrap();
    }
    world.start();
    std::thread::sleep(Duration::from_secs(2));
    let (before, numbers) = (bench.chat.posts(), bench.numbers(20_000));
    world.signal("STOP");
    let stopped = Instant::now();
    for number in numbers.clone() {
        world.ask(number, 0);
    }
    std::thread::sleep(Duration::from_secs(2).saturating_sub(stopped.elapsed()));
    world.signal("CONT");
    let begun = Instant::now();
    let all = bench.chat.wait_for_posts(before + 20_000, Duration::from_secs(600));
    let took = begun.elapsed().as_secs_f64();
    let posts: Vec<u64> = bench.chat.posts_from(before).into_iter().map(|(number, _)| number).collect();
    let seen: std::collections::BTreeSet<&u64> = posts.iter().collect();
    let lost = 20_000 - seen.len();
    let disordered = posts.windows(2).filter(|two| two[0] > two[1]).count();
    bench.report.row(
        12,
        "20,000 requests while it is stopped: lost",
        Unit::Count,
        None,
        bytes(lost as u64),
        Goal::AtMost(0.0),
    );
    bench.report.row(
        12,
        "the same: posts before an earlier one's",
        Unit::Count,
        None,
        bytes(disordered as u64),
        Goal::AtMost(0.0),
    );
    bench.report.note(format!("all of 20,000 posted ({all}) after {took:.1} s, {:.0} a second", 20_000.0 / took));
}

/// Row 13.
pub(crate) fn sizes(bench: &mut Bench) {
    let mut size =
        |what: &str, path: Option<std::path::PathBuf>, limit: f64, name: &str| match path.map(std::fs::metadata) {
            Some(Ok(file)) => bench.report.row(13, what, Unit::Bytes, None, bytes(file.len()), Goal::AtMost(limit)),
            _ => bench.report.skip(&format!("{what}: {name} names it")),
        };
    let named = |name: &str| std::env::var_os(name).map(std::path::PathBuf::from);
    size("the measured binary, all features", Some(askd_binary()), 18e6, "");
    size("daemon binary, feature host alone", named("ASKD_HOST_BIN"), 12e6, "ASKD_HOST_BIN");
    size("in-container binary, static", named("ASKD_AGENT_BIN"), 3e6, "ASKD_AGENT_BIN");
    let image = std::env::var("ASKD_IMAGE").unwrap_or_default();
    match system::says("docker", &["image", "inspect", "-f", "{{.Size}}", &image]).and_then(|size| size.parse().ok()) {
        Some(size) => bench.report.row(13, "image", Unit::Bytes, None, bytes(size), Goal::AtMost(15e6)),
        None => bench.report.skip("size of the image: ASKD_IMAGE names one that docker knows"),
    }
}
