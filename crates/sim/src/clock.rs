//! The clock of one process: everybody shares the passing of time, not the idea of what time it is.

use std::time::Duration;

use plimsoll_core::Timestamp;
use plimsoll_core::clock::{Clock, ManualClock, Sleep};

/// The shared clock with a wall clock that is wrong by a constant.
#[derive(Clone, Debug)]
pub(crate) struct SkewedClock {
    shared: ManualClock,
    ahead: Duration,
    behind: Duration,
}

impl SkewedClock {
    pub(crate) fn new(shared: ManualClock, ahead: Duration, behind: Duration) -> Self {
        Self {
            shared,
            ahead,
            behind,
        }
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Timestamp {
        (self.shared.now())
            .saturating_plus(self.ahead)
            .saturating_minus(self.behind)
    }

    fn monotonic(&self) -> Duration {
        self.shared.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        self.shared.sleep(duration)
    }
}
