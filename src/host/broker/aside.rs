//! What becomes of an ask on which askd panicked: askd sets its record aside for a bug report, tells its callers, and
//! forgets the ask, so that it cannot cause another panic. Its cards stay as they are, and the log says so.

use super::Broker;
use super::errands::{Errand, Task};
use crate::host::delivery;
use crate::host::folders::Folders;
use crate::host::store::StoreError;
use crate::ipc::wire;
use askd_core::{Ask, AskId, DeliveryEvent, DeliveryState, Rejection, RequestId, Waiter};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Broker {
    /// Sets an ask aside; `false`: it was not stored. A lane calls it, so that nothing else happens to the ask meanwhile. Blocks on the disk.
    pub(super) fn set_aside(&self, id: AskId, errands: &mut Vec<Errand>) -> bool {
        let set_aside = || {
            let Some(ask) = self.load(id)? else { return Ok(None) };
            let file = self.0.store.set_aside(&ask.group, id)?;
            Ok::<_, StoreError>(Some((ask, file)))
        };
        match catch_unwind(AssertUnwindSafe(set_aside)) {
            Ok(Ok(Some((ask, file)))) => {
                tracing::error!(
                    ask = %id, group = %ask.group, file,
                    "askd panicked on a question and has set it aside: its callers are told, its cards stay as they are. \
                     Please report the panic with this file"
                );
                self.drop_ask(&ask);
                let _nobody = self.0.changes.send(id);
                let files = ask.waiters.iter().filter(|waiter| waiter.carrier.is_file());
                let told = files.filter_map(|waiter| told(&ask, waiter)).collect();
                errands.extend(self.own_errands(&ask, told));
            }
            Ok(Ok(None)) => {
                tracing::error!(ask = %id, "askd panicked on a question that is not stored");
                return false;
            }
            Ok(Err(error)) => {
                tracing::error!(ask = %id, %error, "askd panicked on a question, and it cannot be set aside");
            }
            Err(_reported) => {
                tracing::error!(ask = %id, "askd panicked on a question, and again when it set it aside");
            }
        }
        true
    }
}

/// Tells a caller the outcome if there is one, or that there will be none.
fn told(ask: &Arc<Ask>, waiter: &Waiter) -> Option<Errand> {
    let task: Task = match waiter.response.state() {
        DeliveryState::Undecided => refuse,
        DeliveryState::Owed | DeliveryState::Ready => |folders, ask, request_id| {
            delivery::rewrite(folders, ask, request_id)?;
            delivery::publish(folders, ask, request_id)
        },
        DeliveryState::Published { .. }
        | DeliveryState::TakingBack
        | DeliveryState::TakenBack { .. }
        | DeliveryState::Taken => return None,
    };
    // The ask is forgotten, so the event is not needed.
    Some(Errand::deliver(ask, waiter.request_id.clone(), DeliveryEvent::Published, task))
}

fn refuse(folders: &Folders, ask: &Ask, request_id: &RequestId) -> io::Result<()> {
    let op_code = ask.waiter(request_id).and_then(|waiter| waiter.op_code.clone());
    let response = wire::refused(request_id, op_code, &Rejection::SetAside);
    delivery::write_at_once(folders, &ask.group, &response)
}
