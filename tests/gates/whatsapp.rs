//! Thirty people with a phone each, agents that ask them through real files, and an operator who is sometimes faster.
//! Meta delivers each webhook until it gets a 200, and once more after the next start. One message in five arrives only
//! when a later question stands in that chat. The gate kills the daemon in the middle of all this.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use askd_sim::whatsapp::{Config, Fault, FaultMix, Ladder, Message, Person, Stage, Whatsapp};
use serde_json::{Value, json};

use crate::agent::{Agent, lock, text};
use crate::daemon::{Daemon, TOKEN};
use crate::dice::Dice;
use crate::files;
use crate::history::{History, Reply, Verdict, label_of};
use crate::post::Room;

const PEOPLE: usize = 30;
const WAYS: [&str; 4] = ["north", "east", "south", "west"];
/// After this long without a result a person quotes the question, which names it.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long anything may take that needs no thinking; the pace of a chat is slow.
const SOON: Duration = Duration::from_secs(120);
/// How long nothing at all may happen before everything has come to its end.
const STUCK: Duration = Duration::from_secs(90);
/// How long to go on when the daemon is broken on purpose: what is still owed does not matter then.
const BROKEN: Duration = Duration::from_secs(30);

/// What somebody wrote, and what was on the phone then.
struct Said {
    id: String,
    began: Instant,
    /// A number of the list, or a word of their own that nobody uses twice.
    words: String,
    /// The question it quotes or taps.
    names: Option<String>,
    on_the_phone: BTreeSet<String>,
    held: bool,
}

struct World {
    sim: Whatsapp,
    room: Arc<Room>,
    daemon: Daemon,
    history: Mutex<History>,
    agents: Vec<Mutex<Agent>>,
    said: Vec<Mutex<Vec<Said>>>,
    state: PathBuf,
    asking: AtomicBool,
    over: AtomicBool,
}

fn number(person: usize) -> String {
    format!("1555000{person:04}")
}

/// The options of a question; no two questions share a label.
fn labels(request: &str) -> Vec<String> {
    WAYS.map(|way| format!("{request} {way}")).to_vec()
}

/// Plays it and judges.
pub(crate) async fn play(rounds: usize, seed: u64, sabotage: Option<&'static str>) -> Result<Verdict, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (room, address) = Room::open().await?;
    let people = (0..PEOPLE).map(|person| Person::new(&number(person), &format!("Person {person}"))).collect();
    let lost = FaultMix { share: 0.05, kinds: vec![Fault::ResetAfter] };
    // Statuses come late and in any order, and the `Date` of answers is up to two seconds off. What is broken on purpose is played
    // without that, as it was measured.
    let late = sabotage.is_none();
    let ladder = Ladder { told_after_ms: [0, if late { 2_000 } else { 0 }], ..Ladder::default() };
    let date_ahead_s = if late { i64::try_from(seed % 5).unwrap_or(0) - 2 } else { 0 };
    let sim = Config { people, seed, webhook: Some(address), faults: lost, ladder, date_ahead_s, ..Config::default() };
    let sim = Whatsapp::start(sim).await.map_err(|error| error.to_string())?;
    let (data, config) = (folder.path().join("data"), folder.path().join("askd.toml"));
    let mut text = format!(
        "data_dir = \"{}\"\n[http]\nlisten = \"127.0.0.1:0\"\n[web]\ntoken = \"{TOKEN}\"\n\
         [asks]\nmax_open_per_group = 1000\nmax_per_hour_per_group = 100000\n\
         [whatsapp]\naccess_token = \"sim-token\"\napp_secret = \"sim-app-secret\"\nverify_token = \"sim-verify-token\"\n\
         phone_number_id = \"{}\"\napi_url = \"{}\"\n",
        data.display(),
        sim.config().phone_number_id,
        sim.api_url()
    );
    text.extend((0..PEOPLE).map(|person| {
        format!("[groups.g{person}]\nroutes = [{{ channel = \"whatsapp\", chat = \"{}\" }}]\n", number(person))
    }));
    files::write(&config, text.as_bytes()).map_err(|error| error.to_string())?;
    let world = Arc::new(World {
        sim,
        room,
        daemon: Daemon::new(folder.path(), sabotage)?,
        history: Mutex::default(),
        agents: (0..PEOPLE).map(|person| Mutex::new(Agent::new(&data, &format!("g{person}"), false))).collect(),
        said: (0..PEOPLE).map(|_| Mutex::default()).collect(),
        state: data.join("state/pending_questions"),
        asking: AtomicBool::new(true),
        over: AtomicBool::new(false),
    });
    let played = world.live(rounds, sabotage.is_some(), &mut Dice::new(seed)).await;
    world.daemon.kill().await;
    let verdict = world.judge(played?);
    if !verdict.findings().is_empty() && sabotage.is_none() {
        crate::keep(&folder.path().join("log"));
    }
    Ok(verdict)
}

