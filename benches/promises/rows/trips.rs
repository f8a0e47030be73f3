//! One ask at a time: from a request to its post, and from a click to its response, beside the reference.

use super::median;
use crate::Bench;
use crate::chat::number_in;
use crate::load::{Connection, Times};
use crate::report::{Goal, Unit};
use crate::world::{Host, World, fresh, spread};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use std::mem::MaybeUninit;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// Agents that see each response as soon as it is in place.
pub(crate) struct Agents(Receiver<(u64, Instant)>);

impl Agents {
    pub(crate) fn watch(world: &World) -> Self {
        let events = inotify::init(CreateFlags::CLOEXEC).unwrap();
        for group in 0..world.groups {
            inotify::add_watch(&events, world.ipc(group).join("responses"), WatchFlags::MOVED_TO).unwrap();
        }
        let (seen, responses) = channel();
        std::thread::spawn(move || {
            let mut buffer = [MaybeUninit::uninit(); 16 * 1024];
            let mut reader = Reader::new(&events, &mut buffer);
            while let Ok(event) = reader.next() {
                let at = Instant::now();
                let name = event.file_name().map(|name| name.to_bytes().to_vec()).unwrap_or_default();
                let is_response = !name.starts_with(b".") && name.ends_with(b".json");
                let Some(number) = number_in(&name).filter(|_| is_response) else { continue };
                if seen.send((number, at)).is_err() {
                    return;
                }
            }
        });
        Self(responses)
    }

    /// The next response.
    pub(crate) fn next(&self) -> (u64, Instant) {
        self.0.recv_timeout(PATIENCE).expect("a response")
    }

    /// The same, if it comes within this time.
    pub(crate) fn next_within(&self, at_most: Duration) -> Option<(u64, Instant)> {
        self.0.recv_timeout(at_most).ok()
    }

    /// When the response of this ask was there.
    pub(crate) fn see(&self, number: u64) -> Instant {
        loop {
            let (seen, at) = self.next();
            if seen == number {
                return at;
            }
        }
    }
}

/// The same trips through both hosts, round about.
pub(crate) struct Pair {
    reference: World,
    askd: World,
}

impl Pair {
    pub(crate) fn new(bench: &Bench, groups: usize) -> Self {
        let make =
            |host, name: &str| World::new(host, fresh(&bench.base, &format!("{name}-{groups}")), groups, &bench.chat);
        Self { reference: make(Host::Reference, "trips-reference"), askd: make(Host::Askd, "trips") }
    }

    pub(crate) fn start(&mut self) {
        self.reference.start();
        self.askd.start();
        // The first looks at all folders are over.
        std::thread::sleep(Duration::from_secs(1));
        self.askd.rest();
    }

    /// Plays rounds at both hosts. The medians of p50 and p99 of the reference and of askd, and the longest trips.
    pub(crate) fn rounds(
        &self,
        bench: &mut Bench,
        mut trips: impl FnMut(&mut Bench, &World) -> Times,
    ) -> [[f64; 3]; 2] {
        let hosts = [&self.reference, &self.askd];
        let mut rounds: [Vec<Times>; 2] = [Vec::new(), Vec::new()];
        for host in hosts {
            trips(bench, host);
        }
        for _ in 0..bench.rounds {
            let times = bench.round(&hosts.map(World::pid), |bench| hosts.map(|host| trips(bench, host)));
            for (all, times) in rounds.iter_mut().zip(times) {
                all.push(times);
            }
        }
        rounds.map(|all| {
            let longest = all.iter().map(Times::max).fold(0.0, f64::max);
            [median(all.iter().map(Times::p50).collect()), median(all.iter().map(Times::p99).collect()), longest]
        })
    }
}

pub(crate) fn measure(bench: &mut Bench) {
    let mut own = 0.0;
    for groups in if bench.quick { vec![10] } else { vec![10, 100, 1_000, 10_000] } {
        let row = if groups <= 100 { 1 } else { 2 };
        let needed: &[u8] = if groups == 10 {
            &[1, 2, 3]
        } else if row == 1 {
            &[1]
        } else {
            &[2]
        };
        if !bench.wants(needed) {
            continue;
        }
        let mut pair = Pair::new(bench, groups);
        pair.start();
        let count = if bench.quick { 100 } else { 1_000 };
        let [floor, askd] = pair.rounds(bench, |bench, world| posts(bench, world, count));
        let what = format!("request -> post, one at a time, {groups} groups");
        if groups == 10 {
            own = askd[0];
        }
        if row == 1 {
            bench.report.row(1, &format!("{what}: p50"), Unit::Seconds, Some(floor[0]), askd[0], Goal::Within(1.5));
            bench.report.row(1, &format!("{what}: p99"), Unit::Seconds, Some(floor[1]), askd[1], Goal::Within(2.0));
            let limit = (3.0 * floor[2]).max(0.05);
            bench.report.row(
                1,
                &format!("{what}: longest"),
                Unit::Seconds,
                Some(floor[2]),
                askd[2],
                Goal::AtMost(limit),
            );
        } else {
            let what = format!("{what}: p50 (floor: its own with 10)");
            bench.report.row(2, &what, Unit::Seconds, Some(own), askd[0], Goal::Within(1.2));
        }
        if groups == 10 && bench.wants(&[3]) {
            in_flight(bench, &pair);
        }
    }
    for groups in [10, 1_000] {
        if bench.wants(&[4]) {
            answers(bench, groups);
        }
    }
}

