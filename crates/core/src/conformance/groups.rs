//! Groups: every member is counted once, and what follows is submitted once.

use std::time::Duration;

use crate::change::{Change, GroupEvent, TaskEvent};
use crate::conformance::parallel;
use crate::conformance::world::{
    LEASE, RETRY_DELAY, World, complete, conflict, fail, holder, name, steady_retry,
};
use crate::error::{Conflict, NotFound, Result};
use crate::group::{Group, NewGroup};
use crate::ids::{Fingerprint, TaskId};
use crate::limits::GROUP_MAX;
use crate::names::{GroupId, Key};
use crate::record::fields;
use crate::store::{
    Commit, Ending, GroupCounts, Guard, List, Outcome, Put, Retry, Selector, Settle, Start,
    StoreExt, SubmitOutcome, Write,
};
use crate::task::{
    Due, Holder, KeyLifetime, Lane, NewTask, OnConflict, Priority, Status, Task, TaskSpec,
};

cases!["groups":
    a_group_begins_as_it_was_defined,
    opening_again_with_the_same_definition_changes_nothing,
    opening_again_with_another_definition_is_refused,
    a_member_is_counted_once_when_it_is_submitted,
    every_way_to_end_counts_a_member_once,
    a_member_that_will_run_again_is_not_done,
    a_replaced_member_is_done_and_its_replacement_is_a_member,
    a_group_of_unknown_size_drains_only_once_it_is_sealed,
    a_group_that_expects_a_number_drains_without_a_seal,
    a_seal_before_all_expected_have_come_ends_the_wait_for_them,
    the_seal_and_the_last_member_drain_a_group_once_in_either_order,
    the_seal_and_the_last_members_at_the_same_time_drain_a_group_once,
    a_group_with_nothing_to_wait_for_drains_at_once,
    the_follow_up_is_submitted_in_the_commit_that_drains if JoinsInCommit,
    the_follow_up_is_submitted_as_it_was_defined,
    the_first_failure_is_answered_once_though_several_fail,
    sealing_again_changes_nothing,
    a_sealed_a_full_and_a_missing_group_take_no_members,
    arrivals_count_like_members_and_only_once,
    arrivals_beyond_what_is_expected_are_refused,
    a_drained_group_opens_again_as_a_new_generation,
    reopening_and_tallying_what_has_not_drained_changes_nothing,
    a_member_that_runs_again_after_the_drain_begins_a_new_generation,
    a_member_that_runs_again_before_the_drain_is_outstanding_again,
    an_outer_group_waits_for_the_follow_up_of_an_inner_one,
    an_inner_group_needs_an_outer_one_that_has_not_drained,
    a_member_may_leave_an_inner_group_in_its_place_though_the_outer_one_is_complete,
    an_outer_group_waits_again_when_an_inner_one_is_opened_again,
    an_outer_group_that_waits_again_can_still_be_opened_with_its_definition,
    members_of_a_deleted_group_end_without_being_counted_anywhere,
    deleting_an_inner_group_gives_up_its_place_in_the_outer_one,
    a_follow_up_whose_id_is_taken_is_given_up,
    the_guard_for_an_open_group_holds_only_while_it_takes_members,
    two_hundred_members_with_any_end_drain_a_group_once,
    members_are_listed_by_their_group,
    the_history_tells_what_happened_to_a_group_and_not_who_was_counted,
    the_last_two_members_in_one_call_drain_a_group_once,
    a_refused_commit_leaves_every_count_as_it_was,
    receipts_carry_the_counts if JoinsInCommit,
];

fn id(text: &str) -> Result<GroupId> {
    Ok(GroupId::new(text)?)
}

fn group(text: &str) -> Result<NewGroup> {
    Ok(NewGroup::new(id(text)?))
}

/// A task that a group submits, in a queue of its own.
fn follow_up(w: &World, payload: &'static str) -> Result<NewTask> {
    let task = NewTask::new(w.ids.task(), Lane::new("follow-up", "kind")?, payload);
    Ok(task.retry(steady_retry(1)))
}

/// A task that fails for good at once, as a member.
fn member(w: &World, group: &str) -> Result<NewTask> {
    let task = w.new_task("member").retry(steady_retry(1));
    Ok(task.group(id(group)?))
}

async fn open(w: &World, new: NewGroup) -> Result<Outcome> {
    w.store.write(Write::OpenGroup(Box::new(new))).await
}

async fn seal(w: &World, group: &str) -> Result<Outcome> {
    w.store.write(Write::Seal(id(group)?)).await
}

async fn spawn(w: &World, group: &str) -> Result<TaskId> {
    Ok(w.submit(member(w, group)?).await?.id())
}

