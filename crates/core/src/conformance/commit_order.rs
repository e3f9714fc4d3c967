//! Order: commits see those before them, and writes the writes before them.

use std::time::Duration;

use crate::change::{Change, Removal};
use crate::conformance::commits::{add, fields_of};
use crate::conformance::observe::field;
use crate::conformance::world::{World, conflict, name, text};
use crate::conformance::writes::{open, put, submit};
use crate::error::{Conflict, Result};
use crate::group::NewGroup;
use crate::ids::Revision;
use crate::names::{GroupId, Key};
use crate::record::{Record, fields};
use crate::store::{Cancel, Commit, Guard, Merge, Outcome, StoreExt, Write};
use crate::task::Status;

cases!["commit_order":
    commits_of_one_call_see_those_before_them,
    writes_see_the_writes_before_them_in_the_same_commit,
    a_record_that_a_commit_makes_and_removes_was_never_there,
];

async fn commits_of_one_call_see_those_before_them(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let is = |value: Option<&'static str>| -> Result<Guard> {
        let value = value.map(Into::into);
        Ok(Guard::Field(key.clone(), name("value")?, value))
    };
    let task = w.new_task("work");
    let (id, reason) = (task.id, Some("not wanted".to_owned()));
    let receipts = w
        .store
        .commit(vec![
            Commit::of(put("key", "1")?).guard(is(None)?),
            Commit::of(put("key", "2")?).guard(is(Some("1"))?),
            Commit::of(put("key", "never")?).guard(is(Some("1"))?),
            Commit::of(Write::Delete(key.clone())).guard(is(Some("2"))?),
            Commit::of(put("key", "3")?).guard(Guard::RecordAbsent(key.clone())),
            Commit::of(submit(task)),
            Commit::of(Write::Cancel(Cancel { task: id, reason })),
        ])
        .await;
    let done: Vec<bool> = receipts.iter().map(Result::is_ok).collect();
    assert_eq!(done, [true, true, false, true, true, true, true]);
    let guard = is(Some("1"))?;
    assert_eq!(
        conflict(receipts[2].clone()),
        Conflict::Guard { index: 0, guard }
    );
    assert_eq!(
        receipts[3].clone()?.outcomes,
        [Outcome::Removed { existed: true }]
    );
    assert_eq!(field(&w, "key", "value").await?.as_deref(), Some("3"));
    assert_eq!(w.status(id).await?, Status::Cancelled);
    let revisions: Vec<Revision> = (receipts.iter().flatten())
        .filter_map(|receipt| match receipt.outcomes[0] {
            Outcome::Written { revision, .. } => Some(revision),
            _ => None,
        })
        .collect();
    assert!(revisions.is_sorted_by(|one, next| one < next));
    assert_eq!(revisions.len(), 3);
    // Each of the commits is told, although one after another wrote the same key.
    let history = w.history().await?.entries;
    let told: Vec<Option<String>> = (history.iter().flat_map(|entry| &entry.changes))
        .filter_map(|change| match change {
            Change::Put(record) => Some(text(&record.fields, "value")),
            Change::Removed { how, .. } => {
                assert_eq!(*how, Removal::Deleted);
                Some(None)
            }
            Change::Task(_) | Change::Group { .. } => None,
        })
        .collect();
    let expected = [Some("1"), Some("2"), None, Some("3")];
    assert_eq!(told, expected.map(|value| value.map(str::to_owned)));
    Ok(())
}

async fn writes_see_the_writes_before_them_in_the_same_commit(w: World) -> Result<()> {
    let ttl = Duration::from_secs(60);
    let before = w.put("again", [("value", "before"), ("old", "1")]).await?;
    let (key, group) = (Key::new("key")?, GroupId::new("group")?);
    let member = w.new_task("member").group(group.clone());
    let id = member.id;
    let returning = Merge::new(key.clone()).add(name("sum")?, 2).returning();
    let commit = Commit::new()
        .guard(Guard::RecordAbsent(key.clone()))
        .write(put("key", "1")?)
        .write(add("key", 40)?)
        .write(Write::Touch(key.clone(), Some(ttl)))
        .write(Write::Merge(returning))
        .write(Write::Delete(before.key.clone()))
        .write(put("again", "after")?)
        .write(open(NewGroup::new(group.clone())))
        .write(submit(member))
        .write(Write::Cancel(Cancel {
            task: id,
            reason: None,
        }))
        .write(Write::Seal(group.clone()));
    let receipt = w.commit_with_id(commit).await?;
    let record = w.record("key").await?;
    let expected = Record {
        key,
        fields: fields([("sum", "42"), ("value", "1")])?,
        revision: record.as_ref().map_or(Revision::ZERO, |r| r.revision),
        modified_at: w.now(),
        expires_at: Some(w.now().saturating_plus(ttl)),
    };
    assert_eq!(record.as_ref(), Some(&expected));
    let answered = Outcome::Written {
        revision: expected.revision,
        record: Some(expected.clone()),
        modified_at: expected.modified_at,
    };
    assert_eq!(receipt.outcomes[3], answered);
    assert_eq!(receipt.outcomes[4], Outcome::Removed { existed: true });
    let again = w.record("again").await?;
    assert_eq!(
        again.as_ref().map(|record| record.fields.clone()),
        Some(fields_of("after")?)
    );
    assert_eq!(w.status(id).await?, Status::Cancelled);
    let group = w.group("group").await?;
    assert_eq!((group.spawned, group.done, group.cancelled), (1, 1, 1));
    assert_eq!(group.drained_at, Some(w.now()));
    let told = w.history().await?.entries.into_iter();
    let told: Vec<Change> = (told.flat_map(|entry| entry.changes))
        .filter(|change| matches!(change, Change::Put(_) | Change::Removed { .. }))
        .collect();
    let mut all = vec![Change::Put(before), Change::Put(expected)];
    all.extend(again.map(Change::Put));
    assert_eq!(told, all, "one change for each record");
    Ok(())
}

async fn a_record_that_a_commit_makes_and_removes_was_never_there(w: World) -> Result<()> {
    let key = Key::new("key")?;
    let commit = Commit::of(put("key", "1")?).write(Write::Delete(key.clone()));
    let receipt = w.store.commit_one(commit.clone()).await?;
    assert_eq!(receipt.outcomes[1], Outcome::Removed { existed: true });
    assert_eq!(receipt.position, None);
    assert_eq!(w.record("key").await?, None);
    assert_eq!(w.history().await?.entries, []);
    let record = w.put("key", [("value", "0")]).await?;
    w.store.commit_one(commit).await?;
    let history = w.history().await?.entries.into_iter();
    let removed = Change::Removed {
        key,
        revision: record.revision,
        how: Removal::Deleted,
    };
    assert_eq!(
        history.flat_map(|entry| entry.changes).collect::<Vec<_>>(),
        [Change::Put(record), removed]
    );
    Ok(())
}
