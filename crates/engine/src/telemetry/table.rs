//! The one table of all metrics. What is not in here is not recorded.

use metrics::{Counter, Gauge, Histogram, Label, Unit};

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// How many observations are at most as large as each of these.
    Histogram(&'static [f64]),
}

impl Kind {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// What it is, with the buckets of a histogram.
    pub kind: Kind,
    /// What it counts.
    pub unit: Unit,
    /// What its labels are. One with a `?` is there only if [`Labels`](super::Labels) asks for it.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

impl Metric {
    const fn counter(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            kind: Kind::Counter,
            unit: Unit::Count,
            labels,
            help,
        }
    }

    const fn gauge(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            kind: Kind::Gauge,
            ..Self::counter(name, labels, help)
        }
    }

    const fn seconds(
        name: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        Self {
            kind: Kind::Histogram(buckets),
            unit: Unit::Seconds,
            ..Self::counter(name, labels, help)
        }
    }

    const fn sizes(
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            kind: Kind::Histogram(&SIZES),
            ..Self::counter(name, labels, help)
        }
    }

    pub(super) fn with_counter(self, labels: Vec<Label>) -> Counter {
        metrics::counter!(self.name, labels)
    }

    pub(super) fn with_gauge(self, labels: Vec<Label>) -> Gauge {
        metrics::gauge!(self.name, labels)
    }

    pub(super) fn with_histogram(self, labels: Vec<Label>) -> Histogram {
        metrics::histogram!(self.name, labels)
    }
}

/// From one second to more than eight minutes, each twice the one before.
const JOB: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0];
/// From half a millisecond to minutes: waits and attempts.
const WAITS: [f64; 12] = [
    0.0005, 0.002, 0.005, 0.02, 0.05, 0.2, 0.5, 2.0, 5.0, 20.0, 60.0, 300.0,
];
/// From a tenth of a millisecond to seconds: calls of a store.
const CALLS: [f64; 12] = [
    0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0,
];
/// How many of something go together.
const SIZES: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];

const LANE: &[&str] = &["queue", "kind"];

