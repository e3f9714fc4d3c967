//! History: which changes are in it, in which order, and how readers go through it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::change::{Change, Entry, GroupEvent, Interest, Removal, TaskChange, TaskEvent};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, fail_with, holder, invalid, lane, name,
};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::{Position, Revision, TaskId};
use crate::log::{Level, NewLine};
use crate::names::{GroupId, IdempotencyKey, Key, Prefix};
use crate::record::{Record, fields};
use crate::store::{
    Amend, ChangePage, Changes, Commit, Ending, FailRetry, Guard, Log, Merge, Put, Renew, Retry,
    Scan, Settle, Start, StoreExt, Write,
};
use crate::task::{KeyLifetime, Lane, NewTask, OnConflict, Priority, Progress, Task};

cases!["changes":
    a_put_and_a_merge_append_the_whole_record,
    a_removal_carries_the_revision_that_ended,
    touches_renewals_log_lines_and_reads_append_nothing,
    an_expired_record_is_in_the_history_exactly_once,
    a_write_over_an_expired_record_appends_the_expiry_first_and_only_once,
    the_way_to_success_appends_one_change_for_each_step,
    each_way_to_end_an_attempt_appends_its_own_change,
    cancelling_appends_the_request_and_the_end,
    an_attempt_that_ran_out_appends_its_expiry,
    retry_amend_prioritise_and_delete_append_their_changes,
    what_changes_nothing_appends_nothing,
    a_replacement_appends_the_request_the_submit_and_the_unblocking,
    a_failure_for_good_appends_the_task_it_submits,
    a_claim_of_many_appends_one_change_for_each_task,
    opening_sealing_reopening_and_deleting_a_group_append_their_changes,
    a_draining_group_appends_the_drain_and_its_task_in_that_commit if JoinsInCommit,
    a_commit_is_one_entry_in_the_order_of_its_writes,
    a_record_written_twice_in_a_commit_is_one_change,
    refused_commits_leave_no_entry,
    positions_grow_and_receipts_name_them if TotalOrder,
    revisions_of_a_key_grow_over_deletion_and_expiry,
    revisions_of_a_task_grow_from_change_to_change,
    reading_starts_where_it_is_asked_to,
    a_limit_never_splits_an_entry,
    pages_of_any_size_tell_the_same_history,
    an_interest_in_records_shows_keys_with_its_prefix,
    an_interest_in_tasks_shows_those_that_meet_every_condition,
    interests_add_up_and_groups_are_shown_by_prefix,
    a_reader_moves_past_entries_that_it_is_not_shown,
    what_was_acknowledged_before_comes_first_whoever_wrote_it if TotalOrder,
    a_snapshot_and_the_history_after_it_have_no_gap,
    every_handle_reads_the_same_history,
    namespaces_have_histories_of_their_own,
];

async fn newest(w: &World) -> Result<Position> {
    let changes = Changes {
        start: Start::Newest,
        interests: Vec::new(),
        limit: 1,
    };
    let page = w.store.changes(changes).await?;
    assert_eq!((page.entries, page.more), (vec![], false));
    Ok(page.next)
}

async fn since(w: &World, position: Position) -> Result<Vec<Change>> {
    let page = w.history_from(Start::After(position)).await?;
    Ok(page.entries.into_iter().flat_map(|e| e.changes).collect())
}

/// All changes of the whole history.
async fn whole(w: &World) -> Result<Vec<Change>> {
    let entries = w.history().await?.entries;
    Ok(entries.into_iter().flat_map(|e| e.changes).collect())
}

