//! Sweeps: what time has made ready is selected, and decided once.

use std::time::Duration;

use crate::change::{Change, Removal, TaskEvent};
use crate::conformance::parallel;
use crate::conformance::world::{LEASE, RETRY_DELAY, World, complete, fail, holder, steady_retry};
use crate::error::{NotFound, Result};
use crate::ids::{Fence, TaskId};
use crate::names::Key;
use crate::record::{Record, fields};
use crate::store::{
    Claim, Commit, Due, DueNow, Expire, Outcome, Pick, Put, Renew, Renewal, Start, StoreExt, Swept,
    Write,
};
use crate::task::{Holder, KeyLifetime, OnConflict, Status, Task, TaskState};
use crate::time::Timestamp;

cases!["sweeps":
    due_selects_the_longest_overdue_of_each_kind_first,
    due_is_cut_at_its_limit_and_says_so,
    due_says_when_the_next_thing_is_due,
    due_changes_nothing,
    a_sweep_decides_everything_that_is_due_and_nothing_twice,
    a_promoted_task_keeps_the_moment_it_was_due,
    two_sweeps_over_the_same_selection_decide_each_thing_once,
    sweeps_at_the_same_time_decide_each_thing_once,
    what_is_not_due_is_left_alone_by_every_decision_of_a_sweep,
    what_has_changed_since_it_was_selected_is_left_alone,
    a_record_that_is_gone_is_not_expired_again,
    one_refused_decision_does_not_keep_the_rest_from_being_made,
    a_task_that_waits_for_another_is_never_due,
    a_clock_that_goes_back_ends_nothing_early,
    a_clock_that_jumps_ahead_makes_everything_due,
];

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

async fn due(w: &World, limit: usize) -> Result<DueNow> {
    w.store.due(Due { limit }).await
}

async fn put_for(w: &World, key: &str, ttl: Duration) -> Result<Record> {
    let put = Put::new(Key::new(key)?, fields([("of", "sweeps")])?).ttl(ttl);
    w.store.write(Write::Put(put)).await?;
    match w.record(key).await? {
        Some(record) => Ok(record),
        None => Err(NotFound::Record(Key::new(key)?).into()),
    }
}

async fn scheduled(w: &World, delay: Duration) -> Result<Task> {
    let task = w.submit(w.new_task("later").after(delay)).await?;
    assert_eq!(task.status, Status::Scheduled);
    Ok(task)
}

/// A task of one attempt, claimed for this long.
async fn leased(w: &World, lease: Duration) -> Result<(Task, Holder)> {
    let id = w
        .submit(w.new_task("held").retry(steady_retry(1)))
        .await?
        .id();
    let claim = Claim {
        lease,
        pick: Pick::Ids(vec![id]),
        ..w.next(&w.worker("worker")?, 1)
    };
    let task = w.store.claim(claim).await?.tasks.remove(0);
    let held = holder(&task);
    Ok((task, held))
}

/// The writes that a sweep makes of a selection, in commits of their own.
fn decisions(due: &DueNow) -> Vec<Commit> {
    let promote = due.scheduled.iter().map(|id| Write::Promote(*id));
    let expire = due
        .expired
        .iter()
        .map(|(task, fence)| expire(*task, *fence));
    let records = due.records.iter().cloned().map(Write::ExpireRecord);
    (promote.chain(expire).chain(records))
        .map(Commit::of)
        .collect()
}

fn expire(task: TaskId, fence: Fence) -> Write {
    Write::Expire(Expire {
        task,
        fence,
        jitter: Default::default(),
    })
}

async fn changes_since(w: &World, start: Start) -> Result<Vec<Change>> {
    let page = w.history_from(start).await?;
    Ok(page.entries.into_iter().flat_map(|e| e.changes).collect())
}

/// How often each of these happened to tasks, and how many records expired.
async fn happened(w: &World, since: Start) -> Result<(usize, usize, usize)> {
    let changes = changes_since(w, since).await?;
    let of = |event| {
        (changes.iter())
            .filter(|change| matches!(change, Change::Task(task) if task.event == event))
            .count()
    };
    let records = (changes.iter())
        .filter(|change| {
            matches!(
                change,
                Change::Removed {
                    how: Removal::Expired,
                    ..
                }
            )
        })
        .count();
    Ok((of(TaskEvent::Promoted), of(TaskEvent::Expired), records))
}