pub(super) const JOBS_CREATED: Metric = Metric::counter(
    "jobs_created_total",
    &["user_id?"],
    "Tasks that were submitted and are new; user_id is their owner.",
);
pub(super) const JOBS_COMPLETED: Metric = Metric::counter(
    "jobs_completed_total",
    &["status"],
    "Tasks that ended: completed, failed or cancelled.",
);
pub(super) const JOB_DURATION: Metric = Metric::seconds(
    "job_duration_seconds",
    &["status"],
    &JOB,
    "How long the last attempt of a task took that ended with it.",
);
pub(super) const JOBS_IN_PROGRESS: Metric = Metric::gauge(
    "jobs_in_progress",
    &[],
    "Handlers that run now in this process.",
);
pub(super) const QUEUE_SIZE: Metric = Metric::gauge(
    "queue_size",
    &["namespace", "queue"],
    "Tasks of a queue that are runnable, as last sampled.",
);
pub(super) const WORKERS_ACTIVE: Metric = Metric::gauge(
    "workers_active",
    &["namespace"],
    "Workers that take tasks, in all processes, as the registry said when it was last sampled.",
);
pub(super) const WORKER_LOAD: Metric = Metric::gauge(
    "worker_load",
    &["worker_id?"],
    "Handlers that run now, by worker if asked for; worker_id is the name of a worker.",
);
pub(super) const PICKUP: Metric = Metric::seconds(
    "plimsoll_pickup_seconds",
    LANE,
    &WAITS,
    "How long tasks were runnable before their handler began.",
);
pub(super) const ATTEMPTS: Metric = Metric::counter(
    "plimsoll_attempts_total",
    &["queue", "kind", "outcome"],
    "Attempts that ended: completed, failed, panicked, snoozed, released, cancelled or cut.",
);
pub(super) const ATTEMPT: Metric = Metric::seconds(
    "plimsoll_attempt_seconds",
    LANE,
    &WAITS,
    "How long attempts took, whatever came of them.",
);
pub(super) const RETRIES: Metric = Metric::counter(
    "plimsoll_retries_total",
    &[],
    "Attempts that failed or ran out after which the task runs again.",
);
pub(super) const LEASE_EXPIRIES: Metric = Metric::counter(
    "plimsoll_lease_expiries_total",
    &[],
    "Attempts that were ended because their lease or deadline ran out.",
);
pub(super) const RENEWALS: Metric = Metric::counter(
    "plimsoll_renewals_total",
    &["outcome"],
    "Renewals of leases: held, cancel_requested, lost, or unanswered by the store.",
);
pub(super) const TROUBLES: Metric = Metric::counter(
    "plimsoll_worker_troubles_total",
    &[],
    "Calls of workers that the store did not answer as it should.",
);
pub(super) const SWEEPS: Metric = Metric::counter(
    "plimsoll_sweeps_total",
    &["outcome"],
    "Passes of the sweeper: ok or error.",
);
pub(super) const SWEPT: Metric = Metric::counter(
    "plimsoll_swept_total",
    &["what"],
    "What the sweeper decided: promoted, expired, record, group, a worker that is offline, or error.",
);
pub(super) const COMPACTED: Metric = Metric::counter(
    "plimsoll_compacted_total",
    &["what"],
    "What was removed because it was kept long enough: task, group, entry, line, job; and state, of a job that was deleted.",
);
pub(super) const LOG_LINES: Metric = Metric::counter(
    "plimsoll_log_lines_total",
    &["level"],
    "Lines that were appended to logs of tasks.",
);
pub(super) const LOCKS_ACQUIRED: Metric = Metric::counter(
    "plimsoll_locks_acquired_total",
    &[],
    "Locks that were acquired, those of leaders among them.",
);
pub(super) const LOCK_WAIT: Metric = Metric::seconds(
    "plimsoll_lock_wait_seconds",
    &[],
    &WAITS,
    "How long it took from asking for a lock to having it, for those that were acquired.",
);
pub(super) const LOCKS_LOST: Metric = Metric::counter(
    "plimsoll_locks_lost_total",
    &[],
    "Locks that their holder lost before it released them.",
);
pub(super) const LOCKS_HANDED_OVER: Metric = Metric::counter(
    "plimsoll_locks_handed_over_total",
    &[],
    "Locks that were released to the first in line.",
);
pub(super) const HEARTBEATS: Metric = Metric::counter(
    "plimsoll_heartbeats_total",
    &["outcome"],
    "Signs of life of workers for the registry: ok, error, or unanswered by the store.",
);
pub(super) const ARCHIVED: Metric = Metric::counter(
    "plimsoll_archived_total",
    &["outcome"],
    "Tasks that were due for the archive: moved, or left because they could not be.",
);
pub(super) const STATE_WRITE: Metric = Metric::seconds(
    "plimsoll_state_write_duration_seconds",
    &[],
    &CALLS,
    "How long it took from setting a state of a job until it was written.",
);
pub(super) const STATE_WRITE_ERRORS: Metric = Metric::counter(
    "plimsoll_state_write_errors_total",
    &["kind"],
    "States of jobs that were not written, or may not have been, by the kind of the error.",
);
pub(super) const STATE_CACHE_HITS: Metric = Metric::counter(
    "plimsoll_state_cache_hits_total",
    &[],
    "Reads of job states that were answered from memory at once.",
);
pub(super) const STATE_CACHE_MISSES: Metric = Metric::counter(
    "plimsoll_state_cache_misses_total",
    &[],
    "Reads of job states that had to wait until these were loaded.",
);
pub(super) const STATE_RECONNECTS: Metric = Metric::counter(
    "plimsoll_state_listener_reconnects_total",
    &[],
    "Times that the history of a job could be read again after it could not be.",
);
pub(super) const STATE_REPLAY: Metric = Metric::seconds(
    "plimsoll_state_replay_duration_seconds",
    &[],
    &WAITS,
    "How long it took from subscribing to job states until a subscriber had taken all there were.",
);
pub(super) const STATE_DELIVERY: Metric = Metric::seconds(
    "plimsoll_state_delivery_latency_seconds",
    &[],
    &WAITS,
    "How long it took from when a job state was written until a subscriber took it, by its clock: the oldest of those that it took at once.",
);
pub(super) const STATE_DROPS: Metric = Metric::counter(
    "plimsoll_state_subscription_drops_total",
    &[],
    "Events that were ready for a subscriber of job states when it went away.",
);
pub(super) const STATE_DRIFT: Metric = Metric::counter(
    "plimsoll_state_version_drift_total",
    &[],
    "Changes of job states that the store shows and its history has not told; there should be none.",
);
pub(super) const STATES_UNREADABLE: Metric = Metric::counter(
    "plimsoll_states_unreadable_total",
    &[],
    "Stored job states that were met and cannot be read.",
);
pub(super) const SWEEPERS_LEADING: Metric = Metric::gauge(
    "plimsoll_sweepers_leading",
    &["namespace"],
    "Sweepers of this process that lead; of all processes, one should.",
);
pub(super) const OLDEST_RUNNABLE: Metric = Metric {
    unit: Unit::Seconds,
    ..Metric::gauge(
        "plimsoll_oldest_runnable_seconds",
        &["namespace", "queue"],
        "How long a runnable task of a queue has waited at least, as last sampled.",
    )
};
pub(super) const SAMPLES: Metric = Metric::counter(
    "plimsoll_samples_total",
    &["outcome"],
    "Looks at the store for gauges: ok or error.",
);

