//! How often subscribers are woken, and how many at once.
//!
//! A few are woken for every change. To wake a thousand and to tell them takes longer than a write, and they stand
//! in the way of who writes: so that may take a tenth of the time of a processor. Whoever writes now and then is told
//! of at once. Where more is written than that, there is a rest after many were woken, and whatever is told until
//! it ends is told to all of them together. The history is not even read for them as long.
//!
//! Where much is written at once, who wrote it has just been answered and makes the next writes: they have their turns
//! before the history is read.
//!
//! Many are woken a few at a time, and others have their turn in between: who writes would otherwise wait for all
//! of them with each step of a write.

use std::sync::{MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::cache::Cache;
use crate::spawn::Spawner;

/// So few are always woken at once.
const FEW: usize = 100;
/// Of more than that, so many have a turn.
const TURN: usize = 16;
/// Where others take so long with their turns, no more are waited for.
const TURNS_MAX: Duration = Duration::from_millis(5);
/// How long it takes to wake one and to let it look.
const WAKE: Duration = Duration::from_nanos(400);
/// How long one takes for an event, in nanoseconds.
const TELL_NANOS: u64 = 15;
/// Both may take one part of so many of the time.
const PARTS: u32 = 10;
/// A shorter rest is none: timers are not finer.
const REST_MIN: Duration = Duration::from_millis(1);
/// A longer one would be felt, unless there are thousands of subscribers.
const REST_MAX: Duration = Duration::from_millis(10);
/// Then they rest at most so many times as long as it takes to wake them.
const TIMES_MAX: u32 = 5;

/// So many changes at once are much.
const MUCH: usize = 128;

/// When subscribers were woken, and may be again.
#[derive(Debug, Default)]
pub(crate) struct Wakes {
    debt: Debt,
    /// Nobody else is woken until this time, and until all of those who were to be have been.
    resting: Option<Duration>,
    /// How many changes were told at once, the last time that there were any.
    told: usize,
}

impl Wakes {
    /// How long the history need not be read.
    pub(super) fn rest(&self, now: Duration) -> Duration {
        let resting = self.resting.map(|until| until.saturating_sub(now));
        resting.unwrap_or_default()
    }

    /// So many changes were told at once.
    pub(super) fn told(&mut self, changes: usize) {
        if changes > 0 {
            self.told = changes;
        }
    }

    pub(super) fn has_told_much(&self) -> bool {
        self.told >= MUCH
    }
}

/// How much longer waking has taken than it may. Time pays it off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Debt {
    owed: Duration,
    at: Duration,
}

impl Debt {
    /// After so many were woken at this time, for so many events of all of them together; and how long nobody is
    /// from then on.
    fn woke(self, now: Duration, woken: usize, events: u64) -> (Self, Duration) {
        let paid = now.saturating_sub(self.at) / PARTS;
        let before = self.owed.saturating_sub(paid);
        if woken <= FEW {
            let owed = before;
            return (Self { owed, at: now }, Duration::ZERO);
        }
        let tell = Duration::from_nanos(events.saturating_mul(TELL_NANOS));
        let took = wake(woken).saturating_add(tell);
        let rest_max = rest_max(woken);
        let owed = before.saturating_add(took).min(rest_max / PARTS + took);
        // This time is not counted yet: after a pause, the first change is followed by the next at once.
        let rest = before.saturating_mul(PARTS).min(rest_max);
        let rest = if rest >= REST_MIN {
            rest
        } else {
            Duration::ZERO
        };
        (Self { owed, at: now }, rest)
    }
}

fn wake(woken: usize) -> Duration {
    WAKE.saturating_mul(u32::try_from(woken).unwrap_or(u32::MAX))
}

/// To rest does not make it less to tell, only to wake.
fn rest_max(woken: usize) -> Duration {
    REST_MAX.max(wake(woken).saturating_mul(TIMES_MAX))
}

/// How many are woken next, so long after the first.
fn turn(since: Duration) -> usize {
    match since < TURNS_MAX {
        true => TURN,
        false => usize::MAX,
    }
}

impl Cache {
    pub(super) fn wakes(&self) -> MutexGuard<'_, Wakes> {
        self.wakes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the subscribers that wait for what was told: now, or as soon as the rest is over.
    pub(crate) fn wake(&self) {
        let (woken, events) = self.events.awaited();
        let now = self.engine.clock().monotonic();
        let mut wakes = self.wakes();
        // Who ends the rest sees what was told before this: both have looked at the events since.
        if wakes.resting.is_some() {
            return;
        }
        let (debt, rest) = wakes.debt.woke(now, woken, events);
        wakes.debt = debt;
        if woken <= FEW {
            drop(wakes);
            self.events.wake();
            return;
        }
        wakes.resting = Some(now + rest);
        drop(wakes);
        // In the runtime of the one who follows the history: with that, all subscriptions end.
        Spawner::current().spawn(wake_in_turns(self.me.clone(), now, rest));
    }
}

