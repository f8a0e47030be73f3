//! Why a copy failed, as the person who ran it reads it.

use crate::host::store::StoreError;
use askd_core::Group;

/// Why nothing was copied, or not all of it.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// One of the two stores failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The other store has questions that the first one does not know.
    #[error("{0} already has {1} questions, which did not come from this copy: move them away first")]
    NotEmpty(&'static str, usize),
    /// They would be lost.
    #[error(
        "{0} has no questions, but tokens of agents, what the WhatsApp channel keeps, browsers that are pushed to, or permissions \
         to ask again, which did not come from this copy and would be lost: {1}, and run this again"
    )]
    Remembers(&'static str, &'static str),
    /// They would be overwritten, and may be all that is left.
    #[error(
        "{to} still has records, and nothing shows that {from} has them too: it may be new, or another one. If those in {to} \
         are all that is left, {free}, and start askd on them. Otherwise {away}, and run this again"
    )]
    Kept {
        /// What has them.
        to: &'static str,
        /// What would be copied from.
        from: &'static str,
        /// How to have askd start on them.
        free: &'static str,
        /// How to make place.
        away: &'static str,
    },
    /// It would be served twice.
    #[error("askd starts on {0}, which has questions of this copy: run the copy again, it sets the last mark")]
    Whole(&'static str),
    /// What was copied reads otherwise there.
    #[error(
        "{0} records in {1} differ from the source. The source is unchanged; run the copy again, or undo it with --abort"
    )]
    Differs(usize, &'static str),
    /// There are records that cannot be read.
    #[error("{0} cannot be read: {1}. Nothing was moved; mend it or move it away, and run this again")]
    Unreadable(String, String),
    /// What was done last may be missing.
    #[error(
        "{0} may be missing its latest writes: undo this copy with --abort, start and stop askd once, then copy again"
    )]
    NotClean(&'static str),
    /// They would stay behind.
    #[error("messages that were acknowledged wait to be read in {0}: start askd, stop it, and run this again")]
    Unread(&'static str),
    /// The files would have it in a folder of this host.
    #[error(
        "the folder of {group} is on {at}, and not everything in it is over: run `askd group move {group} --to {host}`, start \
         askd on {host}, stop it, and run this again"
    )]
    Elsewhere {
        /// The group.
        group: Group,
        /// The host that serves its folder.
        at: String,
        /// This one.
        host: String,
    },
    /// What has to be told anew in a folder would count as taken.
    #[error("askd has not looked into the folder of {0} yet: start it on {1}, stop it, and run this again")]
    Strange(Group, String),
    /// Two groups would be one.
    #[error(
        "{0} would be called {1} in files, and there are questions of {1} already: once those of {0} are closed and their \
         answers taken, run this again"
    )]
    Taken(Group, Group),
    /// Nothing to take back.
    #[error("no copy is under way")]
    NotBegun,
}
