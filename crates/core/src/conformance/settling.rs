//! Settling: how holders end attempts, and what each way to end one leaves.

use std::time::Duration;

use bytes::Bytes;

use crate::change::TaskEvent;
use crate::conformance::observe::{attempt_error, events_of, seen, settled};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, fail, fail_with, holder, lost, name,
};
use crate::conformance::writes::settle;
use crate::error::{Lost, Result};
use crate::store::{Commit, Ending, FailRetry, StoreExt};
use crate::task::{AttemptError, FailureKind, Holder, NewTask, Settled, Status, Task, Verb};
use crate::time::Timestamp;

cases!["settling":
    completing_keeps_the_result_and_ends_the_task,
    no_result_and_an_empty_result_are_different,
    failing_keeps_the_error_and_waits_for_the_retry,
    failing_for_good_ends_the_task_with_its_error_as_the_reason,
    a_snooze_puts_the_task_off_and_counts_nothing,
    a_snooze_of_no_time_is_runnable_at_once_in_a_new_place,
    a_release_gives_the_task_back_in_its_old_place_and_counts_nothing,
    a_release_with_a_reason_keeps_it_and_counts_nothing,
    a_holder_may_call_its_task_off,
    a_repeated_settle_answers_the_first_result,
    a_repeated_settle_answers_the_first_result_after_another_claim,
    another_verb_with_a_used_fence_is_refused,
];

pub(super) fn release(reason: Option<&str>) -> Ending {
    let reason = reason.map(str::to_owned);
    Ending::Release { reason }
}

pub(super) fn snooze(delay: Duration) -> Ending {
    Ending::Snooze { delay }
}

/// One ending for each verb.
pub(super) fn endings() -> [Ending; 5] {
    [
        complete(),
        fail("broken"),
        snooze(Duration::from_secs(5)),
        release(Some("shutdown")),
        Ending::Cancel {
            reason: Some("pointless".to_owned()),
        },
    ]
}

/// A task in its first stage, claimed for a second already.
pub(super) async fn running(w: &World) -> Result<(Task, Holder)> {
    let task = NewTask {
        first_stage: Some(name("running")?),
        ..w.new_task("work")
    };
    let claimed = w.claimed(task).await?;
    w.advance(Duration::from_secs(1));
    Ok(claimed)
}

/// The task as a settle leaves it that changes nothing but what every settle changes.
fn left(w: &World, task: &Task, verb: Verb, status: Status, at: Option<Timestamp>) -> Task {
    let mut task = task.clone();
    task.settled = task.holder().map(|holder| Settled {
        fence: holder.fence,
        by: holder.worker.incarnation,
        verb,
        status,
        runnable_at: at,
        worker: Some(holder.worker.name),
    });
    task.status = status;
    task.lease = None;
    task.stage = None;
    task.runnable_at = at.unwrap_or(task.runnable_at);
    task.finished_at = status.is_terminal().then(|| w.now());
    task.modified_at = w.now();
    task
}

/// What is kept of an attempt: that it ended just now, in the stage of its task.
fn error_of(
    w: &World,
    task: &Task,
    held: &Holder,
    kind: FailureKind,
    message: &str,
) -> AttemptError {
    AttemptError {
        stage: task.stage.clone(),
        ..attempt_error(w, held, kind, message)
    }
}

/// The stored task equals `expected`, at a later revision, and this event is its last.
async fn assert_left(w: &World, mut expected: Task, event: TaskEvent) -> Result<()> {
    let after = w.task(expected.id()).await?;
    assert!(after.revision > expected.revision);
    expected.revision = after.revision;
    let events = events_of(w, after.id()).await?;
    assert_eq!(after, expected);
    assert_eq!(
        events,
        [
            (TaskEvent::Submitted, Status::Pending),
            (TaskEvent::Claimed, Status::Claimed),
            (event, expected.status)
        ]
    );
    Ok(())
}

async fn completing_keeps_the_result_and_ends_the_task(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let result = Some(Bytes::from_static(b"42 \0 \xff"));
    let how = Ending::Complete {
        result: result.clone(),
    };
    let outcome = w.store.settle(held, how).await?;
    assert_eq!(outcome, settled(Status::Completed, None));
    let mut expected = left(&w, &task, Verb::Complete, Status::Completed, None);
    expected.result = result;
    assert_left(&w, expected, TaskEvent::Completed).await
}

async fn no_result_and_an_empty_result_are_different(w: World) -> Result<()> {
    for result in [None, Some(Bytes::new())] {
        let (task, held) = running(&w).await?;
        let how = Ending::Complete {
            result: result.clone(),
        };
        w.store.settle(held, how).await?;
        assert_eq!(w.task(task.id()).await?.result, result);
    }
    Ok(())
}

async fn failing_keeps_the_error_and_waits_for_the_retry(w: World) -> Result<()> {
    for (retry, delay) in [
        (FailRetry::Policy, RETRY_DELAY),
        (FailRetry::After(LEASE), LEASE),
    ] {
        let (task, held) = running(&w).await?;
        let at = w.now().saturating_plus(delay);
        let how = fail_with("broken", retry);
        let outcome = w.store.settle(held.clone(), how).await?;
        assert_eq!(outcome, settled(Status::Scheduled, Some(at)));
        let mut expected = left(&w, &task, Verb::Fail, Status::Scheduled, Some(at));
        expected.failures = 1;
        expected.errors = vec![error_of(&w, &task, &held, FailureKind::Error, "broken")];
        assert_left(&w, expected, TaskEvent::Failed).await?;
    }
    Ok(())
}

