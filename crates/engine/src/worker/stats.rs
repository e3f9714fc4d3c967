//! What a worker has done so far.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plimsoll_core::task::Status;
use serde::Serialize;

/// Counts what a worker does, for others to look at while it runs.
#[derive(Clone, Debug, Default)]
pub struct Stats(Arc<Counters>);

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) running: AtomicU64,
    pub(super) started: AtomicU64,
    pub(super) completed: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) retried: AtomicU64,
    pub(super) cancelled: AtomicU64,
    pub(super) released: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) cut: AtomicU64,
    pub(super) interrupted: AtomicU64,
    pub(super) unsettled: AtomicU64,
}

/// What a worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Handlers that run now.
    pub running: u64,
    /// Handlers that were started.
    pub started: u64,
    /// Tasks completed.
    pub completed: u64,
    /// Tasks failed for good.
    pub failed: u64,
    /// Failed attempts, and snoozes, after which the task will run again.
    pub retried: u64,
    /// Tasks cancelled.
    pub cancelled: u64,
    /// Tasks given back.
    pub released: u64,
    /// Answers that the store refused, because the task was no longer this worker's.
    pub refused: u64,
    /// Tasks that were lost to others before their handlers had anything to say.
    pub lost: u64,
    /// Handlers that were dropped before they ended.
    pub cut: u64,
    /// Of these, dropped because the worker had to end.
    pub interrupted: u64,
    /// Answers that the store had not taken, and claims it had not answered, when the worker ended: it
    /// was away for too long.
    pub unsettled: u64,
}

impl Summary {
    /// Whether the worker ended without cutting anything off: what its exit code should say.
    ///
    /// ```
    /// use plimsoll_engine::worker::Summary;
    /// assert!(Summary::default().is_clean());
    /// assert!(!Summary { interrupted: 1, ..Summary::default() }.is_clean());
    /// ```
    pub fn is_clean(&self) -> bool {
        self.interrupted == 0 && self.unsettled == 0
    }
}

impl Stats {
    /// What was done so far.
    pub fn summary(&self) -> Summary {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Summary {
            running: read(&self.0.running),
            started: read(&self.0.started),
            completed: read(&self.0.completed),
            failed: read(&self.0.failed),
            retried: read(&self.0.retried),
            cancelled: read(&self.0.cancelled),
            released: read(&self.0.released),
            refused: read(&self.0.refused),
            lost: read(&self.0.lost),
            cut: read(&self.0.cut),
            interrupted: read(&self.0.interrupted),
            unsettled: read(&self.0.unsettled),
        }
    }

    /// What was done when the worker ended without a word.
    pub(super) fn cut_off(&self) -> Summary {
        let summary = self.summary();
        Summary {
            interrupted: summary.interrupted + summary.running,
            unsettled: summary.unsettled + summary.running.max(1),
            ..summary
        }
    }

    pub(super) fn count(&self, counter: impl Fn(&Counters) -> &AtomicU64) {
        counter(&self.0).fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn running(&self, now: usize) {
        self.0.running.store(now as u64, Ordering::Relaxed);
    }

    /// Counts what a settle came to.
    pub(super) fn settled(&self, status: Status, released: bool) {
        self.count(|counters| match status {
            Status::Completed => &counters.completed,
            Status::Failed => &counters.failed,
            Status::Cancelled => &counters.cancelled,
            Status::Pending | Status::Scheduled if released => &counters.released,
            Status::Pending | Status::Scheduled | Status::Claimed => &counters.retried,
        });
    }
}
