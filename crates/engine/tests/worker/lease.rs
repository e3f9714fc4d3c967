//! Leases: renewed while handlers run, and no handler outlives one.

use std::sync::mpsc::Receiver;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::clock::ManualClock;
use plimsoll_core::decorate::Method;
use plimsoll_core::store::{Commit, Retry, Write};
use plimsoll_core::task::{FailureKind, Status};
use plimsoll_core::{Fence, StoreExt};
use plimsoll_engine::worker::{Cause, Completion, Context, State};

use crate::setup::{Bench, Gate, LEASE, Notes, millis, secs, settle_down, start};

/// Writes down when it is dropped.
struct Dropped(Context, Notes<(&'static str, Duration)>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let now = self.0.engine().clock().monotonic();
        self.1.add(("dropped", now));
    }
}

/// Writes down when it is asked to stop and when it is dropped, and never ends.
async fn hang(context: Context, State(notes): State<Notes<(&'static str, Duration)>>) {
    let _dropped = Dropped(context.clone(), (*notes).clone());
    assert_eq!(context.cancellation().await, Cause::LeaseLost);
    notes.add(("asked", context.engine().clock().monotonic()));
    std::future::pending::<()>().await;
}

/// Waits to be let through, and answers whether it was ever asked to stop.
async fn patient(context: Context, State(gate): State<Gate>) -> Completion {
    gate.wait().await;
    let undisturbed = context.cancelled().is_none() && context.still_mine();
    Completion::bytes(Bytes::from(undisturbed.to_string()))
}

#[tokio::test]
async fn a_lease_is_renewed_for_hours() {
    let bench = Bench::new();
    let gate = Gate::new();
    let id = bench.submit("k", "").await;
    let _sweeper = bench.start_sweeper();
    let _worker = start(bench.worker().state(gate.clone()).handle("k", patient));
    bench.pass_in(secs(3 * 3_600), secs(1)).await;
    gate.open(1);
    settle_down().await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.attempts), (Status::Completed, 1));
    assert_eq!(task.result, Some(Bytes::from("true")));
    let renewals = bench.calls.of(Method::Renew);
    assert!((980..=1_080).contains(&renewals), "{renewals}");
}

#[tokio::test]
async fn a_handler_whose_lease_cannot_be_renewed_is_asked_and_then_dropped_before_it_ends() {
    let bench = Bench::new();
    let notes = Notes::<(&str, Duration)>::new();
    let id = bench.submit("k", "").await;
    let worker = start(bench.worker().state(notes.clone()).handle("k", hang));
    settle_down().await;
    bench.away(&[Method::Renew]);
    bench.pass(secs(29)).await;
    let [("asked", asked), ("dropped", dropped)] = notes.all()[..] else {
        panic!("{:?}", notes.all());
    };
    assert!(asked >= secs(20) && asked < dropped, "{asked:?}");
    assert!(dropped < LEASE, "{dropped:?}");
    let task = bench.get(id).await;
    assert_eq!(task.errors[0].kind, FailureKind::Interrupted);
    assert_eq!(
        (task.errors[0].fence, task.failures),
        (Fence::default().next(), 0)
    );
    assert_eq!((worker.summary().cut, worker.summary().released), (1, 1));
}

#[tokio::test]
async fn a_handler_goes_on_when_the_store_comes_back_in_time() {
    for back_at in [15, 25] {
        let bench = Bench::new();
        let gate = Gate::new();
        let id = bench.submit("k", "").await;
        let _sweeper = bench.start_sweeper();
        let _worker = start(bench.worker().state(gate.clone()).handle("k", patient));
        settle_down().await;
        bench.away(&[Method::Renew, Method::Exchange]);
        bench.pass(secs(back_at)).await;
        bench.faults.calm();
        bench.pass(secs(60)).await;
        gate.open(1);
        settle_down().await;
        let task = bench.get(id).await;
        assert_eq!((task.status, task.attempts), (Status::Completed, 1));
        assert_eq!(task.result, Some(Bytes::from("true")), "back at {back_at}");
    }
}

#[tokio::test]
async fn a_renewal_that_is_never_answered_is_sent_again() {
    let bench = Bench::new();
    let gate = Gate::new();
    let id = bench.submit("k", "").await;
    let _sweeper = bench.start_sweeper();
    let _worker = start(bench.worker().state(gate.clone()).handle("k", patient));
    settle_down().await;
    bench.calls.hold(Method::Renew);
    bench.pass(secs(11)).await;
    bench.calls.forget(Method::Renew);
    bench.pass(secs(60)).await;
    gate.open(1);
    settle_down().await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.attempts), (Status::Completed, 1));
}

