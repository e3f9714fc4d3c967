//! Deleting tasks: only finished ones, with all that belongs to them.

use crate::change::{Change, TaskChange, TaskEvent};
use crate::conformance::cancel::{cancelling, finished};
use crate::conformance::observe::{lines, seen};
use crate::conformance::world::{LEASE, World, complete, conflict, holder, lane};
use crate::conformance::writes::{cancel, log};
use crate::error::{Conflict, NotFound, Result};
use crate::log::{Level, NewLine};
use crate::names::IdempotencyKey;
use crate::store::{Commit, Counts, List, Outcome, Selector, StoreExt, SubmitOutcome, Write};
use crate::task::{NewTask, Status};

cases!["deleting":
    only_a_finished_task_can_be_deleted,
    a_deleted_task_goes_with_its_key_and_its_log,
    an_id_is_free_for_another_task_in_the_commit_that_deletes_the_first,
    a_task_may_end_and_be_deleted_in_one_commit,
    deleting_what_is_not_there_says_so,
];

async fn a_task_may_end_and_be_deleted_in_one_commit(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?;
    let (claimed, held) = w.claimed(w.new_task("claimed")).await?;
    let end_pending = cancel(pending.id(), "enough");
    let end_claimed = crate::conformance::writes::settle(&held, complete());
    for (task, end) in [(pending.id(), end_pending), (claimed.id(), end_claimed)] {
        let commit = Commit::of(end).write(Write::DeleteTask(task));
        w.store.commit_one(commit).await?;
        assert_eq!(w.store.task(task).await?, None);
        // The id is free, and nothing of the old task is in the way.
        let again = NewTask::new(task, lane(), "again");
        let again = w.store.submit(again).await?;
        assert_eq!(again.outcome, SubmitOutcome::Created);
        w.store.cancel(task, None).await?;
        w.store.write(Write::DeleteTask(task)).await?;
    }
    assert_eq!(w.claim(&w.worker("worker")?, 10).await?, []);
    assert_eq!(w.store.counts(Counts::default()).await?, []);
    Ok(())
}

async fn an_id_is_free_for_another_task_in_the_commit_that_deletes_the_first(
    w: World,
) -> Result<()> {
    let elsewhere = crate::task::Lane::new("queue", "other kind")?;
    for (lane, in_one_commit) in [
        (lane(), true),
        (elsewhere.clone(), true),
        (lane(), false),
        (elsewhere, false),
    ] {
        let (old, held) = w.claimed(w.new_task("old")).await?;
        let line = NewLine::new(w.ids.line(), Level::Info, "of the old one");
        w.store.write(log(&held, &[line])).await?;
        w.store.settle(held, complete()).await?;
        let new = NewTask {
            lane: lane.clone(),
            payload: "new".into(),
            ..NewTask::new(old.id(), lane, "")
        };
        let delete = Write::DeleteTask(old.id());
        let submit = Write::Submit(Box::new(new.clone()));
        let commits = match in_one_commit {
            true => vec![Commit::of(delete).write(submit)],
            false => vec![Commit::of(delete), Commit::of(submit)],
        };
        for receipt in w.store.commit(commits).await {
            receipt?;
        }
        let found = w.task(old.id()).await?;
        assert_eq!(
            (&found.spec.payload, &found.spec.lane),
            (&new.payload, &new.lane)
        );
        assert_eq!(found.status, Status::Pending);
        assert_eq!(lines(&w, old.id()).await?, []);
        let counted = w.store.counts(Counts::default()).await?;
        let counted: u64 = counted
            .iter()
            .flat_map(|lane| lane.by_status.values())
            .sum();
        assert_eq!(counted, 1);
        w.store.cancel(old.id(), None).await?;
        w.store.write(Write::DeleteTask(old.id())).await?;
        assert_eq!(w.store.counts(Counts::default()).await?, []);
    }
    Ok(())
}

async fn only_a_finished_task_can_be_deleted(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?;
    let delayed = w.submit(w.new_task("delayed").after(LEASE)).await?;
    let (claimed, _) = w.claimed(w.new_task("claimed")).await?;
    let (asked, _) = cancelling(&w, w.new_task("asked to stop"), "enough").await?;
    for before in [pending, delayed, claimed, asked] {
        let (task, status) = (before.id(), before.status);
        let answer = w.store.write(Write::DeleteTask(task)).await;
        assert_eq!(conflict(answer), Conflict::NotFinished { task, status });
        assert_eq!(w.task(task).await?, before);
    }
    for (task, _) in finished(&w).await? {
        let outcome = w.store.write(Write::DeleteTask(task.id())).await?;
        assert_eq!(outcome, Outcome::Removed { existed: true });
        assert_eq!(w.store.task(task.id()).await?, None);
        let change = Change::Task(TaskChange::new(&task, TaskEvent::Deleted));
        let history = w.history().await?.entries;
        let changes = history.iter().flat_map(|entry| &entry.changes);
        assert_eq!(changes.filter(|one| **one == change).count(), 1);
    }
    Ok(())
}

async fn a_deleted_task_goes_with_its_key_and_its_log(w: World) -> Result<()> {
    let key = IdempotencyKey::new("key")?;
    let (task, held) = w.claimed(w.new_task("work").key(key.clone())).await?;
    let line = NewLine::new(w.ids.line(), Level::Info, "started");
    let said = [line.clone()];
    w.store.write(log(&held, &said)).await?;
    w.store.settle(held, complete()).await?;
    w.store.write(Write::DeleteTask(task.id())).await?;
    assert_eq!(w.by_key("key").await?, None);
    assert_eq!(lines(&w, task.id()).await?, []);
    let list = List::new(Selector::Lane(lane(), Status::Completed), 10);
    assert_eq!(w.store.list(list).await?.rows, []);
    assert_eq!(w.store.counts(Counts::default()).await?, []);

    let successor = w.store.submit(w.new_task("other").key(key)).await?;
    assert_eq!(successor.outcome, SubmitOutcome::Created);
    // The id is free again, too, and what the old log held does not keep new lines out.
    let same_id = NewTask {
        id: task.id(),
        ..w.new_task("again")
    };
    let again = w.submit(same_id).await?;
    assert!(again.revision > task.revision);
    assert_eq!((again.attempts, again.status), (0, Status::Pending));
    let claimed = w.claim_ids(&w.worker("next")?, &[task.id()]).await?;
    let next = holder(&claimed.tasks[0]);
    w.store.write(log(&next, &said)).await?;
    let lines = lines(&w, task.id()).await?;
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0].line, line);
    Ok(())
}

async fn deleting_what_is_not_there_says_so(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    w.store.settle(held, complete()).await?;
    w.store.write(Write::DeleteTask(task.id())).await?;
    let before = seen(&w, &[task.id()]).await?;
    for id in [task.id(), w.ids.task()] {
        let delete = Commit::of(Write::DeleteTask(id));
        let receipt = w.store.commit_one(delete).await?;
        assert_eq!(receipt.outcomes, [Outcome::Removed { existed: false }]);
        assert_eq!(receipt.position, None);
    }
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    let answer = w.store.write(cancel(task.id(), "late")).await;
    assert_eq!(answer, Err(NotFound::Task(task.id()).into()));
    Ok(())
}