impl World {
    /// All the kills, and a quiet end. False: something stayed unfinished.
    async fn live(self: &Arc<Self>, rounds: usize, broken: bool, dice: &mut Dice) -> Result<bool, String> {
        self.start().await?;
        // Everybody opens the chat first: without that, nobody could be asked.
        let hellos: Vec<String> = (0..PEOPLE).map(|person| self.sim.person_says(&number(person), "hello")).collect();
        until(SOON, || hellos.iter().all(|id| self.room.acknowledged(id).is_some())).await;
        let world = Arc::clone(self);
        let takes = tokio::spawn(async move { world.take().await });
        let mut chats = tokio::task::JoinSet::new();
        for person in 0..PEOPLE {
            let chat = Chat { world: Arc::clone(self), person, dice: dice.split(), words: 0 };
            chats.spawn(chat.go_on());
        }
        for _ in 0..rounds {
            tokio::time::sleep(dice.millis(200, 3_000)).await;
            self.room.stopped();
            self.daemon.kill().await;
            self.start().await?;
        }
        self.asking.store(false, Ordering::SeqCst);
        self.sim.faults(FaultMix::default());
        let settled = tokio::time::timeout(if broken { BROKEN } else { Duration::MAX }, self.settle(&mut chats)).await;
        let ended = broken || settled == Ok(true);
        self.over.store(true, Ordering::SeqCst);
        chats.abort_all();
        let _taken = takes.await;
        Ok(ended)
    }

    async fn start(&self) -> Result<(), String> {
        self.daemon.spawn().await?;
        let url = self.daemon.listening().await?;
        self.room.started(&url);
        Ok(())
    }

