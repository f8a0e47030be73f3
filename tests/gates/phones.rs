//! People with a phone in the worlds of `slack` and `cluster`: each is asked by a group of their own, every second one in Slack too if
//! the answer takes longer than a second. They quote the question and reply with a number. Meta loses one reply in
//! twenty, delivers each webhook until it gets a 200, and once more after the next start.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use askd_sim::whatsapp::{Config, Fault, FaultMix, Message, Person, Whatsapp};
use serde_json::Value;

use crate::agent::lock;
use crate::dice::Dice;
use crate::history::{History, Verdict, label_of};
use crate::post::Room;
use crate::slack::LABELS;

/// One reply of a person.
struct Said {
    id: String,
    person: usize,
    request: String,
    label: &'static str,
    began: Instant,
    /// The same by the clock of the platform, in milliseconds.
    at: i64,
}

/// How soon a person is asked back.
const SOON: i64 = 20_000;

/// WhatsApp, and what its people have said.
pub(crate) struct Phones {
    pub(crate) sim: Whatsapp,
    pub(crate) room: Arc<Room>,
    people: usize,
    /// The first message of each person.
    hellos: Vec<String>,
    said: Mutex<Vec<Said>>,
}

/// The group that asks this person.
pub(crate) fn group(person: usize) -> String {
    format!("phone{person}")
}

/// Whether a group, or a group's request, is for a person with a phone.
pub(crate) fn is_group(name: &str) -> bool {
    name.starts_with("phone")
}

fn number(person: usize) -> String {
    format!("1555000{person:04}")
}

impl Phones {
    pub(crate) async fn open(people: usize, seed: u64) -> Result<Self, String> {
        let (room, address) = Room::open().await?;
        let all = (0..people).map(|person| Person::new(&number(person), &format!("Person {person}"))).collect();
        let faults = FaultMix { share: 0.05, kinds: vec![Fault::ResetAfter] };
        let sim = Config { people: all, seed, webhook: Some(address), faults, ..Config::default() };
        let sim = Whatsapp::start(sim).await.map_err(|error| error.to_string())?;
        // They all wrote lately, or nobody could be asked.
        let hellos = (0..people).map(|person| sim.person_says(&number(person), "hello")).collect();
        Ok(Self { sim, room, people, hellos, said: Mutex::default() })
    }

