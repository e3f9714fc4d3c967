//! History: each commit is one entry, and positions and revisions grow.

use std::time::Duration;

use crate::change::{Change, GroupEvent, Removal, TaskChange, TaskEvent};
use crate::conformance::observe::{changes_since, removed};
use crate::conformance::parallel;
use crate::conformance::world::{RETRY_DELAY, World, conflict, fail, invalid, name};
use crate::conformance::writes::{open, put, retry, submit};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::{Position, Revision, TaskId};
use crate::names::{GroupId, Key};
use crate::record::{Record, fields};
use crate::store::{Changes, Commit, Guard, Merge, Put, Start, StoreExt, Write};
use crate::task::Priority;

cases!["changes":
    a_commit_is_one_entry_in_the_order_of_its_writes,
    refused_commits_leave_no_entry,
    positions_grow_and_receipts_name_them if TotalOrder,
    a_page_names_the_newest_entry_there_was if TotalOrder,
    revisions_of_a_key_grow_over_deletion_and_expiry,
    revisions_of_a_task_grow_from_change_to_change,
];

pub(super) async fn newest(w: &World) -> Result<Position> {
    let changes = Changes {
        start: Start::Newest,
        interests: Vec::new(),
        limit: 1,
    };
    let page = w.store.changes(changes).await?;
    assert_eq!((page.entries, page.more), (vec![], false));
    Ok(page.next)
}

/// Makes a commit and answers the changes of the one entry that it must have appended, if any.
pub(super) async fn appended(w: &World, commit: Commit) -> Result<Vec<Change>> {
    let before = newest(w).await?;
    let receipt = w.commit_with_id(commit).await?;
    let mut entries = w.history_from(Start::After(before)).await?.entries;
    let Some(entry) = entries.pop() else {
        assert_eq!(receipt.position, None);
        return Ok(Vec::new());
    };
    assert_eq!(entries, [], "one commit is in one entry");
    assert_eq!(receipt.position, Some(entry.position));
    assert_eq!(entry.at, w.now());
    Ok(entry.changes)
}

pub(super) async fn appended_by(w: &World, write: Write) -> Result<Vec<Change>> {
    appended(w, Commit::of(write)).await
}

/// What `event` must have appended about a task that is as it was left then.
pub(super) async fn of_task(w: &World, id: TaskId, event: TaskEvent) -> Result<Change> {
    let task = w.task(id).await?;
    Ok(Change::Task(TaskChange {
        id,
        lane: task.spec.lane.clone(),
        group: task.spec.group.clone(),
        event,
        status: task.status,
        fence: task.fence,
        revision: task.revision,
    }))
}

pub(super) fn of_group(id: &str, generation: u32, event: GroupEvent) -> Result<Change> {
    Ok(Change::Group {
        id: GroupId::new(id)?,
        generation,
        event,
    })
}

pub(super) fn short_put(key: &str, ttl: Duration) -> Result<Write> {
    let put = Put::new(Key::new(key)?, fields([("value", "short")])?);
    Ok(Write::Put(put.ttl(ttl)))
}

pub(super) async fn current(w: &World, key: &str) -> Result<Record> {
    let record = w.record(key).await?;
    Ok(record.unwrap_or_else(|| panic!("there is no record {key}")))
}

pub(super) const SHORT: Duration = Duration::from_secs(5);

async fn a_commit_is_one_entry_in_the_order_of_its_writes(w: World) -> Result<()> {
    let old = w.put("old", [("value", "old")]).await?;
    let task = w.new_task("work");
    let commit = Commit::new()
        .write(put("z", "1")?)
        .write(submit(task.clone()))
        .write(Write::Delete(Key::new("old")?))
        .write(open(NewGroup::new(GroupId::new("g")?)))
        .write(put("a", "2")?)
        .write(Write::Prioritise(task.id, Priority::LOWEST));
    let changes = appended(&w, commit).await?;
    let amended = of_task(&w, task.id, TaskEvent::Amended).await?;
    assert_eq!(
        changes,
        [
            Change::Put(current(&w, "z").await?),
            of_task(&w, task.id, TaskEvent::Submitted).await?,
            removed(&old, Removal::Deleted),
            of_group("g", 0, GroupEvent::Opened)?,
            Change::Put(current(&w, "a").await?),
            amended,
        ]
    );
    Ok(())
}

async fn refused_commits_leave_no_entry(w: World) -> Result<()> {
    let before = newest(&w).await?;
    let key = Key::new("key")?;
    let guarded = Commit::of(put("key", "1")?).guard(Guard::RecordPresent(key.clone()));
    conflict(w.store.commit_one(guarded.clone()).await);
    let overflow = Merge::new(key).raise(name("value")?, 1);
    let half = Commit::new()
        .write(put("half", "1")?)
        .write(put("key", "text")?)
        .write(Write::Merge(overflow));
    conflict(w.store.commit_one(half.clone()).await);
    invalid(w.store.commit_one(Commit::new()).await);
    assert_eq!(newest(&w).await?, before);
    let (first, last) = (Commit::of(put("a", "1")?), Commit::of(put("b", "2")?));
    let answers = w.store.commit(vec![first, half, guarded, last]).await;
    let accepted: Vec<bool> = answers.iter().map(|answer| answer.is_ok()).collect();
    assert_eq!(accepted, [true, false, false, true]);
    let mut changes = changes_since(&w, Start::After(before)).await?;
    changes.sort_by_key(|change| match change {
        Change::Put(record) => Some(record.key.clone()),
        _ => None,
    });
    let expected = [current(&w, "a").await?, current(&w, "b").await?];
    assert_eq!(changes, expected.map(Change::Put));
    Ok(())
}

