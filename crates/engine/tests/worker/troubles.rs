//! A store that is away, as metrics tell it.

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use plimsoll_core::decorate::Method;

use crate::setup::{Bench, LEASE, secs, start};

/// The counter with this name and, if there is one, this value of its label.
fn count(snapshotter: &Snapshotter, name: &str, label: Option<&str>) -> u64 {
    let rows = snapshotter.snapshot().into_vec();
    let found = rows.into_iter().find_map(|(key, .., value)| {
        let labels: Vec<&str> = key.key().labels().map(metrics::Label::value).collect();
        (key.key().name() == name && labels.first().copied() == label).then_some(value)
    });
    match found {
        Some(DebugValue::Counter(count)) => count,
        other => panic!("{name} is {other:?}"),
    }
}

#[tokio::test]
async fn calls_without_an_answer_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _local = metrics::set_default_local_recorder(&recorder);
    let bench = Bench::new();
    bench.submit("k", "").await;
    let _worker = start(bench.worker().handle("k", std::future::pending::<()>));
    bench.pass(secs(1)).await;
    assert_eq!(
        count(&snapshotter, "plimsoll_worker_troubles_total", None),
        0
    );
    bench.away(&[Method::Exchange, Method::Renew]);
    bench.pass(LEASE / 2).await;
    assert!(count(&snapshotter, "plimsoll_worker_troubles_total", None) > 0);
    bench.pass(LEASE / 2).await;
    let unanswered = count(&snapshotter, "plimsoll_renewals_total", Some("unanswered"));
    assert!(unanswered > 0);
}
