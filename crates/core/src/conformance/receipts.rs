//! Receipts: where the changes of a commit are, and the same answer for the same commit id.

use std::time::Duration;

use crate::change::{Change, GroupEvent, Removal, TaskChange, TaskEvent};
use crate::conformance::commits::{add, told_at};
use crate::conformance::observe::assert_fields;
use crate::conformance::world::{World, conflict, name};
use crate::conformance::writes::{log, open, put, submit};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::{Revision, TaskId};
use crate::log::{Level, NewLine};
use crate::names::{GroupId, Key};
use crate::record::fields;
use crate::store::{Cancel, Commit, Guard, Merge, Outcome, Receipt, StoreExt, Write};
use crate::task::Priority;

cases!["receipts":
    a_commit_id_is_applied_once,
    a_commit_id_is_applied_once_within_a_call,
    a_commit_that_was_refused_is_not_remembered,
    a_receipt_says_when_records_were_written,
    a_receipt_says_where_the_changes_are,
    receipts_of_one_call_say_where_their_changes_are,
    a_commit_with_nothing_to_show_has_no_position,
];

async fn a_commit_id_is_applied_once(w: World) -> Result<()> {
    let returning = Merge::new(Key::new("key")?)
        .add(name("sum")?, 5)
        .returning();
    let task = w.new_task("work");
    let id = task.id;
    let commit = Commit::of(Write::Merge(returning))
        .guard(Guard::RecordAbsent(Key::new("key")?))
        .write(submit(task))
        .id(w.ids.commit());
    let first = w.store.commit_one(commit.clone()).await?;
    assert!(!first.repeated);
    assert!(first.position.is_some());
    // In between everything that it did and what it was guarded by has changed.
    w.write_with_id(add("key", 1)?).await?;
    w.store.cancel(id, None).await?;
    w.store.write(Write::DeleteTask(id)).await?;
    w.advance(Duration::from_secs(599));
    let record = w.record("key").await?;
    let history = w.history().await?.entries;
    let repeated = Receipt {
        repeated: true,
        ..first
    };
    for store in [w.store.clone(), w.second().await?] {
        let receipt = store.commit_one(commit.clone()).await?;
        assert_eq!(receipt, repeated);
    }
    assert_eq!(w.record("key").await?, record);
    assert_eq!(w.store.task(id).await?, None);
    assert_eq!(w.history().await?.entries, history);
    let other = Commit::of(add("key", 5)?).id(w.ids.commit());
    assert!(!w.store.commit_one(other).await?.repeated);
    assert_fields(&w, "key", fields([("sum", "11")])?).await?;
    Ok(())
}

async fn a_commit_id_is_applied_once_within_a_call(w: World) -> Result<()> {
    let once = Commit::of(add("key", 1)?).id(w.ids.commit());
    let other = Commit::of(add("key", 10)?).id(w.ids.commit());
    let commits = vec![once.clone(), other, once.clone(), once];
    let receipts = w.store.commit(commits).await;
    let receipts = receipts.into_iter().collect::<Result<Vec<Receipt>>>()?;
    let repeated: Vec<bool> = receipts.iter().map(|receipt| receipt.repeated).collect();
    assert_eq!(repeated, [false, false, true, true]);
    let first = Receipt {
        repeated: true,
        ..receipts[0].clone()
    };
    assert_eq!(receipts[2..], [first.clone(), first]);
    assert_fields(&w, "key", fields([("sum", "11")])?).await?;
    Ok(())
}

async fn a_commit_that_was_refused_is_not_remembered(w: World) -> Result<()> {
    let commit = Commit::of(add("key", 1)?)
        .guard(Guard::RecordPresent(Key::new("permit")?))
        .id(w.ids.commit());
    conflict(w.store.commit_one(commit.clone()).await);
    conflict(w.store.commit_one(commit.clone()).await);
    w.put("permit", [("value", "1")]).await?;
    assert!(!w.store.commit_one(commit.clone()).await?.repeated);
    assert!(w.store.commit_one(commit).await?.repeated);
    assert_fields(&w, "key", fields([("sum", "1")])?).await?;
    Ok(())
}

