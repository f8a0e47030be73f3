//! The gates: each shows a promise on the real daemon, and prints one line of figures. Some kill the daemon, or its disk,
//! again and again while people answer; then a judge who knows only what clients saw looks for broken promises. Others
//! attack it, flood it, set its clock, or look for secrets. `tests/gates/run` plays them; `docs/reliability.md` has the
//! figures.
#![cfg(feature = "host")]
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::too_many_lines,
    reason = "gates say what they find, live in real time, and are read from top to bottom"
)]

mod agent;
mod attacks;
mod clocks;
mod cluster;
mod daemon;
mod dice;
mod disks;
mod files;
mod flood;
mod history;
mod intruder;
#[path = "../it/journal.rs"]
#[expect(clippy::unwrap_used, reason = "what the daemon has written has this shape")]
mod journal;
mod marks;
mod phones;
#[path = "../it/ports.rs"]
#[expect(clippy::expect_used, reason = "no more processes of tests are played at a time")]
mod ports;
mod post;
mod power;
mod refusals;
mod server;
mod slack;
mod whatsapp;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cluster::Troubles;
use futures_util::future::join_all;
use history::Verdict;
use power::{FILE_SYSTEMS, FileSystem};

/// One of the gates.
struct Gate {
    name: &'static str,
    /// How much of it, in units of `what`: when broken on purpose, in `tests/run`, and with `--long`.
    rounds: [usize; 3],
    what: &'static str,
    /// The figures that have to be 0.
    counted: &'static [&'static [&'static str]],
    /// What can be played beside it. With `--long` each gate is alone.
    beside: Beside,
    /// A promise to break on purpose, and figures of which at least one must then not be 0.
    sabotages: &'static [(&'static str, &'static [&'static str])],
}

/// What can be played beside a gate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    /// Other gates, and other work.
    Gates,
    /// Nothing: it judges how long others wait, or how late an outcome is.
    Nothing,
}

/// How many people are asked on their phone in `kills` and `soak`.
const PHONES: usize = 6;

/// What is counted wherever agents ask and people answer.
const LIVES: &[&str] = &["lost", "torn", "invented", "two winners", "twice", "second cards", "left open"];

const GATES: [Gate; 13] = [
    Gate {
        name: "kills",
        rounds: [10, 8, 1_000],
        what: "kills",
        counted: &[LIVES],
        beside: Beside::Gates,
        sabotages: &[("ackfirst", &["two winners", "lost"])],
    },
    Gate {
        name: "kills-slack",
        rounds: [8, 15, 150],
        what: "kills",
        counted: &[LIVES],
        beside: Beside::Gates,
        sabotages: &[("ackfirst", &["two winners"])],
    },
    Gate {
        name: "kills-whatsapp",
        rounds: [12, 4, 60],
        what: "kills",
        counted: &[LIVES, &["repeats", "from before"]],
        beside: Beside::Gates,
        sabotages: &[("notimerule", &["from before"]), ("noseen", &["repeats", "from before"])],
    },
    Gate {
        name: "cluster",
        rounds: [4, 3, 60],
        what: "troubles of three daemons",
        counted: &[LIVES, &["untold", "late", "early", "two leaders"]],
        beside: Beside::Nothing,
        sabotages: &[
            ("nofence", &["two leaders"]),
            ("ackfirst", &["two winners", "lost"]),
            ("nopoll", &["left open", "lost", "late", "untold"]),
            ("norowlock", &["two winners", "lost", "left open"]),
            ("untimed", &["late"]),
            ("nohandover", &["left open", "lost"]),
            ("anyhost", &["lost"]),
            ("nosilence", &["untold"]),
            ("unkept", &["lost"]),
        ],
    },
    Gate {
        name: "cluster-power",
        rounds: [6, 2, 30],
        what: "power cuts of the database",
        counted: &[LIVES, &["late", "early"]],
        beside: Beside::Nothing,
        sabotages: &[("nosync", &["two winners", "lost"])],
    },
    Gate {
        name: "power-cuts",
        rounds: [20, 4, 50],
        what: "power cuts",
        counted: &[&["lost", "torn", "invented", "two winners", "second cards", "left open"]],
        beside: Beside::Gates,
        sabotages: &[
            ("nofsync", &["lost"]),
            ("nofilesync", &["lost", "torn"]),
            ("nojournalsync", &["lost", "two winners", "second cards", "left open"]),
            ("sameboot", &["lost", "second cards", "left open"]),
        ],
    },
    Gate {
        name: "disks",
        rounds: [1, 1, 1],
        what: "round of all troubles",
        counted: &[&["lost", "torn", "invented", "two winners", "twice", "lies", "untold", "stays broken"]],
        beside: Beside::Gates,
        sabotages: &[("ackfirst", &["lost", "two winners"])],
    },
    Gate {
        name: "attacks",
        rounds: [10, 5, 600],
        what: "seconds",
        counted: &[&["read outside", "written outside", "hangs", "lost", "torn"]],
        beside: Beside::Nothing,
        sabotages: &[("followlinks", &["read outside", "written outside"])],
    },
    Gate {
        name: "flood",
        rounds: [50, 20, 300],
        what: "thousand names",
        counted: &[&["kept waiting", "growing"]],
        beside: Beside::Nothing,
        sabotages: &[("onedesk", &["kept waiting"])],
    },
    Gate {
        name: "refusals",
        rounds: [1, 1, 1],
        what: "table",
        counted: &[&["state changes", "other replies"]],
        beside: Beside::Gates,
        sabotages: &[("notoken", &["state changes"]), ("unsigned", &["state changes"]), ("anytap", &["state changes"])],
    },
    Gate {
        name: "marks",
        rounds: [1, 1, 1],
        what: "round of all levels",
        counted: &[&["secrets", "texts"]],
        beside: Beside::Gates,
        sabotages: &[("secretname", &["secrets"])],
    },
    Gate {
        name: "clocks",
        rounds: [1, 1, 2],
        what: "round of all clocks",
        counted: &[&["early", "late", "swept away", "two daemons"]],
        beside: Beside::Gates,
        sabotages: &[("notick", &["late"])],
    },
    Gate {
        name: "soak",
        rounds: [4, 4, 60],
        what: "lives",
        counted: &[LIVES, &["growing"]],
        beside: Beside::Gates,
        sabotages: &[("ackfirst", &["two winners", "lost"])],
    },
];

