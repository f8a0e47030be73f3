//! Ports for daemons, in stories and gates.

use std::fs::File;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port for a daemon whose address has to be known before it starts, and stays when it starts again. It is none of
/// those that the kernel gives to connections (32768 and above): one of them may take a port that was just found free.
pub(crate) fn free_port() -> u16 {
    /// The ports of this process: stories of two processes may be played beside each other.
    static OWN: LazyLock<(u16, File)> = LazyLock::new(|| {
        let locked = |block: &u16| {
            let path = std::env::temp_dir().join(format!("askd-test-ports-{block}"));
            File::create(path).ok().filter(|file| file.try_lock().is_ok())
        };
        (0..20).find_map(|block| Some((block, locked(&block)?))).expect("at most 20 processes at a time")
    });
    static TRIED: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 10_000 + OWN.0 * 1_000 + TRIED.fetch_add(1, Ordering::Relaxed) % 1_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