async fn end(w: &World, task: TaskId, how: Ending) -> Result<()> {
    let claimed = w.claim_ids(&w.worker("worker")?, &[task]).await?;
    let held = holder(&claimed.tasks[0]);
    w.store.settle(held, how).await?;
    Ok(())
}

fn settle(holder: &Holder, how: Ending) -> Write {
    Write::Settle(Settle {
        holder: holder.clone(),
        how,
    })
}

fn again(task: TaskId) -> Write {
    Write::Retry(Retry {
        task,
        force: true,
        delay: Duration::ZERO,
    })
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
async fn assert_group(w: &World, group: &str, expected: [u64; 5], drained: bool) -> Result<Group> {
    let found = w.group(group).await?;
    let state = (counts(&found), found.drained_at.is_some());
    assert_eq!(state, (expected, drained), "{found:?}");
    Ok(found)
}

/// Asserts that groups have submitted these tasks so far, each once, and nothing else.
async fn assert_followed(w: &World, expected: &[TaskId]) -> Result<()> {
    if !w.store.capabilities().joins_in_commit {
        w.sweep().await?;
    }
    let changes = w.history().await?.entries.into_iter();
    let mut submitted: Vec<TaskId> = (changes.flat_map(|entry| entry.changes))
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

async fn group_events(w: &World, group: &str) -> Result<Vec<(u32, GroupEvent)>> {
    let changes = w.history().await?.entries.into_iter();
    Ok((changes.flat_map(|entry| entry.changes))
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
    assert_eq!(open(&w, new.clone()).await?, Outcome::Group(zero));
    let opened = w.group("g").await?;
    assert_eq!(opened, Group::new(new, opened.born, w.now()));
    assert_eq!(group_events(&w, "g").await?, [(0, GroupEvent::Opened)]);
    assert_followed(&w, &[]).await
}

async fn opening_again_with_the_same_definition_changes_nothing(w: World) -> Result<()> {
    let new = group("g")?.expecting(1).then(follow_up(&w, "then")?);
    open(&w, new.clone()).await?;
    let task = spawn(&w, "g").await?;
    for step in 0..4 {
        match step {
            1 => end(&w, task, complete()).await?,
            2 => drop(w.write_with_id(Write::Reopen(id("g")?)).await?),
            3 => drop(seal(&w, "g").await?),
            _ => {}
        }
        let before = w.group("g").await?;
        let history = w.history().await?;
        w.advance(Duration::from_secs(1));
        open(&w, new.clone()).await?;
        assert_eq!(w.group("g").await?, before);
        assert_eq!(w.history().await?, history);
    }
    Ok(())
}

async fn opening_again_with_another_definition_is_refused(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.expecting(2).then(then).on_first_failure(alarm);
    open(&w, new.clone()).await?;
    let before = w.group("g").await?;
    let history = w.history().await?;
    let other = || -> Result<_> { Ok(Some(Box::new(follow_up(&w, "other")?))) };
    let (expected, then) = (new.expected, new.then.clone());
    let on_first_failure = new.on_first_failure.clone();
    let with = |expected, then, on_first_failure| NewGroup {
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
        let commit = Commit::of(Write::OpenGroup(Box::new(differing)))
            .write(Write::Submit(Box::new(member(&w, "g")?)));
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

async fn a_member_is_counted_once_when_it_is_submitted(w: World) -> Result<()> {
    open(&w, group("g")?).await?;
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
    open(&w, group("g")?).await?;
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
    open(&w, new).await?;
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
    w.write_with_id(again(task)).await?;
    assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
    assert_followed(&w, &[]).await?;
    end(&w, task, fail("for good")).await?;
    assert_group(&w, "g", [1, 0, 1, 1, 0], true).await?;
    assert_followed(&w, &[alarm.id, then.id]).await
}

async fn a_replaced_member_is_done_and_its_replacement_is_a_member(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.then(then.clone())).await?;
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

async fn a_group_of_unknown_size_drains_only_once_it_is_sealed(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.then(then.clone())).await?;
    for chunk in 1..=3 {
        let tasks = [spawn(&w, "g").await?, spawn(&w, "g").await?];
        for task in tasks {
            end(&w, task, complete()).await?;
        }
        assert_group(&w, "g", [2 * chunk, 0, 2 * chunk, 0, 0], false).await?;
    }
    assert_followed(&w, &[]).await?;
    let last = spawn(&w, "g").await?;
    seal(&w, "g").await?;
    let sealed = assert_group(&w, "g", [7, 0, 6, 0, 0], false).await?;
    assert!(sealed.sealed);
    end(&w, last, complete()).await?;
    let drained = assert_group(&w, "g", [7, 0, 7, 0, 0], true).await?;
    assert_eq!(drained.drained_at, Some(w.now()));
    assert_followed(&w, &[then.id]).await
}

async fn a_group_that_expects_a_number_drains_without_a_seal(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.expecting(2).then(then.clone())).await?;
    let first = spawn(&w, "g").await?;
    end(&w, first, complete()).await?;
    assert_group(&w, "g", [1, 0, 1, 0, 0], false).await?;
    let second = spawn(&w, "g").await?;
    assert_group(&w, "g", [2, 0, 1, 0, 0], false).await?;
    assert_followed(&w, &[]).await?;
    end(&w, second, complete()).await?;
    let drained = assert_group(&w, "g", [2, 0, 2, 0, 0], true).await?;
    assert!(!drained.sealed);
    w.advance(Duration::from_secs(1));
    seal(&w, "g").await?;
    w.store.write(Write::Tally(id("g")?)).await?;
    let sealed = assert_group(&w, "g", [2, 0, 2, 0, 0], true).await?;
    assert_eq!(sealed.drained_at, drained.drained_at);
    let events = [GroupEvent::Opened, GroupEvent::Drained, GroupEvent::Sealed];
    assert_eq!(group_events(&w, "g").await?, events.map(|event| (0, event)));
    assert_followed(&w, &[then.id]).await
}

async fn a_seal_before_all_expected_have_come_ends_the_wait_for_them(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.expecting(5).then(then.clone())).await?;
    let task = spawn(&w, "g").await?;
    seal(&w, "g").await?;
    assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
    end(&w, task, complete()).await?;
    assert_group(&w, "g", [1, 0, 1, 0, 0], true).await?;
    assert_followed(&w, &[then.id]).await
}

async fn the_seal_and_the_last_member_drain_a_group_once_in_either_order(w: World) -> Result<()> {
    let mut followed = Vec::new();
    for (name, seal_first, together) in [
        ("a", true, true),
        ("b", true, false),
        ("c", false, true),
        ("d", false, false),
    ] {
        let then = follow_up(&w, "then")?;
        followed.push(then.id);
        open(&w, group(name)?.then(then)).await?;
        let (_, held) = w.claimed(member(&w, name)?).await?;
        let mut writes = [Write::Seal(id(name)?), settle(&held, complete())];
        if !seal_first {
            writes.reverse();
        }
        let commits = if together {
            vec![writes.into_iter().fold(Commit::new(), Commit::write)]
        } else {
            writes.map(Commit::of).to_vec()
        };
        for answer in w.store.commit(commits).await {
            answer?;
        }
        assert_group(&w, name, [1, 0, 1, 0, 0], true).await?;
        assert_followed(&w, &followed).await?;
    }
    Ok(())
}

async fn the_seal_and_the_last_members_at_the_same_time_drain_a_group_once(w: World) -> Result<()> {
    let mut handles = Vec::new();
    for _ in 0..4 {
        handles.push(w.second().await?);
    }
    let mut followed = Vec::new();
    for round in 0..10 {
        let name = format!("g{round}");
        let then = follow_up(&w, "then")?;
        followed.push(then.id);
        open(&w, group(&name)?.then(then)).await?;
        let mut commits = vec![Commit::of(Write::Seal(id(&name)?))];
        for _ in 0..3 {
            let (_, held) = w.claimed(member(&w, &name)?).await?;
            commits.push(Commit::of(settle(&held, complete())));
        }
        let racers = commits.into_iter().zip(&handles).map(|(commit, store)| {
            let store = store.clone();
            async move { store.commit_one(commit).await }
        });
        for answer in parallel(racers).await {
            answer?;
        }
        assert_group(&w, &name, [3, 0, 3, 0, 0], true).await?;
    }
    assert_followed(&w, &followed).await
}

async fn a_group_with_nothing_to_wait_for_drains_at_once(w: World) -> Result<()> {
    let (one, two) = (follow_up(&w, "one")?, follow_up(&w, "two")?);
    open(&w, group("empty")?.then(one.clone())).await?;
    assert_group(&w, "empty", [0; 5], false).await?;
    assert_followed(&w, &[]).await?;
    seal(&w, "empty").await?;
    assert_group(&w, "empty", [0; 5], true).await?;
    assert_followed(&w, &[one.id]).await?;
    open(&w, group("nothing")?.expecting(0).then(two.clone())).await?;
    let drained = assert_group(&w, "nothing", [0; 5], true).await?;
    assert_eq!(drained.drained_at, Some(w.now()));
    assert_followed(&w, &[one.id, two.id]).await?;
    let events = [(0, GroupEvent::Opened), (0, GroupEvent::Drained)];
    assert_eq!(group_events(&w, "nothing").await?, events);
    Ok(())
}

async fn the_follow_up_is_submitted_in_the_commit_that_drains(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.expecting(1).then(then.clone())).await?;
    let (task, held) = w.claimed(member(&w, "g")?).await?;
    let commit = Commit::of(settle(&held, complete()));
    let receipt = w.store.commit_one(commit).await?;
    assert_eq!(w.status(then.id).await?, Status::Pending);
    let entries = w.history().await?.entries;
    let entry = entries
        .iter()
        .find(|e| Some(e.position) == receipt.position);
    let changes = entry.map(|entry| entry.changes.as_slice());
    let Some([Change::Task(ended), drained, Change::Task(submitted)]) = changes else {
        panic!("expected an end, a drain and a submit, got {changes:?}");
    };
    assert_eq!(ended.id, task.id());
    assert_eq!(ended.event, TaskEvent::Completed);
    let expected = Change::Group {
        id: id("g")?,
        generation: 0,
        event: GroupEvent::Drained,
    };
    assert_eq!(*drained, expected);
    assert_eq!(submitted.id, then.id);
    assert_eq!(submitted.event, TaskEvent::Submitted);
    Ok(())
}

async fn the_follow_up_is_submitted_as_it_was_defined(w: World) -> Result<()> {
    let delay = Duration::from_secs(7);
    let then = NewTask {
        payload: "\u{0}exactly this'\"".into(),
        priority: Priority::HIGHEST,
        due: Due::After(delay),
        owner: Some(name("owner")?),
        labels: [(name("label")?, name("value")?)].into(),
        retry: steady_retry(7),
        attempt_timeout: Some(Duration::from_secs(9)),
        first_stage: Some(name("stage")?),
        on_failure: Some(Box::new(w.new_task("on failure"))),
        trace: Some("00-trace-01".into()),
        ..follow_up(&w, "then")?
    };
    open(&w, group("g")?.expecting(1).then(then.clone())).await?;
    let task = spawn(&w, "g").await?;
    w.advance(Duration::from_secs(3));
    end(&w, task, complete()).await?;
    assert_followed(&w, &[then.id]).await?;
    let found = w.task(then.id).await?;
    let spec = TaskSpec {
        id: then.id,
        lane: then.lane,
        fingerprint: Fingerprint::of(&then.payload),
        payload: then.payload,
        key: None,
        group: None,
        group_born: None,
        owner: then.owner,
        labels: then.labels,
        retry: then.retry,
        attempt_timeout: then.attempt_timeout,
        first_stage: then.first_stage,
        on_failure: then.on_failure,
        trace: then.trace,
        created_at: w.now(),
    };
    assert_eq!(*found.spec, spec);
    let state = (found.status, found.priority, found.runnable_at);
    let due_at = w.now().saturating_plus(delay);
    assert_eq!(state, (Status::Scheduled, Priority::HIGHEST, due_at));
    Ok(())
}

async fn the_first_failure_is_answered_once_though_several_fail(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.expecting(4);
    open(&w, new.then(then.clone()).on_first_failure(alarm.clone())).await?;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(spawn(&w, "g").await?);
    }
    w.store.cancel(tasks[0], None).await?;
    let none = assert_group(&w, "g", [4, 0, 1, 0, 1], false).await?;
    assert_eq!(none.first_failure, None);
    assert_followed(&w, &[]).await?;
    for (task, expected) in [(tasks[2], [4, 0, 2, 1, 1]), (tasks[1], [4, 0, 3, 2, 1])] {
        end(&w, task, fail("for good")).await?;
        let failed = assert_group(&w, "g", expected, false).await?;
        assert_eq!(failed.first_failure, Some(tasks[2]));
        assert_followed(&w, &[alarm.id]).await?;
    }
    end(&w, tasks[3], fail("for good")).await?;
    assert_group(&w, "g", [4, 0, 4, 3, 1], true).await?;
    assert_eq!(w.task(alarm.id).await?.spec.payload, "alarm");
    assert_followed(&w, &[alarm.id, then.id]).await
}

