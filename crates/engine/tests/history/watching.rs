//! Watching changes.

use std::time::Duration;

use futures::StreamExt;
use plimsoll_core::Error;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::error::NotFound;
use plimsoll_engine::history::{Place, Reconnect};
use plimsoll_engine::records::WatchEvent;

use crate::world::{World, put_of, records};

#[tokio::test]
async fn what_changes_is_seen_in_order_and_nothing_else() {
    let world = World::new();
    world.put(&["a.old"], 0).await;
    let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
    world.put(&["b.1"], 1).await;
    world.put(&["a.1", "b.2", "a.2"], 2).await;
    world.put(&["a.1"], 3).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(put_of(&watch.next().await.unwrap()));
    }
    let expected = [("a.1", 2), ("a.2", 2), ("a.1", 3)];
    assert_eq!(seen, expected.map(|(key, n)| (key.to_owned(), n)));
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
}

#[tokio::test]
async fn a_watch_goes_on_after_any_change_also_within_a_commit() {
    let world = World::new();
    let history = world.engine.history();
    let mut watch = history.watch(records("a.")).await.unwrap();
    let mut all = vec![(watch.place(), String::new())];
    world.put(&["a.1", "x", "a.2", "a.3"], 1).await;
    world.put(&["x"], 2).await;
    world.put(&["a.4"], 3).await;
    for _ in 0..4 {
        let seen = watch.next().await.unwrap();
        assert_eq!(watch.place(), seen.place);
        all.push((seen.place, put_of(&seen).0));
    }
    for (at, (place, _)) in all.iter().enumerate() {
        // Its text is all that is needed to go on later, elsewhere.
        let place: Place = place.to_string().parse().unwrap();
        let mut again = history.watch_after(records("a."), place);
        for (_, key) in &all[at + 1..] {
            assert_eq!(&put_of(&again.next().await.unwrap()).0, key);
        }
        assert!(futures::poll!(Box::pin(again.next())).is_pending());
    }
}

#[tokio::test]
async fn a_slow_reader_lags_and_misses_nothing() {
    const MANY: u64 = 5_000;
    let world = World::new();
    let history = world.engine.history();
    let mut slow = history.watch(records("a.")).await.unwrap();
    let mut quick = history.watch(records("a.")).await.unwrap();
    for n in 0..MANY {
        world.put(&["a.1"], n).await;
        assert_eq!(put_of(&quick.next().await.unwrap()).1, n);
    }
    for n in 0..MANY {
        assert_eq!(put_of(&slow.next().await.unwrap()).1, n);
    }
    // It has caught up, and is told like everybody else.
    world.calls.reset();
    for n in 0..10 {
        world.put(&["a.1"], n).await;
        assert_eq!(put_of(&slow.next().await.unwrap()).1, n);
        assert_eq!(put_of(&quick.next().await.unwrap()).1, n);
    }
    assert!(world.calls.of(Method::Changes) <= 21, "{:?}", world.calls);
}

#[tokio::test]
async fn one_reads_for_all_and_stops_when_nobody_watches() {
    let world = World::new();
    let history = world.engine.history();
    let mut watches = Vec::new();
    for n in 0..100 {
        let prefix = format!("a.{}", n % 10);
        watches.push(history.watch(records(&prefix)).await.unwrap());
    }
    for watch in &mut watches {
        assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    }
    world.settle().await;
    world.calls.reset();
    world
        .put(
            &[
                "a.0", "a.1", "a.2", "a.3", "a.4", "a.5", "a.6", "a.7", "a.8", "a.9",
            ],
            7,
        )
        .await;
    for watch in &mut watches {
        assert_eq!(put_of(&watch.next().await.unwrap()).1, 7);
    }
    assert!(world.calls.of(Method::Changes) <= 2, "{:?}", world.calls);
    drop(watches);
    world.settle().await;
    world.calls.reset();
    world.put(&["a.0"], 8).await;
    world.pass(Duration::from_secs(60)).await;
    assert_eq!(world.calls.of(Method::Changes), 0);
}