    /// Waits until the daemon knows that everybody wrote: before, it may not ask them anything.
    pub(crate) async fn wrote(&self) {
        while self.hellos.iter().any(|hello| self.room.acknowledged(hello).is_none()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The channel and the groups; `shared` is the chat in Slack.
    pub(crate) fn settings(&self, shared: &str) -> String {
        let config = self.sim.config();
        let channel = format!(
            "[whatsapp]\naccess_token = \"{}\"\napp_secret = \"{}\"\nverify_token = \"{}\"\nphone_number_id = \"{}\"\napi_url = \"{}\"\n",
            config.token,
            config.app_secret,
            config.verify_token,
            config.phone_number_id,
            self.sim.api_url()
        );
        let groups = (0..self.people).map(|person| {
            let phone = format!("{{ channel = \"whatsapp\", chat = \"{}\" }}", number(person));
            let slack =
                format!("{{ channel = \"slack\", chat = \"{shared}\", responders = [\"U0ALICE\", \"U0BOB\"] }}");
            let routes = if person % 2 == 0 { phone } else { format!("{phone}, {slack}") };
            format!("[groups.{}]\nescalate_after = \"1s\"\nroutes = [{routes}]\n", group(person))
        });
        channel + &groups.collect::<String>()
    }

    /// Adds what people said and were shown to the history; an acknowledged reply was read by then. Returns how many were asked back.
    pub(crate) fn tell(&self, history: &mut History) -> usize {
        let mut asked = 0;
        for said in lock(&self.said).iter() {
            let by = ("whatsapp", number(said.person));
            // Where the reply to a post was lost, askd does not know yet what a quote names, and may have to ask back.
            let is_asking = |message: &Message| {
                let asks = ["Which question do you mean", "Did you mean this for", "Please reply again"];
                let soon = (said.at..said.at + SOON).contains(&message.at);
                soon && asks.iter().any(|asks| message.text.contains(asks))
            };
            let asked_back = self.sim.messages_to(&by.1).iter().any(is_asking);
            asked += usize::from(asked_back);
            // Otherwise a reply that quotes an open question is its outcome once it is acknowledged, or comes too late.
            let acknowledged = self.room.acknowledged(&said.id).filter(|_| !asked_back);
            let acknowledged = acknowledged.map(|acknowledged| acknowledged.at);
            history.attempt_at(&said.request, (by.0, &by.1), said.label, said.began, acknowledged);
        }
        for message in (0..self.people).flat_map(|person| self.sim.messages_to(&number(person))) {
            if let Some(request) = asks(&message).filter(|_| !message.text.contains("(repeat)")) {
                history.card(&request, "whatsapp", false);
            }
        }
        asked
    }

    /// Judges whether each answer from a phone was given there, and whether everybody was told how it ended.
    pub(crate) fn judge(&self, history: &History, verdict: &mut Verdict) {
        for (request, response) in history.responses().filter(|(request, _)| is_group(request)) {
            let by = &response["result"]["answered_by"];
            let label = label_of(response).unwrap_or_default();
            let by_phone = |by: &Value| by["channel"] == "whatsapp";
            if by_phone(by) && !history.gave(request, ("whatsapp", by["id"].as_str().unwrap_or_default()), label) {
                verdict.found("invented", 1, &format!("{request}: nobody gave {label:?} on {by}"));
            }
        }
        for Untold { person, label, shown, told } in self.untold(history) {
            let text =
                format!("person {person}: {shown} questions were answered with {label}, {told} closing lines came");
            verdict.found("left open", shown - told, &text);
        }
        let all = lock(&self.said).len();
        verdict.note(format!("{all} replies on phones, {} webhooks repeated", self.room.repeats()));
    }

    /// Who was not told how each question ended that was shown to them.
    pub(crate) fn untold(&self, history: &History) -> Vec<Untold> {
        let mut closed: BTreeMap<(usize, String), (usize, usize)> = BTreeMap::new();
        for (request, response) in history.responses().filter(|(request, _)| is_group(request)) {
            let label = label_of(response).unwrap_or_default();
            let person = request.trim_start_matches("phone").split('-').next().and_then(|person| person.parse().ok());
            let messages = person.map(|person| self.sim.messages_to(&number(person))).unwrap_or_default();
            if messages.iter().any(|message| asks(message).is_some_and(|asked| asked == *request)) {
                // The labels are the same in all questions, so closing lines are counted.
                let line = format!("Answered: {label} by");
                let told = messages.iter().filter(|message| message.text.contains(&line)).count();
                closed.entry((person.unwrap_or(0), label.to_owned())).or_insert((0, told)).0 += 1;
            }
        }
        let untold = closed.into_iter().filter(|(_, (shown, told))| told < shown);
        untold.map(|((person, label), (shown, told))| Untold { person, label, shown, told }).collect()
    }

    /// Reads the newest question, and quotes it in a reply.
    pub(crate) async fn answers(&self, person: usize, mut dice: Dice, is_over: impl Fn() -> bool) {
        let mut dealt_with = 0;
        while !is_over() {
            tokio::time::sleep(dice.millis(200, 1_500)).await;
            let messages = self.sim.messages_to(&number(person));
            let questions: Vec<_> = messages.iter().filter_map(|message| Some((message, asks(message)?))).collect();
            let new = questions.get(dealt_with..).unwrap_or_default();
            let Some((message, request)) = new.first() else { continue };
            dealt_with += 1;
            let nth = dice.roll(LABELS.len());
            let (began, at) = (Instant::now(), now());
            let id = self.sim.person_quotes(&number(person), &message.id, &(nth + 1).to_string());
            let said = Said { id, person, request: request.clone(), label: LABELS[nth], began, at };
            lock(&self.said).push(said);
        }
    }
}

/// So many questions that were answered with this label were shown to a person, and fewer closing lines came.
pub(crate) struct Untold {
    person: usize,
    label: String,
    shown: usize,
    told: usize,
}

/// The request that a message asks about; `None`: the message is not a question.
fn asks(message: &Message) -> Option<String> {
    let (_, rest) = message.text.split_once("Case ").filter(|_| message.stage.shown())?;
    let request = rest.split_once(':')?.0;
    message.text.contains(&format!("1. {}", LABELS[0])).then(|| request.to_owned())
}

fn now() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}