/// Makes a commit and answers the changes of the one entry that it must have appended, if any.
async fn appended(w: &World, commit: Commit) -> Result<Vec<Change>> {
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

async fn appended_by(w: &World, write: Write) -> Result<Vec<Change>> {
    appended(w, Commit::of(write)).await
}

/// What `event` must have appended about a task that is as it was left then.
async fn of_task(w: &World, id: TaskId, event: TaskEvent) -> Result<Change> {
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

fn of_group(id: &str, generation: u32, event: GroupEvent) -> Result<Change> {
    Ok(Change::Group {
        id: GroupId::new(id)?,
        generation,
        event,
    })
}

fn removed(record: &Record, how: Removal) -> Change {
    Change::Removed {
        key: record.key.clone(),
        revision: record.revision,
        how,
    }
}

fn put(key: &str, value: &'static str) -> Result<Write> {
    Ok(Write::Put(Put::new(
        Key::new(key)?,
        fields([("value", value)])?,
    )))
}

fn short_put(key: &str, ttl: Duration) -> Result<Write> {
    let put = Put::new(Key::new(key)?, fields([("value", "short")])?);
    Ok(Write::Put(put.ttl(ttl)))
}

async fn current(w: &World, key: &str) -> Result<Record> {
    let record = w.record(key).await?;
    Ok(record.unwrap_or_else(|| panic!("there is no record {key}")))
}

fn submit(task: NewTask) -> Write {
    Write::Submit(Box::new(task))
}

fn open(group: NewGroup) -> Write {
    Write::OpenGroup(Box::new(group))
}

fn cancel(task: TaskId) -> Write {
    let reason = Some("enough".to_owned());
    Write::Cancel(crate::store::Cancel { task, reason })
}

fn retry(task: TaskId) -> Write {
    Write::Retry(Retry {
        task,
        force: true,
        delay: Duration::ZERO,
    })
}

const SHORT: Duration = Duration::from_secs(5);

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
    let log = Write::Log(Log {
        holder: held,
        lines: vec![NewLine::new(w.ids.line(), Level::Error, "said")],
    });
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
    assert_eq!(since(&w, before).await?, []);
    assert_eq!(w.sweep().await?.records, 1);
    let expired = [removed(&record, Removal::Expired)];
    assert_eq!(since(&w, before).await?, expired);
    w.sweep().await?;
    let key = Key::new("key")?;
    w.store.write(Write::ExpireRecord(key.clone())).await?;
    w.store.write(Write::Delete(key)).await?;
    assert_eq!(since(&w, before).await?, expired);
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
        assert_eq!(since(&w, before).await?, expected, "{key} after a sweep");
    }
    Ok(())
}

async fn the_way_to_success_appends_one_change_for_each_step(w: World) -> Result<()> {
    let task = w.new_task("work").after(SHORT);
    let id = task.id;
    let changes = appended_by(&w, submit(task)).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Submitted).await?]);
    w.advance(SHORT);
    let changes = appended_by(&w, Write::Promote(id)).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Promoted).await?]);
    let before = newest(&w).await?;
    let claimed = w.claim(&w.worker("worker")?, 1).await?;
    let claim = of_task(&w, id, TaskEvent::Claimed).await?;
    assert_eq!(since(&w, before).await?, [claim]);
    let settle = Settle {
        holder: holder(&claimed[0]),
        how: complete(),
    };
    let changes = appended_by(&w, Write::Settle(settle)).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Completed).await?]);
    Ok(())
}

async fn each_way_to_end_an_attempt_appends_its_own_change(w: World) -> Result<()> {
    for (how, event) in [
        (complete(), TaskEvent::Completed),
        (fail("again"), TaskEvent::Failed),
        (fail_with("never", FailRetry::Fatal), TaskEvent::Failed),
        (Ending::Snooze { delay: SHORT }, TaskEvent::Snoozed),
        (Ending::Release { reason: None }, TaskEvent::Released),
        (Ending::Cancel { reason: None }, TaskEvent::Cancelled),
    ] {
        let (task, holder) = w.claimed(w.new_task("work")).await?;
        let changes = appended_by(&w, Write::Settle(Settle { holder, how })).await?;
        assert_eq!(changes, [of_task(&w, task.id(), event).await?]);
    }
    Ok(())
}

async fn cancelling_appends_the_request_and_the_end(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?.id();
    let changes = appended_by(&w, cancel(pending)).await?;
    assert_eq!(changes, [of_task(&w, pending, TaskEvent::Cancelled).await?]);
    for how in [fail("late"), Ending::Release { reason: None }] {
        let (task, holder) = w.claimed(w.new_task("held")).await?;
        let changes = appended_by(&w, cancel(task.id())).await?;
        let request = of_task(&w, task.id(), TaskEvent::CancelRequested).await?;
        assert_eq!(changes, [request]);
        let changes = appended_by(&w, Write::Settle(Settle { holder, how })).await?;
        let end = of_task(&w, task.id(), TaskEvent::Cancelled).await?;
        assert_eq!(changes, [end]);
    }
    Ok(())
}

