//! Those who tidy up: what time has made ready, and what has been kept long enough.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::store::Compact;
use plimsoll_core::task::Status;
use plimsoll_engine::{Retention, Sweeper};

use super::Station;

/// Longer than anybody waits before repeating something, jumps of the clock included.
const KEPT: Duration = Duration::from_secs(300);

/// Sweeps for as long as it lives.
pub(crate) async fn sweep(station: Station) -> Result<()> {
    let interval = station.dice.millis(500, 5_000);
    let ended = [Status::Completed, Status::Failed, Status::Cancelled];
    let retention = Retention {
        tasks: BTreeMap::from(ended.map(|status| (status, KEPT))),
        archive: ended.into(),
        archived: Some(KEPT),
        ..Retention::forever()
    };
    Sweeper::new(station.engine.clone())
        .interval(interval)
        .retention(retention)
        .run()
        .await;
    Ok(())
}

/// Removes what is old for as long as it lives.
pub(crate) async fn compact(station: Station) -> Result<()> {
    loop {
        station.pause(2_000, 20_000).await;
        let ended = [Status::Completed, Status::Failed, Status::Cancelled];
        let compact = Compact {
            tasks: BTreeMap::from(ended.map(|status| (status, KEPT))),
            groups: Some(KEPT),
            history: station.world.profile.history,
            logs: Some(KEPT),
            limit: usize::try_from(station.dice.range(1, 50)).unwrap_or(1),
        };
        // If it fails, there is a next time.
        station.engine.store().compact(compact).await.ok();
    }
}
