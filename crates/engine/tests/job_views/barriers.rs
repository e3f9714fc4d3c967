//! Waiting for all partitions.

use plimsoll_core::error::Conflict;
use plimsoll_core::{Error, Name, Result};
use plimsoll_engine::jobs::{FINISHED, Monitor, NewState, State, WARNING};
use tokio::task::JoinHandle;

use crate::world::{World, partition, seconds, short, spawn};

type Waiting = JoinHandle<Result<State>>;

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

/// A page of the history, and a round of writes, may have both what a barrier waits for and what takes it back.
#[tokio::test]
async fn what_is_taken_back_at_once_counts() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let begin = || spawn(monitor.barrier("a", 5).unwrap().into_future());
    let wait = begin();
    world.settle().await;
    for (partition, status) in [(0, 5), (1, -7), (1, 1)] {
        world.set(partition, "a", status).await;
    }
    assert_eq!(failed(world.soon(wait).await), (1, -7));

    let (wait, despite) = (begin(), monitor.barrier("a", 5).unwrap().despite_warnings());
    let despite = spawn(despite.into_future());
    world.settle().await;
    for (partition, status) in [(1, 6), (0, WARNING), (0, 4)] {
        world.set(partition, "a", status).await;
    }
    assert_eq!(short(&world.soon(despite).await.unwrap()), "0-a=5 v1");
    assert_eq!(short(&world.soon(wait).await.unwrap()), "0-a=5 v1");
    let late = begin();
    world.settle().await;
    assert!(!late.is_finished(), "it begins with what there is");

    let wait = begin();
    world.settle().await;
    world.set(0, "a", -8).await;
    world.mark_deleted().await;
    assert_eq!(failed(world.soon(wait).await), (0, -8));
}

#[tokio::test]
async fn an_error_of_this_process_counts_although_it_begins_again_at_once() {
    let world = World::empty();
    let process = world.process();
    let manager = process.engine.jobs().join("import", 0, 2).await.unwrap();
    let wait = spawn(manager.barrier("a", 5).unwrap().into_future());
    world.settle().await;
    let states = [-3, 1].map(|status| NewState::new("a", status).unwrap());
    let [error, again] = states.map(|state| spawn(manager.set_state(state)));
    assert_eq!(world.soon(error).await.unwrap().version, 1);
    assert_eq!(world.soon(again).await.unwrap().version, 2);
    assert_eq!(failed(world.soon(wait).await), (0, -3));
}

/// What was told is what counts: that this process has gone on since does not hide it.
#[tokio::test]
async fn a_moment_of_this_process_counts_although_it_has_gone_on() {
    let world = World::empty();
    let process = world.process();
    let manager = process.engine.jobs().join("import", 0, 2).await.unwrap();
    world.set(1, "a", 5).await;
    let wait = spawn(manager.barrier("a", 5).unwrap().into_future());
    world.settle().await;
    process.history.hold_changes();
    let states = [5, 1].map(|status| NewState::new("a", status).unwrap());
    for written in states.map(|state| spawn(manager.set_state(state))) {
        world.soon(written).await.unwrap();
    }
    assert!(!wait.is_finished(), "nobody was told yet");
    process.history.tell_changes();
    assert_eq!(short(&world.soon(wait).await.unwrap()), "0-a=5 v1");
}

/// Whoever has gone back to an earlier step, and waits for all to be done with it, waits.
#[tokio::test]
async fn what_this_process_has_taken_back_before_it_waits_does_not_count() {
    let world = World::empty();
    let process = world.process();
    let manager = process.engine.jobs().join("import", 0, 2).await.unwrap();
    world.set(1, "a", 5).await;
    let early = spawn(manager.barrier("a", 5).unwrap().into_future());
    world.settle().await;
    process.history.hold_changes();
    for status in [5, 1] {
        let set = spawn(manager.set_state(NewState::new("a", status).unwrap()));
        world.soon(set).await.unwrap();
    }
    let (late, brief) = (manager.barrier("a", 5).unwrap(), manager.barrier("a", 5));
    let late = spawn(late.into_future());
    let brief = brief.unwrap().within(seconds(0)).await.unwrap_err();
    let Error::Conflict(brief) = brief else {
        panic!("{brief}");
    };
    assert!(
        matches!(
            *brief,
            Conflict::BarrierNotReached {
                behind: 1,
                partition: 0,
                status: 1,
                ..
            }
        ),
        "{brief:?}"
    );
    process.history.tell_changes();
    assert_eq!(short(&world.soon(early).await.unwrap()), "0-a=5 v1");
    world.settle().await;
    assert!(!late.is_finished(), "it was over before");
    let set = spawn(manager.set_state(NewState::new("a", 6).unwrap()));
    world.soon(set).await.unwrap();
    assert_eq!(short(&world.soon(late).await.unwrap()), "1-a=5 v1");
}

