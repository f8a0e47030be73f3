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

/// A short code that is not `taken`: a letter and a digit, longer only when those run out.
pub fn short_id(taken: impl Fn(&ShortId) -> bool) -> ShortId {
    // To ask the kernel at each try would take longer than all else that is done in memory for a new ask.
    let (random, mut length, mut nth) = (RandomState::new(), 2, 0_u64);
    loop {
        // As many tries as make a miss unlikely while codes of this length are left.
        for _ in 0..64 {
            nth += 1;
            let code = code(length, random.hash_one(nth).to_le_bytes());
            if let Some(code) = code.parse().ok().filter(|code| !taken(code)) {
                return code;
            }
        }
        length = (length + 1).min(LONGEST);
    }
}

/// The most characters of a code.
const LONGEST: usize = 8;

fn code(length: usize, bytes: [u8; LONGEST]) -> String {
    let pick = |from: &[u8], byte: u8| char::from(from[usize::from(byte) % from.len()]);
    let letter = std::iter::once(pick(LETTERS, bytes[0]));
    letter.chain((1..length).map(|index| pick(DIGITS, bytes[index]))).collect()
}
