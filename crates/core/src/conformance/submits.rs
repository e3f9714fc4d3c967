//! Submitting: what is kept of a task, when it becomes runnable, and what submitting it again does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::change::{Change, TaskEvent};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, holder, invalid, lane, name, steady_retry,
};
use crate::error::{Conflict, Error, NotFound, Result};
use crate::group::NewGroup;
use crate::ids::{Fence, Fingerprint, Revision, TaskId};
use crate::names::{GroupId, IdempotencyKey};
use crate::store::{
    Commit, Counts, Ending, LaneCounts, List, Outcome, Peek, Retry, Selector, Start, StoreExt,
    SubmitOutcome, Submitted, Write,
};
use crate::task::{
    Backoff, Due, KeyLifetime, Lane, NewTask, OnConflict, Priority, RetryPolicy, Status, Task,
    TaskSpec, TaskState,
};
use crate::time::Timestamp;

cases!["submits":
    every_field_is_kept_and_answered_as_it_was_given,
    what_is_left_out_is_kept_at_its_default,
    a_payload_of_any_bytes_is_kept_with_its_fingerprint,
    a_delayed_task_is_scheduled_until_the_very_moment_it_is_due,
    a_task_due_in_the_past_is_pending_at_once,
    a_task_due_after_the_year_9999_is_refused,
    the_same_id_again_is_the_same_submission_whatever_became_of_it,
    an_id_that_another_task_has_is_refused,
    an_id_can_be_submitted_again_once_its_task_is_deleted,
    each_item_of_a_bulk_submit_has_its_own_outcome,
    the_tasks_of_one_commit_are_submitted_together_or_not_at_all,
    a_submit_into_a_group_that_is_not_there_writes_nothing,
    a_failure_task_is_submitted_once_and_only_when_the_task_has_failed_for_good,
    a_failure_task_is_submitted_when_the_last_lease_runs_out,
    each_redrive_that_fails_submits_a_failure_task_of_its_own,
    a_task_that_completes_or_is_cancelled_submits_no_failure_task,
    a_failure_task_leaves_a_task_alone_that_has_its_id,
    the_same_id_in_another_namespace_is_another_task,
];

/// The task that a store must keep of a submit at this moment, runnable at once.
fn as_submitted(new: &NewTask, now: Timestamp, revision: Revision) -> Task {
    let spec = TaskSpec {
        id: new.id,
        lane: new.lane.clone(),
        payload: new.payload.clone(),
        fingerprint: Fingerprint::of(&new.payload),
        key: new.key.as_ref().map(|key| (key.key.clone(), key.lifetime)),
        group: new.group.clone(),
        group_born: None,
        owner: new.owner.clone(),
        labels: new.labels.clone(),
        retry: new.retry.clone(),
        attempt_timeout: new.attempt_timeout,
        first_stage: new.first_stage.clone(),
        on_failure: new.on_failure.clone(),
        trace: new.trace.clone(),
        created_at: now,
    };
    let state = TaskState {
        status: Status::Pending,
        priority: new.priority,
        fence: Fence::ZERO,
        attempts: 0,
        failures: 0,
        defeats: 0,
        redrives: 0,
        runnable_at: now,
        lease: None,
        cancel: None,
        settled: None,
        waiting: None,
        successor: None,
        stage: None,
        progress: None,
        checkpoint: None,
        attributes: BTreeMap::new(),
        errors: Vec::new(),
        result: None,
        reason: None,
        started_at: None,
        claimed_at: None,
        finished_at: None,
        modified_at: now,
        revision,
    };
    Task {
        spec: Arc::new(spec),
        state,
    }
}

/// Asserts that `after` is `before`, written just now, with this edit and no other.
pub(super) fn assert_only(w: &World, before: &Task, after: &Task, edit: impl FnOnce(&mut Task)) {
    let mut expected = before.clone();
    expected.modified_at = w.now();
    expected.revision = after.revision;
    edit(&mut expected);
    assert_eq!(*after, expected);
    assert!(after.revision > before.revision, "the revision must grow");
}

