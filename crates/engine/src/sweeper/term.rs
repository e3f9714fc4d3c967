//! Who of many sweepers does the work: one leads, the others follow.
//!
//! One leader is enough, and saves the others the work. Two do no harm: every decision is guarded. So
//! a leader needs no token, and a sweeper that cannot ask whether it leads follows.

use std::time::Duration;

use plimsoll_core::Error;
use plimsoll_core::error::Conflict;

use super::{AFTER_ERROR, Part, Pass, Sweeper, TIDY_EVERY};
use crate::locks::LockGuard;
use crate::telemetry::Leads;

/// The lock that the leader holds.
const LEADER: &str = "plimsoll.sweeper";
/// How long a leader that died is waited for.
pub(super) const TERM: Duration = Duration::from_secs(30);
/// How long a leader that lives needs at most to decide something that is due.
const LATE: Duration = Duration::from_secs(1);

impl Sweeper {
    /// Sweeps until it is dropped or the store is closed.
    pub async fn run(self) {
        self.run_until(std::future::pending()).await;
    }

    /// Sweeps until this ends or the store is closed. One that leads lets others lead at once.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Sweeper};
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
    /// let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// let (told, stop) = tokio::sync::oneshot::channel::<()>();
    /// told.send(()).ok();
    /// Sweeper::new(engine.clone()).run_until(async { stop.await.unwrap_or(()) }).await;
    /// assert!(engine.locks().get("plimsoll.sweeper").await?.is_none());
    /// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
    /// ```
    pub async fn run_until(self, stop: impl Future<Output = ()>) {
        let mut asks_at = Duration::ZERO;
        let leads = Leads::new(self.engine.store().namespace());
        tokio::pin!(stop);
        loop {
            // Never given up halfway: then nobody would know who leads.
            let term = self.elect(&mut asks_at).await;
            let _leading = term.is_some().then(|| leads.begin());
            let closed = tokio::select! {
                biased;
                () = &mut stop => None,
                closed = self.serve(term.as_ref()) => Some(closed),
            };
            match (closed, term) {
                (Some(false), _) => {}
                (Some(true), _) => return,
                (None, Some(term)) => {
                    if let Err(error) = term.release().await {
                        tracing::warn!(%error, "others lead only when the term is over");
                    }
                    return;
                }
                (None, None) => return,
            }
        }
    }

    /// Leads for a term, or follows for a while. Answers whether the store was closed.
    async fn serve(&self, term: Option<&LockGuard>) -> bool {
        match term {
            Some(term) => self.lead(term).await,
            None => self.follow().await,
        }
    }

    /// Asks to lead, unless it was told that another will lead for longer.
    async fn elect(&self, asks_at: &mut Duration) -> Option<LockGuard> {
        let clock = self.engine.clock();
        if !self.leads || clock.monotonic() < *asks_at {
            return None;
        }
        match self.locks.lock(LEADER).ttl(self.term).try_acquire().await {
            Ok(term) => Some(term),
            Err(error) => {
                // If the store is away, or closed, whoever follows finds out.
                if let Error::Conflict(conflict) = error
                    && let Conflict::LockNotAcquired { until, .. } = *conflict
                {
                    // The store's clock may differ from this one, but not the length of a term.
                    let left = until.since(clock.now()).min(TERM.max(self.term));
                    *asks_at = clock.monotonic() + left;
                }
                None
            }
        }
    }

    /// Does everything when it is due, until the term is over. Answers whether the store was closed.
    async fn lead(&self, term: &LockGuard) -> bool {
        tokio::select! {
            biased;
            () = self.decide() => true,
            () = self.tend(Part::Workers, self.watch_every) => true,
            // Beside each other: a sink that hangs keeps nothing from being removed.
            () = self.tend(Part::Archive, TIDY_EVERY) => true,
            () = self.tend(Part::Jobs, TIDY_EVERY) => true,
            () = self.tend(Part::Retention, TIDY_EVERY) => true,
            () = term.lost() => false,
        }
    }

    /// Decides what a leader that hangs or is dead has left, and waits: for an interval, or until a
    /// leader should have decided the next thing. Answers whether the store was closed.
    async fn follow(&self) -> bool {
        let clock = self.engine.clock();
        let mut all = Pass::default();
        let wait = loop {
            match self.sweep_once().await {
                Ok(swept) => {
                    // A look that found something does not tell what comes next.
                    let found = swept.promoted + swept.expired + swept.records + swept.groups > 0;
                    let again = (swept.more || found) && swept.errors.is_empty();
                    let next = swept.next.map(|next| next.since(clock.now()) + LATE);
                    all.then(swept.into());
                    if !again {
                        break next.map_or(self.interval, |next| next.min(self.interval));
                    }
                    tokio::task::yield_now().await;
                }
                Err(Error::Closed) => return true,
                Err(error) => {
                    all.trouble(Part::Due, None, error);
                    break AFTER_ERROR;
                }
            }
        };
        self.report(&all);
        clock.sleep(wait).await;
        false
    }
}
