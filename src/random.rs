//! The one place where randomness is made: ids and secrets.

use askd_core::{AskId, RequestId, ShortId};
use std::hash::{BuildHasher as _, RandomState};
use std::io;

/// What short codes are made of: nothing that looks like something else.
const LETTERS: &[u8] = b"abcdefghjkmnpqrstuvwxyz";
const DIGITS: &[u8] = b"23456789";

/// An id nobody can guess.
#[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
pub fn ask_id() -> AskId {
    AskId::from_bits(uuid::Uuid::new_v4().as_u128())
}

/// An id for a waiting call or a process.
#[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
pub fn request_id() -> RequestId {
    RequestId::from_bits(uuid::Uuid::new_v4().as_u128())
}

/// A part of a name that nobody else uses.
#[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
pub fn unique() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

/// 256 random bits as 64 hex digits.
#[expect(clippy::disallowed_methods, reason = "this is the permitted home")]
pub fn secret() -> io::Result<String> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    Ok(bytes.iter().fold(String::with_capacity(64), |hex, byte| hex + &format!("{byte:02x}")))
}

/// A short code that is not `taken`: a letter and a digit, longer only when those run out. `open`: how many asks have one.
pub fn short_id(open: usize, taken: impl Fn(&ShortId) -> bool) -> ShortId {
    // To ask the kernel at each try would take longer than all else that is done in memory for a new ask.
    let (random, mut nth) = (RandomState::new(), 0_u64);
    let (mut length, mut codes) = (2, LETTERS.len() * DIGITS.len());
    let mut up_to = codes;
    loop {
        // As many tries as make a miss unlikely while codes of this length are left. Few, if it and the shorter ones cannot be
        // enough for all: everybody waits for the index meanwhile.
        let tries = if open < up_to { 64 } else { 4 };
        for _ in 0..tries {
            nth += 1;
            let code = code(length, random.hash_one(nth).to_le_bytes());
            if let Some(code) = code.parse().ok().filter(|code| !taken(code)) {
                return code;
            }
        }
        if length < LONGEST {
            length += 1;
            codes *= DIGITS.len();
            up_to += codes;
        }
    }
}

/// The most characters of a code.
const LONGEST: usize = 8;

fn code(length: usize, bytes: [u8; LONGEST]) -> String {
    let pick = |from: &[u8], byte: u8| char::from(from[usize::from(byte) % from.len()]);
    let letter = std::iter::once(pick(LETTERS, bytes[0]));
    letter.chain((1..length).map(|index| pick(DIGITS, bytes[index]))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::collections::HashSet;

    #[test]
    fn a_code_is_found_soon_however_many_are_taken_and_a_shorter_one_once_it_is_free() {
        let (mut codes, tried) = (HashSet::new(), Cell::new(0));
        for open in 0..20_000 {
            tried.set(0);
            let code = short_id(open, |code| {
                tried.set(tried.get() + 1);
                codes.contains(code)
            });
            assert!(tried.get() < 150, "{open} are taken, and {} were tried", tried.get());
            codes.insert(code);
        }
        assert!(tried.get() < 40, "{} were tried", tried.get());
        let all_of = |length: usize| codes.iter().filter(|code| code.as_str().len() == length).count();
        assert_eq!(all_of(2), 184, "no code is longer while there are shorter ones");
        assert!(all_of(3) > 1_400 && all_of(6) == 0, "{} and {}", all_of(3), all_of(6));
        let is_short = |_: usize| short_id(20_000, |code| code.as_str().len() > 5).as_str().len() == 2;
        assert!((0..100).all(is_short));
    }
}