async fn a_receipt_says_when_records_were_written(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let writes = [
        put("key", "1")?,
        add("key", 2)?,
        Write::Touch(key.clone(), Some(Duration::from_secs(60))),
        Write::Merge(Merge::new(key).add(name("sum")?, 1).returning()),
    ];
    let mut at = Vec::new();
    for write in writes {
        w.advance(Duration::from_millis(5));
        let commit = Commit::of(write).id(w.ids.commit());
        let first = w.store.commit_one(commit.clone()).await?;
        let Outcome::Written {
            revision,
            modified_at,
            ..
        } = first.outcomes[0]
        else {
            panic!("{first:?}");
        };
        let record = w.record("key").await?;
        let shown = record.map(|record| (record.revision, record.modified_at));
        assert_eq!(shown, Some((revision, modified_at)));
        w.advance(Duration::from_millis(5));
        let again = w.store.commit_one(commit).await?;
        assert_eq!(again.outcomes, first.outcomes);
        at.push(modified_at);
    }
    // A touch changes when a record ends, and not when it was written.
    assert!(at[0] < at[1] && at[1] == at[2] && at[2] < at[3], "{at:?}");
    Ok(())
}

async fn a_receipt_says_where_the_changes_are(w: World) -> Result<()> {
    w.put("before", [("value", "1")]).await?;
    let gone = w.put("gone", [("value", "1")]).await?;
    w.advance(Duration::from_secs(1));
    let task = w.new_task("work");
    let (id, group) = (task.id, GroupId::new("group")?);
    let commit = Commit::of(put("key", "1")?)
        .write(submit(task))
        .write(Write::Delete(gone.key.clone()))
        .write(open(NewGroup::new(group.clone())));
    let receipt = w.store.commit_one(commit).await?;
    w.advance(Duration::from_secs(1));
    w.put("after", [("value", "1")]).await?;
    let task = w.task(id).await?;
    let mut changes: Vec<Change> = w
        .record("key")
        .await?
        .map(Change::Put)
        .into_iter()
        .collect();
    changes.push(Change::Task(TaskChange::new(&task, TaskEvent::Submitted)));
    changes.push(Change::Removed {
        key: gone.key,
        revision: gone.revision,
        how: Removal::Deleted,
    });
    changes.push(Change::Group {
        id: group,
        generation: 0,
        event: GroupEvent::Opened,
    });
    let entry = told_at(&w, receipt.position).await?;
    assert_eq!(entry.at, task.modified_at);
    assert_eq!(entry.changes, changes);
    Ok(())
}

async fn receipts_of_one_call_say_where_their_changes_are(w: World) -> Result<()> {
    let keys = ["a", "b", "a", "c", "a"];
    let mut commits = Vec::new();
    for (n, key) in keys.into_iter().enumerate() {
        let other = format!("{key}.{n}");
        commits.push(Commit::of(put(key, "1")?).write(put(&other, "2")?));
    }
    let receipts = w.store.commit(commits).await;
    for (n, (key, receipt)) in keys.into_iter().zip(receipts).enumerate() {
        let receipt = receipt?;
        let told = told_at(&w, receipt.position).await?.changes;
        let told = told.iter().filter_map(|change| match change {
            Change::Put(record) => Some((record.key.as_str(), record.revision)),
            _ => None,
        });
        let told: Vec<(&str, Revision)> = told.collect();
        let other = format!("{key}.{n}");
        for (key, outcome) in [key, &other].into_iter().zip(receipt.outcomes) {
            match outcome {
                Outcome::Written { revision, .. } => assert!(told.contains(&(key, revision))),
                outcome => panic!("expected a written record, got {outcome:?}"),
            }
        }
    }
    let all = w.history().await?.entries.into_iter();
    let all = all.flat_map(|entry| entry.changes).count();
    assert_eq!(all, 10, "each is told once");
    Ok(())
}

async fn a_commit_with_nothing_to_show_has_no_position(w: World) -> Result<()> {
    let record = w.put("key", [("value", "1")]).await?;
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let cancelled = w.submit(w.new_task("unwanted")).await?.id();
    w.store.cancel(cancelled, None).await?;
    let group = || open(NewGroup::new(GroupId::new("group").expect("valid")));
    w.store.write(group()).await?;
    let line = NewLine::new(w.ids.line(), Level::Info, "said");
    let history = w.history().await?;
    let unknown: TaskId = w.ids.task();
    for write in [
        Write::Touch(record.key.clone(), Some(Duration::from_secs(60))),
        Write::Touch(record.key.clone(), None),
        Write::Delete(Key::new("absent")?),
        Write::ExpireRecord(record.key.clone()),
        log(&held, &[line]),
        Write::Cancel(Cancel {
            task: cancelled,
            reason: None,
        }),
        Write::Prioritise(task.id(), Priority::default()),
        Write::Promote(task.id()),
        Write::DeleteTask(unknown),
        Write::DeleteGroup(GroupId::new("absent")?),
        group(),
    ] {
        let receipt = w.commit_with_id(Commit::of(write.clone())).await?;
        assert_eq!(receipt.position, None, "{write:?}");
    }
    assert_eq!(w.history().await?.entries, history.entries);
    assert_eq!(w.task(task.id()).await?, task);
    Ok(())
}