    /// Without more trouble, waits until every chat has ended and nothing is owed.
    async fn settle(&self, chats: &mut tokio::task::JoinSet<()>) -> bool {
        let (mut last, mut moved) = (None, Instant::now());
        loop {
            while chats.try_join_next().is_some() {}
            let left = (chats.len(), lock(&self.history).waiting(), files::below(&self.state));
            if left == (0, 0, 0) {
                return true;
            }
            if last != Some(left) {
                (last, moved) = (Some(left), Instant::now());
            } else if moved.elapsed() > STUCK {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn take(&self) {
        while !self.over.load(Ordering::SeqCst) {
            for agent in &self.agents {
                lock(agent).take(&self.history);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    fn answered(&self, request: &str) -> bool {
        lock(&self.history).response_to(request).is_some()
    }

    fn judge(&self, ended: bool) -> Verdict {
        let mut history = lock(&self.history);
        for (person, said) in self.said.iter().enumerate() {
            for said in lock(said).iter() {
                let acknowledged = self.room.acknowledged(&said.id).map(|acknowledged| acknowledged.at);
                // A message that names an open question is its outcome once it is acknowledged, or comes too late.
                let reply = acknowledged.filter(|_| said.names.is_some());
                for request in said.could_mean() {
                    let label = said.label(request);
                    history.attempt_at(request, ("whatsapp", &number(person)), &label, said.began, reply);
                }
            }
            for message in self.sim.messages_to(&number(person)) {
                if let Some(request) = asks(&message).filter(|_| !message.text.contains("(repeat)")) {
                    history.card(&request, "whatsapp", false);
                }
            }
        }
        let mut verdict = history.judge();
        let mut used: HashMap<&str, &str> = HashMap::new();
        for (request, response) in history.responses().filter(|(_, response)| by_message(response)) {
            self.judge_message(request, response, &mut verdict);
            let label = label_of(response).unwrap_or_default();
            if let Some(other) = used.insert(label, request) {
                verdict.found("repeats", 1, &format!("{label:?} answered {other} and {request}"));
            }
        }
        for (request, response) in history.responses() {
            self.judge_closing(request, response, &mut verdict);
        }
        if !ended && verdict.findings().is_empty() {
            verdict.found("left open", 1, "something is still owed, and nothing moves");
        }
        let said: Vec<_> = self.said.iter().map(lock).collect();
        let held = said.iter().flat_map(|said| said.iter()).filter(|said| said.held).count();
        let all: usize = said.iter().map(|said| said.len()).sum();
        verdict.note(format!("{all} messages, {held} of them held back, {} webhooks repeated", self.room.repeats()));
        verdict
    }

    /// Judges which message gave this answer, and whether it was allowed to.
    fn judge_message(&self, request: &str, response: &Value, verdict: &mut Verdict) {
        let (label, person) = (label_of(response).unwrap_or_default(), person_of(request));
        let Some(said) = self.said.get(person) else { return };
        let said = lock(said);
        let gave: Vec<&Said> = said.iter().filter(|said| said.label(request) == label).collect();
        let meant: Vec<&&Said> = gave.iter().filter(|said| said.could_mean().any(|meant| meant == request)).collect();
        if meant.is_empty() {
            let what = if gave.is_empty() { "invented" } else { "from before" };
            verdict.found(what, 1, &format!("{request}: {label:?} was not meant for it"));
            return;
        }
        let at = response["result"]["answered_at"].as_str().and_then(|at| at.parse::<jiff::Timestamp>().ok());
        let Some(at) = at.map(SystemTime::from) else { return };
        let in_time =
            |said: &&&Said| self.room.acknowledged(&said.id).is_none_or(|acknowledged| at <= acknowledged.time);
        if !meant.iter().any(in_time) {
            let text = format!("{request}: {label:?} came from a message that had been dealt with before");
            verdict.found("repeats", 1, &text);
        }
    }

    /// Judges whether the person was told how the question ended.
    fn judge_closing(&self, request: &str, response: &Value, verdict: &mut Verdict) {
        let messages = self.sim.messages_to(&number(person_of(request)));
        let shown = messages.iter().any(|message| asks(message).is_some_and(|asked| asked == request));
        let label = label_of(response).unwrap_or_default();
        let told = messages.iter().any(|message| message.text.contains(&format!("Answered: {label} by")));
        if shown && !told {
            verdict.found("left open", 1, &format!("{request}: nobody was told that it was answered"));
        }
    }
}

impl Said {
    /// The label that these words mean for a question.
    fn label(&self, request: &str) -> String {
        let nth = self.words.parse::<usize>().ok().and_then(|nth| nth.checked_sub(1));
        nth.and_then(|nth| labels(request).get(nth).cloned()).unwrap_or_else(|| self.words.clone())
    }

    /// The questions that these words may answer.
    fn could_mean(&self) -> impl Iterator<Item = &String> {
        self.on_the_phone.iter().filter(|request| self.names.as_ref().is_none_or(|names| names == *request))
    }
}

fn by_message(response: &Value) -> bool {
    response["result"]["answered_by"]["channel"] == "whatsapp"
}

/// The person a request is for: the group's name says it.
fn person_of(request: &str) -> usize {
    let name = request.trim_start_matches('g').split('-').next();
    name.and_then(|person| person.parse().ok()).unwrap_or(usize::MAX)
}

/// The request that a message asks about; `None`: the message is not a question.
fn asks(message: &Message) -> Option<String> {
    let (_, rest) = message.text.split_once("Case ").filter(|_| message.stage != Stage::Failed)?;
    let request = rest.split_once(':')?.0;
    message.text.contains(&format!("1. {}", labels(request)[0])).then(|| request.to_owned())
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn seconds() -> i64 {
    i64::try_from(now().as_secs()).unwrap_or(i64::MAX)
}

/// Waits until a condition holds; false if the time runs out.
async fn until(at_most: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let began = Instant::now();
    while !is_so() {
        if began.elapsed() > at_most {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

/// One person, and the agent who asks that person.
struct Chat {
    world: Arc<World>,
    person: usize,
    dice: Dice,
    words: usize,
}

impl Chat {
    async fn go_on(mut self) {
        while self.world.asking.load(Ordering::SeqCst) {
            match self.dice.roll(10) {
                0..=4 => self.a_message_is_held_back().await,
                5..=7 => self.one_of_two_is_meant().await,
                _ => {
                    let request = self.ask();
                    self.answers(&request, false).await;
                }
            }
            tokio::time::sleep(self.dice.millis(50, 1_500)).await;
        }
    }

    fn ask(&self) -> String {
        lock(&self.world.agents[self.person]).ask(&self.world.history, labels, true)
    }

    /// Waits until the question is on the phone, and has been read.
    async fn reads(&mut self, request: &str) -> Option<Message> {
        let who = number(self.person);
        let here = |m: &Message| m.wa_id == who && m.stage.shown() && asks(m).is_some_and(|asked| asked == request);
        let message = self.world.sim.wait_for_message(here, SOON).await?;
        // Nobody reads and answers within the second in which it was sent.
        let next = message.reached(Stage::Sent).unwrap_or(message.at) / 1000 + 1;
        let read = Duration::from_secs(u64::try_from(next).unwrap_or(0)).saturating_sub(now());
        tokio::time::sleep(read + self.dice.millis(30, 900)).await;
        Some(message)
    }

    /// A number of the list, or a word that nobody used before.
    fn words(&mut self) -> String {
        if self.dice.chance(50) {
            return (1 + self.dice.roll(WAYS.len())).to_string();
        }
        self.words += 1;
        format!("word {}-{}", self.person, self.words)
    }

    /// Writes, with a quote or without.
    fn says(&mut self, quotes: Option<(&str, &Message)>, held: bool) {
        let (who, words) = (number(self.person), self.words());
        let shown = self.world.sim.messages_to(&who).into_iter().filter(|message| message.stage.shown());
        let on_the_phone = shown.filter_map(|message| asks(&message)).collect();
        let began = Instant::now();
        let id = match quotes {
            Some((_, message)) => self.world.sim.person_quotes(&who, &message.id, &words),
            // With its real time, not the stand-in's later time for tests that do not wait: these people have waited.
            None => self.world.sim.person_says_at(&who, &words, seconds()),
        };
        let names = quotes.map(|(request, _)| request.to_owned());
        lock(&self.world.said[self.person]).push(Said { id, began, words, names, on_the_phone, held });
    }

    /// Answers until the agent has it: first with a number or a word (unless `by_quote`), then by a quote.
    async fn answers(&mut self, request: &str, by_quote: bool) {
        let mut by_quote = by_quote || self.dice.chance(30);
        while !self.world.answered(request) {
            let Some(message) = self.reads(request).await else { return };
            if self.world.answered(request) {
                return;
            }
            self.says(by_quote.then_some((request, &message)), false);
            let world = Arc::clone(&self.world);
            until(PATIENCE, || world.answered(request)).await;
            by_quote = true;
        }
    }

    /// The webhook of an answer arrives only when a later question stands in the chat; usually somebody else has
    /// answered the first question by then.
    async fn a_message_is_held_back(&mut self) {
        let (who, first) = (number(self.person), self.ask());
        if self.reads(&first).await.is_none() {
            return;
        }
        self.world.room.hold(&who);
        self.says(None, true);
        if self.dice.chance(70) {
            while !self.world.answered(&first) {
                self.operator_answers(&first).await;
            }
        }
        let second = self.ask();
        let read = self.reads(&second).await;
        self.world.room.release(&who);
        if read.is_none() {
            return;
        }
        let world = Arc::clone(&self.world);
        until(self.dice.millis(500, 2_500), || world.answered(&second)).await;
        self.answers(&first, true).await;
        self.answers(&second, true).await;
    }

    /// Two questions are open, and a bare reply means neither. Then a quote answers one of them, the daemon dies, and
    /// the bare reply comes again.
    async fn one_of_two_is_meant(&mut self) {
        // One after the other: if two cross on their way, askd asks which one was meant.
        let first = self.ask();
        if self.reads(&first).await.is_none() {
            return;
        }
        let second = self.ask();
        if self.reads(&second).await.is_none() {
            return;
        }
        self.says(None, false);
        tokio::time::sleep(self.dice.millis(500, 1_500)).await;
        self.answers(&first, true).await;
        let (world, epoch) = (Arc::clone(&self.world), self.world.room.epoch());
        until(Duration::from_secs(4), || world.room.epoch() > epoch).await;
        tokio::time::sleep(self.dice.millis(500, 1_500)).await;
        self.answers(&second, true).await;
    }

    /// The operator answers in the inbox.
    async fn operator_answers(&mut self, request: &str) {
        let open = self.world.daemon.open().await;
        let ask = open.iter().find(|ask| ask["request_id"] == request);
        if let Some(id) = ask.and_then(|ask| ask["id"].as_str()) {
            let label = labels(request).swap_remove(self.dice.roll(WAYS.len()));
            let body = json!({"answers": { (text(request)): label }});
            let began = Instant::now();
            let answer = self.world.daemon.call(&format!("/asks/{id}/answer"), Some(&body)).await;
            let reply = match answer.map(|(status, _)| status) {
                Some(200) => Reply::Won,
                Some(409) => Reply::Ended,
                _ => Reply::Unknown,
            };
            lock(&self.world.history).attempt(request, ("api", "operator"), &label, began, reply);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
