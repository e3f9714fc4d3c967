//! What a claim costs while much else is there.

use std::time::Duration;

use bytes::Bytes;
use plimsoll::Result;
use plimsoll::store::{Claim, Commit, Ending, Pick, Settle, Write};
use plimsoll::task::{Lane, NewTask, Task};

use crate::cycle::{fill, submit_all};
use crate::figures::{Figures, Latencies};
use crate::io::Written;
use crate::{Bench, Scale};

/// A claim, and what is in its way.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    backlog: Backlog,
    depth: u64,
    limit: usize,
}

/// What is there besides the tasks that are claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Backlog {
    Waiting,
    Scheduled,
    Finished,
    Foreign,
}

/// How often a claim is measured.
const ROUNDS: u64 = 2_000;
/// What filling the store has left to do in the background is over by then.
const REST: Duration = Duration::from_secs(2);

pub(crate) fn claims(scale: Scale) -> Vec<Claims> {
    let depths: &[(u64, &str)] = match scale {
        Scale::Short => &[(1_000, "1k"), (100_000, "100k")],
        Scale::Full => &[
            (1_000, "1k"),
            (100_000, "100k"),
            (1_000_000, "1m"),
            (5_000_000, "5m"),
        ],
    };
    let mut claims = Vec::new();
    for (backlog, word, about) in [
        (
            Backlog::Waiting,
            "waiting",
            "claim while others wait in the lane",
        ),
        (
            Backlog::Scheduled,
            "scheduled",
            "claim while others are scheduled in the lane",
        ),
        (
            Backlog::Finished,
            "finished",
            "claim while others have ended in the lane",
        ),
        (
            Backlog::Foreign,
            "foreign",
            "claim while others of another kind wait in the queue",
        ),
    ] {
        for (depth, size) in depths {
            for limit in [1, 100] {
                claims.push(Claims {
                    name: format!("claim-{limit}-{word}-{size}"),
                    about,
                    backlog,
                    depth: *depth,
                    limit,
                });
            }
        }
    }
    claims
}

impl Claims {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Figures> {
        let lane = Lane::new("bench", "claim")?;
        let foreign = Lane::new("bench", "foreign")?;
        let payload = Bytes::from(vec![b'x'; 200]);
        let new = |lane: &Lane| bench.task(lane, &payload);
        let hour = Duration::from_secs(3_600);
        match self.backlog {
            Backlog::Waiting => fill(&bench, self.depth, |_| new(&lane)).await?,
            Backlog::Scheduled => fill(&bench, self.depth, |_| new(&lane).after(hour)).await?,
            Backlog::Foreign => fill(&bench, self.depth, |_| new(&foreign)).await?,
            Backlog::Finished => {
                for first in (0..self.depth).step_by(1_000) {
                    let tasks: Vec<NewTask> = (0..1_000).map(|_| new(&lane)).collect();
                    submit_all(&bench, tasks).await?;
                    let taken = claim(&bench, &lane, 1_000).await?;
                    settle(&bench, taken, Ending::Complete { result: None }).await?;
                    (bench.progress)(first, self.depth);
                }
            }
        }
        // As many as one claim takes are there in any case.
        submit_all(&bench, (0..self.limit).map(|_| new(&lane)).collect()).await?;
        bench.clock.sleep(REST).await;
        let mut latencies = Latencies::new();
        let (mut taken_in_all, mut took_in_all) = (0, Duration::ZERO);
        let wrote = Written::now();
        for round in 0..ROUNDS {
            let began = bench.clock.monotonic();
            let taken = claim(&bench, &lane, self.limit).await?;
            let took = bench.clock.monotonic().saturating_sub(began);
            latencies.record(took);
            took_in_all += took;
            taken_in_all += taken.len() as u64;
            settle(&bench, taken, Ending::Release { reason: None }).await?;
            (bench.progress)(round, ROUNDS);
        }
        let store = bench.store.capabilities().store;
        let written = Written::now().since(wrote);
        Ok(latencies
            .figures(
                &self.name,
                &store,
                "task claimed",
                taken_in_all,
                took_in_all,
                written,
            )
            .with("limit", self.limit as u64)
            .with("depth", self.depth)
            .with_word("latency_of", "claim"))
    }
}

async fn claim(bench: &Bench, lane: &Lane, limit: usize) -> Result<Vec<Task>> {
    let claim = Claim {
        pick: Pick::Next {
            lanes: vec![lane.clone()],
            limit,
        },
        worker: bench.worker()?,
        lease: Duration::from_secs(60),
        request: bench.ids.request(),
    };
    Ok(bench.store.claim(claim).await?.tasks)
}

async fn settle(bench: &Bench, tasks: Vec<Task>, how: Ending) -> Result<()> {
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
