//! What daemons that share their records have to know of each other. Every one of them takes calls, and a row is the lane of its
//! ask: a save says which state it was stepped from, and is refused if another daemon has changed the ask since. What a
//! step asks for is done by the daemon that holds the ask's group; what concerns the folder of a group, by the host that serves it.

use super::snapshot::Snapshot;
use super::{Allowed, Save, StoreError, Stored};
use crate::host::audit::Noted;
use askd_core::{Ask, AskId, Effect, Group, RequestId, Time};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a step was taken from.
#[derive(Debug, Clone)]
pub enum Basis {
    /// Nothing: the ask is new, and was judged when its group had been given so many.
    New(i64),
    /// This state of the ask.
    Ask(Arc<Ask>),
    /// The same, and the step takes into account what a loss of power may have taken from it.
    Lost(Arc<Ask>),
}

/// A host that serves folders and was not heard of for that long is reported.
pub const REPORTED: Duration = Duration::from_secs(24 * 3600);

/// A host that serves folders, and of which nobody has heard for longer than a live daemon is silent.
#[derive(Debug, Clone)]
pub struct Silent {
    /// What it is called.
    pub host: String,
    /// When it was heard of last.
    pub heard: Time,
    /// The groups whose folders it serves.
    pub groups: Vec<Group>,
}

/// Which host serves the folder of each group. What changes that blocks on the database.
pub trait Pins: Debug + Send + Sync {
    /// What the host of this daemon is called.
    fn host(&self) -> &str;

    /// Which host serves the group's folder, as far as this daemon knows; `None`: no request ever came in a folder.
    fn pinned(&self, group: &Group) -> Option<Pin>;

    /// The groups whose folders a host serves.
    fn pinned_groups(&self) -> Vec<Group>;

    /// The hosts that do not answer, as this daemon knew a few seconds ago.
    fn silent(&self) -> Vec<Silent>;

    /// Has a host serve the group's folder, unless another one does. Returns the one that does.
    fn pin(&self, group: &Group, host: &str) -> Result<Pin, StoreError>;

    /// How many standbys of the database's server have each `sync_state`, as this daemon knew a few seconds ago; empty: it does not know.
    fn standbys(&self) -> Vec<(String, i64)>;

    /// The groups whose folders this host serves without knowing what lies there, and since when.
    fn strange(&self) -> Vec<(Group, Time)>;

    /// It has found out what lies there.
    fn settled_in(&self, group: &Group) -> Result<(), StoreError>;
}

/// What is stored together with a state of an ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct Along<'a> {
    /// What others have to do then.
    pub left: Option<&'a LeftTo>,
    /// What the audit log says of it.
    pub noted: &'a [Noted],
    /// Only its outcome is kept from then on.
    pub retired: bool,
    /// Nothing is saved unless this daemon holds the ask's group.
    pub of_holder: bool,
}

/// Keeps a group from being handed to another daemon until it is dropped.
#[derive(Debug, Clone, Default)]
pub struct Tenure(pub Option<Arc<()>>);

/// What became of the groups since the last time.
#[derive(Debug, Default)]
pub struct Tended {
    /// This daemon holds them by now, and has not begun with them.
    pub new: Vec<Group>,
    /// Nobody holds many more.
    pub more: bool,
    /// What it is to hand over.
    pub surplus: Option<Surplus>,
}

/// Groups that another daemon is to have.
#[derive(Debug)]
pub struct Surplus {
    /// The run that gets them.
    pub to: String,
    /// How many at most.
    pub most: usize,
}

/// Which groups this daemon holds. It alone does what the steps of their asks ask for.
pub trait Holdings: Debug + Send + Sync {
    /// Whether it holds the group, and has begun with it.
    fn holds(&self, group: &Group) -> bool;

    /// Keeps the group here; `None`: it is not, or goes.
    fn tenure(&self, group: &Group) -> Option<Tenure>;

    /// All that it holds and has begun with.
    fn held(&self) -> Vec<Group>;

    /// How many groups nobody serves, as far as this daemon knew a second ago: only the leader knows of others.
    fn unserved(&self) -> usize;

    /// Has the leader take groups that nobody holds, finds out what others have handed over, and drops what this daemon holds no more. From then
    /// on others may hand over groups to it if it `takes` them. Blocks on the database.
    fn tend(&self, takes: bool) -> Result<Tended, StoreError>;

    /// Others hand over no group to it any more. Blocks on the database.
    fn rest(&self) -> Result<(), StoreError>;

    /// It ends without noting an end, and others take its groups at once, and the lead. Blocks on the database.
    fn let_go(&self) -> Result<(), StoreError>;

    /// Has this daemon hold those of these groups that nobody holds. Returns those that it has to begin with. Blocks on the database.
    fn take(&self, groups: &[Group]) -> Result<Vec<Group>, StoreError>;

