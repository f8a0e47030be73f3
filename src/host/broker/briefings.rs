//! What briefings say, and those that no file holds: where several daemons share the records and no host serves a folder of the group, the record of an ask
//! is its briefing, so that every daemon can hand it out and a host's death takes none away.

use super::{Broker, Failure};
use crate::ipc::files::Dir;
use crate::ipc::taken_name;
use crate::ipc::wire::{BriefingFile, outcome_of};
use askd_core::{Ask, AskId, DeliveryEvent, DeliveryState, Group, Taker, Time, wording};
use std::io;

impl Broker {
    /// The briefings of a group that nobody has read, the oldest first; at most so many.
    pub(in crate::host) async fn briefings_kept(&self, group: &Group, most: usize) -> Vec<(AskId, BriefingFile)> {
        let ids = self.index().briefed(group);
        let mut briefings = Vec::new();
        for id in ids {
            briefings.extend(self.briefing_kept(group, id).await.map(|(since, briefing)| (since, id, briefing)));
        }
        briefings.sort_by_key(|(since, id, _)| (*since, *id));
        briefings.into_iter().take(most).map(|(_, id, briefing)| (id, briefing)).collect()
    }

    /// The briefing of an ask of this group that nobody has read, and since when it is there.
    pub(super) async fn briefing_kept(&self, group: &Group, id: AskId) -> Option<(Time, BriefingFile)> {
        // Another daemon may have published it just now, and the caller may come from there.
        let ask = self.get_fitting(id, |ask| ask.follow_up().briefing.is_published()).await;
        let ask = ask.ok().flatten().filter(|ask| ask.group == *group)?;
        let DeliveryState::Published { at } = ask.follow_up().briefing.state() else { return None };
        briefing_of(&ask).ok().flatten().map(|briefing| (at, briefing))
    }

    /// Whether this group has a briefing of this ask that nobody has read, as far as this daemon knows.
    pub(in crate::host) async fn is_briefing_kept(&self, group: &Group, id: AskId) -> bool {
        self.briefing_kept(group, id).await.is_some()
    }

    /// A briefing was read; `false` if it is not there any more.
    pub(in crate::host) async fn briefing_read(&self, group: &Group, id: AskId) -> Result<bool, Failure> {
        let Some((since, _)) = self.briefing_kept(group, id).await else { return Ok(false) };
        self.apply(id, DeliveryEvent::Taken { since }.to(Taker::Briefing)).await.map(|_ask| true)
    }
}

/// What an agent reads when it starts again; `None`: there is no outcome, or nobody asked for one.
pub(super) fn briefing_of(ask: &Ask) -> io::Result<Option<BriefingFile>> {
    let told = ask.briefed_waiter().and_then(|waiter| Some((outcome_of(ask, waiter)?, ask.session_of(waiter))));
    let Some((response, session)) = told else { return Ok(None) };
    let (text, session_id) = (wording::briefing(ask), session.map(str::to_owned));
    Ok(Some(BriefingFile { text, session_id, result: serde_json::to_value(&response.result)? }))
}

/// The name of a briefing whose reader died before it was done with it.
pub(super) fn left_over(briefings: &Dir, id: AskId) -> io::Result<Option<String>> {
    let name = taken_name(&id);
    if briefings.stat(&name)?.is_none() {
        return Ok(None);
    }
    if is_being_read(briefings) {
        Err(io::Error::new(io::ErrorKind::WouldBlock, "it is being read"))
    } else {
        Ok(Some(name))
    }
}

/// Whether an agent reads briefings now: it holds the folder, and one that has died holds it no more. Not every file
/// system can tell.
pub(super) fn is_being_read(briefings: &Dir) -> bool {
    // Opened anew, because the lock belongs to what was opened, and `briefings` may be held for long.
    !briefings.sub(".").and_then(|own| own.claim()).unwrap_or(true)
}
