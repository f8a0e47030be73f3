//! The business, its chats and the rules: who can be written to, how fast, and whether the 24-hour
//! window is open. One lock around plain data, held for no longer than a decision; a counter tells
//! watchers (the page, waiting tests) that something changed.
//!
//! Uncertain, and chosen strictly: an unknown business-scoped id is refused with 131026 at once; a
//! reaction does not open the window; a refused message costs nothing of the rates.
//! Called by `graph`, `person`, `climb` and `control`.

use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::check::{Content, Outgoing};
use super::clock::{Clock, UnixMs};
use super::config::{Business, Config, Ladder, Template, Traffic};
use super::error::GraphError;
use super::event::{self, Event, Sending};
use super::fault::Faults;
use super::message::{Call, Message, Person, Posted, Stage, Tap};
use super::pace::{Pair, Throughput};
use super::random::Random;

/// Everything the stand-in is, shared by its tasks.
pub(super) struct Hub {
    pub(super) config: Config,
    pub(super) clock: Clock,
    pub(super) stop: CancellationToken,
    pub(super) changed: watch::Sender<u64>,
    pub(super) http: reqwest::Client,
    events: mpsc::UnboundedSender<Event>,
    state: Mutex<State>,
}

pub(super) struct State {
    pub(super) chats: BTreeMap<String, Chat>,
    /// Message id to the chat it is in and its place there.
    places: HashMap<String, (String, usize)>,
    throughput: Throughput,
    pub(super) faults: Faults,
    pub(super) ladder: Ladder,
    pub(super) traffic: Traffic,
    pub(super) templates: Vec<Template>,
    pub(super) business: Business,
    pub(super) webhook: Option<String>,
    /// A Graph code that every call gets (131031 locked, 368 blocked, 190 token gone, …).
    pub(super) account: Option<i64>,
    /// Whether the connection of every call is reset.
    pub(super) away: bool,
    pub(super) calls: Vec<Call>,
    pub(super) posted: Vec<Posted>,
    pub(super) random: Random,
    ids: Random,
}

pub(super) struct Chat {
    pub(super) person: Person,
    pub(super) phone_on: bool,
    pub(super) on_whatsapp: bool,
    pub(super) last_inbound: Option<UnixMs>,
    pub(super) typing_until: UnixMs,
    pub(super) messages: Vec<Message>,
    /// Written while the phone was off.
    pub(super) unsent: Vec<(String, Sending)>,
    pair: Pair,
}

/// A message as the person sees it.
struct Bubble {
    kind: &'static str,
    text: String,
    taps: Vec<Tap>,
    list_label: Option<String>,
}

impl Chat {
    fn of(person: Person) -> Self {
        Self {
            person,
            phone_on: true,
            on_whatsapp: true,
            last_inbound: None,
            typing_until: 0,
            messages: Vec::new(),
            unsent: Vec::new(),
            pair: Pair::default(),
        }
    }

    /// The earliest time at which a person can answer what is on the phone: the end of the second in which the platform
    /// sent the last of it, and two more, because nobody reads and writes faster. So it does not matter whether the status
    /// of that message or the answer reaches askd first.
    pub(super) fn has_read_until(&self) -> UnixMs {
        let shown = self.messages.iter().filter(|m| m.outgoing && m.stage.shown());
        let sent = shown.filter_map(|m| m.reached(Stage::Sent).or(m.reached(Stage::Accepted))).max();
        sent.map_or(0, |sent| (sent / 1000 + 3) * 1000)
    }

    pub(super) fn window_open(&self, now: UnixMs, window_ms: i64) -> bool {
        self.last_inbound.is_some_and(|at| now < at + window_ms)
    }
}

impl State {
    fn new(config: &Config, salt: u64) -> Self {
        let mut state = Self {
            chats: BTreeMap::new(),
            places: HashMap::new(),
            throughput: Throughput::default(),
            faults: Faults::new(config.seed, config.faults.clone()),
            ladder: config.ladder,
            traffic: config.traffic.clone(),
            templates: config.templates.clone(),
            business: config.business.clone(),
            webhook: config.webhook.clone(),
            account: None,
            away: false,
            calls: Vec::new(),
            posted: Vec::new(),
            random: Random::seeded(config.seed ^ 0xC0FF_EE00),
            ids: Random::seeded(salt),
        };
        for person in &config.people {
            state.add(person.clone());
        }
        state
    }

    /// Adds a person, or renews one with the same number and keeps the chat.
    pub(super) fn add(&mut self, mut person: Person) {
        if person.user_id.is_empty() {
            person.user_id = Person::new(&person.wa_id, "").user_id;
        }
        let wa_id = person.wa_id.clone();
        self.chats.entry(wa_id).and_modify(|c| c.person = person.clone()).or_insert_with(|| Chat::of(person));
    }

