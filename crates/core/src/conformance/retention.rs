//! Retention: what has been kept long enough goes, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::conformance::world::{
    LEASE, World, complete, conflict, fail, holder, lane, steady_retry,
};
use crate::error::{Conflict, Error, NotFound, Result};
use crate::group::NewGroup;
use crate::ids::{Position, TaskId};
use crate::log::{Level, NewLine};
use crate::names::{GroupId, Key};
use crate::record::fields;
use crate::store::{
    Changes, Commit, Compact, Compacted, Counts, Ending, Groups, Log, Logs, Merge, Put, Retry,
    Start, Store, StoreExt, SubmitOutcome, Tasks, Write,
};
use crate::task::{KeyLifetime, NewTask, OnConflict, Status};

cases!["retention":
    a_finished_task_goes_exactly_when_it_is_old_enough,
    a_status_that_is_not_named_is_kept,
    the_oldest_go_first_up_to_the_limit,
    an_active_task_is_never_removed,
    a_task_that_runs_again_is_kept_and_its_age_begins_anew,
    a_removed_task_leaves_neither_key_nor_log_nor_count,
    a_key_that_was_given_to_another_task_stays_with_it,
    a_task_stays_while_its_key_stands_for_it_for_a_time,
    drained_groups_go_by_age_and_others_stay,
    a_member_of_a_removed_group_can_still_run_again,
    history_goes_from_its_old_end_by_age,
    history_goes_up_to_the_limit,
    history_written_after_the_clock_went_back_waits_for_what_is_before_it,
    compaction_appends_nothing_to_the_history,
    commit_ids_are_remembered_for_ten_minutes_and_then_forgotten,
    an_empty_namespace_has_nothing_to_remove,
    other_namespaces_are_left_alone,
];

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const TICK: Duration = Duration::from_millis(1);

