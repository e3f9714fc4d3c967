//! The one place that reads clocks and sleeps.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;

use crate::time::Timestamp;

/// A sleep that ends when its clock says so.
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time as Plimsoll sees it: wall time for what is stored, monotonic time for what is measured.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// The wall-clock time. It may jump.
    fn now(&self) -> Timestamp;
    /// Time since some fixed moment. It never goes back.
    fn monotonic(&self) -> Duration;
    /// Resolves once `duration` has passed on the monotonic clock, or later: whoever sleeps looks at
    /// the clock again.
    fn sleep(&self, duration: Duration) -> Sleep;
}

/// The clocks of the operating system.
///
/// On Linux, its monotonic time goes on while the machine is suspended: a lease or a lock ends then
/// as it does for everybody else. Its sleeps do not, so that they may end late by that much.
#[derive(Debug, Clone)]
pub struct SystemClock {
    started: Moment,
}

impl SystemClock {
    /// A clock whose monotonic time starts at zero now.
    pub fn new() -> Self {
        Self {
            started: Moment::now(),
        }
    }
}

/// A moment of a clock that goes on while the machine is suspended.
#[cfg(target_os = "linux")]
#[derive(Debug, Clone, Copy)]
struct Moment(Duration);

#[cfg(target_os = "linux")]
impl Moment {
    fn now() -> Self {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        // Neither is negative: the time since the machine was started, and less than a second.
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Self(Duration::new(seconds, nanos))
    }

    fn elapsed(&self) -> Duration {
        Self::now().0.saturating_sub(self.0)
    }
}

/// A moment of the best clock that there is elsewhere.
#[cfg(not(target_os = "linux"))]
#[derive(Debug, Clone, Copy)]
struct Moment(std::time::Instant);

#[cfg(not(target_os = "linux"))]
impl Moment {
    #[allow(clippy::disallowed_methods)]
    fn now() -> Self {
        Self(std::time::Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods)]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::MIN.saturating_plus(since)
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    #[allow(clippy::disallowed_methods)]
    fn sleep(&self, duration: Duration) -> Sleep {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A clock that stands still until a test moves it.
///
/// ```
/// use std::time::Duration;
/// use plimsoll_core::clock::{Clock, ManualClock};
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(30));
/// assert_eq!(clock.now().since(before), Duration::from_secs(30));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    hands: Arc<Mutex<Hands>>,
}

#[derive(Debug)]
struct Hands {
    wall: Timestamp,
    monotonic: Duration,
    sleepers: BTreeMap<(Duration, u64), oneshot::Sender<()>>,
    sleeps: u64,
}

impl Default for Hands {
    fn default() -> Self {
        Self {
            // 2030-01-01: far from both ends, and not today.
            wall: Timestamp::MIN.saturating_plus(Duration::from_secs(1_893_456_000)),
            monotonic: Duration::ZERO,
            sleepers: BTreeMap::new(),
            sleeps: 0,
        }
    }
}

impl Hands {
    /// When each sleep ends that somebody still waits for, soonest first.
    fn asleep(&self) -> impl Iterator<Item = Duration> {
        let waited_for = (self.sleepers.iter()).filter(|(_, wake)| !wake.is_closed());
        waited_for.map(|((until, _), _)| *until)
    }
}

impl ManualClock {
    /// A clock that shows 2030-01-01T00:00:00Z.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lets `duration` pass on both clocks and wakes the sleeps that end by then.
    pub fn advance(&self, duration: Duration) {
        let mut hands = self.hands();
        hands.wall = hands.wall.saturating_plus(duration);
        hands.monotonic = hands.monotonic.saturating_add(duration);
        let now = hands.monotonic;
        let asleep = hands.sleepers.split_off(&(now, u64::MAX));
        for wake in std::mem::replace(&mut hands.sleepers, asleep).into_values() {
            // A sleep that was dropped has nobody to wake.
            wake.send(()).ok();
        }
    }

    /// Sets the wall clock alone, as an operator or a bad time server would.
    pub fn jump_to(&self, wall: Timestamp) {
        self.hands().wall = wall;
    }

    /// How long until the next of its sleeps ends, if there is any.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll_core::clock::{Clock, ManualClock};
    /// let clock = ManualClock::new();
    /// let sleep = clock.sleep(Duration::from_secs(5));
    /// clock.advance(Duration::from_secs(2));
    /// assert_eq!(clock.next_sleep(), Some(Duration::from_secs(3)));
    /// drop(sleep);
    /// assert_eq!(clock.next_sleep(), None);
    /// ```
    pub fn next_sleep(&self) -> Option<Duration> {
        let hands = self.hands();
        let until = hands.asleep().next()?;
        Some(until.saturating_sub(hands.monotonic))
    }

    /// How many of its sleeps have not ended and are still waited for.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use plimsoll_core::clock::{Clock, ManualClock};
    /// let clock = ManualClock::new();
    /// let [_short, _long] = [1, 60].map(|seconds| clock.sleep(Duration::from_secs(seconds)));
    /// clock.advance(Duration::from_secs(1));
    /// assert_eq!(clock.sleepers(), 1);
    /// ```
    pub fn sleepers(&self) -> usize {
        self.hands().asleep().count()
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.hands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.hands().wall
    }

    fn monotonic(&self) -> Duration {
        self.hands().monotonic
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        if duration.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        let (wake, woken) = oneshot::channel();
        let mut hands = self.hands();
        let until = hands.monotonic.saturating_add(duration);
        let turn = hands.sleeps;
        hands.sleeps += 1;
        hands.sleepers.insert((until, turn), wake);
        Box::pin(async move {
            // The sender is dropped only with the clock; then nobody can wake this sleep again.
            if woken.await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    #[tokio::test]
    async fn a_manual_sleep_ends_exactly_at_its_time() {
        let clock = ManualClock::new();
        let mut sleep = clock.sleep(Duration::from_secs(2));
        clock.advance(Duration::from_millis(1_999));
        assert_eq!(futures::poll!(&mut sleep), Poll::Pending);
        clock.advance(Duration::from_millis(1));
        assert_eq!(futures::poll!(&mut sleep), Poll::Ready(()));
    }

    #[tokio::test]
    async fn the_next_sleep_is_the_first_that_somebody_still_waits_for() {
        let clock = ManualClock::new();
        assert_eq!(clock.next_sleep(), None);
        let late = clock.sleep(Duration::from_secs(9));
        let early = clock.sleep(Duration::from_secs(2));
        clock.advance(Duration::from_secs(1));
        assert_eq!(clock.next_sleep(), Some(Duration::from_secs(1)));
        drop(early);
        assert_eq!(clock.next_sleep(), Some(Duration::from_secs(8)));
        clock.advance(Duration::from_secs(8));
        late.await;
        assert_eq!(clock.next_sleep(), None);
    }

    #[test]
    fn a_jump_moves_the_wall_and_not_the_monotonic_clock() {
        let clock = ManualClock::new();
        let back = clock.now().saturating_minus(Duration::from_secs(3_600));
        clock.jump_to(back);
        assert_eq!(clock.now(), back);
        assert_eq!(clock.monotonic(), Duration::ZERO);
    }

    #[test]
    fn the_system_clock_moves_on_and_is_of_this_century() {
        let clock = SystemClock::new();
        let first = clock.monotonic();
        assert!(clock.monotonic() >= first);
        assert!(clock.now().as_micros() > 1_700_000_000_000_000);
    }
}
