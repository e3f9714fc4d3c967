//! The environment says where the traces of the command go.

#![cfg(feature = "otlp")]
// A failed assertion is how a test fails.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used)]

use std::time::Duration;

use fake_opentelemetry_collector::FakeCollectorServer;
use plimsoll::Plimsoll;

const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test(flavor = "multi_thread")]
async fn attempts_go_to_the_collector_that_the_environment_names() {
    let mut collector = FakeCollectorServer::start().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite:{}", folder.path().join("plimsoll.db").display());
    let engine = Plimsoll::open(&store).unwrap().engine("default").await;
    let tasks = engine.unwrap().tasks();
    let task = tasks.task("q", "k", "").unwrap().trace(TRACE);
    let id = tasks.submit(task).await.unwrap().id;

    let mut work = tokio::process::Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    work.args(["work", "--store", &store, "--queue", "q", "--until-empty"])
        .args(["--", "true"])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint())
        .env("TMPDIR", folder.path());
    assert!(work.status().await.unwrap().success());

    // It has ended: what it had to say is sent.
    let spans = collector.exported_spans(1, Duration::from_secs(20)).await;
    let [attempt] = &spans[..] else {
        panic!("one attempt: {spans:#?}");
    };
    assert_eq!(attempt.name, "process_job");
    assert!(attempt.attributes["job_id"].contains(&id.to_string()));
    assert!(TRACE.contains(&attempt.trace_id) && TRACE.contains(&attempt.parent_span_id));
}
