//! Draining: what follows a group is submitted once, when nothing is left to wait for.

use std::time::Duration;

use crate::change::{Change, GroupEvent, TaskEvent};
use crate::conformance::act::{end, open_group};
use crate::conformance::groups::{
    assert_followed, assert_group, follow_up, group, group_events, id, member, seal, spawn,
};
use crate::conformance::parallel;
use crate::conformance::world::{World, complete, fail, holder, name, steady_retry};
use crate::conformance::writes::{settle, submit};
use crate::error::Result;
use crate::ids::Fingerprint;
use crate::store::{Commit, Ending, StoreExt, Write};
use crate::task::{Due, NewTask, Priority, Status, TaskSpec};

cases!["draining":
    a_group_of_unknown_size_drains_only_once_it_is_sealed,
    a_group_that_expects_a_number_drains_without_a_seal,
    a_seal_before_all_expected_have_come_ends_the_wait_for_them,
    the_seal_and_the_last_member_drain_a_group_once_in_either_order,
    the_seal_and_the_last_members_at_the_same_time_drain_a_group_once,
    a_group_with_nothing_to_wait_for_drains_at_once,
    the_follow_up_is_submitted_in_the_commit_that_drains if JoinsInCommit,
    the_follow_up_is_submitted_as_it_was_defined,
    the_first_failure_is_answered_once_though_several_fail,
    a_follow_up_whose_id_is_taken_is_given_up,
    two_hundred_members_with_any_end_drain_a_group_once,
    the_last_two_members_in_one_call_drain_a_group_once,
];

async fn a_group_of_unknown_size_drains_only_once_it_is_sealed(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open_group(&w, group("g")?.then(then.clone())).await?;
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
    open_group(&w, group("g")?.expecting(2).then(then.clone())).await?;
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
    open_group(&w, group("g")?.expecting(5).then(then.clone())).await?;
    let task = spawn(&w, "g").await?;
    seal(&w, "g").await?;
    assert_group(&w, "g", [1, 0, 0, 0, 0], false).await?;
    end(&w, task, complete()).await?;
    assert_group(&w, "g", [1, 0, 1, 0, 0], true).await?;
    assert_followed(&w, &[then.id]).await
}

/// Makes both writes in one call, in one commit or in two.
async fn make(w: &World, writes: [Write; 2], together: bool) -> Result<()> {
    let commits = if together {
        vec![writes.into_iter().fold(Commit::new(), Commit::write)]
    } else {
        writes.map(Commit::of).to_vec()
    };
    for answer in w.store.commit(commits).await {
        answer?;
    }
    Ok(())
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
        open_group(&w, group(name)?.then(then)).await?;
        let (_, held) = w.claimed(member(&w, name)?).await?;
        let mut writes = [Write::Seal(id(name)?), settle(&held, complete())];
        if !seal_first {
            writes.reverse();
        }
        make(&w, writes, together).await?;
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
        open_group(&w, group(&name)?.then(then)).await?;
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
    open_group(&w, group("empty")?.then(one.clone())).await?;
    assert_group(&w, "empty", [0; 5], false).await?;
    assert_followed(&w, &[]).await?;
    seal(&w, "empty").await?;
    assert_group(&w, "empty", [0; 5], true).await?;
    assert_followed(&w, &[one.id]).await?;
    open_group(&w, group("nothing")?.expecting(0).then(two.clone())).await?;
    let drained = assert_group(&w, "nothing", [0; 5], true).await?;
    assert_eq!(drained.drained_at, Some(w.now()));
    assert_followed(&w, &[one.id, two.id]).await?;
    let events = [(0, GroupEvent::Opened), (0, GroupEvent::Drained)];
    assert_eq!(group_events(&w, "nothing").await?, events);
    Ok(())
}

async fn the_follow_up_is_submitted_in_the_commit_that_drains(w: World) -> Result<()> {
    let then = follow_up(&w, "then")?;
    open_group(&w, group("g")?.expecting(1).then(then.clone())).await?;
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
    open_group(&w, group("g")?.expecting(1).then(then.clone())).await?;
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
        born: found.spec.born,
        lifecycle: then.lifecycle,
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
    open_group(&w, new.then(then.clone()).on_first_failure(alarm.clone())).await?;
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

async fn a_follow_up_whose_id_is_taken_is_given_up(w: World) -> Result<()> {
    let last = follow_up(&w, "last")?;
    open_group(&w, group("outer")?.expecting(1).then(last.clone())).await?;
    let join = follow_up(&w, "join")?.group(id("outer")?);
    open_group(&w, group("inner")?.expecting(1).then(join.clone())).await?;
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

async fn two_hundred_members_with_any_end_drain_a_group_once(w: World) -> Result<()> {
    let (then, alarm) = (follow_up(&w, "then")?, follow_up(&w, "alarm")?);
    let new = group("g")?.then(then.clone());
    open_group(&w, new.on_first_failure(alarm.clone())).await?;
    for _ in 0..4 {
        let mut chunk = Commit::new();
        for _ in 0..50 {
            chunk = chunk.write(submit(member(&w, "g")?));
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

async fn the_last_two_members_in_one_call_drain_a_group_once(w: World) -> Result<()> {
    let mut followed = Vec::new();
    for (name, together) in [("one commit", true), ("two commits", false)] {
        let then = follow_up(&w, "then")?;
        followed.push(then.id);
        open_group(&w, group(name)?.expecting(2).then(then)).await?;
        let (_, one) = w.claimed(member(&w, name)?).await?;
        let (_, two) = w.claimed(member(&w, name)?).await?;
        let writes = [settle(&one, complete()), settle(&two, fail("for good"))];
        make(&w, writes, together).await?;
        assert_group(&w, name, [2, 0, 2, 1, 0], true).await?;
        assert_followed(&w, &followed).await?;
    }
    Ok(())
}
