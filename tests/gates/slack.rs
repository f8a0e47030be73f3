//! Two groups on Slack and one with only the inbox, agents that ask and collect through real files, rivals who click
//! and call, and replies of Slack that get lost. In the middle of all this `kills-slack` kills the process, and
//! `power-cuts` takes the disk away from under it. `kills` and `soak` add people with a phone (`phones`).

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use askd_sim::slack::{BOT_TOKEN, Config, Fault, FaultKind, Message, SIGNING_SECRET, Slack, Times};
use askd_sim::whatsapp::FaultMix;
use serde_json::{Value, json};
use tokio::sync::RwLock;

use crate::agent::{Agent, lock, text};
use crate::daemon::{Daemon, Size, TOKEN};
use crate::dice::Dice;
use crate::files;
use crate::history::{History, Reply, Verdict};
use crate::phones::{self, Phones};
use crate::power::{Disk, FileSystem, another_boot};

/// Each group and the channel it asks in; the last one asks in the inbox only.
const GROUPS: [(&str, Option<&str>); 3] = [("alpha", Some("C0AGENTS")), ("beta", Some("C0RESEARCH")), ("gamma", None)];
/// The chat of groups that ask on a phone first and in Slack next.
const SHARED: &str = "C0AGENTS";
const PEOPLE: [&str; 2] = ["U0ALICE", "U0BOB"];
pub(crate) const LABELS: [&str; 4] = ["north", "east", "south", "west"];
/// How many requests of one agent may wait for a response at a time.
const WIDTH: usize = 5;
/// How long nothing at all may happen, without more trouble, before everything has ended: longer than any pause between
/// two tries. For a daemon that is broken on purpose the wait is shorter.
const STUCK: Duration = Duration::from_secs(60);
const STUCK_BROKEN: Duration = Duration::from_secs(12);
/// The most sockets that a daemon may have open: calls of Slack, of people and of agents, and what both keep for the next one.
const SOCKETS: usize = 512;

/// What to play.
pub(crate) struct Plan {
    pub(crate) rounds: usize,
    pub(crate) seed: u64,
    pub(crate) sabotage: Option<&'static str>,
    /// Cut the power of such a disk instead of killing the process.
    pub(crate) cuts: Option<FileSystem>,
    /// How many people are asked on their phone besides, each by a group of their own.
    pub(crate) phones: usize,
    /// How long each life is; by default a random moment.
    pub(crate) life: Option<Duration>,
}

/// Where the power is cut in some of the lives.
const STEPS: [&str; 11] = [
    "accept.claimed",
    "accept.stored",
    "post.before",
    "post.after",
    "saved",
    "settle.saved",
    "deliver.written",
    "deliver.ready",
    "deliver.published",
    "flush.filed",
    "flush.ended",
];

/// Everything that outlives the daemon.
pub(crate) struct World {
    slack: Slack,
    phones: Option<Phones>,
    pub(crate) daemon: Daemon,
    pub(crate) history: Mutex<History>,
    data: PathBuf,
    closed: Closed,
    asking: AtomicBool,
    over: AtomicBool,
    /// Read-locked by tasks that use files; `None` while there is no disk.
    disk: RwLock<Option<Disk>>,
    durable: bool,
    /// After a loss of power the computer boots, so its boot has another id.
    boots: bool,
    /// The power is off: what the daemon still says is said by no computer.
    off: AtomicBool,
    /// How often askd said that it had stored an answer.
    said: AtomicUsize,
    /// The daemon's memory and open files at the end of each life.
    sizes: Mutex<Vec<Size>>,
}