    /// The chat's key for a number in any spelling or a business-scoped id.
    pub(super) fn key(&self, who: &str) -> Option<String> {
        let digits = digits(who);
        if self.chats.contains_key(&digits) && !who.contains('.') {
            return Some(digits);
        }
        let is = |chat: &&Chat| chat.person.user_id == who || chat.person.also.contains(&digits);
        self.chats.values().find(is).map(|c| c.person.wa_id.clone())
    }

    /// As `key`; somebody unknown comes to be.
    pub(super) fn key_or_new(&mut self, who: &str) -> String {
        if let Some(key) = self.key(who) {
            return key;
        }
        let wa_id = digits(who);
        let mut person = Person::new(&wa_id, &format!("Person {wa_id}"));
        if who.contains('.') {
            who.clone_into(&mut person.user_id);
            person.number_hidden = true;
        }
        self.add(person);
        wa_id
    }

    pub(super) fn message(&self, id: &str) -> Option<&Message> {
        let (wa_id, place) = self.places.get(id)?;
        self.chats.get(wa_id)?.messages.get(*place)
    }

    pub(super) fn message_mut(&mut self, id: &str) -> Option<&mut Message> {
        let (wa_id, place) = self.places.get(id)?;
        self.chats.get_mut(wa_id)?.messages.get_mut(*place)
    }

    pub(super) fn new_id(&mut self) -> String {
        format!("wamid.HBgL{}AA==", self.ids.base64ish(38))
    }

    pub(super) fn trace(&mut self) -> String {
        format!("A{}", self.ids.base64ish(22).replace(['+', '/'], "_"))
    }

    /// Puts a message into its chat.
    pub(super) fn keep(&mut self, message: Message) {
        if let Some(chat) = self.chats.get_mut(&message.wa_id) {
            self.places.insert(message.id.clone(), (message.wa_id.clone(), chat.messages.len()));
            chat.messages.push(message);
        }
    }

    /// Whom a call writes to, or why that is refused.
    fn recipient(&mut self, config: &Config, out: &Outgoing) -> Result<String, GraphError> {
        if out.by_user_id {
            let known = self.key(&out.input).filter(|_| out.input.contains('.'));
            return known.ok_or_else(|| GraphError::new(131_026, "No such business-scoped user id"));
        }
        let wa_id = digits(&out.input);
        let spelled = out.input.chars().all(|c| c.is_ascii_digit() || " +-().".contains(c));
        if !spelled || !(7..=15).contains(&wa_id.len()) {
            return Err(GraphError::new(131_009, "to is not a phone number"));
        }
        if wa_id == config.display_phone_number {
            return Err(GraphError::new(131_021, "Sender and recipient phone number is the same."));
        }
        if config.allowed.as_ref().is_some_and(|list| !list.iter().any(|a| digits(a) == wa_id)) {
            let details = "Recipient phone number not in allowed list: Add recipient phone number to recipient list";
            return Err(GraphError::new(131_030, details));
        }
        let known = self.key(&wa_id).is_some();
        let key = self.key_or_new(&wa_id);
        if let Some(chat) = self.chats.get_mut(&key).filter(|_| !known && config.only_known) {
            chat.on_whatsapp = false;
        }
        Ok(key)
    }

    /// Accepts a message of the business, or refuses it. `Some(code)`: it will fail later.
    fn accept(&mut self, config: &Config, now: UnixMs, out: Outgoing) -> Result<(Message, Option<i64>), GraphError> {
        if let Some(code) = self.account {
            return Err(GraphError::new(code, "The account is in this state until the stand-in is told otherwise"));
        }
        let bubble = self.spell_out(out.content.clone())?;
        let wa_id = self.recipient(config, &out)?;
        let throttled = |code, details: &str| GraphError::new(code, details).with_status(config.throttle_status);
        if !self.throughput.take(now, config.throughput) {
            return Err(throttled(130_429, "Cloud API message throughput has been reached."));
        }
        let id = self.new_id();
        let Some(chat) = self.chats.get_mut(&wa_id) else { return Err(GraphError::new(131_000, "lost chat")) };
        if !chat.pair.take(now, config.pair_every_ms, config.pair_burst) {
            let details = "Message failed to send because there were too many messages sent from this phone number \
                           to the same phone number in a short period of time";
            return Err(throttled(131_056, details));
        }
        let late = if !chat.on_whatsapp {
            Some(131_026)
        } else if bubble.kind != "template" && !chat.window_open(now, config.window_ms) {
            Some(131_047)
        } else {
            None
        };
        chat.typing_until = 0;
        let message = Message {
            id,
            wa_id,
            outgoing: true,
            kind: bubble.kind.to_owned(),
            text: bubble.text,
            taps: bubble.taps,
            list_label: bubble.list_label,
            quotes: out.quotes,
            stage: Stage::Accepted,
            error: None,
            opaque: out.opaque,
            reaction: None,
            at: now,
            reached: vec![(Stage::Accepted, now)],
            by_user_id: out.by_user_id,
        };
        self.keep(message.clone());
        Ok((message, late))
    }

