//! Members and arrivals: each is counted once, whatever becomes of it.

use std::time::Duration;

use crate::conformance::act::{end, open_group};
use crate::conformance::groups::{
    assert_followed, assert_group, follow_up, group, id, member, seal, spawn,
};
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, holder, steady_retry,
};
use crate::conformance::writes::{open, retry, settle, submit};
use crate::error::{Conflict, NotFound, Result};
use crate::limits::GROUP_MAX;
use crate::names::Key;
use crate::store::{
    Commit, Ending, List, Outcome, Selector, Start, StoreExt, SubmitOutcome, Write,
};
use crate::task::{KeyLifetime, NewTask, OnConflict, Status, Task};

cases!["group_members":
    a_member_is_counted_once_when_it_is_submitted,
    every_way_to_end_counts_a_member_once,
    a_member_that_will_run_again_is_not_done,
    a_replaced_member_is_done_and_its_replacement_is_a_member,
    arrivals_count_like_members_and_only_once,
    arrivals_beyond_what_is_expected_are_refused,
    members_of_a_deleted_group_end_without_being_counted_anywhere,
    members_are_listed_by_their_group,
    a_refused_commit_leaves_every_count_as_it_was,
];

async fn a_member_is_counted_once_when_it_is_submitted(w: World) -> Result<()> {
    open_group(&w, group("g")?).await?;
    let keyed = member(&w, "g")?.key("same".try_into()?);
    w.submit(keyed.clone()).await?;
    assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
    let repeated = w.store.submit(keyed.clone()).await?;
    assert_eq!(repeated.outcome, SubmitOutcome::Created);
    let attached = NewTask {
        id: w.ids.task(),
        ..keyed.clone()
    };
    let answer = w.store.submit(attached.clone()).await?;
    assert_eq!(answer.outcome, SubmitOutcome::Existing);
    assert_eq!(answer.id, keyed.id);
    assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
    spawn(&w, "g").await?;
    seal(&w, "g").await?;
    // Neither of these is a new member, so the seal does not concern them.
    w.store.submit(keyed).await?;
    w.store.submit(attached).await?;
    assert_group(&w, "g", [2, 0, 0, 0, 0], false).await?;
    Ok(())
}

async fn every_way_to_end_counts_a_member_once(w: World) -> Result<()> {
    open_group(&w, group("g")?).await?;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(w.claimed(member(&w, "g")?).await?.1);
    }
    let pending = spawn(&w, "g").await?;
    let later = member(&w, "g")?.after(Duration::from_secs(60 * 60));
    let scheduled = w.submit(later).await?.id();
    assert_group(&w, "g", [7, 0, 0, 0, 0], false).await?;
    let cancelled = || Ending::Cancel { reason: None };
    for (how, expected) in [
        (complete(), [7, 0, 1, 0, 0]),
        (fail("for good"), [7, 0, 2, 1, 0]),
        (cancelled(), [7, 0, 3, 1, 1]),
    ] {
        let held = tasks.remove(0);
        for _ in 0..2 {
            w.store.settle(held.clone(), how.clone()).await?;
            assert_group(&w, "g", expected, false).await?;
        }
    }
    for (task, expected) in [(pending, [7, 0, 4, 1, 2]), (scheduled, [7, 0, 5, 1, 3])] {
        for _ in 0..2 {
            w.store.cancel(task, None).await?;
            assert_group(&w, "g", expected, false).await?;
        }
    }
    w.store.cancel(tasks[0].task, None).await?;
    assert_group(&w, "g", [7, 0, 5, 1, 3], false).await?;
    w.advance(LEASE);
    for _ in 0..2 {
        w.sweep().await?;
        assert_group(&w, "g", [7, 0, 7, 2, 4], false).await?;
    }
    assert_eq!(w.status(tasks[0].task).await?, Status::Cancelled);
    assert_eq!(w.status(tasks[1].task).await?, Status::Failed);
    w.store.write(Write::DeleteTask(pending)).await?;
    assert_group(&w, "g", [7, 0, 7, 2, 4], false).await?;
    Ok(())
}

