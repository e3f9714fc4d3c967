//! The expiry of records: at its very moment for readers, and once for the history.

use std::time::Duration;

use crate::change::{Change, Removal};
use crate::conformance::observe::removed;
use crate::conformance::records::{TTL, merge, put_for_a_while, revision, told};
use crate::conformance::world::{World, conflict, name};
use crate::error::{Conflict, Result};
use crate::names::{Key, Prefix};
use crate::record::{Fields, Record, fields};
use crate::store::{Commit, Due, Guard, Outcome, Put, Receipt, Scan, StoreExt, Write};

cases!["record_expiry":
    a_record_is_there_until_exactly_its_expiry,
    an_expired_record_is_not_there_before_anybody_sweeps,
    a_sweep_tells_of_an_expiry_once,
    a_write_over_an_expired_record_tells_of_the_expiry_first,
    a_merge_that_races_the_expiry_finds_the_record_or_starts_anew,
    an_expiry_decided_too_late_leaves_the_record_alone,
    an_expiry_of_what_is_not_there_does_nothing,
];

const MILLISECOND: Duration = Duration::from_millis(1);

async fn a_record_is_there_until_exactly_its_expiry(w: World) -> Result<()> {
    for ttl in [MILLISECOND, TTL, Duration::from_secs(100 * 365 * 86_400)] {
        let record = w
            .put_record(Put::new(Key::new("key")?, Fields::new()).ttl(ttl))
            .await?;
        assert_eq!(record.expires_at, Some(w.now().saturating_plus(ttl)));
        w.advance(ttl - MILLISECOND);
        assert_eq!(w.record("key").await?, Some(record));
        assert_eq!(w.sweep().await?.records, 0);
        w.advance(MILLISECOND);
        assert_eq!(w.record("key").await?, None);
        assert_eq!(w.sweep().await?.records, 1);
    }
    Ok(())
}

async fn an_expired_record_is_not_there_before_anybody_sweeps(w: World) -> Result<()> {
    let record = put_for_a_while(&w, "key").await?;
    w.advance(TTL);
    let history = w.history().await?.entries;
    assert_eq!(w.record("key").await?, None);
    let scan = Scan::new(Prefix::any(), 10);
    assert_eq!(w.store.scan(scan).await?.rows, []);
    let key = record.key.clone();
    let old = Guard::Field(key.clone(), name("old")?, Some("1".into()));
    for guard in [
        Guard::RecordPresent(key.clone()),
        Guard::RecordAt(key.clone(), record.revision),
        old,
    ] {
        let answer = w.store.commit_one(Commit::new().guard(guard.clone())).await;
        assert_eq!(conflict(answer), Conflict::Guard { index: 0, guard });
    }
    let absent = Commit::new()
        .guard(Guard::RecordAbsent(key.clone()))
        .guard(Guard::Field(key, name("old")?, None));
    w.store.commit_one(absent).await?;
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}

async fn a_sweep_tells_of_an_expiry_once(w: World) -> Result<()> {
    let record = put_for_a_while(&w, "key").await?;
    let stays = w.put("stays", [("a", "1")]).await?;
    assert_eq!(w.sweep().await?.next, record.expires_at);
    w.advance(TTL);
    assert_eq!(w.sweep().await?.records, 1);
    let all = [
        Change::Put(record.clone()),
        removed(&record, Removal::Expired),
    ];
    assert_eq!(told(&w, "key").await?, all);
    assert_eq!(w.sweep().await?, Default::default());
    let outcome = w.store.write(Write::Delete(record.key)).await?;
    assert_eq!(outcome, Outcome::Removed { existed: false });
    assert_eq!(told(&w, "key").await?, all);
    assert_eq!(w.record("stays").await?, Some(stays));
    Ok(())
}

