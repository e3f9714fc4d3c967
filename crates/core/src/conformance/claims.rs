//! Claims: who gets which task, in which order, under which lease.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::leases::{events, seen};
use crate::conformance::world::{LEASE, World, complete, fail_with, holder, lost, name};
use crate::error::{Conflict, Error, LeaseLost, Lost, NotFound, Result};
use crate::ids::{Fence, TaskId};
use crate::names::IdempotencyKey;
use crate::record::fields;
use crate::store::{
    Amend, Claim, Claimed, Ending, FailRetry, Outcome, Peek, Pick, Renew, Renewal, StoreExt, Write,
};
use crate::task::{
    KeyLifetime, Lane, Lease, NewTask, OnConflict, Priority, Progress, Status, Task, TaskState,
    Worker,
};

cases!["claims":
    a_claim_never_takes_more_than_its_limit,
    the_most_urgent_task_of_all_lanes_is_taken_first,
    within_a_priority_the_first_runnable_task_of_all_lanes_is_taken_first if FirstInFirstOut,
    of_tasks_runnable_at_the_same_moment_the_lowest_id_is_taken_first if FirstInFirstOut,
    a_promoted_task_takes_the_place_of_its_due_moment if FirstInFirstOut,
    a_released_task_returns_to_its_old_place if FirstInFirstOut,
    a_new_priority_changes_the_order,
    a_task_of_a_lane_not_asked_for_is_never_taken,
    names_full_of_metacharacters_are_lanes_of_their_own,
    a_scheduled_task_is_not_taken_before_it_is_promoted,
    a_claim_that_finds_too_little_says_when_the_next_task_of_its_lanes_is_due,
    a_task_that_waits_for_another_has_no_due_moment,
    a_claim_changes_what_it_says_and_nothing_else,
    each_claim_moves_the_fence_on_and_counts_one_attempt,
    a_lease_never_outlasts_the_deadline_of_its_attempt,
    a_claim_enters_the_first_stage_and_starts_progress_anew,
    an_overdue_lease_keeps_the_task_from_others,
    a_claim_by_id_takes_the_named_tasks_and_no_others,
    a_claim_by_id_names_each_task_that_it_cannot_take,
    a_claim_by_id_of_what_this_incarnation_holds_changes_nothing,
    a_due_task_can_be_claimed_by_id_before_it_is_promoted,
    a_repeated_request_answers_the_same_leases_and_takes_nothing_more,
    a_repeated_request_leaves_out_what_was_settled_since,
    a_repeated_claim_by_id_answers_what_the_first_one_did,
    a_repeated_claim_by_id_answers_what_was_held_before_too,
    two_workers_never_get_the_same_task,
    a_restarted_worker_inherits_nothing,
    a_peek_shows_what_the_next_claim_takes_and_changes_nothing,
];

fn of_lanes(w: &World, worker: &Worker, lanes: &[Lane], limit: usize) -> Claim {
    let lanes = lanes.to_vec();
    Claim {
        pick: Pick::Next { lanes, limit },
        ..w.next(worker, limit)
    }
}

fn ids(tasks: &[Task]) -> Vec<TaskId> {
    tasks.iter().map(Task::id).collect()
}

fn sorted(mut ids: Vec<TaskId>) -> Vec<TaskId> {
    ids.sort_unstable();
    ids
}

fn by_id(mut tasks: Vec<Task>) -> Vec<Task> {
    tasks.sort_by_key(Task::id);
    tasks
}

fn three_lanes() -> Result<[Lane; 3]> {
    Ok([
        Lane::new("queue", "kind")?,
        Lane::new("queue", "another kind")?,
        Lane::new("another queue", "kind")?,
    ])
}

/// Ids that were made in another order than they are answered in.
fn ids_from_last_to_first(w: &World, count: usize) -> Vec<TaskId> {
    let mut ids: Vec<TaskId> = (0..count).map(|_| w.ids.task()).collect();
    ids.reverse();
    ids
}

fn in_lane(w: &World, lane: &Lane) -> NewTask {
    NewTask {
        lane: lane.clone(),
        ..w.new_task("work")
    }
}

