//! States that are taken many at a time.

use std::future::{Future, poll_fn};

use futures::{FutureExt, StreamExt};
use plimsoll_core::Error;
use plimsoll_engine::jobs::{
    Cursor, Scope, StateBatch, StateEvent, States, SubscribeOptions, Subscription,
};

use crate::world::{JOB, World, partition, seconds, short, tag};

/// A batch in short.
fn said(states: &States) -> String {
    let when = if states.is_replay() { "was" } else { "now" };
    let states: Vec<String> = states.iter().map(|state| short(state)).collect();
    format!("{when} {}", states.join(", "))
}

/// What a subscription tells without time passing, and where it goes on.
async fn batches(world: &World, of: &mut Subscription) -> (Vec<String>, Option<Cursor>) {
    let (mut told, mut cursor) = (Vec::new(), None);
    loop {
        world.settle().await;
        let Some(batch) = of.next_batch().now_or_never() else {
            return (told, cursor);
        };
        told.push(match batch {
            Some(Ok(StateBatch::States(states))) => {
                assert_eq!(states.cursor().is_none(), states.is_replay());
                assert!(states.iter().next().is_some(), "a batch has states");
                cursor = states.cursor();
                said(&states)
            }
            Some(Ok(StateBatch::ReplayComplete { cursor: at })) => {
                cursor = Some(at);
                "marker".into()
            }
            Some(Ok(StateBatch::Restarted)) => "restarted".into(),
            Some(Err(error)) => error.code().into(),
            None => return (told, cursor),
        });
    }
}

async fn subscribe(world: &World, scope: Scope, options: SubscribeOptions) -> Subscription {
    let monitor = world.process().monitor().await;
    monitor.subscribe(scope, options).await.unwrap()
}

#[tokio::test]
async fn what_there_is_comes_in_one_batch_then_the_marker_then_what_changes_together() {
    let world = World::with(2).await;
    for (partition, status) in [(1, 1), (0, 2)] {
        world.set(partition, "a", status).await;
        world.clock.advance(seconds(1));
    }
    let mut all = subscribe(&world, Scope::all(), SubscribeOptions::default()).await;
    for status in [3, 4, 5] {
        world.set(0, "a", status).await;
    }
    let (told, _) = batches(&world, &mut all).await;
    let expected = [
        "was 1-a=1 v1, 0-a=2 v1",
        "marker",
        "now 0-a=3 v2, 0-a=4 v3, 0-a=5 v4",
    ];
    assert_eq!(told, expected);
    assert!(all.is_waiting());
    world.mark_deleted().await;
    assert_eq!(batches(&world, &mut all).await.0, ["job_deleted"]);
    assert!(all.next_batch().await.is_none());
}

/// 64 events are buffered unless another number is asked for, and never less than 4.
#[tokio::test]
async fn a_replay_comes_in_batches_of_the_buffer() {
    let world = World::with(1).await;
    for number in 0..150 {
        world.set(0, &format!("t{number}"), 1).await;
    }
    let usual = SubscribeOptions::default();
    let depth = |depth| SubscribeOptions { depth, after: None };
    for (options, most) in [(usual, 64), (depth(100), 100), (depth(0), 4)] {
        let mut all = subscribe(&world, Scope::all(), options).await;
        let (told, _) = batches(&world, &mut all).await;
        assert_eq!(told.last().map(String::as_str), Some("marker"));
        let replay = told.iter().take(told.len() - 1);
        let sizes: Vec<usize> = replay.map(|told| told.split(", ").count()).collect();
        assert_eq!(sizes.iter().sum::<usize>(), 150);
        assert_eq!(sizes.iter().max(), Some(&most), "{sizes:?}");
    }
}

#[tokio::test]
async fn a_batch_has_only_what_is_of_its_scope_and_is_never_empty() {
    let world = World::with(2).await;
    let options = SubscribeOptions::default();
    let mut one = subscribe(&world, partition(0).tag("a").unwrap(), options).await;
    assert_eq!(batches(&world, &mut one).await.0, ["marker"]);
    world.set(1, "a", 1).await;
    world.set(0, "b", 2).await;
    let (told, cursor) = batches(&world, &mut one).await;
    assert!(told.is_empty() && cursor.is_none() && one.is_waiting());
    world.set(0, "a", 3).await;
    world.set(1, "a", 4).await;
    world.set(0, "a", 5).await;
    let (told, _) = batches(&world, &mut one).await;
    assert_eq!(told, ["now 0-a=3 v1, 0-a=5 v2"]);
}

