//! The tokens with which agents ask over HTTP: each belongs to one group, and only its hash is stored. The inbox makes and
//! revokes them for `askd token`; without a daemon the command does so itself, under the lock of the state folder.

use crate::clock::{Clock, Moment};
use crate::host::rereads::Rereads;
use crate::host::store::{Documents, Version, change_document};
use crate::ipc::wire::{digest, file_bytes};
use crate::random;
use askd_core::{Group, Time};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::sync::Notify;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

/// The tokens, and when each was last used.
const TOKENS_FILE: &str = "agent_tokens.json";
const USED_FILE: &str = "agent_tokens_used.json";
/// What every token begins with, for scanners of secrets.
const PREFIX: &str = "askd_";
const VERSION: u32 = 1;
const MINUTE: Duration = Duration::from_secs(60);
/// How soon what another daemon has changed is read again after that failed, and how long tokens are relied on meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
const BLIND: Duration = Duration::from_secs(5);

/// Whether this is the token of an agent, by its looks. It does not open the inbox.
pub fn is_an_agents(token: &str) -> bool {
    token.strip_prefix(PREFIX).is_some_and(|rest| rest.contains('_'))
}

/// The id in a token, or in the beginning of one; another text is taken for an id.
pub fn id_in(text: &str) -> &str {
    text.strip_prefix(PREFIX).and_then(|rest| rest.split('_').next()).unwrap_or(text)
}

/// All tokens. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Tokens(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    documents: Arc<dyn Documents>,
    clock: Clock,
    /// Calls look at it on the threads of the runtime: its lock is never held over the disk.
    known: Mutex<Known>,
    /// Held from what a change begins with until it is stored and known, so that changes reach the disk in their order.
    changing: Mutex<()>,
    rereads: Rereads,
    /// Since when another daemon's change is not known.
    unread: Mutex<Option<Moment>>,
    /// The same for the times of use, and whether some are not saved yet.
    saving: Mutex<()>,
    unsaved: AtomicBool,
    /// One was made.
    made: Notify,
}

#[derive(Debug)]
struct Known {
    tokens: Vec<Token>,
    used: BTreeMap<String, Time>,
}

#[derive(Debug, Clone)]
struct Token {
    kept: Kept,
    revoked: CancellationToken,
}

/// A token as it is stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Kept {
    id: String,
    name: Option<String>,
    group: Group,
    hash: String,
    made: Time,
    expires: Option<Time>,
}

#[derive(Serialize, Deserialize)]
struct File<T> {
    v: u32,
    tokens: T,
}

/// A token as an operator sees it.
#[derive(Debug, Serialize)]
pub struct Listed {
    id: String,
    name: Option<String>,
    group: Group,
    made: Time,
    expires: Option<Time>,
    last_used: Option<Time>,
}

/// The holder of a good token.
#[derive(Debug, Clone)]
pub struct Holder {
    /// The token's id.
    pub id: String,
    /// All that it can ask for.
    pub group: Group,
    hash: String,
    expires: Option<Time>,
    revoked: CancellationToken,
}

impl Holder {
    /// A secret of this token's holder and askd, the same over restarts.
    pub fn key(&self) -> &[u8] {
        self.hash.as_bytes()
    }

    /// Waits until the token is revoked or expires.
    pub async fn ends(&self, clock: &Clock) {
        tokio::select! {
            () = self.revoked.cancelled() => {}
            () = clock.sleep_until(self.expires.unwrap_or(Time::MAX)) => {}
        }
    }
}

impl Tokens {
    /// Reads those that are kept.
    pub fn open(documents: Arc<dyn Documents>, clock: Clock) -> io::Result<Self> {
        let kept: Vec<Kept> = read(&*documents, TOKENS_FILE)?;
        // Only a hint for operators: a damaged one is begun anew.
        let used = read(&*documents, USED_FILE).unwrap_or_default();
        let tokens = kept.into_iter().map(|kept| Token { kept, revoked: CancellationToken::new() }).collect();
        let known = Mutex::new(Known { tokens, used });
        let (changing, saving, unsaved) = (Mutex::new(()), Mutex::new(()), AtomicBool::new(false));
        let (rereads, unread, made) = (Rereads::default(), Mutex::default(), Notify::new());
        Ok(Self(Arc::new(Inner { documents, clock, known, changing, rereads, unread, saving, unsaved, made })))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.known.lock().tokens.is_empty()
    }

