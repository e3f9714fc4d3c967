//! What is written together with a completion.

use bytes::Bytes;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::record::integer;
use plimsoll_core::store::{Merge, Write};
use plimsoll_core::task::{NewTask, Status};
use plimsoll_core::{Key, Name, StoreExt};
use plimsoll_engine::worker::{Completion, State};

use crate::setup::{Bench, Gate, secs, settle_down, start};

fn key() -> Key {
    Key::new("done").unwrap()
}

/// Counts itself in a record and submits what follows.
async fn count(State(next): State<NewTask>, State(gate): State<Gate>) -> Completion {
    gate.wait().await;
    let merge = Merge::new(key()).add(Name::new("tasks").unwrap(), 1);
    Completion::bytes("result")
        .submit((*next).clone())
        .write(Write::Merge(merge))
}

#[tokio::test]
async fn a_follow_up_and_a_record_come_with_the_completion_and_once_only() {
    let plans: [&[Fault]; 4] = [
        &[],
        &[Fault::ErrorAfter],
        &[Fault::ErrorAfter, Fault::ErrorBefore, Fault::ErrorAfter],
        &[Fault::Duplicate],
    ];
    for plan in plans {
        let bench = Bench::new();
        let next = bench.task("next", "follow-up");
        let id = bench.submit("k", "").await;
        let gate = Gate::new();
        let builder = bench.worker().state(next.clone()).state(gate.clone());
        let worker = start(builder.handle("k", count));
        settle_down().await;
        for fault in plan {
            bench.faults.next(Method::Exchange, *fault);
        }
        gate.open(1);
        bench.pass(secs(3)).await;
        let task = bench.get(id).await;
        assert_eq!(task.status, Status::Completed);
        assert_eq!(task.result, Some(Bytes::from("result")));
        assert_eq!(bench.get(next.id).await.spec.payload, "follow-up");
        let record = bench.store.record(&key()).await.unwrap().unwrap();
        let counted = integer(&record.fields["tasks"]);
        assert_eq!(counted, Some(1), "{plan:?}");
        let faults: u64 = bench.faults.injected().values().sum();
        assert_eq!(faults, plan.len() as u64);
        let summary = worker.summary();
        assert_eq!((summary.completed, summary.refused), (1, 0));
    }
}

#[tokio::test]
async fn nothing_is_written_with_an_answer_that_is_refused() {
    let bench = Bench::new();
    let mut next = bench.task("next", "");
    next.payload = Bytes::from(vec![0; 300_000]);
    let id = bench.submit("k", "").await;
    let gate = Gate::new();
    gate.open(1);
    let worker = bench.worker().state(next).state(gate).handle("k", count);
    worker.build().unwrap().run_until_empty().await.unwrap();
    assert_eq!(bench.get(id).await.status, Status::Failed);
    assert_eq!(bench.store.record(&key()).await.unwrap(), None);
}

/// Nobody hints at the follow-up, and nothing else is left.
#[tokio::test]
async fn a_follow_up_is_worked_on_before_there_is_nothing_left() {
    let bench = Bench::without_hints();
    let next = bench.task("next", "follow-up");
    bench.submit("k", "").await;
    let gate = Gate::new();
    gate.open(1);
    let worker = bench.worker().state(next).state(gate).handle("k", count);
    let worker = worker.handle("next", async || Completion::bytes("last"));
    let summary = worker.build().unwrap().run_until_empty().await.unwrap();
    assert_eq!(summary.completed, 2);
}
