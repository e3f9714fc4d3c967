//! Claims, renewals, exchanges and compaction.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{
    CENTURY, MILLISECOND, SECOND, WEEK, contradiction, duration_out_of_range, repeated, settle,
    submit, too_late, too_many,
};
use crate::conformance::world::{World, complete, invalid, lane};
use crate::error::{Error, Invalid, NotFound, Problem, Result};
use crate::ids::TaskId;
use crate::limits::{DURATION_MAX, LEASE_MAX};
use crate::store::{Claim, Commit, Compact, Exchange, Peek, Pick, Renew, Renewal, StoreExt};
use crate::task::{Lane, Status};

cases!["bad_input":
    lanes_are_from_one_to_sixty_four_and_each_is_named_once,
    a_claim_by_id_names_from_one_to_a_thousand_tasks_once,
    a_lease_is_from_a_millisecond_to_a_week,
    a_renewal_names_ten_thousand_leases_at_most,
    only_finished_tasks_are_compacted_and_no_age_is_too_long,
    a_bad_commit_of_an_exchange_fails_alone,
    a_bad_claim_or_renewal_of_an_exchange_fails_alone,
];

async fn lanes_are_from_one_to_sixty_four_and_each_is_named_once(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let some = |count: usize| -> Result<Vec<Lane>> {
        let lane = |n| Ok(Lane::new("queue", format!("kind{n}"))?);
        (0..count).map(lane).collect()
    };
    let task = w.submit(w.new_task("work")).await?;
    for (lanes, problem) in [
        (some(0)?, Invalid::new("lanes", Problem::Empty)),
        (some(65)?, too_many("lanes", 65, 64)),
        (vec![lane(), lane()], repeated("lanes", "queue/kind")),
    ] {
        let limit = 1;
        let claim = Claim {
            pick: Pick::Next {
                lanes: lanes.clone(),
                limit,
            },
            ..w.next(&worker, limit)
        };
        assert_eq!(invalid(w.store.claim(claim).await), problem);
        let peek = Peek { lanes, limit };
        assert_eq!(invalid(w.store.peek(peek).await), problem);
    }
    assert_eq!(w.task(task.id()).await?, task);
    let mut lanes = some(63)?;
    lanes.push(lane());
    let (limit, most) = (1, lanes.clone());
    let shown = w.store.peek(Peek { lanes, limit }).await?;
    assert_eq!(shown, std::slice::from_ref(&task));
    let claim = Claim {
        pick: Pick::Next { lanes: most, limit },
        ..w.next(&worker, limit)
    };
    let claimed = w.store.claim(claim).await?;
    assert_eq!(claimed.tasks[0].id(), task.id());
    Ok(())
}

async fn a_claim_by_id_names_from_one_to_a_thousand_tasks_once(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let task = w.submit(w.new_task("work")).await?;
    let mut ids = vec![task.id()];
    ids.extend((0..1_000).map(|_| w.ids.task()));
    for (bad, problem) in [
        (&[][..], Invalid::new("ids", Problem::Empty)),
        (&ids[..], too_many("ids", 1_001, 1_000)),
        (
            &[task.id(), ids[1], task.id()][..],
            repeated("ids", task.id()),
        ),
    ] {
        let answer = w.claim_ids(&worker, bad).await;
        assert_eq!(invalid(answer), problem);
    }
    assert_eq!(w.task(task.id()).await?, task);
    let claimed = w.claim_ids(&worker, &ids[..1_000]).await?;
    assert_eq!(claimed.tasks.len(), 1);
    let absent = |id: &TaskId| (*id, Error::from(NotFound::Task(*id)));
    let absent: Vec<_> = ids[1..1_000].iter().map(absent).collect();
    assert_eq!(claimed.refused, absent);
    Ok(())
}

async fn a_lease_is_from_a_millisecond_to_a_week(w: World) -> Result<()> {
    let worker = w.worker("worker")?;
    let task = w.submit(w.new_task("work")).await?;
    let (renewed, held) = w.claimed(w.new_task("renewed")).await?;
    let claim = |lease| Claim {
        lease,
        ..w.by_id(&worker, &[task.id()], w.ids.request())
    };
    let renew = |lease| Renew {
        holders: vec![held.clone()],
        lease,
    };
    for lease in [
        Duration::ZERO,
        Duration::from_micros(999),
        LEASE_MAX + Duration::from_nanos(1),
        Duration::MAX,
    ] {
        let problem = duration_out_of_range("lease", lease, "1ms", WEEK);
        assert_eq!(invalid(w.store.claim(claim(lease)).await), problem);
        assert_eq!(invalid(w.store.renew(renew(lease)).await), problem);
    }
    assert_eq!(w.task(task.id()).await?, task);
    assert_eq!(w.task(renewed.id()).await?, renewed);
    for lease in [MILLISECOND, LEASE_MAX] {
        let until = w.now().saturating_plus(lease);
        let renewals = w.store.renew(renew(lease)).await?;
        assert_eq!(renewals, [Renewal::Held { until }]);
    }
    let claimed = w.store.claim(claim(LEASE_MAX)).await?;
    let until = w.now().saturating_plus(LEASE_MAX);
    let lease = claimed.tasks[0].lease.as_ref();
    assert_eq!(lease.map(|lease| lease.until), Some(until));
    Ok(())
}

