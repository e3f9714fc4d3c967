//! How eagerly a sweeper looks for what is due.

use std::time::Duration;

use plimsoll_core::Ids;
use plimsoll_core::store::Swept;

/// How far apart looks are that follow hints. They come with every submit, so that looks that find
/// nothing become rarer.
const APART_MIN: Duration = Duration::from_millis(100);
pub(super) const APART_MAX: Duration = Duration::from_secs(1);

/// How eager to be.
pub(super) struct Pace {
    /// How far apart looks are that follow hints.
    pub(super) apart: Duration,
    /// Whether the next look is for something that will be due by then.
    pub(super) awaited: bool,
    /// Whether somebody else was faster the last time.
    beaten: bool,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            apart: APART_MIN,
            awaited: false,
            beaten: false,
        }
    }

    pub(super) fn looked(&mut self, swept: &Swept) {
        let found = swept.promoted + swept.expired + swept.records + swept.groups > 0;
        if self.awaited || found {
            self.beaten = !found;
        }
        self.apart = match found {
            true => APART_MIN,
            false => (self.apart * 2).min(APART_MAX),
        };
    }

    /// Of many sweepers, one is the first. The others come a little later, and find nothing to do
    /// as long as it lives.
    pub(super) fn lag(&self, ids: &Ids) -> Duration {
        match self.beaten {
            true => APART_MIN.mul_f64(ids.jitter().fraction()),
            false => Duration::ZERO,
        }
    }
}