    /// Waits until one is made.
    pub async fn made(&self) {
        self.0.made.notified().await;
    }

    /// Follows what other daemons make and revoke. `changes`: the names of documents that were written.
    pub async fn follow(self, mut changes: broadcast::Receiver<String>) {
        loop {
            match changes.recv().await {
                Ok(name) if name != TOKENS_FILE => continue,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
            *self.0.unread.lock() = Some(self.0.clock.monotonic());
            let mut failing = false;
            let read = || {
                let tokens = self.clone();
                tokio::task::spawn_blocking(move || tokens.read())
            };
            while let Err(error) = read().await.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                if !failing {
                    tracing::error!(%error, "cannot read which tokens another daemon has made or revoked; trying again every second");
                }
                failing = true;
                self.0.clock.sleep(AGAIN).await;
            }
            *self.0.unread.lock() = None;
        }
    }

    /// Whether it has been too long since another daemon made or revoked one, and nobody knows which.
    pub fn is_blind(&self) -> bool {
        self.0.unread.lock().is_some_and(|since| self.0.clock.monotonic().since(since) > BLIND)
    }

    /// Reads what other daemons have made and revoked. Blocks on the disk.
    fn read(&self) -> io::Result<()> {
        self.change(|_| false).map(drop)
    }

    /// Who holds this token, if it is good and another daemon has just made it. An error: it may be good all the same.
    pub async fn new_holder(&self, token: &str) -> io::Result<Option<Holder>> {
        let tokens = self.clone();
        let is_read = self.0.rereads.reread(&self.0.clock, move || tokens.read()).await?;
        let holder = self.holder(token);
        if is_read || holder.is_some() { Ok(holder) } else { Err(io::Error::other("too many unknown tokens come")) }
    }

    /// Makes one, on stable storage when it returns. Nobody can see its secret again. Blocks on the disk.
    pub fn make(&self, group: Group, name: Option<String>, expires_in: Option<Duration>) -> io::Result<String> {
        let now = self.0.clock.now();
        let (id, secret) = (random::unique()[..12].to_owned(), random::secret()?);
        let expires = expires_in.map(|time| now + time);
        let kept = Kept { id: id.clone(), name, group, hash: hash(&secret), made: now, expires };
        self.change(|all| {
            all.push(kept.clone());
            true
        })?;
        Ok(format!("{PREFIX}{id}_{secret}"))
    }

    /// Revokes one, on stable storage when it returns; `false` if there is none of that id. Blocks on the disk.
    pub fn revoke(&self, id: &str) -> io::Result<bool> {
        self.change(|all| {
            let before = all.len();
            all.retain(|kept| kept.id != id);
            all.len() < before
        })
    }

    /// Changes what is stored, unless there is nothing to change. Another daemon may do so at the same moment.
    fn change(&self, change: impl Fn(&mut Vec<Kept>) -> bool) -> io::Result<bool> {
        let _changing = self.0.changing.lock();
        let (is_other, tokens) = change_document(&*self.0.documents, TOKENS_FILE, |before| {
            let mut tokens: Vec<Kept> = parse(TOKENS_FILE, before)?;
            let is_other = change(&mut tokens);
            let after = if is_other { Some(file_bytes(&File { v: VERSION, tokens: &tokens })?) } else { None };
            Ok((after, (is_other, tokens)))
        })?;
        self.know(tokens);
        Ok(is_other)
    }

    /// Takes over what is stored.
    fn know(&self, stored: Vec<Kept>) {
        let mut known = self.0.known.lock();
        let Known { tokens, used } = &mut *known;
        let mut made = false;
        tokens.retain(|token| {
            let stays = stored.iter().any(|kept| kept.id == token.kept.id);
            if !stays {
                used.remove(&token.kept.id);
                if !crate::sabotage::on("revokelater") {
                    token.revoked.cancel();
                }
            }
            stays
        });
        for kept in stored {
            if tokens.iter().all(|token| token.kept.id != kept.id) {
                tokens.push(Token { kept, revoked: CancellationToken::new() });
                made = true;
            }
        }
        drop(known);
        if made {
            self.0.made.notify_one();
        }
    }

