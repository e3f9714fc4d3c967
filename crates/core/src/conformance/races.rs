//! Two verbs at once on one task: one of them wins, and the other is told so.

use std::collections::BTreeSet;

use crate::change::{Change, TaskEvent};
use crate::conformance::act::insist;
use crate::conformance::concurrency::{all, changes, handles, insist_on, submit_in_bulk, times};
use crate::conformance::parallel;
use crate::conformance::world::{LEASE, World, complete, holder};
use crate::conformance::writes::{retry, settle};
use crate::error::{Conflict, Error, Lost, Result};
use crate::ids::TaskId;
use crate::names::Key;
use crate::record::fields;
use crate::store::{
    Cancel, Commit, Ending, Expire, Outcome, Put, Receipt, Renew, Renewal, StoreExt, Write,
};
use crate::task::{Status, Task};

cases!["races":
    cancel_racing_complete_leaves_one_terminal_status,
    cancel_racing_claim_either_ends_the_task_or_flags_it,
    retry_racing_complete_and_claim_leaves_one_of_them_with_the_task,
    renewal_racing_expiry_either_keeps_the_lease_or_loses_it,
    sweeps_at_once_decide_everything_once,
];

async fn cancel_racing_complete_leaves_one_terminal_status(w: World) -> Result<()> {
    let worlds = handles(&w, 3).await?;
    for _ in 0..30 {
        let (task, held) = w.claimed(w.new_task("work")).await?;
        let id = task.id();
        let calls = (worlds.iter().cloned().enumerate()).map(|(n, w)| {
            let held = held.clone();
            async move {
                match n {
                    0 => insist_on(&w, settle(&held, complete())).await,
                    1 => {
                        let cancel = Ending::Cancel { reason: None };
                        insist_on(&w, settle(&held, cancel)).await
                    }
                    _ => {
                        let reason = None;
                        insist_on(&w, Write::Cancel(Cancel { task: id, reason })).await
                    }
                }
            }
        });
        let answers = parallel(calls).await;
        let after = w.task(id).await?;
        let status = after.status;
        assert!(status == Status::Completed || status == Status::Cancelled);
        assert_eq!((after.lease.clone(), after.cancel.clone()), (None, None));
        let settled = Ok(Outcome::Settled {
            status,
            runnable_at: None,
        });
        let (won, lost) = match status {
            Status::Completed => (&answers[0], &answers[1]),
            _ => (&answers[1], &answers[0]),
        };
        assert_eq!(*won, settled);
        match lost {
            Err(Error::LeaseLost(lost)) => assert_eq!(lost.why, Lost::Finished { status }),
            other => panic!("both settled: {other:?}"),
        }
        match &answers[2] {
            Ok(Outcome::Changed { status, .. }) => assert_eq!(*status, Status::Claimed),
            Ok(Outcome::Already { status: already }) => assert_eq!(*already, status),
            other => panic!("a cancel answered {other:?}"),
        }
        let history = w.history().await?.entries;
        let ends = changes(&history).filter(
            |change| matches!(change, Change::Task(task) if task.id == id && task.status.is_terminal()),
        );
        assert_eq!(ends.count(), 1);
    }
    Ok(())
}

async fn cancel_racing_claim_either_ends_the_task_or_flags_it(w: World) -> Result<()> {
    let ids = submit_in_bulk(&w, 30).await?;
    let worker = w.worker("worker")?;
    let calls = (handles(&w, 60).await?.into_iter().enumerate()).map(|(n, w)| {
        let (task, worker) = (ids[n / 2], worker.clone());
        async move {
            if n % 2 == 0 {
                let claimed = w.claim_ids(&worker, &[task]).await?;
                return Ok((!claimed.tasks.is_empty()).then_some(Status::Claimed));
            }
            let reason = None;
            match insist_on(&w, Write::Cancel(Cancel { task, reason })).await? {
                Outcome::Changed { status, .. } => Ok(Some(status)),
                other => panic!("a first cancel answered {other:?}"),
            }
        }
    });
    let answers = all(parallel(calls).await)?;
    for (id, answers) in ids.iter().zip(answers.chunks(2)) {
        let task = w.task(*id).await?;
        match task.status {
            Status::Claimed => {
                assert_eq!(answers, [Some(Status::Claimed); 2]);
                assert!(task.lease.is_some() && task.cancel.is_some());
            }
            Status::Cancelled => {
                assert_eq!(answers, [None, Some(Status::Cancelled)]);
                assert_eq!((task.lease.clone(), task.attempts), (None, 0));
            }
            other => panic!("{id} is {other}"),
        }
    }
    Ok(())
}

