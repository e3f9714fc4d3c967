//! Records: what a put, a touch and a delete leave of them, and how they are read.

use std::time::Duration;

use crate::change::{Change, Removal};
use crate::conformance::observe::{assert_fields, changes_since, removed};
use crate::conformance::world::{World, conflict, name, text};
use crate::error::{NotFound, Result};
use crate::ids::Revision;
use crate::names::{Key, Prefix};
use crate::record::{Fields, Record, fields};
use crate::store::{Commit, Get, Guard, Merge, Outcome, Put, Scan, Start, StoreExt, Write};

cases!["records":
    a_put_replaces_all_fields_and_the_time_to_live,
    a_record_without_fields_is_a_record,
    a_delete_says_whether_the_record_was_there,
    a_touch_changes_the_expiry_and_the_revision_and_nothing_else,
    a_touch_of_what_is_not_there_is_not_found,
    a_revision_grows_with_every_write_and_over_every_removal,
    a_record_was_modified_at_the_time_of_its_last_write,
    a_read_answers_every_key_in_the_order_asked,
    a_read_of_a_thousand_keys_answers_them_all,
    two_handles_see_each_others_writes,
    namespaces_are_apart,
];

pub(super) const TTL: Duration = Duration::from_secs(5);

/// Puts a record that lives for [`TTL`] and answers it.
pub(super) async fn put_for_a_while(w: &World, key: &str) -> Result<Record> {
    let old = fields([("old", "1"), ("count", "7")])?;
    w.put_record(Put::new(Key::new(key)?, old).ttl(TTL)).await
}

/// Everything that the history says about a record.
pub(super) async fn told(w: &World, key: &str) -> Result<Vec<Change>> {
    let changes = changes_since(w, Start::Oldest).await?;
    let about = |change: &Change| match change {
        Change::Put(record) => record.key.as_str() == key,
        Change::Removed { key: removed, .. } => removed.as_str() == key,
        Change::Task(_) | Change::Group { .. } => false,
    };
    Ok(changes.into_iter().filter(about).collect())
}

pub(super) fn revision(outcome: Outcome) -> Revision {
    match outcome {
        Outcome::Written { revision, .. } => revision,
        other => panic!("expected a written record, got {other:?}"),
    }
}

pub(super) fn merge(key: &str) -> Result<Merge> {
    Ok(Merge::new(Key::new(key)?))
}

async fn a_put_replaces_all_fields_and_the_time_to_live(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let first = Put::new(key.clone(), fields([("a", "1"), ("b", "1")])?).ttl(TTL);
    let first = revision(w.store.write(Write::Put(first)).await?);
    w.advance(Duration::from_secs(1));
    let outcome = w
        .store
        .write(Write::Put(Put::new(
            key.clone(),
            fields([("b", "2"), ("c", "2")])?,
        )))
        .await?;
    let second = Record {
        key: key.clone(),
        fields: fields([("b", "2"), ("c", "2")])?,
        revision: revision(outcome),
        modified_at: w.now(),
        expires_at: None,
    };
    assert!(second.revision > first);
    w.advance(TTL);
    assert_eq!(w.record("key").await?.as_ref(), Some(&second));
    let third = w
        .put_record(Put::new(key, fields([("d", "3")])?).ttl(TTL))
        .await?;
    let expected = Record {
        fields: fields([("d", "3")])?,
        revision: third.revision,
        modified_at: w.now(),
        expires_at: Some(w.now().saturating_plus(TTL)),
        ..second
    };
    assert_eq!(third, expected);
    Ok(())
}

async fn a_record_without_fields_is_a_record(w: World) -> Result<()> {
    let empty = w
        .put_record(Put::new(Key::new("empty")?, Fields::new()))
        .await?;
    assert_eq!(empty.fields, Fields::new());
    w.put("emptied", [("only", "1")]).await?;
    let unset = merge("emptied")?.unset(name("only")?);
    w.store.write(Write::Merge(unset)).await?;
    assert_fields(&w, "emptied", Fields::new()).await?;
    w.store.write(Write::Merge(merge("merged")?)).await?;
    assert_fields(&w, "merged", Fields::new()).await?;
    for key in ["empty", "emptied", "merged"] {
        let key = Key::new(key)?;
        let present = Commit::new().guard(Guard::RecordPresent(key.clone()));
        w.store.commit_one(present).await?;
        let outcome = w.store.write(Write::Delete(key)).await?;
        assert_eq!(outcome, Outcome::Removed { existed: true });
    }
    Ok(())
}

