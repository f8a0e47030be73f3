//! What becomes of an ask on which askd panicked: askd sets its record aside for a bug report, tells its callers, and
//! forgets the ask, so that it cannot cause another panic. Its cards stay as they are, and the log says so.

use super::Broker;
use crate::host::delivery;
use crate::ipc::wire;
use askd_core::{Ask, AskId, DeliveryEvent, DeliveryState, Rejection, RequestId};
use std::io;
use std::sync::Arc;

impl Broker {
    /// Sets an ask aside. A lane calls it, so that nothing else happens to the ask meanwhile.
    pub(super) async fn set_aside(&self, id: AskId) {
        let broker = self.clone();
        let work = move || {
            let Some(ask) = broker.load(id)? else { return Ok(None) };
            let file = broker.0.store.set_aside(&ask.group, id)?;
            Ok::<_, crate::host::store::StoreError>(Some((ask, file)))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(Some((ask, file)))) => {
                tracing::error!(
                    ask = %id, group = %ask.group, file,
                    "askd panicked on a question and has set it aside: its callers are told, its cards stay as they are. \
                     Please report the panic with this file"
                );
                self.index().remove(&ask);
                let _nobody = self.0.changes.send(id);
                self.tell_callers(&ask);
            }
            Ok(Ok(None)) => tracing::error!(ask = %id, "askd panicked on a question that is not stored"),
            Ok(Err(error)) => {
                tracing::error!(ask = %id, %error, "askd panicked on a question, and it cannot be set aside");
            }
            Err(panic) => {
                tracing::error!(ask = %id, %panic, "askd panicked on a question, and again when it set it aside");
            }
        }
    }

    /// Tells every caller the outcome if there is one, or that there will be none.
    fn tell_callers(&self, ask: &Arc<Ask>) {
        for waiter in &ask.waiters {
            let request_id = waiter.request_id.clone();
            // The ask is forgotten, so this event is not needed.
            let told = DeliveryEvent::Published.of(request_id.clone());
            match waiter.response.state() {
                DeliveryState::Undecided => self.deliver(ask, told, move |broker, ask| broker.refuse(ask, &request_id)),
                DeliveryState::Owed | DeliveryState::Ready => self.deliver(ask, told, move |broker, ask| {
                    delivery::write(&broker.0.folders, ask, &request_id)?;
                    delivery::publish(&broker.0.folders, &ask.group, &request_id)
                }),
                DeliveryState::Published { .. }
                | DeliveryState::TakingBack
                | DeliveryState::TakenBack { .. }
                | DeliveryState::Taken => {}
            }
        }
    }

    fn refuse(&self, ask: &Ask, request_id: &RequestId) -> io::Result<()> {
        let op_code = ask.waiter(request_id).and_then(|waiter| waiter.op_code.clone());
        let response = wire::refused(request_id, op_code, &Rejection::SetAside);
        delivery::write_at_once(&self.0.folders, &ask.group, &response)
    }
}