/// Where the history ends now.
pub(super) async fn here(w: &World) -> Result<Start> {
    Ok(Start::After(w.history_from(Start::Newest).await?.next))
}

/// What happened to tasks since; nothing else may have happened.
pub(super) async fn events(w: &World, since: Start) -> Result<Vec<(TaskId, TaskEvent)>> {
    let entries = w.history_from(since).await?.entries;
    let changes = entries.into_iter().flat_map(|entry| entry.changes);
    Ok(changes
        .map(|change| match change {
            Change::Task(task) => (task.id, task.event),
            other => panic!("expected changes of tasks only, got {other:?}"),
        })
        .collect())
}

pub(super) fn created(id: TaskId) -> Submitted {
    Submitted {
        id,
        outcome: SubmitOutcome::Created,
    }
}

/// Claims a task that is due.
pub(super) async fn claim(w: &World, id: TaskId) -> Result<Task> {
    w.sweep().await?;
    let claimed = w.claim_ids(&w.worker("worker")?, &[id]).await?;
    assert_eq!(claimed.refused, vec![]);
    Ok(claimed.tasks[0].clone())
}

/// Claims a task that is due, and ends the attempt.
pub(super) async fn attempt(w: &World, id: TaskId, how: Ending) -> Result<Outcome> {
    let claimed = claim(w, id).await?;
    w.store.settle(holder(&claimed), how).await
}

/// Retries a task now.
pub(super) async fn retry(w: &World, task: TaskId, force: bool) -> Result<Outcome> {
    let delay = Duration::ZERO;
    w.write_with_id(Write::Retry(Retry { task, force, delay }))
        .await
}

async fn every_field_is_kept_and_answered_as_it_was_given(w: World) -> Result<()> {
    let group = GroupId::new("a group")?;
    let open = NewGroup::new(group.clone());
    w.store.write(Write::OpenGroup(Box::new(open))).await?;
    let last = NewTask::new(w.ids.task(), Lane::new("last", "resort")?, "page somebody");
    let failure = NewTask {
        due: Due::At(w.now().saturating_plus(Duration::from_secs(3_600))),
        on_failure: Some(Box::new(last.after(Duration::from_millis(1)))),
        labels: BTreeMap::from([(name("of")?, name("failure")?)]),
        ..NewTask::new(w.ids.task(), Lane::new("alarm", "mail")?, "it failed")
    };
    let key = IdempotencyKey::new("a key")?;
    let lifetime = KeyLifetime::For(Duration::from_millis(86_400_001));
    let new = NewTask {
        priority: Priority::HIGHEST,
        group: Some(group.clone()),
        owner: Some(name("an owner: 'é' 漢字")?),
        labels: BTreeMap::from([
            (name("region")?, name("north")?),
            (name("a.b:c*")?, name("\"{}\" -- %")?),
        ]),
        retry: RetryPolicy {
            max_attempts: u32::MAX,
            backoff: Backoff::Exponential {
                first: Duration::from_millis(1),
                factor: 1.1,
                cap: Duration::from_millis(86_400_007),
            },
            jitter_percent: 100,
            total: Some(Duration::from_millis(604_800_001)),
        },
        attempt_timeout: Some(Duration::from_millis(1_234_567)),
        first_stage: Some(name("validating")?),
        on_failure: Some(Box::new(failure)),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        ..w.new_task("the payload")
    }
    .key_with(key, lifetime, OnConflict::Reject);
    let start = here(&w).await?;
    assert_eq!(w.store.submit(new.clone()).await?, created(new.id));
    let task = w.task(new.id).await?;
    let mut expected = as_submitted(&new, w.now(), task.revision);
    let born = w.group("a group").await?.born;
    Arc::make_mut(&mut expected.spec).group_born = Some(born);
    assert_eq!(task, expected);
    assert_eq!(events(&w, start).await?, [(new.id, TaskEvent::Submitted)]);

    assert_eq!(w.by_key("a key").await?.as_ref(), Some(&task));
    let lanes = vec![lane()];
    let peeked = w.store.peek(Peek { lanes, limit: 2 }).await?;
    assert_eq!(peeked, std::slice::from_ref(&task));
    for selector in [
        Selector::Lane(lane(), Status::Pending),
        Selector::Group(group),
        Selector::Owner(name("an owner: 'é' 漢字")?),
    ] {
        let listed = w.store.list(List::new(selector, 2)).await?;
        assert_eq!(listed.rows, std::slice::from_ref(&task));
    }
    let claimed = w.claim(&w.worker("worker")?, 2).await?;
    assert_eq!(claimed.len(), 1);
    assert_eq!(claimed[0].spec, task.spec);
    assert_eq!(claimed[0].priority, Priority::HIGHEST);
    Ok(())
}

