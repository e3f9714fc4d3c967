//! The one place of this store that spawns and sleeps: its threads block on SQLite, not on a
//! runtime, and they wait for other processes, which do not go by an injected clock.

use std::time::Duration;

use plimsoll_core::error::{Applied, Unavailable};
use plimsoll_core::{Error, Result};

/// Starts a thread that ends by itself.
#[allow(clippy::disallowed_methods)]
pub(crate) fn start(name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = std::thread::Builder::new().name(format!("plimsoll-{name}"));
    match thread.spawn(run) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Unavailable(Unavailable {
            applied: Applied::No,
            cause: format!("cannot start a thread: {error}"),
        })),
    }
}

#[allow(clippy::disallowed_methods)]
pub(crate) fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

/// Waits for something that another process does, in short steps and then in longer ones.
#[derive(Debug)]
pub(crate) struct Patience {
    left: Duration,
    steps: u32,
}

/// A transaction of another process takes a few of these.
const STEP: Duration = Duration::from_micros(50);
const LONG_STEP: Duration = Duration::from_millis(1);
const SHORT_STEPS: u32 = 100;

impl Patience {
    pub(crate) fn new(most: Duration) -> Self {
        Self {
            left: most,
            steps: 0,
        }
    }

    /// Waits a little. False when the time is up.
    pub(crate) fn wait(&mut self) -> bool {
        let step = match self.steps {
            0..SHORT_STEPS => STEP,
            _ => LONG_STEP,
        };
        let step = step.min(self.left);
        if step.is_zero() {
            return false;
        }
        sleep(step);
        self.left -= step;
        self.steps += 1;
        true
    }
}