    /// All of them, the oldest first.
    pub fn list(&self) -> Vec<Listed> {
        let known = self.0.known.lock();
        let listed = |Token { kept, .. }: &Token| {
            let Kept { id, name, group, made, expires, .. } = kept.clone();
            Listed { last_used: known.used.get(&id).copied(), id, name, group, made, expires }
        };
        known.tokens.iter().map(listed).collect()
    }

    /// Who holds this token, if it is good.
    pub fn holder(&self, token: &str) -> Option<Holder> {
        let (id, secret) = token.strip_prefix(PREFIX)?.split_once('_')?;
        let known = self.0.known.lock();
        let Token { kept, revoked } = known.tokens.iter().find(|token| token.kept.id == id)?.clone();
        drop(known);
        let is_it = bool::from(hash(secret).as_bytes().ct_eq(kept.hash.as_bytes()));
        let is_over = kept.expires.is_some_and(|expires| expires <= self.0.clock.now());
        let Kept { id, group, hash, expires, .. } = kept;
        (is_it && !is_over).then_some(Holder { id, group, hash, expires, revoked })
    }

    /// Notes that a token was used, to the minute; `true` if [`Self::save_used`] has something to save.
    pub fn note_use(&self, holder: &Holder) -> bool {
        let (now, mut known) = (self.0.clock.now(), self.0.known.lock());
        if known.used.get(&holder.id).is_some_and(|last| now.since(*last) < MINUTE && *last <= now) {
            return false;
        }
        known.used.insert(holder.id.clone(), now);
        true
    }

    /// Saves when tokens were used, unless that is being done: then it is done again. Nothing depends on it, so it is not
    /// synced. Blocks on the disk, on one thread.
    pub fn save_used(&self) {
        self.0.unsaved.store(true, Ordering::SeqCst);
        while let Some(_saving) = self.0.saving.try_lock() {
            if !self.0.unsaved.swap(false, Ordering::SeqCst) {
                return;
            }
            let used = self.0.known.lock().used.clone();
            let place = |bytes: Vec<u8>| self.0.documents.place(USED_FILE, &bytes);
            let file = file_bytes(&File { v: VERSION, tokens: used }).map_err(io::Error::from);
            if let Err(error) = file.and_then(place) {
                tracing::warn!(%error, "cannot note when agents' tokens were used");
            }
        }
    }
}

fn hash(secret: &str) -> String {
    digest([secret.as_bytes()]).to_string()
}

fn read<T: DeserializeOwned + Default>(documents: &dyn Documents, name: &str) -> io::Result<T> {
    parse(name, documents.read(name)?.as_deref())
}