/// Wakes those who wait, a few at a time, and whoever waits for something after the rest.
async fn wake_in_turns(cache: Weak<Cache>, began: Duration, rest: Duration) {
    let mut slot = Some(0);
    let mut left = rest;
    while let Some(from) = slot {
        let Some(cache) = cache.upgrade() else { return };
        let since = cache.engine.clock().monotonic().saturating_sub(began);
        slot = cache.events.wake_some(from, turn(since));
        left = rest.saturating_sub(since);
        drop(cache);
        tokio::task::yield_now().await;
    }
    let Some(clock) = cache.upgrade().map(|cache| cache.engine.clock().clone()) else {
        return;
    };
    if !left.is_zero() {
        clock.sleep(left).await;
    }
    if let Some(cache) = cache.upgrade() {
        cache.wakes().resting = None;
        cache.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    /// Somebody writes every so often, for a while. Answers how often so many are woken, each for all that was
    /// written since, how long they rest in all, and at most.
    fn run(every: Duration, woken: usize) -> (u32, Duration, Duration) {
        let (mut debt, mut now) = (Debt::default(), Duration::from_secs(9));
        let (mut wakes, mut rests, mut longest) = (0, Duration::ZERO, Duration::ZERO);
        let end = now + Duration::from_secs(2);
        let mut events = 1;
        while now < end {
            let rest;
            (debt, rest) = debt.woke(now, woken, events * woken as u64);
            (wakes, rests, longest) = (wakes + 1, rests + rest, longest.max(rest));
            let wait = every.max(rest);
            events = (wait.as_nanos() / every.as_nanos()) as u64;
            now += wait;
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
                let took = (WAKE + Duration::from_nanos(TELL_NANOS)) * woken as u32;
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
                let most = (took.as_secs_f64() / rest_max(woken).as_secs_f64()).max(0.1);
                assert!(share <= most + 0.01, "{every} {woken}: {share}");
                assert!(longest <= rest_max(woken), "{every} {woken}: {longest:?}");
            }
        }
    }

    #[test]
    fn a_rest_is_as_long_as_what_was_owed_before() {
        let now = Duration::from_secs(9);
        let (debt, rest) = Debt::default().woke(now, 1_000, 0);
        assert_eq!(rest, Duration::ZERO, "the first after a pause");
        let (debt, rest) = debt.woke(now, 1_000, 0);
        assert_eq!(rest, micros(4_000));
        let (debt, rest) = debt.woke(now + rest, 1_000, 0);
        assert_eq!(rest, micros(4_000), "and so on");
        let (debt, rest) = debt.woke(now + micros(8_000 + 3_500), 1_000, 0);
        assert_eq!(rest, Duration::ZERO, "a shorter one is none");
        let (debt, rest) = debt.woke(now + micros(11_500), 1_000, 20_000);
        assert_eq!(rest, micros(4_500), "but is owed");
        let (_, rest) = debt.woke(now + micros(16_000), 1_000, 0);
        assert_eq!(rest, micros(4_000 + 3_000), "and so is what was told");
    }

    /// A thousand rest the longer, the more they are told each time.
    #[test]
    fn the_more_is_written_the_fewer_wakes_it_takes() {
        let rest = |every: u64| {
            let (wakes, rests, longest) = run(micros(every), 1_000);
            (rests / wakes, longest)
        };
        assert_eq!(rest(5_000).1, Duration::ZERO);
        let (mean, longest) = rest(1_000);
        assert!(mean > micros(3_900) && longest < micros(5_000), "{mean:?}");
        let (mean, longest) = rest(100);
        assert!(mean > micros(9_500) && longest == REST_MAX, "{mean:?}");
    }

    #[test]
    fn much_is_what_was_told_last() {
        let mut wakes = Wakes::default();
        let much = [0, MUCH - 1, 0, MUCH, 0, MUCH + 1, 1, 0].map(|changes| {
            wakes.told(changes);
            wakes.has_told_much()
        });
        assert_eq!(much, [false, false, false, true, true, true, false, false]);
    }

    #[test]
    fn nobody_rests_for_longer_than_is_left() {
        let (now, mut wakes) = (Duration::from_secs(9), Wakes::default());
        assert_eq!(wakes.rest(now), Duration::ZERO);
        wakes.resting = Some(now + REST_MIN);
        assert_eq!(wakes.rest(now), REST_MIN);
        assert_eq!(wakes.rest(now + 2 * REST_MIN), Duration::ZERO);
    }

    #[test]
    fn others_have_their_turns_but_not_for_long() {
        assert_eq!(turn(Duration::ZERO), TURN);
        assert_eq!(turn(TURNS_MAX - micros(1)), TURN);
        assert_eq!(turn(TURNS_MAX), usize::MAX);
    }

    #[test]
    fn whatever_was_woken_the_next_after_a_pause_is_told_of_at_once() {
        let (mut debt, now) = (Debt::default(), Duration::from_secs(9));
        for _ in 0..1_000 {
            (debt, _) = debt.woke(now, 10_000, 10_000);
        }
        let took = (WAKE + Duration::from_nanos(TELL_NANOS)) * 10_000;
        let pause = rest_max(10_000) + took * PARTS;
        assert_eq!(debt.woke(now + pause, 10_000, 10_000).1, Duration::ZERO);
    }

    #[test]
    fn no_number_is_too_large() {
        let (debt, rest) = Debt::default().woke(Duration::MAX, usize::MAX, u64::MAX);
        assert_eq!(rest, Duration::ZERO);
        let (_, rest) = debt.woke(Duration::MAX, usize::MAX, u64::MAX);
        assert_eq!(rest, rest_max(usize::MAX));
    }
}
