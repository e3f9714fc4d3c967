//! Managers that set states as fast as they can.

use std::collections::{BTreeMap, VecDeque};

use plimsoll::Result;
use plimsoll::jobs::{Jobs, Manager, NewState};

use super::{Act, OfState};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// The job that is written.
pub(super) const JOB: &str = "bench";
/// How many tags each manager has.
pub(super) const TAGS: u64 = 4;

/// The managers of a job, one for each partition.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writers {
    pub(super) managers: u32,
    /// How many states each has under way at once.
    pub(super) depth: usize,
    /// How many states each sets: as many of each tag.
    pub(super) each: u64,
    /// How much further all are than partition 0.
    ahead: i32,
}

pub(super) fn writers(scale: Scale) -> Vec<OfState> {
    let one = Writers::new(1, 1, scale.tasks / 20);
    let eight = Writers::new(8, 64, scale.tasks);
    vec![
        OfState::new(
            "states-1",
            "one manager sets a state after the other",
            Act::Write(one),
        ),
        OfState::new(
            "states-8",
            "8 managers set states, 64 of each under way at once",
            Act::Write(eight),
        ),
    ]
}

impl Writers {
    /// They set at least so many states together.
    pub(super) fn new(managers: u32, depth: usize, times: u64) -> Self {
        let each = times.div_ceil(managers.into()).next_multiple_of(TAGS);
        Self {
            managers,
            depth,
            each,
            ahead: 0,
        }
    }

    /// All but partition 0 are so much further.
    pub(super) fn ahead(self, ahead: i32) -> Self {
        Self { ahead, ..self }
    }

    /// How many states they set together.
    pub(super) fn times(self) -> u64 {
        self.each * u64::from(self.managers)
    }

    pub(super) async fn join(self, jobs: &Jobs) -> Result<Vec<Manager>> {
        let mut managers = Vec::new();
        for partition in 0..self.managers {
            managers.push(jobs.join(JOB, partition, self.managers).await?);
        }
        Ok(managers)
    }

    /// Sets all states.
    pub(super) async fn write(self, bench: &Bench, managers: &[Manager]) -> Result<Latencies> {
        let set = |manager: &Manager| set(bench.clone(), manager.clone(), self);
        let callers = Callers::spawn(managers.iter().map(set));
        Ok(Latencies::of_all(&callers.join().await?))
    }

    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        let managers = self.join(&bench.jobs()).await?;
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let latencies = self.write(&bench, &managers).await?;
        Ok(Measured {
            operation: "write",
            operations: self.times(),
            took: bench.since(began),
            written: Written::now().since(wrote),
            latency_of: "set",
            latencies,
            counts: BTreeMap::from([("set", self.times())]),
            settings: BTreeMap::from([
                ("managers", u64::from(self.managers).into()),
                ("under_way", (self.depth as u64).into()),
            ]),
            alone: None,
        })
    }
}

async fn set(bench: Bench, manager: Manager, writers: Writers) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let mut under_way = VecDeque::new();
    let ahead = match manager.partition() {
        0 => 0,
        _ => writers.ahead,
    };
    for n in 0..writers.each {
        (bench.progress)(n, writers.each);
        let state = NewState::new(tag(n), status(n) + ahead)?;
        under_way.push_back((bench.clock.monotonic(), manager.set_state(state)));
        while under_way.len() >= writers.depth
            && let Some((began, set)) = under_way.pop_front()
        {
            set.await?;
            latencies.record(bench.since(began));
        }
    }
    for (began, set) in under_way {
        set.await?;
        latencies.record(bench.since(began));
    }
    Ok(latencies)
}

pub(super) fn tag(n: u64) -> String {
    format!("tag-{}", n % TAGS)
}

/// All statuses are below this.
pub(super) const STATUSES: i32 = 1_000;

pub(super) fn status(n: u64) -> i32 {
    i32::try_from(n % u64::from(STATUSES.unsigned_abs())).unwrap_or_default()
}
