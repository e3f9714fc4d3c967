//! Decides what time has made ready: promotes what is due and ends what ran out.
//!
//! Any number of these may run, in one process or many: each decision acts only on what is still
//! as it was selected.

use std::time::Duration;

use plimsoll_core::StoreExt;

use crate::Engine;

/// Sweeps a namespace for as long as it runs.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, Sweeper};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let store = Arc::new(Memory::new().open(Namespace::new("docs")?));
/// let swept = Sweeper::new(Engine::new(store)).sweep_once().await?;
/// assert_eq!(swept.promoted, 0);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Sweeper {
    engine: Engine,
    /// How many of each kind a pass decides.
    limit: usize,
    /// How often to look when nothing hints at anything and nothing is known to come.
    interval: Duration,
}

/// Hints come with every submit: they are not followed more often than this.
const HINTS_APART: Duration = Duration::from_millis(100);
/// After an error, the next try waits this long.
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Sweeper {
    /// With everything at its default.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            limit: 500,
            interval: Duration::from_secs(5),
        }
    }

    /// Looks this often when nothing hints at anything and nothing is known to come.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// One pass of bounded size.
    pub async fn sweep_once(&self) -> plimsoll_core::Result<plimsoll_core::store::Swept> {
        (self.engine.store())
            .sweep(self.limit, self.engine.ids())
            .await
    }

    /// Sweeps until it is dropped.
    pub async fn run(self) {
        let (store, clock) = (self.engine.store().clone(), self.engine.clock().clone());
        let mut hints = store.wakeups();
        loop {
            let wait = match self.sweep_once().await {
                Ok(swept) => {
                    for error in &swept.errors {
                        tracing::warn!(%error, "what is due cannot be decided");
                    }
                    let next = swept.next.map(|next| next.since(clock.now()));
                    match swept.more {
                        true if swept.errors.is_empty() => Duration::ZERO,
                        true => HINTS_APART,
                        false => next.unwrap_or(self.interval).min(self.interval),
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot sweep");
                    AFTER_ERROR
                }
            };
            if wait <= HINTS_APART {
                clock.sleep(wait).await;
                continue;
            }
            clock.sleep(HINTS_APART).await;
            tokio::select! {
                biased;
                _ = hints.next() => {}
                () = clock.sleep(wait - HINTS_APART) => {}
            }
        }
    }
}
