//! What locks, the registry, the archive and leading sweepers record.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method};
use plimsoll_core::task::{Status, Task};
use plimsoll_engine::archive::{Sink, SinkError};
use plimsoll_engine::jobs::{Coded, NewState};
use plimsoll_engine::telemetry::Sampler;
use plimsoll_engine::testing::Kit;
use plimsoll_engine::worker::Worker;
use plimsoll_engine::{Engine, Retention, Sweeper};

use crate::figures::Figures;

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What the test answers, while others run beside it for as long as it takes.
async fn beside<T>(others: impl Future, test: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        _ = others => panic!("the others ended"),
        answer = test => answer,
    }
}

#[test]
fn states_of_jobs_are_counted_with_how_long_they_took() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let clock = kit.engine().clock().clone();
        let plan = FaultPlan::none();
        let faults = Faults::new(plan.clone(), clock.clone());
        let store = Arc::new(Decorated::new(kit.engine().store().clone(), faults));
        let engine = Engine::with(store, clock, kit.engine().ids().clone());
        let jobs = engine.jobs();
        let manager = jobs.join("import", 0, 1).await.unwrap();
        let state = || NewState::new("ingest", 1).unwrap();
        manager.set_state(state()).await.unwrap();
        plan.next(Method::Commit, Fault::Delay(secs(2)));
        let late = manager.set_state(state());
        let (late, ()) = tokio::join!(late, kit.pass(secs(5)));
        late.unwrap();
        jobs.delete("import").await.unwrap();
        assert!(manager.set_state(state()).await.is_err());
    });
    let took = figures.samples("plimsoll_state_write_duration_seconds");
    assert_eq!(took, [0.0, 2.0]);
    let errors = figures.by_label("plimsoll_state_write_errors_total");
    let errors: Vec<_> = errors.into_iter().collect();
    let conflict = "plimsoll_state_write_errors_total{kind=conflict}";
    assert_eq!(errors, [(conflict.to_owned(), 1.0)]);
}

#[test]
fn states_that_never_took_their_place_in_the_line_are_counted_by_kind() {
    let figures = Figures::of(async |_| {
        let jobs = Kit::new().engine().jobs();
        let manager = jobs.join("import", 0, 1).await.unwrap();
        let state = || NewState::new("ingest", 1).unwrap();
        let kind = |error: plimsoll_core::Error| error.kind();
        let elsewhere = manager.set_state(state().partition(1)).await;
        assert_eq!(kind(elsewhere.unwrap_err()), "invalid");
        let none = Coded {
            status: 1,
            source: "it is none".into(),
        };
        let none = manager.set_error(&none, state()).await;
        assert_eq!(kind(none.unwrap_err()), "invalid");
        // More than there is room for, while nothing is sent.
        let waiting: Vec<_> = (0..4_096).map(|_| manager.set_state(state())).collect();
        for _ in 0..3 {
            // Dropped without a look at it.
            drop(manager.set_state(state()));
        }
        let many = manager.set_state(state()).await;
        assert_eq!(kind(many.unwrap_err()), "unavailable");
        futures::future::try_join_all(waiting).await.unwrap();
        manager.close().await;
        let late = manager.set_state(state()).await;
        assert_eq!(kind(late.unwrap_err()), "closed");
    });
    let errors = figures.by_label("plimsoll_state_write_errors_total");
    let errors: Vec<_> = errors.into_iter().collect();
    let of = |kind: &str| format!("plimsoll_state_write_errors_total{{kind={kind}}}");
    let expected = [("closed", 1.0), ("invalid", 2.0), ("unavailable", 4.0)];
    assert_eq!(errors, expected.map(|(kind, count)| (of(kind), count)));
    let took = figures.samples("plimsoll_state_write_duration_seconds");
    assert_eq!(took.len(), 4_096);
}

/// A worker that the registry knows of.
fn worker(engine: &Engine, name: &str) -> Worker {
    let worker = engine.worker(name).queue("q").sweeps(false);
    worker
        .handle("k", std::future::pending::<()>)
        .build()
        .unwrap()
}

#[test]
fn locks_are_counted_with_how_long_they_took() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let locks = kit.engine().locks();
        let first = locks.lock("report").try_acquire().await.unwrap();
        assert!(locks.lock("report").try_acquire().await.is_err());
        let lock = locks.lock("report");
        let hand_over = async {
            kit.pass(secs(5)).await;
            first.release().await.unwrap();
        };
        let (second, ()) = tokio::join!(lock.acquire(), hand_over);
        second.unwrap().release().await.unwrap();
    });
    assert_eq!(figures.value("plimsoll_locks_acquired_total"), 2.0);
    assert_eq!(figures.samples("plimsoll_lock_wait_seconds"), [0.0, 5.0]);
    assert_eq!(figures.value("plimsoll_locks_handed_over_total"), 1.0);
    assert_eq!(figures.value("plimsoll_locks_lost_total"), 0.0);
}

