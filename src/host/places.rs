//! Limits how many connections are served at a time. When there is one too many, the one that has been without a
//! request in work for longest goes. Each connection gets a moment to send a request, so that the fastest clients do
//! not drive out the others. A machine without I/O; [`super::http`] is its only caller.

use crate::clock::Moment;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long a connection is safe at least.
const LEFT_ALONE: Duration = Duration::from_millis(400);
/// How soon to look for a place again if all connections have a request in work.
const ALL_WORK: Duration = Duration::from_millis(50);

/// The connections of one listener. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Places(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    most: usize,
    next: u64,
    working: usize,
    /// Connections that are sending a head or body, or nothing; the oldest first.
    idle: BTreeMap<u64, (Moment, CancellationToken)>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Place {
    places: Places,
    /// Says that this connection has to go.
    pub(super) dropped: CancellationToken,
    since: Moment,
    at: Mutex<At>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Idle(u64),
    Working,
}

impl State {
    fn idle(&mut self, since: Moment, dropped: CancellationToken) -> At {
        self.next += 1;
        self.idle.insert(self.next, (since, dropped));
        At::Idle(self.next)
    }

    fn is_full(&self) -> bool {
        self.idle.len() + self.working >= self.most
    }
}

impl Places {
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Mutex::new(State { most, next: 0, working: 0, idle: BTreeMap::new() })))
    }

    /// How long the next connection has to wait, if it has to.
    pub(super) fn wait(&self, now: Moment) -> Option<Duration> {
        let state = self.0.lock();
        let wait = match state.idle.first_key_value() {
            _ if !state.is_full() => return None,
            Some((_, (since, _))) => LEFT_ALONE.saturating_sub(now.since(*since)),
            None => ALL_WORK,
        };
        (!wait.is_zero()).then_some(wait)
    }

    /// Gives a place to one more connection. If none is left, the oldest connection without a request in work goes.
    pub(super) fn take(&self, now: Moment) -> Place {
        let mut state = self.0.lock();
        if state.is_full()
            && let Some((_, (_, oldest))) = state.idle.pop_first()
        {
            oldest.cancel();
        }
        let dropped = CancellationToken::new();
        let at = Mutex::new(state.idle(now, dropped.clone()));
        drop(state);
        Place { places: self.clone(), dropped, since: now, at }
    }
}

impl Place {
    /// Notes that a whole request is there: the connection stays until it is answered.
    pub(super) fn begin(&self) {
        let mut at = self.at.lock();
        let mut state = self.places.0.lock();
        if let At::Idle(number) = *at
            && state.idle.remove(&number).is_some()
        {
            state.working += 1;
            *at = At::Working;
        }
    }

    /// Notes that the request is answered.
    pub(super) fn end(&self) {
        let mut at = self.at.lock();
        if *at == At::Working {
            let mut state = self.places.0.lock();
            state.working -= 1;
            *at = state.idle(self.since, self.dropped.clone());
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.end();
        let at = *self.at.lock();
        if let At::Idle(number) = at {
            self.places.0.lock().idle.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use askd_core::Time;

    #[test]
    fn the_oldest_without_a_request_in_work_goes() {
        let (clock, hand) = Clock::by_hand(Time::from_millis(1_760_000_000_000));
        let places = Places::new(3);
        let take = || places.take(clock.monotonic());
        let (first, second, third) = (take(), take(), take());
        first.begin();
        assert_eq!(places.wait(clock.monotonic()), Some(LEFT_ALONE), "they have only just come");
        hand.advance(LEFT_ALONE);
        assert_eq!(places.wait(clock.monotonic()), None);
        let fourth = take();
        let gone = |place: &Place| place.dropped.is_cancelled();
        assert!(gone(&second) && ![&first, &third, &fourth].into_iter().any(gone), "the first works");
        first.end();
        let fifth = take();
        assert!(gone(&third) && !gone(&first), "the first has been idle for a shorter time");
        second.begin();
        for place in [&first, &fourth, &fifth] {
            place.begin();
            place.begin();
        }
        assert_eq!(places.wait(clock.monotonic()), Some(ALL_WORK));
        drop((first, second, third, fourth, fifth));
        let state = places.0.lock();
        assert_eq!((state.idle.len(), state.working), (0, 0));
    }
}
