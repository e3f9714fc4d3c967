//! The spans of attempts and of their phases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::Name;
use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::{Context, Failure, State};
use tracing::info;

use crate::watched::Watched;

type Kept = Arc<Mutex<Option<Context>>>;

fn stage(name: &str) -> Name {
    Name::new(name).unwrap()
}

#[test]
fn an_attempt_is_a_span_that_says_what_was_done_and_how_it_ended() {
    let mut id = None;
    let watched = Watched::during(async || {
        let kit = Kit::new();
        let fail_once = async |context: Context| match context.attempt() {
            1 => Err(Failure::new("disk full")),
            _ => Ok(()),
        };
        let worker = kit
            .worker("w1")
            .queue("media")
            .handle("transcode", fail_once);
        let task = kit.tasks().task("media", "transcode", "").unwrap();
        id = Some(kit.tasks().submit(task).await.unwrap().id);
        kit.drain_all(worker).await;
    });
    let spans = watched.spans("process_job");
    assert_eq!(spans.len(), 2);
    for (span, attempt) in spans.iter().zip(["1", "2"]) {
        let field = |name: &str| span.fields.get(name).map(String::as_str);
        assert_eq!(field("job_id"), id.map(|id| id.to_string()).as_deref());
        assert_eq!(field("worker_id"), Some("w1"));
        assert_eq!(field("queue"), Some("media"));
        assert_eq!(field("kind"), Some("transcode"));
        assert_eq!(field("attempt"), Some(attempt));
        assert_eq!(field("fence"), Some(attempt));
        assert_eq!(field("otel.kind"), Some("consumer"));
        assert!(span.around.is_empty());
    }
    let [first, second] = &spans[..] else {
        panic!()
    };
    assert_eq!(first.fields["status"], "failed");
    assert_eq!(first.fields["error"], "disk full");
    assert_eq!(first.fields["otel.status_code"], "ERROR");
    assert_eq!(second.fields["status"], "completed");
    assert!(!second.fields.contains_key("error"));
    assert!(!second.fields.contains_key("otel.status_code"));
}

#[test]
fn a_phase_is_open_from_its_stage_to_the_next_and_all_events_are_inside() {
    let watched = Watched::during(async || {
        let kit = Kit::new();
        let work = async |context: Context| -> Result<(), Failure> {
            info!("begins");
            context.stage(stage("validating")).await?;
            info!("validates");
            context.engine().clock().sleep(Duration::from_secs(1)).await;
            info!("still validates");
            context.stage(stage("planning")).await?;
            info!("plans");
            let plan = async { info!("runs") };
            context.in_stage(stage("processing"), plan).await?;
            info!("ends");
            Ok(())
        };
        let worker = kit.worker("w1").queue("q").handle("k", work);
        kit.perform(worker, kit.tasks().task("q", "k", "").unwrap())
            .await;
    });
    let seen = watched.happened();
    let from = seen
        .iter()
        .position(|one| one == "open process_job")
        .unwrap();
    let to = seen
        .iter()
        .position(|one| one == "close process_job")
        .unwrap();
    let expected = [
        "open process_job",
        "begins in [process_job]",
        "open validating",
        "validates in [validating, process_job]",
        "still validates in [validating, process_job]",
        "open planning",
        "close validating",
        "plans in [planning, process_job]",
        "close planning",
        "open processing",
        "runs in [processing, process_job]",
        "close processing",
        "ends in [process_job]",
        "close process_job",
    ];
    assert_eq!(seen[from..=to], expected);
    for phase in watched.spans("phase") {
        assert_eq!(phase.around, ["process_job"]);
        assert_eq!(phase.fields["stage"], phase.fields["otel.name"]);
    }
}

#[test]
fn a_phase_ends_with_the_attempt_even_if_the_handler_keeps_its_context() {
    let kept = Kept::default();
    let watched = Watched::during(async || {
        let kit = Kit::new();
        let kept = kept.clone();
        let keep = async |context: Context, State(kept): State<Kept>| -> Result<(), Failure> {
            context.stage(stage("processing")).await?;
            *kept.lock().unwrap() = Some(context.clone());
            Ok(())
        };
        let worker = kit.worker("w1").queue("q").state(kept);
        let worker = worker.handle("k", keep);
        kit.perform(worker, kit.tasks().task("q", "k", "").unwrap())
            .await;
    });
    assert_eq!(watched.spans("phase").len(), 1);
    // Somebody holds the context, and with it the span of the attempt.
    assert!(kept.lock().unwrap().is_some());
}

#[test]
fn a_flood_of_failures_is_a_few_lines() {
    let watched = Watched::during(async || {
        let kit = Kit::new();
        let tasks = kit.tasks();
        let fatal = async || Err::<(), _>(Failure::fatal("no"));
        let many = (0..500).map(|_| tasks.task("q", "k", "").unwrap());
        tasks.submit_all(many).await;
        let summary = kit
            .drain(kit.worker("w1").queue("q").handle("k", fatal))
            .await;
        assert_eq!(summary.failed, 500);
    });
    let lines = watched.happened();
    let lines = lines
        .iter()
        .filter(|line| line.starts_with("an attempt failed"));
    assert_eq!(lines.count(), 10);
}
