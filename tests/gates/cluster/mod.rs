//! Several daemons with one database: a proxy sends people and agents to any of them, while daemons are killed, one is paused for
//! longer than its lease, and the database is cut off or restarted, or its computer loses its power. Some groups ask through a folder, which one host
//! has, and in the end one of these hosts is gone for good. With an odd seed Slack brings clicks over Socket Mode, otherwise by webhook:
//! an app has one or the other. Some people are asked on their phone. The server is the gate's own.

mod agents;
mod deadlines;
mod gone;
mod hosts;
mod troubles;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use askd_sim::slack::{Config, Message, Slack};
use askd_sim::whatsapp::FaultMix;
use tokio::task::JoinSet;

use crate::PHONES;
use crate::agent::lock;
use crate::dice::Dice;
use crate::history::{History, Reply, Verdict};
use crate::phones::{self, Phones};
use crate::ports::free_port;
use crate::slack::{Closed, LABELS, request_of};
use deadlines::{Deadlines, Wait};
use gone::{Bereaved, untold};
use hosts::{Host, Shared, proxy};
use troubles::{Came, Database};

pub(crate) use hosts::sql;
pub(crate) use troubles::Troubles;

/// How many daemons; groups whose agents ask over HTTP in Slack, before those of the phones; groups with a folder, on one host after the
/// other; and questions of each group at a time.
const DAEMONS: usize = 3;
const REMOTE: usize = 64;
const IN_FOLDERS: usize = 30;
const WIDTH: usize = 2;
/// Between two troubles.
const LIFE: Duration = Duration::from_secs(5);
/// How long nothing at all may happen, without more trouble, before everything has ended. For daemons that are broken on purpose the
/// wait is shorter, but longer than a host is silent before cards say so.
const STUCK: Duration = Duration::from_secs(60);
const STUCK_BROKEN: Duration = Duration::from_secs(25);
const CHANNEL: &str = "C0AGENTS";
const PEOPLE: [&str; 2] = ["U0ALICE", "U0BOB"];

fn remote(group: usize) -> String {
    group.checked_sub(REMOTE).map_or_else(|| format!("g{group}"), phones::group)
}

fn in_folder(group: usize) -> String {
    format!("f{group}")
}

/// The host that has the folder of this group, or of this request's group.
fn host_of(name: &str) -> Option<usize> {
    let group: usize = name.strip_prefix('f')?.split('-').next()?.parse().ok()?;
    Some(group % DAEMONS)
}

/// The groups that ask in Slack.
fn groups() -> impl Iterator<Item = String> {
    (0..REMOTE).map(remote).chain((0..IN_FOLDERS).map(in_folder))
}

/// Why the gate cannot be played here.
pub(crate) fn missing() -> Option<String> {
    let runs = Command::new("initdb").arg("--version").stdout(Stdio::null()).status().is_ok_and(|said| said.success());
    (!runs).then(|| "initdb is not in PATH (apt-get install postgresql)".to_owned())
}

struct World {
    hosts: Vec<Host>,
    slack: Slack,
    phones: Phones,
    closed: Closed,
    history: Mutex<History>,
    deadlines: Deadlines,
    http: reqwest::Client,
    /// Where the proxy listens, for each of the ports.
    doors: [SocketAddr; 2],
    tokens: Vec<String>,
    /// Whether the database may lose that a response was taken: it comes again then, and has to say the same.
    forgets: bool,
    /// What is broken on purpose: some of it shows only after the right trouble.
    sabotage: Option<&'static str>,
    /// How often a daemon went on to lead that had been overtaken.
    two_leaders: AtomicUsize,
    asking: AtomicBool,
    over: AtomicBool,
    refused: AtomicUsize,
}

/// How many questions are asked in a round at least, also on a slow machine.
const LEAST: usize = 20;

