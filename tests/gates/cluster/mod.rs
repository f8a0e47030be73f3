//! Several daemons with one database: a proxy sends people and agents to any of them, while daemons are killed, one is paused for
//! longer than its lease, and the database is cut off, or its computer loses its power. Some groups ask through a folder, which one host
//! has, and in the end one of these hosts is gone for good. With an odd seed Slack brings clicks over Socket Mode, otherwise by webhook:
//! an app has one or the other. `tests/gates/run` starts the server.

mod agents;
mod gone;
mod hosts;
mod troubles;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use askd_sim::slack::{Config, Message, Slack};

use crate::agent::lock;
use crate::dice::Dice;
use crate::history::{History, Reply, Verdict};
use crate::ports::free_port;
use crate::slack::{Closed, LABELS, request_of};
use gone::{Bereaved, untold};
use hosts::{Host, Shared, proxy};
use troubles::{Came, Database};

pub(crate) use hosts::sql;
pub(crate) use troubles::Troubles;

/// How many daemons; groups whose agents ask over HTTP; groups with a folder, on one host after the other; and questions of each group
/// at a time.
const DAEMONS: usize = 3;
const REMOTE: usize = 64;
const IN_FOLDERS: usize = 30;
const WIDTH: usize = 2;
/// Between two troubles.
const LIFE: Duration = Duration::from_secs(5);
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

/// The host that has the folder of this group, or of this request's group.
fn host_of(name: &str) -> Option<usize> {
    let group: usize = name.strip_prefix('f')?.split('-').next()?.parse().ok()?;
    Some(group % DAEMONS)
}

fn groups() -> impl Iterator<Item = String> {
    (0..REMOTE).map(remote).chain((0..IN_FOLDERS).map(in_folder))
}

/// Why the gate cannot be played here.
pub(crate) fn missing() -> Option<String> {
    let why = || "ASKD_TEST_POSTGRES names no server (tests/postgres/run)".to_owned();
    std::env::var_os("ASKD_TEST_POSTGRES").is_none().then(why)
}

struct World {
    hosts: Vec<Host>,
    slack: Slack,
    closed: Closed,
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
    let name = format!("cluster_{}_{seed}_{}", std::process::id(), sabotage.unwrap_or("whole"));
    let mut database = Database::new(troubles, name)?;
    let sim = Config { pace: Duration::ZERO, seed, ..Config::default() };
    let slack = Slack::start(sim).await.map_err(|error| error.to_string())?;
    let ports: Vec<[u16; 2]> = (0..DAEMONS).map(|_| [free_port(), free_port()]).collect();
    let doors = [proxy(&ports, 0).await?, proxy(&ports, 1).await?];
    let by_socket = seed % 2 == 1;
    let shared = Shared { url: database.url()?, ports, doors, slack: &slack, by_socket };
    let hosts: Vec<Host> = (0..DAEMONS).map(|number| Host::new(number, &shared, sabotage)).collect::<Result<_, _>>()?;
    for host in &hosts {
        host.daemon.spawn().await?;
        host.daemon.listening().await?;
    }
    slack.set_interactivity_url((!by_socket).then(|| format!("http://{}/slack/interactions", doors[0])));
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).timeout(Duration::from_secs(25));
    let http = http.build().map_err(|error| error.to_string())?;
    let tokens = agents::tokens(&http, doors[0]).await?;
    let (forgets, asking, over) = (troubles == Troubles::OfPower, AtomicBool::new(true), AtomicBool::new(false));
    let (closed, history, refused) = (Closed::default(), Mutex::default(), AtomicUsize::new(0));
    let world = Arc::new(World { hosts, slack, closed, history, http, doors, tokens, forgets, asking, over, refused });
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
    let mut came = Came::default();
    for round in 0..rounds {
        tokio::time::sleep(LIFE).await;
        world.trouble(&mut database, (round, rounds), &mut dice, &mut came).await?;
    }
    world.asking.store(false, Ordering::SeqCst);
    let drained = drain(&world).await?;
    world.over.store(true, Ordering::SeqCst);
    while everybody.join_next().await.is_some() {}
    let bereaved = world.bereaved();
    let inherited = world.inherit(&bereaved).await;
    let mut verdict = judge(&world, &bereaved, drained);
    verdict.note(inherited);
    let refused = world.refused.load(Ordering::SeqCst);
    let way = if by_socket { "over Socket Mode" } else { "by webhook" };
    verdict.note(format!("clicks {way}, {came}, {refused} calls refused or broken"));
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

    /// All cards, each with its request.
    fn cards(&self) -> impl Iterator<Item = (String, Message)> {
        self.slack.messages(CHANNEL).into_iter().filter_map(|card| Some((request_of(&card)?, card)))
    }

    /// Cards that can still be used.
    fn live(&self) -> Vec<Message> {
        self.closed.live(&self.slack)
    }
}

/// Clicks on anything that can be clicked.
async fn clicks(world: Arc<World>, person: &'static str, mut dice: Dice) {
    while !world.over.load(Ordering::SeqCst) {
        tokio::time::sleep(dice.millis(5, 60)).await;
        let mut cards = world.live();
        if cards.is_empty() {
            continue;
        }
        let card = cards.swap_remove(dice.roll(cards.len()));
        let (Some(request), nth) = (request_of(&card), dice.roll(LABELS.len())) else { continue };
        let began = Instant::now();
        if let Ok(sent) = world.slack.click(&card.channel, &card.ts, &format!("pick:0:{nth}"), person).await {
            if !sent.acknowledged {
                world.broken();
            }
            let reply = if sent.acknowledged { Reply::Ended } else { Reply::Unknown };
            lock(&world.history).attempt(&request, ("slack", person), LABELS[nth], began, reply);
        }
    }
}

/// Without more trouble, waits until everything has ended. False: something is left.
async fn drain(world: &World) -> Result<bool, String> {
    let until = Instant::now() + DRAINED;
    while Instant::now() < until {
        world.revive().await?;
        let waits = lock(&world.history).unanswered().any(|request| !world.is_bereaved(request));
        if !waits && world.live().is_empty() && untold(&world.bereaved()).next().is_none() {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(false)
}

fn judge(world: &World, bereaved: &Bereaved, drained: bool) -> Verdict {
    let mut history = lock(&world.history);
    for (request, card) in world.cards() {
        history.card(&request, "slack", !card.elements().is_empty());
    }
    let mut verdict = history.judge();
    for request in untold(bereaved) {
        verdict.found("untold", 1, &format!("{request}: its card does not say that the agent's host is away"));
    }
    if !drained && verdict.findings().is_empty() {
        verdict.found("left open", 1, "something is still owed");
    }
    verdict
}
