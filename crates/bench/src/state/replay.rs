//! How long it takes until a subscriber knows what there is.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll::jobs::{Jobs, Monitor, NewState, Scope, SubscribeOptions};
use plimsoll::{Error, Result};

use super::subscribers::replay;
use super::write::JOB;
use super::{Act, OfState};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// Subscribing to a job with many states, again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replay {
    /// Nobody in the process knows the job: its states are loaded.
    cold: bool,
    states: u64,
    rounds: u64,
}

const PARTITIONS: u32 = 100;
const STATES_MAX: u64 = 100_000;
const ROUNDS: u64 = 5;

pub(super) fn replays(scale: Scale) -> Vec<OfState> {
    let replay = |cold| {
        let states = (scale.tasks * 5 / 2).clamp(1, STATES_MAX);
        Act::Replay(Replay {
            cold,
            states: states.next_multiple_of(PARTITIONS.into()),
            rounds: ROUNDS,
        })
    };
    vec![
        OfState::new(
            "replay-cold",
            "subscribes to a job of 100,000 states that are loaded first, to the marker",
            replay(true),
        ),
        OfState::new(
            "replay-warm",
            "subscribes to a job of 100,000 states that are in memory, to the marker",
            replay(false),
        ),
    ]
}

impl Replay {
    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        let jobs = bench.jobs();
        let fill = |partition| self.fill(jobs.clone(), partition);
        Callers::spawn((0..PARTITIONS).map(fill)).join().await?;
        let warm = match self.cold {
            true => None,
            false => Some(jobs.monitor(JOB).await?),
        };
        let mut latencies = Latencies::new();
        let (mut took, wrote) = (Duration::ZERO, Written::now());
        for round in 0..self.rounds {
            (bench.progress)(round, self.rounds);
            let began = bench.clock.monotonic();
            self.subscribe(&bench, warm.as_ref()).await?;
            let replayed = bench.since(began);
            latencies.record(replayed);
            took += replayed;
        }
        Ok(Measured {
            operation: "state",
            operations: self.states * self.rounds,
            took,
            written: Written::now().since(wrote),
            latency_of: "replay",
            latencies,
            counts: BTreeMap::from([("replays", self.rounds)]),
            settings: BTreeMap::from([("states", self.states.into())]),
            alone: None,
        })
    }

    async fn subscribe(self, bench: &Bench, warm: Option<&Monitor>) -> Result<()> {
        let cold;
        let monitor = match warm {
            Some(monitor) => monitor,
            None => {
                cold = bench.jobs().monitor(JOB).await?;
                &cold
            }
        };
        let options = SubscribeOptions::default();
        let mut subscription = monitor.subscribe(Scope::all(), options).await?;
        match replay(&mut subscription).await? == self.states {
            true => Ok(()),
            false => Err(Error::Corrupt("not all states were replayed".into())),
        }
    }

    async fn fill(self, jobs: Jobs, partition: u32) -> Result<()> {
        let manager = jobs.join(JOB, partition, PARTITIONS).await?;
        let tags = 0..self.states / u64::from(PARTITIONS);
        let set = |tag| {
            let state = NewState::new(format!("tag-{tag:04}"), 1);
            let state = state.map(|state| state.message("a part of the work has started"));
            state.map(|state| manager.set_state(state))
        };
        // All are under way at once.
        let sets: Vec<_> = tags.map(set).collect::<Result<_, _>>()?;
        for set in sets {
            set.await?;
        }
        Ok(())
    }
}
