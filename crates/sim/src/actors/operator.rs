//! Somebody who cancels, retries and re-prioritises what others have submitted, and takes their locks
//! away.

use plimsoll_core::change::TaskEvent;
use plimsoll_core::task::Priority;
use plimsoll_core::{Error, Result};

use super::Station;
use super::locker::NAMES;

/// Meddles for as long as it lives.
pub(crate) async fn meddle(station: Station) -> Result<()> {
    let (dice, client) = (&station.dice, &station.tasks);
    loop {
        station.pause(100, 6_000).await;
        if dice.chance(250) {
            match station.locks.break_lock(dice.pick(&NAMES)).await {
                // Or it has passed to another meanwhile.
                Ok(_) | Err(Error::Unavailable(_) | Error::Conflict(_)) => continue,
                Err(error) => return Err(error),
            }
        }
        let tasks = station.world.checker().acknowledged();
        if tasks.is_empty() {
            continue;
        }
        let task = *dice.pick(&tasks);
        let (events, answer): (&[TaskEvent], _) = match dice.below(3) {
            0 => {
                let reason = Some("an operator said so".into());
                let events = &[TaskEvent::Cancelled, TaskEvent::CancelRequested];
                (events, client.cancel(task, reason).await)
            }
            1 => {
                station.world.checker().asked_to_retry(task);
                let (force, delay) = (dice.chance(500), dice.millis(0, 3_000));
                let answer = client.retry_with(task, force, delay).await;
                (&[TaskEvent::Retried], answer)
            }
            _ => {
                let priority = Priority::new(u8::try_from(dice.below(11)).unwrap_or(0))?;
                let answer = client.prioritise(task, priority).await;
                (&[TaskEvent::Amended], answer)
            }
        };
        match answer {
            Ok(effect) => station.world.checker().affected(task, events, effect),
            // What a task is may not allow it, and it may be gone. To ask once more after the
            // client has lost patience would be another request.
            Err(Error::Conflict(_) | Error::NotFound(_) | Error::Unavailable(_)) => {}
            Err(error) => return Err(error),
        }
    }
}
