//! 100,000 asks wait for people: how long a start takes, what they cost in memory, how fast clicks are answered.

use super::median;
use crate::Bench;
use crate::bolt;
use crate::floor;
use crate::load::{Burst, Click, Connection, burst, click, get, send};
use crate::report::{Goal, Unit};
use crate::system;
use crate::world::{Host, TOKEN, Template, World, fresh, spread};
use serde_json::Value;
use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const PENDING: u64 = 100_000;
const GROUPS: usize = 10;
const CONNECTIONS: usize = 32;
/// What follows a burst has to be done within this time.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(10);

type Asks = Vec<(u64, usize)>;

/// The worlds of a burst. Each host has asks of its own that wait to be clicked.
struct Hosts {
    askd: World,
    reference: World,
    bolt: Option<World>,
    fresh: Vec<Asks>,
}

impl Hosts {
    fn worlds(&self) -> impl Iterator<Item = &World> {
        [&self.askd, &self.reference].into_iter().chain(&self.bolt)
    }

    fn pids(&self) -> Vec<u32> {
        self.worlds().map(World::pid).collect()
    }

    fn host(&self, host: Host) -> (usize, &World) {
        self.worlds().enumerate().find(|(_, world)| world.host == host).unwrap()
    }

    /// Clicks on asks that wait, each once.
    fn clicks(&mut self, host: Host, count: usize, template: &Template) -> (Asks, Vec<Click>) {
        let (index, _) = self.host(host);
        let left = self.fresh[index].len() - count;
        let asks = self.fresh[index].split_off(left);
        let clicks = self.host(host).1.clicks(&asks, template);
        (asks, clicks)
    }
}

/// What one burst came to, with all that follows it.
struct Outcome {
    burst: Burst,
    /// Responses and cards that were not there in time.
    missing: usize,
}

pub(crate) fn measure(bench: &mut Bench) {
    let template = bench.template();
    let count = if bench.quick { 1_000 } else { 5_000 };
    // Enough for rounds that are played again.
    let clicks = (bench.rounds * bench.tries() + 3) * count * 2;
    let clicks = u64::try_from(clicks).unwrap().min(PENDING);
    let make = |bench: &mut Bench, host, name, asks| {
        let world = World::new(host, fresh(&bench.base, name), GROUPS, &bench.chat);
        let asks = spread(bench.numbers(asks), GROUPS);
        template.fill(&world, &asks);
        (world, asks)
    };
    let (daemon, daemon_asks) = make(bench, Host::Askd, "pending", PENDING);
    let (reference, reference_asks) = make(bench, Host::Reference, "reference", clicks);
    let mut hosts = Hosts { askd: daemon, reference, bolt: None, fresh: vec![daemon_asks, reference_asks] };
    if bench.wants(&[5]) {
        match bolt::install() {
            Ok(()) => {
                let (bolt, waiting) = make(bench, Host::Bolt, "bolt", clicks);
                hosts.bolt = Some(bolt);
                hosts.fresh.push(waiting);
            }
            Err(why) => bench.report.skip(&format!("Slack Bolt JS: {why}")),
        }
    }
    let _synced = std::process::Command::new("sync").arg("-f").arg(&bench.base).status();
    start(bench, &mut hosts, &template);
    if bench.wants(&[8, 18]) {
        reading(bench, &hosts);
    }
    if bench.wants(&[5, 6, 7, 17]) {
        hosts.reference.start();
        if let Some(bolt) = &mut hosts.bolt {
            bolt.start();
        }
        bursts(bench, &mut hosts, &template, count);
    }
    if bench.wants(&[7]) {
        forged(bench, &mut hosts, &template);
    }
}

