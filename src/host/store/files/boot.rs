//! Since when nothing that was written can have been lost: which boot of which computer this is, as far as the state
//! folder is concerned. After a loss of power records of another boot may be older than what was done.

use super::{StoreError, io_error};
use crate::ipc::files::{Access, Dir};
use crate::random;
use std::io;

/// Made by a clean stop: all records of the boot it names are whole.
const CLEAN: &str = "clean";
/// Made by `--after-loss`: from then on every boot counts as another one.
const ERA: &str = "after-loss";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// What an operator can do where no boot has an id.
pub const BOOT_ID_FIX: &str = "take ProcSubset=pid out of askd's unit, or whatever else hides /proc/sys from askd, and \
                               restart it";

fn read_boot_id() -> Result<String, String> {
    std::fs::read_to_string(BOOT_ID).map_err(|error| {
        format!("askd cannot read {BOOT_ID} ({error}), so every start counts as the first one after a loss of power")
    })
}

/// Why boots of this computer cannot be told apart, if so.
pub fn no_boot_id() -> Option<String> {
    read_boot_id().err()
}

/// Names what this computer has run since it was switched on. Without an id this run is like no other.
pub(in crate::host::store) fn boot_id() -> String {
    let boot = read_boot_id().unwrap_or_else(|why| {
        tracing::warn!("{why}. Fix: {BOOT_ID_FIX}");
        random::unique()
    });
    boot.trim().to_owned()
}

#[derive(Debug)]
pub(super) struct Boot {
    /// Names this boot in the records that are written from now on.
    pub(super) id: String,
    /// In which boot the last run ended, if it stopped cleanly.
    clean: Option<String>,
    era: Option<String>,
}

impl Boot {
    /// Takes note of how the last run ended, and makes sure that no later start does.
    pub(super) fn begin(root: &Dir, after_loss: bool) -> Result<Self, StoreError> {
        let begin = || -> io::Result<Self> {
            if after_loss {
                root.replace(".tmp-after-loss", ERA, random::unique().as_bytes(), Access::PRIVATE)?;
            }
            let text = |name| root.read_own(name, 4096).ok().and_then(|(bytes, _)| String::from_utf8(bytes).ok());
            // A copy that was made after a clean stop may be older than what was done since.
            let (clean, era) = (text(CLEAN).filter(|_| !after_loss), text(ERA));
            if root.remove(CLEAN)? {
                root.sync()?;
            }
            let device = root.stamp()?.device;
            let id = format!("{} {device} {}", boot_id(), era.as_deref().unwrap_or_default());
            Ok(Self { id: id.trim_end().to_owned(), clean, era })
        };
        begin().map_err(io_error("cannot find out how the last run ended"))
    }

    /// Whether a record that was written in that boot is known to be as new as what was done. Before records named their
    /// boot, askd synced each of them before it did anything.
    pub(super) fn vouches_for(&self, boot: Option<&str>) -> bool {
        match boot {
            None => self.era.is_none(),
            Some(boot) => boot == self.id || self.clean.as_deref() == Some(boot),
        }
    }

    /// That boot, if nothing vouches for what was written in it.
    pub(super) fn doubts(&self, boot: Option<String>) -> Option<String> {
        if self.vouches_for(boot.as_deref()) { None } else { Some(boot.unwrap_or_default()) }
    }

    /// Whether the last run stopped cleanly, in this boot.
    pub(super) fn ended_well(&self) -> bool {
        self.clean.as_ref() == Some(&self.id)
    }

    /// All records are on stable storage, and none will be written any more.
    pub(super) fn end(&self, root: &Dir) -> io::Result<()> {
        root.replace(".tmp-clean", CLEAN, self.id.as_bytes(), Access::PRIVATE)
    }
}
