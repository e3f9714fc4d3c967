//! Records as they change.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use plimsoll_core::change::Removal;
use plimsoll_core::decorate::{Fault, Method};
use plimsoll_core::store::Compact;
use plimsoll_core::{Error, Ids, Result, StoreExt};
use plimsoll_engine::history::Place;
use plimsoll_engine::records::{Swap, Watch, WatchEvent};

use crate::world::{MINUTE, World, code, on_each_store};

on_each_store!(
    what_is_there_comes_first_then_what_changes,
    deletion_and_expiry_are_told_apart,
    one_key_is_watched_alone,
    a_watch_goes_on_from_every_cursor,
    a_watch_of_one_key_goes_on_from_every_cursor,
    a_watch_is_a_stream_that_ends_after_an_error,
    who_comes_back_too_late_is_told_everything_again,
    who_has_heard_nothing_for_long_has_missed_nothing,
    a_watch_goes_on_from_where_it_is_at_any_time,
    only_changes_if_nothing_else_is_asked_for,
    faults_are_not_seen_by_those_who_watch,
    what_is_written_during_the_snapshot_is_told_once,
    a_new_time_to_live_raises_the_revision_and_is_not_told,
);

/// An event as `key=n`, `-key`, `|` and `!`.
fn short(event: &WatchEvent) -> String {
    let n = |record: &plimsoll_core::record::Record| {
        String::from_utf8(record.field("n").unwrap().to_vec()).unwrap()
    };
    match event {
        WatchEvent::Snapshot(record) => format!("{}:{}", record.key, n(record)),
        WatchEvent::ReplayComplete { .. } => "|".into(),
        WatchEvent::Put { record, .. } => format!("{}={}", record.key, n(record)),
        WatchEvent::Removed { key, how, .. } => match how {
            Removal::Deleted => format!("-{key}"),
            Removal::Expired => format!("~{key}"),
        },
        WatchEvent::Restarted => "!".into(),
    }
}

fn cursor(event: &WatchEvent) -> Option<Place> {
    match event {
        WatchEvent::ReplayComplete { cursor }
        | WatchEvent::Put { cursor, .. }
        | WatchEvent::Removed { cursor, .. } => Some(*cursor),
        WatchEvent::Snapshot(_) | WatchEvent::Restarted => None,
    }
}

async fn told(watch: &mut Watch, count: usize) -> Result<Vec<String>> {
    let mut told = Vec::new();
    for _ in 0..count {
        told.push(short(&watch.next().await?));
    }
    Ok(told)
}

async fn what_is_there_comes_first_then_what_changes(w: World) -> Result<()> {
    for key in ["a.2", "b.1", "a.1"] {
        w.others.set_field(key, "n", 0).await?;
    }
    let mut watch = w.records.watch("a.")?;
    assert_eq!(told(&mut watch, 3).await?, ["a.1:0", "a.2:0", "|"]);
    w.records.set_field("a.2", "n", 1).await?;
    w.records.set_field("b.1", "n", 1).await?;
    w.records.set_field("a.3", "n", 1).await?;
    w.records.delete("a.1").await?;
    assert_eq!(told(&mut watch, 3).await?, ["a.2=1", "a.3=1", "-a.1"]);
    Ok(())
}

async fn deletion_and_expiry_are_told_apart(w: World) -> Result<()> {
    w.records.put("a.1", [("n", "1")], Some(MINUTE)).await?;
    w.records.put("a.2", [("n", "2")], None).await?;
    let mut watch = w.records.watch("a.")?;
    assert_eq!(told(&mut watch, 3).await?, ["a.1:1", "a.2:2", "|"]);
    w.clock.advance(MINUTE);
    let ids = Ids::seeded(7, std::sync::Arc::new(w.clock.clone()));
    assert_eq!(w.bare.sweep(10, &ids).await?.records, 1);
    w.records.delete("a.2").await?;
    assert_eq!(told(&mut watch, 2).await?, ["~a.1", "-a.2"]);
    Ok(())
}

async fn one_key_is_watched_alone(w: World) -> Result<()> {
    w.records.set_field("a.1", "n", 0).await?;
    w.records.set_field("a.10", "n", 0).await?;
    let mut watch = w.records.watch_key("a.1")?;
    assert_eq!(told(&mut watch, 2).await?, ["a.1:0", "|"]);
    w.records.set_field("a.10", "n", 1).await?;
    w.records.set_field("a.1", "n", 1).await?;
    assert_eq!(told(&mut watch, 1).await?, ["a.1=1"]);
    // One that is not there yet has nothing to tell.
    let mut watch = w.records.watch_key("a")?;
    assert_eq!(told(&mut watch, 1).await?, ["|"]);
    Ok(())
}

