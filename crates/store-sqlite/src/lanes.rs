//! The numbers of lanes that the writer has seen, so that it need not look them up again.
//!
//! A lane goes with its last task, and any process may remove that. So these numbers are valid as
//! long as the [cache](crate::cache) is, and are forgotten with it.

use std::collections::BTreeMap;

use plimsoll_core::task::Lane;

/// Numbers by namespace and lane.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    numbers: BTreeMap<i64, BTreeMap<Lane, i64>>,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn clear(&mut self) {
        self.numbers.clear();
    }

    pub(crate) fn get(&self, ns: i64, lane: &Lane) -> Option<i64> {
        self.numbers.get(&ns)?.get(lane).copied()
    }

    pub(crate) fn insert(&mut self, ns: i64, lane: Lane, number: i64) {
        self.numbers.entry(ns).or_default().insert(lane, number);
    }

    pub(crate) fn remove(&mut self, ns: i64, lane: &Lane) {
        if let Some(lanes) = self.numbers.get_mut(&ns) {
            lanes.remove(lane);
        }
    }
}