async fn an_attempt_that_ran_out_appends_its_expiry(w: World) -> Result<()> {
    let (waits, _) = w.claimed(w.new_task("waits")).await?;
    let (cancelled, _) = w.claimed(w.new_task("cancelled")).await?;
    w.store.cancel(cancelled.id(), None).await?;
    w.advance(LEASE);
    for task in [waits, cancelled] {
        let expire = Write::Expire(crate::store::Expire {
            task: task.id(),
            fence: task.fence,
            jitter: Default::default(),
        });
        let changes = appended_by(&w, expire.clone()).await?;
        let expired = of_task(&w, task.id(), TaskEvent::Expired).await?;
        assert_eq!(changes, [expired]);
        assert_eq!(appended_by(&w, expire).await?, []);
    }
    Ok(())
}

async fn retry_amend_prioritise_and_delete_append_their_changes(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let id = task.id();
    let amend = Amend {
        progress: Some(Progress {
            percent: Some(50),
            ..Progress::default()
        }),
        ..Amend::new(held)
    };
    let changes = appended_by(&w, Write::Amend(Box::new(amend))).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Amended).await?]);
    let changes = appended_by(&w, Write::Prioritise(id, Priority::HIGHEST)).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Amended).await?]);
    let changes = appended_by(&w, retry(id)).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Retried).await?]);
    w.store.cancel(id, None).await?;
    let changes = appended_by(&w, retry(id)).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Retried).await?]);
    w.store.cancel(id, None).await?;
    let deleted = of_task(&w, id, TaskEvent::Deleted).await?;
    let changes = appended_by(&w, Write::DeleteTask(id)).await?;
    assert_eq!(changes, [deleted]);
    Ok(())
}

async fn what_changes_nothing_appends_nothing(w: World) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let task = w.new_task("work").key(key.clone());
    let id = w.submit(task.clone()).await?.id();
    let (held, _) = w.claimed(w.new_task("held")).await?;
    w.store.cancel(held.id(), None).await?;
    let done = w.submit(w.new_task("done")).await?.id();
    w.store.cancel(done, None).await?;
    let group = NewGroup::new(GroupId::new("g")?);
    w.store.write(open(group.clone())).await?;
    for write in [
        submit(task),
        submit(w.new_task("other").key(key)),
        cancel(held.id()),
        cancel(done),
        retry(id),
        Write::Promote(id),
        Write::Prioritise(id, Priority::default()),
        Write::DeleteTask(w.ids.task()),
        Write::DeleteGroup(GroupId::new("none")?),
        Write::ExpireRecord(Key::new("none")?),
        open(group),
    ] {
        let changes = appended_by(&w, write.clone()).await?;
        assert_eq!(changes, [], "{write:?}");
    }
    Ok(())
}

async fn a_replacement_appends_the_request_the_submit_and_the_unblocking(w: World) -> Result<()> {
    let keyed = |on_conflict| -> Result<NewTask> {
        let key = IdempotencyKey::new("key")?;
        Ok((w.new_task("work")).key_with(key, KeyLifetime::Forever, on_conflict))
    };
    let (old, holder) = w.claimed(keyed(OnConflict::Attach)?).await?;
    let new = keyed(OnConflict::CancelAndReplace)?;
    let changes = appended_by(&w, submit(new.clone())).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, old.id(), TaskEvent::CancelRequested).await?,
            of_task(&w, new.id, TaskEvent::Submitted).await?,
        ]
    );
    let how = complete();
    let changes = appended_by(&w, Write::Settle(Settle { holder, how })).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, old.id(), TaskEvent::Completed).await?,
            of_task(&w, new.id, TaskEvent::Unblocked).await?,
        ]
    );
    let third = keyed(OnConflict::ReplacePending)?;
    let changes = appended_by(&w, submit(third.clone())).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, new.id, TaskEvent::Cancelled).await?,
            of_task(&w, third.id, TaskEvent::Submitted).await?,
        ]
    );
    Ok(())
}

