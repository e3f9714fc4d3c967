//! Places to go on from that are refused, and stores that cannot be followed.

use plimsoll_core::Error;
use plimsoll_core::error::NotFound;
use plimsoll_engine::history::Place;
use plimsoll_engine::records::WatchEvent;

use crate::world::{World, put_of, records};

/// Places that a history which ends at this position never had.
fn never(end: u64) -> [Place; 3] {
    let beyond = [format!("{}", end + 1), format!("{}", end + 1_000)];
    let [next, far] = beyond.map(|text| text.parse().unwrap());
    [next, far, format!("{}", u64::MAX >> 1).parse().unwrap()]
}

async fn end(world: &World) -> u64 {
    let watch = world.engine.history().watch(records("a.")).await.unwrap();
    watch.place().to_string().parse().unwrap()
}

#[tokio::test]
async fn a_place_that_never_was_is_told_also_while_others_watch() {
    for others in [false, true] {
        let world = World::new();
        let history = world.engine.history();
        world.put(&["a.1"], 1).await;
        let mut other = history.watch(records("a.")).await.unwrap();
        if others {
            assert!(futures::poll!(Box::pin(other.next())).is_pending());
            world.settle().await;
        }
        for place in never(end(&world).await) {
            let answer = world
                .soon(history.watch_after(records("a."), place).next())
                .await;
            assert!(
                matches!(answer, Err(Error::NotFound(NotFound::History { .. }))),
                "{place}: {answer:?}"
            );
        }
        world.put(&["a.1"], 2).await;
        assert_eq!(put_of(&world.soon(other.next()).await.unwrap()).1, 2);
    }
}

/// Also one within an entry that has yet to be written.
#[tokio::test]
async fn a_place_within_an_entry_that_never_was_is_told() {
    let world = World::new();
    let history = world.engine.history();
    let mut watch = history.watch(records("a.")).await.unwrap();
    world.put(&["a.1", "a.2"], 1).await;
    let place = world.soon(watch.next()).await.unwrap().place.to_string();
    let (position, rest) = place.split_once('.').unwrap();
    let position: u64 = position.parse().unwrap();
    for beyond in [1, 2, 1_000] {
        let never: Place = format!("{}.{rest}", position + beyond).parse().unwrap();
        let answer = world
            .soon(history.watch_after(records("a."), never).next())
            .await;
        assert!(
            matches!(answer, Err(Error::NotFound(NotFound::History { .. }))),
            "{never}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn records_are_told_anew_to_one_whose_cursor_never_was() {
    let world = World::new();
    let client = world.engine.records();
    world.put(&["a.1"], 1).await;
    let mut other = client.watch("a.").unwrap().changes_only();
    assert!(futures::poll!(Box::pin(other.next())).is_pending());
    world.settle().await;
    for place in never(end(&world).await) {
        let mut watch = client.watch("a.").unwrap().after(place);
        assert_eq!(world.soon(watch.next()).await, Ok(WatchEvent::Restarted));
        let first = world.soon(watch.next()).await.unwrap();
        assert!(matches!(first, WatchEvent::Snapshot(record) if record.key.as_str() == "a.1"));
        let marker = world.soon(watch.next()).await.unwrap();
        assert!(matches!(marker, WatchEvent::ReplayComplete { .. }));
    }
}

#[tokio::test]
async fn a_place_within_a_commit_is_refused_by_those_who_watch_something_else() {
    let world = World::new();
    let history = world.engine.history();
    let mut watch = history.watch(records("a.")).await.unwrap();
    let before = watch.place();
    world.put(&["a.1", "b.1", "a.2"], 1).await;
    let within = world.soon(watch.next()).await.unwrap().place;
    let mut wrong = history.watch_after(records(""), within);
    for _ in 0..2 {
        let refused = world.soon(wrong.next()).await.unwrap_err();
        assert!(refused.to_string().contains("cursor"), "{refused}");
        assert_eq!((refused.code(), wrong.place()), ("invalid", within));
    }
    let client = world.engine.records();
    let mut wrong = client.watch("b.").unwrap().after(within);
    assert_eq!(
        world.soon(wrong.next()).await.unwrap_err().code(),
        "invalid"
    );
    // Nobody was ever told one without a mark.
    let text = within.to_string();
    let bare = text.split_once('-').unwrap().0.parse().unwrap();
    let mut wrong = history.watch_after(records("a."), bare);
    assert_eq!(
        world.soon(wrong.next()).await.unwrap_err().code(),
        "invalid"
    );
    // The same question may be asked by other means, and a place between commits is anybody's.
    let mut right = client.watch("a.").unwrap().after(within);
    let event = world.soon(right.next()).await.unwrap();
    assert!(matches!(event, WatchEvent::Put { record, .. } if record.key.as_str() == "a.2"));
    let mut all = history.watch_after(records(""), before);
    for key in ["a.1", "b.1", "a.2"] {
        assert_eq!(put_of(&world.soon(all.next()).await.unwrap()).0, key);
    }
}

#[tokio::test]
async fn a_store_without_an_order_of_all_changes_is_not_followed() {
    let world = World::poor(false);
    let history = world.engine.history();
    let refused = history.watch(records("a.")).await.unwrap_err();
    assert!(refused.to_string().contains("total_order"), "{refused}");
    assert_eq!(refused.code(), "unsupported");
    let place: Place = "0".parse().unwrap();
    let answer = world
        .soon(history.watch_after(records("a."), place).next())
        .await;
    assert_eq!(answer, Err(refused.clone()));
    let client = world.engine.records();
    for watch in [
        client.watch("a.").unwrap(),
        client.watch("a.").unwrap().changes_only(),
        client.watch("a.").unwrap().after(place),
    ] {
        let mut watch = watch;
        assert_eq!(world.soon(watch.next()).await, Err(refused.clone()));
    }
}