async fn what_is_left_out_is_kept_at_its_default(w: World) -> Result<()> {
    let new = NewTask::new(w.ids.task(), lane(), "work");
    let task = w.submit(new.clone()).await?;
    assert_eq!(task, as_submitted(&new, w.now(), task.revision));
    assert_eq!(task.priority.get(), 5);
    let policy = RetryPolicy {
        max_attempts: 4,
        backoff: Backoff::Exponential {
            first: Duration::from_secs(10),
            factor: 2.0,
            cap: Duration::from_secs(300),
        },
        jitter_percent: 20,
        total: None,
    };
    assert_eq!(task.spec.retry, policy);
    let lowest = w.new_task("later").priority(Priority::LOWEST);
    assert_eq!(w.submit(lowest).await?.priority, Priority::LOWEST);
    let fixed = w.new_task("fixed").retry(steady_retry(0));
    assert_eq!(w.submit(fixed).await?.spec.retry, steady_retry(0));
    let keyed = w.new_task("keyed").key(IdempotencyKey::new("key")?);
    let key = w.submit(keyed).await?.spec.key.clone();
    assert_eq!(
        key,
        Some((IdempotencyKey::new("key")?, KeyLifetime::Forever))
    );
    Ok(())
}

async fn a_payload_of_any_bytes_is_kept_with_its_fingerprint(w: World) -> Result<()> {
    let every_byte: Vec<u8> = (0..=u8::MAX).cycle().take(256 * 1024).collect();
    for payload in [
        Bytes::new(),
        Bytes::from_static(b"\0"),
        Bytes::from_static(b"\xff\xfe not text \0\r\n"),
        Bytes::from_static(b"null"),
        Bytes::from(every_byte),
    ] {
        let task = w.submit(w.new_task(payload.clone())).await?;
        assert_eq!(task.spec.payload, payload);
        assert_eq!(task.spec.fingerprint, Fingerprint::of(&payload));
        let claimed = w.claim_ids(&w.worker("worker")?, &[task.id()]).await?;
        assert_eq!(claimed.tasks[0].spec, task.spec);
    }
    // The first half of the SHA-256 of nothing, as anybody can compute it.
    let empty = w.submit(w.new_task("")).await?.spec.fingerprint;
    assert_eq!(empty.as_u128(), 0xe3b0_c442_98fc_1c14_9afb_f4c8_996f_b924);
    Ok(())
}

async fn a_delayed_task_is_scheduled_until_the_very_moment_it_is_due(w: World) -> Result<()> {
    let due_at = w.now().saturating_plus(Duration::from_secs(60));
    let after = w.new_task("after").after(Duration::from_secs(60));
    let at = NewTask {
        due: Due::At(due_at),
        ..w.new_task("at")
    };
    let ids = [after.id, at.id];
    for new in [after, at] {
        let task = w.submit(new.clone()).await?;
        let mut expected = as_submitted(&new, w.now(), task.revision);
        expected.status = Status::Scheduled;
        expected.runnable_at = due_at;
        assert_eq!(task, expected);
    }
    let worker = w.worker("worker")?;
    w.advance(Duration::from_millis(59_999));
    assert_eq!(w.sweep().await?.promoted, 0);
    let refused = w.claim_ids(&worker, &ids).await?;
    assert_eq!(refused.tasks, vec![]);
    let not_due = |task| (task, Error::from(Conflict::NotDue { task, due_at }));
    assert_eq!(refused.refused, ids.map(not_due));
    w.advance(Duration::from_millis(1));
    let before = w.task(ids[0]).await?;
    assert_eq!(w.sweep().await?.promoted, 2);
    let after = w.task(ids[0]).await?;
    assert_only(&w, &before, &after, |task| task.status = Status::Pending);
    assert_eq!(w.claim(&worker, 3).await?.len(), 2);
    Ok(())
}

