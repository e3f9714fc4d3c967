//! Those who tidy up: what time has made ready, and what has been kept long enough.

use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::store::Compact;
use plimsoll_core::task::Status;
use plimsoll_engine::{Retention, Sweeper};

use super::Station;
use crate::profile::Profile;

/// Longer than anybody waits before repeating something, jumps of the clock included.
pub(crate) const KEPT: Duration = Duration::from_secs(300);

/// Sweeps for as long as it lives. Now and then it looks at everything, without being asked to lead.
pub(crate) async fn sweep(station: Station) -> Result<()> {
    let sweeper = Sweeper::new(station.engine.clone())
        .interval(station.dice.millis(500, 5_000))
        .watch_every(station.dice.millis(2_000, 15_000))
        .limit(usize::try_from(station.dice.range(1, 50)).unwrap_or(1))
        .retention(retention(&station.world.profile));
    let passes = async {
        loop {
            station.pause(2_000, 20_000).await;
            // What goes wrong is tried again with the next one.
            sweeper.pass().await;
        }
    };
    tokio::select! {
        biased;
        () = sweeper.clone().run() => Ok(()),
        () = passes => Ok(()),
    }
}

/// What everybody who tidies up agrees on.
pub(crate) fn retention(profile: &Profile) -> Retention {
    let ended = Status::ALL
        .into_iter()
        .filter(|status| status.is_terminal());
    Retention {
        tasks: ended.map(|status| (status, KEPT)).collect(),
        archive: profile.archived.clone(),
        archived: None,
        groups: Some(KEPT),
        history: profile.history,
        logs: Some(KEPT),
        elsewhere: false,
        jobs: profile.jobs,
        silent_jobs: profile.jobs.map(|age| age * 2),
    }
}

/// Removes what is old for as long as it lives.
pub(crate) async fn compact(station: Station) -> Result<()> {
    loop {
        station.pause(2_000, 20_000).await;
        let retention = retention(&station.world.profile);
        let mut tasks = retention.tasks;
        tasks.retain(|status, _| !retention.archive.contains(status));
        // With little at a time, more is written than removed, and nobody is ever overtaken.
        let most = if station.dice.chance(300) { 1_000 } else { 50 };
        let compact = Compact {
            tasks,
            groups: retention.groups,
            history: retention.history,
            logs: retention.logs,
            limit: usize::try_from(station.dice.range(1, most)).unwrap_or(1),
        };
        // If it fails, there is a next time.
        station.engine.store().compact(compact).await.ok();
    }
}
