//! Labels whose number of values is bounded.

use std::collections::{BTreeMap, BTreeSet};

/// What stands for every value beyond the bound.
pub(super) const OTHER: &str = "other";

/// Which labels metrics have, and how many values a label may take. Each value of a label is another
/// series that every exporter keeps for ever, so that names that users make up are left out unless
/// asked for.
///
/// ```
/// use std::sync::Arc;
/// use plimsoll_core::{Memory, Namespace};
/// use plimsoll_engine::{Engine, telemetry::Labels};
/// let store = Arc::new(Memory::new().open(Namespace::new("orders")?));
/// let engine = Engine::new(store).labels(Labels { worker_id: true, ..Labels::default() });
/// # Ok::<(), plimsoll_core::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Labels {
    /// Whether `jobs_created_total` tells owners of tasks apart.
    pub user_id: bool,
    /// Whether `worker_load` tells workers apart.
    pub worker_id: bool,
    /// How many values of `user_id` and `worker_id`, and how many pairs of `queue` and `kind`, an
    /// engine tells apart. The rest is `other`.
    pub distinct_max: usize,
}

impl Default for Labels {
    fn default() -> Self {
        Self {
            user_id: false,
            worker_id: false,
            distinct_max: 100,
        }
    }
}

/// The values that are told apart: the first ones that came.
#[derive(Debug)]
pub(super) struct Distinct<T> {
    seen: BTreeSet<T>,
    max: usize,
}

impl<T: Ord + Clone> Distinct<T> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            seen: BTreeSet::new(),
            max,
        }
    }

    /// Whether this value is one of those that are told apart.
    pub(super) fn admits(&mut self, value: &T) -> bool {
        if self.seen.contains(value) {
            return true;
        }
        let room = self.seen.len() < self.max;
        if room {
            self.seen.insert(value.clone());
        }
        room
    }
}

/// Handles by the value of a label, for as many values as are told apart.
#[derive(Debug)]
pub(super) struct Told<T, H> {
    distinct: Distinct<T>,
    handles: BTreeMap<Option<T>, H>,
}

impl<T: Ord + Clone, H: Clone> Told<T, H> {
    pub(super) fn new(max: usize) -> Self {
        Self {
            distinct: Distinct::new(max),
            handles: BTreeMap::new(),
        }
    }

    /// The handle of this value, or of all others.
    pub(super) fn get(&mut self, value: &T, make: impl FnOnce(Option<&T>) -> H) -> H {
        let value = self.distinct.admits(value).then(|| value.clone());
        if let Some(handle) = self.handles.get(&value) {
            return handle.clone();
        }
        let handle = make(value.as_ref());
        self.handles.insert(value, handle.clone());
        handle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_values_are_told_apart_for_ever() {
        let mut distinct = Distinct::new(2);
        let admitted = ["a", "b", "c", "a", "c", "b"].map(|value| distinct.admits(&value));
        assert_eq!(admitted, [true, true, false, true, false, true]);
        assert!(!Distinct::new(0).admits(&"a"));
    }
}
