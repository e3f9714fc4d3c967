//! Tasks that are written in one call: each as if it were alone, however alike the others are.

use std::sync::Arc;
use std::time::Duration;

use crate::conformance::act::open_group;
use crate::conformance::submits::as_submitted;
use crate::conformance::world::{World, complete, fail_with, holder, lane, name};
use crate::conformance::writes::{settle, submit};
use crate::error::Result;
use crate::group::NewGroup;
use crate::ids::Revision;
use crate::names::{GroupId, IdempotencyKey};
use crate::store::{Commit, Ending, FailRetry, StoreExt};
use crate::task::{
    FailureKind, Holder, Lane, NewTask, Priority, RetryPolicy, Status, Task, TaskState, WorkerId,
};

cases!["neighbours":
    a_task_that_differs_from_its_neighbours_in_one_thing_is_submitted_with_it,
    a_task_that_differs_from_its_neighbours_in_one_thing_is_ended_with_it,
];

/// With everything at its default.
fn plain(w: &World) -> NewTask {
    NewTask::new(w.ids.task(), lane(), "work")
}

/// Tasks that differ from a plain one in one thing each, and can be claimed at once.
async fn different(w: &World) -> Result<Vec<NewTask>> {
    let group = GroupId::new("group")?;
    open_group(w, NewGroup::new(group.clone())).await?;
    let elsewhere = |lane| NewTask::new(w.ids.task(), lane, "work");
    let once = RetryPolicy {
        max_attempts: 1,
        ..RetryPolicy::default()
    };
    Ok(vec![
        elsewhere(Lane::new("other", lane().kind.as_str())?),
        elsewhere(Lane::new(lane().queue.as_str(), "other")?),
        NewTask::new(w.ids.task(), lane(), "other"),
        plain(w).priority(Priority::HIGHEST),
        plain(w).key(IdempotencyKey::new("key")?),
        plain(w).group(group),
        plain(w).owner(name("owner")?),
        plain(w).label(name("label")?, name("value")?),
        plain(w).retry(once),
        plain(w).attempt_timeout(Duration::from_secs(60)),
        plain(w).first_stage(name("stage")?),
        plain(w).trace("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ])
}

async fn commit_all(w: &World, commits: Vec<Commit>) -> Result<()> {
    for answer in w.store.commit(commits).await {
        answer?;
    }
    Ok(())
}

async fn a_task_that_differs_from_its_neighbours_in_one_thing_is_submitted_with_it(
    w: World,
) -> Result<()> {
    let delay = Duration::from_secs(60);
    let mut variants = different(&w).await?;
    variants.push(plain(&w).after(delay));
    for variant in variants {
        let delayed = variant.due != plain(&w).due;
        let tasks = [plain(&w), variant, plain(&w)];
        let commits = tasks.iter().map(|new| Commit::of(submit(new.clone())));
        commit_all(&w, commits.collect()).await?;
        for (n, new) in tasks.iter().enumerate() {
            let task = w.task(new.id).await?;
            let mut expected = as_submitted(new, w.now(), task.revision);
            if new.group.is_some() {
                let born = w.group("group").await?.born;
                Arc::make_mut(&mut expected.spec).group_born = Some(born);
            }
            if delayed && n == 1 {
                expected.state.status = Status::Scheduled;
                expected.state.runnable_at = w.now().saturating_plus(delay);
            }
            assert_eq!(task, expected);
        }
        w.advance(Duration::from_millis(1));
    }
    Ok(())
}

/// Submits and claims tasks, each by a call of its own and at a time of its own; the last one by another worker, if
/// there is one.
async fn claimed(
    w: &World,
    tasks: Vec<NewTask>,
    other: Option<&WorkerId>,
) -> Result<Vec<(Task, Holder)>> {
    let mut claimed = Vec::new();
    let count = tasks.len();
    let worker = w.worker("worker")?;
    for (n, new) in tasks.into_iter().enumerate() {
        w.advance(Duration::from_millis(1));
        let other = other.filter(|_| n + 1 == count);
        let id = w.store.submit(new).await?.id;
        w.advance(Duration::from_millis(1));
        let claimer = other.unwrap_or(&worker);
        let task = w.claim_ids(claimer, &[id]).await?.tasks.remove(0);
        let held = holder(&task);
        claimed.push((task, held));
    }
    Ok(claimed)
}

/// The state of a task that has ended, but for what nobody else can have.
async fn ended(
    w: &World,
    task: &Task,
    how: &Ending,
) -> Result<(TaskState, Vec<(FailureKind, String)>)> {
    let after = w.task(task.id()).await?;
    let (status, result) = match how {
        Ending::Complete { result } => (Status::Completed, result.clone()),
        _ => (Status::Failed, None),
    };
    assert_eq!((after.status, &after.result), (status, &result));
    assert_eq!(after.errors.is_empty(), status == Status::Completed);
    assert_eq!(after.spec, task.spec);
    let times = |task: &Task| (task.started_at, task.claimed_at, task.runnable_at);
    assert_eq!(times(&after), times(task));
    assert!(after.revision > task.revision);
    let mut state = after.state;
    (state.revision, state.started_at, state.claimed_at) = (Revision::ZERO, None, None);
    state.runnable_at = w.now();
    let held = holder(task);
    let errors = std::mem::take(&mut state.errors).into_iter().map(|error| {
        assert_eq!(error.worker, held.worker);
        (error.kind, error.message)
    });
    let errors = errors.collect();
    let settled = state.settled.as_ref();
    let settled = settled.map(|settled| (settled.fence, settled.by, settled.worker.clone()));
    let expected = (task.fence, held.worker.incarnation, Some(held.worker.name));
    assert_eq!(settled, Some(expected));
    state.settled = None;
    Ok((state, errors))
}

async fn a_task_that_differs_from_its_neighbours_in_one_thing_is_ended_with_it(
    w: World,
) -> Result<()> {
    let result = Ending::Complete {
        result: Some("result".into()),
    };
    let failed = fail_with("broken", FailRetry::Fatal);
    let variants = different(&w)
        .await?
        .into_iter()
        .map(|new| (new, complete(), None));
    let endings = [result, failed].map(|how| (plain(&w), how, None));
    let others = [w.worker("worker")?, w.worker("another worker")?];
    let others = others.map(|other| (plain(&w), complete(), Some(other)));
    for (variant, how, other) in variants.chain(endings).chain(others).collect::<Vec<_>>() {
        let alone = NewTask {
            id: w.ids.task(),
            key: None,
            ..variant.clone()
        };
        let endings = [complete(), complete(), how];
        let together = claimed(&w, vec![plain(&w), plain(&w), variant], other.as_ref()).await?;
        let one_by_one = claimed(&w, vec![plain(&w), plain(&w), alone], other.as_ref()).await?;
        let commits = together.iter().zip(&endings);
        let commits = commits.map(|((_, held), how)| Commit::of(settle(held, how.clone())));
        commit_all(&w, commits.collect()).await?;
        for ((_, held), how) in one_by_one.iter().zip(&endings) {
            commit_all(&w, vec![Commit::of(settle(held, how.clone()))]).await?;
        }
        for (((task, _), (twin, _)), how) in together.iter().zip(&one_by_one).zip(&endings) {
            assert_eq!(ended(&w, task, how).await?, ended(&w, twin, how).await?);
        }
    }
    Ok(())
}