async fn a_task_due_in_the_past_is_pending_at_once(w: World) -> Result<()> {
    let past = w.now().saturating_minus(Duration::from_secs(60));
    for due in [
        Due::At(past),
        Due::At(Timestamp::MIN),
        Due::At(w.now()),
        Due::After(Duration::ZERO),
    ] {
        let new = NewTask {
            due,
            ..w.new_task("work")
        };
        let task = w.submit(new.clone()).await?;
        // Its place in the line is that of a task submitted now.
        assert_eq!(task, as_submitted(&new, w.now(), task.revision));
    }
    assert_eq!(w.claim(&w.worker("worker")?, 5).await?.len(), 4);
    Ok(())
}

async fn a_task_due_after_the_year_9999_is_refused(w: World) -> Result<()> {
    (w.clock).jump_to(Timestamp::MAX.saturating_minus(Duration::from_secs(60)));
    let start = here(&w).await?;
    let key = IdempotencyKey::new("key")?;
    let good = w.new_task("good").after(Duration::from_secs(60));
    let late = w.new_task("late").after(Duration::from_millis(60_001));
    let late = late.key(key.clone());
    let commit = Commit::of(Write::Submit(Box::new(good.clone())))
        .write(Write::Submit(Box::new(late.clone())));
    let field = invalid(w.store.commit_one(commit).await).field;
    assert!(field.ends_with("due"), "{field} is not the field");
    assert_eq!(w.store.task(good.id).await?, None);
    assert_eq!(w.store.task(late.id).await?, None);
    assert_eq!(w.by_key("key").await?, None);
    assert_eq!(events(&w, start).await?, vec![]);
    assert_eq!(w.submit(good).await?.runnable_at, Timestamp::MAX);
    Ok(())
}

async fn the_same_id_again_is_the_same_submission_whatever_became_of_it(w: World) -> Result<()> {
    let group = NewGroup::new(GroupId::new("group")?);
    w.store.write(Write::OpenGroup(Box::new(group))).await?;
    let new = w.new_task("work").group(GroupId::new("group")?).key_with(
        IdempotencyKey::new("key")?,
        KeyLifetime::WhileActive,
        OnConflict::Reject,
    );
    // What the task is made of tells submissions apart, not how it is to be run.
    let again = NewTask {
        priority: Priority::HIGHEST,
        due: Due::After(Duration::from_secs(60)),
        owner: Some(name("somebody")?),
        ..new.clone()
    };
    w.submit(new.clone()).await?;
    for step in ["submitted", "claimed", "completed", "its key given away"] {
        match step {
            "claimed" => assert_eq!(w.claim(&w.worker("worker")?, 1).await?.len(), 1),
            "completed" => {
                let held = holder(&w.task(new.id).await?);
                w.store.settle(held, complete()).await?;
            }
            "its key given away" => {
                let id = w.ids.task();
                let other = NewTask { id, ..new.clone() };
                assert_eq!(w.store.submit(other).await?, created(id));
            }
            _ => {}
        }
        let before = w.task(new.id).await?;
        let group = w.group("group").await?;
        let start = here(&w).await?;
        w.advance(Duration::from_secs(1));
        for same in [&new, &again] {
            assert_eq!(w.store.submit(same.clone()).await?, created(new.id));
        }
        assert_eq!(w.task(new.id).await?, before, "{step}");
        assert_eq!(w.group("group").await?, group);
        assert_eq!(events(&w, start).await?, vec![]);
    }
    Ok(())
}

