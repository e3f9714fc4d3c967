//! The task cycle: submit, claim, complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use plimsoll::store::{Claim, Commit, Ending, Exchange, Pick, Settle, Write};
use plimsoll::task::{KeyLifetime, Lane, NewTask, OnConflict};
use plimsoll::{IdempotencyKey, Result};

use crate::figures::{Figures, Latencies};
use crate::io::Written;
use crate::{Bench, Scale, join, spawn};

/// How tasks are submitted and worked.
#[derive(Clone, Debug)]
pub(crate) struct Cycle {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    tasks: u64,
    /// How many callers submit at the same time.
    callers: u64,
    /// How many tasks each submits at once.
    bulk: u64,
    payload: usize,
    key: Option<KeyLifetime>,
    /// Whether a worker claims and completes them meanwhile.
    worked: bool,
}

/// How many tasks the worker claims at once.
const BATCH: usize = 256;

pub(crate) fn cycles(scale: Scale) -> Vec<Cycle> {
    let tasks = match scale {
        Scale::Short => 40_000,
        Scale::Full => 400_000,
    };
    let base = Cycle {
        name: "cycle",
        about: "64 callers submit one task each, one worker claims in batches and completes",
        tasks,
        callers: 64,
        bulk: 1,
        payload: 200,
        key: None,
        worked: true,
    };
    vec![
        base.clone(),
        Cycle {
            name: "sequential",
            about: "one caller submits one task after another, a worker completes them",
            tasks: tasks / 20,
            callers: 1,
            ..base.clone()
        },
        Cycle {
            name: "submit",
            about: "64 callers submit one task each, nobody works",
            worked: false,
            ..base.clone()
        },
        Cycle {
            name: "bulk",
            about: "one caller submits 1,000 tasks a call, nobody works",
            callers: 1,
            bulk: 1_000,
            worked: false,
            ..base.clone()
        },
        Cycle {
            name: "payload-10k",
            about: "as cycle, with payloads of 10 KiB",
            tasks: tasks / 4,
            payload: 10 * 1024,
            ..base.clone()
        },
        Cycle {
            name: "key-while-active",
            about: "as cycle, with a key that stands while the task is active",
            tasks: tasks / 2,
            key: Some(KeyLifetime::WhileActive),
            ..base.clone()
        },
        Cycle {
            name: "key-for-a-day",
            about: "as cycle, with a key that stands for a day",
            tasks: tasks / 2,
            key: Some(KeyLifetime::For(Duration::from_secs(86_400))),
            ..base.clone()
        },
        Cycle {
            name: "key-forever",
            about: "as cycle, with a key that stands for ever",
            tasks: tasks / 2,
            key: Some(KeyLifetime::Forever),
            ..base
        },
    ]
}

impl Cycle {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Figures> {
        let lane = Lane::new("bench", "cycle")?;
        let payload = Bytes::from(vec![b'x'; self.payload]);
        let turns = Arc::new(AtomicU64::new(0));
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let mut callers = Vec::new();
        for _ in 0..self.callers {
            let caller = Caller {
                bench: bench.clone(),
                cycle: self.clone(),
                lane: lane.clone(),
                payload: payload.clone(),
                turns: turns.clone(),
            };
            callers.push(spawn(caller.run()));
        }
        if self.worked {
            work(&bench, &lane, self.tasks).await?;
        }
        let mut latencies = Latencies::new();
        for caller in callers {
            latencies.merge(&join(caller).await?);
        }
        let took = bench.clock.monotonic().saturating_sub(began);
        let store = bench.store.capabilities().store;
        let written = Written::now().since(wrote);
        let operation = if self.worked { "cycle" } else { "task" };
        let figures = latencies
            .figures(self.name, &store, operation, self.tasks, took, written)
            .with("callers", self.callers)
            .with("bulk", self.bulk)
            .with("payload_bytes", self.payload as u64)
            .with_word("latency_of", "submit");
        Ok(if self.worked {
            figures.with("claim_batch", BATCH as u64)
        } else {
            figures
        })
    }
}

