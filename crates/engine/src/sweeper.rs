//! Decides what time has made ready: promotes what is due, ends what ran out, and removes what has
//! been kept long enough.
//!
//! Any number of these may run, in one process or many: each decision acts only on what is still
//! as it was selected.

use std::time::Duration;

use plimsoll_core::store::{Compacted, Swept};
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Ids, Result, StoreExt};

use crate::{Engine, Retention};

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
    retention: Retention,
}

/// How often to look for what has been kept long enough.
const COMPACT_EVERY: Duration = Duration::from_secs(60);
/// How far apart looks are that follow hints. They come with every submit, so that looks that find
/// nothing become rarer.
const APART_MIN: Duration = Duration::from_millis(100);
const APART_MAX: Duration = Duration::from_secs(1);
/// After an error, the next try waits this long.
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Sweeper {
    /// With everything at its default.
    pub fn new(engine: Engine) -> Self {
        Self {
            engine,
            limit: 500,
            interval: Duration::from_secs(10),
            retention: Retention::default(),
        }
    }

    /// Keeps things this long once they are over.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Looks this often when nothing hints at anything and nothing is known to come.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// One pass of bounded size.
    pub async fn sweep_once(&self) -> Result<Swept> {
        (self.engine.store())
            .sweep(self.limit, self.engine.ids())
            .await
    }

    /// Decides everything that is due now. Waits for a store that is away.
    pub async fn catch_up(&self) -> Result<()> {
        loop {
            match self.sweep_once().await {
                Ok(swept) if swept.more && swept.errors.is_empty() => {}
                Ok(swept) if swept.errors.iter().any(Error::is_transient) => {
                    self.engine.clock().sleep(AFTER_ERROR).await;
                }
                Ok(_) => return Ok(()),
                Err(error) if error.is_transient() => {
                    self.engine.clock().sleep(AFTER_ERROR).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Removes what has been kept long enough now, in steps of bounded size.
    pub async fn compact(&self) -> Result<Compacted> {
        let mut all = Compacted::default();
        loop {
            let step = self.retention.step(self.limit);
            let done = self.engine.store().compact(step).await?;
            all.tasks += done.tasks;
            all.groups += done.groups;
            all.entries += done.entries;
            all.lines += done.lines;
            all.remembered += done.remembered;
            if !done.more {
                return Ok(all);
            }
            // Whoever shares this thread, or the store, gets its turn.
            tokio::task::yield_now().await;
        }
    }

    /// Sweeps until it is dropped or the store is closed.
    pub async fn run(self) {
        tokio::select! {
            biased;
            () = self.decide() => {}
            () = self.compact_for_ever() => {}
        }
    }

    async fn compact_for_ever(&self) {
        // Many sweepers that were started together do not all come at once.
        let mut wait = COMPACT_EVERY.mul_f64(self.engine.ids().jitter().fraction());
        loop {
            self.engine.clock().sleep(wait).await;
            wait = COMPACT_EVERY;
            match self.compact().await {
                Ok(_) => {}
                Err(Error::Closed) => return,
                Err(error) => tracing::warn!(%error, "cannot remove what is old"),
            }
        }
    }

    async fn decide(&self) {
        let clock = self.engine.clock().clone();
        let mut hints = self.engine.store().wakeups();
        let mut pace = Pace::new();
        loop {
            let swept = match self.sweep_once().await {
                Ok(swept) => swept,
                Err(Error::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot sweep");
                    clock.sleep(AFTER_ERROR).await;
                    continue;
                }
            };
            for error in &swept.errors {
                tracing::warn!(%error, "what is due cannot be decided");
            }
            pace.looked(&swept);
            if swept.more && swept.errors.is_empty() {
                // Whoever shares this thread gets its turn.
                tokio::task::yield_now().await;
                continue;
            }
            let next = swept.next.map(|next| next.since(clock.now()));
            let wait = match next {
                _ if swept.more || !swept.errors.is_empty() => APART_MAX,
                // Clocks differ: by the store's, it is not due yet.
                Some(Duration::ZERO) => pace.apart,
                Some(next) => next + pace.lag(self.engine.ids()),
                None => self.interval,
            };
            pace.awaited = next.is_some_and(|next| next <= self.interval);
            let looked = clock.monotonic();
            tokio::select! {
                biased;
                () = clock.sleep(wait.min(self.interval)) => {}
                () = task_hint(&mut hints) => {
                    pace.awaited = false;
                    let since = clock.monotonic().saturating_sub(looked);
                    clock.sleep(pace.apart.min(wait).saturating_sub(since)).await;
                }
            }
        }
    }
}

/// Waits for a hint that a task may be scheduled. What else has changed can wait.
async fn task_hint(hints: &mut Listener) {
    loop {
        let wake = hints.next().await;
        if wake.any_lane || !wake.lanes.is_empty() {
            return;
        }
    }
}

/// How eager to be.
struct Pace {
    /// How far apart looks are that follow hints.
    apart: Duration,
    /// Whether the next look is for something that will be due by then.
    awaited: bool,
    /// Whether somebody else was faster the last time.
    beaten: bool,
}

impl Pace {
    fn new() -> Self {
        Self {
            apart: APART_MIN,
            awaited: false,
            beaten: false,
        }
    }

    fn looked(&mut self, swept: &Swept) {
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
    fn lag(&self, ids: &Ids) -> Duration {
        match self.beaten {
            true => APART_MIN.mul_f64(ids.jitter().fraction()),
            false => Duration::ZERO,
        }
    }
}
