//! Small seeded randomness (`SplitMix64`), so that a run with faults, duplicates and shuffling can be
//! repeated. Not for secrets. Used by `fault`, `courier` and for message ids.

#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`; 0 when `n` is 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % n).unwrap_or(0)
    }

    /// True with probability `p` (0.0 to 1.0), to a millionth.
    pub(super) fn chance(&mut self, p: f64) -> bool {
        let roll = u32::try_from(self.next() % 1_000_000).unwrap_or(0);
        f64::from(roll) < p * 1_000_000.0
    }

    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `len` characters of the base64 alphabet, `+` and `/` included, as real message ids have them.
    pub(super) fn base64ish(&mut self, len: usize) -> String {
        const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        (0..len).map(|_| char::from(ALPHABET[self.below(64)])).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_run_and_chances_are_about_right() {
        let (mut a, mut b) = (Random::seeded(7), Random::seeded(7));
        assert_eq!(a.base64ish(40), b.base64ish(40));
        let hits = (0..10_000).filter(|_| a.chance(0.3)).count();
        assert!((2_700..3_300).contains(&hits), "{hits}");
        assert!(!a.chance(0.0) && a.chance(1.0));
    }
}