#[tokio::test]
async fn a_batch_has_no_more_states_than_the_buffer() {
    let world = World::with(1).await;
    for (depth, sizes) in [(0, [4, 4, 2]), (5, [5, 5, 0]), (9, [9, 1, 0])] {
        let options = SubscribeOptions { depth, after: None };
        let mut all = subscribe(&world, tag("a"), options).await;
        batches(&world, &mut all).await;
        for status in 1..=10 {
            world.set(0, "a", status).await;
        }
        let (told, _) = batches(&world, &mut all).await;
        let told = told.iter().map(|batch| batch.split(", ").count());
        let sizes = sizes.into_iter().filter(|size| *size > 0);
        assert!(told.eq(sizes), "with a depth of {depth}");
    }
}

/// Also where an eighth of what is kept would be less.
#[tokio::test]
async fn a_batch_has_as_many_states_as_the_buffer_where_little_is_kept() {
    let world = World::with(1).await;
    let jobs = world.process().engine.keeping_events(100).jobs();
    let monitor = jobs.monitor(JOB).await.unwrap();
    let subscribed = monitor.subscribe(Scope::all(), SubscribeOptions::default());
    let mut all = subscribed.await.unwrap();
    assert_eq!(world.told(&mut all).await, ["marker"]);
    for status in 1..=80 {
        world.set(0, "a", status).await;
    }
    world.settle().await;
    let mut counts = Vec::new();
    while let Some(Some(Ok(StateBatch::States(states)))) = all.next_batch().now_or_never() {
        counts.push(states.iter().count());
    }
    assert_eq!(counts, [64, 16]);
}

#[tokio::test]
async fn whoever_goes_on_after_a_batch_misses_nothing_and_gets_nothing_twice() {
    let world = World::with(2).await;
    let mut one = subscribe(&world, partition(0), SubscribeOptions::default()).await;
    batches(&world, &mut one).await;
    for status in 1..=3 {
        world.set(0, "a", status).await;
        world.set(1, "a", status).await;
    }
    let (told, after) = batches(&world, &mut one).await;
    assert_eq!(told, ["now 0-a=1 v1, 0-a=2 v2, 0-a=3 v3"]);
    world.set(0, "a", 4).await;
    let depth = 64;
    let options = SubscribeOptions { depth, after };
    let mut again = subscribe(&world, partition(0), options).await;
    assert_eq!(batches(&world, &mut again).await.0, ["now 0-a=4 v4"]);
}

#[tokio::test]
async fn events_and_batches_of_one_subscription_go_on_after_each_other() {
    let world = World::with(1).await;
    let mut all = subscribe(&world, Scope::all(), SubscribeOptions::default()).await;
    batches(&world, &mut all).await;
    for status in 1..=4 {
        world.set(0, "a", status).await;
    }
    world.settle().await;
    let first = crate::world::told(&all.next().await.unwrap().map(StateEvent::keep));
    assert_eq!(first, "now 0-a=1 v1");
    let (told, _) = batches(&world, &mut all).await;
    assert_eq!(told, ["now 0-a=2 v2, 0-a=3 v3, 0-a=4 v4"]);
    world.set(0, "a", 5).await;
    assert_eq!(world.told(&mut all).await, ["now 0-a=5 v5"]);
}

