//! Groups: their definition, their seal, and what is told about them.

use std::time::Duration;

use crate::change::{Change, GroupEvent, TaskEvent};
use crate::conformance::act::{end, open_group};
use crate::conformance::observe::changes_since;
use crate::conformance::world::{World, complete, conflict, fail, steady_retry};
use crate::conformance::writes::{open, retry, submit};
use crate::error::{Conflict, NotFound, Result};
use crate::group::{Group, NewGroup};
use crate::ids::TaskId;
use crate::names::{GroupId, Key};
use crate::record::fields;
use crate::store::{Commit, GroupCounts, Guard, Outcome, Put, Start, StoreExt, Write};
use crate::task::{Lane, NewTask};

cases!["groups":
    a_group_begins_as_it_was_defined,
    opening_again_with_the_same_definition_changes_nothing,
    opening_again_with_another_definition_is_refused,
    sealing_again_changes_nothing,
    a_sealed_a_full_and_a_missing_group_take_no_members,
    the_guard_for_an_open_group_holds_only_while_it_takes_members,
    the_history_tells_what_happened_to_a_group_and_not_who_was_counted,
    receipts_carry_the_counts if JoinsInCommit,
];

pub(super) fn id(text: &str) -> Result<GroupId> {
    Ok(GroupId::new(text)?)
}

pub(super) fn group(text: &str) -> Result<NewGroup> {
    Ok(NewGroup::new(id(text)?))
}

/// A task that a group submits, in a queue of its own.
pub(super) fn follow_up(w: &World, payload: &'static str) -> Result<NewTask> {
    let task = NewTask::new(w.ids.task(), Lane::new("follow-up", "kind")?, payload);
    Ok(task.retry(steady_retry(1)))
}

/// A task that fails for good at once, as a member.
pub(super) fn member(w: &World, group: &str) -> Result<NewTask> {
    let task = w.new_task("member").retry(steady_retry(1));
    Ok(task.group(id(group)?))
}

pub(super) async fn seal(w: &World, group: &str) -> Result<Outcome> {
    w.store.write(Write::Seal(id(group)?)).await
}

pub(super) async fn spawn(w: &World, group: &str) -> Result<TaskId> {
    Ok(w.submit(member(w, group)?).await?.id())
}

/// Spawned, arrived, done, failed, cancelled.
fn counts(group: &Group) -> [u64; 5] {
    let Group {
        spawned,
        arrived,
        done,
        failed,
        cancelled,
        ..
    } = group;
    [*spawned, *arrived, *done, *failed, *cancelled]
}

/// Asserts the counts, and whether the group has drained.
pub(super) async fn assert_group(
    w: &World,
    group: &str,
    expected: [u64; 5],
    drained: bool,
) -> Result<Group> {
    let found = w.group(group).await?;
    let state = (counts(&found), found.drained_at.is_some());
    assert_eq!(state, (expected, drained), "{found:?}");
    Ok(found)
}

/// Asserts that groups have submitted these tasks so far, each once, and nothing else.
pub(super) async fn assert_followed(w: &World, expected: &[TaskId]) -> Result<()> {
    if !w.store.capabilities().joins_in_commit {
        w.sweep().await?;
    }
    let changes = changes_since(w, Start::Oldest).await?;
    let mut submitted: Vec<TaskId> = (changes.into_iter())
        .filter_map(|change| match change {
            Change::Task(task) if task.event == TaskEvent::Submitted => Some(task),
            _ => None,
        })
        .filter(|task| task.lane.queue.as_str() == "follow-up")
        .map(|task| task.id)
        .collect();
    let mut expected = expected.to_vec();
    submitted.sort_unstable();
    expected.sort_unstable();
    assert_eq!(submitted, expected);
    for task in expected {
        assert!(w.store.task(task).await?.is_some(), "{task} is not there");
    }
    Ok(())
}

pub(super) async fn group_events(w: &World, group: &str) -> Result<Vec<(u32, GroupEvent)>> {
    let changes = changes_since(w, Start::Oldest).await?;
    Ok((changes.into_iter())
        .filter_map(|change| match change {
            Change::Group {
                id,
                generation,
                event,
            } if id.as_str() == group => Some((generation, event)),
            _ => None,
        })
        .collect())
}