async fn sealing_again_changes_nothing(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.then(then.clone())).await?;
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
    open(&w, group("sealed")?).await?;
    spawn(&w, "sealed").await?;
    seal(&w, "sealed").await?;
    open(&w, group("full")?.expecting(1)).await?;
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
        .write(Write::Submit(Box::new(refused.clone())));
        assert_eq!(w.store.commit_one(commit).await, Err(error));
        assert_eq!(w.store.task(refused.id).await?, None);
        assert_eq!(w.record("with").await?, None);
    }
    let after = (w.group("sealed").await?, w.group("full").await?);
    assert_eq!(after, before);
    assert_eq!(w.history().await?, history);
    Ok(())
}

async fn arrivals_count_like_members_and_only_once(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.expecting(7).then(then.clone())).await?;
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
    open(&w, group("g")?.expecting(5)).await?;
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

async fn a_drained_group_opens_again_as_a_new_generation(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.expecting(1);
    open(&w, new.then(then.clone()).on_first_failure(alarm.clone())).await?;
    let first = spawn(&w, "g").await?;
    end(&w, first, fail("for good")).await?;
    assert_group(&w, "g", [1, 0, 1, 1, 0], true).await?;
    let reopen = Commit::of(Write::Reopen(id("g")?)).id(w.ids.commit());
    w.store.commit_one(reopen.clone()).await?;
    assert!(w.store.commit_one(reopen).await?.repeated);
    let opened = assert_group(&w, "g", [1, 0, 1, 1, 0], false).await?;
    let state = (opened.generation, opened.sealed, opened.first_failure);
    assert_eq!(state, (1, false, None));
    let (second, third) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, second, fail("for good")).await?;
    end(&w, third, complete()).await?;
    assert_group(&w, "g", [3, 0, 3, 2, 0], false).await?;
    assert_followed(&w, &[alarm.id, then.id, alarm.id.nth(1)]).await?;
    seal(&w, "g").await?;
    let drained = assert_group(&w, "g", [3, 0, 3, 2, 0], true).await?;
    assert_eq!(drained.generation, 1);
    let followed = [alarm.id, then.id, alarm.id.nth(1), then.id.nth(1)];
    assert_followed(&w, &followed).await?;
    assert_eq!(w.task(then.id.nth(1)).await?.spec.payload, "then");
    Ok(())
}

