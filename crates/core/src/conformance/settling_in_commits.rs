//! Settles and amendments in commits: together with all that the holder writes, or not at all.

use std::time::Duration;

use crate::change::TaskEvent;
use crate::conformance::observe::{created, events_of, seen, settled};
use crate::conformance::settling::{endings, release, running, snooze};
use crate::conformance::world::{LEASE, World, complete, conflict, holder, lost, name, text};
use crate::conformance::writes::{settle, submit};
use crate::error::{Conflict, Lost, Result};
use crate::ids::{Revision, TaskId};
use crate::names::Key;
use crate::record::fields;
use crate::store::{Amend, Commit, Guard, Merge, Outcome, Put, Receipt, StoreExt, Write};
use crate::task::{Holder, NewTask, Progress, Status, Task, TaskState};

cases!["settling_in_commits":
    a_repeated_commit_with_a_settle_applies_nothing_again,
    a_commit_with_one_settle_applied_before_and_one_new_is_refused,
    a_commit_completes_submits_and_writes_as_a_whole,
    a_guard_that_fails_leaves_the_task_claimed,
    a_refused_settle_takes_its_whole_commit_with_it,
    an_amendment_changes_what_it_names_and_nothing_else,
    an_amendment_and_a_settle_share_a_commit_in_this_order_only,
    two_tasks_are_settled_in_one_commit,
    a_batch_of_settles_equals_single_ones,
];

/// What a handler leaves: its task completed, a task to follow, a record and a counter.
fn completion(w: &World, held: &Holder, follow_up: TaskId) -> Result<Commit> {
    let follow_up = NewTask {
        id: follow_up,
        ..w.new_task("follow-up")
    };
    let output = Put::new(Key::new("output")?, fields([("state", "done")])?);
    let counter = Merge::new(Key::new("counter")?).add(name("done")?, 1);
    Ok(Commit::new()
        .write(Write::Put(output))
        .write(settle(held, complete()))
        .write(submit(follow_up))
        .write(Write::Merge(counter)))
}

/// What [`completion`] writes besides tasks.
async fn outputs(w: &World) -> Result<(Option<String>, Option<String>)> {
    let output = w.record("output").await?;
    let counter = w.record("counter").await?;
    Ok((
        output.and_then(|record| text(&record.fields, "state")),
        counter.and_then(|record| text(&record.fields, "done")),
    ))
}

async fn a_repeated_commit_with_a_settle_applies_nothing_again(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let follow_up = w.ids.task();
    let commit = completion(&w, &held, follow_up)?.id(w.ids.commit());
    let first = w.store.commit_one(commit.clone()).await?;
    // Others go on with what it left: that must survive the repetition.
    let next = w.claim(&w.worker("next")?, 1).await?.remove(0);
    assert_eq!(next.id(), follow_up);
    w.put("output", [("state", "read")]).await?;
    let before = seen(&w, &[task.id(), follow_up]).await?;
    for commit in [commit.clone(), commit.guard(Guard::Held(held))] {
        let again = w.store.commit_one(commit).await?;
        assert!(again.repeated);
        assert_eq!(again.outcomes, first.outcomes);
        assert_eq!(again.position, first.position);
    }
    assert_eq!(seen(&w, &[task.id(), follow_up]).await?, before);
    let expected = (Some("read".to_owned()), Some("1".to_owned()));
    assert_eq!(outputs(&w).await?, expected);
    Ok(())
}

async fn a_commit_with_one_settle_applied_before_and_one_new_is_refused(w: World) -> Result<()> {
    let (done, first) = running(&w).await?;
    let (open, second) = running(&w).await?;
    w.store.settle(first.clone(), complete()).await?;
    let before = seen(&w, &[done.id(), open.id()]).await?;
    let commit = Commit::of(settle(&second, complete())).write(settle(&first, complete()));
    let why = lost(w.store.commit_one(commit).await);
    let status = Status::Completed;
    assert_eq!(why, Lost::Finished { status });
    assert_eq!(seen(&w, &[done.id(), open.id()]).await?, before);
    Ok(())
}

