//! The four scopes of `get_state`, and what is read from where.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::store::{Put, Write};
use plimsoll_core::{Error, Key, Name};
use plimsoll_engine::jobs::{FINISHED, Progress, Scope};

use crate::world::{JOB, World, partition, short, spawn, stored, tag};

#[tokio::test]
async fn the_lowest_status_wins_in_each_of_the_four_scopes() {
    let world = World::with(3).await;
    for (partition, tag, status) in [(0, "a", 9), (1, "a", 4), (2, "a", 7), (0, "b", 2)] {
        world.set(partition, tag, status).await;
    }
    let monitor = world.process().monitor().await;
    let lowest = async |scope: Scope| short(&monitor.get_state(&scope).await.unwrap());
    assert_eq!(lowest(partition(2).tag("a").unwrap()).await, "2-a=7 v1");
    assert_eq!(lowest(tag("a")).await, "1-a=4 v1");
    assert_eq!(lowest(partition(0)).await, "0-b=2 v1");
    assert_eq!(lowest(Scope::all()).await, "0-b=2 v1");
}

#[tokio::test]
async fn what_is_missing_is_not_started_when_it_is_asked_for_and_not_there_in_lists() {
    let world = World::with(2).await;
    world.set(0, "a", 9).await;
    let monitor = world.process().monitor().await;
    let lowest = async |scope: Scope| short(&monitor.get_state(&scope).await.unwrap());
    assert_eq!(lowest(partition(1).tag("a").unwrap()).await, "1-a=0 v0");
    assert_eq!(lowest(tag("a")).await, "1-a=0 v0");
    assert_eq!(lowest(tag("never")).await, "0-never=0 v0");
    assert_eq!(lowest(partition(1)).await, "1-=0 v0");
    assert_eq!(lowest(Scope::all()).await, "1-=0 v0");
    let states = monitor.states(&Scope::all()).await.unwrap();
    let states: Vec<_> = states.iter().map(|state| short(state)).collect();
    assert_eq!(states, ["0-a=9 v1"]);
}

#[tokio::test]
async fn a_partition_that_the_job_does_not_have_is_refused_with_the_range() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let refused = monitor.get_state(&partition(2)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "invalid input: partition: 2 is not between 0 and 1"
    );
    assert!(monitor.states(&partition(2)).await.is_err());
}

#[tokio::test]
async fn reads_come_from_memory_and_follow_what_others_write() {
    let world = World::with(2).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let scans = process.history.scans();
    for status in 1..50 {
        world.set(0, "a", status).await;
        world.settle().await;
        let scope = partition(0).tag("a").unwrap();
        assert_eq!(monitor.get_state(&scope).await.unwrap().status, status);
    }
    assert_eq!(process.history.scans(), scans);
}

#[tokio::test]
async fn a_refresh_shows_what_was_acknowledged_before_it() {
    let world = World::with(1).await;
    let monitor = world.process().monitor().await;
    for status in 1..50 {
        world.set(0, "a", status).await;
        monitor.refresh().await.unwrap();
        assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, status);
    }
}

#[tokio::test]
async fn handles_of_a_job_share_what_is_loaded_and_the_last_one_lets_it_go() {
    let world = World::with(1).await;
    let process = world.process();
    let first = process.monitor().await;
    let scans = process.history.scans();
    let second = process.monitor().await;
    assert_eq!(process.history.scans(), scans);
    drop(first);
    world.set(0, "a", 5).await;
    world.settle().await;
    assert_eq!(second.get_state(&tag("a")).await.unwrap().status, 5);
    drop(second);
    world.settle().await;
    assert_eq!(world.clock.sleepers(), 0, "nobody follows the history");
    assert_eq!(process.history.scans(), scans);
    process.monitor().await;
    assert!(process.history.scans() > scans);
}

#[tokio::test]
async fn a_job_that_never_was_is_not_found_and_one_that_was_deleted_says_so() {
    let world = World::empty();
    let open = async || world.process().engine.jobs().monitor(JOB).await;
    assert_eq!(open().await.unwrap_err().code(), "job_not_found");
    world.create(2, "1").await;
    let monitor = open().await.unwrap();
    assert_eq!(monitor.partitions().await.unwrap(), 2);
    world.mark_deleted().await;
    world.settle().await;
    let gone = monitor.get_state(&Scope::all()).await.unwrap_err();
    assert_eq!(gone.code(), "job_deleted");
    // What is begun again is another job, with its own number of partitions.
    world.create(5, "2").await;
    assert_eq!(monitor.partitions().await.unwrap(), 5);
}

#[tokio::test]
async fn a_job_whose_name_begins_like_another_one_is_not_mixed_up_with_it() {
    let world = World::with(1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let mut all = process.subscribe(Scope::all()).await;
    let key = Key::new("plimsoll.jobs.import2").unwrap();
    let gone = Write::Put(Put::new(
        key,
        plimsoll_core::record::fields([("x", "y")]).unwrap(),
    ));
    world.commit(gone).await;
    let key = Key::new("plimsoll.states.import2.0-a").unwrap();
    world.commit(Write::Put(Put::new(key, stored(5, 1)))).await;
    assert_eq!(world.told(&mut all).await, ["marker"]);
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 0);
}