    /// Whether nobody held the group when it took it: nobody ever did, or the last holder has let it go, and all that it did is stored.
    fn is_first(&self, group: &Group) -> bool;

    /// It holds the group from now on; `false`: it has begun with it before.
    fn begin(&self, group: &Group) -> bool;

    /// Another daemon is to have the group, and this one does not hold it any more; `false`: something keeps it here. If it is not handed over,
    /// [`Self::tend`] finds it again.
    fn end(&self, group: &Group) -> bool;

    /// Hands over groups that are to go; `false`: that run cannot have them. Blocks on the database.
    fn hand_over(&self, to: &str, groups: &[Group]) -> Result<bool, StoreError>;

    /// The asks of these groups that are more than kept outcomes, or were so lately and may have a second card. Blocks on the database.
    fn to_take_up(&self, groups: &[Group]) -> Result<Vec<AskId>, StoreError>;

    /// These asks as they are stored, read anew. Blocks on the database.
    fn reread(&self, ids: &[AskId]) -> Result<Vec<Stored>, StoreError>;
}

/// A call of MCP by URL. Each client of a session counts its calls by itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct McpCall {
    /// Whose it is.
    pub group: Group,
    /// Who gets its outcome.
    pub taker: String,
    /// The id that its client got when it introduced itself; empty without one.
    pub client: String,
    /// Its JSON-RPC id, as JSON.
    pub number: String,
}

/// A message of a session of MCP by URL.
#[derive(Debug, Clone)]
pub struct McpMessage {
    /// Whose it is.
    pub group: Group,
    /// Who gets the outcomes of its session.
    pub taker: String,
    /// The id that its client got when it introduced itself; empty without one.
    pub client: String,
    /// It shows that its client has read what it was sent.
    pub shows: bool,
    /// The call that begins with it.
    pub begins: Option<String>,
    /// The call that its client cancels, and of which this daemon knows nothing.
    pub cancels: Option<String>,
    /// The session that its client got when it introduced itself.
    pub own: Option<String>,
    /// The session that it belongs to, where that is another one: it goes on, even if it was ended.
    pub back: Option<String>,
}

/// What a message shows that came to this daemon.
#[derive(Debug, Default)]
pub struct Shown {
    /// Its client has ended the session that it got.
    pub is_over: bool,
    /// What is on its way to its client.
    pub sent: Vec<OnItsWay>,
    /// What was, and its client drops.
    pub dropped: Vec<RequestId>,
}

/// An outcome on its way to a client.
#[derive(Debug)]
pub struct OnItsWay {
    /// Which entry it is.
    pub number: i64,
    /// Whose outcome it is.
    pub request_id: RequestId,
    /// This daemon has sent it, and knows whether the connection was reset.
    pub is_own: bool,
}

/// What daemons have to know of each other's calls of MCP by URL: a client's next message may come to any of them. Blocks on the database.
pub trait McpCalls {
    /// A message has come.
    fn heard(&self, message: &McpMessage) -> Result<Shown, StoreError>;

    /// This daemon is about to send a call its outcome. Returns its entry; `None`: its client has cancelled it.
    fn sent(&self, call: &McpCall, outcome: &RequestId) -> Result<Option<i64>, StoreError>;

    /// Whether that outcome still is on its way: no client has shown that it has it, or has dropped it.
    fn is_on_its_way(&self, number: i64) -> Result<bool, StoreError>;

    /// It is no more.
    fn has_come(&self, number: i64) -> Result<(), StoreError>;

    /// A session is over: nobody waits for the outcomes of these requests.
    fn end_session(&self, group: &Group, session: &str, requests: &[RequestId]) -> Result<(), StoreError>;

    /// The sessions that have ended lately.
    fn ended_sessions(&self) -> Result<Vec<(Group, String)>, StoreError>;
}

/// The part of the port that only a store with several daemons has. Every call blocks on the database.
pub trait Sharing: Pins + Holdings + McpCalls {
    /// Whether this daemon does what concerns no group, or is done in one place: it reads the messages of people, and writes in chats.
    fn leads(&self) -> bool;

    /// How many asks the group had been given, all of which this daemon knows.
    fn given(&self, group: &Group) -> i64;

