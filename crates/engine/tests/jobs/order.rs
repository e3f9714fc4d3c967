//! Writes of one manager happen in the order in which they were called.

use futures::FutureExt;
use futures::future::join_all;
use plimsoll_core::change::Change;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::store::{Changes, Start};
use plimsoll_core::{Error, Limits};

use crate::world::{World, at, in_memory, in_memory_with, number, spawn, worlds};

/// The statuses of all states in the order of the history.
async fn written(world: &World) -> Vec<i64> {
    let mut changes = Changes {
        start: Start::Oldest,
        interests: Vec::new(),
        limit: 1_000,
    };
    let mut written = Vec::new();
    loop {
        let page = world.store.changes(changes.clone()).await.unwrap();
        for change in page.entries.into_iter().flat_map(|entry| entry.changes) {
            if let Change::Put(record) = change
                && record.key.as_str().starts_with("plimsoll.states.")
            {
                written.push(number(&record, "status"));
            }
        }
        if !page.more {
            return written;
        }
        changes.start = Start::After(page.next);
    }
}

#[tokio::test]
async fn concurrent_calls_are_applied_in_call_order_whatever_is_polled_first() {
    for world in worlds().await {
        let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
        let tags = ["a", "b"];
        let calls = (0..100).map(|n| {
            let manager = manager.clone();
            manager.set_state(at(tags[n % 2], i32::try_from(n).unwrap()))
        });
        let mut calls: Vec<_> = calls.collect();
        calls.reverse();
        let answers = join_all(calls).await;
        let versions = answers.into_iter().map(|answer| answer.unwrap().version);
        let mut versions: Vec<_> = versions.collect();
        versions.reverse();
        assert_eq!(versions, (0..100).map(|n| n / 2 + 1).collect::<Vec<_>>());
        assert_eq!(written(&world).await, (0..100).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn what_waits_is_sent_in_one_call() {
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 1).await.unwrap();
    manager.set_state(at("a", 0)).await.unwrap();
    process.spy.commits();
    process.spy.hold(Method::Commit);
    let first = spawn(manager.set_state(at("a", 1)));
    tokio::task::yield_now().await;
    let others: Vec<_> = (2..50)
        .map(|n| spawn(manager.set_state(at("a", n))))
        .collect();
    process.spy.let_go();
    first.await.unwrap().unwrap();
    join_all(others).await;
    assert_eq!(process.spy.commits(), [1, 48]);
}

#[tokio::test]
async fn a_manager_reads_its_partition_once_and_is_not_refused_then() {
    let world = in_memory();
    let manager = world.process(1).jobs.join("import", 0, 1).await.unwrap();
    for tag in ["a", "b"] {
        manager.set_state(at(tag, 1)).await.unwrap();
    }
    let restarted = world.process(2);
    let manager = restarted.jobs.join("import", 0, 1).await.unwrap();
    for tag in ["a", "b", "c"] {
        manager.set_state(at(tag, 2)).await.unwrap();
    }
    let calls = [Method::Scan, Method::Get, Method::Commit];
    let calls = calls.map(|method| restarted.spy.calls(method));
    assert_eq!(calls, [1, 1, 3]);
}

#[tokio::test]
async fn calls_are_bounded_by_what_the_store_takes() {
    let limits = Limits {
        commits_max: 10,
        ..Limits::default()
    };
    let world = in_memory_with(limits);
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 1).await.unwrap();
    process.spy.commits();
    let calls: Vec<_> = (0..25).map(|n| manager.set_state(at("a", n))).collect();
    for answer in join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(process.spy.commits(), [10, 10, 5]);
}

#[tokio::test]
async fn a_dropped_call_takes_nothing_from_its_neighbours() {
    for world in worlds().await {
        let process = world.process(1);
        let manager = process.jobs.join("import", 0, 1).await.unwrap();
        process.spy.hold(Method::Commit);
        let mut sending = Box::pin(manager.set_state(at("a", 1)));
        assert!(sending.as_mut().now_or_never().is_none());
        tokio::task::yield_now().await;
        let never_polled = manager.set_state(at("a", 2));
        let last = manager.set_state(at("a", 3));
        drop((sending, never_polled));
        process.spy.let_go();
        assert_eq!(last.await.unwrap().version, 3);
        assert_eq!(written(&world).await, [1, 2, 3]);
    }
}

#[tokio::test]
async fn too_many_that_wait_are_refused_at_once() {
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 1).await.unwrap();
    let calls: Vec<_> = (0..5_000).map(|n| manager.set_state(at("a", n))).collect();
    let answers = join_all(calls).await;
    let (kept, refused) = answers.split_at(4_096);
    assert!(kept.iter().all(Result::is_ok));
    for answer in refused {
        let Err(Error::Unavailable(Unavailable { applied, .. })) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(*applied, Applied::No);
    }
    // There is room again.
    manager.set_state(at("a", 1)).await.unwrap();
    assert_eq!(written(&world).await.len(), 4_097);
}

#[tokio::test]
async fn a_write_that_fails_for_good_does_not_stop_those_behind_it() {
    let world = in_memory();
    let process = world.process(1);
    let manager = process.jobs.join("import", 0, 1).await.unwrap();
    manager.set_state(at("a", 0)).await.unwrap();
    for _ in 0..5 {
        process.plan.next(Method::Commit, Fault::ErrorBefore);
    }
    let lost = manager.set_state(at("a", 1)).await;
    assert_eq!(lost.unwrap_err().kind(), "unavailable");
    assert_eq!(manager.set_state(at("a", 2)).await.unwrap().version, 2);
    assert_eq!(written(&world).await, [0, 2]);
}

#[test]
fn a_manager_whose_runtime_has_ended_says_so() {
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let world = in_memory();
    let ended = runtime();
    let manager = ended.block_on(async { world.process(1).jobs.join("import", 0, 1).await });
    let manager = manager.unwrap();
    drop(ended);
    for _ in 0..2 {
        let answer = runtime().block_on(manager.set_state(at("a", 1)));
        assert_eq!(answer.unwrap_err().kind(), "unavailable");
    }
}
