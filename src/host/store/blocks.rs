//! What is kept of a block: how often it was asked, and how it ended. A part of an ask's record.

use super::record::{BadRecord, PersonRecord, time};
use crate::ipc::wire::time_text as text;
use askd_core::{Block, Lifted};
use serde::{Deserialize, Serialize};

/// Where it was asked too often to be asked.
#[derive(Serialize, Deserialize)]
pub(super) struct BlockRecord {
    times: u32,
    told: u32,
    telling: bool,
    #[serde(default = "of_before")]
    any_context: bool,
    lifted: Option<LiftedRecord>,
}

#[derive(Serialize, Deserialize)]
struct LiftedRecord {
    by: Option<PersonRecord>,
    at: String,
}

/// The first version wrote no `any_context`: its blocks held under any title and context.
const fn of_before() -> bool {
    true
}

impl BlockRecord {
    pub(super) fn of(block: &Block) -> Self {
        let lifted =
            |lifted: &Lifted| LiftedRecord { by: lifted.by.as_ref().map(PersonRecord::of), at: text(lifted.at) };
        let Block { times, told, telling, any_context, .. } = *block;
        Self { times, told, telling, any_context, lifted: block.lifted.as_ref().map(lifted) }
    }

    /// A block belongs to an ask that is blocked, and to no other.
    pub(super) fn of_stage(kept: Option<Self>, blocked: bool) -> Result<Option<Block>, BadRecord> {
        if kept.is_some() != blocked {
            return Err(BadRecord::Field("block"));
        }
        kept.map(Self::block).transpose()
    }

    fn block(self) -> Result<Block, BadRecord> {
        let lifted = |lifted: LiftedRecord| {
            let by = lifted.by.map(PersonRecord::person).transpose()?;
            Ok::<_, BadRecord>(Lifted { by, at: time(&lifted.at, "block")? })
        };
        let lifted = self.lifted.map(lifted).transpose()?;
        let Self { times, told, telling, any_context, .. } = self;
        Ok(Block { times, told, telling, any_context, lifted })
    }
}