/// A task that is claimed, and one that waits to take its place.
async fn replaced(w: &World, worker: &Worker) -> Result<(Task, TaskId)> {
    let task = || -> Result<NewTask> {
        let key = IdempotencyKey::new("replaced")?;
        let (lifetime, policy) = (KeyLifetime::Forever, OnConflict::CancelAndReplace);
        Ok(w.new_task("work").key_with(key, lifetime, policy))
    };
    let first = w.submit(task()?).await?.id();
    let claimed = w.claim_ids(worker, &[first]).await?.tasks.remove(0);
    Ok((claimed, w.submit(task()?).await?.id()))
}

async fn a_claim_never_takes_more_than_its_limit(w: World) -> Result<()> {
    let all = w.submit_many(5).await?;
    let worker = w.worker("worker")?;
    let mut taken = Vec::new();
    for expected in [2, 2, 1, 0] {
        let tasks = w.claim(&worker, 2).await?;
        assert_eq!(tasks.len(), expected);
        taken.extend(ids(&tasks));
    }
    assert_eq!(sorted(taken), all);
    Ok(())
}

async fn the_most_urgent_task_of_all_lanes_is_taken_first(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    // In every order but the right one: neither growing nor falling, neither by lane nor by id.
    let order = [4, 10, 0, 7, 2, 9, 5, 1, 8, 3, 6];
    for (turn, priority) in order.into_iter().enumerate() {
        let task = in_lane(&w, &lanes[turn % lanes.len()]);
        w.submit(task.priority(Priority::new(priority)?)).await?;
        w.advance(Duration::from_millis(1));
    }
    let worker = w.worker("worker")?;
    let mut taken = Vec::new();
    for limit in [4, 1, 6] {
        let claimed = w.store.claim(of_lanes(&w, &worker, &lanes, limit)).await?;
        assert_eq!(claimed.tasks.len(), limit);
        taken.extend(claimed.tasks.iter().map(|task| task.priority.get()));
    }
    assert_eq!(taken, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0]);
    Ok(())
}

async fn within_a_priority_the_first_runnable_task_of_all_lanes_is_taken_first(
    w: World,
) -> Result<()> {
    let mut lanes = three_lanes()?;
    let order = ids_from_last_to_first(&w, 7);
    for (turn, id) in order.iter().enumerate() {
        let task = NewTask {
            id: *id,
            ..in_lane(&w, &lanes[[0, 1, 2, 2, 1, 0, 1][turn]])
        };
        w.submit(task).await?;
        w.advance(Duration::from_millis(1));
    }
    lanes.reverse();
    let worker = w.worker("worker")?;
    let first = w.store.claim(of_lanes(&w, &worker, &lanes, 4)).await?;
    let second = w.store.claim(of_lanes(&w, &worker, &lanes, 4)).await?;
    assert_eq!(ids(&first.tasks), order[..4]);
    assert_eq!(ids(&second.tasks), order[4..]);
    Ok(())
}

async fn of_tasks_runnable_at_the_same_moment_the_lowest_id_is_taken_first(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    let order = ids_from_last_to_first(&w, 6);
    for (turn, id) in order.iter().enumerate() {
        let task = NewTask {
            id: *id,
            ..in_lane(&w, &lanes[turn % lanes.len()])
        };
        w.submit(task).await?;
    }
    let worker = w.worker("worker")?;
    let claimed = w.store.claim(of_lanes(&w, &worker, &lanes, 6)).await?;
    assert_eq!(ids(&claimed.tasks), sorted(order));
    Ok(())
}

async fn a_promoted_task_takes_the_place_of_its_due_moment(w: World) -> Result<()> {
    let later = Duration::from_secs(10);
    let due = w.submit(w.new_task("due").after(later)).await?;
    w.advance(later - Duration::from_millis(1));
    let earlier = w.submit(w.new_task("earlier")).await?.id();
    w.advance(Duration::from_millis(2));
    let after = w.submit(w.new_task("after")).await?.id();
    w.advance(Duration::from_secs(5));
    w.sweep().await?;
    assert_eq!(w.task(due.id()).await?.runnable_at, due.runnable_at);
    let taken = w.claim(&w.worker("worker")?, 3).await?;
    assert_eq!(ids(&taken), [earlier, due.id(), after]);
    Ok(())
}