async fn a_renewal_names_ten_thousand_leases_at_most(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let renew = |count| Renew {
        holders: vec![held.clone(); count],
        lease: 2 * SECOND,
    };
    let problem = too_many("holders", 10_001, 10_000);
    assert_eq!(invalid(w.store.renew(renew(10_001)).await), problem);
    assert_eq!(w.task(task.id()).await?, task);
    let until = w.now().saturating_plus(2 * SECOND);
    let renewals = w.store.renew(renew(10_000)).await?;
    assert_eq!(renewals, vec![Renewal::Held { until }; 10_000]);
    assert_eq!(w.store.renew(renew(0)).await?, []);
    Ok(())
}

async fn only_finished_tasks_are_compacted_and_no_age_is_too_long(w: World) -> Result<()> {
    let task = w.submit(w.new_task("work")).await?;
    let (_, held) = w.claimed(w.new_task("finished")).await?;
    w.store.settle(held.clone(), complete()).await?;
    let compact = |status, age| Compact {
        tasks: BTreeMap::from([(Status::Completed, Duration::ZERO), (status, age)]),
        limit: 10,
        ..Compact::default()
    };
    for status in [Status::Scheduled, Status::Pending, Status::Claimed] {
        let problem = contradiction("tasks", "only finished tasks are removed");
        let answer = w.store.compact(compact(status, Duration::ZERO)).await;
        assert_eq!(invalid(answer), problem);
    }
    for age in too_late() {
        let late = |field| duration_out_of_range(field, age, "0ns", CENTURY);
        let answer = w.store.compact(compact(Status::Failed, age)).await;
        assert_eq!(invalid(answer), late("tasks"));
        let groups = Compact {
            groups: Some(age),
            ..compact(Status::Completed, Duration::ZERO)
        };
        assert_eq!(invalid(w.store.compact(groups).await), late("groups"));
        let history = Compact {
            history: Some(age),
            ..compact(Status::Completed, Duration::ZERO)
        };
        assert_eq!(invalid(w.store.compact(history).await), late("history"));
    }
    assert_eq!(w.status(task.id()).await?, Status::Pending);
    assert_eq!(w.status(held.task).await?, Status::Completed);
    let good = Compact {
        groups: Some(DURATION_MAX),
        history: Some(DURATION_MAX),
        ..compact(Status::Failed, DURATION_MAX)
    };
    assert_eq!(w.store.compact(good).await?.tasks, 1);
    assert_eq!(w.store.task(held.task).await?, None);
    Ok(())
}

async fn a_bad_commit_of_an_exchange_fails_alone(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let worker = w.worker("worker")?;
    let exchange = Exchange {
        commits: vec![Commit::new(), Commit::of(submit(w.new_task("next")))],
        renew: Some(Renew {
            holders: vec![held],
            lease: 2 * SECOND,
        }),
        claim: Some(w.next(&worker, 1)),
    };
    let exchanged = w.store.exchange(exchange).await?;
    let [bad, good] = <[_; 2]>::try_from(exchanged.commits).expect("one for each commit");
    assert_eq!(invalid(bad), Invalid::new("writes", Problem::Empty));
    good?;
    let until = w.now().saturating_plus(2 * SECOND);
    assert_eq!(exchanged.renewals, Some(Ok(vec![Renewal::Held { until }])));
    let claimed = exchanged.claimed.expect("a claim was asked for")?;
    assert_eq!(claimed.tasks.len(), 1);
    assert_ne!(claimed.tasks[0].id(), task.id());
    Ok(())
}

async fn a_bad_claim_or_renewal_of_an_exchange_fails_alone(w: World) -> Result<()> {
    let (task, held) = w.claimed(w.new_task("work")).await?;
    let worker = w.worker("worker")?;
    let exchange = Exchange {
        commits: vec![Commit::of(settle(&held, complete()))],
        renew: Some(Renew {
            holders: vec![held],
            lease: Duration::ZERO,
        }),
        claim: Some(w.next(&worker, 0)),
    };
    let exchanged = w.store.exchange(exchange).await?;
    assert_eq!(exchanged.commits.len(), 1);
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    let renewals = exchanged.renewals.expect("a renewal was asked for");
    assert!(invalid(renewals).field.ends_with("lease"));
    let claimed = exchanged.claimed.expect("a claim was asked for");
    assert!(invalid(claimed).field.ends_with("limit"));
    Ok(())
}