async fn an_id_that_another_task_has_is_refused(w: World) -> Result<()> {
    let key = |text: &str| IdempotencyKey::new(text);
    let new = w.new_task("work").key(key("key")?);
    let plain = w.new_task("work");
    let before = w.submit(new.clone()).await?;
    w.submit(plain.clone()).await?;
    let start = here(&w).await?;
    let payload = NewTask {
        payload: "other".into(),
        ..new.clone()
    };
    let queue = NewTask {
        lane: Lane::new("other", "kind")?,
        ..new.clone()
    };
    let kind = NewTask {
        lane: Lane::new("queue", "other")?,
        ..new.clone()
    };
    let no_key = NewTask {
        key: None,
        ..new.clone()
    };
    let other_key = new.clone().key(key("other key")?);
    let with_key = plain.clone().key(key("new key")?);
    for taken in [payload, queue, kind, no_key, other_key, with_key] {
        let task = taken.id;
        let answer = conflict(w.store.submit(taken).await);
        assert_eq!(answer, Conflict::IdTaken { task });
    }
    assert_eq!(w.task(new.id).await?, before);
    assert_eq!(w.by_key("key").await?, Some(before));
    assert_eq!(w.by_key("other key").await?, None);
    assert_eq!(w.by_key("new key").await?, None);
    assert_eq!(events(&w, start).await?, vec![]);
    Ok(())
}

async fn an_id_can_be_submitted_again_once_its_task_is_deleted(w: World) -> Result<()> {
    let new = w.new_task("work");
    w.submit(new.clone()).await?;
    attempt(&w, new.id, complete()).await?;
    let ended = w.task(new.id).await?.revision;
    w.store.write(Write::DeleteTask(new.id)).await?;
    assert_eq!(w.store.task(new.id).await?, None);
    let other = NewTask {
        payload: "other work".into(),
        ..new
    };
    let again = w.submit(other.clone()).await?;
    assert_eq!(again, as_submitted(&other, w.now(), again.revision));
    assert!(again.revision > ended, "revisions grow over deletion");
    Ok(())
}

async fn each_item_of_a_bulk_submit_has_its_own_outcome(w: World) -> Result<()> {
    let key = |n: usize| IdempotencyKey::new(format!("key {}", n % 100));
    let taken = w.submit(w.new_task("taken")).await?.id();
    let mut commits = Vec::new();
    let mut expected = Vec::new();
    let mut first = Vec::new();
    for n in 0..300 {
        let mut new = w.new_task((n % 200).to_string());
        let id = new.id;
        let submitted = |id, outcome| Ok(Outcome::Submitted(Submitted { id, outcome }));
        expected.push(match n {
            50 => {
                new.id = taken;
                Err(Conflict::IdTaken { task: taken }.into())
            }
            60 => {
                let group = GroupId::new("nowhere")?;
                new.group = Some(group.clone());
                Err(NotFound::Group(group).into())
            }
            0..100 => {
                new = new.key(key(n)?);
                submitted(id, SubmitOutcome::Created)
            }
            // These carry the keys of the first hundred, first with other, then with the same payloads.
            100..200 if n != 150 && n != 160 => {
                new = new.key(key(n)?);
                submitted(first[n - 100], SubmitOutcome::ExistingOtherPayload)
            }
            200..300 if n != 250 && n != 260 => {
                new = new.key(key(n)?);
                submitted(first[n - 200], SubmitOutcome::Existing)
            }
            _ => submitted(id, SubmitOutcome::Created),
        });
        first.push(id);
        commits.push(Commit::of(Write::Submit(Box::new(new))));
    }
    let answers = w.store.commit(commits).await;
    let outcomes: Vec<Result<Outcome>> = (answers.into_iter())
        .map(|answer| answer.map(|receipt| receipt.outcomes[0].clone()))
        .collect();
    assert_eq!(outcomes, expected);
    let counts = LaneCounts {
        lane: lane(),
        by_status: BTreeMap::from([(Status::Pending, 1 + 98 + 4)]),
    };
    assert_eq!(w.store.counts(Counts::default()).await?, [counts]);
    Ok(())
}

