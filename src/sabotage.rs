//! Broken on purpose: crash points and left-out steps, chosen by environment variables, for the
//! tests that show that a broken promise is noticed. Without the feature `sabotage` all of it
//! compiles to nothing. Used wherever a promise can be broken; decides nothing itself.

/// Whether the named step is to be left out: `ASKD_SABOTAGE=name,name`.
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
