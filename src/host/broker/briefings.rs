//! Briefings that no file holds: where several daemons share the records and no host serves a folder of the group, the record of an ask
//! is its briefing, so that every daemon can hand it out and a host's death takes none away.

use super::collect::briefing_of;
use super::{Broker, Failure};
use crate::ipc::wire::BriefingFile;
use askd_core::{AskId, DeliveryEvent, DeliveryState, Group, Taker, Time};

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
        let ask = self.get(id).await.ok().flatten().filter(|ask| ask.group == *group)?;
        let DeliveryState::Published { at } = ask.follow_up().briefing.state() else { return None };
        briefing_of(&ask).ok().flatten().map(|briefing| (at, briefing))
    }

    /// A briefing was read; `false` if it is not there any more.
    pub(in crate::host) async fn briefing_read(&self, group: &Group, id: AskId) -> Result<bool, Failure> {
        let Some((since, _)) = self.briefing_kept(group, id).await else { return Ok(false) };
        self.apply(id, DeliveryEvent::Taken { since }.to(Taker::Briefing)).await.map(|_ask| true)
    }
}
