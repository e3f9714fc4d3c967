//! A worker that takes whatever kinds its queues have.

use plimsoll_core::decorate::{Fault, FaultPlan, Method};
use plimsoll_core::task::{Lane, NewTask, Status};
use plimsoll_core::{Limits, Name};
use plimsoll_engine::worker::{Completion, Context, State};

use crate::setup::{Bench, Gate, Notes, millis, secs, settle_down, spawn, start};

async fn note(context: Context, State(notes): State<Notes<Name>>) {
    notes.add(context.task().spec.lane.kind.clone());
}

fn names(names: &[&str]) -> Vec<Name> {
    names.iter().map(|name| Name::new(name).unwrap()).collect()
}

#[tokio::test]
async fn a_kind_that_is_new_runs_without_a_poll_where_there_are_hints() {
    let bench = Bench::new();
    let notes = Notes::<Name>::new();
    let worker = start(bench.worker().state(notes.clone()).handle_rest(note));
    settle_down().await;
    for kind in ["resize", "rotate", "resize"] {
        bench.submit(kind, "").await;
        settle_down().await;
    }
    assert_eq!(notes.all(), names(&["resize", "rotate", "resize"]));
    worker.stopper.drain();
    assert_eq!(worker.end().await.completed, 3);
}

#[tokio::test]
async fn a_kind_that_is_new_is_found_by_looking_where_there_are_none() {
    let bench = Bench::without_hints();
    let notes = Notes::<Name>::new();
    let worker = start(bench.worker().state(notes.clone()).handle_rest(note));
    settle_down().await;
    bench.submit("resize", "").await;
    bench.pass(millis(900)).await;
    assert_eq!(notes.all(), []);
    bench.pass(millis(200)).await;
    assert_eq!(notes.all(), names(&["resize"]));
    // What is known by now is claimed from in the same way as ever.
    bench.submit("resize", "").await;
    bench.submit("rotate", "").await;
    bench.pass(millis(2_100)).await;
    assert_eq!(worker.summary().completed, 3);
}

#[tokio::test]
async fn a_kind_with_a_handler_of_its_own_is_not_the_rest() {
    let bench = Bench::new();
    let notes = Notes::<Name>::new();
    bench.submit("mine", "").await;
    bench.submit("other", "").await;
    let builder = bench.worker().state(notes.clone());
    let worker = builder.handle("mine", async || {}).handle_rest(note);
    let summary = worker.build().unwrap().run_until_empty().await.unwrap();
    assert_eq!((summary.completed, notes.all()), (2, names(&["other"])));
}

/// Submits a task of another kind, until there were three.
async fn chain(context: Context) -> Completion {
    let next = match context.task().spec.lane.kind.as_str() {
        "first" => "second",
        "second" => "third",
        _ => return Completion::new(),
    };
    let lane = Lane::new("q", next).unwrap();
    Completion::new().submit(NewTask::new(context.engine().ids().task(), lane, ""))
}

#[tokio::test]
async fn until_empty_sees_kinds_that_its_own_tasks_submit() {
    for bench in [Bench::new(), Bench::without_hints()] {
        bench.submit("first", "").await;
        let worker = bench.worker().handle_rest(chain).build().unwrap();
        assert_eq!(worker.run_until_empty().await.unwrap().completed, 3);
    }
}

#[tokio::test]
async fn until_empty_looks_again_after_the_last_answer_was_taken() {
    let bench = Bench::without_hints();
    let gate = Gate::new();
    bench.submit("first", "").await;
    let gated = async |context: Context, State(gate): State<Gate>| {
        if context.task().spec.lane.kind.as_str() == "first" {
            gate.wait().await;
        }
        chain(context).await
    };
    let builder = bench.worker().state(gate.clone()).handle_rest(gated);
    let work = spawn(builder.build().unwrap().run_until_empty());
    bench.pass(millis(995)).await;
    // The answer does not get there at first, and a look falls between its repetitions.
    for _ in 0..4 {
        bench.faults.next(Method::Exchange, Fault::ErrorBefore);
    }
    gate.open(1);
    bench.pass(secs(9)).await;
    assert_eq!(work.await.unwrap().unwrap().completed, 3);
}

#[tokio::test]
async fn other_queues_are_left_alone_and_an_empty_one_is_empty() {
    let bench = Bench::new();
    let lane = Lane::new("elsewhere", "k").unwrap();
    let id = bench
        .add(NewTask::new(bench.engine.ids().task(), lane, ""))
        .await;
    let worker = bench.worker().handle_rest(async || {}).build().unwrap();
    assert_eq!(worker.run_until_empty().await.unwrap().started, 0);
    assert_eq!(bench.get(id).await.status, Status::Pending);
}

#[tokio::test]
async fn more_kinds_than_a_claim_can_name_are_all_served() {
    let limits = Limits {
        lanes_max: 2,
        ..Limits::default()
    };
    let bench = Bench::with(FaultPlan::none(), limits, true);
    for kind in ["a", "b", "c", "d", "e"] {
        bench.submit(kind, "").await;
    }
    let worker = bench.worker().handle_rest(async || {}).build().unwrap();
    assert_eq!(worker.run_until_empty().await.unwrap().completed, 5);
}

#[tokio::test]
async fn a_look_that_fails_is_made_again() {
    let bench = Bench::without_hints();
    bench.submit("k", "").await;
    bench.faults.next(Method::Counts, Fault::ErrorBefore);
    let worker = start(bench.worker().handle_rest(async || {}));
    bench.pass(secs(6)).await;
    assert_eq!(worker.summary().completed, 1);
}

#[tokio::test]
async fn kinds_of_the_past_are_let_go() {
    let bench = Bench::without_hints();
    let worker = start(bench.worker().handle_rest(async || {}));
    bench.submit("k", "").await;
    bench.pass(secs(9)).await;
    assert_eq!(worker.summary().completed, 1);
    bench.pass(secs(2)).await;
    bench.calls.reset();
    bench.pass(secs(10)).await;
    // Nothing is live, so there is nothing to claim from.
    assert_eq!(bench.calls.of(Method::Exchange), 0);
    let looks = bench.calls.of(Method::Counts);
    assert!((9..=11).contains(&looks), "{looks}");
}