async fn a_member_that_will_run_again_is_not_done(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    let alarm = follow_up(&w, "alarm")?;
    let new = group("g")?
        .then(then.clone())
        .on_first_failure(alarm.clone());
    open_group(&w, new).await?;
    let task = w.submit(w.new_task("member").group(id("g")?).retry(steady_retry(2)));
    let task = task.await?.id();
    seal(&w, "g").await?;
    let delay = Duration::from_secs(1);
    for how in [
        fail("once more"),
        Ending::Snooze { delay },
        Ending::Release { reason: None },
    ] {
        end(&w, task, how).await?;
        assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
        w.advance(RETRY_DELAY);
        w.sweep().await?;
    }
    w.claim_ids(&w.worker("worker")?, &[task]).await?;
    w.write_with_id(retry(task, true)).await?;
    assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
    assert_followed(&w, &[]).await?;
    end(&w, task, fail("for good")).await?;
    assert_group(&w, "g", [1, 0, 1, 1, 0], true).await?;
    assert_followed(&w, &[alarm.id, then.id]).await
}

async fn a_replaced_member_is_done_and_its_replacement_is_a_member(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open_group(&w, group("g")?.then(then.clone())).await?;
    let replacing = || -> Result<NewTask> {
        let policy = OnConflict::CancelAndReplace;
        Ok(member(&w, "g")?.key_with("same".try_into()?, KeyLifetime::Forever, policy))
    };
    w.submit(replacing()?).await?;
    let second = w.submit(replacing()?).await?.id();
    assert_group(&w, "g", [2, 0, 1, 0, 1], false).await?;
    let held = holder(&w.claim_ids(&w.worker("w")?, &[second]).await?.tasks[0]);
    let third = w.submit(replacing()?).await?.id();
    assert_group(&w, "g", [3, 0, 1, 0, 1], false).await?;
    seal(&w, "g").await?;
    let sealed = Conflict::GroupSealed { group: id("g")? };
    assert_eq!(conflict(w.store.submit(replacing()?).await), sealed);
    assert_eq!(w.status(third).await?, Status::Scheduled);
    assert_group(&w, "g", [3, 0, 1, 0, 1], false).await?;
    w.store.settle(held, fail("stopped")).await?;
    assert_group(&w, "g", [3, 0, 2, 0, 2], false).await?;
    end(&w, third, complete()).await?;
    assert_group(&w, "g", [3, 0, 3, 0, 2], true).await?;
    assert_followed(&w, &[then.id]).await
}

async fn arrivals_count_like_members_and_only_once(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open_group(&w, group("g")?.expecting(7).then(then.clone())).await?;
    let task = spawn(&w, "g").await?;
    let arrive = Commit::of(Write::Arrive(id("g")?, 4)).id(w.ids.commit());
    let first = w.store.commit_one(arrive.clone()).await?;
    assert!(!first.repeated);
    assert_group(&w, "g", [1, 4, 4, 0, 0], false).await?;
    let repeated = w.store.commit_one(arrive).await?;
    assert!(repeated.repeated);
    assert_eq!(repeated.outcomes, first.outcomes);
    assert_group(&w, "g", [1, 4, 4, 0, 0], false).await?;
    end(&w, task, fail("for good")).await?;
    assert_group(&w, "g", [1, 4, 5, 1, 0], false).await?;
    assert_followed(&w, &[]).await?;
    w.write_with_id(Write::Arrive(id("g")?, 2)).await?;
    assert_group(&w, "g", [1, 6, 7, 1, 0], true).await?;
    assert_followed(&w, &[then.id]).await
}

async fn arrivals_beyond_what_is_expected_are_refused(w: World) -> Result<()> {
    open_group(&w, group("g")?.expecting(5)).await?;
    spawn(&w, "g").await?;
    w.write_with_id(Write::Arrive(id("g")?, 2)).await?;
    let before = w.group("g").await?;
    let full = Conflict::GroupFull {
        group: id("g")?,
        expected: 5,
    };
    for number in [3, GROUP_MAX] {
        let answer = w.write_with_id(Write::Arrive(id("g")?, number)).await;
        assert_eq!(conflict(answer), full);
    }
    assert_eq!(w.group("g").await?, before);
    let missing = w.write_with_id(Write::Arrive(id("missing")?, 1)).await;
    assert_eq!(missing, Err(NotFound::Group(id("missing")?).into()));
    seal(&w, "g").await?;
    let sealed = Conflict::GroupSealed { group: id("g")? };
    let answer = w.write_with_id(Write::Arrive(id("g")?, 1)).await;
    assert_eq!(conflict(answer), sealed);
    assert_group(&w, "g", [1, 2, 2, 0, 0], false).await?;
    Ok(())
}

