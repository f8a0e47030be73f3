//! Asks that a start reads come in no order. To look for the place of each by itself takes a walk through entries all over memory, while
//! everybody waits for the index. So they are put in order many at a time. Until then no list has them, no code is looked for among
//! theirs, and their deadlines wait: whoever needs all of them waits until they are loaded.

use super::{By, Index, Named, coded, due};
use askd_core::{Ask, Time};

/// How many are put in order at a time. With more of them the allocator keeps what the sorting took.
const AT_A_TIME: usize = if cfg!(test) { 3 } else { 1 << 15 };

impl Index {
    /// Asks are loaded from now on, in any order.
    pub(in crate::host::broker) fn begin_loading(&mut self) {
        self.attempts.begin_loading();
        self.unordered = Some(Vec::new());
    }

    /// Makes room for so many asks at once: tables that grow leave behind what they held before.
    pub(in crate::host::broker) fn reserve(&mut self, asks: usize) {
        self.entries.reserve(asks);
        for by in [By::Request, By::Message] {
            self.names[by as usize].reserve(asks);
        }
    }

    /// Takes in one that was read; `false`: it was known.
    pub(in crate::host::broker) fn take_in(&mut self, ask: &Ask, named: Named, set_by: i64) -> bool {
        let Some(slot) = self.add(ask, named, set_by) else { return false };
        match &mut self.unordered {
            None => self.put_in_order(slot),
            Some(unordered) => {
                unordered.push(slot);
                if unordered.len() >= AT_A_TIME {
                    self.order();
                }
            }
        }
        true
    }

    /// Puts those in order that are not yet. None of them may have changed since it was entered.
    pub(super) fn order(&mut self) {
        let Some(slots) = self.unordered.as_mut().map(std::mem::take) else { return };
        self.pages.put_all(&slots, &self.entries);
        let with_deadlines = slots.iter().filter(|slot| self.entries[**slot].deadline() < Time::MAX);
        self.deadlines.insert_all(with_deadlines.copied().collect(), due(&self.entries));
        self.codes.insert_all(slots, coded(&self.entries));
    }

    /// All that has to be read was.
    pub(in crate::host::broker) fn end_loading(&mut self) {
        self.order();
        self.unordered = None;
        self.attempts.end_loading();
        self.read = None;
    }
}