async fn positions_grow_and_receipts_name_them(w: World) -> Result<()> {
    let mut positions = Vec::new();
    for n in 0..5 {
        let key = ["a", "b", "c", "b", "a"][n];
        let receipt = w.store.commit_one(Commit::of(put(key, "1")?)).await?;
        positions.extend(receipt.position);
        w.advance(Duration::from_secs(1));
    }
    let entries = w.history().await?.entries;
    let found: Vec<Position> = entries.iter().map(|entry| entry.position).collect();
    assert_eq!(found, positions);
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    let keys: Vec<&str> = (entries.iter().flat_map(|entry| &entry.changes))
        .map(|change| match change {
            Change::Put(record) => record.key.as_str(),
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(keys, ["a", "b", "c", "b", "a"]);
    assert!(entries.is_sorted_by(|a, b| a.at < b.at));
    Ok(())
}

/// Whoever has read up to there knows what could be read before, although others write meanwhile.
async fn a_page_names_the_newest_entry_there_was(w: World) -> Result<()> {
    let stores = [w.store.clone(), w.second().await?];
    let writers = (0..16).map(|number| {
        let mut world = w.clone();
        world.store = stores[number % 2].clone();
        (number, world)
    });
    let write = async |(number, world): (usize, World)| {
        for _ in 0..10 {
            let commit = Commit::of(put(&format!("key {number}"), "1")?);
            let written = world.store.commit_one(commit).await?.position;
            for start in [Start::Newest, Start::Oldest] {
                let interests = Vec::new();
                let limit = 1;
                let changes = Changes {
                    start,
                    interests,
                    limit,
                };
                let page = world.store.changes(changes).await?;
                assert!(Some(page.newest) >= written, "{page:?} and {written:?}");
                assert!(page.next <= page.newest, "{page:?}");
            }
        }
        Ok(())
    };
    let written: Result<Vec<()>> = parallel(writers.map(write)).await.into_iter().collect();
    written?;
    let page = w.history().await?;
    // Those of several callers may be one entry.
    let changes = page.entries.iter().map(|entry| entry.changes.len());
    assert_eq!((changes.sum::<usize>(), page.next), (160, page.newest));
    assert_eq!(newest(&w).await?, page.newest);
    Ok(())
}

async fn revisions_of_a_key_grow_over_deletion_and_expiry(w: World) -> Result<()> {
    let key = Key::new("key")?;
    for write in [
        put("key", "1")?,
        Write::Delete(key.clone()),
        put("key", "2")?,
        Write::Merge(Merge::new(key.clone()).set(fields([("value", "3")])?)),
        Write::Touch(key.clone(), Some(SHORT)),
        put("key", "4")?,
        Write::Delete(key.clone()),
        short_put("key", SHORT)?,
    ] {
        w.store.write(write).await?;
    }
    w.advance(SHORT);
    w.sweep().await?;
    w.store.write(put("key", "5")?).await?;
    let mut last: Option<Revision> = None;
    let mut alive = false;
    let mut told = Vec::new();
    for change in changes_since(&w, Start::Oldest).await? {
        match change {
            Change::Put(record) => {
                assert!(last < Some(record.revision), "{record:?} after {last:?}");
                (last, alive) = (Some(record.revision), true);
                told.push("put");
            }
            Change::Removed { revision, how, .. } => {
                assert!(alive, "a removal comes after what it removes");
                assert_eq!(last, Some(revision));
                alive = false;
                told.push(match how {
                    Removal::Deleted => "deleted",
                    Removal::Expired => "expired",
                });
            }
            other => panic!("unexpected {other:?}"),
        }
    }
    assert_eq!(
        told,
        [
            "put", "deleted", "put", "put", "put", "deleted", "put", "expired", "put"
        ]
    );
    assert_eq!(last, Some(current(&w, "key").await?.revision));
    Ok(())
}

async fn revisions_of_a_task_grow_from_change_to_change(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let id = task.id();
    w.store.settle(held, fail("once")).await?;
    w.advance(RETRY_DELAY);
    w.sweep().await?;
    w.claim(&w.worker("second")?, 1).await?;
    w.write_with_id(retry(id, true)).await?;
    w.store.cancel(id, None).await?;
    let last = w.task(id).await?.revision;
    w.store.write(Write::DeleteTask(id)).await?;
    let mut told = Vec::new();
    for change in changes_since(&w, Start::Oldest).await? {
        match change {
            Change::Task(change) => told.push(change),
            other => panic!("unexpected {other:?}"),
        }
    }
    let deleted = told.pop().map(|change| (change.event, change.revision));
    assert_eq!(deleted, Some((TaskEvent::Deleted, last)));
    assert!(told.is_sorted_by(|a, b| a.revision < b.revision && a.fence <= b.fence));
    let events: Vec<TaskEvent> = told.iter().map(|change| change.event).collect();
    assert_eq!(
        events,
        [
            TaskEvent::Submitted,
            TaskEvent::Claimed,
            TaskEvent::Failed,
            TaskEvent::Promoted,
            TaskEvent::Claimed,
            TaskEvent::Retried,
            TaskEvent::Cancelled,
        ]
    );
    Ok(())
}
