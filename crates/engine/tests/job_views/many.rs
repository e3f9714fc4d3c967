//! So many subscribers that waking them has to be done together.

// Each subscriber is a task, as in a program.
#![allow(clippy::disallowed_methods)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use plimsoll_core::StoreExt;
use plimsoll_core::store::{Commit, Put, Write};
use plimsoll_engine::jobs::{Scope, StateEvent};
use tokio::task::JoinSet;

use crate::world::{World, stored};

const MANY: usize = 500;
/// How long so many rest at most, if they were woken for an event just before.
const REST: Duration = Duration::from_micros(2_100);

#[tokio::test]
async fn many_are_told_at_once_what_comes_after_a_while_and_together_what_follows() {
    let world = World::with(1).await;
    let process = world.process();
    let (taken, last) = (Arc::new(AtomicUsize::new(0)), 12);
    let mut subscribers = JoinSet::new();
    for _ in 0..MANY {
        let mut events = process.subscribe(Scope::all()).await;
        let taken = taken.clone();
        subscribers.spawn(async move {
            let mut versions = Vec::new();
            while versions.last() != Some(&last) {
                if let StateEvent::State(state) = events.next().await.unwrap().unwrap() {
                    taken.fetch_add(1, Ordering::Relaxed);
                    versions.push(state.version);
                }
            }
            versions
        });
    }
    let taken = || taken.load(Ordering::Relaxed);
    world.settle().await;
    for round in 0..3 {
        let before = round * 4 * MANY;
        for status in 1..=2 {
            world.set(0, "a", status).await;
            world.settle().await;
        }
        assert_eq!(taken(), before + 2 * MANY, "the first are told at once");
        world.set(0, "a", 3).await;
        world.set(0, "a", 4).await;
        world.settle().await;
        assert_eq!(taken(), before + 2 * MANY, "the others rest");
        world.pass(REST).await;
        assert_eq!(taken(), before + 4 * MANY, "what followed is told together");
        // What they have taken of the processor is paid off.
        world.pass(REST * 3).await;
    }
    let expected: Vec<u64> = (1..=last).collect();
    while let Some(versions) = subscribers.join_next().await {
        assert_eq!(versions.unwrap(), expected);
    }
}

/// Whoever else has something to do gets a turn between a few of them, and not only after all.
#[tokio::test]
async fn others_have_their_turn_before_all_are_told() {
    let world = World::with(1).await;
    let process = world.process();
    let taken = Arc::new(AtomicUsize::new(0));
    let mut subscribers = JoinSet::new();
    for _ in 0..MANY {
        let mut events = process.subscribe(Scope::all()).await;
        let taken = taken.clone();
        subscribers.spawn(async move {
            while !matches!(events.next().await.unwrap().unwrap(), StateEvent::State(_)) {}
            taken.fetch_add(1, Ordering::Relaxed);
        });
    }
    world.settle().await;
    world.set(0, "a", 1).await;
    let mut seen = 0;
    while seen < MANY {
        tokio::task::yield_now().await;
        let now = taken.load(Ordering::Relaxed);
        assert!(now - seen <= 32, "{} were told in one go", now - seen);
        seen = now;
    }
    subscribers.join_all().await;
}

/// The history is read all the same when somebody else begins to follow it.
#[tokio::test]
async fn what_is_read_for_others_during_a_rest_is_told_after_it() {
    let world = World::with(1).await;
    let process = world.process();
    let jobs = process.engine.jobs();
    drop(jobs.join("other", 0, 1).await.unwrap());
    let taken = Arc::new(AtomicUsize::new(0));
    let mut subscribers = JoinSet::new();
    for _ in 0..MANY {
        let mut events = process.subscribe(Scope::all()).await;
        let taken = taken.clone();
        subscribers.spawn(async move {
            while let Some(Ok(event)) = events.next().await {
                let is_state = matches!(event, StateEvent::State(_));
                taken.fetch_add(is_state.into(), Ordering::Relaxed);
            }
        });
    }
    let taken = || taken.load(Ordering::Relaxed);
    world.settle().await;
    for status in 1..=2 {
        world.set(0, "a", status).await;
        world.settle().await;
    }
    world.set(0, "a", 3).await;
    let other = jobs.monitor("other").await.unwrap();
    world.settle().await;
    let read = process.monitor().await.get_state(&Scope::all()).await;
    assert_eq!(read.unwrap().status, 3, "it was read");
    assert_eq!(taken(), 2 * MANY, "and they rest");
    world.pass(REST).await;
    assert_eq!(taken(), 3 * MANY);
    drop(other);
}

#[tokio::test]
async fn those_who_rest_hear_of_the_end_as_soon_as_that_is_over() {
    let world = World::with(1).await;
    let process = world.process();
    let mut subscribers = JoinSet::new();
    for _ in 0..MANY {
        let mut events = process.subscribe(Scope::all()).await;
        subscribers.spawn(async move {
            let mut states = 0;
            loop {
                match events.next().await.unwrap() {
                    Ok(StateEvent::State(_)) => states += 1,
                    Ok(_) => {}
                    Err(error) => return (states, error.code()),
                }
            }
        });
    }
    world.settle().await;
    for status in 1..=2 {
        world.set(0, "a", status).await;
        world.settle().await;
    }
    world.set(0, "a", 3).await;
    world.mark_deleted().await;
    world.pass(REST).await;
    while let Some(ended) = subscribers.join_next().await {
        assert_eq!(ended.unwrap(), (3, "job_deleted"));
    }
}

/// How many turns others have until a subscriber is told of a state, after so many were written at once.
async fn turns_after(states: u32) -> usize {
    let world = World::with(1).await;
    let mut events = world.process().subscribe(Scope::all()).await;
    let write = |n: u32| {
        let key = World::key(0, &format!("t{n}"));
        Write::Put(Put::new(key, stored(1, 1)))
    };
    let mut commit = Commit::of(write(1));
    commit.writes.extend((2..=states).map(write));
    world.store().commit_one(commit).await.unwrap();
    assert_eq!(world.told(&mut events).await.len() as u32, states + 1);
    world.commit(write(0)).await;
    let mut turns = 0;
    while events.next().now_or_never().is_none() {
        tokio::task::yield_now().await;
        turns += 1;
    }
    turns
}

/// Whoever wrote much at once goes on before the history is read for others. The clock stands still.
#[tokio::test]
async fn who_wrote_much_goes_first() {
    let (few, much) = (turns_after(10).await, turns_after(200).await);
    assert_eq!(much, few + 16);
}
