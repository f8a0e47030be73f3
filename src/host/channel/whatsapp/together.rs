//! What several daemons know of people. Each stores its changes entry by entry, and learns what the others have changed. A daemon changes
//! what is known of a person only in that person's turn, so a person's messages are dealt with one at a time, whichever daemons Meta calls.

use super::callback_data::CallbackData;
use super::contacts::{Contacts, FILE, KEEP};
use super::entries::{Changes, Replaced, Values};
use super::state_file::StateFile;
use crate::clock::{Clock, Moment};
use crate::host::channel::NotStored;
use crate::host::keyed_lock::KeyGuard;
use crate::host::store::memory::{self, Changed, Entries, Known, Memory, Place, Write, Writes};
use crate::random;
use crate::sabotage::on;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What was taken out is told for an hour. After this time without a look, a daemon reads everything.
const OUT_OF_TOUCH: Duration = Duration::from_secs(1_800);

/// How soon the leader tries again.
const SHARES_AGAIN: Duration = Duration::from_secs(10);

/// What another daemon has stored that this one has to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum News {
    /// The person with this id wrote.
    Wrote(String),
    /// People have to be told something.
    Notes,
    /// A closing message may have to be sent again.
    Unclosed,
    /// A status told of this closing message.
    Closing(CallbackData),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Together {
    memory: Arc<dyn Memory>,
    number: String,
    clock: Clock,
    /// The memory has entries. Until then the leader has documents, and reads what people write.
    is_shared: AtomicBool,
    /// Held for writing while the leader's documents become entries.
    saving: tokio::sync::RwLock<()>,
    /// How far this daemon has read. Locked while it reads what others have changed and takes that in, and while it stores its own changes.
    known: tokio::sync::Mutex<Option<(Known, Moment)>>,
    news: UnboundedSender<News>,
    /// The last look failed.
    failing: AtomicBool,
    /// When the leader tried last whether its documents can become entries.
    tried: Mutex<Moment>,
    unheard: Mutex<Option<UnboundedReceiver<News>>>,
}

/// Whoever has it may change what is known of a person.
#[must_use]
pub(super) struct Turn<'a> {
    contacts: &'a Contacts,
    held: Option<Box<dyn memory::Turn>>,
    _alone: KeyGuard,
}

impl Turn<'_> {
    /// Puts everything on stable storage.
    pub(super) async fn end(self) -> Result<(), NotStored> {
        self.contacts.save_in(self.held).await
    }
}

impl Together {
    pub(super) fn new(memory: Arc<dyn Memory>, number: &str, clock: Clock) -> Self {
        let (news, unheard) = unbounded_channel();
        let (number, is_shared, unheard) = (number.to_owned(), AtomicBool::default(), Mutex::new(Some(unheard)));
        let (saving, known) = (tokio::sync::RwLock::default(), tokio::sync::Mutex::default());
        let tried = Mutex::new(clock.monotonic());
        let failing = AtomicBool::default();
        Self { memory, number, clock, is_shared, saving, known, news, failing, tried, unheard }
    }

    pub(super) fn leads(&self) -> bool {
        self.memory.leads()
    }

    /// Up to where this daemon knows, unless that was too long ago.
    fn still_known<'a>(&self, known: Option<&'a (Known, Moment)>) -> Option<&'a Known> {
        let now = self.clock.monotonic();
        known.filter(|(_, at)| now.since(*at) < OUT_OF_TOUCH).map(|(known, _)| known)
    }
}

/// All that is known of each number of the business.
pub(super) type Numbers = BTreeMap<String, BTreeMap<(String, Place), Value>>;

/// Adds what a document has.
pub(super) fn add<T>(to: &mut Numbers, name: &str, document: &StateFile<T>) -> io::Result<()>
where
    T: Clone + Default + Serialize + DeserializeOwned + Send + 'static,
{
    for (number, values) in document.entries()? {
        let named = |values: Values| values.into_iter().map(|(place, value)| ((name.to_owned(), place), value));
        to.entry(number).or_default().extend(named(values));
    }
    Ok(())
}

