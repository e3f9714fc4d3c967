//! What a workload found.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::io::Written;

/// A setting of a workload: a number or a word.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(u64),
    /// A word.
    Word(String),
}

/// What a workload found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The workload.
    pub name: String,
    /// The store.
    pub store: String,
    /// What one operation is.
    pub operation: String,
    /// How many were done.
    pub operations: u64,
    /// How long all of them took.
    pub seconds: f64,
    /// How many a second.
    pub operations_per_second: f64,
    /// Half of the calls took at most this long, in microseconds.
    pub p50_us: u64,
    /// All but one in a hundred took at most this long.
    pub p99_us: u64,
    /// The slowest.
    pub max_us: u64,
    /// Bytes sent to disk for each operation.
    pub bytes_per_operation: f64,
    /// Transactions, each with an fsync, for each operation.
    pub fsyncs_per_operation: f64,
    /// How it was set up.
    pub settings: BTreeMap<String, Setting>,
}

/// How long calls took.
pub(crate) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(crate) fn new() -> Self {
        // Three digits from a microsecond to a minute are always a valid range.
        Self(Histogram::new_with_bounds(1, 60_000_000, 3).unwrap_or_else(|_| std::process::abort()))
    }

    pub(crate) fn record(&mut self, took: Duration) {
        self.0
            .saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// The figures of `operations` that took `took` and wrote `written`.
    pub(crate) fn figures(
        &self,
        name: &str,
        store: &str,
        operation: &str,
        operations: u64,
        took: Duration,
        written: Written,
    ) -> Figures {
        let each = |total: u64| total as f64 / operations.max(1) as f64;
        Figures {
            name: name.into(),
            store: store.into(),
            operation: operation.into(),
            operations,
            seconds: took.as_secs_f64(),
            operations_per_second: operations as f64 / took.as_secs_f64().max(1e-9),
            p50_us: self.0.value_at_quantile(0.5),
            p99_us: self.0.value_at_quantile(0.99),
            max_us: self.0.max(),
            bytes_per_operation: each(written.bytes),
            fsyncs_per_operation: each(written.syncs),
            settings: BTreeMap::new(),
        }
    }
}

impl Figures {
    pub(crate) fn with(mut self, name: &str, value: u64) -> Self {
        self.settings.insert(name.into(), Setting::Number(value));
        self
    }

    pub(crate) fn with_word(mut self, name: &str, value: &str) -> Self {
        self.settings
            .insert(name.into(), Setting::Word(value.into()));
        self
    }
}
