//! Claims by id: the named tasks and no others, and why one cannot be taken.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::claims::{by_id, ids, replaced, sorted, three_lanes, work_in};
use crate::conformance::observe::{events_of, seen};
use crate::conformance::world::{LEASE, World, complete, fail_with};
use crate::error::{Conflict, Error, NotFound, Result};
use crate::ids::TaskId;
use crate::store::{Claim, Claimed, Ending, FailRetry, StoreExt};
use crate::task::Status;

cases!["claims_by_id":
    a_claim_by_id_takes_the_named_tasks_and_no_others,
    a_claim_by_id_names_each_task_that_it_cannot_take,
    a_claim_by_id_of_what_this_incarnation_holds_changes_nothing,
    a_due_task_can_be_claimed_by_id_before_it_is_promoted,
    a_repeated_claim_by_id_answers_what_the_first_one_did,
    a_repeated_claim_by_id_answers_what_was_held_before_too,
];

async fn a_claim_by_id_takes_the_named_tasks_and_no_others(w: World) -> Result<()> {
    let lanes = three_lanes()?;
    let mut all = Vec::new();
    for lane in &lanes {
        all.push(w.submit(work_in(&w, lane)).await?);
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
        events_of(&w, task.id()).await?,
        [
            (TaskEvent::Submitted, Status::Scheduled),
            (TaskEvent::Claimed, Status::Claimed)
        ]
    );
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
