//! Decides what time has made ready: promotes what is due, ends what ran out, marks workers as offline
//! that nobody has heard of, archives and removes what has been kept long enough.
//!
//! Any number of these may run, in one process or many: each decision acts only on what is still
//! as it was selected. A leader follows hints and due times and does all of it; a follower looks now
//! and then for what is due, in case the leader hangs.

mod pace;
mod pass;
mod term;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::limits::LEASE_MAX;
use plimsoll_core::wake::Listener;
use plimsoll_core::{Error, Result};

use pace::{APART_MAX, Pace};
use pass::{Observer, Places};
pub use pass::{Part, Pass, Reason, Trouble};

use crate::archive::Sink;
use crate::locks::TTL_MIN;
use crate::tasks::Retries;
use crate::{Engine, Locks, Retention};

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
    /// How often to look for workers that nobody has heard of.
    watch_every: Duration,
    /// Instead of what is stored with the namespace.
    retention: Option<Retention>,
    sink: Option<Arc<dyn Sink>>,
    leads: bool,
    /// How long a leader that died is waited for.
    term: Duration,
    observer: Option<Observer>,
    /// Where single passes go on.
    places: Arc<Mutex<Places>>,
    /// Who leads is decided on the store that is swept, wherever the other locks are.
    locks: Locks,
}

/// How many of each kind are decided and removed in a pass, if the store takes so many at once.
const LIMIT: usize = 500;
/// How often to look for workers that nobody has heard of.
const WATCH_EVERY: Duration = Duration::from_secs(30);
/// How often to look for what has been kept long enough.
const TIDY_EVERY: Duration = Duration::from_secs(60);
/// After an error, the next try waits this long.
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Sweeper {
    /// With everything at its default.
    pub fn new(engine: Engine) -> Self {
        let here = engine.clone().locks_on(engine.store().clone());
        Self {
            locks: here.locks().with_retries(Retries::none()),
            limit: LIMIT.min(engine.store().limits().page_max),
            engine,
            interval: Duration::from_secs(10),
            watch_every: WATCH_EVERY,
            retention: None,
            sink: None,
            leads: true,
            term: term::TERM,
            observer: None,
            places: Arc::default(),
        }
    }

    /// Tells this what each pass did, also those that found nothing. It must not block.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use plimsoll_core::{Memory, Namespace};
    /// # use plimsoll_engine::{Engine, Sweeper};
    /// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
    /// let sweeper = Sweeper::new(engine).on_pass(|pass| {
    ///     if !pass.is_idle() {
    ///         println!("{} promoted, {} expired", pass.promoted, pass.expired);
    ///     }
    /// });
    /// # Ok::<(), plimsoll_core::Invalid>(())
    /// ```
    pub fn on_pass(mut self, observe: impl Fn(&Pass) + Send + Sync + 'static) -> Self {
        self.observer = Some(Observer(Arc::new(observe)));
        self
    }

    /// Keeps things this long once they are over, whatever is stored with the namespace. Without this,
    /// it goes by [`Engine::retention`], or by the default if nothing is stored there.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// Archives to this sink, not in the store.
    pub fn archive_to(mut self, sink: Arc<dyn Sink>) -> Self {
        self.sink = Some(sink);
        self
    }

    /// Looks this often for workers that nobody has heard of.
    pub fn watch_every(mut self, every: Duration) -> Self {
        self.watch_every = every;
        self
    }

    /// Decides and removes at most this many of each kind in one pass.
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Whether it may lead, which is the default: of all sweepers of a namespace that may, one does,
    /// by the lock `plimsoll.sweeper` on the store that is swept. The others look for what is due each
    /// interval, and a second after something should have been decided, in case the leader hangs or
    /// is dead; they leave all else to it.
    pub fn leads(mut self, leads: bool) -> Self {
        self.leads = leads;
        self
    }

    /// Waits this long for a leader that died, 30 s if not said otherwise; no shorter or longer than a
    /// lock can live. As long as it leads, this is what others wait when it dies.
    pub fn term(mut self, term: Duration) -> Self {
        self.term = term.clamp(TTL_MIN, LEASE_MAX);
        self
    }

    /// Looks this often when nothing hints at anything and nothing is known to come.
    pub fn interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
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

    /// Does a part again and again, as long as there is anything to do, until the store is closed.
    async fn tend(&self, part: Part, every: Duration) {
        let mut places = Places::default();
        let mut wait = self.first(every);
        loop {
            self.engine.clock().sleep(wait).await;
            wait = every;
            let pass = self.part_all(part, &mut places).await;
            self.report(&pass);
            if pass.is_closed() {
                return;
            }
        }
    }

    /// Many sweepers that were started together do not all come at once.
    fn first(&self, every: Duration) -> Duration {
        every.mul_f64(self.engine.ids().jitter().fraction())
    }

    fn report(&self, pass: &Pass) {
        for trouble in &pass.troubles {
            let what = trouble.what.as_deref();
            match what.and_then(|what| what.strip_prefix("job ")) {
                Some(job) if trouble.part == Part::Jobs => {
                    tracing::warn!(jobID = %job, error = %trouble.error, "🟡 job is left by a sweep");
                }
                _ => tracing::warn!(%trouble, "a part of a sweep is left"),
            }
        }
        if pass.untold > 0 {
            tracing::warn!(more = pass.untold, "more of a sweep is left");
        }
        if let Some(Observer(observe)) = &self.observer {
            observe(pass);
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
                    let mut pass = Pass::default();
                    pass.trouble(Part::Due, None, error);
                    self.report(&pass);
                    clock.sleep(AFTER_ERROR).await;
                    continue;
                }
            };
            self.report(&swept.clone().into());
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