/// What the command line asks for.
struct Orders {
    gates: Vec<String>,
    /// Only those beside which that can be played.
    beside: Option<Beside>,
    long: bool,
    sabotages: bool,
    seed: u64,
}

fn orders() -> Result<Option<Orders>, String> {
    let mut args = std::env::args().skip(1);
    // Plain `cargo test` passes no arguments, or arguments for other tests.
    if args.next().as_deref() != Some("--gates") {
        return Ok(None);
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let seed = std::env::var("ASKD_SEED").ok().map(|seed| seed.parse().map_err(|_| format!("ASKD_SEED={seed}")));
    let mut orders =
        Orders { gates: Vec::new(), beside: None, long: false, sabotages: false, seed: seed.unwrap_or(Ok(now))? };
    for arg in args {
        match arg.as_str() {
            "--long" => orders.long = true,
            "--together" => orders.beside = Some(Beside::Gates),
            "--alone" => orders.beside = Some(Beside::Nothing),
            "--sabotages" => orders.sabotages = true,
            name if GATES.iter().any(|gate| gate.name == name) => orders.gates.push(arg),
            _ => return Err(format!("there is no gate {arg:?}: there are {}", GATES.map(|gate| gate.name).join(", "))),
        }
    }
    Ok(Some(orders))
}

/// The gate `attacks` starts this program once more, as the hostile agent.
fn intruder() -> Option<ExitCode> {
    let args: Vec<String> = std::env::args().collect();
    let [_, gates, attack, group, outside, seconds] = args.as_slice() else { return None };
    if gates != "--gates" || attack != "--attack" {
        return None;
    }
    let attacked = seconds.parse().map_err(std::io::Error::other);
    let attacked = attacked.and_then(|seconds| intruder::attack(Path::new(group), Path::new(outside), seconds));
    Some(attacked.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn main() -> ExitCode {
    if let Some(ended) = intruder() {
        return ended;
    }
    let orders = match orders() {
        Ok(Some(orders)) => orders,
        Ok(None) => {
            println!("Gates are played by tests/gates/run.");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            println!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let named = |gate: &Gate| orders.gates.is_empty() || orders.gates.iter().any(|name| name == gate.name);
    let wanted = |gate: &&Gate| named(gate) && orders.beside.is_none_or(|beside| beside == gate.beside);
    let (alone, others): (Vec<_>, Vec<_>) =
        GATES.iter().filter(wanted).partition(|gate| gate.beside != Beside::Gates || orders.long);
    let play = async |gate: &Gate| (!one(gate, &orders).await).then_some(gate.name);
    let mut failed: Vec<_> = alone.into_iter().filter_map(|gate| runtime.block_on(play(gate))).collect();
    failed.extend(runtime.block_on(join_all(others.into_iter().map(play))).into_iter().flatten());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("Failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

/// Plays a gate as ordered.
async fn one(gate: &Gate, orders: &Orders) -> bool {
    let missing = match gate.name {
        "power-cuts" => power::missing(),
        "cluster" => cluster::missing(),
        "cluster-power" => power::missing().or_else(cluster::missing),
        _ => None,
    };
    if let Some(why) = missing {
        println!("SKIPPED {}: {why}", gate.name);
        return true;
    }
    if !orders.sabotages {
        return honest(gate, orders).await;
    }
    let (mut passed, only) = (true, std::env::var("ASKD_BROKEN").ok());
    for (sabotage, figures) in gate.sabotages.iter().filter(|(name, _)| only.as_ref().is_none_or(|only| only == name)) {
        passed &= broken(gate, orders, sabotage, figures).await;
    }
    passed
}

async fn play(
    gate: &Gate,
    orders: &Orders,
    sabotage: Option<&'static str>,
    on: Option<FileSystem>,
) -> Result<Verdict, String> {
    let rounds = gate.rounds[usize::from(orders.long) + usize::from(sabotage.is_none())];
    let rounds = std::env::var("ASKD_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(rounds);
    let (began, seed) = (Instant::now(), orders.seed);
    let plan = slack::Plan { rounds, seed, sabotage, cuts: on, phones: 0, life: None };
    let verdict = match gate.name {
        "kills-whatsapp" => whatsapp::play(rounds, seed, sabotage).await,
        "kills" => slack::play(&slack::Plan { phones: PHONES, ..plan }).await,
        "soak" => {
            // With `--long`, an hour in which the daemon is killed each minute.
            let life = Some(Duration::from_secs(if orders.long && sabotage.is_none() { 60 } else { 2 }));
            slack::play(&slack::Plan { phones: PHONES, life, ..plan }).await
        }
        "cluster" => cluster::play(Troubles::OfDaemons, rounds, seed, sabotage).await,
        "cluster-power" => cluster::play(Troubles::OfPower, rounds, seed, sabotage).await,
        "disks" => disks::play(sabotage).await,
        "attacks" => attacks::play(rounds as u64, sabotage).await,
        "flood" => flood::play(rounds, sabotage).await,
        "refusals" => refusals::play(seed, sabotage).await,
        "marks" => marks::play(seed, sabotage.is_some()).await,
        "clocks" => clocks::play(rounds > 1, sabotage).await,
        _ => slack::play(&plan).await,
    };
    let with = sabotage.map(|sabotage| format!(" with {sabotage}")).unwrap_or_default();
    let on = on.map(|system| format!(" on {}", system.name)).unwrap_or_default();
    let figures = verdict.as_ref().map_or_else(Clone::clone, |verdict| verdict.figures(&gate.counted.concat()));
    println!(
        "{}{on}{with}: {rounds} {}: {figures} (seed {}, {} s)",
        gate.name,
        gate.what,
        orders.seed,
        began.elapsed().as_secs()
    );
    verdict
}

/// The disks whose power a gate cuts; `None` for a gate that cuts none.
fn disks(gate: &Gate, long: bool) -> Vec<Option<FileSystem>> {
    if gate.name != "power-cuts" {
        return vec![None];
    }
    let (here, missing): (Vec<_>, Vec<_>) = FILE_SYSTEMS.into_iter().partition(FileSystem::can_be_made);
    for system in missing {
        println!("SKIPPED {} on {}: mkfs is missing here", gate.name, system.name);
    }
    // The short form cuts on the two that help askd least.
    here.into_iter().take(if long { FILE_SYSTEMS.len() } else { 2 }).map(Some).collect()
}

/// Plays the daemon as it is: the judge must find nothing.
async fn honest(gate: &Gate, orders: &Orders) -> bool {
    let mut passed = true;
    for on in disks(gate, orders.long) {
        let Ok(verdict) = play(gate, orders, None, on).await else { return false };
        for finding in verdict.findings().iter().take(20) {
            println!("  {finding}");
        }
        passed &= verdict.findings().is_empty();
    }
    passed
}

/// Plays the daemon broken on purpose: the judge has to notice.
async fn broken(gate: &Gate, orders: &Orders, sabotage: &'static str, figures: &[&str]) -> bool {
    let on = disks(gate, false).swap_remove(0);
    let verdict = play(gate, orders, Some(sabotage), on).await.unwrap_or_default();
    let noticed = figures.iter().any(|what| verdict.bad(what) > 0);
    let wanted = |finding: &&String| figures.iter().any(|what| finding.starts_with(what));
    for finding in verdict.findings().iter().filter(wanted).take(8) {
        println!("  noticed: {}", finding.chars().take(200).collect::<String>());
    }
    if !noticed {
        println!("  {sabotage}: nobody noticed");
    }
    noticed
}

/// Keeps the daemon's log of a run in which something was found.
fn keep(log: &Path) {
    let named = |number| std::env::temp_dir().join(format!("askd-gate-{}-{number}.log", std::process::id()));
    let kept = (1..=100).map(named).find(|kept| !kept.exists());
    if let Some(kept) = kept.filter(|kept| std::fs::copy(log, kept).is_ok()) {
        println!("  the daemon's log: {}", kept.display());
    }
}
