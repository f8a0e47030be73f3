//! Takes in what other daemons have stored, as looks find it.

use super::Broker;
use super::sharing::Looked;
use crate::clock::Moment;
use crate::host::store::{News, Sharing, StoreError, Stored};
use crate::sabotage::on;
use askd_core::AskId;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// For how long one look reads on, while there is more than it lists.
const AT_ONCE: Duration = Duration::from_secs(1);

impl Broker {
    /// Learns what others had stored by then, unless it is known.
    pub(super) async fn look_and_learn(&self, then: Moment) -> Result<(), StoreError> {
        let mut looked = self.0.beside.looked.lock().await;
        let began = self.0.beside.clock.monotonic();
        if looked.all_learned && self.0.beside.seen.lock().is_some_and(|seen| seen > then) {
            return Ok(());
        }
        if let Some((_, what)) = looked.failed.as_ref().filter(|(at, _)| *at > then && !on("inturn")) {
            return Err(StoreError::Io { what: what.clone(), source: io::ErrorKind::TimedOut.into() });
        }
        let is_all = self.learn_all(began, &mut looked).await;
        self.0.beside.is_behind.store(matches!(is_all, Ok(false)), Ordering::Relaxed);
        let learned = is_all.and_then(|is_all| {
            let what = || "other daemons have changed more than can be read at once".to_owned();
            let much = || StoreError::Io { what: what(), source: io::ErrorKind::TimedOut.into() };
            is_all.then_some(()).ok_or_else(much)
        });
        if let Err(error) = &learned {
            looked.failed = Some((self.0.beside.clock.monotonic(), error.to_string()));
        }
        learned.inspect(|()| *self.0.beside.seen.lock() = Some(began))
    }

    /// Looks until there is no more. `false`: that would have taken too long for whoever waits, and the next look goes on.
    async fn learn_all(&self, began: Moment, looked: &mut Looked) -> Result<bool, StoreError> {
        loop {
            let news = self.in_store(Sharing::look).await?;
            let is_all = news.is_all || on("onelook");
            let before = std::mem::take(&mut looked.all_learned);
            self.learn_news(news);
            looked.all_learned = before;
            if is_all || self.0.beside.clock.monotonic().since(began) > AT_ONCE || on("brief") {
                return Ok(is_all);
            }
        }
    }

    fn learn_news(&self, news: News) {
        for (group, allowed) in news.allowed {
            self.index().attempts.allow(&group, allowed);
        }
        for stored in &news.changed {
            self.learn(stored);
        }
        for ask in news.gone {
            self.drop_ask(&ask);
            let _nobody = self.0.changes.send(ask.id);
            self.tidy_all(&Arc::new(ask));
        }
        for name in news.documents {
            let _nobody = self.0.beside.documents.send(name);
        }
        if let Some(shared) = self.0.store.shared() {
            // Whoever judges a request by these numbers has to know the asks.
            shared.learned(news.given);
        }
        self.0.beside.runs.store(news.runs, Ordering::Relaxed);
    }

    /// Takes in an ask as another daemon has stored it, which has also seen to what it asks for.
    pub(super) fn learn(&self, stored: &Stored) {
        let ask = &stored.ask;
        if !self.0.loading.is_over() && !self.index().has_read(ask.id) {
            // It may have been stored before this daemon took the lead.
            return self.take_in(stored);
        }
        if stored.after_loss && ask.is_changed_by_loss() {
            // Whatever happens to it next, what is missing comes first.
            self.lanes().owe(ask.id, true);
        }
        let set_by = self.clock().reading().set_by;
        self.enter(|index| {
            // A lane may have stored something since.
            let newest = self.0.store.cached(ask.id);
            index.insert(newest.as_deref().unwrap_or(ask), set_by);
        });
        self.replace_dead_of(ask, None);
        if stored.settled {
            self.make_room(&ask.group);
        }
        let _nobody = self.0.changes.send(ask.id);
    }

    /// Reads an ask anew: another daemon may have changed it, or it is not known yet.
    pub(super) fn refresh(&self, id: AskId) -> Result<(), StoreError> {
        if let Some(stored) = self.0.store.find(id)? {
            self.learn(&stored);
        }
        Ok(())
    }
}
