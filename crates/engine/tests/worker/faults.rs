//! A store that is away, forgets to answer, answers late or hears everything twice, by chance: the
//! books are right in the end, whatever the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::change::{Change, TaskEvent};
use plimsoll_core::clock::ManualClock;
use plimsoll_core::decorate::{FaultPlan, FaultRates};
use plimsoll_core::store::Changes;
use plimsoll_core::task::Status;
use plimsoll_core::{Fence, Ids, Limits, Position, TaskId};
use plimsoll_engine::worker::{Answer, Completion, Context, Failure, State};

use crate::setup::{Bench, Notes, millis, secs, start};

const SEEDS: u64 = 60;
const TASKS: usize = 30;

type Starts = Notes<(TaskId, Fence)>;

/// Every kind of answer, each ending well at last.
async fn work(context: Context, payload: Bytes, State(starts): State<Starts>) -> Answer {
    let id = context.task().id();
    let first = starts.all().iter().all(|(started, _)| *started != id);
    starts.add((id, context.fence()));
    match &payload[..] {
        b"fails" if first => Answer::Fail(Failure::retry_after(secs(1), "first")),
        b"snoozes" if first => Answer::Snooze(secs(2)),
        b"releases" if first => Answer::Release,
        b"slow" => {
            context.engine().clock().sleep(secs(3)).await;
            Answer::Complete(Completion::bytes("slow"))
        }
        _ => Answer::Complete(Completion::bytes("done")),
    }
}

/// How often each task was completed, by the books.
async fn completions(bench: &Bench) -> BTreeMap<TaskId, u32> {
    let mut times = BTreeMap::new();
    let mut after = Position::default();
    loop {
        let changes = Changes::after(after, 1_000);
        let page = bench.store.changes(changes).await.unwrap();
        for change in page.entries.iter().flat_map(|entry| &entry.changes) {
            if let Change::Task(task) = change
                && task.event == TaskEvent::Completed
            {
                *times.entry(task.id).or_default() += 1;
            }
        }
        if !page.more {
            return times;
        }
        after = page.next;
    }
}

async fn run(seed: u64) {
    let rates = FaultRates {
        before_permille: 150,
        after_permille: 150,
        duplicate_permille: 50,
        delay_permille: 100,
        delay_max: secs(2),
    };
    let chance = Ids::seeded(seed, Arc::new(ManualClock::new()));
    let bench = Bench::with(
        FaultPlan::by_chance(rates, chance),
        Limits::default(),
        false,
    );
    let starts = Starts::new();
    let mut ids = Vec::new();
    for n in 0..TASKS {
        let payload = ["plain", "fails", "snoozes", "releases", "slow"][n % 5];
        ids.push(bench.submit("k", payload).await);
    }
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let builder = bench.worker().sweeps(true).concurrency(4);
            start(builder.state(starts.clone()).handle("k", work))
        })
        .collect();
    bench.pass_in(secs(60), millis(50)).await;
    for worker in &workers {
        worker.stopper.drain();
    }
    bench.pass_in(secs(60), millis(50)).await;
    for worker in workers {
        assert!(worker.work.is_finished(), "seed {seed}: still draining");
        let summary = worker.end().await;
        assert_eq!((summary.unsettled, summary.cut), (0, 0), "seed {seed}");
    }
    let starts = starts.all();
    let fences: BTreeSet<_> = starts.iter().collect();
    assert_eq!(fences.len(), starts.len(), "seed {seed}: started twice");
    let times = completions(&bench).await;
    for id in ids {
        let task = bench.get(id).await;
        assert_eq!(task.status, Status::Completed, "seed {seed}: {task:?}");
        assert_eq!(times.get(&id), Some(&1), "seed {seed}: {task:?}");
        let failed = task.spec.payload == "fails";
        assert_eq!(task.failures, u32::from(failed), "seed {seed}: {task:?}");
    }
}

#[tokio::test]
async fn every_task_ends_once_by_the_books_whatever_goes_wrong() {
    for seed in 0..SEEDS {
        run(seed).await;
    }
}
