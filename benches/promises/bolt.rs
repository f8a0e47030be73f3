//! Slack Bolt JS beside askd: the usual way to take clicks, with a file made durable before the acknowledgement.

use std::path::PathBuf;
use std::process::Command;

pub(crate) const APP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/promises/bolt/app.js");

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bolt")
}

/// Where its packages are.
pub(crate) fn modules() -> PathBuf {
    folder().join("node_modules")
}

/// Installs it as pinned, unless it is there; why it cannot be used.
pub(crate) fn install() -> Result<(), String> {
    let source = PathBuf::from(APP);
    let source = source.parent().unwrap();
    std::fs::create_dir_all(folder()).unwrap();
    for name in ["package.json", "package-lock.json"] {
        let pinned = std::fs::read(source.join(name)).map_err(|error| error.to_string())?;
        let there = folder().join(name);
        if std::fs::read(&there).ok().as_ref() != Some(&pinned) {
            std::fs::write(there, pinned).unwrap();
            let _old = std::fs::remove_dir_all(modules());
        }
    }
    if !modules().join("@slack/bolt").exists() {
        let npm =
            Command::new("npm").args(["ci", "--silent", "--no-audit", "--no-fund"]).current_dir(folder()).status();
        match npm {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("npm ci: {status}")),
            Err(error) => return Err(format!("npm: {error}")),
        }
    }
    Command::new("node").arg("--version").output().map(drop).map_err(|error| format!("node: {error}"))
}