async fn the_tasks_of_one_commit_are_submitted_together_or_not_at_all(w: World) -> Result<()> {
    let taken = w.new_task("taken");
    w.submit(taken.clone()).await?;
    let (one, two) = (w.new_task("one"), w.new_task("two"));
    let other = NewTask {
        payload: "other".into(),
        ..taken.clone()
    };
    let start = here(&w).await?;
    let submit = |new: &NewTask| Write::Submit(Box::new(new.clone()));
    let refused = Commit::of(submit(&one)).write(submit(&other));
    let refused = refused.write(submit(&two));
    let answer = conflict(w.store.commit_one(refused).await);
    assert_eq!(answer, Conflict::IdTaken { task: taken.id });
    assert_eq!(w.store.task(one.id).await?, None);
    assert_eq!(w.store.task(two.id).await?, None);
    assert_eq!(events(&w, start).await?, vec![]);
    let both = Commit::of(submit(&one)).write(submit(&two));
    let receipt = w.store.commit_one(both).await?;
    let submitted = [one.id, two.id].map(|id| Outcome::Submitted(created(id)));
    assert_eq!(receipt.outcomes, submitted);
    let entries = w.history_from(start).await?.entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(Some(entries[0].position), receipt.position);
    let submitted = [one.id, two.id].map(|id| (id, TaskEvent::Submitted));
    assert_eq!(events(&w, start).await?, submitted);
    Ok(())
}

async fn a_submit_into_a_group_that_is_not_there_writes_nothing(w: World) -> Result<()> {
    let group = GroupId::new("nowhere")?;
    let key = IdempotencyKey::new("key")?;
    let replace = |new: NewTask| {
        let lifetime = KeyLifetime::WhileActive;
        new.key_with(key.clone(), lifetime, OnConflict::CancelAndReplace)
    };
    let (running, held) = w.claimed(w.new_task("running").key(key.clone())).await?;
    let start = here(&w).await?;
    let new = replace(w.new_task("work").group(group.clone()));
    let answer = w.store.submit(new.clone()).await;
    assert_eq!(answer, Err(NotFound::Group(group).into()));
    assert_eq!(w.store.task(new.id).await?, None);
    assert_eq!(w.by_key("key").await?, Some(running));
    assert_eq!(events(&w, start).await?, vec![]);
    w.store.settle(held, complete()).await?;
    Ok(())
}

fn with_failure_task(w: &World, max_attempts: u32) -> (NewTask, NewTask) {
    let failure = w.new_task("it failed").after(Duration::from_secs(5));
    let new = NewTask {
        on_failure: Some(Box::new(failure.clone())),
        ..w.new_task("work").retry(steady_retry(max_attempts))
    };
    (new, failure)
}

/// The failure task as it must be when its task has failed just now.
async fn assert_fired(w: &World, failure: &NewTask, id: TaskId) -> Result<()> {
    let task = w.task(id).await?;
    let new = NewTask {
        id,
        ..failure.clone()
    };
    let mut expected = as_submitted(&new, w.now(), task.revision);
    expected.status = Status::Scheduled;
    expected.runnable_at = w.now().saturating_plus(Duration::from_secs(5));
    assert_eq!(task, expected);
    Ok(())
}

async fn a_failure_task_is_submitted_once_and_only_when_the_task_has_failed_for_good(
    w: World,
) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 2);
    w.submit(new.clone()).await?;
    attempt(&w, new.id, fail("first")).await?;
    assert_eq!(w.store.task(failure.id).await?, None);
    w.advance(RETRY_DELAY);
    let held = holder(&claim(&w, new.id).await?);
    let start = here(&w).await?;
    w.store.settle(held.clone(), fail("second")).await?;
    let both = [
        (new.id, TaskEvent::Failed),
        (failure.id, TaskEvent::Submitted),
    ];
    assert_eq!(events(&w, start).await?, both);
    assert_eq!(w.history_from(start).await?.entries.len(), 1);
    assert_fired(&w, &failure, failure.id).await?;
    w.store.settle(held, fail("second")).await?;
    assert_eq!(events(&w, start).await?, both);
    Ok(())
}