async fn due_selects_the_longest_overdue_of_each_kind_first(w: World) -> Result<()> {
    let (mut tasks, mut leases, mut records) = (Vec::new(), Vec::new(), Vec::new());
    // The order of neither ids, keys nor writes is the order of their times.
    for seconds in [30, 10, 20, 300] {
        tasks.push(scheduled(&w, secs(seconds)).await?.id());
        let (task, _) = leased(&w, secs(seconds)).await?;
        leases.push((task.id(), task.fence));
        let key = format!("record-{}", 999 - seconds);
        records.push(put_for(&w, &key, secs(seconds)).await?.key);
    }
    w.advance(secs(30));
    let expected = DueNow {
        scheduled: vec![tasks[1], tasks[2], tasks[0]],
        expired: vec![leases[1], leases[2], leases[0]],
        records: vec![records[1].clone(), records[2].clone(), records[0].clone()],
        ..DueNow::default()
    };
    assert_eq!(due(&w, 100).await?, expected);
    Ok(())
}

async fn due_is_cut_at_its_limit_and_says_so(w: World) -> Result<()> {
    let mut tasks = Vec::new();
    for seconds in [3, 1, 2] {
        tasks.push(scheduled(&w, secs(seconds)).await?.id());
    }
    let first = put_for(&w, "first", secs(1)).await?.key;
    let second = put_for(&w, "second", secs(2)).await?.key;
    let (task, _) = leased(&w, secs(1)).await?;
    w.advance(secs(3));
    let cut = DueNow {
        scheduled: vec![tasks[1], tasks[2]],
        expired: vec![(task.id(), task.fence)],
        records: vec![first, second],
        more: true,
        ..DueNow::default()
    };
    assert_eq!(due(&w, 2).await?, cut);
    let whole = DueNow {
        scheduled: vec![tasks[1], tasks[2], tasks[0]],
        more: false,
        ..cut
    };
    assert_eq!(due(&w, 3).await?, whole);
    let swept = w.store.sweep(2, &w.ids).await?;
    let expected = Swept {
        promoted: 2,
        expired: 1,
        records: 2,
        more: true,
        ..Swept::default()
    };
    assert_eq!(swept, expected);
    let rest = DueNow {
        scheduled: vec![tasks[0]],
        ..DueNow::default()
    };
    assert_eq!(due(&w, 2).await?, rest);
    Ok(())
}

async fn due_says_when_the_next_thing_is_due(w: World) -> Result<()> {
    let start = w.now();
    let at = |seconds| DueNow {
        next: Some(start.saturating_plus(secs(seconds))),
        ..DueNow::default()
    };
    let record = put_for(&w, "record", secs(50)).await?;
    assert_eq!(due(&w, 10).await?, at(50));
    let task = scheduled(&w, secs(40)).await?;
    assert_eq!(due(&w, 10).await?, at(40));
    let (_, held) = leased(&w, secs(30)).await?;
    assert_eq!(due(&w, 10).await?, at(30));
    let renew = Renew {
        holders: vec![held.clone()],
        lease: secs(45),
    };
    w.store.renew(renew).await?;
    assert_eq!(due(&w, 10).await?, at(40));
    w.store.cancel(task.id(), None).await?;
    assert_eq!(due(&w, 10).await?, at(45));
    w.store.settle(held, complete()).await?;
    assert_eq!(due(&w, 10).await?, at(50));
    assert_eq!(w.sweep().await?.next, at(50).next);
    w.store
        .write(Write::Touch(record.key.clone(), None))
        .await?;
    assert_eq!(due(&w, 10).await?, DueNow::default());
    Ok(())
}

async fn due_changes_nothing(w: World) -> Result<()> {
    let task = scheduled(&w, secs(1)).await?;
    let (held, _) = leased(&w, secs(1)).await?;
    put_for(&w, "record", secs(1)).await?;
    let before = w.history().await?.next;
    w.advance(secs(2));
    let first = due(&w, 10).await?;
    assert_eq!(decisions(&first).len(), 3);
    assert_eq!(due(&w, 10).await?, first);
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.task(held.id()).await?, held);
    assert_eq!(changes_since(&w, Start::After(before)).await?, []);
    Ok(())
}

