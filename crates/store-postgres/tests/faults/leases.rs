//! Leases beside a row that somebody else has locked.

use std::time::Duration;

use plimsoll_core::Store;
use plimsoll_core::store::{Renew, Renewal};
use plimsoll_core::task::Task;

use crate::locks::{free, lock};
use crate::world::{World, claimed, claimed_of, within};

const LEASE: Duration = Duration::from_secs(60);
const TASKS: usize = 200;

async fn renew(store: &dyn Store, tasks: &[Task]) -> Vec<Renewal> {
    let holders = tasks.iter().map(|task| task.holder().expect("a lease"));
    let renew = Renew {
        holders: holders.collect(),
        lease: LEASE,
    };
    within(10, "a renewal", store.renew(renew))
        .await
        .expect("renewals")
}

fn until(task: &Task) -> Renewal {
    let until = task.lease.as_ref().expect("a lease").until;
    Renewal::Held { until }
}

/// Those of these tasks whose leases end when they did before.
fn unprolonged(tasks: &[Task], renewals: &[Renewal]) -> Vec<usize> {
    let pairs = tasks.iter().zip(renewals).enumerate();
    let same = pairs.filter(|(_, (task, renewal))| until(task) == **renewal);
    for renewal in renewals {
        assert!(matches!(renewal, Renewal::Held { .. }), "{renewal:?}");
    }
    same.map(|(place, _)| place).collect()
}

#[tokio::test]
async fn a_locked_task_costs_no_other_lease() {
    let world = World::shared().await;
    let (store, stranger) = (world.open().await, world.stranger().await);
    // Some have a row of their own, some have not.
    let limited = (0..TASKS).map(|_| world.task().attempt_timeout(LEASE * 10));
    let mut tasks = claimed_of(&world, &store, limited.collect()).await;
    tasks.extend(claimed(&world, &store, TASKS).await);
    let one = format!("id = '{}'", tasks[77].id());
    lock(&stranger, "tasks", &one, &world).await;
    for _ in 0..2 {
        let renewals = renew(&store, &tasks).await;
        assert_eq!(unprolonged(&tasks, &renewals), [77]);
    }
    free(&stranger).await;
    let renewals = renew(&store, &tasks).await;
    assert!(unprolonged(&tasks, &renewals).is_empty());
}

#[tokio::test]
async fn a_locked_claim_costs_no_other_lease() {
    let world = World::shared().await;
    let (store, stranger) = (world.open().await, world.stranger().await);
    let mut tasks = claimed(&world, &store, 3).await;
    let one = format!("'{}' = ANY(tasks)", tasks[0].id());
    tasks.extend(claimed(&world, &store, TASKS).await);
    lock(&stranger, "claims", &one, &world).await;
    let renewals = renew(&store, &tasks).await;
    assert_eq!(unprolonged(&tasks, &renewals), [0, 1, 2]);
    free(&stranger).await;
    let renewals = renew(&store, &tasks).await;
    assert!(unprolonged(&tasks, &renewals).is_empty());
}