/// Row 9, and the memory of row 8. In the end the daemon runs.
fn start(bench: &mut Bench, hosts: &mut Hosts, template: &Template) {
    let times = if bench.wants(&[9]) && !bench.quick { 3 } else { 1 };
    let (mut takes, mut loads) = (Vec::new(), Vec::new());
    // After a crash, as which it takes the first start, it also reads the audit log.
    hosts.askd.start();
    hosts.askd.rest();
    for _ in 0..times {
        hosts.askd.stop();
        let (_, clicks) = hosts.clicks(Host::Askd, 1, template);
        let (took, loaded) = start_once(&mut hosts.askd, &clicks[0]);
        takes.push(took);
        loads.push(loaded);
    }
    if bench.wants(&[9]) {
        let folders: Vec<PathBuf> = (0..GROUPS).map(|group| hosts.askd.pending(group)).collect();
        let reads = (0..times).map(|_| floor::read_all(&folders, 2).as_secs_f64()).collect();
        let what = "start with 100,000 pending, warm: first signed click and inbox";
        bench.report.row(9, what, Unit::Seconds, None, median(takes), Goal::AtMost(1.0));
        let what = "the same: loading is done (floor: two threads read and parse)";
        bench.report.row(9, what, Unit::Seconds, Some(median(reads)), median(loads), Goal::Within(1.5));
    }
    hosts.askd.rest();
    if bench.wants(&[8]) {
        let (now, peak) = system::memory(hosts.askd.pid());
        let what = "memory with 100,000 pending, after a start with them";
        bench.report.row(8, what, Unit::Bytes, None, bytes(now), Goal::AtMost(32e6));
        bench.report.note(format!("memory at most since that start: {}", Unit::Bytes.show(bytes(peak))));
    }
}

/// From `exec` to the first click that is answered with the inbox, and to the end of loading.
pub(crate) fn start_once(world: &mut World, click: &Click) -> (f64, f64) {
    let begun = Instant::now();
    world.spawn();
    let answered = |request: &[u8]| matches!(Connection::new(world.port).call(request), Ok((200, _)));
    let page = get(world.port, "/", TOKEN);
    let took = system::until(Duration::from_secs(300), || answered(&click.request) && answered(&page));
    let took = took.then(|| begun.elapsed().as_secs_f64()).expect("a click is answered");
    let ready = get(world.port, "/readyz", TOKEN);
    assert!(system::until(Duration::from_secs(300), || answered(&ready)), "it gets ready");
    (took, begun.elapsed().as_secs_f64())
}

#[expect(clippy::cast_precision_loss, reason = "a size")]
pub(super) fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

/// Row 18, and what reading a list adds to the memory (row 8).
fn reading(bench: &mut Bench, hosts: &Hosts) {
    let (port, pid) = (hosts.askd.port, hosts.askd.pid());
    let mut connection = Connection::new(port);
    let mut page = |path: &str| {
        let begun = Instant::now();
        let (status, body) = connection.call(&get(port, path, TOKEN)).unwrap();
        assert_eq!(status, 200, "{path}: {}", String::from_utf8_lossy(&body));
        (begun.elapsed().as_secs_f64(), body)
    };
    let times: Vec<f64> = (0..9).map(|_| page("/api/v1/asks?state=open").0).collect();
    if bench.wants(&[18]) {
        let what = "first page of GET /api/v1/asks with 100,000 pending";
        bench.report.row(18, what, Unit::Seconds, None, median(times), Goal::AtMost(0.03));
    }
    if bench.wants(&[8]) {
        let (before, _) = system::memory(pid);
        system::forget_peak(pid);
        let (mut path, mut pages) = ("/api/v1/asks?state=open&limit=1000".to_owned(), 0);
        loop {
            let (_, body) = page(&path);
            let list: Value = serde_json::from_slice(&body).unwrap();
            pages += 1;
            match list["next"].as_str() {
                Some(next) if pages < 20 || !bench.quick => {
                    path = format!("/api/v1/asks?state=open&limit=1000&after={next}");
                }
                _ => break,
            }
        }
        let more = bytes(system::memory(pid).1.saturating_sub(before));
        let what = format!("memory on top while {pages} pages of 1,000 are read");
        bench.report.row(8, &what, Unit::Bytes, None, more, Goal::AtMost(8e6));
    }
}

