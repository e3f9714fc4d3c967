//! Records that somebody else has written: what cannot be read stops nothing else.

use bytes::Bytes;
use futures::StreamExt;
use plimsoll_core::record::{Fields, Record, fields};
use plimsoll_core::store::{Put, Write};
use plimsoll_core::{Key, Result, StoreExt, Timestamp};

use crate::world::{World, code, seconds};

async fn put(w: &World, key: &str, fields: Fields) -> Result<()> {
    let put = Put::new(Key::new(key)?, fields);
    w.store().write(Write::Put(put)).await.map(drop)
}

fn nonsense() -> Result<Fields> {
    Ok(fields([("holder", Bytes::from_static(b"\xff"))])?)
}

#[tokio::test]
async fn a_place_in_the_line_that_cannot_be_read_is_removed() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let place = |n: u8| format!("plimsoll.lock-waiters.1.a.{n:020}.x");
    let guard = a.locks.lock("a").acquire().await?;
    let waiting = b.waits("a", "bob");
    w.settle().await;
    // Before the ticket of the other.
    for n in 0..2 {
        put(&w, &place(n), nonsense()?).await?;
    }
    guard.release().await?;
    assert!(w.soon(waiting).await?.is_held());
    let left = w.records().await;
    let nonsense = |record: &&Record| record.key.as_str() <= place(9).as_str();
    assert_eq!(
        left.iter().filter(nonsense).count(),
        1,
        "the line: {left:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_lock_that_cannot_be_read_is_listed_in_its_place_and_can_be_broken() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let (_one, _three) = (
        a.locks.lock("1").owner("ada").acquire().await?,
        a.locks.lock("3").owner("ada").acquire().await?,
    );
    let _waiting = b.waits("3", "bob");
    put(&w, "plimsoll.locks.2", nonsense()?).await?;
    w.settle().await;
    let listed: Vec<_> = b.locks.list_all().collect().await;
    let shown = listed.iter().map(|row| match row {
        Ok(lock) => format!("{} {}", lock.name, lock.waiting),
        Err(error) => error.code().into(),
    });
    assert_eq!(shown.collect::<Vec<_>>(), ["1 0", "corrupt", "3 1"]);

    assert_eq!(code(b.locks.lock("2").try_acquire().await), "corrupt");
    assert_eq!(b.locks.break_lock("2").await?, None);
    b.locks.lock("2").try_acquire().await?.release().await
}

#[tokio::test]
async fn a_lock_without_a_time_to_live_can_be_seen_and_broken() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").owner("ada").acquire().await?;
    let [record] = w.records().await.try_into().unwrap();
    put(&w, record.key.as_str(), record.fields).await?;
    let waiting = b.waits("a", "bob");
    a.cut_off();
    w.pass(seconds(120.0)).await;
    assert!(!waiting.is_finished());
    assert_eq!(b.locks.get("a").await?.unwrap().until, Timestamp::MAX);
    let broken = b.locks.break_lock("a").await?.unwrap();
    assert_eq!(broken.owner, "ada");
    assert!(w.soon(waiting).await?.is_held());
    drop(guard);
    Ok(())
}
