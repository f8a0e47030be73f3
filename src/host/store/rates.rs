//! When calls may be made that a platform counts for all daemons together, and how many connections. With one daemon this is in its
//! memory alone.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

/// Rates that daemons share. Every call blocks on the database.
pub trait Rates: Debug + Send + Sync {
    /// Takes the next turn for this, whatever daemon had the last one: the turns are at least `every` apart. How long the caller
    /// has to wait for it.
    fn turn(&self, what: &str, every: Duration) -> io::Result<Duration>;

    /// Takes one of so many seats for this, or keeps the one that this daemon has: for 15 s. `false`: others have all of them.
    fn seat(&self, what: &str, seats: i32) -> io::Result<bool>;

    /// No daemon has a turn for this before so much time has passed.
    fn hold(&self, what: &str, time: Duration) -> io::Result<()>;
}
