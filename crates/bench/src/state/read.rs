//! What reading the state of a job costs while it has many partitions.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll::Result;
use plimsoll::jobs::{Jobs, NewState, Scope};

use super::write::JOB;
use super::{Act, OfState};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// One who reads the state of a scope, and how many partitions the job has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reads {
    of: Of,
    partitions: u32,
    rounds: u64,
}

#[derive(Clone, Copy, Debug)]
enum Of {
    All,
    Tag,
    Partition,
    One,
}

/// How many partitions there are.
const PARTITIONS: [(u32, &str); 3] = [(10, "10"), (1_000, "1k"), (10_000, "10k")];
const TAG: &str = "tag";
/// A single read is too short for the clock.
const READS: u64 = 1_000;
const FILLERS: u32 = 64;

impl Of {
    fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Tag => "tag",
            Self::Partition => "partition",
            Self::One => "one",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::All => "one caller reads the state that speaks for the whole job",
            Self::Tag => "one caller reads the state that speaks for a tag",
            Self::Partition => "one caller reads the state that speaks for a partition",
            Self::One => "one caller reads the state of a tag of a partition",
        }
    }
}

pub(super) fn reads(scale: Scale) -> Vec<OfState> {
    let reads = |of: Of, (partitions, size)| {
        let rounds = scale.rounds;
        let reads = Reads {
            of,
            partitions,
            rounds,
        };
        let name = format!("read-{}-{size}", of.word());
        OfState::new(name, of.about(), Act::Read(reads))
    };
    let all = [Of::All, Of::Tag, Of::Partition, Of::One].into_iter();
    let all = all.flat_map(|of| PARTITIONS.map(|partitions| reads(of, partitions)));
    all.collect()
}

impl Reads {
    pub(super) async fn run(self, bench: Bench) -> Result<Measured> {
        let jobs = bench.jobs();
        let fill = |first| self.fill(bench.clone(), jobs.clone(), first);
        Callers::spawn((0..FILLERS).map(fill)).join().await?;
        let monitor = jobs.monitor(JOB).await?;
        let mut latencies = Latencies::new();
        let (mut took, wrote) = (Duration::ZERO, Written::now());
        for round in 0..self.rounds {
            (bench.progress)(round, self.rounds);
            let scope = self.scope(bench.ids.below(self.partitions.into()))?;
            let began = bench.clock.monotonic();
            for _ in 0..READS {
                std::hint::black_box(monitor.get_state(&scope).await?);
            }
            let answered = bench.since(began);
            latencies.record(answered);
            took += answered;
        }
        Ok(Measured {
            operation: "read",
            operations: READS * self.rounds,
            took,
            written: Written::now().since(wrote),
            latency_of: "1,000 reads",
            latencies,
            counts: BTreeMap::from([("reads", READS * self.rounds)]),
            settings: BTreeMap::from([
                ("scope", self.of.word().into()),
                ("depth", u64::from(self.partitions).into()),
            ]),
            alone: None,
        })
    }

    fn scope(self, partition: u64) -> Result<Scope> {
        let all = Scope::all();
        Ok(match self.of {
            Of::All => all,
            Of::Tag => all.tag(TAG)?,
            Of::Partition => all.partition(partition as u32),
            Of::One => all.tag(TAG)?.partition(partition as u32),
        })
    }

    /// Every partition says something, each something else.
    async fn fill(self, bench: Bench, jobs: Jobs, first: u32) -> Result<()> {
        for partition in (first..self.partitions).step_by(FILLERS as usize) {
            (bench.progress)(partition.into(), self.partitions.into());
            let manager = jobs.join(JOB, partition, self.partitions).await?;
            let status = 1 + partition as i32;
            manager.set_state(NewState::new(TAG, status)?).await?;
        }
        Ok(())
    }
}
