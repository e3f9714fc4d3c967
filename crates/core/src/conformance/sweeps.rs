//! Sweeps: what time has made ready is decided once.

use std::time::Duration;

use crate::change::{Change, Removal, TaskEvent};
use crate::conformance::observe::changes_since;
use crate::conformance::world::{LEASE, RETRY_DELAY, World, fail, holder, steady_retry};
use crate::conformance::writes::expire;
use crate::error::Result;
use crate::names::Key;
use crate::record::{Record, fields};
use crate::store::{Claim, Commit, Due, DueNow, Pick, Put, Start, StoreExt, Swept, Write};
use crate::task::{Holder, Status, Task, TaskState};
use crate::time::Timestamp;

cases!["sweeps":
    a_sweep_decides_everything_that_is_due_and_nothing_twice,
    a_promoted_task_keeps_the_moment_it_was_due,
    a_clock_that_goes_back_ends_nothing_early,
    a_clock_that_jumps_ahead_makes_everything_due,
];

pub(super) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(super) async fn due(w: &World, limit: usize) -> Result<DueNow> {
    w.store.due(Due { limit }).await
}

pub(super) async fn put_for(w: &World, key: &str, ttl: Duration) -> Result<Record> {
    let put = Put::new(Key::new(key)?, fields([("of", "sweeps")])?).ttl(ttl);
    w.put_record(put).await
}

pub(super) async fn scheduled(w: &World, delay: Duration) -> Result<Task> {
    let task = w.submit(w.new_task("later").after(delay)).await?;
    assert_eq!(task.status, Status::Scheduled);
    Ok(task)
}

/// A task of one attempt, claimed for this long.
pub(super) async fn leased(w: &World, lease: Duration) -> Result<(Task, Holder)> {
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
pub(super) fn decisions(due: &DueNow) -> Vec<Commit> {
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

/// How often each of these happened to tasks, and how many records expired.
pub(super) async fn happened(w: &World, since: Start) -> Result<(usize, usize, usize)> {
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
        failed: 1,
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
