//! What there is, a marker, what changes.

use futures::StreamExt;
use plimsoll_engine::jobs::{Cursor, Scope, StateEvent, SubscribeOptions};

use crate::world::{JOB, World, partition, seconds, spawn, tag};

/// Goes on after this.
fn after(cursor: &Cursor) -> SubscribeOptions {
    SubscribeOptions {
        after: Some(cursor.clone()),
        ..SubscribeOptions::default()
    }
}

#[tokio::test]
async fn what_there_is_comes_oldest_first_then_one_marker_then_what_changes() {
    let world = World::with(3).await;
    for (partition, tag, status) in [(2, "a", 1), (1, "a", 2), (0, "b", 3), (1, "a", 4)] {
        world.set(partition, tag, status).await;
        world.clock.advance(seconds(1));
    }
    let mut all = world.process().subscribe(Scope::all()).await;
    world.set(0, "a", 5).await;
    world.set(2, "a", 6).await;
    let expected = [
        "was 2-a=1 v1",
        "was 0-b=3 v1",
        "was 1-a=4 v2",
        "marker",
        "now 0-a=5 v1",
        "now 2-a=6 v2",
    ];
    assert_eq!(world.told(&mut all).await, expected);
}

#[tokio::test]
async fn who_waits_has_told_everything_that_there_was() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    let mut all = world.process().subscribe(Scope::all()).await;
    assert!(!all.is_waiting(), "it has told nothing yet");
    all.next().await.unwrap().unwrap();
    assert!(!all.is_waiting(), "the marker is to come");
    assert_eq!(world.told(&mut all).await, ["marker"]);
    assert!(all.is_waiting());
    world.set(0, "a", 2).await;
    all.next().await.unwrap().unwrap();
    assert!(!all.is_waiting(), "nobody knows what comes next");
    assert!(world.told(&mut all).await.is_empty());
    assert!(all.is_waiting());
}

#[tokio::test]
async fn states_of_one_moment_come_in_the_order_in_which_they_were_set() {
    let world = World::with(3).await;
    world.set(1, "a", 1).await;
    for (partition, tag) in [(2, "a"), (1, "c"), (1, "b"), (1, "a"), (0, "z")] {
        world.set(partition, tag, 1).await;
    }
    let mut all = world.process().subscribe(Scope::all()).await;
    let expected = [
        "was 2-a=1 v1",
        "was 1-c=1 v1",
        "was 1-b=1 v1",
        "was 1-a=1 v2",
        "was 0-z=1 v1",
        "marker",
    ];
    assert_eq!(world.told(&mut all).await, expected);
}

#[tokio::test]
async fn each_scope_shows_its_states_and_no_others() {
    let world = World::with(2).await;
    for (partition, tag) in [(0, "a"), (0, "b"), (1, "a")] {
        world.set(partition, tag, 1).await;
    }
    let process = world.process();
    let mut one = process.subscribe(partition(0).tag("a").unwrap()).await;
    let mut of_tag = process.subscribe(tag("a")).await;
    let mut of_partition = process.subscribe(partition(0)).await;
    let mut none = process.subscribe(tag("never")).await;
    for (partition, tag) in [(0, "a"), (0, "b"), (1, "a"), (1, "b")] {
        world.set(partition, tag, 2).await;
    }
    let told = ["was 0-a=1 v1", "marker", "now 0-a=2 v2"];
    assert_eq!(world.told(&mut one).await, told);
    let told = [
        "was 0-a=1 v1",
        "was 1-a=1 v1",
        "marker",
        "now 0-a=2 v2",
        "now 1-a=2 v2",
    ];
    assert_eq!(world.told(&mut of_tag).await, told);
    let told = [
        "was 0-a=1 v1",
        "was 0-b=1 v1",
        "marker",
        "now 0-a=2 v2",
        "now 0-b=2 v2",
    ];
    assert_eq!(world.told(&mut of_partition).await, told);
    assert_eq!(world.told(&mut none).await, ["marker"]);
}

