//! Retention of tasks: what has been kept long enough goes, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::conformance::act::{retry_now, run};
use crate::conformance::observe::lines;
use crate::conformance::world::{
    LEASE, World, complete, conflict, fail, holder, lane, steady_retry,
};
use crate::conformance::writes::{log, open};
use crate::error::{Conflict, Result};
use crate::group::NewGroup;
use crate::ids::{Position, TaskId};
use crate::log::{Level, NewLine};
use crate::names::{GroupId, Key};
use crate::record::fields;
use crate::store::{
    Changes, Commit, Compact, Compacted, Counts, Ending, Groups, LaneCounts, Merge, Peek, Put,
    Store, StoreExt, SubmitOutcome, Tasks, Write,
};
use crate::task::{KeyLifetime, Lane, NewTask, OnConflict, Status};

cases!["retention":
    a_finished_task_goes_exactly_when_it_is_old_enough,
    a_status_that_is_not_named_is_kept,
    the_oldest_go_first_up_to_the_limit,
    an_active_task_is_never_removed,
    a_task_that_runs_again_is_kept_and_its_age_begins_anew,
    a_removed_task_leaves_neither_key_nor_log_nor_count,
    a_lane_goes_with_its_last_task_and_comes_back_with_the_next,
    a_key_that_was_given_to_another_task_stays_with_it,
    a_task_stays_while_its_key_stands_for_it_for_a_time,
    an_empty_namespace_has_nothing_to_remove,
    other_namespaces_are_left_alone,
];

pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

pub(super) const TICK: Duration = Duration::from_millis(1);

pub(super) fn nothing_but_a_limit() -> Compact {
    Compact {
        limit: 100,
        ..Compact::default()
    }
}

/// Removes finished tasks of these statuses after a day.
fn tasks(statuses: &[Status]) -> Compact {
    Compact {
        tasks: statuses.iter().map(|status| (*status, DAY)).collect(),
        ..nothing_but_a_limit()
    }
}

pub(super) fn all_tasks() -> Compact {
    tasks(&[Status::Completed, Status::Failed, Status::Cancelled])
}

fn removed(tasks: u64) -> Compacted {
    Compacted {
        tasks,
        ..Compacted::default()
    }
}

/// A task that ends now with this status.
pub(super) async fn ended(w: &World, status: Status) -> Result<TaskId> {
    let how = match status {
        Status::Failed => fail("for good"),
        Status::Cancelled => Ending::Cancel { reason: None },
        _ => complete(),
    };
    let new = w.new_task("work").retry(steady_retry(1));
    run(w, new, how).await
}

/// Which of these tasks are there.
async fn kept(w: &World, ids: &[TaskId]) -> Result<Vec<bool>> {
    let ids = ids.to_vec();
    let found = w.store.tasks(Tasks { ids }).await?;
    Ok(found.iter().map(Option::is_some).collect())
}

/// One entry for the history, always of the same key: for each key there is an order everywhere.
pub(super) async fn write(w: &World) -> Result<Position> {
    let put = Put::new(Key::new("key")?, fields([("of", "retention")])?);
    let receipt = w.store.commit_one(Commit::of(Write::Put(put))).await?;
    Ok(receipt.position.unwrap_or_default())
}

async fn a_finished_task_goes_exactly_when_it_is_old_enough(w: World) -> Result<()> {
    let ages = [
        (Status::Completed, DAY),
        (Status::Cancelled, DAY * 2),
        (Status::Failed, DAY * 3),
    ];
    let compact = Compact {
        tasks: ages.into_iter().collect(),
        ..nothing_but_a_limit()
    };
    let mut ids = Vec::new();
    for (status, _) in ages {
        ids.push(ended(&w, status).await?);
    }
    let end = w.now();
    for (n, (status, age)) in ages.into_iter().enumerate() {
        let old_enough = end.saturating_plus(age);
        w.clock.jump_to(old_enough.saturating_minus(TICK));
        assert_eq!(w.store.compact(compact.clone()).await?, removed(0));
        assert_eq!(w.status(ids[n]).await?, status);
        w.clock.jump_to(old_enough);
        assert_eq!(w.store.compact(compact.clone()).await?, removed(1));
        let expected: Vec<bool> = (0..3).map(|other| other > n).collect();
        assert_eq!(kept(&w, &ids).await?, expected);
    }
    Ok(())
}

