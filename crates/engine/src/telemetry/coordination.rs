//! The metrics of what workers coordinate by: locks, the registry, the archive, the leading sweeper.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use plimsoll_core::Namespace;

use super::handles::{counters, label};
use super::table;

/// What locks record.
#[derive(Debug)]
pub(crate) struct OfLocks {
    acquired: Counter,
    waited: Histogram,
    lost: Counter,
    handed_over: Counter,
}

impl OfLocks {
    pub(super) fn new() -> Self {
        Self {
            acquired: table::LOCKS_ACQUIRED.with_counter(Vec::new()),
            waited: table::LOCK_WAIT.with_histogram(Vec::new()),
            lost: table::LOCKS_LOST.with_counter(Vec::new()),
            handed_over: table::LOCKS_HANDED_OVER.with_counter(Vec::new()),
        }
    }

    /// Somebody has a lock who asked for it so long ago.
    pub(crate) fn acquired(&self, waited: Duration) {
        self.acquired.increment(1);
        self.waited.record(waited);
    }

    /// A holder cannot rely on its lock any more, and did not release it.
    pub(crate) fn lost(&self) {
        self.lost.increment(1);
    }

    /// A lock was released to the first in line.
    pub(crate) fn handed_over(&self) {
        self.handed_over.increment(1);
    }
}

/// What became of a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heartbeat {
    Taken,
    Refused,
    Unanswered,
}

/// What the registry and the archive record.
#[derive(Debug)]
pub(crate) struct OfRecords {
    heartbeats: [Counter; 3],
    archived: [Counter; 2],
}

impl OfRecords {
    pub(super) fn new() -> Self {
        Self {
            heartbeats: counters(table::HEARTBEATS, "outcome", ["ok", "error", "unanswered"]),
            archived: counters(table::ARCHIVED, "outcome", ["moved", "left"]),
        }
    }

    /// A worker gave a sign of life.
    pub(crate) fn heartbeat(&self, what: Heartbeat) {
        self.heartbeats[what as usize].increment(1);
    }

    /// So many tasks went to the archive, and so many could not.
    pub(crate) fn archived(&self, moved: u64, left: usize) {
        let [archived, not] = &self.archived;
        archived.increment(moved);
        not.increment(left as u64);
    }
}

/// Shows whether a sweeper leads.
#[derive(Debug)]
pub(crate) struct Leads(Gauge);

impl Leads {
    pub(crate) fn new(namespace: &Namespace) -> Self {
        let labels = vec![label("namespace", namespace.as_str())];
        Self(table::SWEEPERS_LEADING.with_gauge(labels))
    }

    /// It leads until this is dropped, however that comes.
    pub(crate) fn begin(&self) -> Leading {
        self.0.increment(1.0);
        Leading(self.0.clone())
    }
}

/// A sweeper that leads.
#[derive(Debug)]
pub(crate) struct Leading(Gauge);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
