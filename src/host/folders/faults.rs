//! What keeps a group's folders, or a file in them, from being used, and how to mend it.

use super::{Folders, may_give_to};
use crate::host::standing::Problem;
use crate::ipc::files::{MORE_FILES, is_of_the_process};
use crate::ipc::{BRIEFINGS, RESPONSES, TASKS};
use askd_core::{Group, Time};
use rustix::io::Errno;
use std::io;
use std::path::Path;

/// What keeps a group's folder from working, and how to mend it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{folder}: {what}. Fix: {fix}")]
pub struct FolderTrouble {
    folder: String,
    what: String,
    fix: String,
}

impl FolderTrouble {
    /// The same with its beginning.
    pub fn since(&self, since: Time) -> Problem {
        Problem { since, why: format!("{}: {}", self.folder, self.what), fix: self.fix.clone() }
    }
}

impl Folders {
    /// What keeps this process from using a group's folders, if anything does.
    pub fn check(&self, group: &Group) -> Result<(), FolderTrouble> {
        let Some(gid) = self.access.gid.filter(|gid| !may_give_to(*gid)) else { return self.check_folders(group) };
        let folder = self.root.join(group.folder()).display().to_string();
        let what =
            format!("askd is not in group {gid}, which gid = \"{gid}\" names, so it cannot give files to agents");
        let fix = format!(
            "start askd with that group: SupplementaryGroups={gid} in the unit (systemd), --group-add {gid} (docker run), \
             group_add: [\"{gid}\"] (Compose)"
        );
        Err(FolderTrouble { folder, what, fix })
    }

    /// What is wrong with the folders themselves, whatever groups this process is in. The fix mends all of them.
    pub fn check_folders(&self, group: &Group) -> Result<(), FolderTrouble> {
        let check = |name| self.check_folder(group, name).err();
        let mut all = [TASKS, RESPONSES, BRIEFINGS].into_iter().filter_map(check);
        let Some(mut first) = all.next() else { return Ok(()) };
        for FolderTrouble { fix, .. } in all {
            if !first.fix.contains(&fix) {
                first.fix = format!("{}; {fix}", first.fix);
            }
        }
        Err(first)
    }

    fn check_folder(&self, group: &Group, name: &str) -> Result<(), FolderTrouble> {
        let path = self.path_of(group, name);
        let trouble = |what: String, fix: String| FolderTrouble { folder: path.display().to_string(), what, fix };
        let dir = match self.get(group, name) {
            // The first briefing makes it.
            Err(error) if name == BRIEFINGS && error.kind() == io::ErrorKind::NotFound => return Ok(()),
            found => found.map_err(|error| Self::cannot_open(&error, &path))?,
        };
        let (uid, gid, mode) =
            dir.owner().map_err(|error| trouble(error.to_string(), "look at its owner and mode".to_owned()))?;
        let me = rustix::process::geteuid().as_raw();
        // Root may do it all the same.
        if name == TASKS && mode & 0o1000 != 0 && ![0, uid].contains(&me) {
            let what = format!(
                "it has the sticky bit (mode {mode:04o}), so askd (user id {me}) cannot take files of other users"
            );
            return Err(trouble(what, format!("chmod -t '{}'", path.display())));
        }
        if let Err(error) = dir.usable() {
            return Err(trouble(
                format!("askd (user id {me}) cannot write here: {error}; owner is {uid}:{gid}, mode {mode:04o}"),
                format!(
                    "chgrp <a group of user {me}> '{0}' && chmod 0770 '{0}'  (or chown {me} '{0}')",
                    path.display()
                ),
            ));
        }
        if let Some(wanted) = self.access.gid.filter(|wanted| *wanted != gid) {
            return Err(trouble(
                format!("its group is {gid}, but gid = \"{wanted}\" is what agents are said to share"),
                format!("chgrp {wanted} '{}'", path.display()),
            ));
        }
        let wanted = self.access.dir_mode & 0o777;
        if mode & wanted != wanted {
            return Err(trouble(
                format!("its mode is {mode:04o}, so an agent of another user id may not be able to use it"),
                format!("chmod {wanted:04o} '{}'", path.display()),
            ));
        }
        Ok(())
    }

    /// What is wrong if they cannot be made.
    pub fn cannot_make(&self, group: &Group, error: &io::Error) -> FolderTrouble {
        Self::cannot_open(error, &self.root.join(group.folder()))
    }

    /// A file in `tasks/` that its owner lets nobody else read: it may be a request.
    pub(in crate::host) fn cannot_read(&self, group: &Group, name: &str, error: &io::Error) -> FolderTrouble {
        let path = self.tasks_path(group).join(name).display().to_string();
        let me = rustix::process::geteuid().as_raw();
        // The agent has chosen the name, and an operator pastes the command.
        let quoted = (!path.chars().any(char::is_control)).then(|| path.replace('\'', "'\\''"));
        let chmod = quoted.map(|path| format!("chmod 0660 '{path}', and ")).unwrap_or_default();
        let fix = format!(
            "if it is a request: {chmod}let the agent write files that others of its group can read (umask 007); else move it away"
        );
        FolderTrouble { folder: path, what: format!("askd (user id {me}) cannot read it: {error}"), fix }
    }

    fn cannot_open(error: &io::Error, path: &Path) -> FolderTrouble {
        let me = rustix::process::geteuid().as_raw();
        let fix = match error.kind() {
            io::ErrorKind::NotConnected => {
                "mount it again, or restart askd if the group's folders shall be on this disk".to_owned()
            }
            io::ErrorKind::PermissionDenied => {
                format!("let user id {me} in: chmod g+rwx the folder and chgrp it to a group of that user")
            }
            _ if is_no_folder(error) => {
                "it must be a folder, not a link or a file; remove what is there and askd creates it again".to_owned()
            }
            _ if is_of_the_process(error) => MORE_FILES.to_owned(),
            _ => "look at the folder and at the disk that it is on".to_owned(),
        };
        FolderTrouble { folder: path.display().to_string(), what: format!("askd cannot open it: {error}"), fix }
    }
}

/// Whether something else is there: a file, or a link.
fn is_no_folder(error: &io::Error) -> bool {
    [Errno::NOTDIR, Errno::LOOP].iter().any(|code| error.raw_os_error() == Some(code.raw_os_error()))
}