async fn a_status_that_is_not_named_is_kept(w: World) -> Result<()> {
    let mut ids = Vec::new();
    for status in [Status::Completed, Status::Failed, Status::Cancelled] {
        ids.push(ended(&w, status).await?);
    }
    w.advance(DAY * 1_000);
    let compact = tasks(&[Status::Failed]);
    assert_eq!(w.store.compact(compact).await?, removed(1));
    assert_eq!(kept(&w, &ids).await?, [true, false, true]);
    let compact = nothing_but_a_limit();
    assert_eq!(w.store.compact(compact).await?, removed(0));
    assert_eq!(kept(&w, &ids).await?, [true, false, true]);
    Ok(())
}

async fn the_oldest_go_first_up_to_the_limit(w: World) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(w.claimed(w.new_task("work")).await?.1);
    }
    let mut ids = Vec::new();
    // The order in which they end is not the order of their ids.
    for n in [3, 0, 4, 1, 2] {
        w.advance(Duration::from_secs(1));
        w.store.settle(held[n].clone(), complete()).await?;
        ids.push(held[n].task);
    }
    w.advance(DAY);
    let compact = Compact {
        limit: 2,
        ..all_tasks()
    };
    for (number, more, expected) in [
        (2, true, [false, false, true, true, true]),
        (2, true, [false, false, false, false, true]),
        (1, false, [false; 5]),
        (0, false, [false; 5]),
    ] {
        let answer = Compacted {
            more,
            ..removed(number)
        };
        assert_eq!(w.store.compact(compact.clone()).await?, answer);
        assert_eq!(kept(&w, &ids).await?, expected);
    }
    for _ in 0..2 {
        ended(&w, Status::Completed).await?;
    }
    w.advance(DAY);
    assert_eq!(w.store.compact(compact).await?, removed(2));
    Ok(())
}

async fn an_active_task_is_never_removed(w: World) -> Result<()> {
    let pending = w.submit(w.new_task("pending")).await?;
    let scheduled = w.submit(w.new_task("later").after(DAY * 2_000)).await?;
    let (claimed, _) = w.claimed(w.new_task("held")).await?;
    let (asked, _) = w.claimed(w.new_task("asked to stop")).await?;
    w.store.cancel(asked.id(), None).await?;
    let asked = w.task(asked.id()).await?;
    let (waits, held) = w.claimed(w.new_task("waits for a retry")).await?;
    w.store.settle(held, fail("once")).await?;
    let waits = w.task(waits.id()).await?;
    w.put("record", [("a", "b")]).await?;
    w.advance(DAY * 1_000);
    let compact = Compact {
        tasks: [Status::Completed, Status::Failed, Status::Cancelled]
            .map(|status| (status, Duration::ZERO))
            .into(),
        groups: Some(Duration::ZERO),
        ..nothing_but_a_limit()
    };
    assert_eq!(w.store.compact(compact).await?, removed(0));
    for task in [pending, scheduled, claimed, asked, waits] {
        assert_eq!(w.task(task.id()).await?, task);
    }
    assert!(w.record("record").await?.is_some());
    Ok(())
}

async fn a_task_that_runs_again_is_kept_and_its_age_begins_anew(w: World) -> Result<()> {
    let task = ended(&w, Status::Failed).await?;
    w.advance(DAY);
    retry_now(&w, task, true).await?;
    assert_eq!(w.store.compact(all_tasks()).await?.tasks, 0);
    assert_eq!(w.status(task).await?, Status::Pending);
    let claimed = w.claim(&w.worker("worker")?, 1).await?;
    w.store.settle(holder(&claimed[0]), fail("again")).await?;
    w.advance(DAY - TICK);
    assert_eq!(w.store.compact(all_tasks()).await?.tasks, 0);
    assert_eq!(w.status(task).await?, Status::Failed);
    w.advance(TICK);
    assert_eq!(w.store.compact(all_tasks()).await?.tasks, 1);
    assert_eq!(w.store.task(task).await?, None);
    Ok(())
}

