//! Syncing a file system as a whole, which for many files costs half as much as to sync each.

use super::{Dir, calls};
use rustix::fs::{fstat, fstatfs};
use rustix::system::uname;
use std::io;

/// ext4, XFS and btrfs: their `syncfs` leaves nothing to a server, as that of FUSE and network file systems may.
const KNOWN: [u32; 3] = [0xef53, 0x5846_5342, 0x9123_683e];
/// Since then Linux tells of all writes that failed.
const TELLS_OF_FAILURES: (u32, u32) = (5, 17);

impl Dir {
    /// Whether [`Self::sync_file_system`] does for a file in each of these folders as much as a sync of the file.
    pub fn shares_a_file_system_to_sync(&self, others: &[Self]) -> io::Result<bool> {
        let device = fstat(&self.0)?.st_dev;
        for other in others {
            if fstat(&other.0)?.st_dev != device {
                return Ok(false);
            }
        }
        let is_known = u32::try_from(fstatfs(&self.0)?.f_type).is_ok_and(|kind| KNOWN.contains(&kind));
        Ok(is_known && release(&uname().release().to_string_lossy()) >= TELLS_OF_FAILURES)
    }

    /// Puts on stable storage all that was written on the file system of this folder, or hands it to the device, which may hold some of it back
    /// until one file more is synced. An error may be about a file of another program, and comes once.
    pub fn sync_file_system(&self) -> io::Result<()> {
        Ok(calls::syncfs(&self.0)?)
    }
}

/// The first two numbers of a kernel's name.
fn release(name: &str) -> (u32, u32) {
    let mut numbers = name.split(|it: char| !it.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_told_apart_by_their_names() {
        let tells = ["6.18.44-fc-v657", "5.17.0-63-generic", "5.18", "10.0"];
        let silent = ["5.16.19", "4.18.0-553.el8.x86_64", "5", "unknown", ""];
        assert!(tells.iter().all(|name| release(name) >= TELLS_OF_FAILURES));
        assert!(silent.iter().all(|name| release(name) < TELLS_OF_FAILURES));
    }
}
