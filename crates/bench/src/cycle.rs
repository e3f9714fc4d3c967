//! The task cycle: submit, claim, complete.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use plimsoll::store::{
    Claim, Commit, Ending, Exchange, Outcome, Pick, Settle, SubmitOutcome, Write,
};
use plimsoll::task::{KeyLifetime, Lane, NewTask, OnConflict};
use plimsoll::{IdempotencyKey, Result};
use tokio::sync::watch;

use crate::figures::{Latencies, Measured, Setting};
use crate::io::Written;
use crate::parallel::Callers;
use crate::{Bench, Scale};

/// How tasks are submitted and worked.
#[derive(Clone, Debug)]
pub(crate) struct Cycle {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    submits: u64,
    /// How many callers submit at the same time.
    callers: u64,
    /// How many tasks each submits at once.
    bulk: u64,
    payload: usize,
    keys: Keys,
    /// Whether a worker claims and completes them meanwhile.
    worked: bool,
}

/// What idempotency keys tasks are submitted with.
#[derive(Clone, Copy, Debug)]
enum Keys {
    None,
    /// Each task has its own.
    Own(KeyLifetime),
    /// Every other submit meets the key of a task that was submitted before, and attaches to it.
    HalfAttach,
}

/// How many tasks the worker claims at once.
const BATCH: usize = 256;

pub(crate) fn cycles(scale: Scale) -> Vec<Cycle> {
    let submits = |part: u64| (scale.tasks / part).max(1);
    let base = Cycle {
        name: "cycle",
        about: "64 callers submit one task each, one worker claims and completes",
        submits: submits(1),
        callers: 64,
        bulk: 1,
        payload: 200,
        keys: Keys::None,
        worked: true,
    };
    let keyed = |name, about, keys| Cycle {
        name,
        about,
        submits: submits(2),
        keys,
        ..base.clone()
    };
    vec![
        base.clone(),
        Cycle {
            name: "sequential",
            about: "one caller submits task after task, one worker completes them",
            submits: submits(20),
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
            submits: submits(4),
            payload: 10 * 1024,
            ..base.clone()
        },
        keyed(
            "key-while-active",
            "as cycle, with keys that stand while the task is active",
            Keys::Own(KeyLifetime::WhileActive),
        ),
        keyed(
            "key-for-a-day",
            "as cycle, with keys that stand for a day",
            Keys::Own(KeyLifetime::For(Duration::from_secs(86_400))),
        ),
        keyed(
            "key-forever",
            "as cycle, with keys that stand for ever",
            Keys::Own(KeyLifetime::Forever),
        ),
        keyed(
            "key-half-attach",
            "as cycle, with two submits a task: every other meets a known key",
            Keys::HalfAttach,
        ),
    ]
}

impl Cycle {
    pub(crate) async fn run(&self, bench: Bench) -> Result<Measured> {
        let lane = Lane::new("bench", "cycle")?;
        let payload = Bytes::from(vec![b'x'; self.payload]);
        let turns = Arc::new(AtomicU64::new(0));
        let (began, wrote) = (bench.clock.monotonic(), Written::now());
        let callers = Callers::spawn((0..self.callers).map(|_| {
            let caller = Caller {
                bench: bench.clone(),
                cycle: self.clone(),
                lane: lane.clone(),
                payload: payload.clone(),
                turns: turns.clone(),
            };
            caller.run()
        }));
        let (tell, created) = watch::channel(None);
        let submitting = async {
            let mut all = Submits::new();
            for submits in callers.join().await? {
                all.created += submits.created;
                all.latencies.merge(&submits.latencies);
            }
            tell.send_replace(Some(all.created));
            Ok(all)
        };
        let working = async {
            match self.worked {
                true => work(&bench, &lane, created).await,
                false => Ok(0),
            }
        };
        let (all, completed) = tokio::try_join!(submitting, working)?;
        Ok(Measured {
            operation: if self.worked { "cycle" } else { "submit" },
            operations: if self.worked { completed } else { self.submits },
            took: bench.since(began),
            written: Written::now().since(wrote),
            latency_of: if self.bulk > 1 {
                "bulk submit"
            } else {
                "submit"
            },
            latencies: all.latencies,
            counts: BTreeMap::from([
                ("submits", self.submits),
                ("created", all.created),
                ("completed", completed),
            ]),
            settings: self.settings(),
            alone: None,
        })
    }