fn as_entries(numbers: &Numbers) -> Vec<(String, Entries)> {
    let text = |(place, value): (&(String, Place), &Value)| (place.clone(), Some(value.to_string()));
    numbers.iter().map(|(number, values)| (number.clone(), values.iter().map(text).collect())).collect()
}

/// What a look has found, by the document that it was.
fn by_name(entries: Entries) -> BTreeMap<String, Changes> {
    let mut named: BTreeMap<String, Changes> = BTreeMap::new();
    for ((name, place), value) in entries {
        let value = value.and_then(|text| serde_json::from_str(&text).ok());
        named.entry(name).or_default().insert(place, value);
    }
    named
}

fn not_stored(error: &io::Error) -> NotStored {
    tracing::error!(%error, "the memory of the WhatsApp channel cannot be used");
    NotStored
}

impl Contacts {
    /// Turns the leader's documents into entries when it starts, unless a daemon is running that reads only documents.
    pub(super) fn begin(&self) -> io::Result<()> {
        let Some(together) = self.together.as_ref().filter(|together| together.leads()) else { return Ok(()) };
        let (names, numbers) = self.documented()?;
        let Some(shared) = together.memory.share(&together.number, &names, &as_entries(&numbers))? else {
            tracing::info!(
                "for now only the leader reads what people write on WhatsApp: a daemon of an earlier version is running, or was within \
                 the last hour"
            );
            return Ok(());
        };
        let mut all: BTreeMap<String, Values> = names.into_iter().map(|name| (name, Values::new())).collect();
        for (name, of) in by_name(shared.found.entries) {
            let there = of.into_iter().filter_map(|(place, value)| Some((place, value?)));
            all.entry(name).or_default().extend(there);
        }
        for (name, of) in all {
            if name == FILE { self.file.set(of) } else { self.messages.set(&name, of) }
        }
        together.is_shared.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Does the same later, once no such daemon is left.
    pub(super) async fn begin_later(&self) -> Result<(), NotStored> {
        let unshared = |together: &&Together| together.leads() && !together.is_shared.load(Ordering::Relaxed);
        let Some(together) = self.together.as_ref().filter(unshared) else { return Ok(()) };
        let now = together.clock.monotonic();
        let tried = std::mem::replace(&mut *together.tried.lock(), now);
        if now.since(tried) < SHARES_AGAIN {
            *together.tried.lock() = tried;
            return Ok(());
        }
        // If the database is away, the looks say so.
        if !together.memory.may_share().await.map_err(|_away| NotStored)? {
            return Ok(());
        }
        let _nobody_saves = together.saving.write().await;
        if together.is_shared.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (names, numbers) = self.documented().map_err(|error| not_stored(&error))?;
        let (memory, number, entries) = (Arc::clone(&together.memory), together.number.clone(), as_entries(&numbers));
        let share = move || memory.share(&number, &names, &entries);
        let shared = tokio::task::spawn_blocking(share).await.map_err(io::Error::other).flatten();
        let Some(shared) = shared.map_err(|error| not_stored(&error))? else { return Ok(()) };
        // Else an earlier try did so, and others may have changed them since. The next look reads all of them.
        let mut own = if shared.moved { numbers } else { Numbers::new() };
        for ((name, place), value) in own.remove(&together.number).unwrap_or_default() {
            self.stored(&name, Changes::from([(place, Some(value))]));
        }
        together.is_shared.store(true, Ordering::Relaxed);
        tracing::info!("every daemon reads what people write on WhatsApp now");
        Ok(())
    }

    /// The names of all documents, and what they have.
    fn documented(&self) -> io::Result<(Vec<String>, Numbers)> {
        let mut numbers = Numbers::new();
        let mut names = self.messages.add_to(&mut numbers)?;
        add(&mut numbers, FILE, &self.file)?;
        names.push(FILE.to_owned());
        Ok((names, numbers))
    }

    /// Puts everything on stable storage: what people have to be told comes before the messages that it replies to.
    async fn save_documents(&self) -> io::Result<()> {
        let before = self.now() - KEEP;
        self.file.save(|known| known.forget(before)).await?;
        self.messages.save(before).await
    }

    /// The entries of each document that are not stored as they are now.
    fn unstored(&self) -> io::Result<Vec<(String, Replaced)>> {
        let before = self.now() - KEEP;
        let mut unstored = self.messages.unstored(before)?;
        unstored.push((FILE.to_owned(), self.file.unstored(|known| known.forget(before))?));
        Ok(unstored)
    }

    /// These are stored now.
    fn stored(&self, name: &str, stored: Changes) {
        if name == FILE { self.file.stored(stored) } else { self.messages.stored(name, stored) }
    }

    /// Takes in what stands in one of them, as other daemons may have changed it. Returns what was not known.
    fn take_in_of(&self, name: &str, found: Changes) -> io::Result<Vec<Place>> {
        if name == FILE { self.file.take_in(found) } else { self.messages.take_in(name, found) }
    }

    /// The places of all entries that are stored.
    fn places(&self) -> Vec<(String, Vec<Place>)> {
        let mut places = self.messages.places();
        places.push((FILE.to_owned(), self.file.places()));
        places
    }

    fn shared(&self) -> Option<&Together> {
        self.together.as_ref().filter(|together| together.is_shared.load(Ordering::Relaxed))
    }

    /// Whether any daemon reads what people write, and not the leader alone.
    pub(super) async fn is_shared(&self) -> Result<bool, NotStored> {
        let Some(together) = self.together.as_ref().filter(|_| !on("leaderreads")) else { return Ok(false) };
        if !together.is_shared.load(Ordering::Relaxed) && !together.leads() {
            let shared = together.memory.is_shared().await.map_err(|error| not_stored(&error))?;
            together.is_shared.store(shared, Ordering::Relaxed);
        }
        Ok(self.shared().is_some())
    }

    /// Whether another daemon may change the same.
    pub(super) fn has_company(&self) -> bool {
        self.shared().is_some()
    }

    /// Whether this daemon sends what people have to be told.
    pub(super) fn sends(&self) -> bool {
        self.together.as_ref().is_none_or(Together::leads)
    }

    /// What other daemons store from now on, for the one that acts on it.
    pub(super) fn news(&self) -> Option<UnboundedReceiver<News>> {
        self.together.as_ref()?.unheard.lock().take()
    }

    /// Waits until nobody else changes what is known of the person with that id, and learns what others have changed.
    pub(super) async fn turn(&self, id: &str) -> Result<Turn<'_>, NotStored> {
        loop {
            let person = self.person(id);
            let alone = self.alone.lock(person.clone()).await;
            let Some(together) = self.shared() else { return Ok(Turn { contacts: self, held: None, _alone: alone }) };
            if together.still_known(together.known.lock().await.as_ref()).is_none() {
                // To read all of it may take longer than a turn.
                self.catch_up().await?;
            }
            let whose = if on("noturn") { random::unique() } else { person.clone() };
            let mut held = together.memory.turn(&together.number, &whose).await.map_err(|error| not_stored(&error))?;
            {
                let mut known = together.known.lock().await;
                let changed =
                    held.changed(together.still_known(known.as_ref())).await.map_err(|error| not_stored(&error))?;
                self.take_in(together, changed, &mut known).map_err(|error| not_stored(&error))?;
            }
            if on("noturn") {
                // So that two of them meet.
                together.clock.sleep(Duration::from_millis(50)).await;
            }
            // They may have learned that it is another person's id, too.
            if self.person(id) == person {
                return Ok(Turn { contacts: self, held: Some(held), _alone: alone });
            }
        }
    }