#[tokio::test]
async fn a_partition_that_the_job_does_not_have_cannot_be_subscribed_to() {
    let world = World::with(2).await;
    let monitor = world.process().monitor().await;
    let options = SubscribeOptions::default();
    let refused = monitor.subscribe(partition(2), options).await;
    assert_eq!(refused.unwrap_err().code(), "invalid");
}

#[tokio::test]
async fn one_who_goes_on_after_an_event_gets_what_followed_it_and_no_marker() {
    let world = World::with(1).await;
    let process = world.process();
    let mut first = process.subscribe(Scope::all()).await;
    for status in 1..=5 {
        world.set(0, "a", status).await;
    }
    let events = world.events(&mut first).await;
    let cursors: Vec<_> = events
        .iter()
        .map(|event| event.as_ref().unwrap().cursor().unwrap())
        .collect();
    // By the same process, which has it at hand, and by one that has to look it up.
    for process in [process, world.process_of(2)] {
        for (index, cursor) in cursors.iter().enumerate() {
            let cursor = cursor.to_string().parse().unwrap();
            let monitor = process.monitor().await;
            let mut second = monitor
                .subscribe(Scope::all(), after(&cursor))
                .await
                .unwrap();
            let expected: Vec<_> = (index + 1..=5)
                .map(|n| format!("now 0-a={n} v{n}"))
                .collect();
            assert_eq!(world.told(&mut second).await, expected, "after {cursor}");
        }
    }
}

#[tokio::test]
async fn a_cursor_that_is_ahead_of_this_process_brings_nothing_twice() {
    let world = World::with(1).await;
    let (quick, slow) = (world.process(), world.process_of(2));
    let monitor = slow.monitor().await;
    world.settle().await;
    // From here on the slow one is told nothing, until a second has passed.
    slow.disconnect(1);
    world.set(0, "a", 1).await;
    world.settle().await;
    let mut first = quick.subscribe(Scope::all()).await;
    world.set(0, "a", 2).await;
    let events = world.events(&mut first).await;
    let Some(Ok(StateEvent::State(last))) = events.last() else {
        panic!("{events:?}");
    };
    let options = after(&last.cursor().unwrap());
    let mut second = monitor.subscribe(Scope::all(), options).await.unwrap();
    assert!(world.told(&mut second).await.is_empty());
    world.pass(seconds(2)).await;
    world.set(0, "a", 3).await;
    assert_eq!(world.told(&mut second).await, ["now 0-a=3 v3"]);
}

#[tokio::test]
async fn one_who_reads_what_this_process_was_not_told_of_yet_does_not_read_past_the_end_of_the_job()
{
    let world = World::with(1).await;
    let begin: Cursor = "1:1.0@import".parse().unwrap();
    world.set(0, "a", 1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    world.settle().await;
    process.disconnect(1);
    world.set(0, "a", 2).await;
    world.mark_deleted().await;
    world.create(1, "2").await;
    world.set(0, "a", 3).await;
    world.settle().await;
    let early = monitor.subscribe(Scope::all(), after(&begin)).await;
    let mut early = early.unwrap();
    assert_eq!(world.told(&mut early).await, ["now 0-a=1 v1"]);
    world.pass(seconds(2)).await;
    assert_eq!(
        world.told(&mut early).await,
        ["now 0-a=2 v2", "job_deleted"]
    );
}

#[tokio::test]
async fn a_cursor_of_another_job_is_refused() {
    let world = World::with(1).await;
    let monitor = world.process().monitor().await;
    let cursor: Cursor = "3:1.0@export".parse().unwrap();
    let refused = monitor.subscribe(Scope::all(), after(&cursor)).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "invalid input: cursor: expected a cursor of a subscription to the same job"
    );
    assert!("3".parse::<Cursor>().is_err());
    for bad in ["x:1.0@import", "3:1@import", "3:1.x@import"] {
        assert!(bad.parse::<Cursor>().is_err(), "{bad}");
    }
}

