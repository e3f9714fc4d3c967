//! Those who are slower than what is kept for them.

use plimsoll_engine::jobs::{Cursor, Scope, StateEvent, SubscribeOptions, Subscription};

use crate::world::{JOB, Process, World, partition, seconds};

/// More than is kept in memory for those who are slow.
const MANY: i32 = 12_000;

fn all(world: &[String]) -> Vec<String> {
    let now = world.iter().filter(|told| told.starts_with("now"));
    now.cloned().collect()
}

fn expected(upto: i32) -> Vec<String> {
    (1..=upto).map(|n| format!("now 0-a={n} v{n}")).collect()
}

#[tokio::test]
async fn one_who_lags_beyond_what_is_kept_gets_everything_once_in_order() {
    let world = World::with(2).await;
    let process = world.process();
    let mut slow = process.subscribe(partition(0)).await;
    for status in 1..=MANY {
        world.set(0, "a", status).await;
        if status % 7 == 0 {
            world.set(1, "a", status).await;
        }
    }
    world.settle().await;
    assert_eq!(all(&world.told(&mut slow).await), expected(MANY));
    // It is live again.
    world.set(0, "a", 5).await;
    let next = format!("now 0-a=5 v{}", MANY + 1);
    assert_eq!(world.told(&mut slow).await, [next]);
}

#[tokio::test]
async fn one_who_lags_gets_everything_once_from_a_history_that_answers_twice() {
    let world = World::with(1).await;
    let process = world.process();
    let mut slow = process.subscribe(Scope::all()).await;
    process.history.repeats();
    for status in 1..=MANY {
        world.set(0, "a", status).await;
    }
    world.settle().await;
    assert_eq!(all(&world.told(&mut slow).await), expected(MANY));
}

#[tokio::test]
async fn one_who_reads_while_others_write_loses_nothing_on_the_way_back_to_live() {
    let world = World::with(1).await;
    let process = world.process();
    let mut slow = process.subscribe(Scope::all()).await;
    let mut got = Vec::new();
    for status in 1..=MANY {
        world.set(0, "a", status).await;
        tokio::task::yield_now().await;
        // It takes one for three that are written, and then none for a while.
        if status % 3 == 0 && status % 1_000 > 500 {
            got.push(crate::world::told(
                &slow.next().await.unwrap().map(StateEvent::keep),
            ));
        }
    }
    got.extend(world.told(&mut slow).await);
    assert_eq!(all(&got), expected(MANY));
    assert_eq!(got.iter().filter(|told| *told == "marker").count(), 1);
}

#[tokio::test]
async fn history_that_is_compacted_under_a_slow_reader_restarts_it_with_what_there_is() {
    let world = World::with(2).await;
    let process = world.process();
    let mut slow = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut slow).await, ["marker"]);
    for status in 1..=MANY {
        world.set(0, "a", status).await;
    }
    world.set(1, "b", 8).await;
    world.settle().await;
    world.compact().await;
    let last = format!("was 0-a={MANY} v{MANY}");
    let told = world.told(&mut slow).await;
    assert_eq!(told, ["restarted", &last, "was 1-b=8 v1", "marker"]);
    world.set(1, "b", 9).await;
    assert_eq!(world.told(&mut slow).await, ["now 1-b=9 v2"]);
}

#[tokio::test]
async fn how_much_is_kept_can_be_chosen() {
    for (kept, first) in [(2, "restarted"), (5, "now 0-a=1 v1")] {
        let world = World::with(1).await;
        let jobs = world.process().engine.keeping_events(kept).jobs();
        let monitor = jobs.monitor(JOB).await.unwrap();
        let subscribed = monitor.subscribe(Scope::all(), SubscribeOptions::default());
        let mut slow = subscribed.await.unwrap();
        assert_eq!(world.told(&mut slow).await, ["marker"]);
        for status in 1..=5 {
            world.set(0, "a", status).await;
        }
        world.settle().await;
        world.compact().await;
        let told = world.told(&mut slow).await;
        assert_eq!(told.first().map(String::as_str), Some(first), "{kept} kept");
    }
}

#[tokio::test]
async fn compaction_does_not_touch_one_who_has_read_everything() {
    let world = World::with(1).await;
    let process = world.process();
    let mut quick = process.subscribe(Scope::all()).await;
    world.set(0, "a", 1).await;
    assert_eq!(world.told(&mut quick).await, ["marker", "now 0-a=1 v1"]);
    for _ in 0..10 {
        world.create(1, "1").await;
    }
    // It is told of nothing, and yet knows how far the history is.
    assert!(world.told(&mut quick).await.is_empty());
    world.compact().await;
    for status in 2..=MANY {
        world.set(0, "a", status).await;
    }
    world.settle().await;
    let told = world.told(&mut quick).await;
    assert_eq!(told, expected(MANY)[1..]);
}