fn nothing_but_a_limit() -> Compact {
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

fn all_tasks() -> Compact {
    tasks(&[Status::Completed, Status::Failed, Status::Cancelled])
}

fn history_of_a_day() -> Compact {
    Compact {
        history: Some(DAY),
        ..nothing_but_a_limit()
    }
}

fn removed(tasks: u64) -> Compacted {
    Compacted {
        tasks,
        ..Compacted::default()
    }
}

/// A task that ends now with this status.
async fn ended(w: &World, status: Status) -> Result<TaskId> {
    let how = match status {
        Status::Failed => fail("for good"),
        Status::Cancelled => Ending::Cancel { reason: None },
        _ => complete(),
    };
    let new = w.new_task("work").retry(steady_retry(1));
    end(w, new, how).await
}

async fn end(w: &World, new: NewTask, how: Ending) -> Result<TaskId> {
    let (task, held) = w.claimed(new).await?;
    w.store.settle(held, how).await?;
    Ok(task.id())
}

/// Which of these tasks are there.
async fn kept(w: &World, ids: &[TaskId]) -> Result<Vec<bool>> {
    let ids = ids.to_vec();
    let found = w.store.tasks(Tasks { ids }).await?;
    Ok(found.iter().map(Option::is_some).collect())
}

async fn has_group(w: &World, id: &str) -> Result<bool> {
    match w.group(id).await {
        Ok(_) => Ok(true),
        Err(Error::NotFound(NotFound::Group(_))) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn open(w: &World, new: NewGroup) -> Result<()> {
    w.store.write(Write::OpenGroup(Box::new(new))).await?;
    Ok(())
}

/// One entry for the history, always of the same key: for each key there is an order everywhere.
async fn write(w: &World) -> Result<Position> {
    let put = Put::new(Key::new("key")?, fields([("of", "retention")])?);
    let receipt = w.store.commit_one(Commit::of(Write::Put(put))).await?;
    Ok(receipt.position.unwrap_or_default())
}

/// The oldest position that a reader may go on from, as a reader who comes too late is told.
async fn oldest(w: &World, from: Position) -> Position {
    match w.store.changes(Changes::after(from, 10)).await {
        Err(Error::NotFound(NotFound::History { oldest })) => oldest,
        other => panic!("expected to be told where to go on, got {other:?}"),
    }
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
    let retry = Retry {
        task,
        force: true,
        delay: Duration::ZERO,
    };
    w.write_with_id(Write::Retry(retry)).await?;
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
    let log = Log {
        holder: held.clone(),
        lines: vec![line],
    };
    w.store.write(Write::Log(log)).await?;
    w.store.settle(held, complete()).await?;
    w.advance(DAY);
    assert_eq!(w.store.compact(all_tasks()).await?, removed(1));
    assert_eq!(w.store.task(task.id()).await?, None);
    assert_eq!(w.by_key("for ever").await?, None);
    assert_eq!(w.store.counts(Counts::default()).await?, []);
    let logs = Logs {
        task: task.id(),
        level: Level::Debug,
        cursor: None,
        limit: 10,
    };
    assert_eq!(w.store.logs(logs.clone()).await?.lines, []);
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
    assert_eq!(w.store.logs(logs).await?.lines, []);
    Ok(())
}

async fn a_key_that_was_given_to_another_task_stays_with_it(w: World) -> Result<()> {
    let keyed = || -> Result<NewTask> {
        let lifetime = KeyLifetime::WhileActive;
        Ok((w.new_task("work")).key_with("same".try_into()?, lifetime, OnConflict::Reject))
    };
    let old = end(&w, keyed()?, complete()).await?;
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
    let week = end(&w, keyed()?, complete()).await?;
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

async fn drained_groups_go_by_age_and_others_stay(w: World) -> Result<()> {
    let id = |text: &str| GroupId::new(text);
    for name in ["first", "second", "third", "reopened", "open", "waits"] {
        open(&w, NewGroup::new(id(name)?)).await?;
    }
    let waiting = w.new_task("member").group(id("waits")?);
    w.submit(waiting).await?;
    for name in ["third", "first", "second", "reopened", "waits"] {
        w.advance(Duration::from_secs(1));
        w.store.write(Write::Seal(id(name)?)).await?;
        has_group(&w, name).await?;
    }
    w.write_with_id(Write::Reopen(id("reopened")?)).await?;
    w.advance(DAY - Duration::from_secs(3));
    let compact = |limit| Compact {
        groups: Some(DAY),
        limit,
        ..Compact::default()
    };
    let removed = |groups, more| Compacted {
        groups,
        more,
        ..Compacted::default()
    };
    // The commit that opens a group again has an id, which is forgotten on the way.
    let left = |answer: Compacted| Compacted {
        remembered: 0,
        ..answer
    };
    // Of those that drained, "second" is a second too young.
    assert_eq!(left(w.store.compact(compact(1)).await?), removed(1, true));
    assert!(!has_group(&w, "third").await?);
    assert!(has_group(&w, "first").await?);
    assert_eq!(left(w.store.compact(compact(1)).await?), removed(1, false));
    assert!(!has_group(&w, "first").await?);
    w.advance(Duration::from_secs(1) - TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(0, false));
    w.advance(TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(1, false));
    assert!(!has_group(&w, "second").await?);
    w.advance(DAY * 1_000);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(0, false));
    for name in ["reopened", "open", "waits"] {
        assert!(has_group(&w, name).await?, "{name} is gone");
    }
    w.store.write(Write::Seal(id("reopened")?)).await?;
    has_group(&w, "reopened").await?;
    w.advance(DAY - TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(0, false));
    w.advance(TICK);
    assert_eq!(left(w.store.compact(compact(9)).await?), removed(1, false));
    assert!(!has_group(&w, "reopened").await?);
    Ok(())
}

async fn a_member_of_a_removed_group_can_still_run_again(w: World) -> Result<()> {
    let then = w.new_task("then");
    let group = GroupId::new("g")?;
    let new = NewGroup::new(group.clone()).expecting(1).then(then.clone());
    open(&w, new).await?;
    let member = w.new_task("member").retry(steady_retry(1)).group(group);
    let task = end(&w, member, fail("for good")).await?;
    assert!(has_group(&w, "g").await?);
    w.advance(DAY);
    let compact = Compact {
        groups: Some(DAY),
        ..nothing_but_a_limit()
    };
    assert_eq!(w.store.compact(compact).await?.groups, 1);
    assert_eq!(w.status(then.id).await?, Status::Pending);
    let retry = Retry {
        task,
        force: true,
        delay: Duration::ZERO,
    };
    w.write_with_id(Write::Retry(retry)).await?;
    let claimed = w.claim_ids(&w.worker("worker")?, &[task]).await?;
    w.store
        .settle(holder(&claimed.tasks[0]), complete())
        .await?;
    assert_eq!(w.status(task).await?, Status::Completed);
    assert_eq!(w.store.task(then.id.nth(1)).await?, None);
    assert!(!has_group(&w, "g").await?);
    Ok(())
}

async fn history_goes_from_its_old_end_by_age(w: World) -> Result<()> {
    let first = write(&w).await?;
    w.advance(Duration::from_secs(1));
    let second = write(&w).await?;
    w.advance(Duration::from_secs(1));
    let third = write(&w).await?;
    let before = w.history().await?;
    w.advance(DAY - Duration::from_secs(1) - TICK);
    let removed = |entries| Compacted {
        entries,
        ..Compacted::default()
    };
    let compact = || w.store.compact(history_of_a_day());
    assert_eq!(compact().await?, removed(1));
    w.advance(TICK);
    assert_eq!(compact().await?, removed(1));
    assert_eq!(compact().await?, removed(0));
    let young: Vec<_> = before.entries[2..].to_vec();
    assert_eq!(young[0].position, third);
    assert_eq!(w.history().await?.entries, young);
    let told = oldest(&w, Position::ZERO).await;
    assert_eq!(oldest(&w, first).await, told);
    assert!(second <= told && told < third, "{told} is not in between");
    for start in [told, second] {
        // The second entry itself is gone, but who has read it has missed nothing.
        let page = w.history_from(Start::After(start)).await?;
        assert_eq!(page.entries, young);
    }
    w.advance(DAY);
    assert_eq!(compact().await?, removed(1));
    assert_eq!(w.history().await?.entries, []);
    assert!(oldest(&w, second).await >= third);
    let fourth = write(&w).await?;
    assert!(fourth > third);
    let after = w.history_from(Start::After(third)).await?;
    let positions: Vec<Position> = after.entries.iter().map(|e| e.position).collect();
    assert_eq!(positions, [fourth]);
    Ok(())
}

async fn history_goes_up_to_the_limit(w: World) -> Result<()> {
    let mut positions = Vec::new();
    for _ in 0..5 {
        positions.push(write(&w).await?);
    }
    w.advance(DAY);
    let compact = Compact {
        limit: 2,
        ..history_of_a_day()
    };
    for (entries, more) in [(2, true), (2, true), (1, false)] {
        let expected = Compacted {
            entries,
            more,
            ..Compacted::default()
        };
        assert_eq!(w.store.compact(compact.clone()).await?, expected);
        positions.drain(..entries as usize);
        let left = w.history().await?.entries;
        let left: Vec<Position> = left.iter().map(|entry| entry.position).collect();
        assert_eq!(left, positions);
    }
    Ok(())
}

async fn history_written_after_the_clock_went_back_waits_for_what_is_before_it(
    w: World,
) -> Result<()> {
    let start = w.now();
    w.advance(DAY);
    write(&w).await?;
    w.clock.jump_to(start);
    write(&w).await?;
    let before = w.history().await?;
    w.clock.jump_to(start.saturating_plus(DAY + DAY / 2));
    let compact = || w.store.compact(history_of_a_day());
    assert_eq!(compact().await?, Compacted::default());
    assert_eq!(w.history().await?, before);
    w.clock.jump_to(start.saturating_plus(DAY * 2));
    assert_eq!(compact().await?.entries, 2);
    assert_eq!(w.history().await?.entries, []);
    Ok(())
}

async fn compaction_appends_nothing_to_the_history(w: World) -> Result<()> {
    ended(&w, Status::Completed).await?;
    open(&w, NewGroup::new(GroupId::new("g")?).expecting(0)).await?;
    assert!(has_group(&w, "g").await?);
    let before = w.history().await?;
    w.advance(DAY);
    let compact = Compact {
        groups: Some(DAY),
        ..all_tasks()
    };
    let done = w.store.compact(compact).await?;
    assert_eq!((done.tasks, done.groups, done.entries), (1, 1, 0));
    assert_eq!(w.history().await?, before);
    w.advance(TICK);
    let done = w.store.compact(history_of_a_day()).await?;
    assert_eq!(done.entries, before.entries.len() as u64);
    let empty = w.history().await?;
    assert_eq!((empty.entries, empty.next), (Vec::new(), before.next));
    Ok(())
}

async fn commit_ids_are_remembered_for_ten_minutes_and_then_forgotten(w: World) -> Result<()> {
    let add = |key: &str| -> Result<Commit> {
        let merge = Merge::new(Key::new(key)?).add("n".try_into()?, 1);
        Ok(Commit::of(Write::Merge(merge)).id(w.ids.commit()))
    };
    let commits = [add("a")?, add("b")?, add("c")?];
    for commit in &commits {
        w.store.commit_one(commit.clone()).await?;
    }
    w.advance(Duration::from_secs(10 * 60) - TICK);
    let compact = |limit| Compact {
        limit,
        ..Compact::default()
    };
    let done = w.store.compact(compact(100)).await?;
    assert_eq!(done, Compacted::default());
    for commit in &commits {
        assert!(w.store.commit_one(commit.clone()).await?.repeated);
    }
    w.advance(DAY);
    let forgotten = |remembered, more| Compacted {
        remembered,
        more,
        ..Compacted::default()
    };
    assert_eq!(w.store.compact(compact(2)).await?, forgotten(2, true));
    assert_eq!(w.store.compact(compact(2)).await?, forgotten(1, false));
    for commit in &commits {
        assert!(!w.store.commit_one(commit.clone()).await?.repeated);
        assert!(w.store.commit_one(commit.clone()).await?.repeated);
    }
    for key in ["a", "b", "c"] {
        let record = w.record(key).await?;
        let number = record.and_then(|record| record.field("n").cloned());
        assert_eq!(number, Some("2".into()));
    }
    Ok(())
}

async fn an_empty_namespace_has_nothing_to_remove(w: World) -> Result<()> {
    let compact = Compact {
        tasks: BTreeMap::from([(Status::Completed, Duration::ZERO)]),
        groups: Some(Duration::ZERO),
        history: Some(Duration::ZERO),
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
        store.write(Write::OpenGroup(Box::new(new))).await?;
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
