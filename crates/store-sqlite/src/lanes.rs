//! The numbers of lanes that the writer has seen, so that it need not look them up again.
//!
//! A lane goes with its last task, and any process may remove that. So a transaction uses these
//! numbers only if no other connection has written since the writer's last one, which SQLite tells
//! under the write lock.

use std::collections::BTreeMap;

use plimsoll_core::task::Lane;
use rusqlite::Connection;

use crate::cache::data_version;
use crate::error::Answer;

/// Numbers by namespace and lane.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    numbers: BTreeMap<i64, BTreeMap<Lane, i64>>,
    /// The version of the file as of the writer's last transaction that used a lane.
    version: Option<i64>,
}

impl Lanes {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Forgets everything if another connection has written since. Called under the write lock.
    pub(crate) fn validate(&mut self, connection: &Connection) -> Answer<()> {
        let version = data_version(connection)?;
        if self.version != Some(version) {
            self.clear();
            self.version = Some(version);
        }
        Ok(())
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
