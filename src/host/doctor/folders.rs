//! The data folder, what only askd may read in it, and each group's folders and session.

use super::Findings;
use crate::clock::Clock;
use crate::host::folders::Folders;
use crate::host::session::docker::Engine;
use crate::host::settings::{Means, Settings};
use crate::host::store::{PENDING, TOKEN_FILE};
use askd_core::{Group, Time};
use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Less free space than this is a fault: records, audit lines and responses need room.
const LEAST_FREE: u64 = 64 * 1024 * 1024;
/// The same for the number of files.
const LEAST_FILES: u64 = 1_000;

/// The data folder.
pub(super) fn data(found: &mut Findings, settings: &Settings) {
    let (data, state, ipc) = (&settings.data_dir, settings.state_dir(), settings.ipc_dir());
    let (me, folder) = (rustix::process::geteuid(), data.display());
    let at = match std::fs::metadata(data) {
        Ok(at) => at,
        Err(error) => {
            let fix = if error.kind() == io::ErrorKind::NotFound {
                format!("sudo install -d -o {} '{folder}', or start askd, which makes it", me.as_raw())
            } else {
                // It may be there, and another user's.
                "run this as the user whom the folder belongs to, or set another data_dir".to_owned()
            };
            return found.fault("data folder", format!("{folder}: {error}"), fix);
        }
    };
    if !me.is_root() && at.uid() != me.as_raw() {
        let fix = format!("sudo -u '#{}' askd doctor", at.uid());
        return found.fault(
            "data folder",
            format!("{folder} belongs to user id {}, and this is {}", at.uid(), me.as_raw()),
            fix,
        );
    }
    if at.mode() & 0o002 == 0 {
        found.ok("data folder", &folder);
    } else {
        found.fault("data folder", format!("anyone can change {folder}"), format!("chmod o-w '{folder}'"));
    }
    let inside = |(state, ipc): (std::path::PathBuf, std::path::PathBuf)| state.starts_with(ipc);
    if state.canonicalize().ok().zip(ipc.canonicalize().ok()).is_some_and(inside) {
        let fix = format!("stop askd, move that folder to '{}' itself, and start askd", state.display());
        found.fault("state folder", "it lies in a folder that agents can write", fix);
    } else {
        private(found, "state folder", &state, 0o700, at.uid());
    }
    private(found, "token file", &state.join(TOKEN_FILE), 0o600, at.uid());
    match rustix::fs::statvfs(data) {
        Ok(disk)
            if disk.f_bavail.saturating_mul(disk.f_frsize) < LEAST_FREE
                || (disk.f_files > 0 && disk.f_favail < LEAST_FILES) =>
        {
            found.fault(
                "disk",
                format!("the disk of {folder} is full"),
                format!("df -h '{folder}'; df -i '{folder}'; make room"),
            );
        }
        Ok(disk) => found.ok("disk", format!("{} MiB free", disk.f_bavail.saturating_mul(disk.f_frsize) / 1024 / 1024)),
        Err(error) => found.not_checked("disk", error),
    }
}

/// What nobody but askd may read.
fn private(found: &mut Findings, check: &str, path: &Path, wanted: u32, owner: u32) {
    let shown = path.display();
    let at = match std::fs::metadata(path) {
        Ok(at) => at,
        // It is made at the first start, or stands in the settings.
        Err(error) => return found.not_checked(check, format!("{shown}: {error}")),
    };
    // Records themselves may be very many: their folders are looked at.
    let in_it = inside(path).flat_map(|path| std::iter::once(path.clone()).chain(inside(&path)));
    let mut users = std::iter::once(path.to_owned())
        .chain(in_it)
        .filter_map(|path| Some((std::fs::symlink_metadata(&path).ok()?.uid(), path)));
    if let Some((uid, other)) = users.find(|(uid, _)| *uid != owner) {
        let what = format!("{} belongs to user id {uid}, and the data folder to {owner}", other.display());
        return found.fault(check, what, format!("chown -R {owner} '{shown}'"));
    }
    let mode = at.mode() & 0o7777;
    let needed = if at.is_dir() { wanted } else { 0o400 };
    let wrong = if mode & 0o077 != 0 {
        "other users can read it"
    } else if mode & needed != needed {
        "askd cannot use it"
    } else {
        return found.ok(check, "only askd's user can read it");
    };
    found.fault(check, format!("the mode of {shown} is {mode:04o}: {wrong}"), format!("chmod {wanted:o} '{shown}'"));
}