async fn a_released_task_returns_to_its_old_place(w: World) -> Result<()> {
    let mut order = ids_from_last_to_first(&w, 3);
    for id in &order {
        let task = NewTask {
            id: *id,
            ..w.new_task("work")
        };
        w.submit(task).await?;
        w.advance(Duration::from_millis(1));
    }
    let worker = w.worker("worker")?;
    let taken = w.claim(&worker, 2).await?;
    assert_eq!(ids(&taken), order[..2]);
    w.advance(Duration::from_secs(1));
    let release = Ending::Release { reason: None };
    w.store.settle(holder(&taken[1]), release).await?;
    w.store.settle(holder(&taken[0]), complete()).await?;
    order.remove(0);
    assert_eq!(ids(&w.claim(&worker, 3).await?), order);
    Ok(())
}

async fn a_new_priority_changes_the_order(w: World) -> Result<()> {
    let all = w.submit_many(3).await?;
    let later = w.submit(w.new_task("later").after(LEASE)).await?.id();
    let lowest = Write::Prioritise(all[0], Priority::LOWEST);
    let outcome = w.store.write(lowest.clone()).await?;
    let low = w.task(all[0]).await?;
    assert_eq!(
        outcome,
        Outcome::Changed {
            status: Status::Pending,
            revision: low.revision
        }
    );
    assert_eq!(
        events(&w, all[0]).await?,
        [
            (TaskEvent::Submitted, Status::Pending),
            (TaskEvent::Amended, Status::Pending)
        ]
    );
    w.store
        .write(Write::Prioritise(all[2], Priority::new(9)?))
        .await?;
    w.store
        .write(Write::Prioritise(later, Priority::HIGHEST))
        .await?;
    let before = seen(&w, &[all[0]]).await?;
    assert_eq!(
        w.store.write(lowest).await?,
        Outcome::Already {
            status: Status::Pending
        }
    );
    assert_eq!(seen(&w, &[all[0]]).await?, before);
    w.advance(LEASE);
    w.sweep().await?;
    let taken = w.claim(&w.worker("worker")?, 4).await?;
    assert_eq!(ids(&taken), [later, all[2], all[1], all[0]]);
    Ok(())
}

async fn a_task_of_a_lane_not_asked_for_is_never_taken(w: World) -> Result<()> {
    let mut others = Vec::new();
    for (queue, kind) in [
        ("queue", "other"),
        ("other", "kind"),
        ("kind", "queue"),
        ("queue", "kind2"),
        ("queue2", "kind"),
        ("Queue", "Kind"),
    ] {
        let task = in_lane(&w, &Lane::new(queue, kind)?);
        others.push(w.submit(task.priority(Priority::HIGHEST)).await?);
    }
    let own = w.submit(w.new_task("work")).await?.id();
    let taken = w.claim(&w.worker("worker")?, 10).await?;
    assert_eq!(ids(&taken), [own]);
    for other in others {
        assert_eq!(w.task(other.id()).await?, other);
    }
    Ok(())
}

