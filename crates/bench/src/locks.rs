//! Locks: how many a second, and how long it takes from hand to hand.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use plimsoll::{Engine, Result};

use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// Callers that take locks and release them, again and again.
#[derive(Clone, Debug)]
pub(crate) struct Locks {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    callers: u64,
    times: u64,
    /// One lock for all of them, each with an engine of its own as another process has; otherwise
    /// one for each.
    contended: bool,
}

pub(crate) fn locks(scale: Scale) -> Vec<Locks> {
    let part = |part: u64| (scale.tasks / part).max(1);
    let free = |callers, times| Locks {
        name: format!("lock-{callers}"),
        about: "callers take and release locks, each its own",
        callers,
        times,
        contended: false,
    };
    let contended = |callers| Locks {
        name: format!("lock-handover-{callers}"),
        about: "engines take and release one lock: from the release to the next that has it",
        callers,
        times: part(20),
        contended: true,
    };
    vec![
        free(1, part(20)),
        free(64, part(2)),
        contended(2),
        contended(16),
    ]
}

/// What the callers share.
#[derive(Default)]
struct Shared {
    turns: AtomicU64,
    /// When the last holder began to release the lock.
    released: Mutex<Option<Duration>>,
}

impl Shared {
    fn released(&self) -> MutexGuard<'_, Option<Duration>> {
        self.released.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Locks {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        let shared = Arc::new(Shared::default());
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let call = |number| call(bench.clone(), self.clone(), number, shared.clone());
        let callers = Callers::spawn((0..self.callers).map(call));
        let mut all = Latencies::new();
        (callers.join().await?.iter()).for_each(|each| all.merge(each));
        let (latency_of, kind) = match self.contended {
            true => ("hand-over", "one"),
            false => ("lock", "one each"),
        };
        Ok(Measured {
            operation: "lock",
            operations: self.times,
            took: bench.since(began),
            written: Written::now().since(wrote),
            latency_of,
            latencies: all,
            counts: BTreeMap::from([("acquired", self.times)]),
            settings: BTreeMap::from([("callers", self.callers.into()), ("locks", kind.into())]),
            alone: None,
        })
    }
}

async fn call(bench: Bench, work: Locks, number: u64, shared: Arc<Shared>) -> Result<Latencies> {
    let (clock, ids) = (bench.clock.clone(), bench.ids.clone());
    let locks = Engine::with(bench.store.clone(), clock, ids).locks();
    let lock = match work.contended {
        true => locks.lock("bench"),
        false => locks.lock(format!("bench.{number}")),
    };
    let mut latencies = Latencies::new();
    loop {
        let turn = shared.turns.fetch_add(1, Ordering::Relaxed);
        if turn >= work.times {
            return Ok(latencies);
        }
        (bench.progress)(turn, work.times);
        let began = bench.clock.monotonic();
        let guard = lock.acquire().await?;
        let acquired = bench.clock.monotonic();
        // From when the one before began to release it.
        let released = shared.released().replace(bench.clock.monotonic());
        guard.release().await?;
        match (work.contended, released) {
            (true, Some(released)) => latencies.record(acquired.saturating_sub(released)),
            (true, None) => {}
            (false, _) => latencies.record(bench.since(began)),
        }
    }
}
