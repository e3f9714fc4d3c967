//! What this process has written: bytes as the operating system counts them, transactions as the
//! store counts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// The counter that a store moves for each transaction it makes durable.
const GROUPS: &str = "plimsoll_group_commits_total";

static SYNCS: std::sync::LazyLock<Arc<AtomicU64>> = std::sync::LazyLock::new(Arc::default);

/// Bytes that were sent to disk and transactions that were made durable, since the process began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Written {
    pub(crate) bytes: u64,
    pub(crate) syncs: u64,
}

impl Written {
    /// As of now. Where the system does not tell, bytes are zero.
    pub(crate) fn now() -> Self {
        let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("write_bytes:"));
        Self {
            bytes: line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0),
            syncs: SYNCS.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            syncs: self.syncs.saturating_sub(earlier.syncs),
        }
    }
}

/// Counts the transactions of all stores of this process from now on. Once is enough.
pub fn count_transactions() {
    // A second recorder is refused; the first one goes on counting.
    metrics::set_global_recorder(Transactions).ok();
}

/// Listens to one counter.
struct Transactions;

impl Recorder for Transactions {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == GROUPS {
            Counter::from_arc(SYNCS.clone())
        } else {
            Counter::noop()
        }
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
