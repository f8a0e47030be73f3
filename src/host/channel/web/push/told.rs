//! The open questions that browsers were told of. `state/push.json` has them, too: what was stored just before a crash, or while
//! no daemon led, is told of at the next start, and the end of what was told of before then.

use super::devices::Devices;
use crate::clock::Moment;
use askd_core::AskId;
use std::collections::HashMap;

/// With more than these the file does not say which: then all that were open before a start count.
const MOST: usize = 10_000;

/// The open asks that browsers were told of, and when; `None`: in an earlier run.
#[derive(Debug)]
pub(super) struct Told {
    asks: HashMap<AskId, Option<Moment>>,
    /// Whether the file says something else.
    pub(super) changed: bool,
}

impl Told {
    /// What an earlier run has told of; the second is whether it said so.
    pub(super) fn before(devices: &Devices) -> (Self, bool) {
        let known = devices.told();
        let (is_known, asks) = (known.is_some(), known.into_iter().flatten().map(|ask| (ask, None)).collect());
        (Self { asks, changed: !is_known }, is_known)
    }

    /// `false`: it was told of before.
    pub(super) fn add(&mut self, ask: AskId, at: Option<Moment>) -> bool {
        let is_new = !self.asks.contains_key(&ask);
        if is_new {
            self.asks.insert(ask, at);
            self.changed = true;
        }
        is_new
    }

    /// Whether it was told of, and when.
    pub(super) fn remove(&mut self, ask: AskId) -> (bool, Option<Moment>) {
        let at = self.asks.remove(&ask);
        self.changed |= at.is_some();
        (at.is_some(), at.flatten())
    }

    pub(super) fn clear(&mut self) {
        self.asks.clear();
    }

    pub(super) fn asks(&self) -> impl Iterator<Item = AskId> {
        self.asks.keys().copied()
    }

    /// What is to be stored now.
    pub(super) fn take_changes(&mut self) -> Option<Vec<AskId>> {
        self.changed = false;
        (self.asks.len() <= MOST).then(|| self.asks().collect())
    }
}
