//! Contends for locks: tries, waits, waits for a while, loses patience; writes under what it has, and
//! gives it up in one way or the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::{Error, Key, Result};
use plimsoll_engine::locks::{Lock, LockGuard};

use super::Station;
use crate::check::{Grip, LOCKS};

/// The locks that there are.
pub(crate) const NAMES: [&str; 2] = ["x", "x.y"];

/// How often a locker still has to take a lock. It survives crashes.
#[derive(Debug)]
pub(crate) struct Rounds(AtomicU64);

impl Rounds {
    pub(crate) fn new(rounds: u64) -> Self {
        Self(AtomicU64::new(rounds))
    }

    fn left(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    fn done(&self) {
        let less = |left: u64| left.checked_sub(1);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
            .ok();
    }
}

/// Takes locks, on its own or as two who stand in one line.
pub(crate) async fn contend(station: Station, rounds: Arc<Rounds>) -> Result<()> {
    if station.dice.chance(600) {
        return go_round(&station, &rounds).await;
    }
    let both = [go_round(&station, &rounds), go_round(&station, &rounds)];
    futures::future::try_join_all(both).await.map(drop)
}

async fn go_round(station: &Station, rounds: &Rounds) -> Result<()> {
    let dice = &station.dice;
    while rounds.left() {
        station.pause(0, 3_000).await;
        // Most want the same.
        let name = NAMES[usize::from(dice.chance(200))];
        let (key, ttl) = (
            Key::new(format!("{LOCKS}{name}"))?,
            dice.millis(1_000, 8_000),
        );
        let lock = station.locks.lock(name).owner(&station.who).ttl(ttl);
        let number = station.world.checker().wants(&station.who, &key);
        let guard = take(station, &lock).await;
        let Some(guard) = guard? else {
            station.world.checker().wants_no_more(number);
            continue;
        };
        let grip = Grip {
            lock: key,
            token: guard.token(),
            ttl,
        };
        station
            .world
            .say(&station.who, |_| format!("has {name} {}", grip.token));
        station.world.checker().has_lock(number, &grip);
        hold(station, guard, &grip).await?;
        rounds.done();
    }
    Ok(())
}

/// Takes a lock, or does not.
async fn take(station: &Station, lock: &Lock) -> Result<Option<LockGuard>> {
    let dice = &station.dice;
    let answer = match dice.below(6) {
        0 => lock.try_acquire().await,
        1 => lock.acquire_within(dice.millis(50, 8_000)).await,
        2 => tokio::select! {
            biased;
            answer = lock.acquire() => answer,
            () = station.pause(50, 8_000) => return Ok(None),
        },
        _ => return lock.acquire().await.map(Some),
    };
    match answer {
        Ok(guard) => Ok(Some(guard)),
        // Another has it, or nobody knows.
        Err(Error::Conflict(_) | Error::Unavailable(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Works under a lock as long as it is held, and gives it up.
async fn hold(station: &Station, guard: LockGuard, grip: &Grip) -> Result<()> {
    let (dice, world) = (&station.dice, &station.world);
    let longest = if dice.chance(400) { 6_000 } else { 800 };
    for _ in 0..dice.below(4) {
        if !guard.is_held() {
            break;
        }
        world.checker().relies_on_lock(grip);
        // What is written takes a while to arrive, and a pause fits in between.
        station.pause(1, longest).await;
        world.checker().write_under(grip);
    }
    match dice.below(4) {
        0 => drop(guard),
        1 => tokio::select! {
            biased;
            () = guard.lost() => {}
            () = station.sleep(Duration::from_secs(4)) => {}
        },
        _ => {
            let answer = guard.release().await;
            world.checker().released(grip, &answer);
            match answer {
                Ok(()) | Err(Error::Conflict(_) | Error::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
