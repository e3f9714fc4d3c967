//! Reading the history: from anywhere, in pages of any size, without gap or repeat.

use std::collections::BTreeMap;

use crate::change::{Change, Entry, Interest};
use crate::conformance::changes::newest;
use crate::conformance::observe::changes_since;
use crate::conformance::world::{World, complete};
use crate::conformance::writes::{open, put, submit};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::names::{GroupId, Key, Prefix};
use crate::record::Record;
use crate::store::{ChangePage, Changes, Commit, Scan, Start, StoreExt, Write};
use crate::task::{Lane, NewTask};

cases!["reading_history":
    reading_starts_where_it_is_asked_to,
    a_limit_never_splits_an_entry,
    pages_of_any_size_tell_the_same_history,
    what_was_acknowledged_before_comes_first_whoever_wrote_it if TotalOrder,
    a_snapshot_and_the_history_after_it_have_no_gap,
    every_handle_reads_the_same_history,
    namespaces_have_histories_of_their_own,
];

pub(super) async fn page(
    w: &World,
    start: Start,
    interests: &[Interest],
    limit: usize,
) -> Result<ChangePage> {
    let changes = Changes {
        start,
        interests: interests.to_vec(),
        limit,
    };
    w.store.changes(changes).await
}

/// Reads page by page what there is to show.
pub(super) async fn told(w: &World, interests: &[Interest], limit: usize) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let mut start = Start::Oldest;
    for _ in 0..1_000 {
        let page = page(w, start, interests, limit).await?;
        entries.extend(page.entries);
        start = Start::After(page.next);
        if !page.more {
            return Ok(entries);
        }
    }
    panic!("the history does not end");
}

/// Records, tasks of several lanes and a group, in commits of one to three writes.
pub(super) async fn mixed(w: &World) -> Result<Vec<TaskId>> {
    let group = GroupId::new("run.1")?;
    let commit = Commit::of(put("jobs.1", "1")?)
        .write(open(NewGroup::new(group.clone())))
        .write(put("locks.1", "1")?);
    w.store.commit_one(commit).await?;
    let (here, held) = w.claimed(w.new_task("here").group(group)).await?;
    let other = NewTask {
        lane: Lane::new("queue", "other")?,
        ..w.new_task("other kind")
    };
    let commit = Commit::of(submit(other.clone())).write(put("jobs.2", "1")?);
    w.store.commit_one(commit).await?;
    let far = NewTask {
        lane: Lane::new("far", "kind")?,
        ..w.new_task("other queue")
    };
    w.submit(far.clone()).await?;
    w.store.settle(held, complete()).await?;
    w.store.cancel(far.id, None).await?;
    w.store.write(Write::Delete(Key::new("jobs.1")?)).await?;
    let group = NewGroup::new(GroupId::new("walk.1")?);
    w.store.write(open(group)).await?;
    w.put("jobs_3", [("value", "1")]).await?;
    Ok(vec![here.id(), other.id, far.id])
}

pub(super) fn key_of(change: &Change) -> &str {
    match change {
        Change::Put(record) => record.key.as_str(),
        Change::Removed { key, .. } => key.as_str(),
        Change::Task(_) | Change::Group { .. } => "",
    }
}

async fn reading_starts_where_it_is_asked_to(w: World) -> Result<()> {
    let empty = w.history().await?;
    assert_eq!((empty.entries, empty.more), (vec![], false));
    assert_eq!(newest(&w).await?, empty.next);
    for key in ["a", "b", "c"] {
        w.put(key, [("value", "1")]).await?;
    }
    let all = w.history().await?;
    assert_eq!(all.entries.len(), 3);
    assert_eq!(all.next, all.entries[2].position);
    assert_eq!(newest(&w).await?, all.next);
    assert_eq!(w.history_from(Start::After(empty.next)).await?, all);
    for n in 0..3 {
        let after = w
            .history_from(Start::After(all.entries[n].position))
            .await?;
        assert_eq!(after.entries, all.entries[n + 1..]);
        assert_eq!(after.next, all.next);
    }
    Ok(())
}

