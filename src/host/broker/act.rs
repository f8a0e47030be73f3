//! Doing what a saved step asks for. Each effect is a task of its own, is tried until it is done,
//! and comes back as an event; all of them may be done twice.

use super::{Broker, RETRY};
use crate::ask::{Ask, AskId, Effect, Event, Found, Posted};
use crate::host::delivery;
use crate::ipc::{RESPONSES, status_name};
use std::io;
use std::sync::Arc;

impl Broker {
    pub(super) fn act(&self, ask: &Arc<Ask>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Status => self.write_status(ask),
                Effect::Respond(request_id) => {
                    let event = Event::ResponseReady(request_id.clone());
                    self.deliver(ask, event, move |broker, ask| {
                        delivery::write(&broker.0.folders, ask, &request_id)
                    });
                }
                Effect::Publish(request_id) => {
                    let event = Event::ResponsePublished(request_id.clone());
                    self.deliver(ask, event, move |broker, ask| {
                        delivery::publish(&broker.0.folders, &ask.group, &request_id)
                    });
                }
                Effect::Queue { route, not_before } => self.queue(ask.id, route, not_before),
                Effect::Send { route, attempt } => {
                    let why = format!("the channel of route {} is not set up", route + 1);
                    self.tell(ask.id, Event::Posted { route, attempt, posted: Posted::Never(why) });
                }
                Effect::Look { route } => self.tell(ask.id, Event::Looked { route, found: Found::CannotKnow }),
                Effect::Close { route } => {
                    tracing::error!(ask = %ask.id, route, "a card cannot be closed: its channel is not set up");
                    self.tell(ask.id, Event::WidgetClosed { route });
                }
                // Done in the lane, together with saving.
                Effect::Note(_) | Effect::Retire | Effect::Forget => {}
            }
        }
    }

    /// Tries until it is done, then says so.
    fn deliver(
        &self,
        ask: &Arc<Ask>,
        event: Event,
        work: impl Fn(&Self, &Ask) -> io::Result<()> + Send + Sync + 'static,
    ) {
        let (broker, ask, work) = (self.clone(), Arc::clone(ask), Arc::new(work));
        self.0.tasks.spawn(async move {
            let mut pause = RETRY.0;
            loop {
                let (worker, on, task) = (broker.clone(), Arc::clone(&ask), Arc::clone(&work));
                let done = tokio::task::spawn_blocking(move || task(&worker, &on)).await;
                match done.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
                    Ok(()) => return broker.tell(ask.id, event),
                    Err(error) => {
                        tracing::error!(
                            ask = %ask.id, group = %ask.group, %error,
                            "a response could not be written; trying again until it can"
                        );
                    }
                }
                if !broker.pause(&mut pause).await {
                    return;
                }
            }
        });
    }

    /// A hint for waiters, worth one try: without it they wait by their own reckoning.
    fn write_status(&self, ask: &Arc<Ask>) {
        let (broker, ask) = (self.clone(), Arc::clone(ask));
        self.0.tasks.spawn_blocking(move || {
            let mut written = delivery::status(&broker.0.folders, &ask);
            // Settled in the meantime: whoever publishes the response may have looked before this was written.
            if broker.index().is_settled(ask.id) {
                written = written.and_then(|()| {
                    let responses = broker.0.folders.ensure(&ask.group, RESPONSES)?;
                    ask.waiters.iter().try_for_each(|w| responses.remove(&status_name(&w.request_id)).map(drop))
                });
            }
            if let Err(error) = written {
                tracing::warn!(ask = %ask.id, group = %ask.group, %error, "cannot write the status of an ask");
            }
        });
    }

    fn queue(&self, id: AskId, route: usize, not_before: crate::ask::Time) {
        let broker = self.clone();
        self.0.tasks.spawn(async move {
            tokio::select! {
                () = broker.0.clock.sleep_until(not_before) => broker.tell(id, Event::Turn { route }),
                () = broker.0.stop.cancelled() => {}
            }
        });
    }
}