async fn a_watch_goes_on_from_every_cursor(w: World) -> Result<()> {
    w.records.set_field("a.0", "n", 0).await?;
    let mut watch = w.records.watch("a.")?;
    assert_eq!(told(&mut watch, 1).await?, ["a.0:0"]);
    let mut seen = vec![watch.next().await?];
    for n in 1..5 {
        let both = [Swap::new("a.1").set("n", n), Swap::new("a.2").set("n", n)];
        w.records.commit(both).await?;
        seen.push(watch.next().await?);
        seen.push(watch.next().await?);
    }
    for (at, event) in seen.iter().enumerate() {
        let rest: Vec<_> = seen[at + 1..].iter().map(short).collect();
        let mut again = w.records.watch("a.")?.after(cursor(event).unwrap());
        assert_eq!(told(&mut again, rest.len()).await?, rest);
    }
    Ok(())
}

/// Its neighbours are written in the same commits, before it and behind it, and have its key for a prefix.
async fn a_watch_of_one_key_goes_on_from_every_cursor(w: World) -> Result<()> {
    w.records.set_field("a.1", "n", 0).await?;
    let mut watch = w.records.watch_key("a.1")?;
    assert_eq!(told(&mut watch, 1).await?, ["a.1:0"]);
    let mut seen = vec![watch.next().await?];
    for n in 1..5 {
        let set = |key| Swap::new(key).set("n", n);
        let all = ["a.10", "a.1", "a.11", "b.1"].map(set);
        w.records.commit(all).await?;
        w.records.set_field("a.10", "n", -n).await?;
        seen.push(watch.next().await?);
    }
    let both = ["a.10", "a.1"].map(|key| Swap::new(key).delete());
    w.records.commit(both).await?;
    seen.push(watch.next().await?);
    let all: Vec<_> = seen.iter().map(short).collect();
    assert_eq!(all, ["|", "a.1=1", "a.1=2", "a.1=3", "a.1=4", "-a.1"]);
    w.records.set_field("a.11", "n", 9).await?;
    w.records.set_field("a.1", "n", 9).await?;
    seen.push(watch.next().await?);
    for (at, event) in seen.iter().enumerate() {
        let rest: Vec<_> = seen[at + 1..].iter().map(short).collect();
        let cursor = cursor(event).unwrap().to_string().parse()?;
        let mut again = w.records.watch_key("a.1")?.after(cursor);
        assert_eq!(told(&mut again, rest.len()).await?, rest);
    }
    Ok(())
}

async fn a_watch_is_a_stream_that_ends_after_an_error(w: World) -> Result<()> {
    w.records.set_field("a.1", "n", 0).await?;
    let mut stream = Box::pin(w.records.watch("a.")?.into_stream());
    w.others.set_field("b.1", "n", 0).await?;
    for expected in ["a.1:0", "|"] {
        assert_eq!(short(&stream.next().await.unwrap()?), expected);
    }
    w.others.set_field("a.1", "n", 1).await?;
    w.others.delete("a.1").await?;
    for expected in ["a.1=1", "-a.1"] {
        assert_eq!(short(&stream.next().await.unwrap()?), expected);
    }
    w.records.close().await?;
    assert_eq!(code(w.drive(stream.next()).await.unwrap()), "closed");
    assert!(stream.next().await.is_none());
    Ok(())
}

async fn who_comes_back_too_late_is_told_everything_again(w: World) -> Result<()> {
    w.records.set_field("a.1", "n", 1).await?;
    let mut watch = w.records.watch("a.")?;
    let old = [watch.next().await?, watch.next().await?];
    let old = cursor(&old[1]).unwrap();
    // What others in this process have seen lately would be kept for them.
    drop(watch);
    w.records.set_field("a.2", "n", 2).await?;
    w.clock.advance(MINUTE);
    let compact = Compact {
        history: Some(Duration::ZERO),
        limit: 1_000,
        ..Compact::default()
    };
    assert!(w.bare.compact(compact).await?.entries > 0);
    let mut again = w.records.watch("a.")?.after(old);
    assert_eq!(told(&mut again, 4).await?, ["!", "a.1:1", "a.2:2", "|"]);
    w.records.set_field("a.1", "n", 3).await?;
    assert_eq!(told(&mut again, 1).await?, ["a.1=3"]);
    Ok(())
}

