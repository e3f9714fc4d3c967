//! What a pass of the sweeper costs: beside many tasks that it has nothing to do with, and for each task
//! that it archives.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use plimsoll::limits::LEASE_MAX;
use plimsoll::store::{Claim, Ending, FailRetry, Pick};
use plimsoll::sweeper::{Reason, Trouble};
use plimsoll::task::{Lane, Status, Task};
use plimsoll::{Engine, Error, Result, Retention, Sweeper};

use crate::claims::settle;
use crate::cycle::{fill, submit_all};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::{Bench, Scale};

/// A pass, and how many tasks of each status are beside it.
#[derive(Clone, Debug)]
pub(crate) struct Sweep {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) full_only: bool,
    depth: u64,
    rounds: u64,
    rest: Duration,
    /// Whether all tasks are completed, and go to the archive.
    archives: bool,
}

/// How many tasks of each status there are. The smallest is the first.
const DEPTHS: [(u64, &str); 3] = [(1_000, "1k"), (100_000, "100k"), (1_000_000, "1m")];
/// Filling a store with more takes minutes.
const SHORT_DEPTH_MAX: u64 = 1_000;
/// How many tasks are claimed and settled at once.
const STEP: u64 = 1_000;

pub(crate) fn sweeps(scale: Scale) -> Vec<Sweep> {
    let sweep = |(depth, size)| Sweep {
        name: format!("sweep-{size}"),
        about: "a pass of the sweeper beside tasks of every status",
        full_only: depth > SHORT_DEPTH_MAX,
        depth,
        rounds: scale.rounds,
        rest: scale.rest,
        archives: false,
    };
    let archive = |(depth, size)| Sweep {
        name: format!("sweep-all-{size}"),
        about: "completed tasks that all go to the archive",
        archives: true,
        ..sweep((depth, size))
    };
    let (beside, all) = (DEPTHS.map(sweep), [DEPTHS[0], DEPTHS[1]].map(archive));
    beside.into_iter().chain(all).collect()
}

impl Sweep {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        let payload = Bytes::from(vec![b'x'; 200]);
        if self.archives {
            return self.run_archive(&bench, &payload).await;
        }
        for status in Status::ALL {
            self.set_up(&bench, &payload, status).await?;
        }
        bench.clock.sleep(self.rest).await;
        let sweeper = sweeper(&bench);
        let mut latencies = Latencies::new();
        let mut took = Duration::ZERO;
        let mut acted = 0;
        let wrote = Written::now();
        for round in 0..self.rounds {
            let asked = bench.clock.monotonic();
            let pass = sweeper.pass().await;
            let answered = bench.since(asked);
            latencies.record(answered);
            took += answered;
            if let Some(trouble) = pass.troubles.first() {
                return Err(failed(trouble));
            }
            acted += pass.promoted + pass.expired + pass.archived + pass.removed.tasks;
            (bench.progress)(round, self.rounds);
        }
        Ok(Measured {
            operation: "pass",
            operations: self.rounds,
            took,
            written: Written::now().since(wrote),
            latency_of: "pass",
            latencies,
            counts: BTreeMap::from([("passes", self.rounds), ("acted", acted)]),
            settings: BTreeMap::from([
                ("backlog", "every status".into()),
                ("depth", self.depth.into()),
                ("payload_bytes", (payload.len() as u64).into()),
            ]),
            alone: None,
        })
    }

    /// Passes until all tasks are archived.
    async fn run_archive(&self, bench: &Bench, payload: &Bytes) -> Result<Measured> {
        self.set_up(bench, payload, Status::Completed).await?;
        bench.clock.sleep(self.rest).await;
        let mut retention = Retention::default();
        retention.tasks.insert(Status::Completed, Duration::ZERO);
        let sweeper = sweeper(bench).retention(retention);
        let (mut latencies, mut passes, mut archived) = (Latencies::new(), 0, 0);
        let wrote = Written::now();
        let began = bench.clock.monotonic();
        loop {
            let asked = bench.clock.monotonic();
            let pass = sweeper.pass().await;
            latencies.record(bench.since(asked));
            passes += 1;
            archived += pass.archived;
            if let Some(trouble) = pass.troubles.first() {
                return Err(failed(trouble));
            }
            (bench.progress)(archived, self.depth);
            if !pass.more {
                break;
            }
        }
        Ok(Measured {
            operation: "task",
            operations: archived,
            took: bench.since(began),
            written: Written::now().since(wrote),
            latency_of: "pass",
            latencies,
            counts: BTreeMap::from([("passes", passes), ("archived", archived)]),
            settings: BTreeMap::from([
                ("depth", self.depth.into()),
                ("payload_bytes", (payload.len() as u64).into()),
            ]),
            alone: None,
        })
    }

    /// So many tasks of a status, none of which is due.
    async fn set_up(&self, bench: &Bench, payload: &Bytes, status: Status) -> Result<()> {
        let day = Duration::from_secs(24 * 60 * 60);
        let lane = Lane::new("bench", status.as_str())?;
        let new = || bench.task(&lane, payload);
        match status {
            Status::Scheduled => fill(bench, self.depth, |_| new().after(day)).await?,
            Status::Pending => fill(bench, self.depth, |_| new()).await?,
            Status::Claimed | Status::Completed | Status::Failed | Status::Cancelled => {
                for first in (0..self.depth).step_by(STEP as usize) {
                    submit_all(bench, (0..STEP).map(|_| new()).collect()).await?;
                    let tasks = hold(bench, &lane).await?;
                    if let Some(how) = ending(bench, status) {
                        settle(bench, tasks, how).await?;
                    }
                    (bench.progress)(first, self.depth);
                }
            }
        }
        Ok(())
    }
}

fn failed(trouble: &Trouble) -> Error {
    match &trouble.error {
        Reason::Store(error) => error.clone(),
        Reason::Sink(why) => Error::Unsupported(why.clone().into()),
    }
}

fn sweeper(bench: &Bench) -> Sweeper {
    let (store, clock) = (bench.store.clone(), bench.clock.clone());
    Sweeper::new(Engine::with(store, clock, bench.ids.clone()))
}

/// How tasks come to this end.
fn ending(bench: &Bench, status: Status) -> Option<Ending> {
    match status {
        Status::Completed => Some(Ending::Complete { result: None }),
        Status::Failed => Some(Ending::Fail {
            error: "for good".into(),
            retry: FailRetry::Fatal,
            jitter: bench.ids.jitter(),
        }),
        Status::Cancelled => Some(Ending::Cancel { reason: None }),
        Status::Scheduled | Status::Pending | Status::Claimed => None,
    }
}

async fn hold(bench: &Bench, lane: &Lane) -> Result<Vec<Task>> {
    let claim = Claim {
        pick: Pick::Next {
            lanes: vec![lane.clone()],
            limit: STEP as usize,
        },
        worker: bench.worker()?,
        lease: LEASE_MAX,
        request: bench.ids.request(),
    };
    Ok(bench.store.claim(claim).await?.tasks)
}
