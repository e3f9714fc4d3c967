//! The server's clock, as far as this process knows it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::clock::{Clock, Sleep, SystemClock};

/// How long an earlier look at the server's clock is relied upon when a later one was less exact.
const RELIED_UPON: Duration = Duration::from_secs(60);

/// The server's time: what it was at the last good look, and how long ago that is.
#[derive(Debug, Default)]
pub(crate) struct ServerClock {
    own: SystemClock,
    look: Mutex<Option<Look>>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    server: Timestamp,
    own: Duration,
    /// How wrong it can be.
    off: Duration,
}

impl ServerClock {
    /// Whether the last look is longer ago than this.
    pub(crate) fn is_old(&self, most: Duration) -> bool {
        let look = *self.look.lock().unwrap_or_else(PoisonError::into_inner);
        look.is_none_or(|look| self.own.monotonic().saturating_sub(look.own) > most)
    }

    /// By this process's own clock, before asking the server for its time.
    pub(crate) fn asked(&self) -> Duration {
        self.own.monotonic()
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
        let mut look = self.look.lock().unwrap_or_else(PoisonError::into_inner);
        if look.is_none_or(|old| old.off >= off || now.saturating_sub(old.own) > RELIED_UPON) {
            *look = Some(new);
        }
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Timestamp {
        let look = *self.look.lock().unwrap_or_else(PoisonError::into_inner);
        match look {
            Some(look) => {
                let passed = self.own.monotonic().saturating_sub(look.own);
                look.server.saturating_plus(passed)
            }
            None => self.own.now(),
        }
    }

    fn monotonic(&self) -> Duration {
        self.own.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.own.sleep(duration)
    }
}
