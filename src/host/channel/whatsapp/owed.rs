//! What the channel owes people, over a restart: what they have to be told yet, and closing messages that have to be sent again.

use super::callback_data::CallbackData;
use super::contacts::Contacts;
use super::entries::element;
use crate::random;
use crate::sabotage::on;
use askd_core::{AskId, Time};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU32, Ordering};

/// A text that a person has to be sent yet. It is stored with the message that it replies to: Meta does not send that one
/// again, so nothing else would remember it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) to: String,
    pub(super) text: String,
    pub(super) ask: Option<AskId>,
    /// The question of that ask.
    #[serde(default)]
    pub(super) question: usize,
    /// The number of the request for confirmation that it is, and the name of the person who is to confirm.
    pub(super) confirms: Option<(u8, String)>,
}

/// A note that is owed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Owed {
    /// Tells notes apart; a later one comes after it. Earlier versions gave them none.
    #[serde(default = "random::unique")]
    id: String,
    #[serde(flatten)]
    pub(super) note: Note,
}

/// What led to notes, and how many it has led to so far. Every daemon that deals with the same thing gives its notes the same ids.
#[derive(Debug)]
pub(super) struct Why {
    at: Time,
    what: String,
    told: AtomicU32,
}

impl Why {
    pub(super) fn new(at: Time, what: String) -> Self {
        Self { at, what, told: AtomicU32::default() }
    }

    /// Ids are in the order of what led to them.
    fn next(&self) -> String {
        if on("noturn") {
            return random::unique();
        }
        format!("{:014}-{}-{:03}", self.at.as_millis(), self.what, self.told.fetch_add(1, Ordering::Relaxed))
    }
}

/// A closing message that failed after it had been accepted.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Unclosed {
    /// When we learnt that.
    pub(super) at: Time,
    /// It still has to be sent again.
    owed: bool,
    /// It has been sent again although no closed window had stopped it.
    again: bool,
}

impl Contacts {
    /// The person has to be told this because of that, unless it is on its way already. This counts once [`Self::save`] has returned.
    pub(super) fn owe(&self, note: &Note, why: &Why) {
        let mut known = self.file.change();
        if known.notes.iter().all(|owed| owed.note != *note) {
            known.notes.push(Owed { id: why.next(), note: note.clone() });
        }
    }

    /// What people have to be told yet. Where several daemons store it, only what is stored: whoever lost a turn owes nothing for it.
    pub(super) fn owed(&self) -> Vec<Owed> {
        let mut owed = self.file.get().notes.clone();
        owed.retain(|owed| !self.has_company() || self.file.has_stored(&element("notes", &owed.id)));
        owed
    }

    /// It is on its way from now on; `false` if it was before.
    pub(super) fn takes_in_hand(&self, owed: &Owed) -> bool {
        self.in_hand.lock().insert(owed.id.clone())
    }

    /// The person was told, or cannot be.
    pub(super) fn told(&self, told: &Owed) {
        self.file.change().notes.retain(|owed| owed.id != told.id);
        self.in_hand.lock().remove(&told.id);
    }

    /// A status told of this closing message. Where another daemon sends them, it hears of it once [`Self::save`] has returned.
    pub(super) fn heard_of_closing(&self, closing: CallbackData) {
        if !self.sends() {
            self.file.change().closings.insert(closing.to_string(), self.now());
        }
    }

    /// A closing message failed after it had been accepted. `true`: send it again; `false`: that is under way already;
    /// `None`: it has been sent again, in vain. This counts once [`Self::save`] has returned.
    pub(super) fn closing_failed(&self, ask: AskId, route: usize, window: bool) -> Option<bool> {
        let (at, mut known) = (self.now(), self.file.change());
        let entry = known.unclosed.entry(format!("{ask}:{route}"));
        let unclosed = entry.or_insert(Unclosed { at, owed: false, again: false });
        match unclosed {
            Unclosed { owed: true, .. } => Some(false),
            // A closed window may stop it more than once.
            Unclosed { again: true, .. } if !window => None,
            _ => {
                *unclosed = Unclosed { at, owed: true, again: unclosed.again || !window };
                Some(true)
            }
        }
    }

    /// The closing message was sent again, or never will be.
    pub(super) fn closing_done(&self, ask: AskId, route: usize) {
        if let Some(unclosed) = self.file.change().unclosed.get_mut(&format!("{ask}:{route}")) {
            unclosed.owed = false;
        }
    }

    /// The asks and routes whose closing message still has to be sent again.
    pub(super) fn closings_owed(&self) -> Vec<(AskId, usize)> {
        let known = self.file.get();
        let owed = known.unclosed.iter().filter(|(_, unclosed)| unclosed.owed).filter_map(|(key, _)| {
            let (ask, route) = key.split_once(':')?;
            Some((ask.parse().ok()?, route.parse().ok()?))
        });
        owed.collect()
    }
}
