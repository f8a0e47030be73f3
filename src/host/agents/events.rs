//! Server-sent events: where each question of the group that was asked over HTTP is, and that an outcome is there. An event is
//! no delivery: the outcome is fetched.

use super::Agents;
use super::asks::Status;
use super::door::Caller;
use crate::host::broker::Filter;
use crate::host::channel::web::Problem;
use askd_core::{Ask, AskId, Group};
use axum::extract::{Extension, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::{Stream, StreamExt as _, stream};
use std::convert::Infallible;
use std::time::Duration;
use tokio_stream::wrappers::BroadcastStream;

const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// More open questions than a group can have.
const MOST: usize = 1000;

/// What a group is told of an ask, for each of its calls over HTTP.
fn told(ask: &Ask, group: &Group) -> Vec<Event> {
    let mine = ask.waiters.iter().filter(|waiter| ask.group == *group && !waiter.carrier.is_file());
    let event = |waiter: &askd_core::Waiter| {
        let kind = if waiter.response.is_published() { "outcome" } else { "status" };
        let revision = ask.settled_at().or(ask.shown_at()).unwrap_or(ask.created_at).as_millis();
        let event = Event::default().event(kind).id(format!("{}.{revision}", ask.id));
        event.json_data(Status::of(ask, waiter.request_id.clone())).ok()
    };
    mine.filter(|waiter| waiter.response.is_published() || ask.outcome().is_none()).filter_map(event).collect()
}

pub(super) async fn events(
    State(agents): State<Agents>,
    Extension(caller): Extension<Caller>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    let place = agents.place(&caller)?;
    let group = caller.holder.group.clone();
    agents.broker.loaded_of(&group).await;
    let changes = BroadcastStream::new(agents.broker.changes()).map(Result::ok);
    let reset = stream::once(std::future::ready(None::<AskId>));
    let (of, ctx, holder) = (agents.clone(), agents.ctx.clone(), caller.holder.clone());
    // The state of now at the beginning, and again when changes were missed.
    let stream = reset.chain(changes).then(move |changed| {
        let (agents, group) = (of.clone(), group.clone());
        async move {
            match changed {
                Some(id) => match agents.broker.get(id).await {
                    Ok(Some(ask)) => told(&ask, &group),
                    _ => Vec::new(),
                },
                None => agents.present(&group).await,
            }
        }
    });
    let stream = stream.flat_map(|events| stream::iter(events.into_iter().map(Ok)));
    let stream = stream.take_until(async move {
        let _place = place;
        tokio::select! {
            () = ctx.stopping() => {}
            () = holder.ends(ctx.clock()) => {}
        }
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)))
}

impl Agents {
    async fn present(&self, group: &Group) -> Vec<Event> {
        let mut events = vec![Event::default().event("reset").data("{}")];
        for settled in [false, true] {
            let filter = Filter { settled: Some(settled), group: Some(group.clone()), ..Filter::default() };
            let page = self.broker.page(filter, MOST, None, |ask| told(ask, &ask.group)).await;
            events.extend(page.asks.into_iter().flatten());
        }
        events
    }
}