async fn reopening_and_tallying_what_has_not_drained_changes_nothing(w: World) -> Result<()> {
    open(&w, group("g")?.then(follow_up(&w, "then")?)).await?;
    spawn(&w, "g").await?;
    w.write_with_id(Write::Arrive(id("g")?, 1)).await?;
    seal(&w, "g").await?;
    let before = w.group("g").await?;
    let history = w.history().await?;
    w.advance(Duration::from_secs(1));
    w.write_with_id(Write::Reopen(id("g")?)).await?;
    w.store.write(Write::Tally(id("g")?)).await?;
    assert_eq!(w.group("g").await?, before);
    assert_eq!(w.history().await?, history);
    for write in [Write::Reopen(id("missing")?), Write::Tally(id("missing")?)] {
        let missing = w.write_with_id(write).await;
        assert_eq!(missing, Err(NotFound::Group(id("missing")?).into()));
    }
    assert_followed(&w, &[]).await
}

async fn a_member_that_runs_again_after_the_drain_begins_a_new_generation(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.then(then.clone());
    open(&w, new.on_first_failure(alarm.clone())).await?;
    let (bad, good) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, bad, fail("for good")).await?;
    w.store.cancel(good, None).await?;
    seal(&w, "g").await?;
    assert_group(&w, "g", [2, 0, 2, 1, 1], true).await?;
    w.write_with_id(again(bad)).await?;
    let waits = assert_group(&w, "g", [2, 0, 1, 0, 1], false).await?;
    let state = (waits.generation, waits.sealed, waits.first_failure);
    assert_eq!(state, (1, true, None));
    w.write_with_id(again(good)).await?;
    let waits = assert_group(&w, "g", [2, 0, 0, 0, 0], false).await?;
    assert_eq!(waits.generation, 1);
    end(&w, good, complete()).await?;
    assert_followed(&w, &[alarm.id, then.id]).await?;
    end(&w, bad, fail("again")).await?;
    assert_group(&w, "g", [2, 0, 2, 1, 0], true).await?;
    let followed = [alarm.id, then.id, alarm.id.nth(1), then.id.nth(1)];
    assert_followed(&w, &followed).await
}

