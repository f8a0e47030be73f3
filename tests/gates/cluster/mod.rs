//! Several daemons with one database: a proxy sends people and agents to any of them, while daemons are killed, one is paused for
//! longer than its lease, and the database is cut off, or its computer loses its power. Some groups ask through a folder, which one host
//! has. `tests/gates/run` starts the server.

mod agents;
mod hosts;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use askd_sim::slack::{Config, Slack};
use rustix::process::{Pid, Signal, kill_process};

use crate::agent::lock;
use crate::dice::Dice;
use crate::history::{History, Reply, Verdict};
use crate::ports::free_port;
use crate::server::Server;
use crate::slack::{LABELS, request_of};
use hosts::{Host, proxy};

pub(crate) use hosts::sql;

/// How many daemons; groups whose agents ask over HTTP; groups with a folder, on one host after the other; and questions of each group
/// at a time.
const DAEMONS: usize = 3;
const REMOTE: usize = 64;
const IN_FOLDERS: usize = 30;
const WIDTH: usize = 2;
/// Between two troubles.
const LIFE: Duration = Duration::from_secs(5);
/// How long the paused daemon is paused: longer than its lease and all that it may still do in it.
const PAUSE: Duration = Duration::from_secs(40);
/// A pause takes long, so there is one in so many troubles, and none in a short run.
const LONG: usize = 10;
const CUT: Duration = Duration::from_secs(3);
/// How long after the last trouble something may be left.
const DRAINED: Duration = Duration::from_secs(60);
const CHANNEL: &str = "C0AGENTS";
const PEOPLE: [&str; 2] = ["U0ALICE", "U0BOB"];

fn remote(group: usize) -> String {
    format!("g{group}")
}

fn in_folder(group: usize) -> String {
    format!("f{group}")
}

fn groups() -> impl Iterator<Item = String> {
    (0..REMOTE).map(remote).chain((0..IN_FOLDERS).map(in_folder))
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Troubles {
    /// Of the daemons, and of their way to the database.
    OfDaemons,
    /// The power of the database's computer is cut, with or without the death of a daemon.
    OfPower,
}

/// Why the gate cannot be played here.
pub(crate) fn missing() -> Option<String> {
    let why = || "ASKD_TEST_POSTGRES names no server (tests/postgres/run)".to_owned();
    std::env::var_os("ASKD_TEST_POSTGRES").is_none().then(why)
}

struct World {
    hosts: Vec<Host>,
    slack: Slack,
    history: Mutex<History>,
    http: reqwest::Client,
    /// Where the proxy listens, for each of the ports.
    doors: [SocketAddr; 2],
    tokens: Vec<String>,
    /// Whether the database may lose that a response was taken: it comes again then, and has to say the same.
    forgets: bool,
    asking: AtomicBool,
    over: AtomicBool,
    refused: AtomicUsize,
}

/// Plays it and judges.
pub(crate) async fn play(
    troubles: Troubles,
    rounds: usize,
    seed: u64,
    sabotage: Option<&'static str>,
) -> Result<Verdict, String> {
    let mut own = if troubles == Troubles::OfPower { Some(Server::start()?) } else { None };
    let server = match &own {
        Some(own) => own.url(),
        None => std::env::var("ASKD_TEST_POSTGRES").map_err(|error| error.to_string())?,
    };
    let name = format!("cluster_{}_{seed}_{}", std::process::id(), sabotage.unwrap_or("whole"));
    sql(&server, &format!("create database {name}"))?;
    let url = format!("{}/{name}", server.rsplit_once('/').ok_or("the server's URL has no database")?.0);
    let sim = Config { pace: Duration::ZERO, seed, ..Config::default() };
    let slack = Slack::start(sim).await.map_err(|error| error.to_string())?;
    let ports: Vec<[u16; 2]> = (0..DAEMONS).map(|_| [free_port(), free_port()]).collect();
    let doors = [proxy(&ports, 0).await?, proxy(&ports, 1).await?];
    let hosts = ports.iter().enumerate().map(|(n, ports)| Host::new(n, *ports, (&url, doors), &slack, sabotage));
    let hosts: Vec<Host> = hosts.collect::<Result<_, _>>()?;
    for host in &hosts {
        host.daemon.spawn().await?;
        host.daemon.listening().await?;
    }
    slack.set_interactivity_url(Some(format!("http://{}/slack/interactions", doors[0])));
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(Duration::from_secs(25));
    let http = http.build().map_err(|error| error.to_string())?;
    let tokens = agents::tokens(&http, doors[0]).await?;
    let (forgets, asking, over) = (troubles == Troubles::OfPower, AtomicBool::new(true), AtomicBool::new(false));
    let (history, refused) = (Mutex::default(), AtomicUsize::new(0));
    let world = Arc::new(World { hosts, slack, history, http, doors, tokens, forgets, asking, over, refused });
    let mut dice = Dice::new(seed);
    let mut everybody = tokio::task::JoinSet::new();
    for group in 0..REMOTE {
        for nth in 0..WIDTH {
            everybody.spawn(agents::asks_over_http(Arc::clone(&world), group, nth, dice.split()));
        }
    }
    for group in 0..IN_FOLDERS {
        everybody.spawn(agents::asks_in_folder(Arc::clone(&world), group, dice.split()));
    }
    for person in PEOPLE {
        everybody.spawn(clicks(Arc::clone(&world), person, dice.split()));
    }
    let (mut kills, mut cuts, mut pauses, mut losses) = (0, 0, 0, 0);
    for round in 0..rounds {
        tokio::time::sleep(LIFE).await;
        let host = &world.hosts[dice.roll(DAEMONS)];
        if let Some(own) = &mut own {
            if dice.chance(50) {
                host.daemon.kill().await;
                kills += 1;
            }
            tokio::task::block_in_place(|| own.lose_power())?;
            losses += 1;
        } else if rounds >= LONG && round % LONG == LONG / 2 {
            paused(host).await?;
            pauses += 1;
        } else if dice.chance(25) {
            cut_off(&server, &name).await?;
            cuts += 1;
        } else {
            host.daemon.kill().await;
            kills += 1;
        }
        revive(&world).await?;
    }
    world.asking.store(false, Ordering::SeqCst);
    let drained = drain(&world).await?;
    world.over.store(true, Ordering::SeqCst);
    while everybody.join_next().await.is_some() {}
    let mut verdict = judge(&world, drained);
    let refused = world.refused.load(Ordering::SeqCst);
    verdict.note(format!(
        "{kills} kills, {pauses} pauses, {cuts} cuts of the database, {losses} losses of its power, {refused} calls refused or broken"
    ));
    if !verdict.findings().is_empty() && sabotage.is_none() {
        for host in &world.hosts {
            host.keep_log();
        }
    }
    for host in &world.hosts {
        host.daemon.kill().await;
    }
    Ok(verdict)
}

impl World {
    fn broken(&self) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }
}

