//! Layers around handlers, and panics anywhere in them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context as Poller, Poll};
use std::time::Duration;

use plimsoll_core::task::{Status, Task};
use plimsoll_engine::worker::{Answer, Context, HandlerService, WorkerBuilder};
use tower::layer::layer_fn;
use tower::{Service, ServiceExt, service_fn};

use crate::setup::{Bench, Gate, Notes, millis, secs, settle_down, start};

/// What becomes of a task whose handler is wrapped so.
async fn wrapped(wrap: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Task {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    let builder = wrap(bench.worker()).handle("k", async || {});
    let summary = builder.build().unwrap().run_until_empty().await.unwrap();
    assert_eq!(summary.running, 0);
    bench.get(id).await
}

fn error(task: &Task) -> &str {
    assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
    &task.errors[0].message
}

/// Writes down when it is entered and left.
fn noting(
    notes: Notes<String>,
    name: &'static str,
) -> impl Fn(HandlerService) -> HandlerService + Clone {
    move |inner: HandlerService| {
        let notes = notes.clone();
        HandlerService::new(service_fn(move |context: Context| {
            let (inner, notes) = (inner.clone(), notes.clone());
            async move {
                notes.add(format!("{name} in"));
                let answer = inner.oneshot(context).await;
                notes.add(format!("{name} out"));
                answer
            }
        }))
    }
}

#[tokio::test]
async fn the_first_layer_is_the_outermost() {
    let notes = Notes::<String>::new();
    let (first, second) = (noting(notes.clone(), "a"), noting(notes.clone(), "b"));
    let task = wrapped(|builder| builder.layer(layer_fn(first)).layer(layer_fn(second))).await;
    assert_eq!(task.status, Status::Completed);
    assert_eq!(notes.all(), ["a in", "b in", "b out", "a out"]);
}

#[tokio::test]
async fn an_error_of_a_layer_is_a_failure_of_the_task() {
    let refuse = |_: HandlerService| service_fn(async |_: Context| Err::<Answer, _>("not today"));
    let task = wrapped(|builder| builder.layer(layer_fn(refuse))).await;
    assert_eq!(error(&task), "not today");
}

#[tokio::test]
async fn a_layer_may_give_a_handler_less_time() {
    let bench = Bench::new();
    let limit = |inner: HandlerService| {
        service_fn(move |context: Context| {
            let inner = inner.clone();
            async move {
                let late = context.engine().clock().sleep(secs(2));
                tokio::select! {
                    answer = inner.oneshot(context) => Ok(answer.unwrap_or_else(|never| match never {})),
                    () = late => Err("too slow"),
                }
            }
        })
    };
    let id = bench.submit("k", "").await;
    let hang = async || std::future::pending::<()>().await;
    let _worker = start(bench.worker().layer(layer_fn(limit)).handle("k", hang));
    bench.pass(millis(1_900)).await;
    assert_eq!(bench.get(id).await.status, Status::Claimed);
    bench.pass(millis(200)).await;
    assert_eq!(error(&bench.get(id).await), "too slow");
}

/// A service that becomes ready, or unwell, when it is let through.
struct Moody {
    gate: Gate,
    well: bool,
    wait: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    ready: bool,
}

impl Moody {
    fn new(gate: Gate, well: bool) -> Self {
        Self {
            gate,
            well,
            wait: None,
            ready: false,
        }
    }
}

impl Clone for Moody {
    fn clone(&self) -> Self {
        Self::new(self.gate.clone(), self.well)
    }
}

impl Service<Context> for Moody {
    type Response = Answer;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Answer, &'static str>>;

    fn poll_ready(&mut self, poller: &mut Poller<'_>) -> Poll<Result<(), &'static str>> {
        let gate = self.gate.clone();
        let wait = (self.wait).get_or_insert_with(|| Box::pin(async move { gate.wait().await }));
        let polled = wait.as_mut().poll(poller);
        polled.map(|()| {
            self.ready = self.well;
            if self.well { Ok(()) } else { Err("unwell") }
        })
    }

    fn call(&mut self, _: Context) -> Self::Future {
        assert!(self.ready, "called although it was not ready");
        std::future::ready(Ok(Answer::Release))
    }
}

#[tokio::test]
async fn a_layer_that_is_not_ready_is_waited_for_and_one_that_is_unwell_is_not_called() {
    for well in [true, false] {
        let bench = Bench::new();
        let gate = Gate::new();
        let moody = gate.clone();
        let layer = layer_fn(move |_: HandlerService| Moody::new(moody.clone(), well));
        let id = bench.submit("k", "").await;
        let worker = start(bench.worker().layer(layer).handle("k", async || {}));
        bench.pass(secs(60)).await;
        assert_eq!(bench.get(id).await.status, Status::Claimed);
        assert_eq!(worker.summary().running, 1);
        worker.stopper.drain();
        gate.open(1);
        worker.end().await;
        let task = bench.get(id).await;
        if well {
            assert_eq!(task.status, Status::Pending);
        } else {
            assert_eq!(error(&task), "unwell");
        }
    }
}

#[tokio::test]
async fn a_panic_in_a_layer_or_in_a_backoff_function_is_a_failure() {
    let layer = |_: HandlerService| {
        service_fn(|_: Context| {
            assert!(std::hint::black_box(false), "layer fell over");
            std::future::ready(Err::<Answer, _>("never"))
        })
    };
    let task = wrapped(|builder| builder.layer(layer_fn(layer))).await;
    assert_eq!(error(&task), "panicked: layer fell over");

    let refuse = |_: HandlerService| service_fn(async |_: Context| Err::<Answer, _>("no"));
    let backoff = |_: &Task, _: &_| -> Option<Duration> { panic!("no idea") };
    let task = wrapped(|builder| builder.layer(layer_fn(refuse)).backoff("k", backoff)).await;
    assert_eq!(error(&task), "panicked: no idea");
}

/// Panics when it is dropped.
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("do not touch");
        }
    }
}

#[tokio::test]
async fn a_handler_that_panics_when_it_is_dropped_frees_its_place() {
    let bench = Bench::new();
    let hang = async || {
        let _touchy = Touchy;
        std::future::pending::<()>().await;
    };
    let id = bench.submit("k", "").await;
    let worker = start(bench.worker().handle("k", hang));
    settle_down().await;
    worker.stopper.now();
    let summary = worker.end().await;
    assert_eq!((summary.running, summary.unsettled), (0, 0));
    assert_eq!(error(&bench.get(id).await), "panicked: do not touch");
}