async fn a_member_that_runs_again_before_the_drain_is_outstanding_again(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.expecting(2).then(then.clone());
    open(&w, new.on_first_failure(alarm.clone())).await?;
    let (bad, good) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, bad, fail("for good")).await?;
    assert_group(&w, "g", [2, 0, 1, 1, 0], false).await?;
    w.write_with_id(again(bad)).await?;
    let waits = assert_group(&w, "g", [2, 0, 0, 0, 0], false).await?;
    assert_eq!(waits.generation, 0);
    end(&w, good, complete()).await?;
    assert_group(&w, "g", [2, 0, 1, 0, 0], false).await?;
    end(&w, bad, fail("again")).await?;
    assert_group(&w, "g", [2, 0, 2, 1, 0], true).await?;
    assert_followed(&w, &[alarm.id, then.id]).await
}

async fn an_outer_group_waits_for_the_follow_up_of_an_inner_one(w: World) -> Result<()> {
    let last = follow_up(&w, "last")?;
    let join = follow_up(&w, "join")?.group(id("outer")?);
    open(&w, group("outer")?.then(last.clone())).await?;
    let (_, held) = w.claimed(member(&w, "outer")?).await?;
    let inner = group("inner")?.then(join.clone());
    let item = member(&w, "inner")?;
    let commit = Commit::of(settle(&held, complete()))
        .write(Write::OpenGroup(Box::new(inner)))
        .write(Write::Submit(Box::new(item.clone())))
        .write(Write::Seal(id("inner")?))
        .write(Write::Seal(id("outer")?));
    w.store.commit_one(commit).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_followed(&w, &[]).await?;
    end(&w, item.id, complete()).await?;
    assert_group(&w, "inner", [1, 0, 1, 0, 0], true).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_followed(&w, &[join.id]).await?;
    end(&w, join.id, complete()).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 0], true).await?;
    assert_followed(&w, &[join.id, last.id]).await
}