    /// Changes what is known of a person, and puts it on stable storage.
    pub(super) async fn change_of<T>(&self, id: &str, change: impl FnOnce(&Self) -> T) -> (T, Result<(), NotStored>) {
        // Without a turn it is stored with what comes next.
        let turn = self.turn(id).await;
        let changed = change(self);
        let stored = match turn {
            Ok(turn) => turn.end().await,
            Err(NotStored) => Err(NotStored),
        };
        (changed, stored)
    }

    /// Learns what other daemons have changed.
    pub(super) async fn catch_up(&self) -> Result<(), NotStored> {
        let Some(together) = self.shared() else { return Ok(()) };
        let mut known = together.known.lock().await;
        let changed = together.memory.changed(&together.number, together.still_known(known.as_ref())).await;
        let caught_up = changed.and_then(|changed| self.take_in(together, changed, &mut known));
        let failed_before = together.failing.swap(caught_up.is_err(), Ordering::Relaxed);
        caught_up.map_err(|error| {
            if !failed_before {
                tracing::warn!(%error, "cannot read what other daemons know of people on WhatsApp; trying again every second");
            }
            NotStored
        })
    }

    /// Puts everything on stable storage.
    pub(super) async fn save(&self) -> Result<(), NotStored> {
        self.save_in(None).await
    }

