//! Where a subscription says that it is: nothing that it has not told is before that.

use plimsoll_core::Key;
use plimsoll_core::record::fields;
use plimsoll_core::store::{Merge, Write};
use plimsoll_engine::jobs::{Cursor, Scope, StateEvent, SubscribeOptions, Subscription};

use crate::world::{JOB, Process, World, partition, seconds, told};

async fn subscribe(process: &Process, scope: Scope, options: SubscribeOptions) -> Subscription {
    let monitor = process.monitor().await;
    monitor.subscribe(scope, options).await.unwrap()
}

/// As somebody who has kept its text does.
async fn go_on(process: &Process, scope: Scope, cursor: &Cursor) -> Subscription {
    let options = SubscribeOptions {
        after: Some(cursor.to_string().parse().unwrap()),
        ..SubscribeOptions::default()
    };
    subscribe(process, scope, options).await
}

#[tokio::test]
async fn where_others_write_it_goes_on_and_does_not_grow_too_old() {
    let world = World::with(2).await;
    let process = world.process();
    let mut quiet = process.subscribe(partition(0)).await;
    assert_eq!(quiet.cursor(), None, "it would begin again");
    let marker = quiet.next().await.unwrap().unwrap().keep();
    let marker = marker.cursor().unwrap();
    for status in 1..=3 {
        world.set(1, "a", status).await;
    }
    world.settle().await;
    assert!(world.told(&mut quiet).await.is_empty());
    let before = quiet.cursor().unwrap();
    assert_ne!(before, marker);
    // Nothing of the job: it hears of that now and then.
    let other = Merge::new(Key::new("elsewhere").unwrap()).set(fields([("a", "1")]).unwrap());
    world.commit(Write::Merge(other)).await;
    world.pass(seconds(60)).await;
    let now = quiet.cursor().unwrap();
    assert_ne!(now, before);
    world.compact().await;

    let mut late = go_on(&world.process_of(2), partition(0), &marker).await;
    assert_eq!(world.told(&mut late).await, ["restarted", "marker"]);
    let mut on = go_on(&world.process_of(3), partition(0), &now).await;
    assert!(on.cursor().is_some());
    assert!(world.told(&mut on).await.is_empty());
    world.set(0, "a", 4).await;
    for of in [&mut quiet, &mut on] {
        assert_eq!(world.told(of).await, ["now 0-a=4 v1"]);
    }
}

/// However much of what it has taken it has told, one by one.
#[tokio::test]
async fn whoever_goes_on_from_it_is_told_everything_else_and_nothing_twice() {
    for is_slow in [false, true] {
        for count in 0..=6 {
            let world = World::with(2).await;
            let process = world.process();
            let engine = match is_slow {
                true => process.engine.clone().keeping_events(2),
                false => process.engine.clone(),
            };
            let monitor = engine.jobs().monitor(JOB).await.unwrap();
            let options = SubscribeOptions::default();
            let subscribed = monitor.subscribe(partition(0), options).await;
            let mut first = subscribed.unwrap();
            assert_eq!(world.told(&mut first).await, ["marker"]);
            for status in 1..=6 {
                world.set(0, "a", status).await;
                world.set(1, "a", status).await;
            }
            world.settle().await;
            let mut all = Vec::new();
            for _ in 0..count {
                let event = first.next().await.unwrap();
                all.push(told(&event.map(StateEvent::keep)));
            }
            let cursor = first.cursor().unwrap();
            for seed in [1, 2] {
                let mut second = go_on(&world.process_of(seed), partition(0), &cursor).await;
                let rest = world.told(&mut second).await;
                let expected = (1..=6).map(|n| format!("now 0-a={n} v{n}"));
                let both: Vec<_> = all.iter().cloned().chain(rest).collect();
                assert_eq!(both, expected.collect::<Vec<_>>(), "after {count}");
            }
        }
    }
}

#[tokio::test]
async fn it_stays_where_it_was_when_a_manager_is_closed() {
    let world = World::empty();
    let process = world.process();
    let manager = process.engine.jobs().join(JOB, 0, 1).await.unwrap();
    let options = SubscribeOptions::default();
    let mut events = manager.subscribe(Scope::all(), options).await.unwrap();
    assert_eq!(world.told(&mut events).await, ["marker"]);
    for status in 1..=3 {
        world.set(0, "a", status).await;
    }
    world.settle().await;
    let first = events.next().await.unwrap().map(StateEvent::keep);
    assert_eq!(told(&first), "now 0-a=1 v1");
    manager.close().await;
    assert!(events.next().await.is_none());
    let cursor = events.cursor().unwrap();
    let mut second = go_on(&world.process_of(2), Scope::all(), &cursor).await;
    let rest = ["now 0-a=2 v2", "now 0-a=3 v3"];
    assert_eq!(world.told(&mut second).await, rest);
}

#[tokio::test]
async fn there_is_none_while_it_begins_again() {
    let world = World::with(1).await;
    let process = world.process();
    world.set(0, "a", 1).await;
    let mut slow = process.subscribe(Scope::all()).await;
    assert_eq!(slow.cursor(), None);
    assert_eq!(world.told(&mut slow).await, ["was 0-a=1 v1", "marker"]);
    let old = slow.cursor().unwrap();
    world.set(0, "a", 2).await;
    world.settle().await;
    world.compact().await;
    let mut again = go_on(&world.process_of(2), Scope::all(), &old).await;
    for expected in ["restarted", "was 0-a=2 v2"] {
        let event = again.next().await.unwrap().map(StateEvent::keep);
        assert_eq!(told(&event), expected);
        assert_eq!(again.cursor(), None);
    }
    assert_eq!(world.told(&mut again).await, ["marker"]);
    assert!(again.cursor().is_some());
}

/// They were adopted together, and yet whoever goes on after one of them is told those behind it.
#[tokio::test]
async fn what_the_history_left_out_has_places_one_after_the_other() {
    let world = World::with(3).await;
    let process = world.process();
    let mut all = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut all).await, ["marker"]);
    process.history.omits("-b");
    for partition in 0..3 {
        world.set(partition, "b", 7).await;
    }
    world.settle().await;
    process.history.tells_all();
    process.disconnect(1);
    world.set(1, "c", 2).await;
    world.pass(seconds(1)).await;
    let events = world.events(&mut all).await;
    let expected = [
        "now 1-c=2 v1",
        "now 0-b=7 v1",
        "now 1-b=7 v1",
        "now 2-b=7 v1",
    ];
    assert_eq!(events.iter().map(told).collect::<Vec<_>>(), expected);
    for (index, event) in events.iter().enumerate() {
        let cursor = event.as_ref().unwrap().cursor().unwrap();
        let mut second = go_on(&process, Scope::all(), &cursor).await;
        assert_eq!(world.told(&mut second).await, expected[index + 1..]);
        // Others cannot know what followed: only the last of them is at the end of an entry.
        let mut second = go_on(&world.process_of(2), Scope::all(), &cursor).await;
        let told = world.told(&mut second).await;
        match index {
            1 | 2 => assert_eq!(told.first().map(String::as_str), Some("restarted")),
            3 => assert!(told.is_empty(), "{told:?}"),
            _ => {}
        }
    }
}
