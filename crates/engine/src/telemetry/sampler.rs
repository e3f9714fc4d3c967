//! Looks at the store for what no worker knows: how much waits, for how long, and who works.

use std::collections::BTreeMap;
use std::time::Duration;

use metrics::{Counter, Gauge};
use plimsoll_core::store::{Counts, LaneCounts, List, Peek, Selector};
use plimsoll_core::task::{Lane, Status, Task};
use plimsoll_core::{Error, Name, Result, Timestamp};

use super::handles::label;
use super::labels::{Distinct, OTHER};
use super::table;
use crate::Engine;
use crate::registry::{WorkerInfo, WorkerStatus};

/// How often to look.
const EVERY: Duration = Duration::from_secs(15);
/// How many lanes to look into in one go. If more have tasks, they take turns.
const LANES_MAX: usize = 32;
/// How many pages of the registry to look through.
const ROLLS_MAX: usize = 10;

/// Samples the gauges that need the store: `queue_size`, `plimsoll_oldest_runnable_seconds` and
/// `workers_active`. One for a namespace is enough; where several run, they show the same.
///
/// A look costs one `counts`, two reads of one task for each of at most 32 lanes, and at most ten
/// pages of the registry. How long a task has waited is a lower bound: seen are the one that is
/// next in line and the one that was submitted first.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll_core::{Memory, Namespace};
/// # use plimsoll_engine::{Engine, telemetry::Sampler};
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// # let engine = Engine::new(Arc::new(Memory::new().open(Namespace::new("docs")?)));
/// let tasks = engine.tasks();
/// tasks.submit(tasks.task("mail", "send", "hello")?).await?;
/// let sampled = Sampler::new(engine).sample_once().await?;
/// assert_eq!(sampled.queues["mail"].size, 1);
/// # Ok::<(), plimsoll_core::Error>(()) }).unwrap();
/// ```
#[derive(Debug)]
pub struct Sampler {
    engine: Engine,
    every: Duration,
    queues: Distinct<Name>,
    gauges: BTreeMap<String, (Gauge, Gauge)>,
    workers: Gauge,
    /// Since when something waits in a lane, as last seen.
    since: BTreeMap<Lane, Timestamp>,
    /// The lane that was looked into last, if not all were.
    last: Option<Lane>,
    outcomes: [Counter; 2],
}

/// What a look at the store has shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampled {
    /// By queue; those beyond the bound of [`Labels`](super::Labels) together as `other`.
    pub queues: BTreeMap<String, Waiting>,
    /// Workers that take tasks, by the store's clock.
    pub workers: u64,
}

/// What waits in a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How many tasks are runnable.
    pub size: u64,
    /// For how long one of them has been, at least.
    pub oldest: Duration,
}

impl Sampler {
    /// Samples every 15 seconds.
    pub fn new(engine: Engine) -> Self {
        let outcome = |outcome| table::SAMPLES.with_counter(vec![label("outcome", outcome)]);
        let namespace = label("namespace", engine.store().namespace().as_str());
        Self {
            workers: table::WORKERS_ACTIVE.with_gauge(vec![namespace]),
            queues: Distinct::new(engine.telemetry().labels().distinct_max),
            engine,
            every: EVERY,
            gauges: BTreeMap::new(),
            since: BTreeMap::new(),
            last: None,
            outcomes: ["ok", "error"].map(outcome),
        }
    }

    /// Samples this often.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Samples until it is dropped or the store is closed.
    pub async fn run(mut self) {
        let mut failing = false;
        loop {
            match self.sample_once().await {
                Ok(_) => failing = false,
                Err(Error::Closed) => return,
                // One line for an outage is enough.
                Err(error) if !std::mem::replace(&mut failing, true) => {
                    tracing::warn!(%error, "cannot sample the store");
                }
                Err(_) => {}
            }
            self.engine.clock().sleep(self.every).await;
        }
    }

    /// Looks once, and sets the gauges.
    pub async fn sample_once(&mut self) -> Result<Sampled> {
        let looked = self.look().await;
        let [ok, error] = &self.outcomes;
        match &looked {
            Ok(_) => ok.increment(1),
            Err(_) => error.increment(1),
        }
        let sampled = looked?;
        self.show(&sampled);
        Ok(sampled)
    }