async fn a_delete_says_whether_the_record_was_there(w: World) -> Result<()> {
    let record = w.put("key", [("a", "1")]).await?;
    let neighbour = w.put("key2", [("a", "1")]).await?;
    let delete = || w.store.write(Write::Delete(record.key.clone()));
    assert_eq!(delete().await?, Outcome::Removed { existed: true });
    assert_eq!(w.record("key").await?, None);
    assert_eq!(delete().await?, Outcome::Removed { existed: false });
    let all = [
        Change::Put(record.clone()),
        removed(&record, Removal::Deleted),
    ];
    assert_eq!(told(&w, "key").await?, all);
    assert_eq!(w.record("key2").await?, Some(neighbour));
    Ok(())
}

async fn a_touch_changes_the_expiry_and_the_revision_and_nothing_else(w: World) -> Result<()> {
    let mut record = put_for_a_while(&w, "key").await?;
    let history = w.history().await?.entries;
    for ttl in [
        Some(Duration::from_secs(60)),
        Some(TTL),
        None,
        Some(Duration::from_secs(9)),
    ] {
        w.advance(Duration::from_secs(4));
        let touch = Write::Touch(record.key.clone(), ttl);
        let outcome = w.store.write(touch).await?;
        let touched = Record {
            revision: revision(outcome),
            expires_at: ttl.map(|ttl| w.now().saturating_plus(ttl)),
            ..record.clone()
        };
        assert!(touched.revision > record.revision);
        assert_eq!(w.record("key").await?.as_ref(), Some(&touched));
        let stale = Guard::RecordAt(record.key.clone(), record.revision);
        conflict(w.store.commit_one(Commit::new().guard(stale)).await);
        record = touched;
    }
    assert_eq!(w.history().await?.entries, history);
    w.advance(Duration::from_secs(9));
    assert_eq!(w.record("key").await?, None);
    Ok(())
}

async fn a_touch_of_what_is_not_there_is_not_found(w: World) -> Result<()> {
    put_for_a_while(&w, "expired").await?;
    w.advance(TTL);
    let history = w.history().await?.entries;
    for key in ["absent", "expired"] {
        let key = Key::new(key)?;
        for ttl in [None, Some(TTL)] {
            let answer = w.store.write(Write::Touch(key.clone(), ttl)).await;
            assert_eq!(answer, Err(NotFound::Record(key.clone()).into()));
        }
        assert_eq!(w.store.record(&key).await?, None);
    }
    assert_eq!(w.history().await?.entries, history);
    Ok(())
}

async fn a_revision_grows_with_every_write_and_over_every_removal(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let mut last = Revision::ZERO;
    let mut seen = Vec::new();
    let put = || Write::Put(Put::new(key.clone(), Fields::new()));
    for write in [
        put(),
        put(),
        Write::Merge(Merge::new(key.clone())),
        Write::Touch(key.clone(), None),
        Write::Delete(key.clone()),
        put(),
        Write::Delete(key.clone()),
        Write::Merge(Merge::new(key.clone())),
        Write::Touch(key.clone(), Some(TTL)),
        Write::ExpireRecord(key.clone()),
        put(),
        Write::Touch(key.clone(), Some(TTL)),
        put(),
    ] {
        if matches!(write, Write::ExpireRecord(_)) {
            w.advance(TTL);
        }
        match w.store.write(write.clone()).await? {
            Outcome::Written { revision, .. } => {
                assert!(revision > last, "{revision} after {last} by {write:?}");
                let record = w.record("key").await?;
                assert_eq!(record.map(|record| record.revision), Some(revision));
                seen.push(revision);
                last = revision;
            }
            outcome => assert_eq!(outcome, Outcome::Removed { existed: true }),
        }
    }
    // No earlier life of the record can be mistaken for this one.
    for (n, revision) in seen.iter().enumerate() {
        let guard = Guard::RecordAt(key.clone(), *revision);
        let answer = w.store.commit_one(Commit::new().guard(guard)).await;
        assert_eq!(answer.is_ok(), n == seen.len() - 1, "{revision}");
    }
    Ok(())
}

