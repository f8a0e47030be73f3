//! No stall: clicks at half of the highest rate that can go on, in an open loop, while the settings are reloaded, each call
//! to the chat takes 2 s, 100,000 settled asks grow too old, and one group floods. What counts is the tail of click -> 200.

use crate::Bench;
use crate::load::{burst, click, send};
use crate::report::{Goal, Unit};
use crate::rows::Agents;
use crate::system;
use crate::world::{Host, Template, World, fresh, spread};
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// So many that no group begins with more settled asks than it keeps.
const GROUPS: usize = 20;
/// As in the settings of `World`, whose records the asks are made from.
const KEPT: Duration = Duration::from_secs(30 * 86_400);

/// What happens beside the clicks, by the share of the time that has passed.
struct Troubles<'a> {
    bench: &'a Bench,
    world: &'a World,
    whole: Duration,
    over: &'a AtomicBool,
}

/// How many clicks a second askd acknowledges in a burst, and how many if the burst ends when the last card is closed: only the second
/// rate can go on.
fn highest(bench: &mut Bench, template: &Template) -> (f64, f64) {
    const TRIES: u64 = 20_000;
    let mut world = World::new(Host::Askd, fresh(&bench.base, "highest"), GROUPS, &bench.chat);
    let tries = spread(bench.numbers(TRIES), GROUPS);
    template.fill(&world, &tries);
    world.start();
    world.rest();
    let clicks = world.clicks(&tries, template);
    let begun = Instant::now();
    let acknowledged = burst(world.port, 32, &clicks);
    let numbers: Vec<u64> = tries.iter().map(|(number, _)| *number).collect();
    let missing = bench.chat.wait_for_updates(&numbers, Duration::from_secs(120));
    let took = begun.elapsed();
    assert_eq!((acknowledged.failed(), missing), (0, 0), "each click is acknowledged, and each card closed");
    assert_eq!(world.take(&tries), tries.len(), "each agent has its response");
    world.stop();
    #[expect(clippy::cast_precision_loss, reason = "a count of clicks")]
    let followed = tries.len() as f64 / took.as_secs_f64();
    (acknowledged.rate(), followed)
}

pub(crate) fn measure(bench: &mut Bench, minutes: f64) {
    let template = bench.template();
    let (acknowledged, highest) = highest(bench, &template);
    let mut world = World::new(Host::Askd, fresh(&bench.base, "stall"), GROUPS, &bench.chat);
    let whole = Duration::from_secs_f64(minutes * 60.0);
    let rate = highest / 2.0;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of clicks")]
    let count = (rate * whole.as_secs_f64()) as usize;
    let asks = spread(bench.numbers(count as u64), GROUPS);
    template.fill(&world, &asks);
    let old = spread(bench.numbers(100_000), GROUPS);
    template.fill_settled(&world, &old, KEPT.checked_sub(whole / 2).unwrap());
    let flood = bench.numbers(1_000_000);
    let _synced = std::process::Command::new("sync").arg("-f").arg(&bench.base).status();
    world.start();
    let over = AtomicBool::new(false);
    let troubles = Troubles { bench, world: &world, whole, over: &over };
    let make = |index: usize| {
        let (number, group) = asks[index];
        Cow::Owned(click(number, group, &template.button(number, group), world.port, true).request)
    };
    let burst = std::thread::scope(|scope| {
        scope.spawn(|| troubles.play(flood));
        scope.spawn(|| troubles.take_responses());
        let burst = send(world.port, 64, count, Some(rate), 200, &make);
        over.store(true, Ordering::Relaxed);
        burst
    });
    bench.report.note(format!(
        "no stall: {} clicks in {minutes} min at {rate:.0} a second, half of {highest:.0}, which can go on (a burst reaches \
         {acknowledged:.0}); p50 {}, p99 {}; not acknowledged: {:?}",
        burst.times.len(),
        Unit::Seconds.show(burst.times.p50()),
        Unit::Seconds.show(burst.times.p99()),
        burst.errors
    ));
    let (settled, kept) = (world.state("settled", 0), old.len() / GROUPS);
    let left = std::fs::read_dir(settled).unwrap().count();
    bench
        .report
        .note(format!("no stall: {left} files in a folder of settled asks; {kept} that were too old lay there before"));
    let mut tell =
        |what: &str, value: f64, most: f64, unit| bench.report.row(19, what, unit, None, value, Goal::AtMost(most));
    tell("no stall: 99.9th percentile of click -> 200", burst.times.at(0.999), 0.25, Unit::Seconds);
    tell("no stall: the slowest click -> 200", burst.times.max(), 2.0, Unit::Seconds);
    #[expect(clippy::cast_precision_loss, reason = "a count of clicks")]
    tell("no stall: clicks that were not acknowledged", burst.failed() as f64, 0.0, Unit::Count);
    let memory = system::memory(world.pid());
    bench.report.note(format!(
        "no stall: {} of memory at the end, at most {}",
        memory.0 / 1_000_000,
        memory.1 / 1_000_000
    ));
}

impl Troubles<'_> {
    fn sleep_to(&self, begun: Instant, share: f64) {
        let at = begun + self.whole.mul_f64(share);
        while Instant::now() < at && !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Each trouble has a tenth of the time or more; the settled asks grow too old in the middle.
    fn play(&self, mut flood: std::ops::Range<u64>) {
        let begun = Instant::now();
        let slow = |millis| self.bench.chat.delay.store(millis, Ordering::Relaxed);
        self.sleep_to(begun, 0.1);
        self.world.signal("HUP");
        self.sleep_to(begun, 0.2);
        slow(2_000);
        self.sleep_to(begun, 0.3);
        self.world.signal("HUP");
        self.sleep_to(begun, 0.4);
        slow(0);
        self.sleep_to(begun, 0.7);
        // One group writes requests as fast as it can, for a tenth of the time at 500 a second.
        let end = begun + self.whole.mul_f64(0.8);
        while Instant::now() < end && !self.over.load(Ordering::Relaxed) {
            for number in flood.by_ref().take(25) {
                self.world.ask(number, 0);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        self.sleep_to(begun, 0.85);
        slow(2_000);
        self.sleep_to(begun, 0.9);
        slow(0);
    }

    /// Agents take what they get.
    fn take_responses(&self) {
        let agents = Agents::watch(self.world);
        while !self.over.load(Ordering::Relaxed) {
            if let Some((number, _)) = agents.next_within(Duration::from_millis(200)) {
                #[expect(clippy::cast_possible_truncation, reason = "a small index")]
                self.world.take(&[(number, (number % GROUPS as u64) as usize)]);
            }
        }
    }
}