async fn an_inner_group_needs_an_outer_one_that_has_not_drained(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    open(&w, group("drained")?.expecting(0)).await?;
    let before = w.group("drained").await?;
    let history = w.history().await?;
    let full = Conflict::GroupFull {
        group: id("drained")?,
        expected: 0,
    };
    for (outer, error) in [
        ("drained", full.into()),
        ("missing", NotFound::Group(id("missing")?).into()),
    ] {
        let then = follow_up(&w, "join")?.group(id(outer)?);
        let inner = group("inner")?.then(then);
        let commit = Commit::of(settle(&held, complete())).write(Write::OpenGroup(Box::new(inner)));
        assert_eq!(w.store.commit_one(commit).await, Err(error));
        let missing = w.group("inner").await;
        assert_eq!(missing, Err(NotFound::Group(id("inner")?).into()));
    }
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.group("drained").await?, before);
    assert_eq!(w.history().await?, history);
    Ok(())
}

async fn a_member_may_leave_an_inner_group_in_its_place_though_the_outer_one_is_complete(
    w: World,
) -> Result<()> {
    for (outer, new) in [
        ("sealed", group("sealed")?),
        ("full", group("full")?.expecting(1)),
    ] {
        let last = follow_up(&w, outer)?;
        open(&w, new.then(last.clone())).await?;
        let (_, held) = w.claimed(member(&w, outer)?).await?;
        if outer == "sealed" {
            seal(&w, outer).await?;
        }
        let join = follow_up(&w, "join")?.group(id(outer)?);
        let inner_id = format!("inner of {outer}");
        let inner = group(&inner_id)?.expecting(1).then(join.clone());
        let commit = Commit::of(settle(&held, complete())).write(Write::OpenGroup(Box::new(inner)));
        w.store.commit_one(commit).await?;
        assert_group(&w, outer, [2, 0, 1, 0, 0], false).await?;
        let item = spawn(&w, &inner_id).await?;
        end(&w, item, complete()).await?;
        assert_group(&w, outer, [2, 0, 1, 0, 0], false).await?;
        assert_eq!(w.store.task(last.id).await?, None);
        end(&w, join.id, complete()).await?;
        assert_group(&w, outer, [2, 0, 2, 0, 0], true).await?;
        assert_eq!(w.status(last.id).await?, Status::Pending);
    }
    Ok(())
}

/// An outer group that expects this many, and an inner one of one member that has failed, whose
/// follow-up has completed: that member, the inner follow-up and the definition of the outer.
async fn nested(w: &World, expected: u64) -> Result<(TaskId, TaskId, NewGroup)> {
    let outer = group("outer")?
        .expecting(expected)
        .then(follow_up(w, "last")?);
    open(w, outer.clone()).await?;
    let join = follow_up(w, "join")?.group(id("outer")?);
    open(w, group("inner")?.expecting(1).then(join.clone())).await?;
    let item = spawn(w, "inner").await?;
    end(w, item, fail("for good")).await?;
    assert_followed(w, &[join.id]).await?;
    end(w, join.id, complete()).await?;
    Ok((item, join.id, outer))
}

async fn an_outer_group_waits_again_when_an_inner_one_is_opened_again(w: World) -> Result<()> {
    let (item, join, outer) = nested(&w, 1).await?;
    let last = outer.then.map_or(join, |then| then.id);
    let drained = assert_group(&w, "outer", [1, 0, 1, 0, 0], true).await?;
    assert_eq!(drained.generation, 0);
    w.write_with_id(again(item)).await?;
    let inner = assert_group(&w, "inner", [1, 0, 0, 0, 0], false).await?;
    let waits = assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_eq!((inner.generation, waits.generation), (1, 1));
    end(&w, item, complete()).await?;
    assert_group(&w, "inner", [1, 0, 1, 0, 0], true).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_followed(&w, &[join, last, join.nth(1)]).await?;
    end(&w, join.nth(1), complete()).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 0], true).await?;
    assert_followed(&w, &[join, last, join.nth(1), last.nth(1)]).await?;
    w.write_with_id(Write::Reopen(id("inner")?)).await?;
    assert_group(&w, "outer", [3, 0, 2, 0, 0], false).await?;
    Ok(())
}