async fn names_full_of_metacharacters_are_lanes_of_their_own(w: World) -> Result<()> {
    let mut lanes = vec![Lane::new("plain", "kind")?, Lane::new("queue", "plain")?];
    for text in [
        "%",
        "_",
        "*",
        "**",
        ">",
        "?",
        "[a-z]*",
        "plai_",
        "plai%",
        "pl*",
        "{plain}",
        "$1",
        "'",
        "\"",
        "\\",
        "'; DROP TABLE tasks; --",
        "KEYS[1]",
        "a\nb",
        "\t",
        " ",
        "ä",
        "\u{1f980}",
    ] {
        lanes.push(Lane::new(text, "kind")?);
        lanes.push(Lane::new("queue", text)?);
    }
    for between in [".", ":", "/", "|", ",", "-", " ", "\u{1f}"] {
        let ends = format!("a{between}b");
        lanes.push(Lane::new(&ends, "c")?);
        lanes.push(Lane::new("a", format!("b{between}c"))?);
    }
    let mut expected = Vec::new();
    for lane in &lanes {
        expected.push(w.submit(in_lane(&w, lane)).await?.id());
    }
    let worker = w.worker("worker")?;
    for (lane, id) in lanes.iter().zip(expected) {
        let claim = of_lanes(&w, &worker, std::slice::from_ref(lane), 10);
        let claimed = w.store.claim(claim).await?;
        assert_eq!(ids(&claimed.tasks), [id], "{lane}");
        assert_eq!(claimed.tasks[0].spec.lane, *lane);
    }
    Ok(())
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
        let task = in_lane(&w, &lanes[turn]);
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
        events(&w, before.id()).await?,
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

async fn a_claim_by_id_takes_the_named_tasks_and_no_others(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    let mut all = Vec::new();
    for lane in &lanes {
        all.push(w.submit(in_lane(&w, lane)).await?);
    }
    let claimed = w
        .claim_ids(&w.worker("worker")?, &[all[2].id(), all[0].id()])
        .await?;
    let taken = sorted(ids(&claimed.tasks));
    assert_eq!(taken, [all[0].id(), all[2].id()]);
    assert_eq!((claimed.refused, claimed.next_due), (Vec::new(), None));
    for task in claimed.tasks {
        assert_eq!(w.task(task.id()).await?, task);
        assert_eq!((task.status, task.attempts), (Status::Claimed, 1));
    }
    assert_eq!(w.task(all[1].id()).await?, all[1]);
    Ok(())
}

async fn a_claim_by_id_names_each_task_that_it_cannot_take(w: World) -> Result<()> {
    let (other, worker) = (w.worker("other")?, w.worker("worker")?);
    let unknown = w.ids.task();
    let later = w.submit(w.new_task("later").after(LEASE)).await?;
    let (running, waiting) = replaced(&w, &other).await?;
    let mut expected: BTreeMap<TaskId, Error> = BTreeMap::from([
        (unknown, NotFound::Task(unknown).into()),
        (
            later.id(),
            Conflict::NotDue {
                task: later.id(),
                due_at: later.runnable_at,
            }
            .into(),
        ),
        (
            running.id(),
            Conflict::AlreadyClaimed {
                task: running.id(),
                holder: other,
                until: w.now().saturating_plus(LEASE),
            }
            .into(),
        ),
        (
            waiting,
            Conflict::Waiting {
                task: waiting,
                on: running.id(),
            }
            .into(),
        ),
    ]);
    for (ending, status) in [
        (complete(), Status::Completed),
        (fail_with("broken", FailRetry::Fatal), Status::Failed),
        (Ending::Cancel { reason: None }, Status::Cancelled),
    ] {
        let (task, held) = w.claimed(w.new_task("ended")).await?;
        w.store.settle(held, ending).await?;
        let task = task.id();
        expected.insert(task, Conflict::Finished { task, status }.into());
    }
    let good = w.submit_many(2).await?;
    let bad: Vec<TaskId> = expected.keys().copied().collect();
    let (before, _) = seen(&w, &bad).await?;
    let mut asked = bad.clone();
    asked.insert(2, good[0]);
    asked.push(good[1]);
    let claimed = w.claim_ids(&worker, &asked).await?;
    assert_eq!(sorted(ids(&claimed.tasks)), good);
    assert_eq!(claimed.refused.len(), expected.len());
    assert_eq!(BTreeMap::from_iter(claimed.refused), expected);
    assert_eq!(seen(&w, &bad).await?.0, before);
    Ok(())
}

async fn a_claim_by_id_of_what_this_incarnation_holds_changes_nothing(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let before = seen(&w, &[task.id()]).await?;
    // Also after the lease ran out: it holds until it is expired.
    for wait in [Duration::from_secs(1), LEASE] {
        w.advance(wait);
        let again = Claim {
            lease: LEASE * 3,
            ..w.by_id(&held.worker, &[task.id()], w.ids.request())
        };
        let expected = Claimed {
            tasks: vec![task.clone()],
            refused: Vec::new(),
            next_due: None,
        };
        assert_eq!(w.store.claim(again).await?, expected);
        assert_eq!(seen(&w, &[task.id()]).await?, before);
    }
    Ok(())
}

async fn a_due_task_can_be_claimed_by_id_before_it_is_promoted(w: World) -> Result<()> {
    let task = w.submit(w.new_task("work").after(LEASE)).await?;
    let worker = w.worker("worker")?;
    w.advance(LEASE - Duration::from_millis(1));
    assert_eq!(w.claim_ids(&worker, &[task.id()]).await?.tasks, []);
    w.advance(Duration::from_millis(1));
    let claimed = w.claim_ids(&worker, &[task.id()]).await?;
    assert_eq!(ids(&claimed.tasks), [task.id()]);
    assert_eq!(claimed.tasks[0].runnable_at, task.runnable_at);
    assert_eq!(w.sweep().await?.promoted, 0);
    assert_eq!(
        events(&w, task.id()).await?,
        [
            (TaskEvent::Submitted, Status::Scheduled),
            (TaskEvent::Claimed, Status::Claimed)
        ]
    );
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

async fn a_repeated_claim_by_id_answers_what_the_first_one_did(w: World) -> Result<()> {
    let (foreign, _) = w.claimed(w.new_task("foreign")).await?;
    let later = w.submit(w.new_task("later").after(LEASE)).await?.id();
    let good = w.submit(w.new_task("good")).await?.id();
    let unknown = w.ids.task();
    let all = [foreign.id(), later, good, unknown];
    let claim = w.by_id(&w.worker("worker")?, &all, w.ids.request());
    let first = w.store.claim(claim.clone()).await?;
    assert_eq!((first.tasks.len(), first.refused.len()), (1, 3));
    let before = seen(&w, &all).await?;
    assert_eq!(w.store.claim(claim).await?, first);
    assert_eq!(seen(&w, &all).await?, before);
    Ok(())
}

async fn a_repeated_claim_by_id_answers_what_was_held_before_too(w: World) -> Result<()> {
    let (held_before, held) = w.claimed(w.new_task("held")).await?;
    let fresh = w.submit(w.new_task("fresh")).await?.id();
    let all = [held_before.id(), fresh];
    let claim = w.by_id(&held.worker, &all, w.ids.request());
    let first = by_id(w.store.claim(claim.clone()).await?.tasks);
    assert_eq!(ids(&first), all);
    let before = seen(&w, &all).await?;
    assert_eq!(by_id(w.store.claim(claim).await?.tasks), first);
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

async fn a_peek_shows_what_the_next_claim_takes_and_changes_nothing(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    let mut all = Vec::new();
    for (turn, priority) in [3, 9, 1, 7, 5].into_iter().enumerate() {
        let task = in_lane(&w, &lanes[turn % lanes.len()]);
        let task = task.priority(Priority::new(priority)?);
        all.push(w.submit(task).await?.id());
    }
    let urgent = w.new_task("scheduled").priority(Priority::HIGHEST);
    all.push(w.submit(urgent.after(LEASE)).await?.id());
    let before = seen(&w, &all).await?;
    let peek = |limit| Peek {
        lanes: lanes.to_vec(),
        limit,
    };
    let three = w.store.peek(peek(3)).await?;
    assert_eq!(ids(&three), [all[1], all[3], all[4]]);
    assert_eq!(w.store.peek(peek(3)).await?, three);
    for task in &three {
        assert_eq!(w.task(task.id()).await?, *task);
    }
    assert_eq!(seen(&w, &all).await?, before);
    let worker = w.worker("worker")?;
    let claimed = w.store.claim(of_lanes(&w, &worker, &lanes, 3)).await?;
    assert_eq!(ids(&claimed.tasks), ids(&three));
    assert_eq!(ids(&w.store.peek(peek(10)).await?), [all[0], all[2]]);
    Ok(())
}
