//! What the history tells about records.

use std::time::Duration;

use crate::change::{Change, Removal};
use crate::conformance::changes::{SHORT, appended, appended_by, current, newest, short_put};
use crate::conformance::observe::{changes_since, removed};
use crate::conformance::world::{LEASE, World, name};
use crate::conformance::writes::{log, put};
use crate::error::Result;
use crate::log::{Level, NewLine};
use crate::names::{Key, Prefix};
use crate::record::fields;
use crate::store::{Commit, Guard, Merge, Put, Renew, Scan, Start, StoreExt, Write};

cases!["changes_of_records":
    a_put_and_a_merge_append_the_whole_record,
    a_removal_carries_the_revision_that_ended,
    touches_renewals_log_lines_and_reads_append_nothing,
    an_expired_record_is_in_the_history_exactly_once,
    a_write_over_an_expired_record_appends_the_expiry_first_and_only_once,
    a_record_written_twice_in_a_commit_is_one_change,
];

async fn a_put_and_a_merge_append_the_whole_record(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let put = Put::new(key.clone(), fields([("a", "1"), ("b", "2")])?).ttl(SHORT);
    let changes = appended_by(&w, Write::Put(put)).await?;
    assert_eq!(changes, [Change::Put(current(&w, "key").await?)]);
    w.advance(Duration::from_secs(1));
    let merge = Merge::new(key)
        .set(fields([("c", "3")])?)
        .unset(name("a")?)
        .add(name("n")?, 4);
    let changes = appended_by(&w, Write::Merge(merge)).await?;
    let record = current(&w, "key").await?;
    assert_eq!(record.fields, fields([("b", "2"), ("c", "3"), ("n", "4")])?);
    assert!(record.expires_at.is_some());
    assert_eq!(changes, [Change::Put(record)]);
    Ok(())
}

async fn a_removal_carries_the_revision_that_ended(w: World) -> Result<()> {
    w.put("key", [("a", "1")]).await?;
    let key = Key::new("key")?;
    w.store
        .write(Write::Touch(key.clone(), Some(SHORT)))
        .await?;
    let last = current(&w, "key").await?;
    let changes = appended_by(&w, Write::Delete(key.clone())).await?;
    assert_eq!(changes, [removed(&last, Removal::Deleted)]);
    let before = newest(&w).await?;
    let receipt = w.commit_with_id(Commit::of(Write::Delete(key))).await?;
    assert_eq!(receipt.position, None);
    assert_eq!(newest(&w).await?, before);
    Ok(())
}

async fn touches_renewals_log_lines_and_reads_append_nothing(w: World) -> Result<()> {
    w.put("key", [("a", "1")]).await?;
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let before = w.history().await?;
    let touch = Write::Touch(Key::new("key")?, Some(SHORT));
    let receipt = w.commit_with_id(Commit::of(touch)).await?;
    assert_eq!(receipt.position, None);
    let renew = Renew {
        holders: vec![held.clone()],
        lease: LEASE * 2,
    };
    w.store.renew(renew).await?;
    let log = log(&held, &[NewLine::new(w.ids.line(), Level::Error, "said")]);
    assert_eq!(
        w.store.commit_one(Commit::of(log)).await?.position,
        None,
        "a log line is not in the history"
    );
    w.store.scan(Scan::new(Prefix::any(), 10)).await?;
    w.task(task.id()).await?;
    assert_eq!(w.history().await?, before);
    Ok(())
}

async fn an_expired_record_is_in_the_history_exactly_once(w: World) -> Result<()> {
    w.store.write(short_put("key", SHORT)?).await?;
    let record = current(&w, "key").await?;
    let before = newest(&w).await?;
    w.advance(SHORT);
    assert_eq!(w.record("key").await?, None);
    assert_eq!(changes_since(&w, Start::After(before)).await?, []);
    assert_eq!(w.sweep().await?.records, 1);
    let expired = [removed(&record, Removal::Expired)];
    assert_eq!(changes_since(&w, Start::After(before)).await?, expired);
    w.sweep().await?;
    let key = Key::new("key")?;
    w.store.write(Write::ExpireRecord(key.clone())).await?;
    w.store.write(Write::Delete(key)).await?;
    assert_eq!(changes_since(&w, Start::After(before)).await?, expired);
    Ok(())
}

async fn a_write_over_an_expired_record_appends_the_expiry_first_and_only_once(
    w: World,
) -> Result<()> {
    let merge = Merge::new(Key::new("merged")?).set(fields([("a", "1")])?);
    for (key, write, leaves) in [
        ("put", put("put", "new")?, true),
        ("merged", Write::Merge(merge), true),
        ("deleted", Write::Delete(Key::new("deleted")?), false),
    ] {
        w.store.write(short_put(key, SHORT)?).await?;
        let old = current(&w, key).await?;
        w.advance(SHORT);
        let before = newest(&w).await?;
        let guarded = Commit::of(write).guard(Guard::RecordAbsent(Key::new(key)?));
        let changes = appended(&w, guarded).await?;
        let mut expected = vec![removed(&old, Removal::Expired)];
        if leaves {
            let new = current(&w, key).await?;
            assert!(new.revision > old.revision && new.fields != old.fields);
            expected.push(Change::Put(new));
        }
        assert_eq!(changes, expected, "{key}");
        w.sweep().await?;
        assert_eq!(
            changes_since(&w, Start::After(before)).await?,
            expected,
            "{key} after a sweep"
        );
    }
    Ok(())
}

async fn a_record_written_twice_in_a_commit_is_one_change(w: World) -> Result<()> {
    let old = w.put("gone", [("value", "old")]).await?;
    let commit = Commit::new()
        .write(put("key", "1")?)
        .write(put("other", "2")?)
        .write(put("key", "3")?)
        .write(put("gone", "4")?)
        .write(Write::Delete(old.key.clone()))
        .write(put("never", "5")?)
        .write(Write::Delete(Key::new("never")?));
    let changes = appended(&w, commit).await?;
    let key = current(&w, "key").await?;
    assert_eq!(key.fields, fields([("value", "3")])?);
    assert_eq!(
        changes,
        [
            Change::Put(key),
            Change::Put(current(&w, "other").await?),
            removed(&old, Removal::Deleted),
        ]
    );
    Ok(())
}
