//! Bytes near a valid text, for the properties of what reads bytes of others: agents, platforms, operators, old files.

use crate::clock::Clock;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::time::Duration;

/// The most time for one text.
const BOUND: Duration = Duration::from_millis(50);

/// What is put in place of a few bytes.
fn put() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![
        Just("null"),
        Just("-1"),
        Just("1e400"),
        Just("99999999999999999999999"),
        Just("[]"),
        Just("{}"),
        Just("[[[[[[[["),
        Just("{\"a\":{\"a\":"),
        Just("\"\""),
        Just("\"\\u0000\""),
        Just("\"\\ud800\""),
        Just("\u{202e}"),
        Just("\u{feff}"),
        Just(","),
        Just(":"),
        Just("\""),
        Just("\n"),
    ];
    prop_oneof![3 => words.prop_map(|word| word.as_bytes().to_vec()), 1 => vec(any::<u8>(), 0..6)]
}

/// The text with up to five places changed, or cut off.
pub(crate) fn near(valid: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let valid = valid.as_bytes().to_vec();
    let changes = vec((any::<Index>(), 0..12_usize, put()), 0..6);
    (changes, proptest::option::weighted(0.1, any::<Index>())).prop_map(move |(changes, cut)| {
        let mut bytes = valid.clone();
        for (at, gone, put) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + gone).min(bytes.len());
            bytes.splice(at..end, put);
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
        bytes
    })
}

/// Reads it, and fails if that takes longer than any such text may. A busy machine gets three tries.
pub(crate) fn in_time<T>(read: impl Fn() -> T) -> T {
    let clock = Clock::system();
    for _ in 0..2 {
        let began = clock.monotonic();
        let told = read();
        if clock.monotonic().since(began) < BOUND {
            return told;
        }
    }
    let began = clock.monotonic();
    let told = read();
    let took = clock.monotonic().since(began);
    assert!(took < BOUND, "{took:?}");
    told
}
