//! How long a worker may rely on a lease, and how long it therefore insists.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_core::store::{Commit, Receipt};
use plimsoll_core::{Result, StoreExt};
use tokio::sync::watch;

use super::context::Signal;
use super::patience;
use crate::Engine;

/// How long a handler's write waits at most before it is tried again.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Until when a lease may be relied upon, by the worker's own clock: a margin before it ends.
#[derive(Debug, Default)]
pub(super) struct Trust(AtomicU64);

impl Trust {
    pub(super) fn set(&self, until: Duration) {
        self.0.store(micros(until), Ordering::Release);
    }

    fn until(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Acquire))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The lease of one attempt, as its handler knows it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(super) trust: Arc<Trust>,
    pub(super) signal: watch::Receiver<Signal>,
}

impl Lease {
    /// Whether it can be relied upon for this long.
    pub(super) fn lasts(&self, duration: Duration, engine: &Engine) -> bool {
        let then = engine.clock().monotonic() + duration;
        then < self.trust.until() && !self.signal.borrow().cut
    }

    /// Tries again while the store is away and the lease can be relied upon.
    pub(crate) async fn insist(&self, engine: &Engine, commit: Commit) -> Result<Receipt> {
        let mut errors = 0;
        loop {
            let error = match engine.store().commit_one(commit.clone()).await {
                Ok(receipt) => {
                    engine.telemetry().committed(&commit, &receipt);
                    return Ok(receipt);
                }
                Err(error) => error,
            };
            let pause = patience::pause(errors, PAUSE_MAX, engine.ids());
            if !patience::is_passing(&error) || !self.lasts(pause, engine) {
                return Err(error);
            }
            errors += 1;
            engine.clock().sleep(pause).await;
        }
    }
}
