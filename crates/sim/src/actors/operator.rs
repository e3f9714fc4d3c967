//! Somebody who cancels, retries and re-prioritises what others have submitted.

use plimsoll_core::store::{Cancel, Commit, Retry, Write};
use plimsoll_core::task::Priority;
use plimsoll_core::{Error, Result};

use super::Station;

/// Meddles for as long as it lives.
pub(crate) async fn meddle(station: Station) -> Result<()> {
    let dice = &station.dice;
    loop {
        station.pause(100, 6_000).await;
        let tasks = station.world.checker().acknowledged();
        if tasks.is_empty() {
            continue;
        }
        let task = *dice.pick(&tasks);
        let write = match dice.below(3) {
            0 => Write::Cancel(Cancel {
                task,
                reason: Some("an operator said so".into()),
            }),
            1 => Write::Retry(Retry {
                task,
                force: dice.chance(500),
                delay: dice.millis(0, 3_000),
            }),
            _ => {
                let priority = u8::try_from(dice.below(11)).unwrap_or(0);
                Write::Prioritise(task, Priority::new(priority)?)
            }
        };
        let commit = Commit::of(write).id(dice.ids().commit());
        match station.commit(&commit).await {
            // What a task is may not allow it, and it may be gone.
            Ok(_) | Err(Error::Conflict(_) | Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
}