/// What is in a folder, if it is one.
fn inside(path: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
}

/// Records that were set aside because they are damaged: nobody is asked what they ask.
pub(super) fn set_aside(found: &mut Findings, settings: &Settings) {
    let groups = inside(&settings.state_dir().join(PENDING));
    let mut damaged =
        groups.flat_map(|group| inside(&group)).filter(|path| path.extension() == Some("corrupt".as_ref()));
    if let Some(first) = damaged.next() {
        let what = match damaged.count() {
            0 => format!("the record of an open question is damaged and was set aside: {}", first.display()),
            more => format!(
                "{} records of open questions are damaged and were set aside: {}, ...",
                more + 1,
                first.display()
            ),
        };
        let fix = "stop askd, put each back from a backup under its old name (without .corrupt), and start it; or delete it, and have its \
                   agent ask again";
        found.fault("records", what, fix);
    }
}

/// Each group's folders and session.
pub(super) async fn groups(found: &mut Findings, settings: &Settings, runs: bool, clock: &Clock) {
    if found.has_fault("data folder") || !settings.ipc_dir().exists() {
        return found.not_checked("groups", if runs { "data folder" } else { "daemon" });
    }
    let folders = match Folders::open(settings.ipc_dir(), settings.access, clock.clone()) {
        Ok(folders) => folders,
        Err(error) => return found.fault("groups", error, "see who owns the data folder"),
    };
    let names = folders.names().unwrap_or_default();
    let found_there = names.iter().filter_map(|name| name.parse().ok());
    let groups: BTreeSet<Group> = found_there.chain(settings.configured()).collect();
    for group in groups {
        let Some(rules) = settings.group(&group) else {
            found.not_checked(format!("group {group}"), "the settings give it no routes, so it is not served");
            continue;
        };
        let check = format!("group {group}");
        // The daemon makes what is not there, and says itself what keeps it from that.
        if folders.is_absent(&group) || !folders.exists(&group) && !runs {
            found.not_checked(check, "daemon");
        } else {
            // The daemon may be in other groups than an operator's shell, and says itself whether it is in the right one.
            match if runs { folders.check_folders(&group) } else { folders.check(&group) } {
                Ok(()) => found.ok(check, "its folders can be used"),
                Err(trouble) => {
                    let trouble = trouble.since(Time::default());
                    found.fault(check, trouble.why, trouble.fix);
                }
            }
        }
        session(found, &group, [&rules.session.probe, &rules.session.start, &rules.session.stop], settings, clock)
            .await;
    }
}

async fn session(found: &mut Findings, group: &Group, all: [&Option<Means>; 3], settings: &Settings, clock: &Clock) {
    let mut seen: Vec<&Means> = Vec::new();
    for means in all.into_iter().flatten() {
        if seen.contains(&means) {
            continue;
        }
        seen.push(means);
        let check = format!("session {group}");
        match means {
            Means::Docker(container) => {
                let engine = Engine::new(settings.docker_host.as_deref(), clock.clone());
                match engine.look(container).await {
                    Ok(_) => found.ok(check, format!("the container {container} is there")),
                    Err(error) => {
                        let fix =
                            format!("correct session in [groups.{group}], or create the container; docs/sessions.md");
                        found.fault(check, error, fix);
                    }
                }
            }
            // Nobody may be called to try it: that would start the agent.
            Means::Webhook(webhook) => found.ok(check, format!("calls to {} can be signed", webhook.host())),
            Means::Command(argv) => {
                let program = argv.first().map(String::as_str).unwrap_or_default();
                match std::fs::metadata(program) {
                    Ok(at) if at.is_file() && at.mode() & 0o111 != 0 => {
                        found.ok(check, format!("{program} can be run"));
                    }
                    Ok(_) => {
                        found.fault(check, format!("{program} is not executable"), format!("chmod +x '{program}'"));
                    }
                    Err(error) => {
                        let fix = format!("install it, or correct session in [groups.{group}]");
                        found.fault(check, format!("{program}: {error}"), fix);
                    }
                }
            }
        }
    }
}