impl World {
    fn history(&self) -> MutexGuard<'_, History> {
        lock(&self.history)
    }

    /// What a reply means that has just come.
    fn heard(&self, reply: Reply) -> Reply {
        if self.off.load(Ordering::SeqCst) { Reply::Unknown } else { reply }
    }

    pub(crate) fn phones(&self) -> Option<&Phones> {
        self.phones.as_ref()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

/// Plays it and judges.
pub(crate) async fn play(plan: &Plan) -> Result<Verdict, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let disk = plan.cuts.map(|system| Disk::new(folder.path(), system)).transpose()?;
    let data = disk.as_ref().map_or_else(|| folder.path().join("data"), |disk| disk.mounted().join("data"));
    let sim = Config { pace: Duration::ZERO, seed: plan.seed, ..Config::default() };
    let slack = Slack::start(sim).await.map_err(|error| error.to_string())?;
    let config = folder.path().join("askd.toml");
    let phones = if plan.phones > 0 { Some(Phones::open(plan.phones, plan.seed).await?) } else { None };
    let mut text = settings(&data, &slack.api_url());
    text.extend(phones.iter().map(|phones| phones.settings(SHARED)));
    files::write(&config, text.as_bytes()).map_err(|error| error.to_string())?;
    let daemon = Daemon::new(folder.path(), plan.sabotage)?;
    let world = Arc::new(World {
        slack,
        phones,
        daemon,
        history: Mutex::default(),
        data,
        closed: Closed::default(),
        asking: AtomicBool::new(true),
        over: AtomicBool::new(false),
        disk: RwLock::new(disk),
        durable: plan.cuts.is_some(),
        boots: plan.sabotage != Some("sameboot"),
        off: AtomicBool::new(false),
        said: AtomicUsize::new(0),
        sizes: Mutex::default(),
    });
    // How many of Slack's replies get lost after the call has had its effect.
    let lost = Fault { method: "*".into(), kind: FaultKind::ResetAfter, times: Times::Percent(5) };
    world.slack.faults().push(lost);
    let mut dice = Dice::new(plan.seed);
    let mut everybody = tokio::task::JoinSet::new();
    for (group, _) in GROUPS {
        everybody.spawn(agent(Arc::clone(&world), group.to_owned(), WIDTH, dice.split()));
    }
    for person in 0..plan.phones {
        // The pace of a chat is slow.
        let asks = agent(Arc::clone(&world), phones::group(person), 2, dice.split());
        let (asking, answering) = (Arc::clone(&world), Arc::clone(&world));
        everybody.spawn(async move {
            if let Some(phones) = asking.phones() {
                phones.wrote().await;
            }
            asks.await;
        });
        let dice = dice.split();
        everybody.spawn(async move {
            if let Some(phones) = answering.phones() {
                phones.answers(person, dice, || answering.is_over()).await;
            }
        });
    }
    for person in PEOPLE {
        everybody.spawn(clicks(Arc::clone(&world), person, dice.split()));
    }
    for door in ["api", "cli"] {
        everybody.spawn(calls(Arc::clone(&world), door, dice.split()));
    }
    for round in 0..plan.rounds {
        let lived = match plan.life {
            Some(time) => whole_life(&world, time).await,
            None => life(&world, &mut dice).await,
        };
        lived.map_err(|error| format!("round {round}: {error}"))?;
    }
    let stuck = if plan.sabotage.is_some() { STUCK_BROKEN } else { STUCK };
    let drained = drain(&world, stuck).await;
    world.over.store(true, Ordering::SeqCst);
    while everybody.join_next().await.is_some() {}
    let mut verdict = judge(&world, drained?);
    judge_sizes(&lock(&world.sizes), &mut verdict);
    if !verdict.findings().is_empty() && plan.sabotage.is_none() {
        crate::keep(&folder.path().join("log"));
    }
    world.daemon.kill().await;
    drop(world.disk.write().await.take());
    Ok(verdict)
}

fn settings(data: &Path, api_url: &str) -> String {
    let mut text = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{TOKEN}\"\n\
         [asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 100000\n\
         [slack]\nbot_token = \"{BOT_TOKEN}\"\nsigning_secret = \"{SIGNING_SECRET}\"\npace = \"0s\"\napi_url = \"{api_url}\"\n",
        data.display()
    );
    for (group, channel) in GROUPS {
        let route = channel.map_or_else(
            || "{ channel = \"web\" }".to_owned(),
            |chat| format!("{{ channel = \"slack\", chat = \"{chat}\", responders = [\"U0ALICE\", \"U0BOB\"] }}"),
        );
        let _never_fails = write!(text, "[groups.{group}]\nroutes = [{route}]\n");
    }
    text
}

/// One start, some life, and its end.
async fn life(world: &World, dice: &mut Dice) -> Result<(), String> {
    match dice.roll(10) {
        // It ends while it starts.
        0 | 1 => {
            world.daemon.spawn().await?;
            tokio::time::sleep(dice.millis(0, 200)).await;
        }
        2..=4 if world.durable => until_step(world, STEPS[dice.roll(STEPS.len())], dice.millis(500, 3_000)).await?,
        5..=8 if world.durable => until_said(world, dice.millis(30, 1_000)).await?,
        _ => {
            world.daemon.spawn().await?;
            listening(world).await?;
            tokio::time::sleep(dice.millis(30, 1_000)).await;
        }
    }
    if !world.durable {
        gone(world).await;
        return Ok(());
    }
    world.off.store(true, Ordering::SeqCst);
    let cut = match world.disk.read().await.as_ref() {
        Some(disk) => disk.cut(),
        None => Err("there is no disk".to_owned()),
    };
    cut?;
    world.daemon.kill().await;
    let mut held = world.disk.write().await;
    let Some(disk) = held.as_mut() else { return Ok(()) };
    disk.again()?;
    world.off.store(false, Ordering::SeqCst);
    if world.boots { another_boot(&world.data.join("state")) } else { Ok(()) }
}

