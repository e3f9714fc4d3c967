//! The metrics of an engine, registered once and then at hand.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use metrics::{Counter, Gauge, Histogram, Label};
use plimsoll_core::Name;
use plimsoll_core::log::Level;
use plimsoll_core::store::{Commit, Compacted, Outcome, Receipt, Swept, Write};
use plimsoll_core::task::Lane;

use super::at_work::OfLane;
use super::coordination::{OfLocks, OfRecords};
use super::labels::{Labels, OTHER, Told};
use super::propagation::{self, Propagation};
use super::states::OfStates;
use super::table::{self, Metric};
use super::written::{End, Fact, fact};

/// What became of a lease that was to be renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renewed {
    Held,
    CancelRequested,
    Lost,
    Unanswered,
}

/// The metrics of an engine.
#[derive(Debug)]
pub(crate) struct Telemetry {
    pub(super) labels: Labels,
    propagation: Option<Arc<dyn Propagation>>,
    created: Counter,
    owners: Mutex<Told<Name, Counter>>,
    completed: [Counter; 3],
    pub(super) duration: [Histogram; 3],
    retries: Counter,
    expiries: Counter,
    renewals: [Counter; 4],
    pub(crate) troubles: Counter,
    sweeps: [Counter; 2],
    swept: [Counter; 6],
    compacted: [Counter; 6],
    lines: [Counter; 4],
    pub(crate) locks: OfLocks,
    pub(crate) records: OfRecords,
    pub(crate) states: OfStates,
    pub(super) in_progress: Gauge,
    pub(super) loads: Mutex<Told<Name, Gauge>>,
    pub(super) lanes: Mutex<Told<Lane, OfLane>>,
}

impl Telemetry {
    pub(crate) fn new(labels: Labels, propagation: Option<Arc<dyn Propagation>>) -> Self {
        let max = labels.distinct_max;
        Self {
            labels,
            propagation,
            created: match labels.user_id {
                true => Counter::noop(),
                false => table::JOBS_CREATED.with_counter(Vec::new()),
            },
            owners: Mutex::new(Told::new(max)),
            completed: End::ALL.map(|end| counter(table::JOBS_COMPLETED, "status", end.as_str())),
            duration: End::ALL
                .map(|end| table::JOB_DURATION.with_histogram(vec![label("status", end.as_str())])),
            retries: table::RETRIES.with_counter(Vec::new()),
            expiries: table::LEASE_EXPIRIES.with_counter(Vec::new()),
            renewals: counters(
                table::RENEWALS,
                "outcome",
                ["held", "cancel_requested", "lost", "unanswered"],
            ),
            troubles: table::TROUBLES.with_counter(Vec::new()),
            sweeps: counters(table::SWEEPS, "outcome", ["ok", "error"]),
            swept: counters(
                table::SWEPT,
                "what",
                ["promoted", "expired", "record", "group", "error", "offline"],
            ),
            compacted: counters(
                table::COMPACTED,
                "what",
                ["task", "group", "entry", "line", "job", "state"],
            ),
            lines: counters(
                table::LOG_LINES,
                "level",
                ["debug", "info", "warn", "error"],
            ),
            locks: OfLocks::new(),
            records: OfRecords::new(),
            states: OfStates::new(),
            in_progress: table::JOBS_IN_PROGRESS.with_gauge(Vec::new()),
            loads: Mutex::new(Told::new(max)),
            lanes: Mutex::new(Told::new(max)),
        }
    }

    pub(crate) fn with_labels(&self, labels: Labels) -> Self {
        Self::new(labels, self.propagation.clone())
    }

    pub(crate) fn with_propagation(&self, propagation: Arc<dyn Propagation>) -> Self {
        Self::new(self.labels, Some(propagation))
    }

    pub(crate) fn labels(&self) -> Labels {
        self.labels
    }

    /// What carries traces over: its own, or that of the process.
    pub(crate) fn propagation(&self) -> Option<&dyn Propagation> {
        match &self.propagation {
            Some(own) => Some(own.as_ref()),
            None => propagation::installed(),
        }
    }