async fn a_removed_task_leaves_neither_key_nor_log_nor_count(w: World) -> Result<()> {
    let new = w.new_task("work").key("for ever".try_into()?);
    let (task, held) = w.claimed(new.clone()).await?;
    let line = NewLine::new(w.ids.line(), Level::Info, "said");
    w.store.write(log(&held, &[line])).await?;
    w.store.settle(held, complete()).await?;
    w.advance(DAY);
    assert_eq!(w.store.compact(all_tasks()).await?, removed(1));
    assert_eq!(w.store.task(task.id()).await?, None);
    assert_eq!(w.by_key("for ever").await?, None);
    assert_eq!(w.store.counts(Counts::default()).await?, []);
    assert_eq!(lines(&w, task.id()).await?, []);
    let again = NewTask {
        id: w.ids.task(),
        ..new.clone()
    };
    let submitted = w.store.submit(again.clone()).await?;
    assert_eq!(submitted.outcome, SubmitOutcome::Created);
    assert_eq!(submitted.id, again.id);
    w.store.cancel(again.id, None).await?;
    w.store.write(Write::DeleteTask(again.id)).await?;
    w.store.submit(new).await?;
    assert_eq!(w.status(task.id()).await?, Status::Pending);
    assert_eq!(lines(&w, task.id()).await?, []);
    Ok(())
}

/// Each of two handles uses the lane, as processes do, and either may remove its last task.
async fn a_lane_goes_with_its_last_task_and_comes_back_with_the_next(w: World) -> Result<()> {
    let mut second = w.clone();
    second.store = w.second().await?;
    let other = Lane::new("of a tenant", "kind")?;
    // Whoever has used the lane uses it again after the other has removed its last task.
    for _ in 0..2 {
        for (user, remover) in [(&w, &second), (&w, &second), (&second, &w), (&second, &w)] {
            let new = NewTask {
                lane: other.clone(),
                ..w.new_task("work")
            };
            let pending = LaneCounts {
                lane: other.clone(),
                by_status: BTreeMap::from([(Status::Pending, 1)]),
            };
            let id = user.store.submit(new).await?.id;
            for reader in [&w, &second] {
                let counts = reader.store.counts(Counts::default()).await?;
                assert_eq!(counts, std::slice::from_ref(&pending));
            }
            let peek = Peek {
                lanes: vec![other.clone()],
                limit: 2,
            };
            assert_eq!(remover.store.peek(peek).await?, [w.task(id).await?]);
            let claimed = user.claim_ids(&w.worker("worker")?, &[id]).await?;
            user.store
                .settle(holder(&claimed.tasks[0]), complete())
                .await?;
            w.advance(DAY);
            assert_eq!(remover.store.compact(all_tasks()).await?.tasks, 1);
            for reader in [&w, &second] {
                assert_eq!(reader.store.counts(Counts::default()).await?, []);
            }
        }
    }
    Ok(())
}

async fn a_key_that_was_given_to_another_task_stays_with_it(w: World) -> Result<()> {
    let keyed = || -> Result<NewTask> {
        let lifetime = KeyLifetime::WhileActive;
        Ok((w.new_task("work")).key_with("same".try_into()?, lifetime, OnConflict::Reject))
    };
    let old = run(&w, keyed()?, complete()).await?;
    let young = w.submit(keyed()?).await?;
    w.advance(DAY);
    assert_eq!(w.store.compact(all_tasks()).await?, removed(1));
    assert_eq!(w.store.task(old).await?, None);
    assert_eq!(w.by_key("same").await?, Some(young.clone()));
    let taken = Conflict::KeyTaken {
        key: "same".try_into()?,
        holder: young.id(),
        status: Status::Pending,
    };
    assert_eq!(conflict(w.store.submit(keyed()?).await), taken);
    Ok(())
}