/// One start, and a life of this length.
async fn whole_life(world: &World, time: Duration) -> Result<(), String> {
    world.daemon.spawn().await?;
    listening(world).await?;
    tokio::time::sleep(time).await;
    let size = world.daemon.size().await.ok_or("the daemon ended by itself")?;
    lock(&world.sizes).push(size);
    gone(world).await;
    Ok(())
}

/// `kill -9`.
async fn gone(world: &World) {
    if let Some(phones) = &world.phones {
        phones.room.stopped();
    }
    world.daemon.kill().await;
}

/// Judges whether memory and open files stay flat over many lives. The first life has nothing to load yet. How many sockets are open
/// hangs on what is under way at the moment of the look, so these have a limit instead.
fn judge_sizes(sizes: &[Size], verdict: &mut Verdict) {
    let Some(last) = sizes.last() else { return };
    let median = |of: &[Size], what: fn(&Size) -> usize| {
        let mut all: Vec<usize> = of.iter().map(what).collect();
        all.sort_unstable();
        all.get(all.len() / 2).copied().unwrap_or_else(|| what(last))
    };
    let third = sizes.len().div_ceil(3);
    let change = |what| (median(&sizes[..third], what), median(&sizes[sizes.len() - third..], what));
    let (memory, files) = (change(|size| size.memory), change(|size| size.files));
    let sockets = sizes.iter().map(|size| size.sockets).max().unwrap_or_default();
    let mib = |kib: usize| kib / 1024;
    let held = format!("memory {} MiB early and {} MiB late", mib(memory.0), mib(memory.1));
    verdict.note(format!("{held}, open files {} and {}, sockets {sockets} at most", files.0, files.1));
    // Asks that are open at the moment of the look make the difference between two lives.
    if memory.1 > memory.0 + memory.0 / 4 + 8 * 1024 || files.1 > files.0 + 32 || sockets > SOCKETS {
        verdict.found("growing", 1, &format!("memory {memory:?}, files {files:?}, sockets {sockets}"));
    }
}

/// Lives until the daemon comes to a step, and dies there.
async fn until_step(world: &World, step: &str, at_most: Duration) -> Result<(), String> {
    world.daemon.spawn_with([("ASKD_CRASH_AT", step)]).await?;
    let (listens, until) = (listening(world).await, Instant::now() + at_most);
    while world.daemon.runs().await && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    if world.daemon.runs().await { listens.map_err(|error| format!("{step}: {error}")) } else { Ok(()) }
}