async fn who_has_heard_nothing_for_long_has_missed_nothing(w: World) -> Result<()> {
    w.records.set_field("a.1", "n", 1).await?;
    let mut watch = w.records.watch("a.")?;
    assert_eq!(watch.cursor(), None);
    assert_eq!(told(&mut watch, 1).await?, ["a.1:1"]);
    assert_eq!(watch.cursor(), None, "not everything was told");
    let begun = cursor(&watch.next().await?).unwrap();
    assert_eq!(watch.cursor(), Some(begun));
    let mut all = w.others.watch("b.")?;
    assert_eq!(told(&mut all, 1).await?, ["|"]);
    let mut kept = begun;
    for asks in [true, false] {
        w.others.set_field("b.1", "n", 1).await?;
        w.others.set_field("b.1", "n", 2).await?;
        assert_eq!(told(&mut all, 1).await?, ["b.1=1"]);
        let end = cursor(&all.next().await?).unwrap();
        let moves = async {
            // A call that is dropped too early gets nowhere, so each lasts longer than the one before.
            for turns in 1.. {
                let mut next = Box::pin(watch.next());
                for _ in 0..turns {
                    // Once it follows what is told in this process, nobody has to ask again.
                    assert!(!asks || futures::poll!(&mut next).is_pending());
                    tokio::task::yield_now().await;
                }
                drop(next);
                if watch.cursor() >= Some(end) {
                    break;
                }
            }
        };
        w.drive(moves).await;
        kept = watch.cursor().unwrap().to_string().parse()?;
    }
    drop((watch, all));
    w.clock.advance(MINUTE);
    let compact = Compact {
        history: Some(Duration::ZERO),
        limit: 1_000,
        ..Compact::default()
    };
    assert!(w.bare.compact(compact).await?.entries > 0);
    w.records.set_field("a.1", "n", 2).await?;
    let mut again = w.records.watch("a.")?.after(begun);
    assert_eq!(told(&mut again, 1).await?, ["!"]);
    assert_eq!(again.cursor(), None);
    let mut again = w.records.watch("a.")?.after(kept);
    assert_eq!(told(&mut again, 1).await?, ["a.1=2"]);
    Ok(())
}

/// Also where several changes of a commit were read and one of them was told.
async fn a_watch_goes_on_from_where_it_is_at_any_time(w: World) -> Result<()> {
    let mut watch = w.records.watch("a.")?;
    assert_eq!(told(&mut watch, 1).await?, ["|"]);
    let mut places = vec![watch.cursor().unwrap()];
    let mut seen = Vec::new();
    for n in 0..3 {
        let all = ["a.1", "b.1", "a.2", "a.3"].map(|key| Swap::new(key).set("n", n));
        w.records.commit(all).await?;
        w.others.set_field("b.2", "n", n).await?;
        for _ in 0..3 {
            seen.extend(told(&mut watch, 1).await?);
            places.push(watch.cursor().unwrap());
        }
    }
    assert_eq!(seen[..4], ["a.1=0", "a.2=0", "a.3=0", "a.1=1"]);
    for (at, place) in places.into_iter().enumerate() {
        let mut again = w.records.watch("a.")?.after(place.to_string().parse()?);
        assert_eq!(again.cursor(), Some(place));
        let rest = told(&mut again, seen.len() - at);
        assert_eq!(w.drive(rest).await?, seen[at..]);
    }
    Ok(())
}

async fn only_changes_if_nothing_else_is_asked_for(w: World) -> Result<()> {
    w.records.set_field("a.1", "n", 1).await?;
    let mut watch = w.records.watch("a.")?.changes_only();
    // When it has begun nobody else can know: so it is written until something is told.
    let told = async { Ok::<_, Error>(short(&watch.next().await?)) };
    let mut told = Box::pin(told);
    for n in 2.. {
        w.records.set_field("a.1", "n", n).await?;
        if let Poll::Ready(told) = futures::poll!(&mut told) {
            let told = told?;
            let told: i64 = told.strip_prefix("a.1=").unwrap().parse().unwrap();
            assert!((2..=n).contains(&told));
            break;
        }
    }
    Ok(())
}