async fn an_outer_group_that_waits_again_can_still_be_opened_with_its_definition(
    w: World,
) -> Result<()> {
    let (item, join, outer) = nested(&w, 2).await?;
    let last = outer.then.as_ref().map_or(join, |then| then.id);
    assert_group(&w, "outer", [1, 0, 1, 0, 0], false).await?;
    w.write_with_id(again(item)).await?;
    let waits = assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    assert_eq!(waits.generation, 0);
    // Somebody whose first reply was lost repeats what it said.
    open(&w, outer).await?;
    assert_eq!(w.group("outer").await?, waits);
    end(&w, item, complete()).await?;
    assert_followed(&w, &[join, join.nth(1)]).await?;
    end(&w, join.nth(1), complete()).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 0], false).await?;
    let sibling = spawn(&w, "outer").await?;
    end(&w, sibling, complete()).await?;
    assert_group(&w, "outer", [3, 0, 3, 0, 0], true).await?;
    assert_followed(&w, &[join, join.nth(1), last]).await
}

async fn members_of_a_deleted_group_end_without_being_counted_anywhere(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    let new = group("g")?.then(then.clone());
    open(&w, new.clone()).await?;
    let (old, failed) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, failed, fail("for good")).await?;
    let delete = Write::DeleteGroup(id("g")?);
    let existed = |existed| Outcome::Removed { existed };
    assert_eq!(w.store.write(delete.clone()).await?, existed(true));
    assert_eq!(w.store.write(delete).await?, existed(false));
    let missing = w.group("g").await;
    assert_eq!(missing, Err(NotFound::Group(id("g")?).into()));
    w.write_with_id(again(failed)).await?;
    end(&w, failed, complete()).await?;
    assert_eq!(w.status(failed).await?, Status::Completed);
    open(&w, new).await?;
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

async fn deleting_an_inner_group_gives_up_its_place_in_the_outer_one(w: World) -> Result<()> {
    let last = follow_up(&w, "last")?;
    open(&w, group("outer")?.then(last.clone())).await?;
    let kept = follow_up(&w, "kept")?.group(id("outer")?);
    let lost = follow_up(&w, "lost")?.group(id("outer")?);
    open(&w, group("drained")?.expecting(0).then(kept.clone())).await?;
    open(&w, group("inner")?.then(lost.clone())).await?;
    let item = spawn(&w, "inner").await?;
    seal(&w, "outer").await?;
    assert_group(&w, "outer", [2, 0, 0, 0, 0], false).await?;
    assert_followed(&w, &[kept.id]).await?;
    w.store.write(Write::DeleteGroup(id("drained")?)).await?;
    assert_group(&w, "outer", [2, 0, 0, 0, 0], false).await?;
    end(&w, kept.id, complete()).await?;
    assert_group(&w, "outer", [2, 0, 1, 0, 0], false).await?;
    w.store.write(Write::DeleteGroup(id("inner")?)).await?;
    assert_group(&w, "outer", [2, 0, 2, 0, 1], true).await?;
    assert_followed(&w, &[kept.id, last.id]).await?;
    end(&w, item, complete()).await?;
    assert_followed(&w, &[kept.id, last.id]).await
}