#[tokio::test]
async fn one_who_lags_beyond_what_is_kept_gets_everything_in_batches() {
    let world = World::with(1).await;
    let mut slow = subscribe(&world, Scope::all(), SubscribeOptions::default()).await;
    batches(&world, &mut slow).await;
    for status in 1..=12_000 {
        world.set(0, "a", status).await;
    }
    let (told, _) = batches(&world, &mut slow).await;
    let told: Vec<&str> = told
        .iter()
        .flat_map(|batch| batch.strip_prefix("now ").unwrap().split(", "))
        .collect();
    let expected: Vec<String> = (1..=12_000).map(|n| format!("0-a={n} v{n}")).collect();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn what_was_told_stays_as_it_was_while_more_is_told() {
    let world = World::with(1).await;
    for tag in ["a", "b", "c", "d", "e", "f"] {
        world.set(0, tag, 1).await;
        world.clock.advance(seconds(1));
    }
    let depth = 4;
    let options = || SubscribeOptions { depth, after: None };
    let mut kept = subscribe(&world, Scope::all(), options()).await;
    let mut dropped = subscribe(&world, Scope::all(), options()).await;
    let (mut events, mut said) = (Vec::new(), Vec::new());
    for round in 2..20 {
        for event in world.events(&mut kept).await {
            // As it was when it was told.
            said.push(format!("{event:?}"));
            events.push(event);
        }
        let told = world.events(&mut dropped).await;
        assert_eq!(told, events[events.len() - told.len()..]);
        drop(told);
        for _ in 0..round {
            world.set(0, "a", round).await;
        }
    }
    let still: Vec<_> = events.iter().map(|event| format!("{event:?}")).collect();
    assert_eq!(still, said);
    let replayed = events
        .iter()
        .flatten()
        .filter(|event| event.cursor().is_none());
    assert_eq!(replayed.count(), 6);
}

#[tokio::test]
async fn events_are_the_same_one_by_one_in_batches_and_as_a_stream() {
    let world = World::with(2).await;
    for tag in ["a", "b", "c", "d", "e"] {
        world.set(0, tag, 1).await;
    }
    let depth = 4;
    let options = || SubscribeOptions { depth, after: None };
    let mut one = subscribe(&world, partition(0), options()).await;
    let mut many = subscribe(&world, partition(0), options()).await;
    let mut streamed = subscribe(&world, partition(0), options()).await;
    for status in 2..9 {
        world.set(status as u32 % 2, "a", status).await;
    }
    let expected = world.events(&mut one).await;
    assert_eq!(expected.len(), 5 + 1 + 4);
    let mut told = Vec::new();
    loop {
        world.settle().await;
        let Some(batch) = many.next_batch().now_or_never() else {
            break;
        };
        match batch.unwrap().unwrap() {
            StateBatch::States(states) => {
                let before = told.len();
                told.extend(states.events().map(StateEvent::keep).map(Ok));
                assert!((1..=depth).contains(&(told.len() - before)));
            }
            StateBatch::ReplayComplete { cursor } => {
                told.push(Ok(StateEvent::ReplayComplete { cursor }));
            }
            StateBatch::Restarted => panic!("nothing is missing"),
        }
    }
    assert_eq!(told, expected);
    let mut told = Vec::new();
    loop {
        world.settle().await;
        let Some(event) = StreamExt::next(&mut streamed).now_or_never() else {
            break;
        };
        told.extend(event);
    }
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_future_that_has_answered_does_not_look_like_the_end() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    world.set(0, "b", 1).await;
    let mut all = subscribe(&world, Scope::all(), SubscribeOptions::default()).await;
    let mut next = std::pin::pin!(all.next());
    let first = poll_fn(|context| next.as_mut().poll(context)).await;
    assert!(matches!(first, Some(Ok(StateEvent::State(_)))));
    let again = poll_fn(|context| next.as_mut().poll(context)).await;
    assert!(
        matches!(again, Some(Err(Error::Unsupported(_)))),
        "{again:?}"
    );
    assert_eq!(world.told(&mut all).await, ["was 0-b=1 v1", "marker"]);
}

#[tokio::test]
async fn a_future_that_is_dropped_before_it_answers_loses_nothing() {
    let world = World::with(1).await;
    let mut all = subscribe(&world, Scope::all(), SubscribeOptions::default()).await;
    batches(&world, &mut all).await;
    assert!(all.next().now_or_never().is_none());
    for status in [1, 2] {
        world.set(0, "a", status).await;
    }
    assert_eq!(world.told(&mut all).await, ["now 0-a=1 v1", "now 0-a=2 v2"]);
}

#[tokio::test]
async fn as_a_stream_batches_are_the_same_and_end_when_it_is_dropped() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    let process = world.process();
    let monitor = process.monitor().await;
    let subscribed = monitor.subscribe(Scope::all(), SubscribeOptions::default());
    let mut stream = subscribed.await.unwrap().batches();
    let mut told = Vec::new();
    while let Some(Some(batch)) = StreamExt::next(&mut stream).now_or_never() {
        told.push(match batch.unwrap() {
            StateBatch::States(states) => said(&states),
            StateBatch::ReplayComplete { .. } => "marker".into(),
            StateBatch::Restarted => "restarted".into(),
        });
        if told.len() == 2 {
            for status in [2, 3] {
                world.set(0, "a", status).await;
            }
            world.settle().await;
        }
    }
    assert_eq!(told, ["was 0-a=1 v1", "marker", "now 0-a=2 v2, 0-a=3 v3"]);
    let after = stream.cursor();
    assert!(after.is_some());
    world.mark_deleted().await;
    world.settle().await;
    let end = StreamExt::next(&mut stream).now_or_never().unwrap();
    assert_eq!(end.unwrap().unwrap_err().code(), "job_deleted");
    assert!(
        StreamExt::next(&mut stream)
            .now_or_never()
            .unwrap()
            .is_none()
    );
    drop((stream, monitor));
    world.settle().await;
    assert_eq!(world.clock.sleepers(), 0, "nobody follows any more");
}
