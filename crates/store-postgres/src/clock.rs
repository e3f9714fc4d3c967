//! The server's clock, as far as this process knows it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::clock::{Clock, Sleep, SystemClock};

/// How long an earlier look at the server's clock is relied upon when a later one was less exact.
const RELIED_UPON: Duration = Duration::from_secs(60);

/// The server's time: what it was at the last good look, and how long ago that is.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    own: SystemClock,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    look: Option<Look>,
    /// When the server was asked last, whatever became of that, by this process's own clock.
    asked: Option<Duration>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    server: Timestamp,
    own: Duration,
    /// How wrong it can be.
    off: Duration,
}

impl Look {
    /// The server's time at a moment of this process's own clock.
    fn at(&self, own: Duration) -> Timestamp {
        let passed = own.saturating_sub(self.own);
        self.server.saturating_plus(passed)
    }

    /// Whether it is relied upon instead of an earlier one: if it is as exact, if the other one is
    /// old, or if both cannot be right. Then the server's clock was set, or ours was wrong.
    fn replaces(&self, earlier: &Self) -> bool {
        let expected = earlier.at(self.own);
        let apart = (self.server.since(expected)).max(expected.since(self.server));
        self.off <= earlier.off
            || self.own.saturating_sub(earlier.own) > RELIED_UPON
            || apart > self.off + earlier.off
    }
}

impl ServerClock {
    /// Whether the server is to be asked: if nobody has for this long, or nobody was ever answered.
    pub(crate) fn is_old(&self, most: Duration) -> bool {
        let seen = self.seen();
        let asked_lately = |asked: Duration| self.own.monotonic().saturating_sub(asked) <= most;
        seen.look.is_none() || !seen.asked.is_some_and(asked_lately)
    }

    /// Whether the server was ever asked and has answered.
    pub(crate) fn is_known(&self) -> bool {
        self.seen().look.is_some()
    }

    /// How wrong it can be.
    pub(crate) fn off(&self) -> Duration {
        self.seen().look.map_or(Duration::ZERO, |look| look.off)
    }

    /// By this process's own clock, before asking the server for its time.
    pub(crate) fn asks(&self) -> Duration {
        let now = self.own.monotonic();
        self.seen().asked = Some(now);
        now
    }

    /// Takes in what the server answered to who asked at `asked`. It read its clock somewhere
    /// between then and now: the quicker the answer, the better the look.
    pub(crate) fn told(&self, asked: Duration, server: Timestamp) {
        let now = self.own.monotonic();
        let off = now.saturating_sub(asked) / 2;
        let new = Look {
            server: server.saturating_plus(off),
            own: now,
            off,
        };
        let mut seen = self.seen();
        if seen.look.is_none_or(|earlier| new.replaces(&earlier)) {
            seen.look = Some(new);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let look = self.seen().look;
        look.map_or_else(|| self.own.now(), |look| look.at(self.own.monotonic()))
    }

    fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.own.sleep(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_can_be_as_wrong_as_half_of_the_time_the_answer_took() {
        let clock = ServerClock::default();
        assert_eq!(clock.off(), Duration::ZERO);
        clock.told(Duration::ZERO, Timestamp::MIN);
        assert_eq!(
            Some(clock.off()),
            clock.seen().look.map(|look| look.own / 2)
        );
    }

    const MS: Duration = Duration::from_millis(1);

    /// A look after so many milliseconds, when the server's clock said `server`, give or take `off`.
    fn look(own: u32, server: u32, off: u32) -> Look {
        Look {
            server: Timestamp::MIN.saturating_plus(MS * server),
            own: MS * own,
            off: MS * off,
        }
    }

    #[test]
    fn a_look_replaces_one_that_is_less_exact_or_old_or_contradicted() {
        let earlier = look(1_000, 1_000, 5);
        for own in [1_000, 2_000, 60_999, 61_000, 61_001, 100_000] {
            for off in 0..20 {
                for ahead in 0..100 {
                    let new = look(own, own + ahead, off);
                    let (before, after) = (look(1_000, 1_000 + ahead, 5), look(own, own, off));
                    let expected = off <= 5 || own > 61_000 || ahead > 5 + off;
                    assert_eq!(new.replaces(&earlier), expected, "{new:?}");
                    // The server's clock may be behind as well.
                    assert_eq!(after.replaces(&before), expected, "{before:?} {after:?}");
                }
            }
        }
    }

    #[test]
    fn time_goes_on_from_a_look() {
        let look = look(1_000, 5_000, 5);
        let at = |own: u32| look.at(MS * own);
        assert_eq!(at(1_000), Timestamp::MIN.saturating_plus(MS * 5_000));
        assert_eq!(at(1_500), Timestamp::MIN.saturating_plus(MS * 5_500));
    }

    #[test]
    fn the_server_is_asked_again_after_a_while_however_exact_the_last_look_was() {
        let clock = ServerClock::default();
        let hour = Duration::from_secs(3_600);
        assert!(clock.is_old(hour) && !clock.is_known());
        let asked = clock.asks();
        // Asked, but not answered.
        assert!(clock.is_old(hour) && !clock.is_known());
        clock.told(asked, Timestamp::MIN);
        assert!(!clock.is_old(hour) && clock.is_known());
        // When it was asked counts, not when it gave the answer that is relied upon.
        clock.seen().asked = None;
        assert!(clock.is_old(hour));
        clock.asks();
        assert!(!clock.is_old(hour));
    }

    #[test]
    fn the_servers_time_counts_and_not_the_machines() {
        let clock = ServerClock::default();
        let (early, late) = (
            Timestamp::MIN,
            Timestamp::MIN.saturating_plus(MS * 1_000_000),
        );
        for server in [late, early] {
            clock.told(clock.asks(), server);
            assert!(clock.now() >= server && clock.now() < server.saturating_plus(MS * 10_000));
        }
    }
}
