//! Faults on demand for `POST …/messages`: a queue of exact ones, then a seeded share of the rest.
//!
//! "Before" means that nothing was accepted, "after" that the message is on its way and only the
//! sender does not learn of it. Decided here, carried out by `graph`.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::random::Random;

/// One thing that can go wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// Refused with this Graph code in Meta's envelope (130429, 131056, 131016, 131000, 368, …).
    Code(i64),
    /// Refused with this bare HTTP status and an HTML body, as an edge proxy does (429, 502, 503, …).
    Http(u16),
    /// The connection is reset before the message is accepted.
    ResetBefore,
    /// The message is accepted, then the connection is reset.
    ResetAfter,
    /// Nothing is accepted and no answer comes for `Config::stall_ms`, then 503.
    StallBefore,
    /// The message is accepted and the answer comes `Config::stall_ms` later.
    StallAfter,
    /// The message is accepted; half of the answer comes, then the connection ends.
    TruncatedBody,
    /// The message is accepted; the answer is valid JSON of another shape.
    WrongJson,
}

impl Fault {
    /// Whether the message is on its way in spite of the fault.
    #[must_use]
    pub fn commits(self) -> bool {
        matches!(self, Self::ResetAfter | Self::StallAfter | Self::TruncatedBody | Self::WrongJson)
    }
}

/// A share of calls that go wrong.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultMix {
    /// Share of calls with a fault, 0.0 to 1.0.
    pub share: f64,
    /// Which ones, chosen evenly; empty: none.
    pub kinds: Vec<Fault>,
}

/// What goes wrong next.
#[derive(Debug)]
pub(super) struct Faults {
    next: VecDeque<Fault>,
    mix: FaultMix,
    random: Random,
}

impl Faults {
    pub(super) fn new(seed: u64, mix: FaultMix) -> Self {
        Self { next: VecDeque::new(), mix, random: Random::seeded(seed) }
    }

    pub(super) fn queue(&mut self, fault: Fault, times: usize) {
        self.next.extend(std::iter::repeat_n(fault, times));
    }

    /// Sets the share and forgets what is queued.
    pub(super) fn set_mix(&mut self, mix: FaultMix) {
        self.next.clear();
        self.mix = mix;
    }

    pub(super) fn draw(&mut self) -> Option<Fault> {
        if let Some(fault) = self.next.pop_front() {
            return Some(fault);
        }
        let hit = self.random.chance(self.mix.share);
        let kind = self.random.below(self.mix.kinds.len());
        if hit { self.mix.kinds.get(kind).copied() } else { None }
    }
}