const STORE_CALLS: Metric = Metric::counter(
    "plimsoll_store_calls_total",
    &["store", "method", "outcome"],
    "Calls of an observed store; outcome is ok or the kind of the error.",
);
const STORE_CALL: Metric = Metric::seconds(
    "plimsoll_store_call_seconds",
    &["store", "method"],
    &CALLS,
    "How long calls of an observed store took.",
);
const STORE_COMMITS: Metric = Metric::counter(
    "plimsoll_store_commits_total",
    &["store", "outcome"],
    "Commits in these calls.",
);
const ENGINE_GROUP_CALLS: Metric = Metric::sizes(
    "plimsoll_engine_group_calls",
    &["method"],
    "Callers of the engine's group commit that shared a store call.",
);
const GROUP_COMMITS: Metric = Metric::counter(
    "plimsoll_group_commits_total",
    &[],
    "Transactions of the SQLite writer.",
);
const GROUP_COMMIT_CALLS: Metric = Metric::sizes(
    "plimsoll_group_commit_calls",
    &[],
    "Calls that shared one of these transactions.",
);

/// Every metric that Plimsoll records.
///
/// ```
/// use plimsoll_engine::telemetry::{Kind, METRICS};
/// let duration = METRICS.iter().find(|metric| metric.name == "job_duration_seconds").unwrap();
/// assert!(matches!(duration.kind, Kind::Histogram([1.0, 2.0, .., 512.0])));
/// ```
pub const METRICS: &[Metric] = &[
    JOBS_CREATED,
    JOBS_COMPLETED,
    JOB_DURATION,
    JOBS_IN_PROGRESS,
    QUEUE_SIZE,
    WORKERS_ACTIVE,
    WORKER_LOAD,
    PICKUP,
    ATTEMPTS,
    ATTEMPT,
    RETRIES,
    LEASE_EXPIRIES,
    RENEWALS,
    TROUBLES,
    SWEEPS,
    SWEPT,
    COMPACTED,
    LOG_LINES,
    LOCKS_ACQUIRED,
    LOCK_WAIT,
    LOCKS_LOST,
    LOCKS_HANDED_OVER,
    HEARTBEATS,
    ARCHIVED,
    STATE_WRITE,
    STATE_WRITE_ERRORS,
    STATE_CACHE_HITS,
    STATE_CACHE_MISSES,
    STATE_RECONNECTS,
    STATE_REPLAY,
    STATE_DELIVERY,
    STATE_DROPS,
    STATE_DRIFT,
    STATES_UNREADABLE,
    SWEEPERS_LEADING,
    OLDEST_RUNNABLE,
    SAMPLES,
    STORE_CALLS,
    STORE_CALL,
    STORE_COMMITS,
    ENGINE_GROUP_CALLS,
    GROUP_COMMITS,
    GROUP_COMMIT_CALLS,
];

/// Tells the recorder of this process what every metric means.
pub fn describe() {
    for metric in METRICS {
        match metric.kind {
            Kind::Counter => metrics::describe_counter!(metric.name, metric.unit, metric.help),
            Kind::Gauge => metrics::describe_gauge!(metric.name, metric.unit, metric.help),
            Kind::Histogram(_) => {
                metrics::describe_histogram!(metric.name, metric.unit, metric.help);
            }
        }
    }
}
