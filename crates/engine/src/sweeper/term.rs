//! Who of many sweepers does the work: one leads, the others follow.
//!
//! One leader is enough, and saves the others the work. Two do no harm: every decision is guarded. So
//! a leader needs no token, and a sweeper that cannot ask whether it leads follows.

use std::time::Duration;

use plimsoll_core::Error;
use plimsoll_core::error::Conflict;

use super::{AFTER_ERROR, Pass, Sweeper, report};
use crate::locks::LockGuard;
use crate::tasks::Retries;
use crate::telemetry::Leads;

/// The lock that the leader holds.
const LEADER: &str = "plimsoll.sweeper";
/// How long a leader that died is waited for.
const TERM: Duration = Duration::from_secs(30);

impl Sweeper {
    /// Sweeps until it is dropped or the store is closed.
    pub async fn run(self) {
        let mut asks_at = Duration::ZERO;
        let leads = Leads::new(self.engine.store().namespace());
        loop {
            let closed = match self.elect(&mut asks_at).await {
                Some(term) => {
                    let _leading = leads.begin();
                    self.lead(term).await
                }
                None => self.follow().await,
            };
            if closed {
                return;
            }
        }
    }

    /// Asks to lead, unless it was told that another will lead for longer.
    async fn elect(&self, asks_at: &mut Duration) -> Option<LockGuard> {
        let clock = self.engine.clock();
        if !self.leads || clock.monotonic() < *asks_at {
            return None;
        }
        let locks = self.engine.locks().with_retries(Retries::none());
        match locks.lock(LEADER).ttl(TERM).try_acquire().await {
            Ok(term) => Some(term),
            Err(error) => {
                // If the store is away, or closed, whoever follows finds out.
                if let Error::Conflict(conflict) = error
                    && let Conflict::LockNotAcquired { until, .. } = *conflict
                {
                    // The store's clock may differ from this one, but not the length of a term.
                    let left = until.since(clock.now()).min(TERM);
                    *asks_at = clock.monotonic() + left;
                }
                None
            }
        }
    }

    /// Does everything when it is due, until the term is over. Answers whether the store was closed.
    async fn lead(&self, term: LockGuard) -> bool {
        tokio::select! {
            biased;
            () = self.decide() => true,
            () = self.watch() => true,
            () = self.tidy() => true,
            () = term.lost() => false,
        }
    }

    /// Looks once for what a leader that hangs has left, and waits. Answers whether the store was
    /// closed.
    async fn follow(&self) -> bool {
        let wait = match self.sweep_once().await {
            Ok(swept) => {
                let mut pass = Pass::default();
                pass.swept(swept);
                report(&pass);
                self.interval
            }
            Err(Error::Closed) => return true,
            Err(error) => {
                tracing::warn!(%error, "cannot sweep");
                AFTER_ERROR
            }
        };
        self.engine.clock().sleep(wait).await;
        false
    }
}
