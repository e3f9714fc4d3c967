//! What a claim costs while much else is there.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use plimsoll::Result;
use plimsoll::store::{Claim, Commit, Ending, Pick, Settle, Write};
use plimsoll::task::{Lane, Task};

use crate::cycle::{fill, submit_all};
use crate::figures::{Latencies, Measured};
use crate::io::Written;
use crate::{Bench, Scale};

/// A claim, and what is in its way.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    pub(crate) full_only: bool,
    backlog: Backlog,
    depth: u64,
    limit: u64,
    rounds: u64,
    rest: Duration,
}

/// What is there besides the tasks that are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Waiting,
    Scheduled,
    Finished,
    Foreign,
}

impl Backlog {
    const ALL: [Self; 4] = [
        Self::Waiting,
        Self::Scheduled,
        Self::Finished,
        Self::Foreign,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Scheduled => "scheduled",
            Self::Finished => "finished",
            Self::Foreign => "foreign",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Waiting => "claim while others wait in the lane",
            Self::Scheduled => "claim while others are scheduled in the lane",
            Self::Finished => "claim while others have ended in the lane",
            Self::Foreign => "claim while others of another kind wait in the queue",
        }
    }
}

/// How many others there are. The smallest is the first, for the others are compared with it.
const DEPTHS: [(u64, &str); 4] = [
    (1_000, "1k"),
    (100_000, "100k"),
    (1_000_000, "1m"),
    (5_000_000, "5m"),
];
/// Filling a store with more takes minutes.
const SHORT_DEPTH_MAX: u64 = 100_000;

pub(crate) fn claims(scale: Scale) -> Vec<Claims> {
    let mut claims = Vec::new();
    for limit in [1, 100] {
        for backlog in Backlog::ALL {
            for (depth, size) in DEPTHS {
                claims.push(Claims {
                    name: format!("claim-{limit}-{}-{size}", backlog.word()),
                    about: backlog.about(),
                    full_only: depth > SHORT_DEPTH_MAX,
                    backlog,
                    depth,
                    limit,
                    rounds: scale.rounds,
                    rest: scale.rest,
                });
            }
        }
    }
    claims
}

impl Claims {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        let lane = Lane::new("bench", "claim")?;
        let payload = Bytes::from(vec![b'x'; 200]);
        self.set_up(&bench, &lane, &payload).await?;
        // As many as one claim takes are there in any case.
        let heads = (0..self.limit).map(|_| bench.task(&lane, &payload));
        submit_all(&bench, heads.collect()).await?;
        bench.clock.sleep(self.rest).await;
        let mut latencies = Latencies::new();
        let (mut claimed, mut took) = (0, Duration::ZERO);
        let mut written = Written::NOTHING;
        for round in 0..self.rounds {
            let wrote = Written::now();
            let asked = bench.clock.monotonic();
            let tasks = claim(&bench, &lane, self.limit).await?;
            let answered = bench.since(asked);
            latencies.record(answered);
            took += answered;
            written = written.and(Written::now().since(wrote));
            claimed += tasks.len() as u64;
            settle(&bench, tasks, Ending::Release { reason: None }).await?;
            (bench.progress)(round, self.rounds);
        }
        Ok(Measured {
            operation: "task claimed",
            operations: claimed,
            took,
            written,
            latency_of: "claim",
            latencies,
            counts: BTreeMap::from([("claims", self.rounds), ("claimed", claimed)]),
            settings: BTreeMap::from([
                ("limit", self.limit.into()),
                ("backlog", self.backlog.word().into()),
                ("depth", self.depth.into()),
                ("payload_bytes", (payload.len() as u64).into()),
            ]),
            alone: None,
        })
    }

    async fn set_up(&self, bench: &Bench, lane: &Lane, payload: &Bytes) -> Result<()> {
        let foreign = Lane::new("bench", "foreign")?;
        let new = |lane: &Lane| bench.task(lane, payload);
        let hour = Duration::from_secs(3_600);
        match self.backlog {
            Backlog::Waiting => fill(bench, self.depth, |_| new(lane)).await,
            Backlog::Scheduled => fill(bench, self.depth, |_| new(lane).after(hour)).await,
            Backlog::Foreign => fill(bench, self.depth, |_| new(&foreign)).await,
            Backlog::Finished => {
                for first in (0..self.depth).step_by(1_000) {
                    submit_all(bench, (0..1_000).map(|_| new(lane)).collect()).await?;
                    let tasks = claim(bench, lane, 1_000).await?;
                    settle(bench, tasks, Ending::Complete { result: None }).await?;
                    (bench.progress)(first, self.depth);
                }
                Ok(())
            }
        }
    }
}

async fn claim(bench: &Bench, lane: &Lane, limit: u64) -> Result<Vec<Task>> {
    let claim = Claim {
        pick: Pick::Next {
            lanes: vec![lane.clone()],
            limit: limit as usize,
        },
        worker: bench.worker()?,
        lease: Duration::from_secs(60),
        request: bench.ids.request(),
    };
    Ok(bench.store.claim(claim).await?.tasks)
}

pub(crate) async fn settle(bench: &Bench, tasks: Vec<Task>, how: Ending) -> Result<()> {
    let settle = |holder| {
        let how = how.clone();
        Commit::of(Write::Settle(Settle { holder, how }))
    };
    let commits = tasks.iter().filter_map(Task::holder).map(settle).collect();
    for receipt in bench.store.commit(commits).await {
        receipt?;
    }
    Ok(())
}