fn parse<T: DeserializeOwned + Default>(name: &str, bytes: Option<&[u8]>) -> io::Result<T> {
    let unfit = |why: String| io::Error::other(format!("state/{name}: {why}"));
    let Some(bytes) = bytes else { return Ok(T::default()) };
    let damaged = |error| {
        unfit(format!(
            "it is damaged ({error}): restore it from a backup, or remove it and make new tokens (askd token new)"
        ))
    };
    let Version { v } = serde_json::from_slice(bytes).map_err(damaged)?;
    if v > VERSION {
        return Err(unfit("a newer askd wrote it".to_owned()));
    }
    serde_json::from_slice(bytes).map(|File { tokens, .. }| tokens).map_err(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::rereads::{BURST, PACE};
    use crate::host::store::{InFiles, ReadAfter};
    use std::sync::atomic::AtomicU32;

    async fn until(what: &str, holds: impl Fn() -> bool) {
        for _ in 0..10_000 {
            if holds() {
                return;
            }
            Clock::system().sleep(Duration::from_millis(1)).await;
        }
        panic!("{what}");
    }

    /// The reading that another daemon's change led to fails: no further change may come for days.
    #[tokio::test]
    async fn what_another_daemon_has_revoked_is_read_until_it_is_known_and_meanwhile_no_token_is_relied_on() {
        let state = tempfile::tempdir().unwrap();
        let files = || InFiles::open(state.path()).unwrap();
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let (away, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let (is_away, counted) = (Arc::clone(&away), Arc::clone(&reads));
        let before = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            if is_away.load(Ordering::SeqCst) { Err(io::Error::other("away")) } else { Ok(()) }
        };
        let tokens = Tokens::open(Arc::new(ReadAfter { files: files(), before }), clock.clone()).unwrap();
        let token = tokens.make("g".parse().unwrap(), None, None).unwrap();
        let changes = broadcast::Sender::new(4);
        let following = tokens.clone().follow(changes.subscribe());
        let other = Tokens::open(Arc::new(files()), clock.clone()).unwrap();
        assert!(other.revoke(&tokens.holder(&token).unwrap().id).unwrap());
        away.store(true, Ordering::SeqCst);
        let told = async {
            let tries = || reads.load(Ordering::SeqCst);
            let before = tries();
            changes.send(TOKENS_FILE.to_owned()).unwrap();
            until("a try", || tries() > before).await;
            for _ in 0..6 {
                let before = tries();
                until("another try", || {
                    hand.advance(Duration::from_millis(100));
                    tries() > before
                })
                .await;
            }
            assert!(tokens.holder(&token).is_some());
            until("no token to be relied on", || {
                hand.advance(Duration::from_millis(100));
                tokens.is_blind()
            })
            .await;
            away.store(false, Ordering::SeqCst);
            until("the token to be revoked", || {
                hand.advance(Duration::from_millis(100));
                tokens.holder(&token).is_none()
            })
            .await;
            until("tokens to be relied on", || !tokens.is_blind()).await;
        };
        tokio::select! {
            () = told => {}
            () = following => unreachable!("it goes on"),
        }
    }

    #[tokio::test]
    async fn whoever_guesses_tokens_has_them_read_at_a_pace() {
        let state = tempfile::tempdir().unwrap();
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let reads = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&reads);
        let before = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let files = || InFiles::open(state.path()).unwrap();
        let tokens = Tokens::open(Arc::new(ReadAfter { files: files(), before }), clock.clone()).unwrap();
        let other = Tokens::open(Arc::new(files()), clock).unwrap();
        let (began, made) = (reads.load(Ordering::SeqCst), other.make("g".parse().unwrap(), None, None).unwrap());
        for _ in 0..BURST {
            assert!(tokens.new_holder("askd_1_2").await.unwrap().is_none());
        }
        for _ in 0..BURST {
            assert!(tokens.new_holder("askd_1_2").await.is_err(), "it may be good: nobody has looked");
        }
        assert_eq!(reads.load(Ordering::SeqCst) - began, BURST);
        hand.advance(PACE);
        assert!(tokens.holder(&made).is_some(), "it was read");
        let next = other.make("g".parse().unwrap(), None, None).unwrap();
        assert!(tokens.new_holder(&next).await.unwrap().is_some());
    }

    #[test]
    fn a_token_is_good_until_it_is_revoked_or_expires_and_only_its_hash_is_kept() {
        let state = tempfile::tempdir().unwrap();
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let tokens = Tokens::open(Arc::new(InFiles::open(state.path()).unwrap()), clock.clone()).unwrap();
        let make = |days| tokens.make("g".parse().unwrap(), None, Some(MINUTE * days)).unwrap();
        let (short, long) = (make(1), make(9));
        for token in [&short, &long] {
            assert_eq!(tokens.holder(token).unwrap().group.as_str(), "g");
            assert!(
                tokens.holder(&token[..token.len() - 1]).is_none() && tokens.holder(&format!("{token}0")).is_none()
            );
        }
        assert!(tokens.note_use(&tokens.holder(&long).unwrap()) && !tokens.note_use(&tokens.holder(&long).unwrap()));
        tokens.save_used();
        hand.advance(MINUTE);
        assert!(tokens.holder(&short).is_none() && tokens.holder(&long).is_some());
        let again = Tokens::open(Arc::new(InFiles::open(state.path()).unwrap()), clock).unwrap();
        let holder = again.holder(&long).unwrap();
        assert!(again.list()[1].last_used.is_some());
        assert!(again.revoke(&holder.id).unwrap() && !again.revoke(&holder.id).unwrap());
        assert!(again.holder(&long).is_none() && holder.revoked.is_cancelled());
        let others = again.make("h".parse().unwrap(), None, None).unwrap();
        let (_changing, _saving) = (again.0.changing.lock(), again.0.saving.lock());
        let seen = again.holder(&others).expect("a disk that hangs holds no call up");
        assert!(again.note_use(&seen) && again.list().len() == 2);
        again.save_used();
        let (_, secret) = long.rsplit_once('_').unwrap();
        let kept = std::fs::read_to_string(state.path().join(TOKENS_FILE)).unwrap();
        assert!(!kept.contains(secret) && kept.contains("\"hash\""));
    }
}
