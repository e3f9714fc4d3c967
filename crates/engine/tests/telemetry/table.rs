//! The table of metrics, its names, and the page that shows it.

use std::collections::BTreeSet;

use metrics::Unit;
use metrics_util::debugging::DebuggingRecorder;
use plimsoll_engine::telemetry::{Kind, METRICS, describe, markdown};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/telemetry.md");
const UPDATE: &str = "PLIMSOLL_UPDATE_DOCS";
const BEGIN: &str = "<!-- metrics: begin -->\n";
const END: &str = "<!-- metrics: end -->\n";

/// Those that the document names; it gives no prefix.
const GIVEN: [&str; 7] = [
    "jobs_created_total",
    "jobs_completed_total",
    "job_duration_seconds",
    "jobs_in_progress",
    "queue_size",
    "workers_active",
    "worker_load",
];

#[test]
fn names_say_kind_and_unit_as_prometheus_wants_them() {
    let mut names = BTreeSet::new();
    for metric in METRICS {
        let name = metric.name;
        assert!(names.insert(name), "{name} is there twice");
        let given = GIVEN.contains(&name);
        assert_ne!(name.starts_with("plimsoll_"), given, "{name}");
        let total = name.ends_with("_total");
        assert_eq!(total, metric.kind == Kind::Counter, "{name}");
        let seconds = name.ends_with("_seconds");
        assert_eq!(seconds, metric.unit == Unit::Seconds, "{name}");
        if let Kind::Histogram(buckets) = metric.kind {
            assert!(buckets.is_sorted_by(|one, other| one < other), "{name}");
        }
        assert!(metric.help.ends_with('.'), "{name}");
    }
    assert!(GIVEN.iter().all(|name| names.contains(name)));
}

#[test]
fn every_metric_is_described() {
    let recorder = DebuggingRecorder::new();
    metrics::with_local_recorder(&recorder, || {
        describe();
        for metric in METRICS {
            match metric.kind {
                Kind::Counter => metrics::counter!(metric.name).increment(1),
                Kind::Gauge => metrics::gauge!(metric.name).set(1.0),
                Kind::Histogram(_) => metrics::histogram!(metric.name).record(1.0),
            }
        }
    });
    let recorded = recorder.snapshotter().snapshot().into_vec();
    assert_eq!(recorded.len(), METRICS.len());
    for (key, unit, help, _) in recorded {
        let metric = METRICS
            .iter()
            .find(|metric| metric.name == key.key().name());
        let metric = metric.unwrap();
        assert_eq!(unit, Some(metric.unit), "{}", metric.name);
        assert_eq!(help.as_deref(), Some(metric.help), "{}", metric.name);
    }
}

#[test]
fn the_page_shows_the_table() {
    let page = std::fs::read_to_string(FILE).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (shown, after) = rest.split_once(END).expect("where it ends");
    let table = format!("\n{}\n", markdown());
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(FILE, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
        return;
    }
    assert!(
        shown == table,
        "docs/telemetry.md is out of date; write its table anew with \
         {UPDATE}=1 cargo test -p plimsoll-engine --test telemetry table"
    );
}
