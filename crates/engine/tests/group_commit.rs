//! What group commit promises beyond what every store does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::decorate::{Decorated, Fault, FaultPlan, Faults, Method, Observe};
use plimsoll_core::record::{fields, integer};
use plimsoll_core::store::{Commit, Guard, Merge, Put, Write};
use plimsoll_core::{Error, Ids, Key, Limits, Memory, Name, Namespace, Result, Store, StoreExt};
use plimsoll_engine::{GroupCommit, group_commit};

const A_WHILE: Duration = Duration::from_secs(1);

/// A store whose calls can be held up, with group commit in front of it.
struct Setup {
    clock: ManualClock,
    ids: Ids,
    plan: FaultPlan,
    held_up: Arc<dyn Store>,
    merged: Arc<dyn Store>,
}

fn setup() -> Result<Setup> {
    let clock = ManualClock::new();
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let memory = Memory::with(shared.clone(), Limits::default());
    let store: Arc<dyn Store> = Arc::new(memory.open(Namespace::new("test")?));
    let plan = FaultPlan::none();
    let faults = Faults::new(plan.clone(), shared.clone());
    let held_up: Arc<dyn Store> = Arc::new(Decorated::new(store, faults));
    Ok(Setup {
        merged: Arc::new(group_commit(held_up.clone())),
        ids: Ids::seeded(1, shared),
        clock,
        plan,
        held_up,
    })
}

impl Setup {
    /// Holds up the next call, which carries one commit, until the clock moves.
    async fn hold_up(&self) -> Result<impl Future<Output = Result<()>> + use<>> {
        self.plan.next(Method::Commit, Fault::Delay(A_WHILE));
        let first = put("first")?;
        let store = self.merged.clone();
        let mut call = Box::pin(async move { store.commit_one(first).await.map(drop) });
        assert!(futures::poll!(&mut call).is_pending());
        // The task that makes the calls takes it and waits for the clock.
        while self.plan.injected().is_empty() {
            tokio::task::yield_now().await;
        }
        Ok(call)
    }

    fn increment(&self) -> Result<Commit> {
        let merge = Merge::new(Key::new("sum")?).add(Name::new("n")?, 1);
        Ok(Commit::of(Write::Merge(merge)).id(self.ids.commit()))
    }

    async fn sum(&self) -> Result<i64> {
        let record = self.held_up.record(&Key::new("sum")?).await?;
        Ok(record
            .and_then(|record| integer(record.field("n")?))
            .unwrap_or(0))
    }

    /// How many store calls had commits so far: each appends one or more entries.
    fn calls(&self) -> u64 {
        self.plan.injected().values().sum()
    }
}

fn put(key: &str) -> Result<Commit> {
    Ok(Commit::of(Write::Put(Put::new(
        Key::new(key)?,
        fields([("f", "v")])?,
    ))))
}

#[tokio::test]
async fn callers_that_come_while_a_group_is_in_flight_share_the_next_call() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    // If any of these went alone, it would not be held up, and would be done before the others.
    s.plan.next(Method::Commit, Fault::Delay(A_WHILE));
    let mut callers = Vec::new();
    for _ in 0..63 {
        let (store, commit) = (s.merged.clone(), s.increment()?);
        callers.push(Box::pin(async move { store.commit_one(commit).await }));
    }
    let mut callers = Box::pin(join_all(callers));
    assert!(futures::poll!(&mut callers).is_pending());
    assert_eq!(s.sum().await?, 0);
    s.clock.advance(A_WHILE);
    first.await?;
    while s.calls() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(futures::poll!(&mut callers).is_pending());
    assert_eq!(s.sum().await?, 0, "answered only after the commit");
    s.clock.advance(A_WHILE);
    for receipt in callers.await {
        assert!(!receipt?.repeated);
    }
    assert_eq!(s.sum().await?, 63);
    assert_eq!(s.plan.injected(), BTreeMap::from([(Method::Commit, 2)]));
    Ok(())
}