/// Clicks on anything that can be clicked.
async fn clicks(world: Arc<World>, person: &'static str, mut dice: Dice) {
    while !world.over.load(Ordering::SeqCst) {
        tokio::time::sleep(dice.millis(5, 60)).await;
        let mut cards = world.slack.select(|message| message.by_app && !message.elements().is_empty());
        if cards.is_empty() {
            continue;
        }
        let card = cards.swap_remove(dice.roll(cards.len()));
        let (Some(request), nth) = (request_of(&card), dice.roll(LABELS.len())) else { continue };
        let began = Instant::now();
        if let Ok(sent) = world.slack.click(&card.channel, &card.ts, &format!("pick:0:{nth}"), person).await {
            let ended = sent.status.is_some_and(|status| (200..300).contains(&status));
            if !ended {
                world.broken();
            }
            let reply = if ended { Reply::Ended } else { Reply::Unknown };
            lock(&world.history).attempt(&request, ("slack", person), LABELS[nth], began, reply);
        }
    }
}

/// Stops a daemon for longer than its lease, and lets it go on: what lay in its sockets is then the first thing that it sees.
async fn paused(host: &Host) -> Result<(), String> {
    let pid = host.daemon.pid().await.and_then(|pid| Pid::from_raw(pid.cast_signed())).ok_or("no daemon to pause")?;
    kill_process(pid, Signal::STOP).map_err(|error| error.to_string())?;
    tokio::time::sleep(PAUSE).await;
    kill_process(pid, Signal::CONT).map_err(|error| error.to_string())
}

/// The database ends all connections, and takes none for a while.
async fn cut_off(server: &str, name: &str) -> Result<(), String> {
    sql(server, &format!("alter database {name} allow_connections false"))?;
    sql(server, &format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'"))?;
    tokio::time::sleep(CUT).await;
    sql(server, &format!("alter database {name} allow_connections true"))
}

/// Starts what does not run, as systemd would.
async fn revive(world: &World) -> Result<(), String> {
    for host in &world.hosts {
        if !host.daemon.runs().await {
            host.daemon.kill().await;
            host.daemon.spawn().await?;
        }
    }
    Ok(())
}

/// Without more trouble, waits until everything has ended. False: something is left.
async fn drain(world: &World) -> Result<bool, String> {
    let until = Instant::now() + DRAINED;
    while Instant::now() < until {
        revive(world).await?;
        let live = world.slack.select(|message| message.by_app && !message.elements().is_empty()).len();
        if lock(&world.history).waiting() == 0 && live == 0 {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(false)
}

fn judge(world: &World, drained: bool) -> Verdict {
    let mut history = lock(&world.history);
    for card in world.slack.messages(CHANNEL) {
        if let Some(request) = request_of(&card) {
            history.card(&request, "slack", !card.elements().is_empty());
        }
    }
    let mut verdict = history.judge();
    if !drained && verdict.findings().is_empty() {
        verdict.found("left open", 1, "something is still owed");
    }
    verdict
}
