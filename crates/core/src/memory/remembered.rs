//! Answers that are kept for a while, so that a call can be repeated.

use std::collections::{BTreeMap, BTreeSet};

use crate::limits::MEMORY;
use crate::time::Timestamp;

/// Answers by the id of the call that they answered.
#[derive(Debug)]
pub(super) struct Remembered<K, V> {
    answers: BTreeMap<K, V>,
    by_time: BTreeSet<(Timestamp, K)>,
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Self {
        Self {
            answers: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }
}

impl<K: Ord + Copy, V> Remembered<K, V> {
    pub(super) fn get(&self, id: &K) -> Option<&V> {
        self.answers.get(id)
    }

    pub(super) fn insert(&mut self, id: K, answer: V, now: Timestamp) {
        self.answers.insert(id, answer);
        self.by_time.insert((now, id));
    }

    /// Forgets up to `limit` answers that were kept long enough: how many, and whether more are
    /// left.
    pub(super) fn forget(&mut self, now: Timestamp, limit: usize) -> (u64, bool) {
        let cutoff = now.saturating_minus(MEMORY);
        let mut forgotten = 0;
        while let Some((at, id)) = self.by_time.first().copied() {
            if at >= cutoff {
                break;
            }
            if forgotten == limit as u64 {
                return (forgotten, true);
            }
            self.by_time.pop_first();
            self.answers.remove(&id);
            forgotten += 1;
        }
        (forgotten, false)
    }
}
