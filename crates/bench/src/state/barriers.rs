//! What those who wait at barriers cost those who write.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::try_join_all;
use futures::poll;
use plimsoll::jobs::{Jobs, Manager, Monitor, NewState};
use plimsoll::{Error, Result};

use super::write::{JOB, STATUSES, TAGS, Writers, tag};
use super::{Act, OfState};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// The same writers alone and beside barriers, in turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Barriers {
    writers: Writers,
    /// Each waits for another status, which partition 0 does not reach before all states are set.
    barriers: u32,
    rounds: u64,
}

const ROUNDS: u64 = 5;
const BARRIERS: u32 = 1_000;

/// Beyond what anybody waits for.
const AHEAD: i32 = STATUSES + BARRIERS as i32;

pub(super) fn barriers(scale: Scale) -> Vec<OfState> {
    let beside = |writers| {
        Act::Barriers(Barriers {
            writers,
            barriers: BARRIERS,
            rounds: ROUNDS,
        })
    };
    let writers = |depth| Writers::new(8, depth, scale.tasks / 2 / ROUNDS);
    vec![
        OfState::new(
            "barriers-all",
            "8 managers set states one by one, beside 1,000 who wait at barriers for all of them",
            beside(writers(1)),
        ),
        OfState::new(
            "barriers-last",
            "the same, where all but one partition are as far as is waited for",
            beside(writers(1).ahead(AHEAD)),
        ),
        OfState::new(
            "barriers-fast",
            "8 managers, 64 states of each under way, beside 1,000 who wait at barriers",
            beside(writers(64)),
        ),
        OfState::new(
            "barriers-fast-last",
            "the same, where all but one partition are as far as is waited for",
            beside(writers(64).ahead(AHEAD)),
        ),
    ]
}

/// What the rounds with barriers came to.
struct Rounds {
    took: Duration,
    /// How long the barriers took from when all partitions had finished.
    behind: Duration,
    latencies: Latencies,
    written: Written,
}

impl Barriers {
    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        let jobs = bench.jobs();
        let managers = self.writers.join(&jobs).await?;
        // Once beforehand, so that no round is the first.
        self.writers.write(&bench, &managers).await?;
        let mut alone = Duration::ZERO;
        let mut beside = Rounds {
            took: Duration::ZERO,
            behind: Duration::ZERO,
            latencies: Latencies::new(),
            written: Written::NOTHING,
        };
        for _ in 0..self.rounds {
            let began = bench.clock.monotonic();
            self.writers.write(&bench, &managers).await?;
            alone += bench.since(began);
            self.round(&bench, &jobs, &managers, &mut beside).await?;
        }
        let operations = self.writers.times() * self.rounds;
        let micros = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        Ok(Measured {
            operation: "write",
            operations,
            took: beside.took,
            written: beside.written,
            latency_of: "set",
            latencies: beside.latencies,
            counts: BTreeMap::from([
                ("rounds", self.rounds),
                ("behind_us", micros(beside.behind) / self.rounds.max(1)),
            ]),
            settings: BTreeMap::from([
                ("managers", u64::from(self.writers.managers).into()),
                ("barriers", u64::from(self.barriers).into()),
            ]),
            alone: Some(operations as f64 / alone.as_secs_f64().max(1e-9)),
        })
    }

    async fn round(
        self,
        bench: &Bench,
        jobs: &Jobs,
        managers: &[Manager],
        rounds: &mut Rounds,
    ) -> Result<()> {
        // They wait for what comes, not for what the round before has left.
        each_tag(managers, async |manager, state| {
            manager.set_started(state).await.map(drop)
        })
        .await?;
        let monitor = jobs.monitor(JOB).await?;
        monitor.refresh().await?;
        let mut waiting = Vec::new();
        for number in 0..self.barriers {
            let mut barrier = Box::pin(wait(monitor.clone(), number));
            // It goes by what comes after it was first polled.
            if poll!(&mut barrier).is_ready() {
                return Err(open_too_early());
            }
            waiting.push(barrier);
        }
        let mut waiting = Callers::spawn(waiting);
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let latencies = self.writers.write(bench, managers).await?;
        rounds.took += bench.since(began);
        rounds.written = rounds.written.and(Written::now().since(wrote));
        rounds.latencies.merge(&latencies);
        if waiting.has_one_ended() {
            return Err(open_too_early());
        }
        each_tag(managers, async |manager, state| {
            manager.set_finished(state).await.map(drop)
        })
        .await?;
        let finished = bench.clock.monotonic();
        waiting.join().await?;
        rounds.behind += bench.since(finished);
        Ok(())
    }
}

/// Sets a state of every partition and tag, all together.
async fn each_tag(
    managers: &[Manager],
    set: impl AsyncFn(&Manager, NewState) -> Result<()>,
) -> Result<()> {
    let set = &set;
    let states = managers.iter().flat_map(|manager| {
        (0..TAGS).map(move |n| async move { set(manager, NewState::of(tag(n))?).await })
    });
    try_join_all(states).await.map(drop)
}

/// Waits for a status that is reached when all have finished.
async fn wait(monitor: Monitor, number: u32) -> Result<()> {
    let status = STATUSES + i32::try_from(number).unwrap_or_default();
    let tag = tag(number.into());
    monitor.barrier(tag, status)?.await.map(drop)
}

/// Nobody was waited for, so that nothing was measured.
fn open_too_early() -> Error {
    Error::Corrupt("a barrier was open before all partitions were there".into())
}