async fn a_write_over_an_expired_record_tells_of_the_expiry_first(w: World) -> Result<()> {
    for (key, anew) in [("put", true), ("merge", true), ("delete", false)] {
        let old = put_for_a_while(&w, key).await?;
        w.advance(TTL);
        let write = match key {
            "put" => Write::Put(Put::new(old.key.clone(), fields([("new", "1")])?)),
            "merge" => Write::Merge(merge(key)?.set(fields([("new", "1")])?)),
            _ => Write::Delete(old.key.clone()),
        };
        let outcome = w.store.write(write).await?;
        let mut all = vec![Change::Put(old.clone()), removed(&old, Removal::Expired)];
        if anew {
            let record = Record {
                key: old.key,
                fields: fields([("new", "1")])?,
                revision: revision(outcome),
                modified_at: w.now(),
                expires_at: None,
            };
            assert!(record.revision > old.revision);
            assert_eq!(w.record(key).await?.as_ref(), Some(&record));
            all.push(Change::Put(record));
        } else {
            assert_eq!(outcome, Outcome::Removed { existed: false });
        }
        assert_eq!(told(&w, key).await?, all);
        assert_eq!(w.sweep().await?.records, 0);
        assert_eq!(told(&w, key).await?, all);
    }
    Ok(())
}

async fn a_merge_that_races_the_expiry_finds_the_record_or_starts_anew(w: World) -> Result<()> {
    for (key, wait, in_time) in [
        ("just before", TTL - MILLISECOND, true),
        ("at", TTL, false),
        ("just after", TTL + MILLISECOND, false),
    ] {
        let old = put_for_a_while(&w, key).await?;
        w.advance(wait);
        let write = merge(key)?
            .set(fields([("new", "1")])?)
            .add(name("count")?, 1);
        let outcome = w.write_with_id(Write::Merge(write)).await?;
        let (all, expires_at) = if in_time {
            let all = [("count", "8"), ("new", "1"), ("old", "1")];
            (fields(all)?, old.expires_at)
        } else {
            (fields([("count", "1"), ("new", "1")])?, None)
        };
        let after = Record {
            key: old.key.clone(),
            fields: all,
            revision: revision(outcome),
            modified_at: w.now(),
            expires_at,
        };
        assert_eq!(w.sweep().await?.records, 0);
        assert_eq!(w.record(key).await?.as_ref(), Some(&after), "{key}");
        let mut all = vec![Change::Put(old.clone())];
        if !in_time {
            all.push(removed(&old, Removal::Expired));
        }
        all.push(Change::Put(after.clone()));
        assert_eq!(told(&w, key).await?, all);
        w.advance(MILLISECOND);
        assert_eq!(w.sweep().await?.records, u64::from(in_time));
        if in_time {
            assert_eq!(w.record(key).await?, None);
            all.push(removed(&after, Removal::Expired));
        } else {
            assert_eq!(w.record(key).await?, Some(after));
        }
        assert_eq!(told(&w, key).await?, all);
    }
    Ok(())
}

async fn an_expiry_decided_too_late_leaves_the_record_alone(w: World) -> Result<()> {
    let touched = put_for_a_while(&w, "touched").await?;
    let expired = put_for_a_while(&w, "expired").await?;
    w.store.write(Write::Touch(touched.key, None)).await?;
    w.advance(TTL);
    let due = w.store.due(Due { limit: 10 }).await?;
    assert_eq!(due.records, std::slice::from_ref(&expired.key));
    let again = w.put("expired", [("new", "1")]).await?;
    let history = w.history().await?.entries;
    for key in ["touched", "expired"] {
        let before = w.record(key).await?;
        let expire = Write::ExpireRecord(Key::new(key)?);
        let receipt = w.store.commit_one(Commit::of(expire)).await?;
        let expected = Receipt {
            outcomes: vec![Outcome::Removed { existed: false }],
            position: None,
            repeated: false,
        };
        assert_eq!(receipt, expected);
        assert_eq!(w.record(key).await?, before);
    }
    assert_eq!(w.record("expired").await?, Some(again));
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}

async fn an_expiry_of_what_is_not_there_does_nothing(w: World) -> Result<()> {
    let record = put_for_a_while(&w, "key").await?;
    w.advance(TTL);
    let expire = |key: &Key| w.store.write(Write::ExpireRecord(key.clone()));
    let first = expire(&record.key).await?;
    assert_eq!(first, Outcome::Removed { existed: true });
    let history = w.history().await?.entries;
    let second = expire(&record.key).await?;
    assert_eq!(second, Outcome::Removed { existed: false });
    let never = expire(&Key::new("never there")?).await?;
    assert_eq!(never, Outcome::Removed { existed: false });
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}
