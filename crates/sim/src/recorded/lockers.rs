//! Lockers: contend for a few locks through the engine.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plimsoll_core::{Error, Key, Result};

use super::clients::Desk;
use super::log::Event;
use crate::check::{Grip, LOCKS};

const NAMES: [&str; 2] = ["x", "y"];
const TTL: Duration = Duration::from_secs(1);

/// Takes locks until it is time.
pub(super) async fn contend(desk: Desk) -> Result<()> {
    let who = format!("locker {}", desk.number);
    while !desk.is_over() {
        let name = NAMES[usize::from(desk.ids.below(4) == 0)];
        let lock = Key::new(format!("{LOCKS}{name}"))?;
        let wants = desk.recorder.count(Event::Wants {
            who: who.clone(),
            lock: lock.clone(),
        });
        let number = u64::try_from(wants).unwrap_or(u64::MAX).saturating_add(1);
        let locks = desk.engine.locks();
        let wanted = locks.lock(name).owner(&who).ttl(TTL);
        let taken = match desk.ids.below(3) {
            0 => wanted.try_acquire().await,
            _ => wanted.acquire_within(TTL).await,
        };
        let guard = match taken {
            Ok(guard) => guard,
            Err(Error::Conflict(_) | Error::Unavailable(_)) => {
                desk.recorder.note(Event::WantsNoMore(number));
                desk.pause(5).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let grip = Grip {
            lock,
            token: guard.token(),
            ttl: TTL,
        };
        desk.recorder.note(Event::HasLock(number, grip.clone()));
        for _ in 0..desk.ids.below(3) {
            let heard = Arc::new(OnceLock::new());
            desk.recorder
                .note(Event::Relies(grip.clone(), heard.clone()));
            if guard.is_held() {
                heard.set(()).ok();
            }
            desk.pause(20).await;
        }
        let answer = guard.release().await;
        desk.recorder.note(Event::Released(grip, answer.clone()));
        match answer {
            Ok(()) | Err(Error::Conflict(_) | Error::Unavailable(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