async fn a_commit_completes_submits_and_writes_as_a_whole(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let follow_up = w.ids.task();
    let commit = completion(&w, &held, follow_up)?.guard(Guard::Held(held));
    let Receipt {
        outcomes,
        position,
        repeated,
    } = w.store.commit_one(commit).await?;
    assert_eq!(outcomes.len(), 4);
    assert_eq!(outcomes[1], settled(Status::Completed, None));
    assert_eq!(outcomes[2], Outcome::Submitted(created(follow_up)));
    assert!(!repeated);
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    assert_eq!(w.status(follow_up).await?, Status::Pending);
    let expected = (Some("done".to_owned()), Some("1".to_owned()));
    assert_eq!(outputs(&w).await?, expected);
    let history = w.history().await?.entries;
    let entry = history
        .iter()
        .find(|entry| Some(entry.position) == position);
    assert_eq!(entry.map(|entry| entry.changes.len()), Some(4));
    Ok(())
}

async fn a_guard_that_fails_leaves_the_task_claimed(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let follow_up = w.ids.task();
    let guard = Guard::RecordPresent(Key::new("input")?);
    let before = seen(&w, &[task.id(), follow_up]).await?;
    let commit = completion(&w, &held, follow_up)?.guard(guard.clone());
    let refusal = conflict(w.store.commit_one(commit.clone()).await);
    assert_eq!(refusal, Conflict::Guard { index: 0, guard });
    assert_eq!(seen(&w, &[task.id(), follow_up]).await?, before);
    assert_eq!(outputs(&w).await?, (None, None));
    // Nothing of it was remembered either: once the guard holds, it is applied.
    w.put("input", [("some", "thing")]).await?;
    assert!(!w.store.commit_one(commit).await?.repeated);
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}

async fn a_refused_settle_takes_its_whole_commit_with_it(w: World) -> Result<()> {
    let (task, mut held) = running(&w).await?;
    let follow_up = w.ids.task();
    held.fence = held.fence.next();
    let before = seen(&w, &[task.id(), follow_up]).await?;
    let why = lost(w.store.commit_one(completion(&w, &held, follow_up)?).await);
    let fence = task.fence;
    assert_eq!(why, Lost::Superseded { fence });
    assert_eq!(seen(&w, &[task.id(), follow_up]).await?, before);
    assert_eq!(outputs(&w).await?, (None, None));
    Ok(())
}

async fn an_amendment_changes_what_it_names_and_nothing_else(w: World) -> Result<()> {
    let (mut expected, held) = running(&w).await?;
    let progress = Progress {
        percent: Some(40),
        message: Some("encoding".to_owned()),
        current_step: Some(2),
        step_count: Some(5),
    };
    let nothing = || Amend::new(held.clone());
    let amendments = [
        Amend {
            stage: Some(name("encoding")?),
            ..nothing()
        },
        Amend {
            progress: Some(progress.clone()),
            ..nothing()
        },
        Amend {
            checkpoint: Some("frame 7".into()),
            ..nothing()
        },
        Amend {
            set: fields([("host", "h1"), ("codec", "av1"), ("empty", "")])?,
            ..nothing()
        },
        Amend {
            set: fields([("host", "h2")])?,
            unset: vec![name("codec")?, name("never set")?],
            ..nothing()
        },
    ];
    for (turn, amend) in amendments.into_iter().enumerate() {
        w.advance(Duration::from_secs(1));
        let outcome = w.store.write(Write::Amend(Box::new(amend))).await?;
        match turn {
            0 => expected.stage = Some(name("encoding")?),
            1 => expected.progress = Some(progress.clone()),
            2 => expected.checkpoint = Some("frame 7".into()),
            3 => expected.attributes = fields([("host", "h1"), ("codec", "av1"), ("empty", "")])?,
            _ => expected.attributes = fields([("host", "h2"), ("empty", "")])?,
        }
        let after = w.task(expected.id()).await?;
        let (status, revision) = (Status::Claimed, after.revision);
        assert_eq!(outcome, Outcome::Changed { status, revision });
        assert!(revision > expected.revision);
        expected.revision = revision;
        expected.modified_at = w.now();
        assert_eq!(after, expected);
    }
    let history = events_of(&w, expected.id()).await?;
    assert_eq!(history[2..], [(TaskEvent::Amended, Status::Claimed); 5]);
    Ok(())
}