    /// What the person will read and can tap.
    fn spell_out(&self, content: Content) -> Result<Bubble, GraphError> {
        match content {
            Content::Text { body } => Ok(Bubble { kind: "text", text: body, taps: Vec::new(), list_label: None }),
            Content::Interactive { body, taps, list_label } => {
                Ok(Bubble { kind: "interactive", text: body, taps, list_label })
            }
            Content::Template { name, language, parameters, payloads } => {
                let found = self.templates.iter().find(|t| t.name == name && t.language == language);
                let Some(template) = found else {
                    let details = format!("template name ({name}) does not exist in {language}");
                    return Err(GraphError::new(132_001, details));
                };
                let expected = (1..=20).take_while(|i| template.body.contains(&format!("{{{{{i}}}}}"))).count();
                if expected != parameters.len() {
                    let details = format!(
                        "body: number of localizable_params ({}) does not match the expected number of params ({expected})",
                        parameters.len()
                    );
                    return Err(GraphError::new(132_000, details));
                }
                let fill = |text: String, (i, p): (usize, &String)| text.replace(&format!("{{{{{}}}}}", i + 1), p);
                let text = parameters.iter().enumerate().fold(template.body.clone(), fill);
                if payloads.iter().any(|(i, _)| *i >= template.buttons.len()) {
                    return Err(GraphError::new(132_000, "button index out of bounds"));
                }
                let tap = |(i, label): (usize, &String)| Tap {
                    id: payloads.iter().find(|p| p.0 == i).map_or_else(|| label.clone(), |p| p.1.clone()),
                    title: label.clone(),
                    description: None,
                };
                let taps = template.buttons.iter().enumerate().map(tap).collect();
                Ok(Bubble { kind: "template", text, taps, list_label: None })
            }
        }
    }
}

impl Hub {
    pub(super) fn new(config: Config, http: reqwest::Client, events: mpsc::UnboundedSender<Event>) -> Self {
        let clock = Clock::start(config.clock_held);
        // Ids of two runs must differ: a duplicate of last week is told by its id.
        let salt = config.seed ^ clock.now().unsigned_abs().rotate_left(20);
        let state = Mutex::new(State::new(&config, salt));
        let (changed, _) = watch::channel(0);
        Self { config, clock, stop: CancellationToken::new(), changed, http, events, state }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn bump(&self) {
        self.changed.send_modify(|n| *n += 1);
    }

    pub(super) fn tell(&self, event: Event) {
        // The courier ends with the stand-in; then nobody is left to be told.
        let _ = self.events.send(event);
    }

    /// As `tell`, after a while.
    fn tell_after(&self, event: Event, ms: u64) {
        if ms == 0 {
            return self.tell(event);
        }
        let (events, stop) = (self.events.clone(), self.stop.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(ms)) => drop(events.send(event)),
                () = stop.cancelled() => {}
            }
        });
    }

    /// Accepts or refuses a message; the caller starts its climb.
    pub(super) fn accept(&self, out: Outgoing) -> Result<(Message, Option<i64>), GraphError> {
        let accepted = self.lock().accept(&self.config, self.clock.now(), out);
        self.bump();
        accepted
    }

    /// Moves a message to a stage and tells the business. A stage already passed is told again
    /// without moving back; that is how reordering looks.
    pub(super) fn set_stage(&self, id: &str, stage: Stage, code: Option<i64>) -> bool {
        let now = self.clock.now();
        let event = {
            let mut chats = self.lock();
            let (told, [least, most]) = (chats.ladder.told, chats.ladder.told_after_ms);
            let spread = usize::try_from(most.saturating_sub(least)).unwrap_or(0);
            let drawn = if spread == 0 { 0 } else { chats.random.below(spread + 1) };
            let late = least + u64::try_from(drawn).unwrap_or(0);
            let Some(message) = chats.message_mut(id).filter(|m| m.outgoing) else { return false };
            message.stage = message.stage.max(stage);
            if message.reached(stage).is_none() {
                message.reached.push((stage, now));
            }
            let at = message.reached(stage).unwrap_or(now);
            if stage == Stage::Failed {
                message.error = code;
            }
            let message = message.clone();
            let person = chats.chats.get(&message.wa_id).map(|c| c.person.clone());
            let event = person.map(|p| event::status(&self.config, &p, &message, stage, code, at));
            event.filter(|_| told && stage != Stage::Accepted).map(|event| (event, late))
        };
        if let Some((event, late)) = event {
            self.tell_after(event, late);
        }
        self.bump();
        true
    }

    pub(super) fn uptime_ms(&self) -> i64 {
        super::clock::millis(self.clock.uptime())
    }

    /// Ends early with `None` when the stand-in stops.
    pub(super) async fn pause(&self, ms: u64) -> Option<()> {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(ms)) => Some(()),
            () = self.stop.cancelled() => None,
        }
    }
}

pub(super) fn digits(text: &str) -> String {
    text.chars().filter(char::is_ascii_digit).collect()
}