async fn a_group_begins_as_it_was_defined(w: World) -> Result<()> {
    let new = group("g")?
        .expecting(3)
        .then(follow_up(&w, "then")?)
        .on_first_failure(follow_up(&w, "alarm")?);
    let zero = GroupCounts {
        begun: 0,
        done: 0,
        failed: 0,
        drained: false,
        generation: 0,
    };
    assert_eq!(open_group(&w, new.clone()).await?, Outcome::Group(zero));
    let opened = w.group("g").await?;
    assert_eq!(opened, Group::new(new, opened.born, w.now()));
    assert_eq!(group_events(&w, "g").await?, [(0, GroupEvent::Opened)]);
    assert_followed(&w, &[]).await
}

async fn opening_again_with_the_same_definition_changes_nothing(w: World) -> Result<()> {
    let new = group("g")?.expecting(1).then(follow_up(&w, "then")?);
    open_group(&w, new.clone()).await?;
    let task = spawn(&w, "g").await?;
    for step in 0..4 {
        match step {
            1 => drop(end(&w, task, complete()).await?),
            2 => drop(w.write_with_id(Write::Reopen(id("g")?)).await?),
            3 => drop(seal(&w, "g").await?),
            _ => {}
        }
        let before = w.group("g").await?;
        let history = w.history().await?;
        w.advance(Duration::from_secs(1));
        open_group(&w, new.clone()).await?;
        assert_eq!(w.group("g").await?, before);
        assert_eq!(w.history().await?, history);
    }
    Ok(())
}

async fn opening_again_with_another_definition_is_refused(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.expecting(2).then(then).on_first_failure(alarm);
    open_group(&w, new.clone()).await?;
    let before = w.group("g").await?;
    let history = w.history().await?;
    let other = || -> Result<_> { Ok(Some(Box::new(follow_up(&w, "other")?))) };
    let (expected, then) = (new.expected, new.then.clone());
    let on_first_failure = new.on_first_failure.clone();
    let with = |expected, then, on_first_failure| NewGroup {
        extends: false,
        id: new.id.clone(),
        expected,
        then,
        on_first_failure,
    };
    for (field, differing) in [
        (
            "expected",
            with(Some(3), then.clone(), on_first_failure.clone()),
        ),
        (
            "expected",
            with(None, then.clone(), on_first_failure.clone()),
        ),
        ("then", with(expected, other()?, on_first_failure.clone())),
        ("then", with(expected, None, on_first_failure.clone())),
        ("on_first_failure", with(expected, then.clone(), other()?)),
        ("on_first_failure", with(expected, then.clone(), None)),
    ] {
        let commit = Commit::of(open(differing)).write(submit(member(&w, "g")?));
        let refused = Conflict::GroupDiffers {
            group: id("g")?,
            field: field.into(),
        };
        assert_eq!(conflict(w.store.commit_one(commit).await), refused);
    }
    assert_eq!(w.group("g").await?, before);
    assert_eq!(w.history().await?, history);
    Ok(())
}

async fn sealing_again_changes_nothing(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open_group(&w, group("g")?.then(then.clone())).await?;
    let task = spawn(&w, "g").await?;
    seal(&w, "g").await?;
    for drained in [false, true] {
        if drained {
            end(&w, task, complete()).await?;
        }
        let before = w.group("g").await?;
        let history = w.history().await?;
        w.advance(Duration::from_secs(1));
        seal(&w, "g").await?;
        assert_eq!(w.group("g").await?, before);
        assert_eq!(w.history().await?, history);
    }
    assert_followed(&w, &[then.id]).await?;
    let missing = w.store.write(Write::Seal(id("missing")?)).await;
    assert_eq!(missing, Err(NotFound::Group(id("missing")?).into()));
    Ok(())
}

async fn a_sealed_a_full_and_a_missing_group_take_no_members(w: World) -> Result<()> {
    open_group(&w, group("sealed")?).await?;
    spawn(&w, "sealed").await?;
    seal(&w, "sealed").await?;
    open_group(&w, group("full")?.expecting(1)).await?;
    spawn(&w, "full").await?;
    let before = (w.group("sealed").await?, w.group("full").await?);
    let history = w.history().await?;
    for (name, error) in [
        (
            "sealed",
            Conflict::GroupSealed {
                group: id("sealed")?,
            }
            .into(),
        ),
        (
            "full",
            Conflict::GroupFull {
                group: id("full")?,
                expected: 1,
            }
            .into(),
        ),
        ("missing", NotFound::Group(id("missing")?).into()),
    ] {
        let refused = member(&w, name)?;
        let commit = Commit::of(Write::Put(Put::new(
            Key::new("with")?,
            fields([("a", "b")])?,
        )))
        .write(submit(refused.clone()));
        assert_eq!(w.store.commit_one(commit).await, Err(error));
        assert_eq!(w.store.task(refused.id).await?, None);
        assert_eq!(w.record("with").await?, None);
    }
    let after = (w.group("sealed").await?, w.group("full").await?);
    assert_eq!(after, before);
    assert_eq!(w.history().await?, history);
    Ok(())
}