async fn a_follow_up_whose_id_is_taken_is_given_up(w: World) -> Result<()> {
    let last = follow_up(&w, "last")?;
    open(&w, group("outer")?.expecting(1).then(last.clone())).await?;
    let join = follow_up(&w, "join")?.group(id("outer")?);
    open(&w, group("inner")?.expecting(1).then(join.clone())).await?;
    let squatter = NewTask {
        id: join.id,
        ..w.new_task("of somebody else")
    };
    let squatter = w.submit(squatter).await?;
    let item = spawn(&w, "inner").await?;
    end(&w, item, complete()).await?;
    assert_group(&w, "inner", [1, 0, 1, 0, 0], true).await?;
    assert_group(&w, "outer", [1, 0, 1, 0, 1], true).await?;
    assert_eq!(w.task(join.id).await?, squatter);
    assert_followed(&w, &[last.id]).await
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
    open(&w, group("g")?.expecting(1)).await?;
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

async fn two_hundred_members_with_any_end_drain_a_group_once(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.then(then.clone());
    open(&w, new.on_first_failure(alarm.clone())).await?;
    for _ in 0..4 {
        let mut chunk = Commit::new();
        for _ in 0..50 {
            chunk = chunk.write(Write::Submit(Box::new(member(&w, "g")?)));
        }
        w.store.commit_one(chunk).await?;
    }
    let claimed = w.claim(&w.worker("worker")?, 200).await?;
    assert_eq!(claimed.len(), 200);
    let mut expected = [200, 0, 200, 0, 0];
    let mut commits = Vec::new();
    for (n, task) in claimed.iter().enumerate() {
        // The very first fails, so that there is a failure in any case.
        let how = match w.ids.below(3) {
            fate if fate == 0 || n == 0 => {
                expected[3] += 1;
                fail("for good")
            }
            1 => {
                expected[4] += 1;
                Ending::Cancel { reason: None }
            }
            _ => complete(),
        };
        commits.push(Commit::of(settle(&holder(task), how)));
    }
    let last = commits.split_off(199);
    let (one, two) = (commits.split_off(100), commits);
    let handles = [(w.second().await?, one), (w.second().await?, two)];
    let settling = handles.map(|(store, commits)| async move { store.commit(commits).await });
    for answer in parallel(settling).await.into_iter().flatten() {
        answer?;
    }
    seal(&w, "g").await?;
    assert_eq!(w.group("g").await?.done, 199);
    assert_followed(&w, &[alarm.id]).await?;
    for answer in w.store.commit(last).await {
        answer?;
    }
    assert_group(&w, "g", expected, true).await?;
    assert_followed(&w, &[alarm.id, then.id]).await
}

async fn members_are_listed_by_their_group(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?.group(id("outer")?);
    open(&w, group("outer")?).await?;
    open(&w, group("g")?.then(then.clone())).await?;
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

async fn the_history_tells_what_happened_to_a_group_and_not_who_was_counted(
    w: World,
) -> Result<()> {
    open(&w, group("g")?).await?;
    let (bad, good) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    w.write_with_id(Write::Arrive(id("g")?, 3)).await?;
    for task in [bad, good] {
        end(&w, task, fail("for good")).await?;
        w.group("g").await?;
    }
    seal(&w, "g").await?;
    w.group("g").await?;
    w.write_with_id(again(good)).await?;
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

async fn the_last_two_members_in_one_call_drain_a_group_once(w: World) -> Result<()> {
    let mut followed = Vec::new();
    for (name, together) in [("one commit", true), ("two commits", false)] {
        let then = follow_up(&w, "then")?;
        followed.push(then.id);
        open(&w, group(name)?.expecting(2).then(then)).await?;
        let (_, one) = w.claimed(member(&w, name)?).await?;
        let (_, two) = w.claimed(member(&w, name)?).await?;
        let writes = [settle(&one, complete()), settle(&two, fail("for good"))];
        let commits = if together {
            vec![writes.into_iter().fold(Commit::new(), Commit::write)]
        } else {
            writes.map(Commit::of).to_vec()
        };
        for answer in w.store.commit(commits).await {
            answer?;
        }
        assert_group(&w, name, [2, 0, 2, 1, 0], true).await?;
        assert_followed(&w, &followed).await?;
    }
    Ok(())
}

async fn a_refused_commit_leaves_every_count_as_it_was(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open(&w, group("g")?.then(then)).await?;
    let (task, held) = w.claimed(member(&w, "g")?).await?;
    let before = w.group("g").await?;
    let history = w.history().await?.next;
    let spawned = member(&w, "g")?;
    let missing = Key::new("missing")?;
    let commit = Commit::of(Write::Submit(Box::new(spawned.clone())))
        .write(settle(&held, fail("for good")))
        .write(Write::Arrive(id("g")?, 2))
        .write(Write::Seal(id("g")?))
        .write(Write::OpenGroup(Box::new(group("other")?)))
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
    assert_eq!(open(&w, group("g")?).await?, answer(0, 0, 0, false, 0));
    let (one, two) = (spawn(&w, "g").await?, spawn(&w, "g").await?);
    end(&w, one, fail("for good")).await?;
    let arrived = w.write_with_id(Write::Arrive(id("g")?, 3)).await?;
    assert_eq!(arrived, answer(5, 4, 1, false, 0));
    assert_eq!(seal(&w, "g").await?, answer(5, 4, 1, false, 0));
    assert_eq!(seal(&w, "g").await?, answer(5, 4, 1, false, 0));
    end(&w, two, complete()).await?;
    assert_eq!(open(&w, group("g")?).await?, answer(5, 5, 1, true, 0));
    let reopened = w.write_with_id(Write::Reopen(id("g")?)).await?;
    assert_eq!(reopened, answer(5, 5, 1, false, 1));
    assert_eq!(seal(&w, "g").await?, answer(5, 5, 1, true, 1));
    let empty = open(&w, group("empty")?.expecting(0)).await?;
    assert_eq!(empty, answer(0, 0, 0, true, 0));
    Ok(())
}
