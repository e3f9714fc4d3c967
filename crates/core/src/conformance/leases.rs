//! Leases, renewals and fences: only the current holder acts.

use std::time::Duration;

use crate::conformance::world::{LEASE, World, complete, holder, lost};
use crate::error::{Lost, Result};
use crate::store::{Renew, Renewal, StoreExt};
use crate::task::Status;

cases!["leases":
    a_renewal_prolongs_the_lease_from_now,
    a_stale_holder_cannot_complete_what_another_worker_holds,
];

async fn a_renewal_prolongs_the_lease_from_now(w: World) -> Result<()> {
    let (_, held) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE / 2);
    let renew = Renew {
        holders: vec![held],
        lease: Duration::from_secs(60),
    };
    let until = w.now().saturating_plus(Duration::from_secs(60));
    assert_eq!(w.store.renew(renew).await?, [Renewal::Held { until }]);
    Ok(())
}

async fn a_stale_holder_cannot_complete_what_another_worker_holds(w: World) -> Result<()> {
    let (task, stale) = w.claimed(w.new_task("work")).await?;
    w.advance(LEASE);
    w.sweep().await?;
    w.advance(Duration::from_secs(60));
    w.sweep().await?;
    let second = w.worker("second")?;
    let taken = w.claim(&second, 1).await?;
    assert_eq!(taken[0].id(), task.id());
    let before = w.task(task.id()).await?;
    let why = lost(w.store.settle(stale, complete()).await);
    assert_eq!(why, Lost::WrongWorker { holder: second });
    assert_eq!(w.task(task.id()).await?, before);
    w.store.settle(holder(&taken[0]), complete()).await?;
    assert_eq!(w.status(task.id()).await?, Status::Completed);
    Ok(())
}