#[tokio::test]
async fn a_state_that_cannot_be_read_spoils_what_it_is_a_part_of_and_nothing_else() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    world.set(0, "a", 3).await;
    world.set(1, "b", 4).await;
    let mut bad = stored(7, 1);
    bad.insert(Name::new("status").unwrap(), "seven".into());
    world
        .commit(Write::Put(Put::new(World::key(1, "a"), bad)))
        .await;
    let nonsense = Key::new("plimsoll.states.import.nonsense").unwrap();
    world
        .commit(Write::Put(Put::new(nonsense, stored(1, 1))))
        .await;
    world.set(0, "b", 6).await;
    world.settle().await;
    let corrupt = Error::Corrupt("record plimsoll.states.import.1-a: bad or missing status".into());
    let (bad, good) = (
        partition(1).tag("a").unwrap(),
        partition(0).tag("a").unwrap(),
    );
    assert_eq!(monitor.get_state(&bad).await, Err(corrupt.clone()));
    assert_eq!(monitor.get_state(&tag("a")).await, Err(corrupt.clone()));
    assert_eq!(monitor.get_state(&partition(1)).await, Err(corrupt.clone()));
    assert_eq!(monitor.get_state(&Scope::all()).await, Err(corrupt));
    assert_eq!(monitor.get_state(&good).await.unwrap().status, 3);
    assert_eq!(monitor.get_state(&tag("b")).await.unwrap().status, 4);
    world.set(1, "a", 1).await;
    world.settle().await;
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 1);
}

#[tokio::test]
async fn progress_counts_the_partitions_of_each_tag() {
    let world = World::with(5).await;
    for (partition, status) in [(0, FINISHED), (1, 50), (2, -2), (3, 0)] {
        world.set(partition, "a", status).await;
    }
    let progress = world.process().monitor().await.progress().await.unwrap();
    let expected = Progress {
        tag: Name::new("a").unwrap(),
        not_started: 2,
        running: 1,
        finished: 1,
        failed: 1,
    };
    assert_eq!(progress, [expected]);
}

#[tokio::test]
async fn what_is_written_and_removed_while_states_are_loaded_is_neither_lost_nor_brought_back() {
    let world = World::with(400).await;
    for partition in 0..400 {
        world.set(partition, "a", 5).await;
    }
    let process = world.process();
    process.history.hold_scans();
    let engine = process.engine.clone();
    let opening = spawn(async move { engine.jobs().monitor(JOB).await });
    world.settle().await;
    // The first page was read, and is not there yet: keys come as text, 0 and 10 are on it, 9 is not.
    assert_eq!(process.history.scans(), 1);
    world.remove(0, "a").await;
    world.set(10, "a", 6).await;
    world.remove(399, "a").await;
    world.set(398, "a", 7).await;
    world.settle().await;
    process.history.let_go(1);
    world.settle().await;
    world.remove(1, "a").await;
    world.set(1, "a", 8).await;
    world.remove(2, "a").await;
    process.history.let_go(100);
    let monitor = world.soon(opening).await.unwrap();
    let status = async |of: u32| {
        let scope = partition(of).tag("a").unwrap();
        short(&monitor.get_state(&scope).await.unwrap())
    };
    assert_eq!(status(0).await, "0-a=0 v0");
    assert_eq!(status(10).await, "10-a=6 v2");
    assert_eq!(status(399).await, "399-a=0 v0");
    assert_eq!(status(398).await, "398-a=7 v2");
    assert_eq!(status(1).await, "1-a=8 v1");
    assert_eq!(status(2).await, "2-a=0 v0");
    assert_eq!(monitor.states(&Scope::all()).await.unwrap().len(), 397);
}

#[tokio::test]
async fn nothing_is_served_before_the_history_was_told_up_to_the_end_of_the_scan() {
    let world = World::with(1).await;
    let process = world.process();
    process.history.hold_scans();
    let engine = process.engine.clone();
    let opening = spawn(async move { engine.jobs().monitor(JOB).await });
    world.settle().await;
    process.history.hold_changes();
    world.set(0, "a", 1).await;
    process.history.let_go(100);
    world.settle().await;
    assert!(!opening.is_finished());
    process.history.tell_changes();
    let monitor = world.soon(opening).await.unwrap();
    assert_eq!(monitor.get_state(&tag("a")).await.unwrap().status, 1);
}

#[tokio::test]
async fn one_who_gives_up_while_states_are_loaded_leaves_nothing_behind() {
    let world = World::with(1).await;
    let process = world.process();
    let before = Arc::strong_count(process.engine.store());
    process.history.hold_scans();
    let engine = process.engine.clone();
    let opening = spawn(async move { engine.jobs().monitor(JOB).await });
    world.settle().await;
    // Whoever reads the history has to wait, and finds nobody who wants it then.
    process.disconnect(1);
    world.set(0, "a", 1).await;
    world.settle().await;
    process.history.let_go(100);
    world.settle().await;
    assert!(!opening.is_finished());
    opening.abort();
    world.pass(Duration::from_secs(5)).await;
    assert_eq!(Arc::strong_count(process.engine.store()), before);
}
