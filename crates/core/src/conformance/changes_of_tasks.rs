//! What the history tells about tasks: one change for each step, and none for what changes nothing.

use crate::change::{Change, TaskEvent};
use crate::conformance::changes::{SHORT, appended_by, newest, of_task};
use crate::conformance::observe::changes_since;
use crate::conformance::world::{LEASE, World, complete, fail, fail_with, holder};
use crate::conformance::writes::{cancel, expire, open, retry, settle, submit};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::TaskId;
use crate::names::{GroupId, IdempotencyKey, Key};
use crate::store::{Amend, Ending, FailRetry, Start, StoreExt, Write};
use crate::task::{KeyLifetime, NewTask, OnConflict, Priority, Progress, Task};

cases!["changes_of_tasks":
    the_way_to_success_appends_one_change_for_each_step,
    each_way_to_end_an_attempt_appends_its_own_change,
    cancelling_appends_the_request_and_the_end,
    an_attempt_that_ran_out_appends_its_expiry,
    retry_amend_prioritise_and_delete_append_their_changes,
    what_changes_nothing_appends_nothing,
    a_replacement_appends_the_request_the_submit_and_the_unblocking,
    a_failure_for_good_appends_the_task_it_submits,
    a_claim_of_many_appends_one_change_for_each_task,
];

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
    assert_eq!(changes_since(&w, Start::After(before)).await?, [claim]);
    let settle = settle(&holder(&claimed[0]), complete());
    let changes = appended_by(&w, settle).await?;
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
        let changes = appended_by(&w, settle(&holder, how)).await?;
        assert_eq!(changes, [of_task(&w, task.id(), event).await?]);
    }
    Ok(())
}

async fn cancelling_appends_the_request_and_the_end(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?.id();
    let changes = appended_by(&w, cancel(pending, "enough")).await?;
    assert_eq!(changes, [of_task(&w, pending, TaskEvent::Cancelled).await?]);
    for how in [fail("late"), Ending::Release { reason: None }] {
        let (task, holder) = w.claimed(w.new_task("held")).await?;
        let changes = appended_by(&w, cancel(task.id(), "enough")).await?;
        let request = of_task(&w, task.id(), TaskEvent::CancelRequested).await?;
        assert_eq!(changes, [request]);
        let changes = appended_by(&w, settle(&holder, how)).await?;
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
        let expire = expire(task.id(), task.fence);
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
    let changes = appended_by(&w, retry(id, true)).await?;
    assert_eq!(changes, [of_task(&w, id, TaskEvent::Retried).await?]);
    w.store.cancel(id, None).await?;
    let changes = appended_by(&w, retry(id, true)).await?;
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
        cancel(held.id(), "enough"),
        cancel(done, "enough"),
        retry(id, true),
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
    let changes = appended_by(&w, settle(&holder, how)).await?;
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
    let changes = appended_by(&w, settle(&holder, how)).await?;
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
    let mut changes = changes_since(&w, Start::After(before)).await?;
    changes.sort_by_key(by_id);
    assert_eq!(changes, expected);
    let before = newest(&w).await?;
    let ids: Vec<TaskId> = claimed.iter().map(Task::id).collect();
    let worker = holder(&claimed[0]).worker;
    assert_eq!(w.claim_ids(&worker, &ids).await?.tasks, claimed);
    assert_eq!(newest(&w).await?, before);
    Ok(())
}