    /// Saves an ask. [`StoreError::Stale`]: another daemon was faster.
    fn save(&self, ask: &Arc<Ask>, basis: &Basis, along: Along<'_>, save: Save) -> Result<(), StoreError>;

    /// What has changed since the last look, or as much of it as one look lists. One look at a time.
    fn look(&self) -> Result<News, StoreError>;

    /// How far its looks have come.
    fn reached(&self) -> Reached;

    /// It goes on from there: a scan leaves out the outcomes of which nothing can change any more that have not changed since, and the next
    /// look finds what has. `false`: what was seen then may be lost, so this store begins anew.
    fn go_on_from(&self, reached: &Reached) -> bool;

    /// All asks are known of which these are the numbers that each group was given.
    fn learned(&self, given: Vec<(Group, i64)>);

    /// Changes when another daemon says that there is news.
    fn hint(&self) -> watch::Receiver<()>;

    /// What other daemons' steps ask this one to do, the oldest first.
    fn owed(&self) -> Result<Vec<Owed>, StoreError>;

    /// Leaves these effects to others: this daemon was asked for them by mistake.
    fn hand_on(&self, ask: &Ask, left: &LeftTo) -> Result<(), StoreError>;

    /// It is under way.
    fn paid(&self, numbers: &[i64]) -> Result<(), StoreError>;

    /// Keeps a verified webhook for the leader. It is on stable storage then.
    fn keep_webhook(&self, channel: &str, body: &[u8]) -> Result<(), StoreError>;

    /// Some verified webhooks of a channel that other daemons keep for the leader, after the one with that number, the oldest first.
    fn webhooks(&self, channel: &str, after: i64) -> Result<Vec<Webhook>, StoreError>;

    /// Whether the leader has not dealt with some webhook of any channel.
    fn has_unread(&self) -> Result<bool, StoreError>;

    /// Removes all asks, and whatever there is because of them, while no daemon runs.
    fn clear(&self) -> Result<(), StoreError>;

    /// The webhook was dealt with.
    fn drop_webhook(&self, number: i64) -> Result<(), StoreError>;

    /// Tells the other daemons which calls wait here, and for how much longer they count.
    fn tell_waits(&self, waits: &[Wait]) -> Result<(), StoreError>;

    /// Whether a call of this request waits at another daemon.
    fn waits_for(&self, group: &Group, request_id: &RequestId) -> Result<bool, StoreError>;

    /// Holds something for this daemon, as long as it lives; `false` if another one has it.
    fn hold(&self, what: &str, time: Duration) -> Result<bool, StoreError>;

    /// Holds these for a taker at all daemons, all or none, from now until then. Returns until when another taker has one of them.
    fn hold_for(&self, taker: &str, what: &[String], between: [Time; 2]) -> Result<Option<Time>, StoreError>;

    /// It did not reach this taker, or this daemon needs it no longer: another one may have it at once.
    fn release(&self, what: &str, taker: Option<&str>) -> Result<(), StoreError>;
}

/// What has changed since a look.
#[derive(Debug, Default)]
pub struct News {
    /// Asks that are new or have changed.
    pub changed: Vec<Stored>,
    /// Asks that are gone, as they were.
    pub gone: Vec<Ask>,
    /// What may be asked again in each group.
    pub allowed: Vec<(Group, Vec<Allowed>)>,
    /// The names of documents that were written.
    pub documents: Vec<String>,
    /// How many asks each group was given by then.
    pub given: Vec<(Group, i64)>,
    /// How many runs had a lease.
    pub runs: usize,
    /// This is all. Else the next look goes on from here: one look lists only so many.
    pub is_all: bool,
}

/// How far the looks of a run have come.
#[derive(Debug, Clone)]
pub struct Reached {
    /// The server's era then.
    pub era: String,
    /// What they had seen.
    pub seen: Snapshot,
}

/// What of a step this daemon does not do itself.
#[derive(Debug, Clone, Default)]
pub struct LeftTo {
    /// What the daemon does that holds the ask's group.
    pub holder: Vec<Effect>,
    /// What the leader does.
    pub leader: Vec<Effect>,
    /// What the host does that serves the folder of the ask's group.
    pub host: Vec<Effect>,
    /// As far as this daemon knows, no host does. Another one may know better: then nothing is saved.
    pub unpinned: bool,
}

/// Which host serves the folder of a group. It does so until an operator moves the group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pin {
    /// What it is called.
    pub host: String,
    /// What was told in the folder before then may not lie there; `None`: all of it does, unless it was taken.
    pub strange: Option<Time>,
}

/// What this daemon has to do.
#[derive(Debug)]
pub struct Owed {
    /// Which entry it is.
    pub number: i64,
    /// The ask whose step asks for it.
    pub ask: AskId,
    /// What to do; nothing: whatever the ask needs.
    pub effects: Vec<Effect>,
}

/// A verified webhook.
#[derive(Debug)]
pub struct Webhook {
    /// Which entry it is.
    pub number: i64,
    /// What the platform sent.
    pub body: Vec<u8>,
}

/// A call that waits.
#[derive(Debug, Clone)]
pub struct Wait {
    /// Whose it is.
    pub group: Group,
    /// What it waits for.
    pub request_id: RequestId,
    /// For how much longer it counts.
    pub left: Duration,
}