async fn a_limit_never_splits_an_entry(w: World) -> Result<()> {
    for prefix in ["a", "b"] {
        let mut commit = Commit::new();
        for n in 0..5 {
            commit = commit.write(put(&format!("{prefix}{n}"), "1")?);
        }
        w.store.commit_one(commit).await?;
    }
    let all = w.history().await?.entries;
    assert_eq!(all.iter().map(|e| e.changes.len()).sum::<usize>(), 10);
    for limit in [1, 4, 5] {
        let first = page(&w, Start::Oldest, &[], limit).await?;
        assert_eq!(first.entries, all[..1], "limit {limit}");
        assert_eq!((first.next, first.more), (all[0].position, true));
        let second = page(&w, Start::After(first.next), &[], limit).await?;
        assert_eq!(second.entries, all[1..], "limit {limit}");
        let end = page(&w, Start::After(second.next), &[], limit).await?;
        assert_eq!((end.entries, end.more), (vec![], false));
        assert_eq!(end.next, all[1].position);
    }
    Ok(())
}

async fn pages_of_any_size_tell_the_same_history(w: World) -> Result<()> {
    mixed(&w).await?;
    let all = w.history().await?.entries;
    let jobs = [Interest::Records(Prefix::new("jobs.")?)];
    let only_jobs = told(&w, &jobs, 1_000).await?;
    for limit in [1, 2, 3, 7, 1_000] {
        assert_eq!(told(&w, &[], limit).await?, all, "pages of {limit}");
        assert_eq!(told(&w, &jobs, limit).await?, only_jobs, "pages of {limit}");
    }
    Ok(())
}

async fn what_was_acknowledged_before_comes_first_whoever_wrote_it(w: World) -> Result<()> {
    let second = w.second().await?;
    let third = w.second().await?;
    let stores = [&w.store, &second, &third];
    let mut positions = Vec::new();
    for n in 0..12 {
        let write = put(&format!("key{}", 12 - n), "1")?;
        let receipt = stores[n % 3].commit_one(Commit::of(write)).await?;
        positions.extend(receipt.position);
    }
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    let entries = w.history().await?.entries;
    let keys: Vec<&str> = (entries.iter().flat_map(|entry| &entry.changes))
        .map(key_of)
        .collect();
    let expected: Vec<String> = (0..12).map(|n| format!("key{}", 12 - n)).collect();
    assert_eq!(keys, expected);
    Ok(())
}

async fn a_snapshot_and_the_history_after_it_have_no_gap(w: World) -> Result<()> {
    for n in 0..9 {
        w.put(&format!("key{n}"), [("value", "old")]).await?;
    }
    let from = newest(&w).await?;
    let mut copy = BTreeMap::new();
    let mut scan = Scan::new(Prefix::any(), 3);
    for turn in 0..20 {
        let page = w.store.scan(scan.clone()).await?;
        copy.extend((page.rows.into_iter()).map(|record| (record.key.clone(), record)));
        w.put(&format!("key{}", turn % 9), [("value", "new")])
            .await?;
        let gone = Key::new(format!("key{}", (turn + 4) % 9))?;
        w.store.write(Write::Delete(gone)).await?;
        w.put(&format!("more{turn}"), [("value", "new")]).await?;
        match page.next {
            Some(next) => scan.cursor = Some(next),
            None => break,
        }
    }
    for change in changes_since(&w, Start::After(from)).await? {
        match change {
            Change::Put(record) => {
                let known: Option<&Record> = copy.get(&record.key);
                if known.is_none_or(|known| known.revision < record.revision) {
                    copy.insert(record.key.clone(), record);
                }
            }
            Change::Removed { key, revision, .. } => {
                if copy.get(&key).is_some_and(|old| old.revision <= revision) {
                    copy.remove(&key);
                }
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    let now = w.store.scan(Scan::new(Prefix::any(), 1_000)).await?.rows;
    assert_eq!(copy.into_values().collect::<Vec<Record>>(), now);
    Ok(())
}

async fn every_handle_reads_the_same_history(w: World) -> Result<()> {
    mixed(&w).await?;
    let mut other = w.clone();
    other.store = w.second().await?;
    other.put("from.another", [("value", "1")]).await?;
    assert_eq!(other.history().await?, w.history().await?);
    assert_eq!(newest(&other).await?, newest(&w).await?);
    Ok(())
}

async fn namespaces_have_histories_of_their_own(w: World) -> Result<()> {
    let mut other = w.clone();
    other.store = w.elsewhere().await?;
    w.put("here", [("value", "1")]).await?;
    let (here, there) = (w.history().await?, other.history().await?);
    assert_eq!(there.entries, []);
    other.put("there", [("value", "1")]).await?;
    other.submit(other.new_task("there")).await?;
    assert_eq!(w.history().await?, here);
    assert_eq!(other.history().await?.entries.len(), 2);
    Ok(())
}
