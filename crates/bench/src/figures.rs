//! What a workload found.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use plimsoll::store::{Capabilities, Durability};
use serde::Serialize;

use crate::Workload;
use crate::io::{self, Written};

/// A setting of a workload: a number or a word.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// A number.
    Number(u64),
    /// A word.
    Word(String),
}

impl From<u64> for Setting {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for Setting {
    fn from(word: &str) -> Self {
        Self::Word(word.into())
    }
}

/// What a workload found. What the system does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// The workload.
    pub name: String,
    /// What it does, in a few words.
    pub about: &'static str,
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
    /// What the latencies are of.
    pub latency_of: String,
    /// Half of these took at most this long, in microseconds.
    pub p50_us: u64,
    /// All but one in a hundred took at most this long.
    pub p99_us: u64,
    /// The slowest.
    pub max_us: u64,
    /// Bytes sent to disk for each operation.
    pub bytes_per_operation: Option<f64>,
    /// Fsyncs that callers waited for, for each operation: a transaction has one if the store
    /// promises the disk, and none otherwise. Those of moving a log into its file are not counted.
    pub fsyncs_per_operation: Option<f64>,
    /// The most memory the process had at once while the workload ran.
    pub peak_rss_bytes: Option<u64>,
    /// How many of what was done.
    pub counts: BTreeMap<&'static str, u64>,
    /// How it was set up.
    pub settings: BTreeMap<&'static str, Setting>,
    /// For what is measured beside more and more: against the same beside the fewest. See
    /// [`Figures::compare`].
    pub to_smallest: Option<Ratio>,
    /// For what is measured in turns with the same callers undisturbed: operations a second as a
    /// multiple of theirs.
    pub to_alone: Option<f64>,
}

/// Latencies as a multiple of others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    /// Of the p50.
    pub p50: f64,
    /// Of the p99.
    pub p99: f64,
}

/// What a workload measured.
pub(crate) struct Measured {
    pub(crate) operation: &'static str,
    pub(crate) operations: u64,
    pub(crate) took: Duration,
    pub(crate) written: Written,
    pub(crate) latency_of: &'static str,
    pub(crate) latencies: Latencies,
    pub(crate) counts: BTreeMap<&'static str, u64>,
    pub(crate) settings: BTreeMap<&'static str, Setting>,
    /// How many operations a second the same callers did undisturbed.
    pub(crate) alone: Option<f64>,
}

impl Figures {
    pub(crate) fn new(workload: &Workload, store: Capabilities, measured: Measured) -> Self {
        let each = |total: u64| total as f64 / measured.operations.max(1) as f64;
        let mut settings = measured.settings;
        settings.insert("durability", word(store.durability).into());
        // No store can do without.
        settings.insert("history", "kept".into());
        // What a server writes is not seen from here.
        let written = match store.store.as_ref() {
            "memory" | "sqlite" => measured.written,
            _ => Written::UNKNOWN,
        };
        let rate = measured.operations as f64 / measured.took.as_secs_f64().max(1e-9);
        Self {
            name: workload.name.clone(),
            about: workload.about,
            store: store.store,
            operation: measured.operation.into(),
            operations: measured.operations,
            seconds: measured.took.as_secs_f64(),
            operations_per_second: rate,
            latency_of: measured.latency_of.into(),
            p50_us: measured.latencies.at(0.5),
            p99_us: measured.latencies.at(0.99),
            max_us: measured.latencies.0.max(),
            bytes_per_operation: written.bytes.map(each),
            fsyncs_per_operation: written.fsyncs(store.durability).map(each),
            peak_rss_bytes: io::peak_rss(),
            counts: measured.counts,
            settings,
            to_smallest: None,
            to_alone: measured.alone.map(|alone| rate / alone.max(1e-9)),
        }
    }

    /// A setting that is a number.
    pub fn number(&self, setting: &str) -> Option<u64> {
        match self.settings.get(setting)? {
            Setting::Number(number) => Some(*number),
            Setting::Word(_) => None,
        }
    }

    /// A setting that is a word.
    pub fn word(&self, setting: &str) -> Option<&str> {
        match self.settings.get(setting)? {
            Setting::Number(_) => None,
            Setting::Word(word) => Some(word),
        }
    }

    /// Sets what stands beside many in relation to the same beside the fewest, of those that were
    /// found `before` it and itself.
    pub fn compare(&mut self, before: &[Figures]) {
        let besides = |figures: &Figures| {
            let mut settings = figures.settings.clone();
            settings.remove("depth");
            settings
        };
        let same = |other: &&Figures| {
            other.number("depth").is_some()
                && (&other.operation, &other.latency_of) == (&self.operation, &self.latency_of)
                && besides(other) == besides(self)
        };
        if self.number("depth").is_none() {
            return;
        }
        let all = before.iter().filter(same).chain([&*self]);
        let smallest = all.min_by_key(|figures| figures.number("depth"));
        self.to_smallest = smallest.map(|smallest| Ratio {
            p50: self.p50_us as f64 / smallest.p50_us.max(1) as f64,
            p99: self.p99_us as f64 / smallest.p99_us.max(1) as f64,
        });
    }
}

fn word(durability: Durability) -> &'static str {
    match durability {
        Durability::Process => "process",
        Durability::System => "system",
        Durability::Disk => "disk",
        Durability::Majority => "majority",
    }
}

/// How long calls took.
#[derive(Debug)]
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

    pub(crate) fn of_all(all: &[Self]) -> Self {
        let mut merged = Self::new();
        all.iter().for_each(|each| merged.merge(each));
        merged
    }

    /// This part of them took at most so many microseconds.
    pub(crate) fn at(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }
}