#[tokio::test]
async fn a_commit_that_is_refused_does_not_touch_its_neighbours() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    let absent = Guard::RecordPresent(Key::new("nobody")?);
    let refused = s.increment()?.guard(absent);
    let callers = [s.increment()?, refused, s.increment()?, Commit::new()];
    let calls = callers.map(|commit| s.merged.commit_one(commit));
    let mut calls = Box::pin(join_all(calls));
    assert!(futures::poll!(&mut calls).is_pending());
    s.clock.advance(A_WHILE);
    first.await?;
    let answers = calls.await;
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert!(matches!(answers[1], Err(Error::Conflict(_))));
    assert!(matches!(answers[3], Err(Error::Invalid(_))));
    assert_eq!(s.sum().await?, 2);
    Ok(())
}

#[tokio::test]
async fn what_was_queued_is_committed_once_although_its_caller_went_away() -> Result<()> {
    let s = setup()?;
    let first = s.hold_up().await?;
    let commit = s.increment()?;
    let mut queued = Box::pin(s.merged.commit_one(commit.clone()));
    assert!(futures::poll!(&mut queued).is_pending());
    drop(queued);
    s.clock.advance(A_WHILE);
    first.await?;
    let again = s.merged.commit_one(commit).await?;
    assert!(again.repeated, "it was committed without its caller");
    assert_eq!(s.sum().await?, 1);
    Ok(())
}

#[tokio::test]
async fn when_the_queue_is_full_callers_wait_and_those_that_leave_leave_nothing() -> Result<()> {
    let s = setup()?;
    s.plan.next(Method::Commit, Fault::Delay(A_WHILE));
    let around = GroupCommit::start(s.held_up.clone(), 2);
    let merged: Arc<dyn Store> = Arc::new(Decorated::new(s.held_up.clone(), around));
    let mut first = Box::pin(merged.commit_one(s.increment()?));
    assert!(futures::poll!(&mut first).is_pending());
    while s.calls() < 1 {
        tokio::task::yield_now().await;
    }
    let mut queued = Vec::new();
    for _ in 0..4 {
        let mut call = Box::pin(merged.commit_one(s.increment()?));
        assert!(futures::poll!(&mut call).is_pending());
        queued.push(call);
    }
    // Two are in the queue, two wait for room: one of these goes away.
    drop(queued.pop());
    s.clock.advance(A_WHILE);
    first.await?;
    for call in queued {
        call.await?;
    }
    assert_eq!(s.sum().await?, 4);
    Ok(())
}

#[tokio::test]
async fn a_lone_caller_is_served_at_once() -> Result<()> {
    let s = setup()?;
    for _ in 0..10 {
        s.merged.commit_one(s.increment()?).await?;
    }
    assert_eq!(s.sum().await?, 10);
    Ok(())
}

#[tokio::test]
async fn a_call_whose_answer_is_lost_is_lost_for_its_whole_group_and_can_be_repeated() -> Result<()>
{
    let s = setup()?;
    let first = s.hold_up().await?;
    s.plan.next(Method::Commit, Fault::ErrorAfter);
    let commits = [s.increment()?, s.increment()?];
    let calls = commits.clone().map(|commit| s.merged.commit_one(commit));
    let mut calls = Box::pin(join_all(calls));
    assert!(futures::poll!(&mut calls).is_pending());
    s.clock.advance(A_WHILE);
    first.await?;
    for answer in calls.await {
        assert!(matches!(answer, Err(Error::Unavailable(_))));
    }
    for commit in commits {
        assert!(s.merged.commit_one(commit).await?.repeated);
    }
    assert_eq!(s.sum().await?, 2);
    Ok(())
}

#[tokio::test]
async fn it_stands_in_front_of_any_store() -> Result<()> {
    let s = setup()?;
    let observe = Observe::new(s.merged.as_ref(), Arc::new(s.clock.clone()));
    let around_it = Decorated::new(s.merged.clone(), observe);
    around_it.commit_one(s.increment()?).await?;
    assert_eq!(around_it.capabilities().store, "memory");
    Ok(())
}