async fn a_failure_for_good_appends_the_task_it_submits(w: World) -> Result<()> {
    let after = w.new_task("clean up");
    let task = NewTask {
        on_failure: Some(Box::new(after.clone())),
        ..w.new_task("work")
    };
    let (task, holder) = w.claimed(task).await?;
    let how = fail_with("no", FailRetry::Fatal);
    let changes = appended_by(&w, Write::Settle(Settle { holder, how })).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, task.id(), TaskEvent::Failed).await?,
            of_task(&w, after.id, TaskEvent::Submitted).await?,
        ]
    );
    Ok(())
}

async fn a_claim_of_many_appends_one_change_for_each_task(w: World) -> Result<()> {
    w.submit_many(5).await?;
    let before = newest(&w).await?;
    let claimed = w.claim(&w.worker("worker")?, 3).await?;
    let by_id = |change: &Change| match change {
        Change::Task(task) => Some(task.id),
        _ => None,
    };
    let mut expected = Vec::new();
    for task in &claimed {
        expected.push(of_task(&w, task.id(), TaskEvent::Claimed).await?);
    }
    expected.sort_by_key(by_id);
    let mut changes = since(&w, before).await?;
    changes.sort_by_key(by_id);
    assert_eq!(changes, expected);
    let before = newest(&w).await?;
    let ids: Vec<TaskId> = claimed.iter().map(Task::id).collect();
    let worker = holder(&claimed[0]).worker;
    assert_eq!(w.claim_ids(&worker, &ids).await?.tasks, claimed);
    assert_eq!(newest(&w).await?, before);
    Ok(())
}

async fn opening_sealing_reopening_and_deleting_a_group_append_their_changes(
    w: World,
) -> Result<()> {
    let id = GroupId::new("g")?;
    let member = w.new_task("member").group(id.clone());
    let changes = appended_by(&w, open(NewGroup::new(id.clone()))).await?;
    assert_eq!(changes, [of_group("g", 0, GroupEvent::Opened)?]);
    let changes = appended_by(&w, submit(member.clone())).await?;
    assert_eq!(
        changes,
        [of_task(&w, member.id, TaskEvent::Submitted).await?]
    );
    let changes = appended_by(&w, Write::Arrive(id.clone(), 2)).await?;
    assert_eq!(changes, [], "an arrival is no event");
    let changes = appended_by(&w, Write::Seal(id.clone())).await?;
    assert_eq!(changes, [of_group("g", 0, GroupEvent::Sealed)?]);
    assert_eq!(appended_by(&w, Write::Seal(id.clone())).await?, []);
    w.store.cancel(member.id, None).await?;
    assert!(w.group("g").await?.drained_at.is_some());
    for write in [Write::Tally(id.clone()), Write::Seal(id.clone())] {
        assert_eq!(appended_by(&w, write).await?, [], "it has drained already");
    }
    let changes = appended_by(&w, Write::Reopen(id.clone())).await?;
    assert_eq!(changes, [of_group("g", 1, GroupEvent::Reopened)?]);
    assert_eq!(appended_by(&w, Write::Reopen(id.clone())).await?, []);
    let changes = appended_by(&w, Write::DeleteGroup(id)).await?;
    assert_eq!(changes, [of_group("g", 1, GroupEvent::Deleted)?]);
    Ok(())
}

