//! Traces as a real collector receives them.

#![cfg(feature = "otlp")]

use std::time::Duration;

use fake_opentelemetry_collector::{ExportedSpan, FakeCollectorServer};
use plimsoll::telemetry::setup;
use plimsoll::worker::{Context, Failure};
use plimsoll::{Name, Plimsoll};
use tracing::Instrument;

async fn transcode(context: Context) -> Result<(), Failure> {
    let stage = |name: &str| Name::new(name);
    context.stage(stage("validating")?).await?;
    context.in_stage(stage("planning")?, async {}).await?;
    match context.attempt() {
        1 => Err(Failure::retry_after(Duration::ZERO, "disk full")),
        _ => Ok(()),
    }
}

/// The request that submits a task, and the task until it is completed.
async fn story() -> Result<String, plimsoll::Error> {
    let engine = Plimsoll::open("memory:")?.engine("traces").await?;
    let tasks = engine.tasks();
    let task = tasks.task("media", "transcode", "clip-7")?;
    let submit = tasks
        .submit(task)
        .instrument(tracing::info_span!("request"));
    let id = submit.await?.id;
    let worker = engine
        .worker("w1")
        .queue("media")
        .handle("transcode", transcode)
        .build()?;
    let stopper = worker.stopper();
    let watch = async {
        let ended = tasks.wait(id).await;
        stopper.drain();
        ended
    };
    let (summary, ended) = tokio::join!(worker.run(), watch);
    summary?;
    ended?;
    Ok(id.to_string())
}

fn named<'a>(spans: &'a [ExportedSpan], name: &str) -> Vec<&'a ExportedSpan> {
    let mut named: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
    named.sort_by_key(|span| span.start_time_unix_nano);
    named
}

fn attribute<'a>(span: &'a ExportedSpan, name: &str) -> &'a str {
    span.attributes.get(name).map_or("none", String::as_str)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_sees_attempts_and_phases_in_the_trace_of_the_submitter() {
    let mut collector = FakeCollectorServer::start().await.unwrap();
    let telemetry = setup("media-worker").traces_to(collector.endpoint());
    let telemetry = telemetry.install().unwrap();
    let id = story().await.unwrap();
    telemetry.shutdown().await.unwrap();
    // Nothing is on its way any more.
    let spans = collector.exported_spans(7, Duration::ZERO).await;

    let request = named(&spans, "request");
    let attempts = named(&spans, "process_job");
    let ([request], [first, second]) = (&request[..], &attempts[..]) else {
        panic!("one request and two attempts: {spans:#?}");
    };
    // The first attempt is a child, the second a trace of its own that is linked.
    assert_eq!(first.trace_id, request.trace_id);
    assert_eq!(first.parent_span_id, request.span_id);
    assert!(first.links.is_empty());
    assert_ne!(second.trace_id, request.trace_id);
    assert_eq!(second.parent_span_id, "");
    let [link] = &second.links[..] else {
        panic!("one link: {second:#?}");
    };
    assert_eq!(
        (&link.trace_id, &link.span_id),
        (&request.trace_id, &request.span_id)
    );

    for (attempt, number) in [(first, "1"), (second, "2")] {
        assert!(attribute(attempt, "job_id").contains(&id));
        assert!(attribute(attempt, "worker_id").contains("w1"));
        assert!(attribute(attempt, "queue").contains("media"));
        assert!(attribute(attempt, "kind").contains("transcode"));
        assert!(attribute(attempt, "attempt").contains(number));
        assert!(attribute(attempt, "fence").contains(number));
        assert_eq!(attempt.kind, "SPAN_KIND_CONSUMER");
        for phase in ["validating", "planning"] {
            let of_attempt = |span: &&&ExportedSpan| span.parent_span_id == attempt.span_id;
            let phases = named(&spans, phase);
            assert_eq!(phases.iter().filter(of_attempt).count(), 1, "{phase}");
        }
    }
    assert!(attribute(first, "status").contains("failed"));
    assert!(attribute(first, "error").contains("disk full"));
    let status = first.status.as_ref().unwrap();
    assert_eq!(
        (status.code.as_str(), status.message.as_str()),
        ("STATUS_CODE_ERROR", "disk full")
    );
    assert!(attribute(second, "status").contains("completed"));
    assert_ne!(second.status.as_ref().unwrap().code, "STATUS_CODE_ERROR");
    assert_eq!(spans.len(), 7);
}
