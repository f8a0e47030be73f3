//! Which transactions of a server were over at one moment, as its `pg_snapshot` tells: what those have changed was seen then.

#[cfg(feature = "postgres")]
use serde::Deserialize;

/// All transactions before `next` were over, but for those that were `running`. By default none was.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "postgres", derive(Deserialize))]
pub struct Snapshot {
    pub(super) next: u64,
    pub(super) running: Vec<u64>,
}

#[cfg(feature = "postgres")]
impl Snapshot {
    /// What it tells of the transactions before that one, and nothing of later ones.
    pub(super) fn before(mut self, end: u64) -> Self {
        self.running.retain(|number| *number < end);
        Self { next: self.next.min(end), ..self }
    }

    /// The first transaction that was not over.
    pub(super) fn oldest(&self) -> u64 {
        self.running.iter().copied().fold(self.next, u64::min)
    }
}

#[cfg(all(test, feature = "postgres"))]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_of_the_transactions_before_one() {
        let seen = Snapshot { next: 9, running: vec![7, 3] };
        assert_eq!(seen.oldest(), 3);
        assert_eq!(seen.clone().before(7), Snapshot { next: 7, running: vec![3] });
        assert_eq!(seen.clone().before(2), Snapshot { next: 2, running: Vec::new() });
        assert_eq!(seen.clone().before(12), seen);
    }
}