async fn a_draining_group_appends_the_drain_and_its_task_in_that_commit(w: World) -> Result<()> {
    let id = GroupId::new("g")?;
    let (then, alarm) = (w.new_task("then"), w.new_task("alarm"));
    let group = NewGroup::new(id.clone())
        .then(then.clone())
        .on_first_failure(alarm.clone());
    w.store.write(open(group)).await?;
    let (first, holder) = w.claimed(w.new_task("first").group(id.clone())).await?;
    let (second, last) = w.claimed(w.new_task("second").group(id.clone())).await?;
    let how = fail_with("no", FailRetry::Fatal);
    let changes = appended_by(&w, Write::Settle(Settle { holder, how })).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, first.id(), TaskEvent::Failed).await?,
            of_group("g", 0, GroupEvent::FirstFailure)?,
            of_task(&w, alarm.id, TaskEvent::Submitted).await?,
        ]
    );
    w.store.write(Write::Seal(id.clone())).await?;
    let settle = Settle {
        holder: last,
        how: complete(),
    };
    let changes = appended_by(&w, Write::Settle(settle)).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, second.id(), TaskEvent::Completed).await?,
            of_group("g", 0, GroupEvent::Drained)?,
            of_task(&w, then.id, TaskEvent::Submitted).await?,
        ]
    );
    let changes = appended_by(&w, retry(first.id())).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, first.id(), TaskEvent::Retried).await?,
            of_group("g", 1, GroupEvent::Reopened)?,
        ]
    );
    let changes = appended_by(&w, cancel(first.id())).await?;
    assert_eq!(
        changes,
        [
            of_task(&w, first.id(), TaskEvent::Cancelled).await?,
            of_group("g", 1, GroupEvent::Drained)?,
            of_task(&w, then.id.nth(1), TaskEvent::Submitted).await?,
        ]
    );
    let empty = NewGroup::new(GroupId::new("empty")?).expecting(0);
    assert_eq!(
        appended_by(&w, open(empty)).await?,
        [
            of_group("empty", 0, GroupEvent::Opened)?,
            of_group("empty", 0, GroupEvent::Drained)?,
        ]
    );
    Ok(())
}

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
    let mut changes = since(&w, before).await?;
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
    for change in whole(&w).await? {
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
    w.write_with_id(retry(id)).await?;
    w.store.cancel(id, None).await?;
    let last = w.task(id).await?.revision;
    w.store.write(Write::DeleteTask(id)).await?;
    let mut told = Vec::new();
    for change in whole(&w).await? {
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

async fn page(w: &World, start: Start, interests: &[Interest], limit: usize) -> Result<ChangePage> {
    let changes = Changes {
        start,
        interests: interests.to_vec(),
        limit,
    };
    w.store.changes(changes).await
}

/// Reads page by page what there is to show.
async fn told(w: &World, interests: &[Interest], limit: usize) -> Result<Vec<Entry>> {
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

/// Records, tasks of several lanes and a group, in commits of one to three writes.
async fn mixed(w: &World) -> Result<Vec<TaskId>> {
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

/// What these interests show must be what is in the history and passes `wanted`.
async fn assert_shown(
    w: &World,
    interests: &[Interest],
    count: usize,
    wanted: impl Fn(&Change) -> bool,
) -> Result<()> {
    let mut expected = w.history().await?.entries;
    for entry in &mut expected {
        entry.changes.retain(&wanted);
    }
    expected.retain(|entry| !entry.changes.is_empty());
    let changes: usize = expected.iter().map(|entry| entry.changes.len()).sum();
    assert_eq!(changes, count, "{interests:?} should show so many changes");
    for limit in [1, 1_000] {
        let found = told(w, interests, limit).await?;
        assert_eq!(found, expected, "{interests:?} in pages of {limit}");
    }
    Ok(())
}

fn key_of(change: &Change) -> &str {
    match change {
        Change::Put(record) => record.key.as_str(),
        Change::Removed { key, .. } => key.as_str(),
        Change::Task(_) | Change::Group { .. } => "",
    }
}

fn task_of(change: &Change) -> Option<&TaskChange> {
    match change {
        Change::Task(task) => Some(task),
        Change::Put(_) | Change::Removed { .. } | Change::Group { .. } => None,
    }
}

async fn an_interest_in_records_shows_keys_with_its_prefix(w: World) -> Result<()> {
    mixed(&w).await?;
    for (prefix, count) in [("jobs.", 3), ("jobs_", 1), ("jobs", 4), ("jobs.2", 1)] {
        let interest = [Interest::Records(Prefix::new(prefix)?)];
        assert_shown(&w, &interest, count, |change| {
            key_of(change).starts_with(prefix)
        })
        .await?;
    }
    let any = [Interest::Records(Prefix::any())];
    assert_shown(&w, &any, 5, |change| !key_of(change).is_empty()).await
}

async fn an_interest_in_tasks_shows_those_that_meet_every_condition(w: World) -> Result<()> {
    let ids = mixed(&w).await?;
    let shown = async |interest: Interest, count, wanted: &(dyn Fn(&TaskChange) -> bool + Sync)| {
        let interests = [interest];
        assert_shown(&w, &interests, count, |change| {
            task_of(change).is_some_and(wanted)
        })
        .await
    };
    let (queue, kind) = (Some(name("queue")?), Some(name("kind")?));
    let group = Some(GroupId::new("run.1")?);
    let interest = |queue, kind, id, group, terminal| Interest::Tasks {
        queue,
        kind,
        id,
        group,
        terminal,
    };
    let any = interest(None, None, None, None, false);
    shown(any, 6, &|_| true).await?;
    let of_queue = interest(queue.clone(), None, None, None, false);
    shown(of_queue, 4, &|task| task.lane.queue.as_str() == "queue").await?;
    let of_kind = interest(None, kind.clone(), None, None, false);
    shown(of_kind, 5, &|task| task.lane.kind.as_str() == "kind").await?;
    let of_lane = interest(queue, kind, None, None, false);
    shown(of_lane, 3, &|task| task.lane == lane()).await?;
    let of_id = interest(None, None, Some(ids[2]), None, false);
    shown(of_id, 2, &|task| task.id == ids[2]).await?;
    let of_group = interest(None, None, None, group.clone(), false);
    shown(of_group, 3, &|task| task.group == group).await?;
    let ended = interest(None, None, None, None, true);
    shown(ended, 2, &|task| task.status.is_terminal()).await?;
    let end_of_far = interest(None, None, Some(ids[2]), None, true);
    shown(end_of_far, 1, &|task| {
        task.id == ids[2] && task.event == TaskEvent::Cancelled
    })
    .await?;
    let nothing = interest(None, None, Some(ids[2]), group, false);
    shown(nothing, 0, &|_| false).await
}

async fn interests_add_up_and_groups_are_shown_by_prefix(w: World) -> Result<()> {
    let ids = mixed(&w).await?;
    for (prefix, count) in [("run", 1), ("", 2), ("un", 0)] {
        let interest = [Interest::Groups(Prefix::new(prefix)?)];
        assert_shown(
            &w,
            &interest,
            count,
            |change| matches!(change, Change::Group { id, .. } if id.as_str().starts_with(prefix)),
        )
        .await?;
    }
    let interests = [
        Interest::Records(Prefix::new("locks.")?),
        Interest::Groups(Prefix::new("walk")?),
        Interest::Tasks {
            queue: None,
            kind: None,
            id: Some(ids[1]),
            group: None,
            terminal: false,
        },
        Interest::Records(Prefix::new("lock")?),
    ];
    assert_shown(&w, &interests, 3, |change| {
        key_of(change) == "locks.1"
            || task_of(change).is_some_and(|task| task.id == ids[1])
            || matches!(change, Change::Group { id, .. } if id.as_str() == "walk.1")
    })
    .await
}

async fn a_reader_moves_past_entries_that_it_is_not_shown(w: World) -> Result<()> {
    for n in 0..10 {
        w.put(&format!("noise.{n}"), [("value", "1")]).await?;
    }
    let wanted = [Interest::Records(Prefix::new("signal")?)];
    let mut start = Start::Oldest;
    let mut pages = 0;
    loop {
        let page = page(&w, start, &wanted, 1).await?;
        assert_eq!(page.entries, []);
        start = Start::After(page.next);
        pages += 1;
        if !page.more {
            break;
        }
        assert!(pages < 20, "the reader does not come to the end");
    }
    let newest = newest(&w).await?;
    assert_eq!(start, Start::After(newest));
    w.put("signal", [("value", "1")]).await?;
    let page = page(&w, start, &wanted, 1).await?;
    let signal = current(&w, "signal").await?;
    assert_eq!(page.entries.len(), 1);
    assert_eq!(page.entries[0].changes, [Change::Put(signal)]);
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
    for change in since(&w, from).await? {
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
