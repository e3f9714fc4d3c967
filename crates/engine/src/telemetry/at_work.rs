//! The metrics of a worker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram};
use plimsoll_core::Name;
use plimsoll_core::store::{Commit, Receipt, Write};
use plimsoll_core::task::Lane;

use super::handles::{Telemetry, label, lock};
use super::labels::OTHER;
use super::table;
use super::written::{Fact, fact};

/// What a worker records while it runs. When it is dropped, however that comes, its share of the
/// gauges is taken back.
#[derive(Debug)]
pub(crate) struct AtWork {
    telemetry: Arc<Telemetry>,
    load: Gauge,
    running: u32,
    /// Those of this worker, so that no lock is taken for a task.
    lanes: BTreeMap<Lane, OfLane>,
}

impl AtWork {
    pub(crate) fn new(telemetry: Arc<Telemetry>, worker: &Name) -> Self {
        let load = match telemetry.labels.worker_id {
            true => lock(&telemetry.loads).get(worker, |name| {
                let name = name.map_or(OTHER, Name::as_str);
                table::WORKER_LOAD.with_gauge(vec![label("worker_id", name)])
            }),
            false => table::WORKER_LOAD.with_gauge(Vec::new()),
        };
        Self {
            telemetry,
            load,
            running: 0,
            lanes: BTreeMap::new(),
        }
    }

    /// A handler begins with a task of this lane that was runnable for so long.
    pub(crate) fn started(&mut self, lane: &Lane, waited: Duration) {
        self.running += 1;
        self.telemetry.in_progress.increment(1.0);
        self.load.increment(1.0);
        self.of(lane).pickup.record(waited);
    }

    /// A handler has ended like this.
    pub(crate) fn ended(&mut self, lane: &Lane, how: AttemptEnd, took: Duration) {
        self.running = self.running.saturating_sub(1);
        self.telemetry.in_progress.decrement(1.0);
        self.load.decrement(1.0);
        let of_lane = self.of(lane);
        of_lane.attempts[how as usize].increment(1);
        of_lane.took.record(took);
    }

    /// The store has taken what a handler answered after this long.
    pub(crate) fn settled(&self, commit: &Commit, receipt: &Receipt, took: Option<Duration>) {
        self.telemetry.committed(commit, receipt);
        // Lines that were logged come first.
        let mut written = commit.writes.iter().zip(&receipt.outcomes);
        let end = written.find(|(write, _)| !matches!(write, Write::Log(_)));
        if let Some(took) = took
            && let Some((write, outcome)) = end
            && let Some(Fact::Ended { end, .. }) = fact(write, outcome)
        {
            self.telemetry.duration[end as usize].record(took);
        }
    }

    fn of(&mut self, lane: &Lane) -> &OfLane {
        if !self.lanes.contains_key(lane) {
            let handles = lock(&self.telemetry.lanes).get(lane, OfLane::new);
            self.lanes.insert(lane.clone(), handles);
        }
        &self.lanes[lane]
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let running = f64::from(self.running);
        self.telemetry.in_progress.decrement(running);
        self.load.decrement(running);
    }
}

/// How an attempt ended in its worker, whatever becomes of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttemptEnd {
    Completed,
    Failed,
    Panicked,
    Snoozed,
    Released,
    Cancelled,
    Cut,
}

impl AttemptEnd {
    const ALL: [Self; 7] = [
        Self::Completed,
        Self::Failed,
        Self::Panicked,
        Self::Snoozed,
        Self::Released,
        Self::Cancelled,
        Self::Cut,
    ];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::Snoozed => "snoozed",
            Self::Released => "released",
            Self::Cancelled => "cancelled",
            Self::Cut => "cut",
        }
    }
}

/// The metrics of a lane.
#[derive(Clone, Debug)]
pub(super) struct OfLane {
    pickup: Histogram,
    took: Histogram,
    attempts: [Counter; 7],
}

impl OfLane {
    fn new(lane: Option<&Lane>) -> Self {
        let (queue, kind) = lane.map_or((OTHER, OTHER), |lane| {
            (lane.queue.as_str(), lane.kind.as_str())
        });
        let labels = || vec![label("queue", queue), label("kind", kind)];
        Self {
            pickup: table::PICKUP.with_histogram(labels()),
            took: table::ATTEMPT.with_histogram(labels()),
            attempts: AttemptEnd::ALL.map(|how| {
                let mut labels = labels();
                labels.push(label("outcome", how.as_str()));
                table::ATTEMPTS.with_counter(labels)
            }),
        }
    }
}
