//! Claims: what a claim does to a task, and what it leaves alone.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::observe::{events_of, seen};
use crate::conformance::world::{LEASE, World, complete, holder, lost, name};
use crate::error::{Conflict, LeaseLost, Lost, Result};
use crate::ids::{Fence, TaskId};
use crate::names::IdempotencyKey;
use crate::record::fields;
use crate::store::{Amend, Claim, Claimed, Ending, Pick, Renew, Renewal, StoreExt, Write};
use crate::task::{
    KeyLifetime, Lane, Lease, NewTask, OnConflict, Progress, Status, Task, TaskState, WorkerId,
};

cases!["claims":
    a_scheduled_task_is_not_taken_before_it_is_promoted,
    a_claim_that_finds_too_little_says_when_the_next_task_of_its_lanes_is_due,
    a_task_that_waits_for_another_has_no_due_moment,
    a_claim_changes_what_it_says_and_nothing_else,
    each_claim_moves_the_fence_on_and_counts_one_attempt,
    a_lease_never_outlasts_the_deadline_of_its_attempt,
    a_claim_enters_the_first_stage_and_starts_progress_anew,
    an_overdue_lease_keeps_the_task_from_others,
    a_repeated_request_answers_the_same_leases_and_takes_nothing_more,
    a_repeated_request_leaves_out_what_was_settled_since,
    two_workers_never_get_the_same_task,
    a_restarted_worker_inherits_nothing,
];

pub(super) fn of_lanes(w: &World, worker: &WorkerId, lanes: &[Lane], limit: usize) -> Claim {
    let lanes = lanes.to_vec();
    Claim {
        pick: Pick::Next { lanes, limit },
        ..w.next(worker, limit)
    }
}

pub(super) fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(Task::id).collect()
}

pub(super) fn sorted(mut ids: Vec<TaskId>) -> Vec<TaskId> {
    ids.sort_unstable();
    ids
}

pub(super) fn by_id(mut tasks: Vec<Task>) -> Vec<Task> {
    tasks.sort_by_key(Task::id);
    tasks
}

pub(super) fn three_lanes() -> Result<[Lane; 3]> {
    Ok([
        Lane::new("queue", "kind")?,
        Lane::new("queue", "another kind")?,
        Lane::new("another queue", "kind")?,
    ])
}

pub(super) fn work_in(w: &World, lane: &Lane) -> NewTask {
    NewTask {
        lane: lane.clone(),
        ..w.new_task("work")
    }
}

/// A task that is claimed, and one that waits to take its place.
pub(super) async fn replaced(w: &World, worker: &WorkerId) -> Result<(Task, TaskId)> {
    let task = || -> Result<NewTask> {
        let key = IdempotencyKey::new("replaced")?;
        let (lifetime, policy) = (KeyLifetime::Forever, OnConflict::CancelAndReplace);
        Ok(w.new_task("work").key_with(key, lifetime, policy))
    };
    let first = w.submit(task()?).await?.id();
    let claimed = w.claim_ids(worker, &[first]).await?.tasks.remove(0);
    Ok((claimed, w.submit(task()?).await?.id()))
}

async fn a_scheduled_task_is_not_taken_before_it_is_promoted(w: World) -> Result<()> {
    let task = w.submit(w.new_task("work").after(LEASE)).await?;
    let worker = w.worker("worker")?;
    let nothing_yet = Claimed {
        tasks: Vec::new(),
        refused: Vec::new(),
        next_due: Some(task.runnable_at),
    };
    for wait in [Duration::ZERO, LEASE, Duration::from_secs(1)] {
        w.advance(wait);
        assert_eq!(w.store.claim(w.next(&worker, 1)).await?, nothing_yet);
        assert_eq!(w.task(task.id()).await?, task);
    }
    assert_eq!(w.sweep().await?.promoted, 1);
    let claimed = w.store.claim(w.next(&worker, 2)).await?;
    assert_eq!(ids(&claimed.tasks), [task.id()]);
    assert_eq!(claimed.next_due, None);
    Ok(())
}

async fn a_claim_that_finds_too_little_says_when_the_next_task_of_its_lanes_is_due(
    w: World,
) -> Result<()> {
    let lanes = three_lanes()?;
    let worker = w.worker("worker")?;
    let empty = w.store.claim(of_lanes(&w, &worker, &lanes, 1)).await?;
    assert_eq!(empty.next_due, None);
    // The last lane has the earliest task, and is left out in the end.
    for (turn, seconds) in [(0, 50), (0, 40), (1, 20), (1, 30), (2, 10)] {
        let task = work_in(&w, &lanes[turn]);
        w.submit(task.after(Duration::from_secs(seconds))).await?;
    }
    w.submit(w.new_task("runnable")).await?;
    let after = |seconds| Some(w.now().saturating_plus(Duration::from_secs(seconds)));
    let few = w.store.claim(of_lanes(&w, &worker, &lanes, 2)).await?;
    assert_eq!((few.tasks.len(), few.next_due), (1, after(10)));
    let fewer = w.store.claim(of_lanes(&w, &worker, &lanes[..2], 1)).await?;
    assert_eq!((fewer.tasks.len(), fewer.next_due), (0, after(20)));
    let one = w.store.claim(of_lanes(&w, &worker, &lanes[..1], 1)).await?;
    assert_eq!((one.tasks.len(), one.next_due), (0, after(40)));
    Ok(())
}