    async fn save_in(&self, turn: Option<Box<dyn memory::Turn>>) -> Result<(), NotStored> {
        let _one_way = match &self.together {
            Some(together) => Some(together.saving.read().await),
            None => None,
        };
        let saved = match self.shared() {
            None => self.save_documents().await,
            Some(together) => self.save_entries(together, turn).await,
        };
        saved.map_err(|error| {
            tracing::error!(%error, "cannot store what the WhatsApp channel has to remember");
            NotStored
        })
    }

    async fn save_entries(&self, together: &Together, turn: Option<Box<dyn memory::Turn>>) -> io::Result<()> {
        let _until_taken_in = together.known.lock().await;
        let unstored = self.unstored()?;
        let text = |value: &Option<Value>| value.as_ref().map(Value::to_string);
        let mut writes = Writes::new();
        for (name, of) in &unstored {
            writes.extend(of.iter().map(|(place, (before, now))| {
                ((name.clone(), place.clone()), Write { before: text(before), now: text(now) })
            }));
        }
        match turn {
            Some(turn) => turn.end(&writes).await?,
            None if writes.is_empty() => {}
            None => together.memory.write(&together.number, &writes).await?,
        }
        for (name, of) in unstored {
            self.stored(&name, of.into_iter().map(|(place, (_, now))| (place, now)).collect());
        }
        Ok(())
    }

    /// Takes in what a look has found.
    fn take_in(&self, together: &Together, found: Changed, known: &mut Option<(Known, Moment)>) -> io::Result<()> {
        let mut named = by_name(found.entries);
        if found.all {
            for (name, places) in self.places() {
                let of = named.entry(name).or_default();
                for place in places {
                    of.entry(place).or_insert(None);
                }
            }
        }
        let mut wrote = false;
        for (name, of) in named {
            for place in self.take_in_of(&name, of)? {
                let Some(news) = news_of(&name, &place) else { continue };
                wrote |= matches!(news, News::Wrote(_));
                if together.leads() {
                    let _it_stops = together.news.send(news);
                }
            }
        }
        if wrote {
            self.inbound.send_replace(());
        }
        *known = found.known.map(|known| (known, together.clock.monotonic()));
        Ok(())
    }
}

fn news_of(name: &str, (section, key): &Place) -> Option<News> {
    match section.as_str() {
        _ if name != FILE => None,
        "last_inbound" => Some(News::Wrote(key.clone())),
        "notes" => Some(News::Notes),
        "unclosed" => Some(News::Unclosed),
        "closings" => CallbackData::parse(key).map(News::Closing),
        _ => None,
    }
}
