//! Traces go with tasks from who submits to who runs.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_engine::records::Swap;
use plimsoll_engine::telemetry::Propagation;
use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::{Completion, Context, Failure};
use tracing::{Instrument, Span};

use crate::watched::Watched;

/// Its traces are the names of spans.
#[derive(Clone, Debug, Default)]
struct Names(Arc<Mutex<Vec<String>>>);

impl Names {
    fn note(&self, what: &str, span: &Span, trace: &str) {
        let span = span.metadata().map_or("none", |span| span.name());
        let note = format!("{span} {what} {trace}");
        self.0.lock().unwrap().push(note);
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Propagation for Names {
    fn current(&self) -> Option<String> {
        let span = Span::current();
        span.metadata().map(|span| span.name().to_owned())
    }

    fn continue_as_child(&self, span: &Span, trace: &str) {
        self.note("is a child of", span, trace);
    }

    fn link(&self, span: &Span, trace: &str) {
        self.note("is linked to", span, trace);
    }
}

#[test]
fn the_first_attempt_is_a_child_and_later_ones_are_linked() {
    let names = Names::default();
    let watched = Watched::during(async || {
        let kit = Kit::new();
        let engine = kit.engine().clone().propagation(Arc::new(names.clone()));
        let tasks = engine.tasks();
        let task = tasks.task("q", "k", "").unwrap().max_attempts(3);
        let request = tracing::info_span!("request");
        tasks.submit(task).instrument(request).await.unwrap();
        let fail = async || Err::<(), _>(Failure::retry_after(Duration::ZERO, "no"));
        kit.drain_all(engine.worker("w1").queue("q").handle("k", fail))
            .await;
    });
    assert_eq!(watched.spans("process_job").len(), 3);
    let expected = [
        "process_job is a child of request",
        "process_job is linked to request",
        "process_job is linked to request",
    ];
    assert_eq!(names.all(), expected);
}

#[test]
fn every_way_to_submit_takes_the_current_trace_and_none_replaces_a_given_one() {
    Watched::during(async || {
        let kit = Kit::new();
        let engine = kit.engine().clone().propagation(Arc::new(Names::default()));
        let tasks = engine.tasks();
        let request = tracing::info_span!("request");
        let task = |kind: &str| tasks.task("q", kind, "").unwrap();
        async {
            let alert = task("alert");
            tasks.submit(task("one").on_failure(alert)).await.unwrap();
            tasks.submit_all([task("many")]).await;
            tasks.submit(task("given").trace("mine")).await.unwrap();
            let swap = Swap::new("record").set("x", 1).submit(task("beside"));
            engine.records().swap(swap).await.unwrap();
        }
        .instrument(request)
        .await;
        tasks.submit(task("outside")).await.unwrap();
        let follow = async |context: Context| -> Result<Completion, Failure> {
            let tasks = context.engine().tasks();
            tasks.submit(tasks.task("q", "inside", "")?).await?;
            Ok(Completion::new().submit(tasks.task("q", "with", "")?))
        };
        kit.drain(engine.worker("w1").queue("q").handle("one", follow))
            .await;
        let all = kit.all();
        let trace = |kind: &str| {
            let of_kind = |task: &&plimsoll_core::task::Task| task.spec.lane.kind.as_str() == kind;
            let task = all.iter().find(of_kind).unwrap();
            task.spec.trace.clone()
        };
        assert_eq!(trace("one").as_deref(), Some("request"));
        assert_eq!(trace("many").as_deref(), Some("request"));
        assert_eq!(trace("given").as_deref(), Some("mine"));
        assert_eq!(trace("beside").as_deref(), Some("request"));
        assert_eq!(trace("outside"), None);
        assert_eq!(trace("inside").as_deref(), Some("process_job"));
        assert_eq!(trace("with").as_deref(), Some("process_job"));
        let one = all
            .iter()
            .find(|task| task.spec.lane.kind.as_str() == "one");
        let alert = one.unwrap().spec.on_failure.as_ref().unwrap();
        assert_eq!(alert.trace.as_deref(), Some("request"));
    });
}
