//! How often something is decided anew when others change the same things.

use std::time::Duration;

use plimsoll_core::Result;
use plimsoll_core::error::Conflict;

use crate::Engine;

/// How often something is tried in vain before it is given up.
const TRIES: u32 = 12;
/// How often what has waited behind that: once by what was known before, and then by what is.
const TRIES_BEHIND: u32 = 3;
/// The longest wait before the third try; it doubles with each one after.
const WAIT: Duration = Duration::from_millis(5);

/// What is left of the patience with others.
#[derive(Debug)]
pub(crate) struct Contest {
    lost: u32,
    tries: u32,
}

impl Default for Contest {
    fn default() -> Self {
        let (lost, tries) = (0, TRIES);
        Self { lost, tries }
    }
}

impl Contest {
    /// Something got done: whoever was in the way is not any more.
    pub(crate) fn won(&mut self) {
        *self = Self::default();
    }

    /// Something was given up. What has waited behind it, which perhaps nobody is in the way of, is tried a few times.
    pub(crate) fn turn_to_next(&mut self) {
        let (lost, tries) = (0, TRIES_BEHIND);
        *self = Self { lost, tries };
    }

    /// Before something is decided anew: the first time at once, then after a random wait, so that those
    /// who are in each other's way come apart. In the end it is given up.
    pub(crate) async fn again(&mut self, engine: &Engine) -> Result<()> {
        self.lost += 1;
        let attempts = self.lost;
        if attempts >= self.tries {
            return Err(Conflict::Contended { attempts }.into());
        }
        if attempts > 1 {
            let wait = WAIT * 2_u32.pow(attempts - 2);
            let jitter = engine.ids().jitter().fraction();
            engine.clock().sleep(wait.mul_f64(jitter)).await;
        }
        Ok(())
    }
}
