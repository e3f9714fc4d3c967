//! How long it takes until a subscriber knows what there is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plimsoll::jobs::{Cursor, Jobs, Manager, Monitor, NewState, Scope, SubscribeOptions};
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
    begin: Begin,
    states: u64,
    /// So many at once.
    subscribers: u64,
    /// Somebody writes all the time.
    busy: bool,
    rounds: u64,
}

/// How a subscriber begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    /// Nobody in the process knows the job: its states are loaded.
    Cold,
    /// With everything, which is in memory.
    Warm,
    /// With one tag, each with another one.
    OfTag,
    /// After what it was told before: there is nothing new.
    Resumed,
}

const PARTITIONS: u32 = 100;
const STATES_MAX: u64 = 100_000;
const SUBSCRIBERS: u64 = 1_000;
const ROUNDS: u64 = 5;

pub(super) fn replays(scale: Scale) -> Vec<OfState> {
    let replay = |begin, share: u64, subscribers| {
        let states = (scale.tasks * 5 / 2).clamp(1, STATES_MAX) / share;
        Replay {
            begin,
            states: states.next_multiple_of(PARTITIONS.into()),
            subscribers,
            busy: false,
            rounds: ROUNDS,
        }
    };
    let one = |begin| Act::Replay(replay(begin, 1, 1));
    let thousand = |begin| Act::Replay(replay(begin, 10, SUBSCRIBERS));
    vec![
        OfState::new(
            "replay-cold",
            "subscribes to a job of 100,000 states that are loaded first, to the marker",
            one(Begin::Cold),
        ),
        OfState::new(
            "replay-warm",
            "subscribes to a job of 100,000 states that are in memory, to the marker",
            one(Begin::Warm),
        ),
        OfState::new(
            "replay-1k",
            "1,000 subscribe at once to a job of 10,000 states in memory, to the marker of the last",
            thousand(Begin::Warm),
        ),
        OfState::new(
            "replay-1k-tag",
            "the same, each to one tag",
            thousand(Begin::OfTag),
        ),
        OfState::new(
            "replay-1k-busy",
            "1,000 subscribe at once to everything, while one manager sets a state after the other",
            Act::Replay(Replay {
                busy: true,
                ..replay(Begin::Warm, 10, SUBSCRIBERS)
            }),
        ),
        OfState::new(
            "resume-1k",
            "the same, each after a cursor behind which nothing has changed",
            thousand(Begin::Resumed),
        ),
    ]
}

impl Replay {
    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        let jobs = bench.jobs();
        let fill = |partition| self.fill(jobs.clone(), partition);
        Callers::spawn((0..PARTITIONS).map(fill)).join().await?;
        let warm = match self.begin {
            Begin::Cold => None,
            Begin::Warm | Begin::OfTag | Begin::Resumed => Some(jobs.monitor(JOB).await?),
        };
        let mut after = None;
        if let (Begin::Resumed, Some(monitor)) = (self.begin, &warm) {
            let options = SubscribeOptions::default();
            let mut before = monitor.subscribe(Scope::all(), options).await?;
            replay(&mut before).await?;
            after = before.cursor();
        }
        let writer = jobs.join(JOB, 0, PARTITIONS).await?;
        let over = Arc::new(AtomicBool::new(!self.busy));
        let busy = Callers::spawn([write(writer.clone(), over.clone())]);
        let mut latencies = Latencies::new();
        let (mut took, wrote) = (Duration::ZERO, Written::now());
        let mut states = 0;
        for round in 0..self.rounds {
            (bench.progress)(round, self.rounds);
            if let (Begin::Warm | Begin::OfTag, Some(monitor)) = (self.begin, &warm) {
                // What there is is not what it was in the last round.
                writer.set_state(NewState::new(tag(0), 2)?).await?;
                monitor.refresh().await?;
            }
            let began = bench.clock.monotonic();
            let monitor = match &warm {
                Some(monitor) => monitor.clone(),
                None => bench.jobs().monitor(JOB).await?,
            };
            let subscribers = (0..self.subscribers)
                .map(|number| self.subscribe(monitor.clone(), number, after.clone()));
            states += (Callers::spawn(subscribers).join().await?.iter()).sum::<u64>();
            let replayed = bench.since(began);
            latencies.record(replayed);
            took += replayed;
        }
        over.store(true, Ordering::Relaxed);
        busy.join().await?;
        let (operation, operations) = match self.subscribers {
            1 => ("state", states),
            many => ("subscription", many * self.rounds),
        };
        Ok(Measured {
            operation,
            operations,
            took,
            written: Written::now().since(wrote),
            latency_of: "replay",
            latencies,
            counts: BTreeMap::from([("replays", self.subscribers * self.rounds)]),
            settings: BTreeMap::from([("states", self.states.into())]),
            alone: None,
        })
    }

    fn tags(self) -> u64 {
        self.states / u64::from(PARTITIONS)
    }

    /// How many states were replayed.
    async fn subscribe(self, monitor: Monitor, number: u64, after: Option<Cursor>) -> Result<u64> {
        let (scope, expected) = match self.begin {
            Begin::Cold | Begin::Warm => (Scope::all(), self.states),
            Begin::OfTag => (
                Scope::all().tag(tag(number % self.tags()))?,
                PARTITIONS.into(),
            ),
            Begin::Resumed => (Scope::all(), 0),
        };
        let options = SubscribeOptions {
            after,
            ..SubscribeOptions::default()
        };
        let mut subscription = monitor.subscribe(scope, options).await?;
        let replayed = match self.begin {
            // There is nothing to wait for, not even a marker.
            Begin::Resumed => 0,
            Begin::Cold | Begin::Warm | Begin::OfTag => replay(&mut subscription).await?,
        };
        match replayed == expected {
            true => Ok(replayed),
            false => Err(Error::Corrupt("not all states were replayed".into())),
        }
    }

    async fn fill(self, jobs: Jobs, partition: u32) -> Result<()> {
        let manager = jobs.join(JOB, partition, PARTITIONS).await?;
        let set = |number| {
            let state = NewState::new(tag(number), 1);
            let state = state.map(|state| state.message("a part of the work has started"));
            state.map(|state| manager.set_state(state))
        };
        // All are under way at once.
        let sets: Vec<_> = (0..self.tags()).map(set).collect::<Result<_, _>>()?;
        for set in sets {
            set.await?;
        }
        Ok(())
    }
}

/// Sets a state after the other.
async fn write(manager: Manager, over: Arc<AtomicBool>) -> Result<()> {
    let mut status = 1;
    while !over.load(Ordering::Relaxed) {
        status += 1;
        manager.set_state(NewState::new(tag(0), status)?).await?;
    }
    Ok(())
}

fn tag(number: u64) -> String {
    format!("tag-{number:04}")
}