    fn settings(&self) -> BTreeMap<&'static str, Setting> {
        let keys = match self.keys {
            Keys::None => "none",
            Keys::Own(KeyLifetime::WhileActive) => "while active",
            Keys::Own(KeyLifetime::For(_)) => "for a day",
            Keys::Own(KeyLifetime::Forever) => "forever",
            Keys::HalfAttach => "forever, half attach",
        };
        let mut settings = BTreeMap::from([
            ("callers", self.callers.into()),
            ("bulk", self.bulk.into()),
            ("payload_bytes", (self.payload as u64).into()),
            ("keys", keys.into()),
        ]);
        if self.worked {
            settings.insert("claim_batch", (BATCH as u64).into());
        }
        settings
    }
}

struct Caller {
    bench: Bench,
    cycle: Cycle,
    lane: Lane,
    payload: Bytes,
    turns: Arc<AtomicU64>,
}

/// What became of submits, and how long they took.
struct Submits {
    created: u64,
    latencies: Latencies,
}

impl Submits {
    fn new() -> Self {
        Self {
            created: 0,
            latencies: Latencies::new(),
        }
    }
}

impl Caller {
    /// Submits until the callers together have submitted enough.
    async fn run(self) -> Result<Submits> {
        let mut submits = Submits::new();
        loop {
            let first = self.turns.fetch_add(self.cycle.bulk, Ordering::Relaxed);
            if first >= self.cycle.submits {
                return Ok(submits);
            }
            (self.bench.progress)(first, self.cycle.submits);
            let last = self.cycle.submits.min(first + self.cycle.bulk);
            let tasks = (first..last).map(|turn| self.task(turn));
            let tasks = tasks.collect::<Result<_>>()?;
            let began = self.bench.clock.monotonic();
            submits.created += submit_all(&self.bench, tasks).await?;
            submits.latencies.record(self.bench.since(began));
        }
    }

    fn task(&self, turn: u64) -> Result<NewTask> {
        let task = self.bench.task(&self.lane, &self.payload);
        let (number, lifetime) = match self.cycle.keys {
            Keys::None => return Ok(task),
            Keys::Own(lifetime) => (turn, lifetime),
            // Even turns bring the keys 0, 1, 2 and so on; odd ones meet those halfway back.
            Keys::HalfAttach if turn.is_multiple_of(2) => (turn / 2, KeyLifetime::Forever),
            Keys::HalfAttach => (turn / 4, KeyLifetime::Forever),
        };
        let key = IdempotencyKey::new(format!("order-{number}"))?;
        Ok(task.key_with(key, lifetime, OnConflict::Attach))
    }
}

/// Submits tasks in one call, in as few commits as the store allows, and answers how many of them
/// are new.
pub(crate) async fn submit_all(bench: &Bench, tasks: Vec<NewTask>) -> Result<u64> {
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
    let mut created = 0;
    for receipt in bench.store.commit(commits).await {
        let is_new = |outcome: &&Outcome| match outcome {
            Outcome::Submitted(submitted) => submitted.outcome == SubmitOutcome::Created,
            _ => false,
        };
        created += receipt?.outcomes.iter().filter(is_new).count() as u64;
    }
    Ok(created)
}

/// Claims and completes until as many are done as were `created`, which is told once it is known.
async fn work(
    bench: &Bench,
    lane: &Lane,
    mut created: watch::Receiver<Option<u64>>,
) -> Result<u64> {
    let worker = bench.worker()?;
    let mut wakeups = bench.store.wakeups();
    let (mut done, mut commits) = (0, Vec::new());
    loop {
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
        let claimed = match exchanged.claimed {
            Some(claimed) => claimed?.tasks,
            None => Vec::new(),
        };
        commits = Vec::with_capacity(claimed.len());
        for holder in claimed.iter().filter_map(|task| task.holder()) {
            let how = Ending::Complete { result: None };
            commits.push(Commit::of(Write::Settle(Settle { holder, how })));
        }
        if *created.borrow_and_update() == Some(done) {
            return Ok(done);
        }
        if commits.is_empty() {
            tokio::select! {
                _ = wakeups.next() => {}
                // Whoever tells lives as long as this worker.
                _ = created.changed() => {}
            }
        }
    }
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
