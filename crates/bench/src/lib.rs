//! Measures a store.
//!
//! Every workload runs against any store, through the port alone or with the engine. Figures say what was done, how
//! often a second, how long single calls took, and what was written for each.

mod claims;
mod cycle;
mod figures;
mod indexed;
mod io;
mod locks;
mod logs;
mod parallel;
mod ranges;
mod records;
mod state;
mod sweep;
mod work;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::clock::{Clock, SystemClock};
use plimsoll::task::{Lane, NewTask, WorkerId};
use plimsoll::{Ids, Invalid, Name, Result, Store};

pub use figures::{Figures, Ratio, Setting};

/// A workload by its name.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What it does, in a few words.
    pub about: &'static str,
    /// Whether it takes so long that it belongs to [`Scale::FULL`] alone.
    pub full_only: bool,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Cycle(cycle::Cycle),
    Claims(claims::Claims),
    Records(records::Records),
    Logs(logs::Logging),
    Work(work::Work),
    Locks(locks::Locks),
    Sweep(sweep::Sweep),
    Ranges(ranges::Ranges),
    Indexed(indexed::Indexed),
    State(state::OfState),
}

/// How much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Tasks of the task cycle; other workloads do a fraction of it.
    tasks: u64,
    /// How often a claim is measured.
    rounds: u64,
    /// What filling a store has left to do in the background is over by then.
    rest: Duration,
}

impl Scale {
    /// A few seconds each: what a newcomer sees.
    pub const SHORT: Self = Self {
        tasks: 40_000,
        rounds: 2_000,
        rest: Duration::from_secs(2),
    };
    /// As much as figures that are kept should rest on.
    pub const FULL: Self = Self {
        tasks: 400_000,
        ..Self::SHORT
    };

    /// About so many tasks in the task cycle, and as little of everything else: to see that it
    /// works, not how fast.
    pub fn tasks(tasks: u64) -> Self {
        Self {
            tasks: tasks.max(1),
            rounds: (tasks / 20).clamp(1, Self::SHORT.rounds),
            rest: Duration::ZERO,
        }
    }
}

/// All workloads, in the order in which they are run.
pub fn workloads(scale: Scale) -> Vec<Workload> {
    let cycles = cycle::cycles(scale).into_iter().map(|cycle| Workload {
        name: cycle.name.into(),
        about: cycle.about,
        full_only: false,
        kind: Kind::Cycle(cycle),
    });
    let claims = claims::claims(scale).into_iter().map(|claims| Workload {
        name: claims.name.clone(),
        about: claims.about,
        full_only: claims.full_only,
        kind: Kind::Claims(claims),
    });
    let records = records::records(scale).into_iter().map(|records| Workload {
        name: records.name.into(),
        about: records.about,
        full_only: false,
        kind: Kind::Records(records),
    });
    let works = work::works(scale).into_iter().map(|work| Workload {
        name: work.name.clone(),
        about: work.about,
        full_only: false,
        kind: Kind::Work(work),
    });
    let logs = logs::logs(scale).into_iter().map(|logs| Workload {
        name: logs.name.into(),
        about: logs.about,
        full_only: false,
        kind: Kind::Logs(logs),
    });
    let locks = locks::locks(scale).into_iter().map(|locks| Workload {
        name: locks.name.clone(),
        about: locks.about,
        full_only: false,
        kind: Kind::Locks(locks),
    });
    let sweeps = sweep::sweeps(scale).into_iter().map(|sweep| Workload {
        name: sweep.name.clone(),
        about: sweep.about,
        full_only: sweep.full_only,
        kind: Kind::Sweep(sweep),
    });
    let ranges = ranges::ranges(scale).into_iter().map(|ranges| Workload {
        name: ranges.name.clone(),
        about: ranges.about,
        full_only: ranges.full_only,
        kind: Kind::Ranges(ranges),
    });
    let indexed = indexed::indexed(scale).into_iter().map(|indexed| Workload {
        name: indexed.name.clone(),
        about: indexed.about,
        full_only: indexed.full_only,
        kind: Kind::Indexed(indexed),
    });
    let states = state::of_state(scale).into_iter().map(|state| Workload {
        name: state.name.clone(),
        about: state.about,
        full_only: false,
        kind: Kind::State(state),
    });
    let few = cycles.chain(works).chain(records).chain(logs);
    let beside_many = claims.chain(sweeps).chain(ranges).chain(indexed);
    few.chain(locks).chain(states).chain(beside_many).collect()
}

/// Runs a workload against a store that nobody else uses. `progress` is told how much of how much
/// is done. The first call that fails ends the workload.
pub async fn run(
    workload: &Workload,
    store: Arc<dyn Store>,
    progress: impl Fn(u64, u64) + Send + Sync + 'static,
) -> Result<Figures> {
    let capabilities = store.capabilities();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let bench = Bench {
        store,
        ids: Ids::random(clock.clone()),
        clock,
        progress: Arc::new(at_each_percent(progress)),
    };
    io::forget_peak_rss();
    let measured = match &workload.kind {
        Kind::Cycle(cycle) => cycle.run(bench).await?,
        Kind::Claims(claims) => claims.run(bench).await?,
        Kind::Records(records) => records.run(bench).await?,
        Kind::Logs(logs) => logs.run(bench).await?,
        Kind::Work(work) => work.run(bench).await?,
        Kind::Locks(locks) => locks.run(bench).await?,
        Kind::Sweep(sweep) => sweep.run(bench).await?,
        Kind::Ranges(ranges) => ranges.run(bench).await?,
        Kind::Indexed(indexed) => indexed.run(bench).await?,
        Kind::State(state) => state.run(bench).await?,
    };
    Ok(Figures::new(workload, capabilities, measured))
}

/// Whoever shows progress must not slow what is measured: hears only of another percent.
fn at_each_percent(progress: impl Fn(u64, u64)) -> impl Fn(u64, u64) {
    let told = AtomicU64::new(u64::MAX);
    move |done, total| {
        let percent = done * 100 / total.max(1);
        if told.load(Ordering::Relaxed) != percent {
            told.store(percent, Ordering::Relaxed);
            progress(done, total);
        }
    }
}

/// What every workload works with.
#[derive(Clone)]
struct Bench {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Ids,
    progress: Arc<dyn Fn(u64, u64) + Send + Sync>,
}

impl Bench {
    fn worker(&self) -> Result<WorkerId, Invalid> {
        Ok(WorkerId {
            name: Name::new("bench")?,
            incarnation: self.ids.incarnation(),
        })
    }

    fn task(&self, lane: &Lane, payload: &bytes::Bytes) -> NewTask {
        NewTask::new(self.ids.task(), lane.clone(), payload.clone())
    }

    fn since(&self, began: Duration) -> Duration {
        self.clock.monotonic().saturating_sub(began)
    }
}