/// From the renaming of a request to its post, one after the other.
pub(crate) fn posts(bench: &mut Bench, world: &World, count: u64) -> Times {
    let asks = spread(bench.numbers(count), world.groups);
    let trip = |(number, group): (u64, usize)| {
        let before = bench.chat.posts();
        let begun = world.ask(number, group);
        assert!(bench.chat.wait_for_posts(before + 1, PATIENCE), "no post of {number}");
        let (posted, at) = bench.chat.posts_from(before)[0];
        assert_eq!(posted, number);
        (at - begun).as_secs_f64()
    };
    Times::new(asks.into_iter().map(trip).collect())
}

/// Row 3: posts per second, 16 in flight.
fn in_flight(bench: &mut Bench, pair: &Pair) {
    let count = if bench.quick { 320 } else { 4_000 };
    let hosts = [&pair.reference, &pair.askd];
    let (mut rates, mut tails) = ([const { Vec::new() }; 2], [const { Vec::new() }; 2]);
    for _ in 0..bench.rounds {
        let figures = bench.round(&hosts.map(World::pid), |bench| {
            hosts.map(|world| {
                let asks = spread(bench.numbers(count), world.groups);
                flight(bench, world, &asks)
            })
        });
        for (index, (rate, times)) in figures.into_iter().enumerate() {
            rates[index].push(rate);
            tails[index].push(times.p99());
        }
    }
    let [floor, askd] = rates.map(median);
    bench.report.row(3, "posts per second, 16 in flight", Unit::PerSecond, Some(floor), askd, Goal::Reaches(0.6));
    let [floor, askd] = tails.map(median);
    bench.report.row(3, "the same: p99", Unit::Seconds, Some(floor), askd, Goal::Within(2.0));
}

fn flight(bench: &Bench, world: &World, asks: &[(u64, usize)]) -> (f64, Times) {
    let before = bench.chat.posts();
    let mut begun = std::collections::HashMap::new();
    let start = Instant::now();
    let (mut sent, mut seen, mut times) = (0, 0, Vec::new());
    while seen < asks.len() {
        while sent < asks.len() && sent - seen < 16 {
            let (number, group) = asks[sent];
            begun.insert(number, world.ask(number, group));
            sent += 1;
        }
        assert!(bench.chat.wait_for_posts(before + seen + 1, PATIENCE), "no post");
        for (number, at) in bench.chat.posts_from(before + seen) {
            times.push((at - begun[&number]).as_secs_f64());
            seen += 1;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of posts")]
    let rate = asks.len() as f64 / start.elapsed().as_secs_f64();
    (rate, Times::new(times))
}

/// Row 4: from a click to its response in the agent's hand.
fn answers(bench: &mut Bench, groups: usize) {
    let template = bench.template();
    let mut pair = Pair::new(bench, groups);
    let count = if bench.quick { 100 } else { 1_000 };
    let enough = count * u64::try_from(bench.rounds * bench.tries() + 1).unwrap();
    let mut waiting = [&pair.reference, &pair.askd].map(|world| {
        let asks = spread(bench.numbers(enough), groups);
        template.fill(world, &asks);
        (world.host, asks)
    });
    let _synced = std::process::Command::new("sync").arg("-f").arg(&bench.base).status();
    pair.start();
    let agents = [&pair.reference, &pair.askd].map(|world| (world.host, Agents::watch(world)));
    let mut connections = [&pair.reference, &pair.askd].map(|world| (world.host, Connection::new(world.port)));
    let [floor, askd] = pair.rounds(bench, |_, world| {
        let at = usize::from(world.host == Host::Askd);
        let left = waiting[at].1.len() - usize::try_from(count).unwrap();
        let these = waiting[at].1.split_off(left);
        let clicks = world.clicks(&these, &template);
        let trip = |click: &crate::load::Click| {
            let begun = Instant::now();
            let (status, _) = connections[at].1.call(&click.request).unwrap();
            assert_eq!(status, 200, "a click on {}", click.number);
            (agents[at].1.see(click.number) - begun).as_secs_f64()
        };
        let times = Times::new(clicks.iter().map(trip).collect());
        world.take(&these);
        times
    });
    let what = format!("signed click -> response seen by the agent, {groups} groups");
    bench.report.row(4, &format!("{what}: p50"), Unit::Seconds, Some(floor[0]), askd[0], Goal::Within(1.5));
    bench.report.row(4, &format!("{what}: p99"), Unit::Seconds, Some(floor[1]), askd[1], Goal::Within(2.0));
}