async fn faults_are_not_seen_by_those_who_watch(w: World) -> Result<()> {
    for key in 0..250 {
        w.others.set_field(format!("a.{key:03}"), "n", key).await?;
    }
    for _ in 0..2 {
        w.plan.next(Method::Scan, Fault::ErrorBefore);
        w.plan.next(Method::Scan, Fault::ErrorAfter);
        w.plan.next(Method::Changes, Fault::ErrorBefore);
    }
    let mut watch = w.records.watch("a.")?;
    let told = told(&mut watch, 251).await?;
    let expected = (0..250).map(|key| format!("a.{key:03}:{key}"));
    let expected: Vec<_> = expected.chain(["|".to_owned()]).collect();
    assert_eq!(told, expected);
    Ok(())
}

/// Writers and one that watches, from before to after the switch: what was told adds up to what is
/// there, every revision once at most, never backwards, and after the marker every single one.
async fn what_is_written_during_the_snapshot_is_told_once(w: World) -> Result<()> {
    const KEYS: usize = 300;
    for key in 0..KEYS {
        w.others.set_field(format!("a.{key:03}"), "n", 0).await?;
    }
    let mut watch = w.records.watch("a.")?;
    let mut latest = BTreeMap::new();
    let mut take = |event: WatchEvent| {
        let (key, revision, there) = match event {
            WatchEvent::Snapshot(record) | WatchEvent::Put { record, .. } => {
                (record.key, record.revision, true)
            }
            WatchEvent::Removed { key, revision, .. } => (key, revision, false),
            WatchEvent::ReplayComplete { .. } | WatchEvent::Restarted => return,
        };
        let before = latest.insert(key, (revision, there));
        let newer = before.is_none_or(|(before, was_there)| match there {
            true => revision > before,
            false => revision >= before && was_there,
        });
        assert!(newer, "{before:?} then {revision} {there}");
    };
    let (mut events, mut markers) = (0, 0);
    // Written between any two events, ahead of where the snapshot is, and behind.
    loop {
        let event = watch.next().await?;
        match &event {
            WatchEvent::Put { record, .. } if record.key.as_str() == "a.end" => break,
            WatchEvent::ReplayComplete { .. } => {
                markers += 1;
                w.others.set_field("a.end", "n", 0).await?;
            }
            _ => {}
        }
        events += 1;
        take(event);
        if events % 3 == 0 && markers == 0 && events < 600 {
            let key = format!("a.{:03}", events * 31 % KEYS);
            w.others.set_field(&key, "n", -(events as i64)).await?;
            if events % 9 == 0 {
                w.others.delete(&key).await?;
            }
        }
    }
    assert_eq!(markers, 1);
    w.others.delete("a.end").await?;
    let there = w.others.scan("a.").page_size(1_000).page(None).await?.rows;
    let there: BTreeMap<_, _> = there.into_iter().map(|r| (r.key, r.revision)).collect();
    let told = latest.into_iter().filter(|(_, (_, there))| *there);
    let told: BTreeMap<_, _> = told.map(|(key, (revision, _))| (key, revision)).collect();
    assert_eq!(told, there);
    Ok(())
}

/// Leases are renewed all the time: the history would have room for little else.
async fn a_new_time_to_live_raises_the_revision_and_is_not_told(w: World) -> Result<()> {
    w.records.set_field("a.1", "n", 0).await?;
    let mut watch = w.records.watch("a.")?;
    let WatchEvent::Snapshot(record) = watch.next().await? else {
        panic!("it is there");
    };
    assert_eq!(told(&mut watch, 1).await?, ["|"]);
    let touched = w.records.touch("a.1", MINUTE).await?;
    let persisted = w.records.persist("a.1").await?;
    let swap = Swap::new("a.1").touch(Some(MINUTE));
    assert!(w.records.swap(swap).await?.is_done());
    assert!(record.revision < touched && touched < persisted);
    w.records.set_field("a.2", "n", 1).await?;
    assert_eq!(told(&mut watch, 1).await?, ["a.2=1"]);

    // Who has only heard of it is refused, and reads it again.
    let set = |at| Swap::new("a.1").when_at(at).set("n", 2).touch(None);
    assert!(!w.records.swap(set(record.revision)).await?.is_done());
    let read = w.records.get("a.1").await?.unwrap();
    assert!(read.revision > persisted);
    assert!(w.records.swap(set(read.revision)).await?.is_done());
    // What else is written with it is told, as it is afterwards.
    let WatchEvent::Put { record, .. } = watch.next().await? else {
        panic!("a field was set");
    };
    assert_eq!(Some(&record), w.records.get("a.1").await?.as_ref());
    assert_eq!(record.expires_at, None);
    Ok(())
}