async fn a_task_stays_while_its_key_stands_for_it_for_a_time(w: World) -> Result<()> {
    let keyed = || -> Result<NewTask> {
        let lifetime = KeyLifetime::For(DAY * 7);
        Ok((w.new_task("work")).key_with("a week".try_into()?, lifetime, OnConflict::Attach))
    };
    let start = w.now();
    let week = run(&w, keyed()?, complete()).await?;
    w.advance(Duration::from_secs(1));
    let plain = ended(&w, Status::Completed).await?;
    w.clock.jump_to(start.saturating_plus(DAY * 7 - TICK));
    // What must stay does not take the place of what may go.
    let compact = Compact {
        limit: 1,
        ..all_tasks()
    };
    assert_eq!(w.store.compact(compact.clone()).await?, removed(1));
    assert_eq!(kept(&w, &[week, plain]).await?, [true, false]);
    let finished = SubmitOutcome::ExistingFinished(Status::Completed);
    assert_eq!(w.store.submit(keyed()?).await?.outcome, finished);
    w.advance(DAY);
    assert_eq!(w.store.compact(compact.clone()).await?, removed(0));
    w.advance(TICK);
    assert_eq!(w.store.compact(compact).await?, removed(1));
    assert_eq!(w.store.task(week).await?, None);
    assert_eq!(w.by_key("a week").await?, None);
    Ok(())
}

async fn an_empty_namespace_has_nothing_to_remove(w: World) -> Result<()> {
    let compact = Compact {
        tasks: BTreeMap::from([(Status::Completed, Duration::ZERO)]),
        groups: Some(Duration::ZERO),
        history: Some(Duration::ZERO),
        logs: Some(Duration::ZERO),
        limit: 1,
    };
    let done = w.store.compact(compact.clone()).await?;
    assert_eq!(done, Compacted::default());
    let page = w.store.changes(Changes::after(Position::ZERO, 10)).await?;
    assert_eq!(page.entries, []);
    // What comes after that is not lost.
    let position = write(&w).await?;
    let entries = w.history().await?.entries;
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].position, position);
    Ok(())
}

async fn other_namespaces_are_left_alone(w: World) -> Result<()> {
    let there = w.elsewhere().await?;
    let task = w.new_task("same").key("same".try_into()?);
    let group = GroupId::new("same")?;
    let commit = Commit::of(Write::Merge(
        Merge::new(Key::new("same")?).add("n".try_into()?, 1),
    ))
    .id(w.ids.commit());
    let worlds: [&dyn Store; 2] = [w.store.as_ref(), there.as_ref()];
    for store in worlds {
        store.submit(task.clone()).await?;
        let claim = w.next(&w.worker("worker")?, 1);
        let claimed = store.claim(claim).await?.tasks;
        store.settle(holder(&claimed[0]), complete()).await?;
        let new = NewGroup::new(group.clone()).expecting(0);
        store.write(open(new)).await?;
        store.sweep(10, &w.ids).await?;
        store.commit_one(commit.clone()).await?;
    }
    let groups = || Groups {
        ids: vec![group.clone()],
    };
    let start = || Changes::after(Position::ZERO, 100);
    let before = (
        there.task(task.id).await?,
        there.groups(groups()).await?,
        there.changes(start()).await?,
        there.counts(Counts::default()).await?,
    );
    assert!(before.0.is_some() && before.1[0].is_some());
    assert_eq!(before.3[0].lane, lane());
    w.advance(DAY + LEASE);
    let compact = Compact {
        groups: Some(DAY),
        history: Some(DAY),
        ..all_tasks()
    };
    let done = w.store.compact(compact).await?;
    assert_eq!((done.tasks, done.groups, done.remembered), (1, 1, 2));
    assert_eq!(w.store.task(task.id).await?, None);
    let after = (
        there.task(task.id).await?,
        there.groups(groups()).await?,
        there.changes(start()).await?,
        there.counts(Counts::default()).await?,
    );
    assert_eq!(after, before);
    assert!(there.commit_one(commit).await?.repeated);
    Ok(())
}