/// Also where so much is written before anything is told that a process does not remember each of its writes.
#[tokio::test]
async fn what_was_taken_back_before_much_else_does_not_count_either() {
    let world = World::empty();
    let process = world.process();
    let manager = process.engine.jobs().join("import", 0, 2).await.unwrap();
    world.set(1, "a", 9).await;
    let monitor = process.monitor().await;
    monitor.get_state(&partition(1)).await.unwrap();
    process.history.hold_changes();
    for status in [5, 1].into_iter().chain([6; 40]) {
        let set = spawn(manager.set_state(NewState::new("a", status).unwrap()));
        world.soon(set).await.unwrap();
    }
    let [wait, same] = [(); 2].map(|()| spawn(manager.barrier("a", 5).unwrap().into_future()));
    let late = manager.barrier("a", 5).unwrap().within(seconds(0)).await;
    let late = late.unwrap_err();
    assert!(
        late.to_string().contains("the history had not told so"),
        "{late}"
    );
    assert!(!wait.is_finished() && !same.is_finished());
    process.history.tell_changes();
    for wait in [wait, same] {
        let lowest = world.soon(wait).await.unwrap();
        assert!(lowest.status == 6 && lowest.version > 2, "{lowest:?}");
    }
}

/// What a refresh finds comes in the order of keys, which is not that in which it was written.
#[tokio::test]
async fn what_the_history_left_out_makes_no_moment_that_never_was() {
    let world = World::with(3).await;
    world.set(0, "b", 5).await;
    world.set(1, "b", 9).await;
    world.set(2, "b", 9).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let wait = spawn(monitor.barrier("b", 9).unwrap().into_future());
    world.settle().await;
    process.history.omits("-b");
    world.remove(2, "b").await;
    world.set(1, "b", 5).await;
    world.set(0, "b", 9).await;
    world.settle().await;
    process.history.tells_all();
    process.disconnect(1);
    world.set(0, "c", 2).await;
    world.pass(seconds(1)).await;
    assert_eq!(
        monitor
            .get_state(&partition(0).tag("b").unwrap())
            .await
            .unwrap()
            .status,
        9
    );
    assert!(!wait.is_finished(), "1 fell before 0 was there");
    // What is found is decided at once, without anything else being told.
    process.history.omits("-b");
    for (partition, status) in [(2, 9), (1, -4)] {
        world.set(partition, "b", status).await;
    }
    world.settle().await;
    process.history.tells_all();
    process.disconnect(1);
    world.set(0, "c", 3).await;
    world.pass(seconds(1)).await;
    assert_eq!(failed(world.soon(wait).await), (1, -4));
}

#[tokio::test]
async fn who_waits_goes_on_waiting_where_the_history_is_gone() {
    let world = World::with(2).await;
    world.set(0, "a", 5).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let wait = |status| spawn(monitor.barrier("a", status).unwrap().into_future());
    let (reached, not_yet) = (wait(5), wait(6));
    world.settle().await;
    process.disconnect(2);
    world.set(1, "a", 7).await;
    world.pass(seconds(1)).await;
    world.compact().await;
    world.pass(seconds(2)).await;
    assert_eq!(short(&world.soon(reached).await.unwrap()), "0-a=5 v1");
    assert!(!not_yet.is_finished());
    world.set(0, "a", 6).await;
    assert_eq!(short(&world.soon(not_yet).await.unwrap()), "0-a=6 v2");
}

#[tokio::test]
async fn who_waits_for_the_same_is_answered_whoever_gives_up() {
    let world = World::with(1).await;
    let monitor = world.process().monitor().await;
    let waits =
        [5, 5, 5, 6].map(|status| spawn(monitor.barrier("a", status).unwrap().into_future()));
    world.settle().await;
    let [first, second, third, higher] = waits;
    first.abort();
    world.settle().await;
    world.set(0, "a", 5).await;
    for wait in [second, third] {
        assert_eq!(short(&world.soon(wait).await.unwrap()), "0-a=5 v1");
    }
    assert!(!higher.is_finished());
    world.mark_deleted().await;
    assert_eq!(world.soon(higher).await.unwrap_err().code(), "job_deleted");
}

/// Those who wait for each of these at one tag.
fn waits(monitor: &Monitor, statuses: impl IntoIterator<Item = i32>) -> Vec<Waiting> {
    let barriers = statuses.into_iter().map(|one| monitor.barrier("a", one));
    barriers
        .map(|barrier| spawn(barrier.unwrap().into_future()))
        .collect()
}

#[tokio::test]
async fn one_jump_opens_all_that_it_passes() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let (passed, beyond) = (waits(&monitor, 1..=10), waits(&monitor, [11, FINISHED]));
    world.set(1, "a", 20).await;
    world.settle().await;
    assert!(passed.iter().all(|wait| !wait.is_finished()));
    world.set(0, "a", 10).await;
    for wait in passed {
        assert_eq!(short(&world.soon(wait).await.unwrap()), "0-a=10 v1");
    }
    assert!(beyond.iter().all(|wait| !wait.is_finished()));
}

