//! Somebody who deletes jobs, whoever takes part in them.

use plimsoll_core::{Error, Result};

use super::Station;
use super::partition::JOBS;

/// Deletes for as long as it lives.
pub(crate) async fn delete(station: Station) -> Result<()> {
    let dice = &station.dice;
    loop {
        station.pause(3_000, 40_000).await;
        let job = *dice.pick(&JOBS);
        let deleted = match dice.chance(500) {
            true => station.jobs.delete(job).await,
            // The rest is left to the sweepers, or to whoever comes next.
            false => station.jobs.mark_deleted(job).await,
        };
        match deleted {
            Ok(_) | Err(Error::Unavailable(_) | Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
}
