//! What a sweep selected and others were faster with: each thing is decided once, or left alone.

use std::time::Duration;

use crate::conformance::parallel;
use crate::conformance::sweeps::{decisions, due, happened, leased, put_for, scheduled, secs};
use crate::conformance::world::{LEASE, World, complete};
use crate::conformance::writes::expire;
use crate::error::{NotFound, Result};
use crate::names::Key;
use crate::store::{Commit, DueNow, Outcome, Renew, Renewal, Start, StoreExt, Swept, Write};
use crate::task::Status;

cases!["stale_selections":
    two_sweeps_over_the_same_selection_decide_each_thing_once,
    sweeps_at_the_same_time_decide_each_thing_once,
    what_is_not_due_is_left_alone_by_every_decision_of_a_sweep,
    what_has_changed_since_it_was_selected_is_left_alone,
    a_record_that_is_gone_is_not_expired_again,
    one_refused_decision_does_not_keep_the_rest_from_being_made,
];

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
