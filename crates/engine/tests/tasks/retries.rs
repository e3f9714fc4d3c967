//! How calls are repeated while the store does not answer.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::clock::Clock;
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, FaultRates, Faults, Method};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::task::Status;
use plimsoll_core::{Error, Ids, Limits, Result, TaskId};
use plimsoll_engine::tasks::Retries;
use plimsoll_engine::{Engine, Tasks};

use crate::world::{LEASE, World, code, seed};

fn applied<T: std::fmt::Debug>(answer: Result<T>) -> Applied {
    match answer.unwrap_err() {
        Error::Unavailable(Unavailable { applied, .. }) => applied,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_call_is_made_five_times_and_the_waits_grow() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    for _ in 0..5 {
        w.plan.next(Method::Tasks, Fault::ErrorBefore);
    }
    let began = w.clock.monotonic();
    let answer = w.drive(w.tasks.get(id)).await;
    assert_eq!(applied(answer), Applied::No);
    assert_eq!(w.spy.calls(Method::Tasks), 5);
    // 100, 200, 400 and 800 ms, each up to half shorter, and seen in steps of 10 ms.
    let waited = w.clock.monotonic() - began;
    assert!(waited >= Duration::from_millis(750), "{waited:?}");
    assert!(waited <= Duration::from_millis(1_600), "{waited:?}");
    Ok(())
}

#[tokio::test]
async fn what_may_have_been_applied_once_stays_so() -> Result<()> {
    let w = World::new().hasty();
    w.plan.next(Method::Commit, Fault::ErrorAfter);
    for _ in 0..4 {
        w.plan.next(Method::Commit, Fault::ErrorBefore);
    }
    let task = w.task("x");
    let answer = w.tasks.submit(task.clone()).await;
    assert_eq!(applied(answer), Applied::Unknown);
    assert_eq!(w.status(task.id).await?, Status::Pending);
    Ok(())
}

#[tokio::test]
async fn other_errors_are_answered_at_once() -> Result<()> {
    let w = World::new();
    let id = w.submitted().await?;
    let before = w.spy.all_calls();
    assert_eq!(code(w.tasks.delete(id).await), "not_finished");
    assert_eq!(w.spy.all_calls() - before, 1);
    Ok(())
}

#[tokio::test]
async fn without_retries_each_call_is_made_once() -> Result<()> {
    let w = World::new();
    let tasks = w.tasks.clone().with_retries(Retries::none());
    w.plan.next(Method::Tasks, Fault::ErrorBefore);
    assert_eq!(code(tasks.find(TaskId::from_u128(1)).await), "unavailable");
    assert_eq!(w.spy.all_calls(), 1);
    Ok(())
}

#[tokio::test]
async fn nothing_is_repeated_when_the_store_may_have_forgotten() -> Result<()> {
    let w = World::new();
    let tasks = w.tasks.clone().with_retries(Retries {
        tries: u32::MAX,
        first: Duration::from_secs(60),
        cap: Duration::from_secs(60),
    });
    for _ in 0..1_000 {
        w.plan.next(Method::Commit, Fault::ErrorBefore);
    }
    let began = w.clock.monotonic();
    let answer = w.drive(tasks.submit(w.task("x"))).await;
    assert_eq!(code(answer), "unavailable");
    let waited = w.clock.monotonic() - began;
    assert!(waited <= Duration::from_secs(301), "{waited:?}");
    Ok(())
}

#[tokio::test]
async fn a_store_that_fails_by_chance_is_worked_with_as_if_it_did_not() -> Result<()> {
    let seed = seed();
    let mut w = World::with(seed, Limits::default());
    let rates = FaultRates {
        before_permille: 100,
        after_permille: 100,
        duplicate_permille: 50,
        ..FaultRates::default()
    };
    let clock: Arc<dyn Clock> = Arc::new(w.clock.clone());
    let chance = FaultPlan::by_chance(rates, Ids::seeded(seed ^ 1, clock.clone()));
    let faults = Faults::new(chance.clone(), clock.clone());
    let faulty = Arc::new(Decorated::new(w.bare.clone(), faults));
    let engine = Engine::with(faulty, clock, w.ids.clone());
    let patient = Retries {
        tries: 50,
        ..Retries::default()
    };
    w.tasks = Tasks::new(engine).with_retries(patient);
    let worker = w.worker("w");
    for n in 0..200 {
        let id = w.drive(w.tasks.submit(w.task("work"))).await?.id;
        let held = w.drive(w.tasks.claim(id, &worker, LEASE)).await?;
        w.drive(held.checkpoint(format!("{n}"))).await?;
        let expected = if n % 2 == 0 {
            w.drive(held.complete("r")).await?.status
        } else {
            w.drive(held.fail("e")).await?.status
        };
        let task = w.stored(id).await?;
        assert_eq!((task.status, task.attempts), (expected, 1));
        assert_eq!(task.failures, n % 2);
    }
    assert!(!chance.injected().is_empty());
    Ok(())
}