async fn a_sweep_decides_everything_that_is_due_and_nothing_twice(w: World) -> Result<()> {
    let task = scheduled(&w, secs(5)).await?;
    let (held, _) = leased(&w, secs(5)).await?;
    let record = put_for(&w, "record", secs(5)).await?;
    let later = scheduled(&w, secs(60)).await?;
    let before = Start::After(w.history().await?.next);
    w.advance(secs(5));
    let expected = Swept {
        promoted: 1,
        expired: 1,
        records: 1,
        ..Swept::default()
    };
    assert_eq!(w.store.sweep(100, &w.ids).await?, expected);
    assert_eq!(w.status(task.id()).await?, Status::Pending);
    assert_eq!(w.status(held.id()).await?, Status::Failed);
    assert_eq!(w.record("record").await?, None);
    assert_eq!(w.task(later.id()).await?, later);
    let changes = changes_since(&w, before).await?;
    assert_eq!(changes.len(), 3, "{changes:?}");
    assert_eq!(happened(&w, before).await?, (1, 1, 1));
    let removed = Change::Removed {
        key: record.key,
        revision: record.revision,
        how: Removal::Expired,
    };
    assert!(changes.contains(&removed), "{changes:?}");
    let nothing = Swept {
        next: Some(later.runnable_at),
        ..Swept::default()
    };
    assert_eq!(w.store.sweep(100, &w.ids).await?, nothing);
    assert_eq!(changes_since(&w, before).await?, changes);
    Ok(())
}

async fn a_promoted_task_keeps_the_moment_it_was_due(w: World) -> Result<()> {
    let second = scheduled(&w, secs(20)).await?;
    let first = scheduled(&w, secs(10)).await?;
    let (failed, held) = w.claimed(w.new_task("again")).await?;
    w.store.settle(held, fail("once")).await?;
    let waits = w.task(failed.id()).await?;
    assert_eq!(waits.runnable_at, w.now().saturating_plus(RETRY_DELAY));
    w.advance(secs(100));
    assert_eq!(w.sweep().await?.promoted, 3);
    for before in [first, second, waits] {
        let after = w.task(before.id()).await?;
        assert!(after.revision > before.revision);
        let expected = Task {
            spec: before.spec.clone(),
            state: TaskState {
                status: Status::Pending,
                modified_at: w.now(),
                revision: after.revision,
                ..before.state.clone()
            },
        };
        assert_eq!(after, expected);
    }
    Ok(())
}

async fn two_sweeps_over_the_same_selection_decide_each_thing_once(w: World) -> Result<()> {
    for n in 0..3 {
        scheduled(&w, secs(1)).await?;
        leased(&w, secs(1)).await?;
        put_for(&w, &format!("record-{n}"), secs(1)).await?;
    }
    let before = Start::After(w.history().await?.next);
    let second = w.second().await?;
    w.advance(secs(1));
    let selected = decisions(&due(&w, 100).await?);
    assert_eq!(selected.len(), 9);
    for answer in w.store.commit(selected.clone()).await {
        let receipt = answer?;
        assert!(receipt.position.is_some(), "{receipt:?}");
    }
    assert_eq!(happened(&w, before).await?, (3, 3, 3));
    let history = w.history().await?;
    for (answer, commit) in second
        .commit(selected.clone())
        .await
        .into_iter()
        .zip(selected)
    {
        let expected = match &commit.writes[0] {
            Write::Promote(_) => Outcome::Already {
                status: Status::Pending,
            },
            Write::Expire(_) => Outcome::Already {
                status: Status::Failed,
            },
            _ => Outcome::Removed { existed: false },
        };
        let receipt = answer?;
        assert_eq!(receipt.outcomes, [expected], "{commit:?}");
        assert_eq!(receipt.position, None);
    }
    assert_eq!(w.history().await?, history);
    Ok(())
}

async fn sweeps_at_the_same_time_decide_each_thing_once(w: World) -> Result<()> {
    for n in 0..10 {
        scheduled(&w, secs(1)).await?;
        leased(&w, secs(1)).await?;
        put_for(&w, &format!("record-{n}"), secs(1)).await?;
    }
    let before = Start::After(w.history().await?.next);
    w.advance(secs(1));
    let handles = [w.second().await?, w.second().await?, w.second().await?];
    let sweeps = handles.map(|store| {
        let ids = w.ids.clone();
        async move { store.sweep(100, &ids).await }
    });
    let mut total = Swept::default();
    for swept in parallel(sweeps).await {
        let swept = swept?;
        total.promoted += swept.promoted;
        total.expired += swept.expired;
        total.records += swept.records;
        total.errors.extend(swept.errors);
    }
    let expected = Swept {
        promoted: 10,
        expired: 10,
        records: 10,
        ..Swept::default()
    };
    assert_eq!(total, expected);
    assert_eq!(happened(&w, before).await?, (10, 10, 10));
    assert_eq!(due(&w, 100).await?, DueNow::default());
    Ok(())
}