struct Caller {
    bench: Bench,
    cycle: Cycle,
    lane: Lane,
    payload: Bytes,
    turns: Arc<AtomicU64>,
}

impl Caller {
    /// Submits until the callers together have submitted enough.
    async fn run(self) -> Result<Latencies> {
        let mut latencies = Latencies::new();
        loop {
            let first = self.turns.fetch_add(self.cycle.bulk, Ordering::Relaxed);
            if first >= self.cycle.tasks {
                return Ok(latencies);
            }
            if !self.cycle.worked {
                (self.bench.progress)(first, self.cycle.tasks);
            }
            let count = self.cycle.bulk.min(self.cycle.tasks - first);
            let mut tasks = Vec::with_capacity(count as usize);
            for turn in first..first + count {
                tasks.push(self.task(turn)?);
            }
            let began = self.bench.clock.monotonic();
            submit_all(&self.bench, tasks).await?;
            latencies.record(self.bench.clock.monotonic().saturating_sub(began));
        }
    }

    fn task(&self, turn: u64) -> Result<NewTask> {
        let task = self.bench.task(&self.lane, &self.payload);
        Ok(match self.cycle.key {
            None => task,
            Some(lifetime) => {
                let key = IdempotencyKey::new(format!("order-{turn}"))?;
                task.key_with(key, lifetime, OnConflict::Attach)
            }
        })
    }
}

/// Submits tasks in one call, in as few commits as the store allows.
pub(crate) async fn submit_all(bench: &Bench, tasks: Vec<NewTask>) -> Result<()> {
    let limits = bench.store.limits();
    let room = limits.commit_bytes_max / tasks.first().map_or(1, |task| task.size().max(1));
    let each = limits.commit_writes_max.min(room.max(1));
    let mut commits = Vec::new();
    let mut tasks = tasks.into_iter().peekable();
    while tasks.peek().is_some() {
        let writes = tasks.by_ref().take(each);
        commits.push(Commit {
            writes: writes.map(|task| Write::Submit(Box::new(task))).collect(),
            ..Commit::default()
        });
    }
    for receipt in bench.store.commit(commits).await {
        receipt?;
    }
    Ok(())
}

/// Claims and completes until `tasks` are done.
async fn work(bench: &Bench, lane: &Lane, tasks: u64) -> Result<()> {
    let worker = bench.worker()?;
    let mut wakeups = bench.store.wakeups();
    let (mut done, mut commits) = (0, Vec::new());
    while done < tasks {
        let settled = commits.len() as u64;
        let exchange = Exchange {
            commits,
            renew: None,
            claim: Some(Claim {
                pick: Pick::Next {
                    lanes: vec![lane.clone()],
                    limit: BATCH,
                },
                worker: worker.clone(),
                lease: Duration::from_secs(60),
                request: bench.ids.request(),
            }),
        };
        let exchanged = bench.store.exchange(exchange).await?;
        for receipt in exchanged.commits {
            receipt?;
        }
        done += settled;
        (bench.progress)(done, tasks);
        let claimed = match exchanged.claimed {
            Some(claimed) => claimed?.tasks,
            None => Vec::new(),
        };
        commits = Vec::with_capacity(claimed.len());
        for holder in claimed.iter().filter_map(|task| task.holder()) {
            let how = Ending::Complete { result: None };
            commits.push(Commit::of(Write::Settle(Settle { holder, how })));
        }
        if commits.is_empty() && done < tasks {
            wakeups.next().await;
        }
    }
    Ok(())
}

/// Submits `count` tasks as fast as it goes, to stand in a claim's way.
pub(crate) async fn fill(bench: &Bench, count: u64, task: impl Fn(u64) -> NewTask) -> Result<()> {
    for first in (0..count).step_by(5_000) {
        let tasks = (first..count.min(first + 5_000)).map(&task).collect();
        submit_all(bench, tasks).await?;
        (bench.progress)(first, count);
    }
    Ok(())
}