async fn a_task_that_waits_for_another_has_no_due_moment(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let (first, waiting) = replaced(&w, &worker).await?;
    let claimed = w.store.claim(w.next(&worker, 1)).await?;
    assert_eq!((claimed.tasks.len(), claimed.next_due), (0, None));
    let delayed = w.submit(w.new_task("delayed").after(LEASE)).await?;
    let claimed = w.store.claim(w.next(&worker, 1)).await?;
    assert_eq!(claimed.next_due, Some(delayed.runnable_at));
    w.store.settle(holder(&first), complete()).await?;
    assert_eq!(ids(&w.claim(&worker, 1).await?), [waiting]);
    Ok(())
}

async fn a_claim_changes_what_it_says_and_nothing_else(w: World) -> Result<()> {
    let before = w.submit(w.new_task("work")).await?;
    w.advance(Duration::from_secs(1));
    let worker = w.worker("worker")?;
    let claim = w.next(&worker, 1);
    let claimed = w.store.claim(claim).await?.tasks.remove(0);
    assert!(claimed.revision > before.revision);
    let expected = Task {
        spec: before.spec.clone(),
        state: TaskState {
            status: Status::Claimed,
            fence: Fence::new(1),
            attempts: 1,
            lease: Some(Lease {
                worker,
                until: w.now().saturating_plus(LEASE),
                deadline: None,
            }),
            started_at: Some(w.now()),
            claimed_at: Some(w.now()),
            modified_at: w.now(),
            revision: claimed.revision,
            ..before.state.clone()
        },
    };
    assert_eq!(claimed, expected);
    assert_eq!(w.task(before.id()).await?, expected);
    assert_eq!(
        events_of(&w, before.id()).await?,
        [
            (TaskEvent::Submitted, Status::Pending),
            (TaskEvent::Claimed, Status::Claimed)
        ]
    );
    Ok(())
}

async fn each_claim_moves_the_fence_on_and_counts_one_attempt(w: World) -> Result<()> {
    let id = w.submit(w.new_task("work")).await?.id();
    let started = w.now();
    let workers = [w.worker("one")?, w.worker("two")?];
    for turn in 1..=4_u32 {
        let worker = &workers[turn as usize % 2];
        let task = match turn {
            3 => w.claim_ids(worker, &[id]).await?.tasks.remove(0),
            _ => w.claim(worker, 1).await?.remove(0),
        };
        assert_eq!(task.fence, Fence::new(u64::from(turn)));
        assert_eq!((task.attempts, task.failures), (turn, 0));
        assert_eq!(task.started_at, Some(started));
        assert_eq!(task.claimed_at, Some(w.now()));
        let ending = match turn {
            1 => Ending::Release { reason: None },
            _ => Ending::Snooze {
                delay: Duration::ZERO,
            },
        };
        w.store.settle(holder(&task), ending).await?;
        w.advance(Duration::from_secs(1));
    }
    Ok(())
}

async fn a_lease_never_outlasts_the_deadline_of_its_attempt(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    for timeout in [LEASE / 3, LEASE * 2] {
        let id = w
            .submit(NewTask {
                attempt_timeout: Some(timeout),
                ..w.new_task("work")
            })
            .await?
            .id();
        for _ in 0..2 {
            w.advance(Duration::from_secs(1));
            let task = w.claim_ids(&worker, &[id]).await?.tasks.remove(0);
            let lease = task.lease.as_ref();
            let ends = lease.map(|lease| (lease.until, lease.deadline));
            let until = w.now().saturating_plus(timeout.min(LEASE));
            let deadline = w.now().saturating_plus(timeout);
            assert_eq!(ends, Some((until, Some(deadline))));
            let release = Ending::Release { reason: None };
            w.store.settle(holder(&task), release).await?;
        }
    }
    Ok(())
}

