//! What lines of job logs cost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::log::Level;
use plimsoll::task::Lane;
use plimsoll::tasks::{Held, Retries};
use plimsoll::{Engine, Error, Result, Tasks};

use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// How many tasks log beside each other.
const TASKS: usize = 64;
/// How many lines are gathered.
const GATHERED: u64 = 100;
const LEASE: Duration = Duration::from_secs(24 * 60 * 60);
const MESSAGE: &str =
    "frame= 1234 fps= 25 q=28.0 size= 2048kB time=00:00:49.36 bitrate= 339.9kbits/s";

/// Lines appended by many tasks.
#[derive(Clone, Debug)]
pub(crate) struct Logging {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// How many lines each call appends.
    lines: u64,
    times: u64,
}

pub(crate) fn logs(scale: Scale) -> Vec<Logging> {
    let times = (scale.tasks / 2).max(1);
    vec![
        Logging {
            name: "log",
            about: "64 tasks append lines, one at a time",
            lines: 1,
            times,
        },
        Logging {
            name: "log-gathered",
            about: "64 tasks append lines, 100 gathered at a time",
            lines: GATHERED,
            times: times.next_multiple_of(GATHERED),
        },
    ]
}

impl Logging {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        let engine = Engine::with(bench.store.clone(), bench.clock.clone(), bench.ids.clone());
        let tasks = engine.tasks().with_retries(Retries::none());
        let held = hold(&tasks).await?;
        let turns = Arc::new(AtomicU64::new(0));
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let call = |held| append(bench.clone(), self.clone(), held, turns.clone());
        let callers = Callers::spawn(held.into_iter().map(call));
        let mut all = Latencies::new();
        callers
            .join()
            .await?
            .iter()
            .for_each(|each| all.merge(each));
        Ok(Measured {
            operation: "line",
            operations: self.times,
            took: bench.since(began),
            written: Written::now().since(wrote),
            latency_of: "append",
            latencies: all,
            counts: BTreeMap::from([("calls", self.times / self.lines)]),
            settings: BTreeMap::from([
                ("callers", (TASKS as u64).into()),
                ("lines", self.lines.into()),
            ]),
            alone: None,
        })
    }
}

async fn hold(tasks: &Tasks) -> Result<Vec<Held>> {
    let new = (0..TASKS).map(|_| tasks.task("bench", "log", ""));
    let answers = tasks.submit_all(new.collect::<Result<Vec<_>>>()?).await;
    answers
        .into_iter()
        .try_for_each(|answer| answer.map(drop))?;
    let lane = Lane::new("bench", "log")?;
    let worker = tasks.worker("bench")?;
    let held = tasks.claim_next([lane], TASKS, &worker, LEASE).await?;
    if held.len() < TASKS {
        return Err(Error::Corrupt("not all tasks could be claimed".into()));
    }
    Ok(held)
}

async fn append(
    bench: Bench,
    work: Logging,
    held: Held,
    turns: Arc<AtomicU64>,
) -> Result<Latencies> {
    let mut latencies = Latencies::new();
    let log = held.job_log();
    loop {
        let turn = turns.fetch_add(work.lines, Ordering::Relaxed);
        if turn >= work.times {
            return Ok(latencies);
        }
        (bench.progress)(turn, work.times);
        let began = bench.clock.monotonic();
        for _ in 0..work.lines {
            log.log(Level::Info, MESSAGE).await?;
        }
        log.flush().await?;
        latencies.record(bench.since(began));
    }
}