async fn a_failure_task_is_submitted_when_the_last_lease_runs_out(w: World) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 1);
    w.claimed(new.clone()).await?;
    w.advance(LEASE);
    assert_eq!(w.sweep().await?.expired, 1);
    assert_eq!(w.status(new.id).await?, Status::Failed);
    assert_fired(&w, &failure, failure.id).await
}

async fn each_redrive_that_fails_submits_a_failure_task_of_its_own(w: World) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 1);
    w.submit(new.clone()).await?;
    attempt(&w, new.id, fail("first")).await?;
    assert_fired(&w, &failure, failure.id).await?;
    let first = w.task(failure.id).await?;
    for redrive in 1..3 {
        w.advance(Duration::from_secs(1));
        let start = here(&w).await?;
        retry(&w, new.id, true).await?;
        assert_eq!(events(&w, start).await?, [(new.id, TaskEvent::Retried)]);
        let nth = failure.id.nth(redrive);
        assert_eq!(w.store.task(nth).await?, None);
        attempt(&w, new.id, fail("again")).await?;
        assert_fired(&w, &failure, nth).await?;
        assert_eq!(w.task(failure.id).await?, first);
    }
    Ok(())
}

async fn a_task_that_completes_or_is_cancelled_submits_no_failure_task(w: World) -> Result<()> {
    let cancel = |reason: &str| Ending::Cancel {
        reason: Some(reason.into()),
    };
    let mut failures = Vec::new();
    for how in 0..4 {
        let (new, failure) = with_failure_task(&w, 1);
        failures.push(failure.id);
        w.submit(new.clone()).await?;
        match how {
            0 => attempt(&w, new.id, complete()).await?,
            1 => attempt(&w, new.id, cancel("enough")).await?,
            2 => w.store.cancel(new.id, None).await?,
            _ => {
                let held = holder(&claim(&w, new.id).await?);
                w.store.cancel(new.id, None).await?;
                w.store.settle(held, fail("a failure too late")).await?
            }
        };
        assert!(w.status(new.id).await?.is_terminal());
    }
    for id in failures {
        assert_eq!(w.store.task(id).await?, None);
    }
    Ok(())
}

async fn a_failure_task_leaves_a_task_alone_that_has_its_id(w: World) -> Result<()> {
    let (new, failure) = with_failure_task(&w, 1);
    w.submit(new.clone()).await?;
    let other = NewTask {
        payload: "something else".into(),
        ..failure.clone()
    };
    let other = w.submit(other).await?;
    attempt(&w, new.id, fail("once")).await?;
    assert_eq!(w.status(new.id).await?, Status::Failed);
    assert_eq!(w.task(failure.id).await?, other);
    Ok(())
}

async fn the_same_id_in_another_namespace_is_another_task(w: World) -> Result<()> {
    let other = w.elsewhere().await?;
    let new = w.new_task("here");
    let there = NewTask {
        payload: "there".into(),
        ..new.clone()
    };
    let before = w.submit(new.clone()).await?;
    assert_eq!(other.task(new.id).await?, None);
    assert_eq!(other.submit(there).await?, created(new.id));
    other.cancel(new.id, None).await?;
    assert_eq!(w.task(new.id).await?, before);
    let task = other.task(new.id).await?;
    let task = task.ok_or(NotFound::Task(new.id))?;
    assert_eq!(task.spec.payload, "there");
    assert_eq!(task.status, Status::Cancelled);
    assert_eq!(w.claim(&w.worker("worker")?, 2).await?.len(), 1);
    Ok(())
}
