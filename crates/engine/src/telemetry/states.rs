//! The metrics of job states.

use std::time::Duration;

use metrics::{Counter, Histogram};

use super::handles::counters;
use super::table;

/// What those who write and read job states record.
#[derive(Debug)]
pub(crate) struct OfStates {
    written: Histogram,
    errors: [(&'static str, Counter); 8],
    hits: Counter,
    misses: Counter,
    reconnects: Counter,
    replays: Histogram,
    deliveries: Histogram,
    abandoned: Counter,
    drift: Counter,
    unreadable: Counter,
}

impl OfStates {
    pub(super) fn new() -> Self {
        let kinds = [
            "invalid",
            "not_found",
            "conflict",
            "lease_lost",
            "unavailable",
            "unsupported",
            "corrupt",
            "closed",
        ];
        let errors = counters(table::STATE_WRITE_ERRORS, "kind", kinds);
        let mut errors = errors.into_iter();
        Self {
            written: table::STATE_WRITE.with_histogram(Vec::new()),
            errors: kinds.map(|kind| (kind, errors.next().unwrap_or_else(Counter::noop))),
            hits: table::STATE_CACHE_HITS.with_counter(Vec::new()),
            misses: table::STATE_CACHE_MISSES.with_counter(Vec::new()),
            reconnects: table::STATE_RECONNECTS.with_counter(Vec::new()),
            replays: table::STATE_REPLAY.with_histogram(Vec::new()),
            deliveries: table::STATE_DELIVERY.with_histogram(Vec::new()),
            abandoned: table::STATE_DROPS.with_counter(Vec::new()),
            drift: table::STATE_DRIFT.with_counter(Vec::new()),
            unreadable: table::STATES_UNREADABLE.with_counter(Vec::new()),
        }
    }

    /// A state was written that was set so long ago.
    pub(crate) fn written(&self, took: Duration) {
        self.written.record(took);
    }

    /// A state was not written, or may not have been, because of an error of this kind.
    pub(crate) fn not_written(&self, kind: &'static str) {
        (self.errors.iter())
            .filter(|(known, _)| *known == kind)
            .for_each(|(_, counter)| counter.increment(1));
    }

    /// Somebody read states, from memory or not.
    pub(crate) fn looked(&self, hit: bool) {
        match hit {
            true => self.hits.increment(1),
            false => self.misses.increment(1),
        }
    }

    /// The store answers again.
    pub(crate) fn reconnected(&self) {
        self.reconnects.increment(1);
    }

    /// A replay took so long.
    pub(crate) fn replayed(&self, took: Duration) {
        self.replays.record(took);
    }

    /// Where a subscriber records how long ago a change was written that it takes.
    pub(crate) fn deliveries(&self) -> Histogram {
        self.deliveries.clone()
    }

    /// A subscription was dropped with so many events that it had not told yet.
    pub(crate) fn abandoned(&self, events: usize) {
        self.abandoned.increment(events as u64);
    }

    /// The store shows a change that the history has not told.
    pub(crate) fn drifted(&self) {
        self.drift.increment(1);
    }

    /// A stored state cannot be read.
    pub(crate) fn unreadable(&self) {
        self.unreadable.increment(1);
    }
}
