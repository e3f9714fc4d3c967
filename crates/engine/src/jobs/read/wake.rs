//! How often subscribers are woken.
//!
//! A few are woken for every change. To wake a thousand takes longer than a write, and they stand in the
//! way of who writes: so waking may take a tenth of the time of a processor. Whoever writes now and then is told of
//! at once. Where more is written than that, there is a rest after many were woken, and whatever is told until
//! it ends is told to all of them together. The history is not even read for them as long.

use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::cache::Cache;
use crate::spawn::Spawner;

/// So few are always woken at once.
const FEW: usize = 100;
/// How long it takes to wake one and to let it look.
const WAKE: Duration = Duration::from_nanos(400);
/// Waking may take one part of so many of the time.
const PARTS: u32 = 10;
/// A shorter rest is none: timers are not finer.
const REST_MIN: Duration = Duration::from_millis(1);
/// A longer one would be felt, unless there are thousands of subscribers.
const REST_MAX: Duration = Duration::from_millis(5);

/// Then they rest at most so many times as long as it takes to wake them.
const TIMES_MAX: u32 = 5;

/// When subscribers were woken, and may be again.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    debt: Debt,
    /// Nobody is woken until this time.
    pub(super) resting: Option<Duration>,
}

/// How much longer waking has taken than it may. Time pays it off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Debt {
    owed: Duration,
    at: Duration,
}

impl Debt {
    /// After so many were woken at this time; and how long nobody is from then on.
    fn woke(self, now: Duration, woken: usize) -> (Self, Duration) {
        let paid = now.saturating_sub(self.at) / PARTS;
        let before = self.owed.saturating_sub(paid);
        let took = match woken > FEW {
            true => WAKE.saturating_mul(u32::try_from(woken).unwrap_or(u32::MAX)),
            false => Duration::ZERO,
        };
        let rest_max = rest_max(took);
        let owed = (before + took).min(rest_max / PARTS + took);
        // This time is not counted yet: after a pause, the first change is followed by the next at once.
        let rest = before.saturating_mul(PARTS).min(rest_max);
        let is_rest = !took.is_zero() && rest >= REST_MIN;
        let rest = if is_rest { rest } else { Duration::ZERO };
        (Self { owed, at: now }, rest)
    }
}

fn rest_max(took: Duration) -> Duration {
    REST_MAX.max(took.saturating_mul(TIMES_MAX))
}

impl Cache {
    pub(super) fn wakes(&self) -> MutexGuard<'_, Wakes> {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the subscribers that wait for what was told: now, or as soon as the rest is over.
    pub(crate) fn wake(&self) {
        // Who ends the rest sees what was told before this: both have looked at the events since.
        if self.wakes().resting.is_some() {
            return;
        }
        let woken = self.events.wake();
        let now = self.engine.clock().monotonic();
        let mut wakes = self.wakes();
        let (debt, rest) = wakes.debt.woke(now, woken);
        wakes.debt = debt;
        if rest.is_zero() || wakes.resting.is_some() {
            return;
        }
        wakes.resting = Some(now + rest);
        drop(wakes);
        let (me, clock) = (self.me.clone(), self.engine.clock().clone());
        // In the runtime of the one who follows the history: with that, all subscriptions end.
        Spawner::current().spawn(async move {
            clock.sleep(rest).await;
            if let Some(me) = me.upgrade() {
                me.wakes().resting = None;
                me.wake();
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Somebody writes every so often, for a while. Answers how often so many are woken, how long they rest in
    /// all, and at most.
    fn run(every: Duration, woken: usize) -> (u32, Duration, Duration) {
        let (mut debt, mut now) = (Debt::default(), Duration::from_secs(9));
        let (mut wakes, mut rests, mut longest) = (0, Duration::ZERO, Duration::ZERO);
        let end = now + Duration::from_secs(2);
        while now < end {
            let rest;
            (debt, rest) = debt.woke(now, woken);
            (wakes, rests, longest) = (wakes + 1, rests + rest, longest.max(rest));
            now += every.max(rest);
        }
        (wakes, rests, longest)
    }

    const EVERY: [u64; 9] = [20, 50, 100, 400, 1_000, 2_000, 4_000, 5_000, 50_000];
    const WOKEN: [usize; 9] = [0, 1, 100, 101, 500, 1_000, 2_000, 10_000, 100_000];

    #[test]
    fn few_are_woken_for_every_change() {
        for every in EVERY {
            for woken in [0, 1, FEW / 2, FEW] {
                assert_eq!(
                    run(micros(every), woken).1,
                    Duration::ZERO,
                    "{every} {woken}"
                );
            }
        }
    }

    #[test]
    fn who_writes_seldom_enough_is_told_of_at_once() {
        for every in EVERY {
            for woken in WOKEN {
                let took = WAKE * woken as u32;
                if took * PARTS <= micros(every) {
                    let (_, rests, _) = run(micros(every), woken);
                    assert_eq!(rests, Duration::ZERO, "{every} {woken}");
                }
            }
        }
        // A thousand, 200 times a second.
        assert_eq!(run(micros(5_000), 1_000).1, Duration::ZERO);
    }

    #[test]
    fn many_take_no_more_than_their_part_of_the_time_and_wait_for_milliseconds() {
        for every in EVERY {
            for woken in WOKEN.into_iter().filter(|woken| *woken > FEW) {
                let took = WAKE * woken as u32;
                let (wakes, _, longest) = run(micros(every), woken);
                // The first two are had in advance.
                let share = (took * (wakes - 2)).as_secs_f64() / 2.0;
                // More only if the longest rest is not enough.
                let most = (took.as_secs_f64() / rest_max(took).as_secs_f64()).max(0.1);
                assert!(share <= most + 0.01, "{every} {woken}: {share}");
                assert!(longest <= rest_max(took), "{every} {woken}: {longest:?}");
            }
        }
    }

    #[test]
    fn a_rest_is_as_long_as_what_was_owed_before() {
        let now = Duration::from_secs(9);
        let (debt, rest) = Debt::default().woke(now, 1_000);
        assert_eq!(rest, Duration::ZERO, "the first after a pause");
        let (debt, rest) = debt.woke(now, 1_000);
        assert_eq!(rest, micros(4_000));
        let (debt, rest) = debt.woke(now + rest, 1_000);
        assert_eq!(rest, micros(4_000), "and so on");
        let (debt, rest) = debt.woke(now + micros(8_000 + 3_500), 1_000);
        assert_eq!(rest, Duration::ZERO, "a shorter one is none");
        let (_, rest) = debt.woke(now + micros(11_500), 1_000);
        assert_eq!(rest, micros(4_500), "but is owed");
    }

    #[test]
    fn whatever_was_woken_the_next_after_a_pause_is_told_of_at_once() {
        let (mut debt, now) = (Debt::default(), Duration::from_secs(9));
        for _ in 0..1_000 {
            (debt, _) = debt.woke(now, 10_000);
        }
        let took = WAKE * 10_000;
        let pause = rest_max(took) + took * PARTS;
        assert_eq!(debt.woke(now + pause, 10_000).1, Duration::ZERO);
    }

    #[test]
    fn no_number_is_too_large() {
        let (debt, rest) = Debt::default().woke(Duration::MAX, usize::MAX);
        assert_eq!(rest, Duration::ZERO);
        let (_, rest) = debt.woke(Duration::MAX, usize::MAX);
        assert_eq!(rest, rest_max(WAKE * u32::MAX));
    }
}