async fn members_of_a_deleted_group_end_without_being_counted_anywhere(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    let new = group("g")?.then(then.clone());
    open_group(&w, new.clone()).await?;
    let (old, failed) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, failed, fail("for good")).await?;
    let delete = Write::DeleteGroup(id("g")?);
    let existed = |existed| Outcome::Removed { existed };
    assert_eq!(w.store.write(delete.clone()).await?, existed(true));
    assert_eq!(w.store.write(delete).await?, existed(false));
    let missing = w.group("g").await;
    assert_eq!(missing, Err(NotFound::Group(id("g")?).into()));
    w.write_with_id(retry(failed, true)).await?;
    end(&w, failed, complete()).await?;
    assert_eq!(w.status(failed).await?, Status::Completed);
    open_group(&w, new).await?;
    let young = spawn(&w, "g").await?;
    seal(&w, "g").await?;
    end(&w, old, complete()).await?;
    assert_eq!(w.status(old).await?, Status::Completed);
    assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
    assert_followed(&w, &[]).await?;
    end(&w, young, complete()).await?;
    assert_group(&w, "g", [1, 0, 1, 0, 0], true).await?;
    assert_followed(&w, &[then.id]).await
}

async fn members_are_listed_by_their_group(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?.group(id("outer")?);
    open_group(&w, group("outer")?).await?;
    open_group(&w, group("g")?.then(then.clone())).await?;
    w.submit(w.new_task("no member")).await?;
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(spawn(&w, "g").await?);
    }
    let listed = |name: &'static str| {
        let w = w.clone();
        async move {
            let (mut found, mut cursor) = (Vec::new(), None);
            loop {
                let list = List {
                    cursor,
                    ..List::new(Selector::Group(id(name)?), 2)
                };
                let page = w.store.list(list).await?;
                assert!(page.rows.len() <= 2, "more than asked: {page:?}");
                found.extend(page.rows.iter().map(Task::id));
                cursor = page.next;
                if cursor.is_none() {
                    return Ok::<_, crate::Error>(found);
                }
            }
        }
    };
    assert_eq!(listed("g").await?, tasks);
    assert_eq!(listed("outer").await?, []);
    for task in &tasks {
        end(&w, *task, complete()).await?;
    }
    seal(&w, "g").await?;
    assert_followed(&w, &[then.id]).await?;
    assert_eq!(listed("g").await?, tasks);
    assert_eq!(listed("outer").await?, [then.id]);
    assert_eq!(listed("missing").await?, []);
    Ok(())
}

async fn a_refused_commit_leaves_every_count_as_it_was(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open_group(&w, group("g")?.then(then)).await?;
    let (task, held) = w.claimed(member(&w, "g")?).await?;
    let before = w.group("g").await?;
    let history = w.history().await?.next;
    let spawned = member(&w, "g")?;
    let missing = Key::new("missing")?;
    let commit = Commit::of(submit(spawned.clone()))
        .write(settle(&held, fail("for good")))
        .write(Write::Arrive(id("g")?, 2))
        .write(Write::Seal(id("g")?))
        .write(open(group("other")?))
        .write(Write::Touch(missing.clone(), None));
    let answers = w.store.commit(vec![commit]).await;
    assert_eq!(answers, [Err(NotFound::Record(missing).into())]);
    assert_eq!(w.group("g").await?, before);
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.store.task(spawned.id).await?, None);
    let other = w.group("other").await;
    assert_eq!(other, Err(NotFound::Group(id("other")?).into()));
    let since = w.history_from(Start::After(history)).await?;
    assert_eq!(since.entries, []);
    Ok(())
}