#[test]
fn a_lost_lock_is_counted_once_whoever_finds_out() {
    let figures = Figures::of(async |look| {
        let kit = Kit::new();
        let locks = kit.engine().locks();
        let take = || async { locks.lock("report").try_acquire().await.unwrap() };
        let lost = || look.now().value("plimsoll_locks_lost_total");

        // The renewal finds out, and the release has nothing to add.
        let guard = take().await;
        locks.break_lock("report").await.unwrap();
        kit.pass(secs(16)).await;
        assert!(guard.release().await.is_err());
        assert_eq!(lost(), 1.0);

        // The release finds out.
        let guard = take().await;
        locks.break_lock("report").await.unwrap();
        assert!(guard.release().await.is_err());
        assert_eq!(lost(), 1.0);

        // Nobody renews it in time, and then it is dropped.
        let guard = take().await;
        kit.clock().advance(secs(60));
        kit.idle().await;
        drop(guard);
        kit.idle().await;
        assert_eq!(lost(), 1.0);

        // Whoever drops it notices before the one who renews, and the store has it still.
        let guard = take().await;
        kit.clock().advance(secs(28));
        drop(guard);
        kit.idle().await;
        assert_eq!(lost(), 1.0);

        // One that was dropped while it was held is not lost.
        drop(take().await);
        kit.idle().await;
    });
    assert_eq!(figures.value("plimsoll_locks_lost_total"), 0.0);
    assert_eq!(figures.value("plimsoll_locks_acquired_total"), 1.0);
}

#[test]
fn calls_for_locks_are_observed_like_all_others() {
    let figures = Figures::of(async |_| {
        let (kit, elsewhere) = (Kit::new(), Kit::seeded(2));
        let locks_on = elsewhere.engine().store().clone();
        let engine = kit.engine().clone().locks_on(locks_on).observed();
        let guard = engine.locks().lock("report").try_acquire().await.unwrap();
        guard.release().await.unwrap();
        assert!(kit.engine().locks().get("report").await.unwrap().is_none());
    });
    let commits = "plimsoll_store_calls_total{store=memory,method=commit,outcome=ok}";
    assert_eq!(figures.value(commits), 2.0);
}

#[test]
fn heartbeats_are_counted_by_what_they_came_to() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let (plan, clock) = (FaultPlan::none(), kit.engine().clock().clone());
        let faults = Faults::new(plan.clone(), clock.clone());
        let store = Decorated::new(kit.engine().store().clone(), faults);
        let engine = Engine::with(Arc::new(store), clock, kit.engine().ids().clone());
        // At once, after ten seconds and for longer than that, and ten seconds later.
        plan.next(Method::Commit, Fault::ErrorBefore);
        plan.next(Method::Commit, Fault::Delay(secs(15)));
        beside(worker(&engine, "w1").run(), kit.pass(secs(35))).await;
    });
    for outcome in ["ok", "error", "unanswered"] {
        let name = format!("plimsoll_heartbeats_total{{outcome={outcome}}}");
        assert_eq!(figures.value(&name), 1.0, "{outcome}");
    }
}

#[test]
fn workers_are_active_until_they_drain_or_nobody_hears_of_them() {
    const ACTIVE: &str = "workers_active{namespace=test}";
    Figures::of(async |look| {
        let kit = Kit::new();
        let tasks = kit.tasks();
        let task = tasks.task("q", "k", "").unwrap();
        tasks.submit(task).await.unwrap();
        let (one, other) = (worker(kit.engine(), "one"), worker(kit.engine(), "other"));
        let (stopper, mut sampler) = (one.stopper(), Sampler::new(kit.engine().clone()));
        let both = async { tokio::join!(one.run(), other.run()) };
        beside(both, async {
            kit.idle().await;
            assert_eq!(sampler.sample_once().await.unwrap().workers, 2);
            assert_eq!(look.now().value(ACTIVE), 2.0);
            // It has the task, and ends with it.
            stopper.drain();
            kit.idle().await;
            sampler.sample_once().await.unwrap();
            assert_eq!(look.now().value(ACTIVE), 1.0);
        })
        .await;
        kit.clock().advance(secs(31));
        sampler.sample_once().await.unwrap();
        assert_eq!(look.now().value(ACTIVE), 0.0);
        Sweeper::new(kit.engine().clone()).pass().await;
        assert_eq!(look.now().value("plimsoll_swept_total{what=offline}"), 2.0);
    });
}

/// Keeps nothing.
#[derive(Debug)]
struct Full;

#[async_trait]
impl Sink for Full {
    async fn keep(&self, tasks: &[Task], _: &Engine) -> Vec<Result<(), SinkError>> {
        tasks.iter().map(|_| Err("full".into())).collect()
    }
}

#[test]
fn archived_tasks_are_counted_and_those_that_could_not_be() {
    let figures = Figures::of(async |_| {
        let kit = Kit::new();
        let done = kit.worker("w").queue("q").handle("k", async || {});
        for _ in 0..2 {
            let task = kit.tasks().task("q", "k", "").unwrap();
            kit.tasks().submit(task).await.unwrap();
        }
        kit.drain(done).await;
        kit.clock().advance(secs(3_600));
        let mut retention = Retention::default();
        retention.tasks.insert(Status::Completed, secs(60));
        let sweeper = Sweeper::new(kit.engine().clone()).retention(retention);
        let full = sweeper.clone().archive_to(Arc::new(Full));
        assert_eq!(full.pass().await.archived, 0);
        assert_eq!(sweeper.pass().await.archived, 2);
    });
    for outcome in ["left", "moved"] {
        let name = format!("plimsoll_archived_total{{outcome={outcome}}}");
        assert_eq!(figures.value(&name), 2.0, "{outcome}");
    }
}

#[test]
fn of_two_sweepers_one_leads_as_long_as_it_lives() {
    const LEADING: &str = "plimsoll_sweepers_leading{namespace=test}";
    let figures = Figures::of(async |look| {
        let kit = Kit::new();
        let sweeper = Sweeper::new(kit.engine().clone());
        let both = async { tokio::join!(sweeper.clone().run(), sweeper.run()) };
        beside(both, async {
            kit.pass(secs(60)).await;
            assert_eq!(look.now().value(LEADING), 1.0);
        })
        .await;
    });
    // A gauge begins at zero after a look, so that this is what was taken back.
    assert_eq!(figures.value(LEADING), -1.0);
}