    /// Gives the current trace to the tasks that these writes submit, unless they have one.
    pub(crate) fn carry(&self, writes: &mut [Write]) {
        if let Some(propagation) = self.propagation()
            && propagation::wants_trace(writes)
            && let Some(trace) = propagation.current()
        {
            propagation::stamp(writes, &trace);
        }
    }

    /// The store has taken a commit.
    pub(crate) fn committed(&self, commit: &Commit, receipt: &Receipt) {
        for (write, outcome) in commit.writes.iter().zip(&receipt.outcomes) {
            self.wrote(write, outcome);
        }
    }

    /// The store has taken a write.
    pub(crate) fn wrote(&self, write: &Write, outcome: &Outcome) {
        if let Some(fact) = fact(write, outcome) {
            self.count(&fact);
        }
    }

    fn count(&self, fact: &Fact<'_>) {
        match fact {
            Fact::Created(owner) => self.created_for(*owner),
            Fact::Ended { end, expired } => {
                self.completed[*end as usize].increment(1);
                self.expiries.increment(u64::from(*expired));
            }
            Fact::Retried { expired } => {
                self.retries.increment(1);
                self.expiries.increment(u64::from(*expired));
            }
            Fact::Logged(lines) => {
                for line in *lines {
                    self.lines[level(line.level)].increment(1);
                }
            }
        }
    }

    fn created_for(&self, owner: Option<&Name>) {
        if !self.labels.user_id {
            return self.created.increment(1);
        }
        let by_owner =
            |owner: &str| table::JOBS_CREATED.with_counter(vec![label("user_id", owner)]);
        match owner {
            Some(owner) => lock(&self.owners)
                .get(owner, |name| by_owner(name.map_or(OTHER, Name::as_str)))
                .increment(1),
            None => by_owner("").increment(1),
        }
    }

    pub(crate) fn renewed(&self, what: Renewed, count: usize) {
        self.renewals[what as usize].increment(count as u64);
    }

    /// A sweep was answered; `None`: it failed as a whole.
    pub(crate) fn swept(&self, swept: Option<&Swept>) {
        let [ok, error] = &self.sweeps;
        let Some(swept) = swept else {
            return error.increment(1);
        };
        ok.increment(1);
        let errors = swept.errors.len() as u64;
        let counts = [
            swept.promoted,
            swept.expired,
            swept.records,
            swept.groups,
            errors,
        ];
        for (counter, count) in self.swept.iter().zip(counts) {
            counter.increment(count);
        }
        self.expiries.increment(swept.expired);
        let ended = swept.failed + swept.cancelled;
        self.retries.increment(swept.expired.saturating_sub(ended));
        self.completed[End::Failed as usize].increment(swept.failed);
        self.completed[End::Cancelled as usize].increment(swept.cancelled);
    }

    /// So many workers were marked as offline.
    pub(crate) fn marked_offline(&self, count: u64) {
        let [.., offline] = &self.swept;
        offline.increment(count);
    }

    pub(crate) fn compacted(&self, compacted: &Compacted) {
        let counts = [
            compacted.tasks,
            compacted.groups,
            compacted.entries,
            compacted.lines,
        ];
        for (counter, count) in self.compacted.iter().zip(counts) {
            counter.increment(count);
        }
    }

    /// A job is deleted because it is over.
    pub(crate) fn retired(&self) {
        let [.., jobs, _] = &self.compacted;
        jobs.increment(1);
    }

    /// States of deleted jobs are removed.
    pub(crate) fn states_removed(&self, count: u64) {
        let [.., states] = &self.compacted;
        states.increment(count);
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn level(level: Level) -> usize {
    match level {
        Level::Debug => 0,
        Level::Info => 1,
        Level::Warn => 2,
        Level::Error => 3,
    }
}

pub(super) fn label(name: &'static str, value: &str) -> Label {
    Label::new(name, value.to_owned())
}

fn counter(metric: Metric, name: &'static str, value: &'static str) -> Counter {
    metric.with_counter(vec![Label::from_static_parts(name, value)])
}

pub(super) fn counters<const N: usize>(
    metric: Metric,
    name: &'static str,
    values: [&'static str; N],
) -> [Counter; N] {
    values.map(|value| counter(metric, name, value))
}