async fn a_record_was_modified_at_the_time_of_its_last_write(w: World) -> Result<()> {
    let second = w.second().await?;
    let created = w.put("key", [("a", "1")]).await?;
    assert_eq!(created.modified_at, w.now());
    w.advance(Duration::from_millis(1_234));
    assert_eq!(w.record("key").await?, Some(created));
    let same = merge("key")?.set(fields([("a", "1")])?);
    second.write(Write::Merge(same)).await?;
    let merged = w.record("key").await?;
    assert_eq!(merged.map(|record| record.modified_at), Some(w.now()));
    assert_eq!(w.store.ping().await?, w.now());
    Ok(())
}

async fn a_read_answers_every_key_in_the_order_asked(w: World) -> Result<()> {
    let b = w.put("b", [("value", "b")]).await?;
    let a = w.put("a", [("value", "a")]).await?;
    let c = w.put("c", [("value", "c")]).await?;
    let keys = ["c", "absent", "a", "c", "absent", "b", "a", "a"];
    let keys = keys.into_iter().map(Key::new).collect::<Result<_, _>>()?;
    let (a, b, c) = (Some(a), Some(b), Some(c));
    let expected = [c.clone(), None, a.clone(), c, None, b, a.clone(), a];
    assert_eq!(w.store.get(Get { keys }).await?, expected);
    assert_eq!(w.store.get(Get { keys: Vec::new() }).await?, []);
    Ok(())
}

async fn a_read_of_a_thousand_keys_answers_them_all(w: World) -> Result<()> {
    let key = |n: usize| Key::new(format!("key.{n}"));
    let mut commits = vec![Commit::new(); 4];
    for n in 0..500 {
        let value = [("n", n.to_string())];
        let write = Write::Put(Put::new(key(n)?, fields(value)?));
        commits[n % 4].writes.push(write);
    }
    for receipt in w.store.commit(commits).await {
        receipt?;
    }
    let keys = (0..1_000).rev().map(key).collect::<Result<_, _>>()?;
    let found = w.store.get(Get { keys }).await?;
    let found: Vec<Option<String>> = (found.into_iter())
        .map(|record| record.and_then(|record| text(&record.fields, "n")))
        .collect();
    let expected: Vec<Option<String>> = (0..1_000)
        .rev()
        .map(|n| (n < 500).then(|| n.to_string()))
        .collect();
    assert_eq!(found, expected);
    Ok(())
}

async fn two_handles_see_each_others_writes(w: World) -> Result<()> {
    let second = w.second().await?;
    let key = Key::new("key")?;
    let first = w.put("key", [("a", "1")]).await?;
    assert_eq!(second.record(&key).await?, Some(first.clone()));
    let guarded = Commit::new()
        .guard(Guard::RecordAt(key.clone(), first.revision))
        .write(Write::Merge(merge("key")?.set(fields([("b", "2")])?)));
    second.commit_one(guarded).await?;
    let record = w.record("key").await?;
    assert_eq!(
        record.as_ref().map(|record| record.fields.clone()),
        Some(fields([("a", "1"), ("b", "2")])?)
    );
    assert_eq!(second.record(&key).await?, record);
    w.store.write(Write::Delete(key.clone())).await?;
    assert_eq!(second.record(&key).await?, None);
    Ok(())
}

async fn namespaces_are_apart(w: World) -> Result<()> {
    let other = w.elsewhere().await?;
    let here = w.put("key", [("a", "here")]).await?;
    assert_eq!(other.record(&here.key).await?, None);
    let absent = Guard::RecordAbsent(here.key.clone());
    let there = Put::new(here.key.clone(), fields([("a", "there")])?);
    // One id in two namespaces names two commits.
    let commit = Commit::of(Write::Put(there)).id(w.ids.commit());
    let receipt = other.commit_one(commit.clone().guard(absent)).await?;
    assert!(!receipt.repeated);
    assert_eq!(w.record("key").await?.as_ref(), Some(&here));
    assert_eq!(told(&w, "key").await?, [Change::Put(here.clone())]);
    let scan = Scan::new(Prefix::any(), 10);
    let rows = w.store.scan(scan.clone()).await?.rows;
    assert_eq!(rows, std::slice::from_ref(&here));
    other.write(Write::Delete(here.key.clone())).await?;
    assert_eq!(w.record("key").await?, Some(here));
    assert_eq!(other.scan(scan).await?.rows, []);
    let receipt = w.store.commit_one(commit).await?;
    assert!(!receipt.repeated);
    assert_eq!(told(&w, "key").await?.len(), 2);
    Ok(())
}
