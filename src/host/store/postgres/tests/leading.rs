//! Who takes the lead.

use super::*;
use crate::clock::Clock;
use std::time::Duration;

/// When the database comes back, a leader that was cut off like everybody else has the time to renew its lease.
#[test]
fn a_lapsed_lease_is_taken_by_a_daemon_that_is_in_touch_and_one_that_was_given_up_by_any() {
    let Some(server) = Server::found() else { return };
    let _first = server.opened("first");
    let joins = |host: &str| match server.runtime.block_on(server.waiting(host, false).unwrap().turn()) {
        Ok(Turn::Joins(opened, waiting)) => (opened, waiting),
        turn => panic!("{turn:?}"),
    };
    let leads = |waiting: &Waiting, limit: u64| {
        let (clock, limit) = (Clock::system(), Duration::from_secs(limit));
        let led = async { clock.timeout(limit, waiting.clone().lead()).await };
        server.runtime.block_on(led).is_some_and(|led| led.unwrap().leads())
    };
    // Nobody renews it, or comes back.
    let leaves = |until: &str| {
        server.sql(&format!(
            "update askd.groups set holder = gen_random_uuid(), home = gen_random_uuid(), node = 'gone', until = {until}"
        ));
    };
    let (_second, waiting) = joins("second");
    leaves("now() - interval '1 s'");
    assert!(!leads(&waiting, 2), "it has just come");
    assert!(leads(&waiting, 20));
    let (_third, waiting) = joins("third");
    leaves("'-infinity'");
    assert!(leads(&waiting, 2));
    let (_fourth, waiting) = joins("fourth");
    leaves("now() + interval '1 hour'");
    assert!(leads(&waiting, 40), "the server's clock was set back since");
}