async fn a_claim_enters_the_first_stage_and_starts_progress_anew(w: World) -> Result<()> {
    let new = NewTask {
        first_stage: Some(name("validating")?),
        ..w.new_task("work")
    };
    let (first, held) = w.claimed(new).await?;
    assert_eq!(first.stage, Some(name("validating")?));
    let amend = Amend {
        stage: Some(name("processing")?),
        progress: Some(Progress {
            percent: Some(70),
            ..Progress::default()
        }),
        checkpoint: Some("frame 70".into()),
        set: fields([("host", "h1")])?,
        ..Amend::new(held.clone())
    };
    w.store.write(Write::Amend(Box::new(amend))).await?;
    let release = Ending::Release { reason: None };
    w.store.settle(held, release).await?;
    assert_eq!(w.task(first.id()).await?.stage, None);
    let second = w.claim(&w.worker("second")?, 1).await?.remove(0);
    assert_eq!(second.stage, Some(name("validating")?));
    assert_eq!(second.progress, None);
    assert_eq!(second.checkpoint, Some("frame 70".into()));
    assert_eq!(second.attributes, fields([("host", "h1")])?);
    Ok(())
}

async fn an_overdue_lease_keeps_the_task_from_others(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let until = w.now().saturating_plus(LEASE);
    w.advance(LEASE * 2);
    let before = seen(&w, &[task.id()]).await?;
    let second = w.worker("second")?;
    assert_eq!(w.claim(&second, 1).await?, []);
    let refusal = Conflict::AlreadyClaimed {
        task: task.id(),
        holder: held.worker,
        until,
    };
    let claimed = w.claim_ids(&second, &[task.id()]).await?;
    assert_eq!(claimed.tasks, []);
    assert_eq!(claimed.refused, [(task.id(), refusal.into())]);
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    Ok(())
}

async fn a_repeated_request_answers_the_same_leases_and_takes_nothing_more(w: World) -> Result<()> {
    let all = w.submit_many(4).await?;
    let claim = w.next(&w.worker("worker")?, 2);
    let first = by_id(w.store.claim(claim.clone()).await?.tasks);
    assert_eq!(first.len(), 2);
    let before = seen(&w, &all).await?;
    for store in [w.store.clone(), w.second().await?] {
        w.advance(Duration::from_secs(1));
        let repeated = store.claim(claim.clone()).await?;
        assert_eq!(by_id(repeated.tasks), first);
        assert_eq!(seen(&w, &all).await?, before);
    }
    Ok(())
}

async fn a_repeated_request_leaves_out_what_was_settled_since(w: World) -> Result<()> {
    let all = w.submit_many(5).await?;
    let claim = w.next(&w.worker("worker")?, 3);
    let mut first = w.store.claim(claim.clone()).await?.tasks;
    w.store.settle(holder(&first.remove(0)), complete()).await?;
    let release = Ending::Release { reason: None };
    w.store.settle(holder(&first.remove(0)), release).await?;
    let before = seen(&w, &all).await?;
    let repeated = w.store.claim(claim).await?;
    assert_eq!(repeated.tasks, first);
    assert_eq!(seen(&w, &all).await?, before);
    Ok(())
}

async fn two_workers_never_get_the_same_task(w: World) -> Result<()> {
    let all = w.submit_many(20).await?;
    let handles = [w.store.clone(), w.second().await?];
    let workers = [w.worker("one")?, w.worker("two")?];
    let mut taken = Vec::new();
    for turn in 0..6 {
        let claim = w.next(&workers[turn % 2], 4);
        taken.extend(ids(&handles[turn / 3].claim(claim).await?.tasks));
    }
    assert_eq!(sorted(taken), all);
    Ok(())
}

async fn a_restarted_worker_inherits_nothing(w: World) -> Result<()> {
    let id = w.submit(w.new_task("work")).await?.id();
    let (first, restarted) = (w.worker("worker")?, w.worker("worker")?);
    let claim = w.next(&first, 1);
    let task = w.store.claim(claim.clone()).await?.tasks.remove(0);
    let before = seen(&w, &[id]).await?;
    let repeated = Claim {
        worker: restarted.clone(),
        ..claim
    };
    assert_eq!(w.store.claim(repeated).await?.tasks, []);
    assert_eq!(w.claim(&restarted, 1).await?, []);
    let refusal = Conflict::AlreadyClaimed {
        task: id,
        holder: first.clone(),
        until: w.now().saturating_plus(LEASE),
    };
    let claimed = w.claim_ids(&restarted, &[id]).await?;
    assert_eq!(claimed.refused, [(id, refusal.into())]);
    let mut held = holder(&task);
    held.worker = restarted;
    let why = Lost::WrongWorker { holder: first };
    assert_eq!(lost(w.store.settle(held.clone(), complete()).await), why);
    let lost = LeaseLost {
        task: id,
        fence: task.fence,
        why,
    };
    let renew = Renew {
        holders: vec![held],
        lease: LEASE,
    };
    assert_eq!(w.store.renew(renew).await?, [Renewal::Lost(lost)]);
    assert_eq!(seen(&w, &[id]).await?, before);
    Ok(())
}