async fn what_is_not_due_is_left_alone_by_every_decision_of_a_sweep(w: World) -> Result<()> {
    let task = scheduled(&w, secs(10)).await?;
    let (held, _) = leased(&w, secs(10)).await?;
    let record = put_for(&w, "record", secs(10)).await?;
    let before = w.history().await?;
    w.advance(secs(10) - Duration::from_millis(1));
    let early = vec![
        Commit::of(Write::Promote(task.id())),
        Commit::of(expire(held.id(), held.fence)),
        Commit::of(Write::ExpireRecord(record.key.clone())),
    ];
    let expected = [
        Outcome::Already {
            status: Status::Scheduled,
        },
        Outcome::Already {
            status: Status::Claimed,
        },
        Outcome::Removed { existed: false },
    ];
    for (answer, expected) in w.store.commit(early).await.into_iter().zip(expected) {
        assert_eq!(answer?.outcomes, [expected]);
    }
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.task(held.id()).await?, held);
    assert_eq!(w.record("record").await?, Some(record));
    assert_eq!(w.history().await?, before);
    Ok(())
}

async fn what_has_changed_since_it_was_selected_is_left_alone(w: World) -> Result<()> {
    let cancelled = scheduled(&w, secs(1)).await?;
    let claimed = scheduled(&w, secs(1)).await?;
    let (renewed, keeper) = leased(&w, secs(1)).await?;
    let (completed, done) = leased(&w, secs(1)).await?;
    put_for(&w, "put again", secs(1)).await?;
    let touched = put_for(&w, "touched", secs(2)).await?;
    w.advance(secs(1));
    let selected = due(&w, 100).await?;
    assert_eq!(selected.scheduled.len(), 2);
    assert_eq!(selected.expired.len(), 2);
    w.store.cancel(cancelled.id(), None).await?;
    w.store.write(Write::Promote(claimed.id())).await?;
    let taken = w.claim_ids(&w.worker("quick")?, &[claimed.id()]).await?;
    assert_eq!(taken.tasks.len(), 1);
    let renew = Renew {
        holders: vec![keeper.clone()],
        lease: LEASE,
    };
    let until = w.now().saturating_plus(LEASE);
    assert_eq!(w.store.renew(renew).await?, [Renewal::Held { until }]);
    w.store.settle(done, complete()).await?;
    let again = put_for(&w, "put again", secs(60)).await?;
    let touch = Write::Touch(touched.key.clone(), Some(secs(60)));
    w.store.write(touch).await?;
    w.advance(secs(1));
    let before = w.history().await?;
    let mut tasks = Vec::new();
    for id in [cancelled.id(), claimed.id(), renewed.id(), completed.id()] {
        tasks.push(w.task(id).await?);
    }
    let mut late = decisions(&selected);
    late.push(Commit::of(Write::ExpireRecord(touched.key.clone())));
    for answer in w.store.commit(late).await {
        let receipt = answer?;
        let left_alone = matches!(
            receipt.outcomes[..],
            [Outcome::Already { .. } | Outcome::Removed { existed: false }]
        );
        assert!(left_alone, "{receipt:?}");
    }
    for task in tasks {
        assert_eq!(w.task(task.id()).await?, task);
    }
    assert_eq!(w.record("put again").await?, Some(again));
    assert!(w.record("touched").await?.is_some());
    assert_eq!(w.history().await?, before);
    // A renewal that ran out is expired with the same fence after all.
    w.advance(LEASE);
    let expired = w.store.write(expire(renewed.id(), renewed.fence)).await?;
    assert!(matches!(
        expired,
        Outcome::Changed {
            status: Status::Failed,
            ..
        }
    ));
    Ok(())
}

async fn a_record_that_is_gone_is_not_expired_again(w: World) -> Result<()> {
    let record = put_for(&w, "record", secs(1)).await?;
    w.advance(secs(1));
    let expire = Write::ExpireRecord(record.key.clone());
    let existed = |existed| Outcome::Removed { existed };
    assert_eq!(w.store.write(expire.clone()).await?, existed(true));
    let before = w.history().await?;
    assert_eq!(w.store.write(expire).await?, existed(false));
    let never = Write::ExpireRecord(Key::new("never there")?);
    assert_eq!(w.store.write(never).await?, existed(false));
    assert_eq!(w.history().await?, before);
    Ok(())
}

