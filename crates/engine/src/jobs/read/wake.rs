//! How often subscribers are woken.
//!
//! A few are woken for every change. To wake a thousand takes longer than a write, and they stand in the
//! way of who writes: so after many were woken there is a rest, and whatever is told until it ends is told
//! to all of them at once. The history is not even read for them as long.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::cache::Cache;
use crate::spawn::Spawner;

/// How long each who was woken lets the others rest: several times as long as it takes to wake one.
const REST_EACH: Duration = Duration::from_micros(2);
/// A shorter rest is none: timers are not finer.
const REST_MIN: Duration = Duration::from_millis(1);

/// How long nobody is woken after so many were.
fn rest(woken: usize) -> Duration {
    let rest = REST_EACH.saturating_mul(u32::try_from(woken).unwrap_or(u32::MAX));
    match rest < REST_MIN {
        true => Duration::ZERO,
        false => rest,
    }
}

impl Cache {
    pub(super) fn resting(&self) -> MutexGuard<'_, Option<Duration>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the subscribers that wait for what was told: now, or as soon as the rest is over.
    pub(crate) fn wake(&self) {
        // Who ends the rest sees what was told before this: both have looked at the events since.
        if self.resting().is_some() {
            return;
        }
        let rest = rest(self.events.wake());
        if rest.is_zero() {
            return;
        }
        let until = self.engine.clock().monotonic() + rest;
        if self.resting().replace(until).is_some() {
            return;
        }
        let (me, clock) = (self.me.clone(), self.engine.clock().clone());
        // In the runtime of the one who follows the history: with that, all subscriptions end.
        Spawner::current().spawn(async move {
            clock.sleep(rest).await;
            if let Some(me) = me.upgrade() {
                *me.resting() = None;
                me.wake();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_woken_at_once_and_many_together() {
        let micros = Duration::from_micros;
        for (woken, expected) in [(0, 0), (1, 0), (499, 0), (500, 1_000), (1_000, 2_000)] {
            assert_eq!(rest(woken), micros(expected), "{woken}");
        }
        assert!(rest(usize::MAX) > rest(1_000));
    }
}
