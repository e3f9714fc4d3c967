//! Tokens grow, whatever ends a tenure.

use std::sync::Arc;

use plimsoll_core::clock::{Clock, ManualClock};
use plimsoll_core::store::Write;
use plimsoll_core::{Ids, Limits, Memory, Name, Namespace, Result, Store, StoreExt, Token};
use plimsoll_engine::Engine;
use plimsoll_store_sqlite::{Config, Sqlite};

use crate::world::{TTL, World, compact, seconds};

/// Ends tenures in every way, with a compaction after each, and a sweep after the expiry.
async fn every_way(store: Arc<dyn Store>, clock: &ManualClock) -> Result<Vec<Token>> {
    let shared: Arc<dyn Clock> = Arc::new(clock.clone());
    let ids = Ids::random(shared.clone());
    let locks = Engine::with(store.clone(), shared, ids.clone()).locks();
    let mut tokens = Vec::new();
    for way in 0..5 {
        let guard = locks.lock("a").try_acquire().await?;
        tokens.push(guard.token());
        match way {
            0 => guard.release().await?,
            1 => drop(locks.break_lock("a").await?.unwrap()),
            2 => clock.advance(TTL),
            3 => {
                clock.advance(TTL);
                assert!(store.sweep(100, &ids).await?.records >= 1);
            }
            _ => {
                let key = "plimsoll.locks.a".try_into()?;
                store.write(Write::Delete(key)).await?;
            }
        }
        compact(store.as_ref()).await?;
    }
    Ok(tokens)
}

fn assert_growing(tokens: &[Token]) {
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

#[tokio::test]
async fn tokens_grow_however_a_tenure_ends_in_memory() -> Result<()> {
    let clock = ManualClock::new();
    let memory = Memory::with(Arc::new(clock.clone()), Limits::default());
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let store = Arc::new(memory.open(Namespace::new("test")?));
        tokens.extend(every_way(store, &clock).await?);
    }
    assert_growing(&tokens);
    Ok(())
}

#[tokio::test]
async fn tokens_grow_however_a_tenure_ends_in_a_file_that_is_opened_again() -> Result<()> {
    let clock = ManualClock::new();
    let folder = tempfile::tempdir().unwrap();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let config = Config {
            clock: Arc::new(clock.clone()),
            ..Config::new(folder.path().join("locks.db"))
        };
        let sqlite = Sqlite::open(config)?;
        let store = Arc::new(sqlite.namespace(Namespace::new("test")?).await?);
        tokens.extend(every_way(store.clone(), &clock).await?);
        store.close().await?;
    }
    assert_growing(&tokens);
    Ok(())
}

#[tokio::test]
async fn tokens_grow_from_hand_to_hand() -> Result<()> {
    let w = World::new();
    let processes = [1, 2, 3].map(|seed| w.process(seed));
    let mut guard = processes[0].locks.lock("a").acquire().await?;
    let mut tokens = vec![guard.token()];
    for n in 1..10 {
        let waiting = processes[n % 3].waits("a", "next");
        w.settle().await;
        guard.release().await?;
        guard = w.soon(waiting).await?;
        tokens.push(guard.token());
    }
    assert_growing(&tokens);
    Ok(())
}

#[tokio::test]
async fn renewals_do_not_change_the_token_that_others_see() -> Result<()> {
    let w = World::new();
    let (a, b) = (w.process(1), w.process(2));
    let guard = a.locks.lock("a").acquire().await?;
    let mut revisions = Vec::new();
    for _ in 0..20 {
        assert_eq!(b.locks.get("a").await?.unwrap().token, guard.token());
        revisions.push(w.records().await[0].revision);
        w.pass(seconds(7.0)).await;
    }
    revisions.dedup();
    assert!(revisions.len() > 5, "it was renewed: {revisions:?}");
    assert_eq!(revisions[0].get(), guard.token().get());
    Ok(())
}

#[tokio::test]
async fn a_record_that_says_nonsense_is_corrupt_and_no_lock() -> Result<()> {
    let w = World::new();
    let p = w.process(1);
    let key = plimsoll_core::Key::new("plimsoll.locks.a")?;
    for field in ["holder", "owner", "since", "token"] {
        let guard = p.locks.lock("a").acquire().await?;
        let nonsense = [(Name::new(field)?, bytes::Bytes::from_static(b"\xff"))];
        let merge = plimsoll_core::store::Merge::new(key.clone()).set(nonsense.into());
        w.store().write(Write::Merge(merge)).await?;
        let look = p.locks.get("a").await.unwrap_err();
        let text = format!("stored value cannot be read: field {field} of record {key}");
        assert_eq!(look.to_string(), text);
        assert_eq!(
            p.locks.lock("a").acquire().await.unwrap_err().to_string(),
            text
        );
        w.store().write(Write::Delete(key.clone())).await?;
        drop(guard);
        w.settle().await;
    }
    Ok(())
}
