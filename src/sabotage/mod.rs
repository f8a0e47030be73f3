//! Breaks askd on purpose: crash points, skipped steps and failing calls, chosen by environment variables, for the
//! tests that show that a broken promise is noticed. Without the feature `sabotage` all of it compiles to nothing. Used
//! wherever a promise can be broken; decides nothing itself.

#[cfg(feature = "sabotage")]
mod calls;

#[cfg(feature = "sabotage")]
pub(crate) use calls::call;

/// Succeeds, in a build without the feature `sabotage`.
#[cfg(not(feature = "sabotage"))]
#[expect(clippy::unnecessary_wraps, reason = "it fails in a build with that feature")]
pub(crate) const fn call(_kind: &'static str, _name: &str) -> Result<(), rustix::io::Errno> {
    Ok(())
}
/// Whether to skip the named step: `ASKD_SABOTAGE=name,name`.
#[cfg(feature = "sabotage")]
#[must_use]
pub fn on(name: &str) -> bool {
    std::env::var("ASKD_SABOTAGE").is_ok_and(|names| names.split(',').any(|one| one == name))
}

/// Never, in a build without the feature `sabotage`.
#[cfg(not(feature = "sabotage"))]
#[must_use]
pub const fn on(_name: &str) -> bool {
    false
}

/// Ends the process as `kill -9` would, if this is the point named by `ASKD_CRASH_AT`.
#[cfg(feature = "sabotage")]
pub fn crash_point(name: &str) {
    if std::env::var("ASKD_CRASH_AT").is_ok_and(|point| point == name) {
        tracing::warn!(point = name, "crashing on purpose");
        std::process::abort();
    }
}

/// Does nothing, in a build without the feature `sabotage`.
#[cfg(not(feature = "sabotage"))]
pub const fn crash_point(_name: &str) {}

/// Hangs, as a disk that never answers does.
#[cfg(feature = "sabotage")]
pub fn hang() {
    loop {
        std::thread::park();
    }
}

/// Does nothing, in a build without the feature `sabotage`.
#[cfg(not(feature = "sabotage"))]
pub const fn hang() {}

/// Marks a place where askd could panic on an ask.
///
/// # Panics
///
/// On an ask with the title named by `ASKD_PANIC_AT=point:title`.
#[cfg(feature = "sabotage")]
pub fn panic_point(name: &str, title: Option<&str>) {
    let Some(title) = title else { return };
    assert!(std::env::var("ASKD_PANIC_AT") != Ok(format!("{name}:{title}")), "panicking on purpose at {name}");
}

/// Does nothing, in a build without the feature `sabotage`.
#[cfg(all(feature = "host", not(feature = "sabotage")))]
pub const fn panic_point(_name: &str, _title: Option<&str>) {}