fn one_burst(bench: &Bench, hosts: &mut Hosts, template: &Template, host: Host, conns: usize, count: usize) -> Outcome {
    let (asks, clicks) = hosts.clicks(host, count, template);
    let world = hosts.host(host).1;
    let burst = burst(world.port, conns, &clicks);
    let numbers: Vec<u64> = asks.iter().map(|(number, _)| *number).collect();
    let ended = Instant::now();
    let cards = bench.chat.wait_for_updates(&numbers, FOLLOWS_WITHIN);
    let left = FOLLOWS_WITHIN.saturating_sub(ended.elapsed());
    let missing = |(number, group): &(u64, usize)| host != Host::Bolt && !world.response(*number, *group).exists();
    let responses = || asks.iter().filter(|ask| missing(ask)).count();
    system::until(left, || responses() == 0);
    let outcome = Outcome { burst, missing: cards + responses() };
    if host != Host::Bolt {
        world.take(&asks);
    }
    outcome
}

/// Rows 5, 6 (256 connections) and 17.
fn bursts(bench: &mut Bench, hosts: &mut Hosts, template: &Template, count: usize) {
    let mut all = vec![Host::Reference, Host::Askd];
    all.extend(hosts.bolt.as_ref().map(|_| Host::Bolt));
    for host in &all {
        one_burst(bench, hosts, template, *host, CONNECTIONS, count / 2);
    }
    let pids = hosts.pids();
    let (mut used, mut floor_used, mut answered, mut grown) = (0.0, 0.0, 0, 0.0);
    let mut floors = Vec::new();
    let mut played: Vec<Vec<Outcome>> = all.iter().map(|_| Vec::new()).collect();
    let base = bench.base.clone();
    for round in 0..bench.rounds {
        let outcomes = bench.round(&pids, |bench| {
            let (floor, _) = floor::durable(&base.join(format!("floor-{round}")), CONNECTIONS, GROUPS, count);
            floors.push(floor);
            let mut outcomes = Vec::new();
            for host in &all {
                let (cpu, memory) = (system::cpu(hosts.askd.pid()), system::memory(hosts.askd.pid()).0);
                let floor_cpu = system::cpu(hosts.reference.pid());
                outcomes.push(one_burst(bench, hosts, template, *host, CONNECTIONS, count));
                floor_used += system::cpu(hosts.reference.pid()) - floor_cpu;
                if *host == Host::Askd {
                    // Until the responses are known to be taken and the asks are filed.
                    std::thread::sleep(Duration::from_millis(if bench.quick { 500 } else { 7_000 }));
                    used += system::cpu(hosts.askd.pid()) - cpu;
                    grown += bytes(system::memory(hosts.askd.pid()).0) - bytes(memory);
                    answered += count;
                }
            }
            outcomes
        });
        for (of, outcome) in played.iter_mut().zip(outcomes) {
            of.push(outcome);
        }
    }
    let rates = |index: usize| median(played[index].iter().map(|outcome| outcome.burst.rate()).collect());
    let p99 = |index: usize| median(played[index].iter().map(|outcome| outcome.burst.times.p99()).collect());
    let floor = median(floors);
    judge(bench, rates(0), floor);
    if bench.wants(&[5]) {
        let what = "signed clicks answered durably, 32 connections, 100,000 pending";
        bench.report.row(5, what, Unit::PerSecond, Some(rates(0)), rates(1), Goal::Reaches(0.7));
        bench.report.row(5, "the same: p99", Unit::Seconds, Some(p99(0)), p99(1), Goal::Within(1.5));
        if hosts.bolt.is_some() {
            let what = "the same, beside Slack Bolt JS with a durable file";
            bench.report.row(5, what, Unit::PerSecond, Some(rates(2)), rates(1), Goal::Reaches(2.0));
            bench.report.note(format!("Slack Bolt JS 5.1.0: p99 {}", Unit::Seconds.show(p99(2))));
        }
        let bad = played[1].iter().map(|outcome| outcome.missing + outcome.burst.failed()).max().unwrap_or(0);
        let what = "the same: not acknowledged, or response or card later than 10 s";
        bench.report.row(5, what, Unit::Count, None, bytes(bad as u64), Goal::AtMost(0.0));
    }
    if bench.wants(&[17]) {
        work_of_a_click(bench, used, floor_used, grown, answered);
    }
    if bench.wants(&[6]) {
        many_connections(bench, hosts, template, count);
    }
}

