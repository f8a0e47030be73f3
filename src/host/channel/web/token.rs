//! The token of the inbox that is kept beside the asks: made at the first start, replaced when the operator says so. It holds
//! while the settings have none. Daemons that share their records share it, and each follows what another one makes of it.

use crate::clock::Clock;
use crate::host::rereads::Rereads;
use crate::host::store::{Documents, InFiles, TOKEN_FILE, change_document};
use crate::random;
use parking_lot::Mutex;
use secrecy::{ExposeSecret as _, SecretString};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

/// How soon what another daemon has made is read again after that failed.
const AGAIN: Duration = Duration::from_secs(1);

/// The kept token as it is now. Cheap to clone.
#[derive(Debug, Clone)]
pub struct KeptToken(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    documents: Arc<dyn Documents>,
    copy: Option<InFiles>,
    now: watch::Sender<SecretString>,
    /// Held from what a change begins with until it is known.
    changing: Mutex<()>,
    rereads: Rereads,
}

/// Why it was not replaced.
#[derive(Debug)]
pub(super) enum NotReplaced {
    /// The one before holds.
    Unchanged(io::Error),
    /// Another one may hold, here and after a restart.
    InDoubt(io::Error),
}

impl KeptToken {
    /// Reads the kept token, or makes one. `copy`: where the commands of this host find it if the documents are elsewhere.
    pub fn open(documents: Arc<dyn Documents>, copy: Option<InFiles>) -> io::Result<Self> {
        let now = watch::Sender::new(SecretString::default());
        let kept =
            Self(Arc::new(Inner { documents, copy, now, changing: Mutex::default(), rereads: Rereads::default() }));
        kept.read(false)?;
        kept.copy()?;
        Ok(kept)
    }

    /// What it is.
    pub fn now(&self) -> SecretString {
        self.0.now.borrow().clone()
    }

    /// Who wants to know that it was replaced.
    pub(super) fn changes(&self) -> watch::Receiver<SecretString> {
        self.0.now.subscribe()
    }

    /// Replaces it, on stable storage when it returns: the one before opens nothing any more. Blocks on the disk.
    pub(super) fn replace(&self) -> Result<SecretString, NotReplaced> {
        let before = self.now();
        if let Err(error) = self.read(true) {
            // It may have been written all the same: then it is what a restart and the commands of this host find.
            let is_known = self.read(false).and_then(|()| self.copy()).is_ok() && self.0.copy.is_none();
            let is_same = self.now().expose_secret() == before.expose_secret();
            return Err(if is_known && is_same { NotReplaced::Unchanged(error) } else { NotReplaced::InDoubt(error) });
        }
        if let Err(error) = self.copy() {
            tracing::error!(%error, "state/{TOKEN_FILE} has the inbox token from before it was replaced; restart askd to write it again");
        }
        Ok(self.now())
    }

    /// Takes over what another daemon may just have made of it, for callers whose token is unknown.
    pub(super) async fn refresh(&self, clock: &Clock) -> io::Result<()> {
        let kept = self.clone();
        self.0.rereads.reread(clock, move || kept.read(false)).await.map(drop)
    }

    /// Follows what other daemons make of it. `changes`: the names of documents that were written.
    pub async fn follow(self, mut changes: broadcast::Receiver<String>, clock: Clock) {
        loop {
            match changes.recv().await {
                Ok(name) if name != TOKEN_FILE => continue,
                Ok(_) | Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return,
            }
            let read = || {
                let kept = self.clone();
                tokio::task::spawn_blocking(move || kept.read(false).and_then(|()| kept.copy()))
            };
            while let Err(error) = read().await.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                tracing::error!(%error, "cannot take over the inbox token that another daemon has made; trying again every second");
                clock.sleep(AGAIN).await;
            }
        }
    }

    /// Reads it anew, or makes another one. An empty document holds none.
    fn read(&self, replace: bool) -> io::Result<()> {
        let _changing = self.0.changing.lock();
        let token = change_document(&*self.0.documents, TOKEN_FILE, |before| {
            let kept = String::from_utf8_lossy(before.unwrap_or_default()).trim().to_owned();
            if !kept.is_empty() && !replace {
                return Ok((None, kept.into()));
            }
            let secret = random::secret()?;
            Ok((Some(format!("{secret}\n").into_bytes()), SecretString::from(secret)))
        })?;
        self.0.now.send_if_modified(|now| {
            let is_other = now.expose_secret() != token.expose_secret();
            *now = token;
            is_other
        });
        Ok(())
    }

    fn copy(&self) -> io::Result<()> {
        let _changing = self.0.changing.lock();
        self.0.copy.as_ref().map_or(Ok(()), |copy| copy.store(TOKEN_FILE, self.now().expose_secret().as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::rereads::{BURST, PACE};
    use crate::host::store::ReadAfter;
    use askd_core::Time;
    use futures_util::FutureExt as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn whoever_guesses_tokens_has_it_read_at_a_pace() {
        let state = tempfile::tempdir().unwrap();
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let documents: Arc<dyn Documents> = Arc::new(InFiles::open(state.path()).unwrap());
        let kept = KeptToken::open(Arc::clone(&documents), None).unwrap();
        let is_now = |token: &str| kept.now().expose_secret() == token;
        for number in 1..=BURST {
            let token = format!("token-{number}");
            documents.store(TOKEN_FILE, token.as_bytes()).unwrap();
            kept.refresh(&clock).await.unwrap();
            assert!(is_now(&token));
        }
        documents.store(TOKEN_FILE, b"another").unwrap();
        kept.refresh(&clock).await.unwrap();
        assert!(!is_now("another"));
        hand.advance(PACE);
        kept.refresh(&clock).await.unwrap();
        assert!(is_now("another"));
    }

    #[tokio::test]
    async fn whoever_waits_is_judged_by_a_read_whose_caller_has_hung_up() {
        let state = tempfile::tempdir().unwrap();
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let (held, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (is_held, begins) = (Arc::clone(&held), Arc::clone(&begun));
        let before = move || {
            begins.notify_one();
            while is_held.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            Ok(())
        };
        let documents = Arc::new(ReadAfter { files: InFiles::open(state.path()).unwrap(), before });
        let kept = KeptToken::open(Arc::clone(&documents) as Arc<dyn Documents>, None).unwrap();
        documents.store(TOKEN_FILE, b"another").unwrap();
        begun.notified().await;
        held.store(true, Ordering::Release);
        let mut first = Box::pin(kept.refresh(&clock));
        assert!((&mut first).now_or_never().is_none());
        begun.notified().await;
        let mut second = Box::pin(kept.refresh(&clock));
        assert!((&mut second).now_or_never().is_none());
        hand.advance(PACE);
        drop(first);
        held.store(false, Ordering::Release);
        second.await.unwrap();
        assert_eq!(kept.now().expose_secret(), "another");
    }
}
