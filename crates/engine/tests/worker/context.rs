//! What handlers write while they work.

use bytes::Bytes;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::error::Error;
use plimsoll_core::log::Level;
use plimsoll_core::record::fields;
use plimsoll_core::store::Logs;
use plimsoll_core::task::{Progress, Status};
use plimsoll_core::{Name, TaskId};
use plimsoll_engine::worker::{Context, Failure, State};

use crate::setup::{Bench, Gate, LEASE, Notes, millis, secs, settle_down, start};

/// Writes everything a handler can write.
async fn write_all(context: Context, State(gate): State<Gate>) -> Result<(), Failure> {
    context
        .progress(Progress {
            percent: Some(40),
            ..Progress::default()
        })
        .await?;
    context.checkpoint("page 4").await?;
    context.set_attributes(fields([("plan", "b")])?).await?;
    context.stage(Name::new("uploading")?).await?;
    context.log(Level::Info, "half way").await?;
    gate.wait().await;
    Ok(())
}

async fn lines(bench: &Bench, id: TaskId) -> usize {
    let logs = Logs {
        task: id,
        level: Level::Debug,
        cursor: None,
        limit: 100,
    };
    bench.store.logs(logs).await.unwrap().lines.len()
}

#[tokio::test]
async fn what_a_handler_writes_survives_a_store_that_is_away_for_a_while() {
    let plans: [&[Fault]; 3] = [
        &[],
        &[Fault::ErrorBefore; 5],
        &[Fault::ErrorAfter, Fault::ErrorAfter, Fault::ErrorAfter],
    ];
    for plan in plans {
        let bench = Bench::new();
        let gate = Gate::new();
        for fault in plan {
            bench.faults.next(Method::Commit, *fault);
        }
        let id = bench.submit("k", "").await;
        let builder = bench.worker().state(gate.clone());
        let _worker = start(builder.handle("k", write_all));
        bench.pass(secs(6)).await;
        assert_eq!(gate.arrived(), 1, "{plan:?}");
        let task = bench.get(id).await;
        assert_eq!(task.progress.clone().unwrap().percent, Some(40));
        assert_eq!(task.checkpoint, Some(Bytes::from("page 4")));
        assert_eq!(task.attributes.get("plan").unwrap(), "b");
        assert_eq!(task.stage, Some(Name::new("uploading").unwrap()));
        assert_eq!(lines(&bench, id).await, 1);
        assert_eq!(task.attempts, 1);
    }
}

#[tokio::test]
async fn a_line_whose_answer_was_lost_is_in_the_log_once() {
    let bench = Bench::new();
    bench.faults.next(Method::Commit, Fault::ErrorAfter);
    let id = bench.submit("k", "").await;
    let log = async |context: Context| context.log(Level::Info, "once").await;
    let _worker = start(bench.worker().handle("k", log));
    bench.pass(secs(1)).await;
    assert_eq!(bench.get(id).await.status, Status::Completed);
    assert_eq!(lines(&bench, id).await, 1);
}

#[tokio::test]
async fn a_write_gives_up_when_the_lease_cannot_be_relied_upon() {
    let bench = Bench::new();
    let errors = Notes::<(Error, bool)>::new();
    let write = async |context: Context, State(errors): State<Notes<(Error, bool)>>| {
        let error = context.checkpoint("x").await.unwrap_err();
        errors.add((error, context.engine().clock().monotonic() < LEASE));
    };
    bench.away(&[Method::Commit, Method::Renew]);
    bench.submit("k", "").await;
    let builder = bench.worker().state(errors.clone());
    let _worker = start(builder.handle("k", write));
    bench.pass(LEASE).await;
    let [(Error::Unavailable(_), true)] = errors.all()[..] else {
        panic!("{:?}", errors.all());
    };
}

#[tokio::test]
async fn a_zombie_hears_that_the_lease_is_lost_and_changes_nothing() {
    let bench = Bench::new();
    let (gate, answers) = (Gate::new(), Notes::<&'static str>::new());
    let zombie = async |context: Context,
                        State(gate): State<Gate>,
                        State(answers): State<Notes<&'static str>>| {
        gate.wait().await;
        let progress = context.progress(Progress::default()).await;
        answers.add(progress.map_or_else(|error| error.kind(), |()| "progress"));
        let line = context.log(Level::Info, "still here").await;
        answers.add(line.map_or_else(|error| error.kind(), |()| "line"));
    };
    let id = bench.submit("k", "").await;
    let builder = bench.worker().state(gate.clone()).state(answers.clone());
    let worker = start(builder.handle("k", zombie));
    settle_down().await;
    gate.open(1);
    bench.clock.advance(LEASE);
    bench.sweep().await;
    bench.clock.advance(secs(60));
    bench.sweep().await;
    assert_eq!(bench.claim_elsewhere("k", 1).await.len(), 1);
    let taken = bench.get(id).await;
    bench.pass(millis(100)).await;
    assert_eq!(answers.all(), ["lease_lost", "lease_lost"]);
    assert_eq!(bench.get(id).await, taken);
    assert_eq!(lines(&bench, id).await, 0);
    assert_eq!(worker.summary().refused, 1);
}

#[tokio::test]
async fn the_next_attempt_finds_the_checkpoint() {
    let bench = Bench::new();
    let work = async |context: Context| match context.last_checkpoint() {
        None => {
            context.checkpoint("here").await?;
            Err(Failure::retry_after(secs(1), "once more"))
        }
        Some(checkpoint) => Ok(checkpoint.clone()),
    };
    let id = bench.submit("k", "").await;
    let _worker = start(bench.worker().sweeps(true).handle("k", work));
    bench.pass(millis(1_200)).await;
    assert_eq!(bench.get(id).await.result, Some(Bytes::from("here")));
}
