//! Measures a store.
//!
//! Every workload runs against any store through the port alone. Figures say what was done, how
//! often a second, how long single operations took, and what was written for each.

mod claims;
mod cycle;
mod figures;
mod io;
mod records;

use std::future::Future;
use std::sync::Arc;

use plimsoll::clock::{Clock, SystemClock};
use plimsoll::task::{Lane, NewTask, Worker};
use plimsoll::{Ids, Invalid, Name, Result, Store};

pub use figures::{Figures, Setting};
pub use io::count_transactions;

/// A workload by its name.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// What it does, in a few words.
    pub about: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Cycle(cycle::Cycle),
    Claims(claims::Claims),
    Records(records::Records),
}

/// How much to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A few seconds each: what a newcomer sees.
    Short,
    /// As much as figures that are kept should rest on.
    Full,
}

/// The workloads, in the order in which they are run.
pub fn workloads(scale: Scale) -> Vec<Workload> {
    let cycles = cycle::cycles(scale).into_iter();
    let claims = claims::claims(scale).into_iter();
    let records = records::records(scale).into_iter();
    let cycles = cycles.map(|cycle| Workload {
        name: cycle.name.into(),
        about: cycle.about,
        kind: Kind::Cycle(cycle),
    });
    let claims = claims.map(|claims| Workload {
        name: claims.name.clone(),
        about: claims.about,
        kind: Kind::Claims(claims),
    });
    let records = records.map(|records| Workload {
        name: records.name.into(),
        about: records.about,
        kind: Kind::Records(records),
    });
    cycles.chain(claims).chain(records).collect()
}

/// Runs a workload against a store that nobody else uses. `progress` is told how much of how much
/// is done.
pub async fn run(
    workload: &Workload,
    store: Arc<dyn Store>,
    progress: impl Fn(u64, u64) + Send + Sync + 'static,
) -> Result<Figures> {
    let bench = Bench::new(store, Arc::new(progress))?;
    match &workload.kind {
        Kind::Cycle(cycle) => cycle.run(bench).await,
        Kind::Claims(claims) => claims.run(bench).await,
        Kind::Records(records) => records.run(bench).await,
    }
}

type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What every workload works with.
#[derive(Clone)]
struct Bench {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    ids: Ids,
    progress: Progress,
}

impl Bench {
    fn new(store: Arc<dyn Store>, progress: Progress) -> Result<Self> {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        Ok(Self {
            store,
            ids: Ids::random(clock.clone()),
            clock,
            progress,
        })
    }

    fn worker(&self) -> Result<Worker, Invalid> {
        Ok(Worker {
            name: Name::new("bench")?,
            incarnation: self.ids.incarnation(),
        })
    }

    fn task(&self, lane: &Lane, payload: &bytes::Bytes) -> NewTask {
        NewTask::new(self.ids.task(), lane.clone(), payload.clone())
    }
}

/// Runs a future beside the others. A workload is its own engine.
#[allow(clippy::disallowed_methods)]
fn spawn<T: Send + 'static>(
    future: impl Future<Output = Result<T>> + Send + 'static,
) -> tokio::task::JoinHandle<Result<T>> {
    tokio::spawn(future)
}

/// Waits for a future that was spawned.
async fn join<T>(handle: tokio::task::JoinHandle<Result<T>>) -> Result<T> {
    match handle.await {
        Ok(result) => result,
        Err(error) => Err(plimsoll::Error::Corrupt(error.to_string().into())),
    }
}
