//! What one pass of the sweeper costs beside many tasks that it has nothing to do with.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use plimsoll::limits::LEASE_MAX;
use plimsoll::store::{Claim, Ending, FailRetry, Pick};
use plimsoll::task::{Lane, Status, Task};
use plimsoll::{Engine, Error, Result, Sweeper};

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
    };
    DEPTHS.map(sweep).into()
}

impl Sweep {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        let payload = Bytes::from(vec![b'x'; 200]);
        self.set_up(&bench, &payload).await?;
        bench.clock.sleep(self.rest).await;
        let engine = Engine::with(bench.store.clone(), bench.clock.clone(), bench.ids.clone());
        let sweeper = Sweeper::new(engine);
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
                return Err(Error::Corrupt(trouble.to_string().into()));
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
        })
    }

    /// As many tasks of each status, none of which is due.
    async fn set_up(&self, bench: &Bench, payload: &Bytes) -> Result<()> {
        let day = Duration::from_secs(24 * 60 * 60);
        for status in Status::ALL {
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
        }
        Ok(())
    }
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