/// Plays it and judges.
pub(crate) async fn play(
    troubles: Troubles,
    rounds: usize,
    seed: u64,
    sabotage: Option<&'static str>,
) -> Result<Verdict, String> {
    let name = format!("cluster_{}_{seed}_{}", std::process::id(), sabotage.unwrap_or("whole"));
    let mut database = Database::new(troubles, name)?;
    let world = Arc::new(begin(&database, troubles, seed, sabotage).await?);
    let mut dice = Dice::new(seed);
    let mut everybody = everybody(&world, &mut dice);
    let mut came = Came::default();
    for round in 0..rounds {
        tokio::time::sleep(LIFE).await;
        world.trouble(&mut database, (round, rounds), &mut dice, &mut came).await?;
        // Meta delivers again what it has delivered before.
        world.phones.room.started(&world.inbox());
    }
    world.asking.store(false, Ordering::SeqCst);
    let last = Instant::now();
    let drained = drain(&world, if sabotage.is_some() { STUCK_BROKEN } else { STUCK }).await?;
    world.over.store(true, Ordering::SeqCst);
    while everybody.join_next().await.is_some() {}
    let mut bereaved = world.bereaved();
    let inherited = world.inherit(&mut bereaved).await;
    let took = last.elapsed().as_secs();
    let mut verdict = judge(&world, &bereaved, drained);
    // A gate in which little happens shows little.
    if sabotage.is_none() && verdict.asked < LEAST * rounds {
        verdict.found("too little", 1, &format!("{} questions in {rounds} rounds", verdict.asked));
    }
    let refused = world.refused.load(Ordering::SeqCst);
    let way = if by_socket(seed) { "over Socket Mode" } else { "by webhook" };
    verdict
        .note(format!("{inherited}, clicks {way}, {came}, {refused} calls refused or broken, all over after {took} s"));
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

fn by_socket(seed: u64) -> bool {
    seed % 2 == 1
}

/// Starts the platforms, the proxy and the daemons.
async fn begin(
    database: &Database,
    troubles: Troubles,
    seed: u64,
    sabotage: Option<&'static str>,
) -> Result<World, String> {
    let sim = Config { pace: Duration::ZERO, seed, ..Config::default() };
    let slack = Slack::start(sim).await.map_err(|error| error.to_string())?;
    let phones = Phones::open(PHONES, seed).await?;
    let ports: Vec<[u16; 2]> = (0..DAEMONS).map(|_| [free_port(), free_port()]).collect();
    let doors = [proxy(&ports, 0).await?, proxy(&ports, 1).await?];
    let by_socket = by_socket(seed);
    let shared = Shared { url: database.url()?, ports, doors, slack: &slack, by_socket, phones: &phones };
    let hosts: Vec<Host> = (0..DAEMONS).map(|number| Host::new(number, &shared, sabotage)).collect::<Result<_, _>>()?;
    for host in &hosts {
        host.daemon.spawn().await?;
        host.daemon.listening().await?;
    }
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
    let http = http.build().map_err(|error| error.to_string())?;
    let tokens = agents::tokens(&http, doors[0]).await?;
    let (forgets, asking, over) = (troubles == Troubles::OfPower, AtomicBool::new(true), AtomicBool::new(false));
    let (closed, history, refused) = (Closed::default(), Mutex::default(), AtomicUsize::new(0));
    let deadlines = Deadlines::default();
    let world = World {
        hosts,
        slack,
        phones,
        closed,
        history,
        deadlines,
        http,
        doors,
        tokens,
        forgets,
        sabotage,
        two_leaders: AtomicUsize::default(),
        asking,
        over,
        refused,
    };
    let interactions = (!by_socket).then(|| format!("{}/slack/interactions", world.inbox()));
    world.slack.set_interactivity_url(interactions);
    world.phones.room.started(&world.inbox());
    Ok(world)
}

fn everybody(world: &Arc<World>, dice: &mut Dice) -> JoinSet<()> {
    let mut everybody = JoinSet::new();
    for group in 0..REMOTE + PHONES {
        for nth in 0..WIDTH {
            everybody.spawn(agents::asks_over_http(Arc::clone(world), group, nth, dice.split()));
        }
    }
    for group in 0..IN_FOLDERS {
        everybody.spawn(agents::asks_in_folder(Arc::clone(world), group, dice.split()));
    }
    for person in PEOPLE {
        everybody.spawn(clicks(Arc::clone(world), person, dice.split()));
    }
    for person in 0..PHONES {
        let (world, dice) = (Arc::clone(world), dice.split());
        everybody.spawn(async move { world.phones.answers(person, dice, || world.is_over()).await });
    }
    everybody
}

impl World {
    /// Where the proxy takes what people do.
    fn inbox(&self) -> String {
        format!("http://{}", self.doors[0])
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    fn broken(&self) {
        self.refused.fetch_add(1, Ordering::SeqCst);
    }

    /// All cards, each with its request.
    fn cards(&self) -> impl Iterator<Item = (String, Message)> {
        self.slack.messages(CHANNEL).into_iter().filter_map(|card| Some((request_of(&card)?, card)))
    }

    /// Whether people click on this card now.
    fn is_clicked(&self, card: &Message) -> bool {
        let wait = request_of(card).map_or(Wait::Usual, |request| Wait::of(&request));
        self.deadlines.came(&card.ts).is_none_or(|came| wait.is_clicked(came.elapsed()))
    }

    /// What is left: agents that wait, cards that can still be used, cards and people that were not told how it ended.
    fn left(&self) -> [usize; 4] {
        let waits = lock(&self.history).unanswered().filter(|request| !self.is_bereaved(request)).count();
        let (live, untold) = (self.live().len(), untold(&self.bereaved()).count());
        [waits, live, untold, self.phones.untold(&lock(&self.history)).len()]
    }

    /// Cards that can still be used.
    fn live(&self) -> Vec<Message> {
        self.closed.live(&self.slack)
    }
}

/// Clicks on anything that can be clicked.
async fn clicks(world: Arc<World>, person: &'static str, mut dice: Dice) {
    while !world.is_over() {
        tokio::time::sleep(dice.millis(5, 60)).await;
        let mut cards = world.live();
        cards.retain(|card| world.is_clicked(card));
        // Those whose time is nearly over must not wait until all others were clicked.
        let is_close = |card: &Message| request_of(card).is_some_and(|request| Wait::of(&request) == Wait::Close);
        if dice.chance(50) && cards.iter().any(is_close) {
            cards.retain(is_close);
        }
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

/// Without more trouble, waits until everything has ended. False: nothing moves any more, but something is left.
async fn drain(world: &World, stuck: Duration) -> Result<bool, String> {
    world.phones.sim.faults(FaultMix::default());
    let (mut last, mut moved) = (None, Instant::now());
    loop {
        world.revive().await?;
        let left = world.left();
        if left == [0; 4] {
            return Ok(true);
        }
        if last != Some(left) {
            (last, moved) = (Some(left), Instant::now());
        } else if moved.elapsed() > stuck {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn judge(world: &World, bereaved: &Bereaved, drained: bool) -> Verdict {
    let mut history = lock(&world.history);
    let (mut seen, mut allowed) = (HashSet::new(), 0);
    for (request, card) in world.cards() {
        let is_open = !card.elements().is_empty();
        // A second one is allowed for each overtaking, if it is closed, too.
        if !seen.insert(request.clone()) && !is_open && world.deadlines.follows_a_pause(&card.ts) {
            allowed += 1;
        } else {
            history.card(&request, "slack", is_open);
        }
    }
    let asked_back = world.phones.tell(&mut history);
    let mut verdict = history.judge();
    world.phones.judge(&history, &mut verdict);
    drop(history);
    world.judge_deadlines(bereaved, &mut verdict);
    verdict.note(format!("{asked_back} replies asked back, {allowed} second cards after a pause"));
    let two_leaders = world.two_leaders.load(Ordering::SeqCst);
    if two_leaders > 0 {
        verdict.found("two leaders", two_leaders, "a daemon that was overtaken goes on");
    }
    for request in untold(bereaved) {
        verdict.found("untold", 1, &format!("{request}: its card does not say that the agent's host is away"));
    }
    if !drained && verdict.findings().is_empty() {
        verdict.found("left open", 1, "something is still owed");
    }
    verdict
}
