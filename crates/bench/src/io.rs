//! What this process has written and how much memory it took, as the operating system counts it;
//! and how often it waited for the disk, as the store counts it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use plimsoll::store::Durability;

/// The counter that a store moves for each transaction it commits.
const TRANSACTIONS: &str = "plimsoll_group_commits_total";

/// Transactions of all stores of this process, from the first look on. Nobody counts them when the
/// process has a recorder of its own.
static COUNTED: LazyLock<Option<Arc<AtomicU64>>> = LazyLock::new(|| {
    let count = Arc::new(AtomicU64::new(0));
    let recorder = Transactions(count.clone());
    metrics::set_global_recorder(recorder).ok().map(|()| count)
});

/// Bytes that were sent to disk and transactions that were committed. `None` is what nobody tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: Option<u64>,
    transactions: Option<u64>,
}

impl Written {
    pub(crate) const NOTHING: Self = Self {
        bytes: Some(0),
        transactions: Some(0),
    };

    pub(crate) const UNKNOWN: Self = Self {
        bytes: None,
        transactions: None,
    };

    /// Since the process began.
    pub(crate) fn now() -> Self {
        let counted = COUNTED.as_ref();
        Self {
            bytes: number_in("/proc/self/io", "write_bytes:"),
            transactions: counted.map(|count| count.load(Ordering::Relaxed)),
        }
    }

    pub(crate) fn since(self, earlier: Self) -> Self {
        self.with(earlier, u64::saturating_sub)
    }

    pub(crate) fn and(self, more: Self) -> Self {
        self.with(more, u64::saturating_add)
    }

    fn with(self, other: Self, operation: fn(u64, u64) -> u64) -> Self {
        let both = |a: Option<u64>, b: Option<u64>| Some(operation(a?, b?));
        Self {
            bytes: both(self.bytes, other.bytes),
            transactions: both(self.transactions, other.transactions),
        }
    }

    /// How many fsyncs callers waited for: one for each transaction if the store promises the disk,
    /// none if it does not.
    pub(crate) fn fsyncs(self, durability: Durability) -> Option<u64> {
        match durability {
            Durability::Process | Durability::System => Some(0),
            Durability::Disk | Durability::Majority => self.transactions,
        }
    }
}

/// Lets [`peak_rss`] begin anew, where the system allows it.
pub(crate) fn forget_peak_rss() {
    // "5" sets the peak to what is in use now. Where it fails, the peak is that of the process.
    std::fs::write("/proc/self/clear_refs", "5").ok();
}

/// The most memory that this process had at once, in bytes.
pub(crate) fn peak_rss() -> Option<u64> {
    number_in("/proc/self/status", "VmHWM:").map(|kib| kib * 1024)
}

/// The number that follows `name` at the beginning of a line.
fn number_in(file: &str, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Listens to one counter.
struct Transactions(Arc<AtomicU64>);

impl Recorder for Transactions {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        if key.name() == TRANSACTIONS {
            Counter::from_arc(self.0.clone())
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
