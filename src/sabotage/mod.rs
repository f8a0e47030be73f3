//! Breaks askd on purpose: crash points, skipped steps and failing calls, chosen by environment variables, for the
//! tests that show that a broken promise is noticed. A debug build does all of this, but only what a
//! variable names, so one build is enough for all tests. A release build ignores the variables: [`chosen`] is the
//! only place that reads them. Used wherever a promise can be broken; decides nothing itself.

mod calls;

pub(crate) use calls::call;

use std::path::PathBuf;

/// What a variable asks for. In a release build it is always nothing: no environment may break a promise there.
fn chosen(variable: &str) -> Option<String> {
    if cfg!(debug_assertions) { std::env::var(variable).ok() } else { None }
}

/// Whether to skip the named step: `ASKD_SABOTAGE=name,name`.
pub fn on(name: &str) -> bool {
    chosen("ASKD_SABOTAGE").is_some_and(|names| names.split(',').any(|one| one == name))
}

/// Ends the process as `kill -9` would, if this is the point named by `ASKD_CRASH_AT`.
pub fn crash_point(name: &str) {
    if chosen("ASKD_CRASH_AT").is_some_and(|point| point == name) {
        tracing::warn!(point = name, "crashing on purpose");
        std::process::abort();
    }
}

/// The file that holds up the named place as long as it is there, `ASKD_GATE=name=path`.
fn shut_by(name: &str) -> Option<PathBuf> {
    let gate = chosen("ASKD_GATE")?;
    Some(PathBuf::from(gate.strip_prefix(name)?.strip_prefix('=')?)).filter(|file| file.exists())
}

/// How often a place that is held up looks whether it still is.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);

/// Holds up the named place, and its thread.
pub fn gate(name: &str) {
    while shut_by(name).is_some() {
        std::thread::park_timeout(LOOK);
    }
}

/// The same of a task, which must not keep its thread from others. Once it is held up, there is a file beside, `path.reached`.
#[cfg(feature = "host")]
#[expect(clippy::disallowed_methods, reason = "a test holds it up in real time, whatever clock the daemon runs by")]
pub async fn task_gate(name: &str) {
    if let Some(file) = shut_by(name) {
        let _is_seen_then = std::fs::write(file.with_extension("reached"), "");
    }
    while shut_by(name).is_some() {
        tokio::time::sleep(LOOK).await;
    }
}

/// Hangs, as a disk that never answers does.
pub fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Marks a place where askd could panic on an ask.
///
/// # Panics
///
/// On an ask with the title named by `ASKD_PANIC_AT=point:title`.
pub fn panic_point(name: &str, title: Option<&str>) {
    let Some(title) = title else { return };
    assert!(chosen("ASKD_PANIC_AT") != Some(format!("{name}:{title}")), "panicking on purpose at {name}");
}
