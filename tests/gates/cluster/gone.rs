//! A host of `cluster` that is gone for good, with its folders and the agents beside them. Its questions have to end like any other: the
//! daemons that are left take the answers, close the cards, and keep each outcome for an agent that may be back.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{IN_FOLDERS, World, host_of, in_folder};
use crate::agent::lock;
use crate::files;

/// What a closed card says as long as the agent was not told.
const SILENT: &str = "The agent's host does not answer; it gets this when it is back.";

/// The requests without a response whose agent is gone.
pub(super) type Bereaved = BTreeMap<String, Orphan>;

/// What is known of such a request.
#[derive(Default)]
pub(super) struct Orphan {
    /// What its card says, if it has one.
    card: Option<String>,
    /// When it ended, once that was looked up.
    pub(super) ended: Option<Value>,
}

impl World {
    /// Whether the agent of this request is gone with its host.
    pub(super) fn is_bereaved(&self, request: &str) -> bool {
        host_of(request).is_some_and(|host| self.hosts[host].is_gone())
    }

    pub(super) fn bereaved(&self) -> Bereaved {
        let mut found: Bereaved = {
            let history = lock(&self.history);
            let bereaved = history.unanswered().filter(|request| self.is_bereaved(request));
            bereaved.map(|request| (request.clone(), Orphan::default())).collect()
        };
        for (request, card) in self.cards() {
            if let Some(orphan) = found.get_mut(&request) {
                orphan.card = Some(card.visible_text());
            }
        }
        found
    }

    /// Takes the outcomes that those agents would get, so that they are judged like all others. Returns how many there were.
    pub(super) async fn inherit(&self, bereaved: &mut Bereaved) -> String {
        let (mut outcomes, mut left) = (BTreeMap::new(), String::new());
        let heir = self.hosts.iter().find(|host| !host.is_gone());
        for group in (0..IN_FOLDERS).map(in_folder).filter(|group| self.is_bereaved(group)) {
            let Some(heir) = heir else { break };
            for ask in heir.daemon.asks(&format!("state=settled&group={group}")).await {
                let outcome = &ask["outcome"];
                let result =
                    json!({"status": outcome["status"], "answers": outcome["answers"], "answered_by": outcome["by"]});
                let request = ask["request_id"].as_str().unwrap_or_default().to_owned();
                outcomes.insert(request, (json!({"result": result}), outcome["at"].clone()));
            }
            let tasks = self.hosts[host_of(&group).unwrap_or_default()].data().join("ipc").join(&group).join("tasks");
            let _none = files::each_below(&tasks, &mut |_, text| {
                left.push_str(text);
                Ok(())
            });
        }
        let (mut ended, mut unread) = (0, 0);
        for (request, orphan) in bereaved {
            if let Some((outcome, at)) = outcomes.remove(request) {
                lock(&self.history).response(request, outcome.to_string().as_bytes());
                orphan.ended = Some(at);
                ended += 1;
            } else if orphan.card.is_none() && left.contains(&format!("\"{request}\"")) {
                // It lies in the folder, and no daemon has taken it in.
                lock(&self.history).forget(request);
                unread += 1;
            }
        }
        format!("{ended} questions of a host that is gone ended, {unread} lie unread in its folders")
    }
}

/// The questions whose card does not say why the agent was not told.
pub(super) fn untold(bereaved: &Bereaved) -> impl Iterator<Item = &String> {
    bereaved
        .iter()
        .filter(|(_, orphan)| orphan.card.as_ref().is_some_and(|card| !card.contains(SILENT)))
        .map(|(request, _)| request)
}
