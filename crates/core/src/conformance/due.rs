//! Selecting what is due: the longest overdue first, and nothing is changed by it.

use crate::conformance::observe::changes_since;
use crate::conformance::sweeps::{decisions, due, leased, put_for, scheduled, secs};
use crate::conformance::world::{World, complete};
use crate::error::Result;
use crate::store::{DueNow, Outcome, Renew, Start, StoreExt, Swept, Write};
use crate::task::{KeyLifetime, OnConflict, Status};

cases!["due":
    due_selects_the_longest_overdue_of_each_kind_first,
    due_is_cut_at_its_limit_and_says_so,
    due_says_when_the_next_thing_is_due,
    due_changes_nothing,
    a_task_that_waits_for_another_is_never_due,
];

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
        failed: 1,
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