async fn failing_for_good_ends_the_task_with_its_error_as_the_reason(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let how = fail_with("broken", FailRetry::Fatal);
    let outcome = w.store.settle(held.clone(), how).await?;
    assert_eq!(outcome, settled(Status::Failed, None));
    let mut expected = left(&w, &task, Verb::Fail, Status::Failed, None);
    expected.failures = 1;
    expected.defeats = 1;
    expected.errors = vec![error_of(&w, &task, &held, FailureKind::Fatal, "broken")];
    expected.reason = Some("broken".to_owned());
    assert_left(&w, expected, TaskEvent::Failed).await
}

async fn a_snooze_puts_the_task_off_and_counts_nothing(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let at = w.now().saturating_plus(LEASE);
    let outcome = w.store.settle(held, snooze(LEASE)).await?;
    assert_eq!(outcome, settled(Status::Scheduled, Some(at)));
    let expected = left(&w, &task, Verb::Snooze, Status::Scheduled, Some(at));
    assert_left(&w, expected, TaskEvent::Snoozed).await
}

async fn a_snooze_of_no_time_is_runnable_at_once_in_a_new_place(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let now = w.now();
    let outcome = w.store.settle(held, snooze(Duration::ZERO)).await?;
    assert_eq!(outcome, settled(Status::Pending, Some(now)));
    let expected = left(&w, &task, Verb::Snooze, Status::Pending, Some(now));
    assert_left(&w, expected, TaskEvent::Snoozed).await?;
    assert_eq!(w.claim(&w.worker("next")?, 1).await?[0].id(), task.id());
    Ok(())
}

async fn a_release_gives_the_task_back_in_its_old_place_and_counts_nothing(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let at = Some(task.runnable_at);
    let outcome = w.store.settle(held, release(None)).await?;
    assert_eq!(outcome, settled(Status::Pending, at));
    let expected = left(&w, &task, Verb::Release, Status::Pending, at);
    assert_left(&w, expected, TaskEvent::Released).await?;
    assert_eq!(w.claim(&w.worker("next")?, 1).await?[0].id(), task.id());
    Ok(())
}

async fn a_release_with_a_reason_keeps_it_and_counts_nothing(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let at = Some(task.runnable_at);
    let outcome = w
        .store
        .settle(held.clone(), release(Some("shutdown")))
        .await?;
    assert_eq!(outcome, settled(Status::Pending, at));
    let error = error_of(&w, &task, &held, FailureKind::Interrupted, "shutdown");
    let mut expected = left(&w, &task, Verb::Release, Status::Pending, at);
    expected.failures = 0;
    expected.errors = vec![error];
    assert_left(&w, expected, TaskEvent::Released).await
}

async fn a_holder_may_call_its_task_off(w: World) -> Result<()> {
    for reason in [None, Some("pointless".to_owned())] {
        let (task, held) = running(&w).await?;
        let how = Ending::Cancel {
            reason: reason.clone(),
        };
        let outcome = w.store.settle(held, how).await?;
        assert_eq!(outcome, settled(Status::Cancelled, None));
        let mut expected = left(&w, &task, Verb::Cancel, Status::Cancelled, None);
        expected.reason = reason;
        assert_left(&w, expected, TaskEvent::Cancelled).await?;
    }
    Ok(())
}

async fn a_repeated_settle_answers_the_first_result(w: World) -> Result<()> {
    for how in endings() {
        let (task, held) = running(&w).await?;
        let commit = Commit::of(settle(&held, how));
        let first = w.store.commit_one(commit.clone()).await?;
        assert!(!first.repeated);
        w.advance(Duration::from_secs(1));
        let before = seen(&w, &[task.id()]).await?;
        for store in [w.store.clone(), w.second().await?] {
            let again = store.commit_one(commit.clone()).await?;
            assert_eq!(again.outcomes, first.outcomes, "{commit:?}");
            assert!(again.repeated);
        }
        assert_eq!(seen(&w, &[task.id()]).await?, before);
    }
    Ok(())
}

async fn a_repeated_settle_answers_the_first_result_after_another_claim(w: World) -> Result<()> {
    for how in [fail("broken"), snooze(LEASE), release(None)] {
        let (task, held) = running(&w).await?;
        let commit = Commit::of(settle(&held, how));
        let first = w.store.commit_one(commit.clone()).await?;
        w.advance(LEASE);
        let second = w.worker("second")?;
        let taken = w.claim_ids(&second, &[task.id()]).await?.tasks.remove(0);
        let before = seen(&w, &[task.id()]).await?;
        let again = w.store.commit_one(commit.clone()).await?;
        assert_eq!(again.outcomes, first.outcomes, "{commit:?}");
        assert!(again.repeated);
        assert_eq!(seen(&w, &[task.id()]).await?, before);
        w.store.settle(holder(&taken), complete()).await?;
    }
    Ok(())
}

async fn another_verb_with_a_used_fence_is_refused(w: World) -> Result<()> {
    for first in endings() {
        let (task, held) = running(&w).await?;
        w.store.settle(held.clone(), first.clone()).await?;
        let status = w.status(task.id()).await?;
        let why = if status.is_terminal() {
            Lost::Finished { status }
        } else {
            Lost::NotClaimed { status }
        };
        let before = seen(&w, &[task.id()]).await?;
        for other in endings() {
            if other.verb() != first.verb() {
                let answer = w.store.settle(held.clone(), other.clone()).await;
                assert_eq!(lost(answer), why, "{other:?} after {first:?}");
            }
        }
        assert_eq!(seen(&w, &[task.id()]).await?, before);
    }
    Ok(())
}