    async fn look(&mut self) -> Result<Sampled> {
        let counts = self.engine.store().counts(Counts::default()).await?;
        let waiting: BTreeMap<Lane, u64> = counts.into_iter().filter_map(runnable).collect();
        self.since.retain(|lane, _| waiting.contains_key(lane));
        for lane in turn(&waiting, self.last.as_ref()) {
            match self.oldest(&lane).await? {
                Some(since) => drop(self.since.insert(lane.clone(), since)),
                None => drop(self.since.remove(&lane)),
            }
            self.last = Some(lane);
        }
        let now = self.engine.clock().now();
        let mut sampled = Sampled {
            workers: self.active().await?,
            ..Sampled::default()
        };
        for (lane, size) in waiting {
            let queue = match self.queues.admits(&lane.queue) {
                true => lane.queue.as_str(),
                false => OTHER,
            };
            let of_queue = sampled.queues.entry(queue.to_owned()).or_default();
            of_queue.size += size;
            let since = self.since.get(&lane);
            let age = since.map_or(Duration::ZERO, |since| now.since(*since));
            of_queue.oldest = of_queue.oldest.max(age);
        }
        Ok(sampled)
    }

    /// Since when a task of this lane is runnable, at least.
    async fn oldest(&self, lane: &Lane) -> Result<Option<Timestamp>> {
        let store = self.engine.store();
        let next = Peek {
            lanes: vec![lane.clone()],
            limit: 1,
        };
        let next = store.peek(next).await?;
        let first = List::new(Selector::Lane(lane.clone(), Status::Pending), 1);
        let first = store.list(first).await?.rows;
        let since = |task: &Task| task.runnable_at;
        Ok(next.iter().chain(&first).map(since).min())
    }

    /// How many workers take tasks.
    async fn active(&self) -> Result<u64> {
        let workers = self.engine.workers();
        let (mut active, mut cursor) = (0, None);
        for _ in 0..ROLLS_MAX {
            let roll = workers.running(cursor).await?;
            let takes = |worker: &&WorkerInfo| worker.status == WorkerStatus::Active;
            active += roll.workers.iter().filter(takes).count() as u64;
            cursor = roll.next;
            if cursor.is_none() {
                break;
            }
        }
        Ok(active)
    }

    /// A queue that has become empty is shown as such.
    fn show(&mut self, sampled: &Sampled) {
        self.workers.set(sampled.workers as f64);
        let namespace = self.engine.store().namespace().to_string();
        for queue in sampled.queues.keys() {
            self.gauges.entry(queue.clone()).or_insert_with(|| {
                let labels = || vec![label("namespace", &namespace), label("queue", queue)];
                let size = table::QUEUE_SIZE.with_gauge(labels());
                (size, table::OLDEST_RUNNABLE.with_gauge(labels()))
            });
        }
        for (queue, (size, oldest)) in &self.gauges {
            let waiting = sampled.queues.get(queue).copied().unwrap_or_default();
            size.set(waiting.size as f64);
            oldest.set(waiting.oldest.as_secs_f64());
        }
    }
}

fn runnable(counts: LaneCounts) -> Option<(Lane, u64)> {
    let size = counts.by_status.get(&Status::Pending).copied()?;
    (size > 0).then_some((counts.lane, size))
}

/// The lanes to look into now: those after the last one, and then from the beginning.
fn turn(waiting: &BTreeMap<Lane, u64>, last: Option<&Lane>) -> Vec<Lane> {
    let after = |lane: &&Lane| last.is_none_or(|last| *lane > last);
    let (later, earlier): (Vec<&Lane>, Vec<&Lane>) = waiting.keys().partition(after);
    let lanes = later.into_iter().chain(earlier);
    lanes.take(LANES_MAX).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lanes_take_turns() {
        let lane = |number: usize| Lane::new("q", format!("{number:03}")).unwrap();
        let waiting: BTreeMap<Lane, u64> = (0..80).map(|number| (lane(number), 1)).collect();
        let mut last = None;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let lanes = turn(&waiting, last.as_ref());
            assert_eq!(lanes.len(), LANES_MAX);
            last = lanes.last().cloned();
            seen.extend(lanes);
        }
        assert_eq!(seen[..80], waiting.into_keys().collect::<Vec<_>>());
        assert_eq!(seen[80], lane(0));
    }
}