async fn the_guard_for_an_open_group_holds_only_while_it_takes_members(w: World) -> Result<()> {
    let guarded = || -> Result<Commit> {
        let put = Put::new(Key::new("guarded")?, fields([("a", "b")])?);
        Ok(Commit::of(Write::Put(put))
            .guard(Guard::RecordAbsent(Key::new("absent")?))
            .guard(Guard::GroupOpen(id("g")?)))
    };
    let broken = Conflict::Guard {
        index: 1,
        guard: Guard::GroupOpen(id("g")?),
    };
    assert_eq!(conflict(w.store.commit_one(guarded()?).await), broken);
    open_group(&w, group("g")?.expecting(1)).await?;
    w.store.commit_one(guarded()?).await?;
    let before = w.record("guarded").await?;
    let task = spawn(&w, "g").await?;
    assert_eq!(conflict(w.store.commit_one(guarded()?).await), broken);
    end(&w, task, complete()).await?;
    assert_group(&w, "g", [1, 0, 1, 0, 0], true).await?;
    assert_eq!(conflict(w.store.commit_one(guarded()?).await), broken);
    assert_eq!(w.record("guarded").await?, before);
    w.write_with_id(Write::Reopen(id("g")?)).await?;
    w.store.commit_one(guarded()?).await?;
    spawn(&w, "g").await?;
    seal(&w, "g").await?;
    assert_eq!(conflict(w.store.commit_one(guarded()?).await), broken);
    Ok(())
}

async fn the_history_tells_what_happened_to_a_group_and_not_who_was_counted(
    w: World,
) -> Result<()> {
    open_group(&w, group("g")?).await?;
    let (bad, good) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    w.write_with_id(Write::Arrive(id("g")?, 3)).await?;
    for task in [bad, good] {
        end(&w, task, fail("for good")).await?;
        w.group("g").await?;
    }
    seal(&w, "g").await?;
    w.group("g").await?;
    w.write_with_id(retry(good, true)).await?;
    end(&w, good, complete()).await?;
    w.group("g").await?;
    w.write_with_id(Write::Reopen(id("g")?)).await?;
    seal(&w, "g").await?;
    w.group("g").await?;
    w.store.write(Write::DeleteGroup(id("g")?)).await?;
    let expected = [
        (0, GroupEvent::Opened),
        (0, GroupEvent::FirstFailure),
        (0, GroupEvent::Sealed),
        (0, GroupEvent::Drained),
        (1, GroupEvent::Reopened),
        (1, GroupEvent::Drained),
        (2, GroupEvent::Reopened),
        (2, GroupEvent::Sealed),
        (2, GroupEvent::Drained),
        (2, GroupEvent::Deleted),
    ];
    assert_eq!(group_events(&w, "g").await?, expected);
    Ok(())
}

async fn receipts_carry_the_counts(w: World) -> Result<()> {
    let answer = |begun, done, failed, drained, generation| {
        Outcome::Group(GroupCounts {
            begun,
            done,
            failed,
            drained,
            generation,
        })
    };
    assert_eq!(
        open_group(&w, group("g")?).await?,
        answer(0, 0, 0, false, 0)
    );
    let (one, two) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, one, fail("for good")).await?;
    let arrived = w.write_with_id(Write::Arrive(id("g")?, 3)).await?;
    assert_eq!(arrived, answer(5, 4, 1, false, 0));
    assert_eq!(seal(&w, "g").await?, answer(5, 4, 1, false, 0));
    assert_eq!(seal(&w, "g").await?, answer(5, 4, 1, false, 0));
    end(&w, two, complete()).await?;
    assert_eq!(open_group(&w, group("g")?).await?, answer(5, 5, 1, true, 0));
    let reopened = w.write_with_id(Write::Reopen(id("g")?)).await?;
    assert_eq!(reopened, answer(5, 5, 1, false, 1));
    assert_eq!(seal(&w, "g").await?, answer(5, 5, 1, true, 1));
    let empty = open_group(&w, group("empty")?.expecting(0)).await?;
    assert_eq!(empty, answer(0, 0, 0, true, 0));
    Ok(())
}