#[tokio::test]
async fn a_deleted_job_ends_its_subscriptions_after_everything_was_told() {
    let world = World::with(1).await;
    let mut all = world.process().subscribe(Scope::all()).await;
    world.set(0, "a", 1).await;
    world.mark_deleted().await;
    world.create(1, "2").await;
    world.set(0, "a", 2).await;
    let told = ["marker", "now 0-a=1 v1", "job_deleted"];
    assert_eq!(world.told(&mut all).await, told);
    assert_eq!(all.next().await, None);
}

#[tokio::test]
async fn a_subscription_is_a_stream_and_keeps_the_states_warm_by_itself() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    let stream = world.process().subscribe(Scope::all()).await;
    world.set(0, "a", 2).await;
    let statuses: Vec<_> = stream
        .filter_map(async |event| match event.unwrap() {
            StateEvent::State(state) => Some(state.status),
            StateEvent::ReplayComplete { .. } | StateEvent::Restarted => None,
        })
        .take(2)
        .collect()
        .await;
    assert_eq!(statuses, [1, 2]);
    world.settle().await;
    assert_eq!(world.clock.sleepers(), 0, "nobody follows the history");
}

#[tokio::test]
async fn an_entry_that_is_answered_twice_is_told_once() {
    let world = World::with(2).await;
    let process = world.process();
    process.history.repeats();
    let mut all = process.subscribe(Scope::all()).await;
    for status in 1..=3 {
        world.set(0, "a", status).await;
        world.settle().await;
    }
    world.remove(0, "a").await;
    world.set(0, "a", 4).await;
    let told = [
        "marker",
        "now 0-a=1 v1",
        "now 0-a=2 v2",
        "now 0-a=3 v3",
        "now 0-a=4 v1",
    ];
    assert_eq!(world.told(&mut all).await, told);
}

/// What there is is shown twice, and so is what happens while that is on its way: only the last of it is there.
#[tokio::test]
async fn a_version_that_is_repeated_during_the_replay_is_told_once() {
    let world = World::with(1).await;
    for tag in ["a", "b", "c"] {
        world.set(0, tag, 1).await;
    }
    let process = world.process();
    process.history.repeats();
    process.history.hold_scans();
    let engine = process.engine.clone();
    let opening = spawn(async move {
        let monitor = engine.jobs().monitor(JOB).await.unwrap();
        let options = SubscribeOptions::default();
        monitor.subscribe(Scope::all(), options).await.unwrap()
    });
    world.settle().await;
    assert_eq!(process.history.scans(), 1, "it was read, and is held");
    world.set(0, "a", 2).await;
    world.remove(0, "b").await;
    world.settle().await;
    assert!(!opening.is_finished());
    process.history.let_go(10);
    let mut all = world.soon(opening).await;
    let told = ["was 0-c=1 v1", "was 0-a=2 v2", "marker"];
    assert_eq!(world.told(&mut all).await, told);
    world.set(0, "a", 3).await;
    assert_eq!(world.told(&mut all).await, ["now 0-a=3 v3"]);
}

#[tokio::test]
async fn a_version_that_is_repeated_before_the_replay_is_taken_is_told_once() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    world.set(0, "b", 1).await;
    let process = world.process();
    process.history.repeats();
    let mut events = process.subscribe(Scope::all()).await;
    // Nothing of the replay is taken yet.
    world.set(0, "a", 2).await;
    world.set(0, "b", 2).await;
    world.settle().await;
    let all = [
        "was 0-a=1 v1",
        "was 0-b=1 v1",
        "marker",
        "now 0-a=2 v2",
        "now 0-b=2 v2",
    ];
    assert_eq!(world.told(&mut events).await, all);
}
