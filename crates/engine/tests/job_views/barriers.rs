//! Waiting for all partitions.

use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Name};
use plimsoll_engine::jobs::{FINISHED, WARNING};

use crate::world::{World, seconds, short, spawn};

#[tokio::test]
async fn a_barrier_opens_when_the_last_partition_is_there() {
    let world = World::with(3).await;
    let monitor = world.process().monitor().await;
    let wait = spawn(monitor.barrier("a", 10).unwrap().into_future());
    for (partition, status) in [(0, 10), (1, FINISHED), (2, 9)] {
        world.set(partition, "a", status).await;
        world.settle().await;
        assert!(!wait.is_finished());
    }
    world.set(2, "b", FINISHED).await;
    world.settle().await;
    assert!(!wait.is_finished());
    world.set(2, "a", 11).await;
    let lowest = world.soon(wait).await.unwrap();
    assert_eq!(short(&lowest), "0-a=10 v1");
    assert_eq!(monitor.barrier("a", 10).unwrap().await.unwrap(), lowest);
}

#[tokio::test]
async fn all_partitions_must_be_there_at_one_moment() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let wait = spawn(monitor.barrier("a", 5).unwrap().into_future());
    for (partition, status) in [(0, 5), (0, 4), (1, 5)] {
        world.set(partition, "a", status).await;
        world.settle().await;
    }
    assert!(!wait.is_finished());
    world.set(0, "a", 5).await;
    assert_eq!(short(&world.soon(wait).await.unwrap()), "0-a=5 v3");
}

#[tokio::test]
async fn an_error_of_any_partition_fails_it_at_once_and_so_does_a_warning() {
    for status in [-1, WARNING, i32::MIN] {
        let world = World::with(3).await;
        let monitor = world.process().monitor().await;
        let wait = spawn(monitor.barrier("a", 5).unwrap().into_future());
        world.set(1, "b", status).await;
        world.settle().await;
        assert!(!wait.is_finished(), "it is another tag");
        world.set(1, "a", status).await;
        let failed = Conflict::PartitionFailed {
            job: Name::new("import").unwrap(),
            tag: Name::new("a").unwrap(),
            partition: 1,
            status,
            message: format!("at {status}"),
        };
        assert_eq!(world.soon(wait).await, Err(failed.into()));
    }
}

#[tokio::test]
async fn a_barrier_that_is_not_reached_in_time_says_who_is_behind() {
    let world = World::with(4).await;
    world.set(0, "a", 10).await;
    world.set(1, "a", 3).await;
    let monitor = world.process().monitor().await;
    let barrier = monitor.barrier("a", 10).unwrap().within(seconds(30));
    let wait = spawn(barrier.into_future());
    world.pass(seconds(29)).await;
    assert!(!wait.is_finished());
    world.pass(seconds(1)).await;
    let late = Conflict::BarrierNotReached {
        job: Name::new("import").unwrap(),
        tag: Name::new("a").unwrap(),
        wanted: 10,
        behind: 3,
        partition: 2,
        status: 0,
    };
    assert_eq!(world.soon(wait).await, Err(late.into()));
    // One that was reached before is reached, however little time it has.
    let now = monitor.barrier("a", 0).unwrap().within(seconds(0));
    assert_eq!(now.await.unwrap().partition, 2);
}

#[tokio::test]
async fn a_deleted_job_and_a_bad_tag_fail_it() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let wait = spawn(monitor.barrier("a", 1).unwrap().into_future());
    world.settle().await;
    world.mark_deleted().await;
    let gone = world.soon(wait).await.unwrap_err();
    assert_eq!(gone.code(), "job_deleted");
    let bad = monitor.barrier("", 1).unwrap_err();
    assert!(matches!(bad, Error::Invalid(bad) if bad.field == "tag"));
}