async fn retry_racing_complete_and_claim_leaves_one_of_them_with_the_task(w: World) -> Result<()> {
    let worlds = handles(&w, 4).await?;
    for _ in 0..30 {
        let (task, held) = w.claimed(w.new_task("work")).await?;
        let id = task.id();
        let retry = Commit::of(retry(id, false)).id(w.ids.commit());
        let second = w.worker("second")?;
        let complete = Commit::of(settle(&held, complete()));
        let commits = parallel([
            insist_owned(worlds[0].clone(), retry),
            insist_owned(worlds[1].clone(), complete),
        ]);
        let claim = async {
            for _ in 0..5 {
                let claimed = worlds[3].claim_ids(&second, &[id]).await?.tasks;
                if !claimed.is_empty() {
                    return Ok::<Vec<Task>, Error>(claimed);
                }
                tokio::task::yield_now().await;
            }
            Ok(Vec::new())
        };
        let (answers, claimed) = tokio::join!(commits, claim);
        let (retried, completed) = (&answers[0], &answers[1]);
        let claimed = claimed?;
        let after = w.task(id).await?;
        if completed.is_ok() {
            assert_eq!(after.status, Status::Completed);
            assert_eq!(claimed, []);
            let status = Status::Completed;
            let finished = Error::from(Conflict::Finished { task: id, status });
            assert_eq!(*retried, Err(finished));
            continue;
        }
        assert!(retried.is_ok(), "{retried:?}");
        assert!(after.fence > held.fence);
        match claimed.as_slice() {
            [] => assert_eq!((after.status, after.lease.clone()), (Status::Pending, None)),
            [taken] => {
                assert_eq!(*taken, after);
                assert_eq!(holder(taken).worker, second);
                assert!(taken.fence > held.fence);
            }
            other => panic!("one task was asked for: {other:?}"),
        }
        w.store.cancel(id, None).await?;
    }
    Ok(())
}

async fn insist_owned(w: World, commit: Commit) -> Result<Receipt> {
    insist(w.store.as_ref(), commit).await
}

async fn renewal_racing_expiry_either_keeps_the_lease_or_loses_it(w: World) -> Result<()> {
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(w.claimed(w.new_task("work")).await?.1);
    }
    w.advance(LEASE);
    let calls = (handles(&w, 60).await?.into_iter().enumerate()).map(|(n, w)| {
        let holder = held[n / 2].clone();
        async move {
            if n % 2 == 0 {
                let renew = Renew {
                    holders: vec![holder],
                    lease: LEASE,
                };
                let renewals = w.store.renew(renew).await?;
                return Ok(matches!(renewals.as_slice(), [Renewal::Held { .. }]));
            }
            let expire = Expire {
                task: holder.task,
                fence: holder.fence,
                jitter: Default::default(),
            };
            match insist_on(&w, Write::Expire(expire)).await? {
                Outcome::Changed { .. } => Ok(true),
                Outcome::Already { status } => {
                    assert_eq!(status, Status::Claimed);
                    Ok(false)
                }
                other => panic!("an expiry answered {other:?}"),
            }
        }
    });
    let answers = all(parallel(calls).await)?;
    let expiries = times(&w.history().await?.entries, TaskEvent::Expired);
    for (held, answers) in held.iter().zip(answers.chunks(2)) {
        let task = w.task(held.task).await?;
        let (kept, expired) = (answers[0], answers[1]);
        assert!(kept != expired, "either held or lost: {answers:?}");
        assert_eq!(expiries.contains_key(&held.task), expired);
        if kept {
            assert_eq!(task.holder().as_ref(), Some(held));
            let until = task.lease.clone().map(|lease| lease.until);
            assert_eq!(until, Some(w.now().saturating_plus(LEASE)));
            assert_eq!(task.failures, 0);
        } else {
            assert_eq!((task.status, task.failures), (Status::Scheduled, 1));
            assert_eq!(task.lease, None);
        }
    }
    Ok(())
}

async fn sweeps_at_once_decide_everything_once(w: World) -> Result<()> {
    let mut scheduled = BTreeSet::new();
    let mut leased = BTreeSet::new();
    for n in 0..30 {
        let later = w.new_task("later").after(LEASE);
        scheduled.insert(w.submit(later).await?.id());
        leased.insert(w.claimed(w.new_task("held")).await?.0.id());
        let put = Put::new(Key::new(format!("key.{n}"))?, fields([("n", "1")])?);
        w.store.write(Write::Put(put.ttl(LEASE))).await?;
    }
    w.advance(LEASE);
    let sweeps = (handles(&w, 6).await?.into_iter()).map(|w| async move { w.sweep().await });
    let mut swept = all(parallel(sweeps).await)?;
    for error in swept.iter().flat_map(|swept| &swept.errors) {
        let contended = matches!(error, Error::Conflict(conflict) if matches!(**conflict, Conflict::Contended { .. }));
        assert!(contended, "{error}");
    }
    swept.push(w.sweep().await?);
    let entries = w.history().await?.entries;
    let once = |ids: BTreeSet<TaskId>| ids.into_iter().map(|id| (id, 1)).collect();
    assert_eq!(times(&entries, TaskEvent::Promoted), once(scheduled));
    assert_eq!(times(&entries, TaskEvent::Expired), once(leased));
    let removed = changes(&entries).filter(|change| matches!(change, Change::Removed { .. }));
    assert_eq!(removed.count(), 30);
    assert_eq!(swept.iter().map(|swept| swept.promoted).sum::<u64>(), 30);
    assert_eq!(swept.iter().map(|swept| swept.expired).sum::<u64>(), 30);
    assert_eq!(swept.iter().map(|swept| swept.records).sum::<u64>(), 30);
    Ok(())
}