/// Lives until askd has just said that an answer is stored. What follows is slow, so that no later sync makes up for one
/// that was left out.
async fn until_said(world: &World, at_least: Duration) -> Result<(), String> {
    world.daemon.spawn_with([("ASKD_SLOW_CALL", "fsync@file:80")]).await?;
    listening(world).await?;
    tokio::time::sleep(at_least).await;
    let (said, until) = (world.said.load(Ordering::SeqCst), Instant::now() + Duration::from_secs(1));
    while world.said.load(Ordering::SeqCst) == said && Instant::now() < until {
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    Ok(())
}

async fn listening(world: &World) -> Result<(), String> {
    let url = world.daemon.listening().await?;
    world.slack.set_interactivity_url(Some(format!("{url}/slack/interactions")));
    if let Some(phones) = &world.phones {
        phones.room.started(&url);
    }
    Ok(())
}

/// Without more trouble, waits until everything has ended. False: nothing moves any more, but something is left.
async fn drain(world: &World, stuck: Duration) -> Result<bool, String> {
    world.slack.faults().clear();
    if let Some(phones) = &world.phones {
        phones.sim.faults(FaultMix::default());
    }
    world.asking.store(false, Ordering::SeqCst);
    world.daemon.spawn().await?;
    listening(world).await?;
    let (mut last, mut moved) = (None, Instant::now());
    loop {
        let pending = files::below(&world.data.join("state/pending_questions"));
        let left = (world.history().waiting(), pending, world.closed.live(&world.slack).len());
        if left == (0, 0, 0) {
            return Ok(true);
        }
        if last != Some(left) {
            (last, moved) = (Some(left), Instant::now());
        } else if moved.elapsed() > stuck {
            return Ok(false);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn judge(world: &World, drained: bool) -> Verdict {
    let mut history = world.history();
    for (_, channel) in GROUPS {
        let Some(channel) = channel else { continue };
        for card in world.slack.messages(channel) {
            if let Some(request) = request_of(&card) {
                history.card(&request, "slack", !card.elements().is_empty());
            }
        }
    }
    let asked_back = world.phones.as_ref().map(|phones| phones.tell(&mut history));
    let mut verdict = history.judge();
    if let Some(phones) = &world.phones {
        phones.judge(&history, &mut verdict);
        verdict.note(format!("{} replies asked back", asked_back.unwrap_or(0)));
    }
    if !drained && verdict.findings().is_empty() {
        verdict.found("left open", 1, "something is still owed, and nothing moves");
    }
    verdict
}

/// The request that a card is about; `None`: the message is not a card.
pub(crate) fn request_of(message: &Message) -> Option<String> {
    let card = message.by_app && message.thread_ts.is_none() && message.only_for.is_none();
    let text = card.then(|| message.visible_text())?;
    let (_, rest) = text.split_once("Case ")?;
    rest.split_once(':').map(|(request, _)| request.to_owned())
}

/// Cards that were seen closed: not worth another look during the run.
#[derive(Default)]
pub(crate) struct Closed(Mutex<HashSet<String>>);

impl Closed {
    /// Cards that can still be used.
    pub(crate) fn live(&self, slack: &Slack) -> Vec<Message> {
        let mut closed = lock(&self.0);
        let candidates =
            slack.select(|message| !closed.contains(&message.ts) && message.by_app && message.only_for.is_none());
        let (live, done): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|message| !message.elements().is_empty());
        closed.extend(done.into_iter().map(|message| message.ts));
        live
    }
}

/// Asks, and takes the responses.
async fn agent(world: Arc<World>, group: String, width: usize, mut dice: Dice) {
    let mut agent = Agent::new(&world.data, &group, world.durable);
    while !world.is_over() {
        {
            let _disk = world.disk.read().await;
            if !world.off.load(Ordering::SeqCst) {
                agent.take(&world.history);
            }
            if world.asking.load(Ordering::SeqCst) && agent.waiting() < width {
                agent.ask(&world.history, |_| LABELS.map(str::to_owned).to_vec(), false);
            }
        }
        tokio::time::sleep(dice.millis(3, 25)).await;
    }
}

/// Clicks on anything that can be clicked.
async fn clicks(world: Arc<World>, person: &'static str, mut dice: Dice) {
    while !world.is_over() {
        tokio::time::sleep(dice.millis(5, 90)).await;
        let mut cards = world.closed.live(&world.slack);
        // Where a person with a phone is asked too, that person gets a chance.
        cards.retain(|card| dice.chance(20) || !request_of(card).is_some_and(|request| phones::is_group(&request)));
        if cards.is_empty() {
            continue;
        }
        let card = cards.swap_remove(dice.roll(cards.len()));
        let (Some(request), nth) = (request_of(&card), dice.roll(LABELS.len())) else { continue };
        let began = Instant::now();
        let sent = world.slack.click(&card.channel, &card.ts, &format!("pick:0:{nth}"), person).await;
        // On an error the card closed in the meantime, and nothing was sent.
        if let Ok(sent) = sent {
            let ended = sent.status.is_some_and(|status| (200..300).contains(&status));
            let reply = world.heard(if ended { Reply::Ended } else { Reply::Unknown });
            world.history().attempt(&request, ("slack", person), LABELS[nth], began, reply);
        }
    }
}

/// Answers through the API.
async fn calls(world: Arc<World>, door: &'static str, mut dice: Dice) {
    while !world.is_over() {
        tokio::time::sleep(dice.millis(5, 90)).await;
        let mut open = world.daemon.open().await;
        // Nobody else answers in the inbox, so this task answers there more often; people with a phone need their time.
        open.retain(|ask| match ask["group"].as_str() {
            Some("gamma") => true,
            Some(group) if phones::is_group(group) => dice.chance(2),
            _ => dice.chance(30),
        });
        if open.is_empty() {
            continue;
        }
        let ask = open.swap_remove(dice.roll(open.len()));
        let (Some(id), Some(request)) = (ask["id"].as_str(), ask["request_id"].as_str()) else { continue };
        let label = LABELS[dice.roll(LABELS.len())];
        let body = json!({"answers": { (text(request)): label }, "by": door});
        let began = Instant::now();
        let answer = world.daemon.call(&format!("/asks/{id}/answer"), Some(&body)).await;
        let reply = match answer.map(|(status, _): (u16, Value)| status) {
            Some(200) => Reply::Won,
            Some(409) => Reply::Ended,
            _ => Reply::Unknown,
        };
        let reply = world.heard(reply);
        world.said.fetch_add(usize::from(reply == Reply::Won), Ordering::SeqCst);
        world.history().attempt(request, (door, "operator"), label, began, reply);
    }
}