#[tokio::test]
async fn an_old_cursor_and_one_that_never_was_restart_with_what_there_is() {
    let world = World::with(1).await;
    world.set(0, "a", 1).await;
    world.set(0, "a", 2).await;
    world.compact().await;
    let process = world.process();
    let monitor = process.monitor().await;
    for cursor in ["1:1.0@import", "1.0:1.0@import", "999:1.0@import"] {
        let cursor: Cursor = cursor.parse().unwrap();
        let options = SubscribeOptions {
            after: Some(cursor),
            ..SubscribeOptions::default()
        };
        let mut old = monitor.subscribe(Scope::all(), options).await.unwrap();
        let told = ["restarted", "was 0-a=2 v2", "marker"];
        assert_eq!(world.told(&mut old).await, told);
    }
}

#[tokio::test]
async fn the_smallest_buffer_loses_nothing_either() {
    let world = World::with(1).await;
    let monitor = world.process().monitor().await;
    let options = SubscribeOptions {
        depth: 0,
        after: None,
    };
    let mut tiny = monitor.subscribe(Scope::all(), options).await.unwrap();
    for status in 1..=50 {
        world.set(0, "a", status).await;
    }
    assert_eq!(all(&world.told(&mut tiny).await), expected(50));
}

#[tokio::test]
async fn one_who_lags_behind_the_end_of_a_job_is_not_told_of_the_one_that_follows() {
    let world = World::with(1).await;
    let process = world.process();
    let mut slow = process.subscribe(Scope::all()).await;
    assert_eq!(world.told(&mut slow).await, ["marker"]);
    for status in 1..=MANY {
        world.set(0, "a", status).await;
    }
    world.mark_deleted().await;
    world.create(1, "2").await;
    world.set(0, "a", 7).await;
    world.settle().await;
    let told = world.told(&mut slow).await;
    assert_eq!(all(&told), expected(MANY));
    assert_eq!(told.last().unwrap(), "job_deleted");
}

/// States of 0-a up to this version, each followed by some whose version does not grow.
async fn versions(world: &World, versions: std::ops::RangeInclusive<i32>) {
    for n in versions {
        let version = i64::from(n);
        world.write(0, "a", (n, version)).await;
        if n % 1_000 == 2 {
            world.write(0, "a", (-7, version)).await;
            world.write(0, "a", (-8, version - 1)).await;
        }
    }
}

async fn resume(process: &Process, cursor: &Cursor) -> Subscription {
    let options = SubscribeOptions {
        after: Some(cursor.clone()),
        ..SubscribeOptions::default()
    };
    let monitor = process.monitor().await;
    monitor.subscribe(Scope::all(), options).await.unwrap()
}

#[tokio::test]
async fn one_who_reads_the_history_by_itself_is_told_no_version_twice_and_none_that_falls() {
    let world = World::with(1).await;
    let process = world.process();
    let mut slow = process.subscribe(Scope::all()).await;
    let Some(Ok(StateEvent::ReplayComplete { cursor: begin })) = slow.next().await else {
        panic!("nothing is there");
    };
    world.set(0, "a", 1).await;
    world.write(0, "a", (2, 2)).await;
    let told = world.events(&mut slow).await;
    let Some(Ok(StateEvent::State(last))) = told.last() else {
        panic!("two were written");
    };
    // The next that it would read is one that it was told before.
    let second = last.cursor().unwrap();
    world.write(0, "a", (-7, 2)).await;
    world.write(0, "a", (-8, 1)).await;
    versions(&world, 3..=MANY).await;
    world.settle().await;
    assert_eq!(world.told(&mut slow).await, expected(MANY)[2..]);
    for (cursor, from) in [(&begin, 0), (&second, 2)] {
        let mut late = resume(&process, cursor).await;
        assert_eq!(world.told(&mut late).await, expected(MANY)[from..]);
    }
    // Another process has not followed all that.
    let mut late = resume(&world.process_of(2), &begin).await;
    assert_eq!(world.told(&mut late).await, expected(MANY));
    // All go on.
    world.write(0, "a", (3, i64::from(MANY) + 1)).await;
    for all in [&mut slow, &mut late] {
        assert_eq!(world.told(all).await, [format!("now 0-a=3 v{}", MANY + 1)]);
    }
}

#[tokio::test]
async fn what_a_refresh_found_is_told_once_to_one_who_reads_it_in_the_history() {
    for catches_up in [false, true] {
        let world = World::with(1).await;
        let process = world.process();
        let mut slow = process.subscribe(Scope::all()).await;
        process.history.omits("-c");
        world.set(0, "c", 5).await;
        for status in 1..=MANY {
            world.set(0, "a", status).await;
        }
        world.settle().await;
        process.history.tells_all();
        let mut told = Vec::new();
        if catches_up {
            told.extend(world.told(&mut slow).await);
        }
        process.disconnect(1);
        world.set(0, "b", 6).await;
        world.pass(seconds(1)).await;
        told.extend(world.told(&mut slow).await);
        let all = all(&told);
        assert_eq!(all[0], "now 0-c=5 v1");
        assert_eq!(all[1..=MANY as usize], expected(MANY));
        assert_eq!(all[MANY as usize + 1..], ["now 0-b=6 v1"]);
        // Whatever comes next is news.
        world.set(0, "c", 7).await;
        assert_eq!(world.told(&mut slow).await, ["now 0-c=7 v2"]);
    }
}