/// Row 17.
fn work_of_a_click(bench: &mut Bench, used: f64, floor_used: f64, grown: f64, answered: usize) {
    #[expect(clippy::cast_precision_loss, reason = "a count of clicks")]
    let (each, floor, grew) = (used / answered as f64, floor_used / answered as f64, grown / answered as f64);
    let what = "processor time of an answered click and all that follows";
    bench.report.row(17, what, Unit::Seconds, None, each, Goal::AtMost(0.6e-3));
    bench.report.note(format!("the reference took {} per click", Unit::Seconds.show(floor)));
    bench.report.note(format!("memory grew by {grew:.0} B for each answered click"));
}

/// The reference has to be near the floor itself, or its ratios say nothing.
fn judge(bench: &mut Bench, reference: f64, floor: f64) {
    let share = reference / floor;
    let verdict = if share >= 0.5 { "it counts" } else { "THIS RUN IS VOID" };
    let note = format!(
        "the reference answers {reference:.0} clicks/s, {share:.2} of the bare floor ({floor:.0} durable files/s, 32 writers): {verdict}"
    );
    bench.report.note(note);
}

/// Row 6 with 256 connections.
fn many_connections(bench: &mut Bench, hosts: &mut Hosts, template: &Template, count: usize) {
    let pids = hosts.pids();
    let (mut floors, mut tails, mut rates, mut failed) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..bench.rounds.min(if bench.quick { 1 } else { usize::MAX }) {
        let (reference, askd) = bench.round(&pids, |bench| {
            let reference = one_burst(bench, hosts, template, Host::Reference, 256, count);
            (reference, one_burst(bench, hosts, template, Host::Askd, 256, count))
        });
        floors.push(reference.burst.times.p99());
        tails.push(askd.burst.times.p99());
        rates.push(askd.burst.rate());
        failed = failed.max(askd.burst.failed() + askd.missing);
    }
    let what = "signed clicks, 256 connections: p99";
    bench.report.row(6, what, Unit::Seconds, Some(median(floors)), median(tails), Goal::Within(1.3));
    let what = "the same: not acknowledged, or followed too late";
    bench.report.row(6, what, Unit::Count, None, bytes(failed as u64), Goal::AtMost(0.0));
    bench.report.note(format!("with 256 connections: {:.0} clicks/s", median(rates)));
}

/// Row 7: forged clicks are refused while genuine ones flow.
fn forged(bench: &mut Bench, hosts: &mut Hosts, template: &Template) {
    let (_, alone) = hosts.clicks(Host::Askd, 200, template);
    let (_, beside) = hosts.clicks(Host::Askd, 200, template);
    let port = hosts.askd.port;
    let count = if bench.quick { 20_000 } else { 200_000 };
    let button =
        crate::load::Button { block_id: "askd:0:q0:1".into(), action_id: "pick:0:0".into(), value: "0".into() };
    let one = click(1, 0, &button, port, false).request;
    let quiet = burst(port, 1, &alone).times.p99();
    let (refused, good) = std::thread::scope(|scope| {
        let refusing = scope.spawn(|| send(port, 32, count, None, 401, &|_| Cow::Borrowed(&one)));
        let good = burst(port, 1, &beside);
        (refusing.join().unwrap(), good)
    });
    let what = "bad signatures refused while good clicks flow";
    bench.report.row(7, what, Unit::PerSecond, None, refused.rate(), Goal::AtLeast(25_000.0));
    let what = "a good click's p99 meanwhile (floor: its own alone)";
    bench.report.row(7, what, Unit::Seconds, Some(quiet), good.times.p99(), Goal::Within(3.0));
}