#[tokio::test]
async fn where_nothing_hints_changes_are_seen_within_a_second() {
    let world = World::poor(true);
    let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
    let mut client = world.engine.records().watch("a.").unwrap().changes_only();
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    assert!(futures::poll!(Box::pin(client.next())).is_pending());
    world.settle().await;
    for n in 0..3 {
        world.put(&["a.1"], n).await;
        world.calls.reset();
        world.pass(Duration::from_millis(999)).await;
        assert_eq!(world.calls.of(Method::Changes), 0);
        assert!(futures::poll!(Box::pin(watch.next())).is_pending());
        assert!(futures::poll!(Box::pin(client.next())).is_pending());
        world.pass(Duration::from_millis(1)).await;
        assert_eq!(world.calls.of(Method::Changes), 1);
        assert_eq!(put_of(&watch.next().await.unwrap()).1, n);
        assert!(matches!(client.next().await, Ok(WatchEvent::Put { .. })));
    }
}

#[tokio::test]
async fn a_place_that_is_not_kept_any_more_is_told() {
    let world = World::new();
    let history = world.engine.history();
    let mut watch = history.watch(records("a.")).await.unwrap();
    world.put(&["a.1"], 1).await;
    let old = watch.place();
    watch.next().await.unwrap();
    world.put(&["a.1"], 2).await;
    watch.next().await.unwrap();
    world.forget_history().await;
    world.put(&["a.1"], 3).await;
    // Who has seen everything that is gone goes on.
    assert_eq!(put_of(&watch.next().await.unwrap()).1, 3);
    let error = history.watch_after(records("a."), old).next().await;
    assert!(
        matches!(error, Err(Error::NotFound(NotFound::History { .. }))),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_store_that_does_not_answer_is_asked_again_less_and_less_often() {
    let world = World::new();
    let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    world.settle().await;
    for _ in 0..5 {
        world.plan.next(Method::Changes, Fault::ErrorBefore);
    }
    world.put(&["a.1"], 1).await;
    world.settle().await;
    let began = world.calls.of(Method::Changes);
    for (wait, calls) in [(1, 1), (2, 2), (4, 3), (8, 4)] {
        world.pass(Duration::from_secs(wait)).await;
        assert_eq!(world.calls.of(Method::Changes) - began, calls);
    }
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    world.pass(Duration::from_secs(16)).await;
    assert_eq!(put_of(&watch.next().await.unwrap()).1, 1);
}

#[tokio::test]
async fn a_store_that_does_not_answer_for_long_ends_the_watch_and_it_goes_on_later() {
    let world = World::new();
    let history = world.engine.history();
    let mut watch = history.watch(records("a.")).await.unwrap();
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    world.settle().await;
    for _ in 0..6 {
        world.plan.next(Method::Changes, Fault::ErrorBefore);
    }
    world.put(&["a.1"], 1).await;
    world.pass(Duration::from_secs(31)).await;
    let place = watch.place();
    let mut rest = Box::pin(watch.into_stream());
    assert!(matches!(
        rest.next().await,
        Some(Err(Error::Unavailable(_)))
    ));
    assert!(rest.next().await.is_none());
    let mut again = history.watch_after(records("a."), place);
    assert_eq!(put_of(&again.next().await.unwrap()).1, 1);
}

/// Who has lost patience may ask again, and goes on where it was as soon as the store is back.
#[tokio::test]
async fn a_call_that_failed_may_be_repeated() {
    let world = World::new();
    let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
    let mut client = world.engine.records().watch("a.").unwrap().changes_only();
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    assert!(futures::poll!(Box::pin(client.next())).is_pending());
    world.settle().await;
    for n in 0..2 {
        for _ in 0..6 {
            world.plan.next(Method::Changes, Fault::ErrorBefore);
        }
        world.put(&["a.1", "a.2"], n).await;
        world.pass(Duration::from_secs(31)).await;
        assert_eq!(
            world.soon(watch.next()).await.unwrap_err().code(),
            "unavailable"
        );
        assert_eq!(
            world.soon(client.next()).await.unwrap_err().code(),
            "unavailable"
        );
        for key in ["a.1", "a.2"] {
            let seen = put_of(&world.soon(watch.next()).await.unwrap());
            assert_eq!(seen, (key.to_owned(), n));
            let event = world.soon(client.next()).await.unwrap();
            assert!(matches!(event, WatchEvent::Put { record, .. } if record.key.as_str() == key));
        }
        // It is told like everybody else again.
        assert!(futures::poll!(Box::pin(watch.next())).is_pending());
        assert!(futures::poll!(Box::pin(client.next())).is_pending());
        world.settle().await;
    }
}

/// Also one that reads the store by itself, because what it has to catch up with was never told in this process.
#[tokio::test]
async fn one_who_is_asked_again_is_as_patient_as_before() {
    let world = World::new();
    let twice = Reconnect {
        first: Duration::from_millis(10),
        attempts: 2,
        ..Reconnect::default()
    };
    let history = world.engine.history().reconnect(twice);
    let place = (history.watch(records("a.")).await.unwrap()).place();
    world.put(&["a.1"], 1).await;
    let mut other = history.watch(records("a.")).await.unwrap();
    assert!(futures::poll!(Box::pin(other.next())).is_pending());
    world.settle().await;
    let mut watch = history.watch_after(records("a."), place);
    let fail =
        |times| (0..times).for_each(|_| world.plan.next(Method::Changes, Fault::ErrorBefore));
    let patience = Duration::from_millis(30);
    for _ in 0..3 {
        fail(3);
        world.calls.reset();
        let (seen, ()) = futures::join!(watch.next(), world.pass(patience));
        assert_eq!(seen.unwrap_err().code(), "unavailable");
        assert_eq!(world.calls.of(Method::Changes), 3);
    }
    fail(2);
    let (seen, ()) = futures::join!(watch.next(), world.pass(patience));
    assert_eq!(put_of(&seen.unwrap()).1, 1);
}

#[tokio::test]
async fn a_closed_store_ends_watches() {
    let world = World::new();
    let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    world.engine.store().close().await.unwrap();
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(watch.next().await, Err(Error::Closed));
}

#[tokio::test]
async fn a_call_that_is_dropped_misses_nothing() {
    let world = World::new();
    let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
    for n in 0..50 {
        world.put(&["a.1"], n).await;
        let seen = {
            let mut next = Box::pin(watch.next());
            match futures::poll!(&mut next) {
                std::task::Poll::Ready(seen) => Some(seen),
                std::task::Poll::Pending => None,
            }
        };
        let seen = match seen {
            Some(seen) => seen,
            None => watch.next().await,
        };
        assert_eq!(put_of(&seen.unwrap()).1, n);
    }
}

#[test]
fn watchers_outlive_the_runtime_that_read_for_them() {
    let world = World::new();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let first = runtime();
    let mut watch = first.block_on(async {
        let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
        assert!(futures::poll!(Box::pin(watch.next())).is_pending());
        world.settle().await;
        watch
    });
    drop(first);
    runtime().block_on(async {
        let error = watch.next().await.unwrap_err();
        assert_eq!(error.code(), "unavailable");
        assert!(error.to_string().contains("runtime"), "{error}");
        world.put(&["a.1"], 1).await;
        assert_eq!(put_of(&world.soon(watch.next()).await.unwrap()).1, 1);
    });
}

/// Whoever was to read has never begun.
#[test]
fn a_runtime_that_ends_at_once_keeps_nobody_from_watching_in_another() {
    let world = World::new();
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    };
    let first = runtime();
    let place = first.block_on(async {
        let watch = world.engine.history().watch(records("a.")).await.unwrap();
        watch.place()
    });
    let left = {
        let _entered = first.enter();
        world.engine.history().watch_after(records("b."), place)
    };
    drop(first);
    runtime().block_on(async {
        let mut again = world.engine.history().watch_after(records("a."), place);
        world.put(&["a.1"], 1).await;
        let next = again.next();
        tokio::pin!(next);
        assert!(futures::poll!(&mut next).is_pending());
        world.settle().await;
        let seen = futures::FutureExt::now_or_never(next).expect("it is told");
        assert_eq!(put_of(&seen.unwrap()).1, 1);
    });
    drop(left);
}

#[tokio::test]
async fn one_who_had_nothing_to_see_for_long_has_missed_nothing() {
    let world = World::new();
    let mut watch = world.engine.history().watch(records("a.")).await.unwrap();
    assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    for n in 0..10 {
        world.put(&["b.1"], n).await;
        world.settle().await;
        assert!(futures::poll!(Box::pin(watch.next())).is_pending());
    }
    // What it has passed is not kept any more, when the store goes away for a while.
    world.forget_history().await;
    for _ in 0..6 {
        world.plan.next(Method::Changes, Fault::ErrorBefore);
    }
    world.put(&["b.1"], 11).await;
    world.pass(Duration::from_secs(31)).await;
    assert!(matches!(watch.next().await, Err(Error::Unavailable(_))));
    world.put(&["a.1"], 12).await;
    assert_eq!(put_of(&watch.next().await.unwrap()).1, 12);
}
