//! What is measured, in which order. Rows that share a world stand in one file.

mod calls;
mod idle;
mod mcp;
mod pending;
mod remote;
mod rest;
mod trips;

pub(crate) use pending::start_once;
pub(crate) use trips::{Agents, Pair, posts};

use crate::Bench;

/// Measures all rows that are wanted.
pub(crate) fn play(bench: &mut Bench) {
    if bench.wants(&[5, 6, 7, 8, 9, 17, 18]) {
        pending::measure(bench);
    }
    if bench.wants(&[1, 2, 3, 4]) {
        trips::measure(bench);
    }
    // Its first looks are over by the time it is watched.
    let idle = bench.wants(&[11]).then(|| idle::start(bench, 1_000));
    let waiting = bench.wants(&[14]).then(|| mcp::Waiting::start(bench));
    if bench.wants(&[16]) {
        calls::measure(bench);
    }
    if let Some(waiting) = waiting {
        waiting.measure(bench);
    }
    if let Some(idle) = idle {
        idle::measure(bench, idle);
    }
    if bench.wants(&[19]) {
        remote::measure(bench);
    }
    if bench.wants(&[14, 15]) {
        mcp::measure(bench);
    }
    if bench.wants(&[13]) {
        rest::sizes(bench);
    }
    if bench.quick {
        return;
    }
    let long: [Long; 5] = [
        (&[6], rest::wide),
        (&[8], rest::long_asks),
        (&[8, 9], rest::settled),
        (&[10], rest::stale),
        (&[12], rest::flood),
    ];
    for (rows, measure) in long {
        if bench.wants(rows) {
            measure(bench);
        }
    }
}

/// Rows, and what measures them.
type Long = (&'static [u8], fn(&mut Bench));

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