async fn one_refused_decision_does_not_keep_the_rest_from_being_made(w: World) -> Result<()> {
    let mut tasks = Vec::new();
    for seconds in [1, 2, 3] {
        tasks.push(scheduled(&w, secs(seconds)).await?.id());
    }
    w.advance(secs(3));
    let selected = due(&w, 100).await?;
    assert_eq!(selected.scheduled, tasks);
    w.store.cancel(tasks[1], None).await?;
    w.store.write(Write::DeleteTask(tasks[1])).await?;
    let answers = w.store.commit(decisions(&selected)).await;
    assert_eq!(answers.len(), 3);
    assert_eq!(answers[1], Err(NotFound::Task(tasks[1]).into()));
    for n in [0, 2] {
        assert!(answers[n].is_ok(), "{:?}", answers[n]);
        assert_eq!(w.status(tasks[n]).await?, Status::Pending);
    }
    Ok(())
}

async fn a_task_that_waits_for_another_is_never_due(w: World) -> Result<()> {
    let key = || "same".try_into();
    let lifetime = KeyLifetime::WhileActive;
    let (old, held) = w.claimed(w.new_task("old").key(key()?)).await?;
    let new =
        w.new_task("new")
            .after(secs(500))
            .key_with(key()?, lifetime, OnConflict::CancelAndReplace);
    let waiting = w.submit(new).await?;
    assert_eq!(waiting.status, Status::Scheduled);
    let renew = |lease| Renew {
        holders: vec![held.clone()],
        lease,
    };
    let wanted_at = w.now().saturating_plus(secs(500));
    w.store.renew(renew(secs(10_000))).await?;
    let next = Some(w.now().saturating_plus(secs(10_000)));
    let only_the_lease = DueNow {
        next,
        ..DueNow::default()
    };
    assert_eq!(due(&w, 10).await?, only_the_lease);
    w.advance(secs(9_000));
    assert_eq!(due(&w, 10).await?, only_the_lease);
    let promote = Write::Promote(waiting.id());
    let status = Status::Scheduled;
    assert_eq!(w.store.write(promote).await?, Outcome::Already { status });
    assert_eq!(w.task(waiting.id()).await?, waiting);
    w.clock.jump_to(wanted_at.saturating_minus(secs(1)));
    w.store.settle(held.clone(), complete()).await?;
    assert_eq!(w.status(old.id()).await?, Status::Completed);
    assert_eq!(due(&w, 10).await?.next, Some(wanted_at));
    w.advance(secs(1));
    assert_eq!(due(&w, 10).await?.scheduled, [waiting.id()]);
    Ok(())
}

async fn a_clock_that_goes_back_ends_nothing_early(w: World) -> Result<()> {
    let start = w.now();
    let task = scheduled(&w, secs(10)).await?;
    let (held, _) = leased(&w, secs(10)).await?;
    let record = put_for(&w, "record", secs(10)).await?;
    w.advance(secs(10));
    let selected = due(&w, 10).await?;
    let before = w.history().await?;
    w.clock.jump_to(start.saturating_minus(secs(3_600)));
    let nothing = DueNow {
        next: Some(start.saturating_plus(secs(10))),
        ..DueNow::default()
    };
    assert_eq!(due(&w, 10).await?, nothing);
    for answer in w.store.commit(decisions(&selected)).await {
        assert_eq!(answer?.position, None);
    }
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.task(held.id()).await?, held);
    assert_eq!(w.record("record").await?, Some(record));
    assert_eq!(w.history().await?, before);
    w.clock.jump_to(start.saturating_plus(secs(10)));
    assert_eq!(due(&w, 10).await?, selected);
    Ok(())
}

async fn a_clock_that_jumps_ahead_makes_everything_due(w: World) -> Result<()> {
    let task = scheduled(&w, secs(10)).await?;
    let (held, _) = leased(&w, LEASE).await?;
    put_for(&w, "record", secs(60 * 60)).await?;
    let year_2090 = Timestamp::from_micros(3_786_912_000_000_000)?;
    w.clock.jump_to(year_2090);
    let swept = w.sweep().await?;
    let expected = Swept {
        promoted: 1,
        expired: 1,
        records: 1,
        ..Swept::default()
    };
    assert_eq!(swept, expected);
    assert_eq!(w.task(task.id()).await?.runnable_at, task.runnable_at);
    assert_eq!(w.task(held.id()).await?.finished_at, Some(year_2090));
    assert_eq!(due(&w, 10).await?, DueNow::default());
    Ok(())
}