#[tokio::test]
async fn one_after_the_other_those_up_to_the_lowest_open_and_no_others() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    // Whoever began last is not answered first.
    let mut waiting = waits(&monitor, (1..=10).rev());
    world.settle().await;
    for ((partition, status), opens, lowest) in [
        ((0, 3), 0, ""),
        ((1, 2), 2, "1-a=2 v1"),
        ((1, 7), 1, "0-a=3 v1"),
        ((0, 5), 2, "0-a=5 v2"),
        // What has opened stays so, and what has not waits for more than there was.
        ((0, 1), 0, ""),
        ((1, 9), 0, ""),
        ((0, 4), 0, ""),
        ((0, 10), 4, "1-a=9 v3"),
        ((1, FINISHED), 1, "0-a=10 v5"),
    ] {
        world.set(partition, "a", status).await;
        for wait in waiting.split_off(waiting.len() - opens) {
            assert_eq!(short(&world.soon(wait).await.unwrap()), lowest);
        }
        world.settle().await;
        let open = waiting.iter().filter(|wait| wait.is_finished()).count();
        assert_eq!(open, 0, "after {partition} has {status}");
    }
    assert!(waiting.is_empty());
}

/// Whatever status they wait for.
#[tokio::test]
async fn a_warning_fails_some_and_others_at_the_same_statuses_go_on() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let despite = [3, 5, 8].map(|status| {
        let barrier = monitor.barrier("a", status).unwrap();
        spawn(barrier.despite_warnings().into_future())
    });
    let plain = waits(&monitor, [3, 5, 8]);
    world.set(1, "a", 6).await;
    world.settle().await;
    world.set(0, "a", WARNING).await;
    for wait in plain.into_iter().chain(waits(&monitor, [3, 8])) {
        assert_eq!(failed(world.soon(wait).await), (0, WARNING));
    }
    assert!(despite.iter().all(|wait| !wait.is_finished()));
    let [low, middle, high] = despite;
    world.set(0, "a", 4).await;
    assert_eq!(short(&world.soon(low).await.unwrap()), "0-a=4 v2");
    assert!(!middle.is_finished());
    // Who begins after the warning was over has nothing to do with it.
    let late = waits(&monitor, [5]).remove(0);
    world.settle().await;
    world.set(0, "a", 7).await;
    for wait in [middle, late] {
        assert_eq!(short(&world.soon(wait).await.unwrap()), "1-a=6 v1");
    }
    assert!(!high.is_finished());
    world.set(1, "a", WARNING).await;
    world.set(1, "a", 8).await;
    world.set(0, "a", 9).await;
    assert_eq!(short(&world.soon(high).await.unwrap()), "1-a=8 v3");
}

/// Which partition has failed, and how.
fn failed(answer: Result<State>) -> (u32, i32) {
    match answer {
        Err(Error::Conflict(conflict)) => match *conflict {
            Conflict::PartitionFailed {
                partition, status, ..
            } => (partition, status),
            other => panic!("{other}"),
        },
        other => panic!("{other:?}"),
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
    for (partition, status) in [(1, 10), (2, 9), (3, 12)] {
        world.set(partition, "a", status).await;
    }
    world.settle().await;
    let now = monitor.barrier("a", 9).unwrap().within(seconds(0));
    assert_eq!(now.await.unwrap().partition, 2);
}

#[tokio::test]
async fn a_barrier_despite_warnings_waits_for_who_warns_and_fails_by_an_error_beside_it() {
    let world = World::with(3).await;
    let monitor = world.process().monitor().await;
    let barrier = || monitor.barrier("a", 5).unwrap().despite_warnings();
    let wait = spawn(barrier().into_future());
    for (partition, status) in [(0, WARNING), (1, 5), (2, 5)] {
        world.set(partition, "a", status).await;
        world.settle().await;
        assert!(!wait.is_finished());
    }
    let late = barrier().within(seconds(0)).await.unwrap_err();
    assert!(
        late.to_string().contains("1 partitions have not reached"),
        "{late}"
    );
    world.set(0, "a", 7).await;
    assert_eq!(world.soon(wait).await.unwrap().partition, 1);
    // A warning is lower than an error, and does not hide it.
    world.set(0, "a", WARNING).await;
    let wait = spawn(barrier().into_future());
    world.settle().await;
    assert!(!wait.is_finished());
    world.set(2, "a", -1).await;
    assert_eq!(failed(world.soon(wait).await), (2, -1));
}

#[tokio::test]
async fn a_deleted_job_and_bad_input_fail_it() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let wait = spawn(monitor.barrier("a", 1).unwrap().into_future());
    world.settle().await;
    world.mark_deleted().await;
    let gone = world.soon(wait).await.unwrap_err();
    assert_eq!(gone.code(), "job_deleted");
    let bad = monitor.barrier("", 1).unwrap_err();
    assert!(matches!(bad, Error::Invalid(bad) if bad.field == "tag"));
    for status in [0, -1, i32::MIN] {
        let bad = monitor.barrier("a", status).unwrap_err();
        assert!(matches!(bad, Error::Invalid(bad) if bad.field == "status"));
    }
}