#[tokio::test]
async fn a_zombie_is_told_that_the_lease_is_lost_and_its_answer_changes_nothing() {
    let bench = Bench::new();
    let notes = Notes::<(Cause, bool)>::new();
    let id = bench.submit("k", "").await;
    let zombie = async |context: Context, State(notes): State<Notes<(Cause, bool)>>| {
        let cause = context.cancellation().await;
        notes.add((cause, context.still_mine()));
        Completion::bytes("from the grave")
    };
    let worker = start(bench.worker().state(notes.clone()).handle("k", zombie));
    settle_down().await;
    // Nobody but the test runs: the worker is paused past its lease.
    bench.clock.advance(LEASE);
    bench.sweep().await;
    bench.clock.advance(secs(60));
    bench.sweep().await;
    assert_eq!(bench.claim_elsewhere("k", 1).await.len(), 1);
    let taken = bench.get(id).await;
    settle_down().await;
    assert_eq!(notes.all(), [(Cause::LeaseLost, false)]);
    assert_eq!(bench.get(id).await, taken);
    let summary = worker.summary();
    assert_eq!(
        (summary.refused, summary.completed, summary.running),
        (1, 0, 0)
    );
}

#[tokio::test]
async fn a_worker_may_hold_a_task_again_while_its_older_handler_winds_down() {
    let bench = Bench::new();
    let (gate, notes) = (Gate::new(), Notes::<(u32, Option<Cause>)>::new());
    let id = bench.submit("k", "").await;
    let work = async |context: Context,
                      State(gate): State<Gate>,
                      State(notes): State<Notes<(u32, Option<Cause>)>>| {
        let attempt = context.attempt();
        if attempt == 1 {
            gate.wait().await;
        }
        notes.add((attempt, context.cancelled()));
        Completion::bytes(Bytes::from(format!("attempt {attempt}")))
    };
    let builder = bench.worker().state(gate.clone()).state(notes.clone());
    let worker = start(builder.handle("k", work));
    settle_down().await;
    let retry = Retry {
        task: id,
        force: false,
        delay: Duration::ZERO,
    };
    let commit = Commit::of(Write::Retry(retry)).id(bench.engine.ids().commit());
    bench.store.commit_one(commit).await.unwrap();
    settle_down().await;
    assert_eq!(notes.all(), [(2, None)]);
    assert_eq!(worker.summary().running, 1, "the older one winds down");
    gate.open(1);
    settle_down().await;
    assert_eq!(notes.all()[1], (1, Some(Cause::LeaseLost)));
    let task = bench.get(id).await;
    assert_eq!(task.result, Some(Bytes::from("attempt 2")));
    let summary = worker.summary();
    assert_eq!((summary.completed, summary.refused), (1, 1));
}

#[tokio::test]
async fn still_mine_ends_with_the_attempt_and_before_the_lease() {
    let bench = Bench::new();
    let (gate, contexts) = (Gate::new(), Notes::<Context>::new());
    let work =
        async |context: Context, State(gate): State<Gate>, State(all): State<Notes<Context>>| {
            all.add(context);
            gate.wait().await;
        };
    bench.submit("k", "").await;
    let builder = bench.worker().state(gate.clone()).state(contexts.clone());
    let _worker = start(builder.handle("k", work));
    settle_down().await;
    let context = contexts.all().remove(0);
    bench.pass(secs(40)).await;
    assert!(context.still_mine());
    // The worker does not run, and neither does anybody else.
    bench.clock.advance(millis(19_000));
    assert!(context.still_mine());
    bench.clock.advance(millis(9_500));
    assert!(!context.still_mine(), "a margin before the end");
    settle_down().await;
    bench.pass(secs(1)).await;
    gate.open(2);
    settle_down().await;
    let second = contexts.all().remove(1);
    assert!(!second.still_mine(), "it has ended");
}

#[tokio::test]
async fn a_handler_that_stalls_its_worker_past_the_lease_has_failed() {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    let stall = async |State(clock): State<ManualClock>| {
        // Nobody else on this thread gets a turn meanwhile.
        clock.advance(LEASE + secs(10));
        std::future::pending::<()>().await;
    };
    let builder = bench.worker().state(bench.clock.clone());
    let worker = start(builder.handle("k", stall));
    settle_down().await;
    let task = bench.get(id).await;
    assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
    assert_eq!(task.errors[0].kind, FailureKind::LeaseExpired);
    assert_eq!(worker.summary().cut, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_blocks_its_thread_does_not_keep_a_cancelled_task_for_ever() {
    let bench = Bench::new();
    let id = bench.submit("k", "").await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = std::sync::Mutex::new(released);
    let block = async |State(released): State<std::sync::Mutex<Receiver<()>>>| {
        // Ends when the test does.
        released.lock().unwrap().recv().ok();
    };
    let builder = bench.worker().sweeps(true).state(released);
    let worker = start(builder.handle("k", block));
    while bench.get(id).await.status != Status::Claimed {
        tokio::task::yield_now().await;
    }
    bench.cancel(id).await;
    for _ in 0..10_000 {
        if bench.get(id).await.status == Status::Cancelled {
            break;
        }
        bench.pass(millis(100)).await;
    }
    assert_eq!(bench.get(id).await.status, Status::Cancelled);
    drop((release, worker));
}