async fn an_amendment_and_a_settle_share_a_commit_in_this_order_only(w: World) -> Result<()> {
    let (task, held) = running(&w).await?;
    let amend = Write::Amend(Box::new(Amend {
        checkpoint: Some("frame 7".into()),
        ..Amend::new(held.clone())
    }));
    let before = seen(&w, &[task.id()]).await?;
    let wrong = Commit::of(settle(&held, release(None))).write(amend.clone());
    let status = Status::Pending;
    let why = lost(w.store.commit_one(wrong).await);
    assert_eq!(why, Lost::NotClaimed { status });
    assert_eq!(seen(&w, &[task.id()]).await?, before);
    let right = Commit::of(amend).write(settle(&held, release(None)));
    w.store.commit_one(right).await?;
    let after = w.task(task.id()).await?;
    assert_eq!(after.checkpoint, Some("frame 7".into()));
    assert_eq!((after.status, after.lease.clone()), (Status::Pending, None));
    Ok(())
}

async fn two_tasks_are_settled_in_one_commit(w: World) -> Result<()> {
    let (one, first) = running(&w).await?;
    let (two, second) = running(&w).await?;
    let commit = Commit::of(settle(&first, complete())).write(settle(&second, snooze(LEASE)));
    let at = Some(w.now().saturating_plus(LEASE));
    let expected = [
        settled(Status::Completed, None),
        settled(Status::Scheduled, at),
    ];
    let receipt = w.store.commit_one(commit.clone()).await?;
    assert_eq!(receipt.outcomes, expected);
    assert_eq!(w.status(one.id()).await?, Status::Completed);
    assert_eq!(w.status(two.id()).await?, Status::Scheduled);
    let before = seen(&w, &[one.id(), two.id()]).await?;
    let again = w.store.commit_one(commit).await?;
    assert_eq!((again.outcomes, again.repeated), (receipt.outcomes, true));
    assert_eq!(seen(&w, &[one.id(), two.id()]).await?, before);
    Ok(())
}

async fn a_batch_of_settles_equals_single_ones(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let mut sets = Vec::new();
    for _ in 0..2 {
        let all = w.submit_many(5).await?;
        let mut tasks = w.claim_ids(&worker, &all).await?.tasks;
        tasks.sort_by_key(Task::id);
        sets.push(tasks);
    }
    let (_, mut stale) = running(&w).await?;
    stale.fence = stale.fence.next();
    let commits = |tasks: &[Task]| -> Vec<Commit> {
        let pairs = tasks.iter().zip(endings());
        let mut commits: Vec<Commit> = pairs
            .map(|(task, how)| Commit::of(settle(&holder(task), how)))
            .collect();
        // One that is refused in the middle touches none of its neighbours.
        commits.insert(2, Commit::of(settle(&stale, complete())));
        commits
    };
    let mut singly = Vec::new();
    for commit in commits(&sets[0]) {
        singly.push(w.store.commit_one(commit).await);
    }
    let together = w.store.commit(commits(&sets[1])).await;
    assert_eq!(together.len(), singly.len());
    for (one, other) in singly.into_iter().zip(together) {
        let outcomes = |answer: Result<Receipt>| answer.map(|receipt| receipt.outcomes);
        assert_eq!(outcomes(other), outcomes(one));
    }
    for (one, other) in sets[0].iter().zip(&sets[1]) {
        let same = |task: Task| TaskState {
            revision: Revision::ZERO,
            ..task.state
        };
        let (one, other) = (w.task(one.id()).await?, w.task(other.id()).await?);
        assert_eq!(same(other), same(one));
    }
    Ok(())
}
