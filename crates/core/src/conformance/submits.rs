//! Submitting: what is kept of a task, and when it becomes runnable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::change::TaskEvent;
use crate::conformance::act::open_group;
use crate::conformance::observe::{assert_only, created, events_since, here};
use crate::conformance::world::{World, complete, conflict, invalid, lane, name, steady_retry};
use crate::conformance::writes::submit;
use crate::error::{Conflict, Error, NotFound, Result};
use crate::group::NewGroup;
use crate::ids::{Fence, Fingerprint, Revision};
use crate::names::{GroupId, IdempotencyKey};
use crate::store::{
    Commit, Counts, LaneCounts, List, Outcome, Peek, Selector, StoreExt, SubmitOutcome, Submitted,
    Write,
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
    each_item_of_a_bulk_submit_has_its_own_outcome,
    the_tasks_of_one_commit_are_submitted_together_or_not_at_all,
    a_submit_into_a_group_that_is_not_there_writes_nothing,
];

/// The task that a store must keep of a submit at this moment, runnable at once.
pub(super) fn as_submitted(new: &NewTask, now: Timestamp, revision: Revision) -> Task {
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
        born: revision,
        lifecycle: new.lifecycle.clone(),
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

async fn every_field_is_kept_and_answered_as_it_was_given(w: World) -> Result<()> {
    let group = GroupId::new("a group")?;
    let open = NewGroup::new(group.clone());
    open_group(&w, open).await?;
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
    assert_eq!(
        events_since(&w, start).await?,
        [(new.id, TaskEvent::Submitted)]
    );

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
    let commit = Commit::of(submit(good.clone())).write(submit(late.clone()));
    let field = invalid(w.store.commit_one(commit).await).field;
    assert!(field.ends_with("due"), "{field} is not the field");
    assert_eq!(w.store.task(good.id).await?, None);
    assert_eq!(w.store.task(late.id).await?, None);
    assert_eq!(w.by_key("key").await?, None);
    assert_eq!(events_since(&w, start).await?, vec![]);
    assert_eq!(w.submit(good).await?.runnable_at, Timestamp::MAX);
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
        commits.push(Commit::of(submit(new)));
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
    assert_eq!(events_since(&w, start).await?, vec![]);
    let both = Commit::of(submit(&one)).write(submit(&two));
    let receipt = w.store.commit_one(both).await?;
    let submitted = [one.id, two.id].map(|id| Outcome::Submitted(created(id)));
    assert_eq!(receipt.outcomes, submitted);
    let entries = w.history_from(start).await?.entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(Some(entries[0].position), receipt.position);
    let submitted = [one.id, two.id].map(|id| (id, TaskEvent::Submitted));
    assert_eq!(events_since(&w, start).await?, submitted);
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
    assert_eq!(events_since(&w, start).await?, vec![]);
    w.store.settle(held, complete()).await?;
    Ok(())
}
